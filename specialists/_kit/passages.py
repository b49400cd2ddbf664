"""Split Markdown into sections with their headings, and sections into passages of bounded length."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

LENGTH = 1200
"""Maximum characters of a passage."""
_HEADING_LENGTH = 120
_HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
_FENCE = re.compile(r"\s*(```|~~~)")
_RULE = re.compile(r"\|?[ :|-]*-[ :|-]*")
_SENTENCE_ENDS = (". ", "! ", "? ", "; ", "。", " ")
_MARGIN = " \t>"
"""Characters before a line in a list or quotation."""


class Headings:
    """The path of open headings while a document is read."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def enter(self, level: int, title: str) -> None:
        """Open a heading and close those at its level and below."""
        self._open = [(above, name) for above, name in self._open if above < level]
        self._open.append((level, " ".join(title.split())[:_HEADING_LENGTH]))

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(title for _, title in self._open)


def split_sections(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of each heading of a Markdown page and its text; the text before the first has an empty path."""
    headings, body, fence = Headings(), list[str](), ""
    for line in text.splitlines():
        if opening := _FENCE.match(line):
            fence = opening[1] if not fence else fence if opening[1] != fence else ""
        heading = None if fence or not line.startswith("#") else _HEADING.fullmatch(line[:1000])
        if heading is None:
            body.append(line)
            continue
        yield headings.path, "\n".join(body)
        title = heading[2].rstrip()
        stripped = title.rstrip("#")  # Markdown allows a closing sequence; the # of C# stays
        headings.enter(len(heading[1]), stripped.rstrip() if stripped.endswith((" ", "\t")) else title)
        body = []
    yield headings.path, "\n".join(body)


def make_anchor(heading: str) -> str:
    """Return the fragment of a link to a heading."""
    return re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-"))


def split_passages(text: str) -> Iterator[str]:
    """Yield paragraphs joined up to `LENGTH` characters; longer ones are cut between lines, tables between rows.

    Every piece of a table begins with the header. A line that is too long is cut after a sentence.
    """
    passage = ""
    lines = "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
    for paragraph in re.split(r"\n\n+", lines):
        for part, glue in _split_paragraph(paragraph.split("\n")):
            if passage and len(passage) + len(glue) + len(part) <= LENGTH:
                passage += glue + part
            else:
                if passage:
                    yield passage
                passage = part
    if passage:
        yield passage


def _split_paragraph(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the parts of a paragraph, each with the text that joins it to the previous part."""
    if sum(map(len, lines)) + len(lines) <= LENGTH:
        yield "\n".join(lines), "\n\n"
    elif len(lines) > 2 and lines[0].startswith("|") and _RULE.fullmatch(lines[1][:LENGTH]):
        yield from ((part, "\n\n") for part in _split_table(lines[:2], lines[2:]))
    else:
        yield from ((part, "\n") for line in lines for part in _split_line(line))


def _split_table(header: list[str], rows: list[str]) -> Iterator[str]:
    """Yield pieces of a table, each with the header unless it is too long."""
    head = "\n".join(header)
    if len(head) > LENGTH // 2:
        yield from (part for line in (*header, *rows) for part in _split_line(line))
        return
    piece = head
    for row in (part for line in rows for part in _split_line(line, LENGTH - len(head) - 1)):
        if len(piece) + 1 + len(row) > LENGTH:
            yield piece
            piece = head
        piece += "\n" + row
    yield piece


def _split_line(line: str, length: int = LENGTH) -> Iterator[str]:
    start = 0
    while len(line) - start > length:
        cuts = (at + len(mark) for mark in _SENTENCE_ENDS if (at := line.rfind(mark, start, start + length)) > start)
        end = next(cuts, start + length)
        yield line[start:end].rstrip()
        start = end
    if line[start:].strip():
        yield line[start:]


def unwrap(text: str) -> str:
    """Join the lines of each paragraph of a Markdown text, unless the paragraph has hard breaks."""
    lines = text.split("\n")
    for opening, inline in reversed([*pairwise(_parser().parse(text))]):
        if opening.type == "paragraph_open" and opening.map is not None:
            first, end = opening.map
            has_breaks = any(token.type == "hardbreak" for token in inline.children or ())
            if end - first > 1 and not has_breaks:
                begin, *rest = lines[first:end]
                lines[first:end] = [" ".join([begin.rstrip(), *(line.strip(_MARGIN) for line in rest)])]
    return "\n".join(lines)


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # a slow import that only the documentation needs

    return MarkdownIt("commonmark").enable("table")
