"""Arrange the text pieces of a page in reading order: rows, paragraphs, columns, and tables as Markdown.

A gutter is a strip without text through several rows; it separates columns. Columns of full lines are prose and are
read one after the other. Columns of words and numbers are a table.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

GUTTER = 1.0
"""Minimum width of a gutter, in line heights."""
HAIRLINE = 0.15
"""Minimum gap between two table columns that other rows separate with a gutter, in line heights."""
PARAGRAPH = 2.0
"""Distance between the centres of two rows in different paragraphs, in line heights."""
BREAK = 1.8
"""Row distance that ends a table, in median row distances."""
PROSE_LETTERS = 20
RULE = "| --- |"
"""Text that every table contains."""
_PROSE_COLUMNS = 3
_SAME_ROW = 0.35
_WRAPPED = 0.75
_APART = "   "
_MIN_LETTERS = 8
_MIN_LINES = 5
_ONE_WIDTH = 0.06
"""Largest difference of letter widths in a monospaced font; prose has at least 0.12."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Adjacent words with their position, in pixels from the left and the top."""

    text: str
    left: float
    right: float
    top: float
    bottom: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2

    @property
    def height(self) -> float:
        return self.bottom - self.top


Row = list[Piece]
Span = tuple[float, float]


def is_rtl(text: str) -> bool:
    """Return whether a text has right-to-left letters."""
    return any(unicodedata.bidirectional(char) in ("R", "AL") for char in text if char > "\u0590")


def lay_out(pieces: Sequence[Piece]) -> str:
    """Return the text of a page, or of one of its columns."""
    pieces = [piece for piece in pieces if piece.text]
    if not pieces:
        return ""
    height, left = median(piece.height for piece in pieces), min(piece.left for piece in pieces)
    letter = _measure_letters(pieces)
    text = ""
    above: Row = []
    for block, spans in _split_blocks(_group_rows(pieces), height):
        if above:
            far = _row_middle(block[0]) - _row_middle(above) > PARAGRAPH * height
            text += "\n\n" if far or len(spans) > 1 or text.endswith("|") else "\n"
        if letter and not spans:
            text += " " * round((block[0][0].left - left) / letter)
        text += _format_block(block, spans, height)
        above = block[-1]
    return text


def _measure_letters(pieces: Sequence[Piece]) -> float:
    """Return the letter width of a monospaced page, to keep its indentation; 0 for other pages."""
    widths = [(piece.right - piece.left) / len(piece.text) for piece in pieces if len(piece.text) >= _MIN_LETTERS]
    same = len(widths) >= _MIN_LINES and max(widths) - min(widths) < _ONE_WIDTH * median(widths)
    return median(widths) if same else 0.0


def join_pieces(words: Sequence[Piece]) -> list[Piece]:
    """Join the words of a line that no gutter separates."""
    pieces = [word for word in words[:1] if word.text]
    for word in (word for word in words[1:] if word.text):
        before = pieces[-1] if pieces else None
        leftward = is_rtl(word.text)
        if before and not any(map(str.isalnum, word.text)):
            leftward = is_rtl(before.text)
        if before and _share_line(before, word) and leftward == is_rtl(before.text):
            after, ahead = word.left - before.right, before.left - word.right
            if -word.height < after <= GUTTER * word.height:
                pieces[-1] = _join_pair(word, before) if leftward else _join_pair(before, word)
                continue
            if leftward and -word.height < ahead <= GUTTER * word.height:
                pieces[-1] = _join_pair(before, word)
                continue
        pieces.append(word)
    return pieces


def _join_pair(one: Piece, other: Piece) -> Piece:
    left, right = min(one.left, other.left), max(one.right, other.right)
    return Piece(f"{one.text} {other.text}", left, right, min(one.top, other.top), max(one.bottom, other.bottom))


def _group_rows(pieces: Sequence[Piece]) -> list[Row]:
    """Return rows from top to bottom, each from left to right."""
    rows: list[Row] = []
    for piece in sorted(pieces, key=lambda piece: piece.middle):
        row = rows[-1] if rows else []
        if row and _share_line(row[0], piece) and not any(_overlap(one, piece) for one in row):
            row.append(piece)
        else:
            rows.append([piece])
    return [sorted(row, key=lambda piece: piece.left) for row in rows]


def _share_line(first: Piece, piece: Piece) -> bool:
    common = min(first.bottom, piece.bottom) - max(first.top, piece.top)
    return common > _SAME_ROW * min(first.height, piece.height)


def _overlap(one: Piece, other: Piece) -> bool:
    common = min(one.right, other.right) - max(one.left, other.left)
    return common > min(one.height, other.height) / 2


def _row_middle(row: Row) -> float:
    return sum(piece.middle for piece in row) / len(row)


def _split_blocks(rows: Sequence[Row], height: float) -> Iterator[tuple[list[Row], list[Span]]]:
    """Yield blocks of rows that share gutters, with their columns; a single row has no columns."""
    start = 0
    while start < len(rows):
        block, spans = _find_columns(rows[start:], GUTTER * height)
        yield (block, spans) if len(spans) > 1 else ([rows[start]], [])
        start += len(block) if len(spans) > 1 else 1


def _find_columns(rows: Sequence[Row], gutter: float) -> tuple[list[Row], list[Span]]:
    """Return the first rows that share a gutter, and their columns if at least two rows have several."""
    spans = _merge_spans([(piece.left, piece.right) for piece in rows[0]], gutter)
    block, steps = [rows[0]], list[float]()
    for above, row in pairwise(rows):
        step = _row_middle(row) - _row_middle(above)
        wider = _merge_spans([*spans, *((piece.left, piece.right) for piece in row)], gutter)
        if len(wider) < 2 or (steps and step > BREAK * max(median(steps), 1.5 * row[0].height)):
            break
        spans = wider
        steps.append(step)
        block.append(row)
    if _is_prose(block, spans):
        return block, spans if _are_side_by_side(block, spans) else []
    while len(block) > 1 and _list_columns(block[-1], spans) == {0}:
        block.pop()  # a text line directly below a table
    if len(_list_columns(block[0], spans)) < 2:
        return block, []  # a text line directly above one
    return block, spans if sum(len(_list_columns(row, spans)) > 1 for row in block) > 1 else []


def _are_side_by_side(block: Sequence[Row], spans: Sequence[Span]) -> bool:
    """Return whether lines of different columns are side by side, unlike the messages of a chat."""
    beside = sum(len(_list_columns(row, spans)) > 1 for row in block)
    beside += sum(
        row[0].top < above[0].bottom and _list_columns(row, spans) != _list_columns(above, spans)
        for above, row in pairwise(block)
    )
    return beside > 1


def _merge_spans(spans: Sequence[Span], gutter: float) -> list[Span]:
    """Merge spans that no gutter separates."""
    merged: list[Span] = []
    for left, right in sorted(spans):
        if merged and left - merged[-1][1] < gutter:
            merged[-1] = (merged[-1][0], max(merged[-1][1], right))
        else:
            merged.append((left, right))
    return merged


def _find_column(piece: Piece, spans: Sequence[Span]) -> int:
    return next(number for number, (_, right) in enumerate(spans) if piece.left < right or number == len(spans) - 1)


def _list_columns(row: Row, spans: Sequence[Span]) -> set[int]:
    return {_find_column(piece, spans) for piece in row}


def _format_block(block: Sequence[Row], spans: Sequence[Span], height: float) -> str:
    if not spans:
        return "\n".join(_format_line(row) for row in block)
    if _is_prose(block, spans):
        columns: list[list[Piece]] = [[] for _ in spans]
        for piece in (piece for row in block for piece in row):
            columns[_find_column(piece, spans)].append(piece)
        return "\n\n".join(lay_out(column) for column in columns)
    return _format_table(block, height)


def _is_prose(block: Sequence[Row], spans: Sequence[Span]) -> bool:
    """Return whether full lines make up every column."""
    if len(block) < 3 or not 1 < len(spans) <= _PROSE_COLUMNS:
        return False
    for number, (left, right) in enumerate(spans):
        pieces = [piece for row in block for piece in row if _find_column(piece, spans) == number]
        letters, width = median(len(piece.text) for piece in pieces), median(p.right - p.left for p in pieces)
        if letters < PROSE_LETTERS or width < (right - left) / 2:
            return False
    return True


def _format_line(row: Row) -> str:
    """Join the pieces of a row, with wider space between distant ones."""
    if sum(len(piece.text) for piece in row if is_rtl(piece.text)) * 2 > sum(len(piece.text) for piece in row):
        return " ".join(piece.text for piece in reversed(row))
    text = row[0].text
    for before, piece in pairwise(row):
        text += (_APART if piece.left - before.right > piece.height else " ") + piece.text
    return text


def _merge_columns(block: Sequence[Row], spans: Sequence[Span], gutter: float) -> list[Span]:
    """Merge adjacent columns that no row separates, such as a heading and the numbers to its right."""
    folded = [spans[0]]
    for span in spans[1:]:
        apart = any(
            folded[-1][0] <= one.left < folded[-1][1]
            and span[0] <= other.left < span[1]
            and other.left - one.right >= gutter
            for row in block
            for one, other in pairwise(row)
        )
        folded = [*folded, span] if apart else [*folded[:-1], (folded[-1][0], span[1])]
    return folded


def _format_table(block: Sequence[Row], height: float) -> str:
    reached = [(piece.left, piece.right) for row in block for piece in row]
    spans = _merge_columns(block, _merge_spans(reached, HAIRLINE * height), GUTTER * height)
    table = _build_cells(block, spans)
    table.insert(1, ["---"] * len(spans))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)


def _build_cells(block: Sequence[Row], spans: Sequence[Span]) -> list[list[str]]:
    """Return the rows of a table. A nearby row without a first cell continues the row above."""
    steps = [_row_middle(row) - _row_middle(above) for above, row in pairwise(block)]
    usual = median(
        [step for step, row in zip(steps, block[1:], strict=True) if _find_column(row[0], spans) == 0] or steps
    )
    table: list[list[str]] = []
    for row, step in zip(block, [0.0, *steps], strict=True):
        cells = [""] * len(spans)
        for piece in row:
            number = _find_column(piece, spans)
            text = piece.text.replace("\\", "\\\\").replace("|", "\\|")
            cells[number] = f"{cells[number]} {text}".strip()
        if table and not cells[0] and step < _WRAPPED * usual:
            table[-1] = [f"{above} {cell}".strip() for above, cell in zip(table[-1], cells, strict=True)]
        else:
            table.append(cells)
    return table
