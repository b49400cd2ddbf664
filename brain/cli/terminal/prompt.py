"""The prompt of `brain chat`: several lines, history, completion, and a status line below."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.application.current import set_app
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
"""Size to which a history file of twice this size is cut, in bytes."""
_STYLE = Style.from_dict({"bottom-toolbar": "noreverse ansibrightblack", "prompt": "bold"})
_LAST_WORD = re.compile(r"(?:\\.|[^\\ ])*$")
_ESCAPED = re.compile(r"\\(.)")
_TO_ESCAPE = re.compile(r"[\s'\"\\]")

Words = Callable[[], Sequence[str]]
"""Returns the words that may follow a command."""


class Prompt:
    """Reads messages.

    Args:
        history: File with earlier input; None to store no history.
        commands: The slash commands, and the words that may follow each; None for a path.
        status: Returns the line below the prompt.
        on_typing: Called when the text in the prompt changes.
    """

    def __init__(
        self,
        history: Path | None,
        commands: Mapping[str, Words | None],
        status: Callable[[], str],
        on_typing: Callable[[], None],
    ) -> None:
        self._session: PromptSession[str] = PromptSession(
            message=FormattedText([("class:prompt", "› ")]),
            prompt_continuation="  ",
            history=_open_history(history),
            multiline=True,
            completer=_CommandCompleter(commands),
            complete_while_typing=False,
            key_bindings=_make_key_bindings(),
            bottom_toolbar=lambda: FormattedText([("", escape_invisible(status()))]),
            style=_STYLE,
            color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
            enable_open_in_editor=False,
            enable_suspend=True,
        )
        self._session.default_buffer.on_text_changed += lambda buffer: on_typing()

    async def read(self, draft: str = "") -> str:
        """Read a message; `draft` is the text in the prompt.

        Raises:
            EOFError: The input ended.
            KeyboardInterrupt: Ctrl-C; its text is the text in the prompt.
        """
        return await self._session.prompt_async(default=draft, handle_sigint=False)

    async def print_above(self, show: Callable[[], None]) -> None:
        """Let `show` print above the prompt, if a message is being read."""
        app = self._session.app
        if app.is_running and not app.is_done:
            with set_app(app):
                await run_in_terminal(show)


async def confirm(source: TextIO, question: str) -> bool:
    """Ask a yes-or-no question; ignore keys pressed before it."""
    session: PromptSession[str] = PromptSession(message=question, history=InMemoryHistory())
    discard_input(source)
    clear_typeahead(session.app.input)  # which the last prompt has read
    try:
        return is_yes(await session.prompt_async(handle_sigint=False))
    except (EOFError, KeyboardInterrupt):
        return False


def _open_history(path: Path | None) -> History:
    if path is None:
        return InMemoryHistory()
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    path.chmod(0o600)
    if path.stat().st_size > 2 * HISTORY_BYTES:
        newest = path.read_bytes()[-HISTORY_BYTES:]
        path.write_bytes(newest[newest.find(b"\n# ") :])
    return FileHistory(path)


def _make_key_bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter", filter=~is_searching)
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @bindings.add("escape", "enter", filter=~is_searching)
    def insert_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("c-c", filter=~is_searching)
    def interrupt(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt(event.current_buffer.text), style="class:aborting")

    return bindings


class _CommandCompleter(Completer):
    """Completes slash commands and their arguments."""

    def __init__(self, commands: Mapping[str, Words | None]) -> None:
        self._commands = commands
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Complete the word before the cursor."""
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        name, space, rest = text[1:].partition(" ")
        if not space:
            for command in self._commands:
                if command.startswith(name):
                    yield Completion(f"{command} ", -len(name), display=f"/{command}")
        elif (words := self._commands.get(name, tuple)) is not None:
            last = rest.rpartition(" ")[2]
            yield from (Completion(word, -len(last)) for word in words() if word.startswith(last))
        else:  # the last of several paths, in quotes or escaped as for a shell
            is_quoted = rest.startswith(("'", '"'))
            path = rest[1:] if is_quoted else _ESCAPED.sub(r"\1", _LAST_WORD.findall(rest)[0])
            for found in self._paths.get_completions(Document(path, len(path)), complete_event):
                completion = found.text if is_quoted else _TO_ESCAPE.sub(r"\\\g<0>", found.text)
                yield Completion(completion, found.start_position, display=found.display)
