"""The page in the words of who uses it. Everything is found by its role and its name, as a screen reader finds it."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from playwright.sync_api import FilePayload, Locator, Page, expect

HANDED_OVER = """(node, [event, files]) => {
    const data = new DataTransfer();
    for (const [name, type, text] of files) data.items.add(new File([text], name, { type }));
    const options = { bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data };
    node.dispatchEvent(event === "paste" ? new ClipboardEvent(event, options) : new DragEvent(event, options));
}"""

TURNED = """(hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
}"""

JUMPS = """() => {
    window.jumps = [];
    new PerformanceObserver((list) => {
        for (const { value, hadRecentInput } of list.getEntries()) if (!hadRecentInput) jumps.push(value);
    }).observe({ type: "layout-shift" });
}"""


class Chat:
    """One tab with the page.

    Attributes:
        box: where a message is written.
        history: the conversations.
        files: those that go with the next message.
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

    @property
    def question(self) -> Locator:
        """The newest question."""
        return self.questions.last

    @property
    def answer(self) -> Locator:
        """The newest answer."""
        return self.answers.last

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def call(self, name: str) -> Locator:
        """The card of a specialist's work."""
        return self.log.get_by_role("group", name=name, exact=True)

    # What a user does

    def unfold(self, name: str) -> None:
        """Opens the card of a specialist's work."""
        self.call(name).get_by_text(name, exact=True).first.click()

    def ask(self, message: str = "hello") -> Locator:
        """Sends a message; the answer to it."""
        self.box.fill(message)
        if self.touched():
            self.button("Send").tap()
        else:
            self.box.press("Enter")
        expect(self.question).to_contain_text(message.partition("\n")[0].strip())
        return self.answer

    def touched(self) -> bool:
        """Whether it is used with a finger, where Enter begins a new line."""
        coarse: bool = self.page.evaluate("matchMedia('(pointer: coarse)').matches")
        return coarse

    def steer(self, message: str) -> None:
        self.box.fill(message)
        self.button("Add to the answer").click()

    def stop(self) -> None:
        self.button("Stop").click()

    def approve(self, name: str) -> None:
        self.call(name).get_by_role("button", name="Approve", exact=True).click()

    def decline(self, name: str) -> None:
        self.call(name).get_by_role("button", name="Decline", exact=True).click()

    def attach(self, *files: Path | FilePayload) -> None:
        """Attaches by the button."""
        with self.page.expect_file_chooser() as chooser:
            self.button("Attach").click()
        chooser.value.set_files(list(files))  # type: ignore[arg-type]

    def drop(self, *files: tuple[str, str, str]) -> None:
        """Drops files (name, type, text) on the conversation."""
        self._hand_over("drop", self.log, files)

    def paste(self, *files: tuple[str, str, str]) -> None:
        """Pastes files (name, type, text) where the message is written."""
        self._hand_over("paste", self.box, files)

    def _hand_over(self, event: str, where: Locator, files: Sequence[tuple[str, str, str]]) -> None:
        where.evaluate(HANDED_OVER, [event, [list(file) for file in files]])

    def retry(self) -> None:
        self.answer.get_by_role("button", name="Retry", exact=True).click()

    def copy(self) -> str:
        """Copies the newest answer; what the clipboard has then."""
        self.answer.get_by_role("button", name="Copy", exact=True).click()
        return self.clipboard()

    def clipboard(self) -> str:
        text: str = self.page.evaluate("navigator.clipboard.readText()")
        return text

    def begin_anew(self) -> None:
        self.button("New conversation").click()

    def conversation(self, title: str) -> Locator:
        """Its link in the list."""
        return self.history.get_by_role("link", name=title, exact=True)

    def search(self, words: str) -> None:
        self.history.get_by_role("searchbox", name="Search conversations", exact=True).fill(words)

    def options(self, title: str, choice: str) -> None:
        """Chooses from the menu of a conversation (Rename, Delete)."""
        self.history.get_by_role("button", name=f"Options for {title}", exact=True).click()
        self.page.get_by_role("menuitem", name=choice, exact=True).click()

    def choose_model(self, name: str) -> None:
        self.page.get_by_role("combobox", name="Model", exact=True).select_option(name)

    def reload(self) -> None:
        self.page.reload()
        self.is_ready()

    def hide(self) -> None:
        """Another tab comes before this one, and stays there for ten seconds."""
        self.page.clock.install()
        self._turn_to(hidden=True)
        self.page.clock.fast_forward(10_000)

    def look_again(self) -> None:
        """This tab comes before the others."""
        self._turn_to(hidden=False)

    def _turn_to(self, *, hidden: bool) -> None:
        self.page.evaluate(TURNED, hidden)

    # What a user sees

    def jumps(self) -> Callable[[], list[float]]:
        """How far what stands there jumps from now on, as the browser counts: asked for later."""
        self.page.evaluate(JUMPS)
        return partial(self.page.evaluate, "jumps")

    def is_ready(self) -> None:
        """The page knows what the server offers."""
        expect(self.page.get_by_role("combobox", name="Model", exact=True).get_by_role("option")).not_to_have_count(0)

    def is_idle(self) -> None:
        """No answer is being written: the next message can be sent."""
        expect(self.button("Send")).to_be_visible()
        expect(self.button("Stop")).to_be_hidden()
