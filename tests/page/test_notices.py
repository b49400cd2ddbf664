"""What Brain says beside an answer, and decisions that come too late."""

import json
import re
from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Route, expect

from brain.errors import ModelError
from brain.messages import PromptProgress
from page.chat import Chat
from page.stage import Stage, request
from page.visitor import Visitor

pytestmark = pytest.mark.chromium


def answered(chat: Chat, stage: Stage, question: str) -> None:
    chat.ask(question)
    stage.model.says(f"An answer to {question}")
    stage.model.ends()
    chat.is_idle()
    expect(chat.answer).to_contain_text(f"An answer to {question}")


@pytest.mark.parametrize("stage", [{"WINDOW_MESSAGES": 1}], indirect=True)
def test_what_the_model_reads_no_more_is_told(chat: Chat, stage: Stage) -> None:
    for question in ("one", "two", "three"):
        answered(chat, stage, question)
    expect(chat.answers.first).not_to_contain_text("left out")
    expect(chat.answer).to_contain_text("The oldest 2 questions and answers no longer fit and were left out.")
    expect(chat.questions).to_have_count(3)  # all of it can still be read


@pytest.mark.parametrize("stage", [{"CONTEXT_SECONDS": 0.01}], indirect=True)
def test_a_conversation_that_rested_begins_anew(chat: Chat, stage: Stage) -> None:
    answered(chat, stage, "one")
    answered(chat, stage, "two")
    expect(chat.answer).to_contain_text("The conversation rested for long: the model begins anew.")


def test_what_was_put_in_stands_where_it_was_read_also_later(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("Before.\n")
    expect(answer).to_contain_text("Before.")
    chat.steer("shorter, please")
    stage.model.says("\n")
    expect(answer).to_contain_text("shorter, please")
    stage.model.says("After.")
    stage.model.ends()
    chat.is_idle()
    for _ in range(2):
        expect(chat.answer).to_contain_text("After.")
        text = chat.answer.inner_text()
        assert text.index("Before.") < text.index("shorter, please") < text.index("After.")
        expect(chat.answer).to_contain_text("You, meanwhile")
        chat.reload()


def test_what_was_put_in_is_seen_before_it_is_read(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("A sentence without")
    expect(answer).to_contain_text("A sentence without")
    chat.steer("shorter, please")
    expect(answer).to_contain_text("Brain reads it at the next pause")
    expect(answer.get_by_text("shorter, please")).to_be_visible()
    stage.model.says(" an end.\n")
    expect(answer).not_to_contain_text("Brain reads it at the next pause")
    expect(answer.get_by_text("shorter, please")).to_have_count(1)
    stage.model.says("After.")
    stage.model.ends()
    chat.is_idle()


def test_what_was_put_in_too_late_is_said_to_be_read_later(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("A sentence without")
    expect(answer).to_contain_text("A sentence without")
    chat.steer("shorter, please")
    expect(answer).to_contain_text("Brain reads it at the next pause")
    chat.stop()
    chat.is_idle()
    for _ in range(2):
        expect(chat.answer).to_contain_text("Brain reads it with your next message")
        expect(chat.answer.get_by_text("shorter, please")).to_have_count(1)
        chat.reload()


def test_what_was_put_in_comes_back_when_the_server_is_gone(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects("410", "404", "net::")
    answer = chat.ask()
    stage.model.says("A sentence without")
    expect(answer).to_contain_text("A sentence without")
    chat.steer("shorter, please")
    expect(answer).to_contain_text("Brain reads it at the next pause")
    conversation = {"id": "c1", "title": "hello", "messages": [], "files": [], "running": False, "earlier": None}
    chat.page.route("**/v1/turns/*", lambda route: route.fulfill(status=404, json={"error": {"code": "not_found"}}))
    chat.page.route("**/v1/turns/*/events*", lambda route: route.fulfill(status=410))
    chat.page.route("**/v1/conversations/*", lambda route: route.fulfill(json=conversation))
    stage.line.cut()
    stage.line.restore()
    expect(chat.box).to_have_value("shorter, please", timeout=15_000)
    expect(answer).not_to_contain_text("shorter, please")


def test_for_what_one_waits_is_said(chat: Chat, stage: Stage) -> None:
    chat.page.clock.install()
    chat.reload()
    answer = chat.ask()
    expect(chat.page).to_have_url(re.compile("#/c/"))
    for word in ("One.", "Two."):
        expect(answer).not_to_contain_text("Waiting for the model…")
        chat.page.clock.fast_forward(7000)
        expect(answer).to_contain_text("Waiting for the model…")
        stage.model.says(word)
        expect(answer).to_contain_text(word)
    stage.model.says(request("wiki", title="Bern"), " x")
    expect(chat.call("wiki")).to_contain_text("page 2 of 4")
    chat.page.clock.fast_forward(7000)
    expect(chat.call("wiki")).to_contain_text("7.")
    expect(answer).not_to_contain_text("Waiting for the model…")
    stage.library.set()
    stage.model.ends()
    chat.is_idle()
    expect(answer).not_to_contain_text("Waiting for the model…")


def test_how_far_the_model_has_read_is_shown_until_it_writes(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says(PromptProgress(500, 2000))
    expect(answer).to_contain_text("500 of 2,000 tokens")
    stage.model.says(PromptProgress(1000, 2000))
    expect(answer).to_contain_text("1,000 of 2,000 tokens")
    expect(answer).not_to_contain_text("500 of 2,000")
    stage.model.says("Hello.")
    expect(answer).to_contain_text("Hello.")
    expect(answer).not_to_contain_text("tokens")
    stage.model.ends()
    chat.is_idle()


def test_a_server_that_went_down_is_told_as_over(chat: Chat) -> None:
    error = {"code": "shutdown", "message": "The server is shutting down.", "recoverable": True}
    told = f"event: error\ndata: {json.dumps(error)}\nid: t.1\n\n"
    headers = {"Content-Type": "text/event-stream"}
    chat.page.route("**/v1/turns/*/events*", lambda route: route.fulfill(headers=headers, body=told))
    chat.ask()
    expect(chat.answer).to_contain_text("The server stopped while this was being written.")
    chat.is_idle()


def decide_no(url: str) -> None:
    httpx.post(url, json={"approve": False}, trust_env=False).raise_for_status()


def stop(url: str) -> None:
    httpx.post(f"{url.partition('/approvals')[0]}/cancel", json={}, trust_env=False).raise_for_status()


LATE: dict[str, tuple[Callable[[str], None], str, str]] = {
    "somebody else said no": (decide_no, "409", "not approved"),
    "the turn was stopped": (stop, "409", "stopped"),
}


@pytest.mark.parametrize(("first", "status", "said"), LATE.values(), ids=LATE)
def test_a_decision_that_comes_too_late_changes_nothing(
    chat: Chat, stage: Stage, visitor: Visitor, first: Callable[[str], None], status: str, said: str
) -> None:
    visitor.expects(status)
    chat.ask()
    stage.model.says(request("burns", title="Emma"), " x")
    expect(chat.button("Approve")).to_be_visible()

    def late(route: Route) -> None:
        first(route.request.url.replace(stage.url, stage.brain.url))
        route.continue_()

    chat.page.route("**/approvals/*", late)
    with chat.page.expect_response("**/approvals/*") as response:
        chat.approve("burns")
    assert response.value.status == int(status)
    expect(chat.call("burns")).to_contain_text(said)
    expect(chat.button("Approve")).to_have_count(0)
    stage.model.ends()
    chat.is_idle()
    assert stage.burnt == []


@pytest.mark.parametrize(("status", "code"), [(409, "conflict"), (410, "gone")])
def test_why_a_decision_does_not_count_is_told(
    chat: Chat, stage: Stage, visitor: Visitor, status: int, code: str
) -> None:
    visitor.expects(str(status))
    chat.ask()
    stage.model.says(request("burns", title="Emma"), " x")
    error = {"code": code, "message": "It was decided otherwise."}
    chat.page.route("**/approvals/*", lambda route: route.fulfill(status=status, json={"error": error}))
    chat.approve("burns")
    expect(chat.call("burns").get_by_role("alert")).to_have_text("It was decided otherwise.")
    chat.page.unroute("**/approvals/*")
    chat.decline("burns")
    expect(chat.call("burns")).to_contain_text("not approved")
    stage.model.ends()
    chat.is_idle()
    assert stage.burnt == []


def test_what_is_too_long_for_the_model_may_fit_in_a_new_conversation(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says(ModelError("model_context", "This was too long for the model."))
    expect(chat.answer.get_by_role("alert")).to_contain_text("This was too long for the model.")
    chat.reload()
    chat.answer.get_by_role("button", name="New conversation", exact=True).click()
    expect(chat.log).to_contain_text("What would you like to know?")
    expect(chat.box).to_be_focused()


def test_what_was_recalled_is_one_line_that_unfolds(chat: Chat, stage: Stage) -> None:
    for n in range(4):
        fact = {"text": f"I drink no coffee {n}, and never did, wherever I was, with whomever I sat down to a meal"}
        httpx.post(f"{stage.brain.url}/v1/memory", json=fact, trust_env=False).raise_for_status()
    answer = chat.ask("May I have coffee?")
    recalled = answer.get_by_text("Recalled 4 facts")
    line = recalled.bounding_box()
    assert line is not None
    assert line["height"] < 30
    recalled.click()
    whole = recalled.bounding_box()
    assert whole is not None
    assert whole["height"] > 50
