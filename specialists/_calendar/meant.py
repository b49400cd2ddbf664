"""Built in: which occurrence of an event is meant. A model names one by its start, or by the day it is moved to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from brain import Refused
from specialists._calendar.events import Event
from specialists._calendar.expand import Happening, Occurrence, Window, difference, main_of
from specialists._calendar.listing import iso
from specialists._calendar.wishes import Wish
from specialists._calendar.zones import Moment, at, day_of

AROUND = timedelta(days=40)
"""How far from a time the occurrence of a series is looked for that is meant by it."""


@dataclass(frozen=True, slots=True)
class Series:
    """An event with its changed occurrences, on the user's clocks."""

    events: Sequence[Event]
    zone: ZoneInfo

    def meant(self, when: Moment | None, scope: str | None, wish: Wish) -> Occurrence:
        """The occurrence that is meant; for a whole series the one that the new start is nearest to."""
        if scope is None:
            raise Refused(
                "the event repeats: ask the user which is meant, then use scope=this with occurrence=its start, "
                "or scope=series"
            )
        if when is None and scope == "this":
            raise Refused("give occurrence, the start of the one that is meant, as the list shows it")
        if when is not None:
            found = self.at(when)
            return found if scope == "this" or self._is(found.start, when) else _in_place(found)
        main = main_of(self.events)
        first = Occurrence(main, main.start, main.end, main.start) if main else None
        if wish.start is not None:
            near = [_in_place(one) for one in self._around(wish.start)]
            first = min(near, key=lambda one: self._days_apart(one.start, wish.start), default=first)
        if first is None:
            raise Refused("the series itself is not in this calendar, only changes to it; use scope=this")
        return first

    def at(self, when: Moment) -> Occurrence:
        """The occurrence that begins then, or began before it was moved.

        Raises:
            Refused: when there is none.
        """
        near = [*self._changes(), *self._around(when)]
        for one in near:
            if self._is(one.original, when) or self._is(one.start, when):
                return one
        if near:
            nearest = min(near, key=lambda one: self._apart(one.start, when))
            known = f"the nearest is {iso(nearest.start, self.zone)}"
        else:
            known = "list the events to see when it happens"
        raise Refused(f"the event has no occurrence at {iso(when, self.zone)}; {known}")

    def first(self, near: Moment | None = None) -> Occurrence:
        """The first occurrence, or the first from a day on."""
        event = main_of(self.events) or self.events[0]
        first = Occurrence(event, event.start, event.end, event.instead_of)
        if near is None:
            return first
        window = Window(at(day_of(near), self.zone), at(near, self.zone) + AROUND, self.zone)
        return min(Happening(window).of_one(self.events), key=self._begins, default=first)

    def next(self, window: Window) -> Occurrence:
        """The first occurrence in a window, else the first of all."""
        return min(Happening(window).of_one(self.events), key=self._begins, default=self.first())

    def of(self, original: Moment | None) -> Occurrence | None:
        """The changed occurrence that began then before it was moved."""
        return next((one for one in self._changes() if original and self._is(one.original, original)), None)

    def _changes(self) -> list[Occurrence]:
        """The occurrences that differ, wherever they were moved to."""
        return [Occurrence(e, e.start, e.end, e.instead_of) for e in self.events if e.instead_of and not e.onward]

    def _around(self, moment: Moment) -> list[Occurrence]:
        middle = at(moment, self.zone)
        return list(Happening(Window(middle - AROUND, middle + AROUND, self.zone)).of_one(self.events))

    def _begins(self, one: Occurrence) -> float:
        return at(one.start, self.zone).timestamp()

    def _is(self, moment: Moment | None, wanted: Moment) -> bool:
        if moment is None:
            return False
        if not isinstance(wanted, datetime):
            return at(moment, self.zone).date() == wanted
        return isinstance(moment, datetime) and at(moment, self.zone).timestamp() == at(wanted, self.zone).timestamp()

    def _apart(self, one: Moment, other: Moment | None) -> float:
        assert other is not None
        return abs(at(one, self.zone).timestamp() - at(other, self.zone).timestamp())

    def _days_apart(self, one: Moment, other: Moment | None) -> tuple[int, float]:
        """Those of the same day are the nearest."""
        assert other is not None
        days = abs((at(one, self.zone).date() - at(other, self.zone).date()).days)
        return days, self._apart(one, other)


def _in_place(occurrence: Occurrence) -> Occurrence:
    """An occurrence that was moved alone, where its series has it."""
    original, event = occurrence.original, occurrence.event
    if original is None or event.instead_of is None or event.onward:
        return occurrence
    return replace(occurrence, start=original, end=original + difference(occurrence.end, occurrence.start))
