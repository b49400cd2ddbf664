"""Recurrences give the times that dateutil gives."""

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as st

from brain.dates import WEEK
from brain.recurrence import MINUTES, occurrences, read_rule

COUNT = 40
STARTS = st.datetimes(datetime(2020, 1, 1), datetime(2030, 12, 31)).map(lambda at: at.replace(second=0, microsecond=0))
WEEKDAYS = st.sets(st.sampled_from(WEEK), min_size=1, max_size=4).map(",".join)
NUMBERED_DAYS = st.sets(
    st.tuples(st.sampled_from((-2, -1, 1, 2, 5)), st.sampled_from(WEEK)).map(lambda day: f"{day[0]}{day[1]}"),
    min_size=1, max_size=3,
).map(",".join)  # fmt: skip


def numbers(*values: int) -> st.SearchStrategy[str]:
    return st.sets(st.sampled_from(values), min_size=1, max_size=4).map(lambda found: ",".join(map(str, sorted(found))))


@st.composite
def rules(draw: st.DrawFn) -> str:
    """Rules of all frequencies, without those that dateutil reads in its own way, or searches for minutes."""
    freq = draw(st.sampled_from(("YEARLY", "MONTHLY", "WEEKLY", "DAILY", *MINUTES)))
    options = {
        "INTERVAL": st.integers(1, 5).map(str),
        "BYMONTH": numbers(*range(1, 13)),
        "BYMONTHDAY": numbers(*range(-31, 0), *range(1, 32)),
        "BYDAY": WEEKDAYS,
        "WKST": st.sampled_from(WEEK),
    }
    if freq in MINUTES:
        del options["BYMONTH"], options["BYMONTHDAY"]
    if freq == "MINUTELY":
        options["INTERVAL"] = st.integers(20, 300).map(str)
    else:
        options["BYMINUTE"] = numbers(*range(60))
    if freq not in MINUTES:
        options["BYHOUR"] = numbers(*range(24))
    if freq in ("YEARLY", "MONTHLY"):
        options["BYDAY"] = st.one_of(WEEKDAYS, NUMBERED_DAYS)
        options["BYSETPOS"] = numbers(-3, -2, -1, 1, 2, 3)
    names = sorted(draw(st.sets(st.sampled_from(sorted(options)), max_size=4)))
    return ";".join([f"FREQ={freq}", *(f"{name}={draw(options[name])}" for name in names)])


@settings(max_examples=100, deadline=None)
@given(rules(), STARTS, st.integers(0, 300))
def test_recurrences_equal_those_of_dateutil(text: str, start: datetime, days: int) -> None:
    last, begin = start + timedelta(days=3 * 366), start.replace(tzinfo=UTC)
    theirs = rrulestr(f"{text};UNTIL={last:%Y%m%dT%H%M%S}", dtstart=start)
    expected = [at.replace(tzinfo=UTC) for at in islice(theirs, COUNT)]

    def find(after: datetime) -> list[datetime]:
        found = (at for at in occurrences(read_rule(text), begin, ZoneInfo("UTC"), after) if at >= after)
        return list(islice(takewhile(lambda at: at <= last.replace(tzinfo=UTC), found), COUNT))

    assert find(begin) == expected
    later = [at for at in expected if at >= begin + timedelta(days=days)]  # a search that begins later finds the same
    assert find(begin + timedelta(days=days))[: len(later)] == later
