"""Markdown as it is shown: what stands where, what is defined late, what one can click, what is large."""

import pytest
from playwright.sync_api import expect

from page.chat import Chat
from page.stage import Stage, request

pytestmark = pytest.mark.chromium

BEGINS = """(paragraph) => {
    const words = document.createRange();
    words.selectNodeContents(paragraph);
    return Math.round(words.getBoundingClientRect().left - paragraph.getBoundingClientRect().left);
}"""
"""How far from the left the words of a paragraph are."""


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
    expect(answer.get_by_role("math")).to_have_count(2)
    expect(answer.get_by_role("paragraph").last).to_contain_text(", $5")
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


def test_a_citation_opens_the_source_of_a_result(chat: Chat, stage: Stage) -> None:
    stage.library.set()
    answer = chat.ask()
    stage.model.says(request("wiki", title="Bern"), " x")
    expect(chat.call("wiki")).to_contain_text("2 sources")
    stage.model.says("Bern is a town [1], but not [7].")
    stage.model.ends()
    chat.is_idle()
    expect(answer.get_by_role("link", name="[1]", exact=True)).to_have_attribute("href", "https://example.org/bern")
    expect(answer.get_by_role("paragraph").last).to_contain_text("not [7]")
    chat.reload()
    expect(answer.get_by_role("link", name="[1]", exact=True)).to_have_attribute("href", "https://example.org/bern")


def test_a_click_on_a_footnote_goes_to_its_text(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says(
        "A fact[^1].\n\n" + "\n\n".join(f"Line {n} of {n * n}." for n in range(60)) + "\n\n[^1]: Its note.\n"
    )
    stage.model.ends()
    chat.is_idle()
    answer.get_by_role("button", name="1", exact=True).click()
    expect(answer.get_by_text("Its note.")).to_be_focused()
    expect(answer.get_by_text("Its note.")).to_be_in_viewport()


def test_details_stay_open_while_their_text_is_written(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("<details>\n<summary>More</summary>\n\nOne.")
    answer.get_by_text("More", exact=True).click()
    stage.model.says(" Two.")
    expect(answer.get_by_text("One. Two.", exact=True)).to_be_visible()
    stage.model.says("\n</details>\n\nEnd.")
    stage.model.ends()
    chat.is_idle()
    expect(answer.get_by_text("One. Two.", exact=True)).to_be_visible()


def test_code_that_is_complete_has_colours_and_a_button_that_copies_it(chat: Chat, stage: Stage) -> None:
    code = "def tea() -> str:\n    return 'green'  # hot\n"
    answer = chat.ask()
    stage.model.says(f"```py\n{code}```\n\n```nolang\nx\n```\n")
    stage.model.ends()
    chat.is_idle()
    expect(answer.locator(".hljs-keyword")).to_have_text(["def", "return"])
    answer.get_by_role("button", name="Copy the code", exact=True).first.click()
    assert chat.clipboard() == code
