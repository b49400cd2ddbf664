"""Rate limits of users and of wrong keys: tables of times, no clock."""

import pytest

from brain.errors import BadRequest
from brain.server.rate_limits import ADDRESSES_LIMIT, LoginRateLimit, UserRateLimits
from brain.settings import Rights


def limits_of(per_minute: int = 0, at_once: int = 0, **others: Rights) -> UserRateLimits:
    return UserRateLimits(lambda user: others.get(user or "", Rights(None, per_minute, at_once)))


def retry_after(limits: UserRateLimits, now: float, user: str | None = "ada") -> int | None:
    with pytest.raises(BadRequest) as caught:
        limits.acquire(user, now)
    assert (caught.value.code, caught.value.status, caught.value.field) == ("rate_limited", 429, None)
    return caught.value.retry_after


def test_a_bucket_is_full_at_first_and_refills_evenly() -> None:
    limits = limits_of(per_minute=3)
    for _ in range(3):
        limits.acquire("ada", 1000.0)
    assert [retry_after(limits, now) for now in (1000.0, 1000.5, 1012.0, 1019.9)] == [20, 20, 8, 1]
    limits.acquire("ada", 1020.0)
    assert retry_after(limits, 1020.0) == 20
    for _ in range(3):
        limits.acquire("ada", 100_000.0)
    assert retry_after(limits, 100_000.0) == 20, "it never holds more than a minute"


@pytest.mark.parametrize("per_minute", [1, 7, 11, 13, 60, 120])
@pytest.mark.parametrize("now", [0.1, 123_456.789, 1_800_000_000.123])
def test_a_client_that_retries_after_the_given_time_is_allowed(per_minute: int, now: float) -> None:
    limits = limits_of(per_minute)
    for _ in range(per_minute):
        limits.acquire("ada", now)
    for _ in range(5):
        seconds = retry_after(limits, now)
        assert seconds is not None
        now += seconds
        for _ in range(max(1, seconds * per_minute // 60)):
            limits.acquire("ada", now)


def test_turns_at_once_are_limited() -> None:
    limits = limits_of(per_minute=3, at_once=2)
    limits.acquire("ada", 0.0)
    limits.acquire("ada", 0.0)
    assert [retry_after(limits, 0.0) for _ in range(5)] == [1] * 5
    limits.release("ada")
    limits.acquire("ada", 0.0)
    limits.release("ada")
    assert retry_after(limits, 0.0) == 20, "rejected turns take nothing of the minute"
    limits = limits_of(at_once=1)
    limits.acquire("ada", 0.0)
    assert retry_after(limits, 0.0) == 1


def test_users_have_limits_of_their_own_or_none() -> None:
    limits = limits_of(per_minute=1, bob=Rights(None, 2, 0), eve=Rights(None, 0, 0))
    for user, allowed in (("ada", 1), ("bob", 2), (None, 1), ("eve", 50)):
        for _ in range(allowed):
            limits.acquire(user, 0.0)
    assert [retry_after(limits, 0.0, user) for user in ("ada", "bob", None)] == [60, 30, 60]
    limits.release("eve")


def test_idle_users_are_dropped() -> None:
    limits = limits_of(per_minute=5)
    for n in range(1_000):
        limits.acquire(f"user{n}", 0.0)
        if n:
            limits.release(f"user{n}")
    limits.acquire("ada", 200.0)
    assert len(limits) == 2, "one whose turn runs, and the new one"


def test_wrong_keys_are_counted_per_minute_and_address_and_in_total() -> None:
    limit = LoginRateLimit()
    assert [limit.count("a", 0.0) for _ in range(20)] == [None] * 20
    assert [limit.count("a", now) for now in (0.0, 30.5, 59.9)] == [60, 30, 1]
    assert limit.count("b", 59.9) is None
    assert limit.count("a", 60.0) is None
    limit = LoginRateLimit()
    assert [limit.count(f"10.0.0.{n}", 0.0) for n in range(200)] == [None] * 200
    assert limit.count("10.0.1.1", 1.0) == 59
    assert limit.count("10.0.1.1", 61.0) is None


def test_the_oldest_addresses_are_dropped() -> None:
    limit = LoginRateLimit()
    for n in range(ADDRESSES_LIMIT + 500):
        limit.count(f"address{n}", 0.0)
    assert len(limit) == ADDRESSES_LIMIT
    limit.count("late", 61.0)
    assert len(limit) == 1
