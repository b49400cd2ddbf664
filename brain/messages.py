"""Ground: what goes to a model (messages), what comes back from it (chunks), and what is kept of it (parts)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from brain.events import CallCode, Citation, Thinking

Resume = Literal["prefill", "message"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a request to a model; `images` are encoded image files."""

    role: Literal["system", "user", "assistant"]
    content: str
    images: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class PassUsage:
    """What the server counted for one pass; `reused` is the part of the prompt it had in its cache."""

    prompt: int
    completion: int
    reused: int | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """Why the model stopped by itself."""

    reason: Literal["stop", "length"]


Chunk = str | Thinking | PassUsage | Finish
"""What a model streams; a plain string is text of the answer, as much as one read brought."""


@dataclass(frozen=True, slots=True)
class Said:
    """Text of an answer."""

    text: str
    turn_pass: int


@dataclass(frozen=True, slots=True)
class Called:
    """A call: its marker as written, and the block that answers it; `outcome` is None for a success."""

    call_id: str
    name: str
    params: Mapping[str, Any] | None
    marker: str
    outcome: CallCode | None
    block: str
    citations: Sequence[Citation]
    turn_pass: int


Part = Said | Called


@dataclass(slots=True)
class Exchange:
    """One message of a user, as the model read it, and the answer to it."""

    question: str
    parts: list[Part] = field(default_factory=list)

    @property
    def visible(self) -> str:
        """The answer as its reader saw it."""
        return "".join(part.text for part in self.parts if isinstance(part, Said))
