"""Rank the passages of an index for a query, by keywords, and by embeddings if there are any.

Embeddings weigh more than keywords, because they find paraphrases. Codes, names and quotations are also matched
exactly.
"""

import math
import re
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from specialists._kit.text import content_words
from specialists._knowledge.embeddings import Matrix, QueryEmbedding
from specialists._knowledge.index import MIN_COMMON, Index

DEPTH = 200
"""Number of passages that are ranked by keywords, and by embeddings."""
MAX_WORDS = 24
MAX_READ = 2_500
"""Approximate number of passages that a keyword search reads. The most frequent words are dropped first."""
RARE = MIN_COMMON / 4
"""Estimated number of passages with a word that was not counted."""
MIN_PREFIX = 4
WEIGHTS = "2.0, 4.0, 1.0"
"""Weights of file name, headings and text."""
WORDS_WEIGHT = 3.0
"""Score of a passage with all words of the query, in standard deviations of the similarity."""
UNTRUSTED_WORDS_WEIGHT = 6.0
CODE_WEIGHT = 6.0
UNKNOWN_NEARNESS = 4.0
"""Similarity score of a passage that has no embedding yet but all words of the query."""
OUTSTANDING = 2.5
"""Minimum similarity score of a passage if the model failed the embedding check; less among few passages."""
MIN_SPREAD = 0.02
"""Standard deviation of cosines below which their differences are noise."""
_CODE = re.compile(r"\w*\d[\w./-]*\w|\b[A-Z][A-Z0-9_-]{2,}\b")
_QUOTED = re.compile(r'["“„«]([^"“”„«»]{3,80})["”“»]')
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]{2,}")


@dataclass(frozen=True, slots=True)
class Scope:
    """The roots to search, and in them only these files unless None."""

    roots: Collection[int]
    files: Collection[int] | None = None

    @property
    def where(self) -> str:
        roots = f"f.root IN ({_join(self.roots)})"
        return roots if self.files is None else f"{roots} AND f.id IN ({_join(self.files)})"


class Match(NamedTuple):
    """A passage; `file` is the name of its file, `has_namesake` whether another file has the same name."""

    root: int
    file: str
    heading: str
    place: str
    text: str
    has_namesake: bool


def rank(
    index: Index, query: str, scope: Scope, matrix: Matrix | None = None, query_embedding: QueryEmbedding | None = None
) -> list[int]:
    """Return the numbers of up to `DEPTH` matching passages, best first."""
    if not scope.roots or (scope.files is not None and not scope.files):
        return []
    words = _rank_by_words(index, query, scope)
    if matrix is None or query_embedding is None:
        return sorted(words, key=lambda chunk: -words[chunk])[:DEPTH]
    codes = _match_codes(index, query, scope)
    near = _rank_by_embeddings(matrix, query_embedding, scope, {*words, *codes})
    weight = WORDS_WEIGHT if query_embedding.is_trusted else UNTRUSTED_WORDS_WEIGHT

    def score(chunk: int) -> float:
        """Return the score of a passage; the share of words is squared, because a few words mean little."""
        share = min(1.0, words.get(chunk, 0.0)) ** 2
        return near.get(chunk, UNKNOWN_NEARNESS * share) + weight * share + CODE_WEIGHT * codes.get(chunk, 0.0)

    best = sorted({*words, *near, *codes}, key=lambda chunk: -score(chunk))
    existing = {row[0] for row in index.db.execute(f"SELECT id FROM chunk WHERE id IN ({_join(best)})")}
    return [chunk for chunk in best if chunk in existing][:DEPTH]


def fetch(index: Index, chunks: Sequence[int], roots: Collection[int] = ()) -> list[Match]:
    """Return existing passages in this order. Only files of these roots are namesakes."""
    rows = index.db.execute(
        "SELECT c.id, f.root, c.name, c.heading, c.place, c.text, "
        "EXISTS (SELECT 1 FROM file g WHERE g.name = f.name AND g.root <> f.root "
        f"AND g.root IN ({_join(roots)})) "
        f"FROM chunk c JOIN file f ON f.id = c.file WHERE c.id IN ({_join(chunks)})"
    )
    found = {number: Match(*row) for number, *row in rows}
    return [found[chunk] for chunk in chunks if chunk in found]


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, map(int, numbers)))


# words


def _rank_by_words(index: Index, query: str, scope: Scope) -> dict[int, float]:
    """Return the best passages by keywords, with the share of the query in each: about 0 to 1."""
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
    """A word of a query: FTS5 expression, approximate number of passages, and weight by rarity."""

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
    """Return the number of passages with common words from `first` to `last`; 0 for rare words."""
    query = "SELECT sum(passages) FROM common WHERE word BETWEEN ? AND ?"
    (count,) = index.db.execute(query, (first, last)).fetchone()
    return count or 0


def _stem(words: Sequence[str]) -> Mapping[str, str]:
    """Return the index terms of words."""
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
    """Return the share of matching letter pairs, for languages without spaces: the index takes a sentence as a word."""
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
    """Return the share of the query's codes, capitalized names and quotations that each passage contains."""
    exact = list(dict.fromkeys([*_QUOTED.findall(query), *_CODE.findall(query)]))[:8]
    phrases = list(filter(None, (" ".join(re.findall(r"\w+", one)) for one in exact)))
    found: dict[int, float] = {}
    for phrase in phrases:
        for chunk, _ in _match(index, f'"{phrase}"', scope):
            found[chunk] = found.get(chunk, 0.0) + 1 / len(phrases)
    return found


# embeddings


def _rank_by_embeddings(
    matrix: Matrix, query_embedding: QueryEmbedding, scope: Scope, others: Collection[int]
) -> dict[int, float]:
    """Return the similarity of the nearest passages and of `others`, in standard deviations above the mean."""
    import numpy as np

    rows = np.isin(matrix.roots, list(scope.roots))
    if scope.files is not None:
        rows &= np.isin(matrix.files, list(scope.files))
    if not rows.any():
        return {}
    vector = np.asarray(query_embedding.vector, np.float32)
    vector /= float(np.linalg.norm(vector)) or 1.0
    cosines = np.einsum("ij,j->i", matrix.rows, vector)  # as fast as @ for one vector, without its threads
    cosines, chunks = cosines[rows], matrix.chunks[rows]
    nearness = (cosines - cosines.mean()) / max(float(cosines.std()), MIN_SPREAD)
    is_chosen = np.isin(chunks, list(others))
    best = np.argsort(-nearness)[:DEPTH]
    if query_embedding.is_trusted:
        is_chosen[best] |= cosines[best] >= query_embedding.floor
    else:
        is_chosen[best] |= nearness[best] >= min(OUTSTANDING, 0.8 * math.sqrt(len(chunks) - 1))
    return dict(zip(chunks[is_chosen].tolist(), nearness[is_chosen].tolist(), strict=True))
