"""A user's calendars in a folder: write files, call `calendar`, read the files."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from specialist_calls import context

from brain import Context, Refused, Result
from specialists._calendar.calendars import CONFLICT
from specialists.calendar import CalendarSettings, calendar

NOW = datetime(2026, 3, 20, 10, 30, tzinfo=ZoneInfo("Europe/Berlin"))
"""A Friday, nine days before the clocks change."""
MORNING = "DTSTART;TZID=Europe/Berlin:20260323T090000\nDTEND;TZID=Europe/Berlin:20260323T100000"
MEETING = f"UID:1\nSUMMARY:It\n{MORNING}"
STANDUP = f"UID:standup\nSUMMARY:Standup\n{MORNING}\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE"
CASES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "calendar_cases.toml").read_text("utf-8"))
CHANGED = CONFLICT[0]


def ics(*events: str, head: str = "") -> str:
    """Return a calendar file with these events, each given by its lines."""
    inner = "".join(f"BEGIN:VEVENT\nDTSTAMP:20260101T000000Z\n{event.strip()}\nEND:VEVENT\n" for event in events)
    return f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//test//EN\n{head}{inner}END:VCALENDAR\n"


@dataclass
class Calendars:
    """Calls `calendar` as one user with a folder, at `NOW`."""

    folder: Path
    user: str = "ada"
    zone: str = "Europe/Berlin"
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)

    def put(self, name: str, *events: str, calendar: str = "home", head: str = "") -> Path:
        """Write a file with these events, like another program."""
        return self.put_text(name, ics(*events, head=head), calendar)

    def put_text(self, name: str, text: str, calendar: str = "home") -> Path:
        path = self.folder / self.user / calendar / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.replace("\n", "\r\n").encode())
        return path

    def context(self, conversation: str = "c1", key: str = "") -> Context:
        made = context(settings=self.settings, user=self.user, time_zone=self.zone)
        return replace(made, conversation_id=conversation, key=key)

    @property
    def settings(self) -> CalendarSettings:
        return CalendarSettings(folder=str(self.folder), **self.options)

    def result(self, conversation: str = "c1", *, now: datetime = NOW, key: str = "", **params: Any) -> Result:
        return calendar(**params, context=self.context(conversation, key), settings=self.settings, now=now)

    def text(self, conversation: str = "c1", **params: Any) -> str:
        return self.result(conversation, **params).text

    def refusal(self, conversation: str = "c1", **params: Any) -> str:
        """Return the reason and the advice of a refused call, as a model reads them."""
        with pytest.raises(Refused) as refused:
            self.result(conversation, **params)
        text = f"{refused.value.reason}; {refused.value.advice}"
        assert len(text) <= 400
        assert "\n" not in text
        return text

    def update(self, event_id: str = "1", **params: Any) -> str:
        return self.text(action="update", event_id=event_id, **params)

    def data(self, **params: Any) -> Any:
        return self.result(**params).data

    def times(self, start: str, end: str) -> list[str]:
        """Return `start end title` of each listed event, with minutes."""
        events: Sequence[dict[str, str]] = self.data(start=start, end=end, max_results=100)["events"]
        return [f"{event['start']} {event['end']} {event['title']}".replace(":00+", "+") for event in events]

    def files(self, calendar: str = "*") -> list[Path]:
        return sorted((self.folder / self.user).glob(f"{calendar}/*.ics"))

    def only_file(self) -> str:
        (path,) = self.files()
        return path.read_bytes().decode().replace("\r\n", "\n")


def lines(text: str) -> list[str]:
    """Return the listed events of a result, without their IDs."""
    return [line[2:].split(" (id ")[0] for line in text.splitlines() if line.startswith("- ")]


def id_in(text: str) -> str:
    """Return the ID of the first event in a result."""
    found = re.search(r"\(id ([0-9a-f]{8}(?:\.[0-9a-f]{4})?)", text)
    assert found, text
    return found[1]


def check_repeated_calls(calendars: Calendars, **place: str) -> None:
    """Run calls again with the same key, as after a crash."""
    new = {"action": "create", "title": "Call", "start": "tomorrow at 3pm", **place}
    made = calendars.text(key="t-1-c1", **new)
    again = calendars.text(key="t-1-c1", now=NOW + timedelta(days=1), **new)
    assert (made.splitlines()[0], again.splitlines()[0]) == (
        "Created, times in Europe/Berlin:",
        "Already created, times in Europe/Berlin:",
    )
    assert (lines(again), id_in(again)) == (lines(made), id_in(made))
    others = [
        calendars.text(key=key, **new, **more) for key, more in (("t-1-c1", {"location": "Here"}), ("t-1-c2", {}))
    ]
    assert [text.split(",")[0] for text in others] == ["Created", "Created"]
    change = {"action": "update", "event_id": id_in(made), "start": "2026-03-22T10:00"}
    first, second = (calendars.text(key="t-1-c3", **change) for _ in range(2))
    assert lines(first) == lines(second)
    removal = {"action": "delete", "event_id": id_in(made)}
    assert calendars.text(key="t-1-c4", **removal).startswith("Deleted")
    assert "no event has the ID" in calendars.refusal(key="t-1-c4", **removal)
