"""Runs tasks in processes that kill themselves at one of their writes, and prints how the tasks ended.

`python tests/task_crashes.py alone|shared FIRST LAST STEP` prints one JSON object for each number of a write.
`alone`: a second process starts after the first was killed. `shared`: it runs at the same time, and takes over.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from brain import Context, Registry, specialist
from brain.messages import Call
from brain.runtime import processes, task_runner
from brain.runtime.engine import Engine
from brain.settings import read
from brain.store import conversations, tasks
from brain.store import processes as stored_processes
from brain.store.sqlite.database import SQLite
from brain.task import NewTask

PASSES = [
    ["First ", 'SPECIALIST_REQUEST[write:{"n":1}]', 'SPECIALIST_REQUEST[write:{"n":1}]'],
    ["then ", "SPECIALIST_REQUEST[look:{}]", 'SPECIALIST_REQUEST[write:{"n":2}]'],
    ["done."],
]
TITLES = ("One", "Two", "Three")
SECONDS = 60.0


def kill_at_write(number: int) -> None:
    """Kill this process before a write of the database, which checks its place first; count from 1."""
    check_place = SQLite.check_place
    left = number

    def check_or_die(database: SQLite) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        check_place(database)

    SQLite.check_place = check_or_die  # type: ignore[assignment,method-assign]


async def run(folder: Path) -> None:
    """Create the tasks, unless they exist, and run them and their reports to the end."""

    @specialist(read_only=False, approval="never", outside=False, timeout=30)
    async def write(n: int, *, context: Context) -> str:
        """Have an effect."""
        with (folder / "effects").open("a") as file:
            file.write(f"{context.key} {n}\n")
        return f"wrote {n}"

    @specialist(read_only=True, outside=False)
    async def look() -> str:
        """Have none."""
        return "nothing"

    registry = Registry()
    registry.add(write)
    registry.add(look)
    environ = {"MODEL": f"script:{folder}/script", "STORE": f"sqlite:{folder}/db", "TIME_ZONE": "UTC"}
    environ |= {f"TASK_{name}_SECONDS": "0.05" for name in ("QUIET", "WAIT", "PAUSE")}
    engine = Engine(read({f"BRAIN_{name}": value for name, value in environ.items()}), registry)
    async with asyncio.timeout(SECONDS):
        await engine.open(lambda task, outcome, seconds: None)
        changed = asyncio.Event()
        engine.tasks.subscribe(changed.set)
        for title in TITLES:
            new = NewTask(prompt="Work", title=title, conversation_id="chat")
            await engine.tasks.create(engine.tasks.check("local", new, key=title))
        while True:
            changed.clear()
            found = await engine.store.read(tasks.list_tasks, "local")
            if all(task.has_ended for task in found) and not await engine.store.read(tasks.list_unreported):
                break
            await changed.wait()
        await engine.close()


async def look_at(folder: Path) -> dict[str, Any]:
    """Return how the tasks ended, the effects, and the reports."""
    engine = Engine(read({"BRAIN_MODEL": "builtin", "BRAIN_STORE": f"sqlite:{folder}/db"}), Registry())
    await engine.open()
    packets = await engine.store.read(tasks.read_channel, "local", 0)
    page = await engine.store.read(conversations.read_page, "local", "chat")
    notes = [one.question for one in page.exchanges] if page is not None else []
    found = {
        "states": sorted(task.state for task in await engine.store.read(tasks.list_tasks, "local")),
        "ends": sorted(Counter(packet.task_id for packet in packets if packet.kind in ("result", "failure")).values()),
        "reports": [sum(f'"{title}", run 1' in note for note in notes) for title in TITLES],
    }
    unknown = warned = 0
    for task in await engine.store.read(tasks.list_tasks, "local"):
        work = await engine.store.read(conversations.read_page, "local", task.work_id)
        warned += "Check whether they took effect" in task.result
        parts = [part for one in (work.exchanges if work is not None else ()) for part in one.parts]
        unknown += sum(isinstance(part, Call) and part.code == "interrupted" for part in parts)
    await engine.close()
    lines = (folder / "effects").read_text().splitlines() if (folder / "effects").exists() else []
    return {
        **found,
        "unknown": unknown,
        "warned": warned,
        "effects": len(lines),
        "repeated": len(lines) - len({(line.partition("-")[0], line.rpartition(" ")[2]) for line in lines}),
    }


def start(folder: Path, kill_at: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        kill_at_write(kill_at)
        asyncio.run(run(folder))
        code = 0
    except BaseException as error:  # noqa: BLE001
        sys.stderr.write(f"{error!r}\n")
        code = 1
    os._exit(code)


def main() -> None:
    kind, first, last, step = sys.argv[1], *map(int, sys.argv[2:])
    if kind == "shared":
        stored_processes.LEASE_SECONDS = processes.LEASE_SECONDS = 1.0  # type: ignore[attr-defined]
        task_runner.LOOK_SECONDS = processes.LOOK_SECONDS = 0.1
    for number in range(first, last, step):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "script").write_text("".join(f"{json.dumps(one)}\n" for one in PASSES))
            killed = start(folder, number)
            if kind == "alone":
                first_status = os.waitpid(killed, 0)[1]
                last_status = os.waitpid(start(folder, -1), 0)[1]
            else:
                other = start(folder, -1)
                first_status, last_status = os.waitpid(killed, 0)[1], os.waitpid(other, 0)[1]
            found = asyncio.run(look_at(folder))
            was_killed = os.WIFSIGNALED(first_status)
            line = {"write": number, "killed": was_killed, "exit": last_status, **found}
            sys.stdout.write(f"{json.dumps(line)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
