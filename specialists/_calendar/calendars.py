"""What a place where calendars are kept can do. There are two: a folder, and a CalDAV server."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from brain import Refused
from specialists._calendar.expand import Window
from specialists._calendar.ics_read import File

ID_LENGTH = 8
CHANGED = "the event was changed meanwhile: list it again, then ask again if it is still right"


class Changed(Exception):
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
        return own if len(self.file.series) == 1 else f"{own}.{_short(uid)[:4]}"

    def repeats(self, uid: str) -> bool:
        """Whether an event of this file is a series, or what differs in one."""
        events = self.file.series[uid]
        return len(events) > 1 or events[0].repeats or events[0].instead_of is not None


class Store(Protocol):
    """Where one user's calendars are kept. Everything here blocks, and raises `Refused` when it cannot be done.

    Attributes:
        place: what tells it from all others.
        unread: what could not be read so far, for people.
    """

    place: str
    unread: list[str]

    def calendars(self) -> list[Calendar]:
        """All calendars, by name."""

    def make(self, name: str) -> Calendar:
        """A new calendar, for a user who has none."""

    def files(self, calendar: Calendar, window: Window) -> Iterator[Resource]:
        """The files that may hold events of the window."""

    def find(self, calendar: Calendar, wanted: str) -> Iterator[Resource]:
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
    return _short(f"{calendar.id}\n{name}")


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()[:ID_LENGTH]


def looks_like(wanted: str) -> bool:
    """Whether a text can be an id of ours."""
    return re.fullmatch(r"[0-9a-f]{8}(\.[0-9a-f]{4})?", wanted) is not None


def in_order(calendars: list[Calendar]) -> list[Calendar]:
    """Calendars by name; those that have one name in common are told apart."""
    names = [calendar.name.casefold() for calendar in calendars]
    told = [
        c if names.count(c.name.casefold()) == 1 else Calendar(c.id, f"{c.name} {_short(c.id)[:4]}") for c in calendars
    ]
    return sorted(told, key=lambda calendar: calendar.name.casefold())


def chosen(calendars: list[Calendar], name: str | None) -> list[Calendar]:
    """The calendars of this name, or whose name ends in it behind a slash; or all of them.

    Raises:
        Refused: when none is called so, naming those that there are.
    """
    if not name or not name.strip():
        return calendars
    wanted = name.strip().casefold()
    found = [calendar for calendar in calendars if calendar.name.casefold() == wanted]
    found = found or [calendar for calendar in calendars if calendar.name.casefold().rpartition("/")[2] == wanted]
    if not found:
        raise Refused(f"no calendar is called {name[:40]!r}; {there_are(calendars)}")
    return found


def there_are(calendars: list[Calendar]) -> str:
    """Names the calendars."""
    names = [" ".join(calendar.name.split())[:40] for calendar in calendars]
    listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"there are: {listed}" if names else "there is none yet"
