"""Read text, HTML, tables, PDF and Office files as parts with headings.

The bytes are untrusted, so this runs in a child process, see `worker`. Office files need the extra `office`.
"""

import asyncio
import codecs
import csv
import importlib.util
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from brain import Refused, install_command
from specialists._kit.html import page_rules, read_markdown
from specialists._kit.passages import Headings, split_sections
from specialists._kit.text import guess_encoding
from specialists._pictures import reader

MAX_ROWS = 20_000
MAX_COLUMNS = 60
_CELL_LENGTH = 500
KINDS = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd"), "markdown"),
    **dict.fromkeys((".txt", ".text", ".log", ".rst", ".org", ".adoc", ".tex"), "text"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".csv", ".tsv"), "table"),
    ".pdf": "pdf",
    **dict.fromkeys((".docx", ".xlsx", ".xlsm", ".pptx"), "office"),
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


NO_OFFICE = "Office files cannot be read on this server"
DAMAGED = "is damaged or has the wrong extension"


class Unreadable(Exception):
    """Why a file cannot be read, for people."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a file; `place` is `page=3`, `slide=2`, `sheet=Sales` or empty."""

    text: str
    heading: tuple[str, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with one part of a file; other parts may be readable."""

    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read.

    Attributes:
        language: of scanned pages.
        announce: called with the CPU seconds that the next step may take.
    """

    name: str
    data: bytes
    language: str = "en"
    announce: Callable[[float], None] = lambda seconds: None


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
        yield from _read_office(source)
    elif kind == "html":
        yield from _read_html(data)
    elif kind == "markdown":
        yield from (Part(body, heading) for heading, body in split_sections(decode(data)))
    elif kind == "table":
        yield Part(_read_csv(decode(data)))
    elif kind == "old":
        raise Unreadable("has an old Office format: save it as docx, xlsx or pptx")
    else:
        yield Part(decode(data))


def make_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a Markdown table; the first row is the header."""
    width = max(map(len, rows), default=0)
    if not width:
        return ""
    lines = []
    for row in rows:
        cells = [" ".join(text[: _CELL_LENGTH * 2].split()).replace("|", "\\|")[:_CELL_LENGTH] for text in row]
        lines.append("| " + " | ".join([*cells, *[""] * (width - len(row))]) + " |")
    return "\n".join([lines[0], "|" + "---|" * width, *lines[1:]])


# text and HTML

_SAMPLE = 4096
_CONTROL_SHARE = 0.02
_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?\s*([\w-]{1,40})""", re.IGNORECASE)
_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def decode(data: bytes, charset: str | None = None) -> str:
    """Decode text by its byte order mark, the given charset, UTF-8, or a guess.

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
    try:
        text = data.decode(charset or "utf-8")
    except (UnicodeDecodeError, LookupError):
        text = data.decode("cp1252" if charset else guess_encoding(data), "replace")
    return text.replace("\0", " ")


def _read_html(data: bytes) -> Iterator[Part]:
    """Yield the texts of a page by heading; a page without `h1` starts with its title."""
    from selectolax.lexbor import LexborHTMLParser

    charset = _CHARSET.search(data[:_SAMPLE])
    page = LexborHTMLParser(decode(data, charset[1].decode() if charset else None))
    title = page.css_first("title") if page.css_first("h1") is None else None
    heading = " ".join(title.text().split()) if title is not None else ""
    text = read_markdown(page, page_rules())
    for path, body in split_sections(f"# {heading}\n{text}" if heading else text):
        yield Part(body.strip("\n"), path)


def _read_csv(text: str) -> str:
    delimiter = max(",;\t", key=text[:_SAMPLE].count)
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text), delimiter=delimiter):
            if any(row):
                rows.append(row[:MAX_COLUMNS])
            if len(rows) > MAX_ROWS:
                break
    except csv.Error:
        return text
    return make_table(rows)


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


# Office files

MAX_UNPACKED = 200_000_000
MAX_TREE = 20_000_000
"""Maximum bytes of a member that is parsed to a tree, which takes about twenty times its size in memory."""
MAX_RATIO = 100
"""Maximum ratio of unpacked to packed size for members over `RATIO_FROM`; text has about 10, number sheets 30."""
RATIO_FROM = 1_000_000
MAX_MEMBERS = 20_000
MAX_EMPTY_ROWS = 1_000
_STREAMED = ("xl/worksheets/", "xl/sharedStrings.xml")
_PACKAGES = {".docx": "docx", ".xlsx": "openpyxl", ".xlsm": "openpyxl", ".pptx": "pptx"}
_LEVELS = {"Title": 0, **{f"Heading {level}": level for level in range(1, 10)}}


def has_office() -> bool:
    """Whether the extra `office` is installed."""
    return all(importlib.util.find_spec(package) for package in _PACKAGES.values())


def suggest_packages(problem: str) -> Iterator[str]:
    """Yield the install command for a problem that a missing package causes."""
    for missing, extra in ((NO_OFFICE, "office"), (reader.MISSING, "ocr")):
        if missing in problem:
            yield f"{missing}. Try: {install_command(extra)}"


def _read_office(source: Source) -> Iterator[Part | Problem]:
    package = _PACKAGES.get(_ending_of(source.name))
    if package is None:
        raise Unreadable("has no docx, xlsx or pptx extension")
    if importlib.util.find_spec(package) is None:
        raise Unreadable(NO_OFFICE)
    if source.data.startswith(b"\xd0\xcf\x11\xe0"):
        raise Unreadable("is encrypted or in an old Office format: save it as docx, xlsx or pptx without a password")
    file = io.BytesIO(source.data)
    try:
        with zipfile.ZipFile(file) as archive:
            _check_archive(archive, len(source.data))
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise Unreadable(DAMAGED) from error
    yield from {"docx": _read_docx, "openpyxl": _read_xlsx, "pptx": _read_pptx}[package](file)


def _check_archive(archive: zipfile.ZipFile, size: int) -> None:
    """Reject archives that unpack to too much data. The declared sizes of members are not trusted."""
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise Unreadable(f"has more than {MAX_MEMBERS:,} parts")
    if sum(member.compress_size for member in members) > size:
        raise Unreadable("is damaged: its parts overlap")
    if sum(member.file_size for member in members) > MAX_UNPACKED:
        raise Unreadable(f"unpacks to more than {MAX_UNPACKED // 1_000_000} MB")
    for member in members:
        is_tree = member.filename.endswith((".xml", ".rels")) and not member.filename.startswith(_STREAMED)
        if is_tree and member.file_size > MAX_TREE:
            raise Unreadable(f"has a part that unpacks to more than {MAX_TREE // 1_000_000} MB")
        if member.file_size > max(RATIO_FROM, MAX_RATIO * member.compress_size):
            raise Unreadable(f"has a part that unpacks to more than {MAX_RATIO} times its size")
    if archive.testzip() is not None:  # reads in small pieces, because a member may unpack to more than it declares
        raise Unreadable("is damaged: the size or checksum of a part is wrong")


def _read_docx(file: io.BytesIO) -> Iterator[Part]:
    import docx
    from docx.table import Table

    headings, lines = Headings(), list[str]()
    document = docx.Document(file)
    names = {style.style_id: style.name or "" for style in document.styles}
    for block in document.iter_inner_content():
        if isinstance(block, Table):
            lines.append(make_table([[cell.text for cell in row.cells[:MAX_COLUMNS]] for row in block.rows]))
            continue
        text = block.text.strip()
        style = names.get(block._p.style or "", "")  # `block.style` searches all styles
        level = _LEVELS.get(style)
        if level is not None and text:
            yield Part("\n\n".join(lines), headings.path)
            headings.enter(level, text)
            lines = []
        elif text:
            lines.append(f"- {text}" if style.startswith("List") else text)
    yield Part("\n\n".join(lines), headings.path)


def _read_xlsx(file: io.BytesIO) -> Iterator[Part | Problem]:
    import openpyxl

    book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # a file may declare wrong ones
        rows = _read_rows(sheet.iter_rows(values_only=True, max_col=MAX_COLUMNS))
        if len(rows) > MAX_ROWS:
            yield Problem(f"only the first {MAX_ROWS:,} rows of the sheet {sheet.title} were read")
        yield Part(make_table(rows[:MAX_ROWS]), (sheet.title,), f"sheet={sheet.title}")


def _read_rows(rows: Iterable[Iterable[Any]]) -> list[list[str]]:
    """Return up to `MAX_ROWS` + 1 rows that are not empty, until `MAX_EMPTY_ROWS` empty ones follow each other."""
    found: list[list[str]] = []
    empty = 0
    for row in rows:
        cells = [_show_value(value) for value in row]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            found.append(cells)
        empty = 0 if cells else empty + 1
        if empty > MAX_EMPTY_ROWS or len(found) > MAX_ROWS:
            break
    return found


def _show_value(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(" ", "minutes") if value.time().isoformat() != "00:00:00" else value.date().isoformat()
    if isinstance(value, date):
        return value.isoformat()
    return "" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)


def _read_pptx(file: io.BytesIO) -> Iterator[Part]:
    import pptx

    for number, slide in enumerate(pptx.Presentation(file).slides, 1):
        title = slide.shapes.title
        heading = " ".join(title.text_frame.text.split()) if title is not None else ""
        texts = [heading, *(text for text in _read_shapes(slide.shapes) if text != heading)]
        if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) is not None and frame.text.strip():
            texts.append(f"Notes: {frame.text.strip()}")
        yield Part("\n\n".join(filter(None, texts)), (heading,) if heading else (), f"slide={number}")


def _read_shapes(shapes: Iterable[Any]) -> Iterator[str]:
    waiting = [*shapes]
    while waiting:
        shape = waiting.pop(0)
        if hasattr(shape, "shapes"):  # a group
            waiting = [*shape.shapes, *waiting]
        elif getattr(shape, "has_table", False):
            yield make_table([[cell.text for cell in row.cells] for row in shape.table.rows])
        elif getattr(shape, "has_text_frame", False):
            yield "\n".join(line for paragraph in shape.text_frame.paragraphs if (line := paragraph.text.strip()))
