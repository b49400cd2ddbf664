"""Read one ZIM file in a child process, because libzim holds the interpreter lock, even on a slow disk."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from specialists._kit.child import Report

if TYPE_CHECKING:
    from libzim.reader import Archive, Entry

MAX_BYTES = 4 * 1024 * 1024
HITS = 6
MAX_TITLES = 20
_MAX_REDIRECTS = 5


def answer(words: Any, _: bytes, __: Report) -> tuple[Any, bytes]:
    """Return content of a ZIM file.

    Args:
        words: action (`check`, `search`, `page`, `nearest`, `html`), file, and title or query.
    """
    from libzim.reader import Archive

    action, path, term = words
    archive = Archive(path)
    found: Any = archive.entry_count
    if action == "search":
        found = {"page": _find_page(archive, term), "hits": _search(archive, term)}
    elif action == "page":
        found = _find_page(archive, term)
    elif action == "nearest":
        found = [title for start in (term, term[: max(2, len(term) // 2)]) for title in _suggest(archive, start)]
    elif action == "html":
        entry = _find_entry(archive, term)
        item = entry.get_item() if entry is not None else None
        is_readable = item is not None and item.size <= MAX_BYTES
        found = bytes(item.content).decode("utf-8", "replace") if item is not None and is_readable else None
    return found, b""


def _find_page(archive: "Archive", title: str) -> dict[str, str] | None:
    """Return the metadata of the page with this title, ignoring case."""
    alike = (name for name in _suggest(archive, title) if name.casefold() == title.casefold())
    for name in dict.fromkeys((title, title[:1].upper() + title[1:], title.title(), *alike)):
        entry = _find_entry(archive, name)
        target = _follow(entry) if entry is not None else None
        if entry is not None and target is not None:
            return {
                "title": target.title,
                "redirected_from": entry.title if entry.is_redirect else "",
                "date": _read_metadata(archive, "Date"),
                "licence": _read_metadata(archive, "License"),
            }
    return None


def _find_entry(archive: "Archive", title: str) -> "Entry | None":
    if archive.has_entry_by_title(title):
        return archive.get_entry_by_title(title)
    path = title.replace(" ", "_")
    paths = (path, f"A/{path}")  # the second one in older files
    return next((archive.get_entry_by_path(one) for one in paths if archive.has_entry_by_path(one)), None)


def _follow(entry: "Entry") -> "Entry | None":
    """Follow the redirects of an entry; None if it leads to no page."""
    for _ in range(_MAX_REDIRECTS):
        if not entry.is_redirect:
            return entry if entry.get_item().mimetype.startswith("text/html") else None
        entry = entry.get_redirect_entry()
    return None


def _search(archive: "Archive", query: str) -> list[str]:
    """Search the texts if the file has a full-text index, else the titles."""
    if not archive.has_fulltext_index:
        return list(dict.fromkeys(_suggest(archive, query)))[:HITS]
    from libzim.search import Query, Searcher

    paths = Searcher(archive).search(Query().set_query(query)).getResults(0, HITS)
    return list(dict.fromkeys(_list_titles(archive, paths)))


def _suggest(archive: "Archive", beginning: str) -> Iterator[str]:
    from libzim.suggestion import SuggestionSearcher

    return _list_titles(archive, SuggestionSearcher(archive).suggest(beginning).getResults(0, MAX_TITLES))


def _list_titles(archive: "Archive", paths: Any) -> Iterator[str]:
    targets = (_follow(archive.get_entry_by_path(path)) for path in paths)
    return (target.title for target in targets if target is not None)


def _read_metadata(archive: "Archive", key: str) -> str:
    return archive.get_metadata(key).decode("utf-8", "replace") if key in archive.metadata_keys else ""
