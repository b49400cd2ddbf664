"""Built in: the time zones that calendar files name: of IANA, of Outlook, and those that a file describes itself."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

Moment = date | datetime
"""A day, or a time; one without zone is the same time of day wherever one is (floating)."""

FIRST_YEAR, LAST_YEAR = 1600, 2199
"""Outside of them no clock is known, and dates overflow when moved between zones."""
_OTHER_YEARS = re.compile(r"INTERVAL=(?!0*1(?!\d))")
_OFFSET = re.compile(r"\(?(?:GMT|UTC)\s?([+-])(\d\d?):?(\d\d)?\)?")
_UTC_NAMES = frozenset({"utc", "z", "gmt", "tzone://microsoft/utc", "(utc) coordinated universal time"})


@lru_cache(maxsize=512)
def named_zone(name: str) -> tzinfo | None:
    """The zone of a TZID: an IANA name, with or without a vendor's prefix, one of Windows, or an offset."""
    bare = name.strip().strip('"').strip("/")
    if bare.lower() in _UTC_NAMES:
        return UTC
    parts = bare.split("/")
    for count in (len(parts), 3, 2):
        found = _iana("/".join(parts[-count:])) if count <= len(parts) <= 8 else None
        if found:
            return found
    from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

    windows = WINDOWS_TO_OLSON.get(bare)
    return _iana(windows) if windows else _offset(bare)


def _iana(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # a name that is a folder, or none for a file, raises these
        return None


def _offset(name: str) -> tzinfo | None:
    found = _OFFSET.fullmatch(name)
    if not found:
        return None
    ahead = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
    return timezone(ahead if found[1] == "+" else -ahead) if ahead < timedelta(hours=24) else None


@lru_cache(maxsize=128)
def described_zone(texts: tuple[str, ...]) -> tzinfo | None:
    """The zone that the lines of a VTIMEZONE describe; None for one that cannot be read.

    Only rules of each year are read: others are in no zone, and would keep dateutil busy for ever.
    """
    import icalendar

    rules = [text.upper() for text in texts if text[:5].upper() == "RRULE"]
    if any("FREQ=YEARLY" not in rule or _OTHER_YEARS.search(rule) for rule in rules):
        return None
    try:
        component: Any = icalendar.Timezone.from_ical("\r\n".join(texts) + "\r\n")
        zone: tzinfo = component.to_tz(lookup_tzid=False)
        zone.utcoffset(datetime(2026, 7, 1))
    except Exception:  # noqa: BLE001 - icalendar and dateutil raise nearly anything for a stranger's zone
        return None
    return zone


def at(moment: Moment, zone: tzinfo) -> datetime:
    """The instant of a moment on the clocks of `zone`; a day begins at midnight, a floating time is of that zone.

    A time that a change of the clocks skips is read by the offset before it (RFC 5545, section 3.3.5).
    """
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return moment.astimezone(UTC).astimezone(zone)


def end_of(start: Moment, end: Moment) -> Moment:
    """The end of what begins in an hour that the clocks skip, and ends behind it: it keeps its length."""
    if not isinstance(start, datetime) or not isinstance(end, datetime) or start.tzinfo is None:
        return end
    if end <= start or start.astimezone(UTC) < end.astimezone(UTC):
        return end
    return (start.astimezone(UTC) + (end - start)).astimezone(start.tzinfo)


def like(instant: datetime, model: Moment) -> Moment:
    """An instant in the form of another moment: a day, floating, or of its zone."""
    if not isinstance(model, datetime):
        return instant.date()
    if model.tzinfo is None:
        return instant.replace(tzinfo=None)
    return instant.astimezone(UTC).astimezone(model.tzinfo)


def day_of(moment: Moment) -> date:
    """Its day, on its own clocks."""
    return moment.date() if isinstance(moment, datetime) else moment


@lru_cache(maxsize=256)
def description(name: str, year: int, years: int = 20) -> tuple[str, ...]:
    """The lines of a VTIMEZONE for an IANA zone, true from the year before `year` on for so many years."""
    zone = ZoneInfo(name)
    first = datetime(year - 1, 1, 1, tzinfo=UTC)
    groups: dict[tuple[timedelta, timedelta, str, bool], list[datetime]] = {}
    before = first.astimezone(zone)
    for days in range(1, 365 * years):
        after = (first + timedelta(days=days)).astimezone(zone)
        if after.utcoffset() != before.utcoffset():
            instant = _change(before.astimezone(UTC), after.astimezone(UTC), zone)
            old, new = _ahead(before), _ahead(after)
            key = (old, new, after.tzname() or name, bool(after.dst()))
            groups.setdefault(key, []).append((instant + old).replace(tzinfo=None))
        before = after
    start = first.astimezone(zone)
    same = _observance(_ahead(start), _ahead(start), start.tzname() or name, bool(start.dst()), [datetime(1970, 1, 1)])
    changes = [line for key, times in groups.items() for line in _observance(*key, times)]
    return ("BEGIN:VTIMEZONE", f"TZID:{name}", *same, *changes, "END:VTIMEZONE")


def _change(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The minute between two instants at which the clocks change."""
    old = before.astimezone(zone).utcoffset()
    while after - before > timedelta(minutes=1):
        middle = before + timedelta(minutes=(after - before) // timedelta(minutes=2))
        if middle.astimezone(zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return after


def _ahead(moment: datetime) -> timedelta:
    return moment.utcoffset() or timedelta()


def _observance(old: timedelta, new: timedelta, name: str, summer: bool, times: Sequence[datetime]) -> list[str]:
    kind = "DAYLIGHT" if summer else "STANDARD"
    later = ",".join(f"{time:%Y%m%dT%H%M%S}" for time in times[1:])
    more = [f"RDATE:{later}"] if later else []
    offsets = [f"TZOFFSETFROM:{_signed(old)}", f"TZOFFSETTO:{_signed(new)}"]
    return [f"BEGIN:{kind}", f"DTSTART:{times[0]:%Y%m%dT%H%M%S}", *more, *offsets, f"TZNAME:{name}", f"END:{kind}"]


def _signed(offset: timedelta) -> str:
    minutes = abs(offset) // timedelta(minutes=1)
    return f"{'-' if offset < timedelta() else '+'}{minutes // 60:02}{minutes % 60:02}"
