"""What a screen reader is told, and what axe finds in each state of the page: nothing."""

import re

import pytest
from nodes import Clients
from playwright.sync_api import expect

from brain.events import Thinking
from page.axe import Axe
from page.chat import Chat
from page.stage import Stage, request
from page.visitor import DARK, PHONE, Visitor

pytestmark = [pytest.mark.chromium, pytest.mark.node]

KEYS = pytest.mark.parametrize("stage", [{"KEYS": "s3cret:ann"}], indirect=True)
SCHEMES = pytest.mark.parametrize("visitor", [{}, DARK], ids=["light", "dark"], indirect=True)
MARKDOWN = """# Tea

Boil **water**, see [the page](https://example.org/tea), `kettle`:

1. Pour
2. Wait

| time | taste |
|-|-|
| 3 min | mild |

> Slowly.

```python
pour(water)  # hot
```
"""
READ = r"""- article "Brain":
  - heading "Tea" [level=3]
  - paragraph:
    - text: Boil
    - strong: water
    - text: ", see"
    - link "the page":
      - /url: https://example.org/tea
    - text: ","
    - code: kettle
    - text: ":"
  - list:
    - listitem: Pour
    - listitem: Wait
  - table:
    - rowgroup:
      - row "time taste":
        - columnheader "time"
        - columnheader "taste"
    - rowgroup:
      - row "3 min mild":
        - cell "3 min"
        - cell "mild"
  - blockquote:
    - paragraph: Slowly.
  - text: python
  - button "Copy the code": Copy
  - code: "pour(water) # hot"
  - group "wiki":
    - group:
      - strong: wiki
      - code: "title: \"Bern\""
      - text: 2 sources · SO MANY
      - paragraph: Sources
      - list:
        - listitem:
          - link "Bern":
            - /url: https://example.org/bern
          - text: example.org
        - listitem: A book
      - paragraph: Result
      - button "Copy the result"
      - group "Result":
        - paragraph: two spaces kept
      - paragraph: Parameters
      - group "Parameters": "{ \"title\": \"Bern\" }"
  - paragraph: Done.
  - text: player · SO MANY · about SO MANY tokens
  - button "Copy"
  - button "Retry"
"""


@pytest.fixture
def axe(clients: Clients) -> Axe:
    return Axe(clients)


@SCHEMES
def test_a_conversation_from_its_beginning_to_its_end(chat: Chat, stage: Stage, axe: Axe) -> None:
    expect(chat.button("Where is Bern")).to_be_visible()
    assert axe.finds(chat) == []  # empty
    chat.ask("How do I make tea?")
    stage.model.says(Thinking("hm"), MARKDOWN)
    expect(chat.answer.get_by_role("code").last).to_contain_text("pour")
    assert axe.finds(chat) == []  # it is written
    stage.model.says(request("wiki", title="Bern"), " x")
    expect(chat.call("wiki")).to_contain_text("page 2 of 4")
    assert axe.finds(chat) == []  # a call runs
    stage.library.set()
    stage.model.says("\n\nDone.")
    stage.model.ends()
    chat.is_idle()
    assert axe.finds(chat) == []  # its card is folded
    chat.unfold("wiki")
    chat.answer.get_by_text("Thoughts", exact=True).click()
    expect(chat.call("wiki").get_by_text("two  spaces")).to_be_visible()
    assert axe.finds(chat) == []


@SCHEMES
def test_what_goes_wrong_or_waits_for_a_person(chat: Chat, stage: Stage, axe: Axe) -> None:
    chat.ask()
    stage.model.says("I will. ", request("burns", title="Emma"), " x")
    expect(chat.button("Approve")).to_be_visible()
    assert axe.finds(chat) == []
    chat.decline("burns")
    stage.model.says("No. ", request("breaks"), " x")
    expect(chat.call("breaks")).to_contain_text("breaks failed:")
    stage.model.fails()
    expect(chat.answer.get_by_role("button", name="Retry", exact=True)).to_be_visible()
    assert axe.finds(chat) == []


@SCHEMES
def test_lists_menus_and_dialogs(chat: Chat, stage: Stage, axe: Axe) -> None:
    talk(chat, stage)
    chat.attach({"name": "notes.txt", "mimeType": "text/plain", "buffer": b"tea"})
    chat.history.get_by_role("button", name="Options for tea?", exact=True).click()
    expect(chat.page.get_by_role("menu")).to_be_visible()
    assert axe.finds(chat) == []
    chat.page.get_by_role("menuitem", name="Rename", exact=True).click()
    expect(chat.history.get_by_role("textbox", name="New title of tea?", exact=True)).to_be_focused()
    assert axe.finds(chat) == []
    chat.page.keyboard.press("Escape")
    chat.options("tea?", "Delete")
    assert axe.finds(chat) == []
    chat.page.keyboard.press("Escape")
    for name, shown in (("Specialists", "moon"), ("Settings", "Colours")):
        chat.button(name).click()
        expect(chat.page.get_by_role("dialog", name=name, exact=True).get_by_text(shown).first).to_be_visible()
        assert axe.finds(chat) == []
        chat.page.keyboard.press("Escape")


@SCHEMES
def test_what_a_search_finds(chat: Chat, stage: Stage, axe: Axe) -> None:
    talk(chat, stage)
    chat.search("tea")
    expect(chat.history.get_by_text("Boil water.")).to_be_visible()
    assert axe.finds(chat) == []


@SCHEMES
def test_memory(chat: Chat, stage: Stage, axe: Axe) -> None:
    chat.button("Memory").click()
    dialog = chat.page.get_by_role("dialog", name="Memory", exact=True)
    expect(dialog).to_contain_text("Nothing is remembered yet.")
    assert axe.finds(chat) == []
    dialog.get_by_role("button", name="Add a fact", exact=True).click()
    assert axe.finds(chat) == []
    dialog.get_by_role("textbox", name="Fact", exact=True).fill("I drink no coffee")
    dialog.get_by_role("checkbox", name="Protected: only you may change or delete it", exact=True).check()
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_role("listitem")).to_contain_text("I drink no coffee")
    assert axe.finds(chat) == []


@KEYS
@SCHEMES
def test_signing_in(stage: Stage, visitor: Visitor, axe: Axe) -> None:
    visitor.expects("401")
    chat = Chat(visitor.context.new_page())
    chat.page.goto(stage.url)
    key = chat.page.get_by_role("dialog", name="This server asks for a key", exact=True).get_by_label("Key", exact=True)
    expect(key).to_be_focused()
    assert axe.finds(chat) == []
    key.fill("wrong")
    key.press("Enter")
    expect(chat.page.get_by_role("dialog").get_by_role("alert")).not_to_be_empty()
    assert axe.finds(chat) == []


@pytest.mark.parametrize("visitor", [PHONE], indirect=True)
def test_a_phone(chat: Chat, stage: Stage, axe: Axe) -> None:
    assert axe.finds(chat) == []
    chat.ask("tea?")
    stage.model.says(MARKDOWN, request("burns", title="Emma"), " x")
    expect(chat.button("Approve")).to_be_visible()
    assert axe.finds(chat) == []
    chat.decline("burns")
    stage.model.ends()
    chat.is_idle()
    chat.button("Show or hide the conversations").tap()
    expect(chat.conversation("tea?")).to_be_visible()
    assert axe.finds(chat) == []


def talk(chat: Chat, stage: Stage) -> None:
    chat.ask("tea?")
    stage.model.says("Boil water.")
    stage.model.ends()
    chat.is_idle()
    expect(chat.conversation("tea?")).to_be_visible()


def test_an_answer_as_a_screen_reader_walks_through_it(chat: Chat, stage: Stage) -> None:
    stage.library.set()
    chat.ask("How do I make tea?")
    stage.model.says(MARKDOWN, request("wiki", title="Bern"), " x")
    expect(chat.call("wiki")).to_contain_text("2 sources")
    stage.model.says("Done.")
    stage.model.ends()
    chat.is_idle()
    chat.unfold("wiki")
    expect(chat.call("wiki").locator("br")).to_have_count(1)  # it is rendered
    assert without_times(chat.answer.aria_snapshot()).splitlines() == READ.splitlines()


def without_times(tree: str) -> str:
    return re.sub(r"[\d.]+ m?s\b|(?<=about )\d+", "SO MANY", tree)


@pytest.mark.parametrize("visitor", [{"viewport": {"width": 320, "height": 256}}], indirect=True)
def test_what_is_read_has_the_room_when_it_is_zoomed_to_400_percent(chat: Chat, stage: Stage) -> None:
    chat.ask("tea?")
    stage.model.ends()
    chat.is_idle()
    log, page = chat.log.bounding_box(), chat.page
    assert log is not None
    assert log["height"] > 140
    assert page.evaluate("document.documentElement.scrollWidth") == 320
    expect(chat.button("Send")).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize("visitor", [PHONE], indirect=True)
def test_a_phone_has_room_for_the_title(chat: Chat) -> None:
    title = chat.page.get_by_role("heading", level=1).bounding_box()
    model = chat.page.get_by_role("combobox", name="Model", exact=True).bounding_box()
    assert title is not None
    assert model is not None
    assert title["width"] > 150
    assert model["height"] >= 44


def test_paper_has_the_conversation_and_nothing_else(chat: Chat, stage: Stage) -> None:
    chat.ask("tea?")
    stage.model.says("\n\n".join(f"Line {n}." for n in range(200)), "\n\n", request("wiki", title="Bern"), " x")
    stage.library.set()
    stage.model.ends()
    expect(chat.answer).to_contain_text("Line 199.")
    chat.is_idle()
    chat.page.emulate_media(media="print")
    for gone in (chat.history, chat.box, chat.button("New conversation"), chat.button("Copy").last):
        expect(gone).to_be_hidden()
    expect(chat.page.get_by_role("heading", name="tea?", exact=True)).to_be_visible()
    expect(chat.question).to_be_visible()
    heights: list[int] = chat.log.evaluate("it => [it.clientHeight, it.scrollHeight, document.body.scrollHeight]")
    assert heights[0] == heights[1] > 5000
    assert heights[2] > 5000  # on several pages
