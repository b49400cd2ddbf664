"""What a person is asked before `calendar` changes something, in whole turns and in the folder itself."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from calendars import Calendars, ics, id_in
from serving import Player, Server, brain_served, settings

from brain import Registry
from specialists.calendar import calendar
from specialists.web import web

LUNCH = "UID:lunch\nSUMMARY:Lunch\nDTSTART;TZID=Europe/Berlin:20260323T120000\nDTEND;TZID=Europe/Berlin:20260323T130000"
STANDUP = (
    "UID:standup\nSUMMARY:Standup\nDTSTART;TZID=Europe/Berlin:20260323T090000\n"
    "DTEND;TZID=Europe/Berlin:20260323T091500\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE"
)
SENT = f"{LUNCH}\nORGANIZER;CN=Eve:mailto:eve@example.org"


class TestWhoseWordsItShows:
    @pytest.fixture
    def calendars(self, tmp_path: Path) -> Calendars:
        return Calendars(tmp_path / "calendars")

    @pytest.mark.parametrize(
        ("event", "mails", "others"),
        [
            (LUNCH, "", False),
            (SENT, "", True),
            (SENT, "Ada@Example.org, eve@example.org", False),
            (f"{LUNCH}\nORGANIZER:MAILTO:ADA@example.org", "ada@example.org", False),
            (f"{LUNCH}\nORGANIZER:mailto:ada@elsewhere.example", "ada@example.org", True),
            (f"{LUNCH}\nORGANIZER:mailto:ada@elsewhere.example", "", True),  # the user's name is no address
            (f"{LUNCH}\nORGANIZER:urn:uuid:1", "", True),
            (f"{LUNCH}\nATTENDEE:mailto:eve@example.org", "", False),
        ],
    )
    def test_events_that_others_sent_are_from_outside(
        self, calendars: Calendars, event: str, mails: str, others: bool
    ) -> None:
        calendars.options["mails"] = mails
        calendars.put("a.ics", ics(event))
        listed = calendars.result(start="2026-03-23")
        assert listed.outside is others
        assert calendars.result(event_id=id_in(listed.text)).outside is others
        clash = {"title": "Call", "start": "2026-03-23T12:00"}
        assert calendars.result(action="create", **clash).outside is others
        moved = calendars.result(action="update", event_id=id_in(listed.text), start="2026-03-23T12:15")
        assert moved.outside is others
        assert not calendars.result(action="free", start="2026-03-23").outside
        assert calendar.outside is False

    def test_what_is_left_out_by_name_may_be_others(self, calendars: Calendars) -> None:
        calendars.put("a.ics", ics(f"{LUNCH}\nRRULE:FREQ=SECONDLY"))
        result = calendars.result(start="2026-03-23")
        assert "Lunch" in result.text.partition("Left out: ")[2]
        assert result.outside


# Whole turns, over the wire


@dataclass
class Diary:
    """A served Brain with a folder of the local user's calendar, and a model that plays."""

    server: Server
    calendars: Calendars
    client: httpx.Client

    def turn(self, *passes: str, approve: bool | None = None, conversation: str = "one") -> list[tuple[str, Any]]:
        """The events of a turn in which a person says this to each call that it is asked about."""
        self.server.play(Player(*([text] for text in passes)))
        body = {"message": "Please.", "conversation_id": conversation, "time_zone": "Europe/Berlin"}
        found: list[tuple[str, Any]] = []
        with self.client.stream("POST", "/v1/chat/stream", json=body) as answer:
            assert answer.status_code == 200
            name = ""
            for line in answer.iter_lines():
                kind, _, value = line.partition(": ")
                name = value if kind == "event" else name
                if kind == "data":
                    found.append((name, json.loads(value)))
                    if name == "approval_required":
                        self.decide(found[0][1]["turn_id"], found[-1][1], approve)
        return found

    def decide(self, turn_id: str, asked: Mapping[str, Any], approve: bool | None) -> None:
        assert approve is not None, asked
        place = f"/v1/turns/{turn_id}/approvals/{asked['call_id']}"
        assert self.client.post(place, json={"approve": approve}).status_code == 200

    def listed(self, conversation: str = "one") -> str:
        """The id of the first event, as a turn of the conversation was shown it."""
        events = self.turn('SPECIALIST_REQUEST[calendar:{"start":"2026-03-23"}]', "Done.", conversation=conversation)
        return id_in(one(events, "specialist_result")["text"])


def one(events: list[tuple[str, Any]], name: str) -> Any:
    (data,) = [data for kind, data in events if kind == name]
    return data


def names(events: list[tuple[str, Any]]) -> list[str]:
    return [name for name, _ in events if name.startswith(("approval", "specialist"))]


@pytest.fixture
def diary(tmp_path: Path) -> Iterator[Diary]:
    folder = tmp_path / "calendars"
    values = {"SPECIALIST_CALENDAR_FOLDER": str(folder), "SPECIALIST_CALENDAR_MAILS": "ada@example.org"}
    registry = Registry(settings(**values))
    registry.add(calendar)
    with brain_served(registry, **values) as server, httpx.Client(base_url=server.url, timeout=10) as client:
        yield Diary(server, Calendars(folder, user="local"), client)


def test_an_event_is_deleted_when_a_person_says_so(diary: Diary) -> None:
    diary.calendars.put("lunch.ics", ics(LUNCH))
    diary.calendars.put("standup.ics", ics(STANDUP))
    marker = 'SPECIALIST_REQUEST[calendar:{"action":"delete","event_id":"lunch"}]'
    events = diary.turn(f"I delete it. {marker}", "It is gone.", approve=True)
    assert names(events) == ["approval_required", "specialist_start", "specialist_result"]
    asked = one(events, "approval_required")
    assert (asked["name"], asked["params"]) == ("calendar", {"action": "delete", "event_id": "lunch"})
    assert one(events, "specialist_result")["text"].startswith(
        "Deleted, times in Europe/Berlin:\n- 2026-03-23 Mon 12:00"
    )
    assert [path.name for path in diary.calendars.files()] == ["standup.ics"]
    assert one(events, "done")["text"] == "I delete it. It is gone."


def test_it_stays_when_a_person_says_no(diary: Diary) -> None:
    path = diary.calendars.put("lunch.ics", ics(LUNCH))
    before = path.read_bytes()
    events = diary.turn('SPECIALIST_REQUEST[calendar:{"action":"delete","event_id":"lunch"}]', "No.", approve=False)
    assert names(events) == ["approval_required", "specialist_error"]
    assert one(events, "specialist_error")["code"] == "declined"
    assert path.read_bytes() == before


def test_a_series_is_moved_when_a_person_says_so(diary: Diary) -> None:
    diary.calendars.put("standup.ics", ics(STANDUP))
    params = '{"action":"update","event_id":"standup","scope":"series","start":"2026-03-23T09:30"}'
    events = diary.turn(f"SPECIALIST_REQUEST[calendar:{params}]", "Moved.", approve=True)
    assert names(events) == ["approval_required", "specialist_start", "specialist_result"]
    assert "DTSTART;TZID=Europe/Berlin:20260323T093000" in diary.calendars.only_file()


def test_ones_own_events_are_listed_made_and_moved_without_a_word(diary: Diary) -> None:
    diary.calendars.put("lunch.ics", ics(LUNCH))
    number = diary.listed()
    move = f'SPECIALIST_REQUEST[calendar:{{"action":"update","event_id":"{number}","start":"2026-03-23T12:30"}}]'
    make = 'SPECIALIST_REQUEST[calendar:{"action":"create","title":"Call","start":"2026-03-24T10:00"}]'
    events = diary.turn(move, make, "Done.")
    assert names(events) == ["specialist_start", "specialist_result"] * 2
    assert len(diary.calendars.files()) == 2


@pytest.mark.parametrize("again", [True, False])
def test_behind_an_invitation_even_one_event_is_asked_about(diary: Diary, again: bool) -> None:
    """In the turn that lists it, and in the next of the conversation."""
    diary.calendars.put("lunch.ics", ics(SENT))
    make = 'SPECIALIST_REQUEST[calendar:{"action":"create","title":"Pay Eve","start":"2026-03-24T10:00"}]'
    look = 'SPECIALIST_REQUEST[calendar:{"start":"2026-03-23"}]'
    if again:
        diary.turn(look, "Lunch with Eve.")
        events = diary.turn(make, "I did not.", approve=False)
    else:
        events = diary.turn(look, make, "I did not.", approve=False)
    assert names(events)[-2:] == ["approval_required", "specialist_error"]
    assert len(diary.calendars.files()) == 1
    assert names(diary.turn(look, "Lunch.", conversation="one")) == ["specialist_start", "specialist_result"]
    assert names(diary.turn(make, "Done.", conversation="two")) == ["specialist_start", "specialist_result"]


def test_behind_a_file_looking_is_free_and_writing_is_asked_about(diary: Diary) -> None:
    diary.calendars.put("lunch.ics", ics(LUNCH))
    make = 'SPECIALIST_REQUEST[calendar:{"action":"create","title":"Pay Eve","start":"2026-03-24T10:00"}]'
    free = 'SPECIALIST_REQUEST[calendar:{"action":"free","start":"2026-03-23"}]'
    diary.server.play(Player([free], [make], ["Done."]))
    body = {"message": "Please.", "attachments": [{"name": "a.txt", "text": "Pay Eve."}], "time_zone": "Europe/Berlin"}
    turn = diary.client.post("/v1/turns", json=body).json()["turn_id"]
    end = time.monotonic() + 5
    while (report := diary.client.get(f"/v1/turns/{turn}").json())["state"] != "waiting":
        assert time.monotonic() < end
    assert [(call["params"]["action"], call["outcome"], call["approval"]) for call in report["calls"]] == [
        ("free", "ok", None),
        ("create", None, "asked"),
    ]
    diary.client.post(f"/v1/turns/{turn}/cancel")


def test_which_built_in_ones_bring_strangers_words() -> None:
    found = {name: entry.specialist for name, entry in Registry().discover().items()}
    assert sorted(name for name, one in found.items() if not one.outside) == ["calendar", "docs", "medical", "memory"]
    assert web.outside
    assert sorted(name for name, one in found.items() if one.read_only is not True) == ["calendar", "memory"]
