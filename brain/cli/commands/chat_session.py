"""A conversation at a terminal: what is said next and with what, and the turns that come of it."""

import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from textwrap import fill

from brain.cli.commands.input import build_request
from brain.cli.commands.output import has_person, open_screen, show_run
from brain.cli.commands.replay import events_of
from brain.cli.terminal.approval import Screen
from brain.cli.terminal.keyboard import Keyboard
from brain.cli.terminal.messages import OUTCOMES
from brain.cli.terminal.sanitize import legible
from brain.errors import BadRequest
from brain.events import Done, Error, Event, Notice
from brain.messages import Attachment, ConversationPage, Exchange, FileReference
from brain.runtime.engine import Engine
from brain.runtime.run import Run
from brain.settings import LOCAL_USER
from brain.turn_request import TurnRequest

BUSY = "An answer is being written in this conversation already; send the message again when it has ended."


@dataclass(slots=True)
class Replacement:
    """What takes the place of the last question: its id, and those of its files that go along."""

    question_id: str
    files: tuple[int, ...]


@dataclass(slots=True)
class Draft:
    """What is said next.

    Attributes:
        text: what stands in the prompt.
        files: that go along.
        replacing: what it replaces.
    """

    text: str = ""
    files: list[Attachment] = field(default_factory=list)
    replacing: Replacement | None = None


@dataclass(slots=True)
class Choices:
    """How it is answered, in this session.

    Attributes:
        model: None for the default.
        memory: whether facts and memories are recalled.
        specialists: the only ones that may be called; None for all.
    """

    model: str | None = None
    memory: bool = True
    specialists: frozenset[str] | None = None


@dataclass
class ChatSession:
    """One conversation after the other.

    Attributes:
        plain: whether answers are bare text.
        thinks: whether a model's reasoning is shown.
        conversation_id: None for one that is to begin.
        title: as far as it is known.
        has_failed: whether anything could not be done.
        keyboard: of the terminal, if it is one.
        confirm: asks the person there a question, if there is one: whether the answer was a yes.
    """

    engine: Engine
    choices: Choices
    draft: Draft
    plain: bool = False
    thinks: bool = False
    conversation_id: str | None = None
    title: str = ""
    has_failed: bool = False
    keyboard: Keyboard | None = None
    confirm: Callable[[str], Awaitable[bool]] | None = None
    _run: Run | None = None
    _has_shown_stand_in: bool = False

    async def send(self, message: str) -> None:
        """Sends a message, and shows its turn. What could not be sent is in the prompt again, with its files.

        Raises:
            BadRequest: why it could not.
        """
        screen = self._screen()
        try:
            request = replace(self._request(message), asks_person=has_person(screen))
            run = await self.engine.begin(request, "terminal")
        except BadRequest as error:
            self.draft.text, self.has_failed = message, True
            raise (BadRequest(BUSY) if error.code == "busy" else error) from None
        self._run = run
        self.print_blank()
        self.conversation_id, self.draft = run.conversation_id, Draft()
        try:
            ended = await show_run(
                run,
                screen,
                asks_person=request.asks_person,
                keyboard=self.keyboard,
                show=lambda event: None if self._is_repeated(event) else screen.show(event),
            )
        finally:
            self._run = None
        if isinstance(ended, Error):
            self.has_failed = True
            self.print("Your message is kept: /retry asks it again, /edit changes it.")
        self.print_blank()
        await self.load_title()

    def stop(self) -> None:
        """Ends the answer that is being written."""
        if self._run is not None:
            self._run.stop()

    def print(self, text: str, *, indent: int = 0) -> None:
        """Says something that is no answer; in a list, lines that go on are set in so far."""
        if indent and not self.plain:
            width = shutil.get_terminal_size().columns - 1
            text = fill(text, width, subsequent_indent=" " * min(indent, max(0, width - 20)), break_on_hyphens=False)
        screen = self._screen()
        screen.say(legible(text), dim=False)
        screen.close()

    def print_blank(self) -> None:
        """Leaves a line blank, where a person sits."""
        if not self.plain:
            print(flush=True)

    def show(self, exchange: Exchange) -> None:
        """Shows an answer that was given before, and why it ends where it does."""
        screen, last = self._screen(), None
        for last in events_of(exchange):
            screen.show(last)
        if not isinstance(last, Done | Error):
            screen.say(OUTCOMES.get(exchange.outcome, ""))
        screen.close()

    def show_repeated(self, message: str) -> None:
        """Shows a message that is asked again, as far as it has room in a line."""
        line, room = legible(" ".join(message.split())), shutil.get_terminal_size().columns - len("> ") - 1
        screen = self._screen()
        screen.say(f"> {line if len(line) <= room else f'{line[: room - 1]}…'}")
        screen.close()

    def begin(self) -> None:
        """Leaves the conversation; the next message begins another."""
        self.conversation_id, self.title, self.draft = None, "", Draft(files=self.draft.files)

    async def open(self, conversation_id: str) -> ConversationPage | None:
        """Goes on with a conversation, if there is one of this id, and with its model; its newest exchanges."""
        found = await self.engine.store.conversation(LOCAL_USER, conversation_id, limit=3)
        if found is not None:
            self.begin()
            self.conversation_id, self.title = conversation_id, found.conversation.title
            self._select_model(found.exchanges[-1].model if found.exchanges else "")
        return found

    @property
    def required_id(self) -> str:
        """The conversation's id.

        Raises:
            BadRequest: when nothing was said in it yet.
        """
        if self.conversation_id is None:
            raise BadRequest("Nothing was said yet.")
        return self.conversation_id

    async def last(self) -> Exchange:
        """The newest exchange.

        Raises:
            BadRequest: when nothing was said.
        """
        found = await self.engine.store.conversation(LOCAL_USER, self.required_id, limit=1)
        if found is None or not found.exchanges:
            raise BadRequest("Nothing was said yet.")
        return found.exchanges[-1]

    async def load_title(self) -> None:
        """Reads the title that the conversation has now."""
        if self.conversation_id is not None:
            found = await self.engine.store.conversation(LOCAL_USER, self.conversation_id, limit=1)
            self.title = found.conversation.title if found is not None else ""

    def replace_last(self, exchange: Exchange) -> None:
        """Has the next message take the place of this one, with its files."""
        self.draft.replacing = Replacement(exchange.question_id, tuple(exchange.files))

    def _select_model(self, model: str) -> None:
        """Has the model answer that answered before, if it is still on offer."""
        if model in self.engine.model_names():
            self.choices.model = model

    def _screen(self) -> Screen:
        return open_screen(sys.stdout, sys.stderr, plain=self.plain, thinks=self.thinks)

    def _request(self, message: str) -> TurnRequest:
        replacing = self.draft.replacing
        along = replacing.files if replacing is not None else ()
        return replace(
            build_request(self.engine.settings, message, self.draft.files),
            conversation_id=self.conversation_id,
            model=self.choices.model,
            specialists=self.choices.specialists,
            memory=self.choices.memory,
            replaces=replacing.question_id if replacing is not None else None,
            file_references=tuple(FileReference(number, f"file {number}") for number in along),
        )

    def _is_repeated(self, event: Event) -> bool:
        """Whether this is the notice about the stand-in model, and it was shown before."""
        if not isinstance(event, Notice) or event.code != "stand_in":
            return False
        was_shown, self._has_shown_stand_in = self._has_shown_stand_in, True
        return was_shown
