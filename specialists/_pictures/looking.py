"""Looks at one picture: its measures, its codes, and a copy for a model that sees. It runs in the process of
`engine`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specialists._pictures import describe
from specialists._pictures.images import Document, crop_region, encode, to_upright

if TYPE_CHECKING:
    from PIL.Image import Image

SHOWN_SIDE = 1568
"""Pixels a side: what vision models look at; more only costs them tokens."""


ORIENTATION = 0x0112
LYING = (5, 6, 7, 8)
"""Orientations of EXIF by which width and height are exchanged."""


def look(
    data: bytes, *, name: str, pdf: bool, page: int, region: Sequence[float] | None, show: bool, pdf_seconds: float
) -> tuple[dict[str, Any], bytes]:
    """Answers with lines about one picture.

    Args:
        page: of a PDF or TIFF.
        region: left, top, right and bottom of the part to look at, from 0 to 1.
        show: for a model that sees: not the measures, but an encoded copy.
    """
    document = Document(data, name, pdf, pdf_seconds)
    file, camera, pixels = _picture(document, page, region)
    codes = describe.codes(pixels)
    if show:
        return {"lines": [file, *codes]}, encode(_reduced(pixels))
    from_camera = any(line.startswith("Camera: ") for line in camera)
    measures = [
        file,
        f"Kind: {describe.kind(pixels, from_camera=from_camera)} (a guess)",
        describe.colours(pixels),
        describe.brightness(pixels),
        describe.sharpness(pixels),
    ]
    return {"lines": [*measures, *camera, *(codes or ["Codes: none found"])]}, b""


def _picture(document: Document, page: int, region: Sequence[float] | None) -> tuple[str, list[str], "Image"]:
    """What the file says of itself, what the camera noted, and the pixels."""
    count = document.count() if document.pdf or page > 1 else page
    document.check(page, count)
    if document.pdf:
        return f"File: PDF, page {page} of {count}", [], crop_region(document.image(page), region)
    with document.open(page) as image:
        size, kind = image.size, f"mode {image.mode}{_frames(image, page)}"
        pixels = to_upright(
            image, region
        )  # first, since it shrinks the image, and reading the notes of a PNG decodes it
        exif = image.getexif()
        width, height = reversed(size) if exif.get(ORIENTATION, 1) in LYING else size
        return f"File: {image.format}, {width} × {height} pixels, {kind}", describe.camera(exif), pixels


def _frames(image: "Image", page: int) -> str:
    frames = getattr(image, "n_frames", 1)
    which = "the first" if page == 1 else f"number {page}"
    return f", {which} of {frames} frames" if frames > 1 else ""


def _reduced(pixels: "Image") -> "Image":
    pixels.thumbnail((SHOWN_SIDE, SHOWN_SIDE))
    return pixels
