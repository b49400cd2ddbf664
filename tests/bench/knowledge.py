"""Measure a search of `knowledge`: `python tests/bench/knowledge.py [PASSAGES]` (default: 10,000).

The passages are random words, as frequent as in a language (Zipf); the vectors are random.
"""

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from specialists._knowledge import embeddings
from specialists._knowledge.index import Chunk, Index
from specialists._knowledge.search import Scope, fetch, rank

WORDS = 30_000
WORDS_A_PASSAGE = 150
PASSAGES_A_FILE = 50
DIMENSIONS = 768
QUESTIONS = 300
LENGTHS = (1, 3, 5, 10)


def main(passages: int = 10_000) -> None:
    rng = random.Random(1)
    vocabulary = ["".join(rng.choices("bcdfghklmnprstvwz", k=3) + rng.choices("aeiou", k=3)) for _ in range(WORDS)]
    weights = [1 / (rank + 3) for rank in range(WORDS)]

    def text(length: int) -> str:
        return " ".join(rng.choices(vocabulary, weights, k=length))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.db"
        began = time.perf_counter()
        with closing(Index(path)) as index:
            root = index.add_root("folder", folder)
            for n in range(passages // PASSAGES_A_FILE):
                chunks = [Chunk((text(3),), "", text(WORDS_A_PASSAGE)) for _ in range(PASSAGES_A_FILE)]
                index.write(root, f"file{n}.txt", (n, n, b""), chunks)
            index.count_common_words()
            size = path.stat().st_size / 1e6
            sys.stdout.write(f"{passages} passages written in {time.perf_counter() - began:.1f} s, {size:.0f} MB\n")
            questions = [text(rng.choice(LENGTHS)) for _ in range(QUESTIONS)]
            scope = Scope([root.id])
        report("words", questions, lambda question: answered(path, question, scope, None))
        with closing(Index(path)) as index:
            put_vectors(index, rng)
        asked = embeddings.QueryEmbedding([rng.gauss(0, 1) for _ in range(DIMENSIONS)], is_trusted=True)
        report(
            f"words and vectors of {DIMENSIONS} numbers",
            questions,
            lambda question: answered(path, question, scope, asked),
        )


def answered(path: Path, question: str, scope: Scope, asked: embeddings.QueryEmbedding | None) -> int:
    """Do the work of a call, without the request for the embedding; each call opens the index."""
    with closing(Index(path)) as index:
        matrix = embeddings.load_matrix(index) if asked else None
        return len(fetch(index, rank(index, question, scope, matrix, asked)[:5]))


def put_vectors(index: Index, rng: random.Random) -> None:
    import numpy as np

    drawn = np.random.default_rng(rng.randrange(1000))
    numbers = [row[0] for row in index.db.execute("SELECT id FROM chunk")]
    with index.transaction():
        notes = {"probe": embeddings.pack_vector([1.0] * DIMENSIONS), "trusted": 1}
        index.db.executemany("INSERT OR REPLACE INTO note VALUES (?, ?)", notes.items())
        rows: Iterator[tuple[int, bytes]] = (
            (n, embeddings.pack_vector(drawn.standard_normal(DIMENSIONS).tolist())) for n in numbers
        )
        index.db.executemany("INSERT INTO vector (chunk, hash, value) VALUES (?, x'', ?)", rows)


def report(what: str, questions: list[str], ask: Callable[[str], int]) -> None:
    ask(questions[0])
    times = []
    for question in questions:
        began = time.perf_counter()
        ask(question)
        times.append((time.perf_counter() - began) * 1000)
    times.sort()
    p99 = times[int(len(times) * 0.99)]
    sys.stdout.write(f"{what}: p50 {statistics.median(times):.1f} ms, p99 {p99:.1f} ms, max {times[-1]:.1f} ms\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
