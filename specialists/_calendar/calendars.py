"""Interface of a calendar store. Two modules implement it: `folder` and `caldav`."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from brain import Refused
from specialists._calendar.expand import Window
from specialists._calendar.ics_read import File

ID_LENGTH = 8
CONFLICT_REASON = "the event was changed meanwhile: list it again, then ask again if it is still right"


class VersionConflict(Exception):
    """Somebody else wrote to the file since it was read."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """A calendar; `id` is what its place knows it by, `name` what people call it."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Resource:
    """One file of a calendar as it was read; `version` changes with its content."""

    calendar: Calendar
    name: str
    version: str
    file: File

    def id(self, uid: str) -> str:
        """What a model calls an event of this file."""
        own = file_id(self.calendar, self.name)
        return own if len(self.file.series) == 1 else f"{own}.{_short_hash(uid)[:4]}"

    def repeats(self, uid: str) -> bool:
        """Whether an event of this file is a series, or what differs in one."""
        events = self.file.series[uid]
        return len(events) > 1 or events[0].repeats or events[0].recurrence_id is not None


class CalendarStore(Protocol):
    """Calendars of one user. All methods block, and raise `Refused` when they fail.

    Attributes:
        place: unique name of the store.
        unread: files that could not be read so far, with the reason, for people.
    """

    place: str
    unread: list[str]

    def calendars(self) -> list[Calendar]:
        """All calendars, by name."""

    def make(self, name: str) -> Calendar:
        """A new calendar, for a user who has none."""

    def files(self, calendar: Calendar, window: Window) -> Iterator[Resource]:
        """The files that may hold events of the window."""

    def find(self, calendar: Calendar, event_id: str) -> Iterator[Resource]:
        """The files that may hold the event with this id or UID."""

    def name_of(self, calendar: Calendar, uid: str) -> str:
        """What a new file is called, for a UID of ours."""

    def write(self, calendar: Calendar, name: str, data: bytes, version: str | None) -> str:
        """Replaces a file of this version, or makes one when there is none; returns its new version.

        Raises:
            Changed: when it is of another version, or is there already.
        """

    def remove(self, calendar: Calendar, name: str, version: str) -> None:
        """Removes a file of this version.

        Raises:
            Changed: when it is of another version, or gone.
        """


def file_id(calendar: Calendar, name: str) -> str:
    """The id of a file: short, stable, and none of a stranger's words."""
    return _short_hash(f"{calendar.id}\n{name}")


def _short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()[:ID_LENGTH]


def is_event_id(event_id: str) -> bool:
    """Whether a text can be an id of ours."""
    return re.fullmatch(r"[0-9a-f]{8}(\.[0-9a-f]{4})?", event_id) is not None


def sort_calendars(calendars: list[Calendar]) -> list[Calendar]:
    """Calendars by name; those that have one name in common are told apart."""
    names = [calendar.name.casefold() for calendar in calendars]
    distinct = [
        c if names.count(c.name.casefold()) == 1 else Calendar(c.id, f"{c.name} {_short_hash(c.id)[:4]}")
        for c in calendars
    ]
    return sorted(distinct, key=lambda calendar: calendar.name.casefold())


def calendars_named(calendars: list[Calendar], name: str | None) -> list[Calendar]:
    """The calendars of this name, or whose name ends in it behind a slash; or all of them.

    Raises:
        Refused: when none is called so, naming those that there are.
    """
    if not name or not name.strip():
        return calendars
    lowered = name.strip().casefold()
    found = [calendar for calendar in calendars if calendar.name.casefold() == lowered]
    found = found or [calendar for calendar in calendars if calendar.name.casefold().rpartition("/")[2] == lowered]
    if not found:
        raise Refused(f"no calendar is called {name[:40]!r}; {describe_names(calendars)}")
    return found


def describe_names(calendars: list[Calendar]) -> str:
    """Names the calendars."""
    names = [" ".join(calendar.name.split())[:40] for calendar in calendars]
    listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"there are: {listed}" if names else "there is none yet"
