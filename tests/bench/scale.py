"""Measure costs that grow with stored data: `python tests/bench/scale.py [NAME ...]` (default: all tables).

Names: imports, beside, cookies, recall, deletion, search, turns. Each table starts with an empty file in a temporary
folder. Servers and commands run as separate processes.
"""

import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from store_growth import START, begun, text
from tables import Table, quantile

from brain.runtime import import_sanitizer
from brain.server import auth
from brain.server.auth import KeyStore
from brain.store.sqlite.database import SQLite
from brain.store.store import Store

FACTS = (10, 1_000, 30_000)
TURNS_MEASURED = 40
STOPPED_SECONDS = 20.0
rng = random.Random(2)


def facts(count: int) -> Iterator[dict[str, Any]]:
    """Yield the records of an export with facts."""
    yield {"kind": "brain", "version": 1, "user": "local"}
    categories = itertools.cycle(("general", "general", "general", "personal", "preferences"))
    for number, category in zip(range(count), categories, strict=False):
        now = START.isoformat()
        yield {
            "kind": "item", "type": "fact", "id": f"f{number}", "text": f"I {text(9)}", "category": category,
            "created": now, "updated": now,
        }  # fmt: skip


def conversations(count: int, exchanges: int, also: str = "") -> Iterator[dict[str, Any]]:
    """Yield the records of an export with conversations."""
    yield {"kind": "brain", "version": 1, "user": "local"}
    for number in range(count):
        name, now = f"c{number}", START.isoformat()
        yield {"kind": "conversation", "id": name, "title": text(5), "created": now}
        for n in range(exchanges):
            yield {
                "kind": "exchange", "conversation": name, "question_id": f"q{n}", "answer_id": f"a{n}", "asked": now,
                "said": (said := f"{also} {text(15)}"), "question": said, "outcome": "complete",
                "parts": [{"kind": "said", "text": text(80), "turn_pass": 1}],
            }  # fmt: skip


def written(folder: Path, records: Iterable[dict[str, Any]]) -> Path:
    path = folder / "export.jsonl"
    with path.open("w") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    return path


def environment(folder: Path) -> dict[str, str]:
    script = folder / "script.jsonl"
    script.write_text('["Fine", ", ", "thank ", "you", "."]\n')
    ours = {"BRAIN_STORE": f"sqlite:{folder / 'brain.db'}", "BRAIN_MODEL": f"script:{script}"}
    return {**{key: value for key, value in os.environ.items() if not key.startswith("BRAIN_")}, **ours}


def imported(folder: Path, path: Path) -> float:
    """Return the seconds that `brain import` takes."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "brain", "import", str(path)]
    subprocess.run(command, env=environment(folder), check=True, capture_output=True)
    return time.perf_counter() - began


@contextmanager
def server(folder: Path) -> Iterator[tuple[httpx.Client, int]]:
    """Start `brain serve`; yield a client and the process ID."""
    command = [sys.executable, "-m", "brain", "serve", "--port", "0"]
    with subprocess.Popen(command, env=environment(folder), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = next(word for line in process.stderr for word in line.split() if word.startswith("http://"))
            threading.Thread(target=process.stderr.read, daemon=True).start()
            with httpx.Client(base_url=url.rstrip("/."), trust_env=False, timeout=60) as client:
                yield client, process.pid
        finally:
            process.terminate()
            process.wait(STOPPED_SECONDS)


def first_token(client: httpx.Client, message: str, *, memory: bool = True) -> tuple[float, int]:
    """Return the milliseconds to the first token of a turn, and the HTTP status."""
    began, came = time.perf_counter(), 0.0
    with client.stream("POST", "/v1/chat/stream", json={"message": message, "memory": memory}) as answer:
        for line in answer.iter_lines():
            if line == "event: token" and not came:
                came = time.perf_counter()
    return ((came or time.perf_counter()) - began) * 1000, answer.status_code


def imports(folder: Path) -> Table:
    table = Table("Import of facts, seconds", ["`brain import`"], "facts")
    for count in FACTS:
        (own := folder / f"{count}").mkdir()
        table.add(f"{count:,}", "`brain import`", imported(own, written(own, facts(count))))
    return table


def beside(folder: Path) -> Table:
    """Measure first tokens during an import of 20,000 exchanges and 30,000 facts."""
    table = Table("First token during an import, ms", ["p50", "p99", "max", "rejected", "import, s"], "")
    records = itertools.chain(conversations(1_000, 20), itertools.islice(facts(30_000), 1, None))
    path = written(folder, records)
    with server(folder) as (client, _):
        for _ in range(3):
            first_token(client, text(10))
        seconds = list[float]()
        thread = threading.Thread(target=lambda: seconds.append(imported(folder, path)))
        _row(table, "without import", client, lambda n: n < TURNS_MEASURED)
        thread.start()
        _row(table, "during an import", client, lambda n: thread.is_alive())
        thread.join()
        table.add("during an import", "import, s", *seconds)
    return table


def _row(table: Table, row: str, client: httpx.Client, more: Callable[[int], bool]) -> None:
    found = list[tuple[float, int]]()
    while more(len(found)):
        found.append(first_token(client, text(10)))
        time.sleep(0.05)
    times = [ms for ms, _ in found]
    for column, value in (("p50", quantile(times, 0.5)), ("p99", quantile(times, 0.99)), ("max", max(times))):
        table.add(row, column, value)
    table.add(row, "rejected", sum(status != 200 for _, status in found))


def cookies(folder: Path) -> Table:
    columns = ["cookie", "bearer key"]
    table = Table("Authentication, µs of CPU per request", columns, "keys configured")
    for count in (1, 100, 2_000):
        keyring = KeyStore([(f"key-{n}-{'x' * 32}", f"user{n}") for n in range(count)])
        key = f"key-{count // 2}-{'x' * 32}".encode()
        opened = keyring.open_session(key, 1_000)
        assert opened is not None
        asks: Sequence[Callable[[], str | None]] = (_by_cookie(keyring, opened[1]), partial(keyring.find_user, key))
        for column, ask in zip(columns, asks, strict=True):
            began = time.process_time()
            for _ in range(200):
                assert ask() == opened[0]
            table.add(f"{count:,}", column, (time.process_time() - began) / 200 * 1e6)
    return table


def _by_cookie(keyring: KeyStore, token: str) -> Callable[[], str | None]:
    def ask() -> str | None:
        session = auth.parse_token(token, 1_001)
        return None if session is None else keyring.verify(session)

    return ask


def recall(folder: Path) -> Table:
    columns = ["p50", "p99", "without memory, p50"]
    table = Table("First token with recall, ms", columns, "facts")
    for count in (0, *FACTS):
        (own := folder / f"{count}").mkdir()
        imported(own, written(own, facts(count)))
        with server(own) as (client, _):
            questions = [f"What did I say about {text(8)}?" for _ in range(TURNS_MEASURED)]
            for question in questions[:5]:
                first_token(client, question)
            times = [first_token(client, question)[0] for question in questions]
            without = [first_token(client, question, memory=False)[0] for question in questions]
            values = (quantile(times, 0.5), quantile(times, 0.99), quantile(without, 0.5))
            for column, value in zip(columns, values, strict=True):
                table.add(f"{count:,}", column, value)
    return table


async def _filled(folder: Path, records: Iterable[dict[str, Any]]) -> Store:
    store = Store(SQLite(folder / "brain.db"))
    await store.open()
    await store.import_user("ada", records, import_sanitizer)
    return store


def deletion(folder: Path) -> Table:
    """Measure how long turns of another user wait while a conversation is deleted."""
    table = Table("Deletion of a conversation, ms", ["total", "other turn begins, p50", "max"], "exchanges")

    async def run(count: int, own: Path) -> None:
        store = await _filled(own, conversations(1, count))
        for n in range(20):
            await store.drop(await begun(store, f"before{n}"))
        took = list[float]()

        async def delete() -> None:
            began = time.perf_counter()
            await store.delete("ada", "c0")
            took.append((time.perf_counter() - began) * 1000)

        task, waits = asyncio.create_task(delete()), list[float]()
        await asyncio.sleep(0)
        while not waits or not task.done():
            began = time.perf_counter()
            record = await begun(store, f"beside{len(waits)}")
            waits.append((time.perf_counter() - began) * 1000)
            await store.drop(record)
        await task
        for column, value in zip(table.columns, (took[0], quantile(waits, 0.5), max(waits)), strict=True):
            table.add(f"{count:,}", column, value)
        await store.close()

    for count in (30, 300, 3_000):
        (own := folder / f"{count}").mkdir()
        asyncio.run(run(count, own))
    return table


def search(folder: Path) -> Table:
    columns = ["word in every conversation", "word in none", "three words"]
    table = Table("Search of the list of conversations, p50, ms", columns, "conversations of 5 turns")

    async def run(count: int, own: Path) -> None:
        store = await _filled(own, conversations(count, 5, also="everywhere"))
        words: Sequence[Callable[[], str]] = (lambda: "everywhere", lambda: "nowhere", lambda: text(3))
        for column, word in zip(columns, words, strict=True):
            times = []
            for _ in range(TURNS_MEASURED):
                began = time.perf_counter()
                await store.list_conversations("ada", words=word())
                times.append((time.perf_counter() - began) * 1000)
            table.add(f"{count:,}", column, quantile(times, 0.5))
        await store.close()

    for count in (100, 1_000, 10_000):
        (own := folder / f"{count}").mkdir()
        asyncio.run(run(count, own))
    return table


def turns(folder: Path) -> Table:
    """Measure the memory of a server after many recent turns."""
    table = Table("Memory after many turns, MiB", ["resident"], "turns")
    with server(folder) as (client, process):
        done = 0
        for count in (100, 5_000, 10_000, 15_000):
            asyncio.run(_many(str(client.base_url), count - done))
            done = count
            status = Path(f"/proc/{process}/status").read_text()
            kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
            table.add(f"{count:,}", "resident", kib / 1024)
    return table


async def _many(url: str, count: int) -> None:
    left = iter(range(count))

    async def one(client: httpx.AsyncClient) -> None:
        for _ in left:
            answer = await client.post("/v1/chat/stream", json={"message": text(10), "memory": False})
            assert answer.status_code == 200

    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
        await asyncio.gather(*(one(client) for _ in range(8)))


TABLES = {one.__name__: one for one in (imports, beside, cookies, recall, deletion, search, turns)}


def main(names: Sequence[str]) -> None:
    for name in names or TABLES:
        with tempfile.TemporaryDirectory() as folder:
            print(TABLES[name](Path(folder)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
