"""The memory dialog: list, search, correct and delete facts, and switch memory off."""

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Route, expect

from page.chat import Chat
from page.server import HOSTILE, PageServer, request
from page.texts import page_text
from page.visitor import Visitor
from specialists.memory import memory

pytestmark = pytest.mark.chromium

PROTECT = page_text("protect")
FACT = "I drink no coffee"
RECALLED = f"Recalled 1 fact: {FACT}"
SAVE = (request("memory", operation="save_fact", text=FACT), " x")


def open_memory(chat: Chat) -> Locator:
    chat.button("Memory").click()
    return chat.dialog("Memory")


def add_fact(dialog: Locator, text: str, is_protected: bool = False) -> Locator:
    """Add a fact; return its list item."""
    dialog.get_by_role("button", name="Add a fact", exact=True).click()
    dialog.get_by_role("textbox", name="Fact", exact=True).fill(text)
    dialog.get_by_role("checkbox", name=PROTECT, exact=True).set_checked(is_protected)
    dialog.get_by_role("button", name="Add", exact=True).click()
    item = dialog.get_by_role("listitem").filter(has_text=text).first
    expect(item).to_be_visible()
    return item


def test_a_fact_of_an_answer_leads_to_it_and_a_protected_one_is_kept(chat: Chat, server: PageServer) -> None:
    server.add(memory)
    server.answer(chat, f"Remember that {FACT}", *SAVE, "Noted.")
    chat.start_conversation()
    dialog = open_memory(chat)
    item = dialog.get_by_role("listitem")
    expect(item).to_contain_text(FACT)
    dialog.get_by_role("link", name="Show in conversation", exact=True).click()
    expect(dialog).to_be_hidden()
    expect(chat.question).to_contain_text(f"Remember that {FACT}")
    expect(chat.answer).to_contain_text("Noted.")
    open_memory(chat)
    item.get_by_role("button", name="Edit", exact=True).click()
    dialog.get_by_role("checkbox", name=PROTECT, exact=True).check()
    dialog.get_by_role("textbox", name="Fact", exact=True).fill(f"{FACT} at night")
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(dialog.get_by_role("button", name="Save", exact=True)).to_have_count(0)
    expect(item).to_contain_text("Protected")
    chat.page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    server.answer(chat, f"Forget that {FACT}", request("memory", operation="forget", text="coffee"), " x", "No.")
    expect(chat.card("memory").last).to_contain_text("memory failed.")
    expect(chat.button("Approve")).to_have_count(0)
    expect(open_memory(chat).get_by_role("listitem")).to_contain_text(f"{FACT} at night")


def test_facts_are_searched_edited_and_deleted(chat: Chat, server: PageServer) -> None:
    dialog = open_memory(chat)
    expect(dialog).to_contain_text(page_text("noMemory"))
    item = add_fact(dialog, FACT)
    add_fact(dialog, HOSTILE)
    search = dialog.get_by_role("searchbox", name="Search memory", exact=True)
    search.fill("bold")
    expect(dialog.get_by_role("listitem")).to_have_count(1)
    expect(dialog.get_by_role("listitem")).to_contain_text(HOSTILE)
    assert chat.page.locator("dialog img, dialog b").count() == 0
    search.fill("nowhere")
    expect(dialog.get_by_role("status")).to_have_text(page_text("nothingFound"))
    search.fill("")
    item.get_by_role("button", name="Edit", exact=True).click()
    text = dialog.get_by_role("textbox", name="Fact", exact=True)
    expect(text).to_have_value(FACT)
    text.fill("I drink no tea")
    dialog.get_by_role("combobox", name="Category", exact=True).select_option("Knowledge")
    dialog.get_by_role("button", name="Save", exact=True).click()
    item = dialog.get_by_role("region", name="Knowledge", exact=True).get_by_role("listitem")
    expect(item).to_contain_text("I drink no tea")
    expect(item).to_contain_text(f"“{FACT}”")
    item.get_by_role("button", name="Delete", exact=True).click()
    question = chat.dialog("Delete this fact?")
    expect(question).to_contain_text(page_text("deleteItemWhat", text="I drink no tea"))
    question.get_by_role("button", name="Cancel", exact=True).click()
    item.get_by_role("button", name="Delete", exact=True).click()
    question.get_by_role("button", name="Delete", exact=True).click()
    expect(dialog.get_by_role("listitem")).to_have_count(1)
    chat.page.keyboard.press("Escape")
    expect(server.answer(chat, "Coffee or tea?", "Yes.")).not_to_contain_text("no tea")


def test_more_facts_are_loaded_on_demand(chat: Chat, server: PageServer, visitor: Visitor) -> None:
    visitor.allow("Failed to load resource")
    for n in range(51):
        fact = {"text": f"Fact number {n}", "category": "general", "mutable": True}
        assert visitor.context.request.post(f"{server.url}/v1/memory", data=fact).status == 201
    chat.page.route("**/v1/memory*", lambda route: route.abort())
    dialog, address = open_memory(chat), re.compile("before=")
    expect(dialog.get_by_role("alert")).to_contain_text(page_text("unreachable"))
    chat.page.unroute("**/v1/memory*")
    dialog.get_by_role("button", name="Retry", exact=True).click()
    items, more = dialog.get_by_role("listitem"), dialog.get_by_role("button", name="Show more", exact=True)
    expect(items).to_have_count(50)
    server.network.cut()
    more.click()
    expect(dialog.get_by_role("alert")).to_have_text(page_text("unreachable"))
    server.network.restore()
    late: list[Route] = []
    chat.page.route(address, lambda route: late.append(route))
    with chat.page.expect_request(address):
        more.click()
    dialog.get_by_role("searchbox").fill("number 7")
    expect(items.first).to_contain_text("Fact number 7")
    count = items.count()
    with chat.page.expect_response(address) as response:
        late[0].continue_()
    response.value.finished()
    assert items.count() == count  # the late response belongs to another search
    chat.page.unroute(address)
    dialog.get_by_role("searchbox").fill("")
    expect(items.first).to_contain_text("Fact number 50")
    expect(items).to_have_count(50)
    more.click()
    expect(items).to_have_count(51)
    expect(dialog.get_by_role("alert")).to_have_count(0)


def test_a_summary_of_several_conversations_says_so(chat: Chat) -> None:
    item: dict[str, Any] = {
        "id": "m1",
        "kind": "memory",
        "text": "They like jazz",
        "category": None,
        "mutable": True,
        "outside": False,
        "created": "2026-11-20T12:00:00Z",
        "updated": "2026-11-20T12:00:00Z",
        "was": [],
        "conversation_id": None,
    }
    page = {"recall": True, "items": [{**item, "count": 10}, {**item, "id": "m2"}], "next": None}
    empty = {**page, "items": []}
    chat.page.route(
        "**/v1/memory?*", lambda route: route.fulfill(json=page if "kind=memory" in route.request.url else empty)
    )
    items = open_memory(chat).get_by_role("listitem")
    expect(items.nth(0)).to_contain_text("In 10 conversations")
    expect(items.nth(1)).not_to_contain_text("conversation")


def test_a_late_list_does_not_reset_the_switch(chat: Chat) -> None:
    late: list[Route] = []
    chat.page.route("**/v1/memory?*", lambda route: late.append(route))
    with chat.page.expect_request("**/v1/memory?*"):
        dialog = open_memory(chat)
    switch = dialog.get_by_role("switch", name="Use memory in answers", exact=True)
    with chat.page.expect_response(lambda response: response.request.method == "PATCH"):
        switch.uncheck()
    for route in late:
        route.fulfill(json={"items": [], "next": None, "recall": True})
    expect(dialog.get_by_text(page_text("noMemory"))).to_be_visible()
    expect(switch).not_to_be_checked()


def test_memory_is_switched_off_for_a_window_and_for_all(chat: Chat, server: PageServer, visitor: Visitor) -> None:
    other = visitor.open(server.url)
    chat.bring_to_front()
    dialog = open_memory(chat)
    add_fact(dialog, FACT)
    chat.page.keyboard.press("Escape")
    expect(server.answer(chat, "May I have coffee?", "Yes.")).to_contain_text(RECALLED)
    open_memory(chat)
    dialog.get_by_role("switch", name="Use memory in this window", exact=True).uncheck()
    chat.page.keyboard.press("Escape")
    chat.start_conversation()
    expect(server.answer(chat, "More coffee?", "Yes.")).not_to_contain_text("Recalled")
    expect(chat.button("Memory")).to_have_accessible_description("off")
    other.bring_to_front()
    expect(server.answer(other, "Coffee now?", "Yes.")).to_contain_text(RECALLED)
    expect(other.button("Memory")).to_have_accessible_description("")
    chat.bring_to_front()
    open_memory(chat).get_by_role("switch", name="Use memory in answers", exact=True).uncheck()
    expect(other.button("Memory")).to_have_accessible_description("off")
    other.bring_to_front()
    other.start_conversation()
    expect(server.answer(other, "And coffee?", "Yes.")).not_to_contain_text("Recalled")
    dialog = open_memory(other)
    expect(dialog.get_by_role("switch", name="Use memory in answers", exact=True)).not_to_be_checked()
    expect(dialog.get_by_role("switch", name="Use memory in this window", exact=True)).to_be_disabled()
