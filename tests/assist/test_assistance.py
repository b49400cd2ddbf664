"""What Brain learns about a model: whether it calls specialists by itself."""

from typing import Any

import pytest

from brain.assist.assistance import CallingState


def learn(state: CallingState, *found: str, is_small: bool = False) -> CallingState:
    """Learn outcomes: `wiki` is a miss of the specialist `wiki`, `diary` of one with private results."""
    for one in found:
        outcome: Any = one if one in ("right", "other") else "none"
        state = state.learn(outcome, one, is_private=one == "diary", is_small=is_small)
    return state


@pytest.mark.parametrize(
    ("found", "is_assisted"),
    [
        ([], False),
        (["wiki", "web"], False),
        (["wiki", "web", "wiki"], True),
        (["wiki", "wiki", "wiki", "wiki"], False),  # it may know the answers
        (["wiki", "wiki", "wiki", "web"], True),
        (["diary", "diary", "diary"], True),
        (["wiki", "web", "right", "wiki", "web"], False),
        (["wiki", "web", "other", "wiki"], True),
        (["other", "other", "other", "other"], False),
    ],
)
def test_three_misses_turn_assistance_on(found: list[str], is_assisted: bool) -> None:
    assert learn(CallingState(), *found).is_assisted == is_assisted


def test_one_miss_of_a_small_model_turns_assistance_on() -> None:
    assert learn(CallingState(), "wiki", is_small=True).is_assisted
    assert not learn(CallingState(), "right", "wiki", is_small=True).is_assisted


def test_probes_become_rarer() -> None:
    state, probed = CallingState(is_assisted=True), []
    for n in range(1, 600):
        if state.is_probe_due:
            probed.append(n)
            state = learn(state, "wiki")
        else:
            state = state.assist()
    assert probed == [20, 60, 140, 300, 460]
    assert state.is_assisted
    assert not learn(state, "other").is_probe_due
    calling = learn(state, "right")
    assert (calling.is_assisted, calling.is_probe_due, calling.right_calls) == (False, False, 1)
