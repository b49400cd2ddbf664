"""The archive: recordings of turns as JSON Lines, one file per turn, in a folder per day.

A thread writes them. A turn never waits for it: what the thread cannot write in time is dropped.
"""

import asyncio
import glob
import hashlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from brain.runtime.recording import Line
from brain.settings import Settings

MAX_WAITING = 32
"""Recordings that wait for the thread. Further ones are dropped."""
PRUNE_SHARE = 0.02
"""Share of the size limit that may be written between two checks of the limits."""
PRUNE_SECONDS = 3600.0
"""Longest time between two checks of the limits, if anything is written."""
CLOSE_SECONDS = 5.0
"""Time for the thread to write what waits when the engine closes."""
ERASE_SECONDS = 30.0
"""Time for the thread to delete recordings."""
ERASED_DAYS = 1
"""Age of the marks of erased conversations. They keep other processes from writing a turn that ended before."""
_ERASED = "erased"
_SUFFIX = ".jsonl"

log = logging.getLogger("brain")


class Recorded(NamedTuple):
    """A turn to write. `lines` is called in the thread."""

    turn_id: str
    user: str
    conversation_id: str
    began: datetime
    lines: Callable[[], Iterable[Line]]


class Archive:
    """Writes recordings to a folder, within limits of size and age.

    Args:
        folder: It is created for its owner only.
        max_bytes: Size limit of all files. The oldest ones are deleted.
        days: Age limit of a file, in days.
    """

    def __init__(self, folder: Path, max_bytes: int, days: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._days = days
        self._work: queue.Queue[Callable[[], None] | None] = queue.Queue(MAX_WAITING)
        self._private: set[str] = set()  # conversations whose recordings were deleted when they became private
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_failed = False
        self._written = max_bytes  # bytes since the last check of the limits; the first recording causes one
        self._pruned_at = 0.0
        self._thread = threading.Thread(target=self._run, name="brain-archive", daemon=True)

    def open(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def close(self) -> None:
        """Write and delete what waits, and end the thread."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.to_thread(self._end)

    def put(self, recorded: Recorded) -> None:
        """Write a recording soon."""
        try:
            self._work.put_nowait(lambda: self._write(recorded))
        except queue.Full:
            self._warn("turns are recorded faster than they can be written")

    async def erase(self, user: str, conversation_id: str) -> None:
        """Delete the recordings of a conversation, after those that wait are written.

        Raises:
            OSError: A file cannot be deleted.
        """
        done: Future[None] = Future()

        def work() -> None:
            done.set_running_or_notify_cancel()
            try:
                erase(self._folder, user, conversation_id)
            except OSError as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        async with asyncio.timeout(ERASE_SECONDS):
            await asyncio.to_thread(self._work.put, work)
            await asyncio.wrap_future(done)

    def erase_soon(self, user: str, conversation_id: str) -> None:
        """Delete the recordings of a conversation that is private from now on, once."""
        digest = _digest(user, conversation_id)
        if digest not in self._private:
            self._private.add(digest)
            task = asyncio.create_task(self._erase_and_log(user, conversation_id), name="archive")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _erase_and_log(self, user: str, conversation_id: str) -> None:
        try:
            await self.erase(user, conversation_id)
        except (OSError, TimeoutError):
            self._private.discard(_digest(user, conversation_id))  # the next turn tries again
            log.warning("recordings of a conversation that became private could not be deleted", exc_info=True)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
                self._has_failed = False
            except OSError as error:
                self._warn(error.strerror or "input/output error")
            except Exception:
                log.exception("a recording could not be written")

    def _end(self) -> None:
        with suppress(queue.Full):
            self._work.put(None, timeout=CLOSE_SECONDS)
        self._thread.join(CLOSE_SECONDS)

    def _warn(self, reason: str) -> None:
        """Log the first failure in a row."""
        if not self._has_failed:
            log.warning("archive: %s. Recordings are dropped until this is over.", reason)
        self._has_failed = True

    def _write(self, recorded: Recorded) -> None:
        if _was_erased(self._folder, recorded):
            return
        folder = self._folder / f"{recorded.began.astimezone(UTC):%Y-%m-%d}"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / _file_name(recorded)
        part = path.with_suffix(".part")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                for line in recorded.lines():
                    self._written += file.write(_encode(line) + b"\n")
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        if _was_erased(self._folder, recorded):
            path.unlink(missing_ok=True)
        now = time.monotonic()
        if self._written >= self._max_bytes * PRUNE_SHARE or now - self._pruned_at >= PRUNE_SECONDS:
            self._written, self._pruned_at = 0, now
            self._prune()

    def _prune(self) -> None:
        """Delete the files that are too old, then the oldest ones over the size limit."""
        now = datetime.now(UTC)
        today, oldest_day = f"{now:%Y-%m-%d}", f"{now - timedelta(days=self._days):%Y-%m-%d}"
        found = []
        for path in _files(self._folder):
            with suppress(FileNotFoundError):  # another process deleted it
                status = path.stat()
                if path.parent.name < oldest_day:
                    path.unlink()
                else:
                    found.append((path.parent.name, status.st_mtime, status.st_size, path))
        total = sum(size for _, _, size, _ in found)
        for _, _, size, path in sorted(found):
            if total <= self._max_bytes:
                break
            path.unlink(missing_ok=True)
            total -= size
        for folder in _days(self._folder):
            if folder.name < today:
                with suppress(OSError):  # not empty
                    folder.rmdir()
        _drop_marks(self._folder)


def open_archive(settings: Settings) -> Archive | None:
    """Return the archive in the settings, if there is one. Its thread runs."""
    if settings.archive is None:
        return None
    archive = Archive(settings.archive, settings.archive_megabytes * 1024 * 1024, settings.archive_days)
    archive.open()
    return archive


def erase(folder: Path, user: str, conversation_id: str | None = None) -> int:
    """Delete the recordings of a conversation, or of a user. Return their number.

    Raises:
        OSError: A file cannot be deleted.
    """
    if not folder.is_dir():
        return 0
    digest = _digest(user) if conversation_id is None else _digest(user, conversation_id)
    marks = folder / _ERASED
    marks.mkdir(mode=0o700, exist_ok=True)
    _drop_marks(folder)
    (marks / digest).touch(mode=0o600)
    count = 0
    for path in _files(folder):
        if digest in path.name.split("."):
            path.unlink(missing_ok=True)
            count += 1
    return count


def _drop_marks(folder: Path) -> None:
    """Delete the old marks of erased conversations and users."""
    for mark in (folder / _ERASED).glob("*"):
        with suppress(FileNotFoundError):
            if time.time() - mark.stat().st_mtime > ERASED_DAYS * 86_400:
                mark.unlink()


def find_recording(folder: Path, turn_id: str) -> Path | None:
    """Return the recording of a turn, if there is one."""
    return next((path for day in _days(folder) for path in day.glob(f"*.{glob.escape(turn_id)}.*{_SUFFIX}")), None)


def _file_name(recorded: Recorded) -> str:
    """Return a name that tells whose turn it is, without the names of the user and the conversation."""
    owner, conversation = _digest(recorded.user), _digest(recorded.user, recorded.conversation_id)
    return f"{recorded.began.astimezone(UTC):%H%M%S}.{recorded.turn_id}.{owner}.{conversation}{_SUFFIX}"


def _digest(*names: str) -> str:
    return hashlib.blake2b("\0".join(names).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _was_erased(folder: Path, recorded: Recorded) -> bool:
    for digest in (_digest(recorded.user), _digest(recorded.user, recorded.conversation_id)):
        with suppress(FileNotFoundError):
            if (folder / _ERASED / digest).stat().st_mtime >= recorded.began.timestamp():
                return True
    return False


def _days(folder: Path) -> Iterator[Path]:
    return folder.glob("[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]")


def _files(folder: Path) -> Iterator[Path]:
    """Yield the recordings and what is left of unfinished ones; nothing else in the folder is Brain's."""
    for day in _days(folder):
        yield from day.glob(f"*{_SUFFIX}")
        yield from day.glob("*.part")


_encode = msgspec.json.Encoder().encode
