"""The text of a page, and the engines that are installed."""

from dataclasses import dataclass

LOW_CONFIDENCE = 0.85
"""Mean confidence below which a page may lie wrong: inverted ones get 0.3 by Tesseract, 0.65 by RapidOCR."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The text that an engine read, with its mean confidence from 0 to 1, and a note about likely mistakes."""

    text: str
    engine: str
    confidence: float
    note: str = ""

    @property
    def worth(self) -> float:
        """A measure to compare readings of one page, from confidence and length."""
        return self.confidence**2 * len(self.text)


@dataclass(frozen=True, slots=True)
class Engines:
    """Path of Tesseract, whether RapidOCR is installed, and the CPU time of Tesseract for one page, in seconds."""

    tesseract: str | None
    rapidocr: bool
    seconds: float = 30.0
