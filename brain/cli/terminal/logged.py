"""Lines of the log, which would tear a screen that is being drawn: it shows them itself."""

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOBase
from typing import TextIO, cast

from brain.cli.terminal.approval import Screen
from brain.errors import ModelError

DETAIL_LENGTH = 500


class _Lines(TextIOBase):
    """A stream whose lines a screen shows, whichever thread writes them."""

    def __init__(self, screen: Screen, loop: asyncio.AbstractEventLoop) -> None:
        self._screen = screen
        self._loop = loop

    def write(self, text: str) -> int:
        """Takes whole lines, as handlers of logs write them."""
        if asyncio._get_running_loop() is self._loop:
            self._screen.say(text.rstrip("\n"))
        else:
            self._loop.call_soon_threadsafe(self._screen.say, text.rstrip("\n"))
        return len(text)


class _Once(logging.Filter):
    """Leaves out that the model failed, which the turn says, too; but not the detail of it, which only the log has."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is shown as a line of the log."""
        failures = [one for one in record.args or () if isinstance(one, ModelError)]
        for failure in failures:
            self._screen.say(failure.detail[:DETAIL_LENGTH])
        return not failures


@contextmanager
def told_by(screen: Screen) -> Iterator[None]:
    """Has a screen show what is logged to the same terminal, and how a model failed, as long as the block runs."""
    streams = [one for one in logging.root.handlers if isinstance(one, logging.StreamHandler)]
    once = _Once(screen)
    for handler in streams:
        handler.addFilter(once)
    handlers = [one for one in streams if one.stream is sys.stderr and sys.stderr.isatty()]
    lines = cast("TextIO", _Lines(screen, asyncio.get_running_loop()))
    for handler in handlers:
        handler.setStream(lines)
    try:
        yield
    finally:
        for handler in streams:
            handler.removeFilter(once)
        for handler in handlers:
            handler.setStream(sys.stderr)
