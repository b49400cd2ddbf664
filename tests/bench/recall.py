"""Measure quality and speed of recall: `python tests/bench/recall.py`, with keyword search.

`--model openai:NAME --model-url URL` adds the embeddings of that server. `recall-*.json` has stored items and questions
about invented people; each question names the items that answer it. No item answers `recall-messages.json`. The
limits of recall were chosen without the fourth and the fifth person.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tables import Table, quantile

from brain.memory import Memory
from brain.messages import Chunk, Item, Kind, Purpose
from brain.models import connect_models
from brain.models.embedder import Embedder
from brain.models.model import Model, PassRequest
from brain.settings import Settings
from brain.store import items, vectors
from brain.store.sqlite.database import SQLite
from brain.store.store import Store

HERE = Path(__file__).parent
SETS = {
    "english": "English",
    "english-second": "English, another person",
    "english-third": "English, a third person",
    "english-fourth": "English, a fourth person",
    "english-fifth": "English, a fifth person",
    "german": "German",
}
WITH_MESSAGES = ("english", "english-second")
"""Sets to which `recall-messages.json` belongs; others have messages of their own, or none."""
ANSWERED = ("words", "paraphrase", "dates", "several")
UNANSWERED = ("nothing", "messages")
COLUMNS = [*ANSWERED, "all"]
FOUND, UNRELATED = "found", "unrelated"
KINDS: Sequence[Kind] = ("fact", "memory")
USER = "someone"
TOKENS = 400
LOOKED_AT = 10
"""Limit of items that a search returns."""
ROUNDS = 3
"""How often each question runs, to measure its time."""
BATCH = 32
VECTORS_SECONDS = 3600

Way = Callable[[str], Awaitable[Sequence[Item]]]


@dataclass(frozen=True)
class Question:
    kind: str
    ask: str
    answers: frozenset[str]


@dataclass
class Tables:
    """The figures of all search methods."""

    first: Table
    three: Table
    told: Table
    announced: Table
    times: Table


class Prepared(Model):
    """A model server with prepared embeddings of the questions, so that times are Brain's own."""

    is_language_model = False

    def __init__(self, model: Model) -> None:
        super().__init__(model.name)
        self.embedder = model
        self._known: dict[str, list[float]] = {}

    async def prepare(self, texts: Sequence[str]) -> None:
        for start in range(0, len(texts), BATCH):
            batch = texts[start : start + BATCH]
            self._known |= zip(batch, await super().embed(batch, "query"), strict=True)

    async def embed(self, texts: Sequence[str], purpose: Purpose | None = None) -> list[list[float]]:
        if purpose == "query" and all(text in self._known for text in texts):
            return [self._known[text] for text in texts]
        return await super().embed(texts, purpose)

    def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        raise NotImplementedError


def main() -> None:
    given = _parser().parse_args()
    tables = asyncio.run(measured(given))
    sys.stdout.write(f"    python tests/bench/recall.py {' '.join(sys.argv[1:])}\n\n")
    for table in (tables.first, tables.three, tables.told, tables.announced, tables.times):
        sys.stdout.write(f"{table}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python tests/bench/recall.py", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--model", metavar="KIND:NAME", help="embedding model: ollama:… or openai:…")
    parser.add_argument("--model-url", metavar="URL", help="its server, as in BRAIN_MODEL_URL")
    parser.add_argument(
        "--others",
        type=int,
        default=10_000,
        metavar="N",
        help="number of other facts in a second measurement (default: 10,000)",
    )
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS), metavar="SET", help=", ".join(SETS))
    return parser


async def measured(given: argparse.Namespace) -> Tables:
    if not given.model:
        return await _measured(given, None)
    async with connect_models(Settings(model=(given.model,), model_url=given.model_url), ()) as connected:
        model = Prepared(connected.offered[0])
        if not await Embedder(model).run_check():
            raise SystemExit(f"{model.name} has no embeddings that pass the check, so Brain uses keyword search.")
        return await _measured(given, model)


async def _measured(given: argparse.Namespace, model: Prepared | None) -> Tables:
    tables = _empty(given.only)
    for name in given.only:
        await _measure(name, SETS[name], model, 0, tables)
    if given.others:
        first = given.only[0]
        await _measure(first, f"{SETS[first]}, with {given.others:,} other facts", model, given.others, tables)
    return tables


def _empty(names: Sequence[str]) -> Tables:
    notes = []
    for name in names:
        counts = Counter(question.kind for question in _questions(name))
        notes.append(f"{SETS[name]}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}.  ")
    return Tables(
        Table("hit@1, % of the questions", COLUMNS, "way", notes=notes),
        Table("hit@3, % of the questions", COLUMNS, "way"),
        Table("All answers found, % of the questions", [*COLUMNS, *UNANSWERED], "way"),
        Table("Notice `recalled`, % of the messages", [FOUND, UNRELATED], "way"),
        Table("Time per question, without the request for its embedding, ms", ["p50", "p99"], "way"),
    )


async def _measure(name: str, row: str, model: Prepared | None, others: int, tables: Tables) -> None:
    """Fill a store with the items of one person, and run the questions with each method."""
    found = _read(name)
    questions, now = _questions(name), datetime.fromisoformat(found["now"])
    with tempfile.TemporaryDirectory() as folder:
        store = Store(SQLite(Path(folder) / "bench.db"))
        await store.open()
        try:
            for item in (*_others(others, now), *_items(found)):
                await store.write(items.put, USER, item)
            memory = Memory(store, tokens=TOKENS, rest_seconds=3600.0, now=lambda: now)
            await _ask(f"{row}: search, words", by_words(store), questions, tables)
            await _ask(f"{row}: recall, words", recalled(memory), questions, tables)
            await _read_notices(f"{row}: words", memory, questions, tables)
            if model is not None:
                await model.prepare([question.ask for question in questions])
                async with memory.run_background(model):
                    nearest = await by_meaning(store, model)
                    await _ask(f"{row}: search, meaning", nearest, questions, tables)
                    await _ask(f"{row}: recall, meaning and words", recalled(memory), questions, tables)
                    await _read_notices(f"{row}: meaning and words", memory, questions, tables)
        finally:
            await store.close()


def by_words(store: Store) -> Way:
    async def way(ask: str) -> Sequence[Item]:
        return [item for item, _ in await store.read(items.search, USER, ask, kinds=KINDS, limit=LOOKED_AT)]

    return way


async def by_meaning(store: Store, model: Prepared) -> Way:
    """Wait until all items have embeddings, which the background task makes."""
    embedder = Embedder(model)
    await embedder.run_check()
    assert embedder.check is not None
    assert embedder.relevance is not None
    relevance = embedder.relevance
    for _ in range(VECTORS_SECONDS):
        if not await store.search(vectors.lacking, embedder.check.key, 1):
            break
        await asyncio.sleep(1)
    else:
        raise SystemExit(f"{model.name} did not make all embeddings within {VECTORS_SECONDS} s.")

    async def way(ask: str) -> Sequence[Item]:
        near = await embedder.embed_query(ask)
        assert near is not None
        near = replace(near, vector=relevance.center_message(near.vector))
        return [
            item
            for item, *_ in await store.read(
                vectors.search, USER, near, kinds=KINDS, limit=LOOKED_AT, cache=store.signs
            )
        ]

    return way


def recalled(memory: Memory) -> Way:
    """Return the items that a turn would recall."""

    async def way(ask: str) -> Sequence[Item]:
        return (await memory.recall(USER, ask, query=await memory.embed_query(ask))).items

    return way


async def _ask(row: str, way: Way, questions: Sequence[Question], tables: Tables) -> None:
    always = {item.id for item in await way("")}  # a few facts about the user come with any question
    found = [(question, [item.id for item in await way(question.ask)]) for question in questions]
    for kind in COLUMNS:
        asked = [(question.answers, ids) for question, ids in found if _is(question, kind)]
        if not asked:
            continue
        tables.first.add(row, kind, _percent(not right.isdisjoint(ids[:1]) for right, ids in asked))
        tables.three.add(row, kind, _percent(not right.isdisjoint(ids[:3]) for right, ids in asked))
        tables.told.add(row, kind, _percent(right.issubset(ids) for right, ids in asked))
    for kind in UNANSWERED:
        if nothing := [ids for question, ids in found if question.kind == kind]:
            tables.told.add(row, kind, _percent(not always.issuperset(ids) for ids in nothing))
    times = [await _timed(way, question.ask) for _ in range(ROUNDS) for question in questions]
    tables.times.add(row, "p50", quantile(times, 0.5))
    tables.times.add(row, "p99", quantile(times, 0.99))


async def _read_notices(row: str, memory: Memory, questions: Sequence[Question], tables: Tables) -> None:
    """Add how often the notice that a user reads has an answer, and how often an unrelated message gets a notice."""
    found, unrelated = [], []
    for question in questions:
        result = await memory.recall(USER, question.ask, query=await memory.embed_query(question.ask))
        announced = {item.id for item in result.relevant}
        if question.answers:
            found.append(not question.answers.isdisjoint(announced))
        else:
            unrelated.append(bool(result.sentence))
    tables.announced.add(row, FOUND, _percent(found))
    tables.announced.add(row, UNRELATED, _percent(unrelated))


def _is(question: Question, kind: str) -> bool:
    return question.kind in ANSWERED if kind == "all" else question.kind == kind


def _percent(found: Iterable[bool]) -> float:
    each = list(found)
    return round(100 * sum(each) / len(each))


async def _timed(way: Way, ask: str) -> float:
    began = time.perf_counter()
    await way(ask)
    return (time.perf_counter() - began) * 1000


def _read(name: str) -> Any:
    return json.loads((HERE / f"recall-{name}.json").read_text("utf-8"))


def _questions(name: str) -> list[Question]:
    asked = [Question(one["kind"], one["ask"], frozenset(one["answers"])) for one in _read(name)["questions"]]
    messages = _read("messages") if name in WITH_MESSAGES else []
    return asked + [Question("messages", message, frozenset()) for message in messages]


def _items(found: dict[str, Any]) -> Iterator[Item]:
    for fact in found["facts"]:
        said = datetime.fromisoformat(fact["date"]).replace(hour=18, tzinfo=UTC)
        yield Item(fact["id"], "fact", fact["text"], said, said, fact["category"])
    for memory in found["memories"]:
        rested = datetime.fromisoformat(memory["date"]).replace(hour=19, tzinfo=UTC)
        yield Item(memory["id"], "memory", memory["text"], rested, rested)


_VOCABULARY = """
colleague neighbour cousin client friend tenant classmate instructor landlord supplier
Anna Bram Chloe Dries Elif Farid Greta Hugo Ines Joris Kaat Lena Milan Noor Otto Petra Quinten Rosa
bought sold painted borrowed found lost repaired photographed mentioned ordered described moved
old blue small heavy white broken wooden foreign cheap green second loud electric empty square
bicycle car boat piano router laptop garden passport school camp train bridge boiler kitchen letter budget film key lamp
Lyon Porto Leeds Turin Malmo Gdansk Bern Utrecht Cork Graz Bilbao Aarhus Split Namur Trier Bruges
"""


def _others(count: int, now: datetime) -> Iterator[Item]:
    """Yield facts about other people that answer nothing but share words with the questions; the same in every run."""
    rng = random.Random(1)
    lists = [line.split() for line in _VOCABULARY.split("\n") if line]
    for number in range(count):
        who, name, did, how, what, where = (rng.choice(words) for words in lists)
        text = f"My {who} {name} {did} a {how} {what} in {where} in {rng.randrange(1990, 2026)}."
        said = now - timedelta(minutes=30 * (count - number))
        yield Item(f"o{number}", "fact", text, said, said, rng.choice(["knowledge", "general"]))


if __name__ == "__main__":
    main()
