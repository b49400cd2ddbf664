"""The requested state of an event, and the file of a new event."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from brain import Refused
from specialists._calendar import rules
from specialists._calendar.ics_lines import escape, fold
from specialists._calendar.listing import iso_minutes
from specialists._calendar.zones import Moment, build_vtimezone, localize, to_date

DEFAULT_LENGTH = timedelta(minutes=60)
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class EventDraft:
    """Requested state of an event. None leaves a field unchanged. A date as `end` is the last day."""

    title: str | None = None
    location: str | None = None
    description: str | None = None
    start: Moment | None = None
    end: Moment | None = None
    minutes: int | None = None
    repeat: str | None = None

    @property
    def text_lines(self) -> dict[str, list[str]]:
        """The property lines of the text fields; no line for an empty text."""
        texts = {"SUMMARY": self.title, "LOCATION": self.location, "DESCRIPTION": self.description}
        return {name: [f"{name}:{escape(text)}"] if text else [] for name, text in texts.items() if text is not None}

    @property
    def changes_time(self) -> bool:
        return self.start is not None or self.end is not None or self.minutes is not None


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """The notation of an event's times: parameters such as `;TZID=Europe/Berlin`, and a time as a model."""

    params: str
    model: Moment
    utc: bool = False

    @property
    def needs_vtimezone(self) -> bool:
        return self.params.startswith(";TZID=")

    def line(self, name: str, moment: Moment) -> str:
        if not isinstance(moment, datetime):
            value = f"{moment:%Y%m%d}"
        else:
            value = f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}" if self.utc else f"{moment:%Y%m%dT%H%M%S}"
        return f"{name}{self.params}:{value}"


def choose_time_format(zone: ZoneInfo, moment: Moment) -> TimeFormat:
    """Return the format for the user's time zone."""
    if not isinstance(moment, datetime):
        return TimeFormat(";VALUE=DATE", moment)
    if zone.key in ("UTC", "Etc/UTC"):
        return TimeFormat("", moment, utc=True)
    return TimeFormat(f";TZID={zone.key}", moment)


def build_event_file(uid: str, draft: EventDraft, zone: ZoneInfo, now: datetime) -> bytes:
    """Return the file of a new event.

    Raises:
        Refused: if its times or its repeat rule are invalid.
    """
    first = draft.start
    assert first is not None
    if isinstance(first, datetime) and draft.end is None and draft.minutes is None:
        draft = replace(draft, minutes=int(DEFAULT_LENGTH.total_seconds() // 60))
    start, end = resolve_times(first, first, draft, zone)
    time_format = choose_time_format(zone, start)
    rule = format_rule(draft.repeat, start) if draft.repeat else []
    zone_lines = build_vtimezone(zone.key, start.year, 20 if rule else 4) if time_format.needs_vtimezone else ()
    stamp = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    lines = [
        *("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//brain-sse//calendar//EN", *zone_lines),
        *("BEGIN:VEVENT", f"UID:{uid}", f"DTSTAMP:{stamp}", f"CREATED:{stamp}"),
        *(time_format.line("DTSTART", start), time_format.line("DTEND", end), *rule),
        *(line for texts in draft.text_lines.values() for line in texts),
        *("END:VEVENT", "END:VCALENDAR"),
    ]
    return b"".join(fold(line) for line in lines)


def resolve_times(start: Moment, end: Moment, draft: EventDraft, zone: ZoneInfo) -> tuple[Moment, Moment]:
    """Return the new start and end of an event. Without a new end or duration, the duration stays.

    Raises:
        Refused: if the end does not match the start.
    """
    first = start if draft.start is None else draft.start
    has_last_day = draft.end is not None and not isinstance(draft.end, datetime)
    if not isinstance(first, datetime) and isinstance(start, datetime) and not has_last_day:
        first = localize(
            datetime.combine(first, localize(start, zone).timetz()), zone
        )  # a date alone keeps the time of day
    has_time = isinstance(first, datetime)
    if draft.minutes is not None and (draft.end is not None or not has_time):
        if has_time:
            raise Refused("the call has both an end and a duration", "give either end or duration_minutes")
        raise Refused("an all-day event cannot have a duration in minutes", "give end, the last day")
    if draft.end is not None:
        if isinstance(draft.end, datetime) is not has_time:
            if has_time:
                raise Refused("the start has a time, but the end has none", "give end such as 2026-03-30T10:00")
            raise Refused("the end has a time, but the start has none", "give end as the last day: 2026-03-31")
        last = draft.end if isinstance(draft.end, datetime) else draft.end + DAY
    else:
        if draft.minutes is not None:
            length = timedelta(minutes=draft.minutes)
        elif not isinstance(start, datetime):
            length = DEFAULT_LENGTH if has_time else max(to_date(end) - to_date(start), DAY)
        else:
            length = localize(end, zone).astimezone(UTC) - localize(start, zone).astimezone(UTC)
        if isinstance(first, datetime) and first.tzinfo is not None:
            last = (first.astimezone(UTC) + length).astimezone(first.tzinfo)
        else:
            last = first + length
    if localize(last, zone) < localize(first, zone) or (not has_time and last <= first):
        given, earliest = iso_minutes(draft.end, zone), iso_minutes(first, zone)
        raise Refused(f"the end, {given}, is before the start, {earliest}", "correct one of them")
    return first, last


def format_rule(repeat: str, start: Moment) -> list[str]:
    """Return the line of a repeat rule; no line for `none`.

    Raises:
        Refused: if the rule is invalid.
    """
    if repeat.strip().lower() == "none":
        return []
    try:
        return [f"RRULE:{rules.parse_new_rule(repeat[:300], start)}"]
    except rules.BadRule as problem:
        reason, _, advice = str(problem).partition("; ")
        advice = advice or "use one such as every Monday, or FREQ=WEEKLY;BYDAY=MO;COUNT=10"
        raise Refused(f"repeat is not possible: {reason}", advice) from None
