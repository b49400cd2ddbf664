"""Find free time from busy times and working hours."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, time, timedelta

from brain import dates
from specialists._calendar.expand import Window
from specialists._calendar.zones import localize

_DAYS = [name[:3].lower() for name in dates.DAY_NAMES]
_STEP = 300
"""Free times start at multiples of this number of seconds."""
_HOURS = re.compile(r"(?P<days>[a-z]{3}(?:[-,][a-z]{3})*)\s+(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d)")
Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Hours:
    """Working hours; `days` are weekdays, Monday is 0."""

    days: frozenset[int]
    start: time
    end: time


def parse_hours(text: str) -> Hours:
    """Parse hours such as `mon-fri 09:00-17:00`.

    Raises:
        ValueError: if the text has another form.
    """
    found = _HOURS.fullmatch(text.strip().lower())
    if not found:
        raise ValueError("use a form such as mon-fri 09:00-17:00")
    days: set[int] = set()
    for part in found["days"].split(","):
        first, _, last = part.partition("-")
        start, end = _DAYS.index(first), _DAYS.index(last or first)
        days |= set(range(start, end + 1)) if start <= end else {*range(start, 7), *range(end + 1)}
    hours = Hours(frozenset(days), time.fromisoformat(found["start"]), time.fromisoformat(found["end"]))
    if hours.start >= hours.end:
        raise ValueError("the end must be after the start")
    return hours


def list_working_times(window: Window, hours: Hours) -> Iterator[Span]:
    """Yield the working times in a window."""
    day = window.start.date()
    while day <= window.end.date():
        if day.weekday() in hours.days:
            start, end = (localize(datetime.combine(day, clock), window.zone) for clock in (hours.start, hours.end))
            start = max(start, window.start, key=datetime.timestamp)
            end = min(end, window.end, key=datetime.timestamp)
            if start.timestamp() < end.timestamp():
                yield start, end
        day += timedelta(days=1)


def find_free(spans: Iterable[Span], busy: Iterable[Span], minimum: timedelta) -> Iterator[Span]:
    """Yield the parts of `spans` that are free and long enough; they start at full five minutes."""
    blocked = sorted((span for span in busy if span[0] != span[1]), key=lambda span: span[0].timestamp())
    for start, end in spans:
        free_from = start
        for first, last in [*blocked, (end, end)]:
            if last.timestamp() <= free_from.timestamp():
                continue
            until = min(first, end, key=datetime.timestamp)
            rounded = datetime.fromtimestamp(-(-free_from.timestamp() // _STEP) * _STEP, free_from.tzinfo)
            if until.timestamp() - rounded.timestamp() >= minimum.total_seconds():
                yield rounded, until
            free_from = last
