"""Decides what Brain does for models that do not call specialists, and learns from each model's answers."""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace as replace_struct

from brain.assist.assistance import SMALL_MODEL, Assistance, CallingOutcome, CallingState
from brain.assist.fitting import FitError, fit_embeddings_apart
from brain.assist.params import Filled, build_params, find_texts, required_schema
from brain.assist.proposal import is_yes, propose
from brain.assist.router import (
    MAX_FITTED,
    Choice,
    Previous,
    Router,
    end_making,
    find_added,
    find_fitted,
    find_partial_router,
    find_router,
    follows_up,
)
from brain.assist.weights import EmbeddingClassifier
from brain.concurrency import NoThread, call_in_thread
from brain.dates import MAX_MESSAGE
from brain.errors import StoreError
from brain.events import AssistMode
from brain.memory.cache import StoreVersion
from brain.memory.recall import QuestionWords
from brain.messages import Call, Exchange, History
from brain.models.model import Model
from brain.plugins.context import AssistContext
from brain.plugins.registry import Registry
from brain.plugins.specialist import Specialist
from brain.settings import Settings
from brain.store import server_data
from brain.store.store import Store
from brain.store.vectors import Query
from brain.turn_request import TurnRequest

log = logging.getLogger("brain")

NOT_ONLY_READ = "For this model, Brain makes no calls that change something. Choose a larger model for {}."
LEARNED_FROM: Collection[str] = ("complete", "length", "repetition", "call_limit")
"""Ends of a turn that say something about its model."""
NO_CALL: Collection[str] = ("unknown", "malformed", "oversized", "forged")
"""Codes of what a model wrote instead of a call."""
PARAMS_SECONDS = 2.0
"""Time limit for the parameters of a call."""
EMBEDDED_AT_ONCE = 16
"""Examples in one request to the embedding server, which messages wait for."""
EMBEDDING_PAUSE = 60.0
"""Seconds until the examples are embedded again, if that failed."""


class Assistant:
    """The assistance of a process for its models."""

    def __init__(self, settings: Settings, registry: Registry, store: Store, version: StoreVersion) -> None:
        self._embedding_model: Model | None = None
        self._classifiers: dict[tuple[Router, str], EmbeddingClassifier] = {}
        self._embed_at = 0.0
        self._settings = settings
        self._registry = registry
        self._store = store
        self._version = version
        self._states: dict[str, tuple[int | None, CallingState]] = {}  # by the address, with the version of the store
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._embedding: asyncio.Task[None] | None = None
        self._fitting: asyncio.Task[None] | None = None

    async def open(self, models: Sequence[Model], embedding_model: Model | None) -> None:
        """Read what is known about the models. Fit the router in the background if one of them needs it soon.

        Args:
            embedding_model: The model whose embeddings of messages help to choose.
        """
        self._embedding_model = embedding_model
        for model in models:
            mode, state = find_mode(self._settings, model), await self.read_state(model)
            is_next = model.is_language_model and (state.is_assisted or is_small(model))
            if model.is_demo or mode == "always" or (mode == "auto" and is_next):
                self._fit_soon(self._registry.usable())

    async def close(self) -> None:
        """Wait until what was learned is stored."""
        for task in filter(None, (self._embedding, self._fitting)):
            task.cancel()
        await end_making()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def find_state(self, request: TurnRequest, model: Model) -> CallingState | None:
        """Return the state that counts for a turn; None if Brain neither assists the model nor learns from it."""
        mode = request.assist or find_mode(self._settings, model)
        is_possible = request.strategy == "mono" and not request.tools and request.sampling.format is None
        if mode == "off" or not is_possible or request.source == "report" or model.is_demo:
            return None
        if mode == "always":
            return CallingState(is_assisted=True)
        return await self.read_state(model) if model.is_language_model else None

    def needs_embedding(self, state: CallingState | None) -> bool:
        """Whether the embedding of the message helps to choose. Only a model that Brain assists waits for it."""
        return self._embedding_model is not None and state is not None and state.is_assisted

    async def decide(
        self,
        request: TurnRequest,
        history: History,
        model: Model,
        state: CallingState | None,
        query: Query | None,
    ) -> Assistance | None:
        """Return what to do for the model in a turn; None if it is left to itself.

        Args:
            state: Of the turn, from `find_state`.
            query: The embedding of the message.
        """
        if state is None or not (state.is_assisted or (is_small(model) and not state.right_calls)):
            return None
        try:
            return await self._decide(request, history, model, state, query)
        except Exception:  # no turn fails because of a choice
            log.exception("no specialist can be chosen")
            return Assistance(state.is_assisted, is_small(model))

    async def _decide(
        self, request: TurnRequest, history: History, model: Model, state: CallingState, query: Query | None
    ) -> Assistance:
        specialists, small = self._registry.usable(request.specialists), is_small(model)
        if not specialists:
            return Assistance(is_assisted=False, is_small=small)
        installed = self._registry.usable()
        router, is_learned = find_fitted(installed), True
        if router is None and find_added(installed):  # no turn waits until they are learned
            self._fit_soon(installed)
            router, is_learned = await find_partial_router(installed), False
        router = router or await find_router(installed)
        embedding_scores = self._score_embedding(router, query) if state.is_assisted and is_learned else None
        no_call = Assistance(state.is_assisted, small)
        if request.limits.calls < 1 or request.limits.calls_per_specialist < 1:
            return no_call
        asked = ""
        last = history.exchanges[-1] if history.exchanges else None
        if state.is_assisted and last is not None and last.answer.strip() and is_yes(request.message):
            asked, embedding_scores = last.answer.strip(), None  # the user may agree to what Brain asked
            request = replace(request, message=last.message)
            history = replace_struct(history, exchanges=history.exchanges[:-1])

        async def fill(specialist: Specialist[..., object], choice: Choice) -> Filled | None:
            build = partial(build_params, specialist, request.message, self._context(request, history, choice))
            try:
                async with asyncio.timeout(PARAMS_SECONDS):  # a function of the specialist may block
                    filled: Filled | None = await call_in_thread(f"assist {specialist.name}", build)
            except (TimeoutError, NoThread):  # no thread is left if it has blocked several
                log.warning("specialist %s: its assist function took over %g seconds", specialist.name, PARAMS_SECONDS)
                return None
            return filled

        choose = partial(_choose, router, specialists, request, history, embedding_scores)
        proposal = await propose({one.name: one for one in specialists}, choose, fill)
        if proposal is None or (asked and proposal.question != asked):
            return no_call
        specialist, choice, filled, refusal = proposal
        if any(file.kind in specialist.activates_on for file in request.attachments):  # it is called anyway
            return no_call
        params, question = None if filled is None else filled.params, "" if asked else proposal.question
        if not refusal and not _may_only_read(specialist, params):
            refusal = NOT_ONLY_READ.format(specialist.name)
        facts = [item for item in history.recalled.relevant if item.kind == "fact"]
        if facts and specialist.sends and QuestionWords(request.message).is_first_person:
            return no_call  # the user asks about themselves, and memory knows it
        if refusal:
            is_shown = state.is_assisted and choice.is_sure
            return Assistance(is_assisted=True, is_small=small, refusal=refusal) if is_shown else no_call
        mode = request.assist or find_mode(self._settings, model)
        is_sure = mode == "auto" and params is not None and not (question or asked or choice.follows_up)
        is_probe = is_sure and state.is_probe_due
        if is_probe or not state.is_assisted:
            watched = Assistance(
                is_assisted=False,
                is_small=small,
                name=choice.name,
                params=params,
                is_counted=True,
                is_probe=is_probe,
                calls_after_miss=is_probe or (small and not state.right_calls),
            )
            return watched if is_sure else no_call
        can_ask = params is None and specialist.assist is None and choice.is_sure
        schema = required_schema(specialist) if can_ask else None
        if params is None and schema is None:
            return no_call
        return Assistance(
            is_assisted=True,
            is_small=small,
            name=choice.name,
            params=params,
            question=question,
            message=request.message if asked else "",
            schema=schema,
            is_counted=is_sure,
        )

    def _context(self, request: TurnRequest, history: History, choice: Choice) -> AssistContext:
        now = request.now or datetime.now(UTC).astimezone(ZoneInfo(request.time_zone))
        previous = ""
        if choice.follows_up:
            last = history.exchanges[-1]
            calls = [call for call in _calls(last) if call.by == "assist" and call.name in self._registry]
            previous = last.message
            if calls and follows_up(previous):  # the subject comes from before
                specialist = self._registry[calls[-1].name].specialist
                previous = " ".join((*find_texts(specialist, calls[-1].params or {}), previous))
        files = (*history.attachments, *request.attachments)
        return AssistContext(now, request.time_zone, files, previous[:MAX_MESSAGE])

    def _fit_soon(self, specialists: tuple[Specialist[..., object], ...]) -> None:
        self._fitting = self._fitting or asyncio.create_task(self._fit(specialists), name="assist")

    async def _fit(self, specialists: tuple[Specialist[..., object], ...]) -> None:
        try:
            await find_router(specialists, self._store)
        except (FitError, NoThread) as error:  # the next turn tries again
            log.warning("new specialists match by their examples only, because they cannot be learned: %s", error)
        finally:
            self._fitting = None

    def _score_embedding(self, router: Router, query: Query | None) -> Sequence[float] | None:
        """Return the scores of the classes by the embedding of a message, once those of the examples are learned."""
        if query is None or self._embedding_model is None:
            return None
        key = router, query.model
        if (classifier := self._classifiers.get(key)) is not None:
            return classifier.score(query.vector)
        if self._embedding is None and time.monotonic() >= self._embed_at:
            self._embedding = asyncio.create_task(self._fit_embeddings(key, self._embedding_model), name="assist")
        return None

    async def _fit_embeddings(self, key: tuple[Router, str], model: Model) -> None:
        texts, labels = zip(*key[0].sample, strict=True)
        vectors: list[list[float]] = []
        try:
            for start in range(0, len(texts), EMBEDDED_AT_ONCE):
                vectors += await model.embed(texts[start : start + EMBEDDED_AT_ONCE], "query")
            self._classifiers[key] = await fit_embeddings_apart(vectors, labels)
            if len(self._classifiers) > MAX_FITTED:
                del self._classifiers[next(iter(self._classifiers))]
        except Exception as error:  # noqa: BLE001 - a server that is gone, slow or wrong; words still work
            log.info("assisted calls are chosen by words only: no embeddings of %s: %r", model.name, error)
            self._embed_at = time.monotonic() + EMBEDDING_PAUSE
        finally:
            self._embedding = None

    def is_assisted(self, model: Model) -> bool:
        """Whether Brain calls specialists for a model, as far as this process knows."""
        mode = find_mode(self._settings, model)
        _, state = self._states.get(model.address, (None, CallingState()))
        return mode == "always" or (mode == "auto" and state.is_assisted)

    async def read_state(self, model: Model) -> CallingState:
        """Return what is known about a model. Other processes may learn, too."""
        version = await self._version.version()
        read_at, state = self._states.get(model.address, (None, CallingState()))
        if read_at is None or read_at != version:
            with suppress(StoreError):  # the next message reads it again
                state = await read_state(self._store, model)
                self._states[model.address] = version, state
        return expect(state, model)

    def learn(
        self,
        request: TurnRequest,
        history: History,
        model: Model,
        assistance: Assistance | None,
        exchange: Exchange,
    ) -> None:
        """Learn from the end of a turn, and store it in the background.

        Args:
            assistance: None for a model that was left to itself. It did not wait for the choice, which is made now.
        """
        if exchange.model != model.name or exchange.outcome not in LEARNED_FROM:
            return
        if assistance is not None:
            work = self._learn(assistance, model, exchange)
        elif find_fitted(installed := self._registry.usable()) is not None:
            work = self._watch(request, history, model, exchange)
        else:
            self._fit_soon(installed)
            return
        task = asyncio.create_task(work, name="assist")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, request: TurnRequest, history: History, model: Model, exchange: Exchange) -> None:
        """Learn from what a model did that was left to itself."""
        try:
            assistance = await self._decide(request, history, model, CallingState(), None)
        except Exception:
            log.exception("no specialist can be chosen")
        else:
            await self._learn(assistance, model, exchange)

    async def _learn(self, assistance: Assistance, model: Model, exchange: Exchange) -> None:
        if not assistance.is_counted and not (assistance.is_assisted and _has_called(exchange)):
            return
        name = assistance.name
        async with self._writing:
            try:
                before = expect(await read_state(self._store, model), model)
                is_private = name in self._registry and self._registry[name].specialist.private
                if assistance.is_assisted and not _has_called(exchange):
                    state = before.assist()
                else:
                    outcome: CallingOutcome = "right" if assistance.is_assisted else _outcome(exchange, name)
                    state = before.learn(outcome, name, is_private=is_private, is_small=is_small(model))
                value = msgspec.json.encode(state).decode()
                await self._store.write_unsynced(server_data.set_server_value, f"assist {model.address}", value)
            except StoreError as error:
                log.warning("what was learned about model %s was not stored: %s", model.name, error)
                return
            self._states[model.address] = await self._version.version(), state
            if state.describe() != before.describe():
                log.info("model %s: %s", model.name, state.describe())


def is_small(model: Model) -> bool:
    """Whether a model is a small or a base model, as far as its server reports that."""
    return model.is_base or (model.parameters is not None and model.parameters < SMALL_MODEL)


def _may_only_read(specialist: Specialist[..., object], params: Mapping[str, object] | None) -> bool:
    """Whether a call changes nothing and needs no approval, as far as is known before it."""
    if specialist.approval == "always" or specialist.read_only is False:
        return False
    try:
        return params is None or specialist.reads_only(dict(params))
    except Exception:  # noqa: BLE001 - a function of the specialist
        return False


def _has_called(exchange: Exchange) -> bool:
    """Whether the model called a specialist by itself."""
    return any(isinstance(part, Call) and part.by == "model" and not part.code for part in exchange.parts)


def find_mode(settings: Settings, model: Model) -> AssistMode:
    """Return the mode of a model: that of its row, else the setting."""
    return (None if model.row is None else model.row.assist) or settings.assist


async def read_state(store: Store | None, model: Model) -> CallingState:
    """Return what is stored about a model.

    Raises:
        StoreError: the store cannot be read.
    """
    text = None if store is None else await store.read(server_data.server_value, f"assist {model.address}")
    with suppress(msgspec.DecodeError):
        if text is not None:
            return msgspec.json.decode(text, type=CallingState)
    return CallingState()


async def describe_assistance(settings: Settings, store: Store | None, model: Model) -> str:
    """Return what Brain does for a model, as a phrase for people; empty for one that always calls."""
    mode = find_mode(settings, model)
    if model.is_demo or (mode == "auto" and not model.is_language_model):
        return ""
    if mode != "auto":
        return "Brain calls specialists for it" if mode == "always" else "Brain calls no specialists for it"
    state = CallingState()
    with suppress(StoreError):
        state = await read_state(store, model)
    return expect(state, model).describe()


def expect(state: CallingState, model: Model) -> CallingState:
    """Return the state of a model. A base model follows no instructions, so it is assisted from the first message."""
    is_new = state == CallingState()
    return CallingState(is_assisted=True) if is_new and model.is_base else state


def _outcome(exchange: Exchange, name: str) -> CallingOutcome:
    """Return what the model did with a message that needs this specialist. A call that failed is one, too."""
    calls = [part for part in exchange.parts if isinstance(part, Call)]
    called = [call.name for call in calls if call.by == "model" and call.code not in NO_CALL]
    if name in called:
        return "right"
    return "other" if called else "none"


def _choose(
    router: Router,
    specialists: Sequence[Specialist[..., object]],
    request: TurnRequest,
    history: History,
    embedding_scores: Sequence[float] | None,
    without: str = "",
) -> Choice | None:
    previous = None
    if history.exchanges:
        calls = _calls(history.exchanges[-1])
        previous = Previous(history.exchanges[-1].message, calls[-1].name if calls else "")
    return router.choose(
        request.message,
        [one.name for one in specialists],
        embedding_scores,
        previous,
        has_files=bool(request.attachments),
        can_read_files=bool(request.attachments or history.attachments),
        without=without,
    )


def _calls(exchange: Exchange) -> list[Call]:
    return [part for part in (*exchange.automatic_calls, *exchange.parts) if isinstance(part, Call)]
