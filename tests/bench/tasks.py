"""Measure what tasks cost a person's turn: `python tests/bench/tasks.py --model openai:NAME --model-url URL`.

Turns of a person alternate with and without three tasks that use the same model server. Each turn reads a different
message, so that the server's cache helps none of them.
"""

import argparse
import asyncio
import statistics
import sys
import time

from brain import settings
from brain.events import Token
from brain.plugins.registry import Registry
from brain.runtime.engine import Engine
from brain.settings import LOCAL_USER
from brain.store import tasks
from brain.task import NewTask
from brain.turn_request import TurnRequest

TASKS = 3
PROMPT = "Write a long story about {}. Describe every day of the journey."
FILLER = "The weather was fine, and the road was long. " * 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--model-url", required=True)
    parser.add_argument("--turns", type=int, default=20)
    given = parser.parse_args()
    alone, beside = asyncio.run(measure(given.model, given.model_url, given.turns))
    ratios = [second / first for first, second in zip(alone, beside, strict=True)]
    print("| | first token, median | slowest |\n|---|---|---|")
    for name, seconds in (("alone", alone), (f"beside {TASKS} tasks", beside)):
        print(f"| {name} | {1000 * statistics.median(seconds):.0f} ms | {1000 * max(seconds):.0f} ms |")
    print(f"\nRatio of the medians {statistics.median(beside) / statistics.median(alone):.2f}, "
          f"median of the ratios {statistics.median(ratios):.2f}")  # fmt: skip
    return 0


async def measure(model: str, url: str, turns: int) -> tuple[list[float], list[float]]:
    """Return the seconds to the first token of turns without and with tasks."""
    environ = {"MODEL": model, "MODEL_URL": url, "STORE": "memory:", "TASKS_AT_ONCE": str(TASKS), "TASKS_PER_DAY": "0"}
    engine = Engine(settings.read({f"BRAIN_{key}": value for key, value in environ.items()}), Registry())
    await engine.open(lambda task, outcome, seconds: None)
    alone: list[float] = []
    beside: list[float] = []
    await first_token(engine, 0)
    for number in range(1, turns + 1):
        alone.append(await first_token(engine, 2 * number))
        added = [await add_task(engine, f"{number}-{one}") for one in range(TASKS)]
        await wait_until_writing(engine)
        beside.append(await first_token(engine, 2 * number + 1))
        for user, task_id in added:
            await engine.tasks.write(tasks.cancel, user, task_id)
        await asyncio.sleep(0.3)
        print(f"\r{number} of {turns}", end="", file=sys.stderr, flush=True)
    await engine.close()
    print(file=sys.stderr)
    return alone, beside


async def wait_until_writing(engine: Engine) -> None:
    """Wait until all tasks write text: a server does not interrupt the reading of a prompt."""
    while True:
        reports = [run.snapshot() for run in engine.runs.running]
        if sum(report.first_token_ms is not None for report in reports) >= TASKS:
            return
        await asyncio.sleep(0.05)


async def first_token(engine: Engine, number: int) -> float:
    """Return the seconds to the first token of a turn, and stop it."""
    limits = engine.settings.limits()
    message = f"Message {number}. {FILLER}What was the weather like?"
    request = TurnRequest(message, LOCAL_USER, limits, engine.settings.syntax, "UTC", f"person{number}", memory=False)
    began = time.perf_counter()
    run = await engine.begin(request, "native")
    async for events in run.events():
        if any(isinstance(event, Token) for event in events):
            return time.perf_counter() - began
    raise SystemExit("the model wrote nothing")


async def add_task(engine: Engine, name: str) -> tuple[str, str]:
    """Start a task of a user of its own."""
    user = f"user-{name}"
    new = NewTask(prompt=PROMPT.format(name), conversation_id="c")
    return user, (await engine.tasks.create(engine.tasks.check(user, new))).id


if __name__ == "__main__":
    sys.exit(main())
