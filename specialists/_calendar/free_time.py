"""Finds free time. Pure: busy times and working hours go in, free stretches come out."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from specialists._calendar.expand import Window
from specialists._calendar.times import at

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
ROUND_TO = timedelta(minutes=5)
_HOURS = re.compile(r"(?P<days>[a-z]{3}(?:[-,][a-z]{3})*)\s+(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d)")


@dataclass(frozen=True, slots=True)
class Hours:
    """When a user works; `days` are weekdays, Monday is 0."""

    days: frozenset[int]
    start: time
    end: time


Span = tuple[datetime, datetime]


def hours_of(text: str) -> Hours:
    """Reads `mon-fri 09:00-17:00`.

    Raises:
        ValueError: when it is not of that form.
    """
    found = _HOURS.fullmatch(text.strip().lower())
    if not found:
        raise ValueError("it must be such as mon-fri 09:00-17:00")
    days: set[int] = set()
    for part in found["days"].split(","):
        first, _, last = part.partition("-")
        start, end = DAYS.index(first), DAYS.index(last or first)
        days |= set(range(start, end + 1)) if start <= end else {*range(start, 7), *range(end + 1)}
    hours = Hours(frozenset(days), time.fromisoformat(found["start"]), time.fromisoformat(found["end"]))
    if hours.start >= hours.end:
        raise ValueError("its end must be after its start")
    return hours


def working(window: Window, hours: Hours) -> Iterator[Span]:
    """The working times in a window."""
    day = window.start.date()
    while day <= window.end.date():
        if day.weekday() in hours.days:
            start = max(_at(day, hours.start, window), window.start, key=datetime.timestamp)
            end = min(_at(day, hours.end, window), window.end, key=datetime.timestamp)
            if start.timestamp() < end.timestamp():
                yield start, end
        day += timedelta(days=1)


def _at(day: date, clock: time, window: Window) -> datetime:
    return at(datetime.combine(day, clock), window.zone)


def free(spans: Iterable[Span], busy: Iterable[Span], minimum: timedelta) -> Iterator[Span]:
    """The parts of `spans` that are at least so long and that nothing in `busy` touches; starts on full 5 minutes."""
    taken = sorted((span for span in busy if span[0] != span[1]), key=lambda span: span[0].timestamp())
    for start, end in spans:
        at_least = start
        for first, last in taken:
            if last.timestamp() <= at_least.timestamp():
                continue
            if first.timestamp() >= end.timestamp():
                break
            yield from _long_enough(at_least, first, minimum)
            at_least = last
        yield from _long_enough(at_least, end, minimum)


def _long_enough(start: datetime, end: datetime, minimum: timedelta) -> Iterator[Span]:
    start = rounded(start)
    if end.timestamp() - start.timestamp() >= minimum.total_seconds():
        yield start, end


def rounded(moment: datetime) -> datetime:
    """The next full five minutes."""
    step = ROUND_TO.total_seconds()
    over = moment.timestamp() % step
    return datetime.fromtimestamp(moment.timestamp() + (step - over if over else 0), moment.tzinfo)
