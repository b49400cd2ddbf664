"""`knowledge` finds passages in the user's folders and uploads.

Each user has an index, a SQLite file. A search reads only the index. A worker process updates it, see `_knowledge`.
"""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from shutil import disk_usage
from typing import Annotated

from msgspec import Meta

from brain import AssistContext, Citation, Context, Progress, Refused, Result, specialist
from specialists._kit.examples import read_examples
from specialists._kit.passages import make_anchor
from specialists._kit.text import word_set
from specialists._knowledge import background, embeddings
from specialists._knowledge.command import index_folders as index
from specialists._knowledge.index import Damaged, Index, Root, Unreachable, path_for, with_index
from specialists._knowledge.search import Match, Scope, fetch, rank
from specialists._knowledge.settings import LOCAL, KnowledgeSettings, split_owner

__all__ = ["KnowledgeSettings", "index", "knowledge"]

PASSAGES_GIVEN = 5
NAMES_SHOWN = 12
SOURCE_LENGTH = 300
REASON_LENGTH = 400
WAITING_SECONDS = 20.0
ANSWERING_SECONDS = 4.0
"""Time reserved for the search before the call's deadline."""
EMBEDDING_SECONDS = 2.0
MIN_FREE = 1_000_000
MAX_WORDS = 12
"""Words of a message that an assisted call looks for."""
_DOCUMENT_WORDS = word_set(
    "document documents file files note notes folder folders pdf pdfs upload uploaded uploads attached attachment "
    "index indexed saved stored according grep quote mention mentions mentioned passage paragraph somewhere written "
    "wrote unterlagen dokument dokumente dokumenten datei dateien notizen ordner anhang steht hochgeladen "
    "hochgeladenen laut fichier fichiers dossier dossiers pièce jointe d'après documentos documento archivo archivos "
    "notas carpeta carpetas adjunto guardado guardados subido"
)
"""Words of a question that name the place and not the subject."""

log = logging.getLogger("brain")


def health(*, settings: KnowledgeSettings) -> str | None:
    """Return what is wrong with the local user's index or the folders in the settings, or None."""
    with closing(sqlite3.connect(":memory:")) as db:
        try:
            db.execute("CREATE VIRTUAL TABLE probe USING fts5(text)")
        except sqlite3.OperationalError:
            return "this Python's SQLite has no FTS5"
    for _, folder in map(split_owner, settings.folders):
        if not Path(folder).expanduser().exists():
            return f"BRAIN_SPECIALIST_KNOWLEDGE_FOLDERS: there is no folder {folder}"
    path = path_for(settings.home, LOCAL)
    try:
        if path.exists():
            Index(path).close()
            if disk_usage(path).free < MIN_FREE:
                return f"the disk of the index {path} is full"
    except Unreachable as error:
        return f"cannot open or write the index {path}: {error}"
    except Damaged as error:
        return f"the index is damaged ({error}): delete {path}, then run brain index"
    return None


async def forget(user: str, conversation_id: str | None, *, settings: KnowledgeSettings) -> None:
    """Delete the uploads of a conversation, or all documents of a user."""
    await background.delete_documents(path_for(settings.home, user), conversation_id)


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    """End the background tasks with the server."""
    yield
    await background.stop_all()


def make_params(message: str, context: AssistContext) -> Mapping[str, str]:
    """Return the parameters of an assisted call."""
    return {"query": " ".join(context.find_subject(message, _DOCUMENT_WORDS)[:MAX_WORDS]) or message[:1000]}


@specialist(
    read_only=True,
    private=True,
    timeout=30,
    settings=KnowledgeSettings,
    health=health,
    lifespan=lifespan,
    forget=forget,
    assist=make_params,
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
        *read_examples("knowledge"),
    ),
)
async def knowledge(
    query: Annotated[
        str, Meta(description="What to look for: words of the question, and synonyms.", min_length=1, max_length=1000)
    ],
    source: Annotated[str | None, Meta(description="Only this file or folder, by name.")] = None,
    offset: Annotated[int, Meta(description="Number of passages to skip.", ge=0, le=200)] = 0,
    *,
    context: Context,
    settings: KnowledgeSettings,
) -> AsyncIterator[Progress | Result]:
    """Searches the user's own documents, folders and uploads, for passages that answer a question."""
    path = path_for(settings.home, context.user)
    job, seconds = settings.make_job(path), min(WAITING_SECONDS, context.seconds_left - ANSWERING_SECONDS)
    folders, attachments = settings.list_folders(context.user), context.attachments
    try:
        async for progress in background.update_folders(path, job, folders, seconds):
            yield progress
        seconds = min(seconds, context.seconds_left - ANSWERING_SECONDS)
        if context.private and attachments:
            await with_index(path, embeddings.mark_private, context.conversation_id)
        async for progress in background.update_uploads(path, job, context.conversation_id, attachments, seconds):
            yield progress
        missing = await asyncio.to_thread(_list_missing, folders)
        yield await _answer(path, query, (source or "").strip() or None, offset, context, missing)
    except (Unreachable, OSError) as error:
        log.warning("knowledge: cannot open or write the index %s: %s", path, error)
        raise Refused("the document index cannot be opened or written", "continue without it") from error
    except (Damaged, sqlite3.Error) as error:
        log.warning("knowledge: the index %s is damaged: %s", path, error)
        raise Refused("the document index is damaged", "continue without it") from error


def _list_missing(folders: Sequence[Path]) -> list[str]:
    """Return the names of the folders in the settings that this machine does not have."""
    missing = [folder for folder in folders if not folder.exists()]
    for folder in missing:
        log.warning("knowledge: BRAIN_SPECIALIST_KNOWLEDGE_FOLDERS: there is no folder %s", folder)
    return [folder.name for folder in missing]


def _no_documents_error(missing: Sequence[str]) -> Refused:
    if missing:
        return Refused(f"this server does not have the folder {_list_names(missing)}", "continue without it")
    return Refused("no documents are indexed for this user on this server", "ask the user to attach a file")


async def _answer(
    path: Path, query: str, source: str | None, offset: int, context: Context, missing: Sequence[str]
) -> Result:
    if not await asyncio.to_thread(path.exists):
        raise _no_documents_error(missing)
    query_embedding = None
    with suppress(TimeoutError):
        async with asyncio.timeout(EMBEDDING_SECONDS):
            if embeddings.is_installed():
                query_embedding = await embeddings.embed_query(path, context.model, query)
    conversation = context.conversation_id
    result = await with_index(path, _search, query, source, offset, conversation, query_embedding)
    background.start_embedding(path, context.model, matched=query_embedding is not None)
    reading = background.current_step(path, conversation)
    if result is None and reading:
        raise Refused("the documents are being read for the first time", "call again in a minute")
    if result is None:
        raise _no_documents_error(missing)
    if missing:
        note = f"Not searched, because this server does not have it: the folder {_list_names(missing)}."
        result = replace(result, text=f"{result.text}\n\n{note}")
    if reading is None:
        return result
    progress = f" ({reading.n} of {reading.of})" if reading.of else ""
    note = f"Documents are still being read{progress}. To search the others, call again in a minute."
    return replace(result, text=f"{result.text}\n\n{note}")


def _search(
    index: Index,
    query: str,
    source: str | None,
    offset: int,
    conversation: str,
    query_embedding: embeddings.QueryEmbedding | None,
) -> Result | None:
    """Search the user's folders and this conversation's uploads; None if nothing is indexed."""
    roots = [root for root in index.roots() if root.kind != "conversation" or root.place == conversation]
    files = _find_files(source, index, roots) if source else None
    matrix = embeddings.load_matrix(index) if query_embedding is not None else None
    scope = Scope([root.id for root in roots], files)
    chunks = rank(index, query, scope, matrix, query_embedding)
    if found := fetch(index, chunks[offset : offset + PASSAGES_GIVEN], scope.roots):
        result = _show_passages(found, {root.id: root for root in roots}, offset, len(chunks))
        unread = index.problems([root for root in roots if root.kind == "conversation"])
        return replace(result, text=f"{result.text}\n\n{_list_unread(unread)}") if unread else result
    names, problems = index.names(roots), index.problems(roots)
    if not names and not problems:
        return None
    where = f" in {source[:60]!r}" if source else ""
    existing = [name for _, _, name in names]
    text = (
        f"Nothing {'more ' if offset else ''}in the user's documents{where} matches {query[:200]!r}. Use other words "
        "or synonyms, in the language of the documents.\n"
        f"Indexed: {len(existing)} files{f': {_list_names(existing)}' if existing else ''}."
    )
    return Result(f"{text}\n{_list_unread(problems)}" if problems else text)


def _find_files(source: str, index: Index, roots: Sequence[Root]) -> set[int] | None:
    """Find the files with this name, else the files in a folder with this name, else the files with a similar name.

    Returns:
        The numbers of the files; None if no file has passages.

    Raises:
        Refused: if no file matches.
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
    if unread := [(name, reason) for name, reason in index.problems(roots) if sought in _variants(name)]:
        raise Refused(_list_unread(unread)[:REASON_LENGTH], "use another file or continue without it")
    existing = [name for _, _, name in names]
    near = get_close_matches(source[:SOURCE_LENGTH], existing, NAMES_SHOWN, 0.6)
    raise Refused(f"there is no file or folder named '{source[:60]}'", f"use one of: {_list_names(near or existing)}")


def _variants(name: str) -> set[str]:
    """Return a file's name with and without folder and extension."""
    whole = name.casefold()
    last = whole.rpartition("/")[2]
    return {whole, last, whole.rpartition(".")[0], last.rpartition(".")[0]} - {""}


def _folder_name(root: Root) -> str:
    return "uploads" if root.kind == "conversation" else Path(root.place).name


def _show_passages(found: Sequence[Match], roots: dict[int, Root], offset: int, total: int) -> Result:
    text = "Further matching passages:" if offset else "Best matching passages from the user's documents:"
    starts, citations = [], []
    for number, passage in enumerate(found, offset + 1):
        citation = _cite(passage, roots[passage.root])
        starts.append(len(text))
        text += f"\n\n[{number}] {citation.title}\n\n{passage.text}"
        citations.append(citation)
    end = offset + len(found)
    if total > end:
        text += f"\n\nFor {min(total - end, PASSAGES_GIVEN)} more, call again with offset={end}."

    def more(shown: int) -> str:
        whole = sum(start < shown for start in starts) - 1
        return f"call again with offset={offset + max(1, whole)}"

    return Result(text, tuple({citation.id: citation for citation in citations}.values()), more=more)


def _cite(passage: Match, root: Root) -> Citation:
    """Cite file, headings and page: `handbook.pdf › Leave, page 3` with the id `handbook.pdf#page=3`."""
    name = f"{_folder_name(root)}/{passage.file}" if passage.has_namesake else passage.file
    name = " ".join(name.split())
    kind, _, value = passage.place.partition("=")
    heading = passage.heading if kind != "sheet" else ""
    title = " › ".join(filter(None, (name, heading))) + (f", {kind} {value}" if kind else "")
    fragment = passage.place or (make_anchor(passage.heading.rpartition(" › ")[2]) if passage.heading else "")
    return Citation(f"{name}#{fragment}" if fragment else name, title)


def _list_unread(problems: Sequence[tuple[str, str]]) -> str:
    shown = "; ".join(f"{' '.join(name.split())}: {reason}" for name, reason in problems[:NAMES_SHOWN])
    rest = f"; and {len(problems) - NAMES_SHOWN} others" if len(problems) > NAMES_SHOWN else ""
    return f"Not read: {shown}{rest}"


def _list_names(names: Sequence[str]) -> str:
    shown = [" ".join(name.split())[:60] for name in names[:NAMES_SHOWN]]
    rest = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(shown) + rest
