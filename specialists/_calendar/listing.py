"""Events as lines for a model. Titles and places are untrusted: each becomes one line of limited length."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from brain import dates
from specialists._calendar.calendars import Resource
from specialists._calendar.expand import Occurrence
from specialists._calendar.ics_read import Event, find_main
from specialists._calendar.zones import Moment, localize
from specialists._kit.text import one_line

MAX_TITLE = 120
MAX_PLACE = 80


@dataclass(frozen=True, slots=True)
class Entry:
    """An occurrence in a listing, with its file."""

    resource: Resource
    uid: str
    occurrence: Occurrence
    zone: ZoneInfo

    @property
    def id(self) -> str:
        return self.resource.id(self.uid)

    @property
    def series(self) -> Sequence[Event]:
        """All events with this UID."""
        return self.resource.file.series[self.uid]

    @property
    def repeats(self) -> bool:
        return self.resource.repeats(self.uid)

    @property
    def span(self) -> tuple[datetime, datetime]:
        """Start and end in the user's time zone."""
        return localize(self.occurrence.start, self.zone), localize(self.occurrence.end, self.zone)

    @property
    def order(self) -> tuple[float, bool, str]:
        """Sort key: by start, all-day events first."""
        return self.span[0].timestamp(), not self.occurrence.all_day, self.occurrence.event.title

    @property
    def search_text(self) -> str:
        """The text that a query searches, casefolded."""
        event = self.occurrence.event
        return f"{event.title} {event.location} {event.description} {self.resource.calendar.name}".casefold()

    def line(self, *, has_calendar: bool) -> str:
        """Return the line of a list; `has_calendar` adds the calendar name."""
        event, original = self.occurrence.event, self.occurrence.original
        marks = [f"id {self.id}"]
        if self.repeats:
            marks.append("repeats")
        if original is not None and localize(original, self.zone) != self.span[0]:
            marks.append(f"moved from {iso_minutes(original, self.zone)}")
        if event.transparent:
            marks.append("does not block time")
        if event.unknown_zone:
            marks.append(f"unknown time zone {one_line(event.unknown_zone, 40)!r}")
        place = f" @ {one_line(event.location, MAX_PLACE)}" if event.location else ""
        calendar = f" [{one_line(self.resource.calendar.name, 40)}]" if has_calendar else ""
        return f"- {self.when()} {format_title(event)}{place}{calendar} ({', '.join(marks)})"

    def when(self) -> str:
        """Return date and time in the user's zone; the end date only if it differs."""
        start, end = self.span
        if self.occurrence.all_day:
            last = end.date() - timedelta(days=1)
            days = f" – {_format_day(last)}" if last > start.date() else ""
            return f"{_format_day(start.date())}{days} all day"
        if start.timestamp() == end.timestamp():
            return f"{_format_day(start.date())} {start:%H:%M}"
        if start.date() == end.date():
            return f"{_format_day(start.date())} {start:%H:%M}–{end:%H:%M}"
        return f"{_format_day(start.date())} {start:%H:%M} – {_format_day(end.date())} {end:%H:%M}"

    def data(self) -> dict[str, Any]:
        """Return the entry as structured data."""
        event, all_day = self.occurrence.event, self.occurrence.all_day
        start, end = self.span
        return {
            "id": self.id,
            "uid": self.uid,
            "calendar": self.resource.calendar.name,
            "title": event.title,
            "start": f"{start:%Y-%m-%d}" if all_day else start.isoformat(),
            "end": f"{end - timedelta(days=1):%Y-%m-%d}" if all_day else end.isoformat(),
            "all_day": all_day,
            "location": event.location,
            "description": event.description,
            "repeats": self.repeats,
            "occurrence": iso_minutes(self.occurrence.original, self.zone) or None,
            "version": self.resource.version,
        }

    def details(self, *, has_calendar: bool) -> str:
        """Return all details of the event."""
        event = self.occurrence.event
        main = find_main(self.series)
        lines = [self.line(has_calendar=has_calendar)]
        if main is not None and main.rules:
            lines.append(f"Repeat rule: {one_line('; '.join(main.rules), 200)}")
        if event.attendees:
            lines.append(f"Attendees: {one_line(', '.join(event.attendees[:20]), 500)}")
        if event.description:
            lines.append(f"Description:\n{event.description}")
        return "\n".join(lines)


def _format_day(day: date) -> str:
    return f"{day:%Y-%m-%d} {dates.DAY_NAMES[day.weekday()][:3]}"


def iso_minutes(moment: Moment | None, zone: ZoneInfo) -> str:
    """Return a moment in the form that the parameters accept."""
    if moment is None or not isinstance(moment, datetime):
        return f"{moment:%Y-%m-%d}" if moment else ""
    return f"{localize(moment, zone):%Y-%m-%dT%H:%M}"


def format_title(event: Event) -> str:
    return one_line(event.title, MAX_TITLE) or "(no title)"
