"""Switch the echo of the keyboard off while an answer is written, because typed letters would appear in it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TextIO


class Keyboard:
    """The keyboard of a terminal. Without echo, typed text stays in the buffer, also after Ctrl-C."""

    def __init__(self, source: TextIO) -> None:
        self._fd = source.fileno()
        self._echoes = True

    def resume(self) -> None:
        """Restore the mode after this process was suspended; the shell has changed it."""
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
    """Discard typed input; it does not answer a later question."""
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
