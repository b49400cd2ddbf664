"""Read text, HTML, tables, PDF and Office files as parts with headings.

The bytes are untrusted, so this runs in a child process, see `worker`.
"""

import asyncio
import codecs
import contextlib
import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from brain import Page, Refused, install_command
from specialists._kit.html import page_rules, read_markdown
from specialists._kit.passages import Headings, split_sections
from specialists._kit.text import guess_encoding, repair
from specialists._knowledge.office import MAX_COLUMNS, MAX_ROWS, NO_EXCEL, read_office
from specialists._knowledge.parts import Part, Problem, Source, Unreadable, make_table
from specialists._pictures import reader

OFFICE_ENDINGS = (".docx", ".xlsx", ".xlsm", ".pptx")
KINDS = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd"), "markdown"),
    **dict.fromkeys((".txt", ".text", ".log", ".rst", ".org", ".adoc", ".tex"), "text"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".csv", ".tsv"), "table"),
    ".pdf": "pdf",
    **dict.fromkeys(OFFICE_ENDINGS, "office"),
    **dict.fromkeys((".doc", ".xls", ".ppt"), "old"),
}
_KIND_OF_TYPE = {
    "text/markdown": "markdown",
    "text/html": "html",
    "text/csv": "table",
    "application/pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "office",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "office",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "office",
}


def detect_kind(name: str, media_type: str = "") -> str | None:
    """Return the kind of a file by its name, and for an upload by its media type; None if it is not supported."""
    ending = _ending_of(name)
    if ending in KINDS:
        return KINDS[ending]
    if media_type in _KIND_OF_TYPE:
        return _KIND_OF_TYPE[media_type]
    return "text" if media_type.startswith("text/") or ending == "" else None


def _ending_of(name: str) -> str:
    stem, dot, ending = name.rpartition("/")[2].rpartition(".")
    return f".{ending.lower()}" if dot and stem else ""


def read_parts(source: Source, kind: str) -> Iterator[Part | Problem]:
    """Yield the parts of a file in order.

    Raises:
        Unreadable: if the file cannot be read. Libraries may raise other exceptions for hostile files.
    """
    data = source.data
    if kind == "pdf" or data.startswith(b"%PDF-"):
        yield from _read_pdf(source)
    elif kind == "office":
        if (ending := _ending_of(source.name)) not in OFFICE_ENDINGS:
            raise Unreadable("has no docx, xlsx or pptx extension")
        yield from read_office(data, ending)
    elif kind == "html":
        yield from _read_html(data)
    elif kind == "markdown":
        yield from (Part(body, heading) for heading, body in split_sections(decode(data)))
    elif kind == "table":
        yield from _read_csv(decode(data))
    elif kind == "old":
        raise Unreadable("has an old Office format: save it as docx, xlsx or pptx")
    else:
        yield Part(decode(data))


# text and HTML

_SAMPLE = 4096
_CONTROL_SHARE = 0.02
_CHARSET = re.compile(rb"<meta[^>]{0,300}charset", re.IGNORECASE)
_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def decode(data: bytes, *, is_page: bool = False) -> str:
    """Decode text by its byte order mark, the charset that a page declares, UTF-8, or a guess.

    Raises:
        Unreadable: if the bytes are not text.
    """
    for mark, name in _BOMS.items():
        if data.startswith(mark):
            return data.decode(name, "replace")
    sample = data[:_SAMPLE]
    if b"\0" in sample:  # UTF-16 without a mark: every other byte of Latin letters is null
        for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
            if sample[start::2].count(0) > 0.7 * len(sample[start::2]) and not sample[1 - start :: 2].count(0):
                return data.decode(name, "replace")
        raise Unreadable("is not text")
    if sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in sample) > len(sample) * _CONTROL_SHARE:
        raise Unreadable("is not text")
    if is_page and _CHARSET.search(sample):
        try:
            return repair(Page("", 200, "text/html", {}, data).text, data).replace("\0", " ")
        except Refused as refused:
            raise Unreadable("is in an encoding that is not read") from refused
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode(guess_encoding(data), "replace")
    return text.replace("\0", " ")


def _read_html(data: bytes) -> Iterator[Part]:
    """Yield the texts of a page by heading; a page without `h1` starts with its title."""
    from selectolax.lexbor import LexborHTMLParser

    page = LexborHTMLParser(decode(data, is_page=True))
    title = page.css_first("title") if page.css_first("h1") is None else None
    heading = " ".join(title.text().split()) if title is not None else ""
    text = read_markdown(page, page_rules())
    for path, body in split_sections(f"# {heading}\n{text}" if heading else text):
        yield Part(body.strip("\n"), path)


_DELIMITERS = "\t;|,"
"""In this order where several fit: a comma may also be in numbers and sentences."""
_SAMPLE_ROWS = 200


def _read_csv(text: str) -> Iterator[Part | Problem]:
    delimiter, text = _find_delimiter(text)
    rows: list[list[str]] = []
    columns = 0
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True):
            if any(row):
                rows.append(row[:MAX_COLUMNS])
                columns = max(columns, len(row))
            if len(rows) > MAX_ROWS:
                yield Problem(f"only the first {MAX_ROWS:,} rows were read")
                break
    except csv.Error:
        yield Part(text)
        return
    if columns > MAX_COLUMNS:
        yield Problem(f"only the first {MAX_COLUMNS} of {columns} columns were read")
    yield Part(make_table(rows[:MAX_ROWS]))


def _find_delimiter(text: str) -> tuple[str, str]:
    """Return the delimiter that gives the most rows the same number of cells, and the text after Excel's `sep=`."""
    first, _, rest = text.partition("\n")
    if declared := re.fullmatch(r'sep=([^\w "\r])\r?', first):
        return declared[1], rest
    best = (0.0, ",")
    for delimiter in _DELIMITERS:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
        with contextlib.suppress(csv.Error):
            widths = Counter(len(row) for row in itertools.islice(reader, _SAMPLE_ROWS) if any(row))
            width, count = max(widths.items(), key=lambda one: (one[0] > 1, one[1]), default=(0, 0))
            if width > 1 and count / widths.total() > best[0]:
                best = (count / widths.total(), delimiter)
    return best[1], text


# PDF

MAX_PAGES = 3_000
MAX_SCANNED = 300
BATCH = 50
BATCH_SECONDS = 60
"""CPU time of this process for a batch of pages, which other processes read."""
PAGE_SECONDS = 500.0
_CHAPTER = re.compile(
    r"(?:chapter|part|section|appendix|kapitel|teil|anhang|chapitre|capítulo)\s+\w{1,8}\b.{0,80}", re.I
)
_NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,3})\.?\s+([^\W\d].{1,80})")


def _read_pdf(source: Source) -> Iterator[Part | Problem]:
    """Yield the text of each page, split at lines that look like headings; scanned pages go to OCR."""
    headings, scanned = Headings(), 0
    unread: list[tuple[int, str]] = []
    count = _read_text_layers(source, ()).count
    for first in range(1, min(count, MAX_PAGES) + 1, BATCH):
        source.announce(BATCH_SECONDS)
        batch = range(first, min(first + BATCH, count + 1, MAX_PAGES + 1))
        texts = _read_text_layers(source, batch).texts
        for page in batch:
            text = texts.get(page)
            if text is None:
                unread.append((page, "damaged or too slow to read"))
            elif text == "" and scanned < MAX_SCANNED:
                source.announce(BATCH_SECONDS)
                scanned += 1
                try:
                    text = _recognize(source, page)
                except Unreadable as error:
                    unread.append((page, str(error)))
            if text:
                yield from _split_at_headings(text, headings, f"page={page}")
    if count > MAX_PAGES:
        yield Problem(f"only the first {MAX_PAGES} of {count} pages were read")
    if unread:
        number, reason = unread[0]
        yield Problem(f"{len(unread)} of {count} pages cannot be read: page {number}: {reason}")


def _read_text_layers(source: Source, wanted: Sequence[int]) -> reader.Pages:
    try:
        return asyncio.run(reader.open_pages(source.data, name=source.name, numbers=wanted))
    except Refused as refusal:
        raise Unreadable(refusal.reason) from refusal


def _recognize(source: Source, page: int) -> str:
    """Read a scanned page.

    Raises:
        Unreadable: if there is no OCR engine, or it cannot read the page.
    """
    if problem := reader.find_problem():
        raise Unreadable(f"is a scan, and {problem}")
    call = reader.read_page(source.data, name=source.name, page=page, language=source.language, seconds=PAGE_SECONDS)
    try:
        return asyncio.run(call).text
    except Refused as refusal:
        raise Unreadable(refusal.reason) from refusal


def _split_at_headings(text: str, headings: Headings, place: str) -> Iterator[Part]:
    lines: list[str] = []
    text = re.sub("[\ufffe\x02]\r?\n?", "", text).replace("\x00", "")  # PDFium's marks for hyphens at line ends
    for line in text.splitlines():
        if heading := _detect_heading(line.strip()):
            yield Part("\n".join(lines), headings.path, place)
            headings.enter(*heading)
            lines = []
        lines.append(line)
    yield Part("\n".join(lines), headings.path, place)


def _detect_heading(line: str) -> tuple[int, str] | None:
    """Return level and title of a line that looks like a heading: `Chapter 3 …`, or `2.1 Title` without a period."""
    if len(line) > 100 or line.endswith((".", ",", ";", ":")) or "...." in line:
        return None
    if _CHAPTER.fullmatch(line):
        return 1, line
    numbered = _NUMBERED.fullmatch(line)
    if numbered and numbered[2][0].isupper() and len(numbered[2].split()) <= 10:
        return 2 + numbered[1].count("."), line
    return None


def suggest_packages(problem: str) -> Iterator[str]:
    """Yield the install command for a problem that a missing package causes."""
    for missing, extra in ((NO_EXCEL, "office"), (reader.MISSING, "ocr")):
        if missing in problem:
            yield f"{missing}. Try: {install_command(extra)}"
