"""Dates, times and recurrences in words: they mean the same in tasks, the calendar and assisted calls."""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime, time
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from calendars import CASES, Calendars, lines
from calendars import NOW as FRIDAY
from hypothesis import given, settings
from hypothesis import strategies as st

from brain import AssistContext, Refused, Specialist
from brain.assist.params import build_params
from brain.dates import AmbiguousDate, find_clock, find_days, is_delay, parse_recurrence, parse_time
from brain.plugins.specialist import from_schema
from brain.tasks.schedule import find_start, parse_every, parse_when
from specialists._calendar.times import parse_time as parse_calendar_time
from specialists.calendar import calendar

BERLIN = "Europe/Berlin"
NOW = datetime(2026, 11, 25, 10, tzinfo=ZoneInfo(BERLIN))
"""A Wednesday, as in the documentation."""
PAGE = Path(__file__).parents[2] / "docs/reference/dates-and-times.md"
MONDAY = NOW.replace(day=23)
NIGHT = datetime(2026, 3, 29, 1, 30, tzinfo=ZoneInfo(BERLIN))  # before the clocks change
LATE = datetime(2026, 3, 7, 23, 0, tzinfo=ZoneInfo("America/New_York"))  # they change in the night


def rows(name: str) -> Sequence[tuple[str, str]]:
    """Return the rows of a table of the documentation."""
    table = PAGE.read_text("utf-8").partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]
    return re.findall(r"^\| `(.*?)` \| `?(.*?)`? \|$", table, re.MULTILINE)


@pytest.fixture
def calendars(tmp_path: Path) -> Calendars:
    return Calendars(tmp_path)


REMINDER = from_schema(
    "reminder",
    "Reminds people.",
    {
        "type": "object",
        "properties": {"when": {"type": "string", "format": "date-time"}},
        "required": ["when"],
        "additionalProperties": False,
    },
    lambda params: "",
    {"read_only": True},
)


TIMES, RECURRENCES = rows("times"), rows("recurrences")
REFUSED = ("ambiguous: ", "rejected: ")


def assisted(words: str, one: Specialist[..., Any]) -> dict[str, Any] | None:
    """Return the parameters of an assisted call."""
    filled = build_params(one, f"what is on {words}", AssistContext(NOW, BERLIN))
    return filled and filled.params


def test_the_tables_are_read() -> None:
    assert (len(TIMES), len(RECURRENCES)) == (53, 29)


@pytest.mark.parametrize(("words", "meaning"), [row for row in TIMES if not row[1].startswith(REFUSED)])
def test_words_mean_the_same_everywhere(calendars: Calendars, words: str, meaning: str) -> None:
    begin, _, end = meaning.partition(" to ")
    day, _, clock = begin.partition("T")
    listed = calendars.text(now=NOW, start=words).partition(", times in")[0]
    if end:
        assert listed == f"Calendar: no events, {begin} to {end}"
    else:
        assert listed.startswith(f"Calendar: no events, {day} to ")
        made = lines(calendars.text(now=NOW, action="create", title="x", start=words))[0]
        assert made.startswith(f"{day} {date.fromisoformat(day):%a} {clock}" if clock else f"{day} ")
        assert ("all day" in made) is (not clock)
    asked = assisted(words, calendar)
    if words not in ("at 9:30", "half past 8", "quarter to 9", "halb 9", "noon"):
        assert asked == {"action": "list", "start": day, "end": end or day}
    asked = assisted(words, REMINDER)
    assert asked is not None
    assert asked["when"][:16] == f"{day}T{clock or '00:00'}"
    default = "10:00" if is_delay(words) else "08:00"
    moment = datetime.fromisoformat(f"{day}T{clock or default}").replace(tzinfo=NOW.tzinfo)
    if moment > NOW:
        assert parse_when(words, BERLIN, NOW) == moment
    else:
        with pytest.raises(ValueError, match=r"^is in the past"):
            parse_when(words, BERLIN, NOW)


@pytest.mark.parametrize(("words", "meaning"), [row for row in TIMES if row[1].startswith(REFUSED)])
def test_two_readings_are_refused_everywhere(calendars: Calendars, words: str, meaning: str) -> None:
    reading = re.escape(meaning.partition(": ")[2])
    with pytest.raises(ValueError, match=f"^is ambiguous: .*{reading}"):
        parse_when(words, BERLIN, NOW)
    for field, call in (
        ("start", {"action": "list"}),
        ("end", {"action": "list", "start": "today"}),
        ("start", {"action": "create", "title": "x"}),
        ("occurrence", {"action": "delete", "event_id": "1"}),
    ):
        assert re.match(f"{field} is ambiguous: .*{reading}", calendars.refusal(now=NOW, **call, **{field: words}))
    for one in (REMINDER, calendar):
        with pytest.raises(Refused, match=reading):
            assisted(words, one)


@pytest.mark.parametrize(("words", "rule"), RECURRENCES)
def test_recurrences(calendars: Calendars, words: str, rule: str) -> None:
    new = {"action": "create", "title": "x", "repeat": words}
    if rule.startswith(REFUSED):
        reading = re.escape(rule.partition(": ")[2]) if rule.startswith("amb") else "cron runs on days that fit one"
        with pytest.raises(ValueError, match=reading):
            parse_every(words, BERLIN, NOW)
        assert re.search(reading, calendars.refusal(now=NOW, start="2026-11-26T08:00", **new))
        return
    assert parse_every(words, BERLIN, NOW) == rule
    assert parse_every(words.upper(), BERLIN, NOW) == rule
    if not rule.startswith(("FREQ=HOURLY", "FREQ=MINUTELY")):
        start = find_start(rule, BERLIN, NOW).astimezone(NOW.tzinfo).isoformat()
        assert ", repeats)" in calendars.text(now=NOW, start=start, **new)


WEEKDAYS = {  # days or periods, read at 7:00 on each day from Monday, 23 November 2026, to Sunday
    "today": "23 24 25 26 27 28 29",
    "tonight": "23 24 25 26 27 28 29",
    "this evening": "23 24 25 26 27 28 29",
    "tomorrow morning": "24 25 26 27 28 29 30",
    "monday morning": "23 30 30 30 30 30 30",
    "sunday": "29 29 29 29 29 29 29",
    "next sunday": "29 29 29 29 29 29 06",
    "this monday": "23 30 30 30 30 30 30",
    "next monday": "30 30 30 30 30 30 30",
    "this week": "23-29 24-29 25-29 26-29 27-29 28-29 29",
    "this weekend": "28-29 28-29 28-29 28-29 28-29 28-29 29",
    "the weekend": "28-29 28-29 28-29 28-29 28-29 28-29 29",
    "next weekend": "05-06 05-06 05-06 05-06 05-06 05-06 05-06",
    "next week": "30-06 30-06 30-06 30-06 30-06 30-06 30-06",
    "the week after next": "07-13 07-13 07-13 07-13 07-13 07-13 07-13",
    "friday after next": "04 04 04 04 11 11 11",
    "friday next week": "04 04 04 04 04 04 04",
    "this month": "23-30 24-30 25-30 26-30 27-30 28-30 29-30",
    "next month": "01-31 01-31 01-31 01-31 01-31 01-31 01-31",
}


@pytest.mark.parametrize("words", WEEKDAYS)
def test_words_on_each_weekday(calendars: Calendars, words: str) -> None:
    for today, days in enumerate(WEEKDAYS[words].split(), 23):
        now = NOW.replace(day=today, hour=7)
        first, last = (
            f"2026-{'11' if day >= '23' and words != 'next month' else '12'}-{day}"
            for day in (days.partition("-")[0], days.rpartition("-")[2])
        )
        listed = calendars.text(now=now, start=words)
        assert listed.startswith(f"Calendar: no events, {first} to {last}, times in")
        filled = build_params(calendar, f"what is on {words}", AssistContext(now, BERLIN))
        assert filled is not None
        assert filled.params == {"action": "list", "start": first, "end": last}
        assert f"{parse_when(words, BERLIN, now).astimezone(now.tzinfo):%Y-%m-%d}" == first


# Times in one text


@pytest.mark.parametrize("text", CASES["times"])
def test_times(text: str) -> None:
    assert parse_calendar_time(text, FRIDAY).isoformat() == CASES["times"][text]


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("in 2 hours", NIGHT, "2026-03-29T04:30:00+02:00"),
        ("tomorrow at 9am", LATE, "2026-03-08T09:00:00-04:00"),
        ("tomorrow", LATE, "2026-03-08"),
    ],
)
def test_words_follow_the_clocks_of_the_zone(text: str, now: datetime, expected: str) -> None:
    assert parse_calendar_time(text, now).isoformat() == expected


@pytest.mark.parametrize("text", [*CASES["no_times"]["texts"], "x" * 500])
def test_unclear_times_are_refused(text: str) -> None:
    with pytest.raises(Refused, match=r"^end "):
        parse_calendar_time(text, FRIDAY, name="end")


@pytest.mark.parametrize(
    ("text", "first", "at"),
    [
        ("sat 9am", "2026-11-28", "09:00"),
        ("Friday, 27 November 2026, 18:00", "2026-11-27", "18:00"),
        ("next week friday", "2026-12-04", ""),
        ("2026/12/3", "2026-12-03", ""),
        ("3.4.27", "2027-04-03", ""),
        ("4/4", "2027-04-04", ""),
        ("12 pm on 5 may", "2027-05-05", "12:00"),
        ("wednesday evening at 8", "2026-11-25", "20:00"),
        ("29 february", "2028-02-29", ""),
        ("morgen Abend", "2026-11-26", "18:00"),
        ("Freitagnachmittag", "2026-11-27", "13:00"),
        ("domani alle 9:00", "2026-11-26", "09:00"),
        ("overmorgen", "2026-11-27", ""),
        ("sexta-feira às 14:30", "2026-11-27", "14:30"),
        ("w piątek o 9:15", "2026-11-27", "09:15"),
        ("tomorrow morning at 3 pm", "", ""),
        ("tomorrow at 8 or 9", "", ""),
        ("not on friday", "", ""),
        ("31/2", "", ""),
        ("friday afternoon at 9", "", ""),
        ("٣ pm", "", ""),
        ("24/7", "", ""),
    ],
)
def test_more_times(text: str, first: str, at: str) -> None:
    found = parse_time(text, NOW)
    assert (found and str(found.first), found and found.at) == (first or None, time.fromisoformat(at) if at else None)


# Days in a sentence


@pytest.mark.parametrize(
    ("message", "first", "last"),
    [
        ("today or tonight", "2026-11-23", "2026-11-23"),
        ("the day after tomorrow", "2026-11-25", "2026-11-25"),
        ("mañana por la mañana", "2026-11-24", "2026-11-24"),
        ("on monday", "2026-11-23", "2026-11-23"),
        ("next monday", "2026-11-30", "2026-11-30"),
        ("last Friday", "2026-11-20", "2026-11-20"),
        ("am Freitagnachmittag", "2026-11-27", "2026-11-27"),
        ("this weekend", "2026-11-28", "2026-11-29"),
        ("la semaine prochaine", "2026-11-30", "2026-12-06"),
        ("in zwei Wochen", "2026-12-07", "2026-12-07"),
        ("the next 3 days", "2026-11-23", "2026-11-26"),
        ("in February", "2027-02-01", "2027-02-28"),
        ("3 de marzo de 2028", "2028-03-03", "2028-03-03"),
        ("24.12.", "2026-12-24", "2026-12-24"),
        ("from 2026-01-05 to 2026-01-09", "2026-01-05", "2026-01-09"),
        ("appointments from 1 to 7 December", "2026-12-01", "2026-12-07"),
        ("vom 1. bis 7. Dezember", "2026-12-01", "2026-12-07"),
        ("du 1er au 7 décembre", "2026-12-01", "2026-12-07"),
        ("del 1 al 7 de diciembre", "2026-12-01", "2026-12-07"),
        ("from Monday to Wednesday", "2026-11-23", "2026-11-25"),
        ("am I free Friday to Monday?", "2026-11-27", "2026-11-30"),
        ("zwischen Montag und Mittwoch", "2026-11-23", "2026-11-25"),
        ("next weekend", "2026-12-05", "2026-12-06"),
        ("nächstes Wochenende", "2026-12-05", "2026-12-06"),
        ("whats on mon", "2026-11-23", "2026-11-23"),
        ("Qu'y a-t-il dans mon agenda demain ?", "2026-11-24", "2026-11-24"),
        ("Montre-moi mon agenda", None, None),
        ("from Leeds to York", None, None),
        ("the 31st of February 2026", None, None),
        ("I may march on", None, None),
        ("the 13/4 or so", "2027-04-13", "2027-04-13"),
        ("open 24/7", None, None),
        ("pages 2-3", None, None),
        ("friday of next week", "2026-12-04", "2026-12-04"),
        ("last weekend", "2026-11-21", "2026-11-22"),
        ("in 2 hours", "2026-11-23", "2026-11-23"),
    ],
)
def test_days(message: str, first: str | None, last: str | None) -> None:
    found = find_days(message, MONDAY)
    assert (found and (str(found[0]), str(found[1]))) == (first and (first, last))


@pytest.mark.parametrize(
    ("message", "clock"),
    [
        ("the train at 7", "07:00"),
        ("leaving 8.15 Uhr", "08:15"),
        ("le train de 15h30", "15:30"),
        ("a las 9 de la noche", "21:00"),
        ("version 3.11 with 2:1", None),
        ("25:00", None),
        ("from 9-10am", None),
    ],
)
def test_times_of_day(message: str, clock: str | None) -> None:
    assert find_clock(message) == (clock and time.fromisoformat(clock))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0 8 * * 1-5 2027", "has 6 cron fields"),
        ("* * * * *", None),
        ("0 8 L * *", "the cron field l as day of month"),
        ("0 8 * * 5#2", "the cron field 5#2 as day of week"),
        ("0 8 31-1 * *", "the cron field 31-1 as day of month"),
        ("0 24 * * *", "the cron field 24 as hour"),
        ("*/90 * * * *", "a step of 90 as minute"),
        ("0 8 1 * */2", "a day of month and a day of week"),
        ("biweekly", "twice in that time or every second time"),
        ("every third friday at 9", "every 3 weeks on Friday"),
    ],
)
def test_refused_recurrences(text: str, reason: str | None) -> None:
    if reason is None:
        assert parse_recurrence(text)
    else:
        with pytest.raises(ValueError, match=re.escape(reason)):
            parse_recurrence(text)


@pytest.mark.parametrize(
    "text", ["every second", "every day but sunday", "now and then", "every blue moon", "at 8", ""]
)
def test_other_texts_are_no_recurrences(text: str) -> None:
    assert parse_recurrence(text) is None


@settings(deadline=None)
@given(
    st.text(st.sampled_from("0123456789 */-.:,aeimnopqrstuwy"), max_size=60),
    st.datetimes(timezones=st.just(NOW.tzinfo)),
)
def test_any_text_is_a_time_or_none(text: str, now: datetime) -> None:
    with suppress(AmbiguousDate):
        found = parse_time(text, now)
        assert found is None or found.first <= found.last
    with suppress(AmbiguousDate):
        find_days(text, now)
    with suppress(ValueError):
        parse_recurrence(text)
