"""A process that uses a store, says on its output what it is about to do and what was acknowledged, and is killed.

`python tests/store_writer.py FILE NAME`: without end, whatever comes into a random mind.
`python tests/store_writer.py FILE NAME hold`: begins one turn of conversation `shared`, and does nothing more.
`python tests/store_writer.py FILE NAME turns`: fifty turns of a conversation of its own.
"""

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from stores import answered, asked, fact, file, turn

from brain.store.sqlite import SQLite


def tell(*words: Any) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


async def main(path: str, name: str, what: str = "") -> None:
    store = SQLite(Path(path))
    await store.open()
    if what == "hold":
        await store.begin("ada", "shared", asked("held", name), ())
        tell("holds")
        await asyncio.sleep(60)
    elif what == "turns":
        tell("begins")
        for n in range(50):
            await turn(store, "ada", name, f"{name} {n}", f"answer {n}", number=n)
        await store.close()
    else:
        await write(store, name, random.Random(name))


async def write(store: SQLite, name: str, rng: random.Random) -> None:
    tell("ready")
    for n in range(1_000_000):
        user, conversation = rng.choice(["ada", "eve"]), f"{name}.{rng.randrange(6)}"
        match rng.randrange(8):
            case 0:
                tell("deletes", user, conversation)
                await store.delete(user, conversation)
                tell("deleted", user, conversation)
            case 1:
                text = f"{name} likes {n}"
                tell("puts", user, conversation, text)
                await store.put(user, fact(conversation, text))
                tell("put", user, conversation, text)
            case _:
                question, answer = f"{name}:{n}", "x" * rng.choice([3, 3_000, 30_000]) + str(n)
                tell("begins", user, conversation, question)
                files = [file(b"x" * 10_000)] * rng.randrange(2)
                record = await store.begin(user, conversation, asked(question, n), files)
                tell("begun", user, conversation, question)
                tell("ends", user, conversation, answer)
                await store.end(record, answered(answer, n))
                tell("ended", user, conversation, answer)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
