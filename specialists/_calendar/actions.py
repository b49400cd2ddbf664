"""List, create, change and remove the events of one user."""

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
    CONFLICT,
    Calendar,
    CalendarStore,
    Resource,
    VersionConflict,
    join_files,
    list_names,
    select_calendars,
)
from specialists._calendar.draft import EventDraft, build_event_file
from specialists._calendar.expand import Expander, Occurrence, Window
from specialists._calendar.ics_edit import Edit
from specialists._calendar.ics_read import parse_file
from specialists._calendar.listing import Entry
from specialists._calendar.occurrences import SeriesOccurrences
from specialists._calendar.plan import Plan
from specialists._calendar.zones import Moment, localize
from specialists._kit.text import one_line

MAX_OCCURRENCES = 5_000
CONFLICT_DAYS = timedelta(days=60)
_MAX_SHOWN_VERSIONS = 20_000
_DEFAULT_CALENDAR_NAME = "personal"

_shown_versions: OrderedDict[tuple[str, ...], str] = OrderedDict()
"""The file version that a conversation last saw, by store, user, conversation, calendar and file."""
_lock = threading.Lock()


@dataclass(slots=True)
class UserCalendars:
    """One user's calendars during one call.

    Attributes:
        now: current time in the user's time zone.
        calendar_name: calendar that the call names; None for all.
        default: calendar for new events if the user has several.
        mails: email addresses of the user.
        seconds_left: returns the time left for reading, in seconds.
        notes: lines about omitted data, for the result.
        has_left_out: whether `notes` contains titles of events.
        has_several: whether the user has several calendars.
        new_uid: UID of the event that the call creates; the same if the call runs again.
        was_created: whether the call created its event when it ran before.
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
    new_uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    was_created: bool = False

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
        """Return the events in a window, in order, without cancelled ones."""
        found: list[Entry] = []
        expander = Expander(window, self.seconds_left)
        for resource in self._files(window):
            occurrences = islice(expander.file_occurrences(resource.file), MAX_OCCURRENCES - len(found) + 1)
            for uid, one in occurrences:
                file, occurrence = resource.locate(one)
                found.append(Entry(file, uid, occurrence, self.zone))
            if len(found) > MAX_OCCURRENCES:
                self.notes.append(f"The limit is {MAX_OCCURRENCES:,} events: use a shorter period or one calendar.")
                found.pop()
                break
        active = [entry for entry in found if not entry.occurrence.event.cancelled]
        if len(active) < len(found):
            self.notes.append(f"Cancelled events omitted: {len(found) - len(active)}.")
        self.has_left_out = self.has_left_out or bool(expander.left_out)
        for label, problems in (("Omitted", expander.left_out), ("Not read", self.store.unread)):
            if problems:
                more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
                self.notes.append(f"{label}: {'; '.join(problems[:3])}{more}.")
        return sorted(active, key=lambda entry: entry.order)

    def _files(self, window: Window) -> Iterator[Resource]:
        """Yield the files of all calendars; skip an unreadable calendar unless all are unreadable."""
        calendars = self.calendars()
        failed = 0
        for calendar in calendars:
            try:
                yield from join_files(self.store.files(calendar, window))
            except Refused as refusal:
                failed += 1
                if failed == len(calendars):
                    raise
                self.store.unread.append(f"the calendar {calendar.name}: {refusal.reason}")

    def filter_busy(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries that block the user's time."""
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
            Refused: if no event or several have the ID.
        """
        event_id = event_id.strip().removeprefix("id ")
        found: dict[tuple[str, str, str], tuple[Resource, str]] = {}
        for calendar in self.calendars():
            for resource in self.store.find(calendar, event_id):
                for uid in resource.file.series:
                    if event_id in (uid, resource.id(uid)):
                        whole = self._whole(resource, uid)
                        found[calendar.id, whole.name, uid] = whole, uid
        if len(found) != 1:
            count = "several events have" if found else "no event has"
            raise Refused(f"{count} the ID {event_id[:60]!r}", "list the events and use an ID from the list")
        return next(iter(found.values()))

    def _whole(self, resource: Resource, uid: str) -> Resource:
        """Return the file that has the whole series of an event."""
        if not resource.repeats(uid):
            return resource
        files = [one for one in join_files(self.store.find(resource.calendar, uid)) if uid in one.file.series]
        return next((one for one in files if resource.name in one.names), resource)

    def find_start(self, event_id: str, occurrence_start: Moment | None) -> datetime:
        """Return the start of an event, or of the named occurrence, in the user's time zone."""
        resource, uid = self.find(event_id)
        series = self._series(resource, uid)
        is_named = occurrence_start is not None and resource.repeats(uid)
        occurrence = series.starting_at(occurrence_start) if occurrence_start and is_named else series.first()
        return localize(occurrence.start, self.zone)

    def find_next(self, resource: Resource, uid: str, window: Window) -> Entry:
        """Return the first occurrence of an event in a window, or else its very first."""
        return Entry(resource, uid, self._series(resource, uid).next(window), self.zone)

    def find_conflicts(self, entry: Entry) -> list[Entry]:
        """Return overlapping events in all calendars; for a series, only in its first 60 days."""
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
        """Return whether other organizers wrote any of the entries, or may have written omitted ones."""
        return self.has_left_out or any(entry.occurrence.event.organizer not in ("", *self.mails) for entry in entries)

    # Changing

    def create(self, draft: EventDraft) -> Plan:
        """Plan a new event; a user without calendars gets one."""
        if not self.store.calendars():
            calendar = Calendar("", one_line(self.calendar_name or "", 60) or _DEFAULT_CALENDAR_NAME)
        else:
            found = self.calendars()
            if len(found) > 1 and self.default:
                found = select_calendars(found, self.default)
            if len(found) > 1:
                raise Refused("there are several calendars", f"give calendar, one of: {list_names(found)}")
            calendar = found[0]
        uid = self.new_uid
        file = Resource(calendar, "", "", parse_file(build_event_file(uid, draft, self.zone, self.now)))
        return Plan(None, self._first_entry(file, uid), file, is_whole_event=True)

    def change(self, event_id: str, occurrence_start: Moment | None, scope: str | None, draft: EventDraft) -> Plan:
        """Plan a change to an event, one occurrence, or a series."""
        resource, uid = self._find_unchanged(event_id)
        if not resource.repeats(uid):
            file = _changed_resource(resource, self._edit(resource, uid).change_event(draft))
            return Plan(self._first_entry(resource, uid), self._first_entry(file, uid), file, is_whole_event=True)
        occurrence = self._series(resource, uid).resolve(occurrence_start, scope, draft)
        if scope == "series":
            _require_one_file(resource)
            file = _changed_resource(resource, self._edit(resource, uid).change_series(occurrence, draft))
            before = Entry(resource, uid, occurrence, self.zone)
            after = self._first_entry(file, uid, near=draft.start or occurrence_start)
            return Plan(before, after, file, is_whole_event=True)
        if draft.repeat:
            raise Refused("a single occurrence cannot have a repeat rule", "use scope=series")
        resource, occurrence = self._locate(resource, occurrence)
        before = Entry(resource, uid, occurrence, self.zone)
        file = _changed_resource(resource, self._edit(resource, uid).change_occurrence(occurrence, draft))
        changed = self._series(file, uid).changed_occurrence(occurrence.original) or occurrence
        return Plan(before, Entry(file, uid, changed, self.zone), file, is_whole_event=False)

    def remove(self, event_id: str, occurrence_start: Moment | None, scope: str | None) -> Plan:
        """Plan the removal of an event, one occurrence, or a series."""
        resource, uid = self._find_unchanged(event_id)
        is_whole_event = not resource.repeats(uid) or scope == "series"
        if is_whole_event:
            _require_one_file(resource)
            before, data = self._first_entry(resource, uid), self._edit(resource, uid).remove_event()
        else:
            whole = resource
            named = self._series(whole, uid).resolve(occurrence_start, scope, EventDraft())
            resource, occurrence = self._locate(whole, named)
            before, edit = Entry(resource, uid, occurrence, self.zone), self._edit(resource, uid)
            # without its own file, the occurrence would be back at its original time
            data = edit.remove_occurrence(occurrence) if resource is whole else edit.cancel_occurrence(occurrence)
        return Plan(before, None, None if data is None else _changed_resource(resource, data), is_whole_event)

    def apply(self, plan: Plan) -> Entry:
        """Write a change; return the new state of the event, or its last state if it was removed.

        A new event that exists already stays as it is.
        """
        try:
            if plan.before is None:
                assert plan.after is not None
                file = plan.after.resource
                calendar = file.calendar if file.calendar.id else self.store.create_calendar(file.calendar.name)
                file = replace(file, calendar=calendar, name=self.store.choose_file_name(calendar, plan.after.uid))
                try:
                    return replace(plan.after, resource=self._write(file, None))
                except VersionConflict:
                    for resource in self.store.find(calendar, self.new_uid):
                        if self.new_uid in resource.file.series:
                            self.was_created = True
                            return self._first_entry(resource, self.new_uid)
                    raise
            old = plan.before.resource
            if plan.file is None:
                self.store.remove(old.calendar, old.name, old.version)
                return plan.before
            written = self._write(plan.file, old.version)
        except VersionConflict:
            raise Refused(*CONFLICT) from None
        return replace(plan.after, resource=written) if plan.after else plan.before

    def _write(self, file: Resource, version: str | None) -> Resource:
        written = replace(file, version=self.store.write(file.calendar, file.name, file.file.data, version))
        self._remember(written)
        return written

    def _find_unchanged(self, event_id: str) -> tuple[Resource, str]:
        """Return an event, unless it changed since the conversation last saw it."""
        resource, uid = self.find(event_id)
        self._check_unchanged(resource)
        return resource, uid

    def _check_unchanged(self, resource: Resource) -> None:
        seen = _shown_versions.get(self._key(resource))
        self._remember(resource)
        if seen not in (None, resource.version):
            raise Refused(*CONFLICT)

    def _locate(self, resource: Resource, occurrence: Occurrence) -> tuple[Resource, Occurrence]:
        """Return the file that describes an occurrence, unless it changed since the conversation last saw it."""
        file, occurrence = resource.locate(occurrence)
        self._check_unchanged(file)
        return file, occurrence

    def _edit(self, resource: Resource, uid: str) -> Edit:
        return Edit(resource.file, uid, self.zone, self.now)

    def remember_shown(self, entries: Sequence[Entry]) -> None:
        """Remember the file versions of entries that the conversation sees."""
        for entry in entries:
            self._remember(entry.resource)

    def _remember(self, resource: Resource) -> None:
        key = self._key(resource)
        with _lock:
            _shown_versions.pop(key, None)
            if resource.version:  # some servers do not return the version of a written file
                _shown_versions[key] = resource.version
            while len(_shown_versions) > _MAX_SHOWN_VERSIONS:
                _shown_versions.popitem(last=False)

    def _key(self, resource: Resource) -> tuple[str, ...]:
        return self.store.place, self.user, self.conversation, resource.calendar.id, resource.name

    def _series(self, resource: Resource, uid: str) -> SeriesOccurrences:
        return SeriesOccurrences(resource.file.series[uid], self.zone)

    def _first_entry(self, resource: Resource, uid: str, near: Moment | None = None) -> Entry:
        return Entry(resource, uid, self._series(resource, uid).first(near), self.zone)


def _require_one_file(resource: Resource) -> None:
    if resource.others:
        reason = "other files have changed occurrences of this series, and a call changes one file"
        raise Refused(reason, "use scope=this for each occurrence, or tell the user to use the calendar app")


def _changed_resource(resource: Resource, data: bytes) -> Resource:
    """Return the changed file, parsed before it is written: an unreadable file must not replace a good one."""
    return Resource(resource.calendar, resource.name, "", parse_file(data))
