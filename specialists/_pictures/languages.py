"""Language codes, the engines that support them, and language detection."""

import re
from collections import Counter

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
"""Languages that the bundled model supports; RapidOCR would download models for others."""

SCRIPTS = {
    "Arabic": "ar", "Cyrillic": "ru", "Devanagari": "hi", "Greek": "el", "Hangul": "ko", "Han": "zh", "Hebrew": "he",
    "Japanese": "ja", "Korean": "ko", "Thai": "th",
}  # fmt: skip
"""Tesseract's names of non-Latin scripts, each with one language."""

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
"""Minimum share of common words; they make up about a third of running text."""


def iso_code(language: str) -> str:
    """Return `de` for `de`, `DE-at` and `deu`; return an unknown code unchanged."""
    of_tesseract = {code: letters for letters, code in TESSERACT_CODES.items()}
    code = language.strip().lower()
    region_less = code.partition("-")[0]
    return of_tesseract.get(code, region_less if region_less in TESSERACT_CODES else code)


def tesseract_code(language: str) -> str:
    """Return Tesseract's code for a language."""
    letters = iso_code(language)
    return TESSERACT_CODES.get(letters, letters)


def guess_language(text: str) -> str | None:
    """Return the likely language of a text from its common words; None if it is too short or unusual."""
    words = [word.lower() for word in _WORD.findall(text[:_SAMPLE])]
    if len(words) < _MIN_WORDS:
        return None
    hits = Counter({language: sum(word in common for word in words) for language, common in _WORDS_OF.items()})
    language, count = hits.most_common(1)[0]
    return language if count >= _SHARE * len(words) else None
