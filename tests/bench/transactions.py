"""Count the transactions of the store while one background task runs: `python tests/bench/transactions.py`.

The task's model writes for a second, makes one call, which takes two seconds, and writes for another second. The table
has the functions that the store ran from the creation of the task to its end, and in a pause as long as the task.
"""

import argparse
import asyncio
import inspect
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brain import settings, specialist
from brain.plugins.registry import Registry
from brain.runtime.engine import Engine
from brain.settings import LOCAL_USER
from brain.store import tasks
from brain.store.sqlite.database import SQLite
from brain.task import NewTask

CALL_SECONDS = 2.0
WORDS = 50
WORD_MS = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    counted: Counter[str] = Counter()
    count_transactions(counted)
    seconds, task, pause = asyncio.run(measure(counted))
    print(f"| transaction | one task, {seconds:.1f} s | without tasks, {seconds:.1f} s |\n|---|---|---|")
    for name in sorted(task | pause, key=lambda name: (-task[name], name)):
        print(f"| `{name}` | {task[name] or ''} | {pause[name] or ''} |")
    print(f"| all | {task.total()} | {pause.total()} |")
    return 0


def count_transactions(counted: Counter[str]) -> None:
    """Count each read and each write of any store by the name of its function."""

    def count(method: Callable[..., Any]) -> Callable[..., Any]:
        def counting(database: SQLite, *arguments: Any, **options: Any) -> Any:
            work = next(one for one in arguments if callable(one))
            inner = inspect.getclosurevars(work).nonlocals.get("function", work) if inspect.isfunction(work) else work
            module = getattr(inner, "__module__", "").rpartition(".")[2]
            counted[f"{module}.{getattr(inner, '__qualname__', inner)}"] += 1
            return method(database, *arguments, **options)

        return counting

    for name in ("run_read", "submit"):
        setattr(SQLite, name, count(getattr(SQLite, name)))


async def measure(counted: Counter[str]) -> tuple[float, Counter[str], Counter[str]]:
    """Return the seconds of a task, its transactions, and those of a pause as long."""

    @specialist(read_only=True, outside=False)
    async def wait() -> str:
        """Take a while."""
        await asyncio.sleep(CALL_SECONDS)
        return "waited"

    registry = Registry()
    registry.add(wait)
    words = [f"word{n} " for n in range(WORDS)]
    passes = [{"chunks": chunks, "delay_ms": WORD_MS} for chunks in ([*words, "SPECIALIST_REQUEST[wait:{}]"], words)]
    with tempfile.TemporaryDirectory() as name:
        script = Path(name, "script.jsonl")
        script.write_text("".join(f"{json.dumps(one)}\n" for one in passes))
        environ = {"MODEL": f"script:{script}", "STORE": f"sqlite:{name}/db"}
        engine = Engine(settings.read({f"BRAIN_{key}": value for key, value in environ.items()}), registry)
        has_ended = asyncio.Event()
        await engine.open(lambda task, outcome, seconds: has_ended.set())
        await asyncio.sleep(1)  # the first look at an empty store
        counted.clear()
        began = time.monotonic()
        task = await engine.tasks.create(engine.tasks.check(LOCAL_USER, NewTask(prompt="Work", tell="never")))
        await has_ended.wait()
        seconds, of_task = time.monotonic() - began, Counter(counted)
        stored = await engine.store.read(tasks.find, LOCAL_USER, task.id)
        assert stored is not None
        assert (stored.state, len(stored.result.split())) == ("succeeded", 2 * WORDS)
        await asyncio.sleep(1)  # what follows the end
        counted.clear()
        await asyncio.sleep(seconds)
        of_pause = Counter(counted)
        await engine.close()
    return seconds, of_task, of_pause


if __name__ == "__main__":
    sys.exit(main())
