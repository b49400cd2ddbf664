"""Built in: reads one PDF in a process of its own, which can be killed: PDFium cannot be stopped from inside.

A program that imports nothing of Brain. The PDF comes in on stdin, `text PAGE…` or `image PAGE` as arguments.
Out on stdout goes a line of JSON with the number of pages, or `"encrypted"`; then for each page a line of JSON with its
text, where the pieces of it stand, and whether it is but a stamp on a scan, null for a damaged one; or a line with
width, height and stride, and the pixels as RGB, nothing if damaged.
"""

import contextlib
import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

MEMORY_MOST = 1 << 30
CPU_SECONDS_MOST = 60
"""The end of a process whose parent went away."""
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


def answer(data: bytes, wanted: str, *numbers: int) -> Iterator[bytes]:
    """What goes to stdout, piece by piece."""
    import pypdfium2

    try:
        pdf = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code != pypdfium2.raw.FPDF_ERR_PASSWORD:
            raise
        yield _line("encrypted")
        return
    with contextlib.closing(pdf):
        yield _line(len(pdf))
        if wanted == "image":
            with contextlib.suppress(pypdfium2.PdfiumError):
                yield from _pixels(pdf[numbers[0] - 1])
        else:
            for page in numbers:
                if 1 <= page <= len(pdf):
                    yield _line(_text(pdf, page - 1))


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


def _pixels(page: Any) -> Iterator[bytes]:
    width, height = page.get_size()
    fitting = (PIXELS_MOST / max(width * height, 1)) ** 0.5
    scale = min(DPI / _POINTS_PER_INCH, fitting, SIDE_MOST / max(width, height, 1))
    bitmap = page.render(scale=scale, rev_byteorder=True)
    yield _line([bitmap.width, bitmap.height, bitmap.stride])
    yield bytes(bitmap.buffer)


def _line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _bounded() -> None:
    """Limits what this process may take, where the system knows such limits."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MOST, CPU_SECONDS_MOST))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MOST, MEMORY_MOST))


if __name__ == "__main__":
    _bounded()
    for piece in answer(sys.stdin.buffer.read(), sys.argv[1], *map(int, sys.argv[2:])):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
