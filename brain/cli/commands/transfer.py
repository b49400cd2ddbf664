"""`brain export`, `brain import` and `brain forget`: all data of a user as JSON Lines, back, or erased."""

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
from pathlib import Path
from typing import IO, Any

from brain.cli.commands.store_access import chat_history, describe_no_data, format_counts, open_existing_store
from brain.cli.process import DONE, FAILED, run_command
from brain.cli.terminal.messages import is_yes
from brain.errors import BadRequest, BrainError, StoreError
from brain.messages import Counts
from brain.plugins.data_erasure import erase_user_data
from brain.plugins.registry import Registry
from brain.protocols.bodies import decode_any, encode
from brain.runtime import import_sanitizer
from brain.settings import LOCAL_USER, Settings
from brain.store import path_of
from brain.store.sqlite import SQLite
from brain.store.transfer import MAX_LINE
from brain.text import escape_invisible

MAX_COMMAS = 500_000
"""More than any line of an export has. Each comma means one more value, which takes much more memory than its text."""
MAX_DEPTH = 72
"""Levels of a line: those that the parameters of a call may have, and those around them in an exchange."""
CHUNK_BYTES = 1024 * 1024
MAX_STDIN_BYTES = 4 * 1024**3
STDIN = Path("-")
MAX_NAME_LENGTH = 200
PROGRESS_SECONDS, MAX_PROGRESS_SECONDS = 1.0, 10.0

_RECORD = re.compile(r"Record (?P<number>\d+)(?P<rest>.*)", re.DOTALL)


def _print_error(text: str) -> None:
    print(escape_invisible(text), file=sys.stderr, flush=True)


@asynccontextmanager
async def _progress(describe: Callable[[], str]) -> AsyncIterator[None]:
    """Print the progress of the block after a second, then less and less often."""

    async def report() -> None:
        pause = PROGRESS_SECONDS
        while True:
            await asyncio.sleep(pause)
            _print_error(describe())
            pause = min(2 * pause, MAX_PROGRESS_SECONDS)

    task = asyncio.create_task(report(), name="progress")
    try:
        yield
    finally:
        task.cancel()


# Export


def export(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write all data of a user."""
    return run_command(_export(arguments, settings))


async def _export(arguments: argparse.Namespace, settings: Settings) -> int:
    count = 0
    async with open_existing_store(settings) as store:
        users = await store.users()
        if arguments.user not in users:
            raise BrainError(describe_no_data(arguments.user, users))
        with _open_output(arguments.output) as file:
            async with (
                _progress(lambda: f"{count:,} records written …"),
                aclosing(store.export(arguments.user)) as records,
            ):
                async for record in records:
                    file.write(encode(record) + b"\n")
                    count += 1
            file.flush()
    _print_error(f"Exported {arguments.user}: {count:,} records.")
    return DONE


@contextmanager
def _open_output(path: Path | None) -> Iterator[IO[bytes]]:
    """Standard output, or a file that appears complete or not at all, for its owner alone."""
    if path is None or path == STDIN:
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


# Import


def import_user(arguments: argparse.Namespace, settings: Settings) -> int:
    """Import exported files: all of them, or nothing."""
    with tempfile.TemporaryFile() as stdin:
        if STDIN in arguments.file:  # read before the store is opened, which would wait for the end of a pipe
            while chunk := sys.stdin.buffer.read(CHUNK_BYTES):
                if stdin.tell() > MAX_STDIN_BYTES:
                    limit = f"more than {MAX_STDIN_BYTES // 1024**3} GiB come"
                    raise BrainError(f"standard input: {limit}; give a file.")
                stdin.write(chunk)
            stdin.seek(0)
        return run_command(_import(_ImportedFiles(arguments.file, arguments.user, stdin), settings))


async def _import(files: "_ImportedFiles", settings: Settings) -> int:
    async with open_existing_store(settings, creates=True) as store, _progress(files.describe_progress):
        try:
            new = await store.import_user(files.user, files.records(), import_sanitizer)
        except BadRequest as error:
            raise BrainError(files.locate(error)) from None
    existing = Counts(
        conversations=files.counts["conversation"] - new.conversations,
        facts=files.counts["fact"] - new.facts,
        memories=files.counts["memory"] - new.memories,
    )
    print(
        f"Imported for {escape_invisible(files.user)}: {format_counts(new)}. There already: {format_counts(existing)}."
    )
    return DONE


class _ImportedFiles:
    """The records of several files as one sequence with one head.

    Args:
        user: the user who gets the data; None for the one whom the files name.
        stdin: the content of standard input.

    Attributes:
        counts: the records that were read, by kind.
    """

    def __init__(self, paths: Sequence[Path], user: str | None, stdin: IO[bytes]) -> None:
        self.counts: Counter[str] = Counter()
        self._stdin = stdin
        self._read = 0
        self._is_complete = False
        self._places: list[tuple[int, str, int]] = []  # first record, its file, and its line's distance to its number
        self._is_named_by_files = user is None
        self._records = self._read_all(paths)
        self._head = next(self._records)
        self.user = self._user_of(self._head, self._locate_record(1)) if user is None else user

    def describe_progress(self) -> str:
        """What was done so far."""
        return f"{self._read:,} records {'are being kept' if self._is_complete else 'read'} …"

    def records(self) -> Iterator[Any]:
        """All records, once."""
        yield self._head
        yield from self._records
        self._is_complete = True

    def locate(self, error: BadRequest) -> str:
        """The message of the store about a record, with the line of its file instead of the number."""
        found = _RECORD.fullmatch(error.message)
        return error.message if found is None else f"{self._locate_record(int(found['number']))}{found['rest']}"

    def _locate_record(self, number: int) -> str:
        _, name, distance = self._places[bisect_right(self._places, number, key=lambda place: place[0]) - 1]
        return f"{name}, line {number + distance}"

    def _read_all(self, paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
        for path in paths:
            name = "standard input" if path == STDIN else str(path)
            lines = _read_lines(path, name, self._stdin)
            line, head = next(lines)
            self._check_head(head, f"{name}, line {line}")
            if not self._read:  # the heads of later files are dropped
                self._count(name, line)
                yield head
            for line, record in lines:
                self._count(name, line)
                kind = record.get("type" if record.get("kind") == "item" else "kind")
                self.counts[kind if kind in ("conversation", "fact", "memory") else ""] += 1
                yield record

    def _count(self, name: str, line: int) -> None:
        self._read += 1
        if not self._places or self._places[-1][1:] != (name, line - self._read):
            self._places.append((self._read, name, line - self._read))

    def _check_head(self, head: Mapping[str, Any], place: str) -> None:
        if head.get("kind") != "brain":
            raise BrainError(f"{place}, kind: this is no export of Brain's; it begins with a line of the kind brain.")
        if self._read and head.get("version") != self._head.get("version"):
            raise BrainError(f"{place}, version: the files before are of another version; import one at a time.")
        if self._read and self._is_named_by_files and self._user_of(head, place) != self.user:
            raise BrainError(f"{place}, user: the files before are of another user; say with --user whose they become.")

    @staticmethod
    def _user_of(head: Mapping[str, Any], place: str) -> str:
        user = head.get("user")
        if not isinstance(user, str) or not 1 <= len(user) <= MAX_NAME_LENGTH:
            raise BrainError(f"{place}, user: nobody is named; say with --user whose it becomes.")
        return user


def _read_lines(path: Path, name: str, stdin: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records of a file with the numbers of their lines; empty lines are skipped."""
    number, is_empty = 0, True
    try:
        with nullcontext(stdin) if path == STDIN else path.open("rb") as file:
            while line := file.readline(MAX_LINE + 1):
                number += 1
                if not line.strip():
                    continue
                is_empty = False
                place = f"{name}, line {number}"
                if line.count(b",") > MAX_COMMAS:
                    raise BrainError(f"{place}: this holds more than a line of an export.")
                record = decode_any(line, MAX_LINE, place, MAX_DEPTH)
                if not isinstance(record, dict):
                    raise BrainError(f"{place}: this must be an object.")
                yield number, record
    except OSError as error:
        raise BrainError(f"{name}: {error.strerror}.") from None
    if is_empty:
        raise BrainError(f"{name} is empty.")


# Forget


def forget(arguments: argparse.Namespace, settings: Settings) -> int:
    """Erase all data of a user, after a question unless `--yes` is given."""
    user: str = arguments.user
    if not arguments.yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            sentence = f"Nobody can be asked here whether to erase all that is kept of {user}: say so with --yes."
            raise BrainError(sentence)
        question = asyncio.run(_describe_erasure(user, settings))
        print(f"{escape_invisible(question)} [y/N] ", end="", file=sys.stderr, flush=True)
        if not is_yes(sys.stdin.readline()):
            print("Nothing was erased.", file=sys.stderr)
            return FAILED
    return run_command(_forget(user, settings))


async def _describe_erasure(user: str, settings: Settings) -> str:
    counts, users = Counts(), list[str]()
    if _has_store(settings):
        async with open_existing_store(settings) as store:
            counts, users = await store.count(user), list(await store.users())
    if user not in users:
        return f"{describe_no_data(user, users)} Erase what specialists may keep of {user}?"
    return f"Erase all that is kept of {user}: {format_counts(counts)}, and what specialists keep?"


async def _forget(user: str, settings: Settings) -> int:
    """Erase rows, then data of specialists, then traces of the rows in the file; later steps run if one fails."""
    registry = Registry(settings).discover()
    if user == LOCAL_USER:
        chat_history().unlink(missing_ok=True)
    if not _has_store(settings):
        _print_error(describe_no_data(user, ()))
        await _erase_with_specialists(registry, user)
        return FAILED
    async with open_existing_store(settings) as store:
        users = await store.users()
        try:
            counts = await store.forget(user)
        except BadRequest:
            sentence = f"A turn of {user} is running; wait for its end, or stop it. Nothing was erased."
            raise BrainError(sentence) from None
        if user in users:
            print(f"Erased of {escape_invisible(user)}: {format_counts(counts)}.", flush=True)
        else:
            _print_error(describe_no_data(user, users))
        is_erased = await _erase_with_specialists(registry, user)
        is_scrubbed = await _scrub(store)
    return DONE if user in users and is_erased and is_scrubbed else FAILED


async def _erase_with_specialists(registry: Registry, user: str) -> bool:
    """Let specialists erase their data of a user; whether all could."""
    failed = await erase_user_data(registry, user)
    for name in failed:
        _print_error(f"brain: {name} could not forget what it keeps of {user}; run it again")
    return not failed


async def _scrub(store: SQLite) -> bool:
    """Remove the traces of what was erased, now or earlier; whether that was possible."""
    try:
        await store.scrub()
    except StoreError as error:
        reason = error.message.rstrip(".").partition(";")[0]
        sentence = "what is erased has left traces in the free space of the file, which are still there"
        _print_error(f"brain: {sentence}: {reason}; run it again")
        return False
    return True


def _has_store(settings: Settings) -> bool:
    path = path_of(settings.store)
    return path is not None and path.exists()
