"""Languages: their codes, who reads them, and which one a text is in."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from specialists._kit.isolated import children_seconds, run_program
from specialists._pictures.layout import Piece, join_pieces, lay_out
from specialists._pictures.result import LOW_CONFIDENCE, Engines, Reading
from specialists._pictures.turning import rotate

TESSERACT_CODES = {
    "ar": "ara", "bg": "bul", "ca": "cat", "cs": "ces", "da": "dan", "de": "deu", "el": "ell", "en": "eng",
    "es": "spa", "et": "est", "fa": "fas", "fi": "fin", "fr": "fra", "he": "heb", "hi": "hin", "hr": "hrv",
    "hu": "hun", "id": "ind", "is": "isl", "it": "ita", "ja": "jpn", "ko": "kor", "lt": "lit", "lv": "lav",
    "nl": "nld", "no": "nor", "pl": "pol", "pt": "por", "ro": "ron", "ru": "rus", "sk": "slk", "sl": "slv",
    "sr": "srp", "sv": "swe", "th": "tha", "tr": "tur", "uk": "ukr", "vi": "vie", "zh": "chi_sim",
}  # fmt: skip
RAPIDOCR = frozenset({
    "ca", "cs", "da", "de", "en", "es", "et", "fi", "fr", "hr", "hu", "id", "is", "it", "ja", "lt", "lv", "nl", "no",
    "pl", "pt", "ro", "sk", "sl", "sv", "tr", "zh",
})  # fmt: skip
"""Whose letters the bundled model knows; it would fetch others from the net, which a specialist must not."""

SCRIPTS = {
    "Arabic": "ar", "Cyrillic": "ru", "Devanagari": "hi", "Greek": "el", "Hangul": "ko", "Han": "zh", "Hebrew": "he",
    "Japanese": "ja", "Korean": "ko", "Thai": "th",
}  # fmt: skip
"""What Tesseract calls other scripts than the Latin one, and a language of each."""

_COMMON_WORDS = {
    "da": "og det at en den til er som på de med han af for ikke der var",
    "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch",
    "en": "the of and to in a is that for it as was with be by on not he his are this",
    "es": "de la que el en y a los se del las un por con no una su para es al lo",
    "fr": "de la le et les des en un du une que est pour qui dans a par sur au pas il",
    "it": "di e il la che in un a per è una sono con non del si da come della le",
    "nl": "de van het een en in is dat op te zijn met voor niet aan er om ook als",
    "pl": "i w na z do się nie że to jest o jak po co od za przez są dla",
    "pt": "de a o que e do da em um para com não uma os no se na por mais as",
    "sv": "och i att det som en på är av för med den till inte om ett han men var",
}
_WORDS_OF = {language: frozenset(words.split()) for language, words in _COMMON_WORDS.items()}
_WORD = re.compile(r"[^\W\d_]+")
_SAMPLE = 5000
_MIN_WORDS = 20
_SHARE = 0.2
"""Of all words; in running text the twenty most common ones are about a third."""


def iso_code(language: str) -> str:
    """`de` for `de`, `DE-at` and `deu`; what is in no list as it is."""
    of_tesseract = {code: letters for letters, code in TESSERACT_CODES.items()}
    wanted = language.strip().lower()
    region_less = wanted.partition("-")[0]
    return of_tesseract.get(wanted, region_less if region_less in TESSERACT_CODES else wanted)


def tesseract_code(language: str) -> str:
    """Tesseract's code of a language."""
    letters = iso_code(language)
    return TESSERACT_CODES.get(letters, letters)


def guess_language(text: str) -> str | None:
    """The language that a text is most likely in, by its most common words; None for one too short or too strange."""
    words = [word.lower() for word in _WORD.findall(text[:_SAMPLE])]
    if len(words) < _MIN_WORDS:
        return None
    hits = Counter({language: sum(word in common for word in words) for language, common in _WORDS_OF.items()})
    language, count = hits.most_common(1)[0]
    return language if count >= _SHARE * len(words) else None


if TYPE_CHECKING:
    from PIL.Image import Image

LISTING_SECONDS = 5
AT_ONCE = 3
"""Languages that are read together when none is asked for; each one more costs time and certainty."""
_DRAWN = re.compile(r"[|_—=~¦]+")
"""What it takes the lines of a table for."""
_SURE = 1.0
_SHADOWED = ("-c", "thresholding_method=2")
"""Black is what is darker than its surroundings, not than the whole page."""


class Budget:
    """The CPU time that is left for the programs of one page."""

    def __init__(self, seconds: float) -> None:
        self._end = children_seconds() + seconds

    @property
    def left(self) -> float:
        return self._end - children_seconds()


class Facing(NamedTuple):
    """What Tesseract says of a page's orientation: degrees counterclockwise to turn it by, and its script."""

    degrees: int
    script: str


@cache
def languages(program: str | None) -> frozenset[str]:
    """The codes of the languages that Tesseract has data for, `osd` for orientation among them."""
    if not program:
        return frozenset()
    listed = run_program([program, "--list-langs"], cpu_seconds=LISTING_SECONDS)
    return frozenset(listed.decode(errors="replace").split("\n")[1:]) - {"", "equ"}


def read(image: "Image", wanted: str, installed: Engines) -> Reading:
    """Reads a page whose lines are level, whichever way is up; nothing when it fails or computes for too long."""
    budget = Budget(installed.seconds)
    read_for = codes(wanted, languages(installed.tesseract))
    best = _recognise(image, read_for, installed, budget)
    if not best.text:
        best = _recognise(image, read_for, installed, budget, *_SHADOWED)
    if best.confidence >= LOW_CONFIDENCE or budget.left <= 0:
        return best
    facing = _facing(image, installed, budget)
    if not best.text and not facing:
        return best
    for degrees in [facing.degrees] * bool(facing.degrees) if facing else [180, 90, 270]:
        other = _recognise(rotate(image, degrees), read_for, installed, budget)
        best = max(best, other, key=lambda reading: reading.worth)
        if best.confidence >= LOW_CONFIDENCE:
            break
    return _in_script(best, facing, wanted, installed, image, budget)


def _in_script(
    best: Reading, facing: Facing | None, wanted: str, installed: Engines, image: "Image", budget: Budget
) -> Reading:
    """The same, or a better reading, for a page that is written in other letters than the Latin ones."""
    language = SCRIPTS.get(facing.script) if facing and best.confidence < LOW_CONFIDENCE and wanted == "auto" else None
    if not language or not facing:
        return best
    code = TESSERACT_CODES[language]
    if code not in languages(installed.tesseract):
        note = f"these may be {facing.script} letters; the operator can install tesseract-ocr-{code.replace('_', '-')}"
        return replace(best, note=note)
    other = _recognise(rotate(image, facing.degrees), [code], installed, budget)
    return max(best, other, key=lambda reading: reading.worth)


def codes(wanted: str, known: frozenset[str]) -> list[str]:
    """What to read for: the language that is wanted, or those installed that have Latin letters."""
    if wanted != "auto":
        return [tesseract_code(wanted)]
    others = {TESSERACT_CODES[language] for language in SCRIPTS.values()} | {"osd"}
    first = ["eng", "deu", "fra", "spa", "ita"]
    ordered = [code for code in first if code in known] + sorted(known - others - set(first))
    return ordered[:AT_ONCE] or sorted(known - {"osd"})[:1]


def _facing(image: "Image", installed: Engines, budget: Budget) -> Facing | None:
    """Which way is up, if there is enough text and the data to tell."""
    if "osd" not in languages(installed.tesseract):
        return None
    told = dict(re.findall(r"^([\w ]+): ([\w.]+)$", _run(image, ["-l", "osd", "--psm", "0"], installed, budget), re.M))
    if float(told.get("Orientation confidence", 0)) < _SURE:
        return None
    return Facing(-int(told["Rotate"]) % 360, told["Script"])


def _recognise(image: "Image", codes: Sequence[str], installed: Engines, budget: Budget, *options: str) -> Reading:
    return _of_table(_run(image, ["-l", "+".join(codes), *options, "tsv"], installed, budget))


def _run(image: "Image", arguments: Sequence[str], installed: Engines, budget: Budget) -> str:
    pixels = BytesIO()
    image.save(pixels, "PPM")
    command = [str(installed.tesseract), "stdin", "stdout", *arguments]
    if budget.left <= 0:
        return ""
    return run_program(command, pixels.getvalue(), cpu_seconds=budget.left).decode(errors="replace")


def _of_table(table: str) -> Reading:
    """Tesseract's TSV: one row a word, with the block, paragraph and line it stands in, and its confidence."""
    lines: dict[tuple[str, ...], list[Piece]] = {}
    confidences = []
    for row in table.splitlines()[1:]:
        columns = row.split("\t")
        if len(columns) == 12 and columns[0] == "5" and columns[11].strip() and not _DRAWN.fullmatch(columns[11]):
            left, top, width, height = map(int, columns[6:10])
            lines.setdefault(tuple(columns[2:5]), []).append(
                Piece(columns[11].strip(), left, left + width, top, top + height)
            )
            confidences.append(float(columns[10]))
    if not confidences:
        return Reading("", "Tesseract", 0.0)
    pieces = [piece for words in _upright(list(lines.values())) for piece in join_pieces(_as_high_as_the_line(words))]
    return Reading(lay_out(pieces), "Tesseract", sum(confidences) / len(confidences) / 100)


def _upright(lines: Sequence[Sequence[Piece]]) -> Sequence[Sequence[Piece]]:
    """The same with level lines: it reads some that run down or up the page, and says where its words are there."""
    steps = [(word.left - before.left, word.top - before.top) for words in lines for before, word in pairwise(words)]
    across, down = (sum(abs(step[axis]) for step in steps) for axis in (0, 1))
    if down <= across:
        return lines
    if sum(step[1] for step in steps) > 0:
        return [[Piece(w.text, w.top, w.bottom, -w.right, -w.left) for w in words] for words in lines]
    return [[Piece(w.text, -w.bottom, -w.top, w.left, w.right) for w in words] for words in lines]


def _as_high_as_the_line(words: Sequence[Piece]) -> list[Piece]:
    top, bottom = min(word.top for word in words), max(word.bottom for word in words)
    return [replace(word, top=top, bottom=bottom) for word in words]
