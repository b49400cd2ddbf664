"""The menu of an answer shows how it was made: for live answers, stored ones and failed ones."""

import pytest
from playwright.sync_api import expect

from brain.errors import ModelError
from page.chat import Chat
from page.server import PageServer, request
from page.texts import error_text, page_text

pytestmark = pytest.mark.chromium


def explained(chat: Chat) -> list[str]:
    """What happened, in the explanation of the last answer."""
    chat.answer.get_by_role("button", name=page_text("answerOptions")).click()
    chat.page.get_by_role("menuitem", name=page_text("explain")).click()
    lines = chat.dialog(page_text("explain")).get_by_role("listitem")
    expect(lines.last).to_be_visible()
    found = lines.locator("p:first-child").all_inner_texts()
    chat.page.keyboard.press("Escape")
    return found


def test_an_answer_is_explained_when_it_is_new_and_when_it_is_opened_again(chat: Chat, server: PageServer) -> None:
    chat.ask("What time is it?")
    server.model.write("Let me see. ", request("clock"), "It is noon.")
    server.model.end()
    chat.wait_until_idle()
    lines = explained(chat)
    steps = ["Request 1 to player", "clock", "Request 2 to player", page_text("explainComplete")]
    assert [line.partition(" {")[0] for line in lines] == steps
    chat.reload()
    assert explained(chat) == lines


def test_a_failed_answer_is_explained(chat: Chat, server: PageServer) -> None:
    chat.ask()
    server.model.write("So", ModelError("model_failed", "It failed."))
    chat.wait_until_idle()
    lines = explained(chat)
    assert error_text("model_failed") in lines[1]
