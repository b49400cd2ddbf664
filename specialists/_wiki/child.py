"""Built in: asks another process, which is killed when the asker is cancelled or has waited long enough."""

import asyncio
import sys
from typing import Any

import msgspec

SECONDS = 12.0


class Failed(Exception):
    """The process broke off, or did not end in time."""


async def asked(program: str, *arguments: str, given: bytes = b"") -> Any:
    """What a module of `specialists._wiki`, run as a program, says in JSON; raises `Failed`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", f"specialists._wiki.{program}", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await process.communicate(given)
    except TimeoutError:
        raise Failed from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise Failed
    return msgspec.json.decode(said)
