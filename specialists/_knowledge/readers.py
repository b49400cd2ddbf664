"""What a file says, as parts with the headings they stand under. Which reader, by the kind of file.

The bytes are a stranger's, so all this runs in a process that can be killed: see `worker`.
"""

import codecs
import csv
import io
import re
from collections.abc import Iterator

from specialists._kit.html import page_rules, read_markdown
from specialists._kit.passages import sections
from specialists._kit.text import guess_encoding
from specialists._knowledge.office import office_parts
from specialists._knowledge.parts import COLUMNS_MOST, ROWS_MOST, Part, Source, Trouble, Unreadable, table
from specialists._knowledge.pdf import pdf_parts

KINDS = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd"), "markdown"),
    **dict.fromkeys((".txt", ".text", ".log", ".rst", ".org", ".adoc", ".tex"), "text"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".csv", ".tsv"), "table"),
    ".pdf": "pdf",
    **dict.fromkeys((".docx", ".xlsx", ".xlsm", ".pptx"), "office"),
    **dict.fromkeys((".doc", ".xls", ".ppt"), "old"),
}
_OF_TYPE = {
    "text/markdown": ".md",
    "text/html": ".html",
    "text/csv": ".csv",
    "application/pdf": ".pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
}
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


def kind_of(name: str, media_type: str = "") -> str | None:
    """Which reader reads a file of this name, and for an upload, this media type; None when none does."""
    ending = _ending(name)
    if ending in KINDS:
        return KINDS[ending]
    if media_type in _OF_TYPE:
        return KINDS[_OF_TYPE[media_type]]
    return "text" if media_type.startswith("text/") or ending == "" else None


def ending_of(source: Source) -> str:
    """The ending that tells the kind of an Office file: that of its name."""
    return _ending(source.name)


def parts(source: Source, kind: str) -> Iterator[Part | Trouble]:
    """The parts of a file in their order.

    Raises:
        Unreadable: and anything that a reader of foreign files may raise.
    """
    if source.data.startswith(b"%PDF-"):
        kind = "pdf"
    if kind == "pdf":
        yield from pdf_parts(source)
    elif kind == "office":
        yield from office_parts(source.data, ending_of(source))
    elif kind == "html":
        yield from _html(decode(source.data, _charset(source.data)))
    elif kind == "old":
        raise Unreadable("an old Office format; save it as docx, xlsx or pptx")
    else:
        text = decode(source.data)
        if kind == "markdown":
            yield from (Part(body, heading) for heading, body in sections(text))
        else:
            yield Part("\n".join(_csv(text)) if kind == "table" else text)


def _html(text: str) -> Iterator[Part]:
    """The texts of a page under their headings; a page without a first heading goes by its title."""
    from selectolax.lexbor import LexborHTMLParser

    page = LexborHTMLParser(text)
    title = page.css_first("title") if page.css_first("h1") is None else None
    title_text = " ".join(title.text().split()) if title is not None else ""
    text_of_page = read_markdown(page, page_rules())
    for heading, body in sections(f"# {title_text}\n{text_of_page}" if title_text else text_of_page):
        yield Part(body.strip("\n"), heading)


def decode(data: bytes, charset: str | None = None) -> str:
    """The text in these bytes: by its mark or the charset given, else UTF-8, else the likeliest one.

    Raises:
        Unreadable: when they are no text.
    """
    for mark, name in _BOMS.items():
        if data.startswith(mark):
            return data.decode(name, "replace")
    sample = data[:_SAMPLE]
    if b"\0" in sample:
        return _decode_wide(data)
    if sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in sample) > len(sample) * _CONTROL_SHARE:
        raise Unreadable("not text, though its name says so")
    try:
        return data.decode(charset or "utf-8").replace("\0", " ")
    except (UnicodeDecodeError, LookupError):
        return data.decode("cp1252" if charset else guess_encoding(data), "replace").replace("\0", " ")


def _ending(name: str) -> str:
    stem, dot, ending = name.rpartition("/")[2].rpartition(".")
    return f".{ending.lower()}" if dot and stem else ""


def _charset(data: bytes) -> str | None:
    found = _CHARSET.search(data[:_SAMPLE])
    return found[1].decode() if found else None


def _decode_wide(data: bytes) -> str:
    """UTF-16 without a mark: of text in Latin letters, every other byte is null."""
    sample = data[:_SAMPLE]
    for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if sample[start::2].count(0) > 0.7 * len(sample[start::2]) and not sample[1 - start :: 2].count(0):
            return data.decode(name, "replace")
    raise Unreadable("not text, though its name says so")


def _csv(text: str) -> Iterator[str]:
    delimiter = max(",;\t", key=text[:_SAMPLE].count)
    rows = []
    try:
        for row in csv.reader(io.StringIO(text), delimiter=delimiter):
            if any(row):
                rows.append(row[:COLUMNS_MOST])
            if len(rows) > ROWS_MOST:
                break
    except csv.Error:
        return iter([text])
    return iter([table(rows)])
