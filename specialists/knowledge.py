"""`knowledge` finds passages in the user's own folders and uploads that answer a question.

Each user has an index of their own, a SQLite file. A search never reads a document: it uses that index, which a worker
keeps up to date, see `_knowledge`.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from shutil import disk_usage
from typing import Annotated

from msgspec import Meta

from brain import Citation, Context, Progress, Refused, Result, specialist
from specialists._kit.passages import make_anchor
from specialists._knowledge import background, vectors
from specialists._knowledge.command import index_folders as index
from specialists._knowledge.index import Damaged, Index, Root, Unreachable, path_for, with_index
from specialists._knowledge.search import Found, Scope, fetch, rank
from specialists._knowledge.worker import Job

__all__ = ["KnowledgeSettings", "index", "knowledge"]

PASSAGES_GIVEN = 5
NAMES_SHOWN = 12
SOURCE_LENGTH = 300
REASON_LENGTH = 400
WAITING_SECONDS = 20.0
ANSWERING_SECONDS = 4.0
"""Left for the search itself when the time of the call is short."""
VECTOR_SECONDS = 2.0
MIN_FREE = 1_000_000
LOCAL = "local"
NOTHING = (
    "no documents are indexed for this user; ask them to attach a file; the operator reads folders in with: "
    "brain index FOLDER (--user NAME)"
)
UNUSABLE = "the index of the documents is damaged; go on without it. The operator can see more with: brain check"
UNREACHABLE = (
    "the index of the documents cannot be opened or written, its disk may be full or read-only; go on without it. The "
    "operator can see more with: brain check"
)
FIRST = "the documents are being read for the first time; ask again in a minute"


@dataclass(frozen=True)
class KnowledgeSettings:
    """The settings of `knowledge`."""

    folders: Annotated[
        tuple[str, ...],
        Meta(description="folders that are read without `brain index`, for the user `local`; `NAME=FOLDER` for others"),
    ] = ()
    database: Annotated[
        str, Meta(description="folder of the indexes, a SQLite file a user; else in the user's data folder")
    ] = ""
    file_mb: Annotated[int, Meta(description="larger files are left out", ge=1, le=1000)] = 50
    passages: Annotated[int, Meta(description="passages an index holds at most", ge=1, le=2_000_000)] = 200_000
    ocr_language: Annotated[str, Meta(description="of scanned pages, two letters or a Tesseract code")] = "en"

    @property
    def home(self) -> Path:
        """The folder of the indexes."""
        if self.database:
            return Path(self.database).expanduser()
        import platformdirs

        return platformdirs.user_data_path("brain") / "knowledge"

    def folders_of(self, user: str | None) -> list[Path]:
        """The folders of this user in the settings."""
        pairs = [_split_owner(item) for item in self.folders]
        return [Path(folder).expanduser().resolve() for owner, folder in pairs if owner == user]

    def job(self, path: Path) -> Job:
        """A job that brings the folders of an index up to date."""
        return Job(str(path), self.ocr_language, self.file_mb * 1_000_000, self.passages)


def _split_owner(item: str) -> tuple[str, str]:
    owner, is_owner, folder = item.partition("=")
    has_owner = is_owner and not any(sign in owner for sign in "/\\~")
    return (owner.strip(), folder.strip()) if has_owner else (LOCAL, item.strip())


def health(*, settings: KnowledgeSettings) -> str | None:
    """The problem of the local user's index, or of the folders in the settings, if any."""
    with closing(sqlite3.connect(":memory:")) as db:
        try:
            db.execute("CREATE VIRTUAL TABLE probe USING fts5(text)")
        except sqlite3.OperationalError:
            return "this Python's SQLite has no FTS5"
    for _, folder in map(_split_owner, settings.folders):
        if not Path(folder).expanduser().exists():
            return f"the folder {folder} of the setting `folders` is not there"
    path = path_for(settings.home, LOCAL)
    try:
        if path.exists():
            Index(path).close()
            if disk_usage(path).free < MIN_FREE:
                return f"the disk on which its index {path} lies is full"
    except Unreachable as error:
        return f"its index {path} cannot be opened: {error}"
    except Damaged as error:
        return f"its index cannot be opened ({error}); remove the file {path}, and run brain index again"
    return None


async def forget(user: str, conversation_id: str | None, *, settings: KnowledgeSettings) -> None:
    """Deletes the uploads of a conversation, or the whole index of a user."""
    await background.delete_documents(path_for(settings.home, user), conversation_id)


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    """Ends the background tasks with the server."""
    yield
    await background.stop_all()


@specialist(
    read_only=True,
    private=True,
    timeout=30,
    settings=KnowledgeSettings,
    health=health,
    lifespan=lifespan,
    forget=forget,
    tags=("documents", "search", "files"),
    examples=(
        "what do my documents say about the notice period",
        "search my documents for insurance",
        "search my files for the warranty terms",
        "find it in the attached report",
        "which of my notes mention the budget",
        "look up the travel policy in our handbook",
        "what does the contract say about termination",
        "where in the manual is the reset procedure",
        "what is in my folder about taxes",
        "quote the paragraph on liability from the uploaded agreement",
        "which spreadsheet has the price of the pump",
    ),
)
async def knowledge(
    query: Annotated[
        str, Meta(description="What to look for: words of the question, and synonyms.", min_length=1, max_length=1000)
    ],
    source: Annotated[str | None, Meta(description="Only this file or folder, by name.")] = None,
    offset: Annotated[int, Meta(description="Skip so many passages.", ge=0, le=200)] = 0,
    *,
    context: Context,
    settings: KnowledgeSettings,
) -> AsyncIterator[Progress | Result]:
    """Searches the user's own documents, folders and uploads, for passages that answer a question."""
    path = path_for(settings.home, context.user)
    job, seconds = settings.job(path), min(WAITING_SECONDS, context.seconds_left - ANSWERING_SECONDS)
    folders, attachments = settings.folders_of(context.user), context.attachments
    try:
        async for progress in background.update_folders(path, job, folders, seconds):
            yield progress
        seconds = min(seconds, context.seconds_left - ANSWERING_SECONDS)
        async for progress in background.update_uploads(path, job, context.conversation_id, attachments, seconds):
            yield progress
        yield await _answer(path, query, (source or "").strip() or None, offset, context)
    except (Unreachable, OSError) as error:
        raise Refused(UNREACHABLE) from error
    except (Damaged, sqlite3.Error) as error:
        raise Refused(UNUSABLE) from error


async def _answer(path: Path, query: str, source: str | None, offset: int, context: Context) -> Result:
    if not await asyncio.to_thread(path.exists):
        raise Refused(NOTHING)
    query_vector = None
    with suppress(TimeoutError):
        async with asyncio.timeout(VECTOR_SECONDS):
            if vectors.is_installed():
                query_vector = await vectors.embed_query(path, context.model, query)
    conversation = context.conversation_id
    result = await with_index(path, _search, query, source, offset, conversation, query_vector)
    background.start_vectors(path, context.model, matched=query_vector is not None)
    reading = background.current_step(path, conversation)
    if result is None:
        raise Refused(FIRST if reading else NOTHING)
    if reading is None:
        return result
    progress = f" ({reading.n} of {reading.of})" if reading.of else ""
    note = f"Documents are still being read{progress}; ask again in a minute for what is in the others."
    return replace(result, text=f"{result.text}\n\n{note}")


def _search(
    index: Index,
    query: str,
    source: str | None,
    offset: int,
    conversation: str,
    query_vector: vectors.QueryVector | None,
) -> Result | None:
    """The passages of the folders and this conversation's uploads that fit; None when there is nothing to search."""
    roots = [root for root in index.roots() if root.kind != "conversation" or root.place == conversation]
    files = _find_files(source, index, roots) if source else None
    matrix = vectors.load_matrix(index) if query_vector is not None else None
    scope = Scope([root.id for root in roots], files)
    chunks = rank(index, query, scope, matrix, query_vector)
    if found := fetch(index, chunks[offset : offset + PASSAGES_GIVEN], scope.roots):
        result = _show_passages(found, {root.id: root for root in roots}, offset, len(chunks))
        unread = index.troubles([root for root in roots if root.kind == "conversation"])
        return replace(result, text=f"{result.text}\n\n{_list_unread(unread)}") if unread else result
    names, troubles = index.names(roots), index.troubles(roots)
    if not names and not troubles:
        return None
    where = f" in {source[:60]!r}" if source else ""
    existing = [name for _, _, name in names]
    text = (
        f"Nothing {'more ' if offset else ''}in the user's documents{where} matches {query[:200]!r}. Try other words "
        "or synonyms, in the language of the documents.\n"
        f"Indexed: {len(existing)} files{f': {_list_names(existing)}' if existing else ''}."
    )
    return Result(f"{text}\n{_list_unread(troubles)}" if troubles else text)


def _find_files(source: str, index: Index, roots: Sequence[Root]) -> set[int] | None:
    """The files with this name, else those in a folder with this name, else those whose name contains it.

    Returns:
        Their numbers; None when no file has passages.

    Raises:
        Refused: when there are none, with the trouble of that file, or similar names.
    """
    names = index.names(roots)
    if not names:
        return None
    sought = source[:SOURCE_LENGTH].partition("#")[0].strip().strip("/").casefold()
    folders = {root.id: _folder_name(root).casefold() for root in roots}
    matched = {number for number, _, name in names if sought in _variants(name)}
    below = {
        number
        for number, root, name in names
        if f"/{sought}/" in f"/{folders[root]}/{name.casefold().rpartition('/')[0]}/" or sought == folders[root]
    }
    similar = {number for number, _, name in names if sought in name.casefold()}
    if found := matched or below or similar:
        return found
    if unread := [(name, reason) for name, reason in index.troubles(roots) if sought in _variants(name)]:
        raise Refused(_list_unread(unread)[:REASON_LENGTH])
    existing = [name for _, _, name in names]
    near = get_close_matches(source[:SOURCE_LENGTH], existing, NAMES_SHOWN, 0.6)
    hint = f"nearest: {_list_names(near)}" if near else f"there are: {_list_names(existing)}"
    raise Refused(f"no file or folder is called {source[:60]!r}; {hint}"[:REASON_LENGTH])


def _variants(name: str) -> set[str]:
    """A file's name with and without its folder and its ending."""
    whole = name.casefold()
    last = whole.rpartition("/")[2]
    return {whole, last, whole.rpartition(".")[0], last.rpartition(".")[0]} - {""}


def _folder_name(root: Root) -> str:
    return "uploads" if root.kind == "conversation" else Path(root.place).name


def _show_passages(found: Sequence[Found], roots: dict[int, Root], offset: int, total: int) -> Result:
    text = "From the user's documents, the passages that fit best:" if not offset else "Further passages that fit:"
    starts, citations = [], []
    for number, passage in enumerate(found, offset + 1):
        citation = _cite(passage, roots[passage.root])
        starts.append(len(text))
        text += f"\n\n[{number}] {citation.title}\n\n{passage.text}"
        citations.append(citation)
    end = offset + len(found)
    if total > end:
        text += f"\n\nFor {min(total - end, PASSAGES_GIVEN)} more, ask again with offset={end}."

    def more(shown: int) -> str:
        whole = sum(start < shown for start in starts) - 1
        return f"ask again with offset={offset + max(1, whole)}"

    return Result(text, tuple({citation.id: citation for citation in citations}.values()), more=more)


def _cite(passage: Found, root: Root) -> Citation:
    """File, headings and page, such as `handbook.pdf › Leave, page 3` with the id `handbook.pdf#page=3`."""
    name = f"{_folder_name(root)}/{passage.file}" if passage.has_namesake else passage.file
    name = " ".join(name.split())
    kind, _, value = passage.place.partition("=")
    heading = passage.heading if kind != "sheet" else ""
    title = " › ".join(filter(None, (name, heading))) + (f", {kind} {value}" if kind else "")
    fragment = passage.place or (make_anchor(passage.heading.rpartition(" › ")[2]) if passage.heading else "")
    return Citation(f"{name}#{fragment}" if fragment else name, title)


def _list_unread(troubles: Sequence[tuple[str, str]]) -> str:
    shown = "; ".join(f"{' '.join(name.split())}: {reason}" for name, reason in troubles[:NAMES_SHOWN])
    rest = f"; and {len(troubles) - NAMES_SHOWN} others" if len(troubles) > NAMES_SHOWN else ""
    return f"Not read: {shown}{rest}"


def _list_names(names: Sequence[str]) -> str:
    shown = [" ".join(name.split())[:60] for name in names[:NAMES_SHOWN]]
    rest = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(shown) + rest
