"""Built in: runs a program of ours on foreign bytes, in a process that is killed when it is late or not wanted.

What may hang, swell or crash on a stranger's page belongs there; `bounded` is what such a program calls first.
"""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from weakref import WeakKeyDictionary

AT_ONCE = 4
"""Processes of one event loop; each may take as much memory as `bounded` lets it."""
_KEPT = ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "TEMP", "TMPDIR")

_places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def said(program: str, *arguments: str, fed: bytes = b"", seconds: float) -> bytes | None:
    """What a module of `specialists`, run as a program, wrote to stdout; None when it was killed or failed.

    It knows of the environment only what a program needs: no keys, and no proxy, which some libraries would obey.
    """
    async with _places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE)):
        command = (sys.executable, "-P", "-m", f"specialists.{program}", *arguments)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=_environment()
        )
        try:
            async with asyncio.timeout(seconds):
                out, _ = await process.communicate(fed)
        except TimeoutError:
            return None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return out if process.returncode == 0 else None


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    path = os.pathsep.join(folder for folder in sys.path if folder)
    return {**kept, "PYTHONPATH": path, "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
