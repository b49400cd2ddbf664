"""The chat page as a person uses it. Everything is found by role and name, as a screen reader finds it."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from playwright.sync_api import FilePayload, Locator, Page, Route, expect

TRANSFER = """(node, [event, files]) => {
    const data = new DataTransfer();
    for (const [name, type, text] of files) data.items.add(new File([text], name, { type }));
    const options = { bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data };
    node.dispatchEvent(event === "paste" ? new ClipboardEvent(event, options) : new DragEvent(event, options));
}"""
SET_HIDDEN = """(hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
}"""
RECORD_SHIFTS = """() => {
    window.shifts = [];
    new PerformanceObserver((list) => {
        for (const { value, hadRecentInput } of list.getEntries()) if (!hadRecentInput) shifts.push(value);
    }).observe({ type: "layout-shift" });
}"""


class Chat:
    """One tab with the page.

    Attributes:
        box: the message box.
        history: the list of conversations.
        files: the attached files.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.log = page.get_by_role("main").get_by_role("log", name="Conversation", exact=True)
        self.box = page.get_by_role("textbox", name="Message", exact=True)
        self.history = page.get_by_role("navigation", name="Conversations", exact=True)
        self.files = page.get_by_role("main").get_by_role("list", name="Attached files", exact=True)
        self.alert = page.get_by_role("main").get_by_role("alert")
        self.questions = self.log.get_by_role("article", name="You", exact=True)
        self.answers = self.log.get_by_role("article", name="Brain", exact=True)
        self.question = self.questions.last
        self.answer = self.answers.last
        self.model = page.get_by_role("combobox", name="Model", exact=True)
        self.strategy = page.get_by_role("combobox", name="Strategy", exact=True)
        self.rounds = self.answer.locator(".round")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def dialog(self, name: str) -> Locator:
        return self.page.get_by_role("dialog", name=name, exact=True)

    def card(self, name: str) -> Locator:
        """The card of a specialist call."""
        return self.log.get_by_role("group", name=name, exact=True)

    def conversation(self, title: str) -> Locator:
        """The link of a conversation in the list."""
        return self.history.get_by_role("link", name=title, exact=True)

    # Actions

    def bring_to_front(self) -> None:
        """Show this tab. Chromium draws hidden tabs once per second, so clicks there are slow."""
        self.page.bring_to_front()

    def ask(self, message: str = "hello") -> Locator:
        """Send a message and wait for its answer to start."""
        self.box.fill(message)
        if self.page.evaluate("matchMedia('(pointer: coarse)').matches"):  # Enter starts a new line there
            self.button("Send").tap()
        else:
            self.box.press("Enter")
        expect(self.box).to_have_value("")  # only then: an earlier question may have the same text
        expect(self.question).to_contain_text(message.partition("\n")[0].strip())
        return self.answer

    def open_card(self, name: str) -> None:
        self.card(name).get_by_text(name, exact=True).first.click()

    def steer(self, message: str) -> None:
        """Add a message to the answer and wait until the server has it."""
        self.box.fill(message)
        with self.page.expect_response("**/steer"):
            self.button("Add to answer").click()

    def stop(self) -> None:
        self.button("Stop").click()

    def approve(self, name: str) -> None:
        self.card(name).get_by_role("button", name="Approve", exact=True).click()

    def decline(self, name: str) -> None:
        self.card(name).get_by_role("button", name="Decline", exact=True).click()

    def retry(self) -> None:
        self.answer.get_by_role("button", name="Retry", exact=True).click()

    def edit_question(self) -> None:
        self.question.get_by_role("button", name="Edit", exact=True).click()

    def attach(self, *files: Path | FilePayload) -> None:
        """Attach files with the button."""
        with self.page.expect_file_chooser() as chooser:
            self.button("Attach files").click()
        chooser.value.set_files(list(files))  # type: ignore[arg-type]

    def drop(self, *files: tuple[str, str, str]) -> None:
        """Drop files (name, type, text) on the conversation."""
        self._transfer("drop", self.log, files)

    def paste(self, *files: tuple[str, str, str]) -> None:
        """Paste files (name, type, text) into the box."""
        self._transfer("paste", self.box, files)

    def _transfer(self, event: str, target: Locator, files: Sequence[tuple[str, str, str]]) -> None:
        target.evaluate(TRANSFER, [event, [list(file) for file in files]])

    def copy_answer(self) -> str:
        """Copy the newest answer; return the clipboard."""
        self.answer.get_by_role("button", name="Copy", exact=True).click()
        return self.clipboard()

    def clipboard(self) -> str:
        text: str = self.page.evaluate("navigator.clipboard.readText()")
        return text

    def start_conversation(self) -> None:
        self.button("New conversation").click()

    def search(self, words: str) -> None:
        self.history.get_by_role("searchbox", name="Search conversations", exact=True).fill(words)

    def choose_option(self, title: str, option: str) -> None:
        """Choose from the menu of a conversation (Rename, Delete)."""
        self.history.get_by_role("button", name=f"Options for {title}", exact=True).click()
        self.page.get_by_role("menuitem", name=option, exact=True).click()

    def reload(self) -> None:
        self.page.reload()
        self.wait_until_ready()

    def hide(self) -> None:
        """Hide this tab for ten seconds. The test needs a NEW browser context, for the clock."""
        self.page.clock.install()
        self.page.evaluate(SET_HIDDEN, True)
        self.page.clock.fast_forward(10_000)

    def show(self) -> None:
        """Show the tab again."""
        self.page.evaluate(SET_HIDDEN, False)

    # Observations

    def wait_until_ready(self) -> None:
        """Wait until the page knows what the server offers."""
        expect(self.model.get_by_role("option")).not_to_have_count(0)

    def wait_until_idle(self) -> None:
        """Wait until a person can send the next message."""
        expect(self.button("Send")).to_be_visible()
        expect(self.button("Stop")).to_be_hidden()

    def distance_from_end(self) -> float:
        """Pixels of the conversation below the visible part."""
        pixels: float = self.log.evaluate("node => node.scrollHeight - node.scrollTop - node.clientHeight")
        return pixels

    def record_shifts(self) -> Callable[[], list[float]]:
        """Start to record layout shifts, as the browser measures them; the result returns them."""
        self.page.evaluate(RECORD_SHIFTS)
        return partial(self.page.evaluate, "shifts")


def hold_request(page: Page, address: str | re.Pattern[str], act: Callable[[], object]) -> Route:
    """The request that an action sends; the test continues it."""
    routes: list[Route] = []
    page.route(address, lambda route: routes.append(route), times=1)  # a method cannot be wrapped
    with page.expect_request(address):
        act()
    while not routes:
        page.evaluate("0")
    return routes[0]
