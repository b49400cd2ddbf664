"""Built in: `docs`, Brain's own handbook: a question goes in, the passages that answer it best come out."""

import re
import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from brain import Citation, Result, specialist

PASSAGES_GIVEN = 3
PASSAGE_LENGTH = 1200
_WEIGHTS = "12.0, 4.0, 1.0"
"""Of a passage's own heading, those above it and its text."""
_HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*")
_FENCE = re.compile(r"\s*(```|~~~)")
_WORD = re.compile(r"\w+")
_ASKING = frozenset({
    "a", "about", "an", "and", "any", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "get",
    "has", "have", "how", "i", "if", "in", "is", "it", "its", "me", "my", "of", "on", "or", "our", "own", "should",
    "so", "that", "the", "their", "them", "then", "there", "these", "this", "to", "was", "we", "what", "when", "where",
    "which", "who", "why", "will", "with", "work", "you", "your",
})  # fmt: skip
"""Words of questions. Manuals hardly use them, so that they would outweigh what is asked about."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a page that fits into an answer; `heading` is the path of headings above it."""

    page: str
    heading: tuple[str, ...]
    text: str

    @property
    def title(self) -> str:
        return " › ".join(self.heading)

    @property
    def id(self) -> str:
        """Page and anchor, as in a link to the section."""
        return f"{self.page}#{_anchor(self.heading[-1])}"


class Handbook:
    """Full text search over Markdown pages.

    Args:
        pages: the text of each page, by its name.
    """

    def __init__(self, pages: Mapping[str, str]) -> None:
        import sqlite3

        self.titles = [_title(name, text) for name, text in pages.items()]
        self.passages = [passage for name, text in pages.items() for passage in passages(name, text)]
        self._lock = threading.Lock()
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._index.close)
        self._index.execute(
            "CREATE VIRTUAL TABLE passage USING fts5(own, above, text, tokenize='porter unicode61 remove_diacritics 2')"
        )
        rows = ((n, p.heading[-1], " ".join(p.heading[:-1]), p.text) for n, p in enumerate(self.passages))
        self._index.executemany("INSERT INTO passage (rowid, own, above, text) VALUES (?, ?, ?, ?)", rows)

    def search(self, query: str, section: str | None = None) -> list[Passage]:
        """The passages that fit best, those of one page or heading if a section is named.

        Those whose own heading says all that is asked about go first, so a page's introduction before its sections.
        """
        words = _WORD.findall(query.lower())
        telling = [word for word in words if word not in _ASKING] or words
        if not telling:
            return []
        any_of, headed = " OR ".join(f'"{w}"' for w in telling), " AND ".join(f'own : "{w}"' for w in telling)
        ranked = f"SELECT rowid FROM passage WHERE passage MATCH ? ORDER BY bm25(passage, {_WEIGHTS})"
        with self._lock:
            numbers = [n for match in (headed, any_of) for (n,) in self._index.execute(ranked, (match,))]
        found = [self.passages[number] for number in dict.fromkeys(numbers)]
        return [passage for passage in found if section is None or _within(passage, section)][:PASSAGES_GIVEN]


@specialist(
    read_only=True,
    timeout=10,
    cache_seconds=3600,
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
    ),
)
def docs(
    query: Annotated[str, Meta(description="Words to look for; add synonyms, any of them may match.", min_length=1)],
    section: Annotated[str | None, Meta(description="Only this page or heading, by its name.")] = None,
) -> Result:
    """Looks something up in Brain's own documentation: what it is, how to set it up, use it and extend it."""
    return answered(_handbook(), query, section)


def answered(handbook: Handbook, query: str, section: str | None) -> Result:
    """The passages found, numbered and cited; what pages there are when there is none."""
    found = handbook.search(query, section)
    if not found:
        where = f" in the section {section!r}" if section else ""
        listed = "\n".join(f"- {title}" for title in handbook.titles)
        return Result(f"Nothing in Brain's documentation{where} matches {query!r}. Its pages are:\n{listed}")
    text = "\n\n".join(f"[{number}] {passage.title}\n\n{passage.text}" for number, passage in enumerate(found, 1))
    return Result(
        text, citations=tuple({passage.id: Citation(passage.id, passage.title) for passage in found}.values())
    )


def passages(page: str, text: str) -> Iterator[Passage]:
    """The sections of a Markdown page, long ones cut between paragraphs."""
    heading: tuple[str, ...] = (page,)
    levels: tuple[int, ...] = (1,)
    for line, body in _sections(text):
        if line is not None:
            level, title = len(line[1]), line[2]
            above = sum(known < level for known in levels)
            heading, levels = (*heading[:above], title), (*levels[:above], level)
        for piece in _cut(body):
            yield Passage(page, heading, piece)


def _title(page: str, text: str) -> str:
    """A page's first heading, else its name."""
    return next((heading[2] for heading, _ in _sections(text) if heading), page)


def _sections(text: str) -> Iterator[tuple[re.Match[str] | None, str]]:
    """Each heading with the text below it; what stands before the first has none."""
    heading, body, fenced = None, list[str](), False
    for line in text.splitlines():
        fenced ^= bool(_FENCE.match(line))
        found = None if fenced else _HEADING.fullmatch(line)
        if found:
            yield heading, "\n".join(body)
            heading, body = found, []
        else:
            body.append(line)
    yield heading, "\n".join(body)


def _cut(text: str) -> list[str]:
    """Paragraphs joined up to `PASSAGE_LENGTH` characters; one that is longer alone is cut between its lines."""
    pieces: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        fits = len(paragraph) <= PASSAGE_LENGTH
        for part, glue in ((paragraph, "\n\n"),) if fits else ((line, "\n") for line in paragraph.splitlines()):
            if pieces and len(pieces[-1]) + len(part) + len(glue) <= PASSAGE_LENGTH:
                pieces[-1] += glue + part
            elif part.strip():
                pieces.append(part)
    return pieces


def _within(passage: Passage, section: str) -> bool:
    wanted = section.strip().lower().removesuffix(".md")
    return wanted == passage.page.lower() or any(wanted in title.lower() for title in passage.heading)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-"))


@cache
def _handbook() -> Handbook:
    return Handbook({file.stem: file.read_text(encoding="utf-8") for file in pages_of(Path(__file__).parent)})


def pages_of(package: Path) -> list[Path]:
    """Brain's pages: inside the package when it was built, beside it in a clone."""
    if (package / "handbook").is_dir():
        return sorted((package / "handbook").glob("*.md"))
    return [*package.parent.glob("README.md"), *sorted((package.parent / "docs").glob("*.md"))]
