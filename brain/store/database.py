"""What the store needs of a database. Each engine is a subclass: `sqlite` and `postgresql`."""

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

from brain.messages import new_process_id
from brain.store.rows import SECOND, moment
from brain.store.tx import Tx

MAX_STEP_PAUSE = 0.1
"""Maximum pause between two steps of `write_in_steps`, in seconds."""

P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[[Tx], T]


class Database(ABC):
    """A database. Open it once and close it once.

    Each function has an owner: its first argument if that is a string, such as the name of a user, or the attribute
    `user` of its first argument. Writes of one owner run in order, one after another. A write without an owner runs
    alone: it reads or changes data of several users.

    Args:
        clock: Returns seconds since 1970.
        uptime: Returns seconds on a monotonic clock that all processes of the database share.

    Attributes:
        place: What people call it: the path, or the URL without a password.
        is_shared: Whether other processes can use it.
        is_remote: Whether its server can crash while this process goes on.
        is_alone: False if another process had it open when it was opened. Not every engine finds that out.
        traces: Where deleted data can be left after `scrub`, as a sentence for operators; empty if nowhere.
        process: The ID of this process.
        written: Characters of exchanges and tasks, and bytes of files, that were written.
        known_version: The last known `data_version`, and when it was read, on the `time.monotonic` clock.
        on_change: Called in the event loop when another process has written, if the engine announces that.
    """

    place: str
    is_shared: bool
    traces = ""
    is_remote = False
    is_alone = True

    def __init__(self, clock: Callable[[], float], uptime: Callable[[], float]) -> None:
        self.clock = clock
        self.uptime = uptime
        self.process = new_process_id()
        self.written = 0
        self.known_version = 0, -math.inf
        self.on_change: Callable[[], None] = lambda: None

    @abstractmethod
    async def open(self, take_over: Work[None]) -> None:
        """Open the database and bring its tables up to date.

        Args:
            take_over: Called if no other process uses the database.

        Raises:
            StoreError: With the place and the remedy.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the database after all submitted work."""

    @abstractmethod
    async def exists(self) -> bool:
        """Return whether it is there, so that opening it would not create it.

        Raises:
            StoreError: It cannot be reached, with the place and the remedy.
        """

    @abstractmethod
    async def data_version(self) -> int:
        """Return a number that changes when another process commits a write."""

    @abstractmethod
    def submit(
        self, work: Work[T], owner: str | None = None, *, durable: bool = True, alone: bool = False
    ) -> "asyncio.Future[T]":
        """Queue a write; it is done even if the caller stops waiting.

        Args:
            owner: Runs beside the writes of others, but not beside one with the same owner; without one, alone.
            durable: Sync the write to disk. Without it, the write survives a crash of this process, but not of the
                database's machine or server.
            alone: Use a separate transaction, because the work cannot be repeated.
        """

    @abstractmethod
    async def run_read(self, work: Work[T], owner: str | None, *, slow: bool) -> T:
        """Read in one consistent snapshot. No turn waits for a slow one."""

    @abstractmethod
    def walk(
        self, function: Callable[Concatenate[Tx, P], Iterator[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]:
        """Iterate over what a function finds in one consistent snapshot, while others read and write."""

    @abstractmethod
    async def find_problem(self) -> str | None:
        """Return why the database cannot be read or written, without its place; None if it can."""

    @abstractmethod
    async def diagnose(self) -> tuple[str | None, str]:
        """Return what is wrong, for operators, or None; and a description such as the size.

        Raises:
            StoreError: The database cannot be read or written.
        """

    @abstractmethod
    def limit_waiting(self, seconds: float) -> None:
        """Limit the wait for other processes that write, from now on."""

    @abstractmethod
    async def sweep(self, until: float) -> None:
        """Remove traces of deleted rows that cost others little, until this time of `time.monotonic`.

        Raises:
            StoreError: They cannot be removed now.
        """

    @abstractmethod
    async def scrub(self) -> None:
        """Remove all traces of deleted rows, which may block all writers.

        Raises:
            StoreError: Traces are left.
        """

    def note_change(self) -> None:
        """Note that another process may have written what it did not announce, such as one that died."""
        self.on_change()

    def now(self) -> datetime:
        """Return the time by the clock of the database."""
        return moment(round(self.clock() * SECOND))

    async def write(self, function: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that writes, in a transaction. If it raises, nothing has changed.

        Raises:
            StoreError: The write failed.
        """
        return await asyncio.shield(self.submit(lambda tx: function(tx, *args, **kwargs), _owner(args)))

    async def write_unsynced(
        self, function: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function as `write` does. What it writes may be lost if the database crashes.

        Raises:
            StoreError: The write failed.
        """
        work: Work[T] = lambda tx: function(tx, *args, **kwargs)  # noqa: E731 - it has a type
        return await asyncio.shield(self.submit(work, _owner(args), durable=False))

    async def write_in_steps(self, step: Work[bool], owner: str | None = None, *, until: float = math.inf) -> None:
        """Write in small transactions, with pauses for other writers.

        Args:
            step: Repeated while it returns true.
            owner: As for `submit`.
            until: Start no step after this time of `time.monotonic`.

        Raises:
            StoreError: A step failed; earlier steps stay.
        """
        has_more = True
        while has_more and (started := time.monotonic()) < until:
            writing = self.submit(step, owner, durable=False, alone=True)
            try:
                has_more = await asyncio.shield(writing)
            except asyncio.CancelledError:
                await asyncio.wait({writing})  # the caller may close what the step uses
                raise
            if has_more:
                await asyncio.sleep(min(time.monotonic() - started, MAX_STEP_PAUSE))

    async def read(self, function: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that reads, in one consistent snapshot.

        Raises:
            StoreError: The read failed.
        """
        return await self.run_read(lambda tx: function(tx, *args, **kwargs), _owner(args), slow=False)

    async def search(self, function: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function as `read` does, but one that may be slow: no turn waits for it.

        Raises:
            StoreError: The read failed.
        """
        return await self.run_read(lambda tx: function(tx, *args, **kwargs), _owner(args), slow=True)


def _owner(args: tuple[Any, ...]) -> str | None:
    """Return the owner of a function by its arguments; None if it is empty, such as the address of a process."""
    first = args[0] if args else None
    owner = first if isinstance(first, str) else getattr(first, "user", None)
    return owner if owner and isinstance(owner, str) else None
