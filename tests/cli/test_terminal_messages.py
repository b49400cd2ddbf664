"""What a person is told of calls and failures: all of them, and nothing that is meant for the model."""

import re
from typing import get_args

import pytest

from brain.cli.terminal.messages import CODES_WITH_DETAIL, ENDINGS, FAILURES, OUTCOMES, explain_failure, format_duration
from brain.events import Approval, CallCode, ErrorCode, SpecialistError, SpecialistResult, StopReason
from brain.prompts.templates import NO_APPROVER, REASONS

ADVICE = re.compile(r"\b(go on|do not|tell the user|ask again|use it|try)\b")


def failed(code: CallCode, reason: str = "the reason; go on without it", ms: int = 5_003) -> SpecialistError:
    return SpecialistError("c1", "one", {}, code, reason, ms)


def test_every_failure_and_every_ending_has_words() -> None:
    assert set(FAILURES) == set(get_args(CallCode))
    assert set(ENDINGS) == set(get_args(StopReason))
    assert set(OUTCOMES) == {"", "interrupted", *get_args(StopReason), *get_args(ErrorCode)}


@pytest.mark.parametrize("code", sorted(set(FAILURES) - {"refused"}))
def test_no_words_are_for_the_model(code: CallCode) -> None:
    words, detail = explain_failure(failed(code, REASONS.get(code, "the reason; go on without it")))
    assert not ADVICE.search(words)
    assert bool(detail) == (code in CODES_WITH_DETAIL)


@pytest.mark.parametrize(("ms", "words"), [(5_003, "5 s"), (12_345, "12.3 s"), (503, "0.5 s"), (120_000, "120 s")])
def test_how_long_is_said(ms: int, words: str) -> None:
    assert explain_failure(failed("timeout", ms=ms)) == (f"it took longer than {words}", "")


def test_a_refusal_is_said_by_who_refuses() -> None:
    assert explain_failure(failed("refused", "There is no {event} of that name.")) == (
        "There is no {event} of that name.",
        "",
    )


def test_where_nobody_sits_nobody_said_no() -> None:
    assert explain_failure(failed("declined"))[0] == "you did not approve it"
    assert explain_failure(failed("declined", NO_APPROVER))[0] == "nobody can be asked to approve it here"


@pytest.mark.parametrize(
    ("cached", "approval", "words"),
    [
        (False, None, "12 ms"),
        (True, None, "12 ms, from before"),
        (False, "approved", "12 ms, approved"),
        (True, "approved", "12 ms, from before, approved"),
    ],
)
def test_how_a_call_was_answered_is_said(cached: bool, approval: Approval | None, words: str) -> None:
    assert format_duration(SpecialistResult("c1", "one", {}, "text", (), cached, 12, approval)) == words
