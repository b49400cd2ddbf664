"""Events as lines for a model. Titles and places are a stranger's words: one line each, cut to size."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from specialists._calendar.calendars import Resource
from specialists._calendar.expand import Occurrence, main_of
from specialists._calendar.times import Moment, at

MAX_TITLE = 120
MAX_PLACE = 80
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a listing: an occurrence, and the file that it is of."""

    resource: Resource
    uid: str
    occurrence: Occurrence
    zone: ZoneInfo

    @property
    def id(self) -> str:
        return self.resource.id(self.uid)

    @property
    def repeats(self) -> bool:
        return self.resource.repeats(self.uid)

    @property
    def span(self) -> tuple[datetime, datetime]:
        """Start and end on the user's clocks."""
        return at(self.occurrence.start, self.zone), at(self.occurrence.end, self.zone)

    @property
    def order(self) -> tuple[float, bool, str]:
        """By start, whole days before times."""
        return self.span[0].timestamp(), not self.occurrence.all_day, self.occurrence.event.title

    def line(self, *, has_calendar: bool) -> str:
        """The line; `named` adds the calendar."""
        event = self.occurrence.event
        marks = [f"id {self.id}"]
        if self.repeats:
            marks.append("repeats")
        if self._is_moved:
            marks.append(f"moved from {iso_minutes(self.occurrence.original, self.zone)}")
        if event.transparent:
            marks.append("does not block time")
        if event.unknown_zone:
            marks.append(f"unknown time zone {one_line(event.unknown_zone, 40)!r}")
        place = f" @ {one_line(event.location, MAX_PLACE)}" if event.location else ""
        calendar = f" [{one_line(self.resource.calendar.name, 40)}]" if has_calendar else ""
        return f"- {format_when(self.occurrence, self.zone)} {title(event.title)}{place}{calendar} ({', '.join(marks)})"

    @property
    def _is_moved(self) -> bool:
        original = self.occurrence.original
        return original is not None and at(original, self.zone) != self.span[0]

    def data(self) -> dict[str, Any]:
        """The same for programs."""
        event, original = self.occurrence.event, self.occurrence.original
        start, end = self.span
        last = end - timedelta(days=1)
        return {
            "id": self.id,
            "uid": self.uid,
            "calendar": self.resource.calendar.name,
            "title": event.title,
            "start": f"{start:%Y-%m-%d}" if self.occurrence.all_day else start.isoformat(),
            "end": f"{last:%Y-%m-%d}" if self.occurrence.all_day else end.isoformat(),
            "all_day": self.occurrence.all_day,
            "location": event.location,
            "description": event.description,
            "repeats": self.repeats,
            "occurrence": iso_minutes(original, self.zone) if original is not None else None,
            "version": self.resource.version,
        }

    def details(self, *, has_calendar: bool) -> str:
        """All that is known of it."""
        event = self.occurrence.event
        main = main_of(self.resource.file.series[self.uid])
        lines = [self.line(has_calendar=has_calendar)]
        if main is not None and main.rules:
            lines.append(f"Repeat rule: {one_line('; '.join(main.rules), 200)}")
        if event.attendees:
            lines.append(f"Attendees: {one_line(', '.join(event.attendees[:20]), 500)}")
        if event.description:
            lines.append(f"Description:\n{event.description}")
        return "\n".join(lines)


def format_when(occurrence: Occurrence, zone: ZoneInfo) -> str:
    """Day and time on the user's clocks; the end's day only when it is another one."""
    start, end = at(occurrence.start, zone), at(occurrence.end, zone)
    if occurrence.all_day:
        last = end.date() - timedelta(days=1)
        return (
            f"{_day(start.date())} all day" if last <= start.date() else f"{_day(start.date())} – {_day(last)} all day"
        )
    return f"{_day(start.date())} {format_span(start, end)}"


def format_span(start: datetime, end: datetime) -> str:
    """From when to when."""
    if start.timestamp() == end.timestamp():
        return f"{start:%H:%M}"
    return (
        f"{start:%H:%M}–{end:%H:%M}"
        if start.date() == end.date()
        else f"{start:%H:%M} – {_day(end.date())} {end:%H:%M}"
    )


def _day(day: date) -> str:
    return f"{day:%Y-%m-%d} {_WEEKDAYS[day.weekday()]}"


def iso_minutes(moment: Moment | None, zone: ZoneInfo) -> str:
    """As a model may give it back."""
    if moment is None or not isinstance(moment, datetime):
        return f"{moment:%Y-%m-%d}" if moment else ""
    return f"{at(moment, zone):%Y-%m-%dT%H:%M}"


def title(text: str) -> str:
    return one_line(text, MAX_TITLE) or "(no title)"


def one_line(text: str, limit: int) -> str:
    """A text as one line without characters that nobody sees."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def lines_of(entries: Sequence[Entry], *, has_calendar: bool) -> str:
    return "\n".join(entry.line(has_calendar=has_calendar) for entry in entries)
