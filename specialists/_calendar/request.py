"""What a call of `calendar` is given, and how its words about times are read."""

from dataclasses import dataclass
from datetime import datetime

from specialists._calendar import times
from specialists._calendar.actions import Desk
from specialists._calendar.draft import Wish
from specialists._calendar.times import Moment


@dataclass(frozen=True, slots=True)
class Asked:
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

    def when(self, clock: datetime) -> Moment | None:
        """Which occurrence is meant."""
        return times.read(self.occurrence, clock, name="occurrence") if self.occurrence else None

    def words(self, message: str) -> str | None:
        """What an event must have in it; a message that is passed on as it is says when, and nothing of that."""
        return None if self._passed_on(message) else self.query

    def wish(self, desk: Desk, message: str) -> Wish:
        """What an event is to be, or where to look for it."""
        passed_on = self.query if self._passed_on(message) else None
        looks = self.action in ("list", "free")
        week = self.start if looks and not self.end and times.is_week(self.start) else None
        start, days = None if week else self.start, times.days_in(week or passed_on or "", desk.now)
        first, last = _times(start, self.end, desk.now, self._event(desk, start))
        first, last = (first, last) if first or last or not days else days
        texts = self.title or None, self.location, self.description
        return Wish(*texts, first, last, self.duration_minutes, self.repeat or None)

    def _passed_on(self, message: str) -> bool:
        return bool(self.query) and (self.query or "").strip() == message.strip()

    def _event(self, desk: Desk, start: str | None) -> datetime | None:
        """When the event begins that is to be changed, if its new times are mere times of day."""
        clocks_only = times.alone(start) or times.alone(self.end)
        changes = self.action == "update" and self.event_id and clocks_only
        return desk.begins(self.event_id or "", self.when(desk.now)) if changes else None


def _times(
    start: str | None, end: str | None, now: datetime, event: datetime | None
) -> tuple[Moment | None, Moment | None]:
    """Start and end as they are said. A time of day alone is one of the event's day, as an end one after the start.

    Args:
        event: when what is to be changed begins.
    """
    first = times.read(start, times.eve(event, now) if event and times.alone(start) else now) if start else None
    begun = first or event
    if not end:
        return first, None
    if begun is None or not times.alone(end):
        return first, times.read(end, now, name="end")
    return first, times.read(end, begun if isinstance(begun, datetime) else times.eve(begun, now), name="end")
