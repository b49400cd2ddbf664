"""Lines and components of an iCalendar file (RFC 5545, section 3.1)."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

MAX_DEPTH = 6
MAX_LINE = 100_000
"""Maximum length of a line, in octets; the rest is ignored."""
_LINES_PER_SLICE = 256
"""Number of lines after which other threads get a chance to run."""
_ESCAPE = re.compile(r"\\([\\;,nN])")


@dataclass(frozen=True, slots=True)
class Line:
    """One content line: `raw` as in the file, `text` unfolded and without line end."""

    raw: bytes
    text: str

    @property
    def name(self) -> str:
        return property_name(self.text)


@dataclass(slots=True)
class Block:
    """A component: the line numbers of BEGIN (`first`) and END (`last`), and the components inside."""

    name: str
    first: int
    last: int = -1
    inner: "list[Block]" = field(default_factory=list)


def split_lines(data: bytes) -> list[Line]:
    """Return the content lines of a file; invalid UTF-8 becomes replacement characters."""
    return [Line(b"".join(piece), _unfold(piece)) for piece in _folded_lines(data)]


def read_texts(data: bytes) -> Iterator[str]:
    """Yield the texts of the content lines, each limited to about `MAX_LINE` octets."""
    for number, piece in enumerate(_folded_lines(data, MAX_LINE)):
        yield _unfold(piece)
        if number % _LINES_PER_SLICE == 0:
            time.sleep(0)  # lets the event loop run


def _folded_lines(data: bytes, max_bytes: int | None = None) -> Iterator[list[bytes]]:
    """Yield each content line as a list of physical lines, lazily: a hostile file may have millions."""
    piece: list[bytes] = []
    size = start = 0
    end_mark = b"\n" if b"\n" in data else b"\r"  # written by old Macintosh programs
    while start < len(data):
        end = data.find(end_mark, start) + 1 or len(data)
        physical, start = data[start:end], end
        if piece and physical[:1] in (b" ", b"\t"):
            if max_bytes is None or size < max_bytes:
                piece.append(physical)
                size += len(physical)
            continue
        if piece:
            yield piece
        piece, size = [physical], len(physical)
    if piece:
        yield piece


def _unfold(piece: Sequence[bytes]) -> str:
    """Join physical lines, then decode them: a fold can split the octets of one character."""
    first = piece[0].rstrip(b"\r\n").removeprefix(b"\xef\xbb\xbf")
    return (first + b"".join(part[1:].rstrip(b"\r\n") for part in piece[1:])).decode("utf-8", "replace")


def property_name(text: str) -> str:
    """Return the upper-case property name of a content line."""
    return text[: min((end for end in (text.find(";"), text.find(":")) if end >= 0), default=len(text))].upper()


def parse_blocks(lines: Iterable[str]) -> list[Block]:
    """Return the outermost components of a file.

    A component without END, or nested too deep, is skipped, but not its inner components. A calendar without END
    extends to the end of the file.
    """
    top: list[Block] = []
    open_blocks: list[Block] = []

    def siblings() -> list[Block]:
        return open_blocks[-1].inner if open_blocks else top

    def abandon() -> None:
        inner = open_blocks.pop().inner
        siblings().extend(inner)

    number = -1
    for number, text in enumerate(lines):
        head = text[:6].upper()
        if head == "BEGIN:":
            if len(open_blocks) == MAX_DEPTH:
                abandon()
            open_blocks.append(Block(text[6:].strip().upper(), number))
        elif head.startswith("END:"):
            name = text[4:].strip().upper()
            if any(block.name == name for block in open_blocks):
                while open_blocks[-1].name != name:
                    abandon()
                block = open_blocks.pop()
                block.last = number
                siblings().append(block)
    while open_blocks:
        if open_blocks[-1].name == "VCALENDAR":
            open_blocks[-1].last = number + 1
            top.append(open_blocks.pop())
        else:
            abandon()
    return top


def find_components(tops: Sequence[Block], name: str) -> Iterator[Block]:
    """Yield the components of this name in a calendar or at the top level."""
    for top in tops:
        if top.name == name:
            yield top
        elif top.name == "VCALENDAR":
            yield from (block for block in top.inner if block.name == name)


def list_properties(lines: Sequence[Line], block: Block) -> Iterator[Line]:
    """Yield the properties of a component, without those of inner components."""
    start = block.first + 1
    for inner in block.inner:
        yield from lines[start : inner.first]
        start = inner.last + 1
    yield from lines[start : block.last]


Changes = Mapping[str, Sequence[str]]
"""The new unfolded lines of properties, by name; an empty list deletes the property."""


def edit_component(lines: Sequence[Line], block: Block, changes: Changes) -> bytes:
    """Return a component with some properties changed."""
    end = find_line_end(lines)
    existing = {line.name for line in list_properties(lines, block)}
    nested = {number for inner in block.inner for number in range(inner.first, inner.last + 1)}
    unwritten = dict(changes)
    body_end = min([inner.first for inner in block.inner], default=block.last)
    out = [lines[block.first].raw]
    for number in range(block.first + 1, block.last + 1):
        line = lines[number]
        if number == body_end:
            out += [fold(text, end) for name, texts in changes.items() if name not in existing for text in texts]
        if number not in nested and line.name in changes:
            out += [fold(text, end) for text in unwritten.pop(line.name, ())]
        else:
            out.append(line.raw)
    return b"".join(out)


def replace_lines(lines: Sequence[Line], pieces: Mapping[int, tuple[int, bytes]]) -> bytes:
    """Return the file with ranges of lines replaced.

    Args:
        pieces: by first line, the line after the range and the new bytes.
    """
    out: list[bytes] = []
    start = 0
    for first, (end, piece) in sorted(pieces.items()):
        out += [line.raw for line in lines[start:first]]
        out.append(piece)
        start = end
    return b"".join([*out, *(line.raw for line in lines[start:])])


def find_line_end(lines: Sequence[Line]) -> bytes:
    """Return the line end of a file."""
    raw = lines[0].raw if lines else b""
    return next((end for end in (b"\r\n", b"\n", b"\r") if raw.endswith(end)), b"\r\n")


def fold(text: str, end: bytes = b"\r\n") -> bytes:
    """Fold a content line into rows of up to 75 octets, between characters."""
    rows: list[bytes] = []
    row = b""
    for character in text:
        octets = character.encode("utf-8", "replace")
        if len(row) + len(octets) > 75:
            rows.append(row)
            row = b" "
        row += octets
    return end.join([*rows, row]) + end


def unescape(value: str) -> str:
    """Return a TEXT value without escapes."""
    return _ESCAPE.sub(lambda found: "\n" if found[1] in "nN" else found[1], value)


def escape(text: str) -> str:
    """Return a text as an escaped TEXT value, without control characters except line ends and tabs."""
    clean = "".join(c for c in text.replace("\r\n", "\n").replace("\r", "\n") if c in "\n\t" or c.isprintable())
    return re.sub(r"([\\;,])", r"\\\1", clean).replace("\n", "\\n")
