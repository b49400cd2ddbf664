"""What is read as a time, on a clock that shows Friday 2026-03-20 10:30 in Berlin."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from calendars import NOW

from brain import Refused
from specialists._calendar.times import parse_time

NIGHT = datetime(2026, 3, 29, 1, 30, tzinfo=ZoneInfo("Europe/Berlin"))  # before the clocks change
LATE = datetime(2026, 3, 7, 23, 0, tzinfo=ZoneInfo("America/New_York"))  # they change in the night


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # ISO 8601
        ("2026-03-30", "2026-03-30"), ("2026-03-30T09:00", "2026-03-30T09:00:00+02:00"),
        ("2026-03-30 09:00", "2026-03-30T09:00:00+02:00"), ("2026-03-20T09:00Z", "2026-03-20T10:00:00+01:00"),
        ("2026-03-30T09:00:00-04:00", "2026-03-30T15:00:00+02:00"),
        ("20260330T090000Z", "2026-03-30T11:00:00+02:00"),
        ("2026-03-29T02:30", "2026-03-29T03:30:00+02:00"),  # skipped that night
        ("2026-10-25T02:30", "2026-10-25T02:30:00+02:00"),  # there twice: the first one
        # plain words
        ("now", "2026-03-20T10:30:00+01:00"), ("today", "2026-03-20"), ("Tomorrow", "2026-03-21"),
        ("yesterday", "2026-03-19"), ("day after tomorrow", "2026-03-22"),
        ("tomorrow at 3pm", "2026-03-21T15:00:00+01:00"), ("tomorrow 15:00", "2026-03-21T15:00:00+01:00"),
        ("tomorrow at 12 am", "2026-03-21T00:00:00+01:00"), ("friday", "2026-03-20"), ("next friday", "2026-03-27"),
        ("friday 9:00", "2026-03-27T09:00:00+01:00"), ("this friday at 11:00", "2026-03-20T11:00:00+01:00"),
        ("monday", "2026-03-23"), ("next tuesday 10:00", "2026-03-24T10:00:00+01:00"),
        ("sunday, at noon", "2026-03-22T12:00:00+01:00"), ("15:00", "2026-03-20T15:00:00+01:00"),
        ("9am", "2026-03-21T09:00:00+01:00"), ("in 2 hours", "2026-03-20T12:30:00+01:00"),
        ("in two weeks", "2026-04-03"), ("in a day", "2026-03-21"), ("in 10 minutes", "2026-03-20T10:40:00+01:00"),
        # other words and languages
        ("3 May 2027 at 14:00", "2027-05-03T14:00:00+02:00"), ("March 25th, 5pm", "2026-03-25T17:00:00+01:00"),
        ("3. Mai 2027", "2027-05-03"), ("morgen um 15 Uhr", "2026-03-21T15:00:00+01:00"),
        ("demain à 15h", "2026-03-21T15:00:00+01:00"), ("mañana a las 10:00", "2026-03-21T10:00:00+01:00"),
        ("25.12.2026 18:00", "2026-12-25T18:00:00+01:00"), ("03.04.2026", "2026-04-03"), ("25.12.", "2026-12-25"),
        ("2 weeks from now", "2026-04-03"), ("in 3 Wochen", "2026-04-10"),
        ("3pm tomorrow", "2026-03-21T15:00:00+01:00"),
    ],
)  # fmt: skip
def test_times(text: str, expected: str) -> None:
    assert parse_time(text, NOW).isoformat() == expected


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


@pytest.mark.parametrize(
    "text",
    [
        "", "soon", "2026-13-45", "tomorrow 25:00", "tomorrow morning", "17", "9999-12-31", "0001-01-01", "x" * 500,
        "9-10am", "monday 9-10", "Mar 30 2026 9:00-10:00", "tomorrow 9am to 10am", "morgen 9 bis 10",  # two times
        "03/04/2026", "3-4-2026", "3/4/26", "13/3/26",  # of which month, of which century
        "next week", "nächste Woche", "next month", "next year", "April", "2026", "2026-04",  # no day
        "17h", "tomorrow 9.30",
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(Refused, match=r"end .* is no time that can be read; give ISO 8601"):
        parse_time(text, NOW, name="end")
