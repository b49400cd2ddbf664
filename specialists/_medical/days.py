"""Built in: days as people write them, where there is only one way to read them."""

import re
from datetime import date, datetime
from typing import Any

MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_YEAR_FIRST = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[t ]\d\d:\d\d.{0,20})?")
_YEAR_LAST = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})")
_MONTH_FIRST = re.compile(r"([a-z]{3,9})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})")
_DAY_FIRST = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?\.?[\s-]+(?:of\s+)?([a-z]{3,9})\.?,?[\s-]+(\d{4})")
WANTED = "expected a day as YYYY-MM-DD"


def day_of(raw: Any) -> date:
    """The day of a text.

    Raises:
        ValueError: when it is none, or when day and month could be either of two numbers.
    """
    if not isinstance(raw, str) or len(raw) > 40:
        raise ValueError(WANTED)
    text = raw.strip().lower()
    if found := _YEAR_FIRST.fullmatch(text):
        return _day(int(found[1]), int(found[2]), int(found[3]))
    if found := _YEAR_LAST.fullmatch(text):
        return _either(int(found[1]), int(found[2]), int(found[3]))
    if found := _MONTH_FIRST.fullmatch(text):
        return _day(int(found[3]), _month(found[1]), int(found[2]))
    if found := _DAY_FIRST.fullmatch(text):
        return _day(int(found[3]), _month(found[2]), int(found[1]))
    raise ValueError(WANTED)


def _either(first: int, second: int, year: int) -> date:
    if first != second and first <= 12 and second <= 12:
        raise ValueError(f"could be {_day(year, first, second)} or {_day(year, second, first)}; write it as YYYY-MM-DD")
    return _day(year, second, first) if first > 12 else _day(year, first, second)


def _month(name: str) -> int:
    found = [number for number, month in enumerate(MONTHS, 1) if month.startswith(name) or name == month[:3] + "t"]
    if len(found) != 1:
        raise ValueError(WANTED)
    return found[0]


def _day(year: int, month: int, day: int) -> date:
    try:
        found = datetime(year, month, day).date()
    except ValueError:
        raise ValueError(f"there is no such day; {WANTED}") from None
    if not 1900 <= year <= 2200:
        raise ValueError("its year is outside 1900 to 2200")
    return found
