"""Passages as vectors, made by the model server and compared with numpy, exactly.

The model's own check says whether its embeddings carry meaning; those without it count for less than the words do.
"""

import asyncio
import importlib.util
import math
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from brain import Refused
from specialists._knowledge.index import Index, embedding_text, hash_of, with_index

MISSING = "vectors need the extra: pip install 'brain-sse[vectors]'"
BATCH = 32
TEXT_LENGTH = 2000
SHORT_LENGTH = 400
"""Of a text that a server refuses as it is: its model may take few tokens."""
MATRICES_BYTES_MOST = 500_000_000
"""Of all users together, those not asked for longest go; a single one may be larger."""
SAME = 0.99
"""Cosine from which two vectors of one text come from one model."""
FLOOR_SHARE = 0.3
"""Of the way from a wrong answer's cosine to a right one's, in the model's check."""
_PROBE = "Refunds are paid within two weeks of a return."
"""A text whose vector tells one model from another."""


class EmbeddingCheck(Protocol):
    """What the model's check found."""

    @property
    def size(self) -> int: ...
    @property
    def is_meaningful(self) -> bool: ...
    def floor(self, share: float) -> float: ...


class Embedder(Protocol):
    """What makes vectors: a turn's model."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]: ...
    async def check_embeddings(self) -> EmbeddingCheck: ...


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A question as a vector; `trusted` when the embeddings of its model carry meaning.

    `floor` is the cosine below which, by the model's check, a passage has nothing to do with a question.
    """

    vector: Sequence[float]
    trusted: bool
    floor: float = 0.0


def is_installed() -> bool:
    return importlib.util.find_spec("numpy") is not None


async def embed_query(path: Path, model: Embedder, query: str) -> QueryVector | None:
    """The vector of a question; None when the index has no vectors of this model."""
    probe, trusted, floor = await with_index(path, _notes)
    if probe is None:
        return None
    vectors = await _embedded(model, [query[:TEXT_LENGTH], _PROBE])
    if vectors is None or not await asyncio.to_thread(is_same_vector, probe, vectors[1]):
        return None
    return QueryVector(vectors[0], bool(trusted), floor)


async def complete_vectors(path: Path, model: Embedder) -> AsyncIterator[tuple[int, int]]:
    """Gives a vector to each passage of an index that has none, and says how many of how many are done.

    Those of another model go first. Can be ended at any time, and goes on from there.

    Raises:
        Refused: when the server has no vectors, or stops making them.
    """
    await _check_model(path, model)
    total, done = await with_index(path, count_missing), 0
    while rows := await with_index(path, _next_passages):
        vectors = await _embed_each(model, [embedding_text(*row[1:])[:TEXT_LENGTH] for row in rows])
        await with_index(path, _write_vectors, rows, vectors)
        done += len(rows)
        yield done, max(total, done)


def is_same_vector(probe: bytes, vector: Sequence[float]) -> bool:
    """Whether a vector is, but for rounding, the one kept."""
    import numpy as np

    known, new = np.frombuffer(probe, np.float16).astype(np.float32), np.asarray(vector, np.float32)
    if known.shape != new.shape:
        return False
    return float(known @ new) >= SAME * float(np.linalg.norm(known)) * float(np.linalg.norm(new))


def pack_vector(vector: Sequence[float]) -> bytes:
    """A vector of length 1 in half precision."""
    import numpy as np

    array = np.asarray(vector, np.float32)
    return bytes((array / (np.linalg.norm(array) or 1.0)).astype(np.float16).tobytes())


async def _check_model(path: Path, model: Embedder) -> None:
    """Notes the model and its check, unless both are known; vectors of another model go."""
    probe, trusted, _ = await with_index(path, _notes)
    vectors = await _embedded(model, [_PROBE])
    is_same = probe is not None and vectors is not None and await asyncio.to_thread(is_same_vector, probe, vectors[0])
    if is_same and trusted is not None:
        return
    if vectors is None:
        raise Refused("the model server has no embeddings")
    check = await model.check_embeddings()
    notes = {
        "probe": pack_vector(vectors[0]),
        "trusted": int(check.is_meaningful),
        "floor": check.floor(FLOOR_SHARE),
        "dimensions": check.size,
    }
    await with_index(path, _store_notes, notes, is_same)


def _notes(index: Index) -> tuple[bytes | None, int | None, float]:
    """What is known of the model that made the vectors: its probe, whether they carry meaning, and its floor."""
    return index.get_note("probe"), index.get_note("trusted"), index.get_note("floor") or 0.0


def _store_notes(index: Index, notes: Mapping[str, Any], is_same: bool) -> None:
    with index.transaction():
        if not is_same:
            index.db.execute("DELETE FROM vector")
        index.db.executemany("INSERT OR REPLACE INTO note VALUES (?, ?)", notes.items())


async def _embed_each(model: Embedder, texts: Sequence[str]) -> list[list[float] | None]:
    """A vector for each text, None for one that the server refuses even when short.

    Raises:
        Refused: when it makes no vectors any more.
    """
    vectors = await _embedded(model, texts)
    if vectors is not None:
        return list(vectors)
    if await _embedded(model, [_PROBE]) is None:
        raise Refused("the model server stopped making vectors")
    found: list[list[float] | None] = []
    for text in texts:
        single = await _embedded(model, [text]) or await _embedded(model, [text[:SHORT_LENGTH]])
        found.append(single[0] if single else None)
    return found


async def _embedded(model: Embedder, texts: Sequence[str]) -> list[list[float]] | None:
    """What the server makes of these texts; None when that is not one finite vector for each, all alike in length."""
    try:
        vectors = await model.embed(texts)
    except Exception:  # noqa: BLE001 - a server that is gone, slow or talks nonsense; the words are there still
        return None
    lengths = {len(vector) for vector in vectors}
    if len(vectors) != len(texts) or len(lengths) != 1 or 0 in lengths:
        return None
    if not all(math.isfinite(number) for vector in vectors for number in vector):
        return None
    return vectors


def count_missing(index: Index) -> int:
    """How many passages have no vector."""
    query = "SELECT count(*) FROM chunk c LEFT JOIN vector v ON v.chunk = c.id WHERE v.chunk IS NULL"
    (number,) = index.db.execute(query).fetchone()
    return int(number)


def _next_passages(index: Index) -> list[tuple[int, str, str, str]]:
    return index.db.execute(
        "SELECT c.id, c.name, c.heading, c.text FROM chunk c LEFT JOIN vector v ON v.chunk = c.id "
        "WHERE v.chunk IS NULL ORDER BY c.id LIMIT ?",
        (BATCH,),
    ).fetchall()


def _write_vectors(
    index: Index, rows: Sequence[tuple[int, str, str, str]], vectors: Sequence[Sequence[float] | None]
) -> None:
    """Writes vectors, an empty one for a text that has none; not for passages that are gone meanwhile."""
    with index.transaction():
        for (chunk, name, heading, text), vector in zip(rows, vectors, strict=True):
            digest = hash_of(embedding_text(name, heading, text).encode())
            index.db.execute(
                "INSERT OR REPLACE INTO vector (chunk, hash, value) SELECT id, ?, ? FROM chunk WHERE id = ?",
                (digest, pack_vector(vector) if vector else b"", chunk),
            )


# the matrix


@dataclass(frozen=True, slots=True)
class Matrix:
    """The vectors of an index: row by row, of which passage, of which file, below which root; `last` one read."""

    probe: bytes
    last: int
    chunks: Any
    files: Any
    roots: Any
    rows: Any


_matrices: OrderedDict[Path, Matrix] = OrderedDict()
_lock = threading.Lock()


def matrix(index: Index) -> Matrix | None:
    """The vectors of an index, None when there are none. They are kept, and only new ones are read.

    Passages that were removed may still be among them.
    """
    probe = index.get_note("probe")
    if probe is None:
        return None
    with _lock:
        known = _matrices.pop(index.path, None)
        if known is None or known.probe != probe or len(known.chunks) > 100 + 2 * index.passages():
            known = _empty(probe)
        found = _matrices[index.path] = _extend(index, known)
        while len(_matrices) > 1 and sum(known.rows.nbytes for known in _matrices.values()) > MATRICES_BYTES_MOST:
            _matrices.popitem(last=False)
    return found if len(found.chunks) else None


def drop_matrix(path: Path) -> None:
    """Lets go of those of an index that is no more."""
    with _lock:
        _matrices.pop(path, None)


def _empty(probe: bytes) -> Matrix:
    import numpy as np

    numbers = np.zeros(0, np.int64)
    return Matrix(probe, 0, numbers, numbers, numbers, np.zeros((0, len(probe) // 2), np.float32))


def _extend(index: Index, known: Matrix) -> Matrix:
    import numpy as np

    (last,) = index.db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'vector'").fetchone() or (0,)
    if last == known.last:
        return known
    read = index.db.execute(
        "SELECT v.id, c.id, f.id, f.root, v.value FROM vector v JOIN chunk c ON c.id = v.chunk "
        "JOIN file f ON f.id = c.file WHERE v.id > ? AND length(v.value) = ? ORDER BY v.id",
        (known.last, len(known.probe)),
    ).fetchall()
    if not read:
        return replace(known, last=last)
    numbers = np.array([row[:4] for row in read], np.int64)
    rows = np.frombuffer(b"".join(row[4] for row in read), np.float16).reshape(len(read), -1).astype(np.float32)
    return Matrix(
        known.probe,
        int(numbers[-1, 0]),
        np.concatenate([known.chunks, numbers[:, 1]]),
        np.concatenate([known.files, numbers[:, 2]]),
        np.concatenate([known.roots, numbers[:, 3]]),
        np.concatenate([known.rows, rows]),
    )
