"""`brain index`: adds folders and files to a user's index, reads them, and reports the outcome."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing, closing
from pathlib import Path
from typing import Protocol

from brain import Refused, install_command
from specialists._knowledge import background, vectors
from specialists._knowledge.index import Damaged, Index, Unreachable, path_for
from specialists._knowledge.readers import detect_kind
from specialists._knowledge.worker import CLOSED, Failed, Job, Step, run_worker

Print = Callable[[str], object]


class IndexSettings(Protocol):
    """The settings that this command needs."""

    @property
    def home(self) -> Path: ...
    def folders_of(self, user: str | None) -> list[Path]: ...
    def job(self, path: Path) -> Job: ...


class CommandError(Exception):
    """What cannot be done, in words for the terminal."""


async def index_folders(
    paths: Sequence[Path],
    settings: IndexSettings,
    user: str,
    model: vectors.Embedder,
    print_result: Print,
    print_progress: Print,
    *,
    forget: Sequence[Path] = (),
    listing: bool = False,
) -> bool:
    """Reads these folders and files into a user's index, with all that were read before and changed.

    Args:
        forget: folders and files that leave the index; the others then stay as they are.
        listing: only list what is indexed.

    Returns:
        Whether all could be done; what could not was printed.
    """
    path = path_for(settings.home, user)
    try:
        with closing(Index(path)) as index:
            if forget:
                _remove_folders(index, forget, print_result)
            elif not listing:
                _add_folders(index, paths, settings.folders_of(user), print_progress)
                index.retry(CLOSED)  # a change of permissions does not change a file
                await _read(settings.job(path), print_result, print_progress)
                await _embed(index, model, print_result, print_progress)
            if listing:
                _list_folders(index, print_result)
    except (Damaged, sqlite3.Error) as error:
        print_progress(f"brain: the index {path} cannot be used: {error}; remove it, and index again")
        return False
    except Unreachable as error:
        print_progress(f"brain: the index {path} cannot be opened or written: {error}")
        return False
    except (CommandError, Failed, OSError) as error:
        print_progress(f"brain: {error}")
        return False
    except asyncio.CancelledError:
        print_progress("stopped; what was read is kept")
        raise
    return True


def _add_folders(index: Index, paths: Sequence[Path], folders: Sequence[Path], print_progress: Print) -> None:
    targets = [_resolve(path) for path in paths]
    roots = background.sync_folders(index, folders)
    if not targets and not roots:
        raise CommandError("nothing is indexed yet; name a folder or a file")
    for path in targets:
        above = next((root for root in index.roots("folder") if path.is_relative_to(root.place)), None)
        if above is not None:
            if str(path) != above.place:
                print_progress(f"{path} is in {above.place}, which is indexed")
            continue
        for root in index.roots("folder"):
            if Path(root.place).is_relative_to(path):
                index.remove_root(root.id)
        index.add_root("folder", str(path))
    background.sync_folders(index, folders)


def _resolve(path: Path) -> Path:
    """The folder or file itself, wherever links lead."""
    try:
        real = path.expanduser().resolve(strict=True)
    except (OSError, RuntimeError):
        raise CommandError(f"{path}: there is no such file or folder") from None
    if not real.is_dir() and (not real.is_file() or detect_kind(real.name) is None):
        raise CommandError(f"{path}: not a kind of file that is read")
    return real


def _remove_folders(index: Index, paths: Sequence[Path], print_result: Print) -> None:
    roots = {root.place: root for root in index.roots("folder")}
    for path in paths:
        place = str(path.expanduser().resolve())
        if place not in roots:
            raise CommandError(f"{path} is not indexed by itself; indexed: {', '.join(roots) or 'nothing'}")
        count = index.count(roots[place])
        index.remove_root(roots[place].id)
        print_result(f"forgot {place}: {_count_files(count.files)}, {count.passages} passages")
    index.count_common_words()


def _list_folders(index: Index, print_result: Print) -> None:
    roots = index.roots("folder", "setting")
    for root in roots:
        count = index.count(root)
        place = f"{root.place}{' (from the settings)' if root.kind == 'setting' else ''}"
        print_result(f"{place}: {_count_files(count.files)}, {count.passages} passages, {count.vectors} with a vector")
        for name, reason in index.troubles([root]):
            print_result(f"  {_describe_trouble(name, reason)}")
    if not roots:
        print_result("nothing is indexed")


async def _read(job: Job, print_result: Print, print_progress: Print) -> None:
    counts: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    troubles: list[tuple[str, str]] = []
    at = step = Step("at")
    while step.what != "over":
        async with aclosing(run_worker(job)) as steps:
            async for step in steps:
                counts[step.what] += step.n if step.what == "unchanged" else 1
                if step.what == "begin":  # once more after a bad file: what was read by then is unchanged now
                    skipped.clear()
                    counts["unchanged"] = -counts["read"]
                elif step.what == "at":
                    at = step
                elif step.what == "passed":
                    skipped[step.trouble] += step.n
                elif step.what == "read":
                    counts["files"] += bool(step.passages)
                    counts["passages"] += step.passages
                    troubles += [(step.name, step.trouble)] if step.trouble else []
                    outcome = f"{step.passages} passages" if step.passages else step.trouble
                    print_progress(f"[{at.n}/{at.of}] {_printable(step.name)}: {outcome}")
        if step.what == "busy":
            print_progress("another process is reading into this index; waiting for it")
            await asyncio.sleep(background.BUSY_AGAIN_SECONDS)
    read = f"{_count_files(counts['files'])} read ({counts['passages']} passages)"
    print_result(f"{read}, {counts['unchanged']} unchanged, {counts['removed']} removed")
    for name, reason in troubles:
        print_result(_describe_trouble(name, reason))
    for reason, count in skipped.most_common():
        print_result(f"passed over: {count} × {reason}")


async def _embed(index: Index, model: vectors.Embedder, print_result: Print, print_progress: Print) -> None:
    if not vectors.count_missing(index):
        return
    if not vectors.is_installed():
        print_result(f"vectors: none, because numpy is not installed. Try: {install_command('vectors')}")
        return
    done = 0
    try:
        async for done, of in vectors.complete_vectors(index.path, model):
            print_progress(f"vectors: {done} of {of}")
    except Refused as refusal:
        print_result(f"vectors: {done or 'none'}; {refusal.reason}. Words are searched all the same")
        return
    is_trusted = bool(index.get_note("trusted"))
    doubt = (
        "" if is_trusted else "; they tell meanings badly apart, so words go first: take a model made for embeddings"
    )
    print_result(f"vectors: {done} made, of {index.get_note('dimensions')} numbers each{doubt}")


def _describe_trouble(name: str, reason: str) -> str:
    return f"not read, or not wholly: {_printable(name)}: {reason}"


def _printable(name: str) -> str:
    """A name without the characters that could steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in name)


def _count_files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
