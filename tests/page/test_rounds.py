"""Choose a strategy, and follow its rounds: folded lines above the answer."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from page.chat import Chat
from page.server import PageServer
from page.texts import LANGUAGES, page_text
from page.visitor import NEW, Visitor

pytestmark = pytest.mark.chromium

TEXTS = LANGUAGES["en"]
Events = list[tuple[str, dict[str, Any]]]
CALL = {"call_id": "c1", "name": "wiki", "params": {"title": "Bern"}, "round": 2}
ASK = {"call_id": "c2", "name": "burns", "params": {"title": "Emma"}}
START = ("turn_start", {"model": "small", "strategy": "dual"})
FIRST: Events = [
    ("round", {"n": 1, "of": 20, "role": "thinker", "model": "large", "text": "Find the bridge.\nAsk wiki."}),
    ("thinking", {"text": "Which bridge?"}),
]
SECOND: Events = [
    ("round", {"n": 2, "of": 20, "role": "actor", "model": "small", "text": "Ask wiki."}),
    ("specialist_start", {**CALL, "by": "model"}),
    ("specialist_result", {**CALL, "text": "A bridge.", "citations": [], "cached": False, "ms": 5}),
    ("specialist_error", {"call_id": "c3", "name": "wiki", "code": "forged", "reason": "invented", "ms": 0}),
    ("approval_required", {**ASK, "expires_at": "2999-01-01T00:00:00Z", "text": "Burns Emma."}),
]
THIRD: Events = [
    ("specialist_error", {**ASK, "code": "declined", "reason": "declined", "ms": 0}),
    ("notice", {"code": "steered", "text": "Be brief."}),
    ("round", {"n": 3, "of": 20, "role": "writer", "model": "small"}),
    ("token", {"text": "The **bridge**"}),
]
DONE = {"stop_reason": "deliverable", "message_id": "m2", "text": "The **bridge** is new.", "total_ms": 9}
ORDER = re.compile(
    f"{TEXTS['roles']['thinker']}.*Find the bridge.*{TEXTS['roles']['actor']}.*Ask wiki.*wiki.*"
    f"{page_text('added')}.*Be brief.*{TEXTS['roles']['writer']}.*The bridge is new",
    re.DOTALL,
)


class PlayedTurn:
    """The events of a turn, as the test adds them. The page reconnects after each part, as after a lost connection."""

    def __init__(self, chat: Chat) -> None:
        self._frames: list[str] = []
        chat.page.route("**/v1/turns/*/events*", self._reply)

    def add(self, *events: tuple[str, Any]) -> None:
        for name, data in events:
            self._frames.append(f"event: {name}\ndata: {json.dumps(data)}\nid: t.{len(self._frames) + 1}\n\n")

    def _reply(self, route: Route) -> None:
        route.fulfill(headers={"Content-Type": "text/event-stream"}, body=f"retry: 20\n\n{''.join(self._frames)}")


def open_rounds(chat: Chat) -> list[bool]:
    found: list[bool] = chat.rounds.evaluate_all("nodes => nodes.map(node => node.open)")
    return found


def test_a_round_is_open_while_it_runs_and_the_answer_reads_like_one(chat: Chat, server: PageServer) -> None:
    turn = PlayedTurn(chat)
    turn.add(START, *FIRST)
    answer = chat.ask()
    expect(chat.rounds).to_have_count(1)
    expect(answer.get_by_text("Ask wiki.")).to_be_visible()
    assert open_rounds(chat) == [True]
    chat.rounds.get_by_text(page_text("thinking")).click()
    expect(answer.get_by_text("Which bridge?")).to_be_visible()
    turn.add(*SECOND)
    for _ in range(2):
        expect(chat.button("Approve")).to_be_visible()
        expect(chat.card("wiki").last).to_contain_text(TEXTS["calls"]["forged"]["what"])
        assert open_rounds(chat) == [False, True]
        chat.reload()
    expect(chat.button("Approve")).to_be_visible()
    first = chat.rounds.first.locator("summary").first
    first.focus()
    first.press("Enter")  # what a person opens stays open
    turn.add(*THIRD)
    expect(answer.get_by_text("Be brief.")).to_be_visible()
    expect(answer.get_by_text("The bridge", exact=True)).to_be_visible()
    assert open_rounds(chat) == [True, False, False]
    turn.add(("token", {"text": " is new."}), ("done", DONE))
    expect(chat.button("Send")).to_be_visible()
    expect(answer).to_contain_text(ORDER)
    expect(answer).to_contain_text("large and small")
    expect(answer.locator(".notice")).to_have_count(0)
    assert chat.copy_answer() == "The **bridge** is new."
    server.model.end()


STORED: list[tuple[str, str]] = [
    ("deliverable", ""), ("ready", ""), ("converged", ""),
    ("round_limit", TEXTS["endings"]["round_limit"]), ("step_limit", TEXTS["endings"]["step_limit"]),
    ("cancelled", TEXTS["endings"]["cancelled"]),
]  # fmt: skip
PARTS = [
    {"type": "thinking", "text": "Which bridge?", "round": 1},
    {**CALL, "type": "call", "outcome": None, "text": "A bridge.", "citations": [], "ms": 5},
    {"type": "steered", "text": "Be brief."},
    {"type": "text", "text": "The **bridge** is new."},
]
ROUNDS = [{**data, "began_ms": 0, "ms": 1500} for name, data in (*FIRST, *SECOND, *THIRD) if name == "round"]


@pytest.mark.parametrize("visitor", [NEW], indirect=True)
def test_stored_rounds_are_folded_and_their_conversation_keeps_its_strategy(chat: Chat, visitor: Visitor) -> None:
    messages: list[dict[str, Any]] = []
    for n, (reason, _) in enumerate(STORED):
        question: dict[str, Any] = {"id": f"q{n}", "role": "user", "time": "2026-11-21T13:30:58Z", "files": []}
        messages.append({**question, "parts": [{"type": "text", "text": "hello"}]})
        state = "cancelled" if reason == "cancelled" else "complete"
        answer = {**question, "id": f"a{n}", "role": "assistant", "parts": PARTS, "model": "small", "state": state}
        messages.append({**answer, "stop_reason": reason, "strategy": "dual", "rounds": ROUNDS})
    found = {"id": "c1", "title": "hello", "messages": messages, "files": [], "running": False, "earlier": None}
    chat.page.route("**/v1/conversations/c1?*", lambda route: route.fulfill(json=found))
    expect(chat.strategy).to_have_value("mono")
    chat.page.goto(f"{chat.page.url}#/c/c1")
    expect(chat.answers).to_have_count(len(STORED))
    assert open_rounds(chat) == [False, False, False]
    for n, (_, hint) in enumerate(STORED):
        expect(chat.answers.nth(n)).to_contain_text(ORDER)
        expect(chat.answers.nth(n).locator(".round").first).to_contain_text("1.5 s")
        expect(chat.answers.nth(n).locator(".flow > .notice")).to_have_text([hint] if hint else [])
    assert chat.copy_answer() == "The **bridge** is new."
    expect(chat.strategy).to_have_value("dual")
    chat.start_conversation()
    expect(chat.strategy).to_have_value("mono")


@pytest.mark.parametrize("visitor", [NEW], indirect=True)
def test_a_round_has_a_time_and_one_announcement(chat: Chat, server: PageServer) -> None:
    chat.page.clock.install()
    chat.reload()
    turn = PlayedTurn(chat)
    turn.add(START, *FIRST, *SECOND[:2])
    chat.ask()
    expect(chat.card("wiki")).to_be_visible()
    chat.page.clock.fast_forward(2000)
    expect(chat.rounds.last).to_contain_text(re.compile(r"\d\.\d s"))
    chat.page.clock.fast_forward(500)
    second = page_text("roundRuns", n=2, role=TEXTS["roles"]["actor"], model="small")
    expect(chat.page.locator("#announcements")).to_have_text(second)  # not the earlier round, and not its calls
    server.model.end()


def test_the_strategy_is_sent_with_each_message(chat: Chat, visitor: Visitor) -> None:
    bodies: list[dict[str, Any]] = []

    def reject(route: Route) -> None:
        bodies.append(json.loads(route.request.post_data or ""))
        route.fulfill(status=400, json={"error": {"code": "bad_request", "message": "no"}})

    visitor.allow("400")
    chat.page.route("**/v1/turns", reject)
    critic = chat.page.get_by_role("checkbox", name=page_text("critic"), exact=True)
    for strategy, checks in (("mono", False), ("reason", False), ("dual", False), ("dual", True), ("step", True)):
        chat.strategy.select_option(strategy)
        if strategy != "dual":
            expect(critic).to_be_hidden()
        else:
            critic.set_checked(checks)
        expect(chat.strategy).to_have_accessible_description("" if strategy == "mono" else what(strategy))
        chat.box.fill("hello")
        chat.box.press("Enter")
        expect(chat.alert.last).not_to_be_empty()
        expect(chat.box).to_have_value("hello")
    assert [{name: body.get(name) for name in ("strategy", "critic")} for body in bodies] == [
        {"strategy": None, "critic": None},
        {"strategy": "reason", "critic": None},
        {"strategy": "dual", "critic": None},
        {"strategy": "dual", "critic": True},
        {"strategy": "step", "critic": None},
    ]


def what(strategy: str) -> str:
    sentence: str = TEXTS["strategies"][strategy]["what"]
    return sentence


@pytest.mark.parametrize("server", [{"STRATEGIES": "mono"}], indirect=True)
def test_a_single_strategy_is_no_choice(chat: Chat) -> None:
    expect(chat.model).to_be_visible()
    expect(chat.strategy).to_be_hidden()
