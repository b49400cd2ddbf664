"""A network that is cut, or asleep: what was written meanwhile comes, once; what was asked is asked, once."""

import pytest
from playwright.sync_api import expect

from page.chat import Chat
from page.counting import CUT, RECONNECTS, says, text_of
from page.stage import Stage
from page.visitor import Visitor

pytestmark = pytest.mark.chromium


def test_a_cut_network_that_comes_back_loses_nothing(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects(CUT)
    chat.ask("count")
    says(stage, "one")
    expect(chat.answer).to_contain_text("one")
    stage.line.cut()
    says(stage, "two", "three")
    expect(chat.page.get_by_text("The connection is lost; it comes back by itself.")).to_be_visible()
    stage.line.restore()
    expect(chat.answer).to_contain_text("one two three", timeout=RECONNECTS)
    expect(chat.page.get_by_text("The connection is lost; it comes back by itself.")).to_be_hidden()
    says(stage, "four")
    expect(chat.answer).to_contain_text("one two three four")
    stage.model.ends()
    chat.is_idle()
    assert text_of(chat) == "one two three four"
    assert len(stage.model.asked) == 1


def test_a_network_that_is_cut_again_and_again(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects(CUT)
    chat.ask("count")
    words = ["one", "two", "three"]
    for n, word in enumerate(words, 1):
        says(stage, word)
        expect(chat.answer).to_contain_text(" ".join(words[:n]), timeout=RECONNECTS)
        stage.line.cut()
        stage.line.restore()
    stage.model.ends()
    expect(chat.button("Send")).to_be_visible(timeout=RECONNECTS)
    assert text_of(chat) == "one two three"


def test_an_answer_that_ended_while_the_network_was_cut(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects(CUT)
    chat.ask("count")
    says(stage, "one")
    expect(chat.answer).to_contain_text("one")
    stage.line.cut()
    says(stage, "two")
    stage.model.ends()
    assert stage.brain.left(5) == []
    stage.line.restore()
    expect(chat.button("Send")).to_be_visible(timeout=RECONNECTS)
    assert text_of(chat) == "one two"


def test_a_machine_that_slept_comes_back_without_its_connection(chat: Chat, stage: Stage) -> None:
    chat.page.clock.install()
    chat.reload()
    chat.ask("count")
    says(stage, "one")
    expect(chat.answer).to_contain_text("one")
    stage.line.die()
    chat.page.clock.fast_forward(60_000)
    says(stage, "two", "three")
    expect(chat.answer).to_contain_text("one two three")
    stage.model.ends()
    chat.is_idle()
    assert text_of(chat) == "one two three"


def test_a_question_that_did_not_reach_the_server_is_sent_once_it_does(
    chat: Chat, stage: Stage, visitor: Visitor
) -> None:
    visitor.expects(CUT)
    stage.line.cut()
    chat.ask("count")
    expect(chat.page.get_by_text("The server could not be reached; trying again…")).to_be_visible()
    stage.line.restore()
    assert stage.model.open.wait(10)
    says(stage, "one")
    stage.model.ends()
    expect(chat.answer).to_contain_text("one")
    chat.is_idle()
    assert len(stage.model.asked) == 1
    expect(chat.questions).to_have_count(1)


def test_that_the_server_was_away_is_said_until_it_is_back(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects(CUT)
    chat.page.clock.install()
    stage.line.cut()
    chat.box.fill("count")
    chat.box.press("Enter")
    away = chat.log.get_by_text("The server could not be reached.", exact=True)
    while not away.is_visible():  # it is tried again a few times
        chat.page.clock.fast_forward(4000)
    stage.line.restore()
    while away.is_visible():  # the list looks for news from time to time
        chat.page.clock.fast_forward(10_000)
