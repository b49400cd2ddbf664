"""Read the dates and times of a call."""

import re
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from brain import Refused, dates
from specialists._calendar.zones import Moment, localize, to_date

YEARS = (1900, 2149)
_YEAR = re.compile(r"\s*[0-9]{4}")


def parse_time(text: str, now: datetime, *, name: str = "start") -> Moment:
    """Return a date, or a time in the zone of `now`.

    Args:
        name: name of the parameter, for the error message.

    Raises:
        Refused: if the text is not a date or time, or is ambiguous.
    """
    zone = now.tzinfo
    assert isinstance(zone, ZoneInfo)
    found = _parse(text, now, name)
    if found is None or found.first != found.last or not YEARS[0] <= found.first.year <= YEARS[1]:
        raise Refused(f"{name} {text[:40]!r} is not a clear date or time", "use ISO 8601, such as 2026-03-30T09:00")
    if found.at is None:
        return found.first
    at = found.at.replace(second=0, microsecond=0) if dates.is_delay(text) else found.at
    return localize(datetime.combine(found.first, at), zone)


def parse_period(text: str | None, now: datetime) -> dates.Period | None:
    """Return the days of words such as `next week` and `tonight`; None for a date in ISO 8601 and for other texts."""
    found = _parse(text, now, "start") if text and not _YEAR.match(text) else None
    return dates.Period(found.first, found.last) if found else None


def find_days(sentence: str, now: datetime) -> dates.Period | None:
    """Return the first and last day that a sentence names, or None."""
    try:
        return dates.find_days(sentence, now)
    except dates.AmbiguousDate as error:
        raise _refuse("query", error) from None


def is_time_of_day(text: str | None) -> bool:
    """Return whether a text is a time without a date."""
    return text is not None and dates.is_time_of_day(text)


def end_previous_day(day: Moment, now: datetime) -> datetime:
    """Return the second before a day begins; relative to it, a time without a date is on that day."""
    return datetime.combine(to_date(day), time(), now.tzinfo) - timedelta(seconds=1)


def _parse(text: str, now: datetime, name: str) -> dates.When | None:
    try:
        return dates.parse_time(text, now)
    except dates.AmbiguousDate as error:
        raise _refuse(name, error) from None


def _refuse(name: str, error: dates.AmbiguousDate) -> Refused:
    reason, _, advice = str(error).partition("; ")
    return Refused(f"{name} is ambiguous: {reason}", advice)
