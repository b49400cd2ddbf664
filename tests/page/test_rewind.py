"""Another process continues a turn: what the page showed after its checkpoint goes, and the answer is complete."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from page.chat import Chat
from page.server import PageServer
from page.texts import page_text

pytestmark = pytest.mark.chromium

Log = Sequence[tuple[str, dict[str, Any]]]
WIKI = {"call_id": "c1", "name": "wiki", "params": {"title": "Bern"}}
BURN = {"call_id": "c2", "name": "burns", "params": {"title": "Emma"}}
CITED = [{"id": "1", "title": "A book"}]
LOG: Log = (
    ("turn_start", {"turn_id": "t1", "conversation_id": "c1", "model": "player", "strategy": "mono"}),
    ("thinking", {"text": "Hm. "}),
    ("thinking", {"text": "Bern?"}),
    ("token", {"text": "One "}),
    ("token", {"text": "**two**"}),
    ("specialist_start", {**WIKI, "by": "model"}),
    ("specialist_progress", {"call_id": "c1", "text": "page 2 of 4", "fraction": 0.5}),
    ("specialist_result", {**WIKI, "text": "A city.", "citations": CITED, "cached": False, "ms": 5}),
    ("token", {"text": " three"}),
    ("notice", {"code": "steered", "text": "Be brief."}),
    ("approval_required", {**BURN, "expires_at": "2999-01-01T00:00:00Z", "text": "Burns it."}),
    ("specialist_start", {**BURN, "by": "model"}),
    ("specialist_error", {**BURN, "code": "failed", "reason": "It failed.", "ms": 5, "approval": "approved"}),
    ("token", {"text": " four."}),
)
END: Log = (
    ("usage", {"prompt_tokens": 1, "completion_tokens": 7, "estimated": False}),
    ("done", {"stop_reason": "complete", "message_id": "m2", "text": "", "total_ms": 900}),
)
HEIR = 100_000_000
"""No event of the first process has a greater number."""
ROUND: dict[str, Any] = {"of": 20, "role": "actor", "model": "player"}
ROUNDS: Log = (
    ("turn_start", {"turn_id": "t1", "conversation_id": "c1", "model": "player", "strategy": "dual"}),
    ("round", {"n": 1, **ROUND, "text": "Look it up."}),
    ("thinking", {"text": "Hm."}),
    ("specialist_start", {**WIKI, "by": "model", "round": 1}),
    ("specialist_result", {**WIKI, "text": "A city.", "citations": [], "cached": False, "ms": 5, "round": 1}),
    ("round", {"n": 2, **ROUND, "text": "Write."}),
    ("token", {"text": "One two"}),
)


def text_of(events: Log) -> str:
    return "".join(data["text"] for name, data in events if name == "token")


def frames(events: Log, first: int = 1) -> str:
    lines = (f"event: {name}\ndata: {json.dumps(data)}\nid: t1.{n}\n\n" for n, (name, data) in enumerate(events, first))
    return "retry: 10\n" + "".join(lines)


def play(chat: Chat, *streams: str) -> list[str]:
    """Send a message whose events are these streams; return the URLs at which the page reads them."""
    left, urls = [*streams], []

    def stream(route: Route) -> None:
        urls.append(route.request.url)
        if left:
            route.fulfill(headers={"Content-Type": "text/event-stream"}, body=left.pop(0))

    begun = {"turn_id": "t1", "conversation_id": "c1"}
    chat.page.unroute_all()
    chat.page.route("**/v1/turns", lambda route: route.fulfill(status=201, json=begun))
    chat.page.route("**/v1/turns/t1", lambda route: route.fulfill(json={"rounds": []}))
    chat.page.route("**/v1/turns/t1/events?*", stream)
    chat.start_conversation()
    chat.ask()
    return urls


def shown(chat: Chat) -> str:
    chat.wait_until_idle()
    return re.sub(r"\s+", " ", chat.answer.inner_text())


@pytest.mark.parametrize(
    ("log", "order"),
    [(LOG, "One two.*wiki.*three.*Be brief.*burns.*four.*player"), (ROUNDS, "Look it up.*Write.*One two.*player")],
    ids=["calls", "rounds"],
)
def test_after_a_rewind_the_page_shows_what_it_would_have_shown(
    log: Log, order: str, chat: Chat, server: PageServer
) -> None:
    play(chat, frames([*log, *END]))
    expected = shown(chat)
    assert re.search(order, expected)
    for to in range(len(log) + 1):
        heir = frames([("rewind", {"to": to, "text": text_of(log[:to])}), *log[to:], *END], HEIR + 1)
        seen = len(log) if to % 3 else (to + len(log)) // 2
        play(chat, frames(log[:seen]), heir)
        assert shown(chat) == expected, (to, seen)


def test_another_rewind_and_a_text_that_differs(chat: Chat, server: PageServer) -> None:
    first = ("rewind", {"to": 4, "text": "One "})
    again = ("rewind", {"to": HEIR + 2, "text": "One 2"})
    lost: Log = [first, ("token", {"text": "2"}), ("token", {"text": " lost"})]
    play(chat, frames(LOG), frames(lost, HEIR + 1), frames([again, ("token", {"text": " 3"}), *END], 2 * HEIR + 1))
    assert "One 2 3" in shown(chat)
    expect(chat.card("wiki")).to_have_count(0)
    other = ("rewind", {"to": 8, "text": "Uno dos"})
    play(chat, frames(LOG), frames([other, ("token", {"text": " tres"}), *END], HEIR + 1))
    assert re.search(r"wiki.*Uno dos tres", shown(chat))
    assert "One" not in shown(chat)


def test_what_is_gone_is_no_longer_asked_and_an_addition_is_not_lost(chat: Chat, server: PageServer) -> None:
    play(chat, frames(LOG[:11]), frames([("rewind", {"to": 9, "text": text_of(LOG[:9])})], HEIR + 1))
    expect(chat.answer.get_by_text(page_text("addedUnread"))).to_be_visible()
    expect(chat.button("Approve")).to_have_count(0)
    expect(chat.card("wiki")).to_have_count(1)
    expect(chat.page.get_by_role("status").filter(has_text=page_text("rewound"))).to_have_count(1)


def test_a_client_that_missed_events_has_the_text_at_once_and_the_rest_at_the_end(
    chat: Chat, server: PageServer
) -> None:
    stored = {"id": "c1", "title": "hello", "running": False, "files": [], "earlier": None}
    question = {"id": "m1", "role": "user", "time": "2026-11-21T13:30:58Z", "files": [], "source": "chat"}
    answer = {"id": "m2", "role": "assistant", "time": "2026-11-21T13:30:59Z", "model": "player", "state": "complete"}
    call = {"type": "call", **WIKI, "outcome": None, "text": "A city.", "citations": [], "ms": 5}
    messages = [
        {**question, "parts": [{"type": "text", "text": "hello"}]},
        {**answer, "stop_reason": "complete", "parts": [call, {"type": "text", "text": "One two three"}]},
    ]
    rewind = ("rewind", {"to": 9, "text": "One **two** three"})
    urls = play(chat, frames(LOG[:4]), frames([rewind], HEIR + 1), frames(END, HEIR + 2))
    chat.page.route("**/v1/conversations/c1?*", lambda route: route.fulfill(json={**stored, "messages": messages}))
    expect(chat.answer).to_contain_text("One two three")
    expect(chat.card("wiki")).to_have_count(1)
    assert urls[0].endswith("?after=0")
