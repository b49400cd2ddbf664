"""Roof: the process of a command: where it logs to, how it ends, and with which exit code."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from brain.logs import JsonLines, TextLines

LINGER_SECONDS = 1.0
DONE, FAILED, INTERRUPTED = 0, 1, 130

log = logging.getLogger("brain")


def log_to_stderr(form: Literal["text", "json"] = "text") -> None:
    """Warnings of everybody, a line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def log_as_server() -> None:
    """What a server says besides: more of its own, Python's warnings, and what ends a thread."""
    log.setLevel(logging.INFO)
    logging.captureWarnings(True)
    threading.excepthook = _on_thread_failed


def _on_thread_failed(args: threading.ExceptHookArgs) -> None:
    log.error("thread %s failed", args.thread.name if args.thread is not None else "?", exc_info=args.exc_value)


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
