"""What `calendar` answers: the events of a window, one of them, what was done, free time."""

from datetime import datetime, timedelta

from brain import Citation, Refused, Result
from specialists._calendar import free_time
from specialists._calendar.actions import Desk
from specialists._calendar.draft import Wish
from specialists._calendar.expand import Window
from specialists._calendar.listing import Entry, iso, listed, one_line
from specialists._calendar.times import Moment, at

DAYS = 7
DAYS_SEARCHED = 365
DAYS_MOST = 366
FREE_MINUTES = 60
CONFLICTS_SHOWN = 5


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


def found(desk: Desk, wish: Wish, query: str | None, most: int) -> Result:
    """The events in a window, with the words that are looked for."""
    words = (query or wish.title or "").casefold().split()
    window = _window(desk, wish, DAYS_SEARCHED if words else DAYS)
    fitting = [entry for entry in desk.entries(window) if _has(entry, words)]
    shown = fitting[:most]
    desk.show(shown)
    last = window.end - timedelta(seconds=1)
    about = f" with {one_line(' '.join(words), 60)!r}" if words else ""
    head = f"{_count(fitting)}{about}, {window.start:%Y-%m-%d} to {last:%Y-%m-%d}, times in {desk.zone.key}"
    rest = _how_to_get(fitting, len(shown), window)
    if rest:
        desk.notes.append(f"{len(fitting) - len(shown)} more: {rest}.")
    lines = [entry.line(named=desk.several) for entry in shown]
    text = "\n".join([f"Calendar: {head}", *lines, *desk.notes])

    def more(characters: int) -> str:
        whole = text[:characters].count("\n") - 1
        return _how_to_get(fitting, min(max(whole, 0), len(shown)), window)

    data = {"events": [entry.data() for entry in shown], "total": len(fitting)}
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


def one(desk: Desk, event_id: str) -> Result:
    """All that is known of one event."""
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


def done(what: str, desk: Desk, entry: Entry, *, conflicts: bool = False) -> Result:
    """What was done, and what else takes up that time."""
    text = f"{what}, times in {desk.zone.key}:\n{entry.line(named=desk.several)}"
    others = desk.conflicts(entry) if conflicts else []
    if others:
        more = f"\n- and {len(others) - CONFLICTS_SHOWN} more" if len(others) > CONFLICTS_SHOWN else ""
        text += f"\nConflicts with:\n{listed(others[:CONFLICTS_SHOWN], named=desk.several)}{more}"
    data = {"events": [entry.data()], "conflicts": [other.data() for other in others]}
    return Result(text, _citations(desk, [entry]), data, outside=desk.from_others([entry, *others]))


def free(desk: Desk, wish: Wish, hours: str, most: int) -> Result:
    """When the user is free."""
    least = timedelta(minutes=wish.minutes or FREE_MINUTES)
    window = _window(desk, wish, DAYS, from_now=True)
    if window.start.timestamp() < desk.now.timestamp() < window.end.timestamp():
        window = Window(desk.now, window.end, desk.zone)
    try:
        working = free_time.working(window, free_time.hours_of(hours))
    except ValueError as problem:
        raise Refused(
            "the setting hours cannot be read; tell the user that the operator has to look at it"
        ) from problem
    timed = isinstance(wish.start, datetime) and isinstance(wish.end, datetime)
    exact = timed and window.start.date() == window.end.date()
    spans = [(window.start, window.end)] if exact else list(working)
    busy = [entry.span for entry in desk.busy(desk.entries(window))]
    found = list(free_time.free(spans, busy, least))
    within = "" if exact else f" within {hours}"
    minutes = int(least.total_seconds() // 60)
    head = f"Calendar: free for at least {minutes} minutes{within}, times in {desk.zone.key}"
    lines = [f"- {first:%Y-%m-%dT%H:%M} to {last:%Y-%m-%dT%H:%M}" for first, last in found[:most]]
    if len(found) > most:
        desk.notes.append(f"{len(found) - most} more: ask again with start={found[most][0]:%Y-%m-%dT%H:%M}.")
    data = {"free": [{"start": first.isoformat(), "end": last.isoformat()} for first, last in found[:most]]}
    none = "- nothing is free then" if spans else "- these are not working hours; give start and end with their times"
    return Result("\n".join([head, *(lines or [none]), *desk.notes]), data=data)
