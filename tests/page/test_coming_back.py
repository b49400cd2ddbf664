"""A page that was reloaded, and a server that tells no more of an answer: what was written is there, whole and once."""

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from brain.messages import Exchange, Text
from page.chat import Chat
from page.counting import CUT, RECONNECTS, says, text_of
from page.stage import Stage, request, staged
from page.visitor import Visitor

pytestmark = pytest.mark.chromium


def test_a_reload_in_the_middle_of_an_answer_goes_on_with_it(chat: Chat, stage: Stage) -> None:
    chat.ask("count")
    says(stage, "one", "two")
    expect(chat.answer).to_contain_text("one two")
    chat.reload()
    expect(chat.answer).to_contain_text("one two")
    expect(chat.question).to_contain_text("count")
    expect(chat.button("Stop")).to_be_visible()
    says(stage, "three")
    expect(chat.answer).to_contain_text("one two three")
    stage.model.ends()
    chat.is_idle()
    assert text_of(chat) == "one two three"
    assert len(stage.model.asked) == 1
    expect(chat.answers).to_have_count(1)
    expect(chat.questions).to_have_count(1)


def test_a_reload_in_the_middle_of_a_call_shows_its_card(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says("one ", request("wiki", title="Bern"), " x")
    expect(chat.call("wiki")).to_contain_text("page 2 of 4")
    chat.reload()
    expect(chat.call("wiki")).to_contain_text("page 2 of 4")
    stage.library.set()
    stage.model.says("two")
    stage.model.ends()
    chat.is_idle()
    expect(chat.call("wiki")).to_have_count(1)
    for word in ("one", "two"):
        expect(chat.answer.get_by_text(word, exact=True)).to_be_visible()
    assert text_of(chat) == "one two"
    chat.unfold("wiki")
    expect(chat.call("wiki")).to_contain_text("kept")


def test_a_reload_before_the_first_token(chat: Chat, stage: Stage) -> None:
    chat.ask("count")
    expect(chat.page).to_have_url(re.compile("#/c/"))
    chat.reload()
    expect(chat.question).to_contain_text("count")
    says(stage, "one")
    expect(chat.answer).to_contain_text("one")
    stage.model.ends()
    chat.is_idle()
    assert len(stage.model.asked) == 1


def test_a_conversation_is_the_same_when_it_is_opened_again(chat: Chat, stage: Stage) -> None:
    chat.ask("count")
    stage.library.set()
    stage.model.says("one **two** ", request("wiki", title="Bern"), " x")
    expect(chat.call("wiki")).to_be_visible()
    stage.model.says("three")
    stage.model.ends()
    chat.is_idle()
    expect(chat.answer.get_by_role("paragraph").get_by_role("strong")).to_have_text("two")
    chat.reload()
    expect(chat.answer.get_by_role("paragraph").get_by_role("strong")).to_have_text("two")
    expect(chat.call("wiki")).to_have_count(1)
    assert text_of(chat) == "one two three"


def test_who_slept_until_the_turn_was_no_longer_kept_reads_what_was_stored(
    chat: Chat, stage: Stage, visitor: Visitor
) -> None:
    visitor.expects(CUT, "410", "404")
    chat.ask("count")
    says(stage, "one")
    expect(chat.answer).to_contain_text("one")
    stage.line.cut()
    says(stage, "two", "three")
    stage.model.ends()
    assert stage.brain.left(5) == []
    stage.forgets_turns()
    stage.line.restore()
    expect(chat.button("Send")).to_be_visible(timeout=RECONNECTS)
    expect(chat.answer).to_contain_text("one two three")
    assert text_of(chat) == "one two three"
    expect(chat.answers).to_have_count(1)
    again = chat.ask("go on")
    says(stage, "four")
    expect(again).to_contain_text("four")


def test_an_answer_whose_beginning_is_no_longer_told_comes_when_it_is_whole(
    chat: Chat, stage: Stage, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor.expects("410")
    monkeypatch.setattr("brain.runtime.event_log.LOG_BYTES", 1500)
    chat.ask("count")
    says(stage, "one")
    for count in range(10):
        says(stage, *["word"] * 20, f"w{count}")
        expect(chat.answer).to_contain_text(f"w{count}")
    says(stage, "two")
    expect(chat.answer).to_contain_text("two")
    chat.reload()
    expect(chat.answer).to_contain_text("Brain is still writing this. It appears here when it is finished.")
    says(stage, "three")
    stage.model.ends()
    expect(chat.answer).to_contain_text("three")
    assert text_of(chat) == "one two three"
    expect(chat.answers).to_have_count(1)
    chat.is_idle()


def test_an_answer_that_another_process_writes_comes_when_it_is_whole(chat: Chat, stage: Stage) -> None:
    chat.ask("count")
    says(stage, "one")
    stage.model.ends()
    expect(chat.answer).to_contain_text("one")
    chat.is_idle()
    store = stage.brain.engine.store
    (heading,) = stage.brain.on_loop(store.conversations("local"))
    question = Exchange("(read)", said="and on", question_id="q2")
    record = stage.brain.on_loop(store.begin("local", heading.id, question, ()))
    chat.reload()
    expect(chat.question).to_contain_text("and on")
    expect(chat.answer).to_contain_text("Brain is still writing this. It appears here when it is finished.")
    ended = Exchange("(read)", [Text("two", 1)], answer_id="a2", outcome="complete")
    stage.brain.on_loop(store.end(record, ended))
    expect(chat.answer).to_contain_text("two")
    expect(chat.answers).to_have_count(2)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A server that keeps at each moment how far an answer is."""
    monkeypatch.setattr("brain.store.leases.PROLONG_SECONDS", 0.01)
    with staged() as stage:
        yield stage


def test_how_far_an_answer_was_is_kept_while_it_is_written(often: Stage, visitor: Visitor) -> None:
    stage, chat = often, visitor.opens(often.url)
    chat.ask("count")
    stage.model.says("two **three** ", request("wiki", title="Bern"), " x")
    expect(chat.call("wiki")).to_be_visible()
    stage.library.set()
    says(stage, "four")
    expect(chat.answer).to_contain_text("four")
    store = stage.brain.engine.store
    (heading,) = stage.brain.on_loop(store.conversations("local"))
    found, until = None, time.monotonic() + 10
    while time.monotonic() < until and not (found and "four" in found.exchanges[-1].visible):
        found = stage.brain.on_loop(store.conversation("local", heading.id))
    assert found is not None
    assert [type(part).__name__ for part in found.exchanges[-1].parts] == ["Text", "Call", "Text"]
    stage.model.ends()
    chat.is_idle()
