"""How many turns users may begin, and how often an address may give a wrong key: tables of moments, no clock."""

import pytest

from brain.errors import BadRequest
from brain.server.rate_limits import ADDRESSES_LIMIT, LoginRateLimit, UserRateLimits, whole_seconds
from brain.settings import Rights


def allowances(a_minute: int = 0, at_once: int = 0, **others: Rights) -> UserRateLimits:
    return UserRateLimits(lambda user: others.get(user or "", Rights(None, a_minute, at_once)))


def refused(allowed: UserRateLimits, now: float, user: str | None = "ada") -> tuple[str, int | None]:
    with pytest.raises(BadRequest) as caught:
        allowed.acquire(user, now)
    assert (caught.value.code, caught.value.status, caught.value.field) == ("rate_limited", 429, None)
    return caught.value.message, caught.value.retry_after


def test_as_many_as_a_minute_allows_may_begin_at_once_and_then_one_by_one() -> None:
    allowed = allowances(a_minute=3)
    for _ in range(3):
        allowed.acquire("ada", 1000.0)
    assert refused(allowed, 1000.0) == ("You may start 3 turns per minute; try again later.", 20)
    assert refused(allowed, 1000.5)[1] == 20
    assert refused(allowed, 1012.0)[1] == 8
    assert refused(allowed, 1019.9)[1] == 1
    allowed.acquire("ada", 1020.0)
    assert refused(allowed, 1020.0)[1] == 20


def test_the_bucket_never_holds_more_than_a_minute() -> None:
    allowed = allowances(a_minute=2)
    allowed.acquire("ada", 0.0)
    allowed.release("ada")
    for _ in range(2):
        allowed.acquire("ada", 100_000.0)
    assert refused(allowed, 100_000.0)[1] == 30


@pytest.mark.parametrize("a_minute", [1, 7, 11, 13, 60, 120])
@pytest.mark.parametrize("start", [0.1, 123_456.789, 1_800_000_000.123])
def test_who_comes_again_when_told_to_is_let_in(a_minute: int, start: float) -> None:
    allowed = allowances(a_minute=a_minute)
    now = start
    for _ in range(a_minute):
        allowed.acquire("ada", now)
    for _ in range(5):
        seconds = refused(allowed, now)[1]
        assert seconds is not None
        now += seconds
        for _ in range(max(1, seconds * a_minute // 60)):
            allowed.acquire("ada", now)


def test_as_many_run_as_may_at_once() -> None:
    allowed = allowances(at_once=2)
    allowed.acquire("ada", 0.0)
    allowed.acquire("ada", 0.0)
    message = "You have 2 turns running; the limit is 2. Wait for one to end."
    assert refused(allowed, 500.0) == (message, 1)
    allowed.release("ada")
    allowed.acquire("ada", 500.0)
    assert refused(allowed, 500.0)[1] == 1


def test_a_turn_that_may_not_run_takes_nothing_of_the_minute() -> None:
    allowed = allowances(a_minute=2, at_once=1)
    allowed.acquire("ada", 0.0)
    assert refused(allowed, 0.0)[0] == "You have 1 turn running; the limit is 1. Wait for one to end."
    allowed.release("ada")
    allowed.acquire("ada", 0.0)
    allowed.release("ada")
    assert refused(allowed, 0.0) == ("You may start 2 turns per minute; try again later.", 30)


def test_users_are_counted_apart() -> None:
    allowed = allowances(at_once=1, bob=Rights(None, 0, 2))
    allowed.acquire("ada", 0.0)
    allowed.acquire("bob", 0.0)
    allowed.acquire("bob", 0.0)
    allowed.acquire(None, 0.0)
    assert [refused(allowed, 0.0, user)[1] for user in ("ada", "bob", None)] == [1, 1, 1]


def test_no_limit_counts_nothing() -> None:
    allowed = allowances()
    for _ in range(10_000):
        allowed.acquire("ada", 0.0)
    allowed.release("ada")
    assert len(allowed) == 0


def test_only_active_users_are_kept() -> None:
    allowed = allowances(a_minute=1, at_once=1)
    for n in range(1000):
        allowed.acquire(f"user{n}", n / 10)
        if n:
            allowed.release(f"user{n}")
    allowed.acquire("last", 200.0)
    assert len(allowed) == 2
    assert refused(allowed, 1000.0, "user0")[1] == 1
    allowed.release("user0")
    allowed.release("last")
    allowed.acquire("user0", 2000.0)
    assert len(allowed) == 1


# Wrong keys


def test_twenty_wrong_keys_a_minute_are_answered_and_further_ones_wait() -> None:
    failures = LoginRateLimit()
    assert [failures.count("10.0.0.1", 0.5 * n) for n in range(20)] == [None] * 20
    assert [failures.count("10.0.0.1", now) for now in (10.0, 30.25, 59.5)] == [50, 30, 1]
    assert failures.count("10.0.0.2", 59.5) is None
    assert failures.count("10.0.0.1", 60.0) is None


def test_two_hundred_wrong_keys_a_minute_of_whatever_addresses_are_answered() -> None:
    failures = LoginRateLimit()
    assert [failures.count(f"forged{n}", 0.1 * n) for n in range(200)] == [None] * 200
    assert [failures.count(f"further{now}", now) for now in (30.25, 59.5)] == [30, 1]
    assert failures.count("10.0.0.1", 60.0) is None


def test_addresses_are_forgotten_when_their_minute_is_over_and_when_there_are_too_many() -> None:
    failures = LoginRateLimit()
    for n in range(ADDRESSES_LIMIT + 500):
        failures.count(f"address{n}", 0.0)
    assert len(failures) == ADDRESSES_LIMIT
    failures.count("late", 61.0)
    assert len(failures) == 1


@pytest.mark.parametrize(("seconds", "said"), [(0.0, 1), (-3.0, 1), (0.2, 1), (1.0, 1), (1.0000000001, 1), (1.2, 2)])
def test_seconds_are_whole_and_one_at_least(seconds: float, said: int) -> None:
    assert whole_seconds(seconds) == said
