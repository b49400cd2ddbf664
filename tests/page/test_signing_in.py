"""Who may ask, and whom: keys, models, specialists."""

import re

import pytest
from playwright.sync_api import expect

from page.chat import Chat
from page.stage import Conductor, Stage
from page.visitor import Visitor

pytestmark = pytest.mark.chromium

KEYS = pytest.mark.parametrize("stage", [{"KEYS": "s3cret:ann"}], indirect=True)


@KEYS
def test_a_key_is_asked_for_once_and_kept_by_no_script(stage: Stage, visitor: Visitor) -> None:
    visitor.expects("401")
    page = visitor.context.new_page()
    page.goto(stage.url)
    chat, dialog = Chat(page), page.get_by_role("dialog", name="This server asks for a key", exact=True)
    key = dialog.get_by_label("Key", exact=True)
    expect(key).to_be_focused()
    expect(key).to_have_attribute("type", "password")
    key.fill("wrong")
    key.press("Enter")
    expect(dialog.get_by_role("alert")).not_to_be_empty()
    key.fill("s3cret")
    key.press("Enter")
    expect(dialog).to_be_hidden()
    chat.is_ready()
    answer = chat.ask()
    stage.model.says("welcome")
    expect(answer).to_contain_text("welcome")
    stage.model.ends()
    chat.is_idle()
    chat.reload()
    expect(chat.answer).to_contain_text("welcome")
    expect(dialog).to_be_hidden()
    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    assert "s3cret" not in kept


@pytest.mark.parametrize(
    "stage", [{"MODEL": "builtin,openai:second", "MODEL_URL": "http://127.0.0.1:9"}], indirect=True
)
def test_a_model_is_chosen(stage: Stage, visitor: Visitor) -> None:
    second = Conductor(stage.brain.loop, "second")
    stage.brain.play(stage.model, second)
    chat = visitor.opens(stage.url)
    chat.choose_model("second")
    answer = chat.ask()
    second.says("I am the second.")
    second.ends()
    chat.is_idle()
    expect(answer).to_contain_text("I am the second.")
    expect(answer).to_contain_text("second ·")
    assert stage.model.asked == []


def test_a_stand_in_says_that_it_is_one(chat: Chat, stage: Stage) -> None:
    stage.model.stand_in = True
    chat.reload()
    expect(chat.page.get_by_role("main")).to_contain_text("No language model is connected")
    chat.ask()
    stage.model.says("Hello.")
    stage.model.ends()
    chat.is_idle()
    expect(chat.answer).to_contain_text("(stand-in)")


def test_specialists_are_listed_and_switched_off(chat: Chat, stage: Stage) -> None:
    chat.button("Specialists").click()
    dialog = chat.page.get_by_role("dialog", name="Specialists", exact=True)
    rows = dialog.get_by_role("listitem")
    expect(rows.filter(has_text="burns")).to_contain_text("Asks you before it acts")
    expect(rows.filter(has_text="moon")).to_contain_text("Not available: it needs a moon: buy one")
    expect(dialog.get_by_role("switch", name="moon", exact=True)).to_be_disabled()
    dialog.get_by_role("switch", name="wiki", exact=True).uncheck()
    chat.page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    chat.ask()
    stage.model.says('SPECIALIST_REQUEST[wiki:{"title":"Bern"}]', " x")
    expect(chat.call("wiki")).to_contain_text("wiki could not be run:")
    stage.model.ends()
    chat.is_idle()
    chat.reload()
    chat.page.get_by_role("button", name=re.compile("^Specialists")).click()
    expect(dialog.get_by_role("switch", name="wiki", exact=True)).not_to_be_checked()
