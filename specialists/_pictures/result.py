"""The text of a page, and the installed engines."""

from dataclasses import dataclass

LOW_CONFIDENCE = 0.85
"""Mean confidence below which a page may be upside down: Tesseract gives such pages 0.3, RapidOCR 0.65."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The text that an engine read.

    Attributes:
        confidence: mean confidence, from 0 to 1.
        note: likely mistakes, for people and the model.
        missing_code: Tesseract code of the detected language or script if it is not installed.
    """

    text: str
    engine: str
    confidence: float
    note: str = ""
    missing_code: str = ""

    @property
    def worth(self) -> float:
        """A score to compare readings of one page, from confidence and length."""
        return self.confidence**2 * len(self.text)


@dataclass(frozen=True, slots=True)
class Engines:
    """The installed engines: path of Tesseract and its CPU time per page in seconds; whether RapidOCR is installed."""

    tesseract: str | None
    rapidocr: bool
    seconds: float = 30.0
