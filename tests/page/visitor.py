"""A person with a browser: tabs that share cookies and storage, and the problems that the browser reports in them."""

from collections.abc import Mapping
from typing import Any

from limits import WAIT_SECONDS
from playwright.sync_api import BrowserContext, ConsoleMessage, Page

from page.chat import Chat

NEW: Mapping[str, Any] = {}
PHONE: Mapping[str, Any] = {
    "viewport": {"width": 360, "height": 640},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}
STILL: Mapping[str, Any] = {"reduced_motion": "reduce"}
TIMEOUT = WAIT_SECONDS * 1000
"""Milliseconds that an expectation can take on a slow machine."""

VIOLATIONS = """addEventListener("securitypolicyviolation", (event) => {
    console.error(`violates ${event.effectiveDirective}: ${event.blockedURI} ${event.sample}`);
});"""


def prepare(context: BrowserContext) -> BrowserContext:
    """Let a new browser context report violations of the page's policy and use the clipboard."""
    context.set_default_timeout(TIMEOUT)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.add_init_script(VIOLATIONS)
    return context


class Visitor:
    """A person without a session.

    Attributes:
        problems: errors in the console, uncaught exceptions and violations of the policy, except the allowed ones.
    """

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.problems: list[str] = []
        self._allowed: list[str] = []

    def new_page(self) -> Page:
        page = self.context.new_page()
        page.on("console", self._note_console)
        page.on("pageerror", lambda error: self._note(str(error)))
        return page

    def open(self, url: str) -> Chat:
        """Open the page in a new tab and wait until it knows what the server offers."""
        chat = self.visit(url)
        chat.wait_until_ready()
        return chat

    def visit(self, url: str) -> Chat:
        """Open the page in a new tab."""
        page = self.new_page()
        page.goto(url)
        return Chat(page)

    def allow(self, *texts: str) -> None:
        """Ignore problems that contain one of these texts."""
        self._allowed += texts

    def leave(self) -> None:
        """Close all tabs and clear the browser's storage."""
        for page in self.context.pages:
            page.evaluate("try { localStorage.clear(); } catch {}")
            page.close()
        self.context.clear_cookies()
        self.context.unroute_all()

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._note(f"{message.text} ({message.location['url']})")

    def _note(self, text: str) -> None:
        if not any(allowed in text for allowed in self._allowed):
            self.problems.append(text)
