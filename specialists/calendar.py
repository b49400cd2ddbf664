"""Built in: `calendar`, the user's events: listed, made, changed, removed, and the free time between them.

They are `.ics` files in a folder, as khal and vdirsyncer keep them, or on a CalDAV server.
"""

import asyncio
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Meta

from brain import Citation, Context, Refused, Result, specialist
from specialists._calendar import slots
from specialists._calendar.asked import Asked
from specialists._calendar.desk import CONFLICTS_SHOWN, Desk
from specialists._calendar.expand import Window
from specialists._calendar.folder import Folder, folder_name, writable
from specialists._calendar.listing import Entry, iso, listed, one_line
from specialists._calendar.plan import Plan
from specialists._calendar.server import Server
from specialists._calendar.store import Store
from specialists._calendar.wishes import Wish
from specialists._calendar.zones import Moment, at

DAYS = 7
DAYS_SEARCHED = 365
DAYS_MOST = 366
FREE_MINUTES = 60
Short = Annotated[str, Meta(max_length=500)]
Long = Annotated[str, Meta(max_length=8000)]
_DONE = {"create": "Created", "update": "Changed", "delete": "Deleted"}
_SAVED_SECONDS = 1.0
"""Of the time for a call, for writing the answer."""


@dataclass(frozen=True, slots=True)
class CalendarSettings:
    """Where calendars are, and when people work."""

    folder: Annotated[
        str,
        Meta(
            description="folder of calendars: a folder per user, in it folders of .ics files; else in the data folder"
        ),
    ] = ""
    caldav_url: Annotated[str, Meta(description="a CalDAV server instead of the folder")] = ""
    caldav_user: Annotated[str, Meta(description="login there")] = ""
    caldav_password: Annotated[str, Meta(description="its password", extra={"secret": True})] = ""
    caldav_for: Annotated[str, Meta(description="the one user whom the CalDAV account belongs to")] = "local"
    default: Annotated[str, Meta(description="calendar for new events when there are several")] = ""
    hours: Annotated[str, Meta(description="working hours, in which free time is looked for")] = "mon-fri 09:00-17:00"
    mails: Annotated[
        str, Meta(description="the users' mail addresses, comma-separated; what these declined does not block time")
    ] = ""


def missing(*, settings: CalendarSettings) -> str | None:
    """What is not installed."""
    if settings.caldav_url and not importlib.util.find_spec("caldav"):
        return "the library for CalDAV is not installed: pip install 'brain-sse[calendar]'"
    return None


async def health(*, settings: CalendarSettings) -> str | None:
    """Whether the calendars can be reached, and the settings be understood."""
    try:
        slots.hours_of(settings.hours)
    except ValueError as problem:
        return f"hours {settings.hours!r}: {problem}"
    if settings.caldav_url:
        return await asyncio.to_thread(_server_health, settings)
    folder = _root(settings)
    return None if writable(folder) else "the calendar folder cannot be written; see the setting folder"


def _server_health(settings: CalendarSettings) -> str | None:
    server = Server(settings.caldav_url, settings.caldav_user, settings.caldav_password, lambda: 10.0)
    try:
        server.calendars(fresh=True)
    except Refused as refusal:
        return refusal.reason
    finally:
        server.close()
    return None


def needs_approval(params: Mapping[str, Any]) -> bool:
    """Whatever is lost or changes many days at once is asked about."""
    action = params.get("action")
    return action == "delete" or (action == "update" and params.get("scope") == "series")


def reads(params: Mapping[str, Any]) -> bool:
    """What only looks is never asked about."""
    return params.get("action", "list") in ("list", "free")


def preview(
    params: Mapping[str, Any], *, context: Context, settings: CalendarSettings, now: datetime | None = None
) -> Result | None:
    """What a change would do."""
    if reads(params):
        return None
    asked = Asked(**params)
    try:
        with _desk(context, settings, now, asked.calendar) as desk:
            return _plan(desk, asked, asked.wish(desk, context.message)).preview()
    except Refused:
        if context.seconds_left < _SAVED_SECONDS:  # a server that is too slow for this: the call has more time
            return None
        raise


@specialist(
    requires_user=True,
    approval=needs_approval,
    preview=preview,
    read_only=reads,
    outside=False,  # but for results with events that others sent
    timeout=20,
    settings=CalendarSettings,
    needs=missing,
    health=health,
    tags=("calendar", "events", "time"),
    examples=(
        "what is on my calendar this week",
        "what's on my calendar today",
        "do I have any appointments tomorrow",
        "schedule a meeting with Anna on Monday at 10",
        "add the dentist appointment to my calendar",
        "when am I free on Thursday afternoon",
        "find a free slot for a one-hour call",
        "move my standup to 9:30",
        "cancel the appointment on Friday",
        "when is my next meeting",
        "reschedule lunch with Ben to next week",
        "plan a weekly team event every Tuesday",
        "welche Termine habe ich morgen",
    ),
)
def calendar(
    action: Literal["list", "create", "update", "delete", "free"] = "list",
    start: Annotated[Short | None, Meta(description="ISO 8601; a day alone: all day")] = None,
    end: Annotated[Short | None, Meta(description="of whole days the last one")] = None,
    duration_minutes: Annotated[int, Meta(ge=1, le=20160)] | None = None,
    title: Short | None = None,
    location: Short | None = None,
    description: Long | None = None,
    repeat: Annotated[Short | None, Meta(description="RRULE")] = None,
    event_id: Short | None = None,
    scope: Annotated[Literal["this", "series"] | None, Meta(description="if it repeats")] = None,
    occurrence: Annotated[Short | None, Meta(description="its start, for this")] = None,
    calendar: Annotated[Short | None, Meta(description="name; default all")] = None,
    query: Annotated[Short | None, Meta(description="words in it")] = None,
    max_results: Annotated[int, Meta(ge=1, le=100)] = 20,
    *,
    context: Context,
    settings: CalendarSettings,
    now: datetime | None = None,
) -> Result:
    """The user's calendar: events (default: the next 7 days), and when they are free.

    `now` is for tests; else it is the time on the user's clocks.
    """
    texts = title, location, description
    dates = repeat, event_id, scope, occurrence
    asked = Asked(action, start, end, duration_minutes, *texts, *dates, calendar, query, max_results)
    with _desk(context, settings, now, calendar) as desk:
        wish = asked.wish(desk, context.message)
        if action == "list":
            words = asked.words(context.message)
            return _one(desk, event_id) if event_id else _list(desk, wish, words, max_results)
        if action == "free":
            return _free(desk, wish, settings, max_results)
        plan = _plan(desk, asked, wish)
        plan.check(context.approved)
        return _done(_DONE[action], desk, desk.carry_out(plan), conflicts=plan.becomes is not None and wish.moves)


def _plan(desk: Desk, asked: Asked, wish: Wish) -> Plan:
    """What is to be changed."""
    if asked.action == "create":
        if not wish.title or not wish.title.strip() or wish.start is None:
            raise Refused("create needs title and start")
        return desk.create(wish)
    if not asked.event_id:
        raise Refused(f"{asked.action} needs event_id; list the events and take it from there")
    when = asked.when(desk.now)
    if asked.action == "delete":
        return desk.remove(asked.event_id, when, asked.scope)
    if wish == Wish():
        raise Refused("say what to change: title, start, end, duration_minutes, location, description or repeat")
    return desk.change(asked.event_id, when, asked.scope, wish)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def _root(settings: CalendarSettings) -> Path:
    import platformdirs

    return Path(settings.folder).expanduser() if settings.folder else platformdirs.user_data_path("brain") / "calendars"


@contextmanager
def _desk(context: Context, settings: CalendarSettings, now: datetime | None, calendar: str | None) -> Iterator[Desk]:
    """The user's calendars, or the one that is named."""
    clock = (now or datetime.now(UTC)).astimezone(_zone(context.time_zone))
    if context.user is None:
        raise Refused("the calendar needs a signed-in user")

    def seconds_left() -> float:
        return context.seconds_left - _SAVED_SECONDS

    mails = frozenset(mail.strip().casefold() for mail in settings.mails.split(",") if mail.strip())
    with _store(context.user, settings, seconds_left) as store:
        yield Desk(store, context.user, context.conversation_id, clock, calendar, settings.default, mails, seconds_left)


@contextmanager
def _store(user: str, settings: CalendarSettings, seconds_left: Callable[[], float]) -> Iterator[Store]:
    """Where this user's calendars are, and nobody else's."""
    if not settings.caldav_url:
        yield Folder(_root(settings) / folder_name(user), seconds_left)
        return
    if user != settings.caldav_for:
        raise Refused(
            "the calendar account set up here belongs to another user; tell the user that there is none for them"
        )
    server = Server(settings.caldav_url, settings.caldav_user, settings.caldav_password, seconds_left)
    try:
        yield server
    finally:
        server.close()


def _window(desk: Desk, wish: Wish, days: int, *, from_now: bool = False) -> Window:
    """From the start, or today, to the end; a day as end is the last one."""
    first: Moment = wish.start or (desk.now if from_now else desk.now.date())
    start = at(first, desk.zone)
    if wish.end is None:
        end = at(start.date() + timedelta(days=days), desk.zone)
    else:
        end = at(wish.end if isinstance(wish.end, datetime) else wish.end + timedelta(days=1), desk.zone)
    if end.timestamp() <= start.timestamp():
        raise Refused(f"end {iso(wish.end, desk.zone)} is before start {iso(first, desk.zone)}; correct one of them")
    latest = at(start.date() + timedelta(days=DAYS_MOST), desk.zone)
    if end.timestamp() > latest.timestamp():
        desk.notes.append(f"Only {DAYS_MOST} days can be looked at in one call.")
        end = latest
    return Window(start, end, desk.zone)


def _list(desk: Desk, wish: Wish, query: str | None, most: int) -> Result:
    words = (query or wish.title or "").casefold().split()
    window = _window(desk, wish, DAYS_SEARCHED if words else DAYS)
    found = [entry for entry in desk.entries(window) if _has(entry, words)]
    shown = found[:most]
    desk.show(shown)
    last = window.end - timedelta(seconds=1)
    about = f" with {one_line(' '.join(words), 60)!r}" if words else ""
    head = f"{_count(found)}{about}, {window.start:%Y-%m-%d} to {last:%Y-%m-%d}, times in {desk.zone.key}"
    rest = _how_to_get(found, len(shown), window)
    if rest:
        desk.notes.append(f"{len(found) - len(shown)} more: {rest}.")
    lines = [entry.line(named=desk.several) for entry in shown]
    text = "\n".join([f"Calendar: {head}", *lines, *desk.notes])

    def more(characters: int) -> str:
        whole = text[:characters].count("\n") - 1
        return _how_to_get(found, min(max(whole, 0), len(shown)), window)

    data = {"events": [entry.data() for entry in shown], "total": len(found)}
    return Result(text, _citations(desk, shown), data, more, desk.from_others(shown))


def _has(entry: Entry, words: list[str]) -> bool:
    event = entry.occurrence.event
    text = f"{event.title} {event.location} {event.description} {entry.resource.calendar.name}".casefold()
    return all(word in text for word in words)


def _count(found: list[Entry]) -> str:
    return f"{len(found) or 'no'} event{'' if len(found) == 1 else 's'}"


def _how_to_get(found: list[Entry], shown: int, window: Window) -> str:
    """What to ask for to get the entries behind those shown; nothing when all are."""
    if shown >= len(found):
        return ""
    following = found[shown]
    begins = following.span[0].timestamp()
    if begins <= max(window.start.timestamp(), found[0].span[0].timestamp()):
        return "ask again with a larger max_results, or query"
    return f"ask again with start={iso(following.occurrence.start, window.zone)}"


def _citations(desk: Desk, entries: list[Entry]) -> list[Citation]:
    names = dict.fromkeys(entry.resource.calendar.name for entry in entries)
    return [Citation(name, f"Calendar {name}") for name in names]


def _one(desk: Desk, event_id: str) -> Result:
    resource, uid = desk.find(event_id)
    events = resource.file.series[uid]
    window = Window(desk.now, desk.now + timedelta(days=DAYS_SEARCHED), desk.zone)
    entry = desk.next_of(resource, uid, window)
    desk.show([entry])
    text = f"Calendar: one event, times in {desk.zone.key}\n{entry.details(named=desk.several)}"
    changed = [e for e in events if e.instead_of is not None]
    if changed:
        text += f"\n{len(changed)} of its occurrences differ from the rest."
    data = {"events": [entry.data()], "total": 1}
    return Result(text, _citations(desk, [entry]), data, outside=desk.from_others([entry]))


def _done(what: str, desk: Desk, entry: Entry, *, conflicts: bool = False) -> Result:
    text = f"{what}, times in {desk.zone.key}:\n{entry.line(named=desk.several)}"
    others = desk.conflicts(entry) if conflicts else []
    if others:
        more = f"\n- and {len(others) - CONFLICTS_SHOWN} more" if len(others) > CONFLICTS_SHOWN else ""
        text += f"\nConflicts with:\n{listed(others[:CONFLICTS_SHOWN], named=desk.several)}{more}"
    data = {"events": [entry.data()], "conflicts": [other.data() for other in others]}
    return Result(text, _citations(desk, [entry]), data, outside=desk.from_others([entry, *others]))


def _free(desk: Desk, wish: Wish, settings: CalendarSettings, most: int) -> Result:
    least = timedelta(minutes=wish.minutes or FREE_MINUTES)
    window = _window(desk, wish, DAYS, from_now=True)
    if window.start.timestamp() < desk.now.timestamp() < window.end.timestamp():
        window = Window(desk.now, window.end, desk.zone)
    try:
        hours = slots.hours_of(settings.hours)
    except ValueError as problem:
        raise Refused(
            "the setting hours cannot be read; tell the user that the operator has to look at it"
        ) from problem
    timed = isinstance(wish.start, datetime) and isinstance(wish.end, datetime)
    exact = timed and window.start.date() == window.end.date()
    spans = [(window.start, window.end)] if exact else list(slots.working(window, hours))
    busy = [entry.span for entry in desk.busy(desk.entries(window))]
    found = list(slots.free(spans, busy, least))
    within = "" if exact else f" within {settings.hours}"
    minutes = int(least.total_seconds() // 60)
    head = f"Calendar: free for at least {minutes} minutes{within}, times in {desk.zone.key}"
    lines = [f"- {first:%Y-%m-%dT%H:%M} to {last:%Y-%m-%dT%H:%M}" for first, last in found[:most]]
    if len(found) > most:
        desk.notes.append(f"{len(found) - most} more: ask again with start={found[most][0]:%Y-%m-%dT%H:%M}.")
    data = {"free": [{"start": first.isoformat(), "end": last.isoformat()} for first, last in found[:most]]}
    none = "- nothing is free then" if spans else "- these are not working hours; give start and end with their times"
    return Result("\n".join([head, *(lines or [none]), *desk.notes]), data=data)
