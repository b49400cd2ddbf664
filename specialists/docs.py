"""`docs` finds passages in Brain's documentation."""

import re
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from brain import AssistContext, Citation, Result, specialist
from specialists._kit.examples import read_examples
from specialists._kit.passages import make_anchor, split_passages, split_sections, unwrap
from specialists._kit.text import content_words

PASSAGES_GIVEN = 8
CHARACTERS_GIVEN = 4800
SHORTEST_PART = 200
SHORT = 600
"""Passages up to this length are given whole, longer ones by their matching parts."""
QUERY_SHOWN = 200
MAX_WORDS = 20
"""Words of a message that an assisted call looks for."""
MAX_SEARCHED = 20
"""Words of a query that are looked up."""
_SPECIAL = re.compile(
    r"reference/specialists/|changelog|contributing|explanation/(?:architecture|decisions|performance)"
)
"""Pages about one specialist, or about Brain's history and inside. They rank lower, unless the query names them."""
_SPECIAL_FACTOR = 0.6
_TITLED_FACTOR = 3.0
_WEIGHTS = "6.0, 1.0, 1.0"
"""Weights of the heading of a part, the headings and the page above it, and its text."""
_SYNONYM_FACTOR = 0.3
_SYNONYMS = """
specialist tool function plugin extension
conversation chat dialogue thread
answer reply response
message question prompt
task job
attach upload
session login logged logout sign
key password credential
user person people account
delete remove erase forget
store save keep
memory remember recall
limit maximum max size large big largest biggest
seconds duration timeout
wait delay
error fail failure crash problem
cancel stop abort
off disable deactivate
parallel concurrent simultaneous
schedule recurring repeat
setting configuration config option
parameter argument
show display
requires needs
private privacy confidential
model llm
openai gpt chatgpt
window history context
machine computer host
cpu core
container docker
database sqlite
folder directory
url address link
website site
offline internet
phone mobile
price cost money
image picture photo
code barcode qr
docx word
xlsx spreadsheet excel sheet
pptx powerpoint slides
"""
"""Words that people use, in groups with those of the documentation."""
_COMMENT = re.compile(r"^<!--.*?-->\n?", re.MULTILINE)
"""A mark in the source of a page, such as one around a generated table."""
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
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
    def page_name(self) -> str:
        """The page without its folder."""
        return self.page.rpartition("/")[2]

    @property
    def id(self) -> str:
        """Page and anchor, as in a link to the section."""
        return f"{self.page}#{make_anchor(self.heading[-1])}"


@dataclass(frozen=True, slots=True)
class Part:
    """A paragraph, list item or table row of a passage; `head` is the head of its table."""

    passage: Passage
    head: str
    text: str


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
        self.parts = [
            Part(passage, head, part)
            for name, text in pages.items()
            for passage in split_page(name, text)
            for head, part in split_parts(passage.text)
        ]
        self._lock = threading.Lock()
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._index.close)
        for table in ("part USING fts5(own, above, text,", "synonym USING fts5(words,"):
            self._index.execute(f"CREATE VIRTUAL TABLE {table} tokenize='porter unicode61 remove_diacritics 2')")
        rows = (
            (n, part.passage.heading[-1], f"{' '.join(part.passage.heading[:-1])} {part.passage.page_name}", part.text)
            for n, part in enumerate(self.parts)
        )
        self._index.executemany("INSERT INTO part (rowid, own, above, text) VALUES (?, ?, ?, ?)", rows)
        self._index.executemany("INSERT INTO synonym (words) VALUES (?)", ((one,) for one in _SYNONYMS.split("\n")))

    def search(self, query: str, section: str | None = None) -> list[Passage]:
        """Return the best passages, only from one page or heading if a section is named. Long ones are shortened."""
        found: dict[Passage, list[int]] = {}
        room = CHARACTERS_GIVEN
        for number in self._rank(query):
            part = self.parts[number]
            passage, is_short = part.passage, len(part.passage.text) <= SHORT
            is_new = passage not in found
            if is_new and any(passage.text == other.text for other in found):  # README and the first page
                continue
            if (is_short and not is_new) or (is_new and len(found) == PASSAGES_GIVEN):
                continue
            if section is not None and not _is_in_section(passage, section):
                continue
            room -= len(passage.text) if is_short else len(part.text)
            if room < 0 and found:
                break
            found.setdefault(passage, []).append(number)
        return [
            passage if len(passage.text) <= SHORT else replace(passage, text=self._join(sorted(numbers)))
            for passage, numbers in found.items()
        ]

    def _rank(self, query: str) -> list[int]:
        """Return the numbers of matching parts, best first: the more words match, and the rarer, the better.

        A part below a heading with all words counts more, and a special page counts less.
        """
        words = list(dict.fromkeys(content_words(query)))[:MAX_SEARCHED]
        if not words:
            return []
        totals: dict[int, float] = {}
        matched: Counter[int] = Counter()
        for word in words:
            scores: dict[int, float] = {}
            for synonym, factor in self._list_synonyms(word).items():
                for number, score in self._score(f'"{synonym}"'):
                    scores[number] = max(scores.get(number, 0), score * factor)
            for number, score in scores.items():
                totals[number] = totals.get(number, 0) + score
            matched.update(scores)

        titled = {number for number, _ in self._score(" AND ".join(f'own : "{word}"' for word in words))}

        def weigh(number: int) -> float:
            passage = self.parts[number].passage
            is_special = _SPECIAL.match(passage.page) and passage.page_name not in words
            factor = (_SPECIAL_FACTOR if is_special else 1) * (_TITLED_FACTOR if number in titled else 1)
            return totals[number] * matched[number] * factor

        return sorted(totals, key=weigh, reverse=True)

    def _list_synonyms(self, word: str) -> Mapping[str, float]:
        """Return a word and its synonyms, each with a factor."""
        with self._lock:
            groups = self._index.execute("SELECT words FROM synonym WHERE synonym MATCH ?", (f'"{word}"',)).fetchall()
        return {other: _SYNONYM_FACTOR for (words,) in groups for other in words.split()} | {word: 1.0}

    def _score(self, match: str) -> Sequence[tuple[int, float]]:
        with self._lock:
            return self._index.execute(
                f"SELECT rowid, -bm25(part, {_WEIGHTS}) FROM part WHERE part MATCH ?", (match,)
            ).fetchall()

    def _join(self, numbers: Sequence[int]) -> str:
        """Return parts as one text, with the head of each table."""
        text, before = "", ""
        for part in (self.parts[number] for number in numbers):
            is_row = part.head != "" and part.head == before
            text += ("\n" if is_row else "\n\n") + ("" if is_row or not part.head else f"{part.head}\n") + part.text
            before = part.head
        return text.strip("\n")


def split_parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the paragraphs, list items and table rows of a passage, each with the head of its table.

    Short ones are joined, since a match in a few words says little.
    """
    for paragraph in re.split(r"\n\n+", text):
        lines = paragraph.split("\n")
        is_table, is_list = len(lines) > 2 and lines[0].startswith("|"), _ITEM.match(lines[0])
        head, part = "\n".join(lines[:2]) if is_table else "", ""
        for line in lines[2:] if is_table else lines:
            if len(part) >= SHORTEST_PART and (is_table or (is_list and _ITEM.match(line))):
                yield head, part
                part = ""
            part += ("\n" if part else "") + line
        yield head, part


def split_page(page: str, text: str) -> Iterator[Passage]:
    """Yield the sections of a Markdown page, long ones in pieces, with one line per paragraph."""
    for heading, body in split_sections(text):
        for passage in split_passages(unwrap(_LINK.sub(r"\1", _COMMENT.sub("", body)))):
            yield Passage(page, heading or (page,), passage)


def _is_in_section(passage: Passage, section: str) -> bool:
    name = section.strip().lower().removesuffix(".md")
    page = passage.page.lower()
    return name in (page, passage.page_name.lower()) or any(name in title.lower() for title in passage.heading)


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
