"""`calendar`: list, create, change and delete the user's events, and find free time.

Events are `.ics` files in a folder, as for khal and vdirsyncer, or on a CalDAV server.
"""

import asyncio
import importlib.util
import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Meta

from brain import Context, Refused, Result, install_command, specialist
from specialists._calendar import answers, assist, free_time
from specialists._calendar.actions import UserCalendars
from specialists._calendar.caldav import CalDavStore
from specialists._calendar.calendars import ASK_OPERATOR, CalendarStore
from specialists._calendar.draft import EventDraft
from specialists._calendar.folder import FolderStore, encode_name, is_writable
from specialists._calendar.plan import Plan
from specialists._calendar.request import CalendarRequest
from specialists._kit.examples import read_examples

log = logging.getLogger("brain")

Short = Annotated[str, Meta(max_length=500)]
Long = Annotated[str, Meta(max_length=8000)]
_CHANGE_VERBS = {"create": "Created", "update": "Changed", "delete": "Deleted"}
_RESERVED_SECONDS = 1.0
"""Time reserved for writing the result, in seconds."""


@dataclass(frozen=True, slots=True)
class CalendarSettings:
    """Location of the calendars, and working hours."""

    folder: Annotated[
        str,
        Meta(
            description="existing directory with one folder per user, which holds folders of .ics files; "
            "default: in the data directory"
        ),
    ] = ""
    caldav_url: Annotated[str, Meta(description="URL of a CalDAV server, used instead of `folder`")] = ""
    caldav_user: Annotated[str, Meta(description="user name at the CalDAV server")] = ""
    caldav_password: Annotated[str, Meta(description="password at the CalDAV server", extra={"secret": True})] = ""
    caldav_for: Annotated[str, Meta(description="user who owns the CalDAV account")] = "local"
    default: Annotated[str, Meta(description="calendar for new events if a user has several")] = ""
    hours: Annotated[str, Meta(description="working hours, in which free time is searched")] = "mon-fri 09:00-17:00"
    mails: Annotated[
        str,
        Meta(description="email addresses of the users, comma-separated; their declined events do not block time"),
    ] = ""


def find_problem(*, settings: CalendarSettings) -> str | None:
    """Return the missing package, or None."""
    if settings.caldav_url and not importlib.util.find_spec("caldav"):
        return f"CalDAV support is not installed: {install_command('calendar')}"
    return None


async def health(*, settings: CalendarSettings) -> str | None:
    """Return a problem with the settings or the store, or None."""
    try:
        free_time.parse_hours(settings.hours)
    except ValueError as problem:
        return f"the setting hours is {settings.hours!r}: {problem}"
    if not settings.caldav_url:
        if settings.folder and not _find_root(settings).exists():
            return f"BRAIN_SPECIALIST_CALENDAR_FOLDER: there is no folder {settings.folder}"
        writable = is_writable(_find_root(settings))
        return None if writable else "the calendar folder cannot be written: check the setting folder"
    server = CalDavStore(settings.caldav_url, settings.caldav_user, settings.caldav_password, lambda: 10.0)
    try:
        await asyncio.to_thread(server.calendars, fresh=True)
    except Refused as refusal:
        return refusal.reason
    finally:
        server.close()
    return None


def needs_approval(params: Mapping[str, Any]) -> bool:
    """Return whether a call deletes events or changes a whole series."""
    action = params.get("action")
    return action == "delete" or (action == "update" and params.get("scope") == "series")


def is_read_only(params: Mapping[str, Any]) -> bool:
    """Return whether a call only reads."""
    return params.get("action", "list") in ("list", "free")


def preview(
    params: Mapping[str, Any], *, context: Context, settings: CalendarSettings, now: datetime | None = None
) -> Result | None:
    """Return a description of the change, or None for a call that only reads."""
    if is_read_only(params):
        return None
    request = CalendarRequest(**params)
    try:
        with _open_calendars(context, settings, now, request) as calendars:
            return _plan_change(calendars, request, request.draft(calendars, context.message)).preview()
    except Refused:
        if context.seconds_left < _RESERVED_SECONDS:  # a slow server: the call itself has more time
            return None
        raise


@specialist(
    requires_user=True,
    approval=needs_approval,
    preview=preview,
    read_only=is_read_only,
    outside=False,  # except results with events from other organizers
    timeout=20,
    settings=CalendarSettings,
    needs=find_problem,
    health=health,
    assist=assist.make_params,
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
        *read_examples("calendar"),
    ),
)
def calendar(
    action: Literal["list", "create", "update", "delete", "free"] = "list",
    start: Annotated[Short | None, Meta(description="ISO 8601; a date alone: all day")] = None,
    end: Annotated[Short | None, Meta(description="of an all-day event the last day")] = None,
    duration_minutes: Annotated[int, Meta(ge=1, le=20160)] | None = None,
    title: Short | None = None,
    location: Short | None = None,
    description: Long | None = None,
    repeat: Annotated[Short | None, Meta(description="RRULE")] = None,
    event_id: Short | None = None,
    scope: Annotated[Literal["this", "series"] | None, Meta(description="if it repeats")] = None,
    occurrence: Annotated[Short | None, Meta(description="its start, for scope this")] = None,
    calendar: Annotated[Short | None, Meta(description="name (default: all)")] = None,
    query: Annotated[Short | None, Meta(description="words in the event")] = None,
    max_results: Annotated[int, Meta(ge=1, le=100)] = 20,
    *,
    context: Context,
    settings: CalendarSettings,
    now: datetime | None = None,
) -> Result:
    """List (default: the next 7 days) or change the events in the user's calendar, or find free time.

    `now` is for tests; the default is the current time.
    """
    texts = title, location, description
    request = CalendarRequest(
        action, start, end, duration_minutes, *texts, repeat, event_id, scope, occurrence, calendar, query, max_results
    )
    with _open_calendars(context, settings, now, request) as calendars:
        draft = request.draft(calendars, context.message)
        if action == "list" and event_id:
            return answers.show_event(calendars, event_id)
        if action == "list":
            return answers.list_events(calendars, draft, request.search_words(context.message), max_results)
        if action == "free":
            return answers.list_free_time(calendars, draft, settings.hours, max_results)
        plan = _plan_change(calendars, request, draft)
        plan.check(context.approved)
        entry = calendars.apply(plan)
        has_new_time = plan.after is not None and draft.changes_time
        verb = "Already created" if calendars.was_created else _CHANGE_VERBS[action]
        return answers.report_change(verb, calendars, entry, conflicts=has_new_time)


def _plan_change(calendars: UserCalendars, request: CalendarRequest, draft: EventDraft) -> Plan:
    """Plan the change that a call requests."""
    if request.action == "create":
        if not draft.title or not draft.title.strip() or draft.start is None:
            raise Refused("a new event needs a title and a start", "give title and start")
        return calendars.create(draft)
    if not request.event_id:
        raise Refused(f"no event to {request.action} was given", "list the events, then give event_id")
    when = request.occurrence_start(calendars.now)
    if request.action == "delete":
        return calendars.remove(request.event_id, when, request.scope)
    if draft == EventDraft():
        fields = "title, start, end, duration_minutes, location, description or repeat"
        raise Refused("the call changes nothing", f"give {fields}")
    return calendars.change(request.event_id, when, request.scope, draft)


def _find_root(settings: CalendarSettings) -> Path:
    import platformdirs

    return Path(settings.folder).expanduser() if settings.folder else platformdirs.user_data_path("brain") / "calendars"


@contextmanager
def _open_calendars(
    context: Context, settings: CalendarSettings, now: datetime | None, request: CalendarRequest
) -> Iterator[UserCalendars]:
    """Open the calendars of the signed-in user."""
    user = context.user
    if user is None:
        raise Refused("the calendar needs a signed-in user")
    try:
        zone = ZoneInfo(context.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zone = ZoneInfo("UTC")

    def seconds_left() -> float:
        return context.seconds_left - _RESERVED_SECONDS

    mails = frozenset(mail.strip().casefold() for mail in settings.mails.split(",") if mail.strip())
    with ExitStack() as stack:
        store: CalendarStore
        if not settings.caldav_url:
            root = _find_root(settings)
            if settings.folder and not root.exists():  # a new one would hide the events of another machine
                log.warning("calendar: BRAIN_SPECIALIST_CALENDAR_FOLDER: there is no folder %s", root)
                raise Refused("this server does not have the folder of the calendars", ASK_OPERATOR)
            store = FolderStore(root / encode_name(user), seconds_left)
        elif user == settings.caldav_for:
            store = CalDavStore(settings.caldav_url, settings.caldav_user, settings.caldav_password, seconds_left)
            stack.callback(store.close)
        else:
            reason = "the calendar account on this server belongs to another user"
            raise Refused(reason, "tell the user that no calendar is set up for them")
        clock = (now or datetime.now(UTC)).astimezone(zone)
        opened = UserCalendars(
            store, user, context.conversation_id, clock, request.calendar, settings.default, mails, seconds_left
        )
        if context.key:  # a retry of a background task may make other calls
            opened.new_uid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{context.key} {request}"))
        yield opened
