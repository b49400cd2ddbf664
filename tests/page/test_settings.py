"""What a person sets up, and what stays of it; what the page says of itself."""

import pytest
from playwright.sync_api import Browser, expect

from page.chat import Chat
from page.keyboard import Keyboard
from page.stage import Stage
from page.test_signing_in import sign_in
from page.visitor import DARK, PHONE, Visitor

pytestmark = pytest.mark.chromium

KEYS = pytest.mark.parametrize("stage", [{"KEYS": "s3cret:ann,0ther:bob"}], indirect=True)
FIRST = "requestAnimationFrame(() => { window.first = getComputedStyle(document.body).backgroundColor; });"
GROUND = "getComputedStyle(document.body).backgroundColor"
LIGHT_GROUND, DARK_GROUND = "rgb(251, 250, 248)", "rgb(22, 23, 25)"


def choose(chat: Chat, name: str) -> None:
    chat.button("Settings").click()
    chat.page.get_by_role("dialog", name="Settings", exact=True).get_by_role("radio", name=name, exact=True).check()
    chat.page.keyboard.press("Escape")


@pytest.mark.parametrize(
    ("visitor", "name", "first", "then"),
    [({}, "Dark", LIGHT_GROUND, DARK_GROUND), (DARK, "Light", DARK_GROUND, LIGHT_GROUND)],
    ids=["dark", "light"],
    indirect=["visitor"],
)
def test_colours_stay_and_are_there_from_the_first_paint(chat: Chat, name: str, first: str, then: str) -> None:
    assert chat.page.evaluate(GROUND) == first
    choose(chat, name)
    assert chat.page.evaluate(GROUND) == then
    chat.page.add_init_script(FIRST)
    chat.reload()
    assert chat.page.evaluate("window.first") == then
    assert chat.page.evaluate(GROUND) == then


def test_colours_as_the_system_has_them_change_with_it(chat: Chat) -> None:
    choose(chat, "Dark")
    choose(chat, "As the system")
    for scheme, ground in (("dark", DARK_GROUND), ("light", LIGHT_GROUND)):
        chat.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert chat.page.evaluate(GROUND) == ground
    chat.reload()
    assert chat.page.evaluate(GROUND) == LIGHT_GROUND


def test_enter_begins_a_new_line_for_who_wants_that(chat: Chat, stage: Stage) -> None:
    choose(chat, "Starts a new line (Ctrl+Enter sends)")
    expect(chat.page.get_by_role("main")).to_contain_text("Ctrl+Enter sends, Enter starts a new line")
    chat.reload()
    keys = Keyboard(chat.page)
    keys.writes("one")
    keys.press("Enter")
    keys.writes("two")
    expect(chat.box).to_have_value("one\ntwo")
    keys.press("Control+Enter")
    assert stage.model.question() == "one\ntwo"


def test_the_keys_are_listed(chat: Chat) -> None:
    chat.page.keyboard.press("Control+/")
    dialog = chat.page.get_by_role("dialog", name="Settings", exact=True)
    keys = [text.replace("\n", " ") for text in dialog.get_by_role("definition").all_inner_texts()]
    assert dict(zip(dialog.get_by_role("term").all_inner_texts(), keys, strict=True)) == {
        "Send, or add to the answer while Brain writes": "Enter",
        "New line": "Shift Enter",
        "Stop": "Esc",
        "New conversation": "Ctrl Shift O",
        "Search conversations": "Ctrl K",
        "Show or hide the conversations": "Ctrl Shift S",
        "Settings and keyboard": "Ctrl /",
    }


@pytest.mark.parametrize("visitor", [PHONE], indirect=True)
def test_where_a_finger_points_there_are_no_keys(chat: Chat) -> None:
    chat.button("Settings").tap()
    dialog = chat.page.get_by_role("dialog", name="Settings", exact=True)
    expect(dialog.get_by_role("radio", name="Starts a new line", exact=True)).to_be_checked()
    expect(dialog).not_to_contain_text("Ctrl")


@KEYS
def test_who_signs_out_leaves_nothing_behind(stage: Stage, visitor: Visitor) -> None:
    visitor.expects("401")
    chat = Chat(visitor.context.new_page())
    chat.page.goto(stage.url)
    sign_in(chat, "s3cret")
    chat.ask("My secret")
    stage.model.says("I keep it.")
    stage.model.ends()
    chat.is_idle()
    expect(chat.conversation("My secret")).to_be_visible()
    chat.box.fill("a draft")
    chat.button("Settings").click()
    dialog = chat.page.get_by_role("dialog", name="Settings", exact=True)
    expect(dialog).to_contain_text("Signed in as ann")
    dialog.get_by_role("button", name="Sign out", exact=True).click()
    sign_in(chat, "0ther")
    expect(chat.history).to_contain_text("No conversations yet.")
    expect(chat.page.locator("body")).not_to_contain_text("secret")
    expect(chat.box).to_have_value("")
    kept = chat.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert "draft" not in kept


@KEYS
def test_a_question_waits_while_the_key_is_asked_for_and_is_given_back(stage: Stage, visitor: Visitor) -> None:
    visitor.expects("401")
    chat = Chat(visitor.context.new_page())
    chat.page.goto(stage.url)
    sign_in(chat, "s3cret")
    visitor.context.clear_cookies()
    dialog = chat.page.get_by_role("dialog", name="This server asks for a key", exact=True)
    chat.ask("hello")
    expect(dialog).to_be_visible()
    chat.page.keyboard.press("Escape")  # stops
    expect(dialog).to_be_hidden()
    chat.is_idle()
    expect(chat.box).to_have_value("hello")
    expect(chat.log.get_by_role("alert")).not_to_be_empty()
    assert stage.model.asked == []
    chat.box.press("Enter")
    sign_in(chat, "s3cret")
    assert stage.model.question() == "hello"
    stage.model.ends()
    chat.is_idle()
    expect(chat.questions).to_have_count(1)


def test_without_javascript_the_page_says_what_it_needs(browser: Browser, stage: Stage) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(stage.url)
    expect(page.locator("noscript p")).to_contain_text("needs JavaScript")
    expect(page.locator("noscript p")).to_be_visible()
    context.close()


def test_where_nothing_may_be_kept_the_page_works(stage: Stage, visitor: Visitor) -> None:
    forbidden = "{ get() { throw new DOMException('no', 'SecurityError'); } }"
    for storage in ("localStorage", "sessionStorage"):
        visitor.context.add_init_script(f"Object.defineProperty(window, '{storage}', {forbidden});")
    chat = visitor.opens(stage.url)
    expect(chat.history).to_be_visible()
    chat.ask()
    stage.model.says("Good day.")
    stage.model.ends()
    expect(chat.answer).to_contain_text("Good day.")
    chat.is_idle()
