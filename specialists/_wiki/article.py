"""Wiki pages and articles: introduction, facts, and sections by number and name."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Protocol

from brain import Refused
from specialists._kit.isolated import Ended, Limits, run_isolated

SECONDS = 6.0
"""Time limit for the HTML of a page, so that time remains to read only its introduction."""
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
"""The beginning of an unmarked disambiguation page."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page that exists.

    Attributes:
        url: canonical URL, if there is one.
        revision, date: of the text; the date is ISO.
        redirected_from: title of the redirect that led here.
        fragment: section that the redirect names.
        introduction: plain text, if the wiki returns it without the page.
        licence: of the text, as the wiki words it.
        where: further parameters of a call for this page, such as `, wiki="own"`.
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
    """A page that a search found, with an excerpt."""

    title: str
    line: str = ""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The results of a search: the page with exactly this title, if any, other hits, and a suggested query."""

    page: Page | None = None
    hits: Sequence[Hit] = field(default_factory=tuple)
    suggestion: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the text up to the next heading; the first section of a page has no heading.

    Attributes:
        number: as in a table of contents, such as `2.1`; empty for the introduction.
        anchor: fragment of links to the section.
        index: number of the section in the wiki's API, if `text` was not fetched.
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
        sections: introduction first, without empty sections.
        facts: lines of the infobox.
        choices: titles and lines of a disambiguation page.
        is_whole: whether the sections have their texts.
    """

    sections: Sequence[Section]
    facts: Sequence[str] = ()
    choices: Sequence[tuple[str, str]] = ()
    is_disambiguation: bool = False
    is_whole: bool = True

    @property
    def introduction(self) -> str:
        """The text before the first heading, and the facts."""
        return "\n\n".join(filter(None, (self.sections[0].text, "\n".join(self.facts))))

    @property
    def text(self) -> str:
        return "\n\n".join(filter(None, (self.introduction, *(section.markdown for section in self.sections[1:]))))

    def below(self, section: Section) -> str:
        """Return a section with its subsections."""
        later = self.sections[self.sections.index(section) + 1 :]
        inner = takewhile(lambda one: one.level > section.level, later)
        return "\n\n".join(one.markdown for one in (section, *inner))

    def find(self, name_or_number: str) -> Section | None:
        """Return the section with this name, anchor or number, or else the first one whose name starts with it."""
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
        """Name in results."""

    async def search(self, query: str) -> SearchResult:
        """Search titles and texts."""

    async def page(self, title: str) -> Page | None:
        """Return the page with this title, after redirects."""

    async def nearest(self, title: str) -> list[str]:
        """Return up to five titles similar to a title that does not exist."""

    async def article(self, page: Page) -> Article:
        """Read a page."""

    async def introduction(self, page: Page) -> Article:
        """Read at least the introduction of a page."""

    async def section(self, page: Page, article: Article, index: str) -> Article:
        """Read a section of an article that is not whole, with its subsections."""


async def read(html: str) -> Article:
    """Read the HTML of a page in a process that ends with this call."""
    try:
        found = await run_isolated("_wiki.page", None, html.encode("utf-8", "replace"), limits=LIMITS, seconds=SECONDS)
    except Ended as error:
        raise Refused("the page could not be read in time", "use another page") from error
    return await asyncio.to_thread(article_from_blocks, found)


def article_from_blocks(found: Mapping[str, Any]) -> Article:
    """Make an article from the result of `_wiki.page`."""
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
    """Make an article from a wiki's plain text, with headings such as `== History ==`."""
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
    """Make an article from its introduction and the wiki's list of sections."""
    sections = [introduction.sections[0]]
    for entry in entries:
        level, number, title, anchor, index = (
            " ".join(re.sub(r"<[^<>]{0,500}>", "", str(entry.get(key, ""))).split())[:200]  # titles may contain HTML
            for key in ("level", "number", "line", "anchor", "index")
        )
        sections.append(Section(int(level) if re.fullmatch("[1-6]", level) else 2, number, title, anchor, "", index))
    return replace(introduction, sections=tuple(sections), is_whole=False)


def _number_sections(parts: Sequence[tuple[int, str, str, str]]) -> tuple[Section, ...]:
    """Number sections as in a table of contents, even if the page skips heading levels, and drop empty ones."""
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
    below = 7  # level of the last section with text; its parents stay, too
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
