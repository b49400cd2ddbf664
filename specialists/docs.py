"""`docs` finds passages in Brain's documentation."""

import re
import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from brain import AssistContext, Citation, Result, specialist
from specialists._kit.examples import read_examples
from specialists._kit.passages import make_anchor, split_passages, split_sections, unwrap
from specialists._kit.text import content_words

PASSAGES_GIVEN = 3
QUERY_SHOWN = 200
MAX_WORDS = 20
"""Words of a message that an assisted call looks for."""
OF_SPECIALISTS = "reference/specialists/"
"""Prefix of the pages about specialists."""
_WEIGHTS = "12.0, 4.0, 1.0"
"""Weights of a passage's heading, the headings above it, and its text."""
_LINK = re.compile(r"!?\[([^]]*)\]\((?:[\w./-]+\.(?:md|png|svg))?(?:#[\w-]*)?\)")
"""An image, or a link to another page. An answer has no place that such a link could open."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of a page; `heading` is the path of headings above it."""

    page: str
    heading: tuple[str, ...]
    text: str

    @property
    def title(self) -> str:
        return " › ".join(self.heading)

    @property
    def id(self) -> str:
        """Page and anchor, as in a link to the section."""
        return f"{self.page}#{make_anchor(self.heading[-1])}"


class Documentation:
    """Full-text search in Markdown pages.

    Args:
        pages: text of each page by name.
    """

    def __init__(self, pages: Mapping[str, str]) -> None:
        import sqlite3

        self.titles = [
            next((heading[-1] for heading, _ in split_sections(text) if heading), name) for name, text in pages.items()
        ]
        self.passages = [passage for name, text in pages.items() for passage in split_page(name, text)]
        self._lock = threading.Lock()
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._index.close)
        self._index.execute(
            "CREATE VIRTUAL TABLE passage USING fts5(own, above, text, tokenize='porter unicode61 remove_diacritics 2')"
        )
        rows = ((n, p.heading[-1], " ".join(p.heading[:-1]), p.text) for n, p in enumerate(self.passages))
        self._index.executemany("INSERT INTO passage (rowid, own, above, text) VALUES (?, ?, ?, ?)", rows)

    def search(self, query: str, section: str | None = None) -> list[Passage]:
        """Return the best passages, only from one page or heading if a section is named.

        Passages whose heading has all words rank first, then passages that have all words. Pages about specialists
        rank below the others, unless the query names them.
        """
        words = content_words(query)
        if not words:
            return []

        def is_other_specialist(passage: Passage) -> bool:
            return passage.page.startswith(OF_SPECIALISTS) and passage.page.rpartition("/")[2] not in words

        matches = (
            " AND ".join(f'own : "{word}"' for word in words),
            " AND ".join(f'"{word}"' for word in words),
            " OR ".join(f'"{word}"' for word in words),
        )
        found: dict[Passage, None] = {}
        for match in matches:
            with self._lock:
                rows = self._index.execute(
                    f"SELECT rowid FROM passage WHERE passage MATCH ? ORDER BY bm25(passage, {_WEIGHTS})", (match,)
                ).fetchall()
            found |= dict.fromkeys(sorted((self.passages[number] for (number,) in rows), key=is_other_specialist))
        return [one for one in found if section is None or _is_in_section(one, section)][:PASSAGES_GIVEN]


def split_page(page: str, text: str) -> Iterator[Passage]:
    """Yield the sections of a Markdown page, long ones in pieces, with one line per paragraph."""
    for heading, body in split_sections(text):
        for passage in split_passages(unwrap(_LINK.sub(r"\1", body))):
            yield Passage(page, heading or (page,), passage)


def _is_in_section(passage: Passage, section: str) -> bool:
    name = section.strip().lower().removesuffix(".md")
    page = passage.page.lower()
    return name in (page, page.rpartition("/")[2]) or any(name in title.lower() for title in passage.heading)


@cache
def _load_documentation() -> Documentation:
    return Documentation({name: file.read_text("utf-8") for name, file in find_pages(Path(__file__).parent).items()})


def find_pages(package: Path) -> dict[str, Path]:
    """Return the files of the documentation by page name. A wheel has them in the package, a clone next to it."""
    folder, readme = package / "documentation", list[Path]()
    if not folder.is_dir():
        folder, readme = package.parent / "docs", [*package.parent.glob("README.md")]
    pages = {file.relative_to(folder).with_suffix("").as_posix(): file for file in sorted(folder.rglob("*.md"))}
    return {file.stem: file for file in readme} | pages


def health() -> str | None:
    """Return a problem if the pages are missing."""
    return None if _load_documentation().titles else "the pages are missing: install Brain again"


def make_params(message: str, context: AssistContext) -> Mapping[str, str]:
    """Return the parameters of an assisted call."""
    return {"query": " ".join(context.find_subject(message)[:MAX_WORDS]) or message}


@specialist(
    read_only=True,
    outside=False,
    timeout=10,
    cache_seconds=3600,
    health=health,
    assist=make_params,
    tags=("brain", "documentation"),
    examples=(
        "how do I write a specialist",
        "how do I set the limit of calls",
        "what is Brain and how does it work",
        "which specialists can you use",
        "how does the middleware resume the model after a result",
        "what does the event specialist_error mean",
        "how do I connect Ollama or an OpenAI compatible server",
        "what is the syntax of a specialist request",
        "which settings are there and what are their defaults",
        "how do I use it as a library without the server",
        "how do I run Brain behind a proxy",
        "how do I index a folder with the command line",
        *read_examples("docs"),
    ),
)
def docs(
    query: Annotated[str, Meta(description="Words to look for; add synonyms, any of them may match.", min_length=1)],
    section: Annotated[str | None, Meta(description="Only this page or heading, by name.")] = None,
) -> Result:
    """Looks something up in Brain's own documentation: what it is, how to set it up, use it and extend it."""
    return answer_query(_load_documentation(), query, section)


def answer_query(documentation: Documentation, query: str, section: str | None) -> Result:
    """Return the best passages, numbered and cited, or the list of pages if there are none."""
    found = documentation.search(query, section)
    if not found:
        where = f" in the section '{section}'" if section else ""
        pages = "\n".join(f"- {title}" for title in documentation.titles)
        return Result(f"Nothing in Brain's documentation{where} matches {query[:QUERY_SHOWN]!r}. The pages:\n{pages}")
    blocks = [f"📖 BRAIN'S DOCUMENTATION on {query[:QUERY_SHOWN]!r}"]
    blocks += [f"[{number}] {passage.title}\n\n{passage.text}" for number, passage in enumerate(found, 1)]
    citations = {passage.id: Citation(passage.id, passage.title) for passage in found}
    return Result("\n\n".join(blocks), citations=tuple(citations.values()))
