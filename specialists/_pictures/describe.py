"""Inspect one image in a child process: measurements, bar codes, and a copy for a vision model."""

import colorsys
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from specialists._kit.text import one_line
from specialists._pictures.images import Document, crop_region, encode, to_upright

if TYPE_CHECKING:
    from PIL.Image import Image

Code = tuple[str, str, tuple[float, float]]
Kind = Literal["photo", "screenshot or document", "drawing or diagram", "one plain colour"]

SHOWN_SIDE = 1568
"""Maximum side of the copy for a model, in pixels; a larger copy only costs tokens."""
COLOURS_NAMED = 5
CODES_NAMED = 10
_MIN_SHARE = 0.01
_CODE_LENGTH = 300
_CODE_SIDE = 2000
_TAG_LENGTH = 80
_SAMPLE = 200
_MIN_FLAT = 0.5
_MIN_PAPER = 0.8
_MAX_INKS = 64
_SHARPNESS_SIDE = 1024

_GREYS = ((0.12, "black"), (0.4, "dark grey"), (0.65, "grey"), (0.93, "light grey"), (math.inf, "white"))
_HUES = (
    (0.04, "red"), (0.12, "orange"), (0.19, "yellow"), (0.45, "green"), (0.54, "turquoise"), (0.7, "blue"),
    (0.82, "violet"), (0.93, "magenta"), (math.inf, "red"),
)  # fmt: skip
_SHADES = ((0.3, "dark "), (0.72, ""), (math.inf, "light "))
_OWN_NAMES = {"orange": "brown", "dark orange": "dark brown", "light orange": "beige", "light red": "pink"}
_GREY_SPREAD = 0.11
_VIVID = 0.75
_BROWNISH = 0.4
_BRIGHTNESS_WORDS = (
    (0.25, "dark"),
    (0.45, "rather dark"),
    (0.65, "medium"),
    (0.85, "bright"),
    (math.inf, "very bright"),
)
_SHARPNESS_WORDS = ((20.0, "blurred or without detail"), (100.0, "soft"), (500.0, "sharp"), (math.inf, "very sharp"))

_MAKE, _MODEL, _TAKEN, _POSITION = 0x010F, 0x0110, 0x9003, 0x8825
_EXPOSURE, _APERTURE, _SENSITIVITY, _FOCAL_LENGTH, _LENS = 0x829A, 0x829D, 0x8827, 0x920A, 0xA434
_CAMERA_PART = 0x8769
_ORIENTATION = 0x0112
_LYING = (5, 6, 7, 8)
"""EXIF orientations that swap width and height."""


def inspect(
    data: bytes, *, name: str, pdf: bool, page: int, region: Sequence[float] | None, show: bool, pdf_seconds: float
) -> tuple[dict[str, Any], bytes]:
    """Return lines about one image. With `show`, return an encoded copy instead of the measurements.

    Args:
        page: page of a PDF or TIFF, from 1.
        region: left, top, right and bottom of the part to inspect, from 0 to 1.
    """
    document = Document(data, name, pdf, pdf_seconds)
    count = document.count() if pdf or page > 1 else page
    document.check(page, count)
    notes: list[str] = []
    if pdf:
        file, pixels = f"File: PDF, page {page} of {count}", crop_region(document.image(page), region)
    else:
        with document.open(page) as image:
            size, frames = image.size, getattr(image, "n_frames", 1)
            which = f", {'the first' if page == 1 else f'number {page}'} of {frames} frames" if frames > 1 else ""
            kind = f"mode {image.mode}{which}"
            pixels = to_upright(image, region)  # before getexif, which decodes a PNG at full size
            exif = image.getexif()
            width, height = reversed(size) if exif.get(_ORIENTATION, 1) in _LYING else size
            file, notes = f"File: {image.format}, {width} × {height} pixels, {kind}", _read_metadata(exif)
    codes = _read_codes(pixels)
    if show:
        pixels.thumbnail((SHOWN_SIDE, SHOWN_SIDE))
        return {"lines": [file, *codes, *([] if region else document.added)]}, encode(pixels)
    guess = _guess_kind(pixels, from_camera=any(line.startswith("Camera: ") for line in notes))
    measures = [
        file,
        f"Kind: {guess} (a guess)",
        _measure_colours(pixels),
        _measure_brightness(pixels),
        _measure_sharpness(pixels),
    ]
    return {"lines": [*measures, *notes, *(codes or ["Codes: none found"])]}, b""


def _measure_colours(image: "Image") -> str:
    """Return the dominant colours with name, code and share of the area."""
    from PIL.Image import Quantize

    small = image.resize((min(image.width, _SAMPLE), min(image.height, _SAMPLE)))
    paletted = small.quantize(COLOURS_NAMED, Quantize.MAXCOVERAGE)
    palette = paletted.getpalette() or []
    counts = sorted(paletted.getcolors() or [], reverse=True)
    total = sum(count for count, _ in counts)
    named = [
        f"{_name_colour(*palette[3 * index : 3 * index + 3])} {count / total:.0%}"
        for count, index in counts
        if isinstance(index, int) and count / total >= _MIN_SHARE
    ]
    return f"Dominant colours: {', '.join(named)}"


def _measure_brightness(image: "Image") -> str:
    """Return the mean luminance; 0 % is black."""
    from PIL import ImageStat

    mean = ImageStat.Stat(image.convert("L")).mean[0] / 255
    return f"Brightness: {mean:.0%} ({_find_label(mean, _BRIGHTNESS_WORDS)})"


def _measure_sharpness(image: "Image") -> str:
    """Return the variance of the Laplacian, at up to 1024 pixels per side to make image sizes comparable."""
    from PIL import ImageFilter, ImageStat

    grey = image.convert("L")
    grey.thumbnail((_SHARPNESS_SIDE, _SHARPNESS_SIDE))
    edges = grey.filter(ImageFilter.Kernel((3, 3), (0, 1, 0, 1, -4, 1, 0, 1, 0), scale=1, offset=128))
    inner = edges.crop((1, 1, edges.width - 1, edges.height - 1)) if min(edges.size) > 2 else None
    variance = ImageStat.Stat(inner).var[0] if inner else 0.0  # the filter does not change the margin
    return f"Sharpness: {variance:.0f}, the variance of the Laplacian ({_find_label(variance, _SHARPNESS_WORDS)})"


def _guess_kind(image: "Image", *, from_camera: bool) -> Kind:
    """Guess the kind of an image from its flat areas and the spread of its colours."""
    from PIL.Image import Resampling

    if from_camera:
        return "photo"
    sample = image.resize((_SAMPLE, _SAMPLE), Resampling.NEAREST)
    counts = sorted((count for count, _ in sample.getcolors(_SAMPLE * _SAMPLE) or ()), reverse=True)
    if len(counts) == 1:
        return "one plain colour"
    if _measure_flat_share(image) < _MIN_FLAT:
        return "photo"
    paper = counts[0] / sum(counts) > _MIN_PAPER
    return "screenshot or document" if paper or len(counts) > _MAX_INKS else "drawing or diagram"


def _read_codes(image: "Image") -> list[str]:
    """Return the bar codes and QR codes in an image, with their places and texts."""
    from PIL import ImageOps

    grey = image.convert("L")
    found = [
        *_decode_codes(grey),
        *_decode_codes(_sharpen_for_codes(grey)),
        *_decode_slanted(grey),
        *_decode_codes(ImageOps.invert(grey), bars=True),
    ]
    found = sorted(
        {code[:2]: code for code in reversed(found)}.values(),
        key=lambda code: (round(code[2][1] * 8), code[2][0]),  # in reading order
    )
    lines = []
    for kind, text, (across, down) in found[:CODES_NAMED]:
        row = "top" if down < 1 / 3 else "bottom" if down > 2 / 3 else ""
        column = "left" if across < 1 / 3 else "right" if across > 2 / 3 else ""
        lines.append(f"{kind} at the {f'{row} {column}'.strip() or 'center'}: {one_line(text, _CODE_LENGTH)}")
    left_out = len(found) - CODES_NAMED
    return [*lines, f"Codes: {left_out} more (inspect parts of the image to read them)"] if left_out > 0 else lines


def _decode_codes(grey: "Image", *, bars: bool = False) -> list[Code]:
    """Return kind, text and relative centre of each code; `bars` limits the search to linear bar codes."""
    import zxingcpp

    kinds = zxingcpp.BarcodeFormats([zxingcpp.BarcodeFormat.AllLinear] if bars else [])
    found = []
    for code in zxingcpp.read_barcodes(grey, kinds):
        at = code.position
        corners = (at.top_left, at.top_right, at.bottom_left, at.bottom_right)
        across, down = sum(c.x for c in corners) / 4 / grey.width, sum(c.y for c in corners) / 4 / grey.height
        found.append((str(code.format), code.text, (across, down)))
    return found


def _decode_slanted(grey: "Image") -> list[Code]:
    """Return the linear bar codes that are slanted by about 45 degrees."""
    grey = grey.copy()
    grey.thumbnail((_CODE_SIDE, _CODE_SIDE))
    rotate = grey.rotate(45, expand=True, fillcolor=255)
    found = []
    for kind, text, (across, down) in _decode_codes(rotate, bars=True):
        x, y = (across - 0.5) * rotate.width * math.sqrt(0.5), (down - 0.5) * rotate.height * math.sqrt(0.5)
        found.append((kind, text, (0.5 + (x - y) / grey.width, 0.5 + (x + y) / grey.height)))
    return found


def _sharpen_for_codes(grey: "Image") -> "Image":
    """Return a larger, sharper image with more contrast, for small, faint or blurred codes."""
    from PIL import ImageFilter, ImageOps
    from PIL.Image import Resampling

    clear = ImageOps.autocontrast(grey, cutoff=1)
    if max(grey.size) < _CODE_SIDE:
        clear = clear.resize((grey.width * 2, grey.height * 2), Resampling.BICUBIC)
    return clear.filter(ImageFilter.UnsharpMask(6, 300, 0)).filter(ImageFilter.UnsharpMask(4, 300, 0))


def _read_metadata(exif: Any) -> list[str]:
    """Return camera metadata. Report only that a location was present, never the location."""
    part = exif.get_ifd(_CAMERA_PART)
    body = " ".join(_read_tag(exif, tag) for tag in (_MAKE, _MODEL)).strip()
    known = {
        "Taken": _read_tag(part, _TAKEN),
        "Camera": body,
        "Lens": _read_tag(part, _LENS),
        "Exposure": _format_exposure(part),
    }
    lines = [f"{label}: {value}" for label, value in known.items() if value]
    return [*lines, "Position: removed"] if _POSITION in exif else lines


def _format_exposure(part: Mapping[int, Any]) -> str:
    tags = (_EXPOSURE, _APERTURE, _SENSITIVITY, _FOCAL_LENGTH)
    seconds, aperture, sensitivity, focal = (_read_number(part, tag) for tag in tags)
    parts = (
        seconds and (f"1/{1 / seconds:.0f} s" if seconds < 0.5 else f"{seconds:g} s"),
        aperture and f"f/{aperture:g}",
        sensitivity and f"ISO {sensitivity:g}",
        focal and f"{focal:g} mm",
    )
    return ", ".join(text for text in parts if text)


def _read_number(part: Mapping[int, Any], tag: int) -> float | None:
    """Return a finite number above 0, or None; some cameras write 0/0."""
    try:
        value = float(part[tag])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    return value if math.isfinite(value) and value > 0 else None


def _read_tag(part: Mapping[int, Any], tag: int) -> str:
    value = part.get(tag, "")
    return one_line(str(value), _TAG_LENGTH) if isinstance(value, str | int) else ""


def _name_colour(red: int, green: int, blue: int) -> str:
    hue, lightness, saturation = colorsys.rgb_to_hls(red / 255, green / 255, blue / 255)
    code = f"#{red:02x}{green:02x}{blue:02x}"
    if (max(red, green, blue) - min(red, green, blue)) / 255 < _GREY_SPREAD:
        return f"{_find_label(lightness, _GREYS)} {code}"
    name = _find_label(lightness, _SHADES) + _find_label(hue, _HUES)
    vivid = name == "orange" and saturation > _VIVID and lightness > _BROWNISH
    return f"{name if vivid else _OWN_NAMES.get(name, name)} {code}"


def _measure_flat_share(image: "Image") -> float:
    """Return the share of pixels that equal their left neighbour."""
    from PIL import ImageChops

    if image.width < 2:
        return 1.0
    left = image.crop((0, 0, image.width - 1, image.height))
    right = image.crop((1, 0, image.width, image.height))
    return ImageChops.difference(left, right).convert("L").histogram()[0] / (left.width * left.height)


def _find_label(value: float, words: tuple[tuple[float, str], ...]) -> str:
    return next(word for limit, word in words if value < limit)
