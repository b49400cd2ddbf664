"""What a user does with a message: stops its answer, adds to it, sends or writes it anew, copies it."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from brain.messages import Exchange
from page.chat import Chat
from page.stage import HOSTILE, Stage, request
from page.visitor import Visitor

pytestmark = pytest.mark.chromium

WAYS: dict[str, Callable[[Chat], None]] = {
    "button": Chat.stop,
    "Esc in the box": lambda chat: chat.box.press("Escape"),
    "Esc elsewhere": lambda chat: chat.log.press("Escape"),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_stop_keeps_what_was_said_and_lets_the_model_go(chat: Chat, stage: Stage, way: Callable[[Chat], None]) -> None:
    answer = chat.ask()
    stage.model.says("so far")
    expect(answer).to_contain_text("so far")
    way(chat)
    chat.is_idle()
    expect(answer).to_contain_text("so far")
    expect(answer).to_contain_text("Stopped.")
    assert stage.brain.left(2) == []
    assert len(stage.model.closed) == 1
    stage.model.open.clear()
    again = chat.ask("go on")
    assert stage.model.questions() == ["hello", "go on"]
    stage.model.says("and on")
    expect(again).to_contain_text("and on")


def test_stop_before_the_first_token(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    assert stage.model.question() == "hello"
    chat.stop()
    chat.is_idle()
    expect(answer).to_contain_text("Stopped.")
    assert stage.brain.left(2) == []


def test_stop_during_a_call(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says("so far ", request("wiki", title="Bern"))
    expect(chat.call("wiki")).to_contain_text("page 2 of 4")
    chat.stop()
    chat.is_idle()
    expect(chat.call("wiki").get_by_role("progressbar")).to_be_hidden()
    stage.library.set()
    assert stage.brain.left(2) == []


def test_what_was_stopped_is_shown_so_when_it_is_opened_again(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says("so far")
    expect(chat.answer).to_contain_text("so far")
    chat.stop()
    chat.is_idle()
    chat.reload()
    expect(chat.answer).to_contain_text("so far")
    expect(chat.answer).to_contain_text("Stopped.")


def test_a_message_put_in_while_it_writes(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("One. ")
    expect(answer).to_contain_text("One.")
    chat.steer("Be short!")
    expect(chat.box).to_have_value("")
    stage.model.says("Two. ")
    expect(answer).to_contain_text("Be short!")
    stage.model.says("Three.")
    stage.model.ends()
    chat.is_idle()
    assert stage.model.questions() == ["hello", "Be short!"]


def test_retry_takes_the_place_of_the_answer(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says("half an ")
    expect(chat.answer).to_contain_text("half an")
    stage.model.fails()
    chat.is_idle()
    expect(chat.answer).not_to_contain_text("swordfish")
    chat.retry()
    expect(chat.answer).not_to_contain_text("half an")
    stage.model.says("all of it")
    stage.model.ends()
    chat.is_idle()
    expect(chat.answer).to_contain_text("all of it")
    expect(chat.answers).to_have_count(1)
    expect(chat.questions).to_have_count(1)


def test_what_fails_again_and_again_is_asked_once(chat: Chat, stage: Stage) -> None:
    chat.ask("once")
    for _ in range(2):
        stage.model.fails()
        chat.is_idle()
        chat.retry()
    chat.reload()
    expect(chat.questions).to_have_count(1)
    stage.model.fails()
    chat.is_idle()
    chat.reload()
    expect(chat.questions).to_have_count(1)
    chat.retry()
    stage.model.says("all of it")
    stage.model.ends()
    expect(chat.answer).to_contain_text("all of it")
    chat.is_idle()
    expect(chat.questions).to_have_count(1)


def test_an_answer_stays_when_another_one_fails(chat: Chat, stage: Stage) -> None:
    chat.ask("once")
    stage.model.says("all of it")
    stage.model.ends()
    chat.is_idle()
    chat.question.get_by_role("button", name="Edit", exact=True).click()
    chat.ask("twice")
    expect(chat.answer).not_to_contain_text("all of it")
    stage.model.fails()
    expect(chat.answer).to_contain_text("all of it")
    expect(chat.question).to_contain_text("once")
    expect(chat.alert.filter(has_text="Something went wrong")).to_be_visible()
    expect(chat.box).to_have_value("twice")
    chat.box.press("Enter")
    stage.model.says("more of it")
    stage.model.ends()
    expect(chat.answer).to_contain_text("more of it")
    chat.is_idle()
    expect(chat.questions).to_have_count(1)


def test_a_message_that_is_refused_says_why_and_is_not_lost(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects("409")
    chat.ask()
    stage.model.says("once")
    stage.model.ends()
    chat.is_idle()
    store = stage.brain.engine.store
    (heading,) = stage.brain.on_loop(store.conversations("local"))
    record = stage.brain.on_loop(store.begin("local", heading.id, Exchange(""), ()))
    chat.box.fill("again")
    chat.box.press("Enter")
    expect(chat.log).to_contain_text("An answer is already being written here")
    expect(chat.box).to_have_value("again")
    stage.brain.on_loop(store.drop(record))
    chat.box.press("Enter")
    stage.model.says("twice")
    expect(chat.answer).to_contain_text("twice")
    stage.model.ends()
    chat.is_idle()


def test_who_asks_second_is_told_until_the_first_is_answered(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects("409")
    chat.ask("one")
    stage.model.ends()
    chat.is_idle()
    other = visitor.opens(chat.page.url)
    expect(other.questions).to_have_count(1)
    other.page.evaluate("BroadcastChannel.prototype.postMessage = () => {}")
    other.ask("two")
    expect(other.button("Stop")).to_be_visible()
    chat.box.fill("three")
    chat.box.press("Enter")
    expect(chat.log).to_contain_text("An answer is already being written here")
    expect(chat.question).to_contain_text("two")
    expect(chat.box).to_have_value("three")
    stage.model.says("second")
    stage.model.ends()
    for one in (chat, other):
        one.is_idle()
        expect(one.answer).to_contain_text("second")
    expect(chat.log).not_to_contain_text("An answer is already being written here")


def test_what_the_server_says_of_an_error_is_text(chat: Chat, visitor: Visitor) -> None:
    visitor.expects("400")
    error = {"code": "bad_request", "message": f"No such model {HOSTILE}", "field": "model"}
    chat.page.route("**/v1/turns", lambda route: route.fulfill(status=400, json={"error": error}))
    chat.box.fill("hello")
    chat.box.press("Enter")
    expect(chat.log).to_contain_text(f"No such model {HOSTILE}")
    expect(chat.box).to_have_value("hello")
    expect(chat.log.locator("img, b")).to_have_count(0)


def test_a_refusal_stays_when_the_conversation_goes_on_elsewhere(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects("503")
    chat.ask("one")
    stage.model.ends()
    chat.is_idle()
    other = visitor.opens(chat.page.url)
    expect(other.questions).to_have_count(1)
    error = {"code": "unavailable", "message": "There is no room."}
    chat.page.route("**/v1/turns", lambda route: route.fulfill(status=503, json={"error": error}))
    chat.box.fill("two")
    chat.box.press("Enter")
    expect(chat.alert.filter(has_text="There is no room.")).to_be_visible()
    chat.page.unroute_all()
    other.ask("three")
    expect(chat.question).to_contain_text("three")
    expect(chat.alert.filter(has_text="There is no room.")).to_be_visible()
    stage.model.ends()
    for one in (chat, other):
        one.is_idle()


def test_edit_replaces_the_question_and_what_followed(chat: Chat, stage: Stage) -> None:
    for question, answer in (("one", "first"), ("two", "second")):
        chat.ask(question)
        stage.model.says(answer)
        stage.model.ends()
        chat.is_idle()
    chat.questions.first.get_by_role("button", name="Edit", exact=True).click()
    expect(chat.box).to_have_value("one")
    edited = chat.log.locator("[aria-current]")
    expect(edited).to_have_text(re.compile("^one"))
    chat.box.press("Escape")
    expect(edited).to_have_count(0)
    chat.questions.first.get_by_role("button", name="Edit", exact=True).click()
    expect(edited).to_have_count(1)
    chat.ask("uno")
    expect(edited).to_have_count(0)
    stage.model.says("primo")
    stage.model.ends()
    chat.is_idle()
    expect(chat.answer).to_contain_text("primo")
    assert stage.model.questions() == ["uno"]
    expect(chat.questions).to_have_count(1)
    chat.reload()
    expect(chat.questions).to_have_count(1)
    expect(chat.question).to_contain_text("uno")


def test_copy_gives_the_markdown(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("In the **north**.\n\n- ", "By a lake")
    stage.model.ends()
    chat.is_idle()
    expect(answer).to_contain_text("By a lake")
    assert chat.copy() == "In the **north**.\n\n- By a lake"


@pytest.mark.parametrize("seconds", [0, 0.15, 0.3])
def test_a_second_click_on_the_arrow_stops_nothing(chat: Chat, stage: Stage, seconds: float) -> None:
    stage.line.seconds = seconds
    chat.box.fill("hello")
    chat.button("Send").dblclick()
    expect(chat.button("Stop")).to_be_enabled()
    assert stage.model.question() == "hello"
    stage.model.says("all of it")
    stage.model.ends()
    chat.is_idle()
    expect(chat.answer).to_contain_text("all of it")
    expect(chat.answer).not_to_contain_text("Stopped.")
    expect(chat.box).to_have_value("")


@pytest.mark.parametrize("before", [0, 1], ids=["a new one", "one that is there"])
def test_what_is_stopped_on_its_way_is_shown_as_stopped(chat: Chat, stage: Stage, before: int) -> None:
    for _ in range(before):
        chat.ask("first")
        stage.model.ends()
        chat.is_idle()
    stage.line.seconds = 0.3
    chat.ask("hello")
    chat.box.press("Escape")
    expect(chat.button("Stop")).to_be_disabled()
    chat.is_idle()
    expect(chat.answer).to_contain_text("Stopped.")
    expect(chat.box).to_have_value("")
    assert stage.brain.left(2) == []
    stage.line.seconds = 0
    chat.reload()
    expect(chat.questions).to_have_count(before + 1)
    expect(chat.question).to_contain_text("hello")
    expect(chat.answer).to_contain_text("Stopped.")
    expect(chat.history.get_by_role("link")).to_have_count(1)


def test_what_is_stopped_and_left_on_its_way_is_stopped(chat: Chat, stage: Stage) -> None:
    stage.line.seconds = 0.3
    chat.ask("hello")
    chat.box.press("Escape")
    chat.begin_anew()
    stage.line.seconds = 0
    chat.conversation("hello").click()
    expect(chat.answer).to_contain_text("Stopped.")
    assert stage.brain.left(2) == []


def test_what_is_stopped_while_the_server_is_away_is_given_back(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects("ERR_")
    stage.line.cut()
    chat.ask("hello")
    expect(chat.page.get_by_text("The server could not be reached; trying again…")).to_be_visible()
    chat.box.press("Escape")
    expect(chat.box).to_have_value("hello")
    expect(chat.alert.filter(has_text="The server could not be reached.")).to_be_visible()
    stage.line.restore()
    assert stage.model.asked == []
