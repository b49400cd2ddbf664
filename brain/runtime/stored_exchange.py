"""The exchange of a turn in the store: checkpoints while the turn runs, and the answer."""

import logging
from collections.abc import Callable

import msgspec

from brain.errors import StoreError
from brain.messages import Annotation, Call, Exchange, History, Text
from brain.store import turns
from brain.store.store import Store
from brain.store.tasks import ReportEnd, RunEnd
from brain.store.turns import Appended
from brain.store.tx import Tx

NO_TEXT = Text("", 0)
STORED_LATER = "Brain stores this answer as soon as that is possible."

Key = tuple[str, str]
TaskEnd = Callable[[Exchange], RunEnd | ReportEnd | None]
"""Returns the end of a run of a task, or of a report on tasks, from the finished exchange."""

log = logging.getLogger("brain")


class StoredExchange:
    """See the module.

    Args:
        replaces: Whether the exchange replaces earlier ones.

    Attributes:
        task_end: Returns what else to store with the finished exchange, in the same transaction.
        is_ending: Whether `store` has begun. It finds out by itself whether another process has the turn.
        is_stored: Whether `store` has run, even if it failed.
        is_released: Whether another process continues the turn, so that `store` writes no answer.
        last: Returns the number of the newest event of the turn.
        on_taken: Called when a write finds that another process has claimed the turn.
    """

    def __init__(
        self, store: Store, history: History, *, replaces: bool = False, task_end: TaskEnd | None = None
    ) -> None:
        self.history = history
        self.replaces = replaces
        self.is_ending = False
        self.is_stored = False
        self.is_released = False
        self.task_end = task_end
        self.last: Callable[[], int] = lambda: 0
        self.on_taken: Callable[[], object] = lambda: None
        self._store = store
        self._shape: object = None  # of the answer as far as the store has it, apart from its end and thinking
        self._end = NO_TEXT
        self._annotations: tuple[Annotation, ...] = ()

    @property
    def key(self) -> Key:
        """The user and the conversation ID."""
        return self.history.user, self.history.id

    async def store(self, exchange: Exchange) -> str | None:
        """Store the finished exchange. Return an error message for people, or None.

        The answer of a task, for which nobody waits, is stored when this returns, even if that takes long.
        """
        history = self.history
        self.is_ending = True
        try:
            if self.is_released:
                await self._store.write(turns.release, history, self.last(), exchange)
            else:
                end = None if self.task_end is None else self.task_end(exchange)
                if not await self._store.end(history, exchange, end):
                    self.on_taken()
        except StoreError as error:
            log.error("conversation %s: an answer was not stored: %s", history.id, error)  # noqa: TRY400
            self.is_stored = True
            if exchange.source == "task":
                await self._store.wait_written(history)
            return f"{error.message} {STORED_LATER}" if error.may_pass else error.message
        self.is_stored = True
        return None

    async def checkpoint(self, exchange: Exchange) -> None:
        """Store the answer so far.

        Raises:
            StoreError: The write failed, or another process continues the turn.
        """
        self._note(exchange)
        history = self.history
        try:
            is_own = await self._store.write(turns.checkpoint, history, self.last(), exchange)
        except StoreError:
            self.forget_draft()
            raise
        if not is_own:
            self.on_taken()
            raise StoreError("Another process continues this turn.")

    def draft(self, exchange: Exchange) -> Callable[[Tx], bool] | None:
        """Return a write of what the store lacks of the answer so far; None if it lacks nothing.

        The write returns whether this process still has the turn.
        """
        last, end, former = self.last(), _end(exchange), self._end
        history = self.history
        goes_on = end.text.startswith(former.text) and former.turn_pass in (0, end.turn_pass)
        if not goes_on or _shape(exchange) != self._shape:
            self._note(exchange)
            return lambda tx: turns.checkpoint(tx, history, last, exchange)
        added = _added(self._annotations, exchange.annotations)
        appended = Appended(end.text[len(former.text) :], end.turn_pass, added)
        if not appended.text and not appended.annotations:
            return None
        self._note(exchange)
        return lambda tx: turns.append(tx, history, last, appended)

    def _note(self, exchange: Exchange) -> None:
        self._shape, self._end = _shape(exchange), _end(exchange)
        self._annotations = exchange.annotations

    def forget_draft(self) -> None:
        """Write the whole answer the next time, since a write has failed."""
        self._shape = None

    async def drop(self) -> None:
        """Delete the question."""
        try:
            await self._store.drop(self.history)
        except StoreError as error:
            log.error("conversation %s: a question was not deleted: %s", self.history.id, error)  # noqa: TRY400


def _end(exchange: Exchange) -> Text:
    """Return the text at the end of an answer, which grows while the model writes."""
    part = exchange.parts[-1] if exchange.parts else None
    return part if isinstance(part, Text) else NO_TEXT


def _shape(exchange: Exchange) -> object:
    """Return all that needs a checkpoint when it changes."""
    end = _end(exchange)
    others = [part for part in exchange.parts if part is not end and not isinstance(part, Call)]
    notices = sum(one.code is not None for one in exchange.annotations)
    calls = [(one.id, one.approval, one.outcome) for one in exchange.calls]
    return exchange.question, calls, others, notices, len(exchange.rounds)


def _added(former: tuple[Annotation, ...], annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    """Return the annotations after the former ones. If the last one of these has grown, its new text comes first."""
    added = annotations[len(former) :]
    if former and (text := annotations[len(former) - 1].text[len(former[-1].text) :]):
        added = (msgspec.structs.replace(former[-1], text=text), *added)
    return added
