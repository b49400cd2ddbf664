"""The list of conversations: found, opened, renamed, deleted."""

import re

import httpx
import pytest
from playing import words
from playwright.sync_api import Route, expect

from page.chat import Chat
from page.keyboard import Keyboard
from page.stage import HOSTILE, Stage
from page.test_speed import message
from page.visitor import Visitor

pytestmark = pytest.mark.chromium

MARKED = "[...CSS.highlights.get('found') ?? []].map((range) => range.toString().toLowerCase())"


def talk(chat: Chat, stage: Stage, question: str, answer: str) -> None:
    """A conversation with one question."""
    chat.begin_anew()
    expect(chat.questions).to_have_count(0)
    chat.ask(question)
    stage.model.says(answer)
    stage.model.ends()
    chat.is_idle()
    expect(chat.answer).to_contain_text(answer)
    expect(chat.conversation(question)).to_be_visible()


def test_a_conversation_is_opened_and_goes_on(chat: Chat, stage: Stage) -> None:
    talk(chat, stage, "How do I make tea?", "Boil water.")
    talk(chat, stage, "And coffee?", "Grind beans.")
    chat.conversation("How do I make tea?").click()
    expect(chat.answer).to_contain_text("Boil water.")
    expect(chat.answers).to_have_count(1)
    chat.ask("And then?")
    stage.model.says("Drink it.")
    stage.model.ends()
    chat.is_idle()
    assert stage.model.questions() == ["How do I make tea?", "And then?"]
    chat.page.go_back()
    expect(chat.answer).to_contain_text("Grind beans.")


def test_a_new_conversation_forgets_the_old_one(chat: Chat, stage: Stage) -> None:
    talk(chat, stage, "How do I make tea?", "Boil water.")
    chat.begin_anew()
    chat.button("Where is Bern").click()
    stage.model.says("In Switzerland.")
    stage.model.ends()
    chat.is_idle()
    assert stage.model.questions() == ["Where is Bern"]


def test_a_turn_goes_on_while_another_conversation_is_looked_at(chat: Chat, stage: Stage) -> None:
    talk(chat, stage, "How do I make tea?", "Boil water.")
    chat.begin_anew()
    chat.ask("And coffee?")
    stage.model.says("Grind ")
    expect(chat.answer).to_contain_text("Grind")
    chat.conversation("How do I make tea?").click()
    expect(chat.answer).to_contain_text("Boil water.")
    chat.is_idle()
    stage.model.says("beans.")
    chat.conversation("And coffee?").click()
    expect(chat.answer).to_contain_text("Grind beans.")
    stage.model.ends()
    chat.is_idle()


def test_search_finds_by_what_was_said(chat: Chat, stage: Stage) -> None:
    talk(chat, stage, "How do I make tea?", "Boil water.")
    talk(chat, stage, "And coffee?", "Grind beans.")
    chat.search("wat")
    expect(chat.conversation("And coffee?")).to_be_hidden()
    expect(chat.conversation("How do I make tea?")).to_be_visible()
    expect(chat.history).to_contain_text("Boil water.")
    chat.page.keyboard.press("Enter")  # while it has the focus
    expect(chat.answer).to_contain_text("Boil water.")
    chat.search("nowhere")
    expect(chat.history).to_contain_text("Nothing was found.")
    chat.search("")
    expect(chat.conversation("And coffee?")).to_be_visible()


def test_rename(chat: Chat, stage: Stage) -> None:
    talk(chat, stage, "How do I make tea?", "Boil water.")
    chat.options("How do I make tea?", "Rename")
    field = chat.history.get_by_role("textbox", name="New title of How do I make tea?", exact=True)
    expect(field).to_be_focused()
    field.fill("Tea")
    field.press("Enter")
    expect(chat.conversation("Tea")).to_be_visible()
    expect(chat.page.get_by_role("heading", level=1)).to_have_text("Tea")
    chat.reload()
    expect(chat.conversation("Tea")).to_be_visible()


def test_delete_asks_first(chat: Chat, stage: Stage) -> None:
    talk(chat, stage, "How do I make tea?", "Boil water.")
    dialog = chat.page.get_by_role("dialog", name="Delete this conversation?", exact=True)
    chat.options("How do I make tea?", "Delete")
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    expect(chat.conversation("How do I make tea?")).to_be_visible()
    chat.options("How do I make tea?", "Delete")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(dialog).to_be_hidden()
    expect(chat.conversation("How do I make tea?")).to_have_count(0)
    expect(chat.questions).to_have_count(0)
    chat.reload()
    expect(chat.history).to_contain_text("No conversations yet.")


def test_a_title_is_text(chat: Chat, stage: Stage) -> None:
    talk(chat, stage, HOSTILE, "No.")
    expect(chat.history.locator("img, b")).to_have_count(0)
    expect(chat.page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    chat.search("bold")
    expect(chat.conversation(HOSTILE)).to_be_visible()
    expect(chat.history.locator("img, b")).to_have_count(0)
    assert chat.page.evaluate("window.hacked") is None


def test_what_does_not_exist_says_so(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects("404")
    chat.page.goto(f"{stage.url}/#/c/nothing")
    expect(chat.log).to_contain_text("This conversation does not exist, or belongs to somebody else.")


def test_what_was_found_is_opened_at_its_words_and_marked(chat: Chat, stage: Stage) -> None:
    long = "\n\n".join(f"Step {n}: wait." for n in range(60))
    conversation = ask_elsewhere(stage, "How do I make tea?", f"Boil **fresh** `water`.\n\n{long}")
    ask_elsewhere(stage, "And then?", long, conversation)
    ask_elsewhere(stage, "And coffee?")
    chat.search("fresh wat")
    expect(chat.history).to_contain_text("How do I make tea? Boil fresh water. Step 0: wait.")
    chat.conversation("How do I make tea?").click()
    found = chat.answers.first.get_by_text("fresh", exact=True)
    expect(found).to_have_js_property("tagName", "STRONG")  # the Markdown is there
    expect(found).to_be_in_viewport()
    assert chat.page.evaluate(MARKED) == ["fresh", "wat"]
    chat.search("")
    expect(chat.conversation("And coffee?")).to_be_visible()
    assert chat.page.evaluate(MARKED) == []


def test_the_list_notices_what_was_begun_elsewhere(chat: Chat, stage: Stage) -> None:
    chat.page.clock.install()
    chat.reload()
    expect(chat.history).to_contain_text("No conversations yet.")
    conversation = ask_elsewhere(stage, "From a terminal")
    chat.page.clock.fast_forward(8000)
    chat.conversation("From a terminal").click()
    expect(chat.answer).to_contain_text("Good day.")
    ask_elsewhere(stage, "Once more", "Good evening.", conversation)
    chat.page.clock.fast_forward(8000)
    expect(chat.answer).to_contain_text("Good evening.")
    expect(chat.question).to_contain_text("Once more")


def ask_elsewhere(stage: Stage, question: str, answer: str = "Good day.", conversation: str | None = None) -> str:
    """A question that the same user asks in no tab, answered; the id of its conversation."""
    stage.model.says(answer)
    stage.model.ends()
    body = {"message": question, **({"conversation_id": conversation} if conversation else {})}
    events = httpx.post(f"{stage.brain.url}/v1/chat/stream", json=body).text
    found: str = re.findall(r'"conversation_id":"([^"]+)"', events)[0]
    return found


def test_a_hundred_conversations_are_one_stop(chat: Chat, stage: Stage) -> None:
    for n in range(100):
        ask_elsewhere(stage, f"Question {n}")
    chat.reload()
    keys = Keyboard(chat.page)
    expect(chat.conversation("Question 99")).to_be_visible()
    chat.button("More").focus()
    keys.press("Shift+Tab")
    assert keys.focus == "Options for Question 99"
    keys.press("Shift+Tab")
    assert keys.focus == "Question 99"
    keys.press("ArrowDown", "ArrowDown")
    assert keys.focus == "Question 97"
    keys.press("Tab")
    assert keys.focus == "Options for Question 97"
    keys.press("ArrowUp")
    assert keys.focus == "Question 98"
    keys.press("Enter")
    expect(chat.question).to_contain_text("Question 98")
    keys.goes_to("Search conversations", "Shift+Tab")
    keys.press("Tab")
    assert keys.focus == "Question 98"  # the open one
    keys.press("End")
    assert keys.focus == "Question 50"
    keys.press("Tab", "Tab")
    assert keys.focus == "More"
    keys.press("Enter")
    expect(chat.conversation("Question 49")).to_be_focused()
    keys.press("Home")
    assert keys.focus == "Question 99"
    keys.press("ArrowUp")
    assert keys.focus == "Question 99"


def test_older_ones_come_when_one_scrolls_to_them(chat: Chat, stage: Stage) -> None:
    for n in range(60):
        ask_elsewhere(stage, f"Question {n}")
    chat.reload()
    expect(chat.conversation("Question 59")).to_be_visible()
    expect(chat.history.get_by_role("link")).to_have_count(50)
    chat.conversation("Question 10").hover()
    chat.page.mouse.wheel(0, 10_000)
    expect(chat.conversation("Question 0")).to_be_attached()
    expect(chat.button("More")).to_be_hidden()


def test_earlier_messages_come_when_one_scrolls_to_them(chat: Chat, stage: Stage) -> None:
    def part(route: Route) -> None:
        before = re.search(r"before=q(\d+)", route.request.url)
        first = int(before[1]) - 20 if before else 40
        messages = [one for n in range(first, first + 20) for one in message(n)]
        found = {"id": "c1", "title": "Long", "messages": messages, "files": [], "running": False}
        route.fulfill(json={**found, "earlier": f"q{first}" if first else None})

    chat.page.route("**/v1/conversations/c1?*", part)
    chat.page.evaluate("location.hash = '#/c/c1'")
    expect(chat.question).to_contain_text("Question 59?")
    expect(chat.questions).to_have_count(20)
    for count, first in ((40, "Question 40?"), (60, "Question 20?")):
        chat.log.evaluate("node => { node.scrollTop = 0; }")
        expect(chat.questions).to_have_count(count)
        expect(chat.questions.filter(has_text=first)).to_be_in_viewport()
    expect(chat.button("Earlier messages")).to_have_count(0)


def test_what_is_written_later_is_not_searched(chat: Chat, stage: Stage) -> None:
    """Nor does it scroll back to the words."""
    ask_elsewhere(stage, "How do I make tea?", "\n\n".join(f"Boil fresh water. {word}" for word in words(60)))
    chat.page.clock.install()
    chat.reload()
    chat.search("fresh")
    expect(chat.history).to_contain_text("Boil fresh water.")
    chat.conversation("How do I make tea?").click()
    expect(chat.answer.get_by_text("fresh").first).to_be_in_viewport()
    marked = chat.page.evaluate(MARKED)
    assert len(marked) == 60
    chat.page.clock.fast_forward(3000)
    chat.ask("And then?")
    stage.model.says("Fresh milk.")
    expect(chat.answer).to_contain_text("Fresh milk.")
    expect(chat.answer).to_be_in_viewport()
    assert chat.page.evaluate(MARKED) == marked
    stage.model.ends()
    chat.is_idle()
