"""The chat client of the tutorial, in a browser, on another origin than Brain."""

import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from brain_servers import brain_served
from chromium import CHROMIUM, CHROMIUM_ARGS, NEEDS_CHROMIUM
from playwright.sync_api import sync_playwright
from turn_helpers import Player

from brain import Refused, Registry, specialist

PAGE = Path(__file__).parent.parent.parent / "docs" / "tutorials" / "browser-client.md"


@specialist(approval="always")
def pay(amount: int) -> str:
    """Pays an amount."""
    if amount > 10:
        raise Refused("it is too much")
    return f"Paid {amount}."


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *values: object) -> None:
        """Print nothing."""


@pytest.mark.chromium
@NEEDS_CHROMIUM
def test_the_tutorial_client(tmp_path: Path) -> None:
    html = re.search(r"^```html\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert html is not None
    files = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=files.serve_forever).start()
    origin = f"http://127.0.0.1:{files.server_port}"
    registry = Registry()
    registry.add(pay)
    try:
        with brain_served(registry, ORIGINS=origin) as server, sync_playwright() as playwright:
            calls = 'SPECIALIST_REQUEST[pay:{"amount":2}]', 'SPECIALIST_REQUEST[pay:{"amount":20}]'
            server.play(Player(["I pay. ", *calls], ["Done."]))
            (tmp_path / "index.html").write_text(html[1].replace("http://127.0.0.1:8000", server.url), "utf-8")
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
            page = browser.new_page()
            page.goto(origin)

            def send() -> None:
                page.fill("#message", "pay")
                page.click("text=Send")

            send()
            page.click("text=Approve")
            page.click("text=Approve")
            page.wait_for_selector("#log >> text=Done.")
            shown = page.inner_text("#log")
            assert [text in shown for text in ("I pay.", "Paid 2.", "pay failed: it is too much")] == [True] * 3
            page.wait_for_selector("#cancel", state="hidden")
            send()
            page.wait_for_selector("text=Decline")
            page.click("#cancel")
            page.wait_for_selector("#cancel", state="hidden")
            assert page.inner_text("#log").count("Paid 2.") == 1
            browser.close()
    finally:
        files.shutdown()
        files.server_close()
