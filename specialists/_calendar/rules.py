"""Repeat rules (RRULE). What comes in is a stranger's; what goes out ends, and is as much work as it says."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice

from specialists._calendar.times import FIRST_YEAR, Moment, day_of

LAST_YEAR = 2150
"""Where rules without an end stop."""
MAX_WORK = 400_000
"""Steps of dateutil for one series, about a second."""
MAX_OCCURRENCES = 25_000
"""Of one series in one window, about a second too."""
MAX_COUNT = 20_000
MAX_INTERVAL = 100_000
MAX_TIMES_A_DAY = 96
_TIMES_A_DAY = {"HOURLY": 24, "MINUTELY": 1440, "SECONDLY": 86_400}
_FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", *_TIMES_A_DAY)
_WEEK = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_DAY = re.compile(r"[+-]?[0-9]{0,2}(?:MO|TU|WE|TH|FR|SA|SU)")
_DAY_FILTERS = ("BYMONTH", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYDAY")
_BOUNDS = {
    "BYSECOND": (0, 59),
    "BYMINUTE": (0, 59),
    "BYHOUR": (0, 23),
    "BYMONTHDAY": (-31, 31),
    "BYYEARDAY": (-366, 366),
    "BYWEEKNO": (-53, 53),
    "BYMONTH": (1, 12),
    "BYSETPOS": (-366, 366),
}


class BadRule(ValueError):
    """A rule that cannot be followed; says why in a few words."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that was checked; `text` has an UNTIL in the form that dateutil takes, and never a COUNT."""

    text: str
    parts: Mapping[str, str]

    @property
    def last(self) -> date:
        """The day with which it ends; in the last of years if it does not."""
        until = self.text.rpartition("UNTIL=")[2]
        return date(int(until[:4]), int(until[4:6]), int(until[6:8]))

    def work(self, start: Moment, until: date) -> int:
        """About how many steps it takes to follow it up to a day."""
        days = max((until - day_of(start)).days, 1)
        return self.max_occurrences(days if self.parts["FREQ"] in _TIMES_A_DAY else max(days, 366))

    def max_occurrences(self, days: int) -> int:
        """How often it happens in so many days at most."""
        interval = int(self.parts.get("INTERVAL", "1")) if self.parts["FREQ"] in _TIMES_A_DAY else 1
        return days * _times_a_day(self.parts) // interval


def parse_rule(text: str, start: Moment) -> Rule:
    """Checks a rule and brings its end into one form.

    Args:
        start: the first time of the series, whose kind the end takes on.

    Raises:
        BadRule: when it is none, or asks for what no calendar does.
    """
    parts = _parts(text)
    _check(parts)
    parts = _for_dateutil(parts, start)
    if not _any_day_fits(";".join(f"{name}={parts[name]}" for name in _DAY_FILTERS if name in parts)):
        raise BadRule("no day fits it")
    count = int(parts.pop("COUNT", "0"))
    until = parts.pop("UNTIL", None)
    last = _until(until, start) if until else _endless_end(start)
    if count > 0:
        last = _last_counted(parts, start, count, last)
    return Rule(f"{_format_rule(parts)};UNTIL={_format_end(last)}", {**parts})


def _parts(text: str) -> dict[str, str]:
    pairs = [piece.partition("=") for piece in text.strip().strip(";").upper().split(";")]
    parts = {name.strip(): value.strip() for name, _, value in pairs if not name.startswith("X-")}
    if len(parts) > 16 or not all(parts.values()):
        raise BadRule("it is no list of NAME=VALUE")
    if parts.pop("RSCALE", "GREGORIAN") != "GREGORIAN" or parts.pop("SKIP", "OMIT") != "OMIT":
        raise BadRule("only plain Gregorian rules are known")
    return parts


def _check(parts: Mapping[str, str]) -> None:
    if parts.get("FREQ") not in _FREQUENCIES:
        raise BadRule(f"FREQ must be one of {', '.join(_FREQUENCIES[:4])}")
    for name, value in parts.items():
        if name in _BOUNDS:
            low, high = _BOUNDS[name]
            numbers = [_number(piece, name, low, high) for piece in value.split(",")]
            if low < 0 and 0 in numbers:
                raise BadRule(f"{name} has no 0")
        elif name == "BYDAY":
            if len(value) > 400 or not all(_DAY.fullmatch(piece) for piece in value.split(",")):
                raise BadRule("BYDAY takes days such as MO,WE or 1MO or -1FR")
        elif name == "WKST":
            if not _DAY.fullmatch(value) or len(value) != 2:
                raise BadRule("WKST takes a day such as MO")
        elif name == "INTERVAL":
            _number(value, name, 1, MAX_INTERVAL)
        elif name == "COUNT":
            _number(value, name, -1, MAX_COUNT)  # some programs write -1 for no end
        elif name not in ("FREQ", "UNTIL"):
            raise BadRule(f"{re.sub('[^A-Z-]', '', name)[:20]} is no part of a rule")
    if len(parts.get("BYSETPOS", "").split(",")) > 31:
        raise BadRule("BYSETPOS has too many positions")
    max_times = 4 if "BYSETPOS" in parts else MAX_TIMES_A_DAY
    is_subdaily = parts["FREQ"] in _TIMES_A_DAY
    if (is_subdaily and "BYSETPOS" in parts) or (not is_subdaily and _times_a_day(parts) > max_times):
        raise BadRule("it asks for too many times a day")
    if parts["FREQ"] == "DAILY" and max(abs(int(n)) for n in parts.get("BYSETPOS", "1").split(",")) > max_times:
        raise BadRule("BYSETPOS asks for more than a day has")


def _for_dateutil(parts: Mapping[str, str], start: Moment) -> dict[str, str]:
    """The same rule in parts that dateutil follows as RFC 5545 says (section 3.3.10).

    It takes all days of a week for BYWEEKNO alone, where the RFC takes the start's, and counts BYSETPOS in a first week
    that begins with the start.

    Raises:
        BadRule: for what has no such form.
    """
    parts = dict(parts)
    weeks, days = parts.get("BYWEEKNO"), parts.get("BYDAY")
    if weeks:
        if parts["FREQ"] != "YEARLY":
            raise BadRule("BYWEEKNO goes with FREQ=YEARLY only")
        if days and any(len(day) > 2 for day in days.split(",")):
            raise BadRule("BYWEEKNO takes no numbers before days")
        if "BYSETPOS" in parts:
            raise BadRule("BYWEEKNO and BYSETPOS together are not known")
        numbers = {int(week) for week in weeks.split(",")}
        if numbers & {52, 53, -52, -53}:
            raise BadRule("weeks 52 and 53 are not known, but BYWEEKNO=-1 for the last one of a year is")
        if int(parts.get("INTERVAL", "1")) > 1 and numbers & {1, -1}:
            raise BadRule("the first and last weeks of a year need INTERVAL=1")
        if not days and not {"BYMONTHDAY", "BYYEARDAY"} & parts.keys():
            parts["BYDAY"] = _WEEK[day_of(start).weekday()]
    if parts["FREQ"] == "WEEKLY" and (positions := parts.pop("BYSETPOS", None)):
        if "BYMONTH" in parts or _times_a_day(parts) > 1 or {"BYMONTHDAY", "BYYEARDAY"} & parts.keys():
            raise BadRule("BYSETPOS in a week goes with BYDAY alone")
        first = _WEEK.index(parts.get("WKST", "MO"))
        week = _WEEK[first:] + _WEEK[:first]
        own_days = {day[-2:] for day in days.split(",")} if days else {_WEEK[day_of(start).weekday()]}
        sorted_days = sorted(own_days, key=week.index)
        calendars_named = {
            sorted_days[n - 1 if n > 0 else n] for n in map(int, positions.split(",")) if abs(n) <= len(sorted_days)
        }
        if not calendars_named:
            raise BadRule("no day fits it")
        parts["BYDAY"] = ",".join(sorted(calendars_named, key=week.index))
    return parts


@lru_cache(maxsize=256)
def _any_day_fits(filters: str) -> bool:
    """Whether any day fits; dateutil would look for one, day by day, to the end of the calendar."""
    from dateutil.rrule import rrulestr

    try:
        rule = rrulestr(f"FREQ=YEARLY;{filters}".rstrip(";"), dtstart=datetime(2000, 1, 1))
        return next(iter(rule), None) is not None
    except (ValueError, IndexError):  # the latter for the 50th Monday of a month
        return False


def _number(text: str, name: str, low: int, high: int) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,6}", text) or not low <= int(text) <= high:
        raise BadRule(f"{name} must be from {low} to {high}")
    return int(text)


def _times_a_day(parts: Mapping[str, str]) -> int:
    is_subdaily = _TIMES_A_DAY.get(parts["FREQ"], 1)
    finer = [name for name in ("BYHOUR", "BYMINUTE", "BYSECOND") if name in parts]
    for name in finer:
        is_subdaily *= len(set(parts[name].split(",")))
    return min(is_subdaily, _TIMES_A_DAY["SECONDLY"])


def _until(text: str, start: Moment) -> Moment:
    """The end of a rule in the form of its start. One that is only a day is meant with that day."""
    try:
        day = date(int(text[:4]), int(text[4:6]), int(text[6:8]))
        clock = time(int(text[9:11]), int(text[11:13]), int(text[13:15])) if text[8:9] == "T" else time(23, 59, 59)
    except ValueError:
        day = date.min
    if day.year < FIRST_YEAR:
        raise BadRule("UNTIL must be a date such as 20260930 or 20260930T120000Z")
    if day.year >= LAST_YEAR:
        return _endless_end(start)
    if not isinstance(start, datetime):
        return day
    until = datetime.combine(day, clock)
    if start.tzinfo is None:
        return until
    return until.replace(tzinfo=UTC if text.endswith("Z") else start.tzinfo).astimezone(UTC)


def _endless_end(start: Moment) -> Moment:
    if not isinstance(start, datetime):
        return date(LAST_YEAR, 1, 1)
    return datetime(LAST_YEAR, 1, 1, tzinfo=UTC if start.tzinfo else None)


def _last_counted(parts: Mapping[str, str], start: Moment, count: int, last: Moment) -> Moment:
    """The last time of a rule that ends after so many; counted on the wall's clock, as they repeat."""
    from dateutil.rrule import rrulestr

    zone = start.tzinfo if isinstance(start, datetime) else None
    first = start.replace(tzinfo=None) if isinstance(start, datetime) else datetime.combine(start, time())
    rule = rrulestr(f"{_format_rule(parts)};UNTIL={LAST_YEAR}0101T000000", dtstart=first)
    found: list[datetime] = list(islice(rule, count))
    if len(found) < count:
        return last
    if not isinstance(start, datetime):
        return min(found[-1].date(), day_of(last))
    assert isinstance(last, datetime)
    end = found[-1].replace(tzinfo=zone).astimezone(UTC) if zone else found[-1]
    return min(end, last)


def _format_rule(parts: Mapping[str, str]) -> str:
    return ";".join(f"{name}={value}" for name, value in parts.items())


def _format_end(last: Moment) -> str:
    if not isinstance(last, datetime):
        return f"{last:%Y%m%d}"
    return f"{last:%Y%m%dT%H%M%S}" + ("Z" if last.tzinfo else "")


def parse_new_rule(text: str, start: Moment) -> str:
    """The rule that a model asks for, as it may stand in a file.

    Raises:
        BadRule: for one that is wrong, too frequent, or of which the start is no part.
    """
    words = {"daily", "weekly", "monthly", "yearly"}
    plain = text.strip().removeprefix("RRULE:").removeprefix("rrule:").strip()
    parts = _parts(f"FREQ={plain}" if plain.lower() in words else plain)
    _check(parts)
    if parts["FREQ"] in _TIMES_A_DAY:
        raise BadRule("FREQ must be one of YEARLY, MONTHLY, WEEKLY, DAILY")
    if int(parts.get("COUNT", "1")) < 1 or ("COUNT" in parts and "UNTIL" in parts):
        raise BadRule("give either COUNT, above 0, or UNTIL")
    rule = parse_rule(_format_rule(parts), start)
    if not is_first_time(rule, start):
        raise BadRule(f"the start, a {day_of(start):%A}, is not one of its days")
    if "UNTIL" in parts:
        parts["UNTIL"] = _format_end(_until(parts["UNTIL"], start))
    return _format_rule(parts)


def shift_rule(text: str, start: Moment, shift: timedelta) -> str:
    """The rule of a series that is moved: its end goes along, and the days of a weekly one.

    Raises:
        BadRule: when the new start is none of its times.
    """
    parts = _parts(text)
    _check(parts)
    later = start + (shift if isinstance(start, datetime) else timedelta(days=shift.days))
    days = (day_of(later) - day_of(start)).days
    if parts["FREQ"] == "WEEKLY" and "BYDAY" in parts:
        parts["BYDAY"] = ",".join(_WEEK[(_WEEK.index(day[-2:]) + days) % 7] for day in parts["BYDAY"].split(","))
    if "UNTIL" in parts:
        until = _until(parts["UNTIL"], start)
        parts["UNTIL"] = _format_end(_shifted_end(until, start, shift, days, is_day="T" not in parts["UNTIL"]))
    if is_first_time(parse_rule(text, start), start) and not is_first_time(
        parse_rule(_format_rule(parts), later), later
    ):
        raise BadRule("the new start is none of its times")
    return _format_rule(parts)


def _shifted_end(until: Moment, start: Moment, shift: timedelta, days: int, *, is_day: bool) -> Moment:
    """The end of a rule moved on the wall's clock of its series."""
    if not isinstance(until, datetime):
        return until + timedelta(days=days)
    ahead = timedelta(days=days) if is_day else shift
    if until.tzinfo is None or not isinstance(start, datetime):
        return until + ahead
    return (until.astimezone(start.tzinfo) + ahead).astimezone(UTC)


def is_first_time(rule: Rule, start: Moment) -> bool:
    """Whether the start of a series is a time of its rule, as RFC 5545 wants it."""
    from dateutil.rrule import rrulestr

    first = start.replace(tzinfo=None) if isinstance(start, datetime) else datetime.combine(start, time())
    endless = rule.text.partition(";UNTIL=")[0]
    found = rrulestr(f"{endless};UNTIL={first + timedelta(days=3660):%Y%m%dT%H%M%S}", dtstart=first)
    return next(iter(found), None) == first
