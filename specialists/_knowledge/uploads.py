"""Keeps an index up to date in the background: its folders, the uploads of conversations, and the vectors."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from brain import Attachment, Progress, Refused
from specialists._knowledge import vectors
from specialists._knowledge.folders import SkippedFiles
from specialists._knowledge.index import Index, Kind, Root, hash_of, with_index
from specialists._knowledge.readers import kind_of
from specialists._knowledge.worker import READER, Job, Step, Upload, Worker, find_changes, list_abilities, run_worker


async def delete_documents(path: Path, conversation: str | None) -> None:
    """Deletes the uploads of a conversation, or, for None, everything, from the file, too.

    Raises:
        Damaged, Unreachable: when the file cannot be used.
    """
    await cancel_tasks(path, conversation)
    if not await asyncio.to_thread(path.exists):
        return
    if conversation is None:
        await with_index(path, _delete_all)
    else:
        await with_index(path, _delete_conversation, conversation)


def _delete_conversation(index: Index, conversation: str) -> None:
    index.db.execute("PRAGMA secure_delete = ON")
    for root in index.roots("conversation"):
        if root.place == conversation:
            index.remove_root(root)
    index.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _delete_all(index: Index) -> None:
    """The file stays, with its counters: a number that another process still knows must never mean another passage."""
    index.db.execute("PRAGMA secure_delete = ON")
    with index.transaction():
        for table in ("root", "note", "common"):
            index.db.execute(f"DELETE FROM {table}")
        index.db.execute("INSERT INTO passage (passage) VALUES ('delete-all')")
    index.db.execute("VACUUM")
    index.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    vectors.drop_matrix(index.path)


CHECK_SECONDS = 1.0
"""Folders are looked through at most so often, and for at most a twentieth of the time."""
CHECK_SHARE = 20.0
TELL_SECONDS = 0.1
BUSY_AGAIN_SECONDS = 1.0
WORKERS_MOST = max(2, (os.cpu_count() or 2) // 2)
VECTORS = "\0vectors"
"""The purpose of the work that makes vectors, which is no conversation's id."""
SMALL = 200_000
"""Bytes of a text that is read at once; starting a worker would take longer."""
VECTORS_AGAIN_SECONDS = 600.0
UPLOADS_MOST = 20_000_000
"""Characters of uploads that are kept; the conversations used longest ago go first."""
UPLOAD_SECONDS = 30 * 86_400.0

log = logging.getLogger("brain")


@dataclass(slots=True)
class BackgroundTask:
    """Something that is done in the background; `step` is the last one."""

    task: "asyncio.Task[None]"
    step: Step | None = None

    @property
    def progress(self) -> Progress:
        step = self.step
        if step is None or not step.of:
            return Progress("reading documents that changed")
        return Progress(f"reading {step.n} of {step.of}: {step.name}", (step.n - 1) / step.of)


@dataclass(slots=True)
class BackgroundTasks:
    """What is going on about the indexes, on one event loop."""

    works: dict[tuple[Path, str], BackgroundTask] = field(default_factory=dict)
    fresh_until: dict[Path, float] = field(default_factory=dict)
    vectors_from: dict[Path, float] = field(default_factory=dict)
    matched: set[Path] = field(default_factory=set)
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(WORKERS_MOST))

    def start(self, key: tuple[Path, str], doing: Coroutine[Any, Any, None]) -> BackgroundTask:
        work = self.works[key] = BackgroundTask(asyncio.create_task(doing))
        work.task.add_done_callback(partial(self._done, key))
        return work

    def _done(self, key: tuple[Path, str], task: "asyncio.Task[None]") -> None:
        del self.works[key]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.warning("the documents of %s could not be brought up to date", key[0].name, exc_info=error)

    def read(self, key: tuple[Path, str], job: Job, uploads: Sequence[bytes] = ()) -> BackgroundTask:
        return self.start(key, self._read(key, job, uploads))

    async def _read(self, key: tuple[Path, str], job: Job, uploads: Sequence[bytes]) -> None:
        done = await self._run_once(key, job, uploads)
        while not done:
            await asyncio.sleep(BUSY_AGAIN_SECONDS)
            done = await self._run_once(key, job, uploads)

    async def _run_once(self, key: tuple[Path, str], job: Job, uploads: Sequence[bytes]) -> bool:
        """Whether it was done; not, when another process is at work."""
        async with self.places, aclosing(run_worker(job, uploads)) as steps:
            async for step in steps:
                if step.what == "busy":
                    return False
                if step.what == "at":
                    self.works[key].step = step
        return True


_all_tasks: "WeakKeyDictionary[asyncio.AbstractEventLoop, BackgroundTasks]" = WeakKeyDictionary()


def background_tasks() -> BackgroundTasks:
    return _all_tasks.setdefault(asyncio.get_running_loop(), BackgroundTasks())


async def stop_all() -> None:
    """Ends all that is going on; what was done by then is kept."""
    await _cancel(background_tasks().works.values())


async def cancel_tasks(path: Path, conversation: str | None) -> None:
    """Ends what is going on about an index, or about one conversation in it."""
    works = background_tasks().works.items()
    await _cancel([work for key, work in works if key[0] == path and conversation in (None, key[1])])


async def _cancel(works: Iterable[BackgroundTask]) -> None:
    tasks = [work.task for work in works]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def update_folders(path: Path, job: Job, folders: Sequence[Path], seconds: float) -> AsyncIterator[Progress]:
    """Brings the folders of an index up to date, for so many seconds; then it goes on without being waited for.

    Args:
        folders: those of the settings.
    """
    background = background_tasks()
    work = background.works.get((path, ""))
    if work is None and time.monotonic() >= background.fresh_until.get(path, 0.0):
        began = time.monotonic()
        stale = await asyncio.to_thread(_is_stale, path, folders, job)
        took = time.monotonic() - began
        background.fresh_until[path] = began + max(CHECK_SECONDS, CHECK_SHARE * took)
        if stale:
            work = background.read((path, ""), job)
    if work is not None:
        async for progress in _wait(work, seconds):
            yield progress


async def update_uploads(
    path: Path, job: Job, conversation: str, attachments: Sequence[Attachment], seconds: float
) -> AsyncIterator[Progress]:
    """Puts the readable attachments of a conversation into the index, unless they are in it."""
    background = background_tasks()
    work = background.works.get((path, conversation))
    if work is None:
        attachments_by_name = name_uploads(attachments)
        job = msgspec.structs.replace(job, conversation=conversation, keep=list(attachments_by_name))
        new = await asyncio.to_thread(_new_uploads, path, job, attachments_by_name)
        if new:
            work = background.read((path, conversation), _with_uploads(job, new), [one.data for one in new.values()])
    if work is not None:
        async for progress in _wait(work, seconds):
            yield progress


def current_step(path: Path, conversation: str) -> Step | None:
    """The file that is being read now, if any."""
    for purpose in ("", conversation):
        work = background_tasks().works.get((path, purpose))
        if work is not None:
            return work.step or Step("at")
    return None


def start_vectors(path: Path, model: vectors.Embedder, *, matched: bool) -> None:
    """Has the passages without a vector get one, in the background, if the model server makes any.

    Args:
        matched: the vectors in the index are this model's. Those of another one are replaced only when no question
            has used them since the start: where several models are on offer, they would take turns at it.
    """
    background = background_tasks()
    if matched:
        background.matched.add(path)
    due = time.monotonic() >= background.vectors_from.get(path, 0.0)
    key = (path, VECTORS)
    if due and matched == (path in background.matched) and key not in background.works and vectors.is_installed():
        background.start(key, _make_vectors(background, path, model, matched=matched))


async def _make_vectors(background: BackgroundTasks, path: Path, model: vectors.Embedder, *, matched: bool) -> None:
    background.vectors_from[path] = time.monotonic() + CHECK_SECONDS
    if matched and not await with_index(path, vectors.count_missing):
        return
    began = time.monotonic()
    try:
        async for _ in vectors.complete_vectors(path, model):
            await asyncio.sleep(time.monotonic() - began)  # the same server writes the answer meanwhile
            began = time.monotonic()
    except Refused:
        background.vectors_from[path] = time.monotonic() + VECTORS_AGAIN_SECONDS


def name_uploads(attachments: Sequence[Attachment]) -> dict[str, Attachment]:
    """The attachments that can be read, by names that differ."""
    found: dict[str, Attachment] = {}
    for one in attachments:
        if kind_of(one.name, one.type) is not None and one.kind not in ("image", "audio", "video"):
            name = " ".join(one.name.replace("\\", "/").rpartition("/")[2].split())[:120] or "unnamed"
            found[name if name not in found else f"{one.id} {name}"] = one
    return found


def sync_folders(index: Index, folders: Sequence[Path]) -> list[Root]:
    """Makes the roots that come from settings these folders, without those that are below an indexed one."""
    paths = [Path(root.place) for root in index.roots("folder")]
    targets = {str(path) for path in folders if not any(path.is_relative_to(one) for one in paths)}
    kind: Kind = "setting"
    for root in index.roots(kind):
        if root.place not in targets:
            index.remove_root(root)
    existing = {root.place for root in index.roots(kind)}
    for place in sorted(targets - existing):
        index.add_root(kind, place)
    return index.roots("folder", "setting")


async def _wait(work: BackgroundTask, seconds: float) -> AsyncIterator[Progress]:
    end = time.monotonic() + seconds
    while not work.task.done() and time.monotonic() < end:
        await asyncio.wait({work.task}, timeout=TELL_SECONDS)
        if not work.task.done():
            yield work.progress


def _is_stale(path: Path, folders: Sequence[Path], job: Job) -> bool:
    """Whether a file changed, came or went since the index was made, or more can be read now."""
    if not folders and not path.exists():
        return False
    with closing(Index(path)) as index:
        roots = sync_folders(index, folders)
        index.set_abilities(READER, list_abilities(job))
        return any(_has_changed(index, root) for root in roots)


def _has_changed(index: Index, root: Root) -> bool:
    changed, removed, _ = find_changes(index, root, SkippedFiles())
    return bool(changed or removed)


def _new_uploads(path: Path, job: Job, attachments_by_name: dict[str, Attachment]) -> dict[str, Attachment]:
    """Those that are not in the index yet, and need a worker; small texts are read here."""
    conversation = job.conversation or ""
    if not attachments_by_name and not path.exists():
        return {}
    with closing(Index(path)) as index:
        root = next((root for root in index.roots("conversation") if root.place == conversation), None)
        if root is None and not attachments_by_name:
            return {}
        indexed = index.files(root) if root else {}
        new = {
            name: one
            for name, one in attachments_by_name.items()
            if name not in indexed or indexed[name].hash != hash_of(one.data)
        }
        if not new and indexed.keys() <= attachments_by_name.keys():
            index.touch_root("conversation", conversation)
            return {}
        index.expire_conversations(conversation, UPLOADS_MOST, UPLOAD_SECONDS)
        small = {name: one for name, one in new.items() if _is_small_text(name, one)}
        data = b"".join(one.data for one in small.values())
        Worker(index, _with_uploads(job, small), lambda step: None).work(BytesIO(data))
        return {name: one for name, one in new.items() if name not in small}


def _with_uploads(job: Job, uploads: Mapping[str, Attachment]) -> Job:
    return msgspec.structs.replace(
        job, uploads=[Upload(name, one.type, len(one.data)) for name, one in uploads.items()]
    )


def _is_small_text(name: str, one: Attachment) -> bool:
    kind = kind_of(name, one.type)
    return kind in ("text", "markdown", "table") and len(one.data) <= SMALL and one.kind != "pdf"
