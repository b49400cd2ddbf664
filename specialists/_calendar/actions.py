"""The actions of one call: list, create, change and remove events of one user."""

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from brain import Refused
from specialists._calendar.calendars import (
    CONFLICT_REASON,
    Calendar,
    CalendarStore,
    Resource,
    VersionConflict,
    list_names,
    select_calendars,
)
from specialists._calendar.draft import EventDraft, build_event_file
from specialists._calendar.expand import Expander, Window
from specialists._calendar.ics_edit import Edit
from specialists._calendar.ics_read import parse_file
from specialists._calendar.listing import Entry, one_line
from specialists._calendar.occurrences import SeriesOccurrences
from specialists._calendar.plan import Plan
from specialists._calendar.zones import Moment, localize

MAX_OCCURRENCES = 5_000
CONFLICT_DAYS = timedelta(days=60)
_MAX_SHOWN_VERSIONS = 20_000
_DEFAULT_CALENDAR_NAME = "personal"

_shown_versions: OrderedDict[tuple[str, ...], str] = OrderedDict()
"""The version of a file that a conversation last saw, by store, user, conversation, calendar and file."""
_lock = threading.Lock()


@dataclass(slots=True)
class UserCalendars:
    """One user's calendars during one call.

    Attributes:
        now: time on the user's clocks.
        calendar_name: calendar that the call names; None for all.
        default: calendar for new events if there are several.
        mails: the user's own mail addresses.
        seconds_left: returns the time left for reading, in seconds.
        notes: what was left out, for the reader.
        has_left_out: whether `notes` names events.
        has_several: whether the user has several calendars.
    """

    store: CalendarStore
    user: str
    conversation: str
    now: datetime
    calendar_name: str | None = None
    default: str = ""
    mails: frozenset[str] = frozenset()
    seconds_left: Callable[[], float] = lambda: 1.0
    notes: list[str] = field(default_factory=list)
    has_left_out: bool = False
    has_several: bool = False

    @property
    def zone(self) -> ZoneInfo:
        """The user's time zone."""
        assert isinstance(self.now.tzinfo, ZoneInfo)
        return self.now.tzinfo

    def calendars(self) -> list[Calendar]:
        """Return the calendar that the call names, or all of them."""
        found = self.store.calendars()
        self.has_several = len(found) > 1
        return select_calendars(found, self.calendar_name)

    # Reading

    def list_entries(self, window: Window) -> list[Entry]:
        """Return what happens in a window, in order. A note counts cancelled events."""
        found: list[Entry] = []
        expander = Expander(window, self.seconds_left)
        for resource in self._files(window):
            occurrences = islice(expander.file_occurrences(resource.file), MAX_OCCURRENCES - len(found) + 1)
            found += [Entry(resource, uid, one, self.zone) for uid, one in occurrences]
            if len(found) > MAX_OCCURRENCES:
                self.notes.append(f"Only {MAX_OCCURRENCES} were looked at: ask for a shorter time, or one calendar.")
                found.pop()
                break
        active = [entry for entry in found if not entry.occurrence.event.cancelled]
        if len(active) < len(found):
            self.notes.append(f"{len(found) - len(active)} cancelled left out.")
        self.has_left_out = self.has_left_out or bool(expander.left_out)
        for label, problems in (("Left out", expander.left_out), ("Not read", self.store.unread)):
            if problems:
                more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
                self.notes.append(f"{label}: {'; '.join(problems[:3])}{more}.")
        return sorted(active, key=lambda entry: entry.order)

    def _files(self, window: Window) -> Iterator[Resource]:
        """Yield the files of all calendars; a calendar that cannot be read is passed over if there are others."""
        calendars = self.calendars()
        failed = 0
        for calendar in calendars:
            try:
                yield from self.store.files(calendar, window)
            except Refused as refusal:
                failed += 1
                if failed == len(calendars):
                    raise
                self.store.unread.append(f"the calendar {calendar.name}: {refusal.reason}")

    def filter_busy(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return those that take up the user's time."""
        own = self.mails | {self.user.casefold()}
        return [
            entry
            for entry in entries
            if not entry.occurrence.event.transparent
            and not any(mail in own or mail.partition("@")[0] in own for mail in entry.occurrence.event.declined_by)
        ]

    def find(self, event_id: str) -> tuple[Resource, str]:
        """Return the file and the UID of an event.

        Raises:
            Refused: if none or several have that id.
        """
        event_id = event_id.strip().removeprefix("id ")
        found = [
            (resource, uid)
            for calendar in self.calendars()
            for resource in self.store.find(calendar, event_id)
            for uid in resource.file.series
            if event_id in (uid, resource.id(uid))
        ]
        if len(found) != 1:
            count = "several events have" if found else "no event has"
            raise Refused(f"{count} the id {event_id[:60]!r}; list the events and take the id from there")
        return found[0]

    def find_start(self, event_id: str, occurrence_start: Moment | None) -> datetime:
        """Return the start of an event, or of the named occurrence, on the user's clocks."""
        resource, uid = self.find(event_id)
        series = self._series(resource, uid)
        is_named = occurrence_start is not None and resource.repeats(uid)
        occurrence = series.starting_at(occurrence_start) if occurrence_start and is_named else series.first()
        return localize(occurrence.start, self.zone)

    def find_next(self, resource: Resource, uid: str, window: Window) -> Entry:
        """Return the first occurrence of an event in a window, else its first of all."""
        return Entry(resource, uid, self._series(resource, uid).next(window), self.zone)

    def find_conflicts(self, entry: Entry) -> list[Entry]:
        """Return what else takes up the time of an event, in all calendars; of a series, in its first weeks."""
        if not self.filter_busy([entry]):
            return []
        start, end = entry.span
        once = not entry.repeats or entry.occurrence.event.recurrence_id is not None
        window = Window(start, end if once else start + CONFLICT_DAYS, self.zone)
        own = [entry.occurrence] if once else Expander(window).series_occurrences(entry.series)
        spans = [tuple(map(datetime.timestamp, replace(entry, occurrence=one).span)) for one in own]
        everywhere = replace(self, calendar_name=None, notes=[])
        others = [other for other in self.filter_busy(everywhere.list_entries(window)) if other.uid != entry.uid]

        def overlaps(other: Entry) -> bool:
            first, last = map(datetime.timestamp, other.span)
            return any(first < end and start < last for start, end in spans)

        return [other for other in others if overlaps(other)]

    def has_foreign_events(self, entries: Sequence[Entry]) -> bool:
        """Return whether others wrote any of these, or may have written what was left out."""
        return self.has_left_out or any(entry.occurrence.event.organizer not in ("", *self.mails) for entry in entries)

    # Changing

    def create(self, draft: EventDraft) -> Plan:
        """Plan a new event; a user without a calendar gets one."""
        if not self.store.calendars():
            calendar = Calendar("", one_line(self.calendar_name or "", 60) or _DEFAULT_CALENDAR_NAME)
        else:
            found = self.calendars()
            if len(found) > 1 and self.default:
                found = select_calendars(found, self.default)
            if len(found) > 1:
                raise Refused(f"which calendar? {list_names(found)}; ask again with calendar")
            calendar = found[0]
        uid = str(uuid.uuid4())
        file = Resource(calendar, "", "", parse_file(build_event_file(uid, draft, self.zone, self.now)))
        return Plan(None, self._first_entry(file, uid), file, is_whole_event=True)

    def change(self, event_id: str, occurrence_start: Moment | None, scope: str | None, draft: EventDraft) -> Plan:
        """Plan a change to an event, one occurrence, or a series."""
        resource, uid = self._find_unchanged(event_id)
        edit = Edit(resource.file, uid, self.zone, self.now)
        if not resource.repeats(uid):
            file = _changed_resource(resource, edit.change_event(draft))
            return Plan(self._first_entry(resource, uid), self._first_entry(file, uid), file, is_whole_event=True)
        occurrence = self._series(resource, uid).resolve(occurrence_start, scope, draft)
        before = Entry(resource, uid, occurrence, self.zone)
        if scope == "series":
            file = _changed_resource(resource, edit.change_series(occurrence, draft))
            after = self._first_entry(file, uid, near=draft.start or occurrence_start)
            return Plan(before, after, file, is_whole_event=True)
        if draft.repeat:
            raise Refused("one occurrence has no repeat rule of its own; use scope=series")
        file = _changed_resource(resource, edit.change_occurrence(occurrence, draft))
        changed = self._series(file, uid).changed_occurrence(occurrence.original) or occurrence
        return Plan(before, Entry(file, uid, changed, self.zone), file, is_whole_event=False)

    def remove(self, event_id: str, occurrence_start: Moment | None, scope: str | None) -> Plan:
        """Plan the removal of an event, one occurrence, or a series."""
        resource, uid = self._find_unchanged(event_id)
        edit = Edit(resource.file, uid, self.zone, self.now)
        is_whole_event = not resource.repeats(uid) or scope == "series"
        if is_whole_event:
            before, data = self._first_entry(resource, uid), edit.remove_event()
        else:
            occurrence = self._series(resource, uid).resolve(occurrence_start, scope, EventDraft())
            before, data = Entry(resource, uid, occurrence, self.zone), edit.remove_occurrence(occurrence)
        return Plan(before, None, None if data is None else _changed_resource(resource, data), is_whole_event)

    def apply(self, plan: Plan) -> Entry:
        """Make a change; return the event as it is then, or as it was before its removal."""
        try:
            if plan.before is None:
                assert plan.after is not None
                file = plan.after.resource
                calendar = file.calendar if file.calendar.id else self.store.create_calendar(file.calendar.name)
                file = replace(file, calendar=calendar, name=self.store.choose_file_name(calendar, plan.after.uid))
                return replace(plan.after, resource=self._write(file, None))
            old = plan.before.resource
            if plan.file is None:
                self.store.remove(old.calendar, old.name, old.version)
                return plan.before
            written = self._write(plan.file, old.version)
        except VersionConflict:
            raise Refused(CONFLICT_REASON) from None
        return replace(plan.after, resource=written) if plan.after else plan.before

    def _write(self, file: Resource, version: str | None) -> Resource:
        written = replace(file, version=self.store.write(file.calendar, file.name, file.file.data, version))
        self._remember(written)
        return written

    def _find_unchanged(self, event_id: str) -> tuple[Resource, str]:
        """Return an event of which this conversation was shown the present version, or none."""
        resource, uid = self.find(event_id)
        seen = _shown_versions.get(self._key(resource))
        self._remember(resource)
        if seen not in (None, resource.version):
            raise Refused(CONFLICT_REASON)
        return resource, uid

    def remember_shown(self, entries: Sequence[Entry]) -> None:
        """Remember the versions that the conversation was shown."""
        for entry in entries:
            self._remember(entry.resource)

    def _remember(self, resource: Resource) -> None:
        key = self._key(resource)
        with _lock:
            _shown_versions.pop(key, None)
            if resource.version:  # some servers do not return the version of what was written
                _shown_versions[key] = resource.version
            while len(_shown_versions) > _MAX_SHOWN_VERSIONS:
                _shown_versions.popitem(last=False)

    def _key(self, resource: Resource) -> tuple[str, ...]:
        return self.store.place, self.user, self.conversation, resource.calendar.id, resource.name

    def _series(self, resource: Resource, uid: str) -> SeriesOccurrences:
        return SeriesOccurrences(resource.file.series[uid], self.zone)

    def _first_entry(self, resource: Resource, uid: str, near: Moment | None = None) -> Entry:
        return Entry(resource, uid, self._series(resource, uid).first(near), self.zone)


def _changed_resource(resource: Resource, data: bytes) -> Resource:
    """Return a file as it will be. It is read before it is written, so that no unreadable file replaces it."""
    return Resource(resource.calendar, resource.name, "", parse_file(data))
