"""Stop: the answer ends at once, the model with it, and the conversation goes on."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from page.chat import Chat
from page.stage import Stage, request

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
