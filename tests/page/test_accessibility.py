"""Rules of axe, small windows, print, and operation by keyboard."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from node_clients import Clients
from playwright.sync_api import expect

from brain.events import Thinking
from page.chat import Chat
from page.server import PageServer, request
from page.texts import page_text
from page.visitor import PHONE, Visitor

pytestmark = pytest.mark.chromium

ANIMATIONS_END = """() => Promise.all(document.getAnimations()
    .filter((one) => one.effect.getTiming().iterations !== Infinity).map((one) => one.finished)).then(() => null)"""
RUN_AXE = """async () => {
    const rules = axe.getRules().map(({ ruleId, tags }) => [ruleId, { enabled: !tags.includes("wcag2aaa") }]);
    const { violations, passes } = await axe.run(document, { rules: Object.fromEntries(rules) });
    const broken = violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html.slice(0, 200)}`));
    return { broken, passed: passes.map(({ id }) => id) };
}"""
MARKDOWN = """# Tea

Boil **water**, see [the page](https://example.org/tea), `kettle`:

1. Pour
2. Wait

| time | taste |
|-|-|
| 3 min | mild |

> Slowly.

```python
pour(water)  # hot
```
"""


class Axe:
    """All rules of axe, including experimental ones, up to WCAG level AA."""

    def __init__(self, clients: Clients) -> None:
        self._source = Path(clients.folder, "node_modules", "axe-core", "axe.min.js").read_text("utf-8")

    def check(self, chat: Chat) -> None:
        """Check all rules in light and dark colours, after animations end."""
        chat.page.evaluate(self._source)
        for scheme in ("light", "dark"):
            chat.page.emulate_media(color_scheme=scheme)
            chat.page.evaluate(ANIMATIONS_END)
            found = chat.page.evaluate(RUN_AXE)
            assert found["broken"] == [], scheme
            assert "color-contrast" in found["passed"]


@pytest.fixture
def axe(clients: Clients) -> Axe:
    return Axe(clients)


@pytest.mark.node
def test_axe_in_a_conversation(chat: Chat, server: PageServer, axe: Axe) -> None:
    expect(chat.button("Where is Bern")).to_be_visible()
    axe.check(chat)  # empty
    chat.ask("How do I make tea?")
    server.model.write(Thinking("hm"), MARKDOWN)
    expect(chat.answer.get_by_role("code").last).to_contain_text("pour")
    server.model.write(request("wiki", title="Bern"), " x")
    expect(chat.card("wiki")).to_contain_text("page 2 of 4")
    axe.check(chat)  # during an answer and a call
    server.wiki_release.set()
    server.model.write(request("burns", title="Emma"), " x")
    expect(chat.button("Approve")).to_be_visible()
    axe.check(chat)
    chat.decline("burns")
    server.model.write("No. ", request("breaks"), " x")
    expect(chat.card("breaks")).to_contain_text("breaks failed.")
    server.model.fail()
    expect(chat.answer.get_by_role("button", name="Retry", exact=True)).to_be_visible()
    chat.open_card("wiki")
    chat.answer.get_by_text("Reasoning", exact=True).first.click()
    expect(chat.card("wiki").get_by_text("two  spaces")).to_be_visible()
    axe.check(chat)


@pytest.mark.node
@pytest.mark.parametrize("visitor", [{}, PHONE], indirect=True)
def test_axe_in_rounds(chat: Chat, server: PageServer, axe: Axe) -> None:
    chat.strategy.select_option("dual")
    chat.ask("tea?")
    server.model.write("<deep_thinking>hm</deep_thinking><instruction>Boil water.</instruction>")
    server.model.end()
    server.model.write(request("burns", title="Emma"), " x")
    expect(chat.button("Approve")).to_be_visible()
    chat.rounds.first.locator("summary").first.click()
    axe.check(chat)


@pytest.mark.node
@pytest.mark.parametrize("visitor", [{}, PHONE], indirect=True)
def test_axe_in_tasks(chat: Chat, axe: Axe) -> None:
    chat.box.fill("/task Boil water")
    chat.button("Send").click()
    dialog = chat.dialog("New task")
    dialog.get_by_role("combobox", name="When").select_option("weekly")
    dialog.get_by_role("button", name="Check schedule").click()
    expect(dialog.get_by_role("button", name="Create task")).to_be_visible()
    axe.check(chat)
    dialog.get_by_role("button", name="Create task").click()
    expect(dialog).to_be_hidden()  # it gives the focus back
    if not chat.history.is_visible():
        chat.button("Show or hide conversations").click()
    chat.page.get_by_role("tab", name="Tasks").press("Enter")
    expect(chat.page.get_by_role("tabpanel", name="Tasks")).to_contain_text("Boil water")
    axe.check(chat)


@pytest.mark.node
def test_axe_in_lists_menus_and_dialogs(chat: Chat, server: PageServer, axe: Axe) -> None:
    server.answer(chat, "tea?", "Boil water.")
    chat.attach({"name": "notes.txt", "mimeType": "text/plain", "buffer": b"tea"})
    chat.history.get_by_role("button", name="Options for tea?", exact=True).click()
    expect(chat.page.get_by_role("menu")).to_be_visible()
    axe.check(chat)
    chat.page.get_by_role("menuitem", name="Rename", exact=True).click()
    expect(chat.history.get_by_role("textbox", name="New title for tea?", exact=True)).to_be_focused()
    axe.check(chat)
    chat.page.keyboard.press("Escape")
    chat.choose_option("tea?", "Delete")
    axe.check(chat)
    chat.page.keyboard.press("Escape")
    for name, shown in (("Specialists", "moon"), ("Settings", "Theme"), ("Memory", "No facts yet")):
        chat.button(name).click()
        expect(chat.dialog(name).get_by_text(shown).first).to_be_visible()
        axe.check(chat)
        chat.page.keyboard.press("Escape")
    chat.search("tea")
    expect(chat.history.get_by_text("Boil water.")).to_be_visible()
    axe.check(chat)


@pytest.mark.node
@pytest.mark.parametrize("server", [{"KEYS": "s3cret:ann"}], indirect=True)
def test_axe_in_the_sign_in_dialog(server: PageServer, visitor: Visitor, axe: Axe) -> None:
    visitor.allow("401")
    chat = visitor.visit(server.url)
    key = chat.dialog("Sign in").get_by_label("API key", exact=True)
    expect(key).to_be_focused()
    key.fill("wrong")
    key.press("Enter")
    expect(chat.page.get_by_role("dialog").get_by_role("alert")).not_to_be_empty()
    axe.check(chat)


@pytest.mark.node
@pytest.mark.parametrize("visitor", [PHONE], indirect=True)
def test_axe_on_a_phone(chat: Chat, server: PageServer, axe: Axe) -> None:
    title, model = chat.page.get_by_role("heading", level=1).bounding_box(), chat.model.bounding_box()
    assert title
    assert model
    assert title["width"] > 150
    assert model["height"] >= 44
    chat.ask("tea?")
    server.model.write(MARKDOWN, request("burns", title="Emma"), " x")
    expect(chat.button("Approve")).to_be_visible()
    axe.check(chat)
    chat.decline("burns")
    server.finish(chat)
    chat.button("Show or hide conversations").tap()
    expect(chat.conversation("tea?")).to_be_visible()
    axe.check(chat)


@pytest.mark.parametrize("visitor", [{"viewport": {"width": 320, "height": 256}}], indirect=True)
def test_a_zoom_of_400_percent_leaves_room_and_paper_has_the_conversation_only(chat: Chat, server: PageServer) -> None:
    server.answer(chat, "tea?", "\n\n".join(f"Line {n}." for n in range(200)))
    log = chat.log.bounding_box()
    assert log
    assert log["height"] > 140
    assert chat.page.evaluate("document.documentElement.scrollWidth") == 320
    expect(chat.button("Send")).to_be_in_viewport(ratio=1)
    chat.page.set_viewport_size({"width": 1200, "height": 800})
    expect(chat.answer).to_contain_text("Line 199.")
    chat.page.emulate_media(media="print")
    for gone in (chat.history, chat.box, chat.button("New conversation"), chat.button("Copy").last):
        expect(gone).to_be_hidden()
    expect(chat.page.get_by_role("heading", name="tea?", exact=True)).to_be_visible()
    expect(chat.question).to_be_visible()
    heights: list[int] = chat.log.evaluate("it => [it.clientHeight, it.scrollHeight, document.body.scrollHeight]")
    assert heights[0] == heights[1] > 5000
    assert heights[2] > 5000  # on several pages


# the keyboard

FOCUSED_NAME = """() => {
    const node = document.activeElement;
    if (node === document.body) return "";
    const label = [...node.labels?.[0]?.childNodes ?? []].filter((part) => part !== node);
    const text = label.map((part) => part.textContent).join("") || node.innerText;
    return node.ariaLabel || text.trim().split("\\n")[0];
}"""
FOCUSED_AREA = """() => {
    const { x, y, width, height } = document.activeElement.getBoundingClientRect();
    const left = Math.max(0, x - 6), top = Math.max(0, y - 6);
    const right = Math.min(innerWidth, x + width + 6), bottom = Math.min(innerHeight, y + height + 6);
    return { x: left, y: top, width: right - left, height: bottom - top };
}"""
IS_IN_DIALOG = "document.activeElement === document.body || Boolean(document.activeElement.closest('dialog'))"
TAB_STOPS = [
    *("Skip to message box", "New conversation", "Conversations", "Search conversations", "tea?", "Options for tea?"),
    *("Show or hide conversations", "Model", "Strategy", "Specialists", "Memory", "Settings"),
    *("Conversation", "Copy", "Edit", "Page", "Copy code", "code", "wiki", "Copy", "Retry", page_text("answerOptions")),
    *("Message", "Attach files", "Private conversation", "Send"),
]


class Keyboard:
    """A person without a mouse."""

    def __init__(self, chat: Chat) -> None:
        self._page = chat.page

    @property
    def focus(self) -> str:
        """The name of the focused element, or an empty text."""
        name: str = self._page.evaluate(FOCUSED_NAME)
        return name

    def press(self, *keys: str) -> None:
        for key in keys:
            self._page.keyboard.press(key)

    def type(self, text: str) -> None:
        """Replace the selection."""
        self._page.keyboard.insert_text(text)

    def tab_stops(self, key: str = "Tab") -> Iterator[str]:
        """The focus after each press, until it leaves the page or returns to the first element."""
        first = None
        for _ in range(60):
            self.press(key)
            if not self.focus or self.focus == first:
                return
            first = first or self.focus
            yield self.focus
        raise AssertionError("the keyboard is trapped")

    def go_to(self, name: str, key: str = "Tab") -> None:
        """Move the focus to the next element whose name starts with a text."""
        passed: list[str] = []
        while not self.focus.startswith(name) or not passed:
            passed.append(self.focus)
            assert len(passed) < 60, f"{name} is nowhere: {passed}"
            self.press(key)

    def choose(self, name: str, key: str = "Tab") -> None:
        """Go there and press Enter."""
        self.go_to(name, key)
        self.press("Enter")

    def has_visible_focus(self) -> bool:
        area = self._page.evaluate(FOCUSED_AREA)
        focused = self._page.screenshot(clip=area, animations="disabled")
        self._page.evaluate("() => { window.focused = document.activeElement; window.focused.blur(); }")
        unfocused = self._page.screenshot(clip=area, animations="disabled")
        self._page.evaluate("window.focused.focus()")
        return focused != unfocused


@pytest.fixture
def keyboard(chat: Chat) -> Keyboard:
    return Keyboard(chat)


def test_each_tab_stop_is_visible_and_none_is_a_trap(chat: Chat, server: PageServer, keyboard: Keyboard) -> None:
    server.wiki_release.set()
    code = "[Page](https://example.org)\n\n```\ncode\n```\n\n"
    server.answer(chat, "tea?", code, request("wiki", title="Bern"), " x", "Boil water.")
    expect(chat.conversation("tea?")).to_be_visible()
    expect(chat.box).to_be_focused()
    assert list(keyboard.tab_stops()) == ["Attach files", "Private conversation", "Send"]  # after the box
    found = []
    for stop in keyboard.tab_stops():
        found.append(stop)
        assert keyboard.has_visible_focus(), stop
    assert found == TAB_STOPS
    assert list(keyboard.tab_stops("Shift+Tab")) == TAB_STOPS[::-1]
    chat.page.evaluate("document.activeElement.blur()")
    keyboard.press("Home")
    keyboard.choose("Skip to message box")
    expect(chat.box).to_be_focused()
    chat.log.focus()
    keyboard.press("t", "e")  # typed text goes to the box
    chat.log.focus()
    keyboard.press("Control+a", "Space", "PageUp")
    expect(chat.log).to_be_focused()
    expect(chat.box).to_have_value("te")


def test_a_turn_by_keyboard(chat: Chat, server: PageServer, keyboard: Keyboard) -> None:
    expect(chat.box).to_be_focused()
    keyboard.type("one")
    keyboard.press("Shift+Enter")
    keyboard.type("line")
    keyboard.press("Enter")
    server.model.write("So far.\n")
    expect(chat.answer).to_contain_text("So far.")
    assert server.model.questions() == ["one\nline"]
    expect(chat.box).to_be_focused()
    keyboard.type("shorter, please")
    keyboard.choose("Add to answer")
    server.model.write("\n")
    expect(chat.answer).to_contain_text("shorter, please")
    expect(chat.box).to_be_focused()
    server.model.write(request("burns", title="Emma"), request("burns", title="Ada"), " x")
    expect(chat.button("Approve")).to_have_count(2)
    keyboard.choose("Approve", "Shift+Tab")
    expect(chat.button("Approve")).to_have_count(1)
    chat.box.focus()
    keyboard.choose("Decline", "Shift+Tab")
    expect(chat.button("Approve")).to_have_count(0)
    server.model.write("Less.")
    expect(chat.answer).to_contain_text("Less.")
    assert server.burned == ["Ada"]
    expect(chat.button("Stop")).to_be_enabled()  # not within the time of a double click on Send
    chat.box.focus()
    keyboard.choose("Stop")
    chat.wait_until_idle()
    expect(chat.box).to_be_focused()
    keyboard.choose("Retry", "Shift+Tab")
    server.model.write("Boil it.")
    server.model.end()
    expect(chat.answer).to_contain_text("Boil it.")
    chat.wait_until_idle()
    keyboard.go_to("Retry", "Shift+Tab")
    keyboard.choose("Copy", "Shift+Tab")
    assert chat.clipboard() == "Boil it."
    keyboard.choose("Edit", "Shift+Tab")
    expect(chat.box).to_be_focused()
    keyboard.press("Escape")
    expect(chat.box).to_have_value("")
    keyboard.choose("Edit", "Shift+Tab")
    keyboard.press("Control+a")
    keyboard.type("coffee?")
    keyboard.press("Enter")
    server.model.write("Grind.")
    server.model.end()
    expect(chat.answer).to_contain_text("Grind.")
    expect(chat.questions).to_have_count(1)


def test_lists_and_dialogs_by_keyboard(chat: Chat, server: PageServer, keyboard: Keyboard) -> None:
    server.answer(chat, "tea?", "Boil water.")
    expect(chat.conversation("tea?")).to_be_visible()
    keyboard.choose("Options for tea?", "Shift+Tab")
    keyboard.press("Enter")
    keyboard.type("Tea")
    keyboard.press("Enter")
    expect(chat.conversation("Tea")).to_be_visible()
    expect(chat.history.get_by_role("button", name="Options for Tea", exact=True)).to_be_focused()
    for name in ("Specialists", "Memory", "Settings"):
        chat.box.focus()
        keyboard.choose(name, "Shift+Tab")
        dialog = chat.dialog(name)
        expect(dialog).to_be_visible()
        expect(dialog.get_by_text("Loading…")).to_have_count(0)
        for key in ["Tab"] * 15 + ["Shift+Tab"] * 15:
            keyboard.press(key)
            assert chat.page.evaluate(IS_IN_DIALOG), keyboard.focus
        keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        expect(chat.button(name)).to_be_focused()
        keyboard.press("Enter")
        if name == "Memory":
            keyboard.choose("Add a fact")
            keyboard.type("I drink no coffee")
            keyboard.choose("Add")
            expect(dialog.get_by_role("listitem")).to_contain_text("I drink no coffee")
        keyboard.choose("Close", "Shift+Tab")
        expect(dialog).to_be_hidden()
