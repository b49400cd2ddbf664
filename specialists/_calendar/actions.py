"""Which occurrence of an event is meant. A model names one by its start, or by the day it is moved to."""

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from brain import Refused
from specialists._calendar.calendars import CHANGED, Calendar, Changed, Resource, Store, chosen, there_are
from specialists._calendar.draft import Wish, new
from specialists._calendar.expand import Happening, Occurrence, Window, difference, main_of
from specialists._calendar.ics_edit import Edit
from specialists._calendar.ics_read import Event, read
from specialists._calendar.listing import Entry, iso, one_line
from specialists._calendar.plan import Plan
from specialists._calendar.times import Moment, at, day_of

AROUND = timedelta(days=40)
"""How far from a time the occurrence of a series is looked for that is meant by it."""


@dataclass(frozen=True, slots=True)
class Series:
    """An event with its changed occurrences, on the user's clocks."""

    events: Sequence[Event]
    zone: ZoneInfo

    def meant(self, when: Moment | None, scope: str | None, wish: Wish) -> Occurrence:
        """The occurrence that is meant; for a whole series the one that the new start is nearest to."""
        if scope is None:
            raise Refused(
                "the event repeats: ask the user which is meant, then use scope=this with occurrence=its start, "
                "or scope=series"
            )
        if when is None and scope == "this":
            raise Refused("give occurrence, the start of the one that is meant, as the list shows it")
        if when is not None:
            found = self.at(when)
            return found if scope == "this" or self._is(found.start, when) else _in_place(found)
        main = main_of(self.events)
        first = Occurrence(main, main.start, main.end, main.start) if main else None
        if wish.start is not None:
            near = [_in_place(one) for one in self._around(wish.start)]
            first = min(near, key=lambda one: self._days_apart(one.start, wish.start), default=first)
        if first is None:
            raise Refused("the series itself is not in this calendar, only changes to it; use scope=this")
        return first

    def at(self, when: Moment) -> Occurrence:
        """The occurrence that begins then, or began before it was moved.

        Raises:
            Refused: when there is none.
        """
        near = [*self._changes(), *self._around(when)]
        for one in near:
            if self._is(one.original, when) or self._is(one.start, when):
                return one
        if near:
            nearest = min(near, key=lambda one: self._apart(one.start, when))
            known = f"the nearest is {iso(nearest.start, self.zone)}"
        else:
            known = "list the events to see when it happens"
        raise Refused(f"the event has no occurrence at {iso(when, self.zone)}; {known}")

    def first(self, near: Moment | None = None) -> Occurrence:
        """The first occurrence, or the first from a day on."""
        event = main_of(self.events) or self.events[0]
        first = Occurrence(event, event.start, event.end, event.instead_of)
        if near is None:
            return first
        window = Window(at(day_of(near), self.zone), at(near, self.zone) + AROUND, self.zone)
        return min(Happening(window).of_one(self.events), key=self._begins, default=first)

    def next(self, window: Window) -> Occurrence:
        """The first occurrence in a window, else the first of all."""
        return min(Happening(window).of_one(self.events), key=self._begins, default=self.first())

    def of(self, original: Moment | None) -> Occurrence | None:
        """The changed occurrence that began then before it was moved."""
        return next((one for one in self._changes() if original and self._is(one.original, original)), None)

    def _changes(self) -> list[Occurrence]:
        """The occurrences that differ, wherever they were moved to."""
        return [Occurrence(e, e.start, e.end, e.instead_of) for e in self.events if e.instead_of and not e.onward]

    def _around(self, moment: Moment) -> list[Occurrence]:
        middle = at(moment, self.zone)
        return list(Happening(Window(middle - AROUND, middle + AROUND, self.zone)).of_one(self.events))

    def _begins(self, one: Occurrence) -> float:
        return at(one.start, self.zone).timestamp()

    def _is(self, moment: Moment | None, wanted: Moment) -> bool:
        if moment is None:
            return False
        if not isinstance(wanted, datetime):
            return at(moment, self.zone).date() == wanted
        return isinstance(moment, datetime) and at(moment, self.zone).timestamp() == at(wanted, self.zone).timestamp()

    def _apart(self, one: Moment, other: Moment | None) -> float:
        assert other is not None
        return abs(at(one, self.zone).timestamp() - at(other, self.zone).timestamp())

    def _days_apart(self, one: Moment, other: Moment | None) -> tuple[int, float]:
        """Those of the same day are the nearest."""
        assert other is not None
        days = abs((at(one, self.zone).date() - at(other, self.zone).date()).days)
        return days, self._apart(one, other)


def _in_place(occurrence: Occurrence) -> Occurrence:
    """An occurrence that was moved alone, where its series has it."""
    original, event = occurrence.original, occurrence.event
    if original is None or event.instead_of is None or event.onward:
        return occurrence
    return replace(occurrence, start=original, end=original + difference(occurrence.end, occurrence.start))


OCCURRENCES_MOST = 5_000
CONFLICT_DAYS = timedelta(days=60)
_SEEN_MOST = 20_000
_FIRST_CALENDAR = "personal"

_seen: OrderedDict[tuple[str, ...], str] = OrderedDict()
"""The version of a file that a conversation was shown, by place, user, conversation, calendar and file."""
_lock = threading.Lock()


@dataclass(slots=True)
class Desk:
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

    store: Store
    user: str
    conversation: str
    now: datetime
    named: str | None = None
    default: str = ""
    mails: frozenset[str] = frozenset()
    seconds_left: Callable[[], float] = lambda: 1.0
    notes: list[str] = field(default_factory=list)
    left_out: bool = False
    several: bool = False

    @property
    def zone(self) -> ZoneInfo:
        """The user's time zone."""
        assert isinstance(self.now.tzinfo, ZoneInfo)
        return self.now.tzinfo

    def calendars(self) -> list[Calendar]:
        """Those that are meant."""
        found = self.store.calendars()
        self.several = len(found) > 1
        return chosen(found, self.named)

    def entries(self, window: Window) -> list[Entry]:
        """What happens in a window, in order; cancelled ones are counted in a note only."""
        found: list[Entry] = []
        happening = Happening(window, self.seconds_left)
        for resource in self._files(window):
            room = OCCURRENCES_MOST - len(found)
            happens = islice(happening.of(resource.file), room + 1)
            found += [Entry(resource, uid, one, self.zone) for uid, one in happens]
            if len(found) > OCCURRENCES_MOST:
                self.notes.append(f"Only {OCCURRENCES_MOST} were looked at: ask for a shorter time, or one calendar.")
                found.pop()
                break
        going_on = [entry for entry in found if not entry.occurrence.event.cancelled]
        if len(going_on) < len(found):
            self.notes.append(f"{len(found) - len(going_on)} cancelled left out.")
        self._tell(happening)
        return sorted(going_on, key=lambda entry: entry.order)

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

    def _tell(self, happening: Happening) -> None:
        self.left_out = self.left_out or bool(happening.left_out)
        for label, problems in (("Left out", happening.left_out), ("Not read", self.store.unread)):
            if problems:
                more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
                self.notes.append(f"{label}: {'; '.join(problems[:3])}{more}.")

    def busy(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those that take up the user's time."""
        return [e for e in entries if not e.occurrence.event.transparent and not self._declined(e.occurrence.event)]

    def _declined(self, event: Event) -> bool:
        own = self.mails | {self.user.casefold()}
        return any(mail in own or mail.partition("@")[0] in own for mail in event.declined)

    def create(self, wish: Wish) -> Plan:
        """A new event; for who has no calendar, in a new one."""
        calendar = self._calendar_for_new()
        uid = str(uuid.uuid4())
        file = Resource(calendar, "", "", read(new(uid, wish, self.zone, self.now)))
        return Plan(None, self._first(file, uid), file, whole=True)

    def _calendar_for_new(self) -> Calendar:
        if not self.store.calendars():
            return Calendar("", one_line(self.named or "", 60) or _FIRST_CALENDAR)
        found = self.calendars()
        if len(found) > 1 and self.default:
            found = chosen(found, self.default)
        if len(found) > 1:
            raise Refused(f"which calendar? {there_are(found)}; ask again with calendar")
        return found[0]

    def find(self, wanted: str) -> tuple[Resource, str]:
        """The file and the UID of an event.

        Raises:
            Refused: when there is none with that id, or several.
        """
        wanted = wanted.strip().removeprefix("id ")
        found = [(r, uid) for c in self.calendars() for r in self.store.find(c, wanted) for uid in _meant(r, wanted)]
        if not found:
            raise Refused(f"no event has the id {wanted[:60]!r}; list the events and take the id from there")
        if len(found) > 1:
            raise Refused(f"several events have the id {wanted[:60]!r}; list the events and take the id from there")
        return found[0]

    def begins(self, wanted: str, when: Moment | None) -> datetime:
        """When an event begins on the user's clocks, or the occurrence that is meant."""
        resource, uid = self.find(wanted)
        series = self._series(resource, uid)
        meant = series.at(when) if when and resource.repeats(uid) else series.first()
        return at(meant.start, self.zone)

    def next_of(self, resource: Resource, uid: str, window: Window) -> Entry:
        """An event as it happens next in a window, else as it happens first."""
        return Entry(resource, uid, self._series(resource, uid).next(window), self.zone)

    def change(self, wanted: str, when: Moment | None, scope: str | None, wish: Wish) -> Plan:
        """A change to an event, one occurrence, or a series."""
        resource, uid = self._unchanged(wanted)
        edit = Edit(resource.file, uid, self.zone, self.now)
        if not resource.repeats(uid):
            file = _with(resource, edit.whole(wish))
            return Plan(self._first(resource, uid), self._first(file, uid), file, whole=True)
        occurrence = self._series(resource, uid).meant(when, scope, wish)
        was = Entry(resource, uid, occurrence, self.zone)
        if scope == "series":
            file = _with(resource, edit.series(occurrence, wish))
            return Plan(was, self._first(file, uid, near=wish.start or when), file, whole=True)
        if wish.repeat:
            raise Refused("one occurrence has no repeat rule of its own; use scope=series")
        file = _with(resource, edit.once(occurrence, wish))
        again = self._series(file, uid).of(occurrence.original)
        return Plan(was, Entry(file, uid, again or occurrence, self.zone), file, whole=False)

    def remove(self, wanted: str, when: Moment | None, scope: str | None) -> Plan:
        """The removal of an event, one occurrence, or a series."""
        resource, uid = self._unchanged(wanted)
        edit = Edit(resource.file, uid, self.zone, self.now)
        whole = not resource.repeats(uid) or scope == "series"
        if whole:
            was, data = self._first(resource, uid), edit.nothing()
        else:
            occurrence = self._series(resource, uid).meant(when, scope, Wish())
            was, data = Entry(resource, uid, occurrence, self.zone), edit.without(occurrence)
        return Plan(was, None, None if data is None else _with(resource, data), whole)

    def carry_out(self, plan: Plan) -> Entry:
        """Makes a change; the event as it is then, or what it was that is removed."""
        if plan.was is None:
            return self._made(plan)
        old = plan.was.resource
        if plan.file is None:
            self._changing(lambda: self.store.remove(old.calendar, old.name, old.version))
            return plan.was
        written = self._written(plan.file, old.version)
        return replace(plan.becomes, resource=written) if plan.becomes else plan.was

    def _made(self, plan: Plan) -> Entry:
        assert plan.becomes is not None
        file, uid = plan.becomes.resource, plan.becomes.uid
        calendar = file.calendar if file.calendar.id else self.store.make(file.calendar.name)
        name = self.store.name_of(calendar, uid)
        return replace(plan.becomes, resource=self._written(replace(file, calendar=calendar, name=name), None))

    def _unchanged(self, wanted: str) -> tuple[Resource, str]:
        """An event that this conversation has not seen in another state."""
        resource, uid = self.find(wanted)
        seen = _seen.get(self._key(resource))
        self._remember(resource)
        if seen not in (None, resource.version):
            raise Refused(CHANGED)
        return resource, uid

    def _written(self, file: Resource, version: str | None) -> Resource:
        """Writes a file over one of this version, or a new one."""
        data = file.file.data
        written = replace(
            file, version=self._changing(lambda: self.store.write(file.calendar, file.name, data, version))
        )
        self._remember(written)
        return written

    def _changing(self, write: Callable[[], str | None]) -> str:
        try:
            return write() or ""
        except Changed:
            raise Refused(CHANGED) from None

    def _series(self, resource: Resource, uid: str) -> Series:
        return Series(resource.file.series[uid], self.zone)

    def _first(self, resource: Resource, uid: str, near: Moment | None = None) -> Entry:
        """An event as it happens first, or first from a day on."""
        return Entry(resource, uid, self._series(resource, uid).first(near), self.zone)

    def conflicts(self, entry: Entry) -> list[Entry]:
        """What else takes up the time of an event, of one that repeats in its first weeks."""
        if not self.busy([entry]):
            return []
        start, end = entry.span
        once = not entry.repeats or entry.occurrence.event.instead_of is not None
        window = Window(start, end if once else start + CONFLICT_DAYS, self.zone)
        mine = [entry.occurrence] if once else Happening(window).of_one(entry.resource.file.series[entry.uid])
        spans = [replace(entry, occurrence=one).span for one in mine]
        notes, self.notes = self.notes, []
        others = [e for e in self.busy(self.entries(window)) if e.uid != entry.uid]
        self.notes = notes
        return [other for other in others if any(_overlap(other.span, span) for span in spans)]

    def from_others(self, entries: Sequence[Entry]) -> bool:
        """Whether others wrote any of these, or may have written what was left out."""
        return self.left_out or any(entry.occurrence.event.organizer not in ("", *self.mails) for entry in entries)

    def show(self, entries: Sequence[Entry]) -> None:
        """Remembers in which state the conversation was shown these."""
        for entry in entries:
            self._remember(entry.resource)

    def _key(self, resource: Resource) -> tuple[str, ...]:
        return self.store.place, self.user, self.conversation, resource.calendar.id, resource.name

    def _remember(self, resource: Resource) -> None:
        with _lock:
            _seen[self._key(resource)] = resource.version
            _seen.move_to_end(self._key(resource))
            if not resource.version:  # a server that does not say at once what became of it
                del _seen[self._key(resource)]
            while len(_seen) > _SEEN_MOST:
                _seen.popitem(last=False)


def _with(resource: Resource, data: bytes) -> Resource:
    """A file as it will be; read before it is written: what we could not read must not replace what was there."""
    return Resource(resource.calendar, resource.name, "", read(data))


def _meant(resource: Resource, wanted: str) -> Iterator[str]:
    """The UIDs in a file that an id stands for: ours, or a UID itself."""
    for uid in resource.file.series:
        if wanted in (uid, resource.id(uid)):
            yield uid


def _overlap(one: tuple[datetime, datetime], other: tuple[datetime, datetime]) -> bool:
    return one[0].timestamp() < other[1].timestamp() and other[0].timestamp() < one[1].timestamp()
