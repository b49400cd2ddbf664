"""Sign-in and settings."""

import re

import pytest
from playwright.sync_api import Browser, Locator, expect

from page.chat import Chat, hold_request
from page.network import Network
from page.server import PageServer
from page.texts import page_text
from page.visitor import NEW, PHONE, Visitor

pytestmark = pytest.mark.chromium

KEYS = pytest.mark.parametrize("server", [{"KEYS": "s3cret:ann,0ther:bob"}], indirect=True)
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
FIRST_PAINT = "requestAnimationFrame(() => { window.first = getComputedStyle(document.body).backgroundColor; });"
LIGHT, DARK = "rgb(251, 250, 248)", "rgb(22, 23, 25)"


# signing in


def sign_in_dialog(chat: Chat) -> Locator:
    return chat.dialog("Sign in")


def sign_in(chat: Chat, key: str) -> None:
    sign_in_dialog(chat).get_by_label("API key", exact=True).fill(key)
    sign_in_dialog(chat).get_by_role("button", name="Sign in", exact=True).click()
    expect(sign_in_dialog(chat)).to_be_hidden()
    chat.wait_until_ready()


def check_blank(chat: Chat) -> None:
    """Check that no data of another person is left."""
    expect(chat.page.locator("body")).not_to_contain_text("secret")
    expect(chat.box).to_have_value("")
    assert chat.page.evaluate("sessionStorage.getItem('brain.draft')") is None


@KEYS
def test_a_person_signs_in_once_in_all_tabs(server: PageServer, visitor: Visitor) -> None:
    visitor.allow("401", "404")
    chat = visitor.visit(server.url)
    dialog = sign_in_dialog(chat)
    key = dialog.get_by_label("API key", exact=True)
    expect(key).to_be_focused()
    expect(key).to_have_attribute("type", "password")
    key.fill("wrong")
    key.press("Enter")
    expect(dialog.get_by_role("alert")).not_to_be_empty()
    sign_in(chat, "s3cret")
    server.answer(chat, "My secret", "welcome")
    expect(chat.conversation("My secret")).to_be_visible()
    chat.box.fill("a draft")
    chat.page.evaluate("sessionStorage.setItem('other', 'stays')")  # of an app that mounts Brain
    other = visitor.open(chat.page.url)
    expect(other.answer).to_contain_text("welcome")
    other.box.fill("another draft")
    stored = chat.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    assert "s3cret" not in stored
    chat.bring_to_front()
    chat.button("Settings").click()
    settings = chat.dialog("Settings")
    expect(settings).to_contain_text("Signed in as ann")
    settings.get_by_role("button", name="Sign out", exact=True).click()
    for tab in (chat, other):
        expect(sign_in_dialog(tab)).to_be_visible()
        check_blank(tab)
    assert chat.page.evaluate("sessionStorage.getItem('other')") == "stays"
    sign_in(chat, "0ther")
    expect(sign_in_dialog(other)).to_be_hidden()
    for tab in (chat, other):
        tab.wait_until_ready()
        expect(tab.history).to_contain_text(page_text("noConversations"))
        check_blank(tab)
    server.answer(chat, "Bob's words")
    chat.box.fill("a draft of Bob's")
    visitor.context.request.post(f"{server.url}/v1/session", data={"key": "s3cret"})  # no tab gets this news
    chat.show()  # after the machine slept
    expect(chat.conversation("My secret")).to_be_visible()
    expect(chat.page.locator("body")).not_to_contain_text("Bob")
    expect(chat.box).to_have_value("")


@KEYS
def test_a_lost_session_loses_neither_message_nor_answer(server: PageServer, visitor: Visitor) -> None:
    visitor.allow("401", "net::")
    chat = visitor.visit(server.url)
    expect(sign_in_dialog(chat)).to_be_visible()
    chat.page.keyboard.press("Escape")
    expect(chat.alert.filter(has_text=page_text("notSignedIn"))).to_be_visible()
    expect(chat.log.get_by_role("button", name="Sign in", exact=True)).to_be_focused()
    chat.box.fill("first")
    chat.box.press("Enter")
    sign_in(chat, "s3cret")
    assert server.model.questions() == ["first"]
    server.model.write("One ")
    expect(chat.answer).to_contain_text("One")
    visitor.context.clear_cookies()
    with chat.page.expect_request("**/v1/tasks/events?*"):  # the page follows its tasks again, after three seconds
        server.network.cut()
        server.network.restore()
        expect(sign_in_dialog(chat)).to_be_visible()  # in the middle of the answer
        server.model.write("two.")
        server.model.end()
        sign_in(chat, "s3cret")
        expect(chat.answer).to_contain_text("One two.")
        chat.wait_until_idle()
    turn = hold_request(chat.page, re.compile(r"/v1/turns$"), lambda: chat.ask("second"))
    visitor.context.clear_cookies()  # only now: the dialog would take what is typed if another request opened it
    turn.continue_()
    expect(sign_in_dialog(chat)).to_be_visible()
    chat.page.keyboard.press("Escape")
    expect(sign_in_dialog(chat)).to_be_hidden()
    expect(chat.box).to_have_value("second")
    expect(chat.log.get_by_role("alert")).not_to_be_empty()
    assert len(server.model.requests) == 1
    chat.box.press("Enter")
    sign_in(chat, "s3cret")
    server.model.write("Yes.")
    server.model.end()
    expect(chat.questions).to_have_count(2)


@KEYS
def test_a_response_from_before_the_sign_in_does_not_ask_again(server: PageServer, visitor: Visitor) -> None:
    visitor.allow("401")
    chat = visitor.visit(server.url)
    sign_in(chat, "s3cret")
    server.answer(chat, "first", "One.")
    visitor.context.clear_cookies()
    address = re.compile(r"/v1/conversations\?.*q=first")
    search = hold_request(chat.page, address, lambda: chat.search("first"))
    rejection = search.fetch()
    assert rejection.status == 401
    chat.button("Memory").click()
    sign_in(chat, "s3cret")
    with chat.page.expect_request(address):
        search.fulfill(response=rejection)
    expect(sign_in_dialog(chat)).to_be_hidden()


# settings


@pytest.mark.parametrize("visitor", [NEW], indirect=True)
def test_colours_stay_from_the_first_paint(chat: Chat) -> None:
    chat.page.add_init_script(FIRST_PAINT)
    for scheme, name, before, after in (("light", "Dark", LIGHT, DARK), ("dark", "Light", DARK, LIGHT)):
        chat.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        choose(chat, "System")
        assert chat.page.evaluate(BACKGROUND) == before
        choose(chat, name)
        assert chat.page.evaluate(BACKGROUND) == after
        chat.reload()
        assert chat.page.evaluate("window.first") == after


def choose(chat: Chat, name: str) -> None:
    chat.button("Settings").click()
    chat.dialog("Settings").get_by_role("radio", name=name, exact=True).check()
    chat.page.keyboard.press("Escape")


@pytest.mark.parametrize("visitor", [PHONE], indirect=True)
def test_a_touch_screen_has_no_shortcuts(chat: Chat) -> None:
    chat.button("Settings").tap()
    expect(chat.dialog("Settings").get_by_role("radio", name="Starts a new line", exact=True)).to_be_checked()
    expect(chat.dialog("Settings")).not_to_contain_text("Ctrl")


def test_models_and_specialists_say_what_they_are(chat: Chat, server: PageServer, visitor: Visitor) -> None:
    server.model.is_demo = True
    chat.reload()
    expect(chat.page.get_by_role("main")).to_contain_text(page_text("demoMode"))
    expect(server.answer(chat, "hello", "Hello.")).to_contain_text("(demo)")
    chat.button("Specialists").click()
    dialog = chat.dialog("Specialists")
    rows = dialog.get_by_role("listitem")
    expect(rows.filter(has_text="burns")).to_contain_text(page_text("asksAlways"))
    expect(rows.filter(has_text="moon")).to_contain_text("Not available: not set up on this server")
    expect(dialog.get_by_role("switch", name="moon", exact=True)).to_be_disabled()
    dialog.get_by_role("switch", name="wiki", exact=True).uncheck()
    chat.page.keyboard.press("Escape")
    server.answer(chat, "hello again", 'SPECIALIST_REQUEST[wiki:{"title":"Bern"}]', " x", "No.")
    expect(chat.card("wiki")).to_contain_text("wiki did not run.")
    chat.reload()
    chat.page.get_by_role("button", name=re.compile("^Specialists")).click()
    expect(dialog.get_by_role("switch", name="wiki", exact=True)).not_to_be_checked()


# browsers with less, hosts with more


def test_the_page_says_that_it_needs_javascript(browser: Browser, server: PageServer, network: Network) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(network.url)
    expect(page.locator("noscript p")).to_contain_text("needs JavaScript")
    expect(page.locator("noscript p")).to_be_visible()
    context.close()


@pytest.mark.parametrize("visitor", [NEW], indirect=True)
def test_the_page_works_without_storage_and_beside_other_pages(server: PageServer, visitor: Visitor) -> None:
    forbidden = "{ get() { throw new DOMException('no', 'SecurityError'); } }"
    for storage in ("localStorage", "sessionStorage"):
        visitor.context.add_init_script(f"Object.defineProperty(window, '{storage}', {forbidden});")
    chat, other = visitor.open(server.url), visitor.open(server.url)
    for message in ("null", "7", "'text'", "[]", "{ user: 7 }"):
        other.page.evaluate(f"new BroadcastChannel('brain ' + location.pathname).postMessage({message})")
    chat.bring_to_front()
    expect(server.answer(chat, "hello", "Good day.")).to_contain_text("Good day.")
