"""What Brain learns about a model: whether it asks for specialists by itself."""

from typing import Any

import pytest

from brain.assist.decision import Habit


def learn(habit: Habit, *found: str) -> Habit:
    """Learn outcomes: `wiki` is a miss of the specialist `wiki`, `diary` of one with private results."""
    for one in found:
        outcome: Any = one if one in ("right", "other") else "none"
        habit = habit.learn(outcome, one, is_private=one == "diary")
    return habit


@pytest.mark.parametrize(
    ("found", "assists"),
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
def test_three_misses_turn_assistance_on(found: list[str], assists: bool) -> None:
    assert learn(Habit(), *found).assists == assists


def test_every_twentieth_sure_message_is_an_examination() -> None:
    habit, examined = Habit(assists=True), []
    for n in range(1, 61):
        if habit.is_examination_due:
            examined.append(n)
        habit = learn(habit, "wiki") if habit.is_examination_due else habit.assist()
    assert examined == [20, 40, 60]
    assert habit.assists
    assert learn(habit, "other").assists
    asking = learn(habit, "right")
    assert (asking.assists, asking.is_examination_due, asking.asked) == (False, False, 1)
