"""Built in: the two OCR engines, and which of them reads a page. It runs in the process of `engine`.

Tesseract goes first where it is installed: on clean pages it is three to six times faster. RapidOCR reads what
Tesseract was not sure of. Both try the page upside down when they make little of it as it is.
"""

import math
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from io import BytesIO
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from specialists._pictures.images import Document, Region, Unreadable

if TYPE_CHECKING:
    from PIL.Image import Image

CLEAN = 0.92
"""Mean confidence from which a text is taken as it is; below it, Tesseract may have left out half of a skewed page."""
TURNED = 0.85
"""Mean confidence below which a page may stand on its head: inverted ones get 0.3 by Tesseract, 0.65 by RapidOCR."""
_SMALL = 1000
_SIDE_LEAST = 8
_SIDE_PADDED = 64
_GAP = 2.0
_COLUMN = "   "

TESSERACT_CODES = {
    "ar": "ara", "bg": "bul", "ca": "cat", "cs": "ces", "da": "dan", "de": "deu", "el": "ell", "en": "eng",
    "es": "spa", "et": "est", "fa": "fas", "fi": "fin", "fr": "fra", "he": "heb", "hi": "hin", "hr": "hrv",
    "hu": "hun", "id": "ind", "is": "isl", "it": "ita", "ja": "jpn", "ko": "kor", "lt": "lit", "lv": "lav",
    "nl": "nld", "no": "nor", "pl": "pol", "pt": "por", "ro": "ron", "ru": "rus", "sk": "slk", "sl": "slv",
    "sr": "srp", "sv": "swe", "th": "tha", "tr": "tur", "uk": "ukr", "vi": "vie", "zh": "chi_sim",
}  # fmt: skip
RAPIDOCR_LANGUAGES = frozenset({
    "ca", "cs", "da", "de", "en", "es", "et", "fi", "fr", "hr", "hu", "id", "is", "it", "ja", "lt", "lv", "nl", "no",
    "pl", "pt", "ro", "sk", "sl", "sv", "tr", "zh",
})  # fmt: skip
"""Whose letters the bundled model knows; it would fetch others from the net, which a specialist must not."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What an engine read; `confidence` is its own mean, from 0 to 1."""

    text: str
    engine: str
    confidence: float

    @property
    def worth(self) -> float:
        """About how many characters are right."""
        return self.confidence * len(self.text)


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of text on a page, in pixels; `middle` is that of its height."""

    text: str
    left: float
    right: float
    middle: float
    height: float


@dataclass(frozen=True, slots=True)
class Engines:
    """What is installed: the program of Tesseract, and whether RapidOCR is there; how long Tesseract may take."""

    tesseract: str | None
    rapidocr: bool
    seconds: float = 30.0


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
    """Answers with the text of one page."""
    installed = Engines(**engines)
    able = _able(language, installed)
    image = Document(data, name, pdf, pdf_seconds).image(page, region)
    return asdict(_read(enhanced(image) if enhance else image, language, able, installed)), b""


def _able(language: str, installed: Engines) -> list[Engine]:
    """The engines that read a language, best first.

    Args:
        language: two letters, with or without a region, or Tesseract's own code.
    """
    code = "en" if language == "auto" else _two_letters(language)
    of_tesseract = _languages_of(installed.tesseract)
    found: list[Engine] = [tesseract] if _tesseract_code(code) in of_tesseract else []
    if installed.rapidocr and code in RAPIDOCR_LANGUAGES:
        found.append(rapidocr)
    if not found:
        known = {_two_letters(one) for one in of_tesseract} | (RAPIDOCR_LANGUAGES if installed.rapidocr else set())
        raise Unreadable(f"no installed OCR engine reads the language {language[:20]!r}; installed: {_listed(known)}")
    return found


def _read(image: "Image", language: str, able: Sequence[Engine], installed: Engines) -> Reading:
    if min(image.size) < _SIDE_LEAST:
        return Reading("", "", 0.0)
    padded = _padded(image)
    readings = []
    for engine in able:
        readings.append(engine(padded, language, installed))
        if readings[-1].confidence >= CLEAN:
            break
    return max(readings, key=lambda reading: reading.worth)


def enhanced(image: "Image") -> "Image":
    """Grey, of full contrast, without specks, sharper, and twice the size if small."""
    from PIL import ImageFilter, ImageOps
    from PIL.Image import Resampling

    grey = ImageOps.autocontrast(_without_specks(ImageOps.grayscale(image)), cutoff=1)
    if max(grey.size) < _SMALL:
        grey = grey.resize((grey.width * 2, grey.height * 2), Resampling.LANCZOS)
    return grey.filter(ImageFilter.UnsharpMask(radius=2, percent=120, threshold=3))


def _without_specks(grey: "Image") -> "Image":
    """No pixel darker or lighter than all around it; unlike a median, this spares strokes one pixel wide."""
    from PIL import ImageChops, ImageFilter

    second_darkest, second_lightest = (grey.filter(ImageFilter.RankFilter(3, rank)) for rank in (1, 7))
    return ImageChops.darker(ImageChops.lighter(grey, second_darkest), second_lightest)


def tesseract(image: "Image", language: str, installed: Engines) -> Reading:
    """Reads with the Tesseract program; nothing when it fails or takes too long."""
    end = time.monotonic() + installed.seconds
    reading = _recognised(image, language, installed, end)
    if not reading.text or reading.confidence >= TURNED:
        return reading
    turned = _recognised(image.rotate(180), language, installed, end)
    return max(reading, turned, key=lambda reading: reading.worth)


def rapidocr(image: "Image", _language: str, _installed: Engines) -> Reading:
    """Reads with RapidOCR's bundled models, whatever the language."""
    image = image.convert("RGB")
    result = _rapidocr()(image)
    if _lies_on_its_side(result):
        image = image.rotate(90, expand=True)
        result = _rapidocr()(image)
    reading = _of_result(result)
    if not reading.text or reading.confidence >= TURNED:
        return reading
    turned = _of_result(_rapidocr()(image.rotate(180)))
    return max(reading, turned, key=lambda reading: reading.worth)


@cache
def _languages_of(program: str | None) -> frozenset[str]:
    """The codes of the languages that Tesseract has data for; none without Tesseract."""
    if not program:
        return frozenset()
    listed = subprocess.run([program, "--list-langs"], capture_output=True, timeout=10, check=False)
    return frozenset(listed.stdout.decode(errors="replace").split("\n")[1:]) - {"", "osd", "equ"}


def _two_letters(language: str) -> str:
    of_tesseract = {code: letters for letters, code in TESSERACT_CODES.items()}
    wanted = language.strip().lower()
    region_less = wanted.partition("-")[0]
    return of_tesseract.get(wanted, region_less if region_less in TESSERACT_CODES else wanted)


def _tesseract_code(code: str) -> str:
    return TESSERACT_CODES.get(code, code)


def _listed(languages: set[str]) -> str:
    return ", ".join(sorted(languages)) or "none"


def _padded(image: "Image") -> "Image":
    """Strips too narrow for the engines get a margin in the colour of their corner."""
    from PIL import Image

    if min(image.size) >= _SIDE_PADDED:
        return image
    size = (max(image.width, _SIDE_PADDED), max(image.height, _SIDE_PADDED))
    ground = Image.new(image.mode, size, image.getpixel((0, 0)))
    ground.paste(image, ((size[0] - image.width) // 2, (size[1] - image.height) // 2))
    return ground


def _recognised(image: "Image", language: str, installed: Engines, end: float) -> Reading:
    command = [
        str(installed.tesseract),
        "stdin",
        "stdout",
        "-l",
        _tesseract_code("en" if language == "auto" else _two_letters(language)),
        "tsv",
    ]
    pixels = BytesIO()
    image.save(pixels, "PPM")
    seconds = max(0.1, end - time.monotonic())
    try:
        done = subprocess.run(command, input=pixels.getvalue(), capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return Reading("", "Tesseract", 0.0)
    return _of_table(done.stdout.decode(errors="replace"))


def _of_table(table: str) -> Reading:
    """Tesseract's TSV: one row a word, with the block, paragraph and line it stands in, and its confidence."""
    lines: dict[tuple[str, ...], list[str]] = {}
    confidences = []
    for row in table.splitlines()[1:]:
        columns = row.split("\t")
        if len(columns) == 12 and columns[0] == "5" and columns[11].strip():
            lines.setdefault(tuple(columns[2:5]), []).append(columns[11].strip())
            confidences.append(float(columns[10]))
    text, before = "", None
    for (block, paragraph, _), words in lines.items():
        text += ("\n" if before in (None, (block, paragraph)) else "\n\n") + " ".join(words)
        before = (block, paragraph)
    return Reading(text.strip(), "Tesseract", sum(confidences) / len(confidences) / 100 if confidences else 0.0)


@cache
def _rapidocr() -> Any:
    """The one engine of the process."""
    from rapidocr import RapidOCR

    return RapidOCR(
        params={
            "Global.use_cls": False,  # its classifier turns correct lines upside down
            "Global.log_level": "critical",
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "Det.limit_type": "max",
            "Det.limit_side_len": 960,
        }
    )


def _of_result(result: Any) -> Reading:
    scores = result.scores or ()
    text = _laid_out(_straightened(result.boxes, result.txts)) if scores else ""
    return Reading(text, "RapidOCR", sum(scores) / len(scores) if text else 0.0)


def _straightened(boxes: Any, texts: Sequence[str]) -> list[Line]:
    """The lines found, their corners turned back by the slope that most of them have."""
    slopes = [math.atan2(box[1][1] - box[0][1], box[1][0] - box[0][0]) for box in boxes]
    sine, cosine = math.sin(-median(slopes)), math.cos(-median(slopes))
    lines = []
    for corners, text in zip(boxes, texts, strict=True):
        xs = [float(x * cosine - y * sine) for x, y in corners]
        ys = [float(x * sine + y * cosine) for x, y in corners]
        lines.append(Line(text.strip(), min(xs), max(xs), sum(ys) / 4, max(ys) - min(ys)))
    return lines


def _laid_out(lines: Sequence[Line]) -> str:
    """Rows from top to bottom, each from left to right; a blank line where the page has a gap."""
    height = median(line.height for line in lines)
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: line.middle):
        if rows and line.middle - rows[-1][-1].middle < height / 2:
            rows[-1].append(line)
        else:
            rows.append([line])
    text = _row(rows[0])
    for above, row in pairwise(rows):
        text += ("\n\n" if row[0].middle - above[-1].middle > _GAP * height else "\n") + _row(row)
    return text.strip()


def _row(row: Sequence[Line]) -> str:
    """The pieces of a row; those far apart are columns and stay apart."""
    ordered = sorted(row, key=lambda line: line.left)
    text = ordered[0].text
    for before, line in pairwise(ordered):
        text += (_COLUMN if line.left - before.right > line.height else " ") + line.text
    return text


def _lies_on_its_side(result: Any) -> bool:
    """Whether most of the lines found are taller than wide."""
    if result.boxes is None:
        return False
    tall = sum(_extent(box, 1) > _extent(box, 0) for box in result.boxes)
    return tall * 2 > len(result.boxes)


def _extent(box: Any, axis: int) -> float:
    return float(box[:, axis].max() - box[:, axis].min())
