"""The last lines of a terminal, which are written anew as long as they change. What is above them stays."""

from collections.abc import Sequence
from typing import TextIO

from brain.cli.terminal.drawing import Line


class Region:
    """The lines that change, at the end of what was written; the cursor stands behind the last of them.

    A terminal that becomes narrower breaks lines that are too long by itself, and so do we count them.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lines: list[Line] = []

    def write(self, settled: Sequence[Line], changing: Sequence[Line], columns: int) -> None:
        """Writes lines that stay above those that change, in one piece: nobody sees a half of it."""
        if not settled and list(changing) == self._lines:
            return
        up = sum(max(1, -(-line.cells // columns)) for line in self._lines) - 1
        back = f"\r\033[{up}A" if up > 0 else "\r"
        stays = "".join(f"{line.written}\033[K\n" for line in settled)
        self._lines = list(changing)  # before they are written: who is stopped while they are leaves them behind it
        self._out.write(f"{back}{stays}" + "\033[K\n".join(line.written for line in changing) + "\033[J")
        self._out.flush()

    def leave(self) -> None:
        """Leaves the lines where they are; the next ones are written where the cursor stands then."""
        self._lines = []
