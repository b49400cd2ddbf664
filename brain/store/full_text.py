"""The full-text indexes: turns texts and searches into terms, which the engines store and find (see `FullText`).

Each term begins with the number of its user and a letter for the kind: conversation, fact or memory. So no search can
read, count or skip terms of another user.

Terms consist of `a` to `z` and digits. SQLite and Python disagree about other letters, and a character that SQLite
takes for a space would end the term: the rest could then pose as a term of another user.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, zip_longest

from brain.store.tx import Index, Tx

MAX_WORDS = 40
WORD_LENGTH = 64
"""Only this many characters of a word are indexed and searched for."""
INDEXED_LENGTH = 100_000
"""Only this many characters of a text are indexed."""
INDEXED_BYTES, BYTES_PER_TERM = 1_000_000, 6
"""Limit of the different terms of a key, and what each takes beside its characters: a `tsvector` has up to 1 MiB."""
FOUND_LENGTH = 160
STEM_SHARE, MIN_STEMMED = 0.65, 6

_CJK = "\u1100-\u11ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_CJK}]+|(?:(?![{_CJK}])[^\W_])+")
_HAS_CJK = re.compile(f"[{_CJK}]").search
_OTHER = re.compile("[^0-9a-z]")
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
"""English and German words that occur in nearly every text."""


def index_terms(owner: str, *texts: str) -> str:
    """Return the different words of texts as terms of their owner, as many as there is space for."""
    words = chain.from_iterable(_words(text[:INDEXED_LENGTH]) for text in texts)
    terms = dict.fromkeys(term for word in words for term in _terms(owner, word))
    sizes = accumulate(len(term) + BYTES_PER_TERM for term in terms)
    return " ".join(term for term, size in zip(terms, sizes, strict=True) if size <= INDEXED_BYTES)


def search_words(text: str) -> list[str]:
    """Return the distinct words of a search, without stop words unless it has only those."""
    words = list(dict.fromkeys(word[:WORD_LENGTH] for word in _words(text[:INDEXED_LENGTH])))
    significant = [word for word in words if word.casefold() not in _STOP]
    return (significant or words)[:MAX_WORDS]


def excerpt(text: str, words: Iterable[str]) -> str:
    """Return one line of a text around the first of the words."""
    text = text[:INDEXED_LENGTH]
    lower = text.lower()
    forms = (form for word in words for form in (word.lower(), stem(word.lower())))
    places = (place for form in forms if (place := lower.find(form)) >= 0)
    middle = next(places, 0)
    start = max(0, middle - FOUND_LENGTH // 3)
    line = " ".join(text[start : start + FOUND_LENGTH].split())
    return f"{'…' if start else ''}{line}{'…' if start + FOUND_LENGTH < len(text) else ''}"


def has_pairs(text: str) -> bool:
    """Return whether a text has characters of a script without spaces, which are indexed in pairs."""
    return _HAS_CJK(text) is not None


def stem(word: str) -> str:
    """Return the beginning that inflected forms of a word share; a short word itself."""
    return word[: round(len(word) * STEM_SHARE)] if len(word) >= MIN_STEMMED else word


# the indexes


def put(tx: Tx, index: Index, key: int, owner: str, *texts: str) -> None:
    """Index the words of texts for their owner, replacing those of the same key."""
    tx.words.put(tx, index, key, index_terms(owner, *texts))


def newest(tx: Tx, index: Index, query: str, limit: int) -> frozenset[int]:
    """Return the greatest keys of what matches a query."""
    found = tx.execute(f"SELECT key FROM {tx.words.matching(index)} ORDER BY key DESC LIMIT ?", (query, limit))
    return frozenset(key for (key,) in found.fetchall())


def query(tx: Tx, owners: Iterable[str], word: str, *, is_prefix: bool = False) -> str:
    """Return the query for one word of any of these owners. In scripts without spaces, any part of a text is a word.

    Args:
        is_prefix: whether words that begin with it match, too.
    """

    def query_for(owner: str) -> str:
        *pairs, last = _terms(owner, word)
        if pairs:
            return tx.words.all_of([tx.words.query(pair) for pair in dict.fromkeys(pairs)])
        return tx.words.query(last, is_prefix=is_prefix or has_pairs(word))

    return tx.words.any_of([query_for(owner) for owner in owners])


# terms


def _words(text: str) -> Iterator[str]:
    return (match[0] for match in _WORD.finditer(unicodedata.normalize("NFKC", text)))


def _terms(owner: str, word: str) -> list[str]:
    """Return one term per word; in scripts without spaces, one per pair of neighbours, and one for the last character.

    A pair begins with the term of its first character, and with no other one, since all codes have the same length. No
    stemmer changes them, since they end with a digit.
    """
    if not has_pairs(word):
        return [f"{owner}{_spell(_fold(word[:WORD_LENGTH]))}"]
    codes = [f"{ord(character) >> 2:04x}{ord(character) & 3}" for character in word]
    return [f"{owner}x{code}{following}" for code, following in zip_longest(codes, codes[1:], fillvalue="")]


def _fold(word: str) -> str:
    """Return a word in lower case without accents."""
    if word.isascii():
        return word.lower()
    return "".join(one for one in unicodedata.normalize("NFKD", word.casefold()) if not unicodedata.combining(one))


def _spell(part: str) -> str:
    """Replace other letters by their code points."""
    return _OTHER.sub(lambda letter: f"x{ord(letter[0]):x}", part)
