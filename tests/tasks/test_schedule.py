"""Schedules: times and recurrences in ISO 8601, as RRULEs and in plain words, over clock changes and from strangers."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from store_helpers import task_of

from brain.tasks.schedule import describe, find_late, find_start, next_times, parse_every, parse_when, to_words

BERLIN, NEW_YORK, DELHI = "Europe/Berlin", "America/New_York", "Asia/Kolkata"
NOW = "2026-11-23T10:17"
"""A Monday. In Berlin it is 11:17."""
WEEKDAYS = "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=8;BYMINUTE=0"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def times(every: str, zone: str, now: str, *, after: str = "", count: int = 3) -> str:
    """The next times of a recurrence without `when`, in UTC and to the minute."""
    found = next_times(parse_every(every, zone, utc(now)), utc(now), zone, utc(after or now), count)
    return " ".join(f"{time:%y-%m-%dT%H:%M}" for time in found)


@pytest.mark.parametrize(
    ("text", "zone", "now", "expected"),
    [
        ("2027-01-31T08:00", BERLIN, NOW, "2027-01-31T07:00"),
        ("2027-01-31T08:00-05:00", BERLIN, NOW, "2027-01-31T13:00"),
        ("2027-01-31", BERLIN, NOW, "2027-01-31T07:00"),
        ("2027-01-31 at 9:30", NEW_YORK, NOW, "2027-01-31T14:30"),
        (" Tomorrow  at 8 ", BERLIN, NOW, "2026-11-24T07:00"),
        ("tomorrow", BERLIN, "2026-11-23T23:30", "2026-11-25T07:00"),
        ("at 8 tomorrow", DELHI, NOW, "2026-11-24T02:30"),
        ("the day after tomorrow at 5 pm", BERLIN, NOW, "2026-11-25T16:00"),
        ("tomorrow morning", BERLIN, NOW, "2026-11-24T07:00"),
        ("tomorrow at nine pm", BERLIN, NOW, "2026-11-24T20:00"),
        ("at 9am", BERLIN, NOW, "2026-11-24T08:00"),
        ("12pm", BERLIN, NOW, "2026-11-23T11:00"),
        ("today at midnight", BERLIN, NOW, "is in the past"),
        ("in 2 hours", BERLIN, "2026-10-25T00:30", "2026-10-25T02:30"),
        ("in half an hour", BERLIN, NOW, "2026-11-23T10:47"),
        ("in 2 hours 30 minutes", BERLIN, NOW, "2026-11-23T12:47"),
        ("in 2 h and 5 min", BERLIN, NOW, "2026-11-23T12:22"),
        ("in 1h30", BERLIN, NOW, "2026-11-23T11:47"),
        ("in 1 hour 30", BERLIN, NOW, "2026-11-23T11:47"),
        ("2 hours 30 minutes from now", BERLIN, NOW, "2026-11-23T12:47"),
        ("in 2 minutes 30 seconds", BERLIN, NOW, "2026-11-23T10:19:30"),
        ("in a day and 2 hours", BERLIN, "2026-10-24T08:00", "2026-10-25T11:00"),
        ("in 90 sec", BERLIN, NOW, "2026-11-23T10:18:30"),
        ("half past 8 tomorrow", BERLIN, NOW, "2026-11-24T07:30"),
        ("tomorrow at a quarter to nine", BERLIN, NOW, "2026-11-24T07:45"),
        ("tomorrow, quarter past 8 pm", BERLIN, NOW, "2026-11-24T19:15"),
        ("tomorrow at quarter to midnight", BERLIN, NOW, "2026-11-24T22:45"),
        ("in 2 days", BERLIN, "2026-10-24T08:00", "2026-10-26T09:00"),
        ("in a month", BERLIN, "2027-01-31T10:00", "2027-02-28T10:00"),
        ("monday at 9", BERLIN, NOW, "2026-11-30T08:00"),
        ("monday at 12", BERLIN, NOW, "2026-11-23T11:00"),
        ("next Monday at 12", BERLIN, NOW, "2026-11-30T11:00"),
        ("on Fri at 9:30", BERLIN, NOW, "2026-11-27T08:30"),
        ("31 January at 8", BERLIN, NOW, "2027-01-31T07:00"),
        ("February 29th", BERLIN, NOW, "2028-02-29T07:00"),
        ("2027-03-28T02:30", BERLIN, NOW, "2027-03-28T01:30"),  # skipped: 03:30
        ("2027-10-31T02:30", BERLIN, NOW, "2027-10-31T00:30"),  # twice: the first
        ("2020-01-01", BERLIN, NOW, "is in the past"),
        ("0001-01-01T00:00+14:00", BERLIN, NOW, "is in the past"),
        ("9999-12-31T23:59-14:00", BERLIN, NOW, "is more than 200 years away"),
        *((text, BERLIN, NOW, "is not a time; use a form such as 2027-01-31T08:00, tomorrow at 8, next Monday at 9:30 "
           "or in 2 hours") for text in (" ", "soon", "tomorrow at 25", "in 999999 years", "February 30", "2027-13-01",
                                         "in 2 fortnights", "tomorrow at half to 8", "in a day and a half",
                                         "in 30 minutes 2 hours", "٣ pm", "DTSTART:20270101")),
        ("1" * 501, BERLIN, NOW, "has 501 characters; the limit is 500"),
    ],
)  # fmt: skip
def test_times(text: str, zone: str, now: str, expected: str) -> None:
    if "T" in expected[:11]:
        assert parse_when(text, zone, utc(now)) == utc(expected)
    else:
        with pytest.raises(ValueError, match=f"^{expected}$"):
            parse_when(text, zone, utc(now))


@pytest.mark.parametrize(
    ("text", "rule", "words"),
    [
        ("every weekday at 8", WEEKDAYS, "every weekday at 08:00"),
        ("weekdays at eight", WEEKDAYS, "every weekday at 08:00"),
        ("weekdays at 8 am", WEEKDAYS, "every weekday at 08:00"),
        (f"RRULE:{WEEKDAYS};BYSECOND=0;INTERVAL=1".lower(), WEEKDAYS, "every weekday at 08:00"),
        ("every morning at 8", "FREQ=DAILY;BYHOUR=8;BYMINUTE=0", "daily at 08:00"),
        ("Daily at 18:30", "FREQ=DAILY;BYHOUR=18;BYMINUTE=30", "daily at 18:30"),
        ("every day at 20 and 8", "FREQ=DAILY;BYHOUR=8,20;BYMINUTE=0", "daily at 08:00 and 20:00"),
        ("every thursday and monday at 9", "FREQ=WEEKLY;BYDAY=MO,TH;BYHOUR=9;BYMINUTE=0",
         "every Monday and Thursday at 09:00"),
        ("every 2 hours", "FREQ=HOURLY;INTERVAL=2", "every 2 hours"),
        ("hourly", "FREQ=HOURLY", "hourly"),
        ("weekly", "FREQ=WEEKLY", "every Monday at 11:17"),
        ("every other week on friday at noon", "FREQ=WEEKLY;INTERVAL=2;BYDAY=FR;BYHOUR=12;BYMINUTE=0",
         "every 2 weeks on Friday at 12:00"),
        ("monthly on the 1st and 22nd at 7", "FREQ=MONTHLY;BYMONTHDAY=1,22;BYHOUR=7;BYMINUTE=0",
         "monthly on the 1st and 22nd at 07:00"),
        ("every 3 months on the last day at 7", "FREQ=MONTHLY;INTERVAL=3;BYMONTHDAY=-1;BYHOUR=7;BYMINUTE=0",
         "every 3 months on the last day at 07:00"),
        ("monthly on the first tuesday at 7", "FREQ=MONTHLY;BYDAY=1TU;BYHOUR=7;BYMINUTE=0",
         "monthly on the first Tuesday at 07:00"),
        ("yearly on february 29 at 8", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYHOUR=8;BYMINUTE=0",
         "yearly on February 29 at 08:00"),
        ("every day at half past 8", "FREQ=DAILY;BYHOUR=8;BYMINUTE=30", "daily at 08:30"),
        ("biweekly on monday at 9", "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=9;BYMINUTE=0",
         "every 2 weeks on Monday at 09:00"),
        ("alternate days at quarter past 9", "FREQ=DAILY;INTERVAL=2;BYHOUR=9;BYMINUTE=15", "every 2 days at 09:15"),
        ("every fortnight on monday at 9", "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=9;BYMINUTE=0",
         "every 2 weeks on Monday at 09:00"),
        ("alternate fridays at 9", "FREQ=WEEKLY;INTERVAL=2;BYDAY=FR;BYHOUR=9;BYMINUTE=0",
         "every 2 weeks on Friday at 09:00"),
        ("30 8 * * 1-5", "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=8;BYMINUTE=30", "every weekday at 08:30"),
        ("*/30 * * * *", "FREQ=HOURLY;BYMINUTE=0,30", "every 30 minutes"),
        ("0 0 1 1 *", "FREQ=MONTHLY;BYMONTH=1;BYMONTHDAY=1;BYHOUR=0;BYMINUTE=0", "yearly on January 1 at 00:00"),
        ("5,50 */6 * 6-8 1-5",
         "FREQ=WEEKLY;BYMONTH=6,7,8;BYDAY=MO,TU,WE,TH,FR;BYHOUR=0,6,12,18;BYMINUTE=5,50",
         "by the cron rule 5,50 */6 * 6-8 1-5"),
        ("30 * * * *", "FREQ=HOURLY;BYMINUTE=30", "by the cron rule 30 * * * *"),
        ("15 * * * 0,1,4", "FREQ=HOURLY;BYDAY=MO,TH,SU;BYMINUTE=15", "by the cron rule 15 * * * 0,1,4"),
        ("FREQ=WEEKLY;INTERVAL=2;BYMONTH=6;BYDAY=MO", "FREQ=WEEKLY;INTERVAL=2;BYMONTH=6;BYDAY=MO",
         "by the rule FREQ=WEEKLY;INTERVAL=2;BYMONTH=6;BYDAY=MO"),
        ("FREQ=DAILY;COUNT=3;BYHOUR=8", "FREQ=DAILY;COUNT=3;BYHOUR=8;BYMINUTE=0", "daily at 08:00, 3 times"),
        ("FREQ=DAILY;UNTIL=20270105;BYHOUR=8", "FREQ=DAILY;UNTIL=20270105;BYHOUR=8;BYMINUTE=0",
         "daily at 08:00, until 2027-01-05"),
        ("FREQ=MONTHLY;BYDAY=MO,TU;BYSETPOS=-1", "FREQ=MONTHLY;BYDAY=MO,TU;BYSETPOS=-1",
         "by the rule FREQ=MONTHLY;BYDAY=MO,TU;BYSETPOS=-1"),
    ],
)  # fmt: skip
def test_recurrences_in_words(text: str, rule: str, words: str) -> None:
    assert parse_every(text, BERLIN, utc(NOW)) == rule
    assert to_words(task_of("ada", time_zone=BERLIN, every=rule, start=utc(NOW))) == f"{words} (Europe/Berlin)"
    if ", " not in words and words != "every 30 minutes":  # of the clock
        again = parse_every(words.removeprefix("by the cron rule ").removeprefix("by the rule "), BERLIN, utc(NOW))
        assert next_times(again, utc(NOW), BERLIN, utc(NOW)) == next_times(rule, utc(NOW), BERLIN, utc(NOW))


@pytest.mark.parametrize(
    ("text", "zone", "now", "expected"),
    [
        ("every weekday at 8", BERLIN, "2026-11-27T08:00", "26-11-30T07:00 26-12-01T07:00 26-12-02T07:00"),
        # 02:30 is skipped, and exists twice
        ("daily at 2:30", BERLIN, "2027-03-27T00:00", "27-03-27T01:30 27-03-28T01:30 27-03-29T00:30"),
        ("daily at 2:30", NEW_YORK, "2027-03-13T12:00", "27-03-14T07:30 27-03-15T06:30 27-03-16T06:30"),
        ("daily at 2 and 3", BERLIN, "2027-03-27T12:00", "27-03-28T01:00 27-03-29T00:00 27-03-29T01:00"),
        ("daily at 2:30", BERLIN, "2027-10-30T12:00", "27-10-31T00:30 27-11-01T01:30 27-11-02T01:30"),
        ("daily at 1:30", NEW_YORK, "2026-10-31T12:00", "26-11-01T05:30 26-11-02T06:30 26-11-03T06:30"),
        ("daily at 8", BERLIN, "2027-03-27T12:00", "27-03-28T06:00 27-03-29T06:00 27-03-30T06:00"),
        # hours between times are real hours
        ("every 2 hours", BERLIN, "2027-03-28T00:10", "27-03-28T02:10 27-03-28T04:10 27-03-28T06:10"),
        ("every 2 hours", NEW_YORK, "2026-11-01T04:10", "26-11-01T06:10 26-11-01T08:10 26-11-01T10:10"),
        ("FREQ=HOURLY;BYMINUTE=0,30", DELHI, NOW, "26-11-23T10:30 26-11-23T11:00 26-11-23T11:30"),
        ("FREQ=HOURLY;INTERVAL=3;BYHOUR=8,11,14;BYMINUTE=0", BERLIN, NOW,
         "26-11-23T13:00 26-11-24T07:00 26-11-24T10:00"),
        ("FREQ=MINUTELY;INTERVAL=20;BYDAY=SU;BYHOUR=0", BERLIN, NOW, "26-11-28T23:17 26-11-28T23:37 26-11-28T23:57"),
        # leap days, days that some months lack, the century without a leap day
        ("yearly on february 29 at 8", BERLIN, NOW, "28-02-29T07:00 32-02-29T07:00 36-02-29T07:00"),
        ("yearly on february 29 at 8", BERLIN, "2096-03-01T00:00", "04-02-29T07:00 08-02-29T07:00 12-02-29T07:00"),
        ("monthly on the 31st at 7", BERLIN, NOW, "26-12-31T06:00 27-01-31T06:00 27-03-31T05:00"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=FR;BYHOUR=9", "UTC", NOW,
         "36-02-29T09:00 64-02-29T09:00"),
        ("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9", "UTC", NOW, "26-11-27T09:00 26-12-25T09:00 27-01-29T09:00"),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=9", "UTC", NOW,
         "26-11-30T09:00 26-12-31T09:00 27-01-29T09:00"),
        ("FREQ=YEARLY;BYDAY=20MO;BYHOUR=9", "UTC", NOW, "27-05-17T09:00 28-05-15T09:00 29-05-14T09:00"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=SU,TU;WKST=SU;BYHOUR=9", "UTC", NOW,
         "26-11-24T09:00 26-12-06T09:00 26-12-08T09:00"),
        # the end
        ("FREQ=DAILY;COUNT=2;BYHOUR=8", BERLIN, NOW, "26-11-24T07:00 26-11-25T07:00"),
        ("FREQ=DAILY;UNTIL=20261125;BYHOUR=8", BERLIN, NOW, "26-11-24T07:00 26-11-25T07:00"),
        ("FREQ=DAILY;UNTIL=20261125T065959Z;BYHOUR=8", BERLIN, NOW, "26-11-24T07:00"),
    ],
)  # fmt: skip
def test_next_times(text: str, zone: str, now: str, expected: str) -> None:
    assert times(text, zone, now) == expected


def test_a_schedule_continues_after_a_week_off_and_after_two_hundred_years() -> None:
    after = "2026-12-02T09:00"
    assert times("daily at 8", BERLIN, NOW, after=after, count=1) == "26-12-03T07:00"
    assert times("every 2 weeks on monday at 8", BERLIN, NOW, after=after, count=1) == "26-12-07T07:00"
    assert times("every 7 hours", BERLIN, NOW, after=after, count=1) == "26-12-02T11:17"
    assert times("FREQ=DAILY;COUNT=9;BYHOUR=8", BERLIN, NOW, after=after) == ""
    assert times("FREQ=DAILY;COUNT=10;BYHOUR=8", BERLIN, NOW, after=after) == "26-12-03T07:00"
    later = "2226-11-23T10:17"
    assert times("every 7 minutes", BERLIN, NOW, after=later, count=1) == "26-11-23T10:23"
    assert times("daily at 8", BERLIN, NOW, after=later, count=1) == "26-11-24T07:00"
    assert times("FREQ=DAILY;COUNT=1000", BERLIN, NOW, after=later) == ""


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("daily", "2026-11-24T07:00"),
        ("weekly", "2026-11-30T07:00"),
        ("hourly", "2026-11-23T11:00"),
        ("every 20 minutes", "2026-11-23T10:20"),
        ("FREQ=DAILY;COUNT=1;BYHOUR=9", "2026-11-24T08:00"),
        ("every 2 weeks on monday at 12", "2026-11-23T11:00"),
    ],
)
def test_recurrences_without_a_time_start_at_full_hours(text: str, start: str) -> None:
    assert find_start(parse_every(text, BERLIN, utc(NOW)), BERLIN, utc(NOW)) == utc(start)


def test_an_interval_counts_from_the_first_day_that_fits() -> None:
    sunday = "2026-11-29T10:00"
    for text, expected in (
        ("every other monday at 9", "26-11-30T08:00 26-12-14T08:00 26-12-28T08:00"),
        ("every 3 weeks on friday at 9", "26-12-04T08:00 26-12-25T08:00 27-01-15T08:00"),
        ("biweekly on sunday at 9", "26-12-06T08:00 26-12-20T08:00 27-01-03T08:00"),
        ("biweekly on sunday at 12", "26-11-29T11:00 26-12-13T11:00 26-12-27T11:00"),
        ("every 2 months on the 3rd at 9", "26-12-03T08:00 27-02-03T08:00 27-04-03T07:00"),
        ("every 3 days at 8", "26-11-30T07:00 26-12-03T07:00 26-12-06T07:00"),
    ):
        rule = parse_every(text, BERLIN, utc(sunday))
        start = find_start(rule, BERLIN, utc(sunday))
        found = next_times(rule, start, BERLIN, utc(sunday))
        assert " ".join(f"{one:%y-%m-%dT%H:%M}" for one in found) == expected, text
    rule, wednesday = parse_every("every other monday at 9", BERLIN, utc(sunday)), utc("2026-12-02T08:00")
    assert find_start(rule, BERLIN, utc(sunday), wednesday) == utc("2026-12-07T08:00")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        # never, also with few steps
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "has no time"),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "has no time"),
        ("FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30", "has no time"),
        ("FREQ=MINUTELY;INTERVAL=5;BYMINUTE=1;COUNT=1000", "has no time"),
        ("FREQ=WEEKLY;BYSETPOS=300", "has no time"),
        ("FREQ=DAILY;UNTIL=20250101", "has no time"),
        # too often
        ("FREQ=SECONDLY", "needs a FREQ of"),
        ("FREQ=DAILY;BYSECOND=0,1,2,3", "has the part BYSECOND"),
        ("every minute", "is too often"),
        ("FREQ=MINUTELY;INTERVAL=4", "is too often"),
        ("FREQ=HOURLY;BYMINUTE=0,56", "is too often"),
        ("FREQ=DAILY;BYHOUR=8,9;BYMINUTE=0,10,20,22", "is too often"),
        ("FREQ=DAILY;BYHOUR=0,23;BYMINUTE=0,58", "is too often"),
        # not allowed
        ("FREQ=DAILY;BYHOUR=24", "needs numbers from 0 to 23 as BYHOUR"),
        ("FREQ=DAILY;BYMONTHDAY=0", "needs numbers from -31 to 31 as BYMONTHDAY"),
        ("FREQ=DAILY;INTERVAL=0", "needs numbers from 1 to 1000 as INTERVAL"),
        ("FREQ=DAILY;INTERVAL=1,2", "needs one number as INTERVAL"),
        ("FREQ=DAILY;COUNT=99999999999999999999", "needs numbers from 1 to 1000 as COUNT"),
        ("FREQ=DAILY;COUNT=1;UNTIL=20270101", "has COUNT and UNTIL"),
        ("FREQ=DAILY;UNTIL=20271301", "needs a time"),
        ("FREQ=DAILY;FREQ=WEEKLY", "has FREQ twice"),
        ("FREQ=DAILY;BYDAY=1MO", "has numbers in BYDAY"),
        ("FREQ=DAILY;BYDAY=XX", "needs weekdays"),
        ("FREQ=HOURLY;BYSETPOS=1", "has BYSETPOS"),
        ("FREQ=DAILY;WKST=1", "needs a weekday"),
        ("FREQ=DAILY\nEXDATE:20270101", "needs a FREQ of"),
        ("FREQ=DAILY;`X`=1", "has the part X,"),
        ("every blue moon", "is not a recurrence; use a form such as every weekday at 8"),
        ("every day at 25", "is not a recurrence"),
        ("weekdays at half 8", "is ambiguous: half 8 can mean 7:30 or 8:30"),
        ("every 3 h", "is not a recurrence"),
        ("every hour at 5", "is not a recurrence"),
        ("daily at 8:00 and 18:30", "has times with different minutes"),
        ("daily " * 100, "has 600 characters"),
    ],
)
def test_refused_recurrences(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}"):
        parse_every(text, BERLIN, utc(NOW))


@pytest.mark.parametrize(
    ("every", "now", "words"),
    [
        (
            WEEKDAYS,
            "2027-03-26T06:59",
            "every weekday at 08:00 (Europe/Berlin). "
            "Next: Fri 2027-03-26 08:00, Mon 2027-03-29 08:00, Tue 2027-03-30 08:00",
        ),
        ("", "2026-11-23T10:16", "once, on Monday 2026-11-23 at 11:17 (Europe/Berlin). Next: Mon 2026-11-23 11:17"),
        ("", NOW, "once, on Monday 2026-11-23 at 11:17 (Europe/Berlin)"),
    ],
)
def test_descriptions_have_the_next_three_times(every: str, now: str, words: str) -> None:
    assert describe(task_of("ada", time_zone=BERLIN, every=every, start=utc(NOW)), utc(now)) == words


@pytest.mark.parametrize("broken", [{"time_zone": "Mars/Olympus"}, {"time_zone": "../x"}, {"every": "garbage"}])
def test_a_schedule_that_cannot_be_read_any_more_stops_no_other_task(broken: dict[str, str]) -> None:
    now = datetime(2026, 11, 23, 10, tzinfo=UTC)
    times: dict[str, Any] = {"created": now, "start": now, "next_run": now + timedelta(days=60)}
    late = task_of("ada", time_zone=BERLIN, every="FREQ=DAILY", **times)
    found = find_late([msgspec.structs.replace(late, **broken), late], now)
    assert found[-1] == (late, now + timedelta(days=1))
