"""The line in which a person types: with a history, several lines, completion, and a line below that tells."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import is_searching
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from brain.cli.terminal.keyboard import discard_input
from brain.cli.terminal.messages import is_yes
from brain.text import escape_invisible

HISTORY_BYTES = 1024 * 1024
"""Of the file with what was typed; twice as much is cut to so many, from its end."""
_STYLE = Style.from_dict({"bottom-toolbar": "noreverse ansibrightblack", "prompt": "bold"})

_LAST_WORD = re.compile(r"(?:\\.|[^\\ ])*$")
_ESCAPED = re.compile(r"\\(.)")
_PARTING = re.compile(r"[\s'\"\\]")

Words = Callable[[], Sequence[str]]
"""What may stand behind a command."""


class Prompt:
    """Asks for one message after the other.

    Args:
        history: the file with what was typed before; None to forget it.
        commands: what Tab completes behind a slash, and what behind each of these; None for a path.
        below: the line under the prompt.
    """

    def __init__(self, history: Path | None, commands: Mapping[str, Words | None], below: Callable[[], str]) -> None:
        self._session: PromptSession[str] = PromptSession(
            message=FormattedText([("class:prompt", "› ")]),
            prompt_continuation="  ",
            history=_history(history),
            multiline=True,
            completer=_Commands(commands),
            complete_while_typing=False,
            key_bindings=_keys(),
            bottom_toolbar=lambda: FormattedText([("", escape_invisible(below()))]),
            style=_STYLE,
            color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
            enable_open_in_editor=False,
            enable_suspend=True,
        )

    async def line(self, draft: str = "") -> str:
        """What is typed, once it is sent.

        Raises:
            EOFError: when there is nothing more to come.
            KeyboardInterrupt: with what was typed, when it was given up.
        """
        return await self._session.prompt_async(default=draft, handle_sigint=False)


async def confirm(source: TextIO, question: str) -> bool:
    """Whether somebody says yes to a question; what was typed before it is no answer."""
    session: PromptSession[str] = PromptSession(message=question, history=InMemoryHistory())
    discard_input(source)
    clear_typeahead(session.app.input)  # what the last prompt had read already
    try:
        answer = await session.prompt_async(handle_sigint=False)
    except (EOFError, KeyboardInterrupt):
        return False
    return is_yes(answer)


def _history(path: Path | None) -> History:
    if path is None:
        return InMemoryHistory()
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    path.chmod(0o600)
    if path.stat().st_size > 2 * HISTORY_BYTES:
        newest = path.read_bytes()[-HISTORY_BYTES:]
        path.write_bytes(newest[newest.find(b"\n# ") :])
    return FileHistory(path)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=~is_searching)
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=~is_searching)
    def another_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c", filter=~is_searching)
    def give_up(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt(event.current_buffer.text), style="class:aborting")

    return keys


class _Commands(Completer):
    """Completes commands, and what stands behind them."""

    def __init__(self, commands: Mapping[str, Words | None]) -> None:
        self._commands = commands
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What could be meant."""
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        name, space, rest = text[1:].partition(" ")
        if not space:
            yield from (
                Completion(f"{one} ", -len(name), display=f"/{one}") for one in self._commands if one.startswith(name)
            )
        elif (words := self._commands.get(name, tuple)) is None:
            yield from self._path(rest, complete_event)
        else:
            last = rest.rpartition(" ")[2]
            yield from (Completion(one, -len(last)) for one in words() if one.startswith(last))

    def _path(self, rest: str, complete_event: CompleteEvent) -> Iterable[Completion]:
        """The last of the paths, as it is typed for a shell: in quotes, or with what would part it escaped."""
        quoted = rest.startswith(("'", '"'))
        path = rest[1:] if quoted else _ESCAPED.sub(r"\1", _LAST_WORD.findall(rest)[0])
        for one in self._paths.get_completions(Document(path, len(path)), complete_event):
            text = one.text if quoted else _PARTING.sub(r"\\\g<0>", one.text)
            yield Completion(text, one.start_position, display=one.display)
