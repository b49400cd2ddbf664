"""A thread that detects code that blocks the event loop."""

import asyncio
import inspect
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

from brain.plugins.executor import TASK_NAME
from brain.plugins.registry import Entry

BLOCKED_SECONDS = 0.25
CHECK_SECONDS = 0.125
CHECKS = 1 + round(BLOCKED_SECONDS / CHECK_SECONDS)
"""Checks during one step of a task that show a block."""
FRAMES_SHOWN = 12
UNKNOWN = "?"

log = logging.getLogger("brain")


@dataclass(frozen=True, slots=True)
class Blocked:
    """Code that blocked the event loop: `?` or a specialist, and the innermost line in its file or of the stack."""

    specialist: str
    place: str
    stack: str


class Watchdog:
    """A context manager that reports code that blocks the event loop for `BLOCKED_SECONDS`.

    It costs nothing while the loop is idle. When the thread finds a running task, it posts a callback to the loop. It
    reports the task if it still runs after that time and the callback has not run.

    Args:
        report: called in the watching thread, once per blocking step.
    """

    def __init__(self, specialists: Mapping[str, Entry], report: Callable[[Blocked], None]) -> None:
        self._specialists = specialists
        self._report = report
        self._stopped = threading.Event()
        self._has_run = True
        self._suspect: asyncio.Task[Any] | None = None
        self._checks = 0

    def __enter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        pthread_clock = getattr(time, "pthread_getcpuclockid", None)
        self._clock = None if pthread_clock is None else pthread_clock(self._thread)
        threading.Thread(target=self._watch, name="brain-watchdog", daemon=True).start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        used = self._cpu_seconds()
        while not self._stopped.wait(CHECK_SECONDS):
            before, used = used, self._cpu_seconds()
            # C code that holds the interpreter lock delays this thread until it ends.
            self._check(holds_lock=used - before >= BLOCKED_SECONDS)

    def _cpu_seconds(self) -> float:
        """CPU time of the loop's thread; 0 if the system does not report it."""
        return 0.0 if self._clock is None else time.clock_gettime(self._clock)

    def _check(self, *, holds_lock: bool) -> None:
        """Count the checks during one step of a task. A suspended machine adds only one check."""
        task = asyncio.current_task(self._loop)
        if self._has_run or task is not self._suspect:
            self._suspect, self._checks = task, 0
        if task is None:
            return
        if self._has_run:
            self._has_run = False
            self._loop.call_soon_threadsafe(self._mark_run)
        before = self._checks
        self._checks = max(before + 1, CHECKS if holds_lock else 0)
        if before < CHECKS <= self._checks:
            self._report_block(task)

    def _mark_run(self) -> None:
        """Run by the loop."""
        self._has_run = True

    def _report_block(self, task: asyncio.Task[Any]) -> None:
        frames = _frames(sys._current_frames().get(self._thread))
        if self._has_run:  # the step has just ended
            return
        files = self._files()
        own = [frame for frame in frames if frame.f_code.co_filename in files]
        name = _name_of(task)
        if name is None:  # a task or function of a specialist outside its call
            names = files[own[-1].f_code.co_filename] if own else {UNKNOWN}
            running = {one for one in map(_name_of, asyncio.all_tasks(self._loop)) if one is not None}
            name = " or ".join(sorted(names & running or names))
        innermost = (own or frames)[-1]
        place = f"{innermost.f_code.co_filename}:{innermost.f_lineno}"
        shown = frames[frames.index(own[0]) :] if own else frames
        stack = "".join(traceback.StackSummary.extract((one, one.f_lineno) for one in shown[-FRAMES_SHOWN:]).format())
        found = Blocked(name, place, stack)
        self._report(found)
        is_known = name != UNKNOWN
        message = "specialist %s blocks the event loop; use await, or make it a plain def"
        record = log.makeRecord(  # `logging` cannot read the stack of another thread
            log.name,
            logging.WARNING if is_known else logging.DEBUG,
            __file__,
            0,
            message if is_known else "the event loop is blocked%.0s",
            (name,),
            None,
            sinfo=stack,
        )
        if log.isEnabledFor(record.levelno):
            log.handle(record)

    def _files(self) -> dict[str, set[str]]:
        """Source files, with the names of their specialists."""
        found: dict[str, set[str]] = {}
        for name, entry in self._specialists.items():
            code = getattr(inspect.unwrap(entry.specialist.function), "__code__", None)
            if code is not None:
                found.setdefault(code.co_filename, set()).add(name)
        return found


def _name_of(task: asyncio.Task[Any]) -> str | None:
    """The name of the specialist that a task runs."""
    name = task.get_name()
    return name.removeprefix(TASK_NAME) if name.startswith(TASK_NAME) else None


def _frames(frame: FrameType | None) -> list[FrameType]:
    """All frames of a stack, innermost last."""
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]
