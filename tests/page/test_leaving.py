"""Who leaves a conversation leaves nothing running for it."""

import time
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from brain.messages import Exchange
from page.chat import Chat
from page.counting import says
from page.stage import Stage, request

pytestmark = pytest.mark.chromium

CLOCKS = """() => {
    const { setTimeout, setInterval } = window;
    window.clocks = new Map();
    window.setTimeout = (act, ms, ...rest) => {
        const clock = setTimeout(() => {
            clocks.delete(clock);
            act(...rest);
        }, ms);
        clocks.set(clock, ms);
        return clock;
    };
    window.setInterval = (act, ms) => {
        const clock = setInterval(act, ms);
        clocks.set(clock, ms);
        return clock;
    };
    for (const clear of ["clearTimeout", "clearInterval"]) {
        const before = window[clear];
        window[clear] = (clock) => {
            clocks.delete(clock);
            before(clock);
        };
    }
}"""
"""Counts those that run, by their milliseconds, from now on."""
LIST = {5_000, 8_000}
"""Of the list of conversations, which looks for new ones, whatever is open."""


def running(chat: Chat) -> set[int]:
    """The clocks of what is open."""
    return set(chat.page.evaluate("[...clocks.values()]")) - LIST


def wait_until(condition: Callable[[], bool]) -> None:
    """Looks again and again, from outside: the page's policy forbids to have it looked at inside."""
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline


def test_who_leaves_leaves_no_clock_running(chat: Chat, stage: Stage) -> None:
    chat.page.evaluate(CLOCKS)
    chat.ask()
    stage.model.says(request("wiki", title="Bern"), " x")
    expect(chat.call("wiki")).to_contain_text("page 2 of 4")
    wait_until(lambda: 100 in running(chat))  # of the card
    chat.begin_anew()
    expect(chat.answers).to_have_count(0)
    wait_until(lambda: running(chat) == set())


def test_who_leaves_while_it_is_asked_how_far_an_answer_is_asks_no_more(chat: Chat, stage: Stage) -> None:
    chat.ask("count")
    says(stage, "one")
    stage.model.ends()
    chat.is_idle()
    store = stage.brain.engine.store
    (heading,) = stage.brain.on_loop(store.conversations("local"))
    question = Exchange("(read)", said="and on", question_id="q2")
    stage.brain.on_loop(store.begin("local", heading.id, question, ()))
    chat.page.route("**/v1/conversations/*?limit=1", lambda route: None)
    chat.reload()
    chat.page.evaluate(CLOCKS)
    with chat.page.expect_request("**/v1/conversations/*?limit=1"):
        expect(chat.answer).to_contain_text("Brain is still writing this. It appears here when it is finished.")
    chat.begin_anew()
    expect(chat.answers).to_have_count(0)
    wait_until(lambda: running(chat) == set())
