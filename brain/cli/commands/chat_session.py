"""The state of `brain chat`: the open conversation, the next message and the running turn."""

import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from textwrap import fill
from typing import NamedTuple

from brain.cli.commands.input import build_request
from brain.cli.commands.output import has_person, open_screen, show_run
from brain.cli.commands.replay import events_of
from brain.cli.terminal.approval import Screen
from brain.cli.terminal.keyboard import Keyboard
from brain.cli.terminal.messages import explain_outcome
from brain.cli.terminal.sanitize import legible
from brain.errors import BadRequest, RunsElsewhere
from brain.events import AssistMode, Done, Error, Event, Notice, StrategyName
from brain.messages import Attachment, Exchange, to_answer_id
from brain.runtime.engine import Engine
from brain.runtime.run import Run
from brain.settings import LOCAL_USER
from brain.store import conversations, tasks
from brain.store.conversations import ConversationPage
from brain.task import Packet
from brain.text import one_line, shorten

BUSY = "This conversation is busy with another answer. Send your message again when it is complete."


@dataclass(slots=True)
class Draft:
    """The next message.

    Attributes:
        replaced: Exchange that the message replaces; its files are sent again.
    """

    text: str = ""
    files: list[Attachment] = field(default_factory=list)
    replaced: Exchange | None = None


class Report(NamedTuple):
    """A report on background tasks in a conversation."""

    conversation_id: str
    title: str
    exchange: Exchange


@dataclass
class ChatSession:
    """One conversation after the other.

    Attributes:
        assist: Whether Brain chooses specialists; None for the setting.
        specialists: The allowed specialists; None for all.
        keyboard: The keyboard of the terminal; None without a terminal.
        confirm: Asks the person a yes-or-no question; None without a terminal.
        reports: Reports on tasks that the person has not seen.
    """

    engine: Engine
    draft: Draft
    recalls: bool = True
    assist: AssistMode | None = None
    private: bool = False
    plain: bool = False
    thinks: bool = False
    model: str | None = None
    strategy: StrategyName | None = None
    critic: bool = False
    specialists: frozenset[str] | None = None
    conversation_id: str | None = None
    title: str = ""
    has_failed: bool = False
    keyboard: Keyboard | None = None
    confirm: Callable[[str], Awaitable[bool]] | None = None
    reports: list[Report] = field(default_factory=list)
    _cursor: int | None = None  # of the last packet about tasks that was read
    _run: Run | None = None
    _has_shown_demo_notice: bool = False

    async def send(self, message: str) -> None:
        """Send a message and show its turn. A rejected message returns to the prompt with its files."""
        screen, replaced = self._open_screen(), self.draft.replaced
        try:
            request = replace(
                build_request(self.engine.settings, message, self.draft.files, self.strategy, critic=self.critic),
                conversation_id=self.conversation_id,
                model=self.model,
                specialists=self.specialists,
                memory=self.recalls,
                assist=self.assist,
                private=self.private,
                replaces=replaced.question_id if replaced else None,
                reused_files={n: f"file {n}" for n in (replaced.files if replaced else ())},
                asks_person=has_person(screen),
            )
            run = await self.engine.begin(request, "terminal")
        except BadRequest as error:
            self.draft.text, self.has_failed = message, True
            raise (BadRequest(BUSY) if error.code == "busy" else error) from None
        self.print_blank()
        self.conversation_id, self.draft = run.conversation_id, Draft()

        def show(event: Event) -> None:
            if isinstance(event, Notice) and event.code == "stand_in":  # once in a session
                if self._has_shown_demo_notice:
                    return
                self._has_shown_demo_notice = True
            screen.show(event)

        self._run = run
        try:
            last = await show_run(run, screen, asks_person=request.asks_person, keyboard=self.keyboard, show=show)
        finally:
            self._run = None
        if isinstance(last, Error):
            self.has_failed = True
            self.print("Your message was saved. Type /retry to send it again or /edit to change it.")
        self.print_blank()
        found = await self.engine.store.read(conversations.read_page, LOCAL_USER, self.conversation_id, limit=1)
        if found is not None:
            self.title, self.private = found.conversation.title, found.conversation.private

    @property
    def model_name(self) -> str:
        """The name of the model that answers the next message."""
        try:
            return self.engine.find_model(self.model, private=self.private).name
        except BadRequest:
            return "no local model"

    def stop(self) -> None:
        """Stop the running answer."""
        if self._run is not None:
            self._run.stop()

    def print(self, text: str, *, indent: int = 0) -> None:
        """Print a message of Brain; wrapped lines are indented by `indent` columns."""
        if indent and not self.plain:
            width = shutil.get_terminal_size().columns - 1
            text = fill(text, width, subsequent_indent=" " * min(indent, max(0, width - 20)), break_on_hyphens=False)
        screen = self._open_screen()
        screen.show_message(legible(text), dim=False)
        screen.close()

    def print_blank(self) -> None:
        """Print a blank line, except in a script."""
        if not self.plain:
            print(flush=True)

    def show(self, exchange: Exchange) -> None:
        """Show a stored answer and how it ended."""
        screen, last = self._open_screen(), None
        for last in events_of(exchange):
            screen.show(last)
        if not isinstance(last, Done | Error):
            screen.show_message(explain_outcome(exchange.outcome))
        screen.close()

    async def read_reports(self) -> None:
        """Read which reports on tasks began since the last call; see `show_reports`."""
        store = self.engine.store
        if self._cursor is None:
            self._cursor = await store.read(tasks.newest_packet, LOCAL_USER)
        while packets := await store.read(tasks.read_channel, LOCAL_USER, self._cursor):
            for packet in packets:
                if packet.kind == "report":
                    try:
                        run = await self.engine.runs.find(packet.turn_id, LOCAL_USER)
                    except RunsElsewhere:  # a server writes it; the next call reads it
                        return
                    if run is not None:
                        await run.wait_ended()
                    if (report := await self._read_report(packet)) is not None:
                        self.reports.append(report)
                self._cursor = packet.key

    async def _read_report(self, packet: Packet) -> Report | None:
        """Return a report on tasks; None if its conversation was deleted, or a message has stopped it."""
        found = await self.engine.store.read(conversations.read_page, LOCAL_USER, packet.conversation_id, limit=5)
        for exchange in found.exchanges if found is not None else ():
            if found is not None and exchange.answer_id == to_answer_id(packet.turn_id) and exchange.answer:
                return Report(packet.conversation_id, found.conversation.title, exchange)
        return None

    def show_reports(self) -> None:
        """Show the reports that were read, also of other conversations."""
        shown, self.reports = self.reports, []
        for report in shown:
            if report.conversation_id == self.conversation_id:
                self.title = self.title or report.title
                self.print("Your background tasks:")
            else:
                self.print(
                    f"Your background tasks, in “{report.title}”. Type /open {report.conversation_id} to continue it."
                )
            self.print_blank()
            self.show(report.exchange)
            self.print_blank()

    def show_repeated(self, message: str) -> None:
        """Show a message that is sent again, cut to one line."""
        line = shorten(one_line(message), shutil.get_terminal_size().columns - len("> ") - 1)
        screen = self._open_screen()
        screen.show_message(f"> {line}")
        screen.close()

    def leave(self) -> None:
        """Leave the conversation; the next message starts a new one."""
        self.conversation_id, self.title, self.draft = None, "", Draft(files=self.draft.files)

    async def open(self, conversation_id: str) -> ConversationPage | None:
        """Continue a conversation with its model and strategy.

        Returns:
            Its latest exchanges, or None if it does not exist.
        """
        found = await self.engine.store.read(conversations.read_page, LOCAL_USER, conversation_id, limit=3)
        if found is not None:
            self.leave()
            self.conversation_id, self.title = conversation_id, found.conversation.title
            self.private = found.conversation.private
            if found.exchanges:
                last = found.exchanges[-1]
                self.model = last.model if last.model in self.engine.model_names() else self.model
                is_allowed = last.strategy in self.engine.settings.allowed_strategies
                self.strategy = last.strategy if is_allowed else self.strategy
        return found

    @property
    def required_id(self) -> str:
        """The ID of the conversation; an error if it has no message yet."""
        if self.conversation_id is None:
            raise BadRequest("This conversation is empty.")
        return self.conversation_id

    async def last_exchange(self, *, may_be_report: bool = False) -> Exchange:
        """Return the latest exchange; by default, one that answers a message and not a report on tasks."""
        found = await self.engine.store.read(conversations.read_page, LOCAL_USER, self.required_id, limit=20)
        answers = [] if found is None else [one for one in found.exchanges if may_be_report or one.source != "report"]
        if not answers:
            raise BadRequest("This conversation is empty.")
        return answers[-1]

    def _open_screen(self) -> Screen:
        return open_screen(sys.stdout, sys.stderr, plain=self.plain, thinks=self.thinks)
