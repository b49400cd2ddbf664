"""The results of `calendar`: events of a window, one event, a change, free time."""

from datetime import datetime, timedelta

from brain import Citation, Refused, Result
from specialists._calendar import free_time
from specialists._calendar.actions import UserCalendars
from specialists._calendar.calendars import ASK_OPERATOR
from specialists._calendar.draft import EventDraft
from specialists._calendar.expand import Window
from specialists._calendar.listing import Entry, iso_minutes
from specialists._calendar.zones import Moment, localize
from specialists._kit.text import one_line

DAYS = 7
DAYS_SEARCHED = 365
MAX_DAYS = 366
FREE_MINUTES = 60
CONFLICTS_SHOWN = 5


def list_events(calendars: UserCalendars, draft: EventDraft, query: str | None, limit: int) -> Result:
    """List the events of a window that contain the words of a query."""
    words = (query or draft.title or "").casefold().split()
    window = _resolve_window(calendars, draft, DAYS_SEARCHED if words else DAYS)
    matching = [entry for entry in calendars.list_entries(window) if all(word in entry.search_text for word in words)]
    shown = matching[:limit]
    calendars.remember_shown(shown)

    def advice_for_rest(shown: int) -> str:
        if shown >= len(matching):
            return ""
        following = matching[shown]
        first = max(window.start.timestamp(), matching[0].span[0].timestamp())
        if following.span[0].timestamp() <= first:  # the same start would give the same events
            return "call again with a larger max_results, or with query"
        return f"call again with start={iso_minutes(following.occurrence.start, window.zone)}"

    about = f" with {one_line(' '.join(words), 60)!r}" if words else ""
    count = f"{len(matching) or 'no'} event{'' if len(matching) == 1 else 's'}"
    last = window.end - timedelta(seconds=1)
    head = f"Calendar: {count}{about}, {window.start:%Y-%m-%d} to {last:%Y-%m-%d}, times in {calendars.zone.key}"
    if advice := advice_for_rest(len(shown)):
        calendars.notes.append(f"{len(matching) - len(shown)} more: {advice}.")
    text = "\n".join([head, *(entry.line(has_calendar=calendars.has_several) for entry in shown), *calendars.notes])

    def more(characters: int) -> str:
        whole = text[:characters].count("\n") - 1
        return advice_for_rest(min(max(whole, 0), len(shown)))

    data = {"events": [entry.data() for entry in shown], "total": len(matching)}
    return Result(text, _build_citations(shown), data, more, calendars.has_foreign_events(shown))


def _resolve_window(calendars: UserCalendars, draft: EventDraft, days: int, *, from_now: bool = False) -> Window:
    """Return the window from the start, or today, to the end; a date as end is the last day."""
    first: Moment = draft.start or (calendars.now if from_now else calendars.now.date())
    start = localize(first, calendars.zone)
    if draft.end is None:
        end = localize(start.date() + timedelta(days=days), calendars.zone)
    else:
        end = localize(draft.end if isinstance(draft.end, datetime) else draft.end + timedelta(days=1), calendars.zone)
    if end.timestamp() <= start.timestamp():
        given, earliest = iso_minutes(draft.end, calendars.zone), iso_minutes(first, calendars.zone)
        raise Refused(f"the end, {given}, is before the start, {earliest}", "correct one of them")
    latest = localize(start.date() + timedelta(days=MAX_DAYS), calendars.zone)
    if end.timestamp() > latest.timestamp():
        calendars.notes.append(f"A call lists up to {MAX_DAYS} days.")
        end = latest
    return Window(start, end, calendars.zone)


def _build_citations(entries: list[Entry]) -> list[Citation]:
    names = dict.fromkeys(entry.resource.calendar.name for entry in entries)
    return [Citation(name, f"Calendar {name}") for name in names]


def show_event(calendars: UserCalendars, event_id: str) -> Result:
    """Show all details of one event."""
    resource, uid = calendars.find(event_id)
    window = Window(calendars.now, calendars.now + timedelta(days=DAYS_SEARCHED), calendars.zone)
    entry = calendars.find_next(resource, uid, window)
    calendars.remember_shown([entry])
    text = f"Calendar: one event, times in {calendars.zone.key}\n{entry.details(has_calendar=calendars.has_several)}"
    if changed := sum(event.recurrence_id is not None for event in entry.series):
        text += f"\nChanged occurrences: {changed}."
    data = {"events": [entry.data()], "total": 1}
    return Result(text, _build_citations([entry]), data, outside=calendars.has_foreign_events([entry]))


def report_change(verb: str, calendars: UserCalendars, entry: Entry, *, conflicts: bool = False) -> Result:
    """Report a change, and overlapping events."""
    others = calendars.find_conflicts(entry) if conflicts else []
    lines = [f"{verb}, times in {calendars.zone.key}:", entry.line(has_calendar=calendars.has_several)]
    if others:
        lines += ["Conflicts with:", *(o.line(has_calendar=calendars.has_several) for o in others[:CONFLICTS_SHOWN])]
    if len(others) > CONFLICTS_SHOWN:
        lines.append(f"- and {len(others) - CONFLICTS_SHOWN} more")
    data = {"events": [entry.data()], "conflicts": [other.data() for other in others]}
    is_untrusted = calendars.has_foreign_events([entry, *others])
    return Result("\n".join(lines), _build_citations([entry]), data, outside=is_untrusted)


def list_free_time(calendars: UserCalendars, draft: EventDraft, hours: str, limit: int) -> Result:
    """List when the user is free."""
    minutes = draft.minutes or FREE_MINUTES
    window = _resolve_window(calendars, draft, DAYS, from_now=True)
    if window.start.timestamp() < calendars.now.timestamp() < window.end.timestamp():
        window = Window(calendars.now, window.end, calendars.zone)
    try:
        working = free_time.list_working_times(window, free_time.parse_hours(hours))
    except ValueError as problem:
        raise Refused("the working hours of this server are invalid", ASK_OPERATOR) from problem
    has_times = isinstance(draft.start, datetime) and isinstance(draft.end, datetime)
    is_one_span = has_times and window.start.date() == window.end.date()
    searched = [(window.start, window.end)] if is_one_span else list(working)
    busy = [entry.span for entry in calendars.filter_busy(calendars.list_entries(window))]
    found = list(free_time.find_free(searched, busy, timedelta(minutes=minutes)))
    within = "" if is_one_span else f" within {hours}"
    head = f"Calendar: free for at least {minutes} minutes{within}, times in {calendars.zone.key}"
    lines = [f"- {first:%Y-%m-%dT%H:%M} to {last:%Y-%m-%dT%H:%M}" for first, last in found[:limit]]
    if not searched:
        lines = ["- this is outside working hours; give start and end with times"]
    if len(found) > limit:
        calendars.notes.append(f"{len(found) - limit} more: call again with start={found[limit][0]:%Y-%m-%dT%H:%M}.")
    data = {"free": [{"start": first.isoformat(), "end": last.isoformat()} for first, last in found[:limit]]}
    return Result("\n".join([head, *(lines or ["- no free time"]), *calendars.notes]), data=data)
