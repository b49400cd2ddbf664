"""Find the occurrence of a series that a call names, by its current or original start."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from brain import Refused
from specialists._calendar.draft import EventDraft
from specialists._calendar.expand import Expander, Occurrence, Window, make_occurrence, subtract_local
from specialists._calendar.ics_read import Event, find_main
from specialists._calendar.listing import iso_minutes
from specialists._calendar.zones import Moment, localize, to_date

SEARCH_MARGIN = timedelta(days=40)
"""Range of the search before and after a time."""
NO_SERIES = ("this calendar contains only changed occurrences, not the series itself", "use scope=this")


@dataclass(frozen=True, slots=True)
class SeriesOccurrences:
    """The occurrences of one UID in the user's time zone."""

    events: Sequence[Event]
    zone: ZoneInfo

    def resolve(self, start: Moment | None, scope: str | None, draft: EventDraft) -> Occurrence:
        """Return the occurrence that a call names; for a series, by default the one nearest to the new start.

        Raises:
            Refused: if the call is ambiguous, or there is no such occurrence.
        """
        if scope is None:
            raise Refused(
                "the event repeats",
                "ask the user which occurrence is meant, then use scope=this and occurrence=its start, or scope=series",
            )
        if start is None and scope == "this":
            raise Refused("no occurrence was given", "give occurrence, its start as listed")
        if start is not None:
            found = self.starting_at(start)
            return found if scope == "this" or self._is_same_time(found.start, start) else _at_original_time(found)
        main = find_main(self.events)
        first = Occurrence(main, main.start, main.end, main.start) if main else None
        if draft.start is not None:
            target = localize(draft.start, self.zone)
            near = [_at_original_time(one) for one in self._occurrences_near(draft.start)]

            def distance(one: Occurrence) -> tuple[int, float]:  # the same day first
                begin = localize(one.start, self.zone)
                days = abs((begin.date() - target.date()).days)
                return days, abs(begin.timestamp() - target.timestamp())

            first = min(near, key=distance, default=first)
        if first is None:
            raise Refused(*NO_SERIES)
        return first

    def starting_at(self, start: Moment) -> Occurrence:
        """Return the occurrence with this current or original start.

        Raises:
            Refused: if there is no such occurrence.
        """
        near = [*self._changed_occurrences(), *self._occurrences_near(start)]
        for one in near:
            if self._is_same_time(one.original, start) or self._is_same_time(one.start, start):
                return one
        advice = "list the events to see its occurrences"
        if near:
            target = localize(start, self.zone).timestamp()
            nearest = min(near, key=lambda one: abs(localize(one.start, self.zone).timestamp() - target))
            advice = f"the nearest is {iso_minutes(nearest.start, self.zone)}"
        raise Refused(f"the event has no occurrence at {iso_minutes(start, self.zone)}", advice)

    def first(self, near: Moment | None = None) -> Occurrence:
        """Return the first occurrence, or the first one from the day of `near` on."""
        first = make_occurrence(find_main(self.events) or self.events[0])
        if near is None:
            return first
        return self.next(
            Window(localize(to_date(near), self.zone), localize(near, self.zone) + SEARCH_MARGIN, self.zone)
        )

    def next(self, window: Window) -> Occurrence:
        """Return the first occurrence in a window, or else the very first."""
        found = Expander(window).series_occurrences(self.events)
        return min(found, key=lambda one: localize(one.start, self.zone).timestamp(), default=self.first())

    def changed_occurrence(self, original: Moment | None) -> Occurrence | None:
        """Return the changed occurrence with this original start, or None."""
        changed = (
            one for one in self._changed_occurrences() if original and self._is_same_time(one.original, original)
        )
        return next(changed, None)

    def _changed_occurrences(self) -> list[Occurrence]:
        return [make_occurrence(e) for e in self.events if e.recurrence_id and not e.this_and_future]

    def _occurrences_near(self, moment: Moment) -> list[Occurrence]:
        middle = localize(moment, self.zone)
        window = Window(middle - SEARCH_MARGIN, middle + SEARCH_MARGIN, self.zone)
        return list(Expander(window).series_occurrences(self.events))

    def _is_same_time(self, moment: Moment | None, expected: Moment) -> bool:
        """Return whether a moment equals an expected time, or falls on an expected day."""
        if moment is None:
            return False
        if not isinstance(expected, datetime):
            return localize(moment, self.zone).date() == expected
        return (
            isinstance(moment, datetime)
            and localize(moment, self.zone).timestamp() == localize(expected, self.zone).timestamp()
        )


def _at_original_time(occurrence: Occurrence) -> Occurrence:
    """Return the occurrence at its original time, if it was moved alone."""
    original, event = occurrence.original, occurrence.event
    if original is None or event.recurrence_id is None or event.this_and_future:
        return occurrence
    return replace(occurrence, start=original, end=original + subtract_local(occurrence.end, occurrence.start))
