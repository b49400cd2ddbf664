"""Sentences about turns, failed calls and answers that ended early, from the page's English texts."""

import json
from collections.abc import Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from brain.assist.result_answer import repeats_result
from brain.events import (
    CallCode,
    Error,
    Event,
    Notice,
    Role,
    SpecialistProgress,
    SpecialistResult,
    TaskChange,
    Token,
)
from brain.prompts.blocks import result_text

REWOUND = "The connection to the running answer was lost. It continues from here:"
MAX_RESULT_BYTES = 4_000
"""Size of a result that is shown above the answer."""
TEXTS = Path(__file__).parents[2] / "page" / "texts" / "en.json"


def explain_call(code: CallCode, reason: str) -> str:
    """Return the code of a failed call, why it failed and what to do about it."""
    known = _texts()["calls"][code]
    reason = reason.strip()
    end = "" if reason.endswith((".", "!", "?")) else "."
    if code == "failed":  # its reason only repeats the code
        return f"failed. {known['remedy']}"
    if code != "invalid_params":  # its reason begins with the name of a parameter
        reason = f"{reason[:1].upper()}{reason[1:]}"
    what = f"{reason}{end}" if reason else known["what"]
    return f"{code}: {what} {known['remedy']}".rstrip()


def explain_error(event: Error) -> str:
    """Return the line about an answer that failed: what happened, what to do about it and the code.

    A message of the server says both. Without one, the texts of the code do.
    """
    known = _texts()["errors"].get(event.code, {})
    remedy = known.get("remedy", "") if event.recoverable else ""
    what = event.message or " ".join(part for part in (known.get("what", ""), remedy) if part)
    return f"Error: {what} ({event.code})"


def explain_outcome(outcome: str) -> str:
    """Return why a stored answer ended early; nothing for a complete one."""
    if not outcome:
        return "This answer is still running."
    texts = _texts()
    error = texts["errors"].get(outcome)
    return str(error["what"] if error else texts["endings"].get(outcome, ""))


def describe_task(event: TaskChange) -> str:
    """Return the line about a background task that was added or changed."""
    what = f": {' '.join(event.text.split())}" if event.text else ""
    return f"Task “{event.title}” ({event.task_id}), {event.state}{what}"


def format_duration(event: SpecialistResult) -> str:
    """Return the duration of a call, whether it was cached or approved, and whether Brain chose it."""
    facts = [
        "cached" if event.cached else "",
        "approved" if event.approval == "approved" else "",
        text("chosenByBrain") if event.by == "assist" else "",
    ]
    return ", ".join([f"{event.ms} ms", *filter(None, facts)])


def text_to_repeat(shown: str, text: str) -> str:
    """Return the part of an answer to show after a rewind: its last paragraph, and those before it that differ."""
    paragraphs, shown_ones = text.split("\n\n"), shown.split("\n\n")
    same = takewhile(lambda pair: pair[0] == pair[1], zip(paragraphs[:-1], shown_ones, strict=False))
    return "\n\n".join(paragraphs[len([*same]) :])


class HeldResult:
    """The result of a call that Brain chose. People read it above the answer, unless the answer quotes it."""

    def __init__(self) -> None:
        self._result: SpecialistResult | None = None

    def take(self, event: Event) -> str:
        """Return the result to show before an event; empty if there is none."""
        if isinstance(event, SpecialistProgress | Notice):
            return ""
        held, self._result = self._result, None
        if isinstance(event, SpecialistResult) and event.by == "assist":
            self._result = event
        if held is None or (isinstance(event, Token) and repeats_result(event.text, held.name)):
            return ""
        return result_text(held.text, MAX_RESULT_BYTES)


def text(key: str, **values: str | int) -> str:
    """Return a text of the page with its placeholders filled. `count` chooses among plural forms."""
    found = _texts()["page"][key]
    if not isinstance(found, str):
        found = found["one" if values.get("count") == 1 else "other"]
    return str(found.format(**{name: f"{one:,}" if isinstance(one, int) else one for name, one in values.items()}))


def name_role(role: Role) -> str:
    """Return what a model does in a round of a strategy."""
    return str(_texts()["roles"][role])


def format_ms(ms: int) -> str:
    """Return a duration: `40 ms` or `1.2 s`."""
    return text("ms", count=ms) if ms < 1000 else text("seconds", time=f"{ms / 1000:,.1f}")


def is_yes(typed: str) -> bool:
    """Return whether the answer to a question is yes; everything else is no."""
    return typed.strip().lower() in ("y", "yes")


@cache
def _texts() -> Mapping[str, Any]:
    texts: Mapping[str, Any] = json.loads(TEXTS.read_text("utf-8"))
    return texts
