"""A terminal for tests: a real pseudo-terminal, and what a person would see on its screen."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from limits import WAIT_SECONDS

HANG_SECONDS = WAIT_SECONDS
"""How long nothing may be written while something is expected."""
_PIECE = re.compile(
    r"\x1b\[(?P<private>[?<>=]?)(?P<numbers>[0-9;]*)(?P<csi>[@-~])"
    r"|\x1b\](?P<osc>[^\x07\x1b]*)(?:\x07|\x1b\\)"
    r"|\x1b(?P<esc>[^\[\]])"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f-\x9f])"
    r"|(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
)


class Row:
    """One row of cells; `wraps` when its text goes on in the next. The second cell of a wide character is empty."""

    def __init__(self, cells: Sequence[str] = (), *, wraps: bool = False) -> None:
        self.cells = list(cells)
        self.wraps = wraps

    @property
    def text(self) -> str:
        return "".join(self.cells).rstrip()


class Screen:
    """What was written to a terminal, as it stands there: all rows, also those that were scrolled away.

    It breaks lines anew when its width changes, as most terminals do.
    """

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self.columns, self.lines = columns, lines
        self.rows = [Row()]
        self.y, self.x = 0, 0
        self.cursor_requests = 0  # requests for the cursor's place that wait for an answer
        self.os_commands: list[str] = []
        self.unknown_sequences: list[str] = []
        self._left = ""

    @property
    def top(self) -> int:
        """The first row that is in the window."""
        return max(0, len(self.rows) - self.lines)

    @property
    def text(self) -> str:
        """All rows, without what is blank at the end."""
        return "\n".join(row.text for row in self.rows).rstrip()

    @property
    def unwrapped(self) -> str:
        """The same, with lines in one that the terminal wrapped."""
        return "".join("".join(row.cells) if row.wraps else f"{row.text}\n" for row in self.rows).rstrip()

    @property
    def window(self) -> str:
        """The rows in the window."""
        return "\n".join(row.text for row in self.rows[self.top :]).rstrip()

    def feed(self, text: str) -> None:
        """Write."""
        text, self._left = self._left + text, ""
        place = 0
        while place < len(text):
            found = _PIECE.match(text, place)
            if found is None:
                self._left = text[place:]
                assert len(self._left) < 200_000, f"a sequence without an end: {self._left[:80]!r}"
                return
            place = found.end()
            self._take(found)

    def _take(self, found: re.Match[str]) -> None:
        if found["text"] is not None:
            for character in found["text"]:
                self._put(character)
        elif found["control"] is not None:
            self._control(found["control"])
        elif found["csi"] is not None:
            self._sequence(found["private"], found["numbers"], found["csi"])
        elif found["osc"] is not None:
            self.os_commands.append(found["osc"])
        else:
            self.unknown_sequences.append(f"ESC {found['esc']}")

    def _put(self, character: str) -> None:
        if unicodedata.combining(character) or character in "\u200d\ufe0f":
            if self.x:
                self.rows[self.y].cells[self.x - 1] += character
            return
        wide = unicodedata.east_asian_width(character) in "WF"
        if self.x + 1 + wide > self.columns:
            self.rows[self.y].wraps = True
            self._down()
            self.x = 0
        cells = self.rows[self.y].cells
        cells += [" "] * (self.x + 1 + wide - len(cells))
        if cells[self.x] == "":  # a half of a wide character is gone, and so is the other
            cells[self.x - 1] = " "
        if self.x + 1 + wide < len(cells) and cells[self.x + 1 + wide] == "":
            cells[self.x + 1 + wide] = " "
        cells[self.x : self.x + 1 + wide] = [character, *([""] if wide else [])]
        self.x += 1 + wide

    def _control(self, character: str) -> None:
        if character == "\r":
            self.x = 0
        elif character == "\n":
            self.rows[self.y].wraps = False
            self._down()
        elif character == "\b":
            self.x = max(0, self.x - 1)
        elif character == "\t":
            self.x = min(self.columns - 1, (self.x // 8 + 1) * 8)
        elif character != "\x07":
            self.unknown_sequences.append(repr(character))

    def _down(self) -> None:
        self.y += 1
        if self.y == len(self.rows):
            self.rows.append(Row())

    def _sequence(self, private: str, numbers: str, name: str) -> None:
        values = [int(number or 0) for number in numbers.split(";")]
        n = max(1, values[0])
        if private or name in "mhlq":
            return
        known: dict[str, Callable[[], None]] = {
            "A": lambda: self._move(self.y - n, self.x),
            "B": lambda: self._move(self.y + n, self.x),
            "C": lambda: self._move(self.y, self.x + n),
            "D": lambda: self._move(self.y, self.x - n),
            "G": lambda: self._move(self.y, n - 1),
            "H": lambda: self._move(self.top + n - 1, (values[1] if len(values) > 1 else 1) - 1),
            "J": lambda: self._erase_below(values[0]),
            "K": lambda: self._erase_line(values[0]),
            "n": self._count_request,
        }
        known.get(name, lambda: self.unknown_sequences.append(f"CSI {private}{numbers}{name}"))()

    def _count_request(self) -> None:
        self.cursor_requests += 1

    def _move(self, y: int, x: int) -> None:
        self.y = min(max(self.top, y), self.top + self.lines - 1)
        self.x = min(max(0, x), self.columns - 1)
        while self.y >= len(self.rows):
            self.rows.append(Row())

    def _erase_below(self, kind: int) -> None:
        if kind == 2:
            top = self.top
            del self.rows[top:]
            self.rows += [Row() for _ in range(self.y - top + 1)]
            return
        self._erase_line(0)
        del self.rows[self.y + 1 :]

    def _erase_line(self, kind: int) -> None:
        cells = self.rows[self.y].cells
        if kind == 0:
            del cells[self.x :]
            self.rows[self.y].wraps = False
        else:
            cells[: self.x + 1 if kind == 1 else len(cells)] = [" "] * (self.x + 1 if kind == 1 else len(cells))

    def resize(self, columns: int, lines: int) -> None:
        """Change the size; wrapped text is wrapped anew."""
        wholes: list[list[str]] = [[]]
        for y, row in enumerate(self.rows):
            if y == self.y:
                cursor = len(wholes) - 1, len(wholes[-1]) + self.x
            wholes[-1] += row.cells
            if not row.wraps:
                wholes.append([])
        self.columns, self.lines = columns, lines
        self.rows = []
        for number, cells in enumerate(wholes[:-1] or wholes):
            if number == cursor[0]:
                behind = min(cursor[1] // columns, max(0, (len(cells) - 1) // columns))
                self.y, self.x = len(self.rows) + behind, min(cursor[1] - behind * columns, columns)
            parts = [cells[n : n + columns] for n in range(0, max(1, len(cells)), columns)]
            self.rows += [Row(part, wraps=n + 1 < len(parts)) for n, part in enumerate(parts)]


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
        self.screen.resize(columns, lines)
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
        while self.screen.cursor_requests:  # answered, as terminals do
            self.screen.cursor_requests -= 1
            os.write(self.master, f"\x1b[{self.screen.y - self.screen.top + 1};{self.screen.x + 1}R".encode())
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
