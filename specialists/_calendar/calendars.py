"""The interface of a calendar store, which `folder` and `caldav` implement."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from brain import Refused
from specialists._calendar.expand import Occurrence, Window
from specialists._calendar.ics_read import File, align_changes, find_main

CONFLICT = ("the event has changed in the meantime", "list it again, then call again if the change is still right")
ASK_OPERATOR = "tell the user to contact the operator of this server"


class VersionConflict(Exception):
    """Another program has changed the file since it was read."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """A calendar: `id` identifies it in its store, `name` is for people."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Resource:
    """One file of a calendar; `version` changes with its content.

    Attributes:
        others: Events that `join_files` added from other files: by their number here, the file and the number there.
    """

    calendar: Calendar
    name: str
    version: str
    file: File
    others: Mapping[int, tuple["Resource", int]] = field(default_factory=dict)

    def id(self, uid: str) -> str:
        """Return the ID of an event in this file, for models."""
        own = make_file_id(self.calendar, self.name)
        return own if len(self.file.series) == 1 else f"{own}.{_short_hash(uid)[:4]}"

    def repeats(self, uid: str) -> bool:
        """Return whether an event of this file is a series, or a changed occurrence of one."""
        events = self.file.series[uid]
        return len(events) > 1 or events[0].repeats or events[0].recurrence_id is not None

    @property
    def names(self) -> set[str]:
        """The names of this file and of those that `join_files` joined to it."""
        return {self.name, *(file.name for file, _ in self.others.values())}

    def locate(self, occurrence: Occurrence) -> tuple["Resource", Occurrence]:
        """Return the file that describes an occurrence, and the occurrence as in that file."""
        if occurrence.event.number not in self.others:
            return self, occurrence
        file, number = self.others[occurrence.event.number]
        return file, replace(occurrence, event=replace(occurrence.event, number=number))


def join_files(resources: Iterable[Resource]) -> list[Resource]:
    """Return the files of a calendar; each series has its changed occurrences, also those in files of their own."""
    files = {resource.name: resource for resource in resources}
    series = {name: {**resource.file.series} for name, resource in files.items()}
    others: dict[str, dict[int, tuple[Resource, int]]] = {name: {} for name in files}
    by_uid = defaultdict[str, list[str]](list)
    for name in files:
        for uid in series[name]:
            by_uid[uid].append(name)
    for uid, names in by_uid.items():
        mains = [name for name in names if find_main(series[name][uid])]
        if len(names) == 1 or len(mains) != 1 or uid.startswith("#"):  # an event without a UID
            continue
        main, events = mains[0], list(series[mains[0]][uid])
        for name in names:
            if name != main:
                for event in series[name].pop(uid):
                    number = -1 - len(others[main])
                    others[main][number] = files[name], event.number
                    events.append(replace(event, number=number))
        series[main][uid] = align_changes(events)
    return [
        replace(resource, file=replace(resource.file, series=series[name]), others=others[name])
        for name, resource in files.items()
    ]


class CalendarStore(Protocol):
    """Calendars of one user. All methods block, and raise `Refused` when they fail.

    Attributes:
        place: unique name of the store.
        unread: unreadable files with the reason, for people.
    """

    place: str
    unread: list[str]

    def calendars(self) -> list[Calendar]:
        """Return all calendars, sorted by name."""

    def create_calendar(self, name: str) -> Calendar:
        """Create a calendar for a user who has none."""

    def files(self, calendar: Calendar, window: Window) -> Iterator[Resource]:
        """Yield the files that may contain events of the window."""

    def find(self, calendar: Calendar, event_id: str) -> Iterator[Resource]:
        """Yield the files that may contain the event with this ID or UID."""

    def choose_file_name(self, calendar: Calendar, uid: str) -> str:
        """Return the file name for a new event."""

    def write(self, calendar: Calendar, name: str, data: bytes, version: str | None) -> str:
        """Replace a file of this version, or create it if the version is None; return the new version.

        Raises:
            VersionConflict: if the file has another version, or exists already.
        """

    def remove(self, calendar: Calendar, name: str, version: str) -> None:
        """Remove a file of this version.

        Raises:
            VersionConflict: if the file has another version, or no longer exists.
        """


def make_file_id(calendar: Calendar, name: str) -> str:
    """Return the ID of a file: short, stable, and without untrusted content."""
    return _short_hash(f"{calendar.id}\n{name}")


def _short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()[:8]


def is_event_id(event_id: str) -> bool:
    """Return whether a text has the form of `Resource.id`."""
    return re.fullmatch(r"[0-9a-f]{8}(\.[0-9a-f]{4})?", event_id) is not None


def sort_calendars(calendars: list[Calendar]) -> list[Calendar]:
    """Return calendars by name; those with the same name get a suffix."""
    names = [calendar.name.casefold() for calendar in calendars]
    distinct = [
        c if names.count(c.name.casefold()) == 1 else Calendar(c.id, f"{c.name} {_short_hash(c.id)[:4]}")
        for c in calendars
    ]
    return sorted(distinct, key=lambda calendar: calendar.name.casefold())


def select_calendars(calendars: list[Calendar], name: str | None) -> list[Calendar]:
    """Return the calendars with this name, or with this name after a slash; all if `name` is empty.

    Raises:
        Refused: if no calendar has this name.
    """
    lowered = (name or "").strip().casefold()
    if not lowered:
        return calendars
    found = [calendar for calendar in calendars if calendar.name.casefold() == lowered]
    found = found or [calendar for calendar in calendars if calendar.name.casefold().rpartition("/")[2] == lowered]
    if not calendars:
        raise Refused("there is no calendar yet", "create an event without calendar first")
    if not found:
        raise Refused(f"no calendar is called {str(name)[:40]!r}", f"use one of: {list_names(calendars)}")
    return found


def list_names(calendars: list[Calendar]) -> str:
    """Return the names of calendars, separated by commas."""
    names = [" ".join(calendar.name.split())[:40] for calendar in calendars]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
