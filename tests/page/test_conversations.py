"""The list of conversations: open, search, rename, delete; and how a conversation starts."""

import json
import re

import httpx
import pytest
from limits import WAIT_SECONDS
from playwright.sync_api import Route, expect

from brain import Context, specialist
from page.chat import Chat, hold_request
from page.markdown import make_messages
from page.server import HOSTILE, PageServer
from page.texts import page_text
from page.visitor import NEW, Visitor

pytestmark = pytest.mark.chromium

HIGHLIGHTED = "[...CSS.highlights.get('found') ?? []].map((range) => range.toString().toLowerCase())"
TEA = "How do I make tea?"


def ask_elsewhere(server: PageServer, question: str, answer: str = "Good day.", conversation: str | None = None) -> str:
    """Complete a turn outside the browser; return the id of its conversation."""
    server.model.write(answer)
    server.model.end()
    body = {"message": question, **({"conversation_id": conversation} if conversation else {})}
    events = httpx.post(f"{server.brain.url}/v1/chat/stream", json=body, timeout=WAIT_SECONDS, trust_env=False).text
    found: str = re.findall(r'"conversation_id":"([^"]+)"', events)[0]
    return found


def test_conversations_are_opened_continued_renamed_and_deleted(
    chat: Chat, server: PageServer, visitor: Visitor
) -> None:
    visitor.allow("404")
    chat.page.goto(f"{server.url}/#/c/nothing")
    expect(chat.log).to_contain_text(page_text("noConversation"))
    chat.log.get_by_role("button", name="New conversation", exact=True).click()
    server.answer(chat, TEA, "Boil water.")
    chat.start_conversation()
    chat.ask("And coffee?")
    server.model.write("Grind ")
    expect(chat.answer).to_contain_text("Grind")
    chat.conversation(TEA).click()
    expect(chat.answer).to_contain_text("Boil water.")
    chat.wait_until_idle()
    server.model.write("beans.")
    chat.conversation("And coffee?").click()
    expect(chat.answer).to_contain_text("Grind beans.")
    server.finish(chat)
    chat.conversation(TEA).click()
    expect(chat.answer).to_contain_text("Boil water.")
    expect(chat.answers).to_have_count(1)
    server.answer(chat, "And then?", "Drink it.")
    assert server.model.questions() == [TEA, "And then?"]
    chat.page.go_back()
    expect(chat.answer).to_contain_text("Grind beans.")
    chat.choose_option(TEA, "Rename")
    field = chat.history.get_by_role("textbox", name=f"New title for {TEA}", exact=True)
    expect(field).to_be_focused()
    field.fill("Tea")
    field.press("Enter")
    chat.conversation("Tea").click()
    expect(chat.page.get_by_role("heading", level=1)).to_have_text("Tea")
    chat.reload()
    dialog = chat.dialog("Delete this conversation?")
    chat.choose_option("Tea", "Delete")
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    expect(chat.conversation("Tea")).to_be_visible()
    chat.choose_option("Tea", "Delete")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(dialog).to_be_hidden()
    expect(chat.conversation("Tea")).to_have_count(0)
    expect(chat.questions).to_have_count(0)
    chat.reload()
    expect(chat.history.get_by_role("link")).to_have_count(1)


def test_search_opens_a_conversation_at_the_words_it_found(chat: Chat, server: PageServer) -> None:
    steps = "\n\n".join(f"Step {n}: wait." for n in range(60))
    conversation = ask_elsewhere(server, TEA, f"Boil **fresh** `water`.\n\n{steps}")
    ask_elsewhere(server, "And then?", steps, conversation)
    ask_elsewhere(server, "And coffee?", "Grind beans.")
    ask_elsewhere(server, HOSTILE, "No.")
    chat.search("fresh wat")
    expect(chat.conversation("And coffee?")).to_be_hidden()
    expect(chat.history).to_contain_text(f"{TEA} Boil fresh water. Step 0: wait.")
    chat.page.keyboard.press("Enter")  # opens the first
    found = chat.answers.first.get_by_text("fresh", exact=True)
    expect(found).to_have_js_property("tagName", "STRONG")
    expect(found).to_be_in_viewport()
    assert chat.page.evaluate(HIGHLIGHTED) == ["fresh", "wat"]
    chat.search("nowhere")
    expect(chat.history).to_contain_text(page_text("nothingFound"))
    chat.search("bold")
    expect(chat.conversation(HOSTILE)).to_be_visible()
    expect(chat.history.locator("img, b")).to_have_count(0)
    chat.search("")
    expect(chat.conversation("And coffee?")).to_be_visible()
    assert chat.page.evaluate(HIGHLIGHTED) == []
    assert chat.page.evaluate("window.hacked") is None


def test_a_private_conversation_uses_a_local_model_and_stays_private(chat: Chat, server: PageServer) -> None:
    start = httpx.get(f"{server.url}/page/start", trust_env=False, timeout=WAIT_SECONDS).json()
    start["models"].insert(0, {"name": "remote", "stand_in": False, "local": False, "default": True})
    start["models"][1]["default"] = False
    chat.page.route("**/page/start", lambda route: route.fulfill(json=start))
    chat.reload()
    private = chat.button(page_text("privateConversation"))
    expect(chat.model).to_have_value("remote")
    private.click()
    expect(private).to_have_attribute("aria-pressed", "true")
    expect(private).to_have_accessible_description(page_text("privateAbout"))
    expect(chat.model).to_have_value("player")
    expect(chat.model.get_by_role("option", name="remote")).to_be_disabled()
    chat.reload()  # the choice is remembered before the first message, too
    expect(chat.model).to_have_value("player")
    with chat.page.expect_request("**/v1/turns") as sent:
        server.answer(chat, TEA, "Boil water.")
    body = json.loads(sent.value.post_data or "")
    assert (body["model"], body["private"]) == ("player", True)
    for _ in range(2):
        expect(private).to_have_attribute("aria-pressed", "true")
        expect(private).to_be_disabled()
        expect(chat.history.get_by_role("listitem").last).to_contain_text(page_text("private"))
        chat.reload()
    chat.start_conversation()
    expect(private).to_have_attribute("aria-pressed", "false")
    expect(chat.model).to_have_value("remote")
    ask_elsewhere(server, "From a terminal")
    chat.conversation("From a terminal").click()
    expect(chat.answer).to_contain_text("Good day.")
    private.click()
    expect(private).to_have_accessible_description(page_text("privateFromNow"))
    private.click()
    expect(private).to_have_accessible_description("")
    chat.conversation(TEA).click()
    expect(private).to_be_disabled()


@pytest.mark.parametrize("visitor", [NEW], indirect=True)
def test_the_list_notices_news_from_elsewhere(chat: Chat, server: PageServer) -> None:
    chat.page.clock.install()
    chat.reload()
    expect(chat.history).to_contain_text(page_text("noConversations"))
    conversation = ask_elsewhere(server, "From a terminal")
    chat.page.clock.fast_forward(8000)
    chat.conversation("From a terminal").click()
    expect(chat.answer).to_contain_text("Good day.")
    ask_elsewhere(server, "Once more", "Good evening.", conversation)
    chat.page.clock.fast_forward(8000)
    expect(chat.answer).to_contain_text("Good evening.")
    expect(chat.question).to_contain_text("Once more")


def test_earlier_messages_appear_when_a_person_scrolls_up(chat: Chat) -> None:
    def serve_part(route: Route) -> None:
        before = re.search(r"before=q(\d+)", route.request.url)
        first = int(before[1]) - 20 if before else 40
        messages = [one for n in range(first, first + 20) for one in make_messages(n)]
        found = {"id": "c1", "title": "Long", "messages": messages, "files": [], "running": False}
        route.fulfill(json={**found, "earlier": f"q{first}" if first else None})

    chat.page.route("**/v1/conversations/c1?*", serve_part)
    chat.page.evaluate("location.hash = '#/c/c1'")
    expect(chat.question).to_contain_text("Question 59?")
    expect(chat.questions).to_have_count(20)
    expect(chat.answers.first.get_by_role("heading")).to_have_count(1)  # the oldest is rendered last
    assert chat.distance_from_end() < 4
    for count, first in ((40, "Question 40?"), (60, "Question 20?")):
        chat.log.evaluate("node => { node.scrollTop = 0; }")
        expect(chat.questions).to_have_count(count)
        expect(chat.questions.filter(has_text=first)).to_be_in_viewport()
    expect(chat.button("Earlier messages")).to_have_count(0)


def test_a_long_list_appears_in_parts_and_is_one_tab_stop(chat: Chat, server: PageServer) -> None:
    for n in range(60):
        ask_elsewhere(server, f"Question {n}")
    chat.reload()
    focused, press = chat.page.locator(":focus"), chat.page.keyboard.press
    expect(chat.conversation("Question 59")).to_be_visible()
    chat.conversation("Question 59").focus()
    for key, name in (
        ("ArrowUp", "Question 59"),
        ("ArrowDown", "Question 58"),
        ("ArrowDown", "Question 57"),
        ("Tab", "Options for Question 57"),
        ("ArrowUp", "Question 58"),
        ("End", "Question 10"),
        ("Home", "Question 59"),
    ):
        press(key)
        expect(focused).to_have_accessible_name(name)
    press("Enter")
    expect(chat.question).to_contain_text("Question 59")
    chat.button("Show more").focus()
    press("Shift+Tab")
    expect(focused).to_have_accessible_name("Options for Question 59")
    chat.button("Show more").press("Enter")
    expect(chat.conversation("Question 9")).to_be_focused()
    expect(chat.conversation("Question 0")).to_be_attached()
    expect(chat.button("Show more")).to_be_hidden()


# how a conversation starts


@specialist(activates_on=["image"], outside=True)
def ocr(*, context: Context) -> str:
    """Reads pictures."""
    return f"{context.attachments[0].name}: {len(context.attachments[0].data)} bytes"


@specialist(examples=["how is the weather", "and tomorrow"])
def weather() -> str:
    """Looks out of the window."""
    return "It rains."


@specialist(examples=["who was Ada Lovelace"])
def encyclopedia() -> str:
    """Looks something up far away."""
    return "A mathematician."


def test_a_message_sent_before_the_server_answered_is_asked_then(server: PageServer, visitor: Visitor) -> None:
    page = visitor.new_page()
    start = hold_request(page, "**/page/start", lambda: page.goto(server.url))
    chat = Chat(page)
    chat.paste(("pasted.txt", "text/plain", "x"))
    chat.box.fill("one")
    chat.box.press("Enter")
    expect(chat.box).to_have_value("one")
    assert server.model.requests == []
    start.continue_()
    server.model.write("First.")
    server.model.end()
    expect(chat.answer).to_contain_text("First.")
    expect(chat.question).to_contain_text("pasted.txt")
    chat.wait_until_idle()
    opening = hold_request(page, re.compile(r"/v1/conversations/\w"), chat.reload)
    chat.box.fill("two")
    chat.box.press("Enter")
    expect(chat.box).to_have_value("")
    opening.continue_()
    expect(chat.questions).to_have_count(2)
    server.model.write("Second.")
    server.model.end()
    expect(chat.answer).to_contain_text("Second.")
    assert server.model.questions()[-1] == "two"


def test_examples_are_of_available_specialists_and_may_have_a_picture(server: PageServer, visitor: Visitor) -> None:
    server.add(ocr, "brain-sse 1.0")
    server.add(encyclopedia, "brain-sse 1.0")
    server.add(weather, "a package 1.0")
    chat = visitor.open(server.url)
    examples = chat.page.get_by_role("list", name="Examples", exact=True).get_by_role("button")
    expect(examples).to_have_text(["What does the ticket say?", "How is the weather", "Where is Bern"])
    expect(examples.first.locator("img")).to_have_js_property("naturalWidth", 560)
    examples.first.click()
    expect(chat.question.get_by_role("img", name="ticket.png")).to_have_js_property("naturalWidth", 560)
    chat.open_card("ocr")
    expect(chat.card("ocr")).to_contain_text("ticket.png: 1549 bytes")
