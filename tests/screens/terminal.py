"""The screenshots of the terminal: a pseudo-terminal, drawn cell by cell."""

import io
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from brain_servers import script
from page.server import request
from pyte.screens import Char
from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text
from terminal_emulator import Row, Screen, Terminal

from screens.data import DENTIST, fill_calendar

COLUMNS = 90
FRAME = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: {background}; }}
main {{ display: inline-block; padding: 14px 18px; background: {background}; color: {foreground}; }}
pre {{ min-width: 90ch; margin: 0; font: 14px/1.3 "DejaVu Sans Mono", monospace; }}
</style><main><pre>{code}</pre></main>"""


class ColouredScreen(Screen):
    """A screen whose cells have the styles of rich, as the colours of their text."""

    def __init__(self, columns: int, lines: int) -> None:
        self._decoder = AnsiDecoder()
        super().__init__(columns, lines)

    def select_graphic_rendition(self, *attributes: int) -> None:
        self._decoder.decode_line(f"\x1b[{';'.join(map(str, attributes))}m")
        self.cursor.attrs = Char(" ", fg=str(self._decoder.style))


def _as_html(screen: Screen) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    for row in screen.rows:
        console.print(_line(row), soft_wrap=True)
    return console.export_html(inline_styles=True, theme=SVG_EXPORT_THEME, code_format=FRAME)


def _line(row: Row) -> Text:
    line = Text()
    for style, cells in groupby(row, lambda cell: cell.fg):
        line.append("".join(cell.data for cell in cells), "" if style == "default" else style)
    return line


class Window(Terminal):
    """A terminal after a command was typed."""

    def __init__(self, folder: Path, *arguments: str, env: Mapping[str, str], lines: int = 28) -> None:
        super().__init__(*arguments, env=env, columns=COLUMNS, lines=lines, cwd=folder)
        self.screen = ColouredScreen(COLUMNS, lines)
        typed = " ".join(f'"{one}"' if " " in one else one for one in ("brain", *arguments))
        self.screen.feed(f"$ \x1b[1m{typed}\x1b[0m\r\n")


def _ask(folder: Path) -> str:
    """`brain ask`: a specialist, Markdown, sources."""
    passes = [[f"Let me look it up. {request('docs', query='run Brain behind a proxy')}"], [PROXY]]
    with Window(folder, "ask", "How do I run Brain behind nginx?", env=_env(folder, *passes)) as window:
        window.end()
        return _as_html(window.screen)


def _chat(folder: Path) -> str:
    """`brain chat`: an approval and the next prompt."""
    fill_calendar(folder / "data")
    passes = [
        [f"Let me look for it. {request('calendar', start=DENTIST, end=DENTIST)}"],
        [f"I found it. {request('calendar', action='delete', event_id='dentist')}"],
        ["I deleted the appointment. The rest of **Tuesday** is free."],
    ]
    with Window(folder, "chat", env=_env(folder, *passes)) as window:
        window.sees("›")
        window.types("I no longer need the dentist on Tuesday.\r")
        window.sees("[y/N]")
        window.types("y\r")
        window.sees("is free.")
        window.sees("demo.jsonl ·")
        return _as_html(window.screen)


PROXY = """\
## Behind nginx

Turn off buffering, and use HTTP/1.1:

```nginx
location / {
    proxy_pass http://127.0.0.1:8000;
    proxy_http_version 1.1;
    proxy_set_header Host $http_host;
    proxy_buffering off;
}
```

- Add the public host name to `BRAIN_HOSTS`; otherwise Brain rejects requests.
- A proxy timeout of a **minute** is enough, because Brain sends heartbeats.
"""


def _env(folder: Path, *passes: Sequence[str] | Mapping[str, Any]) -> dict[str, str]:
    return {
        "BRAIN_MODEL": f"script:{Path(script(folder, *passes, name='demo.jsonl')).name}",
        "BRAIN_STORE": f"sqlite:{folder / 'brain.db'}",
        "BRAIN_TIME_ZONE": "Europe/Berlin",
        "XDG_DATA_HOME": str(folder / "data"),
    }


TERMINALS: Mapping[str, Callable[[Path], str]] = {"terminal": _ask, "terminal-chat": _chat}
