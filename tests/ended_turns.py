"""Exchanges of turns, for tests of those who look at them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from brain.events import Usage
from brain.messages import Call, Exchange, PassRecord

BEGAN = datetime(2026, 3, 4, 5, 6, 7, 250_000, UTC)


def a_pass(number: int = 1, began_ms: int = 0, ended_ms: int | None = 900, **more: Any) -> PassRecord:
    """A request to the model."""
    known = {
        "first_token_ms": 120,
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "reused_tokens": None,
        "estimated": False,
        "finish": "complete",
    }
    return PassRecord(number, began_ms, ended_ms=ended_ms, **(known | more))


def a_call(name: str = "weather", outcome: str | None = "ok", **more: Any) -> Call:
    """A call of a specialist."""
    known = {"id": "c1", "params": {}, "turn_pass": 1, "began_ms": 300, "ms": 40}
    code = None if outcome == "ok" else outcome
    block = "" if outcome is None else f"[{name}]"
    return Call(name, code=code, block=block, **(known | more))  # type: ignore[arg-type]


def an_exchange(passes: Sequence[PassRecord] = (a_pass(),), calls: Sequence[Call] = (), **more: Any) -> Exchange:
    """The exchange of a turn that ended."""
    known = {
        "answer_id": "m1",
        "wire": "native",
        "model": "ollama:llama3",
        "outcome": "complete",
        "started": BEGAN,
        "total_ms": 1000,
        "first_token_ms": 120,
        "usage": Usage(100, 20, None, False),
    }
    return Exchange("", parts=list(calls), passes=tuple(passes), **(known | more))  # type: ignore[arg-type]
