from brain.events import Limits
from brain.turn.call_policy import Budget


def test_calls_up_to_the_cap_are_counted_and_the_next_is_refused() -> None:
    budget = Budget(Limits(calls=2))
    assert [budget.count(), budget.count(), budget.overdrawn] == [None, None, False]
    assert [budget.count(), budget.count(), budget.overdrawn] == ["call_limit", "call_limit", True]
    assert budget.calls == 4


def test_no_calls_at_all() -> None:
    budget = Budget(Limits(calls=0))
    assert budget.count() == "call_limit"


def test_one_specialist_may_be_called_so_often() -> None:
    budget = Budget(Limits(calls_per_specialist=2))
    assert [budget.admit("a", 1), budget.admit("b", 2), budget.admit("a", 3)] == [None, None, None]
    assert [budget.admit("a", 4), budget.admit("b", 5)] == ["specialist_limit", None]


def test_the_third_identical_call_is_repeated() -> None:
    budget = Budget(Limits(calls_per_specialist=5))
    assert [budget.admit("a", 1), budget.admit("a", 1), budget.admit("a", 2)] == [None, None, None]
    assert [budget.admit("a", 1), budget.admit("a", 2), budget.admit("a", 2)] == ["repeated", None, "repeated"]


def test_repeated_says_more_than_the_limit_of_the_specialist() -> None:
    budget = Budget(Limits(calls_per_specialist=2))
    assert [budget.admit("a", 1) for _ in range(3)] == [None, None, "repeated"]


def test_calls_that_were_not_admitted_do_not_count_for_their_specialist() -> None:
    budget = Budget(Limits(calls=5, calls_per_specialist=1))
    assert budget.count() is None  # malformed, say
    assert budget.count() is None
    assert budget.admit("a", 1) is None
