"""Reads the events of an iCalendar file. Only what a calendar shows is looked at, each property on its own,
so that what is broken or huge in a stranger's file stays without effect on the rest of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import chain, islice

from specialists._calendar.ics_lines import MAX_LINE, Block, blocks, components, name_of, texts, unescape
from specialists._calendar.times import FIRST_YEAR, LAST_YEAR, Moment, at, end_of, named_zone, zone_from_vtimezone

MAX_FILE = 4_000_000
"""Bytes. A calendar of ten thousand plain events in one file has about 3 million."""
MAX_EVENTS = 10_000
_MAX_ZONES = 50
_MAX_ZONE_LINES = 400
MAX_TEXT = 20_000
MAX_DATES = 5_000
_PROPERTIES = frozenset({
    "UID", "DTSTART", "DTEND", "DURATION", "RECURRENCE-ID", "RRULE", "RDATE", "EXDATE", "SUMMARY", "LOCATION",
    "DESCRIPTION", "STATUS", "TRANSP", "SEQUENCE", "ATTENDEE", "ORGANIZER",
})  # fmt: skip
_REPEATABLE = frozenset({"RRULE", "RDATE", "EXDATE", "ATTENDEE"})
Period = tuple[Moment, Moment | timedelta]


class Unreadable(ValueError):
    """An event or a file that cannot be understood; says why in a few words."""


@dataclass(frozen=True, slots=True)
class Property:
    """One line, taken apart."""

    params: Mapping[str, str]
    value: str


@dataclass(frozen=True, slots=True)
class Event:
    """One VEVENT: an event, the first of a series, or an occurrence that differs (`instead_of` tells which).

    Attributes:
        number: which of the file's VEVENTs it is, from 0.
        onward: what differs goes for all later occurrences too.
        declined: the mail addresses that said no.
        organizer: the mail address of who sent it; empty for one that nobody sent.
        instants: start and end as seconds since 1970, where no user's zone has a say in it.
        odd_zone: a time zone that is not known, so that its times are taken as the reader's.
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
    """What stands in a file: its events by UID, and how many others cannot be read."""

    data: bytes
    series: Mapping[str, Sequence[Event]]
    unreadable: int = 0


def parse_file(data: bytes) -> File:
    """Reads a file.

    Raises:
        Unreadable: when it is too large, or no calendar.
    """
    if len(data) > MAX_FILE:
        raise Unreadable(f"it is larger than {MAX_FILE // 1_000_000} MB")
    tops = blocks(texts(data))
    if not any(top.name in ("VCALENDAR", "VEVENT") for top in tops):
        raise Unreadable("it is no calendar")
    zones = _Zones(data, tops)
    found = list(islice(components(tops, "VEVENT"), MAX_EVENTS))
    series: dict[str, list[Event]] = {}
    for number, lines in enumerate(_bodies(data, found)):
        with suppress(ValueError, OverflowError):
            event = _event(number, _properties(lines), zones)
            series.setdefault(event.uid, []).append(event)
    began = sum(text[:12].upper() == "BEGIN:VEVENT" for text in texts(data))
    return File(data, series, began - sum(map(len, series.values())))


def _bodies(data: bytes, selected: Sequence[Block]) -> Iterator[list[str]]:
    """The properties of each of these components, in their order; what is in them is left out."""
    lines = enumerate(texts(data))
    for block in selected:
        inside = {number for inner in block.inner for number in range(inner.first, inner.last + 1)}
        body = []
        for number, text in lines:
            if number >= block.last:
                break
            if number > block.first and number not in inside:
                body.append(text)
        yield body


class _Zones:
    """The time zones of one file, by the names it uses."""

    def __init__(self, data: bytes, tops: Sequence[Block]) -> None:
        self._described: dict[str, list[str]] = {}
        self._zones: dict[str, tzinfo | None] = {}
        self.default: tzinfo | None = None
        for block in list(components(tops, "VTIMEZONE"))[:_MAX_ZONES]:
            lines = list(islice(texts(data), block.first, min(block.last + 1, block.first + _MAX_ZONE_LINES)))
            for text in lines:
                if name_of(text) == "TZID":
                    self._described[unescape(text.partition(":")[2].strip())] = lines
        if b"X-WR-TIMEZONE" in data:
            self._read_default(data, tops)

    def _read_default(self, data: bytes, tops: Sequence[Block]) -> None:
        """The zone that Google and Apple name for a whole calendar; it goes for times in UTC or without a zone."""
        heads = [Block(top.name, top.first, top.inner[0].first if top.inner else top.last) for top in tops]
        for text in chain.from_iterable(_bodies(data, heads)):
            if name_of(text) == "X-WR-TIMEZONE":
                self.default = named_zone(text.partition(":")[2].strip()[:200])

    def get(self, name: str) -> tzinfo | None:
        if name not in self._zones:
            self._zones[name] = named_zone(name[:200]) or self._from_file(name)
        return self._zones[name]

    def _from_file(self, name: str) -> tzinfo | None:
        lines = self._described.get(unescape(name))
        return zone_from_vtimezone(tuple(lines)) if lines else None


def _properties(lines: Iterable[str]) -> dict[str, list[Property]]:
    """The properties that matter, the last one of those that may be there once."""
    found: dict[str, list[Property]] = {}
    for text in lines:
        name = name_of(text)
        if name in _PROPERTIES and len(text) < MAX_LINE:
            prop = _property(text[len(name) :])
            if name in _REPEATABLE:
                found.setdefault(name, []).append(prop)
            else:
                found[name] = [prop]
    return found


def _property(rest: str) -> Property:
    """What follows a property's name: parameters, of which quoted ones may hold anything, then its value."""
    params = {}
    while rest.startswith(";"):
        name, _, rest = rest[1:].partition("=")
        if rest.startswith('"'):
            value, _, rest = rest[1:].partition('"')
        else:
            end = min((n for n in (rest.find(";"), rest.find(":")) if n >= 0), default=len(rest))
            value, rest = rest[:end], rest[end:]
        params[name.strip().upper()] = value
    return Property(params, rest[1:] if rest.startswith(":") else "")


def _event(number: int, found: Mapping[str, Sequence[Property]], zones: _Zones) -> Event:
    if "DTSTART" not in found:
        raise Unreadable("it has no start")
    start = _moment(found["DTSTART"][0], zones)
    end = end_of(start, _end(found, start, zones))
    if at(end, UTC) < at(start, UTC):
        start, end = end, start  # programs that mix them up mean the time between
    has_zone = isinstance(start, datetime) and start.tzinfo is not None
    recurrence_ids = found.get("RECURRENCE-ID")
    if sum(prop.value.count(",") + 1 for name in ("RDATE", "EXDATE") for prop in found.get(name, ())) > MAX_DATES:
        raise Unreadable("it has too many dates")
    zone_name = found["DTSTART"][0].params.get("TZID", "")
    return Event(
        number=number,
        uid=_text(found, "UID") or f"#{number}",
        start=start,
        end=end,
        recurrence_id=_as_kind_of_start(_moment(recurrence_ids[0], zones), start) if recurrence_ids else None,
        this_and_future=bool(recurrence_ids) and recurrence_ids[0].params.get("RANGE", "").upper() == "THISANDFUTURE",  # type: ignore[index]
        rules=tuple(prop.value for prop in found.get("RRULE", ())[:4] if prop.value.strip()),
        extra_dates=tuple(
            _extra_date(moment, start) for prop in found.get("RDATE", ()) for moment in _dates(prop, zones)
        ),
        excluded_dates=tuple(
            _as_kind_of_start(m, start)
            for p in found.get("EXDATE", ())
            for m in _dates(p, zones)
            if isinstance(m, date)
        ),
        title=_text(found, "SUMMARY"),
        location=_text(found, "LOCATION"),
        description=_text(found, "DESCRIPTION"),
        cancelled=_text(found, "STATUS").upper() == "CANCELLED",
        transparent=_text(found, "TRANSP").upper() == "TRANSPARENT",
        declined_by=tuple(
            _mail(p) for p in found.get("ATTENDEE", ()) if p.params.get("PARTSTAT", "").upper() == "DECLINED"
        ),
        attendees=tuple(_mail(prop) for prop in found.get("ATTENDEE", ())),
        organizer=_mail(found["ORGANIZER"][0]) if "ORGANIZER" in found else "",
        sequence=_sequence(found),
        timestamps=(at(start, UTC).timestamp(), at(end, UTC).timestamp()) if has_zone else None,
        unknown_zone=zone_name if isinstance(start, datetime) and zone_name and not zones.get(zone_name) else "",
    )


def _moment(prop: Property, zones: _Zones) -> Moment:
    return _parse_moment(prop.value.strip(), prop.params, zones)


def _parse_moment(text: str, params: Mapping[str, str], zones: _Zones) -> Moment:
    """A DATE or DATE-TIME; the day's end may be written 24:00, and a leap second is the second before it."""
    try:
        day = date(int(text[:4]), int(text[4:6]), int(text[6:8]))
        if not FIRST_YEAR <= day.year <= LAST_YEAR:
            raise Unreadable("its year is out of range")
        if len(text) == 8:
            return day
        clock = text[9:15]
        if text[8] not in "Tt" or len(text.rstrip("Zz")) != 15:
            raise Unreadable("its time is none")
        hour, minute, second = int(clock[:2]), int(clock[2:4]), min(int(clock[4:]), 59)
        midnight = hour == 24
        moment = datetime.combine(day + timedelta(days=midnight), time(0 if midnight else hour, minute, second))
    except (ValueError, IndexError) as error:
        raise Unreadable("its time is none") from error
    if params.get("VALUE", "").upper() == "DATE":
        return day
    if text[-1] in "Zz":
        moment = moment.replace(tzinfo=UTC)
        return moment.astimezone(zones.default) if zones.default else moment
    zone = zones.get(params["TZID"]) if "TZID" in params else zones.default
    return moment.replace(tzinfo=zone)


def _dates(prop: Property, zones: _Zones) -> Iterator[Moment | Period]:
    for piece in prop.value.split(","):
        first, slash, last = piece.strip().partition("/")
        start = _parse_moment(first, prop.params, zones)
        if not slash:
            yield start
        else:
            yield start, _duration(last) if last[:1] in "P+-" else _parse_moment(last, prop.params, zones)


def _extra_date(moment: Moment | Period, start: Moment) -> Moment | Period:
    return (
        (_as_kind_of_start(moment[0], start), moment[1])
        if isinstance(moment, tuple)
        else _as_kind_of_start(moment, start)
    )


def _as_kind_of_start(moment: Moment | Period, start: Moment) -> Moment:
    """A date of a series in the kind of its start; a mere day in a series of times is left one."""
    assert not isinstance(moment, tuple)
    if not isinstance(start, datetime):
        return moment.date() if isinstance(moment, datetime) else moment
    if not isinstance(moment, datetime) or bool(moment.tzinfo) == bool(start.tzinfo):
        return moment
    return moment.replace(tzinfo=start.tzinfo)


def _end(found: Mapping[str, Sequence[Property]], start: Moment, zones: _Zones) -> Moment:
    """The end; a day lasts until the next one. `_event` sees to one that is before the start."""
    minimum = start if isinstance(start, datetime) else start + timedelta(days=1)
    if "DTEND" in found:
        end = _moment(found["DTEND"][0], zones)
    elif "DURATION" in found:
        end = _after(start, _duration(found["DURATION"][0].value))
    else:
        return minimum
    if not isinstance(start, datetime):
        return max(end.date() if isinstance(end, datetime) else end, minimum)
    if not isinstance(end, datetime):
        end = datetime.combine(end, time(), start.tzinfo)
    if bool(end.tzinfo) != bool(start.tzinfo):
        end = end.replace(tzinfo=start.tzinfo)
    return end


def _after(start: Moment, length: timedelta) -> Moment:
    """Days are those of the calendar, hours those that pass (RFC 5545, section 3.3.6)."""
    if not isinstance(start, datetime):
        return start + timedelta(days=length.days)
    later = start + timedelta(days=length.days)
    if start.tzinfo is None:
        return later + (length - timedelta(days=length.days))
    return (later.astimezone(UTC) + (length - timedelta(days=length.days))).astimezone(start.tzinfo)


def _duration(text: str) -> timedelta:
    from icalendar import vDuration

    length: timedelta = vDuration.from_ical(text.strip()[:40])  # type: ignore[no-untyped-call]
    if not timedelta() <= length < timedelta(days=3660):
        raise Unreadable("its duration is none")
    return length


def _text(found: Mapping[str, Sequence[Property]], name: str) -> str:
    return unescape(found[name][0].value[:MAX_TEXT]).strip() if name in found else ""


def _mail(prop: Property) -> str:
    return prop.value.strip().lower().removeprefix("mailto:")[:200]


def _sequence(found: Mapping[str, Sequence[Property]]) -> int:
    text = found["SEQUENCE"][0].value.strip() if "SEQUENCE" in found else "0"
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
