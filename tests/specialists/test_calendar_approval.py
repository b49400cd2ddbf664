"""What a person is asked before `calendar` changes something, in whole turns and in the folder itself."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from calendars import NOW, Calendars, ics, id_in
from serving import Player, Server, brain_served, settings

from brain import Refused, Registry, Result
from specialists.calendar import calendar, preview
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

    def turn(
        self,
        *passes: str,
        approve: bool | None = None,
        conversation: str = "one",
        meanwhile: Callable[[], object] = lambda: None,
        **fields: Any,
    ) -> list[tuple[str, Any]]:
        """The events of a turn in which a person says this to each call that it is asked about.

        `meanwhile` happens while they think.
        """
        self.server.play(Player(*([text] for text in passes)))
        body = {"message": "Please.", "conversation_id": conversation, "time_zone": "Europe/Berlin", **fields}
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
                        meanwhile()
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
    assert asked["text"] == (
        'Delete one event from calendar "home", times in Europe/Berlin:\n2026-03-23 Mon 12:00–13:00 "Lunch"'
    )
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


def test_after_an_attachment_writing_needs_approval_but_reading_does_not(diary: Diary) -> None:
    diary.calendars.put("lunch.ics", ics(LUNCH))
    create = 'SPECIALIST_REQUEST[calendar:{"action":"create","title":"Pay Eve","start":"2026-03-24T10:00"}]'
    free = 'SPECIALIST_REQUEST[calendar:{"action":"free","start":"2026-03-23"}]'
    events = diary.turn(free, create, "Done.", approve=False, attachments=[{"name": "a.txt", "text": "Pay Eve."}])
    assert names(events) == ["specialist_start", "specialist_result", "approval_required", "specialist_error"]


def test_which_built_in_ones_bring_strangers_words() -> None:
    found = {name: entry.specialist for name, entry in Registry().discover().items()}
    assert sorted(name for name, one in found.items() if not one.outside) == ["calendar", "docs", "medical", "memory"]
    assert web.outside
    assert sorted(name for name, one in found.items() if one.read_only is not True) == ["calendar", "memory"]


# What a person is told


@pytest.fixture
def home(tmp_path: Path) -> Calendars:
    made = Calendars(tmp_path)
    made.put("lunch.ics", ics(f"{LUNCH}\nLOCATION:Café"))
    made.put("standup.ics", ics(f"{STANDUP};COUNT=10"))
    return made


def previewed(calendars: Calendars, **params: Any) -> Result:
    found = preview(params, context=calendars.context(), settings=calendars.settings, now=NOW)
    assert isinstance(found, Result)
    return found


def approved(calendars: Calendars, shown: Result, **params: Any) -> str:
    """What comes of a call that a person was shown so."""
    context = replace(calendars.context(), approved=shown)
    return calendar(**params, context=context, settings=calendars.settings, now=NOW).text


SERIES = "a whole series (10 occurrences)"
THIS = {"event_id": "standup", "scope": "this", "occurrence": "2026-03-25"}


@pytest.mark.parametrize(
    ("params", "told"),
    [
        (
            {"action": "delete", "event_id": "lunch"},
            'Delete one event from calendar "home", times in Europe/Berlin:\n'
            '2026-03-23 Mon 12:00–13:00 "Lunch" @ "Café"',
        ),
        (
            {"action": "delete", "event_id": "standup", "scope": "series"},
            f'Delete {SERIES} from calendar "home", times in Europe/Berlin:\n2026-03-23 Mon 09:00–09:15 "Standup"',
        ),
        (
            {"action": "delete", **THIS},
            'Delete one occurrence of a series from calendar "home", times in Europe/Berlin:\n'
            '2026-03-25 Wed 09:00–09:15 "Standup"',
        ),
        (
            {"action": "update", "event_id": "standup", "scope": "series", "start": "2026-03-23T09:30"},
            f'Change {SERIES} in calendar "home", times in Europe/Berlin:\n'
            '2026-03-23 Mon 09:00–09:15 "Standup"\n'
            'becomes 2026-03-23 Mon 09:30–09:45 "Standup"',
        ),
        (
            {"action": "update", "event_id": "standup", "scope": "series", "repeat": "weekly", "description": "New"},
            f'Change {SERIES} in calendar "home", times in Europe/Berlin:\n'
            '2026-03-23 Mon 09:00–09:15 "Standup"\n'
            'becomes 2026-03-23 Mon 09:00–09:15 "Standup"\n'
            "with another description\n"
            "repeated by FREQ=WEEKLY",
        ),
        (
            {"action": "update", "event_id": "standup", "scope": "series", "repeat": "none"},
            f'Change {SERIES} in calendar "home", times in Europe/Berlin:\n'
            '2026-03-23 Mon 09:00–09:15 "Standup"\n'
            'becomes 2026-03-23 Mon 09:00–09:15 "Standup"\n'
            "which is repeated no more",
        ),
        (
            {"action": "update", **THIS, "title": "Long standup", "duration_minutes": 60},
            'Change one occurrence of a series in calendar "home", times in Europe/Berlin:\n'
            '2026-03-25 Wed 09:00–09:15 "Standup"\n'
            'becomes 2026-03-25 Wed 09:00–10:00 "Long standup"',
        ),
        (
            {"action": "create", "title": "Trip", "start": "2026-04-01", "end": "2026-04-03"},
            'Add one event to calendar "home", times in Europe/Berlin:\n2026-04-01 Wed – 2026-04-03 Fri all day "Trip"',
        ),
    ],
)
def test_a_person_is_told_what_a_change_would_do_and_that_is_done(
    home: Calendars, params: dict[str, Any], told: str
) -> None:
    before = [path.read_bytes() for path in home.files()]
    shown = previewed(home, **params)
    assert shown.text == told
    assert [path.read_bytes() for path in home.files()] == before
    approved(home, shown, **params)
    assert [path.read_bytes() for path in home.files()] != before


def test_a_first_calendar_is_not_made_before_it_is_approved(tmp_path: Path) -> None:
    empty = Calendars(tmp_path)
    wanted = {"action": "create", "title": "Trip", "start": "2026-04-01"}
    shown = previewed(empty, **wanted)
    assert shown.text.startswith(
        'Add one event to calendar "personal", times in Europe/Berlin:\n2026-04-01 Wed all day'
    )
    assert not list(tmp_path.iterdir())
    assert "Created" in approved(empty, shown, **wanted)


@pytest.mark.parametrize("params", [{}, {"action": "list"}, {"action": "free"}])
def test_nothing_is_told_of_what_only_looks(home: Calendars, params: dict[str, Any]) -> None:
    assert preview(params, context=home.context(), settings=home.settings) is None


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("RRULE:FREQ=DAILY", "without end"),
        ("RRULE:FREQ=DAILY;UNTIL=99991231", "without end"),
        ("RRULE:FREQ=WEEKLY;COUNT=1", "1 occurrence"),
        ("RRULE:FREQ=WEEKLY;COUNT=4\nEXDATE;TZID=Europe/Berlin:20260330T120000", "3 occurrences"),
        ("RRULE:FREQ=DAILY;UNTIL=20260401T100000Z", "10 occurrences"),
        ("RRULE:FREQ=DAILY;COUNT=2\nRDATE;TZID=Europe/Berlin:20300101T120000", "3 occurrences"),
        ("RDATE;TZID=Europe/Berlin:20300101T120000", "2 occurrences"),
        ("RRULE:FREQ=SECONDLY;UNTIL=20260401", "more occurrences than can be counted"),
        ("RRULE:FREQ=NEVER", "by a rule that cannot be followed"),
    ],
)
def test_how_many_occurrences_a_series_has_is_told(home: Calendars, rule: str, told: str) -> None:
    home.put("lunch.ics", ics(f"{LUNCH}\n{rule}"))
    text = previewed(home, action="delete", event_id="lunch", scope="series").text
    assert text.startswith(f'Delete a whole series ({told}) from calendar "home"')


def test_the_words_of_others_are_one_line(home: Calendars) -> None:
    home.put("lunch.ics", ics(LUNCH.replace("Lunch", f"Lunch\\nbecomes \u202eabout nothing {'x' * 200}")))
    _, line = previewed(home, action="delete", event_id="lunch").text.split("\n")
    assert line.startswith('2026-03-23 Mon 12:00–13:00 "Lunch becomes about nothing xxx')
    assert len(line) < 160


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"event_id": "gone"}, "no event has the id 'gone'; list the events and take the id from there"),
        ({}, "delete needs event_id; list the events and take it from there"),
        (
            {"event_id": "standup"},
            "the event repeats: ask the user which is meant, then use scope=this with occurrence=its start, "
            "or scope=series",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_nobody_is_asked(diary: Diary, params: dict[str, str], reason: str) -> None:
    diary.calendars.put("standup.ics", ics(STANDUP))
    marker = f"SPECIALIST_REQUEST[calendar:{json.dumps({'action': 'delete', **params})}]"
    events = diary.turn(marker, "There is none.")
    assert names(events) == ["specialist_error"]
    assert (one(events, "specialist_error")["code"], one(events, "specialist_error")["reason"]) == ("refused", reason)


def test_where_a_strangers_words_end_is_seen(home: Calendars) -> None:
    home.put(
        "lunch.ics", ics(LUNCH.replace("SUMMARY:Lunch", 'SUMMARY:Lunch" @ "Café\\nDelete\nLOCATION:Bar" or \\\\"'))
    )
    assert previewed(home, action="delete", event_id="lunch").text == (
        'Delete one event from calendar "home", times in Europe/Berlin:\n'
        '2026-03-23 Mon 12:00–13:00 "Lunch\\" @ \\"Café Delete" @ "Bar\\" or \\\\\\""'
    )


# What was shown is what is done


CHANGED = "the event was changed meanwhile: list it again, then ask again if it is still right"
DELETE = 'SPECIALIST_REQUEST[calendar:{"action":"delete","event_id":"lunch"}]'


@pytest.mark.parametrize("other", [LUNCH.replace("Lunch", "Wedding"), f"{LUNCH}\nDESCRIPTION:With the boss"])
def test_an_event_that_changed_before_it_was_approved_stays(diary: Diary, other: str) -> None:
    path = diary.calendars.put("lunch.ics", ics(LUNCH))
    events = diary.turn(DELETE, "No.", approve=True, meanwhile=lambda: diary.calendars.put("lunch.ics", ics(other)))
    assert names(events) == ["approval_required", "specialist_start", "specialist_error"]
    error = one(events, "specialist_error")
    assert (error["code"], error["reason"]) == ("refused", CHANGED)
    assert path.exists()


def test_it_stays_also_when_the_conversation_was_shown_how_it_is_now(home: Calendars) -> None:
    shown = previewed(home, action="delete", event_id="lunch")
    home.text(action="update", event_id="lunch", title="Wedding")  # by a call beside it, which remembers the new state
    with pytest.raises(Refused, match=CHANGED):
        approved(home, shown, action="delete", event_id="lunch")
    assert len(home.files()) == 2


def test_an_event_that_was_removed_meanwhile_is_refused(diary: Diary) -> None:
    path = diary.calendars.put("lunch.ics", ics(LUNCH))
    events = diary.turn(DELETE, "No.", approve=True, meanwhile=path.unlink)
    assert one(events, "specialist_error")["reason"].startswith("no event has the id 'lunch'")


def test_words_that_mean_another_day_by_now_are_refused(home: Calendars) -> None:
    wanted: dict[str, Any] = {"action": "update", "event_id": "lunch", "start": "tomorrow at 3pm"}
    shown = previewed(home, **wanted)
    assert 'becomes 2026-03-21 Sat 15:00–16:00 "Lunch"' in shown.text
    context = replace(home.context(), approved=shown)
    with pytest.raises(Refused, match="it would now do something else than what was approved"):
        calendar(**wanted, context=context, settings=home.settings, now=NOW + timedelta(days=1))
    assert "DTSTART;TZID=Europe/Berlin:20260323T120000" in home.files()[0].read_text()


def test_a_server_that_is_too_slow_to_be_asked_first_refuses_nothing(home: Calendars) -> None:
    slow = replace(home.context(), deadline=0.0)
    wanted = {"action": "delete", "event_id": "gone"}
    assert preview(wanted, context=slow, settings=home.settings) is None
    with pytest.raises(Refused):
        preview(wanted, context=home.context(), settings=home.settings)
