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
    habit, steps = Habit(assists=True), []
    for _ in range(60):
        steps.append(habit.step)
        habit = learn(habit, "wiki") if habit.step == "examine" else habit.assist()
    assert [n for n, step in enumerate(steps, 1) if step == "examine"] == [20, 40, 60]
    assert set(steps) == {"assist", "examine"}
    assert (habit.assists, habit.examined) == (True, 3)
    assert learn(habit, "other").assists
    asking = learn(habit, "right")
    assert (asking.assists, asking.step, asking.asked) == (False, "watch", 1)
