"""When events happen. Series are expanded by recurring-ical-events, each as far as it is bound to end."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from specialists._calendar.ics_read import Event, File
from specialists._calendar.rules import OCCURRENCES_MOST, WORK_MOST, BadRule, Rule, read
from specialists._calendar.times import Moment, at, day_of, end_of

_ONWARD_MOST = 100
"""Changes of all later occurrences; each is compared with each occurrence."""
_NUMBER = "X-NUMBER"
_AROUND = timedelta(days=1)


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
class Happening:
    """What happens in a window, of the files that were looked into; and the titles of the series left out, with why."""

    window: Window
    seconds_left: Callable[[], float] = lambda: 1.0
    left_out: list[str] = field(default_factory=list)

    def of(self, file: File) -> Iterator[tuple[str, Occurrence]]:
        """The occurrences of a file that touch the window, by UID."""
        for uid, events in file.series.items():
            if self.seconds_left() <= 0:
                self.left_out.append("what there was no time for: ask for one calendar, or a shorter time")
                return
            yield from ((uid, occurrence) for occurrence in self.of_one(events))

    def of_one(self, events: Sequence[Event]) -> Iterator[Occurrence]:
        """The occurrences of one event or series that touch the window."""
        if len(events) == 1 and not events[0].repeats:
            found = [Occurrence(events[0], events[0].start, events[0].end, events[0].instead_of)]
        else:
            found = [] if self._later(events) else self._of_series(events)
        return (occurrence for occurrence in found if touches(occurrence, self.window))

    def _later(self, events: Sequence[Event]) -> bool:
        """Whether nothing of a series can be in the window yet, so that its rules need not be followed."""
        last = self.window.end + _AROUND
        return all(at(e.start, self.window.zone) > last and not e.added for e in events)

    def _of_series(self, events: Sequence[Event]) -> list[Occurrence]:
        try:
            return self._expanded(events)
        except BadRule as error:
            why = f"a rule that cannot be followed ({error})"
            self.left_out.append(f"{_called(events)} repeats by {why}, and is shown once")
            return [Occurrence(event, event.start, event.end, event.instead_of) for event in events]

    def _expanded(self, events: Sequence[Event]) -> list[Occurrence]:
        series = Series(events)
        if series.work(self.window.end.date()) > WORK_MOST or series.most(self.window) > OCCURRENCES_MOST:
            self.left_out.append(f"{_called(events)} repeats too often to be listed")
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

        if sum(event.onward for event in events) > _ONWARD_MOST:
            raise BadRule("it is changed too often")
        self._events = {event.number: event for event in events}
        self._main = main_of(events)
        self._rules: list[tuple[Rule, Moment]] = []
        calendar = icalendar.Calendar()
        for event in events:
            calendar.add_component(self._component(event))
        with _refusing():
            self._query = recurring_ical_events.CalendarQuery(calendar)

    def work(self, until: date) -> int:
        """About how many steps it takes to follow its rules up to a day."""
        return sum(rule.work(start, until + _AROUND) for rule, start in self._rules)

    def most(self, window: Window) -> int:
        """How many of its occurrences touch a window at most; long ones do so from long before."""
        longest = max((day_of(event.end) - day_of(event.start)).days for event in self._events.values())
        return sum(rule.most(longest + (window.end - window.start).days + 3) for rule, _ in self._rules)

    def between(self, window: Window) -> Iterator[Occurrence]:
        """Its occurrences around a window."""
        start, end = (moment.replace(tzinfo=None) for moment in (window.start - _AROUND, window.end + _AROUND))
        with _refusing():
            found = self._query.between(start.replace(tzinfo=window.zone), end.replace(tzinfo=window.zone))
        for component in found:
            event = self._events[int(component[_NUMBER])]
            begin, finish = component["DTSTART"].dt, end_of(component["DTSTART"].dt, component["DTEND"].dt)
            if event.onward and event.instead_of is not None:
                original = begin - difference(event.start, event.instead_of)
            else:
                original = event.instead_of or begin
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
        if event.instead_of is not None:
            component["RECURRENCE-ID"] = vDDDTypes(self._replaced(event.instead_of))
            if event.onward:
                component["RECURRENCE-ID"].params["RANGE"] = "THISANDFUTURE"
            if not event.rules:
                return component
        component["RRULE"] = [icalendar.vRecur.from_ical(rule.text) for rule in self._checked(event)]
        component["RDATE"] = vDDDLists(event.added)
        component["EXDATE"] = vDDDLists(event.removed)
        return component

    def _checked(self, event: Event) -> list[Rule]:
        rules = [read(text, event.start) for text in event.rules]
        self._rules += [(rule, event.start) for rule in rules]
        return rules

    def _replaced(self, moment: Moment) -> Moment:
        """The time of the series that an event stands for; some programs name only its day."""
        main = self._main
        if main is not None and isinstance(main.start, datetime) and not isinstance(moment, datetime):
            return datetime.combine(moment, main.start.timetz())
        return moment


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # dateutil raises nearly anything for what makes no sense together
        raise BadRule("it makes no sense") from error


def main_of(events: Sequence[Event]) -> Event | None:
    """The event that a series is made from; the newest version of it."""
    return max((e for e in events if e.instead_of is None), key=lambda event: event.sequence, default=None)


def _called(events: Sequence[Event]) -> str:
    """A series in a note."""
    return repr(" ".join(events[0].title.split())[:40])


def difference(later: Moment, earlier: Moment) -> timedelta:
    """How far apart two moments are, by their own clocks if they have the same."""
    if isinstance(later, datetime) and isinstance(earlier, datetime) and bool(later.tzinfo) == bool(earlier.tzinfo):
        return later - earlier
    return day_of(later) - day_of(earlier)


def touches(occurrence: Occurrence, window: Window) -> bool:
    """Whether it happens in the window; one that takes no time does so at its start."""
    event = occurrence.event
    if event.instants is not None and occurrence.start is event.start:
        first, last = event.instants
    else:
        first, last = (at(moment, window.zone).timestamp() for moment in (occurrence.start, occurrence.end))
    if first >= last:
        return window.start.timestamp() <= first < window.end.timestamp()
    return first < window.end.timestamp() and window.start.timestamp() < last
