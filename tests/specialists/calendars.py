"""A user's calendars in a folder, as these tests fill, ask and look at them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from specialist_calls import context, outcome

from brain import Context, Result
from brain.plugins.executor import Answer, Failure, Outcome
from specialists.calendar import CalendarSettings, calendar

NOW = datetime(2026, 3, 20, 10, 30, tzinfo=ZoneInfo("Europe/Berlin"))
"""A Friday, nine days before the clocks change."""


def ics(*events: str, head: str = "") -> str:
    """A calendar file of these events, given by their lines."""
    inner = "".join(f"BEGIN:VEVENT\nDTSTAMP:20260101T000000Z\n{event.strip()}\nEND:VEVENT\n" for event in events)
    return f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//test//EN\n{head}{inner}END:VCALENDAR\n"


@dataclass
class Calendars:
    """Calls `calendar` as one user with a folder."""

    folder: Path
    user: str = "ada"
    zone: str = "Europe/Berlin"
    options: dict[str, Any] = field(default_factory=dict)

    def put(self, name: str, text: str, calendar: str = "home") -> Path:
        """A file as another program would leave it."""
        path = self.folder / self.user / calendar / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.replace("\n", "\r\n").encode())
        return path

    def context(self, conversation: str = "c1") -> Context:
        made = context(settings=self.settings, user=self.user, time_zone=self.zone)
        return Context(**{**{n: getattr(made, n) for n in Context.__slots__}, "conversation_id": conversation})

    @property
    def settings(self) -> CalendarSettings:
        return CalendarSettings(folder=str(self.folder), **self.options)

    def call(self, conversation: str = "c1", **params: Any) -> Outcome:
        """As a turn calls it, on its own clock."""
        return outcome(calendar, params, self.context(conversation))

    def text(self, conversation: str = "c1", **params: Any) -> str:
        found = self.call(conversation, **params)
        assert isinstance(found, Answer), found
        return found.text

    def refusal(self, conversation: str = "c1", **params: Any) -> str:
        found = self.call(conversation, **params)
        assert isinstance(found, Failure), found
        assert found.code == "refused", found
        assert len(found.reason) <= 400
        assert "\n" not in found.reason
        return found.reason

    def at(self, now: datetime = NOW, **params: Any) -> str:
        """As a program calls it, at a time of our own."""
        return calendar(**params, context=self.context(), settings=self.settings, now=now).text

    def result(self, **params: Any) -> Result:
        return calendar(**params, context=self.context(), settings=self.settings, now=NOW)

    def data(self, **params: Any) -> Any:
        return self.result(**params).data

    def times(self, start: str, end: str) -> list[tuple[str, str, str]]:
        """Start, end and title of what is listed."""
        events: Sequence[dict[str, str]] = self.data(start=start, end=end, max_results=100)["events"]
        return [(event["start"], event["end"], event["title"]) for event in events]

    def files(self, calendar: str = "*") -> list[Path]:
        return sorted((self.folder / self.user).glob(f"{calendar}/*.ics"))

    def only_file(self) -> str:
        (path,) = self.files()
        return path.read_bytes().decode().replace("\r\n", "\n")


def id_in(text: str) -> str:
    """The id of the first event in a result."""
    found = re.search(r"\(id ([0-9a-f]{8}(?:\.[0-9a-f]{4})?)", text)
    assert found, text
    return found[1]


def starts(times: Sequence[tuple[str, str, str]]) -> list[str]:
    return [start for start, _, _ in times]
