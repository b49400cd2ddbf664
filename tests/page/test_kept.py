"""What is kept of an answer: the page shows the same when it is opened again as when it was written."""

import re

import httpx
import pytest
from playwright.sync_api import Route, expect

from brain.errors import ModelError
from brain.events import Thinking
from page.chat import Chat
from page.counting import CUT
from page.stage import Stage, request
from page.visitor import Visitor

pytestmark = pytest.mark.chromium

SHOWN = """(article) => {
    const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode()) found.push(walker.currentNode.data.trim());
    return [...found.filter(Boolean), ...[...article.querySelectorAll("button")].map(({ className }) => className)];
}"""
"""All words of an answer, also those that are folded, and its buttons."""


def shown(chat: Chat) -> list[str]:
    expect(chat.answer.locator(".plain:visible")).to_have_count(0)
    words: list[str] = chat.answer.evaluate(SHOWN)
    return words


def test_an_answer_reads_the_same_when_it_is_opened_again(chat: Chat, stage: Stage) -> None:
    httpx.post(f"{stage.url}/v1/memory", json={"text": "I like libraries"})
    stage.library.set()
    chat.ask("Which libraries are there?")
    stage.model.says(Thinking("Let me "), Thinking("see."), "I **look**.\n\n")
    stage.model.says(*(request("wiki", title=title) for title in ("Bern", "Bern")), request("breaks"), " x")
    expect(chat.call("breaks")).to_contain_text("breaks failed: ")
    stage.model.says("They have one. ", Thinking("Burn it?"), "Now:\n\n", request("burns", title="Emma"), " x")
    chat.approve("burns")
    stage.model.says(request("burns", title="Ada"), " x")
    chat.call("burns").last.get_by_role("button", name="Decline", exact=True).click()
    stage.model.says("One is left.")
    stage.model.ends()
    chat.is_idle()
    written = shown(chat)
    assert {"Recalled 1 fact: I like libraries", "Let me see.", "Burn it?", "look"} <= set(written)
    assert any(words.startswith("approved · ") for words in written)
    assert any(words.startswith("player · ") and words.endswith(" tokens") for words in written)
    chat.reload()
    expect(chat.answer).to_contain_text("One is left.")
    assert shown(chat) == written


@pytest.mark.parametrize("recoverable", [True, False])
def test_a_failure_reads_the_same_when_it_is_opened_again(chat: Chat, stage: Stage, recoverable: bool) -> None:
    chat.ask()
    stage.model.says("Well, ", ModelError("model_failed", "It does not fit.", recoverable=recoverable))
    chat.is_idle()
    written = shown(chat)
    assert written[:2] == ["Well,", "It does not fit."]
    expect(chat.answer.get_by_role("button", name="Retry", exact=True)).to_have_count(int(recoverable))
    chat.reload()
    expect(chat.answer).to_contain_text("It does not fit.")
    assert shown(chat) == written


def test_numbers_too_large_to_count_with_are_shown_and_parameters_exactly(chat: Chat, stage: Stage) -> None:
    stage.library.set()
    chat.ask()
    stage.model.says(request("wiki", title="Bern"), " x")
    stage.model.says("It is a town.")
    stage.model.ends()
    chat.is_idle()
    large = r"\g<1>1" + "0" * 30

    def alter(route: Route) -> None:
        text = re.sub(r'("(?:total_ms|ms|completion_tokens)":)\d+', large, route.fetch().text())
        route.fulfill(body=text.replace('{"title":"Bern"}', '{"title":12345678901234567890.50}'))

    chat.page.route("**/v1/conversations/*?*", alter)
    chat.reload()
    expect(chat.answer).to_contain_text("It is a town.")
    expect(chat.call("wiki")).to_contain_text("12345678901234567890.50")
    expect(chat.answer).to_contain_text("tokens")


def test_files_have_the_same_names_when_they_are_opened_again(chat: Chat, stage: Stage) -> None:
    names = ["a/b.txt", "c:\\d.txt", "e\tf\u202e  g.txt", f"{'h' * 250}.txt", "i/"]
    chat.drop(*((name, "text/plain", "x") for name in names))
    stage.model.says("Read.")
    stage.model.ends()
    chat.ask()
    chat.is_idle()
    shown = chat.question.get_by_role("listitem").locator(".name")
    expect(shown).to_have_text(["b.txt", "d.txt", "e f g.txt", "h" * 200, "file"])
    chat.reload()
    expect(shown).to_have_text(["b.txt", "d.txt", "e f g.txt", "h" * 200, "file"])


def test_what_is_kept_is_rendered_when_the_server_is_back(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects(CUT)
    chat.ask("count")
    stage.model.says("one **two**")
    stage.model.ends()
    chat.is_idle()
    failing = [True]
    chat.page.route("**/answer/markdown.js", lambda route: route.abort() if failing else route.continue_())
    with chat.page.expect_event("requestfailed"):
        chat.reload()
    expect(chat.answer).to_contain_text("one **two**")
    failing.clear()
    expect(chat.answer.get_by_role("strong")).to_have_text("two")


def test_a_large_text_that_is_kept_is_rendered(chat: Chat, stage: Stage) -> None:
    chat.ask("count")
    stage.model.says(
        "".join(f"**{chr(0x4E00 + n)}\u4e8c\u4e8c\u4e8c\u4e8c\u4e8c\u4e8c\u4e8c**\n\n" for n in range(5000))
    )
    stage.model.ends()
    chat.is_idle()
    chat.reload()
    expect(chat.answer.get_by_role("strong")).to_have_count(5000, timeout=20_000)
