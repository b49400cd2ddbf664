"""An answer as it is written."""

import re

import pytest
from playing import words
from playwright.sync_api import Locator, expect

from brain.events import Thinking
from page.chat import Chat
from page.recording import recorded
from page.stage import Stage, request

pytestmark = pytest.mark.chromium

LEAKS = re.compile(r"Before\.\s*[S<]|SP|REQUEST|[\[\]{}]")
MARKERS: dict[str, tuple[str, str]] = {
    "a request": (request("clock"), "clock"),
    "a request for nobody": ("SPECIALIST_REQUEST[nobody]", "nobody"),
    "another way to write it": ('<function_call>{"name": "clock", "args": {}}</function_call>', "clock"),
}


def test_each_token_is_on_screen_before_the_next_is_written(chat: Chat, stage: Stage) -> None:
    answer = chat.ask("Where is Zürich?")
    tokens = ("In ", "the ", "**north**", " of ", "Swit", "zerland.", "\n\n- By", " a", " lake")
    for count, token in enumerate(tokens, 1):
        stage.model.says(token)
        words = re.sub(r"\W+", " ", "".join(tokens[:count])).strip()
        expect(answer).to_contain_text(re.compile(r"\W*".join(words.split())))
    stage.model.ends()
    chat.is_idle()
    expect(answer.get_by_role("strong")).to_have_text("north")
    expect(answer.get_by_role("listitem")).to_have_text("By a lake")


@pytest.mark.parametrize("marker", MARKERS.values(), ids=MARKERS)
def test_no_part_of_a_marker_is_ever_seen(chat: Chat, stage: Stage, marker: tuple[str, str]) -> None:
    written, name = marker
    answer = chat.ask()
    with recorded(chat.log) as states:
        stage.model.says("Before. ")
        expect(answer).to_contain_text("Before.")
        stage.model.says_slowly(written)
        stage.model.says(" dropped")
        expect(chat.call(name)).to_be_visible()
        stage.model.says("After.")
        stage.model.ends()
        chat.is_idle()
        expect(answer).to_contain_text("After.")
    assert len(states) > 5
    assert [state for state in states if LEAKS.search(state)] == []


@pytest.mark.parametrize("token", ["{} ", " {}"], ids=["space behind", "space before"])
def test_words_never_stick_together(chat: Chat, stage: Stage, token: str) -> None:
    said = words(300)
    answer = chat.ask()
    stage.model.says(token.format(said[0]))
    expect(answer).to_contain_text(said[0])
    with recorded(chat.log) as states:
        for count in range(1, 300, 13):
            stage.model.says(*[token.format(word) for word in said[count : count + 13]])
            expect(answer).to_contain_text(" ".join(said[: count + 13]), use_inner_text=True)
        stage.model.ends()
        chat.is_idle()
    assert [state for state in states if re.search(r"word[a-j]+word", state)] == []


@pytest.mark.parametrize(
    "text", ["SPECIALIST_REQUEST is a word.", "A <function> is no call.", "`SPECIALIST_REQUEST[clock]` is how.", "S"]
)
def test_what_only_begins_like_a_marker_is_shown(chat: Chat, stage: Stage, text: str) -> None:
    answer = chat.ask()
    stage.model.says_slowly(text)
    stage.model.ends()
    chat.is_idle()
    expect(answer).to_contain_text(text.replace("`", ""))
    expect(answer.get_by_role("group")).to_have_count(0)


def test_thinking_is_folded(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says(Thinking("hm, "), Thinking("let me see"), "A", "B")
    expect(answer).to_contain_text("AB")
    stage.model.ends()
    chat.is_idle()
    expect(answer.get_by_text("hm, let me see")).to_be_hidden()
    answer.get_by_text("Thinking").or_(answer.get_by_text("Thought")).first.click()
    expect(answer.get_by_text("hm, let me see")).to_be_visible()


def test_the_box_stays_usable_while_an_answer_is_written(chat: Chat, stage: Stage) -> None:
    chat.ask()
    expect(chat.box).to_have_value("")
    chat.box.press_sequentially("next")
    chat.box.press("Shift+Enter")
    chat.box.press_sequentially("line")
    stage.model.says("done")
    stage.model.ends()
    chat.is_idle()
    expect(chat.box).to_have_value("next\nline")
    stage.model.open.clear()
    chat.box.press("Enter")
    assert stage.model.question() == "next\nline"


def from_end(chat: Chat) -> float:
    away: float = chat.log.evaluate("node => node.scrollHeight - node.scrollTop - node.clientHeight")
    return away


def top_of(chat: Chat, place: Locator) -> float:
    """How far below the upper edge of the log it begins."""
    log, box = chat.log.bounding_box(), place.bounding_box()
    assert log is not None
    assert box is not None
    return box["y"] - log["y"]


@pytest.mark.parametrize("earlier", [0, 60], ids=["the first", "a later one"])
def test_a_long_answer_is_read_from_its_start(chat: Chat, stage: Stage, earlier: int) -> None:
    for _ in range(min(earlier, 1)):
        chat.ask("before")
        stage.model.says("\n\n".join(words(earlier)))
        stage.model.ends()
        chat.is_idle()
    answer = chat.ask("and now")
    stage.model.says("short")
    expect(answer).to_contain_text("short")
    assert 0 <= top_of(chat, chat.question) < 30
    stage.model.says("".join(f"\n\n{word}" for word in words(100)), " end")
    expect(answer).to_contain_text("end")
    assert 0 <= top_of(chat, chat.question) < 30
    assert from_end(chat) > 500
    stage.model.ends()
    chat.is_idle()
    assert 0 <= top_of(chat, chat.question) < 30


def test_the_end_of_an_answer_that_is_a_little_too_long_is_one_click_away(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("line")
    expect(answer).to_contain_text("line")
    expect(chat.button("Newest")).to_be_hidden()
    room: int = chat.log.evaluate("node => node.clientHeight")
    while not 30 < from_end(chat) < room / 3:
        before = answer.inner_text().count("line")
        stage.model.says("\n\nline")
        expect(answer.get_by_text("line", exact=True)).to_have_count(before + 1)
    stage.model.ends()
    chat.is_idle()
    chat.button("Newest").click()
    expect(answer.get_by_role("button", name="Retry", exact=True)).to_be_in_viewport(ratio=1)
    expect(chat.button("Newest")).to_be_hidden()


def test_what_has_to_be_approved_is_in_sight(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says("\n\n".join(words(100)), "\n\n", request("burns", title="Emma"), " x")
    expect(chat.button("Approve")).to_be_in_viewport(ratio=1)


def test_the_log_follows_only_from_its_end(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("\n\n".join(words(100)), "\n\n", "end")
    expect(answer).to_contain_text("end")
    chat.button("Newest").click()
    expect(chat.button("Newest")).to_be_hidden()
    assert from_end(chat) < 4
    stage.model.says("".join(f"\n\n{word}" for word in words(20)), " further")
    expect(answer).to_contain_text("further")
    assert from_end(chat) < 4
    chat.log.hover()
    chat.page.mouse.wheel(0, -500)
    expect(chat.button("Newest")).to_be_visible()
    stage.model.says("".join(f"\n\n{word}" for word in words(50)), " last")
    expect(answer).to_contain_text("last")
    assert from_end(chat) > 500
    chat.page.mouse.wheel(0, 100_000)
    expect(chat.button("Newest")).to_be_hidden()
    stage.model.says("".join(f"\n\n{word}" for word in words(50)), " lasting")
    expect(answer).to_contain_text("lasting")
    assert from_end(chat) < 4
