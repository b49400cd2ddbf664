"""What an OCR engine makes of a page."""

from dataclasses import dataclass

LOW_CONFIDENCE = 0.85
"""Mean confidence below which a page may lie wrong: inverted ones get 0.3 by Tesseract, 0.65 by RapidOCR."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What an engine read; `confidence` is its own mean, from 0 to 1; `note` says what may be wrong with it."""

    text: str
    engine: str
    confidence: float
    note: str = ""

    @property
    def worth(self) -> float:
        """To compare readings of one page: much text, and more so if it is sure."""
        return self.confidence**2 * len(self.text)


@dataclass(frozen=True, slots=True)
class Engines:
    """What is installed: the program of Tesseract, and whether RapidOCR is there; how long Tesseract may take."""

    tesseract: str | None
    rapidocr: bool
    seconds: float = 30.0
