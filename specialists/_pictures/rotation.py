"""Measure the orientation and skew of a page from its lines, and rotate it."""

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 700
"""Maximum side of the measured image, in pixels."""
MAX_SKEW = 12.0
MIN_SKEW = 0.4
"""Smallest skew that is corrected, in degrees."""
SIDEWAYS = 1.6
"""Factor by which lines must be sharper along the other axis."""
_GAIN = 1.2
_GRAIN = 24


class Pose(NamedTuple):
    """The counterclockwise rotation in degrees that levels the lines of a page, and whether they run vertically."""

    skew: float
    sideways: bool


def measure_pose(image: "Image") -> Pose:
    """Return skew and orientation. Lines of text are stripes, and their edges are sharpest when level."""
    from PIL import ImageOps

    grey = ImageOps.autocontrast(ImageOps.grayscale(image))
    grey.thumbnail((SIDE, SIDE))
    ink = _extract_ink(grey)
    level, rotated = (_find_angle(page) for page in (ink, ink.rotate(-90, expand=True)))
    sideways = rotated[1] > SIDEWAYS * level[1]
    skew = (rotated if sideways else level)[0]
    return Pose(skew if abs(skew) >= MIN_SKEW else 0.0, sideways)


def rotate(image: "Image", degrees: float) -> "Image":
    """Rotate an image counterclockwise, on a larger background in the colour of its corner."""
    from PIL.Image import Resampling

    if degrees % 90 == 0:
        return image.rotate(degrees, expand=True)
    return image.rotate(degrees, Resampling.BICUBIC, expand=True, fillcolor=image.getpixel((0, 0)))


def _extract_ink(grey: "Image") -> "Image":
    """Return an image that is white where a page differs from its surroundings, to ignore shadows."""
    from PIL import ImageChops, ImageFilter

    ink = ImageChops.difference(grey, grey.filter(ImageFilter.BoxBlur(8))).point(lambda value: value * (value > _GRAIN))
    return ink.crop(ink.getbbox())


def _find_angle(ink: "Image") -> tuple[float, float]:
    """Return the angle at which the lines are sharpest, and that sharpness."""
    best, sharpest = 0.0, _measure_sharpness(ink, 0.0) * _GAIN
    for step, span in ((2.0, MAX_SKEW), (0.5, 1.5), (0.125, 0.375)):
        middle = best
        for turn in range(-int(span / step), int(span / step) + 1):
            angle = middle + turn * step
            sharpness = _measure_sharpness(ink, angle)
            if sharpness > sharpest:
                best, sharpest = angle, sharpness
    return best, sharpest


def _measure_sharpness(ink: "Image", angle: float) -> float:
    """Return how much adjacent rows of a rotated image differ."""
    from PIL.Image import Resampling

    level = ink.rotate(angle, Resampling.BILINEAR, expand=True).convert("F")
    rows = memoryview(level.resize((1, level.height), Resampling.BOX).tobytes()).cast("f")
    return float(level.width**2) * sum((above - below) ** 2 for above, below in pairwise(rows))
