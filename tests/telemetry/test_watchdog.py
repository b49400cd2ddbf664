"""Specialists that block the event loop are named in the log and by `brain check`, and counted.

Each blocks until it is noticed, so that no test depends on how fast the machine is.
"""

from pathlib import Path

import httpx
from brain_servers import Process, post, script
from limits import WAIT_SECONDS

SPECIALISTS = '''\
"""Specialists that block until the log says so."""

import asyncio
import logging
import threading

from brain import specialist

is_noticed = {name: threading.Event() for name in ("sleeps", "spins", "has_child", "ill")}


class Handler(logging.Handler):
    def emit(self, record):
        if "blocks the event loop" in record.msg:
            is_noticed[record.args[0]].set()


logging.getLogger("brain").addHandler(Handler())


@specialist
async def patient() -> str:
    """Waits for all the others, and blocks nothing."""
    for one in ("sleeps", "spins"):
        while not is_noticed[one].is_set():
            await asyncio.sleep(0)
    return "waited"


@specialist(timeout=120)
async def sleeps() -> str:
    """Waits without the loop, while other threads can run."""
    return str(is_noticed["sleeps"].wait(60))


@specialist(timeout=120)
async def spins() -> str:
    """Keeps the interpreter's lock, so that no other thread can run; longer each time."""
    for step in range(30):
        sum(range(int(2e6 * 1.4**step)))
        if is_noticed["spins"].is_set():
            return "True"
    return "False"


async def child() -> bool:
    return is_noticed["has_child"].wait(60)


@specialist(timeout=120)
async def has_child() -> str:
    """Blocks in a task of its own making."""
    (found,) = await asyncio.gather(child())
    return str(found)


async def looks() -> None:
    is_noticed["ill"].wait(60)


@specialist(health=looks)
async def ill() -> str:
    """Its health check blocks."""
    return ""
'''
PASSES = [
    ["SPECIALIST_REQUEST[sleeps]SPECIALIST_REQUEST[spins]SPECIALIST_REQUEST[patient]"],
    ["SPECIALIST_REQUEST[has_child]"],
    ["Done."],
]


def test_a_specialist_that_blocks_the_loop_is_named_and_counted(tmp_path: Path) -> None:
    (tmp_path / "specialists").mkdir()
    (tmp_path / "specialists" / "some.py").write_text(SPECIALISTS)
    env = {"BRAIN_SPECIALISTS_FOLDER": str(tmp_path / "specialists"), "BRAIN_CALL_SECONDS": "120"}
    with Process("serve", "--port", "0", "--model", script(tmp_path, *PASSES), env=env) as process:
        url = process.url()
        answer = post(url, json={"message": "hi"})
        results = {one.data["name"]: one.data["text"] for one in answer.events if one.name == "specialist_result"}
        assert results == {"sleeps": "True", "spins": "True", "has_child": "True", "patient": "waited"}
        metrics = httpx.get(f"{url}/metrics", trust_env=False, timeout=WAIT_SECONDS).text
        process.process.terminate()
        _, _, log = process.end()
    for name, where in (("sleeps", "in sleeps"), ("spins", "in spins"), ("has_child", "in child")):
        line = f"WARNING brain: specialist {name} blocks the event loop; "
        assert 'some.py", line ' in log.partition(line)[2].split("WARNING")[0]
        assert where in log.partition(line)[2].split("WARNING")[0]
        assert f'brain_loop_blocked_total{{specialist="{name}"}} ' in metrics
    assert "specialist patient blocks" not in log
    assert 'brain_loop_blocked_total{specialist="patient"}' not in metrics

    with Process("check", "--model", "builtin", env=env) as process:
        _, out, _ = process.end(WAIT_SECONDS)
    lines = {line.split(":")[0]: line for line in out.splitlines()}
    for name in ("sleeps", "spins", "has_child"):
        assert lines[f"WARN specialist {name}"].endswith("(some.py)")
        assert " blocked a server's event loop " in lines[f"WARN specialist {name}"]
    assert " its health check blocks the event loop at " in lines["WARN specialist ill"]
    assert lines["ok   specialist patient"] == "ok   specialist patient: some.py"
