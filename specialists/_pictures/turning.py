"""How a page lies: by what angle its lines lean, and whether they run from top to bottom."""

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 700
"""Pixels a side on which it is measured."""
MAX_LEAN = 12.0
MIN_LEAN = 0.4
"""Degrees; a smaller lean does no harm."""
SIDEWAYS = 1.6
"""How much sharper the lines must be along the other axis."""
_GAIN = 1.2
_GRAIN = 24


class Pose(NamedTuple):
    """Degrees by which a page is to be turned, counterclockwise, for its lines to be level; and whether they seem to
    run from top to bottom, so that a quarter turn is missing too.
    """

    lean: float
    sideways: bool


def pose(image: "Image") -> Pose:
    """How the lines of a page lie. Text makes stripes: their edges are sharpest when they are level."""
    from PIL import ImageOps

    grey = ImageOps.autocontrast(ImageOps.grayscale(image))
    grey.thumbnail((SIDE, SIDE))
    ink = _ink(grey)
    level, rotated = (_best_angle(page) for page in (ink, ink.rotate(-90, expand=True)))
    sideways = rotated[1] > SIDEWAYS * level[1]
    lean = (rotated if sideways else level)[0]
    return Pose(lean if abs(lean) >= MIN_LEAN else 0.0, sideways)


def rotate(image: "Image", degrees: float) -> "Image":
    """Turned counterclockwise on a ground in the colour of its corner; none of it is cut off."""
    from PIL.Image import Resampling

    if degrees % 90 == 0:
        return image.rotate(degrees, expand=True)
    return image.rotate(degrees, Resampling.BICUBIC, expand=True, fillcolor=image.getpixel((0, 0)))


def _ink(grey: "Image") -> "Image":
    """White where it differs from its surroundings, so that shadows, borders and grain make no stripes."""
    from PIL import ImageChops, ImageFilter

    ink = ImageChops.difference(grey, grey.filter(ImageFilter.BoxBlur(8))).point(lambda value: value * (value > _GRAIN))
    return ink.crop(ink.getbbox())


def _best_angle(ink: "Image") -> tuple[float, float]:
    """The angle at which the stripes are sharpest, and how sharp."""
    best, sharpest = 0.0, _sharpness(ink, 0.0) * _GAIN
    for step, span in ((2.0, MAX_LEAN), (0.5, 1.5), (0.125, 0.375)):
        middle = best
        for turn in range(-int(span / step), int(span / step) + 1):
            angle = middle + turn * step
            sharpness = _sharpness(ink, angle)
            if sharpness > sharpest:
                best, sharpest = angle, sharpness
    return best, sharpest


def _sharpness(ink: "Image", angle: float) -> float:
    """How much the rows of an image differ from their neighbours in the ink they hold."""
    from PIL.Image import Resampling

    level = ink.rotate(angle, Resampling.BILINEAR, expand=True).convert("F")
    rows = memoryview(level.resize((1, level.height), Resampling.BOX).tobytes()).cast("f")
    return float(level.width**2) * sum((above - below) ** 2 for above, below in pairwise(rows))
