"""The process of a command: logging, errors, signals and the exit code."""

import atexit
import faulthandler
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from brain.errors import BrainError
from brain.text import escape_invisible

if TYPE_CHECKING:
    import asyncio

LINGER_SECONDS = 1.0
DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

log = logging.getLogger("brain")


class CommandError(BrainError):
    """What stops a command.

    Args:
        what: What happened, and where.
        advice: The command to type next, or a sentence that ends with a period.
    """

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.advice = advice


class UsageError(CommandError):
    """Wrong arguments: the exit code is 2."""


def replace_unwritable() -> None:
    """Replace characters that standard output or standard error cannot encode, such as with PYTHONIOENCODING=cp1252."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def print_error(what: str, advice: str) -> None:
    """Print an error on standard error, with the command to type next or another sentence of advice."""
    end = "" if what.endswith((".", "?")) else "."
    line = f"brain: {what.replace('`', '')}{end} {advice if advice.endswith('.') else f'Try: {advice}'}"
    print(escape_invisible(line), file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print one line of JSON in UTF-8, whatever the terminal's encoding is."""
    from brain.protocols.encoding import encode

    sys.stdout.buffer.write(encode(value) + b"\n")
    sys.stdout.buffer.flush()


def log_to_stderr(form: Literal["text", "json"] = "text") -> None:
    """Log warnings of all libraries, one per line, and the stacks of all threads if the interpreter crashes."""
    from brain.telemetry.logs import JsonLines, RateLimit, TextLines

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.logThreads = logging.logMultiprocessing = False  # not shown in log lines
    atexit.register(RateLimit(handler).write_counts)
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:  # else it may have no file descriptor
        faulthandler.enable(sys.stderr)


def log_as_server() -> None:
    """Also log Brain's activity, Python warnings, and exceptions that end a thread."""

    def on_thread_failed(args: threading.ExceptHookArgs) -> None:
        log.error("thread %s failed", args.thread.name if args.thread is not None else "?", exc_info=args.exc_value)

    log.setLevel(logging.INFO)
    logging.captureWarnings(True)
    threading.excepthook = on_thread_failed


def run_command(
    command: Coroutine[Any, Any, int],
    stopped: int = INTERRUPTED,
    loop_factory: Callable[[], Any] | None = None,
    *,
    signals: Sequence[str] = ("SIGTERM", "SIGHUP"),
    on_forced_exit: Callable[[], None] = lambda: None,
) -> int:
    """Run a command and return the exit code.

    Closing the loop waits for every task, also for one that ignores its cancellation. A timer ends the process if that
    takes too long.

    Args:
        stopped: Exit code after Ctrl-C. After another signal it is 128 plus the number of the signal.
        signals: Signals that stop the command like Ctrl-C, which restores the terminal and closes the store. Ignored
            ones, as with `nohup`, stay ignored.
        on_forced_exit: Called before the timer ends the process.
    """
    import asyncio  # many commands have no coroutine

    code = stopped

    def force_exit() -> None:
        log.info("a task or thread did not end within %g s; exiting without it", LINGER_SECONDS)
        on_forced_exit()
        os._exit(code)

    timer = threading.Timer(LINGER_SECONDS, force_exit)
    timer.daemon = True

    def stop(number: int, task: "asyncio.Task[Any]") -> None:
        nonlocal code
        if not task.cancelling():
            code = 128 + number
            task.cancel()

    async def main() -> int:
        nonlocal code
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (getattr(signal, name) for name in signals if hasattr(signal, name)):
            if signal.getsignal(number) is signal.SIG_DFL:
                with suppress(NotImplementedError):  # on systems without signals
                    loop.add_signal_handler(number, stop, number, task)
        try:
            code = await command
        finally:
            timer.start()
        return code

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(main())
    except KeyboardInterrupt:
        return stopped
    except asyncio.CancelledError:
        return code
    except SystemExit as exit:
        return FAILED if exit.code else stopped
    finally:
        timer.cancel()
