"""What every turn needs, from the first to the last: specialists, models, what is kept. Here turns begin."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import anyio.lowlevel

from brain.errors import BadRequest
from brain.memory import Memory
from brain.memory.quotes import UserMessage
from brain.messages import Exchange, History, RecallResult, TurnReport, new_conversation_id, new_turn_id
from brain.models import AnyModel, ModelEntry, connect_models
from brain.plugins.data_erasure import erase_user_data
from brain.plugins.registry import Registry
from brain.prompts import context_window
from brain.prompts.context_window import Window
from brain.runtime.persistence import ENDING_SECONDS, ExchangeLease, Persistence
from brain.runtime.run import Run, Settle
from brain.runtime.runs import RunRegistry
from brain.settings import Rights, Settings
from brain.store import open_store
from brain.store.sqlite import SQLite
from brain.store.turn_log import NewTurn
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest


class Engine:
    """Runs turns, for a server, a command or a program.

    Attributes:
        models: those on offer, the default first; empty until it is opened.
        embedder: the model of EMBEDDINGS, if it is set.
        turns: those that run, and those that ended a short while ago.
        leaving: whether it is about to close: turns that begin are told to stop.
    """

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self.settings = settings
        self.registry = registry
        self.store: SQLite
        self.memory: Memory
        self.persistence: Persistence
        self.models: list[ModelEntry] = []
        self.embedder: ModelEntry | None = None
        self.turns = RunRegistry()
        self.leaving = False
        self._window = Window(settings.window_messages, settings.window_tokens, settings.context_seconds)
        self._closing: AsyncExitStack | None = None

    async def open(self) -> None:
        """Opens the store and the models, and starts the specialists that have something to start.

        Raises:
            BrainError: what is set does not let it start.
        """
        if self._closing is not None:
            return
        await anyio.lowlevel.checkpoint()  # anyio loads the half of itself that runs: now, and not in the first turn
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._closing = stack.pop_all()

    async def _open(self, stack: AsyncExitStack) -> None:
        self.store = await open_store(self.settings.store)
        stack.push_async_callback(self.store.close)
        if self.store.turn_log is not None:
            stack.push_async_callback(self.turns.open_relay(self.store.turn_log).close)
        self.persistence = Persistence(self.store, self.turns, self._window.messages)
        self.memory = Memory(
            self.store, tokens=self.settings.recall_tokens, rest_seconds=self.settings.rest_seconds, now=_now
        )
        await stack.enter_async_context(self.registry.running())
        found = await stack.enter_async_context(connect_models(self.settings, self.registry.usable()))
        stack.callback(self._no_models)
        self.models, self.embedder = found.offered, found.embedder
        writer, embedder = found.offered[0].model, (found.embedder or found.offered[0]).model
        await stack.enter_async_context(self.memory.run_background(writer, lambda: self.turns.are_quiet, embedder))
        stack.push_async_callback(self._give_up)
        self.leaving = False

    async def close(self) -> None:
        """Closes what `open` opened."""
        if self._closing is not None:
            closing, self._closing = self._closing, None
            await closing.aclose()

    def _no_models(self) -> None:
        self.models = []

    async def _give_up(self) -> None:
        """Ends what still runs, and waits until it is kept."""
        running = self.turns.running
        for run in running:
            run.stop("shutdown")
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await asyncio.gather(*(run.wait_ended() for run in running))
        await asyncio.gather(*(run.abort() for run in self.turns.running))
        await self.persistence.wait_stored()
        self.turns.close()

    def names(self) -> frozenset[str]:
        """The models a request may name."""
        return frozenset(self.settings.model) | {one.model.name for one in self.models}

    def model(self, name: str | None) -> AnyModel:
        """The model of this name; the default without one."""
        if not self.models:
            raise BadRequest("It is not open: no model is there yet, or any more.", code="unavailable", status=503)
        for wanted, one in zip(self.settings.model, self.models, strict=True):
            if name in (None, wanted, one.model.name):
                return one.model
        raise BadRequest(f"model must be one of: {', '.join(sorted(self.names()))}.", "model")

    async def begin(
        self,
        ask: TurnRequest,
        wire: str,
        settle: Settle | None = None,
        *,
        held: History | None = None,
        replayable: bool = True,
        unread_seconds: float | None = None,
        options: str = "",
    ) -> Run:
        """Takes on a turn, which is then to be led. Its question is kept from now on.

        Args:
            wire: the protocol of who asks.
            settle: is told, once, how it ended; None where nobody counts turns.
            held: the history that the client holds, with what is asked now; None where Brain holds it. It is the
                history then in any case; `ask.conversation_id` says under which id the turn is stored, if it is to be.
            replayable, unread_seconds, options: as of `Run`.

        Raises:
            BadRequest: `busy`, while another turn of the conversation runs; `too_large`; `not_found`, for what is to be
                replaced; `unavailable`, when it cannot be kept.
        """
        model = self.model(ask.model)
        ask = narrowed(ask, self.settings.rights(ask.user))
        question = held.question if held is not None else None
        question = question or Exchange("", message=ask.message)
        conversation_id = ask.conversation_id or (new_conversation_id() if held is None else held.id)
        new = NewTurn(new_turn_id(), ask.user, conversation_id, ask.request_id, options, replayable)
        lease = None
        if held is None or ask.conversation_id is not None:
            lease = await self.persistence.begin(replace(ask, conversation_id=conversation_id), question, new)
        try:
            if held is None:
                assert lease is not None
                ask = replace(ask, attachments=lease.history.files)
                held = context_window.select_window(lease.history, question, self._window, model.context_tokens)
            held.recalled = await self._recalled(ask, held)
            turn = self._turn(new.id, ask, held, model, lease)
        except BaseException:
            if lease is not None:
                self.persistence.store_later(lease, None)
                if self.turns.relay is not None:
                    self.turns.relay.forget(new.id)
            raise
        if self.leaving:
            turn.stop("shutdown")
        settled = partial(self._settled, turn.exchange, lease, settle)
        run = self.turns.begin(
            turn, ask, wire, settled, replayable=replayable, unread_seconds=unread_seconds, options=options
        )
        if self.turns.relay is not None and (lease is not None or replayable):
            self.turns.relay.add(run, new, None if lease is None else lease.history.key, turn.snapshot)
        return run

    async def window(self, user: str, conversation_id: str, model: AnyModel) -> Sequence[Exchange]:
        """What a model reads of a conversation before its next question."""
        history = await self.store.history(user, conversation_id, self._window.messages)
        question = Exchange("", started=_now())
        return context_window.select_window(history, question, self._window, model.context_tokens).exchanges

    async def delete(self, user: str, conversation_id: str) -> bool:
        """Deletes a conversation, everywhere; a turn of it is stopped. Whether there was one.

        Raises:
            BadRequest: `busy`, while a turn of it runs in another process; `unavailable`, when a specialist could not
                forget what it keeps of it.
            StoreError: when it cannot be deleted.
        """
        deleted = await self.persistence.run_alone(
            user, conversation_id, lambda: self.store.delete(user, conversation_id), stops=True
        )
        self.turns.forget(conversation_id, user)
        self.memory.invalidate(user)
        left = await erase_user_data(self.registry, user, conversation_id)
        if left:
            names = " and ".join(left)
            message = f"The conversation is deleted, but what {names} kept of it is not; delete it again later."
            raise BadRequest(message, code="unavailable", status=503)
        return deleted

    async def _recalled(self, ask: TurnRequest, held: History) -> RecallResult:
        """What the memory has to the question, but for what the model reads of it anyway."""
        if not ask.memory or ask.user is None:
            return RecallResult()
        present = {name for one in held.exchanges for name in (*one.recalled_ids, one.question_id)}
        return await self.memory.recall(ask.user, ask.message, present, held.id if held.after_idle else None)

    def _turn(
        self, turn_id: str, ask: TurnRequest, held: History, model: AnyModel, lease: ExchangeLease | None
    ) -> Turn:
        settings = self.settings
        view = None if ask.user is None else self.memory.view(ask.user, held.id, partial(_user_messages, held))
        return Turn(
            ask,
            held,
            model,
            self.registry,
            turn_id=turn_id,
            system=settings.system,
            silence=settings.model_idle_seconds,
            first_token=settings.model_first_token_seconds,
            approval_seconds=settings.approval_seconds,
            store=lease.store if lease is not None else None,
            memory=view,
        )

    def _settled(
        self, exchange: Exchange, lease: ExchangeLease | None, settle: Settle | None, report: TurnReport
    ) -> None:
        if lease is not None:
            self._remember(exchange, lease)
        if settle is not None:
            settle(report)

    def _remember(self, exchange: Exchange, lease: ExchangeLease) -> None:
        user, conversation_id = lease.key
        if not lease.is_stored:  # it was cut, and nobody could wait
            keeping = self.persistence.store_later(lease, exchange)
            keeping.add_done_callback(lambda _: self.memory.invalidate(user))
        elif lease.replaces:
            self.memory.invalidate(user)
        else:
            self.memory.add_exchange(user, conversation_id, exchange)


def _user_messages(held: History) -> list[UserMessage]:
    """What the user wrote in a conversation, as far as the model reads it, oldest first."""
    return [
        UserMessage(text, exchange.question_id or None, exchange.started)
        for exchange in held.all_exchanges
        for text in exchange.user_messages
        if text
    ]


def _now() -> datetime:
    return datetime.now(UTC)


def narrowed(ask: TurnRequest, rights: Rights) -> TurnRequest:
    """The same, with no more specialists than the user may call, and none where the answer must be JSON."""
    if ask.sampling.format is not None:
        return replace(ask, specialists=frozenset(), tools=())
    if rights.specialists is None:
        return ask
    return replace(
        ask, specialists=rights.specialists if ask.specialists is None else rights.specialists & ask.specialists
    )
