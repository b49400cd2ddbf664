"""The text of a file, in parts with the headings above them: text, HTML, tables, PDF and Office files.

The bytes are a stranger's, so all this runs in a process that can be killed, see `worker`. Office files need the
packages of the extra `office`.
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


class Unreadable(Exception):
    """Why a file cannot be read, in words for people."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a file; `place` is `page=3`, `slide=2`, `sheet=Sales` or empty."""

    text: str
    heading: tuple[str, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What could not be read of a file of which other parts could."""

    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """A file to be read.

    Attributes:
        language: of scanned pages.
        announce: called with the seconds of CPU time that the next step may take.
    """

    name: str
    data: bytes
    language: str = "en"
    announce: Callable[[float], None] = lambda seconds: None


def detect_kind(name: str, media_type: str = "") -> str | None:
    """Which reader reads a file of this name, and for an upload, this media type; None when none does."""
    ending = _ending_of(name)
    if ending in KINDS:
        return KINDS[ending]
    if media_type in _KIND_OF_TYPE:
        return _KIND_OF_TYPE[media_type]
    return "text" if media_type.startswith("text/") or ending == "" else None


def _ending_of(name: str) -> str:
    stem, dot, ending = name.rpartition("/")[2].rpartition(".")
    return f".{ending.lower()}" if dot and stem else ""


def read_parts(source: Source, kind: str) -> Iterator[Part | Trouble]:
    """The parts of a file in their order.

    Raises:
        Unreadable: and anything that a reader of foreign files may raise.
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
        raise Unreadable("an old Office format; save it as docx, xlsx or pptx")
    else:
        yield Part(decode(data))


def make_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table; the first one is its header."""
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
    """The text in these bytes: by its byte order mark or the charset given, else UTF-8, else the likeliest one.

    Raises:
        Unreadable: when they are no text.
    """
    for mark, name in _BOMS.items():
        if data.startswith(mark):
            return data.decode(name, "replace")
    sample = data[:_SAMPLE]
    if b"\0" in sample:  # UTF-16 without a mark: of Latin letters, every other byte is null
        for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
            if sample[start::2].count(0) > 0.7 * len(sample[start::2]) and not sample[1 - start :: 2].count(0):
                return data.decode(name, "replace")
        raise Unreadable("not text, though its name says so")
    if sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in sample) > len(sample) * _CONTROL_SHARE:
        raise Unreadable("not text, though its name says so")
    try:
        text = data.decode(charset or "utf-8")
    except (UnicodeDecodeError, LookupError):
        text = data.decode("cp1252" if charset else guess_encoding(data), "replace")
    return text.replace("\0", " ")


def _read_html(data: bytes) -> Iterator[Part]:
    """The texts of a page under their headings; a page without a first heading goes by its title."""
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
"""CPU time in this process for a batch of pages that other processes read."""
PAGE_SECONDS = 500.0
_CHAPTER = re.compile(
    r"(?:chapter|part|section|appendix|kapitel|teil|anhang|chapitre|capítulo)\s+\w{1,8}\b.{0,80}", re.I
)
_NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,3})\.?\s+([^\W\d].{1,80})")


def _read_pdf(source: Source) -> Iterator[Part | Trouble]:
    """The text of each page, under the headings that its lines look like; scanned pages are read by OCR."""
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
                unread.append((page, "damaged, or it takes too long"))
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
        yield Trouble(f"only the first {MAX_PAGES} of {count} pages were read")
    if unread:
        number, reason = unread[0]
        which = "no page" if len(unread) == count else f"{count - len(unread)} of {count} pages"
        yield Trouble(f"{which} could be read: page {number}: {reason}")


def _read_text_layers(source: Source, wanted: Sequence[int]) -> reader.Pages:
    try:
        return asyncio.run(reader.open_pages(source.data, name=source.name, numbers=wanted))
    except Refused as refusal:
        raise Unreadable(refusal.reason) from refusal


def _recognize(source: Source, page: int) -> str:
    """The text of a scanned page.

    Raises:
        Unreadable: when there is no OCR engine, or it cannot read the page.
    """
    if problem := reader.find_problem():
        raise Unreadable(f"it is scanned, and {problem}")
    call = reader.read_page(source.data, name=source.name, page=page, language=source.language, seconds=PAGE_SECONDS)
    try:
        return asyncio.run(call).text
    except Refused as refusal:
        raise Unreadable(refusal.reason) from refusal


def _split_at_headings(text: str, headings: Headings, place: str) -> Iterator[Part]:
    lines: list[str] = []
    text = re.sub("[\ufffe\x02]\r?\n?", "", text).replace("\x00", "")  # hyphens at which PDFium says words were broken
    for line in text.splitlines():
        if heading := _detect_heading(line.strip()):
            yield Part("\n".join(lines), headings.path, place)
            headings.enter(*heading)
            lines = []
        lines.append(line)
    yield Part("\n".join(lines), headings.path, place)


def _detect_heading(line: str) -> tuple[int, str] | None:
    """Level and title of a line that looks like a heading: `Chapter 3 …`, or `2.1 Title` without an end of sentence."""
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
"""Bytes of a member that becomes a tree in memory, of about twenty times its size."""
MAX_RATIO = 100
"""Of unpacked to packed size, for members larger than `RATIO_FROM`; text has about 10, sheets of numbers 30."""
RATIO_FROM = 1_000_000
MAX_MEMBERS = 20_000
MAX_EMPTY_ROWS = 1_000
_STREAMED = ("xl/worksheets/", "xl/sharedStrings.xml")
_PACKAGES = {".docx": "docx", ".xlsx": "openpyxl", ".xlsm": "openpyxl", ".pptx": "pptx"}
_LEVELS = {"Title": 0, **{f"Heading {level}": level for level in range(1, 10)}}


def has_office() -> bool:
    """Whether the packages of the extra `office` are installed."""
    return all(importlib.util.find_spec(package) for package in _PACKAGES.values())


def _read_office(source: Source) -> Iterator[Part | Trouble]:
    package = _PACKAGES.get(_ending_of(source.name))
    if package is None:
        raise Unreadable("no docx, xlsx or pptx by its name")
    if importlib.util.find_spec(package) is None:
        raise Unreadable(f"Office files need an extra: {install_command('office')}")
    if source.data.startswith(b"\xd0\xcf\x11\xe0"):
        raise Unreadable("encrypted, or in an old Office format; save it as docx, xlsx or pptx without a password")
    file = io.BytesIO(source.data)
    try:
        with zipfile.ZipFile(file) as archive:
            _check_archive(archive, len(source.data))
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise Unreadable("damaged: not what its name says") from error
    yield from {"docx": _read_docx, "openpyxl": _read_xlsx, "pptx": _read_pptx}[package](file)


def _check_archive(archive: zipfile.ZipFile, size: int) -> None:
    """Refuses what would unpack to more than it should. The sizes that members state are not trusted."""
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise Unreadable(f"it has more than {MAX_MEMBERS:,} parts")
    if sum(member.compress_size for member in members) > size:
        raise Unreadable("damaged: its parts overlap")
    if sum(member.file_size for member in members) > MAX_UNPACKED:
        raise Unreadable(f"it unpacks to more than {MAX_UNPACKED // 1_000_000} MB")
    for member in members:
        is_tree = member.filename.endswith((".xml", ".rels")) and not member.filename.startswith(_STREAMED)
        if is_tree and member.file_size > MAX_TREE:
            raise Unreadable(f"a part of it unpacks to more than {MAX_TREE // 1_000_000} MB")
        if member.file_size > max(RATIO_FROM, MAX_RATIO * member.compress_size):
            raise Unreadable(f"a part of it unpacks to more than {MAX_RATIO} times its size")
    if archive.testzip() is not None:  # in small pieces: read as a whole, a member unpacks to more than it states
        raise Unreadable("damaged: a part of it is not as large as it says, or was changed")


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
        style = names.get(block._p.style or "", "")  # `block.style` looks through all styles each time
        level = _LEVELS.get(style)
        if level is not None and text:
            yield Part("\n\n".join(lines), headings.path)
            headings.enter(level, text)
            lines = []
        elif text:
            lines.append(f"- {text}" if style.startswith("List") else text)
    yield Part("\n\n".join(lines), headings.path)


def _read_xlsx(file: io.BytesIO) -> Iterator[Part | Trouble]:
    import openpyxl

    book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # which a file may state wrongly
        rows = _read_rows(sheet.iter_rows(values_only=True, max_col=MAX_COLUMNS))
        if len(rows) > MAX_ROWS:
            yield Trouble(f"of the sheet {sheet.title}, only the first {MAX_ROWS:,} rows were read")
        yield Part(make_table(rows[:MAX_ROWS]), (sheet.title,), f"sheet={sheet.title}")


def _read_rows(rows: Iterable[Iterable[Any]]) -> list[list[str]]:
    """The rows that are not empty, until one too many; many empty ones end the sheet."""
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
