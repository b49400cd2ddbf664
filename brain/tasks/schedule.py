"""When a task runs: a time or a recurrence, in ISO 8601, as an RRULE, or in plain words."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from brain.dates import DAY_NAMES, MONTH_NAMES, AmbiguousDate, is_delay, parse_recurrence, parse_time
from brain.recurrence import (
    MINUTES,
    Rule,
    check_interval,
    occurrences,
    parse_until,
    read_rule,
    split_rule,
    to_utc,
)
from brain.store.tasks import next_day
from brain.task import Task

log = logging.getLogger("brain")

MAX_LENGTH = 500
"""Characters of a schedule."""
MAX_AHEAD = 200
"""Years from now in which a task may run first."""
DEFAULT_TIME = time(8)
"""The time of a day that is given without one."""
_WHEN_FORMS = "use a form such as 2027-01-31T08:00, tomorrow at 8, next Monday at 9:30 or in 2 hours"
_EVERY_FORMS = (
    "use a form such as every weekday at 8, every Monday and Thursday at 9, monthly on the 1st at 7, every 2 hours, "
    "0 8 * * 1-5 (cron), or FREQ=DAILY;BYHOUR=8;BYMINUTE=0"
)
_POSITIONS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", -1: "last"}


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
    local = now.astimezone(zone)
    try:
        found = parse_time(text, local)
    except AmbiguousDate as error:
        raise ValueError(f"is ambiguous: {error}") from None
    if found is None:
        raise ValueError(f"is not a time; {_WHEN_FORMS}")
    when = datetime.combine(found.first, found.at or (local.time() if is_delay(text) else DEFAULT_TIME))
    if when.year > now.year + MAX_AHEAD:
        raise ValueError(f"is more than {MAX_AHEAD} years away")
    if when.year < now.year - 1 or (when := to_utc(when, zone)) <= now:
        is_today = found.first == local.date() and found.at is None
        why = ", since a day without a time means 8:00; add a time" if is_today else ""
        raise ValueError(f"is in the past{why}")
    return when


def parse_every(text: str, time_zone: str, now: datetime) -> str:
    """Return a recurrence as an RRULE without `RRULE:` and DTSTART.

    Args:
        text: An RRULE, five cron fields, or plain words such as "every weekday at 8". BYHOUR without BYMINUTE means the
            full hour.

    Raises:
        ValueError: Why the text is no recurrence, for people.
    """
    _check_length(text)
    rule = text.strip().upper().removeprefix("RRULE:")
    if not rule.startswith("FREQ="):
        try:
            rule = parse_recurrence(text) or ""
        except AmbiguousDate as error:
            raise ValueError(f"is ambiguous: {error}") from None
        if not rule:
            raise ValueError(f"is not a recurrence; {_EVERY_FORMS}")
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
    """Return the next time of a task's schedule after a moment; None if it has ended, or can no longer be read."""
    every, start, zone = task.every, task.start, task.time_zone
    if start is None:
        return None
    try:
        if every and task.created > after:  # by a clock that was ahead
            with suppress(ValueError):  # an imported task, created after its last time
                start = find_start(every, zone, after) if start == find_start(every, zone, task.created) else start
        return next(iter(next_times(every, start, zone, after, 1)), None)
    except (ValueError, ZoneInfoNotFoundError) as error:  # such as a zone that the time zone database has lost
        log.warning("the schedule of task %s cannot be read: %s", task.id, error)
        return None


def find_late(waiting: Sequence[Task], now: datetime) -> list[tuple[Task, datetime]]:
    """Return the tasks that wait for a later time than their schedule has, with the right time."""
    times = [(task, next_run(task, now) or next_day(now)) for task in waiting]
    return [(task, time) for task, time in times if task.next_run is not None and time < task.next_run]


def find_start(every: str, time_zone: str, now: datetime, when: datetime | None = None) -> datetime:
    """Return the first time of a recurrence from `when` on; without it after now, at a full hour or at `DEFAULT_TIME`.

    Raises:
        ValueError: It has no time in the future.
    """
    zone, rule = ZoneInfo(time_zone), read_rule(every)
    if rule.freq not in MINUTES:  # the first day that fits; the interval counts from it
        rule = replace(rule, interval=1)
    local = now.astimezone(zone)
    full = datetime.combine(local.date(), DEFAULT_TIME if rule.freq not in MINUTES else time(local.hour))
    begin, after = (when, when - timedelta(microseconds=1)) if when else (to_utc(full, zone), now)
    found = next((moment for moment in occurrences(rule, begin, zone, after) if moment > after), None)
    if found is None:
        raise ValueError("has no time in the future")
    return found


def describe(task: Task, now: datetime) -> str:
    """Return the schedule of a task in words, with its next three times; empty without one."""
    if task.start is None:
        return ""
    zone = ZoneInfo(task.time_zone)
    times = next_times(task.every, task.start, task.time_zone, now)
    shown = ", ".join(f"{time.astimezone(zone):%a %Y-%m-%d %H:%M}" for time in times)
    return f"{to_words(task)}. Next: {shown}" if times else to_words(task)


def to_words(task: Task) -> str:
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
        cron = _format_cron(rule, local)
        return f"by the {'cron rule' if cron else 'rule'} {cron or every} ({time_zone})"
    if rule.count:
        words += f", {rule.count} times" if rule.count > 1 else ", once"
    if rule.until:
        words += f", until {rule.until[:4]}-{rule.until[4:6]}-{rule.until[6:8]}"
    return f"{words} ({time_zone})"


def _check_length(text: str) -> None:
    if len(text) > MAX_LENGTH:
        raise ValueError(f"has {len(text):,} characters; the limit is {MAX_LENGTH}")


def _describe_rule(rule: Rule, start: datetime) -> str:
    """Return a rule in words that `parse_every` understands; empty if there are none.

    Args:
        start: First time, in the time zone of the user.
    """
    is_plural = rule.interval > 1
    if rule.freq in MINUTES:
        step = 60 // len(rule.minutes or (0,))
        is_whole = rule.freq == "HOURLY" and not is_plural and rule.minutes == tuple(range(0, 60, step))  # from cron
        if rule.months or rule.month_days or rule.days or rule.hours or (rule.minutes and not is_whole):
            return ""
        if is_whole and step < 60:
            return f"every {step} minutes"
        unit = "minutes" if rule.freq == "MINUTELY" else "hours"
        return f"every {rule.interval} {unit}" if is_plural else "hourly"
    hours, minutes = rule.hours or (start.hour,), rule.minutes or (start.minute,)
    if rule.positions or len(hours) * len(minutes) > 8 or len(minutes) > 1:
        return ""
    at = f"at {_join([f'{hour:02}:{minutes[0]:02}' for hour in hours])}"
    names = _join([DAY_NAMES[day] for _, day in rule.days] or [DAY_NAMES[start.weekday()]])
    month_days = rule.month_days or (start.day,)
    match rule.freq:
        case "DAILY" if not (rule.months or rule.month_days or rule.days):
            return f"every {rule.interval} days {at}" if is_plural else f"daily {at}"
        case "DAILY" | "WEEKLY" if not (rule.months or rule.month_days or (is_plural and rule.freq == "DAILY")):
            if is_plural:
                return f"every {rule.interval} weeks on {names} {at}"
            return f"every {'weekday' if names == _join(DAY_NAMES[:5]) else names} {at}"
        case "MONTHLY" if not rule.months:
            head = f"every {rule.interval} months" if is_plural else "monthly"
            if len(rule.days) == 1 and not rule.month_days:
                place = _POSITIONS.get(rule.days[0][0])
                return f"{head} on the {place} {names} {at}" if place else ""
            if not rule.days and month_days == (-1,):
                return f"{head} on the last day {at}"
            if not rule.days and min(month_days) > 0:
                return f"{head} on the {_join([_ordinal(day) for day in month_days])} {at}"
        case "YEARLY" | "MONTHLY" if not (rule.days or (is_plural and rule.freq == "MONTHLY")) and (
            len(rule.months) == len(rule.month_days) <= 1 and month_days[0] > 0
        ):
            head = f"every {rule.interval} years" if is_plural else "yearly"
            month = (rule.months or (start.month,))[0]
            return f"{head} on {MONTH_NAMES[month - 1]} {month_days[0]} {at}"
    return ""


def _format_cron(rule: Rule, start: datetime) -> str:
    """Return the five cron fields of a rule; empty if cron cannot say it."""
    is_hourly = rule.freq == "HOURLY"
    needs = {"HOURLY": rule.minutes, "DAILY": True, "WEEKLY": rule.days, "MONTHLY": rule.month_days}.get(rule.freq)
    others = rule.interval > 1 or rule.count or rule.until or rule.positions or (rule.month_days and rule.days)
    if not needs or others or min(rule.month_days, default=1) < 0 or any(number for number, _ in rule.days):
        return ""
    fields = (
        (rule.minutes or (start.minute,), 0, 59), (rule.hours or (() if is_hourly else (start.hour,)), 0, 23),
        (rule.month_days, 1, 31), (rule.months, 1, 12), (sorted((day + 1) % 7 for _, day in rule.days), 0, 6),
    )  # fmt: skip
    return " ".join(_format_field(*field) for field in fields)


def _format_field(values: Sequence[int], low: int, high: int) -> str:
    if len(values) > 2 and list(values) == list(range(values[0], values[-1] + 1, step := values[1] - values[0])):
        is_all = values[0] == low and values[-1] + step > high
        span = "*" if is_all else f"{values[0]}-{values[-1]}"
        return span if step == 1 else f"{span}/{step}"
    return ",".join(map(str, values)) or "*"


def _join(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def _ordinal(number: int) -> str:
    ending = "th" if 11 <= number <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
