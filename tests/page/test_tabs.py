"""Several tabs: all show the whole answer, once, and none holds another up."""

import re

import pytest
from playwright.sync_api import expect

from page.chat import Chat
from page.counting import says, text_of
from page.stage import Stage
from page.visitor import Visitor

pytestmark = pytest.mark.chromium


def test_a_tab_that_nobody_sees_goes_on_when_it_is_seen(chat: Chat, stage: Stage) -> None:
    chat.ask("count")
    says(stage, "one")
    expect(chat.answer).to_contain_text("one")
    chat.hide()
    says(stage, "two")
    stage.model.ends()
    assert stage.brain.left(5) == []
    chat.look_again()
    chat.is_idle()
    assert text_of(chat) == "one two"


def test_tabs_in_which_answers_are_written_do_not_hold_up_another(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    """A browser has six connections to a server, for all tabs together."""
    behind = [chat, *(visitor.opens(stage.url) for _ in range(5))]
    for one in behind:
        one.ask()
        expect(one.page).to_have_url(re.compile("#/c/"))
        one.hide()
    front = visitor.opens(stage.url)
    front.ask()
    expect(front.page).to_have_url(re.compile("#/c/"))
    for one in (front, *behind):
        one.look_again()
        one.stop()
        one.is_idle()
    assert stage.brain.left(5) == []


def test_windows_side_by_side_let_a_request_go_first(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    windows = [chat, *(visitor.opens(stage.url) for _ in range(5))]
    for one in windows:
        one.ask()
        expect(one.page).to_have_url(re.compile("#/c/"))
    for one in reversed(windows):
        one.stop()
        one.is_idle()


def test_two_tabs_show_one_answer_as_it_is_written(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    chat.ask("count")
    says(stage, "one")
    expect(chat.answer).to_contain_text("one")
    other = visitor.opens(chat.page.url)
    expect(other.answer).to_contain_text("one")
    says(stage, "two")
    for one in (chat, other):
        expect(one.answer).to_contain_text("one two")
    other.stop()
    for one in (chat, other):
        one.is_idle()
        expect(one.answer).to_contain_text("Stopped.")
        assert text_of(one) == "one two"


@pytest.mark.parametrize("seconds", [0.0, 0.3], ids=["fast", "slow"])
def test_what_is_asked_in_one_tab_comes_to_the_other(
    chat: Chat, stage: Stage, visitor: Visitor, seconds: float
) -> None:
    chat.ask("count")
    says(stage, "one")
    stage.model.ends()
    chat.is_idle()
    other = visitor.opens(chat.page.url)
    expect(other.answer).to_contain_text("one")
    stage.line.seconds = seconds
    other.ask("and on")
    says(stage, "two")
    stage.model.ends()
    for one in (other, chat):
        expect(one.questions.nth(1)).to_contain_text("and on")
        expect(one.answers.nth(1)).to_contain_text("two")
        one.is_idle()
    stage.line.seconds = 0.0
    chat.ask("and then")  # behind which nothing comes in twice any more
    says(stage, "three")
    stage.model.ends()
    for one in (chat, other):
        expect(one.answers.last).to_contain_text("three")
        assert [re.findall("one|two|three", text) for text in one.answers.all_inner_texts()] == [
            ["one"],
            ["two"],
            ["three"],
        ]
