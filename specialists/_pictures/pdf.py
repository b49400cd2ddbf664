"""Reads one PDF in a child process, which can be killed: PDFium cannot be stopped from inside."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from specialists._kit.child import Payload, Report
from specialists._pictures.layout import is_rtl

MAX_SIDE = 4000
MAX_PIXELS = 12_000_000
MAX_TEXT = 50_000
"""Characters per page."""
MAX_PICTURES = 2000
MAX_WORDS = 10_000
MAX_STAMP = 200
"""Characters that a scanner or a clerk adds to a scanned page."""
DPI = 150
_AROUND = 4
"""Characters before and after a gap that show whether letters are spaced widely there."""
_MOST = 0.6
_SAME_LINE = 0.3
"""Share of the lower of two heights that characters of one line have in common."""
_APART = 1.0
"""Width of a gap, in heights of a line, that is no letter-spacing."""
_HYPHEN = "\x02"
"""PDFium's character for a hyphen at the end of a line."""
_POINTS_PER_INCH = 72


def answer(words: Any, data: bytes, report: Report) -> tuple[Any, Payload]:
    """Answer a request about a PDF. The first report is the number of pages, or `encrypted`.

    Args:
        words: `text` and page numbers: reports for each page the text, its pieces with their places, and whether it is
            only a stamp on a scan; None for a damaged page. Or `image` and a page number: returns width, height and
            stride, with the pixels as RGB.
    """
    import pypdfium2

    kind, *numbers = words
    try:
        pdf = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code != pypdfium2.raw.FPDF_ERR_PASSWORD:
            raise
        report("encrypted")
        return "end", b""
    with contextlib.closing(pdf):
        report(len(pdf))
        if kind == "image":
            with contextlib.suppress(pypdfium2.PdfiumError):
                return _pixels(pdf[numbers[0] - 1])
        else:
            for page in numbers:
                if 1 <= page <= len(pdf):
                    report(_text(pdf, page - 1))
    return "end", b""


def _text(pdf: Any, number: int) -> dict[str, Any] | None:
    import pypdfium2

    try:
        page = pdf[number]
        layer = page.get_textpage()
        found = [] if page.get_rotation() or layer.count_chars() > MAX_TEXT else _words(_glyphs(layer))
        pieces = _pieces(found, page.get_height()) if len(found) <= MAX_WORDS else []
        text = _flowing(found) if found else str(layer.get_text_bounded())[:MAX_TEXT].replace(_HYPHEN, "-\n")
        return {"text": text, "pieces": pieces, "scanned": len(text) < MAX_STAMP and _is_picture(page)}
    except pypdfium2.PdfiumError:
        return None


class Glyph(NamedTuple):
    """A character and its box, in points from the left and the bottom.

    Attributes:
        space: `own` after a space in the file, `guessed` after one that PDFium inserted, else empty.
    """

    char: str
    left: float
    right: float
    bottom: float
    top: float
    space: str

    @property
    def height(self) -> float:
        return self.top - self.bottom


def _glyphs(layer: Any) -> list[Glyph]:
    """Return the visible characters of a page in the order of the file."""
    import pypdfium2.raw as pdfium

    found, space, box = list[Glyph](), "", pdfium.FS_RECTF()
    for number in range(layer.count_chars()):
        char = chr(pdfium.FPDFText_GetUnicode(layer, number))
        char = "-" if char == _HYPHEN else char
        pdfium.FPDFText_GetLooseCharBox(layer, number, box)
        if char.isspace() or char == "\0":
            own = box.right > box.left and not pdfium.FPDFText_IsGenerated(layer, number)
            space = "own" if own or space == "own" else "guessed"
        else:
            found.append(Glyph(char, box.left, box.right, box.bottom, box.top, space))
            space = ""
    return found


def _words(glyphs: Sequence[Glyph]) -> list[list[Glyph]]:
    """Group characters that stand side by side without a space.

    A producer that places each character by itself makes PDFium guess spaces where letters are only spaced widely, and
    objects of text begin and end within words. So a guessed space counts unless most gaps around it are as wide.
    """
    words = list[list[Glyph]]()
    for number, glyph in enumerate(glyphs):
        word = words[-1] if words else []
        beside = bool(word) and glyph.space != "own" and _follows(word, glyph)
        if beside and glyph.space == "guessed":
            around = glyphs[max(0, number - _AROUND) : number + _AROUND]
            gaps = [_gap(*pair) for pair in itertools.pairwise(around)]
            wide = sum(gap > _gap(glyphs[number - 1], glyph) / 2 for gap in gaps)
            beside = wide > _MOST * len(gaps) > 2 and sum(one.char.isalpha() for one in around) > 1
        if beside:
            word.append(glyph)
        else:
            words.append([glyph])
    return words


def _follows(word: Sequence[Glyph], glyph: Glyph) -> bool:
    """Return whether a character follows a word, to the right or, in some scripts, to the left."""
    before = word[-1]
    height = max(before.height, glyph.height)
    if min(before.top, glyph.top) - max(before.bottom, glyph.bottom) <= _SAME_LINE * min(before.height, glyph.height):
        return False
    after = glyph.left - max(one.right for one in word[-2:])
    ahead = min(one.left for one in word[-2:]) - glyph.right
    rtl = is_rtl(before.char) or is_rtl(glyph.char)
    return -height / 2 < after < _APART * height or (rtl and -height / 2 < ahead < _APART * height)


def _gap(one: Glyph, other: Glyph) -> float:
    """Return the horizontal gap between two characters."""
    return max(other.left - one.right, one.left - other.right)


def _spell(word: Sequence[Glyph]) -> str:
    """Return a word in reading order.

    Files have words from right to left in either order, but numbers in their own.
    """
    if not any(is_rtl(glyph.char) for glyph in word):
        return "".join(glyph.char for glyph in word)
    leftward = sorted(word, key=lambda glyph: -glyph.left)
    runs = itertools.groupby(leftward, key=lambda glyph: glyph.char.isdigit())
    return "".join(
        "".join(glyph.char for glyph in (reversed(list(run)) if is_number else run)) for is_number, run in runs
    )


def _pieces(words: Sequence[Sequence[Glyph]], height: float) -> list[tuple[str, float, float, float, float]]:
    """Return each word with its left, right, top and bottom, measured from the top."""
    return [
        (
            _spell(word),
            min(glyph.left for glyph in word),
            max(glyph.right for glyph in word),
            height - max(glyph.top for glyph in word),
            height - min(glyph.bottom for glyph in word),
        )
        for word in words
    ]


def _flowing(words: Sequence[Sequence[Glyph]]) -> str:
    """Return the words in the order of the file, line by line."""
    return "\n".join(" ".join(_spell(word) for word in line) for line in _lines(words))[:MAX_TEXT]


def _may_be_leftward(word: Sequence[Glyph]) -> bool:
    return any(is_rtl(glyph.char) for glyph in word) or not any(glyph.char.isalnum() for glyph in word)


def _lines(words: Sequence[Sequence[Glyph]]) -> Iterator[list[Sequence[Glyph]]]:
    line = list[Sequence[Glyph]]()
    bottom = top = 0.0
    for word in words:
        low, high = min(glyph.bottom for glyph in word), max(glyph.top for glyph in word)
        leftward = line and all(map(_may_be_leftward, (word, line[-1])))
        if line and (
            min(top, high) - max(bottom, low) <= _SAME_LINE * min(top - bottom, high - low)
            or (not leftward and word[0].left < line[-1][0].left)
        ):
            yield line
            line = []
        if leftward and line and word[0].left > line[-1][0].left:
            at = next((n for n in range(len(line), 0, -1) if not _may_be_leftward(line[n - 1])), 0)
            line.insert(at, word)  # of words written leftward, the one at the right goes first
        else:
            line.append(word)
        if len(line) == 1:
            bottom, top = low, high
    if line:
        yield line


def _is_picture(page: Any) -> bool:
    """Return whether a picture covers most of the page."""
    import pypdfium2

    pictures = page.get_objects(filter=[pypdfium2.raw.FPDF_PAGEOBJ_IMAGE], max_depth=2)
    bounds = (picture.get_bounds() for picture in itertools.islice(pictures, MAX_PICTURES))
    largest = max(((right - left) * (top - bottom) for left, bottom, right, top in bounds), default=0.0)
    return bool(largest > page.get_width() * page.get_height() / 2)


def _pixels(page: Any) -> tuple[dict[str, int], bytes]:
    width, height = page.get_size()
    fitting = (MAX_PIXELS / max(width * height, 1)) ** 0.5
    scale = min(DPI / _POINTS_PER_INCH, fitting, MAX_SIDE / max(width, height, 1))
    bitmap = page.render(scale=scale, rev_byteorder=True)
    return {"width": bitmap.width, "height": bitmap.height, "stride": bitmap.stride}, bytes(bitmap.buffer)
