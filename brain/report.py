"""Ground: what happened in a turn, for those who look at it later: its page, the log, metrics and traces.

Times are milliseconds since the turn began. No word of the user, the model or a specialist stands in it but the names
and parameters of calls, and what those would do that a person was asked about.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from brain.events import Approval, CallCode, ErrorCode, StopReason, Usage

State = Literal["running", "waiting", "done", "error"]
"""`waiting` is for somebody's approval."""


@dataclass(frozen=True, slots=True)
class PassReport:
    """One request to the model; `first_token_ms` is that of its first visible text."""

    number: int
    began_ms: int
    first_token_ms: int | None
    ended_ms: int | None
    prompt_tokens: int
    completion_tokens: int
    reused_tokens: int | None
    estimated: bool
    finish: StopReason | None
    error: ErrorCode | None = None


@dataclass(frozen=True, slots=True)
class CallReport:
    """One call; `outcome` is `ok`, or its code; None while it runs.

    Attributes:
        by: whose it is: the model's, an attachment's (`auto`), or one that the client runs itself.
        approval: whether somebody was asked, and what came of it.
        preview: what the person was told that it would do.
        ms: how long it took, without the wait for an approval.
    """

    call_id: str
    name: str
    params: Mapping[str, Any] | None
    by: Literal["model", "auto", "client"]
    turn_pass: int
    began_ms: int
    ms: int | None
    outcome: Literal["ok"] | CallCode | None
    cached: bool = False
    approval: Approval | None = None
    preview: str | None = None


@dataclass(frozen=True, slots=True)
class TurnReport:
    """One turn; `wire` is the protocol of who asked."""

    turn_id: str
    conversation_id: str
    message_id: str
    user: str | None
    wire: str
    model: str
    state: State
    began: datetime
    total_ms: int
    first_token_ms: int | None
    stop_reason: StopReason | None
    error: ErrorCode | None
    usage: Usage
    passes: Sequence[PassReport]
    calls: Sequence[CallReport]

    @property
    def outcome(self) -> str:
        """How it ended: its error's code, or its stop reason; while it runs, its state."""
        return self.error or self.stop_reason or self.state
