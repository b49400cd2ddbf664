"""What Brain says beside an answer, and decisions that come too late."""

from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Route, expect

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


def decide_no(url: str) -> None:
    httpx.post(url, json={"approve": False}, trust_env=False).raise_for_status()


def stop(url: str) -> None:
    httpx.post(f"{url.partition('/approvals')[0]}/cancel", json={}, trust_env=False).raise_for_status()


LATE: dict[str, tuple[Callable[[str], None], str, str]] = {
    "somebody else said no": (decide_no, "409", "not approved"),
    "the turn was stopped": (stop, "410", "stopped"),
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
