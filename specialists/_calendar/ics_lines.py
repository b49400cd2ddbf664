"""The lines and blocks of an iCalendar file (RFC 5545, section 3.1), of which an edit changes only its own.

Whatever other programs wrote, known or not, comes out byte for byte as it went in.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

MAX_DEPTH = 6
FOLD_AT = 75
MAX_LINE = 100_000
"""Octets of a line that are looked at."""
_LINES_PER_SLICE = 256
"""Lines after which other threads get their turn."""
_BOM = b"\xef\xbb\xbf"
_ESCAPE = re.compile(r"\\([\\;,nN])")


@dataclass(frozen=True, slots=True)
class Line:
    """One content line: `raw` with its folds and its end, `text` without."""

    raw: bytes
    text: str

    @property
    def name(self) -> str:
        """The property's name, in capitals; a group before it, as in vCards, is dropped."""
        return name_of(self.text)


@dataclass(slots=True)
class Block:
    """A component: its lines from BEGIN (`first`) to END (`last`), and the components in it."""

    name: str
    first: int
    last: int = -1
    inner: "list[Block]" = field(default_factory=list)


def content_lines(data: bytes) -> list[Line]:
    """The content lines of a file; an octet sequence that is no UTF-8 shows as a replacement character."""
    return [Line(b"".join(piece), _unfold(piece)) for piece in _folded_lines(data)]


def texts(data: bytes) -> Iterator[str]:
    """The same without what an edit needs, and no more of a line than is ever looked at."""
    for number, piece in enumerate(_folded_lines(data, MAX_LINE)):
        yield _unfold(piece)
        if number % _LINES_PER_SLICE == 0:
            time.sleep(0)  # lets other threads go on: the loop has to


def _folded_lines(data: bytes, max_bytes: int | None = None) -> Iterator[list[bytes]]:
    """Each content line as the lines it is folded into, up to about `most` octets of it."""
    piece: list[bytes] = []
    size = 0
    for physical in _physical_lines(data):
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


def _physical_lines(data: bytes) -> Iterator[bytes]:
    """The lines as they are, with their ends; one by one, as a list of all would be huge for a hostile file."""
    at = 0
    last = b"\n" if b"\n" in data else b"\r"  # as programs of long ago wrote
    while at < len(data):
        end = data.find(last, at) + 1 or len(data)
        yield data[at:end]
        at = end


def _unfold(piece: Sequence[bytes]) -> str:
    """Folds may stand between the octets of one character, so they go before decoding."""
    first = piece[0].rstrip(b"\r\n").removeprefix(_BOM)
    return (first + b"".join(part[1:].rstrip(b"\r\n") for part in piece[1:])).decode("utf-8", "replace")


def name_of(text: str) -> str:
    """The name of a content line's property."""
    return text[: _name_end(text)].upper()


def _name_end(text: str) -> int:
    ends = [end for end in (text.find(";"), text.find(":")) if end >= 0]
    return min(ends) if ends else len(text)


def blocks(lines: Iterable[str]) -> list[Block]:
    """The components of a file, the outermost ones.

    Those that never end, or lie too deep, are left out, but not what is in them; a calendar that never does ends with
    the file.
    """
    top: list[Block] = []
    open_blocks: list[Block] = []
    number = -1
    for number, text in enumerate(lines):
        head = text[:6].upper()
        if head == "BEGIN:":
            if len(open_blocks) == MAX_DEPTH:
                _abandon(open_blocks, top)
            open_blocks.append(Block(text[6:].strip().upper(), number))
        elif head.startswith("END:") and open_blocks:
            _close(text[4:].strip().upper(), number, open_blocks, top)
    while open_blocks:
        if open_blocks[-1].name == "VCALENDAR":
            open_blocks[-1].last = number + 1
            top.append(open_blocks.pop())
        else:
            _abandon(open_blocks, top)
    return top


def _close(name: str, number: int, open_blocks: list[Block], top: list[Block]) -> None:
    """Ends the innermost component of this name, if one is open; those in it that are open never end."""
    if all(block.name != name for block in open_blocks):
        return
    while open_blocks[-1].name != name:
        _abandon(open_blocks, top)
    block = open_blocks.pop()
    block.last = number
    (open_blocks[-1].inner if open_blocks else top).append(block)


def _abandon(open_blocks: list[Block], top: list[Block]) -> None:
    """Leaves the innermost component out, and its parts to the one around it."""
    inner = open_blocks.pop().inner
    (open_blocks[-1].inner if open_blocks else top).extend(inner)


def components(tops: Sequence[Block], name: str) -> Iterator[Block]:
    """The components of this name that stand in a calendar, or alone in the file."""
    for top in tops:
        if top.name == name:
            yield top
        elif top.name == "VCALENDAR":
            yield from (block for block in top.inner if block.name == name)


def own_properties(lines: Sequence[Line], block: Block) -> Iterator[Line]:
    """A component's properties, without those of the components in it."""
    at = block.first + 1
    for inner in block.inner:
        yield from lines[at : inner.first]
        at = inner.last + 1
    yield from lines[at : block.last]


Changes = Mapping[str, Sequence[str]]
"""The new lines of a property by its name, unfolded; none of them deletes it."""


def changed_component(lines: Sequence[Line], block: Block, changes: Changes) -> bytes:
    """A component with some properties changed; all else as it stands."""
    end = line_end(lines)
    nested = {number for inner in block.inner for number in range(inner.first, inner.last + 1)}
    existing = {lines[number].name for number in range(block.first + 1, block.last) if number not in nested}
    added = [fold(text, end) for name, texts in changes.items() if name not in existing for text in texts]
    unwritten = dict(changes)
    body_end = min([inner.first for inner in block.inner], default=block.last)
    out = [lines[block.first].raw]
    for number in range(block.first + 1, block.last + 1):
        line = lines[number]
        if number == body_end:
            out += added
        if number not in nested and line.name in changes:
            out += [fold(text, end) for text in unwritten.pop(line.name, ())]
        else:
            out.append(line.raw)
    return b"".join(out)


def replace_lines(lines: Sequence[Line], pieces: Mapping[int, tuple[int, bytes]]) -> bytes:
    """The file with stretches of lines replaced.

    Args:
        pieces: by the first line of a stretch, the line behind its last and what stands there instead.
    """
    out: list[bytes] = []
    at = 0
    for first, (end_line, piece) in sorted(pieces.items()):
        out += [line.raw for line in lines[at:first]]
        out.append(piece)
        at = end_line
    return b"".join([*out, *(line.raw for line in lines[at:])])


def line_end(lines: Sequence[Line]) -> bytes:
    """How the lines of this file end."""
    raw = lines[0].raw if lines else b""
    return next((end for end in (b"\r\n", b"\n", b"\r") if raw.endswith(end)), b"\r\n")


def fold(text: str, end: bytes = b"\r\n") -> bytes:
    """A content line of at most 75 octets a row, cut between characters."""
    rows: list[bytes] = []
    row = b""
    for character in text:
        octets = character.encode("utf-8", "replace")
        if len(row) + len(octets) > FOLD_AT:
            rows.append(row)
            row = b" "
        row += octets
    return end.join([*rows, row]) + end


def unescape(value: str) -> str:
    """A TEXT value as people read it."""
    return _ESCAPE.sub(lambda found: "\n" if found[1] in "nN" else found[1], value)


def escape(text: str) -> str:
    """A text as a TEXT value; other control characters than line ends and tabs are dropped."""
    clean = "".join(c for c in text.replace("\r\n", "\n").replace("\r", "\n") if c in "\n\t" or c.isprintable())
    return re.sub(r"([\\;,])", r"\\\1", clean).replace("\n", "\\n")
