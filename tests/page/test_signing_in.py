"""Who may ask, and whom: keys, models, specialists."""

import re

import pytest
from playwright.sync_api import Locator, expect

from page.chat import Chat
from page.counting import CUT, RECONNECTS, says, text_of
from page.stage import Conductor, Stage
from page.visitor import Visitor

pytestmark = pytest.mark.chromium

KEYS = pytest.mark.parametrize("stage", [{"KEYS": "s3cret:ann,0ther:bob"}], indirect=True)


def dialog_of(chat: Chat) -> Locator:
    return chat.page.get_by_role("dialog", name="This server asks for a key", exact=True)


def sign_in(chat: Chat, key: str) -> None:
    dialog_of(chat).get_by_label("Key", exact=True).fill(key)
    dialog_of(chat).get_by_role("button", name="Sign in", exact=True).click()
    expect(dialog_of(chat)).to_be_hidden()
    chat.is_ready()


def sign_out(chat: Chat) -> None:
    chat.button("Settings").click()
    chat.page.get_by_role("dialog", name="Settings", exact=True).get_by_role("button", name="Sign out").click()


def opened(stage: Stage, visitor: Visitor) -> Chat:
    """A tab, without waiting for what is only there for who signed in."""
    visitor.expects("401")
    chat = Chat(visitor.context.new_page())
    chat.page.goto(stage.url)
    return chat


def wrote(chat: Chat, stage: Stage) -> Chat:
    """Somebody has asked, and begun to write."""
    chat.ask("My secret")
    stage.model.ends()
    chat.is_idle()
    expect(chat.conversation("My secret")).to_be_visible()
    chat.box.fill("a draft")
    return chat


def shows_nothing(chat: Chat) -> None:
    expect(chat.page.locator("body")).not_to_contain_text("secret")
    expect(chat.box).to_have_value("")
    assert chat.page.evaluate("sessionStorage.getItem('brain.draft')") is None


@KEYS
def test_a_key_is_asked_for_once_and_kept_by_no_script(stage: Stage, visitor: Visitor) -> None:
    chat = opened(stage, visitor)
    page, dialog = chat.page, dialog_of(chat)
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


@KEYS
def test_who_signs_out_does_so_in_all_tabs(stage: Stage, visitor: Visitor) -> None:
    chat = opened(stage, visitor)
    sign_in(chat, "s3cret")
    wrote(chat, stage)
    chat.page.evaluate("sessionStorage.setItem('other', 'stays')")  # of who mounted Brain beside their own pages
    other = visitor.opens(chat.page.url)
    expect(other.question).to_contain_text("My secret")
    other.box.fill("another draft")
    sign_out(chat)
    for tab in (chat, other):
        expect(dialog_of(tab)).to_be_visible()
        shows_nothing(tab)
    assert chat.page.evaluate("sessionStorage.getItem('other')") == "stays"
    sign_in(chat, "0ther")
    expect(dialog_of(other)).to_be_hidden()  # one key is enough
    other.is_ready()
    shows_nothing(other)


@KEYS
def test_a_tab_that_slept_is_not_shown_to_somebody_else(stage: Stage, visitor: Visitor) -> None:
    chat = opened(stage, visitor)
    sign_in(chat, "s3cret")
    wrote(chat, stage)
    visitor.context.request.post(f"{stage.url}/v1/session", data={"key": "0ther"})  # of which no tab is told
    visitor.expects("404")  # of the conversation, which is not theirs
    chat.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    shows_nothing(chat)
    chat.is_ready()
    expect(chat.history).to_contain_text("No conversations yet.")


@KEYS
def test_who_does_not_sign_in_again_loses_nothing(stage: Stage, visitor: Visitor) -> None:
    chat = opened(stage, visitor)
    sign_in(chat, "s3cret")
    visitor.expects(CUT)
    answer = chat.ask("count")
    says(stage, "one")
    expect(answer).to_contain_text("one")
    visitor.context.clear_cookies()
    stage.line.cut()
    stage.line.restore()
    expect(dialog_of(chat)).to_be_visible(timeout=RECONNECTS)
    chat.page.keyboard.press("Escape")
    expect(chat.page.get_by_text("The connection is lost; it comes back by itself.")).to_be_visible()
    expect(dialog_of(chat)).to_be_hidden()  # nor is asked for again at once
    expect(chat.button("Stop")).to_be_visible()
    says(stage, "two")
    stage.model.ends()
    chat.look_again()
    sign_in(chat, "s3cret")
    chat.look_again()
    chat.is_idle()
    assert text_of(chat) == "one two"


@KEYS
def test_the_key_is_asked_for_again_when_something_is_sent_without(stage: Stage, visitor: Visitor) -> None:
    chat = opened(stage, visitor)
    expect(dialog_of(chat)).to_be_visible()
    chat.page.keyboard.press("Escape")
    expect(chat.alert.filter(has_text="You are not signed in.")).to_be_visible()
    expect(chat.log.get_by_role("button", name="Sign in", exact=True)).to_be_focused()
    chat.box.fill("hello")
    chat.box.press("Enter")
    sign_in(chat, "s3cret")
    assert stage.model.question() == "hello"
    stage.model.ends()
    chat.is_idle()
    expect(chat.box).to_have_value("")


def test_what_other_pages_of_the_host_say_does_no_harm(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    other = visitor.opens(stage.url)
    for said in ("null", "7", "'text'", "[]", "{ user: 7 }"):
        other.page.evaluate(f"new BroadcastChannel('brain ' + location.pathname).postMessage({said})")
    chat.ask()
    stage.model.ends()
    chat.is_idle()


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
    stage.model.is_demo = True
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
    expect(chat.call("wiki")).to_contain_text("wiki was not run:")
    stage.model.ends()
    chat.is_idle()
    chat.reload()
    chat.page.get_by_role("button", name=re.compile("^Specialists")).click()
    expect(dialog.get_by_role("switch", name="wiki", exact=True)).not_to_be_checked()
