"""The process of a command: where it logs to, how it ends, and with which exit code."""

import asyncio
import atexit
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Literal

from brain.telemetry.logs import JsonLines, RateLimit, TextLines

LINGER_SECONDS = 1.0
DONE, FAILED, INTERRUPTED = 0, 1, 130

log = logging.getLogger("brain")


def log_to_stderr(form: Literal["text", "json"] = "text") -> None:
    """Warnings of everybody, a line each, and the stacks of all threads when the interpreter crashes."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    atexit.register(RateLimit(handler).write_counts)
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:  # else it may have no file descriptor
        faulthandler.enable(sys.stderr)


def log_as_server() -> None:
    """What a server says besides: more of its own, Python's warnings, and what ends a thread."""
    log.setLevel(logging.INFO)
    logging.captureWarnings(True)
    threading.excepthook = _on_thread_failed


def _on_thread_failed(args: threading.ExceptHookArgs) -> None:
    log.error("thread %s failed", args.thread.name if args.thread is not None else "?", exc_info=args.exc_value)


def run_command(
    command: Coroutine[Any, Any, int],
    stopped: int = INTERRUPTED,
    loop_factory: Callable[[], Any] | None = None,
    *,
    signals: Sequence[str] = ("SIGTERM", "SIGHUP"),
    leaving: Callable[[], None] = lambda: None,
) -> int:
    """Runs a command to its end; `stopped` is the exit code when Ctrl-C ends it, and 128 with its number a signal's.

    Closing the loop waits for every task, also for a specialist's that does not listen to its cancellation; so a timer
    ends the process when that takes too long.

    Args:
        signals: that end it as Ctrl-C does, so that it leaves the terminal and what is kept in order.
        leaving: called before the timer ends the process.
    """
    code = stopped

    def leave() -> None:
        log.info("a task or thread did not end within %g s; the process ends without it", LINGER_SECONDS)
        leaving()
        os._exit(code)

    timer = threading.Timer(LINGER_SECONDS, leave)
    timer.daemon = True

    def end(number: int, task: "asyncio.Task[Any]") -> None:
        nonlocal code
        if not task.cancelling():
            code = 128 + number
            task.cancel()

    async def timed() -> int:
        nonlocal code
        _listen(signals, end)
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
    except asyncio.CancelledError:
        return code
    except SystemExit as left:
        return FAILED if left.code else stopped
    finally:
        timer.cancel()


def _listen(signals: Sequence[str], end: Callable[[int, "asyncio.Task[Any]"], None]) -> None:
    """Has signals end the task that runs; not those that somebody wants ignored, as `nohup` does."""
    task = asyncio.current_task()
    assert task is not None
    for number in (getattr(signal, name) for name in signals if hasattr(signal, name)):
        if signal.getsignal(number) is signal.SIG_DFL:
            with suppress(NotImplementedError):  # where there are no signals
                asyncio.get_running_loop().add_signal_handler(number, end, number, task)
