"""The events of a turn. Each protocol translates them.

Order: `TurnStart` is first, exactly one `Done` or `Error` is last, and `Usage` comes right before it. The log of a
process that continues the turn of another one begins with `Rewind` instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

Resume = Literal["prefill", "message"]
"""How a model resumes after a block: from its started answer (`prefill`), or after a message that says to continue."""
MarkerSyntax = Literal["bracket", "function_call", "mention"]
"""A form of calls in the model's text."""
SyntaxName = Literal["bracket", "function_call", "mention", "native"]
"""A form of calls: in the model's text, or as tool calls of the model server (`native`)."""
StrategyName = Literal["mono", "reason", "dual", "step"]
"""How a turn uses models: one model (`mono`), rounds of one model, a director and an actor, or single steps."""
AssistMode = Literal["auto", "off", "always"]
"""When Brain calls specialists for a model: once it has learned that the model calls none, never, or always."""
Role = Literal["thinker", "actor", "critic", "planner", "writer"]
"""The task of a model in one round of a strategy."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one turn. Times are in seconds. The last three are None if the strategy does not use them."""

    calls: int = 5
    calls_per_specialist: int = 3
    turn_seconds: float = 600.0
    call_seconds: float = 5.0
    rounds: int | None = None
    steps: int | None = None
    step_seconds: float | None = None


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
    "interrupted",
]
StopReason = Literal[
    "complete",
    "length",
    "content_filter",
    "deliverable",
    "ready",
    "converged",
    "call_limit",
    "step_limit",
    "round_limit",
    "repetition",
    "deadline",
    "cancelled",
    "suspended",
]
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
    "reasoning",
    "fallback",
    "skipped",
    "assist",
]
CalledBy = Literal["model", "auto", "assist", "client"]
"""The source of a call: the model, an attachment (`auto`), or Brain for a model that calls none (`assist`).
`client` means that the client runs the model's call."""
Approval = Literal["asked", "approved", "declined", "expired"]
"""A person's decision about a call. `asked` stays if the turn ended first."""


@dataclass(frozen=True, slots=True)
class Citation:
    """A source of a result. `id` is unique within the result."""

    id: str
    title: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class TurnStart:
    """The turn began. `limits` are its limits."""

    turn_id: str
    conversation_id: str
    model: str
    strategy: str
    limits: Limits


@dataclass(slots=True)
class Token:
    """Text of the visible answer: the text of one read. Not frozen, because frozen instances are slower to create."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """Text of the model's reasoning. It is never scanned and not part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Round:
    """A round of a strategy begins. It comes before the other events of the round.

    Attributes:
        n: Number of the round, from 1.
        of: Largest number of rounds.
        model: Name of the model.
        text: The instruction or the finding that began it, for people.
    """

    n: int
    of: int
    role: Role
    model: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class SpecialistStart:
    """A call started. `round` is the number of the strategy's round."""

    call_id: str
    name: str
    params: Mapping[str, Any]
    by: CalledBy
    round: int | None = None


@dataclass(frozen=True, slots=True)
class SpecialistProgress:
    """Progress of a running call. `fraction` is from 0 to 1."""

    call_id: str
    text: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class SpecialistResult:
    """A call succeeded.

    Attributes:
        text: Text of its block, byte for byte.
        approval: A person's decision, if the call needed approval.
        ms: Duration in milliseconds, without the wait for approval.
        round: Number of the strategy's round, as in `SpecialistStart`.
        by: `assist` if Brain chose the specialist, also for a cached result without a start.
    """

    call_id: str
    name: str
    params: Mapping[str, Any]
    text: str
    citations: tuple[Citation, ...]
    cached: bool
    ms: int
    approval: Approval | None = None
    round: int | None = None
    by: Literal["assist"] | None = None


@dataclass(frozen=True, slots=True)
class SpecialistError:
    """A call failed.

    Attributes:
        name: `?` if it could not be parsed.
        reason: Why it failed, for people.
        round: Number of the strategy's round. Calls that never start have only this event.
    """

    call_id: str
    name: str
    params: Mapping[str, Any] | None
    code: CallCode
    reason: str
    ms: int
    approval: Approval | None = None
    round: int | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRequired:
    """A call waits for a person to approve it.

    Attributes:
        expires_at: Time at which Brain declines the call (aware, UTC).
        text: A preview in a few plain lines, if there is one.
    """

    call_id: str
    name: str
    params: Mapping[str, Any]
    expires_at: datetime
    text: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model calls a client tool. The turn ends, and the client sends the result with its next request.

    Attributes:
        call_id: Unique across all turns.
        name: The client's name of the tool.
    """

    call_id: str
    name: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A background task was created or changed.

    Attributes:
        text: Its result, the reason of a failure, or what it does now.
        conversation_id: The conversation that reports its result.
        run: Number of its newest run, if it has begun.
    """

    task_id: str
    title: str
    state: Literal["pending", "running", "waiting", "succeeded", "failed", "canceled"]
    conversation_id: str
    text: str | None = None
    run: int | None = None


@dataclass(frozen=True, slots=True)
class Rewind:
    """Another process continues the turn from its checkpoint. It is the first event of that process.

    Attributes:
        to: Number of the last event before the checkpoint. Whatever later events showed is dropped.
        text: The visible answer up to the checkpoint. Readers may have missed some of it.
    """

    to: int
    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A message for people that is not an error. `fraction` is progress from 0 to 1."""

    code: NoticeCode
    text: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Tokens of all passes of one model. `estimated` means that Brain estimated at least one of them."""

    prompt_tokens: int
    completion_tokens: int
    reused_tokens: int | None = None
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Usage(ModelUsage):
    """Tokens of all passes. `models` has the usage by model, if several models took part."""

    models: Mapping[str, ModelUsage] | None = None


@dataclass(frozen=True, slots=True)
class Error:
    """The turn failed.

    Attributes:
        recoverable: Whether a retry may help.
        status: HTTP status of the model server, if it caused the error.
        retry_after: Seconds after which a retry may help, if the model server says so.
    """

    code: ErrorCode
    message: str
    recoverable: bool
    status: int | None = None
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The turn ended without an error. `text` is the visible answer; times are in milliseconds since the start."""

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
    | Round
    | SpecialistStart
    | SpecialistProgress
    | SpecialistResult
    | SpecialistError
    | ApprovalRequired
    | ToolCall
    | TaskChange
    | Rewind
    | Notice
    | Usage
    | Error
    | Done
)
