"""Read the events of an iCalendar file. Invalid or huge properties do not affect others.

icalendar takes more than three times as long, and seconds for a small hostile file.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import chain, islice

from specialists._calendar.ics_lines import (
    MAX_LINE,
    Block,
    find_components,
    parse_blocks,
    property_name,
    read_texts,
    unescape,
)
from specialists._calendar.zones import FIRST_YEAR, LAST_YEAR, Moment, find_zone, localize, parse_vtimezone, resolve_end

MAX_FILE = 4_000_000
"""Maximum size of a file, in bytes; ten thousand plain events take about 3 million."""
MAX_EVENTS = 10_000
MAX_TEXT = 20_000
MAX_DATES = 5_000
_MAX_ZONES = 50
_MAX_ZONE_LINES = 400
_PROPERTIES = frozenset({
    "UID", "DTSTART", "DTEND", "DURATION", "RECURRENCE-ID", "RRULE", "RDATE", "EXDATE", "SUMMARY", "LOCATION",
    "DESCRIPTION", "STATUS", "TRANSP", "SEQUENCE", "ATTENDEE", "ORGANIZER",
})  # fmt: skip
_REPEATABLE = frozenset({"RRULE", "RDATE", "EXDATE", "ATTENDEE"})
Period = tuple[Moment, Moment | timedelta]


class Unreadable(ValueError):
    """An event or a file cannot be read; the message is a short reason."""


@dataclass(frozen=True, slots=True)
class Property:
    """One parsed content line."""

    params: Mapping[str, str]
    value: str


@dataclass(frozen=True, slots=True)
class Event:
    """One VEVENT: a single event, a series, or a changed occurrence of a series (with `recurrence_id`).

    Attributes:
        number: position among the VEVENTs of the file, from 0.
        this_and_future: whether the change applies to all later occurrences too.
        declined_by: email addresses of attendees who declined.
        organizer: email address of the organizer; empty if the event has none.
        unknown_zone: name of an unknown time zone; the times then count as the user's local time.
        timestamps: start and end in seconds since 1970, if they do not depend on the user's zone.
    """

    number: int
    uid: str
    start: Moment
    end: Moment
    recurrence_id: Moment | None = None
    this_and_future: bool = False
    rules: Sequence[str] = ()
    extra_dates: Sequence[Moment | Period] = ()
    excluded_dates: Sequence[Moment] = ()
    title: str = ""
    location: str = ""
    description: str = ""
    cancelled: bool = False
    transparent: bool = False
    declined_by: Sequence[str] = ()
    attendees: Sequence[str] = ()
    organizer: str = ""
    sequence: int = 0
    unknown_zone: str = ""
    timestamps: tuple[float, float] | None = None

    @property
    def repeats(self) -> bool:
        return bool(self.rules or self.extra_dates)


@dataclass(frozen=True, slots=True)
class File:
    """The events of a file by UID, and the number of unreadable VEVENTs."""

    data: bytes
    series: Mapping[str, Sequence[Event]]
    unreadable: int = 0


def parse_file(data: bytes) -> File:
    """Parse a file.

    Raises:
        Unreadable: if the file is too large or not a calendar.
    """
    if len(data) > MAX_FILE:
        raise Unreadable(f"larger than {MAX_FILE // 1_000_000} MB")
    tops = parse_blocks(read_texts(data))
    if not any(top.name in ("VCALENDAR", "VEVENT") for top in tops):
        raise Unreadable("not a calendar")
    zones = _Zones(data, tops)
    series: dict[str, list[Event]] = {}
    for number, lines in enumerate(_list_properties(data, islice(find_components(tops, "VEVENT"), MAX_EVENTS))):
        with suppress(ValueError, OverflowError):
            event = _parse_event(number, _parse_properties(lines), zones)
            series.setdefault(event.uid, []).append(event)
    count = sum(text[:12].upper() == "BEGIN:VEVENT" for text in read_texts(data))
    return File(
        data, {uid: align_changes(events) for uid, events in series.items()}, count - sum(map(len, series.values()))
    )


def find_main(events: Sequence[Event]) -> Event | None:
    """Return the newest version of the event that defines a series."""
    return max((e for e in events if e.recurrence_id is None), key=lambda event: event.sequence, default=None)


def align_changes(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events of a series; the original starts of changed occurrences get the type of its start."""
    main = find_main(events)
    if main is None or len(events) == 1:
        return events
    return [
        event if event.recurrence_id is None else replace(event, recurrence_id=_match(event.recurrence_id, main.start))
        for event in events
    ]


def _list_properties(data: bytes, selected: Iterable[Block]) -> Iterator[list[str]]:
    """Yield the properties of each selected component, without inner components; `selected` must be in file order."""
    lines = enumerate(read_texts(data))
    for block in selected:
        inside = {number for inner in block.inner for number in range(inner.first, inner.last + 1)}
        properties = []
        for number, text in lines:
            if number >= block.last:
                break
            if number > block.first and number not in inside:
                properties.append(text)
        yield properties


class _Zones:
    """The time zones of one file, by TZID."""

    def __init__(self, data: bytes, tops: Sequence[Block]) -> None:
        self._described: dict[str, tuple[str, ...]] = {}
        self._zones: dict[str, tzinfo | None] = {}
        self.default: tzinfo | None = None
        """The calendar's zone (X-WR-TIMEZONE of Google and Apple), for times in UTC or without a zone."""
        for block in islice(find_components(tops, "VTIMEZONE"), _MAX_ZONES):
            lines = tuple(islice(read_texts(data), block.first, min(block.last + 1, block.first + _MAX_ZONE_LINES)))
            for text in lines:
                if property_name(text) == "TZID":
                    self._described[unescape(text.partition(":")[2].strip())] = lines
        if b"X-WR-TIMEZONE" in data:
            heads = [Block(top.name, top.first, top.inner[0].first if top.inner else top.last) for top in tops]
            for text in chain.from_iterable(_list_properties(data, heads)):
                if property_name(text) == "X-WR-TIMEZONE":
                    self.default = find_zone(text.partition(":")[2].strip()[:200])

    def get(self, name: str) -> tzinfo | None:
        if name not in self._zones:
            described = self._described.get(unescape(name))
            self._zones[name] = find_zone(name[:200]) or (parse_vtimezone(described) if described else None)
        return self._zones[name]


def _parse_properties(lines: Iterable[str]) -> dict[str, list[Property]]:
    """Return the known properties; for one that may occur once, the last line wins."""
    found: dict[str, list[Property]] = {}
    for text in lines:
        name = property_name(text)
        if name not in _PROPERTIES or len(text) >= MAX_LINE:
            continue
        rest, params = text[len(name) :], {}
        while rest.startswith(";"):  # a quoted parameter may contain any character
            param, _, rest = rest[1:].partition("=")
            if rest.startswith('"'):
                value, _, rest = rest[1:].partition('"')
            else:
                end = min((n for n in (rest.find(";"), rest.find(":")) if n >= 0), default=len(rest))
                value, rest = rest[:end], rest[end:]
            params[param.strip().upper()] = value
        before = found.get(name, []) if name in _REPEATABLE else []
        found[name] = [*before, Property(params, rest.removeprefix(":"))]
    return found


def _parse_event(number: int, found: Mapping[str, Sequence[Property]], zones: _Zones) -> Event:
    def text(name: str) -> str:
        return unescape(found[name][0].value[:MAX_TEXT]).strip() if name in found else ""

    def dates(name: str) -> list[Moment | Period]:
        return [one for prop in found.get(name, ()) for one in _parse_dates(prop, zones)]

    if "DTSTART" not in found:
        raise Unreadable("no start")
    if sum(prop.value.count(",") + 1 for name in ("RDATE", "EXDATE") for prop in found.get(name, ())) > MAX_DATES:
        raise Unreadable("too many dates")
    start = _parse_moment(found["DTSTART"][0].value.strip(), found["DTSTART"][0].params, zones)
    end = resolve_end(start, _parse_end(found, start, zones))
    if localize(end, UTC) < localize(start, UTC):
        start, end = end, start  # some programs swap them
    changes = found.get("RECURRENCE-ID", ())
    recurrence_ids = [_parse_moment(prop.value.strip(), prop.params, zones) for prop in changes]
    attendees = [(_parse_mail(prop), prop.params.get("PARTSTAT", "").upper()) for prop in found.get("ATTENDEE", ())]
    zone_name = found["DTSTART"][0].params.get("TZID", "")
    has_zone = isinstance(start, datetime) and start.tzinfo is not None
    return Event(
        number=number,
        uid=text("UID") or f"#{number}",
        start=start,
        end=end,
        recurrence_id=recurrence_ids[0] if recurrence_ids else None,
        this_and_future=any(prop.params.get("RANGE", "").upper() == "THISANDFUTURE" for prop in changes),
        rules=tuple(prop.value for prop in found.get("RRULE", ())[:4] if prop.value.strip()),
        extra_dates=tuple(_match_period(one, start) for one in dates("RDATE")),
        excluded_dates=tuple(  # a date excludes all times of its day
            _match(one, start) if isinstance(one, datetime) or not isinstance(start, datetime) else one
            for one in dates("EXDATE")
            if isinstance(one, date)
        ),
        title=text("SUMMARY"),
        location=text("LOCATION"),
        description=text("DESCRIPTION"),
        cancelled=text("STATUS").upper() == "CANCELLED",
        transparent=text("TRANSP").upper() == "TRANSPARENT",
        declined_by=tuple(mail for mail, answer in attendees if answer == "DECLINED"),
        attendees=tuple(mail for mail, _ in attendees),
        organizer=_parse_mail(found["ORGANIZER"][0]) if "ORGANIZER" in found else "",
        sequence=int(sequence)
        if (sequence := text("SEQUENCE")).isascii() and sequence.isdigit() and len(sequence) < 10
        else 0,
        timestamps=(localize(start, UTC).timestamp(), localize(end, UTC).timestamp()) if has_zone else None,
        unknown_zone=zone_name if isinstance(start, datetime) and zone_name and not zones.get(zone_name) else "",
    )


def _parse_mail(prop: Property) -> str:
    return prop.value.strip().lower().removeprefix("mailto:")[:200]


def _parse_moment(text: str, params: Mapping[str, str], zones: _Zones) -> Moment:
    """Parse a DATE or DATE-TIME. 24:00 ends a day; a leap second becomes second 59."""
    try:
        day = date(int(text[:4]), int(text[4:6]), int(text[6:8]))
        if not FIRST_YEAR <= day.year <= LAST_YEAR:
            raise Unreadable("year out of range")
        if len(text) == 8:
            return day
        if text[8] not in "Tt" or len(text.rstrip("Zz")) != 15:
            raise Unreadable("invalid time")
        hour, minute, second = int(text[9:11]), int(text[11:13]), min(int(text[13:15]), 59)
        moment = datetime.combine(
            day + timedelta(days=hour == 24), time(hour % 24 if hour == 24 else hour, minute, second)
        )
    except (ValueError, IndexError) as error:
        raise Unreadable("invalid time") from error
    if params.get("VALUE", "").upper() == "DATE":
        return day
    if text[-1] in "Zz":
        moment = moment.replace(tzinfo=UTC)
        return moment.astimezone(zones.default) if zones.default else moment
    return moment.replace(tzinfo=zones.get(params["TZID"]) if "TZID" in params else zones.default)


def _parse_dates(prop: Property, zones: _Zones) -> Iterator[Moment | Period]:
    for piece in prop.value.split(","):
        first, slash, last = piece.strip().partition("/")
        start = _parse_moment(first, prop.params, zones)
        if not slash:
            yield start
        else:
            yield start, _parse_duration(last) if last[:1] in "P+-" else _parse_moment(last, prop.params, zones)


def _match(moment: Moment, start: Moment) -> Moment:
    """Convert a date of a series to the type of its start: date, floating or zoned."""
    if not isinstance(start, datetime):
        return _to_day(moment)
    if not isinstance(moment, datetime):
        return datetime.combine(moment, start.timetz())
    return moment if bool(moment.tzinfo) == bool(start.tzinfo) else moment.replace(tzinfo=start.tzinfo)


def _match_period(period: Moment | Period, start: Moment) -> Moment | Period:
    if not isinstance(period, tuple):
        return _match(period, start)
    first, last = period
    if not isinstance(start, datetime):
        last = _whole_days(last if isinstance(last, timedelta) else last - first)
    return _match(first, start), last


def _to_day(moment: Moment, *, is_end: bool = False) -> date:
    """Return the day of a time that stands where a date is due; many programs write it as midnight in UTC.

    Args:
        is_end: Return the next day, since the event covers some of this one.
    """
    if not isinstance(moment, datetime):
        return moment
    in_utc = moment.astimezone(UTC) if moment.tzinfo else moment
    if in_utc.time() == time():
        return in_utc.date()
    return moment.date() + timedelta(days=is_end and moment.time() > time())


def _whole_days(length: timedelta) -> timedelta:
    """Return the nearest number of days, at least one: a day on which the clocks change has 23 or 25 hours."""
    return max(timedelta(days=1), timedelta(days=(length + timedelta(hours=12)).days))


def _parse_end(found: Mapping[str, Sequence[Property]], start: Moment, zones: _Zones) -> Moment:
    """Return the end, which may be before the start. An all-day event ends at least one day later."""
    if not isinstance(start, datetime):
        return _parse_last_day(found, start, zones)
    if "DTEND" in found:
        end = _parse_moment(found["DTEND"][0].value.strip(), found["DTEND"][0].params, zones)
    elif "DURATION" in found:  # days are calendar days, hours are exact (RFC 5545, section 3.3.6)
        length = _parse_duration(found["DURATION"][0].value)
        end = start + timedelta(days=length.days)
        rest = length - timedelta(days=length.days)
        end = end + rest if end.tzinfo is None else (end.astimezone(UTC) + rest).astimezone(end.tzinfo)
    else:
        return start
    if not isinstance(end, datetime):
        end = datetime.combine(end, time(), start.tzinfo)
    return end if bool(end.tzinfo) == bool(start.tzinfo) else end.replace(tzinfo=start.tzinfo)


def _parse_last_day(found: Mapping[str, Sequence[Property]], start: date, zones: _Zones) -> date:
    """Return the day after an all-day event."""
    end = start + timedelta(days=1)
    if "DTEND" in found:
        end = _to_day(_parse_moment(found["DTEND"][0].value.strip(), found["DTEND"][0].params, zones), is_end=True)
    elif "DURATION" in found:
        end = start + _whole_days(_parse_duration(found["DURATION"][0].value))
    return max(end, start + timedelta(days=1))


def _parse_duration(text: str) -> timedelta:
    from icalendar import vDuration

    length: timedelta = vDuration.from_ical(text.strip()[:40])  # type: ignore[no-untyped-call]
    if not timedelta() <= length < timedelta(days=3660):
        raise Unreadable("invalid duration")
    return length
