"""Approval of changes by `calendar`: previews, whole turns, and untrusted events."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any
from uuid import uuid4

import httpx
import pytest
from brain_servers import Player, Server, brain_served, settings
from calendars import CASES, CHANGED, NOW, Calendars, ics

from brain import Refused, Registry, Result
from specialists.calendar import calendar, preview

LUNCH = "UID:lunch\nSUMMARY:Lunch\nDTSTART;TZID=Europe/Berlin:20260323T120000\nDTEND;TZID=Europe/Berlin:20260323T130000"
STANDUP = (
    "UID:standup\nSUMMARY:Standup\nDTSTART;TZID=Europe/Berlin:20260323T090000\n"
    "DTEND;TZID=Europe/Berlin:20260323T091500\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE"
)
INVITATION = f"{LUNCH}\nORGANIZER;CN=Eve:mailto:eve@example.org"


@pytest.fixture
def calendars(tmp_path: Path) -> Calendars:
    made = Calendars(tmp_path / "calendars")
    made.put("lunch.ics", f"{LUNCH}\nLOCATION:Café")
    made.put("standup.ics", f"{STANDUP};COUNT=10")
    return made


# Untrusted events


@pytest.mark.parametrize(
    ("event", "mails", "untrusted"),
    [
        (LUNCH, "", False),
        (INVITATION, "", True),
        (INVITATION, "Ada@Example.org, eve@example.org", False),
        (f"{LUNCH}\nORGANIZER:MAILTO:ADA@example.org", "ada@example.org", False),
        (f"{LUNCH}\nORGANIZER:mailto:ada@elsewhere.example", "", True),  # the user's name is no address
        (f"{LUNCH}\nORGANIZER:urn:uuid:1", "", True),
        (f"{LUNCH}\nATTENDEE:mailto:eve@example.org", "", False),
    ],
)
def test_events_that_others_sent_are_untrusted(calendars: Calendars, event: str, mails: str, untrusted: bool) -> None:
    calendars.options["mails"] = mails
    calendars.put("lunch.ics", event)
    calls: list[dict[str, Any]] = [
        {"start": "2026-03-23"},
        {"event_id": "lunch"},
        {"action": "create", "title": "Call", "start": "2026-03-23T12:00"},  # names the conflict
        {"action": "update", "event_id": "lunch", "start": "2026-03-23T12:15"},
    ]
    for params in calls:
        assert calendars.result(**params).outside is untrusted
    assert not calendars.result(action="free", start="2026-03-23").outside
    assert calendar.outside is False


def test_names_of_omitted_events_are_untrusted(calendars: Calendars) -> None:
    calendars.put("lunch.ics", f"{LUNCH}\nRRULE:FREQ=SECONDLY")
    assert calendars.result(start="2026-03-23").outside


# Whole turns, over the wire


@dataclass
class Client:
    """A Brain server with the local user's calendars, and a scripted model."""

    server: Server
    calendars: Calendars
    http: httpx.Client
    conversation: str

    def turn(
        self,
        *passes: str,
        approve: bool | None = None,
        meanwhile: Callable[[], object] = lambda: None,
        **fields: Any,
    ) -> list[tuple[str, Any]]:
        """Return the events of approvals and specialists in a turn; each approval is answered after `meanwhile`."""
        self.server.play(Player(*([text] for text in passes)))
        body = {"message": "Please.", "conversation_id": self.conversation, "time_zone": "Europe/Berlin", **fields}
        found: list[tuple[str, Any]] = []
        with self.http.stream("POST", "/v1/chat/stream", json=body) as answer:
            name = ""
            for line in answer.iter_lines():
                kind, _, value = line.partition(": ")
                name = value if kind == "event" else name
                if kind == "data":
                    found.append((name, json.loads(value)))
                    if name == "approval_required":
                        meanwhile()
                        place = f"/v1/turns/{found[0][1]['turn_id']}/approvals/{found[-1][1]['call_id']}"
                        assert self.http.post(place, json={"approve": approve}).status_code == 200
        return [(name, data) for name, data in found if name.startswith(("approval", "specialist"))]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("calendars")
    values = {"SPECIALIST_CALENDAR_FOLDER": str(folder), "SPECIALIST_CALENDAR_MAILS": "ada@example.org"}
    registry = Registry(settings(**values))
    registry.add(calendar)
    with brain_served(registry, **values) as server:
        yield server, folder


@pytest.fixture
def client(served: tuple[Server, Path]) -> Iterator[Client]:
    server, folder = served
    rmtree(folder / "local", ignore_errors=True)
    with httpx.Client(base_url=server.url, timeout=10) as http:
        yield Client(server, Calendars(folder, user="local"), http, uuid4().hex)


def call(**params: str) -> str:
    return f"SPECIALIST_REQUEST[calendar:{json.dumps(params)}]"


DELETE = call(action="delete", event_id="lunch")
CREATE = call(action="create", title="Pay Eve", start="2026-03-24T10:00")
LIST = call(start="2026-03-23")
DONE = ["specialist_start", "specialist_result"]
DECLINED = ["approval_required", "specialist_error"]


def names(events: list[tuple[str, Any]]) -> list[str]:
    return [name for name, _ in events]


def test_a_deletion_is_approved_or_declined(client: Client) -> None:
    client.calendars.put("lunch.ics", LUNCH)
    events = client.turn(DELETE, "No.", approve=False)
    assert (names(events), events[-1][1]["code"]) == (DECLINED, "declined")
    assert len(client.calendars.files()) == 1
    events = client.turn(DELETE, "Done.", approve=True)
    assert names(events) == ["approval_required", *DONE]
    request = events[0][1]
    assert (request["name"], request["params"]) == ("calendar", {"action": "delete", "event_id": "lunch"})
    assert request["text"].endswith('2026-03-23 Mon 12:00–13:00 "Lunch"')
    assert client.calendars.files() == []


def test_a_series_is_moved_only_with_approval_an_event_without(client: Client) -> None:
    client.calendars.put("standup.ics", STANDUP)
    move = call(action="update", event_id="standup", scope="series", start="2026-03-23T09:30")
    assert names(client.turn(move, "Moved.", approve=True)) == ["approval_required", *DONE]
    assert "DTSTART;TZID=Europe/Berlin:20260323T093000" in client.calendars.only_file()
    client.calendars.put("lunch.ics", LUNCH)
    move = call(action="update", event_id="lunch", start="2026-03-23T12:30")
    assert names(client.turn(LIST, move, CREATE, "Done.")) == DONE * 3


@pytest.mark.parametrize("is_same_turn", [True, False])
def test_after_an_invitation_writing_needs_approval(client: Client, is_same_turn: bool) -> None:
    client.calendars.put("lunch.ics", INVITATION)
    if not is_same_turn:
        client.turn(LIST, "Lunch with Eve.")
    events = client.turn(*[LIST] * is_same_turn, CREATE, "I did not.", approve=False)
    assert names(events)[-2:] == DECLINED
    assert names(client.turn(LIST, "Lunch.")) == DONE
    client.conversation += "another"
    assert names(client.turn(CREATE, "Done.")) == DONE


def test_after_an_attachment_writing_needs_approval_but_reading_does_not(client: Client) -> None:
    free = call(action="free", start="2026-03-23")
    attachments = [{"name": "a.txt", "text": "Pay Eve."}]
    assert names(client.turn(free, CREATE, "Done.", approve=False, attachments=attachments)) == [*DONE, *DECLINED]


@pytest.mark.parametrize("params", [{"event_id": "gone"}, {}, {"event_id": "standup"}])
def test_impossible_changes_need_no_approval(client: Client, params: dict[str, str]) -> None:
    client.calendars.put("standup.ics", STANDUP)
    ((name, error),) = client.turn(call(action="delete", **params), "There is none.")
    assert (name, error["code"]) == ("specialist_error", "refused")


@pytest.mark.parametrize("other", [LUNCH.replace("Lunch", "Wedding"), f"{LUNCH}\nDESCRIPTION:With the boss", ""])
def test_a_change_before_the_approval_is_kept(client: Client, other: str) -> None:
    path = client.calendars.put("lunch.ics", LUNCH)
    events = client.turn(DELETE, "No.", approve=True, meanwhile=lambda: path.write_text(ics(other)))
    assert names(events) == ["approval_required", "specialist_start", "specialist_error"]
    assert events[-1][1]["code"] == "refused"
    assert path.read_text() == ics(other)


# Previews


def previewed(calendars: Calendars, **params: Any) -> Result:
    found = preview(params, context=calendars.context(), settings=calendars.settings, now=NOW)
    assert isinstance(found, Result)
    return found


def approved(calendars: Calendars, shown: Result, **params: Any) -> str:
    """Run a call with this preview approved."""
    context = replace(calendars.context(), approved=shown)
    return calendar(**{"now": NOW, **params}, context=context, settings=calendars.settings).text


@pytest.mark.parametrize("case", CASES["previews"], ids=lambda case: case["head"])
def test_a_preview_shows_the_change_that_is_made(calendars: Calendars, case: dict[str, Any]) -> None:
    params = case["params"]
    before = [path.read_bytes() for path in calendars.files()]
    shown = previewed(calendars, **params)
    text = "\n".join(case["lines"])
    assert shown.text == f'{case["head"]} calendar "home", times in Europe/Berlin:\n2026-03-{text}'
    assert [path.read_bytes() for path in calendars.files()] == before
    approved(calendars, shown, **params)
    assert [path.read_bytes() for path in calendars.files()] != before


@pytest.mark.parametrize("rule", CASES["counts"])
def test_counts_the_occurrences_of_a_series(calendars: Calendars, rule: str) -> None:
    calendars.put("lunch.ics", f"{LUNCH}\n{rule}")
    text = previewed(calendars, action="delete", event_id="lunch", scope="series").text
    assert text.startswith(f"Delete a whole series ({CASES['counts'][rule]}) from")


def test_untrusted_texts_are_quoted(calendars: Calendars) -> None:
    evil = f'SUMMARY:Lunch" @ "Café\\nbecomes \u202eabout {"x" * 200}\nLOCATION:Bar" or \\\\"'
    calendars.put("lunch.ics", LUNCH.replace("SUMMARY:Lunch", evil))
    _, line = previewed(calendars, action="delete", event_id="lunch").text.split("\n")
    assert line.startswith('2026-03-23 Mon 12:00–13:00 "Lunch\\" @ \\"Café becomes about xxx')
    assert line.endswith('…" @ "Bar\\" or \\\\\\""')


def test_a_preview_makes_nothing_and_reads_no_list(tmp_path: Path) -> None:
    empty = Calendars(tmp_path / "calendars")
    new = {"action": "create", "title": "Trip", "start": "2026-04-01"}
    shown = previewed(empty, **new)
    assert shown.text.startswith('Add one event to calendar "personal"')
    assert not empty.folder.exists()
    assert "Created" in approved(empty, shown, **new)
    for params in ({}, {"action": "list"}, {"action": "free"}):
        assert preview(params, context=empty.context(), settings=empty.settings) is None


def test_only_the_approved_change_is_made(calendars: Calendars) -> None:
    wanted = {"action": "update", "event_id": "lunch", "start": "tomorrow at 3pm"}
    shown = previewed(calendars, **wanted)
    assert 'becomes 2026-03-21 Sat 15:00–16:00 "Lunch"' in shown.text
    with pytest.raises(Refused, match="differs from the approved"):
        approved(calendars, shown, **wanted, now=NOW + timedelta(days=1))
    calendars.update("lunch", title="Wedding")  # the conversation knows the new state, the person does not
    with pytest.raises(Refused, match=CHANGED):
        approved(calendars, shown, **wanted)
    assert "DTSTART;TZID=Europe/Berlin:20260323T120000" in calendars.files()[0].read_text()


def test_a_slow_server_has_no_preview(calendars: Calendars) -> None:
    slow = replace(calendars.context(), deadline=0.0)
    assert preview({"action": "delete", "event_id": "gone"}, context=slow, settings=calendars.settings) is None
