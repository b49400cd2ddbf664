"""`brain export` and `brain import`: all that is kept of a user as JSON Lines, and back."""

import argparse
import asyncio
import os
import re
import sys
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from brain.cli.commands.store_access import chat_history, describe_no_data, format_counts, open_existing_store
from brain.cli.process import DONE, FAILED, run_command
from brain.errors import BadRequest, BrainError, StoreError
from brain.messages import Counts
from brain.plugins.data_erasure import erase_user_data
from brain.plugins.registry import Registry
from brain.protocols.bodies import decode_any, encode
from brain.runtime import import_sanitizer
from brain.settings import LOCAL_USER, Settings
from brain.store import path_of
from brain.store.sqlite import SQLite
from brain.store.transfer import LINE_MOST
from brain.text import escape_invisible

COMMAS_MOST = 500_000
"""More than any line has: with each comma comes a value, and a value of a byte takes much more memory than that."""
DEPTH = 72
"""Levels of a line: what a call may have in its parameters, and where these stand in an exchange."""
PIECE_BYTES = 1024 * 1024
PIPED_BYTES_MOST = 4 * 1024**3
STANDARD_INPUT = Path("-")
NAME_LENGTH = 200
TELL_SECONDS, TELL_SECONDS_MOST = 1.0, 10.0

_KINDS = ("conversation", "fact", "memory")
_RECORD = re.compile(r"Record (?P<number>\d+)(?P<rest>.*)", re.DOTALL)


def export(given: argparse.Namespace, settings: Settings) -> int:
    """Writes all that is kept of a user."""
    return run_command(_export(given, settings))


async def _export(given: argparse.Namespace, settings: Settings) -> int:
    async with open_existing_store(settings) as store:
        users = await store.users()
        if given.user not in users:
            raise BrainError(describe_no_data(given.user, users))
        with _written(given.output) as file:
            written = await _copied(store, given.user, file)
    _tell(f"Exported {given.user}: {written:,} records.")
    return DONE


async def _copied(store: SQLite, user: str, file: IO[bytes]) -> int:
    written = 0
    async with _telling(lambda: f"{written:,} records written …"), aclosing(store.export(user)) as records:
        async for record in records:
            file.write(encode(record) + b"\n")
            written += 1
    file.flush()
    return written


@contextmanager
def _written(path: Path | None) -> Iterator[IO[bytes]]:
    """Where the copy goes. A file is there as a whole or not at all, and for its owner alone."""
    if path is None or str(path) == "-":
        yield sys.stdout.buffer
        return
    try:
        if path.exists() and not path.is_file():
            raise BrainError(f"--output {path}: this is no file.")
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(file.name)
                raise
    except OSError as error:
        raise BrainError(f"--output {path}: {error.strerror}.") from None


def import_user(given: argparse.Namespace, settings: Settings) -> int:
    """Takes in what was exported: all of it, or nothing."""
    with tempfile.TemporaryFile() as piped:
        if STANDARD_INPUT in given.file:
            _pipe(sys.stdin.buffer, piped)
        return run_command(_take_in(_Copy(given.file, given.user, piped), settings))


def _pipe(source: IO[bytes], into: IO[bytes]) -> None:
    """Reads all that comes, before anything is begun that would have to wait for it."""
    while some := source.read(PIECE_BYTES):
        if into.tell() > PIPED_BYTES_MOST:
            raise BrainError(f"standard input: more than {PIPED_BYTES_MOST // 1024**3} GiB come; give a file.")
        into.write(some)
    into.seek(0)


async def _take_in(copy: "_Copy", settings: Settings) -> int:
    async with open_existing_store(settings, makes=True) as store, _telling(copy.state):
        try:
            new = await store.import_user(copy.user, copy.records(), import_sanitizer)
        except BadRequest as error:
            raise BrainError(copy.located(error)) from None
    there = Counts(
        conversations=copy.counts["conversation"] - new.conversations,
        facts=copy.counts["fact"] - new.facts,
        memories=copy.counts["memory"] - new.memories,
    )
    print(f"Imported for {escape_invisible(copy.user)}: {format_counts(new)}. There already: {format_counts(there)}.")
    return DONE


class _Copy:
    """The records of some files, one behind the other, with one head.

    Args:
        user: whose it becomes; None for whom the files name.
        piped: what came on standard input.

    Attributes:
        counts: how many records of each kind were read.
    """

    def __init__(self, paths: Sequence[Path], user: str | None, piped: IO[bytes]) -> None:
        self.counts: Counter[str] = Counter()
        self._piped = piped
        self._read = 0
        self._ends = False
        self._firsts: list[int] = []  # records, from each of which on the place of lines is another one
        self._places: list[tuple[str, int]] = []  # where: the file, and how far its lines are ahead of the records
        self._records = self._all(paths)
        self._head = next(self._records)
        self.user = self._named(self._head, "") if user is None else user
        self._is_named = user is None

    def state(self) -> str:
        """How far it is."""
        return f"{self._read:,} records {'are being kept' if self._ends else 'read'} …"

    def records(self) -> Iterator[Any]:
        """All of them, once."""
        yield self._head
        yield from self._records
        self._ends = True

    def located(self, error: BadRequest) -> str:
        """What the store says of a record, said of the line in its file."""
        found = _RECORD.fullmatch(error.message)
        return error.message if found is None else f"{self._place(int(found['number']))}{found['rest']}"

    def _place(self, number: int) -> str:
        name, ahead = self._places[bisect_right(self._firsts, number) - 1]
        return f"{name}, line {number + ahead}"

    def _all(self, paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
        for path in paths:
            name = "standard input" if path == STANDARD_INPUT else str(path)
            lines = _lines(path, name, self._piped)
            number, head = next(lines)
            self._check_head(head, f"{name}, line {number}")
            if not self._read:
                self._note(name, number)
                yield head
            for number, record in lines:
                self._note(name, number)
                kind = record.get("type" if record.get("kind") == "item" else "kind")
                self.counts[kind if kind in _KINDS else ""] += 1
                yield record

    def _check_head(self, head: Mapping[str, Any], place: str) -> None:
        if head.get("kind") != "brain":
            raise BrainError(f"{place}, kind: this is no export of Brain's; it begins with a line of the kind brain.")
        if self._read and head.get("version") != self._head.get("version"):
            raise BrainError(f"{place}, version: the files before are of another version; import one at a time.")
        if self._read and self._is_named and self._named(head, place) != self.user:
            raise BrainError(f"{place}, user: the files before are of another user; say with --user whose they become.")

    def _named(self, head: Mapping[str, Any], place: str) -> str:
        user = head.get("user")
        if not isinstance(user, str) or not 1 <= len(user) <= NAME_LENGTH:
            raise BrainError(f"{place or self._place(1)}, user: nobody is named; say with --user whose it becomes.")
        return user

    def _note(self, name: str, line: int) -> None:
        self._read += 1
        if not self._places or self._places[-1] != (name, line - self._read):
            self._firsts.append(self._read)
            self._places.append((name, line - self._read))


def _lines(path: Path, name: str, piped: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The numbers of the lines of a file, and what they hold; empty ones are passed over."""
    number, is_empty = 0, True
    try:
        with nullcontext(piped) if path == STANDARD_INPUT else path.open("rb") as file:
            while line := file.readline(LINE_MOST + 1):
                number += 1
                if line.strip():
                    is_empty = False
                    yield number, _record(line, f"{name}, line {number}")
    except OSError as error:
        raise BrainError(f"{name}: {error.strerror}.") from None
    if is_empty:
        raise BrainError(f"{name} is empty.")


def _record(line: bytes, place: str) -> dict[str, Any]:
    if line.count(b",") > COMMAS_MOST:
        raise BrainError(f"{place}: this holds more than a line of an export.")
    record = decode_any(line, LINE_MOST, place, DEPTH)
    if not isinstance(record, dict):
        raise BrainError(f"{place}: this must be an object.")
    return record


@asynccontextmanager
async def _telling(state: Callable[[], str]) -> AsyncIterator[None]:
    """Tells how far something is that takes longer than a second; the longer it takes, the less often."""

    async def tell() -> None:
        pause = TELL_SECONDS
        while True:
            await asyncio.sleep(pause)
            _tell(state())
            pause = min(2 * pause, TELL_SECONDS_MOST)

    task = asyncio.create_task(tell(), name="progress")
    try:
        yield
    finally:
        task.cancel()


def _tell(text: str) -> None:
    print(escape_invisible(text), file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class _Found:
    """What is kept of a user in the store, and of whom there is anything."""

    counts: Counts
    users: Sequence[str]


def forget(given: argparse.Namespace, settings: Settings) -> int:
    """Erases it; asks before, where somebody can be asked."""
    if not given.yes and not _agreed(given.user, settings):
        print("Nothing was erased.", file=sys.stderr)
        return FAILED
    return run_command(_forget(given.user, settings))


def _agreed(user: str, settings: Settings) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BrainError(f"Nobody can be asked here whether to erase all that is kept of {user}: say so with --yes.")
    found = asyncio.run(_found(user, settings))
    what = f"Erase all that is kept of {user}: {format_counts(found.counts)}, and what specialists keep?"
    if user not in found.users:
        what = f"{describe_no_data(user, found.users)} Erase what specialists may keep of {user}?"
    print(f"{escape_invisible(what)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _found(user: str, settings: Settings) -> _Found:
    if not _is_there(settings):
        return _Found(Counts(), ())
    async with open_existing_store(settings) as store:
        return _Found(await store.count(user), await store.users())


async def _forget(user: str, settings: Settings) -> int:
    """Rows first, then what specialists keep, then the traces of the rows in the file: each is done whatever became of
    those behind it."""
    registry = Registry(settings).discover()
    if user == LOCAL_USER:
        chat_history().unlink(missing_ok=True)
    if not _is_there(settings):
        print(escape_invisible(describe_no_data(user, ())), file=sys.stderr)
        await _forgotten(registry, user)
        return FAILED
    async with open_existing_store(settings) as store:
        is_known = await _erased(store, user)
        is_forgotten = await _forgotten(registry, user)
        is_scrubbed = await _scrubbed(store)
    return DONE if is_known and is_forgotten and is_scrubbed else FAILED


async def _erased(store: SQLite, user: str) -> bool:
    """Erases the rows of a user; whether there were any."""
    users = await store.users()
    try:
        counts = await store.forget(user)
    except BadRequest:
        sentence = f"A turn of {user} is running; wait for its end, or stop it. Nothing was erased."
        raise BrainError(sentence) from None
    if user in users:
        print(f"Erased of {escape_invisible(user)}: {format_counts(counts)}.", flush=True)
    else:
        print(escape_invisible(describe_no_data(user, users)), file=sys.stderr)
    return user in users


async def _forgotten(registry: Registry, user: str) -> bool:
    """Has specialists forget what they keep of a user; whether all could."""
    failed = await erase_user_data(registry, user)
    for name in failed:
        print(
            f"brain: {name} could not forget what it keeps of {escape_invisible(user)}; run it again", file=sys.stderr
        )
    return not failed


async def _scrubbed(store: SQLite) -> bool:
    """Removes the traces of what was erased, now or earlier; whether all could be."""
    try:
        await store.scrub()
    except StoreError as error:
        reason = error.message.rstrip(".").partition(";")[0]
        sentence = "what is erased has left traces in the free space of the file, which are still there"
        print(f"brain: {sentence}: {reason}; run it again", file=sys.stderr)
        return False
    return True


def _is_there(settings: Settings) -> bool:
    path = path_of(settings.store)
    return path is not None and path.exists()
