"""Read pages with the program Tesseract."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from specialists._kit.isolated import children_seconds, run_program
from specialists._pictures.languages import SCRIPTS, TESSERACT_CODES, tesseract_code
from specialists._pictures.layout import Piece, join_pieces, lay_out
from specialists._pictures.result import LOW_CONFIDENCE, Engines, Reading
from specialists._pictures.rotation import rotate

if TYPE_CHECKING:
    from PIL.Image import Image

LISTING_SECONDS = 5
AT_ONCE = 3
"""Number of languages that are read together with `auto`; each one costs time and confidence."""
_DRAWN = re.compile(r"[|_—=~¦]+")
"""Text that Tesseract reads in ruled lines of a table."""
_SURE = 1.0
_SHADOWED = ("-c", "thresholding_method=2")
"""Use a local threshold: black is darker than its surroundings, not than the whole page."""


class Orientation(NamedTuple):
    """A page's orientation: the counterclockwise rotation that makes it upright, in degrees, and its script."""

    degrees: int
    script: str


@cache
def list_languages(program: str | None) -> frozenset[str]:
    """Return the codes of the installed languages; `osd` is the orientation data."""
    if not program:
        return frozenset()
    listed = run_program([program, "--list-langs"], cpu_seconds=LISTING_SECONDS)
    return frozenset(listed.decode(errors="replace").split("\n")[1:]) - {"", "equ"}


def read(image: "Image", language: str, installed: Engines) -> Reading:
    """Read a page with level lines, in any orientation; the text is empty if Tesseract fails or takes too long."""
    engine = _Engine(installed, choose_codes(language, list_languages(installed.tesseract)))
    best = engine.recognise(image)
    if not best.text:
        best = engine.recognise(image, options=_SHADOWED)
    if best.confidence >= LOW_CONFIDENCE or engine.seconds_left <= 0:
        return best
    orientation = engine.detect_orientation(image)
    if not best.text and not orientation:
        return best
    for degrees in [orientation.degrees] * bool(orientation.degrees) if orientation else [180, 90, 270]:
        best = max(best, engine.recognise(rotate(image, degrees)), key=lambda reading: reading.worth)
        if best.confidence >= LOW_CONFIDENCE:
            return best
    if not orientation or language != "auto" or best.confidence >= LOW_CONFIDENCE or orientation.script not in SCRIPTS:
        return best
    code = TESSERACT_CODES[SCRIPTS[orientation.script]]
    if code not in list_languages(installed.tesseract):
        note = f"the script may be {orientation.script}, which is not installed"
        return replace(best, note=note, missing_code=code)
    other = engine.recognise(rotate(image, orientation.degrees), codes=[code])
    return max(best, other, key=lambda reading: reading.worth)


class _Engine:
    """Tesseract with a CPU time limit for one page."""

    def __init__(self, installed: Engines, codes: Sequence[str]) -> None:
        self._program = installed.tesseract
        self._codes = codes
        self._end = children_seconds() + installed.seconds

    @property
    def seconds_left(self) -> float:
        return self._end - children_seconds()

    def recognise(self, image: "Image", *, codes: Sequence[str] = (), options: Sequence[str] = ()) -> Reading:
        return _parse_table(self._run(image, "-l", "+".join(codes or self._codes), *options, "tsv"))

    def detect_orientation(self, image: "Image") -> Orientation | None:
        """Return the orientation of the page, or None without enough text or the `osd` data."""
        if "osd" not in list_languages(self._program):
            return None
        output = self._run(image, "-l", "osd", "--psm", "0")
        values = dict(re.findall(r"^([\w ]+): ([\w.]+)$", output, re.M))
        if float(values.get("Orientation confidence", 0)) < _SURE:
            return None
        return Orientation(-int(values["Rotate"]) % 360, values["Script"])

    def _run(self, image: "Image", *arguments: str) -> str:
        if self.seconds_left <= 0:
            return ""
        pixels = BytesIO()
        image.save(pixels, "PPM")
        command = [str(self._program), "stdin", "stdout", *arguments]
        return run_program(command, pixels.getvalue(), cpu_seconds=self.seconds_left).decode(errors="replace")


def choose_codes(language: str, known: frozenset[str]) -> list[str]:
    """Return the codes for a language; for `auto`, installed languages with Latin letters."""
    if language != "auto":
        return [tesseract_code(language)]
    others = {TESSERACT_CODES[one] for one in SCRIPTS.values()} | {"osd"}
    first = ["eng", "deu", "fra", "spa", "ita"]
    ordered = [code for code in first if code in known] + sorted(known - others - set(first))
    return ordered[:AT_ONCE] or sorted(known - {"osd"})[:1]


def _parse_table(table: str) -> Reading:
    """Parse Tesseract's TSV: one row per word, with block, paragraph, line and confidence."""
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
    pieces: list[Piece] = []
    for words in _level(list(lines.values())):
        upper, lower = min(word.top for word in words), max(word.bottom for word in words)
        pieces += join_pieces([replace(word, top=upper, bottom=lower) for word in words])
    return Reading(lay_out(pieces), "Tesseract", sum(confidences) / len(confidences) / 100)


def _level(lines: Sequence[Sequence[Piece]]) -> Sequence[Sequence[Piece]]:
    """Return the lines rotated to be level; Tesseract also reads vertical lines."""
    steps = [(word.left - before.left, word.top - before.top) for words in lines for before, word in pairwise(words)]
    across, down = (sum(abs(step[axis]) for step in steps) for axis in (0, 1))
    if down <= across:
        return lines
    if sum(step[1] for step in steps) > 0:
        return [[Piece(w.text, w.top, w.bottom, -w.right, -w.left) for w in words] for words in lines]
    return [[Piece(w.text, -w.bottom, -w.top, w.left, w.right) for w in words] for words in lines]
