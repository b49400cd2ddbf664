"""Ground: what goes to a model (messages) and what comes back from it (chunks)."""

from dataclasses import dataclass, field
from typing import Literal

from brain.events import Thinking

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
