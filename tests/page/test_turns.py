"""What a person does with a message: stop its answer, add to it, retry it, edit it; and what Brain says beside it."""

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from brain.messages import Exchange
from page.chat import Chat
from page.server import HOSTILE, PageServer, request
from page.visitor import Visitor

pytestmark = pytest.mark.chromium

WAYS_TO_STOP: tuple[Callable[[Chat], None], ...] = (
    Chat.stop,
    lambda chat: chat.box.press("Escape"),
    lambda chat: chat.log.press("Escape"),
)


# stop


def test_stop_keeps_what_was_written(chat: Chat, server: PageServer) -> None:
    for count, stop in enumerate(WAYS_TO_STOP, 1):
        answer = chat.ask(f"question {count}")
        server.model.write(f"so far {count}")
        expect(answer).to_contain_text(f"so far {count}")
        stop(chat)
        chat.wait_until_idle()
        expect(answer).to_contain_text("Stopped.")
        server.wait_until_quiet()
    chat.reload()
    expect(chat.answer).to_contain_text("so far 3")
    expect(chat.answer).to_contain_text("Stopped.")
    server.answer(chat, "go on", "and on")
    expect(chat.answer).to_contain_text("and on")
    assert server.model.questions() == ["question 1", "question 2", "question 3", "go on"]


def test_stop_before_the_first_token_and_during_a_call(chat: Chat, server: PageServer) -> None:
    answer = chat.ask()
    assert server.model.questions() == ["hello"]
    chat.stop()
    chat.wait_until_idle()
    expect(answer).to_contain_text("Stopped.")
    server.wait_until_quiet()
    chat.ask("again")
    server.model.write("so far ", request("wiki", title="Bern"))
    expect(chat.card("wiki")).to_contain_text("page 2 of 4")
    chat.stop()
    chat.wait_until_idle()
    expect(chat.card("wiki").get_by_role("progressbar")).to_be_hidden()
    server.wiki_release.set()
    server.wait_until_quiet()


def test_a_double_click_on_send_stops_nothing(chat: Chat, server: PageServer) -> None:
    chat.box.fill("hello")
    chat.button("Send").dblclick()
    expect(chat.button("Stop")).to_be_enabled()
    assert server.model.questions() == ["hello"]
    server.model.write("all of it")
    server.model.end()
    chat.wait_until_idle()
    expect(chat.answer).to_contain_text("all of it")
    expect(chat.answer).not_to_contain_text("Stopped.")


@pytest.mark.parametrize("before", [0, 1], ids=["new", "existing"])
def test_a_message_that_is_stopped_on_its_way_is_shown_as_stopped(chat: Chat, server: PageServer, before: int) -> None:
    for _ in range(before):
        server.answer(chat, "first")
    server.network.hold()
    chat.ask("hello there")
    chat.box.press("Escape")
    expect(chat.button("Stop")).to_be_disabled()
    server.network.restore()
    chat.wait_until_idle()
    expect(chat.answer).to_contain_text("Stopped.")
    server.wait_until_quiet()
    chat.reload()
    expect(chat.questions).to_have_count(before + 1)
    expect(chat.question).to_contain_text("hello there")
    expect(chat.answer).to_contain_text("Stopped.")
    expect(chat.history.get_by_role("link")).to_have_count(1)


def test_a_message_that_is_stopped_while_the_server_is_away_returns_to_the_box(
    chat: Chat, server: PageServer, visitor: Visitor
) -> None:
    visitor.allow("ERR_")
    server.network.cut()
    chat.ask("hello")
    expect(chat.page.get_by_text("The server could not be reached; trying again…")).to_be_visible()
    chat.box.press("Escape")
    expect(chat.box).to_have_value("hello")
    expect(chat.alert.filter(has_text="The server could not be reached.")).to_be_visible()
    assert server.model.asked == []


# add to an answer


def test_an_addition_is_visible_until_brain_reads_it_and_stays_there(chat: Chat, server: PageServer) -> None:
    answer, pending = chat.ask(), "Brain reads it at the next pause"
    server.model.write("Before the end")
    expect(answer).to_contain_text("Before the end")
    chat.steer("shorter, please")
    expect(chat.box).to_have_value("")
    expect(answer).to_contain_text(pending)
    expect(answer.get_by_text("shorter, please")).to_be_visible()
    server.model.write(" of it.\n")
    expect(answer).not_to_contain_text(pending)
    server.model.write("After.")
    server.model.end()
    chat.wait_until_idle()
    assert server.model.questions() == ["hello", "shorter, please"]
    for _ in range(2):
        expect(chat.answer).to_contain_text("After.")
        expect(chat.answer.get_by_text("shorter, please")).to_have_count(1)
        text = chat.answer.inner_text()
        assert text.index("Before") < text.index("shorter, please") < text.index("After.")
        expect(chat.answer).to_contain_text("You, meanwhile")
        chat.reload()


def test_an_addition_returns_to_the_box_when_the_turn_is_gone(chat: Chat, server: PageServer, visitor: Visitor) -> None:
    visitor.allow("410", "404", "net::")
    answer = chat.ask()
    server.model.write("A sentence without")
    expect(answer).to_contain_text("A sentence without")
    chat.steer("shorter, please")
    expect(answer).to_contain_text("Brain reads it at the next pause")
    conversation = {"id": "c1", "title": "hello", "messages": [], "files": [], "running": False, "earlier": None}
    chat.page.route("**/v1/turns/*", lambda route: route.fulfill(status=404, json={"error": {"code": "not_found"}}))
    chat.page.route("**/v1/turns/*/events*", lambda route: route.fulfill(status=410))
    chat.page.route("**/v1/conversations/*", lambda route: route.fulfill(json=conversation))
    server.network.cut()
    server.network.restore()
    expect(chat.box).to_have_value("shorter, please")
    expect(answer).not_to_contain_text("shorter, please")


# retry and edit


def test_retry_replaces_the_answer(chat: Chat, server: PageServer) -> None:
    chat.ask("once")
    server.model.write("half an ")
    expect(chat.answer).to_contain_text("half an")
    server.model.fail()
    chat.wait_until_idle()
    expect(chat.answer).not_to_contain_text("swordfish")
    chat.retry()
    expect(chat.answer).not_to_contain_text("half an")
    server.model.fail()
    chat.wait_until_idle()
    chat.reload()
    expect(chat.questions).to_have_count(1)
    chat.retry()
    server.model.write("all of it")
    server.model.end()
    chat.wait_until_idle()
    expect(chat.answer).to_contain_text("all of it")
    expect(chat.answers).to_have_count(1)
    expect(chat.questions).to_have_count(1)


def test_an_answer_stays_when_its_replacement_fails(chat: Chat, server: PageServer) -> None:
    server.answer(chat, "once", "all of it")
    chat.edit_question()
    chat.box.fill("twice")
    chat.box.press("Enter")
    expect(chat.answer).not_to_contain_text("all of it")
    server.model.fail()
    expect(chat.answer).to_contain_text("all of it")
    expect(chat.question).to_contain_text("once")
    expect(chat.alert.filter(has_text="Something went wrong")).to_be_visible()
    expect(chat.box).to_have_value("twice")
    chat.box.press("Enter")
    server.model.write("more of it")
    server.model.end()
    expect(chat.answer).to_contain_text("more of it")
    chat.wait_until_idle()
    expect(chat.questions).to_have_count(1)


def test_edit_replaces_the_question_and_everything_after_it(chat: Chat, server: PageServer) -> None:
    server.answer(chat, "one", "first")
    server.answer(chat, "two", "second")
    edit, edited = (
        chat.questions.first.get_by_role("button", name="Edit", exact=True),
        chat.log.locator("[aria-current]"),
    )
    edit.click()
    expect(chat.box).to_have_value("one")
    expect(edited).to_have_text(re.compile("^one"))
    chat.box.press("Escape")
    expect(edited).to_have_count(0)
    edit.click()
    expect(edited).to_have_count(1)
    server.answer(chat, "uno", "primo")
    expect(edited).to_have_count(0)
    expect(chat.answer).to_contain_text("primo")
    assert server.model.questions() == ["uno"]
    chat.reload()
    expect(chat.questions).to_have_count(1)
    expect(chat.question).to_contain_text("uno")


# refused


def test_a_refused_message_says_why_and_returns_to_the_box(chat: Chat, server: PageServer, visitor: Visitor) -> None:
    visitor.allow("409", "400")
    server.answer(chat, "hello", "once")
    record = server.begin_elsewhere(Exchange(""))
    chat.box.fill("again")
    chat.box.press("Enter")
    expect(chat.log).to_contain_text("Brain is already writing an answer here")
    expect(chat.box).to_have_value("again")
    server.brain.on_loop(server.store.drop(record))
    error = {"code": "bad_request", "message": f"No such model {HOSTILE}", "field": "model"}
    chat.page.route("**/v1/turns", lambda route: route.fulfill(status=400, json={"error": error}))
    chat.box.press("Enter")
    expect(chat.log).to_contain_text(f"No such model {HOSTILE}")
    expect(chat.log.locator("img, b")).to_have_count(0)
    expect(chat.box).to_have_value("again")
    chat.page.unroute("**/v1/turns")
    chat.box.press("Enter")
    server.model.write("twice")
    server.model.end()
    expect(chat.answer).to_contain_text("twice")


def test_the_second_person_to_ask_waits_for_the_first_answer(chat: Chat, server: PageServer, visitor: Visitor) -> None:
    visitor.allow("409", "503")
    server.answer(chat, "one")
    other = visitor.open(chat.page.url)
    expect(other.questions).to_have_count(1)
    other.page.evaluate("BroadcastChannel.prototype.postMessage = () => {}")
    other.ask("two")
    expect(other.button("Stop")).to_be_visible()
    chat.box.fill("three")
    chat.box.press("Enter")
    expect(chat.log).to_contain_text("Brain is already writing an answer here")
    expect(chat.question).to_contain_text("two")
    expect(chat.box).to_have_value("three")
    server.model.write("second")
    server.model.end()
    for tab in (chat, other):
        tab.wait_until_idle()
        expect(tab.answer).to_contain_text("second")
    expect(chat.log).not_to_contain_text("Brain is already writing an answer here")


# what Brain says beside an answer


@pytest.mark.parametrize("server", [{"WINDOW_MESSAGES": 1}], indirect=True)
def test_the_answer_says_how_many_messages_were_left_out(chat: Chat, server: PageServer) -> None:
    for question in ("one", "two", "three"):
        server.answer(chat, question, f"An answer to {question}")
    expect(chat.answer).to_contain_text("The oldest 2 questions and answers no longer fit and were left out.")


def test_a_server_that_stops_says_so(chat: Chat) -> None:
    error = {"code": "shutdown", "message": "The server is shutting down.", "recoverable": True}
    frame = f"event: error\ndata: {json.dumps(error)}\nid: t.1\n\n"
    headers = {"Content-Type": "text/event-stream"}
    chat.page.route("**/v1/turns/*/events*", lambda route: route.fulfill(headers=headers, body=frame))
    chat.ask()
    expect(chat.answer).to_contain_text("The server stopped while this was being written.")
    chat.wait_until_idle()
