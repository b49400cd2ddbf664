"""What is read as a time, on a clock that stands at Friday 2026-03-20 10:30 in Berlin."""

from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest
from calendars import NOW

from brain import Refused
from specialists._calendar.times import parse_time

NEW_YORK = ZoneInfo("America/New_York")


def parsed(text: str, now: datetime = NOW) -> str:
    return parse_time(text, now).isoformat()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-30", "2026-03-30"),
        ("2026-03-30T09:00", "2026-03-30T09:00:00+02:00"),
        ("2026-03-30 09:00", "2026-03-30T09:00:00+02:00"),
        ("2026-03-20T09:00Z", "2026-03-20T10:00:00+01:00"),
        ("2026-03-30T09:00:00-04:00", "2026-03-30T15:00:00+02:00"),
        ("20260330T090000Z", "2026-03-30T11:00:00+02:00"),
        ("2026-03-29T02:30", "2026-03-29T03:30:00+02:00"),  # skipped that night
        ("2026-10-25T02:30", "2026-10-25T02:30:00+02:00"),  # there twice: the first one
    ],
)
def test_iso_8601(text: str, expected: str) -> None:
    assert parsed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-03-20T10:30:00+01:00"),
        ("today", "2026-03-20"),
        ("Tomorrow", "2026-03-21"),
        ("yesterday", "2026-03-19"),
        ("day after tomorrow", "2026-03-22"),
        ("tomorrow at 3pm", "2026-03-21T15:00:00+01:00"),
        ("tomorrow 15:00", "2026-03-21T15:00:00+01:00"),
        ("tomorrow at 12 am", "2026-03-21T00:00:00+01:00"),
        ("friday", "2026-03-20"),
        ("next friday", "2026-03-27"),
        ("friday 9:00", "2026-03-27T09:00:00+01:00"),
        ("this friday at 11:00", "2026-03-20T11:00:00+01:00"),
        ("monday", "2026-03-23"),
        ("next tuesday 10:00", "2026-03-24T10:00:00+01:00"),
        ("sunday, at noon", "2026-03-22T12:00:00+01:00"),
        ("15:00", "2026-03-20T15:00:00+01:00"),
        ("9am", "2026-03-21T09:00:00+01:00"),
        ("in 2 hours", "2026-03-20T12:30:00+01:00"),
        ("in two weeks", "2026-04-03"),
        ("in a day", "2026-03-21"),
        ("in 10 minutes", "2026-03-20T10:40:00+01:00"),
    ],
)
def test_plain_words(text: str, expected: str) -> None:
    assert parsed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 May 2027 at 14:00", "2027-05-03T14:00:00+02:00"),
        ("March 25th, 5pm", "2026-03-25T17:00:00+01:00"),
        ("3. Mai 2027", "2027-05-03"),
        ("morgen um 15 Uhr", "2026-03-21T15:00:00+01:00"),
        ("demain à 15h", "2026-03-21T15:00:00+01:00"),
        ("mañana a las 10:00", "2026-03-21T10:00:00+01:00"),
        ("25.12.2026 18:00", "2026-12-25T18:00:00+01:00"),
        ("03.04.2026", "2026-04-03"),
        ("25.12.", "2026-12-25"),
        ("2 weeks from now", "2026-04-03"),
        ("in 3 Wochen", "2026-04-10"),
        ("3pm tomorrow", "2026-03-21T15:00:00+01:00"),
    ],
)
def test_other_words_and_languages(text: str, expected: str) -> None:
    assert parsed(text) == expected


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
def test_what_is_no_time_is_refused_and_says_what_is(text: str) -> None:
    with pytest.raises(Refused, match=r"no time that can be read; give ISO 8601, such as 2026-03-30T09:00"):
        parse_time(text, NOW, name="end")


def test_hours_ahead_are_those_that_pass_when_the_clocks_change() -> None:
    night = datetime(2026, 3, 29, 1, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert parsed("in 2 hours", night) == "2026-03-29T04:30:00+02:00"


def test_words_are_of_the_zone_of_the_clock() -> None:
    late = datetime(2026, 3, 7, 23, 0, tzinfo=NEW_YORK)  # the clocks change in the night
    assert parsed("tomorrow at 9am", late) == "2026-03-08T09:00:00-04:00"
    assert parse_time("tomorrow", late) == date(2026, 3, 8)
