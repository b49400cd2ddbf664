"""A process that uses a store, prints what it is about to do and what was acknowledged, and is killed.

`python tests/store_writer.py STORE NAME`: random work without end.
`python tests/store_writer.py STORE NAME hold`: begins one turn of conversation `shared`, and waits.
`python tests/store_writer.py STORE NAME turns`: fifty turns of a conversation of its own.
`python tests/store_writer.py STORE NAME imports`: imports of `import_records`, each for another user, without end.
"""

import asyncio
import json
import os
import random
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any

from store_helpers import NOON, add_turn, answer, fact, file, join, question

from brain.runtime import import_sanitizer
from brain.store import items, open_store
from brain.store.store import Store


def report(*words: str) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


async def main(setting: str, name: str, what: str = "") -> None:
    store = await open_store(setting)
    report("ready", "", "")
    if what == "hold":
        await join(store)
        await store.write_question("ada", "shared", question("held", name), ())
        report("holds", "", "")
        await asyncio.Event().wait()
    elif what == "turns":
        for n in range(50):
            await add_turn(store, "ada", name, f"{name} {n}", f"answer {n}", number=n)
        await store.close()
    elif what == "imports":
        for n in count():
            report("imports", f"{name}.{n}")
            await store.import_user(f"{name}.{n}", import_records(), import_sanitizer)
            report("imported", f"{name}.{n}")
    else:
        await write(store, name, random.Random(name))


def import_records() -> Iterator[dict[str, Any]]:
    """100 conversations of one exchange, and 100 facts: several transactions."""
    now = NOON.isoformat()
    yield {"kind": "brain", "version": 2}
    for n in range(100):
        yield {"kind": "conversation", "id": f"c{n}", "title": "Music", "created": now}
        yield {
            "kind": "exchange", "conversation": f"c{n}", "question_id": "q", "answer_id": "a", "message": "I like jazz",
            "question": "I like jazz", "started": now, "outcome": "complete",
        }  # fmt: skip
    for n in range(100):
        yield {"kind": "item", "type": "fact", "id": f"f{n}", "text": "I like jazz", "created": now, "updated": now}


async def write(store: Store, name: str, rng: random.Random) -> None:
    for n in range(1_000_000):
        place = rng.choice(["ada", "eve"]), f"{name}.{rng.randrange(6)}"
        match rng.randrange(8):
            case 0:
                report("deletes", *place)
                await store.delete(*place)
                report("deleted", *place)
            case 1:
                text = f"{name} likes {n}"
                report("puts", *place, text)
                await store.write(items.put, place[0], fact(place[1], text))
                report("put", *place, text)
            case _:
                asked, reply = f"{name}:{n}", "x" * rng.choice([3, 3_000, 30_000]) + str(n)
                report("begins", *place, asked)
                files = [file(b"x" * 10_000)] * rng.randrange(2)
                history = await store.write_question(*place, question(asked, n), files)
                report("begun", *place, asked)
                report("ends", *place, reply)
                await store.end(history, answer(reply, n))
                report("ended", *place, reply)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
