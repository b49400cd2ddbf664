"""The parameters of one call, and their interpretation."""

from dataclasses import dataclass
from datetime import datetime

from specialists._calendar.actions import UserCalendars
from specialists._calendar.draft import EventDraft
from specialists._calendar.times import end_previous_day, find_days, is_time_of_day, parse_period, parse_time
from specialists._calendar.zones import Moment


@dataclass(frozen=True, slots=True)
class CalendarRequest:
    """The parameters of a call."""

    action: str = "list"
    start: str | None = None
    end: str | None = None
    duration_minutes: int | None = None
    title: str | None = None
    location: str | None = None
    description: str | None = None
    repeat: str | None = None
    event_id: str | None = None
    scope: str | None = None
    occurrence: str | None = None
    calendar: str | None = None
    query: str | None = None
    max_results: int = 20

    def occurrence_start(self, now: datetime) -> Moment | None:
        """Return the start of the occurrence that the call names, or None."""
        return parse_time(self.occurrence, now, name="occurrence") if self.occurrence else None

    def search_words(self, message: str) -> str | None:
        """Return the words that an event must contain; None if the query only repeats the user's message."""
        return None if self._repeats_message(message) else self.query

    def draft(self, calendars: UserCalendars, message: str) -> EventDraft:
        """Return the requested state of an event, or the times and words to search for."""
        now, start, days = calendars.now, self.start, None
        if self.action in ("list", "free") and not self.end and (days := parse_period(start, now)):
            start = None
        event: datetime | None = None
        if self.action == "update" and self.event_id and (is_time_of_day(start) or is_time_of_day(self.end)):
            event = calendars.find_start(self.event_id, self.occurrence_start(now))
        first, last = self._parse_times(start, now, event)
        if not (first or last or days) and self._repeats_message(message):
            days = find_days(self.query or "", now)
        first, last = days or (first, last)
        texts = self.title or None, self.location, self.description
        return EventDraft(*texts, first, last, self.duration_minutes, self.repeat or None)

    def _parse_times(
        self, start: str | None, now: datetime, event: datetime | None
    ) -> tuple[Moment | None, Moment | None]:
        """Return start and end. A time without a date is on the day of the event, and an end is after the start."""
        first = last = None
        if start:
            is_same_day = event is not None and is_time_of_day(start)
            first = parse_time(start, end_previous_day(event, now) if event and is_same_day else now)
        begin = first or event
        if self.end and begin is not None and is_time_of_day(self.end):
            last = parse_time(
                self.end, begin if isinstance(begin, datetime) else end_previous_day(begin, now), name="end"
            )
        elif self.end:
            last = parse_time(self.end, now, name="end")
        return first, last

    def _repeats_message(self, message: str) -> bool:
        return bool(self.query) and (self.query or "").strip() == message.strip()
