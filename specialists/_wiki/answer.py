"""Results and refusals of `wiki`: a page, its introduction, a section, or a choice of pages."""

import json
import re
from collections.abc import Callable, Sequence

from brain import Citation, Refused, Result
from specialists._wiki.article import Article, Hit, Page, Section

SEARCH_LENGTH = 1500
"""Maximum characters of the introduction in a search result."""
PAGE_LENGTH = 3000
"""Maximum characters of the introduction of a page. A shorter page is returned whole."""
MAX_TEXT = 200_000
SECTIONS_SHOWN = 60
CHOICES_SHOWN = 40
OTHERS_SHOWN = 5
LIST_LENGTH = 250
"""Maximum characters of a list in a refusal."""
_SENTENCE_END = re.compile(r"[.!?][\"'”’)\]]?(?=\s)|[。！？]|\n")


def show_hit(label: str, page: Page, article: Article, others: Sequence[Hit]) -> Result:
    """Return the introduction of the best page of a search, and a list of other pages."""
    introduction = _shorten(article.introduction or article.text, SEARCH_LENGTH)
    blocks = [introduction, _offer_sections(article), f"To read the page, call wiki with {_format_parameters(page)}."]
    if others:
        lines = [f"- {hit.title}: {hit.line}" if hit.line else f"- {hit.title}" for hit in others[:OTHERS_SHOWN]]
        blocks.append("\n".join(["Other pages found:", *lines]))
    return _make_result(label, page, "\n\n".join(filter(None, blocks)))


def show_page(label: str, page: Page, article: Article) -> Result:
    """Return the introduction of a page and its list of sections, or all of a short page."""
    if article.is_whole and len(article.text) <= PAGE_LENGTH:
        return _make_result(label, page, article.text or "(The page is empty.)")
    blocks = [_shorten(article.introduction, PAGE_LENGTH), _offer_sections(article)]
    if article.is_whole:
        blocks.append(f"The whole text has {len(article.text):,} characters. To read it, start with offset=0.")
    return _make_result(label, page, "\n\n".join(filter(None, blocks)))


def show_text(label: str, page: Page, text: str, section: Section | None, offset: int) -> Result:
    """Return the text of a page or section from an offset on."""
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]} …\n\n(The text is too long to continue. Read a section by its name.)"
    text = text or "(There is no text.)"
    if offset and offset >= len(text):
        raise Refused(f"the offset is {offset:,}, but the text has {len(text):,} characters", "use a smaller offset")
    note = f"(From character {offset} of {len(text)}.)\n\n" if offset else ""
    parameters = _format_parameters(page) + (f', section="{section.number or 0}"' if section else "")
    head = len(_make_head(label, page)) + len(note)
    return _make_result(
        label,
        page,
        note + text[offset:],
        lambda shown: f"call again with {parameters}, offset={offset + max(0, shown - head)}",
    )


def show_choices(label: str, page: Page, article: Article) -> Result:
    """Return the list of pages that a title may mean."""
    lines: dict[str, str] = {}
    for title, line in article.choices:
        if title != page.title:
            lines.setdefault(title, f"- {line}" if line.startswith(title) else f"- {title}: {line}")
    head = f"This title may mean several things. Call again with page= one of these{page.where}, or ask the user:"
    return _make_result(label, page, "\n".join([head, *list(lines.values())[:CHOICES_SHOWN]]))


def refuse_section(page: Page, article: Article, name: str) -> Refused:
    sections = article.sections[1:]
    advice = f"use one of: {_list_names(_name_sections(sections))}" if sections else "leave section out"
    return Refused(f"'{page.title[:60]}' has no section '{name[:40]}'", advice)


def refuse_whole(page: Page, article: Article) -> Refused:
    """For a page of which only single sections can be fetched."""
    sections = _list_names(_name_sections(article.sections[1:]))
    return Refused(f"'{page.title[:60]}' is too long to read whole", f"read a section: {sections}")


def refuse_page(label: str, title: str, nearest: Sequence[str]) -> Refused:
    advice = f"use one of: {_list_names(nearest)}" if nearest else "search with query and other words"
    return Refused(f"{label} has no page '{title[:80]}'", advice)


def refuse_search(label: str, query: str, nearest: Sequence[str]) -> Refused:
    advice = f"search for one of: {_list_names(nearest)}" if nearest else "use fewer or other words"
    return Refused(f"{label} has nothing about '{query[:80]}'", advice)


def _offer_sections(article: Article) -> str:
    """Return the list of sections, without subsections if there are many."""
    sections = article.sections[1:]
    if len(sections) > SECTIONS_SHOWN:
        sections = [section for section in sections if "." not in section.number][:SECTIONS_SHOWN]
    return f"Sections (to read one, use section=): {'; '.join(_name_sections(sections))}" if sections else ""


def _name_sections(sections: Sequence[Section]) -> list[str]:
    return [f"{section.number} {section.title}".strip() for section in sections]


def _list_names(names: Sequence[str]) -> str:
    listed = ", ".join(names)
    return listed if len(listed) <= LIST_LENGTH else listed[:LIST_LENGTH].rpartition(",")[0] + " …"


def _shorten(text: str, length: int) -> str:
    """Cut a text after the last sentence in its second half, or else between words."""
    if len(text) <= length:
        return text
    ends = [end.end() for end in _SENTENCE_END.finditer(text, length // 2, length)]
    return f"{text[: ends[-1]].rstrip() if ends else text[:length].rpartition(' ')[0] or text[:length]} …"


def _format_parameters(page: Page) -> str:
    """Return the parameters of a call for this page."""
    return f"page={json.dumps(page.title, ensure_ascii=False)}{page.where}"


def _make_result(label: str, page: Page, body: str, more: Callable[[int], str] | None = None) -> Result:
    citation = Citation(page.title, f"{page.title}, {label}{_format_version(page)}", page.url)
    return Result(f"{_make_head(label, page)}{body}", citations=(citation,), more=more)


def _make_head(label: str, page: Page) -> str:
    source = f"Source: {page.url}" if page.url else "Version" if _format_version(page) else ""
    facts = [
        f"{source}{_format_version(page)}." if source else "",
        f"Text: {page.licence}." if page.licence else "",
        f"Redirected from '{page.redirected_from}'." if page.redirected_from else "",
    ]
    return "\n".join(filter(None, (f"📚 {label} '{page.title}'", " ".join(filter(None, facts))))) + "\n\n"


def _format_version(page: Page) -> str:
    revision = f", revision {page.revision}" if page.revision else ""
    return f"{revision} of {page.date}" if page.date else revision
