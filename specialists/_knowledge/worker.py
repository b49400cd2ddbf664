"""Reads files into an index, in a child process that can be killed at any time; and the call of that process.

A file that ends the process, or holds it up, is left out.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from specialists._kit.child import Report, limit_cpu
from specialists._kit.isolated import IsolatedProcess, Limits, OutOfTime
from specialists._kit.passages import split_passages
from specialists._knowledge.folders import FoundFile, Outside, read_content, walk
from specialists._knowledge.index import Chunk, Damaged, Index, IndexedFile, Root, Unreachable, hash_bytes, hold_lock
from specialists._knowledge.readers import Part, Source, Trouble, Unreadable, detect_kind, has_office, read_parts
from specialists._pictures import reader

READER = 2
"""The version of the readers: with a new one, all files are read again."""
LOCK_SECONDS = 0.5
FILE_SECONDS = 20.0
"""CPU time for a file, unless its reader announces that it takes longer."""
GRACE_SECONDS = 60
"""CPU time between files: looking through folders, counting words."""
WRITING_SECONDS = 120
TROUBLE_LENGTH = 200
CLOSED = "it cannot be opened"
SILENCE_SECONDS = 600.0
"""Between two steps of a worker, whose CPU time is limited for each: on a busy machine it may wait for long."""
MAX_BROKEN = 50
"""Files that end a worker, in one job."""
LIMITS = Limits(cpu_seconds=60, memory=1 << 30)
"""CPU time for the start of a worker."""


class Failed(Exception):
    """The worker ended, and not because of a file."""


class Upload(msgspec.Struct, frozen=True):
    """An attachment whose bytes follow the job."""

    name: str
    type: str
    size: int


class Job(msgspec.Struct, frozen=True):
    """The work of one worker: to update the folders in the index, or the uploads of one conversation.

    Attributes:
        keep: names of the conversation's files; others go.
        bad: files that ended the process or took too long, as root, name and reason.
        file_seconds: CPU time for a file.
    """

    database: str
    language: str
    max_bytes: int
    max_passages: int
    conversation: str | None = None
    keep: list[str] = []
    uploads: list[Upload] = []
    bad: list[tuple[int, str, str]] = []
    file_seconds: float = FILE_SECONDS


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """A report of the worker.

    Attributes:
        what: it begins, perhaps once more after a bad file; `at` a file now; `slow`: the next step may take so many
            seconds of CPU time; `read` a file, left so many `unchanged`, `removed` one, `passed` over so many for
            a reason; `busy`: another process is at work; `failed`: the index cannot be written; `over`.
        n: which of the changed ones, `of` how many.
    """

    what: Literal["begin", "at", "slow", "read", "unchanged", "removed", "passed", "busy", "failed", "over"]
    root: int = 0
    name: str = ""
    n: int = 0
    of: int = 0
    passages: int = 0
    trouble: str = ""
    seconds: float = 0.0


async def run_worker(job: Job, uploads: Sequence[bytes] = ()) -> AsyncGenerator[Step, None]:
    """Does a job in a worker, and passes on its steps; the worker ends when this is closed.

    Raises:
        Failed: when it cannot be done.
    """
    for _ in range(MAX_BROKEN):
        file: Step | None = None
        trouble = "it takes too long to be read"
        steps: asyncio.Queue[Any] = asyncio.Queue()
        process = IsolatedProcess("_knowledge.worker", LIMITS, warm=False)
        with process.job(msgspec.to_builtins(job), b"".join(uploads), report=steps.put_nowait) as running:
            running.done.add_done_callback(steps.put_nowait)
            while True:
                try:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        message = await steps.get()
                except TimeoutError:
                    break
                if message is running.done:
                    break
                step = msgspec.convert(message, Step)
                if step.what == "failed":
                    raise Failed(f"the index cannot be written: {step.trouble}")
                file = step if step.what == "at" else None if step.what == "read" else file
                yield step
                if step.what in ("over", "busy"):
                    return
        if running.done.done():
            error = running.done.exception()
            if file is None:
                raise Failed("the worker ended") from error
            if not isinstance(error, OutOfTime):
                trouble = "it breaks the program that reads it"
        elif file is None:
            raise Failed("the worker does nothing")
        job = msgspec.structs.replace(job, bad=[*job.bad, (file.root, file.name, trouble)])
    raise Failed("too many files ended the worker")


def answer(words: Any, data: bytes, report: Report) -> tuple[Any, bytes]:
    """Does one `Job`, with the bytes of its uploads, and reports each `Step`."""
    job = msgspec.convert(words, Job)

    def report_step(step: Step) -> None:
        limit_cpu({"at": job.file_seconds, "slow": step.seconds}.get(step.what, GRACE_SECONDS))
        report(msgspec.to_builtins(step))

    try:
        with contextlib.closing(Index(Path(job.database))) as index:
            Worker(index, job, report_step).work(BytesIO(data))
    except (Damaged, Unreachable) as error:
        report_step(Step("failed", trouble=str(error)))
    return None, b""


class Worker:
    """Does one job on an index, and reports each step."""

    def __init__(self, index: Index, job: Job, report: Callable[[Step], None]) -> None:
        self._index = index
        self._job = job
        self._report = report
        self._has_changed = False

    def work(self, uploads: IO[bytes]) -> None:
        if self._job.conversation is not None:
            self._update_uploads(self._job.conversation, uploads)
            self._report(Step("over"))
            return
        with hold_lock(self._index.path, LOCK_SECONDS) as is_free:
            if is_free:
                self._report(Step("begin"))
                self._index.set_abilities(READER, list_abilities(self._job))
                for root in self._index.roots("folder", "setting"):
                    self._update_folder(root)
                if self._has_changed:
                    self._index.count_common_words()
            self._report(Step("over" if is_free else "busy"))

    def _update_folder(self, root: Root) -> None:
        skipped: Counter[str] = Counter()
        changed, removed, unchanged = find_changes(self._index, root, skipped)
        for file in removed:
            self._index.remove(file)
            self._has_changed = True
            self._report(Step("removed", root.id, file.name))
        if unchanged:
            self._report(Step("unchanged", root.id, n=unchanged))
        for reason, number in sorted(skipped.items()):
            self._report(Step("passed", root.id, n=number, trouble=reason))
        indexed = self._index.files(root)
        for n, found in enumerate(changed, 1):
            self._report(Step("at", root.id, found.name, n, len(changed)))
            before = indexed.get(found.name)
            try:
                data = read_content(Path(root.place), found.name, self._job.max_bytes)
            except (Outside, OSError):
                self._write(root, found.name, (found.size, found.changed, b""), [], [CLOSED])
                continue
            digest = hash_bytes(data)
            if before and before.hash == digest:
                self._index.touch(before, found.size, found.changed)
                self._report(Step("unchanged", root.id, n=1))
            else:
                stamp = (found.size, found.changed, digest)
                self._read(root, found.name, detect_kind(found.name), data, stamp)

    def _update_uploads(self, conversation: str, stream: IO[bytes]) -> None:
        root = self._index.add_root("conversation", conversation)
        for name, file in self._index.files(root).items():
            if name not in self._job.keep:
                self._index.remove(file)
        for n, upload in enumerate(self._job.uploads, 1):
            data = stream.read(upload.size)
            self._report(Step("at", root.id, upload.name, n, len(self._job.uploads)))
            stamp = (upload.size, 0, hash_bytes(data))
            self._read(root, upload.name, detect_kind(upload.name, upload.type), data, stamp)

    def _read(self, root: Root, name: str, kind: str | None, data: bytes, stamp: tuple[int, int, bytes]) -> None:
        """Reads one file into the index."""
        chunks: list[Chunk] = []
        troubles = [reason for number, bad, reason in self._job.bad if (number, bad) == (root.id, name)]
        if not troubles:
            room = max(0, self._job.max_passages - self._index.passages())
            source = Source(name, data, self._job.language, lambda seconds: self._report(Step("slow", seconds=seconds)))
            for item in self._read_parts(source, kind):
                if isinstance(item, Trouble):
                    troubles.append(item.text)
                    continue
                chunks += (Chunk(item.heading, item.place, text) for text in split_passages(item.text))
                if len(chunks) > room:
                    troubles.append(f"the index is full: it holds at most {self._job.max_passages:,} passages")
                    break
            if not chunks and not troubles:
                troubles.append("no text is in it")
            chunks = chunks[:room]
        self._report(Step("slow", seconds=WRITING_SECONDS))
        self._write(root, name, stamp, chunks, troubles)

    def _write(
        self, root: Root, name: str, stamp: tuple[int, int, bytes], chunks: list[Chunk], troubles: list[str]
    ) -> None:
        trouble = "; ".join(troubles)[:TROUBLE_LENGTH]
        self._index.write(root, name, stamp, chunks, trouble or None)
        self._has_changed = True
        self._report(Step("read", root.id, name, passages=len(chunks), trouble=trouble))

    def _read_parts(self, source: Source, kind: str | None) -> Iterator[Part | Trouble]:
        """The parts of a file, and headings without a text below them: notes may have nothing else.

        An exception of the reader becomes a trouble.
        """
        if kind is None:
            yield Trouble("not a kind that is read")
            return
        if len(source.data) > self._job.max_bytes:
            yield Trouble(f"larger than {self._job.max_bytes / 1_000_000:g} MB")
            return
        bare: Part | None = None
        try:
            for item in read_parts(source, kind):
                if isinstance(item, Part):
                    if bare and item.heading[: len(bare.heading)] != bare.heading:
                        yield replace(bare, text=bare.heading[-1])
                    bare = item if item.heading and not item.text.strip() else None
                yield item
        except Unreadable as error:
            yield Trouble(str(error))
        except MemoryError:
            yield Trouble("it takes too much memory to be read")
        except Exception:  # noqa: BLE001 - a stranger's file makes the readers raise nearly anything
            yield Trouble("damaged: not what its name says")
        if bare:
            yield replace(bare, text=bare.heading[-1])


def list_abilities(job: Job) -> str:
    """The limits, and what cannot be read here; when that changes, files that could not be read are tried again."""
    limits = f"{job.max_bytes} {job.max_passages} {job.language}"
    engines = {"ocr": not reader.find_problem(), "office": has_office()}
    lacking = [name for name, is_installed in engines.items() if not is_installed]
    return f"{limits} {' '.join(lacking)}"


def find_changes(index: Index, root: Root, skipped: Counter[str]) -> tuple[list[FoundFile], list[IndexedFile], int]:
    """The new or changed files of a folder, the deleted ones, and the number of unchanged ones."""
    indexed = index.files(root)
    changed, unchanged = [], 0
    for found in walk(Path(root.place), skipped):
        before = indexed.pop(found.name, None)
        if before and (before.size, before.changed) == (found.size, found.changed):
            unchanged += 1
        else:
            changed.append(found)
    return changed, list(indexed.values()), unchanged
