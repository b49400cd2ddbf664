"""Stop an answer, add to it, retry it, and edit a message."""

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from page.chat import Chat
from page.server import HOSTILE, PageServer, request
from page.texts import error_text, page_text
from page.visitor import Visitor

pytestmark = pytest.mark.chromium

WAYS_TO_STOP: tuple[Callable[[Chat], None], ...] = (
    Chat.stop,
    lambda chat: chat.box.press("Escape"),
    lambda chat: chat.log.press("Escape"),
)
BUSY = page_text("busy")


def test_an_answer_is_stopped_at_any_moment(chat: Chat, server: PageServer) -> None:
    chat.box.fill("question 0")
    chat.button("Send").dblclick()  # the second click does not stop it
    expect(chat.button("Stop")).to_be_enabled()
    assert server.model.questions() == ["question 0"]
    chat.stop()  # before the first token
    chat.wait_until_idle()
    expect(chat.answer).to_contain_text("Stopped.")
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
    chat.ask("question 4")
    server.model.write("so far ", request("wiki", title="Bern"))
    expect(chat.card("wiki")).to_contain_text("page 2 of 4")
    chat.stop()
    chat.wait_until_idle()
    expect(chat.card("wiki").get_by_role("progressbar")).to_be_hidden()
    server.wiki_release.set()
    server.wait_until_quiet()
    assert server.model.questions()[1:] == [f"question {n}" for n in (2, 3, 4)]


def test_a_message_is_stopped_on_its_way(chat: Chat, server: PageServer, visitor: Visitor) -> None:
    visitor.allow("ERR_")
    for count, message in enumerate(("hello there", "hello again"), 1):
        server.network.hold()
        chat.ask(message)
        chat.box.press("Escape")
        expect(chat.button("Stop")).to_be_disabled()
        server.network.restore()
        chat.wait_until_idle()
        expect(chat.answers).to_have_count(count)
        expect(chat.answer).to_contain_text("Stopped.")
        server.wait_until_quiet()
    chat.reload()
    expect(chat.questions).to_have_count(2)
    expect(chat.answer).to_contain_text("Stopped.")
    expect(chat.history.get_by_role("link")).to_have_count(1)
    server.network.cut()
    chat.ask("is anybody there?")
    expect(chat.page.get_by_text(page_text("sendsAgain"))).to_be_visible()
    chat.box.press("Escape")
    expect(chat.box).to_have_value("is anybody there?")
    expect(chat.alert.filter(has_text=page_text("unreachable"))).to_be_visible()
    expect(chat.questions).to_have_count(2)


def test_an_addition_is_visible_until_brain_reads_it_and_stays_there(chat: Chat, server: PageServer) -> None:
    answer, pending = chat.ask(), page_text("addedUnread")
    server.model.write("Before the end")
    expect(answer).to_contain_text("Before the end")
    chat.steer("shorter, please")
    expect(chat.box).to_have_value("")
    expect(answer).to_contain_text(pending)
    expect(answer.get_by_text("shorter, please")).to_be_visible()
    server.model.write(" of it.\n")
    expect(answer).not_to_contain_text(pending)
    server.finish(chat, "After.")
    assert server.model.questions() == ["hello", "shorter, please"]
    for _ in range(2):
        expect(chat.answer).to_contain_text("After.")
        expect(chat.answer.get_by_text("shorter, please")).to_have_count(1)
        assert re.search(r"(?s)Before.*You added.*shorter, please.*After\.", chat.answer.inner_text())
        chat.reload()


def test_an_addition_returns_to_the_box_when_the_turn_is_gone(chat: Chat, server: PageServer, visitor: Visitor) -> None:
    visitor.allow("410", "404", "net::")
    answer = chat.ask()
    server.model.write("A sentence without")
    expect(answer).to_contain_text("A sentence without")
    chat.steer("shorter, please")
    expect(answer).to_contain_text(page_text("addedUnread"))
    conversation = {"id": "c1", "title": "hello", "messages": [], "files": [], "running": False, "earlier": None}
    chat.page.route("**/v1/turns/*", lambda route: route.fulfill(status=404, json={"error": {"code": "not_found"}}))
    chat.page.route("**/v1/turns/*/events*", lambda route: route.fulfill(status=410))
    chat.page.route("**/v1/conversations/*", lambda route: route.fulfill(json=conversation))
    server.network.cut()
    server.network.restore()
    expect(chat.box).to_have_value("shorter, please")
    expect(answer).not_to_contain_text("shorter, please")


def test_an_answer_is_replaced_by_retry_and_edit(chat: Chat, server: PageServer) -> None:
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
    server.finish(chat, "all of it")
    expect(chat.answer).to_contain_text("all of it")
    chat.edit_question()
    chat.box.fill("twice")
    chat.box.press("Enter")
    expect(chat.answer).not_to_contain_text("all of it")
    server.model.fail()  # the previous answer comes back, and the message to the box
    expect(chat.answer).to_contain_text("all of it")
    expect(chat.question).to_contain_text("once")
    expect(chat.alert.filter(has_text=error_text("internal"))).to_be_visible()
    expect(chat.box).to_have_value("twice")
    chat.box.press("Enter")
    server.model.write("more of it")
    server.model.end()
    expect(chat.answer).to_contain_text("more of it")
    chat.wait_until_idle()
    server.answer(chat, "two", "second")
    edit = chat.questions.first.get_by_role("button", name="Edit", exact=True)
    edited = chat.log.locator("[aria-current]")
    edit.click()
    expect(chat.box).to_have_value("twice")
    expect(edited).to_have_text(re.compile("^twice"))
    chat.box.press("Escape")
    expect(edited).to_have_count(0)
    edit.click()
    server.answer(chat, "uno", "primo")  # replaces everything after it
    expect(edited).to_have_count(0)
    expect(chat.answer).to_contain_text("primo")
    assert server.model.questions() == ["uno"]
    chat.reload()
    expect(chat.questions).to_have_count(1)
    expect(chat.question).to_contain_text("uno")


def test_a_refused_message_says_why_and_returns_to_the_box(chat: Chat, server: PageServer, visitor: Visitor) -> None:
    visitor.allow("409", "400", "503")
    server.answer(chat, "one")
    other = visitor.open(chat.page.url)
    expect(other.questions).to_have_count(1)
    other.page.evaluate("BroadcastChannel.prototype.postMessage = () => {}")
    other.ask("two")
    expect(other.button("Stop")).to_be_visible()
    chat.bring_to_front()
    chat.box.fill("three")
    chat.box.press("Enter")
    expect(chat.log).to_contain_text(BUSY)
    expect(chat.question).to_contain_text("two")
    expect(chat.box).to_have_value("three")
    server.model.write("second")
    server.model.end()
    for tab in (chat, other):
        tab.wait_until_idle()
        expect(tab.answer).to_contain_text("second")
    expect(chat.log).not_to_contain_text(BUSY)
    error = {"code": "bad_request", "message": f"No such model {HOSTILE}", "field": "model"}
    chat.page.route("**/v1/turns", lambda route: route.fulfill(status=400, json={"error": error}))
    chat.box.press("Enter")
    expect(chat.log).to_contain_text(f"No such model {HOSTILE}")
    expect(chat.log.locator("img, b")).to_have_count(0)
    expect(chat.box).to_have_value("three")
    chat.page.unroute("**/v1/turns")
    chat.box.press("Enter")
    server.model.write("third")
    server.model.end()
    expect(chat.answer).to_contain_text("third")


@pytest.mark.parametrize("server", [{"WINDOW_MESSAGES": 1}], indirect=True)
def test_brain_says_what_it_left_out_and_that_its_server_stops(chat: Chat, server: PageServer) -> None:
    for question in ("one", "two", "three"):
        server.answer(chat, question, f"An answer to {question}")
    expect(chat.answer.locator(".notice")).to_be_visible()
    error = {"code": "shutdown", "message": "The server is shutting down.", "recoverable": True}
    frame = f"event: error\ndata: {json.dumps(error)}\nid: t.1\n\n"
    headers = {"Content-Type": "text/event-stream"}
    chat.page.route("**/v1/turns/*/events*", lambda route: route.fulfill(headers=headers, body=frame))
    chat.ask("four")
    expect(chat.answer).to_contain_text(error_text("interrupted"))
    chat.wait_until_idle()
