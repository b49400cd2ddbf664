"""When events happen. Series are expanded by recurring-ical-events, each as far as it is bound to end."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from specialists._calendar.ics_read import Event, File
from specialists._calendar.rules import MAX_OCCURRENCES, MAX_WORK, BadRule, Rule, parse_rule
from specialists._calendar.times import Moment, at, day_of, end_of

_MAX_ONWARD = 100
"""Changes of all later occurrences; each is compared with each occurrence."""
_NUMBER = "X-NUMBER"
_MARGIN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time on a user's clocks; its end is outside of it."""

    start: datetime
    end: datetime
    zone: ZoneInfo


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One time that an event happens; `original` is when its series has it, None for what happens once."""

    event: Event
    start: Moment
    end: Moment
    original: Moment | None = None

    @property
    def all_day(self) -> bool:
        return not isinstance(self.start, datetime)


@dataclass(slots=True)
class Expander:
    """Finds occurrences in a window. `left_out` names each series that it skips, with the reason."""

    window: Window
    seconds_left: Callable[[], float] = lambda: 1.0
    left_out: list[str] = field(default_factory=list)

    def file_occurrences(self, file: File) -> Iterator[tuple[str, Occurrence]]:
        """The occurrences of a file that touch the window, by UID."""
        for uid, events in file.series.items():
            if self.seconds_left() <= 0:
                self.left_out.append("what there was no time for: ask for one calendar, or a shorter time")
                return
            yield from ((uid, occurrence) for occurrence in self.series_occurrences(events))

    def series_occurrences(self, events: Sequence[Event]) -> Iterator[Occurrence]:
        """The occurrences of one event or series that touch the window."""
        if len(events) == 1 and not events[0].repeats:
            found = [Occurrence(events[0], events[0].start, events[0].end, events[0].recurrence_id)]
        else:
            found = [] if self._starts_after_window(events) else self._occurrences_or_once(events)
        return (occurrence for occurrence in found if touches(occurrence, self.window))

    def _starts_after_window(self, events: Sequence[Event]) -> bool:
        """Whether nothing of a series can be in the window yet, so that its rules need not be followed."""
        last = self.window.end + _MARGIN
        return all(at(e.start, self.window.zone) > last and not e.extra_dates for e in events)

    def _occurrences_or_once(self, events: Sequence[Event]) -> list[Occurrence]:
        try:
            return self._expanded(events)
        except BadRule as error:
            why = f"a rule that cannot be followed ({error})"
            self.left_out.append(f"{_quoted_title(events)} repeats by {why}, and is shown once")
            return [Occurrence(event, event.start, event.end, event.recurrence_id) for event in events]

    def _expanded(self, events: Sequence[Event]) -> list[Occurrence]:
        series = Series(events)
        if series.work(self.window.end.date()) > MAX_WORK or series.max_occurrences(self.window) > MAX_OCCURRENCES:
            self.left_out.append(f"{_quoted_title(events)} repeats too often to be listed")
            return []
        return list(series.between(self.window))


class Series:
    """An event that repeats, with the occurrences that differ.

    Args:
        events: all with one UID.

    Raises:
        BadRule: when it has a rule that cannot be followed.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        import icalendar
        import recurring_ical_events

        if sum(event.this_and_future for event in events) > _MAX_ONWARD:
            raise BadRule("it is changed too often")
        self._events = {event.number: event for event in events}
        self._main = main_of(events)
        self._rules: list[tuple[Rule, Moment]] = []
        calendar = icalendar.Calendar()
        for event in events:
            calendar.add_component(self._component(event))
        with _refuse_errors():
            self._query = recurring_ical_events.CalendarQuery(calendar)

    def work(self, until: date) -> int:
        """About how many steps it takes to follow its rules up to a day."""
        return sum(rule.work(start, until + _MARGIN) for rule, start in self._rules)

    def max_occurrences(self, window: Window) -> int:
        """How many of its occurrences touch a window at most; long ones do so from long before."""
        longest = max((day_of(event.end) - day_of(event.start)).days for event in self._events.values())
        return sum(rule.max_occurrences(longest + (window.end - window.start).days + 3) for rule, _ in self._rules)

    def between(self, window: Window) -> Iterator[Occurrence]:
        """Its occurrences around a window."""
        start, end = (moment.replace(tzinfo=None) for moment in (window.start - _MARGIN, window.end + _MARGIN))
        with _refuse_errors():
            found = self._query.between(start.replace(tzinfo=window.zone), end.replace(tzinfo=window.zone))
        for component in found:
            event = self._events[int(component[_NUMBER])]
            begin, finish = component["DTSTART"].dt, end_of(component["DTSTART"].dt, component["DTEND"].dt)
            if event.this_and_future and event.recurrence_id is not None:
                original = begin - local_difference(event.start, event.recurrence_id)
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
            component["RECURRENCE-ID"] = vDDDTypes(self._original_start(event.recurrence_id))
            if event.this_and_future:
                component["RECURRENCE-ID"].params["RANGE"] = "THISANDFUTURE"
            if not event.rules:
                return component
        component["RRULE"] = [icalendar.vRecur.from_ical(rule.text) for rule in self._parsed_rules(event)]
        component["RDATE"] = vDDDLists(event.extra_dates)
        component["EXDATE"] = vDDDLists(event.excluded_dates)
        return component

    def _parsed_rules(self, event: Event) -> list[Rule]:
        rules = [parse_rule(text, event.start) for text in event.rules]
        self._rules += [(rule, event.start) for rule in rules]
        return rules

    def _original_start(self, moment: Moment) -> Moment:
        """The time of the series that an event stands for; some programs name only its day."""
        main = self._main
        if main is not None and isinstance(main.start, datetime) and not isinstance(moment, datetime):
            return datetime.combine(moment, main.start.timetz())
        return moment


@contextmanager
def _refuse_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # dateutil raises nearly anything for what makes no sense together
        raise BadRule("it makes no sense") from error


def main_of(events: Sequence[Event]) -> Event | None:
    """The event that a series is made from; the newest version of it."""
    return max((e for e in events if e.recurrence_id is None), key=lambda event: event.sequence, default=None)


def _quoted_title(events: Sequence[Event]) -> str:
    """A series in a note."""
    return repr(" ".join(events[0].title.split())[:40])


def local_difference(later: Moment, earlier: Moment) -> timedelta:
    """How far apart two moments are, by their own clocks if they have the same."""
    if isinstance(later, datetime) and isinstance(earlier, datetime) and bool(later.tzinfo) == bool(earlier.tzinfo):
        return later - earlier
    return day_of(later) - day_of(earlier)


def touches(occurrence: Occurrence, window: Window) -> bool:
    """Whether it happens in the window; one that takes no time does so at its start."""
    event = occurrence.event
    if event.timestamps is not None and occurrence.start is event.start:
        first, last = event.timestamps
    else:
        first, last = (at(moment, window.zone).timestamp() for moment in (occurrence.start, occurrence.end))
    if first >= last:
        return window.start.timestamp() <= first < window.end.timestamp()
    return first < window.end.timestamp() and window.start.timestamp() < last
