"""Find the occurrences of events in a window. recurring-ical-events evaluates the rules, within limits."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from specialists._calendar.ics_read import Event, File
from specialists._calendar.rules import MAX_OCCURRENCES, MAX_WORK, BadRule, Rule, parse_rule
from specialists._calendar.zones import Moment, localize, resolve_end, to_date

_MAX_RANGE_CHANGES = 100
"""Maximum number of RANGE=THISANDFUTURE changes; each is compared with each occurrence."""
_NUMBER = "X-NUMBER"
_MARGIN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Window:
    """A period in a user's time zone; `end` is exclusive."""

    start: datetime
    end: datetime
    zone: ZoneInfo


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One occurrence of an event; `original` is its start in the series, None for a single event."""

    event: Event
    start: Moment
    end: Moment
    original: Moment | None = None

    @property
    def all_day(self) -> bool:
        return not isinstance(self.start, datetime)


def make_occurrence(event: Event) -> Occurrence:
    """Return the occurrence that the file itself describes."""
    return Occurrence(event, event.start, event.end, event.recurrence_id)


@dataclass(slots=True)
class Expander:
    """Finds occurrences in a window; `left_out` lists skipped series with the reason."""

    window: Window
    seconds_left: Callable[[], float] = lambda: 1.0
    left_out: list[str] = field(default_factory=list)

    def file_occurrences(self, file: File) -> Iterator[tuple[str, Occurrence]]:
        """Yield the occurrences of a file in the window, with their UIDs."""
        for uid, events in file.series.items():
            if self.seconds_left() <= 0:
                self.left_out.append("events that were not read in time (use one calendar, or a shorter period)")
                return
            yield from ((uid, occurrence) for occurrence in self.series_occurrences(events))

    def series_occurrences(self, events: Sequence[Event]) -> Iterator[Occurrence]:
        """Yield the occurrences of one event or series in the window."""
        last = self.window.end + _MARGIN
        if len(events) == 1 and not events[0].repeats:
            found = [make_occurrence(events[0])]
        elif all(localize(event.start, self.window.zone) > last and not event.extra_dates for event in events):
            found = []  # without evaluating the rules
        else:
            found = self._expand(events)
        return (occurrence for occurrence in found if overlaps_window(occurrence, self.window))

    def _expand(self, events: Sequence[Event]) -> list[Occurrence]:
        title = repr(" ".join(events[0].title.split())[:40])
        try:
            series = _Series(events)
            work = sum(rule.work(start, self.window.end.date() + _MARGIN) for rule, start in series.rules)
            if work > MAX_WORK or series.max_occurrences(self.window) > MAX_OCCURRENCES:
                self.left_out.append(f"{title} (repeats too often)")
                return []
            return list(series.between(self.window))
        except BadRule as error:
            self.left_out.append(f"repeats of {title} (unsupported rule: {error})")
            return [make_occurrence(event) for event in events]


class _Series:
    """A repeating event with its changed occurrences.

    Args:
        events: all events with one UID.

    Raises:
        BadRule: if a rule is not supported.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        import icalendar
        import recurring_ical_events

        if sum(event.this_and_future for event in events) > _MAX_RANGE_CHANGES:
            raise BadRule(f"more than {_MAX_RANGE_CHANGES} changes to later occurrences")
        self.rules: list[tuple[Rule, Moment]] = []
        self._events = {event.number: event for event in events}
        calendar = icalendar.Calendar()
        for event in events:
            calendar.add_component(self._component(event))
        with _refuse_errors():
            self._query = recurring_ical_events.CalendarQuery(calendar)

    def max_occurrences(self, window: Window) -> int:
        """Return an upper bound for the occurrences in a window, including long ones that begin before it."""
        longest = max((to_date(event.end) - to_date(event.start)).days for event in self._events.values())
        return sum(rule.max_occurrences(longest + (window.end - window.start).days + 3) for rule, _ in self.rules)

    def between(self, window: Window) -> Iterator[Occurrence]:
        """Yield the occurrences in and around a window."""
        start, end = (moment.replace(tzinfo=None) for moment in (window.start - _MARGIN, window.end + _MARGIN))
        with _refuse_errors():
            found = self._query.between(start.replace(tzinfo=window.zone), end.replace(tzinfo=window.zone))
        for component in found:
            event = self._events[int(component[_NUMBER])]
            begin, finish = component["DTSTART"].dt, resolve_end(component["DTSTART"].dt, component["DTEND"].dt)
            if event.this_and_future and event.recurrence_id is not None:
                original = begin - subtract_local(event.start, event.recurrence_id)
            else:
                original = event.recurrence_id or begin
            yield Occurrence(event, begin, finish, original)

    def _component(self, event: Event) -> Any:
        import icalendar
        from icalendar.prop import vDDDLists, vDDDTypes

        component = icalendar.Event()
        component["UID"] = event.uid
        component["SEQUENCE"] = event.sequence
        component["DTSTART"] = vDDDTypes(event.start)
        component["DTEND"] = vDDDTypes(event.end)
        component[_NUMBER] = str(event.number)
        if event.recurrence_id is not None:
            component["RECURRENCE-ID"] = vDDDTypes(event.recurrence_id)
            if event.this_and_future:
                component["RECURRENCE-ID"].params["RANGE"] = "THISANDFUTURE"
            if not event.rules:
                return component
        rules = [parse_rule(text, event.start) for text in event.rules]
        self.rules += [(rule, event.start) for rule in rules]
        component["RRULE"] = [icalendar.vRecur.from_ical(rule.text) for rule in rules]
        component["RDATE"] = vDDDLists(event.extra_dates)
        component["EXDATE"] = vDDDLists(event.excluded_dates)
        return component


@contextmanager
def _refuse_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # dateutil raises many types for contradictory values
        raise BadRule("contradictory values") from error


def subtract_local(later: Moment, earlier: Moment) -> timedelta:
    """Return the difference of two moments, in local time if both have a zone or neither does."""
    if isinstance(later, datetime) and isinstance(earlier, datetime) and bool(later.tzinfo) == bool(earlier.tzinfo):
        return later - earlier
    return to_date(later) - to_date(earlier)


def overlaps_window(occurrence: Occurrence, window: Window) -> bool:
    """Return whether an occurrence overlaps the window; one without duration counts at its start."""
    event = occurrence.event
    if event.timestamps is not None and occurrence.start is event.start:
        first, last = event.timestamps
    else:
        first, last = (localize(moment, window.zone).timestamp() for moment in (occurrence.start, occurrence.end))
    start, end = window.start.timestamp(), window.end.timestamp()
    return first < end and (start < last if first < last else start <= first)
