"""How smooth the page is in Chromium: how late a word is shown, and for how long the page stands still at most.

`python tests/bench/smooth.py`
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent))

from page.chat import Chat
from page.stage import Stage, staged
from page.test_speed import PARTS, SPEED, message, say_at_speed
from page.visitor import Visitor

DELAYS = """() => {
    const waiting = window.waiting = [];
    const end = () => {
        const flow = [...document.querySelectorAll("article")].at(-1).firstElementChild;
        return [...flow.lastElementChild?.children ?? []].slice(-2).map((node) => node.textContent).join(" ");
    };
    const look = (now) => {
        const shown = waiting.length ? end() : "";
        while (waiting.length && shown.includes(waiting[0].word)) window.delays.push(now - waiting.shift().at);
        requestAnimationFrame(look);
    };
    window.delays = [];
    look();
    window.EventSource = class extends EventSource {
        constructor(url) {
            super(url);
            this.addEventListener("token", ({ data }) => {
                const word = JSON.parse(data).text.trim().split(/\\s+/).at(-1);
                if (word) waiting.push({ word, at: performance.now() });
            });
        }
    };
}"""
LONGEST = """() => {
    window.longest = 0;
    new PerformanceObserver((list) => {
        for (const { duration } of list.getEntries()) longest = Math.max(longest, duration);
    }).observe({ type: "longtask" });
}"""
OPENED = """() => {
    const look = () => {
        if (document.querySelectorAll("article").length === 200) window.opened = performance.now();
        else requestAnimationFrame(look);
    };
    look();
}"""
THERE = "performance.getEntriesByType('resource').find(({ name }) => name.includes('conversations/c1')).responseEnd"
PROSE = "Some words of a paragraph with **bold**, `code` and [a link](https://example.org) in it. " * 4 + "\n\n"


def main() -> None:
    sys.stdout.write("| | a word is shown after, ms | still for at most, ms |\n|---|---|---|\n")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, act in CASES.items():
            with staged() as stage:
                visitor = Visitor(browser, {})
                chat = visitor.opens(stage.url)
                chat.page.evaluate(LONGEST)
                shown = act(chat, stage)
                longest: float = chat.page.evaluate("longest")
                visitor.leave()
            sys.stdout.write(f"| {name} | {shown:.0f} | {longest:.0f} |\n")
        browser.close()


def _written(chat: Chat, stage: Stage, before: int) -> float:
    """The median of 200 words that come behind so many others, at 200 a second."""
    chat.page.evaluate(DELAYS)
    words = [f"w{n}" + (". " if n % 10 == 9 else " ") + ("\n\n" if n % 40 == 39 else "") for n in range(before + 200)]
    answer = chat.ask()
    for at in range(0, before, 100):
        stage.model.says(*words[at : at + 100])
    stage.model.says("Now. ")
    expect(answer).to_contain_text("Now.", timeout=30_000)
    chat.page.evaluate("waiting.length = delays.length = longest = 0")  # those before came at once
    say_at_speed(stage, words[before:], SPEED)
    _end(chat, stage)
    delays: list[float] = chat.page.evaluate("delays")
    return median(delays)


def _at_once(text: str) -> Callable[[Chat, Stage], float]:
    def act(chat: Chat, stage: Stage) -> float:
        answer = chat.ask()
        began = _now(chat.page)
        stage.model.says(text)
        _end(chat, stage)
        expect(answer).to_contain_text("The end.", timeout=60_000)
        return _now(chat.page) - began

    return act


def _opened(chat: Chat, stage: Stage) -> float:
    messages = [one for n in range(100) for one in message(n)]
    found = {"id": "c1", "title": "Long", "messages": messages, "files": [], "running": False, "earlier": None}
    chat.page.route("**/v1/conversations/c1?*", lambda route: route.fulfill(json=found))
    chat.page.evaluate(OPENED)
    with chat.page.expect_response("**/v1/conversations/c1?*"):
        chat.page.evaluate("location.hash = '#/c/c1'")
    expect(chat.answers.first.get_by_role("heading")).to_have_count(1, timeout=30_000)
    shown: float = chat.page.evaluate(f"opened - {THERE}")
    return shown


def _end(chat: Chat, stage: Stage) -> None:
    stage.model.says("The end.")
    stage.model.ends()
    expect(chat.button("Send")).to_be_visible(timeout=60_000)


def _now(page: Page) -> float:
    now: float = page.evaluate("performance.now()")
    return now


CASES: dict[str, Callable[[Chat, Stage], float]] = {
    "200 tokens a second": lambda chat, stage: _written(chat, stage, 0),
    "the same behind 10,000 tokens": lambda chat, stage: _written(chat, stage, 10_000),
    "Markdown of every kind, at once": _at_once("".join(PARTS) * 40),
    "300 KB of text, at once": _at_once(PROSE * (300_000 // len(PROSE))),
    "a paragraph of 300 KB, at once": _at_once("word " * 60_000),
    "200 messages opened": _opened,
}

if __name__ == "__main__":
    main()
