"""Roof: the process of a command: where it logs to, how it ends, and with which exit code."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

LINGER_SECONDS = 1.0
DONE, FAILED, INTERRUPTED = 0, 1, 130


def log_to_stderr() -> None:
    """Warnings of everybody, a line each; `serve` says more of its own."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)


def completed(
    command: Coroutine[Any, Any, int], stopped: int = INTERRUPTED, loop_factory: Callable[[], Any] | None = None
) -> int:
    """Runs a command to its end; `stopped` is the exit code when a signal ends it.

    Closing the loop waits for every task, also for a specialist's that does not listen to its cancellation; so a timer
    ends the process when that takes too long.
    """
    code = stopped
    timer = threading.Timer(LINGER_SECONDS, lambda: os._exit(code))
    timer.daemon = True

    async def timed() -> int:
        nonlocal code
        try:
            code = await command
        finally:
            timer.start()
        return code

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(timed())
    except KeyboardInterrupt:
        return stopped
    except SystemExit as end:
        return FAILED if end.code else stopped
    finally:
        timer.cancel()
