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
    calendars_named,
    describe_names,
)
from specialists._calendar.draft import EventDraft, build_event_file
from specialists._calendar.expand import Expander, Occurrence, Window, local_difference, main_of
from specialists._calendar.ics_edit import Edit
from specialists._calendar.ics_read import Event, parse_file
from specialists._calendar.listing import Entry, iso_minutes, one_line
from specialists._calendar.plan import Plan
from specialists._calendar.times import Moment, at, day_of

SEARCH_MARGIN = timedelta(days=40)
"""Search for the occurrence nearest to a time up to this far before and after it."""


@dataclass(frozen=True, slots=True)
class SeriesOccurrences:
    """Finds single occurrences of an event in the user's time zone.

    A model names an occurrence by its start, or by the day to which it was moved.
    """

    events: Sequence[Event]
    zone: ZoneInfo

    def resolve(self, occurrence_start: Moment | None, scope: str | None, draft: EventDraft) -> Occurrence:
        """Return the occurrence that a call names; for a whole series the one nearest to the new start."""
        if scope is None:
            raise Refused(
                "the event repeats: ask the user which is meant, then use scope=this with occurrence=its start, "
                "or scope=series"
            )
        if occurrence_start is None and scope == "this":
            raise Refused("give occurrence, the start of the one that is meant, as the list shows it")
        if occurrence_start is not None:
            found = self.starting_at(occurrence_start)
            return (
                found
                if scope == "this" or self._is_same_time(found.start, occurrence_start)
                else _at_original_time(found)
            )
        main = main_of(self.events)
        first = Occurrence(main, main.start, main.end, main.start) if main else None
        if draft.start is not None:
            near = [_at_original_time(one) for one in self._occurrences_near(draft.start)]
            first = min(near, key=lambda one: self._days_apart(one.start, draft.start), default=first)
        if first is None:
            raise Refused("the series itself is not in this calendar, only changes to it; use scope=this")
        return first

    def starting_at(self, occurrence_start: Moment) -> Occurrence:
        """The occurrence that begins then, or began before it was moved.

        Raises:
            Refused: when there is none.
        """
        near = [*self._changed_occurrences(), *self._occurrences_near(occurrence_start)]
        for one in near:
            if self._is_same_time(one.original, occurrence_start) or self._is_same_time(one.start, occurrence_start):
                return one
        if near:
            nearest = min(near, key=lambda one: self._seconds_apart(one.start, occurrence_start))
            known = f"the nearest is {iso_minutes(nearest.start, self.zone)}"
        else:
            known = "list the events to see when it happens"
        raise Refused(f"the event has no occurrence at {iso_minutes(occurrence_start, self.zone)}; {known}")

    def first(self, near: Moment | None = None) -> Occurrence:
        """The first occurrence, or the first from a day on."""
        event = main_of(self.events) or self.events[0]
        first = Occurrence(event, event.start, event.end, event.recurrence_id)
        if near is None:
            return first
        window = Window(at(day_of(near), self.zone), at(near, self.zone) + SEARCH_MARGIN, self.zone)
        return min(Expander(window).series_occurrences(self.events), key=self._timestamp, default=first)

    def next(self, window: Window) -> Occurrence:
        """The first occurrence in a window, else the first of all."""
        return min(Expander(window).series_occurrences(self.events), key=self._timestamp, default=self.first())

    def changed_occurrence(self, original: Moment | None) -> Occurrence | None:
        """The changed occurrence that began then before it was moved."""
        return next(
            (one for one in self._changed_occurrences() if original and self._is_same_time(one.original, original)),
            None,
        )

    def _changed_occurrences(self) -> list[Occurrence]:
        """The occurrences that differ, wherever they were moved to."""
        return [
            Occurrence(e, e.start, e.end, e.recurrence_id)
            for e in self.events
            if e.recurrence_id and not e.this_and_future
        ]

    def _occurrences_near(self, moment: Moment) -> list[Occurrence]:
        middle = at(moment, self.zone)
        return list(
            Expander(Window(middle - SEARCH_MARGIN, middle + SEARCH_MARGIN, self.zone)).series_occurrences(self.events)
        )

    def _timestamp(self, one: Occurrence) -> float:
        return at(one.start, self.zone).timestamp()

    def _is_same_time(self, moment: Moment | None, expected: Moment) -> bool:
        if moment is None:
            return False
        if not isinstance(expected, datetime):
            return at(moment, self.zone).date() == expected
        return isinstance(moment, datetime) and at(moment, self.zone).timestamp() == at(expected, self.zone).timestamp()

    def _seconds_apart(self, one: Moment, other: Moment | None) -> float:
        assert other is not None
        return abs(at(one, self.zone).timestamp() - at(other, self.zone).timestamp())

    def _days_apart(self, one: Moment, other: Moment | None) -> tuple[int, float]:
        """Those of the same day are the nearest."""
        assert other is not None
        days = abs((at(one, self.zone).date() - at(other, self.zone).date()).days)
        return days, self._seconds_apart(one, other)


def _at_original_time(occurrence: Occurrence) -> Occurrence:
    """An occurrence that was moved alone, where its series has it."""
    original, event = occurrence.original, occurrence.event
    if original is None or event.recurrence_id is None or event.this_and_future:
        return occurrence
    return replace(occurrence, start=original, end=original + local_difference(occurrence.end, occurrence.start))


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
        now: on the user's clocks.
        named: whose calendar is meant, None for all.
        default: where new events go when there are several.
        mails: the user's own mail addresses.
        seconds_left: how long there is to follow the rules of series.
        notes: what was left out, for the reader.
        left_out: whether events are named there.
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
        return calendars_named(found, self.calendar_name)

    def entries(self, window: Window) -> list[Entry]:
        """What happens in a window, in order; cancelled ones are counted in a note only."""
        found: list[Entry] = []
        expander = Expander(window, self.seconds_left)
        for resource in self._files(window):
            remaining = MAX_OCCURRENCES - len(found)
            occurrences = islice(expander.file_occurrences(resource.file), remaining + 1)
            found += [Entry(resource, uid, one, self.zone) for uid, one in occurrences]
            if len(found) > MAX_OCCURRENCES:
                self.notes.append(f"Only {MAX_OCCURRENCES} were looked at: ask for a shorter time, or one calendar.")
                found.pop()
                break
        active = [entry for entry in found if not entry.occurrence.event.cancelled]
        if len(active) < len(found):
            self.notes.append(f"{len(found) - len(active)} cancelled left out.")
        self._add_notes(expander)
        return sorted(active, key=lambda entry: entry.order)

    def _files(self, window: Window) -> Iterator[Resource]:
        """The files of all calendars that are meant; one that cannot be read is passed over when there are others."""
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

    def _add_notes(self, expander: Expander) -> None:
        self.has_left_out = self.has_left_out or bool(expander.left_out)
        for label, problems in (("Left out", expander.left_out), ("Not read", self.store.unread)):
            if problems:
                more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
                self.notes.append(f"{label}: {'; '.join(problems[:3])}{more}.")

    def busy(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those that take up the user's time."""
        return [e for e in entries if not e.occurrence.event.transparent and not self._is_declined(e.occurrence.event)]

    def _is_declined(self, event: Event) -> bool:
        own = self.mails | {self.user.casefold()}
        return any(mail in own or mail.partition("@")[0] in own for mail in event.declined_by)

    def create(self, draft: EventDraft) -> Plan:
        """A new event; for who has no calendar, in a new one."""
        calendar = self._calendar_for_new()
        uid = str(uuid.uuid4())
        file = Resource(calendar, "", "", parse_file(build_event_file(uid, draft, self.zone, self.now)))
        return Plan(None, self._first_entry(file, uid), file, is_whole_event=True)

    def _calendar_for_new(self) -> Calendar:
        if not self.store.calendars():
            return Calendar("", one_line(self.calendar_name or "", 60) or _DEFAULT_CALENDAR_NAME)
        found = self.calendars()
        if len(found) > 1 and self.default:
            found = calendars_named(found, self.default)
        if len(found) > 1:
            raise Refused(f"which calendar? {describe_names(found)}; ask again with calendar")
        return found[0]

    def find(self, event_id: str) -> tuple[Resource, str]:
        """The file and the UID of an event.

        Raises:
            Refused: when there is none with that id, or several.
        """
        event_id = event_id.strip().removeprefix("id ")
        found = [
            (r, uid)
            for c in self.calendars()
            for r in self.store.find(c, event_id)
            for uid in _matching_uids(r, event_id)
        ]
        if not found:
            raise Refused(f"no event has the id {event_id[:60]!r}; list the events and take the id from there")
        if len(found) > 1:
            raise Refused(f"several events have the id {event_id[:60]!r}; list the events and take the id from there")
        return found[0]

    def start_of(self, event_id: str, occurrence_start: Moment | None) -> datetime:
        """When an event begins on the user's clocks, or the occurrence that is meant."""
        resource, uid = self.find(event_id)
        series = self._series(resource, uid)
        occurrence = (
            series.starting_at(occurrence_start) if occurrence_start and resource.repeats(uid) else series.first()
        )
        return at(occurrence.start, self.zone)

    def next_of(self, resource: Resource, uid: str, window: Window) -> Entry:
        """An event as it happens next in a window, else as it happens first."""
        return Entry(resource, uid, self._series(resource, uid).next(window), self.zone)

    def change(self, event_id: str, occurrence_start: Moment | None, scope: str | None, draft: EventDraft) -> Plan:
        """A change to an event, one occurrence, or a series."""
        resource, uid = self._find_unchanged(event_id)
        edit = Edit(resource.file, uid, self.zone, self.now)
        if not resource.repeats(uid):
            file = _parsed_resource(resource, edit.change_event(draft))
            return Plan(self._first_entry(resource, uid), self._first_entry(file, uid), file, is_whole_event=True)
        occurrence = self._series(resource, uid).resolve(occurrence_start, scope, draft)
        before = Entry(resource, uid, occurrence, self.zone)
        if scope == "series":
            file = _parsed_resource(resource, edit.change_series(occurrence, draft))
            return Plan(
                before, self._first_entry(file, uid, near=draft.start or occurrence_start), file, is_whole_event=True
            )
        if draft.repeat:
            raise Refused("one occurrence has no repeat rule of its own; use scope=series")
        file = _parsed_resource(resource, edit.change_occurrence(occurrence, draft))
        again = self._series(file, uid).changed_occurrence(occurrence.original)
        return Plan(before, Entry(file, uid, again or occurrence, self.zone), file, is_whole_event=False)

    def remove(self, event_id: str, occurrence_start: Moment | None, scope: str | None) -> Plan:
        """The removal of an event, one occurrence, or a series."""
        resource, uid = self._find_unchanged(event_id)
        edit = Edit(resource.file, uid, self.zone, self.now)
        whole = not resource.repeats(uid) or scope == "series"
        if whole:
            before, data = self._first_entry(resource, uid), edit.remove_event()
        else:
            occurrence = self._series(resource, uid).resolve(occurrence_start, scope, EventDraft())
            before, data = Entry(resource, uid, occurrence, self.zone), edit.remove_occurrence(occurrence)
        return Plan(before, None, None if data is None else _parsed_resource(resource, data), whole)

    def carry_out(self, plan: Plan) -> Entry:
        """Makes a change; the event as it is then, or what it was that is removed."""
        if plan.before is None:
            return self._write_new(plan)
        old = plan.before.resource
        if plan.file is None:
            self._call_store(lambda: self.store.remove(old.calendar, old.name, old.version))
            return plan.before
        written = self._write(plan.file, old.version)
        return replace(plan.after, resource=written) if plan.after else plan.before

    def _write_new(self, plan: Plan) -> Entry:
        assert plan.after is not None
        file, uid = plan.after.resource, plan.after.uid
        calendar = file.calendar if file.calendar.id else self.store.make(file.calendar.name)
        name = self.store.name_of(calendar, uid)
        return replace(plan.after, resource=self._write(replace(file, calendar=calendar, name=name), None))

    def _find_unchanged(self, event_id: str) -> tuple[Resource, str]:
        """An event that this conversation has not seen in another state."""
        resource, uid = self.find(event_id)
        seen = _shown_versions.get(self._key(resource))
        self._remember(resource)
        if seen not in (None, resource.version):
            raise Refused(CONFLICT_REASON)
        return resource, uid

    def _write(self, file: Resource, version: str | None) -> Resource:
        """Writes a file over one of this version, or a new one."""
        data = file.file.data
        written = replace(
            file, version=self._call_store(lambda: self.store.write(file.calendar, file.name, data, version))
        )
        self._remember(written)
        return written

    def _call_store(self, write: Callable[[], str | None]) -> str:
        try:
            return write() or ""
        except VersionConflict:
            raise Refused(CONFLICT_REASON) from None

    def _series(self, resource: Resource, uid: str) -> SeriesOccurrences:
        return SeriesOccurrences(resource.file.series[uid], self.zone)

    def _first_entry(self, resource: Resource, uid: str, near: Moment | None = None) -> Entry:
        """An event as it happens first, or first from a day on."""
        return Entry(resource, uid, self._series(resource, uid).first(near), self.zone)

    def conflicts(self, entry: Entry) -> list[Entry]:
        """What else takes up the time of an event, of one that repeats in its first weeks."""
        if not self.busy([entry]):
            return []
        start, end = entry.span
        once = not entry.repeats or entry.occurrence.event.recurrence_id is not None
        window = Window(start, end if once else start + CONFLICT_DAYS, self.zone)
        own_occurrences = (
            [entry.occurrence] if once else Expander(window).series_occurrences(entry.resource.file.series[entry.uid])
        )
        spans = [replace(entry, occurrence=one).span for one in own_occurrences]
        everywhere = replace(self, calendar_name=None, notes=[])
        others = [e for e in self.busy(everywhere.entries(window)) if e.uid != entry.uid]
        return [other for other in others if any(_overlap(other.span, span) for span in spans)]

    def has_foreign_events(self, entries: Sequence[Entry]) -> bool:
        """Whether others wrote any of these, or may have written what was left out."""
        return self.has_left_out or any(entry.occurrence.event.organizer not in ("", *self.mails) for entry in entries)

    def remember_shown(self, entries: Sequence[Entry]) -> None:
        """Remembers in which state the conversation was shown these."""
        for entry in entries:
            self._remember(entry.resource)

    def _key(self, resource: Resource) -> tuple[str, ...]:
        return self.store.place, self.user, self.conversation, resource.calendar.id, resource.name

    def _remember(self, resource: Resource) -> None:
        with _lock:
            _shown_versions[self._key(resource)] = resource.version
            _shown_versions.move_to_end(self._key(resource))
            if not resource.version:  # a server that does not say at once what became of it
                del _shown_versions[self._key(resource)]
            while len(_shown_versions) > _MAX_SHOWN_VERSIONS:
                _shown_versions.popitem(last=False)


def _parsed_resource(resource: Resource, data: bytes) -> Resource:
    """A file as it will be; read before it is written: what we could not read must not replace what was there."""
    return Resource(resource.calendar, resource.name, "", parse_file(data))


def _matching_uids(resource: Resource, event_id: str) -> Iterator[str]:
    """The UIDs in a file that an id stands for: ours, or a UID itself."""
    for uid in resource.file.series:
        if event_id in (uid, resource.id(uid)):
            yield uid


def _overlap(one: tuple[datetime, datetime], other: tuple[datetime, datetime]) -> bool:
    return one[0].timestamp() < other[1].timestamp() and other[0].timestamp() < one[1].timestamp()
