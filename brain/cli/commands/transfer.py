"""`brain export`, `brain import` and `brain forget`: copy, restore or erase all data of a user."""

import argparse
import asyncio
import os
import re
import shlex
import sys
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from brain.cli.commands.input import describe_error
from brain.cli.commands.store_access import (
    chat_history,
    describe_no_data,
    format_counts,
    open_existing_store,
    print_status,
    show_progress,
)
from brain.cli.process import DONE, FAILED, CommandError, print_error, run_command
from brain.cli.terminal.messages import is_yes
from brain.errors import BadRequest, StoreError
from brain.plugins.registry import Registry
from brain.protocols.common import decode_any
from brain.protocols.encoding import encode
from brain.runtime import archive, import_sanitizer
from brain.settings import LOCAL_USER, Settings
from brain.store import database_of, tasks, users
from brain.store.store import Store
from brain.store.transfer import MAX_LINE
from brain.store.users import Counts
from brain.text import escape_invisible

MAX_COMMAS = 500_000
"""More than any line of an export has. Each comma is one more value, which needs much more memory than its text."""
MAX_DEPTH = 72
"""Nesting of a line: the limit for parameters of a call, plus the levels around them in an exchange."""
CHUNK_BYTES = 1024 * 1024
MAX_STDIN_BYTES = 4 * 1024**3
STDIN = Path("-")
MAX_NAME_LENGTH = 200
ENDING_SECONDS, RETRY_SECONDS = 2.0, 0.05
"""How long erasing waits until canceled tasks have stopped, and time between two tries."""

_IMPORT = "brain import FILE --user NAME"
_EXPORT_TO = "brain export --output FILE"
_RECORD = re.compile(r"Record (?P<number>\d+)(?P<rest>.*)", re.DOTALL)


# Export


async def export(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write all data of a user."""
    count = 0
    async with open_existing_store(settings) as store:
        names = await store.search(users.names)
        if arguments.user not in names:
            raise CommandError(describe_no_data(arguments.user, names), "brain export --user NAME")
        with _open_output(arguments.output) as file:
            async with (
                show_progress(lambda: f"{count:,} records written …"),
                aclosing(store.export(arguments.user)) as records,
            ):
                async for record in records:
                    file.write(encode(record) + b"\n")
                    count += 1
            file.flush()
    target = "standard output" if arguments.output in (None, STDIN) else arguments.output
    print_status(f"Exported {count:,} records of user {arguments.user} to {target}.")
    return DONE


@contextmanager
def _open_output(path: Path | None) -> Iterator[IO[bytes]]:
    """Open standard output, or a file for its owner only that appears complete or not at all."""
    if path is None or path == STDIN:
        yield sys.stdout.buffer
        return
    try:
        if path.exists() and not path.is_file():
            raise CommandError(f"Cannot write to {path}: not a regular file", _EXPORT_TO)
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
        raise CommandError(f"Cannot write to {path}: {describe_error(error)}", _EXPORT_TO) from None


# Import


def import_user(arguments: argparse.Namespace, settings: Settings) -> int:
    """Import exported files: all of them or nothing."""
    with tempfile.TemporaryFile() as stdin:
        if STDIN in arguments.file:  # read before the store is opened: a pipe may take long
            while chunk := sys.stdin.buffer.read(CHUNK_BYTES):
                if stdin.tell() > MAX_STDIN_BYTES:
                    limit = f"the limit is {MAX_STDIN_BYTES // 1024**3} GiB"
                    raise CommandError(f"Standard input is too large; {limit}", "brain import FILE")
                stdin.write(chunk)
            stdin.seek(0)
        return run_command(_import(_ImportedFiles(arguments.file, arguments.user, stdin), settings))


async def _import(files: "_ImportedFiles", settings: Settings) -> int:
    async with open_existing_store(settings, creates=True) as store, show_progress(files.describe_progress):
        try:
            new = await store.import_user(files.user, files.records(), import_sanitizer)
        except BadRequest as error:
            raise CommandError(files.locate(error), _IMPORT) from None
    existing = Counts(
        conversations=files.counts["conversation"] - new.conversations,
        facts=files.counts["fact"] - new.facts,
        memories=files.counts["memory"] - new.memories,
        tasks=files.counts["task"] - new.tasks,
    )
    skipped = f"Skipped (already present): {format_counts(existing)}."
    print(f"Imported for user {escape_invisible(files.user)}: {format_counts(new)}. {skipped}")
    return DONE


class _ImportedFiles:
    """The records of several files as one sequence with one head.

    Args:
        user: The user who gets the data; None for the user in the files.

    Attributes:
        counts: Number of records read, by kind.
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
        """Return the number of records read or stored so far."""
        return f"{self._read:,} records {'being stored' if self._is_complete else 'read'} …"

    def records(self) -> Iterator[Any]:
        """Yield all records, once."""
        yield self._head
        yield from self._records
        self._is_complete = True

    def locate(self, error: BadRequest) -> str:
        """Return the message of the store about a record, with file and line instead of its number."""
        found = _RECORD.fullmatch(error.message)
        return error.message if found is None else f"{self._locate_record(int(found['number']))}{found['rest']}"

    def _locate_record(self, number: int) -> str:
        _, name, distance = self._places[bisect_right(self._places, number, key=lambda place: place[0]) - 1]
        return f"{name}, line {number + distance}"

    def _read_all(self, paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
        work_ids = set[str]()  # conversations in which tasks ran; the counts leave them out
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
                if kind == "task":
                    work_ids.add(f"{record.get('work_id')}")
                is_run = kind == "conversation" and f"{record.get('id')}" in work_ids
                is_counted = kind in ("conversation", "fact", "memory", "task") and not is_run
                self.counts[f"{kind}" if is_counted else ""] += 1
                yield record

    def _count(self, name: str, line: int) -> None:
        self._read += 1
        if not self._places or self._places[-1][1:] != (name, line - self._read):
            self._places.append((self._read, name, line - self._read))

    def _check_head(self, head: Mapping[str, Any], place: str) -> None:
        if head.get("kind") != "brain":
            raise CommandError(f'{place}: not a Brain export: the first line must have "kind": "brain"', _IMPORT)
        if self._read and head.get("version") != self._head.get("version"):
            raise CommandError(f"{place}: its version differs from the files before it", "brain import FILE for each")
        if self._read and self._is_named_by_files and self._user_of(head, place) != self.user:
            raise CommandError(f"{place}: its user differs from the files before it", _IMPORT)

    @staticmethod
    def _user_of(head: Mapping[str, Any], place: str) -> str:
        user = head.get("user")
        if not isinstance(user, str) or not 1 <= len(user) <= MAX_NAME_LENGTH:
            raise CommandError(f"{place}: the file names no user", _IMPORT)
        return user


def _read_lines(path: Path, name: str, stdin: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the records of a file with the numbers of their lines; skip empty lines."""
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
                    raise CommandError(f"{place}: more values than a line of an export can have", _IMPORT)
                try:
                    record = decode_any(line, MAX_LINE, place, MAX_DEPTH)
                except BadRequest as error:
                    raise CommandError(error.message, _IMPORT) from None
                if not isinstance(record, dict):
                    raise CommandError(f"{place}: not a JSON object", _IMPORT)
                yield number, record
    except OSError as error:
        raise CommandError(f"Cannot read {name}: {describe_error(error)}", _IMPORT) from None
    if is_empty:
        raise CommandError(f"{name} is empty", "brain export --output FILE")


# Forget


def forget(arguments: argparse.Namespace, settings: Settings) -> int:
    """Erase all data of a user; ask for confirmation unless `--yes` is given."""
    user: str = arguments.user
    if not arguments.yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            advice = f"brain forget {shlex.quote(user)} --yes"
            raise CommandError("Cannot ask for confirmation without a terminal", advice)
        question = asyncio.run(_describe_erasure(user, settings))
        print(f"{escape_invisible(question)} [y/N] ", end="", file=sys.stderr, flush=True)
        if not is_yes(sys.stdin.readline()):
            print("Nothing was erased.", file=sys.stderr)
            return FAILED
    return run_command(_forget(user, settings))


async def _describe_erasure(user: str, settings: Settings) -> str:
    counts, names = Counts(), list[str]()
    if await database_of(settings.store).exists():
        async with open_existing_store(settings) as store:
            counts, names = await store.search(users.count, user), list(await store.search(users.names))
    if user not in names:
        return f"{describe_no_data(user, names)} Erase specialist data of {user}?"
    return f"Erase all data of user {user}? {format_counts(counts)} and specialist data. This cannot be undone."


async def _forget(user: str, settings: Settings) -> int:
    """Erase rows, recordings, specialist data and traces in the database; later steps run if one fails."""
    registry = Registry(settings).discover()
    if user == LOCAL_USER:
        chat_history().unlink(missing_ok=True)
    if not await database_of(settings.store).exists():
        print_status(f"brain: {describe_no_data(user, ())}")
        _erase_recordings(user, settings)
        await _erase_with_specialists(registry, user)
        return FAILED
    async with open_existing_store(settings) as store:
        names = await store.search(users.names)
        counts = await _forget_rows(store, user)
        if user in names:
            print(f"Erased for user {escape_invisible(user)}: {format_counts(counts)}.", flush=True)
        else:
            print_status(f"brain: {describe_no_data(user, names)}")
        is_erased = _erase_recordings(user, settings) & await _erase_with_specialists(registry, user)
        is_scrubbed = await _scrub(store, user)
    return DONE if user in names and is_erased and is_scrubbed else FAILED


async def _forget_rows(store: Store, user: str) -> Counts:
    """Erase the rows of a user; first cancel the tasks, and wait until a server has stopped them."""
    is_running = bool(await store.read(tasks.list_tasks, user, ("running",), limit=1))
    until = time.monotonic() + (ENDING_SECONDS if is_running else 0)
    await store.write(tasks.cancel_all, user, None)
    while True:
        try:
            return await store.forget(user)
        except BadRequest:
            if time.monotonic() >= until:
                advice = f"brain forget {shlex.quote(user)}, when the turn has finished"
                raise CommandError(f"Nothing was erased: user {user} has a running turn", advice) from None
        await asyncio.sleep(RETRY_SECONDS)


def _erase_recordings(user: str, settings: Settings) -> bool:
    """Delete the recordings of a user; return whether that succeeded."""
    if settings.archive is None:
        return True
    try:
        count = archive.erase(settings.archive, user)
    except OSError as error:
        print_error(f"Cannot delete recordings: {describe_error(error)}", f"brain forget {shlex.quote(user)}")
        return False
    if count:
        print_status(f"Deleted {count:,} recording{'' if count == 1 else 's'}.")
    return True


async def _erase_with_specialists(registry: Registry, user: str) -> bool:
    """Let specialists erase their data of a user; return whether all succeeded."""
    failed = await registry.erase_user_data(user)
    for name in failed:
        print_error(f"Specialist {name} failed to erase its data of user {user}", f"brain forget {shlex.quote(user)}")
    return not failed


async def _scrub(store: Store, user: str) -> bool:
    """Remove traces of erased data from the database; return whether that succeeded."""
    try:
        await store.scrub()
    except StoreError as error:
        reason = error.message.rstrip(".").partition(";")[0]
        sentence = "The data is deleted, but the database still has traces of it"
        print_error(f"{sentence} ({reason})", f"brain forget {shlex.quote(user)}")
        return False
    if store.database.traces:
        print_status(store.database.traces)
    return True
