"""Runs tasks in processes that kill themselves at one of their writes, and prints how the tasks ended.

`python tests/task_crashes.py alone|shared FIRST LAST STEP [URL]` prints one JSON object for each number of a write.
`alone`: a second process starts after the first was killed. `shared`: it runs at the same time, and takes over.
URL is that of a PostgreSQL database, which is emptied; without it, they share a file.
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

import psycopg

from brain import Context, Registry, specialist
from brain.messages import Call
from brain.runtime import processes, task_runner
from brain.runtime.engine import Engine
from brain.settings import read
from brain.store import conversations, tasks
from brain.store import processes as stored_processes
from brain.store.postgresql.database import PostgreSQL
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
    """Kill this process before a write of the database; count from 1."""
    left = number

    def kill() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    check_place, submit = SQLite.check_place, PostgreSQL.submit

    def check_or_die(database: SQLite) -> None:
        kill()  # a file is checked before each write
        check_place(database)

    def submit_or_die(*arguments: Any, **options: Any) -> Any:
        kill()
        return submit(*arguments, **options)

    SQLite.check_place = check_or_die  # type: ignore[assignment,method-assign]
    PostgreSQL.submit = submit_or_die  # type: ignore[method-assign]


async def run(folder: Path, store: str) -> None:
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
    environ = {"MODEL": f"script:{folder}/script", "STORE": store, "TIME_ZONE": "UTC"}
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


async def look_at(folder: Path, store: str) -> dict[str, Any]:
    """Return how the tasks ended, the effects, and the reports."""
    engine = Engine(read({"BRAIN_MODEL": "builtin", "BRAIN_STORE": store}), Registry())
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


def start(folder: Path, store: str, kill_at: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        kill_at_write(kill_at)
        asyncio.run(run(folder, store))
        code = 0
    except BaseException as error:  # noqa: BLE001
        sys.stderr.write(f"{error!r}\n")
        code = 1
    os._exit(code)


def main() -> None:
    kind, first, last, step = sys.argv[1], *map(int, sys.argv[2:5])
    url = sys.argv[5] if len(sys.argv) > 5 else ""
    if kind == "shared" or url:
        stored_processes.LEASE_SECONDS = processes.LEASE_SECONDS = 1.0  # type: ignore[attr-defined]
        task_runner.LOOK_SECONDS = processes.LOOK_SECONDS = 0.1
    for number in range(first, last, step):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "script").write_text("".join(f"{json.dumps(one)}\n" for one in PASSES))
            if url:
                with psycopg.connect(url) as connection:
                    connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            store = url or f"sqlite:{folder}/db"
            killed = start(folder, store, number)
            if kind == "alone":
                first_status = os.waitpid(killed, 0)[1]
                last_status = os.waitpid(start(folder, store, -1), 0)[1]
            else:
                other = start(folder, store, -1)
                first_status, last_status = os.waitpid(killed, 0)[1], os.waitpid(other, 0)[1]
            found = asyncio.run(look_at(folder, store))
            was_killed = os.WIFSIGNALED(first_status)
            line = {"write": number, "killed": was_killed, "exit": last_status, **found}
            sys.stdout.write(f"{json.dumps(line)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
