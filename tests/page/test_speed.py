"""However fast text comes and however long it is, what is read stays put."""

from typing import Any

import pytest
from playing import words
from playwright.sync_api import expect

from page.chat import Chat
from page.stage import Stage

pytestmark = pytest.mark.chromium

PARTS = (
    "## A heading\n\n",
    "Some words of a paragraph with **bold**, `code` and [a link](https://example.org) in it. It has *stress*, "
    "and enough other words to fill a few lines, so that what follows would move if it were drawn too early. Then "
    "comes `more code`, a second [link](https://example.org/two), and the end of it.",
    "\n\n- one\n- two\n  - deeper\n- three\n\n",
    "```python\nfor n in range(10):\n    print(n)  # again\n```\n\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n",
    "> A quotation.\n\n1. first\n2. second\n\n",
)


def test_what_stands_does_not_jump_while_much_comes(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("Start.\n\n")
    expect(answer).to_contain_text("Start.")
    jumps = chat.jumps()
    text = "".join(PARTS) * 4
    stage.model.says(*(text[at : at + 4] for at in range(0, len(text), 4)))
    stage.model.says("\n\nThe end.")
    expect(answer).to_contain_text("The end.")
    stage.model.ends()
    chat.is_idle()
    assert sum(jumps()) < 0.02


def test_what_is_selected_and_read_stays(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("One **two** three.\n\n" + "".join(f"{word}\n\n" for word in words(60)) + "Four fi")
    expect(answer.get_by_role("paragraph").last).to_have_text("Four fi")
    chat.log.hover()
    chat.page.mouse.wheel(0, -100_000)
    first = answer.get_by_role("paragraph").first
    expect(first).to_be_in_viewport()
    place = first.bounding_box()
    select = "([from, to]) => getSelection().setBaseAndExtent(from, 0, to, to.childNodes.length)"
    ends = answer.evaluate_handle("it => [it.querySelector('p'), [...it.querySelectorAll('p')].at(-1)]")
    chat.page.evaluate(select, ends)
    selected = chat.page.evaluate("getSelection().toString()")
    assert selected.startswith("One two three.")
    for token in ("ve", " **six**", ".\n\n", "# Seven\n\n", "- eight\n", "- nine\n\n", "end"):
        stage.model.says(token)
    expect(answer).to_contain_text("end")
    stage.model.ends()
    chat.is_idle()
    now = chat.page.evaluate("getSelection().toString()")
    assert now.startswith(selected.rstrip())
    assert first.bounding_box() == place


def message(n: int) -> list[dict[str, Any]]:
    """A question and its answer, as the server keeps them."""
    time = "2026-11-21T13:30:58Z"
    question = {"id": f"q{n}", "role": "user", "time": time, "files": [], "recalled": []}
    answer = {"id": f"a{n}", "role": "assistant", "time": time, "state": "complete", "stop_reason": "complete"}
    return [
        {**question, "parts": [{"type": "text", "text": f"Question {n}?"}]},
        {**answer, "parts": [{"type": "text", "text": f"Answer {n}.\n\n" + "".join(PARTS)}], "model": "player"},
    ]


def test_200_messages_are_opened_at_once(chat: Chat, stage: Stage) -> None:
    messages = [one for n in range(100) for one in message(n)]
    found = {"id": "c1", "title": "Long", "messages": messages, "files": [], "running": False, "earlier": None}
    chat.page.route("**/v1/conversations/c1?*", lambda route: route.fulfill(json=found))
    with chat.page.expect_response("**/v1/conversations/c1?*"):
        chat.page.evaluate("location.hash = '#/c/c1'")
    expect(chat.answer).to_contain_text("Answer 99.")
    expect(chat.answers.first.get_by_role("heading")).to_have_count(1)  # the oldest is rendered last
    assert chat.log.evaluate("node => node.scrollHeight - node.scrollTop - node.clientHeight") < 4
