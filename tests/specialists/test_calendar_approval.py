"""Approval of changes by `calendar`: previews, whole turns, and untrusted events."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from brain_servers import settings
from calendars import CASES, CHANGED, NOW, Calendars, ics

from brain import Refused, Registry, Result, Thinker
from brain.events import ApprovalRequired, SpecialistError, SpecialistResult
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


# Whole turns


class Turns:
    """Runs turns of the local user with a scripted model, each in a new process of Brain."""

    def __init__(self, folder: Path) -> None:
        self.calendars = Calendars(folder / "calendars", user="local")
        self.conversation = "c1"
        self._script = folder / "script.jsonl"
        self._store = f"sqlite:{folder / 'brain.db'}"

    def run(
        self, *passes: str, approve: bool = False, meanwhile: Callable[[], object] = lambda: None
    ) -> list[tuple[str, str | None]]:
        """Return the approvals, results and errors of a turn, with their codes."""
        self._script.write_text("\n".join(json.dumps([text]) for text in passes))
        folder = str(self.calendars.folder)
        values = {"SPECIALIST_CALENDAR_FOLDER": folder, "SPECIALIST_CALENDAR_MAILS": "ada@example.org"}
        registry = Registry(settings(**values))
        registry.add(calendar)
        events: list[tuple[str, str | None]] = []

        def on_approval(event: ApprovalRequired) -> bool:
            events.append(("approval", event.text))
            meanwhile()
            return approve

        def on_result(event: SpecialistResult | SpecialistError) -> None:
            events.append(("error", event.code) if isinstance(event, SpecialistError) else ("result", None))

        async def main() -> None:
            model, zone = f"script:{self._script}", "Europe/Berlin"
            async with Thinker(registry, model=model, store=self._store, time_zone=zone) as thinker:
                session = thinker.create_session(self.conversation, on_approval=on_approval, on_result=on_result)
                await session.think("Please.")

        asyncio.run(main())
        return events


@pytest.fixture
def turns(tmp_path: Path) -> Turns:
    return Turns(tmp_path)


def call(**params: str) -> str:
    return f"SPECIALIST_REQUEST[calendar:{json.dumps(params)}]"


DELETE = call(action="delete", event_id="lunch")
CREATE = call(action="create", title="Pay Eve", start="2026-03-24T10:00")
LIST = call(start="2026-03-23")


def test_a_deletion_is_approved_or_declined(turns: Turns) -> None:
    turns.calendars.put("lunch.ics", LUNCH)
    (name, text), declined = turns.run(DELETE, "No.")
    assert (name, declined) == ("approval", ("error", "declined"))
    assert str(text).endswith('2026-03-23 Mon 12:00–13:00 "Lunch"')
    assert len(turns.calendars.files()) == 1
    assert turns.run(DELETE, "Done.", approve=True) == [("approval", text), ("result", None)]
    assert turns.calendars.files() == []


@pytest.mark.parametrize("is_same_turn", [True, False])
def test_after_an_invitation_writing_needs_approval(turns: Turns, is_same_turn: bool) -> None:
    turns.calendars.put("lunch.ics", INVITATION)
    if not is_same_turn:
        turns.run(LIST, "Lunch with Eve.")
    *_, (name, _), declined = turns.run(*[LIST] * is_same_turn, CREATE, "I did not.")
    assert (name, declined) == ("approval", ("error", "declined"))
    assert turns.run(LIST, "Lunch.") == [("result", None)]
    turns.conversation = "c2"
    assert turns.run(CREATE, "Done.") == [("result", None)]


@pytest.mark.parametrize("other", [LUNCH.replace("Lunch", "Wedding"), f"{LUNCH}\nDESCRIPTION:With the boss", ""])
def test_a_change_before_the_approval_is_kept(turns: Turns, other: str) -> None:
    path = turns.calendars.put("lunch.ics", LUNCH)
    _, refused = turns.run(DELETE, "No.", approve=True, meanwhile=lambda: path.write_text(ics(other)))
    assert refused == ("error", "refused")
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
    assert [*empty.folder.iterdir()] == []
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


@pytest.mark.parametrize("params", [{"event_id": "gone"}, {}, {"event_id": "standup"}])
def test_impossible_changes_have_no_preview(calendars: Calendars, params: dict[str, str]) -> None:
    with pytest.raises(Refused):
        previewed(calendars, action="delete", **params)


def test_a_slow_server_has_no_preview(calendars: Calendars) -> None:
    slow = replace(calendars.context(), deadline=0.0)
    assert preview({"action": "delete", "event_id": "gone"}, context=slow, settings=calendars.settings) is None
