"""Markdown as it is shown: what stands where, what is defined late, what is too large to be rendered."""

from collections.abc import Iterator

import pytest
from playing import words
from playwright.sync_api import expect

from brain.server.routes import page as routes
from page.chat import Chat
from page.stage import Stage, staged
from page.visitor import Visitor

pytestmark = pytest.mark.chromium

BEGINS = """(paragraph) => {
    const words = document.createRange();
    words.selectNodeContents(paragraph);
    return Math.round(words.getBoundingClientRect().left - paragraph.getBoundingClientRect().left);
}"""
"""How far from the left the words of a paragraph are."""
WORDS = [f"w{n}" for n in range(1000)]
LINES = [f"line {word} of `some` code" for word in words(400)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A server that renders only small texts."""
    monkeypatch.setattr(routes, "MARKDOWN_BYTES", 3000)
    monkeypatch.setattr(routes, "MARKDOWN_OPEN", 1200)
    with staged() as stage:
        yield stage


@pytest.fixture
def reader(small: Stage, visitor: Visitor) -> Chat:
    return visitor.opens(small.url)


def test_tables_tasks_and_places(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("|name|price|\n|:-:|-:|\n|tea|7|\n\n- [x] boil\n- [ ] drink\n\n[here](https://example.org/tea)\n")
    stage.model.ends()
    chat.is_idle()
    expect(answer.get_by_role("cell", name="7", exact=True)).to_have_css("text-align", "right")
    expect(answer.get_by_role("cell", name="tea", exact=True)).to_have_css("text-align", "center")
    boxes = answer.get_by_role("checkbox", name="Done", exact=True)
    expect(boxes.first).to_be_checked()
    expect(boxes.last).not_to_be_checked()
    expect(answer.get_by_role("listitem").first).to_have_css("list-style-type", "none")
    chat.reload()
    expect(boxes).to_have_count(2)


def test_formulas_are_drawn_while_the_answer_is_written(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    for character in "So:\n\n$$\nx_1\n- y_1\n$$\n\nFor \\(z > 0\\), $5":
        stage.model.says(character)
    expect(answer.get_by_role("math")).to_have_text(["x1−y1", "z>0"])
    expect(answer.get_by_role("paragraph").last).to_contain_text("For z>0, $5")
    expect(answer.get_by_role("list")).to_have_count(0)
    stage.model.ends()
    chat.is_idle()
    chat.reload()
    expect(answer.get_by_role("math")).to_have_count(2)


def test_a_long_formula_in_a_line_is_held_in(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says(f"So \\(\\text{{{'W' * 300}}}\\) holds.\n\n- \\(x_1\\)\n")
    stage.model.ends()
    chat.is_idle()
    expect(answer.get_by_role("math")).to_have_count(2)
    assert chat.page.locator("#log").evaluate("(log) => log.scrollWidth - log.clientWidth") == 0
    assert answer.get_by_role("math").last.evaluate("(math) => math.scrollHeight - math.clientHeight") == 0


def test_deep_formulas_do_not_keep_the_page_waiting(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("\n\n".join(f"$$\n{'{x' * 300}{'}' * 300}\n$$" for _ in range(16)))
    stage.model.ends()
    chat.is_idle()
    expect(answer.locator(".formula code")).to_have_count(16)
    expect(answer.get_by_role("math")).to_have_count(0)


def test_right_to_left_is_read_from_the_right(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("שלום עולם\n\nHello world\n")
    stage.model.ends()
    chat.is_idle()
    expect(answer.get_by_role("paragraph")).to_have_count(2)
    begins = [one.evaluate(BEGINS) for one in answer.get_by_role("paragraph").all()]
    assert begins[0] > 200
    assert begins[1] == 0


def test_a_link_is_made_when_its_address_comes_behind_it(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("See [the page][1].\n\nMore.\n\n")
    expect(answer).to_contain_text("More.")
    expect(answer.get_by_role("link")).to_have_count(0)
    stage.model.says("[1]: https://example.org/tea\n")
    stage.model.ends()
    chat.is_idle()
    expect(answer.get_by_role("link", name="the page", exact=True)).to_have_attribute("href", "https://example.org/tea")
    expect(answer.get_by_role("paragraph")).to_have_count(2)


def test_a_paragraph_that_is_too_large_to_be_rendered_is_whole(reader: Chat, small: Stage) -> None:
    answer = reader.ask()
    for start in range(0, len(WORDS), 100):
        small.model.says(" ".join(WORDS[start : start + 100]) + " ")
        expect(answer).to_contain_text(WORDS[start + 99])
    small.model.says("\n\nThen **bold**.\n")
    small.model.ends()
    reader.is_idle()
    expect(answer.get_by_role("strong")).to_have_text("bold")
    assert " ".join(answer.inner_text().split()).startswith(" ".join([*WORDS, "Then bold."]))
    reader.reload()
    expect(answer.get_by_role("strong")).to_have_text("bold")
    assert " ".join(answer.inner_text().split()).startswith(" ".join([*WORDS, "Then bold."]))


def test_code_that_is_too_large_to_be_rendered_is_whole(reader: Chat, small: Stage) -> None:
    answer = reader.ask()
    small.model.says("Code:\n\n```\n")
    for start in range(0, len(LINES), 40):
        small.model.says("\n".join(LINES[start : start + 40]) + "\n")
        expect(answer).to_contain_text(LINES[start + 39])
    small.model.says("``", "`\n\nThen **bold**.\n")
    small.model.ends()
    reader.is_idle()
    expect(answer.get_by_role("strong")).to_have_text("bold")
    assert answer.locator("pre").all_inner_texts() == ["\n".join(LINES) + "\n"]
    assert "`" not in answer.inner_text().replace("`some`", "")


def test_code_ends_at_its_own_fence(reader: Chat, small: Stage) -> None:
    """Also where the server makes no HTML of it any more: neither shorter ones nor others close it."""
    inside = "```\nwithin ~~~~\n~~~\n~~~~ no\n"
    answer = reader.ask()
    small.model.says("~~~~\n")
    for start in range(0, len(LINES), 40):
        small.model.says("\n".join(LINES[start : start + 40]) + "\n")
        expect(answer).to_contain_text(LINES[start + 39])
    small.model.says(inside, "~~", "~~\n\nThen **bold**.\n")
    small.model.ends()
    reader.is_idle()
    expect(answer.get_by_role("strong")).to_have_text("bold")
    assert answer.locator("pre").all_inner_texts() == ["\n".join(LINES) + "\n" + inside]


def test_a_list_that_is_too_large_while_it_is_written_is_one_list(reader: Chat, small: Stage) -> None:
    answer = reader.ask()
    for start in range(0, 200, 50):
        small.model.says("".join(f"- item *{n}*\n" for n in range(start, start + 50)))
        expect(answer).to_contain_text(f"item {start + 49}")
    small.model.ends()
    reader.is_idle()
    expect(answer.get_by_role("list")).to_have_count(1)
    items = [f"item {n}" for n in range(200)]
    expect(answer.get_by_role("listitem")).to_have_text(items)


def test_so_is_a_table_that_came_at_once(reader: Chat, small: Stage) -> None:
    answer = reader.ask()
    small.model.says("|a|b|\n|-|-|\n" + "".join(f"|{n}|{n}😀|\n" for n in range(180)))
    small.model.ends()
    reader.is_idle()
    expect(answer.get_by_role("table")).to_have_count(1)
    expect(answer.get_by_role("row")).to_have_count(181)
    expect(answer.get_by_role("cell").last).to_have_text("179😀")
