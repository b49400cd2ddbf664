"""Read one page with the installed engines, in a child process.

RapidOCR runs first: it is as fast as Tesseract, needs no language, and reads tables, photographs and accents that
Tesseract loses without lowering its confidence. Tesseract reads languages that RapidOCR does not support, and retries
pages with low confidence.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from specialists._pictures import rapidocr, tesseract
from specialists._pictures.images import Document, Region, Unreadable, join_added
from specialists._pictures.languages import RAPIDOCR, TESSERACT_CODES, guess_language, iso_code, tesseract_code
from specialists._pictures.result import Engines, Reading
from specialists._pictures.rotation import measure_pose, rotate

if TYPE_CHECKING:
    from PIL.Image import Image

CLEAN = 0.92
"""Mean confidence at which no other engine is tried."""
_SMALL = 1000
_MIN_SIDE = 8
_SIDE_PADDED = 64

Engine = Callable[["Image", str, Engines], Reading]


def read(
    data: bytes,
    *,
    name: str,
    pdf: bool,
    page: int,
    region: Region,
    language: str,
    enhance: bool,
    engines: dict[str, Any],
    pdf_seconds: float,
) -> tuple[dict[str, Any], bytes]:
    """Return the text of one page, and what forms and notes add to a whole page of a PDF.

    Args:
        language: `auto`, two letters with or without a region, or a Tesseract code.
    """
    installed = Engines(**engines)
    candidates = _choose_engines(language, installed)
    document = Document(data, name, pdf, pdf_seconds)
    image = document.image(page, region)
    reading = Reading("", "", 0.0)
    if min(image.size) >= _MIN_SIDE:
        leveled = _level(_enhance(image) if enhance else image, installed)
        reading = _read_best(leveled, language, candidates, installed)
    if document.added and not region:
        confidence = reading.confidence if reading.text else 1.0
        reading = replace(reading, text=join_added(reading.text, document.added), confidence=confidence)
    return asdict(reading), b""


def _choose_engines(language: str, installed: Engines) -> list[Engine]:
    """Return the engines that support a language, best first."""
    of_tesseract = tesseract.list_languages(installed.tesseract) - {"osd"}
    of_rapidocr = RAPIDOCR if installed.rapidocr else frozenset[str]()
    auto = language == "auto"
    found: list[Engine] = []
    if of_rapidocr and (auto or iso_code(language) in of_rapidocr):
        found.append(rapidocr.read)
    if of_tesseract and (auto or tesseract_code(language) in of_tesseract):
        found.append(tesseract.read)
    if not found:
        known = {iso_code(one) for one in of_tesseract} | of_rapidocr
        reason = f"no installed OCR engine supports the language {language[:20]!r}"
        raise Unreadable(reason, f"use one of: {', '.join(sorted(known))}" if known else "continue without it")
    return found


def _read_best(image: "Image", language: str, candidates: list[Engine], installed: Engines) -> Reading:
    readings = []
    for engine in candidates:
        reading = engine(image, language, installed)
        unread_language = _find_unread_language(reading, language, installed)
        if unread_language and engine is tesseract.read:
            if TESSERACT_CODES[unread_language] in tesseract.list_languages(installed.tesseract):
                reading = tesseract.read(image, unread_language, installed)
            else:
                note = f"the text seems to be in '{unread_language}', which is not installed: accents may be wrong"
                reading = replace(reading, confidence=min(reading.confidence, CLEAN - 0.01), note=note)
                reading = replace(reading, missing_code=TESSERACT_CODES[unread_language])
        readings.append(reading)
        if reading.confidence >= CLEAN:
            break
    return max(readings, key=lambda reading: reading.worth)


def _find_unread_language(reading: Reading, language: str, installed: Engines) -> str | None:
    """Return the detected language if the text was read for other languages, so accents may be missing."""
    found = guess_language(reading.text) if language == "auto" else None
    read_for = tesseract.choose_codes(language, tesseract.list_languages(installed.tesseract))
    return found if found and TESSERACT_CODES[found] not in read_for else None


def _level(image: "Image", installed: Engines) -> "Image":
    """Return the image with level lines, padded with the colour of its corner if it is too narrow."""
    from PIL import Image

    skew, sideways = measure_pose(image)
    if sideways and installed.rapidocr:
        sideways = rapidocr.is_sideways(image)
    image = rotate(rotate(image, -90 if sideways else 0), skew)
    if min(image.size) >= _SIDE_PADDED:
        return image
    size = (max(image.width, _SIDE_PADDED), max(image.height, _SIDE_PADDED))
    ground = Image.new(image.mode, size, image.getpixel((0, 0)))
    ground.paste(image, ((size[0] - image.width) // 2, (size[1] - image.height) // 2))
    return ground


def _enhance(image: "Image") -> "Image":
    """Return a grey, sharpened image with full contrast and without specks; a small one is doubled in size."""
    from PIL import ImageFilter, ImageOps
    from PIL.Image import Resampling

    grey = ImageOps.autocontrast(_remove_specks(ImageOps.grayscale(image)), cutoff=1)
    if max(grey.size) < _SMALL:
        grey = grey.resize((grey.width * 2, grey.height * 2), Resampling.LANCZOS)
    return grey.filter(ImageFilter.UnsharpMask(radius=2, percent=120, threshold=3))


def _remove_specks(grey: "Image") -> "Image":
    """Remove pixels that are darker or lighter than all neighbours; unlike a median, this keeps thin strokes."""
    from PIL import ImageChops, ImageFilter

    second_darkest, second_lightest = (grey.filter(ImageFilter.RankFilter(3, rank)) for rank in (1, 7))
    return ImageChops.darker(ImageChops.lighter(grey, second_darkest), second_lightest)
