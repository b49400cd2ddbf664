"""Decides what Brain does for models that do not ask for specialists, and learns from each model's answers."""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from brain.assist.decision import SMALL_MODEL, SURE_LEAD, Assistance, Habit, Outcome
from brain.assist.params import build_params, required_schema
from brain.assist.router import MAX_FITTED, Choice, MeaningClassifier, Previous, Router, find_fitted, find_router
from brain.concurrency import NoThread, call_in_thread
from brain.errors import Refused, StoreError
from brain.events import AssistMode
from brain.messages import Call, Exchange, History, Query, TurnReport
from brain.models import AnyModel, ModelEntry
from brain.plugins.context import AssistContext
from brain.plugins.registry import Registry
from brain.plugins.specialist import Specialist
from brain.settings import Settings, redact_url
from brain.settings.models import REMOTE_KINDS
from brain.store.sqlite import SQLite
from brain.turn_request import TurnRequest
from brain.words import MAX_MESSAGE

log = logging.getLogger("brain")

NOT_ONLY_READ = "For this model, Brain makes no calls that change something. Choose a larger model for {}."
LEARNED_FROM: Collection[str] = ("complete", "length", "repetition", "call_limit")
"""Ends of a turn that say something about its model."""
EMBEDDED_AT_ONCE = 16
"""Examples in one request to the embedding server, which messages wait for."""
EMBEDDING_PAUSE = 60.0
"""Seconds until the examples are embedded again, if that failed."""


class Assistant:
    """The assistance of a process for its models."""

    def __init__(self, settings: Settings, registry: Registry, store: SQLite) -> None:
        self._embedding_model: AnyModel | None = None
        self._meanings: dict[tuple[Router, str], MeaningClassifier] = {}
        self._embed_at = 0.0
        self._settings = settings
        self._registry = registry
        self._store = store
        self._habits: dict[str, Habit] = {}
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._embedding: asyncio.Task[None] | None = None
        self._fitting: asyncio.Task[None] | None = None

    def use_embeddings(self, model: AnyModel) -> None:
        """Let the embeddings of the messages help to choose. They are those of this model."""
        self._embedding_model = model

    async def close(self) -> None:
        """Wait until what was learned is stored."""
        for task in filter(None, (self._embedding, self._fitting)):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def needs_embedding(self, request: TurnRequest, entry: ModelEntry) -> bool:
        """Whether the embedding of the message helps to choose. A model that asks by itself does not wait for one."""
        if self._embedding_model is None:
            return False
        habit = await self._find_habit(request, entry)
        return habit is not None and habit.assists

    async def _find_habit(self, request: TurnRequest, entry: ModelEntry) -> Habit | None:
        """Return the habit that counts for a turn; None if Brain neither assists the model nor learns from it."""
        mode = request.assist or find_mode(self._settings, entry)
        is_possible = request.strategy == "mono" and not request.tools and request.sampling.format is None
        if mode == "off" or not is_possible or request.source == "report" or entry.model.is_demo:
            return None
        if mode == "always":
            return Habit(assists=True)
        return await self.read_habit(entry) if _has_server(entry) else None

    async def decide(
        self, request: TurnRequest, history: History, entry: ModelEntry, query: Query | None
    ) -> Assistance | None:
        """Return what to do for the model in a turn; None if it is left to itself and nothing can be learned."""
        specialists = self._registry.usable(request.specialists)
        habit = await self._find_habit(request, entry) if specialists else None
        if habit is None:
            return None
        installed = tuple(self._registry.usable())
        router = find_fitted(installed)
        if router is None and not (habit.assists or habit.is_small):  # a model that may ask by itself does not wait
            self._fitting = self._fitting or asyncio.create_task(self._fit(installed), name="assist")
            return None
        router = router or await find_router(installed)
        by_meaning = self._score_meaning(router, query) if habit.assists else None
        choice = _choose(router, specialists, request, history, by_meaning)
        plain = Assistance(is_assisted=True) if habit.assists else None
        if choice is None or request.limits.calls < 1 or request.limits.calls_per_specialist < 1:
            return plain
        specialist = self._registry[choice.name].specialist
        if any(file.kind in specialist.activates_on for file in request.attachments):  # it is called anyway
            return plain
        params: dict[str, Any] | None = None
        refusal = ""
        try:
            params = build_params(specialist, request.message, _context(request, history, choice))
        except Refused as refused:
            refusal = refused.reason
        if not refusal and not _may_only_read(specialist, params):
            refusal = NOT_ONLY_READ.format(specialist.name)
        if refusal:
            return Assistance(is_assisted=True, refusal=refusal) if habit.assists else None
        mode = request.assist or find_mode(self._settings, entry)
        is_sure = mode == "auto" and params is not None and choice.lead >= SURE_LEAD and not choice.follows_up
        if not habit.assists:
            watch = Assistance(
                is_assisted=False,
                name=choice.name,
                params=params,
                is_evidence=True,
                rescues=habit.is_small and not habit.asked,
            )
            return watch if is_sure else None
        if is_sure and habit.is_examination_due:
            return Assistance(is_assisted=False, name=choice.name, params=params, is_evidence=True, rescues=True)
        schema = required_schema(specialist) if params is None else None
        if params is None and schema is None:
            return plain
        return Assistance(is_assisted=True, name=choice.name, params=params, schema=schema, is_evidence=is_sure)

    async def _fit(self, specialists: tuple[Specialist[..., object], ...]) -> None:
        try:
            with suppress(NoThread):  # the next turn tries again
                await find_router(specialists)
        finally:
            self._fitting = None

    def _score_meaning(self, router: Router, query: Query | None) -> Sequence[float] | None:
        """Return the scores of the classes by the embedding of a message, once those of the examples are learned."""
        if query is None or self._embedding_model is None:
            return None
        key = router, query.model
        if (classifier := self._meanings.get(key)) is not None:
            return classifier.score(query.vector)
        if self._embedding is None and time.monotonic() >= self._embed_at:
            self._embedding = asyncio.create_task(self._learn_meanings(key, self._embedding_model), name="assist")
        return None

    async def _learn_meanings(self, key: tuple[Router, str], model: AnyModel) -> None:
        texts, labels = zip(*key[0].sample, strict=True)
        vectors: list[list[float]] = []
        try:
            for start in range(0, len(texts), EMBEDDED_AT_ONCE):
                vectors += await model.embed(texts[start : start + EMBEDDED_AT_ONCE], "query")
            self._meanings[key] = await call_in_thread("router", partial(MeaningClassifier, vectors, labels))
            if len(self._meanings) > MAX_FITTED:
                del self._meanings[next(iter(self._meanings))]
        except Exception as error:  # noqa: BLE001 - a server that is gone, slow or wrong; words still work
            log.info("assisted calls are chosen by words only: no embeddings of %s: %r", model.name, error)
            self._embed_at = time.monotonic() + EMBEDDING_PAUSE
        finally:
            self._embedding = None

    def is_assisted(self, entry: ModelEntry) -> bool:
        """Whether Brain calls specialists for a model, as far as `read_habit` was called for it."""
        mode = find_mode(self._settings, entry)
        return mode == "always" or (mode == "auto" and self._habits.get(_key(entry), Habit()).assists)

    async def read_habit(self, entry: ModelEntry) -> Habit:
        """Return what is known about a model."""
        key = _key(entry)
        habit = self._habits.get(key)
        if habit is None:
            try:
                stored = await read_habit(self._store, entry)
            except StoreError:  # the next message reads it again
                return _expect(entry)
            habit = self._habits.setdefault(key, stored)
        return habit

    def learn(self, assistance: Assistance, entry: ModelEntry, exchange: Exchange, report: TurnReport) -> None:
        """Learn from the end of a turn, and store it in the background."""
        asks = assistance.is_assisted and _has_called(exchange)
        took_over = exchange.model != entry.model.name
        if took_over or exchange.outcome not in LEARNED_FROM or not (assistance.is_evidence or asks):
            return
        task = asyncio.create_task(self._learn(assistance, entry, exchange), name="assist")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _learn(self, assistance: Assistance, entry: ModelEntry, exchange: Exchange) -> None:
        key, name = _key(entry), assistance.name
        async with self._writing:
            before = await self.read_habit(entry)
            is_private = name in self._registry and self._registry[name].specialist.is_private
            if assistance.is_assisted and _has_called(exchange):
                habit = before.learn("right", name, is_private=is_private)
            elif assistance.is_assisted:
                habit = before.assist()
            else:
                habit = before.learn(_outcome(exchange, name), name, is_private=is_private)
            if habit.describe() != before.describe():
                log.info("model %s: %s", entry.model.name, habit.describe())
            self._habits[key] = habit
            try:
                await self._store.set_server_value(key, msgspec.json.encode(habit).decode())
            except StoreError as error:
                log.warning("what was learned about model %s was not stored: %s", entry.model.name, error)


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


def find_mode(settings: Settings, entry: ModelEntry) -> AssistMode:
    """Return the mode of a model: that of its row, else the setting."""
    return (None if entry.row is None else entry.row.assist) or settings.assist


async def read_habit(store: SQLite | None, entry: ModelEntry) -> Habit:
    """Return what is stored about a model, else only what to expect of it.

    Raises:
        StoreError: the store cannot be read.
    """
    text = None if store is None else await store.server_value(_key(entry))
    with suppress(msgspec.DecodeError):
        if text is not None:
            return msgspec.json.decode(text, type=Habit)
    return _expect(entry)


def _expect(entry: ModelEntry) -> Habit:
    """Return what is known about a model before its first answer: whether it is a small or a base model."""
    size = entry.model.parameters
    return Habit(is_small=entry.model.is_base or (size is not None and size < SMALL_MODEL))


async def describe_assistance(settings: Settings, store: SQLite | None, entry: ModelEntry) -> str:
    """Return what Brain does for a model, as a phrase for people; empty for one that always asks."""
    mode = find_mode(settings, entry)
    if entry.model.is_demo or (mode == "auto" and not _has_server(entry)):
        return ""
    if mode != "auto":
        return "Brain calls specialists for it" if mode == "always" else "Brain calls no specialists for it"
    try:
        return (await read_habit(store, entry)).describe()
    except StoreError:
        return _expect(entry).describe()


def _has_server(entry: ModelEntry) -> bool:
    """Whether a language model answers: the demo model always asks, and a script says what it says."""
    return entry.row is not None and entry.row.kind in REMOTE_KINDS


def _key(entry: ModelEntry) -> str:
    row = entry.row
    if row is None:
        return f"assist {entry.model.name}"
    return f"assist {row.model} {redact_url(row.url or '')}"


def _outcome(exchange: Exchange, name: str) -> Outcome:
    """Return what the model did with a message that needs this specialist. A call that failed is one, too."""
    called = [part.name for part in exchange.parts if isinstance(part, Call) and part.by == "model"]
    if name in called:
        return "right"
    return "other" if called else "none"


def _choose(
    router: Router,
    specialists: Sequence[Specialist[..., object]],
    request: TurnRequest,
    history: History,
    by_meaning: Sequence[float] | None,
) -> Choice | None:
    previous = None
    if history.exchanges:
        last = history.exchanges[-1]
        calls = [part.name for part in (*last.automatic_calls, *last.parts) if isinstance(part, Call)]
        previous = Previous(last.message, calls[-1] if calls else "")
    return router.choose(
        request.message,
        [one.name for one in specialists],
        by_meaning,
        previous,
        has_files=bool(request.attachments),
        can_read_files=bool(request.attachments or history.attachments),
    )


def _context(request: TurnRequest, history: History, choice: Choice) -> AssistContext:
    now = request.now or datetime.now(UTC).astimezone(ZoneInfo(request.time_zone))
    previous = history.exchanges[-1].message[:MAX_MESSAGE] if choice.follows_up else ""
    return AssistContext(now, request.time_zone, (*history.attachments, *request.attachments), previous)
