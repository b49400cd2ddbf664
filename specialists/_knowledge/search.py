"""Ranks the passages of an index for a question, by words, and by vectors when there are some.

Vectors weigh more than words: they find what is said in other words. What looks like a code or a name is looked up
exactly, whatever the vectors say.
"""

import math
import re
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from specialists._kit.text import content_words
from specialists._knowledge.index import MIN_COMMON, Index
from specialists._knowledge.vectors import Matrix, QueryVector

DEPTH = 200
"""So many passages are ranked, by words and by vectors each."""
MAX_WORDS = 24
MAX_READ = 2_500
"""About so many passages are compared for their words; the words in most of them are left out first."""
RARE = MIN_COMMON / 4
"""In so many passages, about, is a word that was not counted."""
MIN_PREFIX = 4
WEIGHTS = "2.0, 4.0, 1.0"
"""Of the file's name, the headings and the text."""
WORDS_WEIGHT = 3.0
"""Of a passage with all words of the question, in standard deviations of the vectors' nearness."""
UNTRUSTED_WORDS_WEIGHT = 6.0
CODE_WEIGHT = 6.0
UNKNOWN_NEARNESS = 4.0
"""Of a passage that has no vector yet, when all the words of the question are in it."""
OUTSTANDING = 2.5
"""Nearness from which a passage is ranked by a vector without meaning; less among few."""
MIN_SPREAD = 0.02
"""Standard deviation of cosines, below which they differ by noise."""
_CODE = re.compile(r"\w*\d[\w./-]*\w|\b[A-Z][A-Z0-9_-]{2,}\b")
_QUOTED = re.compile(r'["“„«]([^"“”„«»]{3,80})["”“»]')
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]{2,}")


@dataclass(frozen=True, slots=True)
class Scope:
    """What may be searched: these roots, and of them, if not None, only these files."""

    roots: Collection[int]
    files: Collection[int] | None = None

    @property
    def where(self) -> str:
        roots = f"f.root IN ({_join(self.roots)})"
        return roots if self.files is None else f"{roots} AND f.id IN ({_join(self.files)})"


class Found(NamedTuple):
    """A passage; `file` is the name of its file, `has_namesake` whether another file is called so too."""

    root: int
    file: str
    heading: str
    place: str
    text: str
    has_namesake: bool


def rank(
    index: Index, query: str, scope: Scope, matrix: Matrix | None = None, query_vector: QueryVector | None = None
) -> list[int]:
    """The numbers of the passages that fit, best first, at most a few hundred."""
    if not scope.roots or (scope.files is not None and not scope.files):
        return []
    words = _rank_by_words(index, query, scope)
    if matrix is None or query_vector is None:
        return sorted(words, key=lambda chunk: -words[chunk])[:DEPTH]
    codes = _match_codes(index, query, scope)
    near = _rank_by_vectors(matrix, query_vector, scope, {*words, *codes})
    weight = WORDS_WEIGHT if query_vector.is_trusted else UNTRUSTED_WORDS_WEIGHT

    def score(chunk: int) -> float:
        """A few of the words mean little, so their share counts squared."""
        share = min(1.0, words.get(chunk, 0.0)) ** 2
        return near.get(chunk, UNKNOWN_NEARNESS * share) + weight * share + CODE_WEIGHT * codes.get(chunk, 0.0)

    best = sorted({*words, *near, *codes}, key=lambda chunk: -score(chunk))
    existing = {row[0] for row in index.db.execute(f"SELECT id FROM chunk WHERE id IN ({_join(best)})")}
    return [chunk for chunk in best if chunk in existing][:DEPTH]


def fetch(index: Index, chunks: Sequence[int], roots: Collection[int] = ()) -> list[Found]:
    """These passages, in this order; those that are gone are left out. Only files of these roots are namesakes."""
    rows = index.db.execute(
        "SELECT c.id, f.root, c.name, c.heading, c.place, c.text, "
        "EXISTS (SELECT 1 FROM file g WHERE g.name = f.name AND g.root <> f.root "
        f"AND g.root IN ({_join(roots)})) "
        f"FROM chunk c JOIN file f ON f.id = c.file WHERE c.id IN ({_join(chunks)})"
    )
    found = {number: Found(*row) for number, *row in rows}
    return [found[chunk] for chunk in chunks if chunk in found]


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, map(int, numbers)))


# words


def _rank_by_words(index: Index, query: str, scope: Scope) -> dict[int, float]:
    """The best passages by words, with how much of the question is in each: about 0 to 1, or a little more."""
    words = _weigh_words(index, query, index.get_note("passages") or index.passages() or 1)
    whole = sum(word.weight for word in words) or 1.0
    match, read = list[str](), 0.0
    for word in sorted(words, key=lambda word: word.passages):
        if match and read + word.passages > MAX_READ:
            break
        match.append(word.match)
        read += word.passages
    found = {chunk: score / whole for chunk, score in _match(index, " OR ".join(match), scope)} if match else {}
    for chunk, share in _match_pairs(index, query, scope).items():
        found[chunk] = found.get(chunk, 0.0) + share
    return found


class _Word(NamedTuple):
    """A word of a question: its FTS5 expression, in about how many passages it is, and how much it distinguishes."""

    match: str
    passages: float
    weight: float


def _weigh_words(index: Index, query: str, total: int) -> list[_Word]:
    words = list(dict.fromkeys(content_words(query)))[:MAX_WORDS]
    stems = _stem(words)
    found = []
    for word in words:
        stem = stems.get(word, word)
        exact = _count_passages(index, stem, stem) or min(RARE, total / 4)
        prefixed = _count_passages(index, stem, stem + "\U0010ffff") or exact
        is_prefix = len(stem) >= MIN_PREFIX and not stem.isdigit() and prefixed <= MAX_READ
        match = f'"{word}" OR "{word}"*' if is_prefix else f'"{word}"'
        weight = max(0.05, math.log((total - exact + 0.5) / (exact + 0.5) + 1))
        found.append(_Word(match, prefixed if is_prefix else exact, weight))
    return found


def _count_passages(index: Index, first: str, last: str) -> int:
    """In how many passages common words from `first` to `last` are; 0 for rare ones, which were not counted."""
    query = "SELECT sum(passages) FROM common WHERE word BETWEEN ? AND ?"
    (count,) = index.db.execute(query, (first, last)).fetchone()
    return count or 0


def _stem(words: Sequence[str]) -> Mapping[str, str]:
    """The terms of words in the index."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE VIRTUAL TABLE query USING fts5(word, tokenize='porter unicode61 remove_diacritics 2')")
        db.execute("CREATE VIRTUAL TABLE term USING fts5vocab('query', 'instance')")
        db.executemany("INSERT INTO query (rowid, word) VALUES (?, ?)", enumerate(words))
        return {words[row]: term for term, row in db.execute("SELECT term, doc FROM term ORDER BY offset DESC")}


def _match(index: Index, match: str, scope: Scope) -> list[tuple[int, float]]:
    return index.db.execute(
        f"SELECT p.rowid, -bm25(passage, {WEIGHTS}) AS score FROM passage p JOIN chunk c ON c.id = p.rowid "
        f"JOIN file f ON f.id = c.file WHERE passage MATCH ? AND {scope.where} ORDER BY score DESC LIMIT {DEPTH}",
        (match,),
    ).fetchall()


def _match_pairs(index: Index, query: str, scope: Scope) -> dict[int, float]:
    """The share of pairs of letters, for languages without spaces, whose sentences are one word to the index."""
    pairs = list(dict.fromkeys(run[n : n + 2] for run in _CJK.findall(query) for n in range(len(run) - 1)))[:MAX_WORDS]
    if not pairs:
        return {}
    count = " + ".join("(instr(c.text, ?) > 0)" for _ in pairs)
    rows = index.db.execute(
        f"SELECT id, pairs FROM (SELECT c.id AS id, {count} AS pairs FROM chunk c JOIN file f ON f.id = c.file "
        f"WHERE {scope.where}) WHERE pairs > 0 ORDER BY pairs DESC LIMIT {DEPTH}",
        pairs,
    )
    return {chunk: number / len(pairs) for chunk, number in rows}


def _match_codes(index: Index, query: str, scope: Scope) -> dict[int, float]:
    """The share of the codes, names in capitals and quotations of a question that is in each passage."""
    exact = list(dict.fromkeys([*_QUOTED.findall(query), *_CODE.findall(query)]))[:8]
    phrases = list(filter(None, (" ".join(re.findall(r"\w+", one)) for one in exact)))
    found: dict[int, float] = {}
    for phrase in phrases:
        for chunk, _ in _match(index, f'"{phrase}"', scope):
            found[chunk] = found.get(chunk, 0.0) + 1 / len(phrases)
    return found


# vectors


def _rank_by_vectors(
    matrix: Matrix, query_vector: QueryVector, scope: Scope, others: Collection[int]
) -> dict[int, float]:
    """The nearness of the nearest passages and of `others`, in standard deviations above the mean of all."""
    import numpy as np

    rows = np.isin(matrix.roots, list(scope.roots))
    if scope.files is not None:
        rows &= np.isin(matrix.files, list(scope.files))
    if not rows.any():
        return {}
    vector = np.asarray(query_vector.vector, np.float32)
    vector /= float(np.linalg.norm(vector)) or 1.0
    cosines = np.einsum("ij,j->i", matrix.rows, vector)  # as fast as @ for one vector, and without its threads
    cosines, chunks = cosines[rows], matrix.chunks[rows]
    nearness = (cosines - cosines.mean()) / max(float(cosines.std()), MIN_SPREAD)
    is_chosen = np.isin(chunks, list(others))
    best = np.argsort(-nearness)[:DEPTH]
    if query_vector.is_trusted:
        is_chosen[best] |= cosines[best] >= query_vector.floor
    else:
        is_chosen[best] |= nearness[best] >= min(OUTSTANDING, 0.8 * math.sqrt(len(chunks) - 1))
    return dict(zip(chunks[is_chosen].tolist(), nearness[is_chosen].tolist(), strict=True))
