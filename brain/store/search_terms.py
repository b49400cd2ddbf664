"""The words of a text as the indexes hold them, and of a search. Pure.

Each word has its user's number and a letter before it: the words of different users, and those of conversations, facts
and memories, are different terms of the index. So no search sees, counts or passes over anything of somebody else.

Terms are spelt in `a` to `z` and digits alone. About other letters SQLite and Python do not agree, and one that SQLite
takes for a space would end the term: what stands behind it would be a term of whomever it says.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator

MAX_WORDS = 40
WORD_LENGTH = 64
INDEXED_LENGTH = 100_000
"""Characters of a text that can be found."""
FOUND_LENGTH = 160
STEM_SHARE, MIN_STEMMED = 0.65, 6

_CJK = "\u1100-\u11ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_CJK}]+|(?:(?![{_CJK}])[^\W_])+")
_IS_CJK = re.compile(f"[{_CJK}]").match
_FOREIGN = re.compile("[^0-9a-z]")
_STOP = frozenset({
    "a", "aber", "about", "all", "als", "also", "am", "an", "and", "any", "are", "as", "at", "auch", "auf", "aus",
    "be", "been", "bei", "bin", "bist", "but", "by", "can", "could", "da", "das", "dass", "dein", "dem", "den",
    "der", "des", "did", "die", "do", "does", "du", "ein", "eine", "einen", "einer", "er", "es", "for", "from",
    "für", "habe", "had", "has", "hast", "hat", "have", "he", "her", "his", "how", "i", "ich", "if", "ihr", "im",
    "in", "into", "is", "ist", "it", "its", "ja", "just", "kann", "me", "mein", "meine", "mich", "mir", "mit", "my",
    "nach", "nicht", "no", "noch", "not", "nur", "oder", "of", "on", "or", "our", "she", "should", "sich", "sie",
    "sind", "so", "some", "that", "the", "their", "them", "then", "there", "these", "they", "this", "to", "um",
    "und", "uns", "us", "von", "vor", "war", "was", "we", "wenn", "wer", "were", "what", "when", "where", "which",
    "who", "why", "wie", "will", "wir", "with", "wo", "would", "you", "your", "zu", "zum", "zur", "über",
})  # fmt: skip
"""Words of English and German that stand in every text."""


def index_terms(owner: str, text: str) -> str:
    """The words of a text, each as a term of its owner."""
    return " ".join(term for word in _words(text[:INDEXED_LENGTH]) for term in _terms(owner, word))


def search_words(text: str) -> list[str]:
    """What a search is for: each word once, without those that stand in every text unless there are no others."""
    words = list(dict.fromkeys(word[:WORD_LENGTH] for word in _words(text[:INDEXED_LENGTH])))
    significant = [word for word in words if word.casefold() not in _STOP]
    return (significant or words)[:MAX_WORDS]


def query(owners: Iterable[str], word: str, *, is_prefix: bool = False) -> str:
    """The search for one word, as FTS5 reads it: a phrase where its characters are terms.

    Args:
        is_prefix: whether a word that only begins so is found, too.
    """
    phrases = (f'"{" ".join(_terms(owner, word))}"' for owner in owners)
    return " OR ".join(f"{phrase}{'*' if is_prefix else ''}" for phrase in phrases)


def excerpt(text: str, words: Iterable[str]) -> str:
    """About where the first of the words stands in a text, in one line."""
    text = text[:INDEXED_LENGTH]
    lower = text.lower()
    forms = (form for word in words for form in (word.lower(), stem(word.lower())))
    places = (place for form in forms if (place := lower.find(form)) >= 0)
    middle = next(places, 0)
    start = max(0, middle - FOUND_LENGTH // 3)
    line = " ".join(text[start : start + FOUND_LENGTH].split())
    return f"{'…' if start else ''}{line}{'…' if start + FOUND_LENGTH < len(text) else ''}"


def stem(word: str) -> str:
    """How words of the same kind begin; the word itself where it is too short to tell."""
    return word[: round(len(word) * STEM_SHARE)] if len(word) >= MIN_STEMMED else word


def _words(text: str) -> Iterator[str]:
    return (match[0] for match in _WORD.finditer(unicodedata.normalize("NFKC", text)))


def _terms(owner: str, word: str) -> Iterator[str]:
    """A word is one term, but each character of a script that puts no spaces between words is one of its own."""
    return (f"{owner}{_spell(part)}" for part in (word if _IS_CJK(word) else (_fold(word),)))


def _fold(word: str) -> str:
    """A word without case and accents."""
    if word.isascii():
        return word.lower()
    return "".join(one for one in unicodedata.normalize("NFKD", word.casefold()) if not unicodedata.combining(one))


def _spell(part: str) -> str:
    """Any other letter by its number."""
    return _FOREIGN.sub(lambda letter: f"x{ord(letter[0]):x}", part)
