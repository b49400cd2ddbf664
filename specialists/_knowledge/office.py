"""The text of docx, xlsx and pptx files, through the packages of the extra `office`."""

import importlib.util
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from io import BytesIO
from typing import Any

from specialists._kit.passages import Headings
from specialists._knowledge.parts import COLUMNS_MOST, ROWS_MOST, Part, Trouble, Unreadable, table

INSTALL = "pip install 'brain-sse[office]'"
UNPACKED_MOST = 200_000_000
PART_MOST = 20_000_000
"""Bytes of a part that becomes a tree in memory, of about twenty times its size."""
RATIO_MOST = 100
"""Of unpacked to packed size, for parts larger than `RATIO_FROM`; text comes to about 10, sheets of numbers to 30."""
RATIO_FROM = 1_000_000
MEMBERS_MOST = 20_000
_STREAMED = ("xl/worksheets/", "xl/sharedStrings.xml")
EMPTY_ROWS_MOST = 1_000
_PACKAGES = {".docx": "docx", ".xlsx": "openpyxl", ".xlsm": "openpyxl", ".pptx": "pptx"}
_LEVEL = {"Title": 0, **{f"Heading {level}": level for level in range(1, 10)}}


def is_installed() -> bool:
    return all(importlib.util.find_spec(package) for package in _PACKAGES.values())


def office_parts(data: bytes, ending: str) -> Iterator[Part | Trouble]:
    """The parts of an Office file.

    Raises:
        Unreadable: when it is encrypted, damaged, a zip bomb, or the extra is missing.
    """
    package = _PACKAGES.get(ending)
    if package is None:
        raise Unreadable("no docx, xlsx or pptx by its name")
    if importlib.util.find_spec(package) is None:
        raise Unreadable(f"Office files need an extra: {INSTALL}")
    _check(data)
    yield from {"docx": _document, "openpyxl": _workbook, "pptx": _presentation}[package](BytesIO(data))


def _check(data: bytes) -> None:
    """Refuses what would unpack to more than it should. What members say of their sizes is not believed."""
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        raise Unreadable("encrypted, or in an old Office format; save it as docx, xlsx or pptx without a password")
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise Unreadable("damaged: not what its name says") from error
    if len(members) > MEMBERS_MOST:
        raise Unreadable(f"it has more than {MEMBERS_MOST:,} parts")
    if sum(member.compress_size for member in members) > len(data):
        raise Unreadable("damaged: its parts overlap")
    if sum(member.file_size for member in members) > UNPACKED_MOST:
        raise Unreadable(f"it unpacks to more than {UNPACKED_MOST // 1_000_000} MB")
    for member in members:
        tree = member.filename.endswith((".xml", ".rels")) and not member.filename.startswith(_STREAMED)
        if tree and member.file_size > PART_MOST:
            raise Unreadable(f"a part of it unpacks to more than {PART_MOST // 1_000_000} MB")
        if member.file_size > max(RATIO_FROM, RATIO_MOST * member.compress_size):
            raise Unreadable(f"a part of it unpacks to more than {RATIO_MOST} times its size")
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            damaged = archive.testzip()  # in small pieces: read as a whole, a part unpacks to more than it says
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise Unreadable("damaged: not what its name says") from error
    if damaged is not None:
        raise Unreadable("damaged: a part of it is not as large as it says, or was changed")


def _document(file: BytesIO) -> Iterator[Part]:
    import docx
    from docx.table import Table

    headings, lines = Headings(), list[str]()
    document = docx.Document(file)
    names = {style.style_id: style.name or "" for style in document.styles}
    for block in document.iter_inner_content():
        if isinstance(block, Table):
            lines.append(table([[cell.text for cell in row.cells[:COLUMNS_MOST]] for row in block.rows]))
            continue
        text = block.text.strip()
        style = names.get(block._p.style or "", "")  # `block.style` looks through all styles each time
        level = _LEVEL.get(style)
        if level is not None and text:
            yield Part("\n\n".join(lines), headings.path)
            headings.enter(level, text)
            lines = []
        elif text:
            lines.append(f"- {text}" if style.startswith("List") else text)
    yield Part("\n\n".join(lines), headings.path)


def _workbook(file: BytesIO) -> Iterator[Part | Trouble]:
    import openpyxl

    book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # which a file may state wrongly
        rows = list(_rows(sheet.iter_rows(values_only=True, max_col=COLUMNS_MOST)))
        if len(rows) > ROWS_MOST:
            yield Trouble(f"of the sheet {sheet.title}, only the first {ROWS_MOST:,} rows were read")
        yield Part(table(rows[:ROWS_MOST]), (sheet.title,), f"sheet={sheet.title}")


def _rows(rows: Iterable[Iterable[Any]]) -> Iterator[list[str]]:
    """The rows with anything in them, until one too many; a long emptiness ends the sheet."""
    empty = found = 0
    for row in rows:
        cells = [_show_value(value) for value in row]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            yield cells
            found += 1
            empty = 0
        empty += not cells
        if empty > EMPTY_ROWS_MOST or found > ROWS_MOST:
            return


def _show_value(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(" ", "minutes") if value.time().isoformat() != "00:00:00" else value.date().isoformat()
    if isinstance(value, date):
        return value.isoformat()
    return "" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)


def _presentation(file: BytesIO) -> Iterator[Part]:
    import pptx

    for number, slide in enumerate(pptx.Presentation(file).slides, 1):
        title = slide.shapes.title
        heading_text = " ".join(title.text_frame.text.split()) if title is not None else ""
        texts = [text for shape in slide.shapes for text in _read_shape(shape) if text and text != heading_text]
        if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) is not None and frame.text.strip():
            texts.append(f"Notes: {frame.text.strip()}")
        heading = (heading_text,) if heading_text else ()
        yield Part("\n\n".join([heading_text, *texts] if heading_text else texts), heading, f"slide={number}")


def _read_shape(shape: Any) -> Iterator[str]:
    waiting = [shape]
    while waiting:
        one = waiting.pop(0)
        if hasattr(one, "shapes"):  # a group
            waiting = [*one.shapes, *waiting]
        elif getattr(one, "has_table", False):
            yield table([[cell.text for cell in row.cells] for row in one.table.rows])
        elif getattr(one, "has_text_frame", False):
            yield "\n".join(line for paragraph in one.text_frame.paragraphs if (line := paragraph.text.strip()))
