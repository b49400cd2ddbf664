"""Sentences about failed calls and answers that ended early, by code, from the page's English texts."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from brain.events import SpecialistError, SpecialistResult

TEXTS = Path(__file__).parents[2] / "page" / "texts" / "en.json"


def explain_call(event: SpecialistError) -> str:
    """Return the code of a failed call, why it failed and what to do about it."""
    known = _texts()["calls"][event.code]
    reason = event.reason.strip()
    end = "" if reason.endswith((".", "!", "?")) else "."
    what = f"{reason[0].upper()}{reason[1:]}{end}" if reason else known["what"]
    return f"{event.code}: {what} {known['remedy']}".rstrip()


def explain_error(code: str, message: str) -> str:
    """Return the line about an answer that failed: the message, what to do about it and the code."""
    remedy = _texts()["errors"].get(code, {}).get("remedy", "")
    return f"Error: {' '.join(part for part in (message, remedy) if part)} ({code})"


def explain_outcome(outcome: str) -> str:
    """Return why a stored answer ended early; nothing for a complete one."""
    if not outcome:
        return "This answer is still running."
    texts = _texts()
    error = texts["errors"].get(outcome)
    return str(error["what"] if error else texts["endings"].get(outcome, ""))


def format_duration(event: SpecialistResult) -> str:
    """Return the duration of a call, and whether it was cached or approved."""
    cached = ", cached" if event.cached else ""
    return f"{event.ms} ms{cached}{', approved' if event.approval == 'approved' else ''}"


def is_yes(typed: str) -> bool:
    """Return whether the answer to a question is yes; everything else is no."""
    return typed.strip().lower() in ("y", "yes")


@cache
def _texts() -> Mapping[str, Any]:
    texts: Mapping[str, Any] = json.loads(TEXTS.read_text("utf-8"))
    return texts
