"""The requested state of an event, and how a file writes its times."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from brain import Refused
from specialists._calendar import rules
from specialists._calendar.ics_lines import escape, fold
from specialists._calendar.listing import iso_minutes
from specialists._calendar.times import Moment, at, day_of, vtimezone_lines

MINUTES = 60
"""How long an event takes of which nothing else is said."""
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
    def texts(self) -> dict[str, str]:
        """The properties that are texts."""
        texts = {"SUMMARY": self.title, "LOCATION": self.location, "DESCRIPTION": self.description}
        return {name: text for name, text in texts.items() if text is not None}

    @property
    def changes_time(self) -> bool:
        return self.start is not None or self.end is not None or self.minutes is not None


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How an event writes its times: parameters, such as `;TZID=Europe/Berlin`, and the zone they stand for."""

    params: str
    model: Moment
    utc: bool = False

    def value(self, moment: Moment) -> str:
        if not isinstance(moment, datetime):
            return f"{moment:%Y%m%d}"
        if self.utc:
            return f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"
        return f"{moment:%Y%m%dT%H%M%S}"

    def line(self, name: str, *moments: Moment) -> str:
        return f"{name}{self.params}:{','.join(map(self.value, moments))}"


def build_event_file(uid: str, draft: EventDraft, zone: ZoneInfo, now: datetime) -> bytes:
    """The file of a new event.

    Raises:
        Refused: when its times or its rule make no sense.
    """
    first = draft.start
    assert first is not None
    if isinstance(draft.start, datetime) and draft.end is None and draft.minutes is None:
        draft = replace(draft, minutes=MINUTES)
    start, end = new_times(first, first, draft, zone)
    time_format = time_format_for(zone, start)
    rule = rule_lines(draft.repeat, start) if draft.repeat else []
    texts = [f"{name}:{escape(text)}" for name, text in draft.texts.items() if text]
    zone_lines = vtimezone_lines(zone.key, start.year, 20 if rule else 4) if needs_vtimezone(time_format) else ()
    stamp = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    lines = [
        *("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//brain-sse//calendar//EN", *zone_lines),
        *("BEGIN:VEVENT", f"UID:{uid}", f"DTSTAMP:{stamp}", f"CREATED:{stamp}"),
        *(time_format.line("DTSTART", start), time_format.line("DTEND", end), *rule, *texts),
        *("END:VEVENT", "END:VCALENDAR"),
    ]
    return b"".join(fold(line) for line in lines)


def new_times(start: Moment, end: Moment, draft: EventDraft, zone: ZoneInfo) -> tuple[Moment, Moment]:
    """The new start and end; who moves only the start keeps the duration.

    Raises:
        Refused: when the end is none.
    """
    first = _new_start(start, draft, zone)
    has_time = isinstance(first, datetime)
    if draft.minutes is not None and (draft.end is not None or not has_time):
        raise Refused(
            "give either end or duration_minutes" if has_time else "an event of whole days needs end, the last day"
        )
    if draft.end is not None:
        if isinstance(draft.end, datetime) is not has_time:
            expected = "a time, such as 2026-03-30T10:00" if has_time else "the last day, such as 2026-03-31"
            raise Refused(f"end must be {expected}, as the start is {'a time' if has_time else 'a day'}")
        last = draft.end if isinstance(draft.end, datetime) else draft.end + DAY
    else:
        last = add_duration(first, _new_length(start, end, has_time, draft.minutes, zone))
    if at(last, zone) < at(first, zone) or (not has_time and last <= first):
        given, start_text = iso_minutes(draft.end, zone), iso_minutes(first, zone)
        raise Refused(f"the end, {given}, lies before the start, {start_text}; correct one of them")
    return first, last


def _new_start(start: Moment, draft: EventDraft, zone: ZoneInfo) -> Moment:
    """A day alone moves what has a time to that day; two make whole days of it."""
    new_start, last = draft.start, draft.end
    if new_start is None:
        return start
    two_days = last is not None and not isinstance(last, datetime)
    if isinstance(new_start, datetime) or not isinstance(start, datetime) or two_days:
        return new_start
    clock = at(start, zone).timetz()
    return at(datetime.combine(new_start, clock), zone)


def _new_length(start: Moment, end: Moment, has_time: bool, minutes: int | None, zone: ZoneInfo) -> timedelta:
    if minutes is not None:
        return timedelta(minutes=minutes)
    if not isinstance(start, datetime):
        return timedelta(minutes=MINUTES) if has_time else max(day_of(end) - day_of(start), DAY)
    return at(end, zone).astimezone(UTC) - at(start, zone).astimezone(UTC)


def add_duration(start: Moment, length: timedelta) -> Moment:
    if not isinstance(start, datetime) or start.tzinfo is None:
        return start + length
    return (start.astimezone(UTC) + length).astimezone(start.tzinfo)


def rule_lines(repeat: str, start: Moment) -> list[str]:
    """The rule that is asked for, as it stands in a file; none for the word `none`."""
    if repeat.strip().lower() == "none":
        return []
    try:
        return [f"RRULE:{rules.parse_new_rule(repeat[:300], start)}"]
    except rules.BadRule as problem:
        raise Refused(
            f"the repeat rule is not right: {problem}; give one such as FREQ=WEEKLY;BYDAY=MO;COUNT=10"
        ) from None


def time_format_for(zone: ZoneInfo, moment: Moment) -> TimeFormat:
    """The form for a user's zone."""
    if not isinstance(moment, datetime):
        return TimeFormat(";VALUE=DATE", moment)
    if zone.key in ("UTC", "Etc/UTC"):
        return TimeFormat("", moment, utc=True)
    return TimeFormat(f";TZID={zone.key}", moment)


def needs_vtimezone(time_format: TimeFormat) -> bool:
    return time_format.params.startswith(";TZID=")
