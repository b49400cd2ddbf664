"""What an event is asked to be, and how its times are worded in a file."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from brain import Refused
from specialists._calendar import rules
from specialists._calendar.ics_lines import escaped, folded
from specialists._calendar.listing import iso
from specialists._calendar.times import Moment, at, day_of, description

MINUTES = 60
"""How long an event takes of which nothing else is said."""
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Wish:
    """What an event is to be; None leaves it as it is. A day as `end` is the last one."""

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
    def moves(self) -> bool:
        return self.start is not None or self.end is not None or self.minutes is not None


@dataclass(frozen=True, slots=True)
class Form:
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


def new(uid: str, wish: Wish, zone: ZoneInfo, now: datetime) -> bytes:
    """The file of a new event.

    Raises:
        Refused: when its times or its rule make no sense.
    """
    first = wish.start
    assert first is not None
    if isinstance(wish.start, datetime) and wish.end is None and wish.minutes is None:
        wish = replace(wish, minutes=MINUTES)
    start, end = moved(first, first, wish, zone)
    form = form_in(zone, start)
    rule = rule_lines(wish.repeat, start) if wish.repeat else []
    texts = [f"{name}:{escaped(text)}" for name, text in wish.texts.items() if text]
    zone_lines = description(zone.key, start.year, 20 if rule else 4) if needs_zone(form) else ()
    stamp = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    lines = [
        *("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//brain-sse//calendar//EN", *zone_lines),
        *("BEGIN:VEVENT", f"UID:{uid}", f"DTSTAMP:{stamp}", f"CREATED:{stamp}"),
        *(form.line("DTSTART", start), form.line("DTEND", end), *rule, *texts),
        *("END:VEVENT", "END:VCALENDAR"),
    ]
    return b"".join(folded(line) for line in lines)


def moved(start: Moment, end: Moment, wish: Wish, zone: ZoneInfo) -> tuple[Moment, Moment]:
    """The new start and end; who moves only the start keeps the duration.

    Raises:
        Refused: when the end is none.
    """
    first = _start(start, wish, zone)
    timed = isinstance(first, datetime)
    if wish.minutes is not None and (wish.end is not None or not timed):
        raise Refused(
            "give either end or duration_minutes" if timed else "an event of whole days needs end, the last day"
        )
    if wish.end is not None:
        if isinstance(wish.end, datetime) is not timed:
            wanted = "a time, such as 2026-03-30T10:00" if timed else "the last day, such as 2026-03-31"
            raise Refused(f"end must be {wanted}, as the start is {'a time' if timed else 'a day'}")
        last = wish.end if isinstance(wish.end, datetime) else wish.end + DAY
    else:
        last = after(first, _length(start, end, timed, wish.minutes, zone))
    if at(last, zone) < at(first, zone) or (not timed and last <= first):
        raise Refused(f"the end, {iso(wish.end, zone)}, lies before the start, {iso(first, zone)}; correct one of them")
    return first, last


def _start(start: Moment, wish: Wish, zone: ZoneInfo) -> Moment:
    """A day alone moves what has a time to that day; two make whole days of it."""
    wanted, last = wish.start, wish.end
    if wanted is None:
        return start
    two_days = last is not None and not isinstance(last, datetime)
    if isinstance(wanted, datetime) or not isinstance(start, datetime) or two_days:
        return wanted
    clock = at(start, zone).timetz()
    return at(datetime.combine(wanted, clock), zone)


def _length(start: Moment, end: Moment, timed: bool, minutes: int | None, zone: ZoneInfo) -> timedelta:
    if minutes is not None:
        return timedelta(minutes=minutes)
    if not isinstance(start, datetime):
        return timedelta(minutes=MINUTES) if timed else max(day_of(end) - day_of(start), DAY)
    return at(end, zone).astimezone(UTC) - at(start, zone).astimezone(UTC)


def after(start: Moment, length: timedelta) -> Moment:
    if not isinstance(start, datetime) or start.tzinfo is None:
        return start + length
    return (start.astimezone(UTC) + length).astimezone(start.tzinfo)


def rule_lines(repeat: str, start: Moment) -> list[str]:
    """The rule that is asked for, as it stands in a file; none for the word `none`."""
    if repeat.strip().lower() == "none":
        return []
    try:
        return [f"RRULE:{rules.asked(repeat[:300], start)}"]
    except rules.BadRule as problem:
        raise Refused(
            f"the repeat rule is not right: {problem}; give one such as FREQ=WEEKLY;BYDAY=MO;COUNT=10"
        ) from None


def form_in(zone: ZoneInfo, moment: Moment) -> Form:
    """The form for a user's zone."""
    if not isinstance(moment, datetime):
        return Form(";VALUE=DATE", moment)
    if zone.key in ("UTC", "Etc/UTC"):
        return Form("", moment, utc=True)
    return Form(f";TZID={zone.key}", moment)


def needs_zone(form: Form) -> bool:
    return form.params.startswith(";TZID=")
