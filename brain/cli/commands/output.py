"""What `brain ask` and `brain chat` share: the engine, and how a turn is shown."""

import asyncio
import logging
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, aclosing, asynccontextmanager, contextmanager, nullcontext
from importlib.util import find_spec
from io import TextIOBase
from itertools import count
from typing import TextIO, cast

from brain.cli.commands.names import describe_rejected, discover
from brain.cli.process import UsageError, print_json
from brain.cli.terminal.approval import ApprovalPrompt, Screen
from brain.cli.terminal.keyboard import Keyboard, silent
from brain.cli.terminal.plain import Plain
from brain.errors import ModelError
from brain.events import Done, Error, Event
from brain.protocols import native
from brain.runtime.engine import Engine
from brain.runtime.run import Run
from brain.runtime.task_runner import OnTaskEnd
from brain.settings import Settings

MIN_LIVE_WIDTH = 24
"""Columns of the narrowest terminal with a live display."""
MAX_DETAIL_LENGTH = 500
"""Characters shown of a model server's error."""


@asynccontextmanager
async def open_engine(settings: Settings, on_task_end: OnTaskEnd | None = None) -> AsyncIterator[Engine]:
    """Open the engine for the duration of the block. Its end stores the running turn, also after Ctrl-C.

    Raises:
        UsageError: A setting names an unknown specialist, or a model that its server does not have.
    """
    registry = discover(settings)
    for line in describe_rejected(registry):
        print(line, file=sys.stderr, flush=True)
    engine = Engine(settings, registry)
    await engine.open(on_task_end)
    try:
        model = engine.models[0]
        if model.remedy:
            raise UsageError(model.problem or "", model.remedy)
        yield engine
    finally:
        await engine.close()


def open_screen(answer: TextIO, messages: TextIO, *, plain: bool, thinks: bool) -> Screen:
    """Return a live display if the terminal supports it, else plain text."""
    is_live = (
        not plain
        and answer.isatty()
        and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
        and shutil.get_terminal_size().columns >= MIN_LIVE_WIDTH
        and answer.encoding.lower() == "utf-8"
    )
    if not is_live:
        return Plain(answer, messages, thinks=thinks)
    from brain.cli.terminal.live import Live  # imports rich, which pipes do not need

    return Live(answer, thinks=thinks)


async def show_run(
    run: Run,
    screen: Screen,
    *,
    asks_person: bool,
    keyboard: Keyboard | None = None,
    show: Callable[[Event], None] | None = None,
) -> Done | Error | None:
    """Show a turn from its beginning and return its last event.

    Args:
        asks_person: True to ask the person at the terminal to approve calls.
        keyboard: Echoes only while Brain waits for an approval.
        show: Takes each event instead of the screen.
    """
    last: Event | None = None
    show = show or screen.show
    with ExitStack() as stack:
        stack.callback(screen.close)
        stack.enter_context(_show_logs(screen))
        stack.enter_context(_handle_resume(screen, keyboard))
        prompt = ApprovalPrompt(screen, sys.stdin, run.decide, keyboard) if asks_person else None
        if prompt is not None:
            stack.callback(prompt.cancel)
        async with aclosing(run.events()) as batches:
            async for batch in batches:
                for last in batch:
                    if prompt is not None:
                        prompt.handle(last)
                    show(last)
    return last if isinstance(last, Done | Error) else None


def print_json_event(turn_id: str) -> Callable[[Event], None]:
    """Return a function that prints each event of a turn as one line of JSON."""
    numbers = count(1)

    def show(event: Event) -> None:
        name, data = native.EVENT_NAMES[type(event)], native.event_data(event)
        print_json({"event": name, "id": f"{turn_id}.{next(numbers)}", "data": data})

    return show


class _ScreenStream(TextIOBase):
    """A stream for log handlers that shows lines on a screen, from any thread."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._loop = asyncio.get_running_loop()

    def write(self, text: str) -> int:
        """Show whole lines."""
        if asyncio._get_running_loop() is self._loop:
            self._screen.show_message(text.rstrip("\n"))
        else:
            self._loop.call_soon_threadsafe(self._screen.show_message, text.rstrip("\n"))
        return len(text)


@contextmanager
def _show_logs(screen: Screen) -> Iterator[None]:
    """Show log lines for this terminal on the screen.

    A model failure is also an event of the turn, so its log line is not shown, except why the connection failed: the
    event has no URL.
    """

    def is_logged(record: logging.LogRecord) -> bool:
        failures = [one for one in record.args or () if isinstance(one, ModelError)]
        for failure in (one for one in failures if one.status is None):  # else its detail is a raw response
            screen.show_message(failure.detail[:MAX_DETAIL_LENGTH])
        return not failures

    with ExitStack() as stack:
        for handler in logging.root.handlers:
            if isinstance(handler, logging.StreamHandler):
                handler.addFilter(is_logged)
                stack.callback(handler.removeFilter, is_logged)
                if handler.stream is sys.stderr and sys.stderr.isatty():
                    handler.setStream(cast("TextIO", _ScreenStream(screen)))
                    stack.callback(handler.setStream, sys.stderr)
        yield


@contextmanager
def _handle_resume(screen: Screen, keyboard: Keyboard | None) -> Iterator[None]:
    """Restore the keyboard and the screen when this process continues after Ctrl-Z."""

    def resume(number: int, frame: object) -> None:  # not through the event loop: a redraw might come first
        if keyboard is not None:
            keyboard.resume()
        screen.resume()

    if not hasattr(signal, "SIGCONT"):
        yield
        return
    previous = signal.signal(signal.SIGCONT, resume)
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, previous)


def silence_keyboard(screen: Screen) -> AbstractContextManager[Keyboard | None]:
    """Turn off the echo of the keyboard next to a live display, for the duration of the block."""
    return silent(sys.stdin) if not isinstance(screen, Plain) and has_person(screen) else nullcontext()


def has_person(screen: Screen) -> bool:
    """Whether a person at the screen can answer; plain text asks on standard error."""
    shown = sys.stderr if isinstance(screen, Plain) else sys.stdout
    return sys.stdin.isatty() and shown.isatty() and find_spec("termios") is not None
