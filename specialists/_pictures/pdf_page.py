"""Built in: reads one PDF in a child process, which can be killed: PDFium cannot be stopped from inside."""

import contextlib
import itertools
from typing import Any

from specialists._kit.child import Payload, Tell

SIDE_MOST = 4000
PIXELS_MOST = 12_000_000
TEXT_MOST = 50_000
"""Characters a page."""
PIECES_MOST = 2000
STAMP_MOST = 200
"""Characters that a scanner, or whoever filed the scan, writes on a page."""
DPI = 150
_HYPHEN = "\x02"
"""What PDFium makes of a hyphen at the end of a line, and of the end."""
_POINTS_PER_INCH = 72


def answer(words: Any, data: bytes, tell: Tell) -> tuple[Any, Payload]:
    """What is in pages of a PDF.

    It tells first the number of pages, or `encrypted`.

    Args:
        words: `text` and numbers of pages: for each it tells the text, where the pieces of it stand, and whether it is
            but a stamp on a scan; None for a damaged one. Or `image` and a number: it returns width, height and stride
            with the pixels as RGB.
    """
    import pypdfium2

    wanted, *numbers = words
    try:
        pdf = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code != pypdfium2.raw.FPDF_ERR_PASSWORD:
            raise
        tell("encrypted")
        return "end", b""
    with contextlib.closing(pdf):
        tell(len(pdf))
        if wanted == "image":
            with contextlib.suppress(pypdfium2.PdfiumError):
                return _pixels(pdf[numbers[0] - 1])
        else:
            for page in numbers:
                if 1 <= page <= len(pdf):
                    tell(_text(pdf, page - 1))
    return "end", b""


def _text(pdf: Any, number: int) -> dict[str, Any] | None:
    import pypdfium2

    try:
        page = pdf[number]
        layer = page.get_textpage()
        text = str(layer.get_text_bounded())[:TEXT_MOST].replace(_HYPHEN, "-\n")
        pieces = [] if page.get_rotation() else _pieces(layer, page.get_height())
        return {"text": text, "pieces": pieces, "scanned": len(text) < STAMP_MOST and _is_picture(page)}
    except pypdfium2.PdfiumError:
        return None


def _pieces(layer: Any, height: float) -> list[tuple[str, float, float, float, float]]:
    """Each run of text with its left, right, top and bottom, from the top; none when there are very many."""
    count = layer.count_rects()
    if count > PIECES_MOST or layer.count_chars() > TEXT_MOST:
        return []
    runs = (layer.get_rect(number) for number in range(count))
    return [
        (layer.get_text_bounded(*run).replace(_HYPHEN, "-"), run[0], run[2], height - run[3], height - run[1])
        for run in runs
    ]


def _is_picture(page: Any) -> bool:
    """Whether a picture takes most of the page."""
    import pypdfium2

    pictures = page.get_objects(filter=[pypdfium2.raw.FPDF_PAGEOBJ_IMAGE], max_depth=2)
    bounds = (picture.get_bounds() for picture in itertools.islice(pictures, PIECES_MOST))
    largest = max(((right - left) * (top - bottom) for left, bottom, right, top in bounds), default=0.0)
    return bool(largest > page.get_width() * page.get_height() / 2)


def _pixels(page: Any) -> tuple[dict[str, int], bytes]:
    width, height = page.get_size()
    fitting = (PIXELS_MOST / max(width * height, 1)) ** 0.5
    scale = min(DPI / _POINTS_PER_INCH, fitting, SIDE_MOST / max(width, height, 1))
    bitmap = page.render(scale=scale, rev_byteorder=True)
    return {"width": bitmap.width, "height": bitmap.height, "stride": bitmap.stride}, bytes(bitmap.buffer)
