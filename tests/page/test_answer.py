"""An answer during writing, when complete, and when opened again."""

import re

import httpx
import pytest
from limits import WAIT_SECONDS
from playwright.sync_api import Locator, expect
from turn_helpers import words

from brain.errors import ModelError
from brain.events import Thinking
from page.chat import Chat
from page.markdown import DOCUMENT, PARTS
from page.server import PageServer, request
from page.visitor import NEW, PHONE, STILL, Visitor

pytestmark = pytest.mark.chromium

RECORD = """node => {
    const states = [node.innerText], observer = new MutationObserver(() => states.push(node.innerText));
    observer.observe(node, { subtree: true, childList: true, characterData: true, attributes: true });
    return { states, observer };
}"""
ALL_TEXT = """(article) => {
    const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode()) found.push(walker.currentNode.data.trim());
    return [...found.filter(Boolean), ...[...article.querySelectorAll("button")].map(({ className }) => className)];
}"""
"""All texts of an answer, including hidden ones, and its buttons."""
TEXT_OFFSET = """(paragraph) => {
    const words = document.createRange();
    words.selectNodeContents(paragraph);
    return Math.round(words.getBoundingClientRect().left - paragraph.getBoundingClientRect().left);
}"""
SELECT = "it => getSelection().setBaseAndExtent(it.querySelector('p'), 0, [...it.querySelectorAll('p')].at(-1), 1)"
COUNT_INTERVALS = """() => {
    window.intervals = new Set();
    const { setInterval, clearInterval } = window;
    window.setInterval = (...given) => {
        const id = setInterval(...given);
        window.intervals.add(id);
        return id;
    };
    window.clearInterval = (id) => (window.intervals.delete(id), clearInterval(id));
}"""
MARKERS = {
    request("clock"): "clock",
    "SPECIALIST_REQUEST[nobody]": "nobody",
    '<function_call>{"name": "clock", "args": {}}</function_call>': "clock",
}


def paragraphs(count: int) -> str:
    """Different paragraphs."""
    return "".join(f"\n\n{word}" for word in words(count))


# during writing


def test_each_token_is_on_screen_before_the_next_and_no_marker_ever(chat: Chat, server: PageServer) -> None:
    answer = chat.ask("Where is Zürich?")
    tokens = ("In ", "the ", "**north**", " of ", "Swit", "zerland.", "\n\n- By", " a", " lake")
    for count, token in enumerate(tokens, 1):
        server.model.write(token)
        visible = re.sub(r"\W+", " ", "".join(tokens[:count])).split()
        expect(answer).to_contain_text(re.compile(r"\W*".join(visible)))
    expect(answer.get_by_role("strong")).to_have_text("north")
    recording = chat.log.evaluate_handle(RECORD)
    for marker, name in MARKERS.items():
        server.model.write("\n\nBefore. ")
        server.model.write_slowly(marker)
        server.model.write(" dropped")
        expect(chat.card(name).last).to_be_visible()
    server.finish(chat, "After.")
    expect(answer.get_by_role("listitem")).to_have_text("By a lake")
    states = recording.evaluate("it => (it.observer.disconnect(), it.states)")
    assert len(states) > 5
    assert [state for state in states if re.search(r"Before\.\s*[S<]|SP|REQUEST|[\[\]{}]{2}|dropped", state)] == []


def test_visible_text_does_not_jump_and_a_selection_stays(chat: Chat, server: PageServer) -> None:
    answer = chat.ask()
    server.model.write("Start.\n\n")
    expect(answer).to_contain_text("Start.")
    shifts = chat.record_shifts()
    text = "".join(PARTS) * 4
    server.model.write(*(text[at : at + 4] for at in range(0, len(text), 4)), f"{paragraphs(60)}\n\nFour fi")
    expect(answer.get_by_role("paragraph").last).to_have_text("Four fi")
    assert sum(shifts()) < 0.02
    chat.log.hover()
    chat.page.mouse.wheel(0, -100_000)
    first = answer.get_by_role("paragraph").first
    expect(first).to_be_in_viewport()
    place = first.bounding_box()
    answer.evaluate(SELECT)
    selected = chat.page.evaluate("getSelection().toString()")
    assert selected.startswith("Start.")
    server.model.write("ve", " **six**", ".\n\n", "# Seven\n\n", "- eight\n", "- nine\n\n", "end")
    expect(answer).to_contain_text("end")
    server.finish(chat)
    assert chat.page.evaluate("getSelection().toString()").startswith(selected.rstrip())
    assert first.bounding_box() == place


def test_ten_thousand_tokens_are_complete(chat: Chat, server: PageServer) -> None:
    answer = chat.ask()
    tokens = [f"word {n} " if n % 40 else f"word {n}.\n\n" for n in range(10_000)]
    server.model.write(*tokens)
    server.model.end()
    expect(chat.button("Send")).to_be_visible()
    expect(answer.get_by_role("paragraph")).to_have_count(251)
    assert answer.inner_text().split("player")[0].split() == "".join(tokens).split()


@pytest.mark.parametrize("visitor", [NEW], indirect=True)
def test_the_page_shows_what_it_waits_for_and_leaves_no_timer_behind(chat: Chat, server: PageServer) -> None:
    chat.page.clock.install()
    chat.reload()
    chat.page.evaluate(COUNT_INTERVALS)
    answer = chat.ask()
    waiting = "Waiting for the model…"
    expect(chat.page).to_have_url(re.compile("#/c/"))
    for word in ("One.", "Two."):
        expect(answer).not_to_contain_text(waiting)
        chat.page.clock.fast_forward(7000)
        expect(answer).to_contain_text(waiting)
        server.model.write(word)
        expect(answer).to_contain_text(word)
    server.model.write(request("wiki", title="Bern"), " x")
    expect(chat.card("wiki")).to_contain_text("page 2 of 4")
    chat.page.clock.fast_forward(7000)
    expect(chat.card("wiki")).to_contain_text(re.compile(r"\d\.\d s"))
    expect(answer).not_to_contain_text(waiting)
    assert chat.page.evaluate("window.intervals.size") > 0
    chat.start_conversation()
    assert chat.page.evaluate("window.intervals.size") == 0
    server.wiki_release.set()
    server.model.end()


@pytest.mark.parametrize("visitor", [STILL], indirect=True)
def test_with_reduced_motion_nothing_keeps_moving(chat: Chat, server: PageServer) -> None:
    chat.ask()
    server.model.write("So.", request("wiki", title="Bern"), " x")
    expect(chat.card("wiki")).to_contain_text("page 2 of 4")
    chat.button("Settings").click()
    endless = "document.getAnimations().filter((one) => one.effect.getTiming().iterations === Infinity).length"
    assert chat.page.evaluate(endless) == 0


# scrolling


def test_a_long_answer_is_read_from_its_start(chat: Chat, server: PageServer) -> None:
    server.answer(chat, "before", "\n\n".join(words(60)))
    answer = chat.ask("and now")
    server.model.write("short")
    expect(answer).to_contain_text("short")
    assert 0 <= distance_from_top(chat, chat.question) < 30
    server.model.write(paragraphs(100), " end")
    expect(answer).to_contain_text("end")
    assert chat.distance_from_end() > 500
    server.finish(chat)
    assert 0 <= distance_from_top(chat, chat.question) < 30


def distance_from_top(chat: Chat, place: Locator) -> float:
    log, box = chat.log.bounding_box(), place.bounding_box()
    assert log
    assert box
    return box["y"] - log["y"]


def test_the_conversation_follows_the_answer_only_from_its_end(chat: Chat, server: PageServer) -> None:
    answer, newest = chat.ask(), chat.button("Jump to latest")
    server.model.write("line")
    expect(answer).to_contain_text("line")
    expect(newest).to_be_hidden()
    server.model.write(paragraphs(100), " long")
    expect(answer).to_contain_text("long")
    newest.click()
    expect(newest).to_be_hidden()
    assert chat.distance_from_end() < 4
    server.model.write(paragraphs(20), " further")
    expect(answer).to_contain_text("further")
    assert chat.distance_from_end() < 4
    chat.log.hover()
    chat.page.mouse.wheel(0, -500)
    expect(newest).to_be_visible()
    server.model.write(paragraphs(50), " last")
    expect(answer).to_contain_text("last")
    assert chat.distance_from_end() > 500
    chat.page.mouse.wheel(0, 100_000)
    expect(newest).to_be_hidden()
    server.model.write(paragraphs(50), " lasting\n\n", request("burns", title="Emma"), " x")
    expect(chat.button("Approve")).to_be_in_viewport(ratio=1)


# Markdown


def test_markdown_as_a_person_sees_it(chat: Chat, server: PageServer) -> None:
    server.wiki_release.set()
    answer = chat.ask()
    server.model.write(request("wiki", title="Bern"), " x", request("wiki", title="Basel"), " x")
    expect(chat.card("wiki").last).to_contain_text("2 sources")
    server.model.write("<details>\n<summary>Open</summary>\n\nOne.")
    answer.get_by_text("Open", exact=True).click()
    server.model.write(" Two.")
    expect(answer.get_by_text("One. Two.", exact=True)).to_be_visible()  # it stays open
    server.model.write("\n</details>\n\nשלום עולם\n\n")
    server.model.write_slowly(DOCUMENT)
    server.finish(chat)
    expect(answer.get_by_text("One. Two.", exact=True)).to_be_visible()
    right_to_left = answer.get_by_text("שלום", exact=False)
    assert right_to_left.evaluate(TEXT_OFFSET) > 200
    for _ in range(2):
        expect(answer.get_by_role("cell", name="7", exact=True)).to_have_css("text-align", "right")
        expect(answer.get_by_role("cell", name="tea", exact=True)).to_have_css("text-align", "center")
        tasks = answer.get_by_role("checkbox", name="Done", exact=True)
        expect(tasks.first).to_be_checked()
        expect(tasks.last).not_to_be_checked()
        expect(answer.get_by_role("listitem").filter(has_text="boil")).to_have_css("list-style-type", "none")
        link, citation = (answer.get_by_role("link", name=name, exact=True) for name in ("the page", "[1]"))
        expect(link).to_have_attribute("href", "https://example.org/tea")
        expect(citation).to_have_attribute("href", "https://example.org/bern")
        expect(citation).to_have_attribute("rel", "noopener noreferrer nofollow")
        expect(answer).to_contain_text("not [7].")
        expect(answer).to_contain_text("It costs $5 and $10, and")
        expect(answer.get_by_role("math")).to_have_count(2)
        expect(answer.locator(".hljs-keyword")).to_have_text(["def", "return"])
        copied = chat.copy_answer()  # Markdown, with each source once
        assert copied.endswith("\n\nSources:\n\n1. [Bern](https://example.org/bern)\n2. A book")
        assert DOCUMENT.strip() in copied
        chat.reload()
    answer.get_by_role("button", name="Copy code", exact=True).click()
    assert chat.clipboard() == "def tea() -> str:\n    return 'green'  # hot\n"
    chat.page.set_viewport_size({"width": 800, "height": 400})
    answer.get_by_role("button", name="1", exact=True).click()
    expect(answer.get_by_text("Its note.")).to_be_focused()
    expect(answer.get_by_text("Its note.")).to_be_in_viewport()


@pytest.mark.parametrize("visitor", [PHONE], indirect=True)
def test_a_phone_shows_everything_without_scrolling_sideways(chat: Chat, server: PageServer) -> None:
    wide = "\n\n```\n" + "c" * 500 + "\n```\n\n|d|e|\n|-|-|\n|" + "f" * 300 + "|g|\n\n"
    formula = f"So \\(\\text{{{'W' * 300}}}\\) holds.\n\n"
    answer = chat.ask("a" * 200)
    server.model.write("b" * 3000, wide, formula, request("nobody" + "y" * 50, x="z" * 400), " x")
    server.model.end()
    server.finish(chat)
    expect(answer.get_by_role("math")).to_have_count(1)
    assert chat.page.evaluate("document.documentElement.scrollWidth") == 360
    assert chat.log.evaluate("node => node.scrollWidth <= node.clientWidth")
    expect(chat.box).to_be_in_viewport(ratio=1)
    expect(chat.button("Send")).to_be_in_viewport(ratio=1)


# opened again


def all_text(chat: Chat) -> list[str]:
    expect(chat.answer.locator(".plain:visible")).to_have_count(0)
    texts: list[str] = chat.answer.evaluate(ALL_TEXT)
    return texts


def test_an_answer_is_the_same_when_it_is_opened_again(chat: Chat, server: PageServer) -> None:
    httpx.post(f"{server.url}/v1/memory", json={"text": "I like libraries"}, timeout=WAIT_SECONDS)
    server.wiki_release.set()
    chat.ask("Which libraries are there?")
    server.model.write(Thinking("Let me "), Thinking("see."), "I **look**.\n\n")
    expect(chat.answer.get_by_text("Let me see.")).to_be_hidden()
    server.model.write(*(request("wiki", title=title) for title in ("Bern", "Bern")), request("breaks"), " x")
    expect(chat.card("breaks")).to_contain_text("breaks failed. ")
    server.model.write("They have one. ", Thinking("Burn it?"), "Now:\n\n", request("burns", title="Emma"), " x")
    chat.approve("burns")
    server.model.write(request("burns", title="Ada"), " x")
    chat.card("burns").last.get_by_role("button", name="Decline", exact=True).click()
    server.finish(chat, "One is left.")
    chat.answer.get_by_text("Reasoning", exact=True).first.click()
    expect(chat.answer.get_by_text("Let me see.")).to_be_visible()
    written = all_text(chat)
    assert {"Recalled 1 fact: I like libraries", "Let me see.", "Burn it?", "look"} <= set(written)
    assert any(text.startswith("approved · ") for text in written)
    assert any(text.startswith("player · ") and text.endswith(" tokens") for text in written)
    chat.reload()
    expect(chat.answer).to_contain_text("One is left.")
    assert all_text(chat) == written


def test_reasoning_without_an_opening_tag_leaves_the_answer(chat: Chat, server: PageServer) -> None:
    chat.ask()
    server.model.write("Let me see.\n")
    expect(chat.answer).to_contain_text("Let me see.")
    server.finish(chat, "</think>\n\nDone.")
    expect(chat.answer.locator(".text")).to_have_text("Done.")
    chat.answer.get_by_text("Reasoning", exact=True).click()
    expect(chat.answer.get_by_text("Let me see.")).to_be_visible()
    written = all_text(chat)
    chat.reload()
    expect(chat.answer).to_contain_text("Done.")
    assert all_text(chat) == written


def test_a_failure_is_the_same_when_it_is_opened_again(chat: Chat, server: PageServer) -> None:
    for recoverable in (True, False):
        chat.ask()
        server.model.write("Well, ", ModelError("model_failed", "It does not fit.", recoverable=recoverable))
        chat.wait_until_idle()
        written = all_text(chat)
        assert written[:2] == ["Well,", "It does not fit."]
        expect(chat.answer.get_by_role("button", name="Retry", exact=True)).to_have_count(int(recoverable))
        chat.reload()
        expect(chat.answer).to_contain_text("It does not fit.")
        assert all_text(chat) == written
        chat.start_conversation()


def test_markdown_is_plain_text_until_its_libraries_can_be_loaded(
    chat: Chat, server: PageServer, visitor: Visitor
) -> None:
    visitor.allow("Failed to load resource: net::")
    server.answer(chat, "count", "one **two**")
    is_failing = [True]
    chat.page.route("**/answer/markdown.js", lambda route: route.abort() if is_failing else route.continue_())
    with chat.page.expect_event("requestfailed"):
        chat.reload()
    expect(chat.answer).to_contain_text("one **two**")
    is_failing.clear()
    expect(chat.answer.get_by_role("strong")).to_have_text("two")
