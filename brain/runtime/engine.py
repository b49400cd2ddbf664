"""The engine: begins turns and holds what they share: specialists, models, store and memory."""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import NamedTuple, get_args
from urllib.parse import urlsplit

import anyio.lowlevel

from brain.errors import BadRequest, SettingsError, StoreError, is_private
from brain.events import Event, Role, StrategyName
from brain.memory import Memory
from brain.memory.quotes import UserMessage
from brain.messages import Exchange, History, RecallResult, Text, new_conversation_id, new_turn_id, to_answer_id
from brain.models import connect_models
from brain.models.circuit_breaker import BreakerState
from brain.models.model import Model
from brain.plugins.context import MemoryView, TaskView
from brain.plugins.registry import Registry
from brain.prompts import context_window
from brain.prompts.context_window import Window
from brain.runtime.archive import Archive, Recorded, open_archive
from brain.runtime.assistant import Assistant
from brain.runtime.client_tasks import is_for_client, narrow_client_task
from brain.runtime.persistence import ENDING_SECONDS, Persistence
from brain.runtime.priority import Priority
from brain.runtime.processes import LOOK_SECONDS, RETURN_SECONDS, Processes, ResumableTurn
from brain.runtime.recording import Recorder
from brain.runtime.run import DEFAULT_OPTIONS, OnEnd, Run, RunOptions
from brain.runtime.runs import RunRegistry
from brain.runtime.stored_exchange import StoredExchange, TaskEnd
from brain.runtime.task_reports import APPROVAL_SECONDS, TaskReports, end_report
from brain.runtime.task_runner import OnTaskEnd, TaskRunner
from brain.settings import Rights, Settings, passwords
from brain.store import answers, open_store, rows, tasks, turns
from brain.store.answers import pieces
from brain.store.store import Store
from brain.store.turns import Claimed
from brain.store.vectors import Query
from brain.strategies import find_strategy
from brain.task import ProfileName
from brain.tasks import Tasks
from brain.tasks.view import UserTasks
from brain.telemetry.logs import Redaction
from brain.turn.setup import StoreExchange, Timeouts, TurnSetup, open_stream
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest

_SECRET_NAMES = ("key", "password", "secret", "token")
"""Ends of the names of settings of specialists that are secret."""
SETTLE_SECONDS = 0.25
"""Time in which all processes of a server get the same signal to stop."""
LONG_ANSWER = 65_536
"""Characters of an answer that is read in a thread."""

log = logging.getLogger("brain")


class Engine:
    """Runs turns for a server, a command or a program.

    Attributes:
        models: The configured models, the default first. Empty while the engine is closed.
        entries: All models except the embedder, by their names in the settings. Empty while the engine is closed.
        embedder: The model of the setting EMBEDDINGS, if it is set.
        tasks: Background tasks.
        reports: Reports on background tasks.
        archive: Records turns, if the setting ARCHIVE is set.
        runs: Runs of this process and of others.
        is_closing: Whether the engine is about to close, and takes no more turns.
    """

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self.settings = settings
        self.registry = registry
        self.store: Store
        self.memory: Memory
        self.persistence: Persistence
        self.tasks: Tasks
        self.reports: TaskReports
        self._assistant: Assistant
        self.models: list[Model] = []
        self.entries: Mapping[str, Model] = {}
        self.embedder: Model | None = None
        self.archive: Archive | None = None
        self.runs = RunRegistry()
        self.is_closing = False
        self._ends_turns = False
        self._priority = Priority()
        self._timeouts = Timeouts(
            settings.model_idle_seconds, settings.model_first_token_seconds, settings.approval_seconds
        )
        self._window = Window(settings.window_messages, settings.window_tokens, settings.context_seconds)
        self._resources: AsyncExitStack | None = None
        self._runs_tasks = False
        self._on_background_end: OnEnd | None = None

    async def open(self, on_task_end: OnTaskEnd | None = None, on_background_end: OnEnd | None = None) -> None:
        """Open the store and the models, and start the specialists.

        Args:
            on_task_end: Called at the end of each run of a background task. Without it, this process runs no tasks.
            on_background_end: Called at the end of each turn of a task, and of each report on tasks.

        Raises:
            BrainError: The engine cannot start with these settings.
        """
        if self._resources is not None:
            return
        await anyio.lowlevel.checkpoint()  # load anyio's backend now and not in the first turn
        async with AsyncExitStack() as stack:
            self.store = await open_store(self.settings.store)
            stack.push_async_callback(self.store.close)
            if self.store.database.is_shared:
                processes = Processes(self.store, self._window.messages, self._continue, self.runs.hand_over)
                self.runs.processes = processes
                stack.push_async_callback(processes.close)
            self.archive = open_archive(self.settings)
            if self.archive is not None:
                stack.push_async_callback(self.archive.close)
            self.persistence = Persistence(self.store, self.runs, self._window.messages)
            self.memory = Memory(
                self.store,
                tokens=self.settings.recall_tokens,
                rest_seconds=self.settings.rest_seconds,
                now=self.store.now,
            )
            self.tasks = Tasks(self.store, self.settings, self.store.now, self._check_private_task)
            self.reports = TaskReports(
                self.store, self.tasks, self.settings, self._begin_report, self.runs.find_newest_here, self.store.now
            )
            await stack.enter_async_context(self.registry.running())
            self._assistant = Assistant(self.settings, self.registry, self.store, self.memory.store_version)
            stack.push_async_callback(self._assistant.close)
            found = await stack.enter_async_context(connect_models(self.settings, self.registry.usable(), self.store))
            stack.callback(setattr, self, "models", [])
            stack.callback(setattr, self, "entries", {})
            self.models, self.entries, self.embedder = found.offered, found.by_name, found.embedder
            redaction = Redaction(self._find_secrets())
            log.addFilter(redaction)
            stack.callback(log.removeFilter, redaction)
            self._check_profiles()
            first = found.offered[0]
            await self._assistant.open(found.offered, found.embedder)
            background = self.memory.run_background(
                first,
                lambda: self.runs.is_idle,
                found.embedder or first,
                lambda: not self._assistant.is_assisted(first),
            )
            await stack.enter_async_context(background)
            stack.push_async_callback(self._end_runs)
            if self.runs.processes is not None:
                await self.runs.processes.open()
            self.is_closing = self._ends_turns = False
            self._runs_tasks = on_task_end is not None
            self._on_background_end = on_background_end
            if on_task_end is not None:
                runner = TaskRunner(
                    *(self.store, self.tasks, self.settings, self.reports),
                    *(self.begin, lambda: self.is_closing, on_task_end),
                )
                runner.start()
                stack.push_async_callback(runner.close)
            self._resources = stack.pop_all()

    def _find_secrets(self) -> Iterator[str | None]:
        """Yield all keys and passwords, which no log may have."""
        yield from (key for key, _ in self.settings.keys)
        yield from passwords(self.settings.store or "")
        for model in (*self.entries.values(), *([self.embedder] if self.embedder is not None else [])):
            if model.row is not None:
                yield model.row.key
                yield urlsplit(model.row.url or "").password
        for name in self.registry:
            values = self.registry[name].settings
            yield from (
                str(getattr(values, one.name))
                for one in (fields(values) if is_dataclass(values) else ())
                if one.name.endswith(_SECRET_NAMES)
            )

    def _check_profiles(self) -> None:
        """Check the models of TASK_PROFILES.

        Raises:
            SettingsError: Turns cannot use one of them.
        """
        for name in get_args(ProfileName):
            model = self.settings.profile(name).model
            if model is not None and model not in self.model_names():
                names = ", ".join(sorted(self.model_names()))
                reason = f"task_profiles.{name}.model is {model!r}, which is not a model of this server."
                raise SettingsError(reason, f"Use one of: {names}.")

    def _check_private_task(self, profile: ProfileName) -> None:
        """Check that a local model can run a private task.

        Raises:
            BadRequest: The model of its profile is remote, or no model is local.
        """
        try:
            self.find_model(self.settings.profile(profile).model, private=True)
        except BadRequest as error:
            if error.status != 400:
                raise
            message = f"A private task needs a local model, and that of the profile `{profile}` is remote."
            raise BadRequest(message, "profile") from None

    async def drain(self) -> None:
        """Take no more turns. If another process lives, let it continue the detached ones, and wait for the others.

        A turn that is just beginning is one of them. Afterwards, such a turn ends at once.
        """
        self.is_closing = True
        try:
            if self.runs.processes is not None:
                await self._drain(self.runs.processes)
        finally:
            self._ends_turns = True

    async def _drain(self, processes: Processes) -> None:
        await processes.stop()
        if processes.can_take_over:  # unless it gets the same signal
            await asyncio.sleep(SETTLE_SECONDS)
            with suppress(StoreError):
                await processes.look()
        until = time.monotonic() + self.settings.drain_seconds
        while (running := self.runs.running) and processes.can_take_over and time.monotonic() < until:
            if not processes.is_away:
                processes.release_detached()
                for run in running:
                    if run.protocol == "task":
                        run.stop("shutdown")
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await asyncio.gather(*(run.wait_ended() for run in running))

    async def close(self) -> None:
        """Stop all turns and close everything."""
        if self._resources is not None:
            resources, self._resources = self._resources, None
            await resources.aclose()

    async def _end_runs(self) -> None:
        """Stop all turns and wait until they are stored."""
        running = self.runs.running
        for run in running:
            run.stop("shutdown")
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await asyncio.gather(*(run.wait_ended() for run in running))
        await asyncio.gather(*(run.abort() for run in self.runs.running))
        await self.persistence.wait_stored()
        self.runs.close()

    def model_names(self) -> frozenset[str]:
        """Return the model names that a request may use."""
        return frozenset(self.settings.model) | {model.name for model in self.models}

    def callable_specialists(self, user: str | None) -> list[str]:
        """Return the names of the specialists that a user can call, including unavailable ones."""
        allowed = self.settings.rights(user).specialists
        names = (entry.specialist.name for entry in self.registry.values() if entry.is_allowed)
        return [name for name in names if allowed is None or name in allowed]

    def model_states(self) -> dict[str, BreakerState]:
        """Return the state of the circuit breaker of each model."""
        models = [*self.entries.values(), *(one for model in self.models for one in (model, *model.fallbacks))]
        return {model.name: model.breaker.state for model in models}

    def find_model(self, name: str | None, *, private: bool = False) -> Model:
        """Return the model with this name, or the default model.

        Args:
            private: Only local models. Without a name, the first local one is the default.

        Raises:
            BadRequest: Unknown name, or the name of a remote model for a private conversation. `unavailable`: the
                engine is closed.
        """
        if not self.models:
            message = "No model is available because Brain is starting or stopping. Try again in a moment."
            raise BadRequest(message, code="unavailable", status=503)
        offered = zip(self.settings.model, self.models, strict=True)
        found = [(configured, model) for configured, model in offered if model.is_local or not private]
        if not found:
            raise BadRequest("No model of this server is local, so it has no private conversations.", "private")
        for configured, model in found:
            if name in (None, configured, model.name):
                return model
        if private and name in self.model_names():
            names = ", ".join(configured for configured, _ in found)
            raise BadRequest(f"`model` must be local in a private conversation; use one of: {names}.", "model")
        raise BadRequest(f"`model` must be one of: {', '.join(sorted(self.model_names()))}.", "model")

    def find_role(self, strategy: StrategyName, role: Role, chosen: Model, *, private: bool) -> Model:
        """Return the model of a role: that of THINKER or ACTOR in the strategy `dual`, else the model of the turn.

        Args:
            chosen: The model of the turn.
            private: Only local models. The model of the turn is one.
        """
        name = None
        if strategy == "dual":
            name = self.settings.actor if role == "actor" else self.settings.thinker
        if name is None or (private and not self.entries[name].is_local):
            return chosen
        return self.entries[name]

    def _role_models(self, request: TurnRequest, chosen: Model) -> Mapping[Role, Sequence[Model]]:
        """Return the models of the roles that can have their own, with those that take over."""
        if request.strategy != "dual":
            return {}
        roles: Sequence[Role] = ("thinker", "actor", "critic")
        models = [self.find_role(request.strategy, role, chosen, private=request.private) for role in roles]
        return {role: model.with_fallbacks(private=request.private) for role, model in zip(roles, models, strict=True)}

    async def begin(
        self,
        request: TurnRequest,
        protocol: str,
        on_end: OnEnd | None = None,
        *,
        history: History | None = None,
        options: RunOptions = DEFAULT_OPTIONS,
        task_end: TaskEnd | None = None,
    ) -> Run:
        """Begin a turn and store its question; the caller starts the run.

        Args:
            protocol: Protocol of the client.
            on_end: Called once when the turn has ended.
            history: The conversation with its new question, if the client sends it. The turn is then stored only if
                the request has a `conversation_id`.
            task_end: Returns what else to store with the finished exchange, in the same transaction.

        Raises:
            BadRequest: `busy`: another turn of the conversation runs. `too_large`. `not_found`: there is no exchange to
                replace. `unavailable`: the question cannot be stored. The conversation is private, and the model is
                remote.
        """
        admitted = await self._admit(request, protocol, history, options, task_end)
        try:
            run = await self._begin(admitted, protocol, options)
        except BaseException:
            if admitted.stored is not None:
                self.persistence.store_in_background(admitted.stored, None)
            raise
        if on_end is None and request.source in ("task", "report"):
            on_end = self._on_background_end
        if on_end is not None:
            run.on_end.append(on_end)
        return run

    async def _continue(self, claimed: Claimed, how: ResumableTurn) -> Run:
        """Continue a turn of a process that died, from its last checkpoint; the caller starts the run.

        Raises:
            BadRequest: This process has no model for it.
        """
        history, exchange = claimed.history, claimed.history.question
        assert exchange is not None
        limits = how.request.limits
        if exchange.started is not None:
            seconds = limits.turn_seconds - (self.store.now() - exchange.started).total_seconds()
            limits = replace(limits, turn_seconds=max(1.0, seconds))
        request = replace(how.request, attachments=history.files, limits=limits)
        options = how.options
        if not options.is_detached:
            options = replace(options, unread_seconds=RETURN_SECONDS)
        stored = StoredExchange(self.store, history, replaces=request.replaces is not None)
        admitted = _Admitted(
            request,
            self.find_model(request.model, private=request.private),
            exchange,
            None,
            exchange.turn_id,
            stored,
            remembers_answer=how.is_from_client,
            resumes_after=claimed.last,
        )
        run = await self._begin(admitted, how.protocol, options)
        if self._on_background_end is not None:
            run.on_end.append(self._on_background_end)
        return run

    async def _begin(self, admitted: "_Admitted", protocol: str, options: RunOptions) -> Run:
        was_private = is_private.set(admitted.is_private)
        try:
            prepared = await self._prepare(admitted)
            turn = Turn(prepared.setup, find_strategy(prepared.setup.request.strategy, prepared.setup.assistance))
        finally:
            is_private.reset(was_private)
        return self._launch(turn, admitted, prepared, protocol, options)

    async def _admit(
        self,
        request: TurnRequest,
        protocol: str,
        history: History | None,
        options: RunOptions,
        task_end: TaskEnd | None,
    ) -> "_Admitted":
        """Check a request, and store its question."""
        model = self.find_model(request.model, private=request.private)
        request = narrow_request(request, self.settings.rights(request.user))
        is_client_task = is_for_client(request)
        if is_client_task:
            request = narrow_client_task(request)
        question = (None if history is None else history.question) or Exchange("", message=request.message)
        if history is not None and request.task is None:
            question.untrusted, question.private_data = history.untrusted, history.private_data
        conversation_id = request.conversation_id or (new_conversation_id() if history is None else history.id)
        turn_id = new_turn_id(self.store.database.process)
        question.answer_id, question.wire = to_answer_id(turn_id), protocol
        is_from_client = history is not None and request.task is None
        stored = None
        if history is None or request.conversation_id is not None:
            resume = ""
            if self.runs.processes is not None and options.replayable and request.source not in ("task", "report"):
                how = replace(request, attachments=(), conversation_id=conversation_id)
                resume = rows.encode(ResumableTurn(how, protocol, options, is_from_client))
            stored = await self.persistence.store_question(request, conversation_id, question, resume, task_end)
        return _Admitted(request, model, question, history, turn_id, stored, is_client_task, is_from_client)

    async def _prepare(self, admitted: "_Admitted") -> "_Prepared":
        """Collect all that the turn reads and uses."""
        stored = admitted.stored
        request, model, history = self._load_history(admitted)
        own_tasks, actions = self.tasks.defer() if request.source == "report" else (self.tasks, None)
        is_new = admitted.resumes_after is None
        if stored is not None and not admitted.is_client_task and is_new:
            history.task_news = await self.reports.take_news(request, stored.history, model.context_tokens)
            if history.task_news is not None:
                stored.task_end = partial(end_report, stored.history, history.task_news.cursor, actions)
        state = await self._assistant.find_state(request, model)
        recalls = is_new and request.memory and request.user is not None and await self.memory.can_recall(request.user)
        query = None
        if recalls or self._assistant.needs_embedding(state):
            query = await self.memory.embed_query(request.message, private=request.private)
        if recalls:
            history.recalled = await self._recall(request, history, query)
        assistance = await self._assistant.decide(request, history, model, state, query)
        recorder = self._open_recorder(request, history)
        store = None if stored is None else stored.store
        if admitted.remembers_answer:
            parts_before = len(admitted.question.parts) if is_new else 0
            store = partial(self._store_and_remember, store, request.user or "", parts_before)
        timeouts = self._timeouts
        if request.source == "report":
            timeouts = replace(timeouts, approval=min(timeouts.approval, APPROVAL_SECONDS))
        is_background = request.source in ("task", "report")
        setup = TurnSetup(
            request=request,
            history=history,
            models=model.with_fallbacks(private=request.private),
            registry=self.registry,
            role_models=self._role_models(request, model),
            turn_id=admitted.turn_id,
            operator=self.settings.system,
            timeouts=timeouts,
            memory=self._view_memory(request, history),
            tasks=self._view_tasks(own_tasks, request, None if stored is None else history.id),
            assistance=assistance,
            store=store,
            resumes_after=0 if request.task is not None else admitted.resumes_after,
            checkpoint=None if stored is None or not self.store.database.is_shared else stored.checkpoint,
            use_model=self._priority.background if is_background else self._priority.person,
            open_stream=open_stream if recorder is None else recorder.open_stream,
        )
        on_end: list[OnEnd] = []
        if stored is not None:
            remembers = not (request.private or admitted.is_client_task)
            on_end.append(partial(self._record_end, stored, remembers=remembers))
            on_end.append(lambda run: self.reports.on_turn_end(*stored.key))
        if state is not None:
            learn = partial(self._assistant.learn, request, history, model, assistance)
            on_end.append(lambda run: learn(run.snapshot()))
        if actions is not None:
            on_end.append(lambda run: self.tasks.notify())
        return _Prepared(setup, on_end, recorder)

    def _launch(
        self, turn: Turn, admitted: "_Admitted", prepared: "_Prepared", protocol: str, options: RunOptions
    ) -> Run:
        """Make a run of a turn, which the caller starts."""
        stored = admitted.stored
        run = self.runs.add(turn, protocol, options, epoch=0 if stored is None else stored.history.epoch)
        if self._ends_turns:
            run.stop("shutdown")
        run.on_end += prepared.on_end
        if prepared.recorder is not None:
            self._record_events(prepared.recorder, turn.setup, run)
        if stored is not None:
            stored.last = lambda: run.log.last
            if self.runs.processes is not None:
                self.runs.processes.add(run, stored)
        return run

    def _load_history(self, admitted: "_Admitted") -> tuple[TurnRequest, Model, History]:
        """Return the conversation that the turn continues, with its files and its privacy."""
        request, model, history, stored = admitted.request, admitted.model, admitted.history, admitted.stored
        if stored is not None and stored.history.private and not request.private:
            request = replace(request, private=True)
            model = self.find_model(request.model, private=True)
            if history is not None:
                history = context_window.fit_to_context(history, model.context_tokens)
        if history is None:
            assert stored is not None
            if stored.history.files:
                request = replace(request, attachments=stored.history.files)
            size = model.context_tokens
            history = context_window.select_window(stored.history, admitted.question, self._window, size)
        elif stored is not None and admitted.remembers_answer:
            history.untrusted = history.untrusted or stored.history.untrusted
            history.private_data = history.private_data or stored.history.private_data
        history.private = request.private
        return request, model, history

    def _view_memory(self, request: TurnRequest, history: History) -> MemoryView | None:
        if request.user is None:
            return None
        return self.memory.view(request.user, history.id, partial(_user_messages, history), private=request.private)

    def _view_tasks(self, tasks: Tasks, request: TurnRequest, conversation_id: str | None) -> TaskView | None:
        """Return the user's tasks for specialists, if this process or another one runs them."""
        if request.user is None or not (self._runs_tasks or self.store.database.is_shared):
            return None
        place = conversation_id if request.task is None else request.task.conversation_id
        return UserTasks(tasks, request.user, place, request.time_zone, request.task, private=request.private)

    def _open_recorder(self, request: TurnRequest, history: History) -> Recorder | None:
        """Return what records a turn. One of a private conversation deletes earlier recordings instead."""
        if self.archive is None:
            return None
        if not request.private:
            return Recorder()
        if history.count or history.exchanges:
            self.archive.erase_soon(request.user or "", history.id)
        return None

    async def _store_and_remember(
        self, store: StoreExchange | None, user: str, parts_before: int, exchange: Exchange
    ) -> str | None:
        """Store an exchange, and by which texts its answer is recognized when the client sends it back."""
        problem = None if store is None else await store(exchange)
        parts = exchange.parts[parts_before:]
        is_long = sum(len(part.text) for part in parts if isinstance(part, Text)) > LONG_ANSWER
        texts = await asyncio.to_thread(pieces, parts) if is_long else pieces(parts)
        if texts or exchange.private_data:
            try:
                await self.store.write_unsynced(answers.remember, user, exchange, texts)
            except StoreError as error:  # the answer then counts as unknown
                log.warning("an answer cannot be recognized later: %s", error)
        return problem

    async def _begin_report(self, request: TurnRequest) -> Run:
        """Begin a turn that reports on tasks, with the model of its request if that can still be used."""
        try:
            self.find_model(request.model, private=request.private)
        except BadRequest:
            request = replace(request, model=None)
        return await self.begin(request, "report")

    def _record_end(self, stored: StoredExchange, run: Run, *, remembers: bool) -> None:
        """Update the memory. Store a turn that was cut before it could wait for the store."""
        user, exchange = stored.key[0], run.snapshot()
        if run.log.is_cut_off:  # another process continues the turn
            return
        if not stored.is_stored:
            storing = self.persistence.store_in_background(stored, exchange)
            storing.add_done_callback(lambda _: self.memory.invalidate(user))
        elif stored.replaces:
            self.memory.invalidate(user)
        elif remembers and exchange.source not in ("task", "report"):
            self.memory.add_exchange(*stored.key, exchange)

    def _record_events(self, recorder: Recorder, setup: TurnSetup, run: Run) -> None:
        """Record the events of a run. At its end, write the recording."""

        def take(events: Sequence[Event], frames: bytes) -> None:
            recorder.take(events)
            if not run.has_ended:
                return  # or another process continues the turn
            unsubscribe()
            exchange = run.snapshot()
            if self.archive is not None and exchange.started is not None:
                lines = partial(recorder.lines, setup, exchange, run.commands)
                self.archive.put(Recorded(run.id, run.user or "", run.conversation_id, exchange.started, lines))

        unsubscribe = run.log.subscribe(take)

    async def context_exchanges(self, user: str, conversation_id: str, model: Model) -> Sequence[Exchange]:
        """Return the exchanges of a conversation that a model reads before the next question."""
        history = await self.store.read(turns.history, user, conversation_id, self._window.messages)
        question = Exchange("", started=self.store.now())
        return context_window.select_window(history, question, self._window, model.context_tokens).exchanges

    async def delete(self, user: str, conversation_id: str) -> bool:
        """Stop the turn and the tasks of a conversation, then delete all of it.

        Also its recordings, the specialists' data, and the conversations in which its tasks ran.

        Returns:
            Whether the conversation existed.

        Raises:
            BadRequest: `busy`: a turn of it does not end. `unavailable`: a specialist or the archive could not delete
                its data.
            StoreError: The store could not delete it.
        """
        existed, failed = False, dict[str, None]()
        for one in (*await self.tasks.write(tasks.cancel_all, user, conversation_id), conversation_id):
            existed = await self.persistence.run_alone(user, one, partial(self.store.delete, user, one), stops=True)
            self.runs.forget(one, user)
            failed |= dict.fromkeys(await self.registry.erase_user_data(user, one))
            if self.archive is not None:
                try:
                    await self.archive.erase(user, one)
                except OSError:
                    log.warning("recordings of conversation %s could not be deleted", one, exc_info=True)
                    failed["the archive"] = None
        self.memory.invalidate(user)
        if failed:
            message = (
                f"The conversation was deleted, but not the data that {' and '.join(failed)} stored. "
                "Delete the conversation again later."
            )
            raise BadRequest(message, code="unavailable", status=503)
        return existed

    async def delete_task(self, user: str, task_id: str) -> bool:
        """Cancel a task, and delete it with the conversation in which it ran, as `delete` does.

        Returns:
            Whether the task existed.
        """
        if self.runs.processes is not None:
            await self.runs.processes.raise_if_task_elsewhere(user, task_id)
        task = await self.store.read(tasks.find, user, task_id)
        if task is None:
            return False
        await self.tasks.write(tasks.cancel, user, task_id)
        await self.delete(user, task.work_id)
        return await self.tasks.write(tasks.remove, user, task_id)

    async def _recall(self, request: TurnRequest, history: History, query: Query | None) -> RecallResult:
        """Recall facts and memories about the question, unless the model reads them anyway."""
        present = {name for one in history.exchanges for name in (*one.recalled_ids, one.question_id)}
        conversation_id = history.id if history.after_idle else None
        return await self.memory.recall(request.user or "", request.message, present, conversation_id, query=query)


@dataclass(frozen=True, slots=True)
class _Admitted:
    """A request whose question is stored, unless the client keeps the conversation.

    Attributes:
        history: The conversation, from a client that sends it.
        remembers_answer: Whether a client will send the answer with the next request.
        resumes_after: See `TurnSetup`.
    """

    request: TurnRequest
    model: Model
    question: Exchange
    history: History | None
    turn_id: str
    stored: StoredExchange | None
    is_client_task: bool = False
    remembers_answer: bool = False
    resumes_after: int | None = None

    @property
    def is_private(self) -> bool:
        return self.request.private or (self.stored is not None and self.stored.history.private)


class _Prepared(NamedTuple):
    """What a turn is given, what to do at its end, and what records it."""

    setup: TurnSetup
    on_end: Sequence[OnEnd]
    recorder: Recorder | None


def narrow_request(request: TurnRequest, rights: Rights) -> TurnRequest:
    """Remove the specialists that the user may not call; remove all if a single model must answer in JSON.

    Tools of the client stay, because nobody else can call them.
    """
    if request.sampling.format is not None and request.strategy == "mono":
        return replace(request, specialists=frozenset())
    if rights.specialists is None:
        return request
    allowed = rights.specialists if request.specialists is None else rights.specialists & request.specialists
    return replace(request, specialists=allowed)


def _user_messages(history: History) -> list[UserMessage]:
    """Return the user's messages that the model reads, oldest first."""
    return [
        UserMessage(text, exchange.question_id or None, exchange.started)
        for exchange in history.all_exchanges
        for text in exchange.user_messages
        if text
    ]
