"""Parse date ranges such as `last 5 years`."""

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from brain import Refused, dates

PHRASE_LENGTH = 80
EARLIEST = date(1700, 1, 1)
"""The start of a range without one; PubMed has nothing older."""
FORMS = "'2024', '2019-2023', 'since 2020', 'last 5 years', 'last 6 months' or '2024-01-15 to 2024-06-30'"

_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_UNITS = {"y": 12, "yr": 12, "year": 12, "decade": 120, "quarter": 3, "mo": 1, "month": 1}
"""Units in months."""
_DASHES = str.maketrans({**dict.fromkeys("‐‑‒–—−", "-"), **dict.fromkeys("_'\"‘’“”`", " ")})
_FILLER = re.compile(r"(?:(?:published|in|during|within|over|of|for|the|year|years|between)\b:?\s*)+(?=.)")
_RECENT = re.compile(
    r"(?:(?:from|in|within|over|during|for)\s+)?(?:the\s+)?(?:(?P<word>last|past|previous|this|current)[\s-]+)?"
    r"(?:(?P<count>\d{1,4}|[a-z]+)[\s-]*)?(?P<unit>day|week|month|mo|quarter|year|yr|y|decade)(?P<many>s?)"
)
_BOUND = re.compile(r"(?P<word>since|from|after|until|till|up to|to|through|before|>=|<=|>|<)\s*(?P<point>.+)")
_OPEN = re.compile(r"(?P<point>.+?)\s*(?:-|\+|onwards?|and later|or later|and after)")
_BETWEEN = re.compile(r"\s*(?:\b(?:to|and|until|till|through)\b|\.{2,3}|[-:/])\s*")
_ISO = re.compile(r"([12]\d{3})(?:([-/.])(0?[1-9]|1[0-2])(?:\2(0?[1-9]|[12]\d|3[01]))?)?")
_YEAR_LAST = re.compile(r"\d{1,2}([-/.])\d{1,2}\1\d{4}")
_NAMED = re.compile(r"(?:(\d{1,2})\.?\s+)?([a-z]{3,9})\.?(?:\s+(\d{1,2}))?,?\s+([12]\d{3})")
_NAMED_LAST = re.compile(r"([12]\d{3})\s+([a-z]{3,9})\.?(?:\s+(\d{1,2}))?")
_QUARTER = re.compile(r"(?:q([1-4])\s*([12]\d{3})|([12]\d{3})\s*-?q([1-4]))")
_DECADE = re.compile(r"([12]\d{2}0)s")


@dataclass(frozen=True, slots=True)
class Period:
    """The first and the last day, both included; None for an open end."""

    start: date | None
    end: date | None

    def __str__(self) -> str:
        if self.start is None or self.end is None:
            return f"since {self.start}" if self.start else f"until {self.end}"
        return f"{self.start} to {self.end}"


def parse_period(phrase: str, today: date) -> Period | None:
    """Return the period that a phrase means; None for all dates.

    `last 5 years` ends today. So does `last year`, the past twelve months.

    Raises:
        Refused: if the phrase cannot be parsed.
    """
    text = " ".join(phrase.translate(_DASHES).casefold().split()).strip(" .,;")
    if text in ("all", "any", "all time", "any time", "all years"):
        return None
    if len(phrase) <= PHRASE_LENGTH and text:
        for form in (text, _FILLER.sub("", text, count=1) if _FILLER.match(text) else text):
            for parse in (_parse_recent, _parse_point, _parse_bounded, _parse_range):
                if found := parse(form, today):
                    return found
    shown = phrase[:40] + ("…" if len(phrase) > 40 else "")
    raise Refused(f"the date_range '{shown}' is invalid", f"use {FORMS}")


def _parse_recent(text: str, today: date) -> Period | None:
    """Parse periods that end today, and phrases such as `this year`."""
    match = _RECENT.fullmatch(text)
    if match is None:
        return None
    word, count, unit = match["word"], match["count"], match["unit"]
    if count == "calendar" or (count is None and word in ("previous", "this", "current")):
        return _parse_calendar(word, unit, today)
    number = _parse_number(count) if count else 1
    if not number or not (word or count) or (match["many"] and not count):
        return None
    if unit in ("day", "week"):
        return Period(max(EARLIEST, today - timedelta(number * (7 if unit == "week" else 1))), today)
    return Period(_subtract_months(today, number * _UNITS[unit]), today)


def _parse_number(word: str) -> int:
    return int(word) if word.isdecimal() else _NUMBERS.index(word) + 1 if word in _NUMBERS else 0


def _parse_calendar(word: str | None, unit: str, today: date) -> Period | None:
    """Return this or the previous calendar year or month."""
    if unit not in ("year", "month"):
        return None
    first = today.replace(day=1) if unit == "month" else today.replace(month=1, day=1)
    if word in ("this", "current"):
        return Period(first, today)
    last = first - timedelta(1)
    return Period(last.replace(day=1) if unit == "month" else last.replace(month=1, day=1), last)


def _subtract_months(day: date, months: int) -> date:
    year, month = divmod(day.year * 12 + day.month - 1 - months, 12)
    if year < EARLIEST.year:
        return EARLIEST
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def _parse_bounded(text: str, today: date) -> Period | None:
    """Parse periods that are open at one end."""
    later = _OPEN.fullmatch(text)
    if later and (point := _parse_point(later["point"], today)):
        return Period(point.start, None)
    match = _BOUND.fullmatch(text)
    point = _parse_point(match["point"], today) if match else None
    if match is None or point is None or point.start is None or point.end is None:
        return None
    match match["word"]:
        case "since" | "from" | ">=":
            return Period(point.start, None)
        case "after" | ">":
            return Period(point.end + timedelta(1), None)
        case "before" | "<":
            return Period(None, point.start - timedelta(1))
        case _:
            return Period(None, point.end)


def _parse_range(text: str, today: date) -> Period | None:
    """Parse two dates in either order."""
    text = re.sub(r"^(?:from|between)\s+", "", text)
    for between in _BETWEEN.finditer(text):
        points = _parse_point(text[: between.start()], today), _parse_point(text[between.end() :], today)
        days = [day for point in points if point for day in (point.start, point.end) if day]
        if len(days) == 4:
            return Period(min(days), max(days))
    return None


def _parse_point(text: str, today: date) -> Period | None:
    """Parse a day, a month, a quarter, a year or a decade.

    Raises:
        Refused: if the day is ambiguous.
    """
    if text in ("today", "now", "present", "date", "current"):
        return Period(today, today)
    if _YEAR_LAST.fullmatch(text):
        try:
            named = dates.parse_time(text, datetime.combine(today, time()))
        except dates.AmbiguousDate as error:
            reason, _, advice = str(error).partition("; ")
            raise Refused(f"the date_range is ambiguous: {reason}", advice) from None
        return Period(named.first, named.first) if named else None
    for year, month, day, months in _parse_units(text):
        try:
            first = date(year, month or 1, day or 1)
        except ValueError:
            return None
        return Period(first, first if day else _subtract_months(first, -months) - timedelta(1))
    return None


def _parse_units(text: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield year, month and day, 0 for a missing one, and the length in months if the day is missing."""
    if match := _ISO.fullmatch(text):
        yield int(match[1]), int(match[3] or 0), int(match[4] or 0), 1 if match[3] else 12
    if match := _DECADE.fullmatch(text):
        yield int(match[1]), 0, 0, 120
    if match := _QUARTER.fullmatch(text):
        yield int(match[2] or match[3]), int(match[1] or match[4]) * 3 - 2, 0, 3
    if (match := _NAMED.fullmatch(text)) and (month := _find_month(match[2])) and not (match[1] and match[3]):
        yield int(match[4]), month, int(match[1] or match[3] or 0), 1
    if (match := _NAMED_LAST.fullmatch(text)) and (month := _find_month(match[2])):
        yield int(match[1]), month, int(match[3] or 0), 1


def _find_month(name: str) -> int:
    return next((number for number, month in enumerate(dates.MONTH_NAMES, 1) if month.lower().startswith(name)), 0)
