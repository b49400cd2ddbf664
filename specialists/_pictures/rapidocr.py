"""Read pages with RapidOCR and its bundled model."""

import math
import re
from collections.abc import Sequence
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any

from specialists._pictures.images import MAX_SIDE
from specialists._pictures.layout import Piece, lay_out
from specialists._pictures.result import LOW_CONFIDENCE, Engines, Reading

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 1920
"""Maximum side for finding lines, in pixels: less loses small print on large screens, more takes time and memory."""
_MIN_LETTERS = 0.5
"""Letters per square of the line height; Latin text has about two, Chinese text one."""
_GREEK = re.compile(r"[\u0370-\u03ff\s]")


def read(image: "Image", _language: str, _installed: Engines) -> Reading:
    """Read a page with level lines; it may be upside down or sideways."""
    image = image.convert("RGB")
    result = _read_all(image)
    if _are_tall(result.boxes):
        image = image.rotate(90, expand=True)
        result = _read_all(image)
    reading = _parse_result(result)
    if not reading.text or reading.confidence >= LOW_CONFIDENCE:
        return reading
    other = _parse_result(_read_all(image.rotate(180)))
    return max(reading, other, key=lambda reading: reading.worth)


def is_sideways(image: "Image") -> bool:
    """Return whether lines run vertically. This takes a fifth of the time of `read`."""
    return _are_tall(_create_engine()(image.convert("RGB"), use_rec=False).boxes)


def _read_all(image: "Image") -> Any:
    return _create_engine()(image, use_rec=True)  # otherwise the engine keeps the setting of the last call


@cache
def _create_engine() -> Any:
    """Return the engine, which the process creates once."""
    import cv2
    from rapidocr import RapidOCR

    cv2.setNumThreads(1)
    return RapidOCR(
        params={
            "Global.use_cls": False,  # its classifier turns correct lines upside down
            "Global.log_level": "critical",
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "Det.limit_type": "max",
            "Det.limit_side_len": SIDE,
            "Global.max_side_len": MAX_SIDE,
        }
    )


def _parse_result(result: Any) -> Reading:
    if result.boxes is None:
        return Reading("", "RapidOCR", 1.0)  # it finds lines in any script, so the page has no text
    scores = result.scores or ()
    pieces = _straighten(result.boxes, result.txts) if scores else []
    text = lay_out(pieces)
    return Reading(text, "RapidOCR", sum(scores) / len(scores) * known_share(pieces) if text else 0.0)


def known_share(pieces: Sequence[Piece]) -> float:
    """Estimate the share of readable letters: the model omits unknown ones, and knows Greek only from formulas."""
    room = sum((piece.right - piece.left) / max(piece.height, 1.0) for piece in pieces)
    known = _GREEK.sub("", "".join(piece.text for piece in pieces))
    return min(1.0, len(known) / (_MIN_LETTERS * room or 1.0))


def _straighten(boxes: Any, texts: Sequence[str]) -> list[Piece]:
    """Return the lines found, rotated by their median slope to be level."""
    slopes = [math.atan2(box[1][1] - box[0][1], box[1][0] - box[0][0]) for box in boxes]
    sine, cosine = math.sin(-median(slopes)), math.cos(-median(slopes))
    pieces = []
    for corners, text in zip(boxes, texts, strict=True):
        xs = [float(x * cosine - y * sine) for x, y in corners]
        ys = sorted(float(x * sine + y * cosine) for x, y in corners)
        pieces.append(Piece(text.strip(), min(xs), max(xs), sum(ys[:2]) / 2, sum(ys[2:]) / 2))
    return pieces


def _are_tall(boxes: Any) -> bool:
    """Return whether most of the lines found are taller than wide."""
    if boxes is None:
        return False
    extents = [box.max(axis=0) - box.min(axis=0) for box in boxes]
    return sum(bool(height > width) for width, height in extents) * 2 > len(boxes)
