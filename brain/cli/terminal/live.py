"""The live display of a turn: finished text is printed once, the open block and running calls are redrawn."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich.cells import cell_len
from rich.control import Control
from rich.segment import ControlType, Segment, SegmentLines
from rich.text import Text

from brain.cli.terminal.messages import (
    REWOUND,
    HeldResult,
    describe_task,
    explain_call,
    explain_error,
    explain_outcome,
    format_duration,
    text_to_repeat,
)
from brain.cli.terminal.sanitize import legible
from brain.cli.terminal.streamed_markdown import (
    Line,
    StreamedMarkdown,
    line_width,
    open_console,
    render_line,
    render_lines,
)
from brain.events import (
    ApprovalRequired,
    Citation,
    Done,
    Error,
    Event,
    Notice,
    Rewind,
    Round,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    TaskChange,
    Thinking,
    Token,
    TurnStart,
)
from brain.protocols.encoding import describe_round
from brain.text import escape_invisible

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.1
BAR_CELLS = 20
MIN_REDRAW_SECONDS = 0.04
"""Events within this time share a redraw."""
REDRAW_SHARE = 4
"""Pause after a redraw, as a multiple of its duration."""


@dataclass(slots=True)
class _RunningCall:
    """A call and its progress; `start` is on the monotonic clock, in seconds."""

    name: str
    params: Mapping[str, Any]
    start: float
    text: str = ""
    fraction: float | None = None

    def render(self, frame: str, width: int) -> Iterator[Text]:
        """One line with the call and its duration, and one with its progress."""
        seconds = f" {time.monotonic() - self.start:.1f} s"
        line = Text.assemble((f"{frame} ", "cyan"), (legible(self.name), "bold"), (_format_params(self.params), "dim"))
        line.truncate(width - cell_len(seconds), overflow="ellipsis")
        yield line.append(seconds, "dim")
        if self.text or self.fraction is not None:
            bar = ""
            if self.fraction is not None:
                share = max(0.0, min(1.0, self.fraction))
                length = round(BAR_CELLS * share)
                bar = f"{'━' * length}{'╌' * (BAR_CELLS - length)} {share:.0%} "
            yield Text(f"  {bar}{legible(self.text)}".replace("\n", " "), "dim")


class Live:
    """Shows a turn; needs a running event loop.

    It draws with `Console.print`. `rich.live.Live` moves up by the number of printed lines, which is wrong after a
    narrower window has wrapped them. It also leaves the cursor hidden in the shell after Ctrl-Z.
    """

    def __init__(self, out: TextIO, *, thinks: bool = False) -> None:
        self._out = out
        self._console = open_console(out)
        self._thinks = thinks
        self._answer = StreamedMarkdown(self._console)
        self._reasoning = StreamedMarkdown(self._console, style="dim")
        self._latest_thought = ""
        self._thinking_since: float | None = None
        self._waiting_since: float | None = None
        self._waiting_for = ""
        self._shown: list[str] = []  # the text of the answer so far
        self._held = HeldResult()
        self._calls: dict[str, _RunningCall] = {}
        self._citations: dict[tuple[str, str | None], Citation] = {}
        self._finished: list[Line] = []  # to be printed with the next redraw
        self._last_kind = ""  # of the last finished lines
        self._open: list[Line] = []  # on the screen, above the cursor
        self._has_question = False
        self._timer: asyncio.TimerHandle | None = None
        self._next_redraw = 0.0

    def show(self, event: Event) -> None:
        """Show one event, if it matters to a person."""
        if result := self._held.take(event):
            self._end_texts()
            markdown = StreamedMarkdown(self._console, style="dim")
            markdown.add(result)
            self._finish("result", markdown.end())
        if not isinstance(event, Token | Thinking | SpecialistProgress):
            self._end_texts()
        match event:
            case Token(text=text):
                self._waiting_since = None
                self._end_reasoning()
                self._shown.append(text)
                self._answer.add(text)
            case Rewind(text=text):
                self._waiting_since = None
                self._calls.clear()
                shown, self._shown = "".join(self._shown), [text]
                self.show_message(REWOUND if shown else "")
                self._answer.add(text_to_repeat(shown, text))
            case Thinking(text=text):
                self._waiting_since = None
                self._finish("answer", self._answer.end())
                if self._thinking_since is None:
                    self._thinking_since = time.monotonic()
                if self._thinks:
                    self._reasoning.add(text)
                else:
                    self._latest_thought = (self._latest_thought + text)[-1000:]
            case SpecialistProgress(call_id=call_id):
                if call := self._calls.get(call_id):
                    call.text, call.fraction = event.text, event.fraction
            case TurnStart():
                self._wait()
            case Round():
                self.show_message(describe_round(event))
                self._wait()
            case SpecialistStart(call_id=call_id, name=name, params=params):
                self._waiting_since = None
                self._calls[call_id] = _RunningCall(name, params, time.monotonic())
            case SpecialistResult(call_id=call_id):
                self._calls.pop(call_id, None)
                facts = f" {format_duration(event)}{_format_params(event.params)}"
                line = Text.assemble(("✓ ", "green"), (legible(event.name), "bold"), (facts, "dim"))
                self._finish("call", [render_line(self._console, line)])
                self._citations |= {(one.title, one.url): one for one in event.citations}
                self._wait()
            case SpecialistError(call_id=call_id):
                self._calls.pop(call_id, None)
                label, ms = (legible(event.name), "bold"), (f" {event.ms} ms", "dim")
                failure = Text.assemble(
                    ("✗ ", "red"), label, ms, f" {legible(explain_call(event.code, event.reason))}", overflow="fold"
                )
                self._finish("call", render_lines(self._console, failure))
                self._wait()
            case TaskChange():
                self.show_message(describe_task(event))
            case Notice(code="prompt_progress", text=text):
                self._waiting_for = text
            case Notice(code="repetition"):
                pass  # the stop reason says the same
            case Notice(text=text):
                self.show_message(text)
            case Error():
                self._waiting_since = None
                self._shown.clear()
                error = Text(legible(explain_error(event)), "red")
                self._finish("error", render_lines(self._console, error))
            case ApprovalRequired():
                self._waiting_since = None
            case Done(stop_reason=reason):
                self._waiting_since = None
                self._shown.clear()
                if self._citations:
                    self._finish("sources", [render_line(self._console, Text("Sources", "bold"))])
                for number, citation in enumerate(self._citations.values(), 1):
                    url = f" · {citation.url}" if citation.url else ""
                    source = Text(legible(f"{number}. {citation.title}{url}"), "dim", overflow="fold")
                    self._finish("sources", render_lines(self._console, source))
                self._citations.clear()
                self.show_message(explain_outcome(reason))
        self._redraw_soon()

    def show_message(self, text: str, *, dim: bool = True) -> None:
        """Show a message of Brain on separate lines."""
        self._end_texts()
        if text:
            style = "dim" if dim else "none"
            self._finish("message", render_lines(self._console, Text(legible(text), style, overflow="fold")))
        self._redraw_soon()

    def ask(self, text: str, question: str) -> None:
        """Show a text and a question, which stays the last line until `end_question`."""
        self._end_texts()
        styled = Text(text, overflow="fold")
        styled.stylize("bold", 0, text.find("\n"))
        styled.stylize("yellow", 0, 1)
        self._finish("question", render_lines(self._console, styled))
        self._draw([])
        self._out.write(question)
        self._out.flush()
        self._has_question = True

    def end_question(self, *, by_person: bool) -> None:
        """Continue after a question that a person answered or that expired."""
        if not by_person:
            self._out.write("\n")
        self._has_question = False
        self._redraw_soon()

    def resume(self) -> None:
        """Continue below the output of other programs after this process was suspended."""
        self._open = []

    def close(self) -> None:
        """Print what is left."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting_since, self._has_question = None, False
        self._end_texts()
        self._calls.clear()
        self._draw([])

    def _wait(self) -> None:
        if not self._calls:
            self._waiting_since, self._waiting_for = time.monotonic(), ""

    def _end_texts(self) -> None:
        self._finish("answer", self._answer.end())
        self._end_reasoning()

    def _end_reasoning(self) -> None:
        if self._thinking_since is None:
            return
        seconds = time.monotonic() - self._thinking_since
        self._finish("thought", self._reasoning.end())
        if not self._thinks:
            self._finish("thought", [render_line(self._console, Text(f"(thought for {seconds:.1f} s)", "dim"))])
        self._thinking_since, self._latest_thought = None, ""

    def _finish(self, kind: str, lines: Sequence[Line]) -> None:
        """Print finished lines with the next redraw; a blank line separates two kinds."""
        if not lines:
            return
        if self._last_kind not in ("", kind):
            self._finished.append([])
        self._last_kind = kind
        self._finished += lines

    def _redraw_soon(self) -> None:
        if self._timer is None and not self._has_question:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._next_redraw), self._redraw)

    def _redraw(self) -> None:
        """Draw; schedule the next redraw while an animation runs."""
        loop = asyncio.get_running_loop()
        self._timer = None
        if self._has_question:
            return
        start = loop.time()
        self._draw(self._render_open())
        duration = loop.time() - start
        self._next_redraw = start + duration + max(MIN_REDRAW_SECONDS, REDRAW_SHARE * duration)
        if self._calls or self._waiting_since is not None or self._thinking_since is not None:
            self._timer = loop.call_at(max(self._next_redraw, start + FRAME_SECONDS), self._redraw)

    def _draw(self, lines: list[Line]) -> None:
        """Replace the open lines, below the finished ones, in one write."""
        finished, self._finished = self._finished, []
        if not finished and lines == self._open:
            return
        columns = self._console.width  # a narrower terminal has wrapped the old lines
        rows = sum(max(1, -(-Segment.get_line_length(line) // columns)) for line in self._open)
        erase = (ControlType.ERASE_IN_LINE, 0)
        self._open = lines  # before the write: a process stopped in it continues below these
        self._console.print(
            Control(ControlType.CARRIAGE_RETURN, erase, *[(ControlType.CURSOR_UP, 1), erase] * (rows - 1)),
            SegmentLines([*finished, *lines[:-1]], new_lines=True),
            SegmentLines(lines[-1:]),
            end="",
            soft_wrap=True,
        )

    def _render_open(self) -> list[Line]:
        """Return the lines that may still change, up to the height of the window."""
        height = self._console.height - 1
        activity = [*self._render_activity()][: max(1, height // 2)]
        text, kind = (self._answer, "answer") if self._thinking_since is None else (self._reasoning, "thought")
        finished, written = text.take_lines(height - len(activity) - 2)
        self._finish(kind, finished)
        before: list[Line] = [[]] if self._last_kind not in ("", kind) and written else []
        between: list[Line] = [[]] if activity and (written or self._last_kind not in ("", "call")) else []
        return [*before, *written, *between, *activity][-max(1, height) :]

    def _render_activity(self) -> Iterator[Line]:
        frame = FRAMES[int(time.monotonic() / FRAME_SECONDS) % len(FRAMES)]
        width = line_width(self._console)
        for call in self._calls.values():
            for text in call.render(frame, width):
                yield render_line(self._console, text)
        if self._thinking_since is not None and not self._thinks:
            thought = " ".join(legible(self._latest_thought).split())
            yield render_line(self._console, Text(f"{frame} thinking … {thought[-width + 16 :]}", "dim"))
        elif self._waiting_since is not None:
            seconds = time.monotonic() - self._waiting_since
            duration = f" {seconds:.0f} s" if seconds >= 1 else ""
            yield render_line(self._console, Text(f"{frame}{duration} {self._waiting_for}".rstrip(), "dim"))


def _format_params(params: Mapping[str, Any]) -> str:
    return f" {escape_invisible(json.dumps(params, ensure_ascii=False))}" if params else ""
