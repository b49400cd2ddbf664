"""The pages of a PDF: its text layer, and for pages that have none, what an OCR engine reads."""

import asyncio
import re
from collections.abc import Iterator, Sequence

from brain import Refused
from specialists._kit.passages import Headings
from specialists._knowledge.parts import Part, Source, Trouble, Unreadable
from specialists._pictures import reader

PAGES_MOST = 3_000
SCANNED_MOST = 300
BATCH = 50
BATCH_SECONDS = 60
"""Of CPU time, for what is done here with the pages that other processes read."""
PAGE_SECONDS = 500.0
_CHAPTER = re.compile(
    r"(?:chapter|part|section|appendix|kapitel|teil|anhang|chapitre|capítulo)\s+\w{1,8}\b.{0,80}", re.I
)
_NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,3})\.?\s+([^\W\d].{1,80})")


def pdf_parts(source: Source) -> Iterator[Part | Trouble]:
    """The text of each page, under the headings that its lines look like.

    Raises:
        Unreadable: when nothing of it can be read.
    """
    headings, unread = Headings(), _UnreadPages()
    pages, scanned = _read_layer(source, ()).count, 0
    for first in range(1, min(pages, PAGES_MOST) + 1, BATCH):
        source.busy(f"page {first} of {pages}", BATCH_SECONDS)
        batch = range(first, min(first + BATCH, pages + 1, PAGES_MOST + 1))
        texts = _read_layer(source, batch).texts
        for page in batch:
            text = texts.get(page)
            if text == "" and scanned < SCANNED_MOST:
                source.busy(f"page {page} of {pages}", BATCH_SECONDS)
                scanned += 1
                text = _recognize(source, page, unread)
            elif text is None:
                unread.add(page, "damaged, or it takes too long")
            if not text:
                continue
            yield from _parts(text, headings, f"page={page}")
    if pages > PAGES_MOST:
        yield Trouble(f"only the first {PAGES_MOST} of {pages} pages were read")
    if unread.pages:
        yield Trouble(unread.describe(pages))


class _UnreadPages:
    """Pages that could not be read, and why the first of them."""

    def __init__(self) -> None:
        self.pages: list[int] = []
        self._reason = ""

    def add(self, page: int, reason: str) -> None:
        self._reason = self._reason or reason
        self.pages.append(page)

    def describe(self, of: int) -> str:
        which = "no page" if len(self.pages) == of else f"{of - len(self.pages)} of {of} pages"
        return f"{which} could be read: page {self.pages[0]}: {self._reason}"


def _read_layer(source: Source, wanted: Sequence[int]) -> reader.Pages:
    """The number of pages, and the text layers of those that are wanted.

    Raises:
        Unreadable: for a file that cannot be opened.
    """
    try:
        return asyncio.run(reader.pages(source.data, name=source.name, wanted=wanted))
    except Refused as refusal:
        raise Unreadable(refusal.reason) from refusal


def _recognize(source: Source, page: int, unread: "_UnreadPages") -> str:
    """What OCR reads on a page; nothing when there is no engine, or it cannot read the page."""
    lacking = reader.missing()
    if lacking:
        unread.add(page, f"it is scanned, and {lacking}")
        return ""
    read = reader.page_text(source.data, name=source.name, page=page, language=source.language, seconds=PAGE_SECONDS)
    try:
        return asyncio.run(read).text
    except Refused as refusal:
        unread.add(page, refusal.reason)
        return ""


def _parts(text: str, headings: Headings, place: str) -> Iterator[Part]:
    lines: list[str] = []
    for line in _mend(text).splitlines():
        found = _heading(line.strip())
        if found:
            yield Part("\n".join(lines), headings.path, place)
            headings.enter(*found)
            lines = []
        lines.append(line)
    yield Part("\n".join(lines), headings.path, place)


def _heading(line: str) -> tuple[int, str] | None:
    """Level and title of a line that looks like a heading: `Chapter 3 …`, or `2.1 Title` without an end of sentence."""
    if len(line) > 100 or line.endswith((".", ",", ";", ":")) or "...." in line:
        return None
    if _CHAPTER.fullmatch(line):
        return 1, line
    numbered = _NUMBERED.fullmatch(line)
    if numbered and numbered[2][0].isupper() and len(numbered[2].split()) <= 10:
        return 2 + numbered[1].count("."), line
    return None


def _mend(text: str) -> str:
    """Without the hyphens at which PDFium says that words were broken."""
    return re.sub("[\ufffe\x02]\r?\n?", "", text).replace("\x00", "")
