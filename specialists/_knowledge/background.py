"""Brings an index up to date in the background: its folders, the uploads of conversations, and the vectors."""

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from brain import Attachment, Progress, Refused
from specialists._knowledge import vectors
from specialists._knowledge.index import Index, Root, hash_bytes, with_index
from specialists._knowledge.readers import detect_kind
from specialists._knowledge.worker import READER, Job, Step, Upload, Worker, find_changes, list_abilities, run_worker

CHECK_SECONDS = 1.0
"""Folders are looked through at most so often, and for at most a twentieth of the time."""
CHECK_SHARE = 20.0
PROGRESS_SECONDS = 0.1
BUSY_AGAIN_SECONDS = 1.0
MAX_WORKERS = max(2, (os.cpu_count() or 2) // 2)
VECTORS = "\0vectors"
"""The purpose of the task that makes vectors, which is no conversation's id."""
SMALL = 200_000
"""Bytes of a text that is read at once; starting a worker would take longer."""
VECTORS_AGAIN_SECONDS = 600.0
MAX_UPLOADS = 20_000_000
"""Characters of uploads in an index; the conversations used longest ago go first."""
UPLOAD_SECONDS = 30 * 86_400.0

log = logging.getLogger("brain")
Key = tuple[Path, str]
"""An index, and a purpose: a conversation's id, `VECTORS`, or empty for the folders."""


@dataclass(slots=True)
class BackgroundTask:
    """A task about an index; `step` is the last file that it reads."""

    task: "asyncio.Task[None]"
    step: Step | None = None


@dataclass(slots=True)
class BackgroundTasks:
    """The tasks about all indexes, on one event loop."""

    running: dict[Key, BackgroundTask] = field(default_factory=dict)
    fresh_until: dict[Path, float] = field(default_factory=dict)
    vectors_from: dict[Path, float] = field(default_factory=dict)
    matched: set[Path] = field(default_factory=set)
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_WORKERS))

    def start(self, key: Key, work: Coroutine[Any, Any, None]) -> BackgroundTask:
        def end(task: "asyncio.Task[None]") -> None:
            del self.running[key]
            error = None if task.cancelled() else task.exception()
            if error is not None:
                log.warning("the documents of %s could not be brought up to date", key[0].name, exc_info=error)

        started = self.running[key] = BackgroundTask(asyncio.create_task(work))
        started.task.add_done_callback(end)
        return started

    def read(self, key: Key, job: Job, uploads: Sequence[bytes] = ()) -> BackgroundTask:
        return self.start(key, self._read(key, job, uploads))

    async def _read(self, key: Key, job: Job, uploads: Sequence[bytes]) -> None:
        while True:
            async with self.places, aclosing(run_worker(job, uploads)) as steps:
                async for step in steps:
                    if step.what == "at":
                        self.running[key].step = step
            if step.what != "busy":  # another process is at work
                return
            await asyncio.sleep(BUSY_AGAIN_SECONDS)


_all_tasks: "WeakKeyDictionary[asyncio.AbstractEventLoop, BackgroundTasks]" = WeakKeyDictionary()


def background_tasks() -> BackgroundTasks:
    return _all_tasks.setdefault(asyncio.get_running_loop(), BackgroundTasks())


async def stop_all() -> None:
    """Ends all tasks; what was done by then stays."""
    await _cancel(background_tasks().running.values())


async def _cancel(works: Iterable[BackgroundTask]) -> None:
    tasks = [work.task for work in works]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# folders


async def update_folders(path: Path, job: Job, folders: Sequence[Path], seconds: float) -> AsyncIterator[Progress]:
    """Brings the folders of an index up to date; after so many seconds it continues in the background.

    Args:
        folders: those of the settings.
    """
    background = background_tasks()
    work = background.running.get((path, ""))
    if work is None and time.monotonic() >= background.fresh_until.get(path, 0.0):
        started = time.monotonic()
        is_stale = await asyncio.to_thread(_is_stale, path, folders, job)
        background.fresh_until[path] = started + max(CHECK_SECONDS, CHECK_SHARE * (time.monotonic() - started))
        if is_stale:
            work = background.read((path, ""), job)
    async for progress in _wait(work, seconds):
        yield progress


def _is_stale(path: Path, folders: Sequence[Path], job: Job) -> bool:
    """Whether a file changed, came or went since the index was made, or more can be read now."""
    if not folders and not path.exists():
        return False
    with closing(Index(path)) as index:
        roots = sync_folders(index, folders)
        index.set_abilities(READER, list_abilities(job))
        return any(changed or removed for changed, removed, _ in (find_changes(index, r, Counter()) for r in roots))


def sync_folders(index: Index, folders: Sequence[Path]) -> list[Root]:
    """Replaces the roots that come from settings by these folders, without those below an indexed folder."""
    paths = [Path(root.place) for root in index.roots("folder")]
    places = {str(path) for path in folders if not any(path.is_relative_to(one) for one in paths)}
    for root in index.roots("setting"):
        if root.place not in places:
            index.remove_root(root.id)
    for place in sorted(places - {root.place for root in index.roots("setting")}):
        index.add_root("setting", place)
    return index.roots("folder", "setting")


async def _wait(work: BackgroundTask | None, seconds: float) -> AsyncIterator[Progress]:
    end = time.monotonic() + seconds
    while work is not None and not work.task.done() and time.monotonic() < end:
        await asyncio.wait({work.task}, timeout=PROGRESS_SECONDS)
        step = work.step
        if work.task.done():
            return
        if step is None or not step.of:
            yield Progress("reading documents that changed")
        else:
            yield Progress(f"reading {step.n} of {step.of}: {step.name}", (step.n - 1) / step.of)


def current_step(path: Path, conversation: str) -> Step | None:
    """The file that is being read now, if any."""
    for purpose in ("", conversation):
        work = background_tasks().running.get((path, purpose))
        if work is not None:
            return work.step or Step("at")
    return None


# uploads


async def update_uploads(
    path: Path, job: Job, conversation: str, attachments: Sequence[Attachment], seconds: float
) -> AsyncIterator[Progress]:
    """Reads the readable attachments of a conversation into the index, unless they are in it."""
    background = background_tasks()
    work = background.running.get((path, conversation))
    if work is None:
        files = _name_uploads(attachments)
        job = msgspec.structs.replace(job, conversation=conversation, keep=list(files))
        new = await asyncio.to_thread(_read_small_uploads, path, job, files)
        if new:
            work = background.read((path, conversation), _with_uploads(job, new), [one.data for one in new.values()])
    async for progress in _wait(work, seconds):
        yield progress


def _name_uploads(attachments: Sequence[Attachment]) -> dict[str, Attachment]:
    """The attachments that can be read, by names that differ."""
    found: dict[str, Attachment] = {}
    for one in attachments:
        if detect_kind(one.name, one.type) is not None and one.kind not in ("image", "audio", "video"):
            name = " ".join(one.name.replace("\\", "/").rpartition("/")[2].split())[:120] or "unnamed"
            found[name if name not in found else f"{one.id} {name}"] = one
    return found


def _read_small_uploads(path: Path, job: Job, files: Mapping[str, Attachment]) -> dict[str, Attachment]:
    """Reads new small texts, and returns the other new files, which need a worker."""
    conversation = job.conversation or ""
    if not files and not path.exists():
        return {}
    with closing(Index(path)) as index:
        root = next((root for root in index.roots("conversation") if root.place == conversation), None)
        if root is None and not files:
            return {}
        indexed = index.files(root) if root else {}
        new = {
            name: one
            for name, one in files.items()
            if name not in indexed or indexed[name].hash != hash_bytes(one.data)
        }
        if not new and indexed.keys() <= files.keys():
            index.touch_root("conversation", conversation)
            return {}
        index.expire_conversations(conversation, MAX_UPLOADS, UPLOAD_SECONDS)
        small = {
            name: one
            for name, one in new.items()
            if detect_kind(name, one.type) in ("text", "markdown", "table")
            and len(one.data) <= SMALL
            and one.kind != "pdf"
        }
        data = b"".join(one.data for one in small.values())
        Worker(index, _with_uploads(job, small), lambda step: None).work(BytesIO(data))
        return {name: one for name, one in new.items() if name not in small}


def _with_uploads(job: Job, files: Mapping[str, Attachment]) -> Job:
    uploads = [Upload(name, one.type, len(one.data)) for name, one in files.items()]
    return msgspec.structs.replace(job, uploads=uploads)


# vectors


def start_vectors(path: Path, model: vectors.Embedder, *, matched: bool) -> None:
    """Starts to make vectors for the passages without one, if the model server makes any.

    Args:
        matched: the vectors in the index are this model's. Those of another one are replaced only when no question
            has used them since the start: otherwise several models on offer would replace each other's.
    """
    background = background_tasks()
    if matched:
        background.matched.add(path)
    is_due = time.monotonic() >= background.vectors_from.get(path, 0.0)
    key = (path, VECTORS)
    if is_due and matched == (path in background.matched) and key not in background.running and vectors.is_installed():
        background.start(key, _make_vectors(background, path, model, matched=matched))


async def _make_vectors(background: BackgroundTasks, path: Path, model: vectors.Embedder, *, matched: bool) -> None:
    background.vectors_from[path] = time.monotonic() + CHECK_SECONDS
    if matched and not await with_index(path, vectors.count_missing):
        return
    started = time.monotonic()
    try:
        async for _ in vectors.complete_vectors(path, model):
            await asyncio.sleep(time.monotonic() - started)  # the same server writes the answer meanwhile
            started = time.monotonic()
    except Refused:
        background.vectors_from[path] = time.monotonic() + VECTORS_AGAIN_SECONDS


# deletion


async def delete_documents(path: Path, conversation: str | None) -> None:
    """Deletes the uploads of a conversation, or, for None, everything, from the file, too.

    Raises:
        Damaged, Unreachable: when the file cannot be used.
    """
    running = background_tasks().running.items()
    await _cancel([work for key, work in running if key[0] == path and conversation in (None, key[1])])
    if await asyncio.to_thread(path.exists):
        await with_index(path, _delete, conversation)


def _delete(index: Index, conversation: str | None) -> None:
    """The file stays, with its counters: a number that another process still knows must never mean another passage."""
    index.db.execute("PRAGMA secure_delete = ON")
    if conversation is not None:
        for root in index.roots("conversation"):
            if root.place == conversation:
                index.remove_root(root.id)
    else:
        with index.transaction():
            for table in ("root", "note", "common"):
                index.db.execute(f"DELETE FROM {table}")
            index.db.execute("INSERT INTO passage (passage) VALUES ('delete-all')")
        index.db.execute("VACUUM")
        vectors.drop_matrix(index.path)
    index.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
