"""Check repeat rules (RRULE): limit the work of rules in files, and validate new rules."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice

from brain import dates
from specialists._calendar.zones import FIRST_YEAR, Moment, shift_moment, to_date, to_local_time

LAST_YEAR = 2150
"""Year in which rules without an end stop."""
MAX_WORK = 400_000
"""Maximum number of dateutil steps for one series, about a second."""
MAX_OCCURRENCES = 25_000
"""Maximum number of occurrences of one series in one window, about a second."""
MAX_COUNT = 20_000
MAX_INTERVAL = 100_000
MAX_TIMES_A_DAY = 96
_TIMES_A_DAY = {"HOURLY": 24, "MINUTELY": 1440, "SECONDLY": 86_400}
_FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", *_TIMES_A_DAY)
_DAY = re.compile(r"[+-]?[0-9]{0,2}(?:MO|TU|WE|TH|FR|SA|SU)")
_TIME_PARTS = ("BYHOUR", "BYMINUTE", "BYSECOND")
_DAY_FILTERS = ("BYMONTH", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYDAY")
_BOUNDS = {
    "BYSECOND": (0, 59), "BYMINUTE": (0, 59), "BYHOUR": (0, 23), "BYMONTHDAY": (-31, 31), "BYYEARDAY": (-366, 366),
    "BYWEEKNO": (-53, 53), "BYMONTH": (1, 12), "BYSETPOS": (-366, 366),
}  # fmt: skip


class BadRule(ValueError):
    """A rule is not supported; the message is a short reason."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A checked rule; `text` has an UNTIL in the form that dateutil accepts, and no COUNT."""

    text: str
    parts: Mapping[str, str]

    @property
    def last(self) -> date:
        """The last day of the rule; in `LAST_YEAR` for a rule without an end."""
        until = self.text.rpartition("UNTIL=")[2]
        return date(int(until[:4]), int(until[4:6]), int(until[6:8]))

    def work(self, start: Moment, until: date) -> int:
        """Estimate the number of steps to evaluate the rule up to a day."""
        days = max((until - to_date(start)).days, 1)
        return self.max_occurrences(days if self.parts["FREQ"] in _TIMES_A_DAY else max(days, 366))

    def max_occurrences(self, days: int) -> int:
        """Return the maximum number of occurrences in this number of days."""
        interval = int(self.parts.get("INTERVAL", "1")) if self.parts["FREQ"] in _TIMES_A_DAY else 1
        return days * _count_times_a_day(self.parts) // interval


def parse_rule(text: str, start: Moment) -> Rule:
    """Parse a rule in a file.

    Args:
        start: start of the series; the end gets the same type.

    Raises:
        BadRule: if the rule is invalid or needs too much work.
    """
    parts = _adapt_to_dateutil(_parse_parts(text, start), start)
    if not _any_day_fits(";".join(f"{name}={parts[name]}" for name in _DAY_FILTERS if name in parts)):
        raise BadRule("no day matches")
    count = int(parts.pop("COUNT", "0"))
    until = parts.pop("UNTIL", None)
    last = _parse_until(until, start) if until else _default_end(start)
    if count > 0:
        last = _find_last(parts, start, count, last)
    return Rule(f"{_format_rule(parts)};UNTIL={_format_end(last)}", parts)


def parse_new_rule(text: str, start: Moment) -> str:
    """Validate a new rule, or one in words, and return it in the form for a file.

    Raises:
        BadRule: if the rule is invalid, too frequent, or does not include the start.
    """
    plain = text.strip().removeprefix("RRULE:").removeprefix("rrule:").strip()
    if "=" not in plain:
        try:
            plain = dates.parse_recurrence(plain) or plain
        except ValueError as problem:
            raise BadRule(str(problem)) from None
    if not isinstance(start, datetime) and re.search("BY(HOUR|MINUTE|SECOND)=", plain, re.IGNORECASE):
        raise BadRule("an all-day event has no hours; give a start with a time")
    parts = _parse_parts(plain, start)
    if parts["FREQ"] in _TIMES_A_DAY:
        raise BadRule(f"FREQ must be one of {', '.join(_FREQUENCIES[:4])}")
    if int(parts.get("COUNT", "1")) < 1 or ("COUNT" in parts and "UNTIL" in parts):
        raise BadRule("use either COUNT, above 0, or UNTIL")
    if not _is_first_time(_format_rule(parts), start):
        days = {name: value for name, value in parts.items() if name not in _TIME_PARTS}
        if isinstance(start, datetime) and len(days) < len(parts) and _is_first_time(_format_rule(days), start):
            raise BadRule(f"its time differs from that of start, {start:%H:%M}; give repeat and start the same time")
        raise BadRule(f"it does not include the start, a {to_date(start):%A}; give a start that fits it")
    if "UNTIL" in parts:
        parts["UNTIL"] = _format_end(_parse_until(parts["UNTIL"], start))
    return _format_rule(parts)


def shift_rule(text: str, start: Moment, shift: timedelta) -> str:
    """Return the rule of a moved series, with its end and the days of a weekly rule moved too.

    Raises:
        BadRule: if the rule does not include the new start.
    """
    parts = _parse_parts(text, start)
    later = shift_moment(start, shift)
    days = (to_date(later) - to_date(start)).days
    if parts["FREQ"] == "WEEKLY" and "BYDAY" in parts:
        parts["BYDAY"] = ",".join(
            dates.WEEK[(dates.WEEK.index(day[-2:]) + days) % 7] for day in parts["BYDAY"].split(",")
        )
    if "UNTIL" in parts:
        ahead = shift if "T" in parts["UNTIL"] else timedelta(days=days)
        until = _parse_until(parts["UNTIL"], start)
        if not isinstance(until, datetime):
            until += timedelta(days=days)
        elif until.tzinfo is None or not isinstance(start, datetime):
            until += ahead
        else:  # in the time zone of the series
            until = (until.astimezone(start.tzinfo) + ahead).astimezone(UTC)
        parts["UNTIL"] = _format_end(until)
    if _is_first_time(text, start) and not _is_first_time(_format_rule(parts), later):
        raise BadRule("it does not include the new start")
    return _format_rule(parts)


def _parse_parts(text: str, start: Moment) -> dict[str, str]:
    """Return the checked parts of a rule; for dates, without times of day, which RFC 5545, section 3.3.10, ignores."""
    pairs = [piece.partition("=") for piece in text.strip().strip(";").upper().split(";")]
    parts = {name.strip(): value.strip() for name, _, value in pairs if not name.startswith("X-")}
    if not isinstance(start, datetime):
        parts = {name: value for name, value in parts.items() if name not in _TIME_PARTS}
        if parts.get("FREQ") in _TIMES_A_DAY:
            raise BadRule(f"whole days cannot repeat {parts['FREQ']}")
    if len(parts) > 16 or not all(parts.values()):
        raise BadRule("not a list of NAME=VALUE")
    if parts.pop("RSCALE", "GREGORIAN") != "GREGORIAN" or parts.pop("SKIP", "OMIT") != "OMIT":
        raise BadRule("only Gregorian rules without SKIP are supported")
    if parts.get("FREQ") not in _FREQUENCIES:
        raise BadRule(f"FREQ must be one of {', '.join(_FREQUENCIES[:4])}")
    for name, value in parts.items():
        if name in _BOUNDS:
            low, high = _BOUNDS[name]
            numbers = [_parse_number(piece, name, low, high) for piece in value.split(",")]
            if low < 0 and 0 in numbers:
                raise BadRule(f"{name} cannot be 0")
        elif name == "BYDAY":
            if len(value) > 400 or not all(_DAY.fullmatch(piece) for piece in value.split(",")):
                raise BadRule("BYDAY needs days such as MO,WE or 1MO or -1FR")
        elif name == "WKST":
            if value not in dates.WEEK:
                raise BadRule("WKST needs a day such as MO")
        elif name == "INTERVAL":
            _parse_number(value, name, 1, MAX_INTERVAL)
        elif name == "COUNT":
            _parse_number(value, name, -1, MAX_COUNT)  # -1 means no end in some programs
        elif name not in ("FREQ", "UNTIL"):
            raise BadRule(f"unknown part {re.sub('[^A-Z-]', '', name)[:20]}")
    positions = parts.get("BYSETPOS", "1").split(",")
    if len(positions) > 31:
        raise BadRule("BYSETPOS has too many positions")
    max_times = 4 if "BYSETPOS" in parts else MAX_TIMES_A_DAY
    is_subdaily = parts["FREQ"] in _TIMES_A_DAY
    if (is_subdaily and "BYSETPOS" in parts) or (not is_subdaily and _count_times_a_day(parts) > max_times):
        raise BadRule("too many times per day")
    if parts["FREQ"] == "DAILY" and max(abs(int(n)) for n in positions) > max_times:
        raise BadRule("BYSETPOS exceeds the times of a day")
    return parts


def _parse_number(text: str, name: str, low: int, high: int) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,6}", text) or not low <= int(text) <= high:
        raise BadRule(f"{name} must be from {low} to {high}")
    return int(text)


def _count_times_a_day(parts: Mapping[str, str]) -> int:
    times = _TIMES_A_DAY.get(parts["FREQ"], 1)
    for name in _TIME_PARTS:
        times *= len(set(parts[name].split(","))) if name in parts else 1
    return min(times, _TIMES_A_DAY["SECONDLY"])


def _adapt_to_dateutil(parts: dict[str, str], start: Moment) -> dict[str, str]:
    """Rewrite the parts so that dateutil evaluates them as in RFC 5545, section 3.3.10.

    For BYWEEKNO alone, dateutil uses all days of the week, the RFC only the weekday of the start. For BYSETPOS,
    dateutil counts the first week from the start of the series.

    Raises:
        BadRule: if the rule cannot be rewritten.
    """
    weeks, days = parts.get("BYWEEKNO"), parts.get("BYDAY")
    own_day = dates.WEEK[to_date(start).weekday()]
    if weeks:
        if parts["FREQ"] != "YEARLY":
            raise BadRule("BYWEEKNO requires FREQ=YEARLY")
        if days and any(len(day) > 2 for day in days.split(",")):
            raise BadRule("BYWEEKNO does not allow numbers in BYDAY")
        if "BYSETPOS" in parts:
            raise BadRule("BYWEEKNO with BYSETPOS is not supported")
        numbers = {int(week) for week in weeks.split(",")}
        if numbers & {52, 53, -52, -53}:
            raise BadRule("weeks 52 and 53 are not supported, but BYWEEKNO=-1 is, for the last week")
        if int(parts.get("INTERVAL", "1")) > 1 and numbers & {1, -1}:
            raise BadRule("the first and last weeks of a year require INTERVAL=1")
        if not days and not {"BYMONTHDAY", "BYYEARDAY"} & parts.keys():
            parts["BYDAY"] = own_day
    if parts["FREQ"] == "WEEKLY" and (positions := parts.pop("BYSETPOS", None)):
        if "BYMONTH" in parts or _count_times_a_day(parts) > 1 or {"BYMONTHDAY", "BYYEARDAY"} & parts.keys():
            raise BadRule("in a weekly rule, BYSETPOS allows only BYDAY")
        first = dates.WEEK.index(parts.get("WKST", "MO"))
        week = dates.WEEK[first:] + dates.WEEK[:first]
        own_days = sorted({day[-2:] for day in days.split(",")} if days else {own_day}, key=week.index)
        numbers = {int(n) for n in positions.split(",") if abs(int(n)) <= len(own_days)}
        selected = {own_days[n - 1 if n > 0 else n] for n in numbers}
        if not selected:
            raise BadRule("no day matches")
        parts["BYDAY"] = ",".join(sorted(selected, key=week.index))
    return parts


@lru_cache(maxsize=256)
def _any_day_fits(filters: str) -> bool:
    """Return whether any day matches; for a series, dateutil would search each day until the year 9999."""
    from dateutil.rrule import rrulestr

    try:
        rule = rrulestr(f"FREQ=YEARLY;{filters}".rstrip(";"), dtstart=datetime(2000, 1, 1))
        return next(iter(rule), None) is not None
    except (ValueError, IndexError):  # IndexError: for the 50th Monday of a month
        return False


def _is_first_time(text: str, start: Moment) -> bool:
    """Return whether the rule includes the start of the series, as RFC 5545 requires."""
    from dateutil.rrule import rrulestr

    first = to_local_time(start)
    endless = parse_rule(text, start).text.partition(";UNTIL=")[0]
    found = rrulestr(f"{endless};UNTIL={first + timedelta(days=3660):%Y%m%dT%H%M%S}", dtstart=first)
    return next(iter(found), None) == first


def _find_last(parts: Mapping[str, str], start: Moment, count: int, last: Moment) -> Moment:
    """Return the time of the last of `count` occurrences, in local time of the series."""
    from dateutil.rrule import rrulestr

    rule = rrulestr(f"{_format_rule(parts)};UNTIL={LAST_YEAR}0101T000000", dtstart=to_local_time(start))
    found: list[datetime] = list(islice(rule, count))
    if len(found) < count:
        return last
    if not isinstance(start, datetime):
        return min(found[-1].date(), to_date(last))
    assert isinstance(last, datetime)
    return min(found[-1].replace(tzinfo=start.tzinfo).astimezone(UTC) if start.tzinfo else found[-1], last)


def _parse_until(text: str, start: Moment) -> Moment:
    """Return the end of a rule in the type of its start. A date alone includes that day."""
    try:
        day = date(int(text[:4]), int(text[4:6]), int(text[6:8]))
        clock = time(int(text[9:11]), int(text[11:13]), int(text[13:15])) if text[8:9] == "T" else time(23, 59, 59)
    except ValueError:
        day = date.min
    if day.year < FIRST_YEAR:
        raise BadRule("UNTIL must be a date such as 20260930 or 20260930T120000Z")
    if day.year >= LAST_YEAR:
        return _default_end(start)
    if not isinstance(start, datetime):
        return day
    until = datetime.combine(day, clock)
    if start.tzinfo is None:
        return until
    return until.replace(tzinfo=UTC if text.endswith("Z") else start.tzinfo).astimezone(UTC)


def _default_end(start: Moment) -> Moment:
    if not isinstance(start, datetime):
        return date(LAST_YEAR, 1, 1)
    return datetime(LAST_YEAR, 1, 1, tzinfo=UTC if start.tzinfo else None)


def _format_rule(parts: Mapping[str, str]) -> str:
    return ";".join(f"{name}={value}" for name, value in parts.items())


def _format_end(last: Moment) -> str:
    if not isinstance(last, datetime):
        return f"{last:%Y%m%d}"
    return f"{last:%Y%m%dT%H%M%S}" + ("Z" if last.tzinfo else "")
