"""`brain index`: add folders and files to a user's index, read them, and report the outcome."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing, closing
from pathlib import Path
from shlex import quote

from brain import Refused, install_command
from specialists._knowledge import background, embeddings
from specialists._knowledge.index import Damaged, Index, Unreachable, path_for
from specialists._knowledge.readers import KINDS, detect_kind, suggest_packages
from specialists._knowledge.settings import KnowledgeSettings
from specialists._knowledge.worker import CLOSED, Failed, Job, Step, run_worker

Print = Callable[[str], object]


class CommandError(Exception):
    """An error for the terminal."""


async def index_folders(
    paths: Sequence[Path],
    settings: KnowledgeSettings,
    user: str,
    model: embeddings.Embedder,
    print_result: Print,
    print_progress: Print,
    *,
    forget: Sequence[Path] = (),
    listing: bool = False,
) -> bool:
    """Add folders and files to a user's index, and read new and changed files.

    Args:
        forget: folders and files to remove from the index instead.
        listing: only list the index.

    Returns:
        Whether it succeeded; errors were printed.
    """
    path = path_for(settings.home, user)
    try:
        with closing(Index(path)) as index:
            if forget:
                _remove_folders(index, forget, print_result)
            elif not listing:
                _add_folders(index, paths, settings.list_folders(user), print_progress)
                index.retry(CLOSED)  # new permissions do not change a file's time
                await _read(settings.make_job(path), print_result, print_progress)
                await _embed(index, model, print_result, print_progress)
            if listing:
                _list_folders(index, print_result)
    except (Damaged, sqlite3.Error) as error:
        print_progress(f"brain: the index is damaged ({error}). Try: rm {quote(str(path))}, then brain index FOLDER")
        return False
    except Unreachable as error:
        print_progress(f"brain: cannot open or write the index {path}: {error}. Try: brain check")
        return False
    except (CommandError, Failed, OSError) as error:
        print_progress(f"brain: {error}")
        return False
    except asyncio.CancelledError:
        print_progress("brain: stopped. Files that were read stay indexed. To read the others: brain index")
        raise
    return True


def _add_folders(index: Index, paths: Sequence[Path], folders: Sequence[Path], print_progress: Print) -> None:
    targets = [_resolve(path) for path in paths]
    roots = background.sync_folders(index, folders)
    if not targets and not roots:
        raise CommandError("No directory is indexed. Try: brain index DIRECTORY")
    for path in targets:
        above = next((root for root in index.roots("folder") if path.is_relative_to(root.place)), None)
        if above is not None:
            if str(path) != above.place:
                print_progress(f"{path} is part of {above.place}, which is indexed already")
            continue
        for root in index.roots("folder"):
            if Path(root.place).is_relative_to(path):
                index.remove_root(root.id)
        index.add_root("folder", str(path))
    background.sync_folders(index, folders)


def _resolve(path: Path) -> Path:
    """Return the real path of a folder or file."""
    try:
        real = path.expanduser().resolve(strict=True)
    except (OSError, RuntimeError):
        raise CommandError(f"No such file or directory: {path}. Try: brain index --help") from None
    if not real.is_dir() and (not real.is_file() or detect_kind(real.name) is None):
        supported = ", ".join(sorted(ending for ending, kind in KINDS.items() if kind != "old"))
        raise CommandError(f"unsupported file type: {path}. Supported: {supported}")
    return real


def _remove_folders(index: Index, paths: Sequence[Path], print_result: Print) -> None:
    roots = {root.place: root for root in index.roots("folder")}
    for path in paths:
        place = str(path.expanduser().resolve())
        if place not in roots:
            raise CommandError(f"{path} is not an indexed folder or file. Try: brain index --help")
        count = index.count(roots[place])
        index.remove_root(roots[place].id)
        print_result(f"removed {place}: {_count(count.files, 'file')}, {_count(count.passages, 'passage')}")
    index.count_common_words()


def _list_folders(index: Index, print_result: Print) -> None:
    roots = index.roots("folder", "setting")
    for root in roots:
        count = index.count(root)
        place = f"{root.place}{' (from the settings)' if root.kind == 'setting' else ''}"
        files, passages = _count(count.files, "file"), _count(count.passages, "passage")
        print_result(f"{place}: {files}, {passages}, {count.embeddings} with an embedding")
        for name, reason in index.problems([root]):
            print_result(f"  {_describe_problem(name, reason)}")
    if not roots:
        print_result("No folder is indexed. Try: brain index FOLDER")


async def _read(job: Job, print_result: Print, print_progress: Print) -> None:
    counts: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    problems: list[tuple[str, str]] = []
    at = step = Step("at")
    while step.what != "over":
        async with aclosing(run_worker(job)) as steps:
            async for step in steps:
                counts[step.what] += step.n if step.what == "unchanged" else 1
                if step.what == "begin":  # again after a bad file: the files read before it are unchanged now
                    skipped.clear()
                    counts["unchanged"] = -counts["read"]
                elif step.what == "at":
                    at = step
                elif step.what == "passed":
                    skipped[step.problem] += step.n
                elif step.what == "read":
                    counts["files"] += bool(step.passages)
                    counts["passages"] += step.passages
                    problems += [(step.name, step.problem)] if step.problem else []
                    outcome = _count(step.passages, "passage") if step.passages else step.problem
                    print_progress(f"[{at.n}/{at.of}] {_printable(step.name)}: {outcome}")
        if step.what == "busy":
            print_progress("waiting for another process that updates this index")
            await asyncio.sleep(background.BUSY_AGAIN_SECONDS)
    read = f"{_count(counts['files'], 'file')} read ({_count(counts['passages'], 'passage')})"
    print_result(f"{read}, {counts['unchanged']} unchanged, {counts['removed']} removed")
    for name, reason in problems:
        print_result(_describe_problem(name, reason))
    for reason, count in skipped.most_common():
        print_result(f"skipped: {count} × {reason}")
    for advice in dict.fromkeys(advice for _, reason in problems for advice in suggest_packages(reason)):
        print_result(advice)


async def _embed(index: Index, model: embeddings.Embedder, print_result: Print, print_progress: Print) -> None:
    if not embeddings.count_missing(index):
        return
    if not embeddings.is_installed():
        print_result(f"embeddings: none, because numpy is not installed. Try: {install_command('vectors')}")
        return
    done = 0
    try:
        async for done, of in embeddings.embed_missing(index.path, model):
            print_progress(f"embeddings: {done} of {of}")
    except Refused as refusal:
        print_result(f"embeddings: {done or 'none'}, because {refusal.reason}. Keyword search works without them.")
        return
    print_result(f"embeddings: {done} created, {index.get_note('dimensions')} dimensions each")
    if not index.get_note("trusted"):
        print_result("The model failed the embedding check, so keywords rank first. Try: a model made for embeddings")


def _describe_problem(name: str, reason: str) -> str:
    return f"not read completely: {_printable(name)}: {reason}"


def _printable(name: str) -> str:
    """Replace the characters of a name that could control a terminal."""
    return "".join(c if c.isprintable() else "?" for c in name)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
