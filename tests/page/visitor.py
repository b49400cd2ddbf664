"""A person with a browser of their own: tabs that share it, and what the page complains of in them."""

from collections.abc import Mapping
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, WebError

from page.chat import Chat

PHONE: Mapping[str, Any] = {
    "viewport": {"width": 360, "height": 640},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}
DARK: Mapping[str, Any] = {"color_scheme": "dark"}
STILL: Mapping[str, Any] = {"reduced_motion": "reduce"}

VIOLATIONS = """addEventListener("securitypolicyviolation", (event) => {
    console.error(`violates ${event.effectiveDirective}: ${event.blockedURI} ${event.sample}`);
});"""


class Visitor:
    """A person, without anything that is left of others.

    Attributes:
        complaints: what stood in the console as an error, what was thrown and not caught, what the policy of the page
            forbade; without what the test said that it would come.
    """

    def __init__(self, browser: Browser, window: Mapping[str, Any]) -> None:
        self.context = browser.new_context(**window)
        self.context.set_default_timeout(5000)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.context.add_init_script(VIOLATIONS)
        self.context.on("console", self._console)
        self.context.on("weberror", self._error)
        self.complaints: list[str] = []
        self._expected: list[str] = []

    def opens(self, url: str) -> Chat:
        """Opens the page in a new tab."""
        page: Page = self.context.new_page()
        page.goto(url)
        chat = Chat(page)
        chat.is_ready()
        return chat

    def expects(self, *complaints: str) -> None:
        """Complaints in which one of these texts stands are no failures."""
        self._expected += complaints

    def leave(self) -> None:
        self.context.close()

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._complain(f"{message.text} ({message.location['url']})")

    def _error(self, error: WebError) -> None:
        self._complain(str(error.error))

    def _complain(self, text: str) -> None:
        if not any(expected in text for expected in self._expected):
            self.complaints.append(text)
