"""What `brain index` does: remembers folders and files for a user, reads them, and says how it went."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from brain import Refused
from specialists._knowledge import uploads, vectors
from specialists._knowledge.index import Damaged, Index, Unreachable, path_for
from specialists._knowledge.readers import kind_of
from specialists._knowledge.worker import CLOSED, Failed, Job, Step, run_worker

Say = Callable[[str], object]


class IndexSettings(Protocol):
    """What of the settings is asked for."""

    @property
    def home(self) -> Path: ...
    def folders_of(self, user: str | None) -> list[Path]: ...
    def job(self, path: Path) -> Job: ...


class CommandError(Exception):
    """What cannot be done, in words for the terminal."""


@dataclass(slots=True)
class Summary:
    """What became of the files."""

    read: int = 0
    passages: int = 0
    unchanged: int = 0
    removed: int = 0
    written: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    troubles: list[tuple[str, str]] = field(default_factory=list)

    def add(self, step: Step) -> None:
        if step.what == "begin":  # once more after a bad file: what was read by then is unchanged now
            self.skipped.clear()
            self.unchanged = -self.written
        elif step.what == "read":
            self.written += 1
            self.read += bool(step.passages)
            self.passages += step.passages
            if step.trouble:
                self.troubles.append((step.name, step.trouble))
        elif step.what == "unchanged":
            self.unchanged += step.n
        elif step.what == "removed":
            self.removed += 1
        elif step.what == "passed":
            self.skipped[step.trouble] += step.n

    @property
    def lines(self) -> list[str]:
        first = (
            f"{_files(self.read)} read ({self.passages} passages), {self.unchanged} unchanged, {self.removed} removed"
        )
        return [
            first,
            *map(_describe_trouble, self.troubles),
            *(f"passed over: {n} × {why}" for why, n in self.skipped.most_common()),
        ]


async def index_folders(
    paths: Sequence[Path],
    settings: IndexSettings,
    user: str,
    model: vectors.Embedder,
    say: Say,
    progress: Say,
    *,
    forget: Sequence[Path] = (),
    listing: bool = False,
) -> bool:
    """Reads these folders and files into a user's index, with all that were read before and changed.

    Args:
        say: takes a line of what came of it.
        progress: takes a line of what goes on.
        forget: folders and files that leave the index; the others then stay as they are.
        listing: only say what is indexed.

    Returns:
        Whether all could be done; what could not was said.
    """
    path = path_for(settings.home, user)
    try:
        with closing(Index(path)) as index:
            if forget:
                _remove_folders(index, forget, say)
            elif not listing:
                _add_folders(index, paths, settings.folders_of(user), progress)
                index.retry(CLOSED)  # whoever changed what may be opened did not change the files
                await _read(settings.job(path), say, progress)
                await _embed(index, model, say, progress)
            if listing:
                _list(index, say)
    except (Damaged, sqlite3.Error) as error:
        progress(f"brain: the index {path} cannot be used: {error}; remove it, and index again")
        return False
    except Unreachable as error:
        progress(f"brain: the index {path} cannot be opened or written: {error}")
        return False
    except (CommandError, Failed, OSError) as error:
        progress(f"brain: {error}")
        return False
    except asyncio.CancelledError:
        progress("stopped; what was read is kept")
        raise
    return True


def _add_folders(index: Index, paths: Sequence[Path], folders: Sequence[Path], progress: Say) -> None:
    targets = [_resolve(path) for path in paths]
    roots = uploads.sync_folders(index, folders)
    if not targets and not roots:
        raise CommandError("nothing is indexed yet; name a folder or a file")
    for path in targets:
        above = next((root for root in index.roots("folder") if path.is_relative_to(root.place)), None)
        if above is not None:
            if str(path) != above.place:
                progress(f"{path} is in {above.place}, which is indexed")
            continue
        for root in index.roots("folder"):
            if Path(root.place).is_relative_to(path):
                index.remove_root(root)
        index.add_root("folder", str(path))
    uploads.sync_folders(index, folders)


def _resolve(path: Path) -> Path:
    """The folder or file itself, wherever links lead."""
    try:
        real = path.expanduser().resolve(strict=True)
    except (OSError, RuntimeError):
        raise CommandError(f"{path}: there is no such file or folder") from None
    if not real.is_dir() and (not real.is_file() or kind_of(real.name) is None):
        raise CommandError(f"{path}: not a kind of file that is read")
    return real


def _remove_folders(index: Index, paths: Sequence[Path], say: Say) -> None:
    roots = {root.place: root for root in index.roots("folder")}
    for path in paths:
        place = str(path.expanduser().resolve())
        if place not in roots:
            raise CommandError(f"{path} is not indexed by itself; indexed: {', '.join(roots) or 'nothing'}")
        count = index.count(roots[place])
        index.remove_root(roots[place])
        say(f"forgot {place}: {_files(count.files)}, {count.passages} passages")
    index.count_common_words()


def _list(index: Index, say: Say) -> None:
    roots = index.roots("folder", "setting")
    for root in roots:
        count = index.count(root)
        where = f"{root.place}{' (from the settings)' if root.kind == 'setting' else ''}"
        say(f"{where}: {_files(count.files)}, {count.passages} passages, {count.vectors} with a vector")
        for trouble in index.troubles([root]):
            say(f"  {_describe_trouble(trouble)}")
    if not roots:
        say("nothing is indexed")


async def _read(job: Job, say: Say, progress: Say) -> None:
    summary = Summary()
    while not await _run_once(job, summary, progress):
        progress("another process is reading into this index; waiting for it")
        await asyncio.sleep(uploads.BUSY_AGAIN_SECONDS)
    for line in summary.lines:
        say(line)


async def _run_once(job: Job, summary: Summary, progress: Say) -> bool:
    """Whether it was done; not, when another process is at work."""
    at = Step("at")
    async with aclosing(run_worker(job)) as steps:
        async for step in steps:
            if step.what == "busy":
                return False
            summary.add(step)
            if step.what == "at":
                at = step
            elif step.what == "read":
                outcome = step.trouble if not step.passages else f"{step.passages} passages"
                progress(f"[{at.n}/{at.of}] {_line(step.name)}: {outcome}")
    return True


async def _embed(index: Index, model: vectors.Embedder, say: Say, progress: Say) -> None:
    if not vectors.count_missing(index):
        return
    if not vectors.is_installed():
        say(f"vectors: none; {vectors.MISSING}")
        return
    done = 0
    try:
        async for done, of in vectors.complete_vectors(index.path, model):
            progress(f"vectors: {done} of {of}")
    except Refused as refusal:
        say(f"vectors: {done or 'none'}; {refusal.reason}. Words are searched all the same")
        return
    trusted = bool(index.get_note("trusted"))
    doubt = "" if trusted else "; they tell meanings badly apart, so words go first: take a model made for embeddings"
    say(f"vectors: {done} made, of {index.get_note('dimensions')} numbers each{doubt}")


def _describe_trouble(trouble: tuple[str, str]) -> str:
    name, why = trouble
    return f"not read, or not wholly: {_line(name)}: {why}"


def _line(name: str) -> str:
    """A name as it may stand in a line of a terminal, which it cannot steer."""
    return "".join(c if c.isprintable() else "?" for c in name)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
