"""Time zones in calendar files, and conversions between dates, floating times and zoned times."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

Moment = date | datetime
"""A date or a time. A time without a zone is floating: the same local time everywhere."""
FIRST_YEAR, LAST_YEAR = 1600, 2199
"""Outside these years, conversions between zones overflow."""
_OTHER_YEARS = re.compile(r"INTERVAL=(?!0*1(?!\d))")
_OFFSET = re.compile(r"\(?(?:GMT|UTC)\s?([+-])(\d\d?):?(\d\d)?\)?")
_UTC_NAMES = frozenset({"utc", "z", "gmt", "tzone://microsoft/utc", "(utc) coordinated universal time"})


def localize(moment: Moment, zone: tzinfo) -> datetime:
    """Return a moment in `zone`; a date becomes midnight, a floating time is in that zone.

    A time that daylight saving skips uses the offset before the change (RFC 5545, section 3.3.5).
    """
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return moment.astimezone(UTC).astimezone(zone)


def resolve_end(start: Moment, end: Moment) -> Moment:
    """Return the end; an event that starts in a skipped hour of daylight saving keeps its duration."""
    if not isinstance(start, datetime) or not isinstance(end, datetime) or start.tzinfo is None:
        return end
    if end <= start or start.astimezone(UTC) < end.astimezone(UTC):
        return end
    return (start.astimezone(UTC) + (end - start)).astimezone(start.tzinfo)


def convert_like(model: Moment, moment: Moment, zone: tzinfo) -> Moment:
    """Convert a moment to the type of `model`: a date, a floating time, or a time in its zone.

    Args:
        zone: the zone of dates and floating times.
    """
    local = localize(moment, zone)
    if not isinstance(model, datetime):
        return local.date()
    if model.tzinfo is None:
        return local.replace(tzinfo=None)
    return local.astimezone(UTC).astimezone(model.tzinfo)


def to_date(moment: Moment) -> date:
    """Return the date of a moment in its own zone."""
    return moment.date() if isinstance(moment, datetime) else moment


def to_local_time(moment: Moment) -> datetime:
    """Return a moment in its own zone without the zone; a date becomes midnight."""
    return moment.replace(tzinfo=None) if isinstance(moment, datetime) else datetime.combine(moment, time())


def shift_moment(moment: Moment, shift: timedelta) -> Moment:
    """Move a moment in its local time; a date moves by whole days."""
    return moment + shift if isinstance(moment, datetime) else moment + timedelta(days=shift.days)


@lru_cache(maxsize=512)
def find_zone(name: str) -> tzinfo | None:
    """Return the zone of a TZID: an IANA name with or without vendor prefix, a Windows name, or an offset."""
    from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

    bare = name.strip().strip('"').strip("/")
    if bare.lower() in _UTC_NAMES:
        return UTC
    parts = bare.split("/")
    names = ["/".join(parts[-count:]) for count in (len(parts), 3, 2) if count <= len(parts) <= 8]
    for candidate in (*names, WINDOWS_TO_OLSON.get(bare, "")):
        try:
            return ZoneInfo(candidate)
        except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name is a directory or not a file name
            continue
    offset = _OFFSET.fullmatch(bare)
    if not offset:
        return None
    ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
    return timezone(ahead if offset[1] == "+" else -ahead) if ahead < timedelta(hours=24) else None


@lru_cache(maxsize=128)
def parse_vtimezone(texts: tuple[str, ...]) -> tzinfo | None:
    """Return the zone that the lines of a VTIMEZONE describe; None if they are invalid.

    Only yearly rules are supported: no real zone has others, and dateutil could loop forever on them.
    """
    import icalendar

    rules = [text.upper() for text in texts if text[:5].upper() == "RRULE"]
    if any("FREQ=YEARLY" not in rule or _OTHER_YEARS.search(rule) for rule in rules):
        return None
    try:
        component: Any = icalendar.Timezone.from_ical("\r\n".join(texts) + "\r\n")
        zone: tzinfo = component.to_tz(lookup_tzid=False)
        zone.utcoffset(datetime(2026, 7, 1))
    except Exception:  # noqa: BLE001 - icalendar and dateutil raise many types for hostile input
        return None
    return zone


@lru_cache(maxsize=256)
def build_vtimezone(name: str, year: int, years: int = 20) -> tuple[str, ...]:
    """Return the lines of a VTIMEZONE for an IANA zone, for `years` years from the year before `year`.

    `icalendar.Timezone.from_tzid` (7.3.0) writes the onset of summer time in the new offset; RFC 5545, section 3.6.5,
    requires the old one.
    """
    zone = ZoneInfo(name)
    first = datetime(year - 1, 1, 1, tzinfo=UTC)
    start = first.astimezone(zone)
    changes: dict[tuple[timedelta, timedelta, str, bool], list[datetime]] = {}
    before = first
    for day in (first + timedelta(days=days) for days in range(1, 365 * years)):
        after = day
        if _utc_offset(after, zone) != _utc_offset(before, zone):
            old, new = _utc_offset(before, zone), _utc_offset(after, zone)
            while after - before > timedelta(minutes=1):  # search for the minute of the change
                middle = before + timedelta(minutes=(after - before) // timedelta(minutes=2))
                before, after = (middle, after) if _utc_offset(middle, zone) == old else (before, middle)
            local = after.astimezone(zone)
            key = (old, new, local.tzname() or name, bool(local.dst()))
            changes.setdefault(key, []).append((after + old).replace(tzinfo=None))
        before = day
    offset = _utc_offset(first, zone)
    baseline = _format_observance(offset, offset, start.tzname() or name, bool(start.dst()), [datetime(1970, 1, 1)])
    later = [line for key, times in changes.items() for line in _format_observance(*key, times)]
    return ("BEGIN:VTIMEZONE", f"TZID:{name}", *baseline, *later, "END:VTIMEZONE")


def _utc_offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta()


def _format_observance(old: timedelta, new: timedelta, name: str, summer: bool, times: Sequence[datetime]) -> list[str]:
    kind = "DAYLIGHT" if summer else "STANDARD"
    offsets = []
    for offset in (old, new):
        minutes = abs(offset) // timedelta(minutes=1)
        offsets.append(f"{'-' if offset < timedelta() else '+'}{minutes // 60:02}{minutes % 60:02}")
    lines = [f"BEGIN:{kind}", f"DTSTART:{times[0]:%Y%m%dT%H%M%S}"]
    if len(times) > 1:
        lines.append(f"RDATE:{','.join(f'{one:%Y%m%dT%H%M%S}' for one in times[1:])}")
    return [*lines, f"TZOFFSETFROM:{offsets[0]}", f"TZOFFSETTO:{offsets[1]}", f"TZNAME:{name}", f"END:{kind}"]
