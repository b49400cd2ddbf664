"""Dates and times in words, at Friday 2026-03-20 10:30 in Berlin."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from calendars import CASES, NOW

from brain import Refused
from specialists._calendar.times import parse_time

NIGHT = datetime(2026, 3, 29, 1, 30, tzinfo=ZoneInfo("Europe/Berlin"))  # before the clocks change
LATE = datetime(2026, 3, 7, 23, 0, tzinfo=ZoneInfo("America/New_York"))  # they change in the night


@pytest.mark.parametrize("text", CASES["times"])
def test_times(text: str) -> None:
    assert parse_time(text, NOW).isoformat() == CASES["times"][text]


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("in 2 hours", NIGHT, "2026-03-29T04:30:00+02:00"),
        ("tomorrow at 9am", LATE, "2026-03-08T09:00:00-04:00"),
        ("tomorrow", LATE, "2026-03-08"),
    ],
)
def test_words_follow_the_clocks_of_the_zone(text: str, now: datetime, expected: str) -> None:
    assert parse_time(text, now).isoformat() == expected


@pytest.mark.parametrize("text", [*CASES["no_times"]["texts"], "x" * 500])
def test_unclear_times_are_refused(text: str) -> None:
    with pytest.raises(Refused, match=r"^end "):
        parse_time(text, NOW, name="end")
