"""When a task runs: a time, or a recurrence as an RRULE, in the time zone of its user."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr

MIN_INTERVAL = timedelta(minutes=5)
"""Shortest time between two runs."""
MAX_EVERY_LENGTH = 500


def parse_when(text: str, time_zone: str, now: datetime) -> datetime:
    """Return a time in the future.

    Args:
        text: A time in ISO 8601; without an offset, in `time_zone`.

    Raises:
        ValueError: Why the text is no such time, for people.
    """
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("is not a time; use a form such as 2027-01-31T08:00") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=ZoneInfo(time_zone))
    if when <= now:
        raise ValueError("is in the past")
    return when.astimezone(UTC)


def parse_every(text: str, time_zone: str, now: datetime) -> str:
    """Return a recurrence as an RRULE without `RRULE:` and DTSTART.

    Raises:
        ValueError: Why the text is no recurrence, for people.
    """
    rule = text.strip().removeprefix("RRULE:").upper()
    if len(rule) > MAX_EVERY_LENGTH:
        raise ValueError(f"is too long; the limit is {MAX_EVERY_LENGTH} characters")
    if "\n" in rule or not rule.startswith("FREQ="):
        raise ValueError("is not a recurrence; use a form such as FREQ=DAILY;BYHOUR=8;BYMINUTE=0")
    times = next_times(rule, now, time_zone, now, 3)
    if not times:
        raise ValueError("has no time in the future")
    if any(later - earlier < MIN_INTERVAL for earlier, later in pairwise(times)):
        raise ValueError("is too often; the shortest interval is 5 minutes")
    return rule


def next_times(every: str, start: datetime, time_zone: str, after: datetime, count: int = 3) -> list[datetime]:
    """Return the next times of a schedule after a moment, in UTC.

    The rule counts in local time, so that eight o'clock stays eight o'clock over clock changes.

    Args:
        every: The recurrence; empty for `start` alone.
        start: First time of the recurrence.
    """
    if not every:
        return [start] if start > after else []
    zone = ZoneInfo(time_zone)
    try:
        rule = rrulestr(every, dtstart=start.astimezone(zone).replace(tzinfo=None, microsecond=0))
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"is not a recurrence: {error}") from None
    local = after.astimezone(zone).replace(tzinfo=None)
    found = (time.replace(tzinfo=zone).astimezone(UTC) for time in rule.xafter(local - timedelta(hours=2)))
    return list(islice((time for time in found if time > after and time >= start), count))


def describe(every: str, start: datetime, first: datetime, zone: ZoneInfo) -> str:
    """Return a schedule in words, with its next three times from the first one."""
    times = [first, *next_times(every, start, zone.key, first, 2)]
    shown = ", ".join(f"{time.astimezone(zone):%A %Y-%m-%d %H:%M}" for time in times)
    return f"{every or 'once'} ({zone.key}): {shown}"
