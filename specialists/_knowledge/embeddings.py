"""Embeddings of passages, made by the model server and compared exactly with numpy.

The model's embedding check tells whether they carry meaning. Otherwise keywords weigh more.
"""

import asyncio
import importlib.util
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from brain import Refused
from specialists._knowledge.index import Index, format_for_embedding, hash_bytes, with_index

BATCH = 32
TEXT_LENGTH = 2000
SHORT_LENGTH = 400
"""Characters of the second attempt at a text that the server rejects; its model may accept few tokens."""
MAX_MATRICES_BYTES = 500_000_000
"""Limit for all users together; the least recently used matrix is dropped first. A single one may be larger."""
SAME = 0.99
"""Minimum cosine of two embeddings of one text by the same model."""
FLOOR_SHARE = 0.3
"""Position of the minimum cosine between a wrong and a right answer in the embedding check."""
_PROBE = "Refunds are paid within two weeks of a return."
"""A text whose embedding identifies the model."""
_PRIVATE = "private "
"""Prefix of the notes of private conversations."""
_WITHOUT_VECTOR = (
    "FROM chunk c LEFT JOIN vector v ON v.chunk = c.id WHERE v.chunk IS NULL AND c.file NOT IN "
    "(SELECT f.id FROM file f JOIN root r ON r.id = f.root "
    f"WHERE r.kind = 'conversation' AND EXISTS (SELECT 1 FROM note WHERE key = '{_PRIVATE}' || r.place))"
)
"""Passages without an embedding, except those of private conversations: a later model may be remote."""

Passage = tuple[int, str, str, str]
"""The number, file name, heading and text of a passage."""


Purpose = Literal["query", "passage"]
"""What an embedding is for; the model's server may expect a prefix."""


class EmbeddingCheck(Protocol):
    """The result of the embedding check."""

    @property
    def size(self) -> int: ...
    @property
    def is_meaningful(self) -> bool: ...
    def floor(self, share: float) -> float: ...


class Embedder(Protocol):
    """An embedding model."""

    async def embed(self, texts: Sequence[str], purpose: Purpose | None = None) -> list[list[float]]: ...
    async def check_embeddings(self) -> EmbeddingCheck: ...


@dataclass(frozen=True, slots=True)
class QueryEmbedding:
    """The embedding of a query.

    Attributes:
        is_trusted: whether the model passed the embedding check.
        floor: minimum cosine of a relevant passage, from the embedding check.
    """

    vector: Sequence[float]
    is_trusted: bool
    floor: float = 0.0


def is_installed() -> bool:
    return importlib.util.find_spec("numpy") is not None


async def embed_query(path: Path, model: Embedder, query: str) -> QueryEmbedding | None:
    """Embed a query; None if the index has no embeddings of this model."""
    probe, trusted, floor = await with_index(path, _get_model_notes)
    if probe is None:
        return None
    embedded, probed = await asyncio.gather(
        _embed(model, [query[:TEXT_LENGTH]], "query"), _embed(model, [_PROBE], "passage")
    )
    if embedded is None or probed is None or not await asyncio.to_thread(_is_same_vector, probe, probed[0]):
        return None
    return QueryEmbedding(embedded[0], bool(trusted), floor)


async def embed_missing(path: Path, model: Embedder) -> AsyncIterator[tuple[int, int]]:
    """Embed the passages of an index that have no embedding, and yield how many of how many are done.

    Embeddings of another model are deleted first. The next call continues after an interruption.

    Raises:
        Refused: if the model server has no embeddings or stops responding.
    """
    await _check_model(path, model)
    total, done = await with_index(path, count_missing), 0
    while rows := await with_index(path, _next_passages):
        vectors = await _embed_each(model, [format_for_embedding(*row[1:])[:TEXT_LENGTH] for row in rows])
        await with_index(path, _write_embeddings, rows, vectors)
        done += len(rows)
        yield done, max(total, done)


async def _check_model(path: Path, model: Embedder) -> None:
    """Store the model and its embedding check, unless both are known, and delete embeddings of another model."""
    probe, trusted, _ = await with_index(path, _get_model_notes)
    vectors = await _embed(model, [_PROBE])
    if vectors is None:
        raise Refused("the model server has no embeddings")
    is_same = probe is not None and await asyncio.to_thread(_is_same_vector, probe, vectors[0])
    if is_same and trusted is not None:
        return
    check = await model.check_embeddings()
    notes = {
        "probe": pack_vector(vectors[0]),
        "trusted": int(check.is_meaningful),
        "floor": check.floor(FLOOR_SHARE),
        "dimensions": check.size,
    }
    await with_index(path, _store_model_notes, notes, is_same)


def _get_model_notes(index: Index) -> tuple[bytes | None, int | None, float]:
    """Return the stored model: embedding of the probe, whether it passed the check, and its floor."""
    return index.get_note("probe"), index.get_note("trusted"), index.get_note("floor") or 0.0


def _store_model_notes(index: Index, notes: Mapping[str, Any], is_same: bool) -> None:
    with index.transaction():
        if not is_same:
            index.db.execute("DELETE FROM vector")
        index.db.executemany("INSERT OR REPLACE INTO note VALUES (?, ?)", notes.items())


async def _embed_each(model: Embedder, texts: Sequence[str]) -> list[list[float] | None]:
    """Embed each text; None for a text that the server rejects even when shortened."""
    vectors = await _embed(model, texts)
    if vectors is not None:
        return list(vectors)
    if await _embed(model, [_PROBE]) is None:
        raise Refused("the model server stopped returning embeddings")
    found: list[list[float] | None] = []
    for text in texts:
        single = await _embed(model, [text]) or await _embed(model, [text[:SHORT_LENGTH]])
        found.append(single[0] if single else None)
    return found


async def _embed(model: Embedder, texts: Sequence[str], purpose: Purpose = "passage") -> list[list[float]] | None:
    """Embed texts; None if the server fails."""
    try:
        return await model.embed(texts, purpose)
    except Exception:  # noqa: BLE001 - the server may fail in any way; keyword search still works
        return None


def mark_private(index: Index, conversation: str) -> None:
    """Embed no more uploads of this conversation."""
    with index.transaction():
        index.db.execute("INSERT OR IGNORE INTO note VALUES (?, 1)", (f"{_PRIVATE}{conversation}",))


def count_missing(index: Index) -> int:
    """Return the number of passages without an embedding."""
    (count,) = index.db.execute(f"SELECT count(*) {_WITHOUT_VECTOR}").fetchone()
    return int(count)


def _next_passages(index: Index) -> list[Passage]:
    query = f"SELECT c.id, c.name, c.heading, c.text {_WITHOUT_VECTOR} ORDER BY c.id LIMIT {BATCH}"
    return index.db.execute(query).fetchall()


def _write_embeddings(index: Index, rows: Sequence[Passage], vectors: Sequence[Sequence[float] | None]) -> None:
    """Write embeddings, an empty one for a rejected text; passages removed in the meantime are skipped."""
    with index.transaction():
        for (chunk, *texts), vector in zip(rows, vectors, strict=True):
            digest = hash_bytes(format_for_embedding(*texts).encode())
            index.db.execute(
                "INSERT OR REPLACE INTO vector (chunk, hash, value) SELECT id, ?, ? FROM chunk WHERE id = ?",
                (digest, pack_vector(vector) if vector else b"", chunk),
            )


def pack_vector(vector: Sequence[float]) -> bytes:
    """Return the normalized vector in half precision."""
    import numpy as np

    array = np.asarray(vector, np.float32)
    return bytes((array / (np.linalg.norm(array) or 1.0)).astype(np.float16).tobytes())


def _is_same_vector(probe: bytes, vector: Sequence[float]) -> bool:
    """Whether a vector equals the stored one except for rounding."""
    import numpy as np

    stored, new = np.frombuffer(probe, np.float16).astype(np.float32), np.asarray(vector, np.float32)
    if stored.shape != new.shape:
        return False
    return float(stored @ new) >= SAME * float(np.linalg.norm(stored)) * float(np.linalg.norm(new))


# the matrix


@dataclass(frozen=True, slots=True)
class Matrix:
    """The embeddings of an index, with passage, file and root of each row; `last` is the last one that was read."""

    probe: bytes
    last: int
    chunks: Any
    files: Any
    roots: Any
    rows: Any


_matrices: OrderedDict[Path, Matrix] = OrderedDict()
_lock = threading.Lock()


def load_matrix(index: Index) -> Matrix | None:
    """Return the embeddings of an index, or None. They stay in memory, and only new ones are read.

    They may include removed passages.
    """
    probe = index.get_note("probe")
    if probe is None:
        return None
    with _lock:
        known = _matrices.pop(index.path, None)
        if known is not None and (known.probe != probe or len(known.chunks) > 100 + 2 * index.passages()):
            known = None
        found = _matrices[index.path] = _read_matrix(index, probe, known)
        while len(_matrices) > 1 and sum(matrix.rows.nbytes for matrix in _matrices.values()) > MAX_MATRICES_BYTES:
            _matrices.popitem(last=False)
    return found if len(found.chunks) else None


def drop_matrix(path: Path) -> None:
    """Free the embeddings of a deleted index."""
    with _lock:
        _matrices.pop(path, None)


def _read_matrix(index: Index, probe: bytes, known: Matrix | None) -> Matrix:
    """Return the known embeddings and the new ones."""
    import numpy as np

    if known is None:
        none = np.zeros(0, np.int64)
        known = Matrix(probe, 0, none, none, none, np.zeros((0, len(probe) // 2), np.float32))
    read = index.db.execute(
        "SELECT v.id, c.id, f.id, f.root, v.value FROM vector v JOIN chunk c ON c.id = v.chunk "
        "JOIN file f ON f.id = c.file WHERE v.id > ? AND length(v.value) = ? ORDER BY v.id",
        (known.last, len(probe)),
    ).fetchall()
    if not read:
        return known
    numbers = np.array([row[:4] for row in read], np.int64)
    rows = np.frombuffer(b"".join(row[4] for row in read), np.float16).reshape(len(read), -1).astype(np.float32)
    return Matrix(
        probe,
        int(numbers[-1, 0]),
        np.concatenate([known.chunks, numbers[:, 1]]),
        np.concatenate([known.files, numbers[:, 2]]),
        np.concatenate([known.roots, numbers[:, 3]]),
        np.concatenate([known.rows, rows]),
    )
