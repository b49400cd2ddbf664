"""Times and time zones: those that calendar files name, and those that people write."""

import importlib.util
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from brain import Refused

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
def zone_from_vtimezone(texts: tuple[str, ...]) -> tzinfo | None:
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


def as_kind_of(instant: datetime, model: Moment) -> Moment:
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
def vtimezone_lines(name: str, year: int, years: int = 20) -> tuple[str, ...]:
    """Return the lines of a VTIMEZONE for an IANA zone, from the year before `year` on, for `years` years.

    `icalendar.Timezone.from_tzid` writes the onset of summer time in the new offset; RFC 5545 requires the old one.
    """
    zone = ZoneInfo(name)
    first = datetime(year - 1, 1, 1, tzinfo=UTC)
    groups: dict[tuple[timedelta, timedelta, str, bool], list[datetime]] = {}
    before = first.astimezone(zone)
    for days in range(1, 365 * years):
        after = (first + timedelta(days=days)).astimezone(zone)
        if after.utcoffset() != before.utcoffset():
            instant = _change_time(before.astimezone(UTC), after.astimezone(UTC), zone)
            old, new = _offset_of(before), _offset_of(after)
            key = (old, new, after.tzname() or name, bool(after.dst()))
            groups.setdefault(key, []).append((instant + old).replace(tzinfo=None))
        before = after
    start = first.astimezone(zone)
    baseline = _observance(
        _offset_of(start), _offset_of(start), start.tzname() or name, bool(start.dst()), [datetime(1970, 1, 1)]
    )
    changes = [line for key, times in groups.items() for line in _observance(*key, times)]
    return ("BEGIN:VTIMEZONE", f"TZID:{name}", *baseline, *changes, "END:VTIMEZONE")


def _change_time(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The minute between two instants at which the clocks change."""
    old = before.astimezone(zone).utcoffset()
    while after - before > timedelta(minutes=1):
        middle = before + timedelta(minutes=(after - before) // timedelta(minutes=2))
        if middle.astimezone(zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return after


def _offset_of(moment: datetime) -> timedelta:
    return moment.utcoffset() or timedelta()


def _observance(old: timedelta, new: timedelta, name: str, summer: bool, times: Sequence[datetime]) -> list[str]:
    kind = "DAYLIGHT" if summer else "STANDARD"
    later = ",".join(f"{time:%Y%m%dT%H%M%S}" for time in times[1:])
    more = [f"RDATE:{later}"] if later else []
    offsets = [f"TZOFFSETFROM:{_format_offset(old)}", f"TZOFFSETTO:{_format_offset(new)}"]
    return [f"BEGIN:{kind}", f"DTSTART:{times[0]:%Y%m%dT%H%M%S}", *more, *offsets, f"TZNAME:{name}", f"END:{kind}"]


def _format_offset(offset: timedelta) -> str:
    minutes = abs(offset) // timedelta(minutes=1)
    return f"{'-' if offset < timedelta() else '+'}{minutes // 60:02}{minutes % 60:02}"


LANGUAGES = ("en", "de", "fr", "es", "it", "nl", "pt", "pl")
YEARS = (1900, 2149)
_MAX_LENGTH = 60
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY_OFFSETS = {"today": 0, "tomorrow": 1, "day after tomorrow": 2, "yesterday": -1}
_DAY = rf"(?P<day>{'|'.join(_DAY_OFFSETS)}|(?:(?P<which>this|next|on)\s+)?(?P<weekday>{'|'.join(_WEEKDAYS)}))"
_CLOCK = r"(?:(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>[ap]\.?m\.?)?|(?P<named>noon|midday|midnight))"
_WORDS = re.compile(rf"{_DAY}(?:,?\s+(?:at\s+)?{_CLOCK})?|(?:at\s+)?{_CLOCK.replace('P<', 'P<only_')}")
_FROM_NOW = re.compile(r"in\s+(?P<count>\d{1,4}|an?|one|two|three|four|five|six)\s+(?P<unit>minute|hour|day|week)s?")
_DAYS = re.compile(rf"\b(?:(?P<week>this|next) week|{_DAY})\b")
_UHR = re.compile(r"(?:um\s+)?\b(\d{1,2})(?:[:.](\d\d))?\s*uhr\b", re.IGNORECASE)
_TIME_OF_DAY = re.compile(
    r"\d\s*(?:h\b|:|\.\d\d(?![.\d])|am\b|pm\b|a\.m|p\.m|uhr|o.?clock)|morning|noon|evening|night|abend|vormittag|nachmittag|nacht|früh"
    r"|matin|soir|nuit|tarde|noche|sera|notte|ochtend|avond|manhã|noite|^\d{1,2}$",
    re.IGNORECASE,
)
"""A time of day that was meant: a day alone would be less than was said."""
_RANGE = re.compile(
    r"(?<![\d-])\d{1,2}(?::\d\d)?\s*(?:[ap]m)?\s*(?:-|–|to|bis)\s*\d{1,2}(?::\d\d)?(?![\d-])", re.IGNORECASE
)
_NUMBERS = re.compile(r"\b(\d{1,2})([./-])(\d{1,2})\2(?:\d{4}|\d\d)?\b")
_TIME_ALONE = re.compile(
    r"(?:(?:at|um|à|a las)\s+)?\d{1,2}(?:[:.h]\d\d)?\s*(?:[ap]\.?m\.?|uhr|h|o.?clock)?|noon|midday|midnight",
    re.IGNORECASE,
)
_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}


def parse_time(text: str, now: datetime, *, name: str = "start") -> Moment:
    """A day, or a time on the clocks of `now`.

    Args:
        name: the parameter that it was given for.

    Raises:
        Refused: for what cannot be read, asking for ISO 8601.
    """
    zone = now.tzinfo
    assert isinstance(zone, ZoneInfo)
    plain = " ".join(text.split())
    if len(plain) > _MAX_LENGTH:
        raise _refusal(name, plain)
    moment = _parse_iso(plain) or _parse_words(plain.lower(), now) or _parse_any_language(plain, now)
    if moment is None or not YEARS[0] <= moment.year <= YEARS[1]:
        raise _refusal(name, plain)
    return at(moment, zone) if isinstance(moment, datetime) else moment


def _refusal(name: str, text: str) -> Refused:
    more = "" if has_dateparser() else "; the operator can pip install 'brain-sse[calendar]' to have more words read"
    return Refused(f"{name} {text[:40]!r} is no time that can be read; give ISO 8601, such as 2026-03-30T09:00{more}")


def has_dateparser() -> bool:
    return importlib.util.find_spec("dateparser") is not None


def _parse_iso(text: str) -> Moment | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError:
        return None


def _parse_words(text: str, now: datetime) -> Moment | None:
    """The plain words; what is at a time that has passed today is meant for later."""
    if text == "now":
        return now
    ahead = _FROM_NOW.fullmatch(text)
    if ahead:
        count = _COUNTS.get(ahead["count"]) or int(ahead["count"])
        return _from_now(now, count, ahead["unit"])
    found = _WORDS.fullmatch(text)
    if not found:
        return None
    if not found["day"]:
        clock = _time_of_day(found["only_hour"], found["only_minute"], found["only_half"], found["only_named"])
        if clock is None or not (found["only_minute"] or found["only_half"] or found["only_named"]):
            return None
        today = datetime.combine(now.date(), clock, now.tzinfo)
        return today if today > now else datetime.combine(now.date() + timedelta(days=1), clock, now.tzinfo)
    day = _day(found["day"], found["weekday"], found["which"], now.date())
    if not (found["hour"] or found["named"]):
        return day
    clock = _time_of_day(found["hour"], found["minute"], found["half"], found["named"])
    if clock is None:
        return None
    moment = datetime.combine(day, clock, now.tzinfo)
    return moment + timedelta(days=7) if found["weekday"] and moment < now else moment


def is_time_of_day(text: str | None) -> bool:
    """Whether it is a time of day, without a day."""
    return text is not None and _TIME_ALONE.fullmatch(" ".join(text.split())) is not None


def end_of_day_before(day: Moment, now: datetime) -> datetime:
    """Right before a day begins, from where a time of day alone is one of that day."""
    return datetime.combine(day_of(day), time(), now.tzinfo) - timedelta(seconds=1)


def is_week(text: str | None) -> bool:
    """Whether it is a week in words, which is no day to begin with."""
    return text is not None and " ".join(text.lower().split()) in ("this week", "next week")


def days_in(sentence: str, now: datetime) -> tuple[date, date] | None:
    """The first and the last of the days that a sentence speaks of in plain words; None when it speaks of none."""
    found = _DAYS.search(" ".join(sentence[:1000].lower().split()))
    today = now.date()
    if not found:
        return None
    if found["week"]:
        monday = today - timedelta(days=today.weekday()) + timedelta(days=7 if found["week"] == "next" else 0)
        return max(monday, today), monday + timedelta(days=6)
    day = _day(found["day"], found["weekday"], found["which"], today)
    return day, day


def _from_now(now: datetime, count: int, unit: str) -> Moment:
    if unit in ("day", "week"):
        return now.date() + timedelta(days=count * (7 if unit == "week" else 1))
    later = now.timestamp() + count * (60 if unit == "minute" else 3600)
    return datetime.fromtimestamp(later, now.tzinfo).replace(second=0, microsecond=0)


def _day(word: str, weekday: str | None, modifier: str | None, today: date) -> date:
    if weekday is None:
        return today + timedelta(days=_DAY_OFFSETS[word])
    offset = (_WEEKDAYS.index(weekday) - today.weekday()) % 7
    return today + timedelta(days=7 if offset == 0 and modifier == "next" else offset)


def _time_of_day(hour: str | None, minute: str | None, meridiem: str | None, named: str | None) -> time | None:
    if named:
        return time(0 if named == "midnight" else 12)
    number = int(hour or "")
    if meridiem:
        if not 1 <= number <= 12:
            return None
        number = number % 12 + (12 if meridiem.startswith("p") else 0)
    return time(number, int(minute or "0")) if number < 24 and int(minute or "0") < 60 else None


def _is_ambiguous(text: str) -> bool:
    """Two times at once, a day that is another one in another country, or hours that may be a time of day."""
    numbers = _NUMBERS.search(text)
    is_ambiguous = numbers is not None and numbers[2] != "." and numbers[1] != numbers[3]
    is_ambiguous = is_ambiguous and max(int(numbers[1]), int(numbers[3])) <= 12  # type: ignore[index]
    return is_ambiguous or _RANGE.search(text) is not None or re.fullmatch(r"\d+ ?h", text) is not None


def _parse_any_language(text: str, now: datetime) -> Moment | None:
    """What dateparser makes of other words; it may take a second, and says how much time they are about."""
    if not has_dateparser() or _is_ambiguous(text):
        return None
    from dateparser.date import DateDataParser

    parser = DateDataParser(
        languages=list(LANGUAGES),
        settings={
            "RELATIVE_BASE": now.replace(tzinfo=None),
            "PREFER_DATES_FROM": "future",
            "RETURN_TIME_AS_PERIOD": True,
            "TIMEZONE": str(now.tzinfo),
            "TO_TIMEZONE": str(now.tzinfo),
            "RETURN_AS_TIMEZONE_AWARE": True,
        }
        | ({"DATE_ORDER": "DMY"} if "." in text else {}),
    )
    try:
        found = parser.get_date_data(_UHR.sub(lambda match: f"{match[1]}:{match[2] or '00'}", text))
    except (ValueError, OverflowError, TypeError):  # what dateparser raises for odd texts
        return None
    moment: datetime | None = found.date_obj
    if moment is None or (moment.year > now.year + 50 and str(moment.year) not in text):
        return None  # PREFER_DATES_FROM makes a century of it when a year of two digits is over
    local = moment.replace(tzinfo=now.tzinfo, second=0, microsecond=0)
    if found.period == "time":
        return local
    is_count_of_days = found.period == "week" and any(character.isdigit() for character in text)
    return local.date() if (found.period == "day" or is_count_of_days) and not _TIME_OF_DAY.search(text) else None
