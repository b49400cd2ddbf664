"""A terminal for tests: a real pseudo-terminal, and what a person would see on its screen."""

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte
from limits import WAIT_SECONDS
from pyte.screens import Char

HANG_SECONDS = WAIT_SECONDS
"""How long nothing may be written while something is expected."""


class Row(list[Char]):
    """The cells of a row, down to the last character."""

    wraps = False
    """Whether its text continues in the next row."""


class Screen(pyte.Screen):
    """What was written to a terminal, as it stands there: all rows, also those that were scrolled away.

    Attributes:
        scrolled: the rows above the window.
        answers: what the terminal reports to the program, such as the cursor's place.
        unknown: sequences that it does not know.
    """

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self.scrolled: list[Row] = []
        self.answers: list[str] = []
        self.unknown: list[object] = []
        self._draws = False
        super().__init__(columns, lines)
        self._stream = pyte.Stream(self)

    def feed(self, text: str) -> None:
        """Write."""
        self._stream.feed(text)

    @property
    def rows(self) -> list[Row]:
        """All rows down to the last one with text."""
        rows = [*self.scrolled, *map(self._row, range(self.lines))]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    @property
    def text(self) -> str:
        """All rows."""
        return "\n".join(_text(row).rstrip() for row in self.rows)

    @property
    def window(self) -> str:
        """The rows in the window."""
        return "\n".join(_text(row).rstrip() for row in self.rows[len(self.scrolled) :])

    @property
    def unwrapped(self) -> str:
        """All rows, with lines in one that the terminal wrapped."""
        return "".join(_text(row) + "\n" * (not row.wraps) for row in self.rows)

    def reflow(self, columns: int, lines: int) -> None:
        """Change the size, and break the lines anew, as most terminals do."""
        whole: list[list[Char]] = [[]]
        cursor = 0, 0
        for y, row in enumerate([*self.scrolled, *map(self._row, range(self.lines))], -len(self.scrolled)):
            if y == self.cursor.y:
                cursor = len(whole) - 1, len(whole[-1]) + self.cursor.x
            whole[-1] += row
            if not row.wraps:
                whole.append([])
        rows: list[Row] = []
        for n, cells in enumerate(whole):
            if n == cursor[0]:
                below = min(cursor[1], max(0, len(cells) - 1)) // columns
                y, x = len(rows) + below, cursor[1] - below * columns
            for start in range(0, max(1, len(cells)), columns):
                rows.append(Row(cells[start : start + columns]))
                rows[-1].wraps = start + columns < len(cells)
        while not rows[-1] and len(rows) > y + 1:
            rows.pop()
        self.resize(lines, columns)
        self.buffer.clear()
        self.scrolled, shown = rows[:-lines], rows[-lines:]
        for row_y, row in enumerate(shown):
            self.buffer[row_y].update(enumerate(row))
            self._mark(row_y, row.wraps)
        self.cursor.y, self.cursor.x = max(0, y - len(self.scrolled)), min(x, columns)

    def _row(self, y: int) -> Row:
        row = Row(self.buffer[y][x] for x in range(self.columns))
        row.wraps = getattr(self.buffer[y], "wraps", False)
        while row and row[-1].data == " " and not row.wraps:
            row.pop()
        return row

    def _mark(self, y: int, wraps: bool) -> None:
        setattr(self.buffer[y], "wraps", wraps)  # noqa: B010 - pyte moves this object with its row

    # What pyte calls

    def draw(self, data: str) -> None:
        self._draws = True
        for character in data:  # pyte drops what follows a character without a width
            super().draw(character)
        self._draws = False

    def linefeed(self) -> None:
        self._mark(self.cursor.y, self._draws)
        super().linefeed()

    def index(self) -> None:
        if self.cursor.y == self.lines - 1:
            self.scrolled.append(self._row(0))
        super().index()

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        super().erase_in_line(how, private)
        if how != 1:
            self._mark(self.cursor.y, wraps=False)

    def erase_in_display(self, how: int = 0, *arguments: object, **options: object) -> None:
        super().erase_in_display(how, *arguments, **options)
        for y in range(self.cursor.y + 1 if how == 0 else 0, self.lines if how != 1 else 0):
            self._mark(y, wraps=False)

    def write_process_input(self, data: str) -> None:
        self.answers.append(data)

    def debug(self, *arguments: object, **options: object) -> None:
        self.unknown.append((arguments, options))


def _text(row: Row) -> str:
    return "".join(cell.data for cell in row)


class Terminal:
    """`python -m brain` in a terminal of its own, whose screen is seen and whose keys are pressed."""

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        columns: int = 80,
        lines: int = 24,
        cwd: Path | None = None,
        stdout: int | None = None,
    ) -> None:
        self.master, slave = os.openpty()
        self.screen = Screen(columns, lines)
        set_size(self.master, columns, lines)
        own = ("BRAIN_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PORT", "TTY_")
        clean = {key: value for key, value in os.environ.items() if not key.startswith(own)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "brain", *arguments],
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            env={**clean, "TERM": "xterm-256color", **(env or {})},
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(slave)
        self.raw = ""
        self._bytes = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self.master)

    def sees(self, text: str) -> str:
        """The whole screen, once this is on it."""
        return self.until(lambda screen: text in screen.text, f"{text!r}")

    def until(self, found: Callable[[Screen], bool], what: str = "it") -> str:
        """The whole screen, once it is as expected."""
        while not found(self.screen):
            assert self._read(), f"never saw {what}:\n{self.screen.text}\n{self.raw[-2000:]!r}"
        return self.screen.text

    def types(self, text: str) -> None:
        """Press keys."""
        os.write(self.master, text.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the window."""
        self.screen.reflow(columns, lines)
        set_size(self.master, columns, lines)

    def interrupt(self) -> None:
        """Press Ctrl-C, whatever the terminal makes of it."""
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """The exit code, and the whole screen at the end."""
        while self._read():
            pass
        return self.process.wait(HANG_SECONDS), self.screen.text

    def echoes(self) -> bool:
        """Whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self.master)[3] & termios.ECHO)

    def _read(self) -> bool:
        data = read(self.master)
        self._bytes += data
        try:
            text, self._bytes = self._bytes.decode(), b""
        except UnicodeDecodeError as error:
            text, self._bytes = self._bytes[: error.start].decode(), self._bytes[error.start :]
        self.raw += text
        self.screen.feed(text)
        while self.screen.answers:
            os.write(self.master, self.screen.answers.pop(0).encode())
        return bool(data)


def read(master: int, seconds: float = HANG_SECONDS) -> bytes:
    """What is written to a terminal, once something is; nothing when nobody writes for so long, or can any more."""
    ready, _, _ = select.select([master], [], [], seconds)
    try:
        return os.read(master, 65536) if ready else b""
    except OSError:  # the other side is closed
        return b""


def set_size(fd: int, columns: int, lines: int) -> None:
    """Set the size of a terminal."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def _take_terminal() -> None:
    """Make the terminal the one that controls the process, so that its Ctrl-C reaches it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
