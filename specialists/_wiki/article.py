"""Pages of wikis, and articles: the introduction, facts, and sections of a page by number and name."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Protocol

from brain import Refused
from specialists._kit.isolated import Ended, Limits, run_isolated

SECONDS = 6.0
"""For the HTML of a page; then time is left to read only its beginning."""
LIMITS = Limits(cpu_seconds=4)
"""A page of 3 MB takes 0.3 s."""
_PLAIN_HEADING = re.compile(r"^(={2,6})[ \t]*(\S[^\n]{0,300}?)[ \t]*\1[ \t]*$", re.MULTILINE)
_BEGINNING = frozenset({"0", "intro", "introduction", "lead", "summary", "top"})
_MAY_MEAN = re.compile(
    r"(?:\b(?:may|can|could|most commonly) (?:also )?refers? to|\bmay stand for|\bsteht für|\bbezeichnet|"
    r"\bpeut (?:désigner|faire référence à)|\bpuede referirse a|\bpode referir-se a|\bpuò riferirsi a|"
    r"\bkan verwijzen naar)[^\n.]{0,60}:(?:\s|$)",
    re.IGNORECASE,
)
"""The beginning of a page that only lists others, where nothing else marks it."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page that exists.

    Attributes:
        url: its canonical address, if it has one.
        revision, date: of its text; the date is an ISO one.
        redirected_from: the title that led to it.
        fragment: the section a redirect points to.
        introduction: plain text, when the wiki gives it without the page.
        licence: of the text, in the wiki's words.
        where: the parameters of a call for it besides its title, such as `, wiki="own"`.
    """

    title: str
    url: str | None = None
    revision: int | None = None
    date: str = ""
    redirected_from: str | None = None
    fragment: str | None = None
    introduction: str = ""
    is_disambiguation: bool = False
    licence: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A page that a search found, and a line of it."""

    title: str
    line: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The results of a search: the page of exactly that title, if there is one, and others; or words to try instead."""

    page: Page | None = None
    hits: Sequence[Hit] = field(default_factory=tuple)
    suggestion: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with the text below it, up to the next heading; the first section of a page has no heading.

    Attributes:
        number: as in a table of contents, such as `2.1`; empty for the introduction.
        anchor: what links point to.
        index: by which a wiki's API gives the section alone, when `text` was not fetched.
    """

    level: int
    number: str
    title: str
    anchor: str
    text: str
    index: str = ""

    @property
    def markdown(self) -> str:
        heading = f"{'#' * self.level} {self.title}" if self.level else ""
        return "\n\n".join(filter(None, (heading, self.text)))


@dataclass(frozen=True, slots=True)
class Article:
    """The text of a page.

    Attributes:
        sections: the first is the introduction; empty ones are left out.
        facts: lines of its infobox.
        choices: for a disambiguation page, titles with their lines.
        is_whole: whether the sections hold their texts.
    """

    sections: Sequence[Section]
    facts: Sequence[str] = ()
    choices: Sequence[tuple[str, str]] = ()
    is_disambiguation: bool = False
    is_whole: bool = True

    @property
    def introduction(self) -> str:
        """The text before the first heading, then the facts."""
        return "\n\n".join(filter(None, (self.sections[0].text, "\n".join(self.facts))))

    @property
    def text(self) -> str:
        return "\n\n".join(filter(None, (self.introduction, *(section.markdown for section in self.sections[1:]))))

    def below(self, section: Section) -> str:
        """A section with those within it."""
        later = self.sections[self.sections.index(section) + 1 :]
        inner = takewhile(lambda one: one.level > section.level, later)
        return "\n\n".join(one.markdown for one in (section, *inner))

    def find(self, name_or_number: str) -> Section | None:
        """The section of a name, an anchor or a number, else one whose name begins so."""
        name, sections = _normalize(name_or_number), self.sections[1:]
        for section in sections:
            if name in (_normalize(section.title), _normalize(section.anchor)):
                return section
        for section in sections:
            if section.number == name_or_number.strip().rstrip("."):
                return section
        if name in _BEGINNING:
            return self.sections[0]
        return next((section for section in sections if name and _normalize(section.title).startswith(name)), None)


class Source(Protocol):
    """A wiki."""

    @property
    def label(self) -> str:
        """Its name in answers."""

    async def search(self, query: str) -> Found:
        """Looks for a title and for words."""

    async def page(self, title: str) -> Page | None:
        """The page of a title, redirects followed."""

    async def nearest(self, title: str) -> list[str]:
        """At most five titles like one that does not exist."""

    async def article(self, page: Page) -> Article:
        """The article of a page."""

    async def introduction(self, page: Page) -> Article:
        """The same, or as much of it as its introduction needs."""

    async def section(self, page: Page, article: Article, index: str) -> Article:
        """A section of an article that is not whole, with those within it."""


async def read(html: str) -> Article:
    """The article of a page's HTML, read in a process that ends with this call."""
    try:
        found = await run_isolated("_wiki.page", None, html.encode("utf-8", "replace"), limits=LIMITS, seconds=SECONDS)
    except Ended as error:
        raise Refused("this page is built in a way that cannot be read in time; try another page") from error
    return await asyncio.to_thread(article_from_blocks, found)


def article_from_blocks(found: Mapping[str, Any]) -> Article:
    """An article of the answer of `_wiki.page`."""
    parts: list[tuple[int, str, str, list[str]]] = [(0, "", "", [])]
    for block in found["blocks"]:
        if block["level"] == 1 and len(parts) == 1 and not parts[0][3]:
            continue  # the page's own title
        if block["level"]:
            parts.append((block["level"], block["text"], block["anchor"], []))
        else:
            parts[-1][3].append(block["text"])
    sections = _number_sections([(level, title, anchor, "\n\n".join(texts)) for level, title, anchor, texts in parts])
    choices = tuple((title, line) for title, line in found["choices"])
    return Article(sections, tuple(found["facts"]), choices, found["disambiguation"] or _lists_others(sections))


def article_from_extract(extract: str, *, is_disambiguation: bool = False) -> Article:
    """An article of a wiki's own plain text, with headings such as `== History ==`."""
    pieces = _PLAIN_HEADING.split(extract)
    parts = [(0, "", "", pieces[0].strip())]
    for marks, title, text in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        parts.append((len(marks), title, title.replace(" ", "_"), re.sub(r"\n\s*\n", "\n\n", text.strip())))
    sections = _number_sections(parts)
    is_disambiguation = is_disambiguation or _lists_others(sections)
    lines = [line.strip() for *_, text in parts for line in text.splitlines() if line.strip()]
    choices = tuple((line, line) for line in lines[1:]) if is_disambiguation else ()
    return Article(sections, choices=choices, is_disambiguation=is_disambiguation)


def article_from_contents(introduction: Article, entries: Sequence[Mapping[str, Any]]) -> Article:
    """An article of which only the introduction was fetched, and a wiki's own list of its sections."""
    sections = [introduction.sections[0]]
    for entry in entries:
        level, number, title, anchor, index = (
            " ".join(re.sub(r"<[^<>]{0,500}>", "", str(entry.get(key, ""))).split())[:200]  # titles may hold HTML
            for key in ("level", "number", "line", "anchor", "index")
        )
        sections.append(Section(int(level) if re.fullmatch("[1-6]", level) else 2, number, title, anchor, "", index))
    return replace(introduction, sections=tuple(sections), is_whole=False)


def _number_sections(parts: Sequence[tuple[int, str, str, str]]) -> tuple[Section, ...]:
    """Sections with the numbers of a table of contents, whatever levels of headings a page jumps over.

    Those that say nothing are left out, such as those of notes, which are not read.
    """
    levels: list[int] = []
    counts: list[int] = []
    sections: list[Section] = []
    for level, title, anchor, text in parts:
        if level:
            while levels and levels[-1] >= level:
                levels.pop()
            counts = [*counts[: len(levels) + 1], *[0] * (len(levels) + 1 - len(counts))]
            counts[len(levels)] += 1
            levels.append(level)
        sections.append(Section(level, ".".join(map(str, counts[: len(levels)])), title, anchor, text))
    filled: list[Section] = []
    below = 7  # the level of the last section that is not empty, up to which those above it are not
    for section in reversed(sections):
        if section.text or section.level < below < 7 or not section.level:
            filled.append(section)
            below = section.level
        elif section.level <= below:
            below = 7
    return tuple(reversed(filled))


def _lists_others(sections: Sequence[Section]) -> bool:
    return _MAY_MEAN.search(sections[0].text[:400]) is not None


def _normalize(name: str) -> str:
    return " ".join(name.replace("_", " ").casefold().split())
