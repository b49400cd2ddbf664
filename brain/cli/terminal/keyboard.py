"""A keyboard whose letters are not shown while an answer is written, as they would stand in it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TextIO


class Keyboard:
    """The keys of a terminal. What is typed unseen is kept by the terminal, key by key, for whoever reads next,
    also when Ctrl-C is among it."""

    def __init__(self, source: TextIO) -> None:
        self._fd = source.fileno()
        self._echoes = True

    def resume(self) -> None:
        """Has it as it was before this process was stopped; a shell has set it otherwise."""
        self.echo(on=self._echoes)

    def echo(self, *, on: bool) -> None:
        """Whether what is typed is shown; does nothing where the terminal is another process's, or of another kind."""
        self._echoes = on
        if find_spec("termios") is None:
            return
        from termios import ECHO, ICANON, NOFLSH, TCSANOW, tcgetattr, tcsetattr

        if os.tcgetpgrp(self._fd) != os.getpgrp():
            return
        modes = tcgetattr(self._fd)
        modes[3] = (modes[3] | ECHO | ICANON) & ~NOFLSH if on else modes[3] & ~(ECHO | ICANON) | NOFLSH
        tcsetattr(self._fd, TCSANOW, modes)


def discard_input(source: TextIO) -> None:
    """Forgets what was typed there and not read yet: it is no answer to a question that comes behind it."""
    if find_spec("termios") is not None:
        from termios import TCIFLUSH, tcflush

        tcflush(source, TCIFLUSH)


@contextmanager
def silent(source: TextIO) -> Iterator[Keyboard]:
    """The keyboard of a terminal, whose letters are not shown as long as the block runs."""
    keyboard = Keyboard(source)
    keyboard.echo(on=False)
    try:
        yield keyboard
    finally:
        keyboard.echo(on=True)
