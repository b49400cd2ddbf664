"""How a page, its beginning, one of its sections or a choice of pages is told to a model."""

import json
import re
from collections.abc import Callable, Sequence

from brain import Citation, Refused, Result
from specialists._wiki.article import Article, Hit, Page, Section

FOUND_LENGTH = 1500
"""Characters of the introduction in the answer to a search."""
BEGINNING_LENGTH = 3000
"""Of the introduction of a page that was asked for. A page no longer than this is given as a whole."""
TEXT_MOST = 200_000
SECTIONS_SHOWN = 60
CHOICES_SHOWN = 40
OTHERS_SHOWN = 5
_SENTENCE_END = re.compile(r"[.!?][\"'”’)\]]?(?=\s)|[。！？]|\n")


def search_result(label: str, page: Page, article: Article, others: Sequence[Hit]) -> Result:
    """What a search found: the beginning of the best page, and others."""
    introduction = shorten(article.introduction or article.text, FOUND_LENGTH)
    parts = [introduction, list_sections(article.sections[1:]), f"To read on, ask with {_page_parameter(page)}."]
    lines = [f"- {hit.title}: {hit.line}" if hit.line else f"- {hit.title}" for hit in others[:OTHERS_SHOWN]]
    if lines:
        parts.append("\n".join(["Other pages found:", *lines]))
    return _result(label, page, "\n\n".join(filter(None, parts)))


def page_result(label: str, page: Page, article: Article) -> Result:
    """The introduction of a page and what else there is; all of it when it is short."""
    if article.whole and len(article.text) <= BEGINNING_LENGTH:
        return _result(label, page, article.text or "(The page is empty.)")
    parts = [shorten(article.introduction, BEGINNING_LENGTH), list_sections(article.sections[1:])]
    if article.whole:
        parts.append(f"The whole text has {len(article.text):,} characters; it begins with offset=0.")
    return _result(label, page, "\n\n".join(filter(None, parts)))


def passage_result(label: str, page: Page, text: str, section: Section | None, offset: int) -> Result:
    """The text of a page or of one of its sections from an offset on."""
    if len(text) > TEXT_MOST:
        text = f"{text[:TEXT_MOST]} …\n\n(There is more than can be read on; ask for a section by its name.)"
    text = text or "(There is no text.)"
    if offset and offset >= len(text):
        raise Refused(f"that text has only {len(text)} characters; ask with a smaller offset")
    heading = f"(From character {offset} of {len(text)}.)\n\n" if offset else ""
    where = f"{_page_parameter(page)}, " + (f'section="{section.number or 0}", ' if section else "")
    head = len(_head(label, page)) + len(heading)
    return _result(
        label, page, heading + text[offset:], lambda shown: f"ask with {where}offset={offset + max(0, shown - head)}"
    )


def choices(label: str, page: Page, article: Article) -> Result:
    """The pages that a title may mean."""
    lines: dict[str, str] = {}
    for title, line in article.choices:
        if title != page.title:
            lines.setdefault(title, f"- {line}" if line.startswith(title) else f"- {title}: {line}")
    one = f"page= one of these{page.where}"
    parts = f"This title may mean several things. Ask again with {one}, or ask the user which is meant:"
    return _result(label, page, "\n".join([parts, *list(lines.values())[:CHOICES_SHOWN]]))


def list_sections(sections: Sequence[Section]) -> str:
    """The sections there are; only the upper ones if they are many."""
    if len(sections) > SECTIONS_SHOWN:
        sections = [section for section in sections if "." not in section.number][:SECTIONS_SHOWN]
    listed = "; ".join(f"{section.number} {section.title}".strip() for section in sections)
    return f"Sections (ask with section=): {listed}" if listed else ""


def no_section(page: Page, article: Article, name: str) -> Refused:
    """Says which ones there are, as far as there is room."""
    listed = "; ".join(f"{section.number} {section.title}".strip() for section in article.sections[1:])
    known = f"there are: {_shorten_list(listed, 250)}" if listed else "it has none; leave the section out"
    return Refused(f"'{page.title[:60]}' has no section '{name[:40]}'; {known}")


def too_long(page: Page, article: Article) -> Refused:
    """For a page that can be had in sections only."""
    known = _shorten_list(
        "; ".join(f"{section.number} {section.title}".strip() for section in article.sections[1:]), 250
    )
    return Refused(f"'{page.title[:60]}' is too long to be read as a whole; ask for a section: {known}")


def no_page(label: str, title: str, nearest: Sequence[str]) -> Refused:
    """Says which titles come near."""
    near = f"; nearest: {_shorten_list(', '.join(nearest), 250)}" if nearest else "; search with query and other words"
    return Refused(f"{label} has no page '{title[:80]}'{near}")


def nothing(label: str, query: str, nearest: Sequence[str]) -> Refused:
    """Says what to try instead."""
    near = f"; did you mean: {_shorten_list(', '.join(nearest), 250)}?" if nearest else ""
    return Refused(f"{label} has nothing about '{query[:80]}'{near or '; try fewer or other words'}")


def shorten(text: str, most: int) -> str:
    """At the end of the last sentence in the second half, else at a word."""
    if len(text) <= most:
        return text
    ends = [end.end() for end in _SENTENCE_END.finditer(text, most // 2, most)]
    return f"{text[: ends[-1]].rstrip() if ends else text[:most].rpartition(' ')[0] or text[:most]} …"


def _page_parameter(page: Page) -> str:
    """By what a model asks for it again."""
    return f"page={_quote(page.title)}{page.where}"


def _result(label: str, page: Page, body: str, more: Callable[[int], str] | None = None) -> Result:
    citation = Citation(page.title, f"{page.title}, {label}{_version(page)}", page.url)
    return Result(f"{_head(label, page)}{body}", citations=(citation,), more=more)


def _version(page: Page) -> str:
    revision = f", revision {page.revision}" if page.revision else ""
    return f"{revision} of {page.date}" if page.date else revision


def _head(label: str, page: Page) -> str:
    source = f"Source: {page.url}" if page.url else "Version" if _version(page) else ""
    parts = [f"{source}{_version(page)}." if source else ""]
    parts.append(f"Text: {page.licence}." if page.licence else "")
    parts.append(f"Redirected from '{page.redirected_from}'." if page.redirected_from else "")
    return "\n".join(filter(None, (f"📚 {label} '{page.title}'", " ".join(filter(None, parts))))) + "\n\n"


def _quote(title: str) -> str:
    """As it has to stand in the parameters of a call."""
    return json.dumps(title, ensure_ascii=False)


def _shorten_list(listed: str, most: int) -> str:
    return listed if len(listed) <= most else listed[:most].rpartition(",")[0] + " …"
