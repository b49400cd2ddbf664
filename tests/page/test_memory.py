"""What is remembered of a person: seen, searched, corrected, deleted, left out."""

import re

import pytest
from playwright.sync_api import Locator, Route, expect

from page.chat import Chat
from page.stage import Stage, request
from page.visitor import Visitor
from specialists.memory import memory

pytestmark = pytest.mark.chromium

PROTECT = "Protected: only you may change or delete it"
RECALLED = "Recalled 1 fact: I drink no coffee"


def opened(chat: Chat) -> Locator:
    chat.button("Memory").click()
    return chat.page.get_by_role("dialog", name="Memory", exact=True)


def add(dialog: Locator, text: str, protected: bool = False) -> Locator:
    """Writes a fact down; its place in the list."""
    dialog.get_by_role("button", name="Add a fact", exact=True).click()
    dialog.get_by_role("textbox", name="Fact", exact=True).fill(text)
    dialog.get_by_role("checkbox", name=PROTECT, exact=True).set_checked(protected)
    dialog.get_by_role("button", name="Add", exact=True).click()
    item = dialog.get_by_role("listitem").filter(has_text=text).first
    expect(item).to_be_visible()
    return item


def answered(chat: Chat, stage: Stage, question: str) -> Locator:
    answer = chat.ask(question)
    stage.model.says("Yes.")
    stage.model.ends()
    chat.is_idle()
    expect(answer).to_contain_text("Yes.")
    return answer


def test_what_was_said_is_kept_and_leads_to_where_it_was_said(chat: Chat, stage: Stage) -> None:
    stage.brain.engine.registry.add(memory)
    chat.ask("Remember that I drink no coffee")
    stage.model.says(request("memory", operation="save_fact", text="I drink no coffee"), " x")
    expect(chat.call("memory")).to_be_visible()
    stage.model.says("Noted.")
    stage.model.ends()
    chat.is_idle()
    chat.begin_anew()
    dialog = opened(chat)
    fact = dialog.get_by_role("listitem")
    expect(fact).to_contain_text("I drink no coffee")
    fact.get_by_role("link", name="where it was said", exact=True).click()
    expect(dialog).to_be_hidden()
    expect(chat.question).to_contain_text("Remember that I drink no coffee")
    expect(chat.answer).to_contain_text("Noted.")


def test_search(chat: Chat) -> None:
    dialog = opened(chat)
    expect(dialog).to_contain_text("Nothing is remembered yet.")
    add(dialog, "I drink no coffee")
    add(dialog, "My sister lives in Bergen")
    search = dialog.get_by_role("searchbox", name="Search facts and memories", exact=True)
    search.fill("sister")
    expect(dialog.get_by_role("listitem")).to_have_count(1)
    expect(dialog.get_by_role("listitem")).to_contain_text("Bergen")
    search.fill("nowhere")
    expect(dialog.get_by_role("status")).to_have_text("Nothing was found.")
    search.fill("")
    expect(dialog.get_by_role("listitem")).to_have_count(2)


def test_edit_tells_what_it_was_and_delete_asks_first(chat: Chat, stage: Stage) -> None:
    dialog = opened(chat)
    item = add(dialog, "I drink no coffee")
    item.get_by_role("button", name="Edit", exact=True).click()
    text = dialog.get_by_role("textbox", name="Text", exact=True)
    expect(text).to_have_value("I drink no coffee")
    text.fill("I drink no tea")
    dialog.get_by_role("combobox", name="Category", exact=True).select_option("Knowledge")
    dialog.get_by_role("button", name="Save", exact=True).click()
    item = dialog.get_by_role("region", name="Knowledge", exact=True).get_by_role("listitem")
    expect(item).to_contain_text("I drink no tea")
    expect(item).to_contain_text("Before: “I drink no coffee”, until")
    item.get_by_role("button", name="Delete", exact=True).click()
    question = chat.page.get_by_role("dialog", name="Delete this fact?", exact=True)
    expect(question).to_contain_text("“I drink no tea” will not be used in answers any more.")
    question.get_by_role("button", name="Cancel", exact=True).click()
    expect(item).to_be_visible()
    item.get_by_role("button", name="Delete", exact=True).click()
    question.get_by_role("button", name="Delete", exact=True).click()
    expect(dialog).to_contain_text("Nothing is remembered yet.")
    chat.page.keyboard.press("Escape")
    expect(answered(chat, stage, "Coffee or tea?")).not_to_contain_text("Recalled")


def test_what_is_protected_is_changed_by_its_user_alone(chat: Chat, stage: Stage) -> None:
    stage.brain.engine.registry.add(memory)
    dialog = opened(chat)
    item = add(dialog, "I drink no coffee", protected=True)
    expect(item).to_contain_text("Protected")
    chat.page.keyboard.press("Escape")
    chat.ask("Forget that I drink no coffee")
    stage.model.says(request("memory", operation="forget", text="coffee"), " x")
    expect(chat.call("memory")).to_contain_text("memory was not run:")
    expect(chat.button("Approve")).to_have_count(0)
    stage.model.ends()
    chat.is_idle()
    opened(chat)
    item.get_by_role("button", name="Edit", exact=True).click()
    expect(dialog.get_by_role("checkbox", name=PROTECT, exact=True)).to_be_checked()
    dialog.get_by_role("textbox", name="Text", exact=True).fill("I drink no coffee at night")
    dialog.get_by_role("button", name="Save", exact=True).click()
    changed = dialog.get_by_role("listitem").filter(has_text="I drink no coffee at night")
    expect(changed).to_contain_text("Protected")


def remember(visitor: Visitor, stage: Stage, count: int) -> None:
    for n in range(count):
        fact = {"text": f"Fact number {n}", "category": "general", "mutable": True}
        assert visitor.context.request.post(f"{stage.url}/v1/memory", data=fact).status == 201


def test_more_that_cannot_be_fetched_says_so(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects("net::")
    remember(visitor, stage, 51)
    dialog = opened(chat)
    expect(dialog.get_by_role("listitem")).to_have_count(50)
    more = dialog.get_by_role("button", name="More", exact=True)
    stage.line.cut()
    more.click()
    expect(dialog.get_by_role("alert")).to_have_text("The server could not be reached.")
    stage.line.restore()
    more.click()
    expect(dialog.get_by_role("listitem")).to_have_count(51)
    expect(dialog.get_by_role("alert")).to_have_count(0)


def test_more_of_what_is_looked_for_no_longer_is_not_shown(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    remember(visitor, stage, 51)
    late: list[Route] = []
    dialog = opened(chat)
    chat.page.route(re.compile("before="), lambda route: late.append(route))
    dialog.get_by_role("button", name="More", exact=True).click()
    dialog.get_by_role("searchbox").fill("number 50")
    first = dialog.get_by_role("listitem").first
    expect(first).to_contain_text("Fact number 50")
    count = dialog.get_by_role("listitem").count()
    with chat.page.expect_response(re.compile("before=")) as response:
        late[0].continue_()
    response.value.finished()
    assert dialog.get_by_role("listitem").count() == count


def test_recall_is_switched_off_for_a_window_and_for_all(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    dialog = opened(chat)
    add(dialog, "I drink no coffee")
    chat.page.keyboard.press("Escape")
    expect(answered(chat, stage, "May I have coffee?")).to_contain_text(RECALLED)
    opened(chat)
    dialog.get_by_role("switch", name="Not in this window", exact=True).check()
    chat.page.keyboard.press("Escape")
    chat.begin_anew()
    expect(answered(chat, stage, "More coffee?")).not_to_contain_text("Recalled")
    expect(chat.button("Memory")).to_have_accessible_description("off")
    other = visitor.opens(stage.url)
    expect(answered(other, stage, "Coffee now?")).to_contain_text(RECALLED)
    dialog = opened(other)
    with other.page.expect_response("**/v1/memory"):
        dialog.get_by_role("switch", name="Use memory in answers", exact=True).uncheck()
    other.page.keyboard.press("Escape")
    other.begin_anew()
    expect(answered(other, stage, "And coffee?")).not_to_contain_text("Recalled")
    opened(other)
    expect(dialog.get_by_role("switch", name="Use memory in answers", exact=True)).not_to_be_checked()
    expect(dialog.get_by_role("switch", name="Not in this window", exact=True)).to_be_disabled()


@pytest.mark.parametrize(("switch", "on"), [("Not in this window", True), ("Use memory in answers", False)])
def test_what_is_left_out_is_not_asked_either(chat: Chat, stage: Stage, switch: str, on: bool) -> None:
    stage.brain.engine.registry.add(memory)
    chat.reload()
    expect(chat.button("Memory")).to_have_accessible_description("")
    dialog = opened(chat)
    dialog.get_by_role("switch", name=switch, exact=True).set_checked(on)
    chat.page.keyboard.press("Escape")
    expect(chat.button("Memory")).to_have_accessible_description("off")
    chat.reload()
    expect(chat.button("Memory")).to_have_accessible_description("off")
    chat.ask("Remember that I drink no coffee")
    stage.model.says(request("memory", operation="save_fact", text="I drink no coffee"), " x")
    expect(chat.call("memory")).to_contain_text("memory was not run: it may not be asked here")
    stage.model.ends()
    chat.is_idle()
    expect(opened(chat)).to_contain_text("Nothing is remembered yet.")


def test_that_memory_is_off_is_known_in_other_tabs(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    other = visitor.opens(stage.url)
    opened(chat).get_by_role("switch", name="Use memory in answers", exact=True).uncheck()
    expect(other.button("Memory")).to_have_accessible_description("off")


def test_a_memory_that_cannot_be_reached_says_so(chat: Chat, visitor: Visitor) -> None:
    visitor.expects("Failed to load resource")
    chat.page.route("**/v1/memory*", lambda route: route.abort())
    dialog = opened(chat)
    expect(dialog.get_by_role("alert")).to_contain_text("The server could not be reached.")
    chat.page.unroute("**/v1/memory*")
    dialog.get_by_role("button", name="Retry", exact=True).click()
    expect(dialog).to_contain_text("Nothing is remembered yet.")
