"""Built in: asks another process, which is killed when the asker is cancelled or has waited long enough."""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

SECONDS = 12.0
PROCESSES_MOST = max(2, os.cpu_count() or 1)

_places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class Failed(Exception):
    """The process broke off, or did not end in time."""


async def asked(program: str, *arguments: str, given: bytes = b"", seconds: float = SECONDS) -> Any:
    """What a module of `specialists._wiki`, run as a program, says in JSON; raises `Failed`."""
    async with _places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(PROCESSES_MOST)):
        return msgspec.json.decode(await _said(program, arguments, given, seconds))


async def _said(program: str, arguments: Sequence[str], given: bytes, seconds: float) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", f"specialists._wiki.{program}", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(seconds):
            said, _ = await process.communicate(given)
    except TimeoutError:
        raise Failed from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise Failed
    return said
