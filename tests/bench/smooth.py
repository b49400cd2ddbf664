"""Measure the page in Chromium: delay until a word is shown, longest pause, and CPU time.

`python tests/bench/smooth.py`
"""

import asyncio
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

from playwright.sync_api import CDPSession, Page, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent))

from page.chat import Chat
from page.markdown import PARTS, make_messages
from page.network import running_network
from page.server import PageServer, serve_page
from page.visitor import Visitor, prepare

SPEED = 1000  # tokens per second: several per frame
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
FRAMES = """() => {
    let last = performance.now();
    const look = (now) => {
        window.gap = Math.max(window.gap, now - last);
        last = now;
        requestAnimationFrame(look);
    };
    window.gap = 0;
    requestAnimationFrame(look);
}"""
OPENED = """() => {
    const look = () => {
        if (document.querySelectorAll("article").length === 200) window.opened = performance.now();
        else requestAnimationFrame(look);
    };
    look();
}"""
THERE = "performance.getEntriesByType('resource').find(({ name }) => name.includes('conversations/c1')).responseEnd"
WORDS = ("some", "**bold**", "of", "a", "`code`", "paragraph", "[a link](https://example.org)", "words,", "and others.")


def prose(length: int, every: int = 60) -> str:
    """Return words in an order without repetition, with paragraphs."""
    chance, words = random.Random(1), list[str]()
    while length > 0:
        words.append(chance.choice(WORDS) + ("\n\n" if every and len(words) % every == every - 1 else " "))
        length -= len(words[-1])
    return "".join(words)


def main() -> None:
    sys.stdout.write("| answer | delay, ms | longest pause, ms | CPU, ms |\n|---|---|---|---|\n")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, act in CASES.items():
            with running_network() as network, serve_page(network) as server:
                visitor = Visitor(prepare(browser.new_context()))
                chat = visitor.open(server.url)
                chat.page.evaluate(LONGEST)
                session = visitor.context.new_cdp_session(chat.page)
                session.send("Performance.enable", {"timeDomain": "threadTicks"})
                before = _worked(session)
                shown = act(chat, server)
                longest: float = chat.page.evaluate("longest")
                worked = _worked(session) - before
                visitor.leave()
            sys.stdout.write(f"| {name} | {shown:.0f} | {longest:.0f} | {worked:.0f} |\n")
        browser.close()


def _say_at_speed(server: PageServer, tokens: list[str], speed: int = SPEED) -> None:
    """Write tokens one by one."""

    async def say() -> None:
        began = asyncio.get_running_loop().time()
        for count, token in enumerate(tokens, 1):
            server.model.write(token)
            await asyncio.sleep(began + count / speed - asyncio.get_running_loop().time())

    asyncio.run_coroutine_threadsafe(say(), server.brain.loop).result(90)


def _worked(session: CDPSession) -> float:
    """Return the CPU time of the page's main thread so far, in ms."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return 1000 * sum(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")


def _written(chat: Chat, server: PageServer, before: int) -> float:
    """Return the median delay of 200 words after `before` others."""
    chat.page.evaluate(DELAYS)
    words = [f"w{n}" + (". " if n % 10 == 9 else " ") + ("\n\n" if n % 40 == 39 else "") for n in range(before + 200)]
    answer = chat.ask()
    for at in range(0, before, 100):
        server.model.write(*words[at : at + 100])
    server.model.write("Now. ")
    expect(answer).to_contain_text("Now.", timeout=30_000)
    chat.page.evaluate("waiting.length = delays.length = longest = 0")  # those before came at once
    _say_at_speed(server, words[before:], SPEED)
    _end(chat, server)
    delays: list[float] = chat.page.evaluate("delays")
    return median(delays)


def _answer(chat: Chat, server: PageServer) -> float:
    """Return the longest time between two frames during 10,000 tokens of Markdown at 200 per second."""
    text = "".join(
        f"{part}{prose(60 + n, 0)}\n\n" if part.startswith("##") else part for n, part in enumerate(PARTS * 80)
    )
    tokens = [text[at : at + 4] for at in range(0, 40_000, 4)]
    chat.ask()
    chat.page.evaluate(FRAMES)
    _say_at_speed(server, tokens, 200)
    gap: float = chat.page.evaluate("gap")
    _end(chat, server)
    return gap


def _at_once(text: str) -> Callable[[Chat, PageServer], float]:
    def act(chat: Chat, server: PageServer) -> float:
        answer = chat.ask()
        began = _now(chat.page)
        server.model.write(text)
        _end(chat, server)
        expect(answer).to_contain_text("The end.", timeout=60_000)
        return _now(chat.page) - began

    return act


def _opened(chat: Chat, server: PageServer) -> float:
    messages = [one for n in range(100) for one in make_messages(n)]
    found = {"id": "c1", "title": "Long", "messages": messages, "files": [], "running": False, "earlier": None}
    chat.page.route("**/v1/conversations/c1?*", lambda route: route.fulfill(json=found))
    chat.page.evaluate(OPENED)
    with chat.page.expect_response("**/v1/conversations/c1?*"):
        chat.page.evaluate("location.hash = '#/c/c1'")
    expect(chat.answers.first.get_by_role("heading")).to_have_count(1, timeout=30_000)
    shown: float = chat.page.evaluate(f"opened - {THERE}")
    return shown


def _end(chat: Chat, server: PageServer) -> None:
    server.model.write("The end.")
    server.model.end()
    expect(chat.button("Send")).to_be_visible(timeout=60_000)


def _now(page: Page) -> float:
    now: float = page.evaluate("performance.now()")
    return now


CASES: dict[str, Callable[[Chat, PageServer], float]] = {
    "200 tokens per second": lambda chat, server: _written(chat, server, 0),
    "the same after 10,000 tokens": lambda chat, server: _written(chat, server, 10_000),
    "10,000 tokens of Markdown, 200 per second (between frames)": _answer,
    "Markdown of every kind, at once": _at_once("".join(PARTS) * 40),
    "300 KB of text, at once": _at_once(prose(300_000)),
    "one paragraph of 300 KB, at once": _at_once(prose(300_000, 0)),
    "200 messages opened": _opened,
}

if __name__ == "__main__":
    main()
