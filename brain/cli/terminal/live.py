"""A turn as it happens, in a terminal that can move its cursor: Markdown, and calls with their time."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.text import Text

from brain.cli.terminal.answer import Answer
from brain.cli.terminal.calls import FRAMES, Running, failed, succeeded
from brain.cli.terminal.drawing import BLANK, Drawing, Line
from brain.cli.terminal.messages import ENDINGS
from brain.cli.terminal.region import Region
from brain.cli.terminal.sanitize import legible
from brain.events import (
    ApprovalRequired,
    Citation,
    Done,
    Error,
    Event,
    Notice,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    Thinking,
    Token,
    TurnStart,
)

FRAME_SECONDS = 0.1
DRAWN_SECONDS = 0.04
"""What comes within this time is drawn together."""
SHARE = 4
"""Drawing may take one part in so many of the time, plus one."""


class Live:
    """Shows a turn; works in a running event loop.

    Args:
        thinks: whether the model's reasoning is shown whole, and not only that it thinks.
    """

    def __init__(self, out: TextIO, *, thinks: bool = False) -> None:
        self._drawing = Drawing(out)
        self._region = Region(out)
        self._thinks = thinks
        self._answer = Answer(self._drawing)
        self._thoughts = Answer(self._drawing, style="dim")
        self._thought = ""  # the newest of it
        self._thinking_since: float | None = None
        self._waiting_since: float | None = None
        self._waiting_for = ""
        self._calls: dict[str, Running] = {}
        self._citations: dict[tuple[str, str | None], Citation] = {}
        self._settled: list[Line] = []
        self._kind = ""  # of what was settled last
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0.0
        self._out = out

    def show(self, event: Event) -> None:
        """Shows one event; those a person does not need are left out."""
        if not isinstance(event, Token | Thinking | SpecialistProgress):
            self._show(event)
        elif isinstance(event, SpecialistProgress):
            if call := self._calls.get(event.call_id):
                call.text, call.fraction = event.text, event.fraction
        else:
            self._waiting_since = None
            self._think(event.text) if isinstance(event, Thinking) else self._write(event.text)
        self._draw_soon()

    def _show(self, event: Event) -> None:
        """Shows what ends a text that was being written."""
        self._end_texts()
        match event:
            case TurnStart():
                self._wait()
            case SpecialistStart(call_id=call_id, name=name, params=params):
                self._waiting_since = None
                self._calls[call_id] = Running(name, params, time.monotonic())
            case SpecialistResult(call_id=call_id):
                self._calls.pop(call_id, None)
                self._settle("call", [self._drawing.one(succeeded(event))])
                self._citations |= {(one.title, one.url): one for one in event.citations}
                self._wait()
            case SpecialistError(call_id=call_id):
                self._calls.pop(call_id, None)
                self._settle("call", self._drawing.lines(failed(event)))
                self._wait()
            case Notice(code="prompt_progress", text=text):
                self._waiting_for = text
            case Notice(code="repetition"):
                pass  # as the stop reason says
            case Notice(text=text):
                self.say(text)
            case Error(code=code, message=message):
                self._waiting_since = None
                self._settle("error", self._drawing.lines(Text(f"Error: {legible(message)} ({code})", "red")))
            case ApprovalRequired():
                self._waiting_since = None
            case Done(stop_reason=reason):
                self._waiting_since = None
                self._cite()
                self.say(ENDINGS[reason])

    def say(self, text: str, *, dim: bool = True) -> None:
        """Says something besides the answer, on a line of its own."""
        self._end_texts()
        if text:
            style = "dim" if dim else "none"
            self._settle("said", self._drawing.lines(Text(legible(text), style, overflow="fold")))
        self._draw_soon()

    def ask(self, text: str, question: str) -> None:
        """Shows a text, and under it a question, which stays the last line until it is answered."""
        self._end_texts()
        shown = Text(text, overflow="fold")
        shown.stylize("bold", 0, text.find("\n"))
        shown.stylize("yellow", 0, 1)
        self._settle("question", self._drawing.lines(shown))
        self._draw([])
        self._out.write(question)
        self._out.flush()
        self._asked = True

    def answered(self, *, by_person: bool) -> None:
        """The question is none any more."""
        if not by_person:
            self._out.write("\n")
        self._asked = False
        self._draw_soon()

    def resume(self) -> None:
        """Others wrote to the terminal meanwhile: what changes is drawn below that."""
        self._region.leave()

    def close(self) -> None:
        """Shows what is left of this turn, for good."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting_since, self._asked = None, False
        self._end_texts()
        self._calls.clear()
        self._draw([])

    # texts

    def _wait(self) -> None:
        if not self._calls:
            self._waiting_since, self._waiting_for = time.monotonic(), ""

    def _write(self, text: str) -> None:
        self._end_thoughts()
        self._answer.add(text)

    def _think(self, text: str) -> None:
        self._end_answer()
        if self._thinking_since is None:
            self._thinking_since = time.monotonic()
        if self._thinks:
            self._thoughts.add(text)
        else:
            self._thought = (self._thought + text)[-1000:]

    def _end_texts(self) -> None:
        self._end_answer()
        self._end_thoughts()

    def _end_answer(self) -> None:
        self._settle("answer", self._answer.end())

    def _end_thoughts(self) -> None:
        if self._thinking_since is None:
            return
        seconds = time.monotonic() - self._thinking_since
        self._settle("thought", self._thoughts.end())
        if not self._thinks:
            self._settle("thought", [self._drawing.one(Text(f"(thought for {seconds:.1f} s)", "dim"))])
        self._thinking_since, self._thought = None, ""

    def _cite(self) -> None:
        cited = [_cited(number, one) for number, one in enumerate(self._citations.values(), 1)]
        lines = [line for one in cited for line in self._drawing.lines(one)]
        self._citations.clear()
        self._settle("sources", [self._drawing.one(Text("Sources", "bold")), *lines] if lines else [])

    def _settle(self, kind: str, lines: Sequence[Line]) -> None:
        """Has lines written for good; those of another kind stand apart."""
        if not lines:
            return
        if self._kind not in ("", kind):
            self._settled.append(BLANK)
        self._kind = kind
        self._settled += lines

    # drawing

    def _draw_soon(self) -> None:
        if self._timer is None and not self._asked:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._next), self._drawn)

    def _drawn(self) -> None:
        """Draws, and again when anything moves by itself; the longer it took, the later."""
        loop = asyncio.get_running_loop()
        self._timer = None
        if self._asked:
            return
        began = loop.time()
        self._draw(self._changing())
        took = loop.time() - began
        self._next = began + took + max(DRAWN_SECONDS, SHARE * took)
        if self._calls or self._waiting_since is not None or self._thinking_since is not None:
            self._timer = loop.call_at(max(self._next, began + FRAME_SECONDS), self._drawn)

    def _draw(self, changing: Sequence[Line]) -> None:
        settled, self._settled = self._settled, []
        self._region.write(settled, changing, self._drawing.size[0])

    def _changing(self) -> list[Line]:
        """What is drawn anew next time: no more than the window has room for."""
        height = self._drawing.size[1] - 1
        aside = [*self._moving()][: max(1, height // 2)]
        text, kind = (self._answer, "answer") if self._thinking_since is None else (self._thoughts, "thought")
        settled, written = text.drawn(height - len(aside) - 2)
        self._settle(kind, settled)
        before = [BLANK] if self._kind not in ("", kind) and written else []
        between = [BLANK] if aside and (written or self._kind not in ("", "call")) else []
        return [*before, *written, *between, *aside][-max(1, height) :]

    def _moving(self) -> Iterator[Line]:
        frame = FRAMES[int(time.monotonic() / FRAME_SECONDS) % len(FRAMES)]
        for call in self._calls.values():
            for text in call.drawn(frame, self._drawing.width):
                yield self._drawing.one(text)
        since = self._waiting_since
        if self._thinking_since is not None and not self._thinks:
            told = " ".join(legible(self._thought).split())
            yield self._drawing.one(Text(f"{frame} thinking … {told[-self._drawing.width + 16 :]}", "dim"))
        elif since is not None:
            seconds = time.monotonic() - since
            taken = f" {seconds:.0f} s" if seconds >= 1 else ""
            yield self._drawing.one(Text(f"{frame}{taken} {self._waiting_for}".rstrip(), "dim"))


def _cited(number: int, one: Citation) -> Text:
    where = f" · {one.url}" if one.url else ""
    return Text(legible(f"{number}. {one.title}{where}"), "dim", overflow="fold")
