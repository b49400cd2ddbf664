"""What can happen in a turn. Every protocol is a translation of these.

Order: `TurnStart` first, exactly one `Done` or `Error` last, `Usage` right before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

Resume = Literal["prefill", "message"]
"""How a model continues after a block: its started answer is continued, or a message asks it to continue."""
SyntaxName = Literal["bracket", "function_call", "mention"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one turn may use at most; times in seconds."""

    calls: int = 5
    calls_per_specialist: int = 3
    turn_seconds: float = 600.0
    call_seconds: float = 5.0


CallCode = Literal[
    "unknown",
    "malformed",
    "oversized",
    "forged",
    "invalid_params",
    "unauthorized",
    "denied",
    "declined",
    "refused",
    "unavailable",
    "repeated",
    "timeout",
    "failed",
    "call_limit",
    "specialist_limit",
    "deadline",
    "cancelled",
]
StopReason = Literal["complete", "length", "call_limit", "repetition", "deadline", "cancelled"]
ErrorCode = Literal["model_unreachable", "model_failed", "model_context", "shutdown", "internal"]
NoticeCode = Literal[
    "stand_in",
    "repeated_call",
    "trimmed",
    "steered",
    "recalled",
    "unkept",
    "prompt_progress",
    "unknown_tool",
    "repetition",
]
CalledBy = Literal["model", "auto", "client"]
"""What made a call: the model, or an attachment (`auto`). `client`: the model did, and the client runs it."""
Approval = Literal["asked", "approved", "declined", "expired"]
"""What a person decided about a call; `asked` stays where the turn ended before."""


@dataclass(frozen=True, slots=True)
class Citation:
    """The source of a passage of a result; `id` is unique within its result."""

    id: str
    title: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class TurnStart:
    """The turn began; `limits` are those that apply to it."""

    turn_id: str
    conversation_id: str
    model: str
    strategy: str
    limits: Limits


@dataclass(slots=True)
class Token:
    """Text of the visible answer, as much as came in one read. Not frozen, because frozen ones cost more to make."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """Text of the model's reasoning; never scanned, never part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class SpecialistStart:
    """A call runs."""

    call_id: str
    name: str
    params: Mapping[str, Any]
    by: CalledBy


@dataclass(frozen=True, slots=True)
class SpecialistProgress:
    """Progress of a running call; `fraction` is from 0 to 1."""

    call_id: str
    text: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class SpecialistResult:
    """A call succeeded; `text` is that of its block, byte for byte.

    Attributes:
        approval: what a person decided, if one was asked.
        ms: milliseconds that the call took, without the wait for an approval.
    """

    call_id: str
    name: str
    params: Mapping[str, Any]
    text: str
    citations: tuple[Citation, ...]
    cached: bool
    ms: int
    approval: Approval | None = None


@dataclass(frozen=True, slots=True)
class SpecialistError:
    """A call failed; `name` is `?` when it could not be read, `reason` is that of the block."""

    call_id: str
    name: str
    params: Mapping[str, Any] | None
    code: CallCode
    reason: str
    ms: int
    approval: Approval | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRequired:
    """A call waits for a person to approve it, until `expires_at` (aware UTC); then it is declined.

    `text` is a preview in a few plain lines, where the specialist gives one.
    """

    call_id: str
    name: str
    params: Mapping[str, Any]
    expires_at: datetime
    text: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model calls a client tool. The turn ends, and the client continues with the result.

    `call_id` is unique in all turns; `name` is the client's own.
    """

    call_id: str
    name: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the reader should know that is no error; `fraction` is progress from 0 to 1."""

    code: NoticeCode
    text: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens summed over all passes; `estimated` when any pass had to be estimated."""

    prompt_tokens: int
    completion_tokens: int
    reused_tokens: int | None
    estimated: bool


@dataclass(frozen=True, slots=True)
class Error:
    """The turn failed; `recoverable` says whether a retry may help.

    `status` is the HTTP status of the model server, if that was the reason.
    """

    code: ErrorCode
    message: str
    recoverable: bool
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The turn ended without an error; `text` is the visible answer, times are milliseconds since the turn began."""

    stop_reason: StopReason
    message_id: str
    text: str
    calls: int
    passes: int
    first_token_ms: int | None
    total_ms: int


Event = (
    TurnStart
    | Token
    | Thinking
    | SpecialistStart
    | SpecialistProgress
    | SpecialistResult
    | SpecialistError
    | ApprovalRequired
    | ToolCall
    | Notice
    | Usage
    | Error
    | Done
)
