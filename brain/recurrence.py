"""Recurrences as RRULEs (RFC 5545), with limited work for each.

Rules come from models and clients, and `dateutil` would search one without a matching day until the year 9999.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from brain.dates import WEEK

MIN_INTERVAL = 5
"""Shortest time between two runs, in minutes."""
MAX_YEARS = 50
"""Years in which the next time is searched."""
MINUTES = {"HOURLY": 60, "MINUTELY": 1}
"""Lengths of the periods that are shorter than a day."""
_FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", *MINUTES)
_BOUNDS = {
    "INTERVAL": (1, 1000), "COUNT": (1, 1000), "BYMONTH": (1, 12), "BYMONTHDAY": (-31, 31), "BYDAY": (-53, 53),
    "BYHOUR": (0, 23), "BYMINUTE": (0, 59), "BYSETPOS": (-366, 366),
}  # fmt: skip
_MAX_STEPS = 25_000
"""Periods that are searched for the next time: more than the days of `MAX_YEARS`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A checked RRULE. Empty fields do not restrict it; `days` are weekdays with their number in the month or year."""

    freq: str
    interval: int = 1
    count: int = 0
    until: str = ""
    months: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    days: tuple[tuple[int, int], ...] = ()
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    week_start: int = 0


def split_rule(text: str) -> dict[str, str]:
    """Return the checked parts of a rule in a fixed order, without those that change nothing.

    Raises:
        ValueError: A part is unknown, out of range, or not possible with the others.
    """
    parts: dict[str, str] = {}
    for piece in text.strip().strip(";").split(";"):
        name, _, value = piece.partition("=")
        if name in parts:
            raise ValueError(f"has {name[:20]} twice")
        parts[name] = value
    if parts.get("FREQ") not in _FREQUENCIES:
        raise ValueError(f"needs a FREQ of {', '.join(_FREQUENCIES)}")
    if parts.get("BYSECOND") == "0":
        del parts["BYSECOND"]
    known = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", *(name for name in _BOUNDS if name.startswith("BY")))
    if unknown := [name for name in parts if name not in known]:
        name = re.sub("[^A-Z]", "", unknown[0])[:20]
        raise ValueError(f"has the part {name or '?'}, which is not supported; use {', '.join(known)}")
    for name, value in parts.items():
        if name in _BOUNDS:
            parts[name] = _check_numbers(name, value)
    if "COUNT" in parts and "UNTIL" in parts:
        raise ValueError("has COUNT and UNTIL; use one of them")
    if "UNTIL" in parts:
        parse_until(parts["UNTIL"], ZoneInfo("UTC"))
    if parts.get("WKST", "MO") not in WEEK:
        raise ValueError("needs a weekday such as MO as WKST")
    freq = parts["FREQ"]
    if re.search("[0-9]", parts.get("BYDAY", "")) and freq not in ("MONTHLY", "YEARLY"):
        raise ValueError("has numbers in BYDAY, which need FREQ=MONTHLY or FREQ=YEARLY")
    if "BYSETPOS" in parts and freq in MINUTES:
        raise ValueError(f"has BYSETPOS, which is not supported with FREQ={freq}")
    useless = {("INTERVAL", "1"), ("WKST", "MO")}
    return {name: parts[name] for name in known if name in parts and (name, parts[name]) not in useless}


def _check_numbers(name: str, value: str) -> str:
    """Return a list of numbers, or of weekdays with numbers, sorted and without repetitions."""
    low, high = _BOUNDS[name]
    suffix = f"({'|'.join(WEEK)})" if name == "BYDAY" else "()"
    found = set()
    for piece in value.split(","):
        one = re.fullmatch(rf"([+-]?[0-9]{{1,4}}){'?' if suffix != '()' else ''}{suffix}", piece.strip())
        number = None if one is None else int(one[1] or 0)
        if one is None or number is None or not low <= number <= high or (low < 0 and one[1] and not number):
            form = "weekdays such as MO,FR or 1MO" if name == "BYDAY" else f"numbers from {low} to {high}"
            raise ValueError(f"needs {form} as {name}")
        found.add((WEEK.index(one[2]) if one[2] else 0, number, one[2]))
    if name in ("INTERVAL", "COUNT") and len(found) > 1:
        raise ValueError(f"needs one number as {name}")
    return ",".join(f"{number or ''}{day}" if day else f"{number}" for _, number, day in sorted(found))


@lru_cache(maxsize=256)
def read_rule(text: str) -> Rule:
    """Return a rule; errors as in `split_rule`."""
    parts = split_rule(text)
    numbers: Mapping[str, tuple[int, ...]] = {
        name: tuple(int(number) for number in parts[name].split(","))
        for name in _BOUNDS
        if name in parts and name != "BYDAY"
    }
    days = parts["BYDAY"].split(",") if "BYDAY" in parts else ()
    return Rule(
        parts["FREQ"],
        *(numbers.get("INTERVAL", (1,))[0], numbers.get("COUNT", (0,))[0], parts.get("UNTIL", "")),
        *(numbers.get("BYMONTH", ()), numbers.get("BYMONTHDAY", ())),
        tuple((int(day[:-2] or 0), WEEK.index(day[-2:])) for day in days),
        *(numbers.get("BYHOUR", ()), numbers.get("BYMINUTE", ()), numbers.get("BYSETPOS", ())),
        WEEK.index(parts.get("WKST", "MO")),
    )


def parse_until(text: str, zone: ZoneInfo) -> datetime | None:
    """Return the end of a rule; None for none. A date includes its day."""
    if not text:
        return None
    found = re.fullmatch("([12][0-9]{3}[0-9]{4})(?:T([0-9]{6})(Z?))?", text)
    try:
        until = datetime.strptime(f"{found[1]}{found[2] or '235959'}" if found else "", "%Y%m%d%H%M%S")
    except ValueError:
        raise ValueError("needs a time such as 20270131T080000Z or a date such as 20270131 as UNTIL") from None
    return to_utc(until.replace(tzinfo=UTC) if found and found[3] else until, zone)


def check_interval(rule: Rule) -> None:
    """Refuse a rule whose times are less than `MIN_INTERVAL` apart.

    Raises:
        ValueError: It is too often.
    """
    if rule.freq == "MINUTELY":
        times, cycle = [0], rule.interval
    elif rule.freq == "HOURLY":
        times, cycle = list(rule.minutes or (0,)), 60 * rule.interval
    else:
        times = [60 * hour + minute for hour in rule.hours or (0,) for minute in rule.minutes or (0,)]
        cycle = 24 * 60
    if any(later - earlier < MIN_INTERVAL for earlier, later in pairwise([*times, times[0] + cycle])):
        raise ValueError(f"is too often; the shortest interval is {MIN_INTERVAL} minutes")


def occurrences(rule: Rule, start: datetime, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield the times of a rule in UTC, from `start` and from about `after` on, for `MAX_YEARS`."""
    first = start.astimezone(zone).replace(tzinfo=None)
    rule = _add_defaults(rule, first)
    last_year = min(after.year + MAX_YEARS, 9990)
    walk = _walk_minutes if rule.freq in MINUTES else _walk_days
    last = start - timedelta(microseconds=1)
    for moment in walk(rule, start, zone, after, last_year):
        if moment > last:  # a skipped time may fall on another one
            last = moment
            yield moment


def _add_defaults(rule: Rule, first: datetime) -> Rule:
    """Take days and times that the rule does not have from its first time."""
    if rule.freq not in MINUTES:
        rule = replace(rule, hours=rule.hours or (first.hour,), minutes=rule.minutes or (first.minute,))
    if rule.month_days or rule.days:
        return rule
    if rule.freq == "WEEKLY":
        return replace(rule, days=((0, first.weekday()),))
    if rule.freq == "YEARLY":
        return replace(rule, months=rule.months or (first.month,), month_days=(first.day,))
    return replace(rule, month_days=(first.day,)) if rule.freq == "MONTHLY" else rule


def _walk_days(rule: Rule, start: datetime, zone: ZoneInfo, after: datetime, last_year: int) -> Iterator[datetime]:
    first, near = start.astimezone(zone).date(), after.astimezone(zone).date()
    passed = {
        "YEARLY": near.year - first.year,
        "MONTHLY": (near.year - first.year) * 12 + near.month - first.month,
        "WEEKLY": (near - first).days // 7,
        "DAILY": (near - first).days,
    }[rule.freq]
    begin = max(passed // rule.interval - 1, 0)
    times = [time(hour, minute) for hour in rule.hours for minute in rule.minutes]
    for period in range(begin, begin + _MAX_STEPS):
        days, year = _days_of_period(rule, first, period * rule.interval, last_year)
        if year > last_year:
            return
        count = len(days) * len(times)
        places = {position - 1 if position > 0 else count + position for position in rule.positions}
        for number, day in enumerate(days):  # day by day, since a rule may have many times in a year
            yield from sorted(
                to_utc(datetime.combine(day, at), zone)
                for place, at in enumerate(times, number * len(times))
                if not places or place in places
            )


def _days_of_period(rule: Rule, first: date, ahead: int, last_year: int) -> tuple[list[date], int]:
    """Return the matching days of a year, month, week or day, and its year.

    Args:
        ahead: Number of years, months, weeks or days after that of `first`.
    """
    if rule.freq in ("WEEKLY", "DAILY"):
        begin = first + timedelta(days=ahead)
        if rule.freq == "DAILY":
            return ([begin] if _matches(rule, begin) else []), begin.year
        begin = first + timedelta(days=7 * ahead - (first.weekday() - rule.week_start) % 7)
        week = [begin + timedelta(days=number) for number in range(7)]
        return [day for day in week if _matches(rule, day)], begin.year
    if rule.freq == "YEARLY":
        year, months = first.year + ahead, rule.months or range(1, 13)
    else:
        year, month = divmod(first.year * 12 + first.month - 1 + ahead, 12)
        months = (month + 1,)
    if year > last_year:
        return [], year
    days = []
    for month in months:
        length = _month_length(year, month)
        numbers = sorted({n if n > 0 else length + 1 + n for n in rule.month_days}) or range(1, length + 1)
        days += [date(year, month, number) for number in numbers if 1 <= number <= length]
    return [day for day in days if _matches(rule, day)], year


def _month_length(year: int, month: int) -> int:
    return (date(year + month // 12, month % 12 + 1, 1) - date(year, month, 1)).days


def _matches(rule: Rule, day: date) -> bool:
    if rule.months and day.month not in rule.months:
        return False
    length = _month_length(day.year, day.month)
    if rule.month_days and not {day.day, day.day - length - 1} & set(rule.month_days):
        return False
    if not rule.days:
        return True
    place, end = day.day, length
    if rule.freq == "YEARLY" and not rule.months:
        place, end = day.timetuple().tm_yday, date(day.year, 12, 31).timetuple().tm_yday
    numbers = {0, (place - 1) // 7 + 1, -((end - place) // 7 + 1)}
    return any(weekday == day.weekday() and number in numbers for number, weekday in rule.days)


def _walk_minutes(rule: Rule, start: datetime, zone: ZoneInfo, after: datetime, last_year: int) -> Iterator[datetime]:
    step = timedelta(minutes=rule.interval * MINUTES[rule.freq])
    origin = start.astimezone(UTC).replace(second=0, microsecond=0)
    offsets = [timedelta(0)]
    if rule.freq == "HOURLY" and rule.minutes:
        origin -= timedelta(minutes=origin.astimezone(zone).minute)
        offsets = [timedelta(minutes=minute) for minute in rule.minutes]
    number = max((after - origin) // step - 1, 0)
    for _ in range(_MAX_STEPS):
        moment = origin + number * step
        local = moment.astimezone(zone)
        if local.year > last_year:
            return
        number += 1
        if not _matches(rule, local.date()):
            midnight = to_utc(datetime.combine(local.date() + timedelta(days=1), time()), zone)
            number = max(number, -((origin - midnight) // step))
        elif (not rule.hours or local.hour in rule.hours) and (
            rule.freq == "HOURLY" or not rule.minutes or local.minute in rule.minutes
        ):
            yield from (moment + offset for offset in offsets)


def to_utc(moment: datetime, zone: ZoneInfo) -> datetime:
    """Return a time in UTC. One without a zone is in `zone`: the first of two, or an hour later if it is skipped."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
