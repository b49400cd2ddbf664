"""Read files into an index in a child process, which can be killed at any time; and run that process.

A file that crashes or blocks the process is skipped.
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
from specialists._knowledge.office import has_excel
from specialists._knowledge.parts import DAMAGED, Part, Problem, Source, Unreadable
from specialists._knowledge.readers import detect_kind, read_parts
from specialists._pictures import reader

READER = 4
"""Version of the readers; after a change, all files are read again."""
LOCK_SECONDS = 0.5
FILE_SECONDS = 20.0
"""CPU time for a file, unless its reader announces a longer step."""
GRACE_SECONDS = 60
"""CPU time between files, to list folders and count words."""
WRITING_SECONDS = 120
PROBLEM_LENGTH = 200
CLOSED = "cannot be opened"
SILENCE_SECONDS = 600.0
"""Maximum time between two steps. Their CPU time is limited, but a busy machine may delay them."""
MAX_BROKEN = 50
"""Maximum number of files in one job that crash a worker."""
LIMITS = Limits(cpu_seconds=60, memory=1 << 30)
"""Limits for the start of a worker."""


class Failed(Exception):
    """The worker failed, but not at a file."""


class Upload(msgspec.Struct, frozen=True):
    """An attachment; its bytes follow the job."""

    name: str
    type: str
    size: int


class Job(msgspec.Struct, frozen=True):
    """The work of one worker: update the folders in the index, or the uploads of one conversation.

    Attributes:
        keep: names of the conversation's files; others are removed.
        bad: root, name and problem of files that crashed the process or took too long.
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
        what: `begin`: the job starts, perhaps again after a bad file; `at`: the file that is read now; `slow`: the next
            step may take `seconds` of CPU time; `read`: a file was read; `removed`: a file was removed; `unchanged`,
            `passed`: `n` files were unchanged, or skipped because of `problem`; `busy`: another process updates the
            index; `failed`: the index cannot be written; `over`: the job is done.
        n, of: number of the file, and how many files changed.
    """

    what: Literal["begin", "at", "slow", "read", "unchanged", "removed", "passed", "busy", "failed", "over"]
    root: int = 0
    name: str = ""
    n: int = 0
    of: int = 0
    passages: int = 0
    problem: str = ""
    seconds: float = 0.0


async def run_worker(job: Job, uploads: Sequence[bytes] = ()) -> AsyncGenerator[Step, None]:
    """Run a job in a worker and yield its steps. Closing the generator ends the worker.

    Raises:
        Failed: if the job cannot be done.
    """
    for _ in range(MAX_BROKEN):
        file: Step | None = None
        problem = "takes too long to read"
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
                    raise Failed(f"the index cannot be written: {step.problem}")
                file = step if step.what == "at" else None if step.what == "read" else file
                yield step
                if step.what in ("over", "busy"):
                    return
        if running.done.done():
            error = running.done.exception()
            if file is None:
                raise Failed("the reading process crashed") from error
            if not isinstance(error, OutOfTime):
                problem = "crashes the reading process"
        elif file is None:
            raise Failed("the reading process does not respond")
        job = msgspec.structs.replace(job, bad=[*job.bad, (file.root, file.name, problem)])
    raise Failed(f"more than {MAX_BROKEN} files crashed the reading process")


def answer(words: Any, data: bytes, report: Report) -> tuple[Any, bytes]:
    """Do one `Job`, with the bytes of its uploads, and report each `Step`."""
    job = msgspec.convert(words, Job)

    def report_step(step: Step) -> None:
        limit_cpu({"at": job.file_seconds, "slow": step.seconds}.get(step.what, GRACE_SECONDS))
        report(msgspec.to_builtins(step))

    try:
        with contextlib.closing(Index(Path(job.database))) as index:
            Worker(index, job, report_step).work(BytesIO(data))
    except (Damaged, Unreachable) as error:
        report_step(Step("failed", problem=str(error)))
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
            self._report(Step("passed", root.id, n=number, problem=reason))
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
        """Read one file into the index."""
        chunks: list[Chunk] = []
        problems = [reason for number, bad, reason in self._job.bad if (number, bad) == (root.id, name)]
        if not problems:
            room = max(0, self._job.max_passages - self._index.passages())
            source = Source(name, data, self._job.language, lambda seconds: self._report(Step("slow", seconds=seconds)))
            for item in self._read_parts(source, kind):
                if isinstance(item, Problem):
                    problems.append(item.text)
                    continue
                chunks += (Chunk(item.heading, item.place, text) for text in split_passages(item.text))
                if len(chunks) > room:
                    problems.append(f"the index has reached its limit of {self._job.max_passages:,} passages")
                    break
            if not chunks and not problems:
                problems.append("has no text")
            chunks = chunks[:room]
        self._report(Step("slow", seconds=WRITING_SECONDS))
        self._write(root, name, stamp, chunks, problems)

    def _write(
        self, root: Root, name: str, stamp: tuple[int, int, bytes], chunks: list[Chunk], problems: list[str]
    ) -> None:
        problem = "; ".join(problems)[:PROBLEM_LENGTH]
        self._index.write(root, name, stamp, chunks, problem or None)
        self._has_changed = True
        self._report(Step("read", root.id, name, passages=len(chunks), problem=problem))

    def _read_parts(self, source: Source, kind: str | None) -> Iterator[Part | Problem]:
        """Yield the parts of a file, and headings without text, because notes may have nothing else.

        An exception of the reader becomes a problem.
        """
        if kind is None:
            yield Problem("unsupported file type")
            return
        if len(source.data) > self._job.max_bytes:
            yield Problem(f"larger than {self._job.max_bytes / 1_000_000:g} MB")
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
            yield Problem(str(error))
        except MemoryError:
            yield Problem("takes too much memory to read")
        except Exception:  # noqa: BLE001 - a hostile file can make the readers raise nearly anything
            yield Problem(DAMAGED)
        if bare:
            yield replace(bare, text=bare.heading[-1])


def list_abilities(job: Job) -> str:
    """Return the limits and the missing packages; after a change, files with problems are read again."""
    limits = f"{job.max_bytes} {job.max_passages} {job.language}"
    engines = {"ocr": not reader.find_problem(), "office": has_excel()}
    lacking = [name for name, is_installed in engines.items() if not is_installed]
    return f"{limits} {' '.join(lacking)}"


def find_changes(index: Index, root: Root, skipped: Counter[str]) -> tuple[list[FoundFile], list[IndexedFile], int]:
    """Return the new or changed files of a folder, the deleted files, and the number of unchanged files."""
    indexed = index.files(root)
    changed, unchanged = [], 0
    for found in walk(Path(root.place), skipped):
        before = indexed.pop(found.name, None)
        if before and (before.size, before.changed) == (found.size, found.changed):
            unchanged += 1
        else:
            changed.append(found)
    return changed, list(indexed.values()), unchanged
