"""Notices and thinking: what a reader sees beside the text of an answer, and its record for the stored answer."""

import json
from collections.abc import Iterator

from msgspec.structs import replace

from brain.errors import ModelError
from brain.events import Notice
from brain.messages import Annotation, History
from brain.text import TextBuffer, one_line, replace_surrogates

MAX_THINKING_LENGTH = 65_536
"""Characters of thinking to store with an answer."""
MAX_ANNOTATIONS = 200
CUT = " […]"
"""Marks thinking that was left out."""

DEMO = Notice("stand_in", "No language model is connected. The demo model answers.")
REASONING = Notice("reasoning", "The text above was the model's reasoning. It is not part of the answer.")
REPETITION = Notice("repetition", "The model kept repeating itself, so Brain stopped it.")


class Annotations:
    """The notices and the thinking of one answer, with their positions.

    Attributes:
        parts_before: Number of parts of the answer before the current pass.
        round: Number of the current round of the strategy; 0 without one.
        turn_pass: Number of the current pass; 0 before the first one.
    """

    def __init__(self) -> None:
        self.parts_before = 0
        self.round = 0
        self.turn_pass = 0
        self._earlier: tuple[Annotation, ...] = ()
        self._list: list[Annotation] = []
        self._thinking = TextBuffer()
        self._place = 0, 0, 0  # of the thinking: position, offset and round
        self._thinking_left = MAX_THINKING_LENGTH
        self._is_cut = False

    def add_notice(self, notice: Notice) -> Notice:
        """Record a notice before the current pass, and return it."""
        self._flush_thinking()
        self._add(Annotation(notice.text, self.parts_before, 0, notice.code, self.round, self.turn_pass))
        return notice

    def add_thinking(self, text: str, at: int) -> None:
        """Record thinking after `at` characters of the pass."""
        if self._is_cut:
            return
        place = self.parts_before, at, self.round
        if self._place != place:
            self._flush_thinking()
            self._place = place
        self._is_cut = len(text) > self._thinking_left
        self._thinking.add(text[: self._thinking_left] + CUT if self._is_cut else text)
        self._thinking_left -= len(text)

    def resume(self, earlier: tuple[Annotation, ...]) -> None:
        """Continue after those of an interrupted turn."""
        self._earlier = earlier

    def snapshot(self) -> tuple[Annotation, ...]:
        """Return all annotations in order."""
        self._flush_thinking()
        return (*self._earlier, *self._list)

    def _flush_thinking(self) -> None:
        text, self._thinking = self._thinking.whole(), TextBuffer()
        last = self._list[-1] if self._list else None
        position, offset, number = self._place
        thinking = Annotation(text, position, offset, round=number)
        if text and last is not None and replace(last, text=text) == thinking:
            self._list[-1] = replace(last, text=last.text + text)
        elif text:
            self._add(thinking)

    def _add(self, annotation: Annotation) -> None:
        if len(self._list) < MAX_ANNOTATIONS:
            self._list.append(annotation)


def history_notices(history: History) -> Iterator[Notice]:
    """Yield notices about messages that the model does not read, and about recalled facts."""
    if history.after_idle:
        text = "The conversation was idle for a while, so the model starts fresh. Your messages are still here."
        yield Notice("trimmed", text)
    elif history.trimmed:
        yield trimmed(history.trimmed)
    if history.recalled.sentence:
        yield Notice("recalled", history.recalled.sentence)


def trimmed(exchanges: int) -> Notice:
    """Return the notice that the model does not read this number of the oldest exchanges."""
    what = "message and its answer" if exchanges == 1 else f"{exchanges} messages and their answers"
    return Notice("trimmed", f"The oldest {what} no longer fit, so the model does not read them.")


def fallback(failed: str, successor: str) -> Notice:
    """Return the notice that another model answers."""
    return Notice("fallback", f"The model {failed} failed, so {successor} continues the answer.")


def without_round(failed: str) -> Notice:
    """Return the notice that the answer continues without a round whose models failed."""
    return Notice("fallback", f"The model {failed} failed, so Brain continues without this round.")


def without_model(failed: str) -> Notice:
    """Return the notice that the answer is what was known when the last model failed."""
    return Notice("fallback", f"The model {failed} failed, so the answer is what Brain had found.")


def skipped(failing: str, successor: str) -> Notice:
    """Return the notice that another model answers, because turns skip the chosen one for now."""
    return Notice("fallback", f"The model {failing} failed several times, so {successor} answers.")


def skipped_fallback(name: str) -> Notice:
    """Return the notice that a model does not take over, because turns skip it for now."""
    return Notice("skipped", f"Brain skips the model {name} for now, because it failed several times.")


def unknown_tool(name: str) -> Notice:
    """Return the notice that the model called a tool that does not exist."""
    return Notice("unknown_tool", f"The model called the unknown tool {_quote(name)}. Brain ignored the call.")


def empty_answer(tool: str | None) -> ModelError:
    """Return the error for an empty answer; `tool` is the unknown tool that the model called instead."""
    if tool is None:
        message = "The model returned an empty answer. Send the message again, or choose another model."
    else:
        message = (
            f"The model called the unknown tool {_quote(tool)} instead of answering. "
            "Send the message again, turn off tool calling on the model server, or choose another model."
        )
    return ModelError("model_failed", message)


def _quote(name: str) -> str:
    """Return a name from a model in quotes, short and without invisible characters."""
    return json.dumps(one_line(replace_surrogates(name))[:64], ensure_ascii=False)
