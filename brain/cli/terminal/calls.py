"""A specialist's work as lines of a terminal: while it runs, and what came of it."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from brain.cli.terminal.messages import took, why
from brain.cli.terminal.sanitize import legible
from brain.events import SpecialistError, SpecialistResult
from brain.text import escape_invisible

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
BAR = 20


@dataclass(slots=True)
class Running:
    """A call that runs.

    Attributes:
        began: on the monotonic clock, in seconds.
        text, fraction: how far it says that it is.
    """

    name: str
    params: Mapping[str, Any]
    began: float
    text: str = ""
    fraction: float | None = None

    def drawn(self, frame: str, width: int) -> Iterator[Text]:
        """Its lines: what runs and for how long, and how far it is."""
        seconds = f" {time.monotonic() - self.began:.1f} s"
        line = Text.assemble((f"{frame} ", "cyan"), (legible(self.name), "bold"), (_listed(self.params), "dim"))
        line.truncate(width - cell_len(seconds), overflow="ellipsis")
        yield line.append(seconds, "dim")
        if self.text or self.fraction is not None:
            yield Text(f"  {_bar(self.fraction)}{legible(self.text)}".replace("\n", " "), "dim")


def succeeded(event: SpecialistResult) -> Text:
    """The one line of a call that was answered."""
    how = f" {took(event)}{_listed(event.params)}"
    return Text.assemble(("✓ ", "green"), (legible(event.name), "bold"), (how, "dim"))


def failed(event: SpecialistError) -> Text:
    """What became of a call that failed, and why; dim below it, what the model was told besides."""
    words, detail = why(event)
    line = Text.assemble(("✗ ", "red"), (legible(event.name), "bold"), (f" {event.ms} ms", "dim"), overflow="fold")
    line.append(f" {event.code}: {legible(words)}")
    return line.append(f"\n  {legible(detail)}", "dim") if detail else line


def _listed(params: Mapping[str, Any]) -> str:
    return f" {escape_invisible(json.dumps(params, ensure_ascii=False))}" if params else ""


def _bar(fraction: float | None) -> str:
    if fraction is None:
        return ""
    share = min(1.0, max(0.0, fraction))
    done = round(share * BAR)
    return f"{'━' * done}{'╌' * (BAR - done)} {share:.0%} "
