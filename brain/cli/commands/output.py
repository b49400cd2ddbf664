"""How a turn is shown, for `brain ask` and `brain chat`."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, aclosing, contextmanager, nullcontext
from typing import TextIO

from brain.cli.terminal.approval import ApprovalPrompt, Screen, can_be_asked
from brain.cli.terminal.keyboard import Keyboard, silent
from brain.cli.terminal.logged import told_by
from brain.cli.terminal.plain import Plain
from brain.cli.terminal.size import NARROWEST, size_of
from brain.events import Done, Error, Event
from brain.runtime.run import Run


def screen(answer: TextIO, aside: TextIO, *, plain: bool, thinks: bool) -> Screen:
    """Where a turn is shown: live in a terminal that can, else as text."""
    if plain or not can_be_live(answer):
        return Plain(answer, aside, thinks=thinks)
    from brain.cli.terminal.live import Live  # with rich: who pipes does not pay for it

    return Live(answer, thinks=thinks)


def can_be_live(out: TextIO) -> bool:
    """Whether a stream is a terminal that can move its cursor, with some room and all characters."""
    if not out.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return False
    return size_of(out.fileno())[0] >= NARROWEST and out.encoding.lower() == "utf-8"


async def shown(
    run: Run,
    shown_on: Screen,
    *,
    asks_person: bool,
    keyboard: Keyboard | None = None,
    tell: Callable[[Event], None] | None = None,
    drop: Callable[[Event], bool] = lambda event: False,
) -> Done | Error | None:
    """Shows a turn from its beginning; how it ended.

    Args:
        asks_person: whether the person at the terminal is asked about calls.
        keyboard: whose letters are not shown but while the person is asked.
        tell: is told of each event instead of the screen.
        drop: says which are not shown.
    """
    last: Event | None = None
    tell = tell or shown_on.show
    with ExitStack() as stack:
        stack.callback(shown_on.close)
        stack.enter_context(told_by(shown_on))
        stack.enter_context(_resumed(shown_on, keyboard))
        person = ApprovalPrompt(shown_on, sys.stdin, run.decide, keyboard) if asks_person else None
        if person is not None:
            stack.callback(person.leave)
        async with aclosing(run.events()) as batches:
            async for batch in batches:
                for last in batch:
                    if person is not None:
                        person.hear(last)
                    if not drop(last):
                        tell(last)
    return last if isinstance(last, Done | Error) else None


@contextmanager
def _resumed(shown_on: Screen, keyboard: Keyboard | None) -> Iterator[None]:
    """Has a screen and a keyboard go on when this process does, which Ctrl-Z had stopped."""

    def resume(number: int, frame: object) -> None:  # at once: in a loop's turn it would come behind what draws
        if keyboard is not None:
            keyboard.resume()
        shown_on.resume()

    if not hasattr(signal, "SIGCONT"):
        yield
        return
    before = signal.signal(signal.SIGCONT, resume)
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, before)


def unseen(shown_on: Screen) -> AbstractContextManager[Keyboard | None]:
    """Where an answer is drawn live: the keyboard, whose letters are not shown as long as the block runs."""
    is_drawn = not isinstance(shown_on, Plain) and can_be_asked(sys.stdin, sys.stdout)
    return silent(sys.stdin) if is_drawn else nullcontext()


def person_sits(shown_on: Screen) -> bool:
    """Whether somebody can be asked: of a live screen where it is, of plain text beside it."""
    return can_be_asked(sys.stdin, sys.stderr if isinstance(shown_on, Plain) else sys.stdout)
