"""Parse dates and times: ISO 8601, plain English, and other languages with dateparser."""

import importlib.util
import re
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from brain import Refused
from specialists._calendar.zones import Moment, localize, to_date

LANGUAGES = ("en", "de", "fr", "es", "it", "nl", "pt", "pl")
YEARS = (1900, 2149)
_MAX_LENGTH = 60
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY_OFFSETS = {"today": 0, "tomorrow": 1, "day after tomorrow": 2, "yesterday": -1}
_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_DAY = rf"(?P<day>{'|'.join(_DAY_OFFSETS)}|(?:(?P<which>this|next|on)\s+)?(?P<weekday>{'|'.join(_WEEKDAYS)}))"
_CLOCK = (
    r"(?:at\s+)?(?:(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>[ap]\.?m\.?)?|(?P<named>noon|midday|midnight))"
)
_DAY_AND_TIME = re.compile(rf"{_DAY}(?:,?\s+{_CLOCK})?")
_TIME = re.compile(_CLOCK)
_FROM_NOW = re.compile(r"in\s+(?P<count>\d{1,4}|an?|one|two|three|four|five|six)\s+(?P<unit>minute|hour|day|week)s?")
_DAYS = re.compile(rf"\b(?:(?P<week>this|next) week|{_DAY})\b")
_UHR = re.compile(r"(?:um\s+)?\b(\d{1,2})(?:[:.](\d\d))?\s*uhr\b", re.IGNORECASE)
_MENTIONS_TIME = re.compile(
    r"\d\s*(?:h\b|:|\.\d\d(?![.\d])|am\b|pm\b|a\.m|p\.m|uhr|o.?clock)|morning|noon|evening|night|abend|vormittag|nachmittag|nacht|früh"
    r"|matin|soir|nuit|tarde|noche|sera|notte|ochtend|avond|manhã|noite|^\d{1,2}$",
    re.IGNORECASE,
)
_AMBIGUOUS = (
    re.compile(
        r"(?<![\d-])\d{1,2}(?::\d\d)?\s*(?:[ap]m)?\s*(?:-|–|to|bis)\s*\d{1,2}(?::\d\d)?(?![\d-])", re.IGNORECASE
    ),
    re.compile(r"^\d+ ?h$"),
)
"""Time ranges, and hours that may be a duration."""
_NUMBERS = re.compile(r"\b(\d{1,2})([/-])(\d{1,2})\2(?:\d{4}|\d\d)?\b")
_TIME_ALONE = re.compile(
    r"(?:(?:at|um|à|a las)\s+)?\d{1,2}(?:[:.h]\d\d)?\s*(?:[ap]\.?m\.?|uhr|h|o.?clock)?|noon|midday|midnight",
    re.IGNORECASE,
)


def parse_time(text: str, now: datetime, *, name: str = "start") -> Moment:
    """Return a date, or a time in the zone of `now`.

    Args:
        name: name of the parameter, for the error message.

    Raises:
        Refused: if the text is not a date or time, or is ambiguous.
    """
    zone = now.tzinfo
    assert isinstance(zone, ZoneInfo)
    plain = " ".join(text.split())
    moment = None
    if len(plain) <= _MAX_LENGTH:
        moment = _parse_iso(plain) or _parse_words(plain.lower(), now) or _parse_any_language(plain, now)
    if moment is None or not YEARS[0] <= moment.year <= YEARS[1]:
        raise Refused(f"{name} {plain[:40]!r} is not a clear date or time", "use ISO 8601, such as 2026-03-30T09:00")
    return localize(moment, zone) if isinstance(moment, datetime) else moment


def is_time_of_day(text: str | None) -> bool:
    """Return whether a text is a time without a date."""
    return text is not None and _TIME_ALONE.fullmatch(" ".join(text.split())) is not None


def is_week(text: str | None) -> bool:
    """Return whether a text is `this week` or `next week`."""
    return text is not None and " ".join(text.lower().split()) in ("this week", "next week")


def end_previous_day(day: Moment, now: datetime) -> datetime:
    """Return the second before a day begins; relative to it, a time without a date is on that day."""
    return datetime.combine(to_date(day), time(), now.tzinfo) - timedelta(seconds=1)


def find_days(sentence: str, now: datetime) -> tuple[date, date] | None:
    """Return the first and last day that a sentence names in plain English, or None."""
    found = _DAYS.search(" ".join(sentence[:1000].lower().split()))
    today = now.date()
    if not found:
        return None
    if found["week"]:
        monday = today - timedelta(days=today.weekday()) + timedelta(days=7 if found["week"] == "next" else 0)
        return max(monday, today), monday + timedelta(days=6)
    day = _find_day(found, today)
    return day, day


def _parse_iso(text: str) -> Moment | None:
    for parse in (date.fromisoformat, datetime.fromisoformat):
        try:
            return parse(text.upper())
        except ValueError:
            continue
    return None


def _parse_words(text: str, now: datetime) -> Moment | None:
    """Parse plain English; a time that has passed today or on this weekday means the next one."""
    if text == "now":
        return now
    if ahead := _FROM_NOW.fullmatch(text):
        count = _COUNTS.get(ahead["count"]) or int(ahead["count"])
        if ahead["unit"] in ("day", "week"):
            return now.date() + timedelta(days=count * (7 if ahead["unit"] == "week" else 1))
        later = now.timestamp() + count * (60 if ahead["unit"] == "minute" else 3600)
        return datetime.fromtimestamp(later, now.tzinfo).replace(second=0, microsecond=0)
    if found := _TIME.fullmatch(text):
        clock = _parse_clock(found)
        if clock is None or not (found["minute"] or found["half"] or found["named"]):
            return None
        moment = datetime.combine(now.date(), clock, now.tzinfo)
        return moment if moment > now else datetime.combine(now.date() + timedelta(days=1), clock, now.tzinfo)
    found = _DAY_AND_TIME.fullmatch(text)
    if not found:
        return None
    day = _find_day(found, now.date())
    if not (found["hour"] or found["named"]):
        return day
    clock = _parse_clock(found)
    if clock is None:
        return None
    moment = datetime.combine(day, clock, now.tzinfo)
    return moment + timedelta(days=7) if found["weekday"] and moment < now else moment


def _find_day(found: re.Match[str], today: date) -> date:
    if found["weekday"] is None:
        return today + timedelta(days=_DAY_OFFSETS[found["day"]])
    offset = (_WEEKDAYS.index(found["weekday"]) - today.weekday()) % 7
    return today + timedelta(days=7 if offset == 0 and found["which"] == "next" else offset)


def _parse_clock(found: re.Match[str]) -> time | None:
    if found["named"]:
        return time(0 if found["named"] == "midnight" else 12)
    hour, minute = int(found["hour"]), int(found["minute"] or "0")
    if found["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found["half"].startswith("p") else 0)
    return time(hour, minute) if hour < 24 and minute < 60 else None


def _parse_any_language(text: str, now: datetime) -> Moment | None:
    """Parse other texts with dateparser, which may take a second."""
    numbers = _NUMBERS.search(text)  # 3/4 is ambiguous
    either = numbers is not None and numbers[1] != numbers[3] and max(int(numbers[1]), int(numbers[3])) <= 12
    if not importlib.util.find_spec("dateparser") or either or any(pattern.search(text) for pattern in _AMBIGUOUS):
        return None
    from dateparser.date import DateDataParser

    zone = str(now.tzinfo)
    settings = {
        "RELATIVE_BASE": now.replace(tzinfo=None),
        "PREFER_DATES_FROM": "future",
        "RETURN_TIME_AS_PERIOD": True,
        "TIMEZONE": zone,
        "TO_TIMEZONE": zone,
        "RETURN_AS_TIMEZONE_AWARE": True,
    }
    if "." in text:
        settings["DATE_ORDER"] = "DMY"
    try:
        found = DateDataParser(languages=list(LANGUAGES), settings=settings).get_date_data(
            _UHR.sub(lambda match: f"{match[1]}:{match[2] or '00'}", text)
        )
    except (ValueError, OverflowError, TypeError):  # raised for odd texts
        return None
    moment: datetime | None = found.date_obj
    if moment is None or (moment.year > now.year + 50 and str(moment.year) not in text):
        return None  # PREFER_DATES_FROM adds a century to a past two-digit year
    local = moment.replace(tzinfo=now.tzinfo, second=0, microsecond=0)
    if found.period == "time":
        return local
    is_count_of_days = found.period == "week" and any(character.isdigit() for character in text)
    return local.date() if (found.period == "day" or is_count_of_days) and not _MENTIONS_TIME.search(text) else None
