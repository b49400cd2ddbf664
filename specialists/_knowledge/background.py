"""Update an index in the background: folders, uploads of conversations, and embeddings."""

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
from specialists._knowledge import embeddings
from specialists._knowledge.index import Index, Root, hash_bytes, with_index
from specialists._knowledge.readers import detect_kind, suggest_packages
from specialists._knowledge.worker import READER, Job, Step, Upload, Worker, find_changes, list_abilities, run_worker

CHECK_SECONDS = 1.0
"""Minimum time between two checks of the folders."""
CHECK_SHARE = 20.0
"""Minimum time between two checks, as a multiple of the duration of a check."""
PROGRESS_SECONDS = 0.1
BUSY_AGAIN_SECONDS = 1.0
MAX_WORKERS = max(2, (os.cpu_count() or 2) // 2)
EMBEDDINGS = "\0embeddings"
"""The purpose of the embedding task; no conversation has this id."""
SMALL = 200_000
"""Texts up to this many bytes are read in this process, because starting a worker takes longer."""
EMBED_RETRY_SECONDS = 600.0
MAX_UPLOADS = 20_000_000
"""Maximum characters of uploads in an index; the least recently used conversations are removed first."""
UPLOAD_SECONDS = 30 * 86_400.0

log = logging.getLogger("brain")
Key = tuple[Path, str]
"""An index and a purpose: a conversation's id, `EMBEDDINGS`, or empty for the folders."""


@dataclass(slots=True)
class BackgroundTask:
    """A task that updates an index; `step` is the current file."""

    task: "asyncio.Task[None]"
    step: Step | None = None


@dataclass(slots=True)
class BackgroundTasks:
    """The tasks of all indexes, on one event loop."""

    running: dict[Key, BackgroundTask] = field(default_factory=dict)
    fresh_until: dict[Path, float] = field(default_factory=dict)
    embed_from: dict[Path, float] = field(default_factory=dict)
    matched: set[Path] = field(default_factory=set)
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_WORKERS))

    def start(self, key: Key, work: Coroutine[Any, Any, None]) -> BackgroundTask:
        def end(task: "asyncio.Task[None]") -> None:
            del self.running[key]
            error = None if task.cancelled() else task.exception()
            if error is not None:
                log.warning("knowledge: the index %s could not be updated", key[0].name, exc_info=error)

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
                    for advice in suggest_packages(step.problem):
                        log.warning("knowledge: %s", advice)
            if step.what != "busy":  # another process updates the index
                return
            await asyncio.sleep(BUSY_AGAIN_SECONDS)


_all_tasks: "WeakKeyDictionary[asyncio.AbstractEventLoop, BackgroundTasks]" = WeakKeyDictionary()


def background_tasks() -> BackgroundTasks:
    return _all_tasks.setdefault(asyncio.get_running_loop(), BackgroundTasks())


async def stop_all() -> None:
    """End all tasks. Files that were read stay in the index."""
    await _cancel(background_tasks().running.values())


async def _cancel(works: Iterable[BackgroundTask]) -> None:
    tasks = [work.task for work in works]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# folders


async def update_folders(path: Path, job: Job, folders: Sequence[Path], seconds: float) -> AsyncIterator[Progress]:
    """Update the folders of an index.

    Args:
        folders: the folders in the settings.
        seconds: time until the update continues in the background.
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
    """Whether files changed since the last update, or more kinds of files can be read now."""
    if not folders and not path.exists():
        return False
    with closing(Index(path)) as index:
        roots = sync_folders(index, folders)
        index.set_abilities(READER, list_abilities(job))
        return any(changed or removed for changed, removed, _ in (find_changes(index, r, Counter()) for r in roots))


def sync_folders(index: Index, folders: Sequence[Path]) -> list[Root]:
    """Make these folders the roots from the settings, without folders inside an indexed folder."""
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
            yield Progress("reading changed documents")
        else:
            yield Progress(f"reading {step.n} of {step.of}: {step.name}", (step.n - 1) / step.of)


def current_step(path: Path, conversation: str) -> Step | None:
    """Return the step at the file that is being read now, or None."""
    for purpose in ("", conversation):
        work = background_tasks().running.get((path, purpose))
        if work is not None:
            return work.step or Step("at")
    return None


# uploads


async def update_uploads(
    path: Path, job: Job, conversation: str, attachments: Sequence[Attachment], seconds: float
) -> AsyncIterator[Progress]:
    """Read new attachments of a conversation into the index, if their type is supported."""
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
    """Return the supported attachments by unique names."""
    found: dict[str, Attachment] = {}
    for one in attachments:
        if detect_kind(one.name, one.type) is not None and one.kind not in ("image", "audio", "video"):
            name = " ".join(one.name.replace("\\", "/").rpartition("/")[2].split())[:120] or "unnamed"
            found[name if name not in found else f"{one.id} {name}"] = one
    return found


def _read_small_uploads(path: Path, job: Job, files: Mapping[str, Attachment]) -> dict[str, Attachment]:
    """Read new small texts, and return the other new files, which need a worker."""
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


# embeddings


def start_embedding(path: Path, model: embeddings.Embedder, *, matched: bool) -> None:
    """Start to embed the passages without an embedding, if the model server has embeddings.

    Args:
        matched: whether the embeddings in the index are this model's. Another model's embeddings are replaced only if
            no search has used them since the start. Otherwise several models would keep replacing each other's.
    """
    background = background_tasks()
    if matched:
        background.matched.add(path)
    is_due = time.monotonic() >= background.embed_from.get(path, 0.0)
    key = (path, EMBEDDINGS)
    if (
        is_due
        and matched == (path in background.matched)
        and key not in background.running
        and embeddings.is_installed()
    ):
        background.start(key, _embed_missing(background, path, model, matched=matched))


async def _embed_missing(background: BackgroundTasks, path: Path, model: embeddings.Embedder, *, matched: bool) -> None:
    background.embed_from[path] = time.monotonic() + CHECK_SECONDS
    if matched and not await with_index(path, embeddings.count_missing):
        return
    started = time.monotonic()
    try:
        async for _ in embeddings.embed_missing(path, model):
            await asyncio.sleep(time.monotonic() - started)  # the same model server is writing the answer
            started = time.monotonic()
    except Refused:
        background.embed_from[path] = time.monotonic() + EMBED_RETRY_SECONDS


# deletion


async def delete_documents(path: Path, conversation: str | None) -> None:
    """Delete the uploads of a conversation, or for None all documents, also from the file's free pages.

    Raises:
        Damaged, Unreachable: if the index cannot be used.
    """
    running = background_tasks().running.items()
    await _cancel([work for key, work in running if key[0] == path and conversation in (None, key[1])])
    if await asyncio.to_thread(path.exists):
        await with_index(path, _delete, conversation)


def _delete(index: Index, conversation: str | None) -> None:
    """Keep the file with its counters, so that no number that another process knows is used again."""
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
        embeddings.drop_matrix(index.path)
    index.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
