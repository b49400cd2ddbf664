"""Markdown whose paragraphs are one line each, as a page that keeps its line breaks needs it."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_MARGIN = " \t>"
"""What may stand before a line of a paragraph that is in a list or a quotation."""


def unwrap(text: str) -> str:
    """The same, with the lines of each paragraph joined but where it breaks them on purpose."""
    lines = text.split("\n")
    for first, end in reversed([*_find_wrapped(text)]):
        begin, *rest = lines[first:end]
        lines[first:end] = [" ".join([begin.rstrip(), *(line.strip(_MARGIN) for line in rest)])]
    return "\n".join(lines)


def _find_wrapped(text: str) -> Iterator[tuple[int, int]]:
    """Where each of several lines begins and ends."""
    tokens = _parser().parse(text)
    for opening, inline in pairwise(tokens):
        if opening.type == "paragraph_open" and opening.map is not None:
            first, end = opening.map
            breaks = any(one.type == "hardbreak" for one in inline.children or ())
            if end - first > 1 and not breaks:
                yield first, end


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # whose import is slow: who asks nothing does not pay for it

    return MarkdownIt("commonmark").enable("table")


LENGTH = 1200
"""Characters a piece has at most."""
_HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
_FENCE = re.compile(r"\s*(```|~~~)")
_RULE = re.compile(r"\|?[ :|-]*-[ :|-]*")
_SENTENCE_ENDS = (". ", "! ", "? ", "; ", "。", " ")
_HEADING_LENGTH = 120


class Headings:
    """The path of headings at a place of a document."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def enter(self, level: int, title: str) -> None:
        """Goes below a heading; it closes those of its level and of deeper ones."""
        self._open = [(above, name) for above, name in self._open if above < level]
        self._open.append((level, " ".join(title.split())[:_HEADING_LENGTH]))

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(title for _, title in self._open)


def sections(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The path of each heading of a Markdown page, with the text below it; the path is empty before the first."""
    headings, body, fence = Headings(), list[str](), ""
    for line in text.splitlines():
        if marked := _FENCE.match(line):
            fence = marked[1] if not fence else fence if marked[1] != fence else ""
        found = None if fence or not line.startswith("#") else _HEADING.fullmatch(line[:1000])
        if found:
            yield headings.path, "\n".join(body)
            headings.enter(len(found[1]), _strip_closing(found[2].rstrip()))
            body = []
        else:
            body.append(line)
    yield headings.path, "\n".join(body)


def pieces(text: str) -> Iterator[str]:
    """Paragraphs joined up to `LENGTH` characters; a longer one is cut between its lines, a table between its rows.

    Every piece of a table begins with its header. A line that is too long itself is cut where a sentence ends.
    """
    piece = ""
    for paragraph in _paragraphs(text):
        for part, glue in _split_paragraph(paragraph):
            if piece and len(piece) + len(glue) + len(part) <= LENGTH:
                piece += glue + part
            else:
                if piece:
                    yield piece
                piece = part
    if piece:
        yield piece


def anchor(heading: str) -> str:
    """What links to a heading end in."""
    return re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-"))


def _strip_closing(title: str) -> str:
    """A heading's title without the signs that may end its line; those of C# stay."""
    stripped = title.rstrip("#")
    return stripped.rstrip() if stripped.endswith((" ", "\t")) else title


def _paragraphs(text: str) -> Iterator[list[str]]:
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip():
            lines.append(line.rstrip())
        elif lines:
            yield lines
            lines = []
    if lines:
        yield lines


def _split_paragraph(lines: list[str]) -> Iterator[tuple[str, str]]:
    """What a paragraph is put together from, each with what joins it to the one before."""
    if sum(map(len, lines)) + len(lines) <= LENGTH:
        yield "\n".join(lines), "\n\n"
    elif len(lines) > 2 and lines[0].startswith("|") and _RULE.fullmatch(lines[1][:LENGTH]):
        yield from ((part, "\n\n") for part in _split_table(lines[:2], lines[2:]))
    else:
        yield from ((part, "\n") for line in lines for part in _split_line(line))


def _split_table(header: list[str], rows: list[str]) -> Iterator[str]:
    """The same table in several, each with the header; only the rows when the header leaves them no room."""
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


def _split_line(line: str, most: int = LENGTH) -> Iterator[str]:
    start = 0
    while len(line) - start > most:
        end = next(
            (at + len(mark) for mark in _SENTENCE_ENDS if (at := line.rfind(mark, start, start + most)) > start), 0
        )
        end = end or start + most
        yield line[start:end].rstrip()
        start = end
    if line[start:].strip():
        yield line[start:]
