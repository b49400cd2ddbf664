"""Ground: what goes to a model (messages), what comes back from it (chunks), and what is kept of it (parts)."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from brain.ask import Attachment, Source
from brain.events import Approval, CallCode, Citation, Error, Notice, Thinking, Usage

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


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """How many tokens of the prompt the server has read, out of those that it did not have in its cache."""

    read: int
    of: int
    cached: int = 0


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A tool call in the server's own form; nothing in it is checked, and `arguments` may be anything but JSON."""

    name: str
    arguments: str


Chunk = str | Thinking | NativeCall | PassUsage | Finish | PromptProgress
"""What a model streams; a plain string is text of the answer, as much as one read brought."""


@dataclass(frozen=True, slots=True)
class Said:
    """Text of an answer."""

    text: str
    turn_pass: int


@dataclass(frozen=True, slots=True)
class Called:
    """A call: its marker as written, and the block that answers it; `outcome` is None for a success.

    `outside` says whether its block may hold the words of strangers, `cached` whether an earlier call was answered so,
    `ms` how long it took.
    """

    call_id: str
    name: str
    params: Mapping[str, Any] | None
    marker: str
    outcome: CallCode | None
    block: str
    citations: Sequence[Citation]
    turn_pass: int
    outside: bool = False
    cached: bool = False
    ms: int | None = None
    approval: Approval | None = None


@dataclass(frozen=True, slots=True)
class Steered:
    """What the user put in while the answer was written."""

    text: str
    turn_pass: int


Part = Said | Called | Steered


@dataclass(frozen=True, slots=True)
class Aside:
    """What its reader saw beside the text of an answer: a notice, or what the model thought.

    Attributes:
        place: how many calls and texts of the answer stand before it, also those that files asked for; `at`, how many
            characters of the text behind do.
    """

    told: Notice | Thinking
    place: int
    at: int = 0


@dataclass(frozen=True, slots=True)
class About:
    """How an answer came to be, for its reader. No model ever reads it.

    Attributes:
        failure: with which it ended, if so.
    """

    asides: tuple[Aside, ...] = ()
    usage: Usage | None = None
    first_token_ms: int | None = None
    total_ms: int | None = None
    failure: Error | None = None


@dataclass(slots=True)
class Exchange:
    """One message of a user, as the model read it, and the answer to it. Times are aware and UTC.

    Attributes:
        question: as the model read it, with clock, files and blocks; empty when nobody asked: what follows is then
            answered.
        before: instructions that a client put before the question; `behind`, between it and the answer.
        answer_id, question_id: by which the two messages can be named later.
        said: the user's own words, and nothing else.
        files: the ids of the attachments that came with it.
        asked, answered: when it was asked, and when its answer ended.
        outcome: how it ended: `interrupted` where the server died, else a stop reason or the code of an error; empty as
            long as it runs.
        model: who answered.
        tokens: what it takes of a prompt, as far as the server counted; 0 where it did not.
        recalled: the ids of the facts and memories that the model read with it.
        outside: whether the model had read words of strangers when the answer ended: blocks, files, what was recalled.
        one_way: the calls that its files asked for, whose blocks stand in the question.
        about: what its reader sees beside the parts.
    """

    question: str
    parts: list[Part] = field(default_factory=list)
    before: tuple[Message, ...] = ()
    behind: tuple[Message, ...] = ()
    answer_id: str = field(default="", compare=False)
    question_id: str = field(default="", compare=False)
    said: str = field(default="", compare=False)
    files: tuple[int, ...] = field(default=(), compare=False)
    source: Source = field(default="chat", compare=False)
    asked: datetime | None = field(default=None, compare=False)
    answered: datetime | None = field(default=None, compare=False)
    outcome: str = field(default="", compare=False)
    model: str = field(default="", compare=False)
    tokens: int = field(default=0, compare=False)
    recalled: tuple[str, ...] = field(default=(), compare=False)
    outside: bool = field(default=False, compare=False)
    one_way: tuple[Called, ...] = field(default=(), compare=False)
    about: About = field(default=About(), compare=False)

    @property
    def own_words(self) -> list[str]:
        """What the user said: first, and while the answer was written."""
        return [self.said, *(part.text for part in self.parts if isinstance(part, Steered))]

    @property
    def visible(self) -> str:
        """The answer as its reader saw it."""
        return "".join(part.text for part in self.parts if isinstance(part, Said))


def new_message_id() -> str:
    """An id of a question or an answer, that nobody guesses."""
    return f"m{secrets.token_hex(8)}"


def new_conversation_id() -> str:
    """The same of a conversation."""
    return f"conv{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class Handed:
    """A call of a client's own tool, as the client tells of it."""

    call_id: str
    name: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Spoken:
    """One message of a history that the client holds; nothing in it is trusted.

    Attributes:
        attachments: its files; their ids are given later.
        calls: of the assistant's, those of the client's own tools.
        call_id: of a tool's, the call that it answers.
    """

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    calls: tuple[Handed, ...] = ()
    call_id: str = ""
