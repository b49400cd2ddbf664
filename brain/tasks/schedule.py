"""When a task runs: a time or a recurrence, in ISO 8601, as an RRULE, or in plain words."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from dateutil.relativedelta import relativedelta

from brain.task import NewTask, Task
from brain.tasks.recurrence import (
    MINUTES,
    WEEK,
    Rule,
    check_interval,
    occurrences,
    parse_until,
    read_rule,
    split_rule,
    to_utc,
)

MAX_LENGTH = 500
"""Characters of a schedule."""
MAX_AHEAD = 200
"""Years from now in which a task may run first."""
DEFAULT_TIME = time(8)
"""The time of a day that is given without one."""
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip

_WHEN_FORMS = "use a form such as 2027-01-31T08:00, tomorrow at 8, next Monday at 9:30 or in 2 hours"
_EVERY_FORMS = (
    "use a form such as every weekday at 8, every Monday and Thursday at 9, monthly on the 1st at 7, every 2 hours, "
    "or FREQ=DAILY;BYHOUR=8;BYMINUTE=0"
)
_NUMBERS = {"a": 1, "an": 1, "one": 1, "other": 2, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "twelve": 12}
_UNITS = {
    "minute": "MINUTELY", "hour": "HOURLY", "day": "DAILY", "week": "WEEKLY", "month": "MONTHLY", "year": "YEARLY",
}  # fmt: skip
_RELATIVE = {"today": 0, "tomorrow": 1, "day after tomorrow": 2, "the day after tomorrow": 2, "next week": 7}
_POSITIONS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "last": -1}
_DAY = "(mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?s?"
_MONTH = "(" + "|".join(f"{name[:3]}(?:{name[3:]})?" for name in _MONTHS).lower() + ")"
_HOURS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_TIME = (
    rf"(?:at )?(noon|midnight|(?:{'|'.join(_HOURS)})(?: [ap]m)?|[0-9]{{1,2}}(?:[:.][0-9]{{2}})?(?: ?[ap]m)?)"
    "(?: o'clock)?"
)
_CLOCK = re.compile(r"([0-9]{1,2})(?:[:.]([0-9]{2}))?(?: ?([ap])m)?")


def parse_when(text: str, time_zone: str, now: datetime) -> datetime:
    """Return a time in the future.

    Args:
        text: A time or a date in ISO 8601, or plain words such as "tomorrow at 8". Without an offset it is in
            `time_zone`. Of a time that exists twice it is the first; one that is skipped is an hour later.

    Raises:
        ValueError: Why the text is no such time, for people.
    """
    _check_length(text)
    zone = ZoneInfo(time_zone)
    try:
        when = _parse_iso(text) or _parse_words(" ".join(text.lower().split()), now.astimezone(zone))
    except (OverflowError, ValueError):  # a year that does not exist
        when = None
    if when is None:
        raise ValueError(f"is not a time; {_WHEN_FORMS}")
    if when.year > now.year + MAX_AHEAD:
        raise ValueError(f"is more than {MAX_AHEAD} years away")
    if when.year < now.year - 1 or (when := to_utc(when, zone)) <= now:
        raise ValueError("is in the past")
    return when


def parse_every(text: str, time_zone: str, now: datetime) -> str:
    """Return a recurrence as an RRULE without `RRULE:` and DTSTART.

    Args:
        text: An RRULE, or plain words such as "every weekday at 8". BYHOUR without BYMINUTE means the full hour.

    Raises:
        ValueError: Why the text is no recurrence, for people.
    """
    _check_length(text)
    rule = text.strip().upper().removeprefix("RRULE:")
    if not rule.startswith("FREQ="):
        rule = _words_to_rule(" ".join(text.lower().split()))
    parts = split_rule(rule)
    if "BYHOUR" in parts and "BYMINUTE" not in parts and parts["FREQ"] not in MINUTES:
        parts = split_rule(f"{rule.strip(';')};BYMINUTE=0")
    rule = ";".join(f"{name}={value}" for name, value in parts.items())
    check_interval(read_rule(rule))
    if not next_times(rule, find_start(rule, time_zone, now), time_zone, now, 1):
        raise ValueError("has no time in the future")
    return rule


def next_times(every: str, start: datetime, time_zone: str, after: datetime, count: int = 3) -> list[datetime]:
    """Return the next times of a schedule after a moment, in UTC; fewer if it ends, or has none for 50 years.

    A rule counts days in local time, so that eight o'clock stays eight o'clock over clock changes. A time that exists
    twice counts once; one that is skipped is an hour later. Hours and minutes between times count in UTC.

    Args:
        every: The recurrence; empty for `start` alone.
        start: First time of the recurrence.

    Raises:
        ValueError: `every` is no recurrence.
    """
    if not every:
        return [start] if start > after else []
    zone = ZoneInfo(time_zone)
    rule = read_rule(every)
    until = parse_until(rule.until, zone)
    found: list[datetime] = []
    # COUNT counts from the first time
    for number, moment in enumerate(occurrences(rule, start, zone, start if rule.count else max(start, after)), 1):
        if until is not None and moment > until:
            break
        if moment > after:
            found.append(moment)
        if len(found) == count or number == rule.count:
            break
    return found


def next_run(task: Task, after: datetime) -> datetime | None:
    """Return the next time of a task's schedule after a moment; None if there is none."""
    if task.start is None:
        return None
    return next(iter(next_times(task.every, task.start, task.time_zone, after, 1)), None)


def find_start(every: str, time_zone: str, now: datetime) -> datetime:
    """Return the first time of a recurrence that has no `when`: at a full hour, or at `DEFAULT_TIME`.

    Raises:
        ValueError: It has no time in the future.
    """
    zone, rule = ZoneInfo(time_zone), read_rule(every)
    local = now.astimezone(zone)
    begin = datetime.combine(local.date(), DEFAULT_TIME if rule.freq not in MINUTES else time(local.hour))
    found = next((moment for moment in occurrences(rule, to_utc(begin, zone), zone, now) if moment > now), None)
    if found is None:
        raise ValueError("has no time in the future")
    return found


def describe(task: Task | NewTask, now: datetime) -> str:
    """Return the schedule of a task in words, with its next three times; empty without one."""
    if task.start is None:
        return ""
    zone = ZoneInfo(task.time_zone)
    times = next_times(task.every, task.start, task.time_zone, now)
    shown = ", ".join(f"{time.astimezone(zone):%a %Y-%m-%d %H:%M}" for time in times)
    return f"{to_words(task)}. Next: {shown}" if times else to_words(task)


def to_words(task: Task | NewTask) -> str:
    """Return the schedule of a task in words, such as "every weekday at 08:00 (Europe/Berlin)"; empty without one."""
    if task.start is None:
        return ""
    every, time_zone = task.every, task.time_zone
    local = task.start.astimezone(ZoneInfo(time_zone))
    if not every:
        return f"once, on {local:%A} {local:%Y-%m-%d} at {local:%H:%M} ({time_zone})"
    rule = read_rule(every)
    words = _describe_rule(rule, local)
    if not words:
        return f"by the rule {every} ({time_zone})"
    if rule.count:
        words += f", {rule.count} times" if rule.count > 1 else ", once"
    if rule.until:
        words += f", until {rule.until[:4]}-{rule.until[4:6]}-{rule.until[6:8]}"
    return f"{words} ({time_zone})"


# Times


def _check_length(text: str) -> None:
    if len(text) > MAX_LENGTH:
        raise ValueError(f"has {len(text):,} characters; the limit is {MAX_LENGTH}")


def _parse_iso(text: str) -> datetime | None:
    try:
        return datetime.combine(date.fromisoformat(text.strip()), DEFAULT_TIME)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None


def _parse_words(text: str, now: datetime) -> datetime | None:
    """Return a time of plain words; None for others. `now` is in the time zone of the user."""
    amount = rf"([0-9]{{1,6}}|half an|{'|'.join(_NUMBERS)})"
    if found := re.fullmatch(rf"in {amount} (minute|hour|day|week|month|year)s?", text):
        number, unit = found.groups()
        if number == "half an":
            return now.astimezone(UTC) + timedelta(minutes=30) if unit == "hour" else None
        delta: timedelta = relativedelta(**{f"{unit}s": _NUMBERS.get(number) or int(number)})
        if unit in ("minute", "hour"):
            return now.astimezone(UTC) + delta
        return now.replace(tzinfo=None) + delta
    splits: list[tuple[str, str | None]] = [(text, None)] if text else []
    if found := re.fullmatch(_TIME, text):
        splits.append(("", found[1]))
    if found := re.fullmatch(rf"{_TIME} (.+)", text):
        splits.append((found[2], found[1]))
    if found := re.fullmatch(rf"(.+?),? {_TIME}", text):
        splits.append((found[1], found[2]))
    for words, clock in splits:
        at = DEFAULT_TIME if clock is None else _parse_clock(clock)
        if at is not None and (
            when := _find_next(words.removeprefix("on ").removesuffix(" morning"), at, now.replace(tzinfo=None))
        ):
            return when
    return None


def _find_next(words: str, at: time, now: datetime) -> datetime | None:
    """Return the next day with these words, at a time; None for others. The empty text is any day."""
    today = datetime.combine(now.date(), at)
    if words == "":
        return today + timedelta(days=today <= now)
    if words in _RELATIVE:
        return today + timedelta(days=_RELATIVE[words])
    if found := re.fullmatch(f"(next |this )?{_DAY}", words):
        ahead = (_find_day(found[2]) - now.weekday()) % 7
        return today + timedelta(days=7 if ahead == 0 and (today <= now or found[1] == "next ") else ahead)
    try:
        return datetime.combine(date.fromisoformat(words), at)
    except ValueError:
        pass
    day, year = _parse_month_day(words), re.search(" ([0-9]{4})$", words)
    for number in () if day is None else [int(year[1])] if year else range(now.year, now.year + 9):
        try:
            when = datetime.combine(date(number, *day or (1, 1)), at)
        except ValueError:  # 29 February
            continue
        if year or when > now:
            return when
    return None


def _parse_clock(text: str) -> time | None:
    if text in ("noon", "midnight"):
        return time(12 if text == "noon" else 0)
    word, space, rest = text.partition(" ")
    found = _CLOCK.fullmatch(f"{_HOURS.index(word) + 1}{space}{rest}" if word in _HOURS else text)
    assert found is not None
    hour, minute = int(found[1]), int(found[2] or 0)
    if found[3]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found[3] == "p" else 0)
    return time(hour, minute) if hour < 24 and minute < 60 else None


def _find_day(name: str) -> int:
    return [day[:3].lower() for day in _DAYS].index(name[:3])


def _parse_month_day(words: str) -> tuple[int, int] | None:
    """Return month and day of "31 January", "Jan 31st" or "31 January 2027"."""
    day = "([0-9]{1,2})(?:st|nd|rd|th)?"
    if found := re.fullmatch(rf"{_MONTH} {day}(?:,? [0-9]{{4}})?", words):
        name, number = found.groups()
    elif found := re.fullmatch(rf"(?:the )?{day} (?:of )?{_MONTH}(?: [0-9]{{4}})?", words):
        number, name = found.groups()
    else:
        return None
    return [month[:3].lower() for month in _MONTHS].index(name[:3]) + 1, int(number)


# Rules in words


def _words_to_rule(text: str) -> str:
    """Return the RRULE of plain words.

    Raises:
        ValueError: They are none of the known forms.
    """
    problem = ValueError(f"is not a recurrence; {_EVERY_FORMS}")
    at = ""
    if found := re.search(rf",? at ({_TIME}(?:(?:, | and |, and ){_TIME})*)$", text):
        clocks = [_parse_clock(one[1]) for one in re.finditer(_TIME, found[1])]
        times = sorted({clock for clock in clocks if clock is not None})
        if None in clocks:
            raise problem
        if len({clock.minute for clock in times}) > 1:
            raise ValueError("has times with different minutes; use one task for each")
        at = f";BYHOUR={','.join(str(clock.hour) for clock in times)};BYMINUTE={times[0].minute}"
        text = text[: found.start()]
    text = text.removeprefix("on ").removeprefix("every ")
    if text == "morning" and at:
        text = "day"
    if text in ("weekday", "weekdays", "workday", "work day"):
        return f"FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR{at}"
    if text in ("weekend", "weekends"):
        return f"FREQ=WEEKLY;BYDAY=SA,SU{at}"
    if days := _parse_days(text):
        return f"FREQ=WEEKLY;BYDAY={days}{at}"
    number = rf"([0-9]{{1,3}}|second|{'|'.join(_NUMBERS)})"
    named = "hourly|daily|weekly|monthly|yearly|annually"
    found = re.fullmatch(rf"(?:(?:{number} )?({'|'.join(_UNITS)})s?|({named}))(?: on (.+))?", text)
    if found is None:
        raise problem
    amount, unit, name, on = found.groups()
    freq = _UNITS[unit] if unit else "YEARLY" if name == "annually" else name.upper()
    rule = f"FREQ={freq}"
    if amount:
        rule += f";INTERVAL={2 if amount == 'second' else _NUMBERS.get(amount) or int(amount)}"
    if freq in MINUTES and at:
        raise problem
    if on is None:
        return f"{rule}{at}"
    if freq == "WEEKLY" and (days := _parse_days(on)):
        return f"{rule};BYDAY={days}{at}"
    if freq == "MONTHLY" and (found := re.fullmatch(f"the ({'|'.join(_POSITIONS)}) (?:day|{_DAY})", on)):
        position = _POSITIONS[found[1]]
        return f"{rule};BYDAY={position}{WEEK[_find_day(found[2])]}{at}" if found[2] else (
            f"{rule};BYMONTHDAY={position}{at}"
        )  # fmt: skip
    if freq == "MONTHLY" and re.fullmatch("(?:the )?[0-9]{1,2}(?:st|nd|rd|th)?(?:(?:, | and )(?:the )?[0-9]{1,2}"
                                          "(?:st|nd|rd|th)?)*", on):  # fmt: skip
        return f"{rule};BYMONTHDAY={','.join(re.findall('[0-9]+', on))}{at}"
    if freq == "YEARLY" and (day := _parse_month_day(on)):
        return f"{rule};BYMONTH={day[0]};BYMONTHDAY={day[1]}{at}"
    raise problem


def _parse_days(text: str) -> str:
    """Return "MO,TH" for "monday and thursday"; empty for other words."""
    names = re.split(r", and |,? and |, ?", text)
    days = [re.fullmatch(_DAY, name) for name in names]
    if len(names) > 7 or not all(days):
        return ""
    return ",".join(WEEK[number] for number in sorted({_find_day(day[1]) for day in days if day}))


def _describe_rule(rule: Rule, start: datetime) -> str:
    """Return a rule in words that `parse_every` understands; empty if there are none.

    Args:
        start: First time, in the time zone of the user.
    """
    is_plural = rule.interval > 1
    if rule.freq in MINUTES:
        if rule.months or rule.month_days or rule.days or rule.hours or rule.minutes:
            return ""
        unit = "minutes" if rule.freq == "MINUTELY" else "hours"
        return f"every {rule.interval} {unit}" if is_plural else "hourly"
    hours, minutes = rule.hours or (start.hour,), rule.minutes or (start.minute,)
    if rule.positions or len(hours) * len(minutes) > 8 or len(minutes) > 1:
        return ""
    at = f"at {_join([f'{hour:02}:{minutes[0]:02}' for hour in hours])}"
    names = _join([_DAYS[day] for _, day in rule.days] or [_DAYS[start.weekday()]])
    month_days = rule.month_days or (start.day,)
    match rule.freq:
        case "DAILY" if not (rule.months or rule.month_days or rule.days):
            return f"every {rule.interval} days {at}" if is_plural else f"daily {at}"
        case "DAILY" | "WEEKLY" if not (rule.months or rule.month_days or (is_plural and rule.freq == "DAILY")):
            if is_plural:
                return f"every {rule.interval} weeks on {names} {at}"
            return f"every {'weekday' if names == _join(_DAYS[:5]) else names} {at}"
        case "MONTHLY" if not rule.months:
            head = f"every {rule.interval} months" if is_plural else "monthly"
            if len(rule.days) == 1 and not rule.month_days:
                place = next((word for word, number in _POSITIONS.items() if number == rule.days[0][0]), "")
                return f"{head} on the {place} {names} {at}" if place else ""
            if not rule.days and month_days == (-1,):
                return f"{head} on the last day {at}"
            if not rule.days and min(month_days) > 0:
                return f"{head} on the {_join([_ordinal(day) for day in month_days])} {at}"
        case "YEARLY" if not rule.days and len(rule.months) == len(rule.month_days) <= 1 and month_days[0] > 0:
            head = f"every {rule.interval} years" if is_plural else "yearly"
            month = (rule.months or (start.month,))[0]
            return f"{head} on {_MONTHS[month - 1]} {month_days[0]} {at}"
    return ""


def _join(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def _ordinal(number: int) -> str:
    ending = "th" if 11 <= number <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
