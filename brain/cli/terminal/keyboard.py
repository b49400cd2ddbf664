"""The echo of a keyboard, which is off while an answer is written: typed letters would appear in it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TextIO


class Keyboard:
    """The keys of a terminal. Without echo, the terminal still buffers what is typed for the next reader, also across
    Ctrl-C."""

    def __init__(self, source: TextIO) -> None:
        self._fd = source.fileno()
        self._echoes = True

    def resume(self) -> None:
        """Restore the mode from before this process was stopped; a shell has changed it."""
        self.echo(on=self._echoes)

    def echo(self, *, on: bool) -> None:
        """Turn the echo on or off; does nothing in the background and without termios."""
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
    """Discard typed input that was not read: it does not answer a later question."""
    if find_spec("termios") is not None:
        from termios import TCIFLUSH, tcflush

        tcflush(source, TCIFLUSH)


@contextmanager
def silent(source: TextIO) -> Iterator[Keyboard]:
    """Turn off the echo of a keyboard for the duration of the block."""
    keyboard = Keyboard(source)
    keyboard.echo(on=False)
    try:
        yield keyboard
    finally:
        keyboard.echo(on=True)
