"""What tests of the store share: a clock, a store that is opened and closed, whole turns in one line."""

import asyncio
import secrets
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from limits import WAIT_SECONDS

from brain.errors import OutcomeUnknown
from brain.messages import Attachment, Exchange, History, Item, Part, Text, new_process_id
from brain.store import conversations, processes, tasks
from brain.store.database import Database
from brain.store.sqlite import database
from brain.store.sqlite.database import SQLite, SQLiteTx
from brain.store.store import Store
from brain.store.tasks import DayLimits, DueTask
from brain.store.turns import QuestionOptions
from brain.store.tx import Tx
from brain.task import Task
from brain.tasks import schedule

if TYPE_CHECKING:  # the processes that tests start need no pytest
    import pytest

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOMORROW = NOON + timedelta(days=1)
NO_LIMITS = DayLimits(0, 0)
S = TypeVar("S", bound=Store)
T = TypeVar("T")


class Clock:
    """Seconds since 1970; each reading takes `step` of them."""

    def __init__(self, step: float = 1.0) -> None:
        self.now = NOON.timestamp()
        self._step = step

    def __call__(self) -> float:
        self.now += self._step
        return self.now

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def advance(self, **by: float) -> None:
        self.now += timedelta(**by).total_seconds()


def refuse_nul(patch: "pytest.MonkeyPatch") -> None:
    """Let SQLite refuse NUL characters, as PostgreSQL does: its texts cannot have any."""

    def check(execute: Callable[..., Any]) -> Callable[..., Any]:
        def checked(query: str, values: Any = (), /) -> Any:
            given = values.values() if isinstance(values, dict) else values
            assert not any(isinstance(one, str) and "\0" in one for one in given), query
            return execute(query, values)

        return checked

    class CheckedTx(SQLiteTx):
        __slots__ = ()

        def __init__(self, db: sqlite3.Connection, engine: SQLite) -> None:
            super().__init__(db, engine)
            self.execute = check(db.execute)

    patch.setattr(database, "SQLiteTx", CheckedTx)


class DatabasePlace(Protocol):
    """Where a test has its database. Each call returns another `Database` of the same one, as for another process."""

    def __call__(self, *, clock: Callable[[], float], uptime: Callable[[], float]) -> Database: ...


def database_at(
    place: DatabasePlace | Path | None, clock: Callable[[], float], uptime: Callable[[], float] = time.monotonic
) -> Database:
    """Return the database at a place, in a file, or in memory."""
    connect = partial(SQLite, place) if place is None or isinstance(place, Path) else place
    return connect(clock=clock, uptime=uptime)


def place_of(setting: str) -> DatabasePlace:
    """The database that STORE names."""
    kind, _, path = setting.partition(":")
    if kind == "sqlite":
        return partial(SQLite, Path(path))
    from brain.store.postgresql.database import PostgreSQL  # of an extra

    return partial(PostgreSQL, setting)


@asynccontextmanager
async def opened(store: S) -> AsyncIterator[S]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def store_at(
    place: DatabasePlace | Path | None, clock: Clock | None = None, uptime: Callable[[], float] = time.monotonic
) -> AsyncIterator[Store]:
    async with opened(Store(database_at(place, clock or Clock(), uptime))) as store:
        yield store


class Blocker:
    """Work that holds a thread of the store until it is released."""

    def __init__(self) -> None:
        self._has_begun, self._may_end = threading.Event(), threading.Event()

    def __call__(self, tx: Tx, owner: str | None = None) -> bool:
        self._has_begun.set()
        return self._may_end.wait(WAIT_SECONDS)

    async def hold(self, start: Callable[[], Awaitable[T]]) -> "asyncio.Future[T]":
        """Start what calls the work, and wait until it does."""
        holding = asyncio.ensure_future(start())
        assert await asyncio.to_thread(self._has_begun.wait, WAIT_SECONDS)
        return holding

    def release(self) -> None:
        self._may_end.set()


def lose_outcome(store: Store, work: Callable[..., object]) -> None:
    """Let the next write with a function be done, but fail as if the connection was lost at its commit."""
    write = store.write

    async def write_and_fail(function: Any, *args: Any, **options: Any) -> Any:
        result = await write(function, *args, **options)
        if function is not work:
            return result
        store.write = write
        raise OutcomeUnknown("The database cannot be reached.", may_pass=True)

    store.write = write_and_fail  # type: ignore[assignment]


def sqlite_of(store: Store) -> SQLite:
    """The database of a store that is known to be SQLite's."""
    assert isinstance(store.database, SQLite)
    return store.database


async def join(store: Store, address: str = "") -> None:
    """Add the process of a store to those that live, as a server does."""
    await store.write(processes.add, address)


def lose_turns(store: Store) -> None:
    """Leave turns and tasks that run as if another process had run them and had died."""
    store.database.process = new_process_id()


def question(words: str, number: int | str = 1, **fields: Any) -> Exchange:
    """An exchange as its turn begins."""
    return Exchange(f"({words})", message=words, question_id=f"q{number}", **fields)


def answer(words: str | Sequence[Part], number: int | str = 1, outcome: str = "complete", **fields: Any) -> Exchange:
    """The same as its turn ends."""
    parts: list[Part] = [Text(words, 1)] if isinstance(words, str) else list(words)
    return Exchange("(read)", parts, answer_id=f"a{number}", outcome=outcome, **fields)


async def add_turn(
    store: Store,
    user: str,
    conversation: str,
    words: str = "Hello",
    reply: str | Sequence[Part] = "Hi",
    *,
    number: int | str = 1,
    outcome: str = "complete",
    files: Sequence[Attachment] = (),
    replaces: str | None = None,
) -> History:
    history = await store.write_question(
        user, conversation, question(words, number), files, QuestionOptions(replaces=replaces)
    )
    await store.end(history, answer(reply, number, outcome))
    return history


async def read_turns(store: Store, user: str, conversation: str) -> list[tuple[str, str, str]]:
    """Message, answer and outcome of each exchange, as the user sees them."""
    page = await store.read(conversations.read_page, user, conversation, limit=1000)
    return [] if page is None else [(one.message, one.answer, one.outcome) for one in page.exchanges]


async def only_exchange(store: Store, user: str, conversation: str) -> Exchange:
    page = await store.read(conversations.read_page, user, conversation)
    assert page is not None
    (exchange,) = page.exchanges
    return exchange


def task_of(user: str, prompt: str = "Read", conversation: str = "c", **fields: Any) -> Task:
    """A checked request for a task."""
    name = secrets.token_hex(8)
    given: dict[str, Any] = {
        "id": f"task{name}",
        "work_id": f"work{name}",
        "conversation_id": conversation,
        "title": prompt,
        "state": "waiting" if fields.get("start") else "pending",
        "time_zone": "UTC",
        "created": NOON,
        "changed": NOON,
    }
    return Task(user=user, prompt=prompt, **(given | fields))


async def claim_due(store: Store, at_once: int = 9, per_user: int = 9, limits: DayLimits = NO_LIMITS) -> list[Task]:
    """Claim due tasks as a process does, until no task is due or no place is free."""
    claimed: list[Task] = []
    while due := (await store.read(tasks.look, at_once, per_user)).due:
        readable = [DueTask(one, schedule.next_run(one, store.now()), limits) for one in due if one is not None]
        claimed += await store.write(tasks.claim, readable, at_once, per_user)
    return claimed


def fact(item_id: str, text: str, minute: int = 0, **fields: Any) -> Item:
    time = NOON + timedelta(minutes=minute)
    return Item(item_id, "fact", text, time, time, **({"category": "general"} | fields))


def memory(item_id: str, text: str, minute: int = 0, **fields: Any) -> Item:
    time = NOON + timedelta(minutes=minute)
    return Item(item_id, "memory", text, time, time, **fields)


def file(data: bytes, name: str = "a.txt") -> Attachment:
    return Attachment(1, name, "text/plain", data)
