"""Measure the store with many messages per user: `python tests/bench/store_growth.py [MESSAGES [FACTS [STORE]]]`.

Defaults: 100,000 messages, 10,000 facts, and a SQLite file. STORE can be an empty database on a PostgreSQL server. One
conversation has a fifth of the messages. The texts are random words with natural frequencies (Zipf). The embeddings are
random.
"""

import asyncio
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from brain.messages import Exchange, Kind, Text
from brain.runtime import import_sanitizer
from brain.store import conversations, items, open_store, vectors
from brain.store.store import Store
from brain.store.vectors import ItemEmbedding, Query

WORDS = 30_000
CONVERSATIONS = 1000
DIMENSIONS = 384
TIMES = 200
START = datetime(2026, 1, 1, tzinfo=UTC)

rng = random.Random(1)
vocabulary = ["".join(rng.choices("bcdfghklmnprstvwz", k=3) + rng.choices("aeiou", k=3)) for _ in range(WORDS)]
weights = list(itertools.accumulate(1 / (rank + 3) for rank in range(WORDS)))


def text(length: int) -> str:
    return " ".join(rng.choices(vocabulary, cum_weights=weights, k=length))


def records(messages: int, facts: int) -> Iterator[dict[str, Any]]:
    yield {"kind": "brain", "version": 1}
    exchanges = messages // 2
    for number in range(CONVERSATIONS):
        name, time = f"c{number}", (START + timedelta(minutes=number)).isoformat()
        yield {"kind": "conversation", "id": name, "title": text(5), "created": time}
        for n in range(exchanges // 5 if number == 0 else exchanges * 4 // 5 // (CONVERSATIONS - 1)):
            yield {
                "kind": "exchange", "conversation": name, "question_id": f"q{n}", "answer_id": f"a{n}", "asked": time,
                "said": (said := text(15)), "question": f"(It is {time}.)\n\n{said}", "outcome": "complete",
                "parts": [{"kind": "said", "text": text(80), "turn_pass": 1}],
            }  # fmt: skip
    for number in range(facts):
        time = (START + timedelta(minutes=number)).isoformat()
        yield {"kind": "item", "type": "fact", "id": f"f{number}", "text": text(9), "created": time, "updated": time}


async def main(messages: int, facts: int, setting: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(setting or f"sqlite:{folder}/bench.db")
        began = time.perf_counter()
        for user in ("ada", "eve"):
            await store.import_user(user, records(messages, facts), import_sanitizer)
        say(
            f"{messages} messages and {facts} facts of each of two users, taken in: {time.perf_counter() - began:.1f} s"
        )
        began = time.perf_counter()
        while lacking := await store.search(vectors.lacking, "m", 1000):
            await store.write_unsynced(
                vectors.write, [(user, item.id, item.text, ItemEmbedding(vector())) for user, item in lacking], "m"
            )
        say(f"vectors of {DIMENSIONS} numbers: {time.perf_counter() - began:.1f} s")
        await measure(store)
        say((await store.database.diagnose())[1])
        await timed("a conversation deleted", store.delete("ada", "c1"))
        await timed("its traces swept", store.sweep())
        await timed("one user forgotten", store.forget("eve"))
        await timed("traces scrubbed", store.scrub())
        say((await store.database.diagnose())[1])
        await store.close()


async def timed(what: str, work: Awaitable[Any]) -> None:
    began = time.perf_counter()
    await work
    say(f"{what}: {time.perf_counter() - began:.2f} s")


async def measure(store: Store) -> None:
    await report("open, the longest", lambda n: store.read(conversations.read_page, "ada", "c0"))
    await report("open", lambda n: store.read(conversations.read_page, "ada", f"c{n + 1}"))
    await report("list", lambda n: store.list_conversations("ada"))
    await report("search, one word", lambda n: store.list_conversations("ada", words=text(1)))
    await report("search, the most frequent word", lambda n: store.list_conversations("ada", words=vocabulary[0]))
    await report("search, three words", lambda n: store.list_conversations("ada", words=text(3)))
    await report("recent", lambda n: store.read(conversations.recent, "ada", 20))
    await report("facts", lambda n: store.read(items.list_items, "ada"))
    kinds: Sequence[Kind] = ("fact", "memory")
    await report("facts by ten words", lambda n: store.read(items.search, "ada", text(10), kinds=kinds, limit=10))
    first = time.perf_counter()
    await store.read(vectors.search, "ada", Query("m", vector()), kinds=kinds, limit=10, cache=store.signs)
    say(f"facts by meaning, the first time: {(time.perf_counter() - first) * 1000:.1f} ms")
    asked = [vector() for _ in range(TIMES)]
    await report(
        "facts by meaning",
        lambda n: store.read(vectors.search, "ada", Query("m", asked[n]), kinds=kinds, limit=10, cache=store.signs),
    )
    await report("none lacks a vector", lambda n: store.search(vectors.lacking, "m", 10))
    await report("begin and end, the longest", lambda n: turn(store, "c0"))
    await report("begin, the longest", lambda n: begun(store, "c0"), after=lambda record: store.drop(record))
    await report("begin and end, new", lambda n: turn(store, f"new{n}"))


async def begun(store: Store, conversation: str) -> Any:
    said = text(15)
    return await store.write_question("ada", conversation, Exchange(said, message=said, question_id="q"), ())


async def turn(store: Store, conversation: str) -> None:
    record = await begun(store, conversation)
    await store.end(record, Exchange("", [Text(text(80), 1)], answer_id="a", outcome="complete"))


def vector() -> list[float]:
    return [rng.gauss(0, 1) for _ in range(DIMENSIONS)]


async def report(
    what: str, ask: Callable[[int], Awaitable[Any]], after: Callable[[Any], Awaitable[None]] | None = None
) -> None:
    times = []
    for number in range(TIMES):
        began = time.perf_counter()
        answer = await ask(number)
        times.append((time.perf_counter() - began) * 1000)
        if after is not None:
            await after(answer)
    times.sort()
    say(
        f"{what}: p50 {statistics.median(times):.2f} ms, p99 {times[int(TIMES * 0.99)]:.2f} ms, most {times[-1]:.2f} ms"
    )


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    messages, facts, setting = (*sys.argv[1:], *("100000", "10000", "")[len(sys.argv) - 1 :])
    asyncio.run(main(int(messages), int(facts), setting))
