"""Reads one ZIM file in a child process: libzim lets nothing else run meanwhile, however slow the disk."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from specialists._kit.child import Report

if TYPE_CHECKING:
    from libzim.reader import Archive, Entry

BYTES_MOST = 4 * 1024 * 1024
HITS = 6
TITLES_MOST = 20
_REDIRECTS_MOST = 5


def answer(words: Any, _: bytes, __: Report) -> tuple[Any, bytes]:
    """What is in a file.

    Args:
        words: what is wanted (`check`, `search`, `page`, `nearest`, `html`), the file, a title or words.
    """
    return _look_up(*words), b""


def _look_up(action: str, path: str, term: str) -> Any:
    from libzim.reader import Archive

    archive = Archive(path)
    if action == "search":
        return {"page": _page(archive, term), "hits": _hits(archive, term)}
    if action == "page":
        return _page(archive, term)
    if action == "nearest":
        return [title for start in (term, term[: max(2, len(term) // 2)]) for title in _suggest(archive, start)]
    if action == "html":
        return _html(archive, term)
    return archive.entry_count


def _page(archive: "Archive", title: str) -> dict[str, str] | None:
    alike = (name for name in _suggest(archive, title) if name.casefold() == title.casefold())
    for name in dict.fromkeys((title, title[:1].upper() + title[1:], title.title(), *alike)):
        entry = _entry(archive, name)
        target = _target(entry) if entry is not None else None
        if entry is not None and target is not None:
            return {
                "title": target.title,
                "redirected_from": entry.title if entry.is_redirect else "",
                "date": _metadata(archive, "Date"),
                "licence": _metadata(archive, "License"),
            }
    return None


def _entry(archive: "Archive", title: str) -> "Entry | None":
    if archive.has_entry_by_title(title):
        return archive.get_entry_by_title(title)
    path = title.replace(" ", "_")
    paths = (path, f"A/{path}")  # the latter in files of the older kind
    return next((archive.get_entry_by_path(one) for one in paths if archive.has_entry_by_path(one)), None)


def _target(entry: "Entry") -> "Entry | None":
    """The page that an entry leads to; None when it is a picture or the like."""
    for _ in range(_REDIRECTS_MOST):
        if not entry.is_redirect:
            return entry if entry.get_item().mimetype.startswith("text/html") else None
        entry = entry.get_redirect_entry()
    return None


def _html(archive: "Archive", title: str) -> str | None:
    """The content of a page; None when it is too large."""
    entry = _entry(archive, title)
    item = entry.get_item() if entry is not None else None
    if item is None or item.size > BYTES_MOST:
        return None
    return bytes(item.content).decode("utf-8", "replace")


def _hits(archive: "Archive", query: str) -> list[str]:
    """By the words of the texts if the file has an index of them, else by titles."""
    if not archive.has_fulltext_index:
        return list(dict.fromkeys(_suggest(archive, query)))[:HITS]
    from libzim.search import Query, Searcher

    return list(dict.fromkeys(_titles(archive, Searcher(archive).search(Query().set_query(query)).getResults(0, HITS))))


def _suggest(archive: "Archive", beginning: str) -> Iterator[str]:
    from libzim.suggestion import SuggestionSearcher

    return _titles(archive, SuggestionSearcher(archive).suggest(beginning).getResults(0, TITLES_MOST))


def _titles(archive: "Archive", paths: Any) -> Iterator[str]:
    targets = (_target(archive.get_entry_by_path(path)) for path in paths)
    return (target.title for target in targets if target is not None)


def _metadata(archive: "Archive", key: str) -> str:
    return archive.get_metadata(key).decode("utf-8", "replace") if key in archive.metadata_keys else ""
