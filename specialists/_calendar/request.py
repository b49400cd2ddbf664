"""The parameters of one call, and how its times are read."""

from dataclasses import dataclass
from datetime import datetime

from specialists._calendar import times
from specialists._calendar.actions import UserCalendars
from specialists._calendar.draft import EventDraft
from specialists._calendar.times import Moment


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
        return times.parse_time(self.occurrence, now, name="occurrence") if self.occurrence else None

    def search_words(self, message: str) -> str | None:
        """What an event must have in it; a message that is passed on as it is says when, and nothing of that."""
        return None if self._repeats_message(message) else self.query

    def draft(self, calendars: UserCalendars, message: str) -> EventDraft:
        """What an event is to be, or where to look for it."""
        repeated_message = self.query if self._repeats_message(message) else None
        is_read_only = self.action in ("list", "free")
        week = self.start if is_read_only and not self.end and times.is_week(self.start) else None
        start, days = None if week else self.start, times.days_in(week or repeated_message or "", calendars.now)
        first, last = _read_times(start, self.end, calendars.now, self._event_start(calendars, start))
        first, last = (first, last) if first or last or not days else days
        texts = self.title or None, self.location, self.description
        return EventDraft(*texts, first, last, self.duration_minutes, self.repeat or None)

    def _repeats_message(self, message: str) -> bool:
        return bool(self.query) and (self.query or "").strip() == message.strip()

    def _event_start(self, calendars: UserCalendars, start: str | None) -> datetime | None:
        """When the event begins that is to be changed, if its new times are mere times of day."""
        has_only_times = times.is_time_of_day(start) or times.is_time_of_day(self.end)
        changes = self.action == "update" and self.event_id and has_only_times
        return calendars.start_of(self.event_id or "", self.occurrence_start(calendars.now)) if changes else None


def _read_times(
    start: str | None, end: str | None, now: datetime, event: datetime | None
) -> tuple[Moment | None, Moment | None]:
    """Start and end as they are said. A time of day alone is one of the event's day, as an end one after the start.

    Args:
        event: when what is to be changed begins.
    """
    first = (
        times.parse_time(start, times.end_of_day_before(event, now) if event and times.is_time_of_day(start) else now)
        if start
        else None
    )
    began = first or event
    if not end:
        return first, None
    if began is None or not times.is_time_of_day(end):
        return first, times.parse_time(end, now, name="end")
    return first, times.parse_time(
        end, began if isinstance(began, datetime) else times.end_of_day_before(began, now), name="end"
    )
