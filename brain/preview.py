"""Core: what a call would do, in its specialist's own words, for the person who is to approve it."""

import logging
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from brain.blocks import harmless
from brain.context import Progress, Result
from brain.running import Arguments, Failure, Provided, bounded, text_of
from brain.schema import injected_of
from brain.specialist import Specialist
from brain.unicode import escaped

SECONDS = 2.0
"""How long a person waits for it at most; then the parameters alone are shown."""
LINES_MOST = 10
LENGTH_MOST = 2_000

log = logging.getLogger("brain")


async def preview(
    specialist: Specialist[..., Any], params: Mapping[str, Any], provided: Provided, *, timeout: float
) -> Result | Failure | None:
    """What a call with these parameters would do, or that it is refused; None where nothing is said of it."""
    if specialist.preview is None:
        return None
    asked = replace(
        specialist, function=specialist.preview, injected=injected_of(specialist.preview), idle_timeout=None
    )
    own = Arguments((deepcopy(dict(params)),), {})  # what it changes is its own
    found = await bounded(asked, own, provided, _untold, _read, timeout=timeout)
    if isinstance(found, Failure):
        if found.code == "refused":
            return found
        log.warning("specialist %s: it does not say what a call would do (%s)", specialist.name, found.code)
        return None
    return found if found.text.strip() else None


def shown(found: Result) -> str:
    """Its text, in which nothing is hidden, or looks like more than it is: a few lines, cut to size."""
    head = found.text[: 2 * LENGTH_MOST]
    words = [line.split() for line in head.splitlines()]
    lines = [escaped(harmless(" ".join(line))) for line in words if line]
    text = "\n".join(lines[:LINES_MOST])
    is_whole = len(head) == len(found.text) and len(lines) <= LINES_MOST and len(text) <= LENGTH_MOST
    return text if is_whole else f"{text[: LENGTH_MOST - 1]}…"


def _untold(progress: Progress) -> None:
    """Nobody waits for it so long."""


def _read(value: Any) -> Result:
    if isinstance(value, Result):
        return replace(value, text=text_of(value.text))
    return Result("" if value is None else text_of(value))
