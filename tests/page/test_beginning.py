"""The first moments: what is typed before the server has answered, and the examples of an empty conversation."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from brain import Context, specialist
from page.chat import Chat
from page.stage import Stage
from page.visitor import Visitor

pytestmark = pytest.mark.chromium


@specialist(activates_on=["image"], outside=True)
def ocr(*, context: Context) -> str:
    """Reads pictures."""
    return f"{context.attachments[0].name}: {len(context.attachments[0].data)} bytes"


@specialist(examples=["how is the weather", "and tomorrow"])
def weather() -> str:
    """Looks out of the window."""
    return "It rains."


@specialist(examples=["who was Ada Lovelace"])
def encyclopedia() -> str:
    """Looks something up far away."""
    return "A mathematician."


def held(page: Page, address: str | re.Pattern[str], act: Callable[[], object]) -> Route:
    """A request that goes on when a test lets it."""
    routes: list[Route] = []
    page.route(address, lambda route: routes.append(route), times=1)  # a method cannot be wrapped
    with page.expect_request(address):
        act()
    while not routes:
        page.evaluate("0")
    return routes[0]


def test_what_is_sent_before_the_server_has_answered_is_asked_then(stage: Stage, visitor: Visitor) -> None:
    page = visitor.context.new_page()
    start = held(page, "**/page/start", lambda: page.goto(stage.url))
    chat = Chat(page)
    chat.box.fill("hello")
    chat.box.press("Enter")
    expect(chat.box).to_have_value("hello")
    start.continue_()
    stage.model.says("Good day.")
    expect(chat.answer).to_contain_text("Good day.")
    expect(chat.question).to_contain_text("hello")
    expect(chat.box).to_have_value("")
    stage.model.ends()
    chat.is_idle()


def test_what_is_typed_before_the_server_has_answered_stays(stage: Stage, visitor: Visitor) -> None:
    page = visitor.context.new_page()
    start = held(page, "**/page/start", lambda: page.goto(stage.url))
    chat = Chat(page)
    chat.box.fill("hello")
    start.continue_()
    chat.is_ready()
    expect(chat.box).to_have_value("hello")
    assert stage.model.asked == []


def test_what_is_sent_while_a_conversation_is_opened_goes_on_with_it(chat: Chat, stage: Stage) -> None:
    chat.ask("one")
    stage.model.says("First.")
    stage.model.ends()
    chat.is_idle()
    opening = held(chat.page, re.compile(r"/v1/conversations/\w"), chat.reload)
    chat.box.fill("two")
    chat.box.press("Enter")
    expect(chat.box).to_have_value("")
    opening.continue_()
    expect(chat.questions).to_have_count(2)
    stage.model.says("Second.")
    stage.model.ends()
    expect(chat.answer).to_contain_text("Second.")
    assert stage.model.questions() == ["one", "two"]
    chat.is_idle()


def test_examples_are_of_those_who_are_there(stage: Stage, visitor: Visitor) -> None:
    registry = stage.brain.engine.registry
    registry.add(ocr, "brain-sse 1.0")
    registry.add(encyclopedia, "brain-sse 1.0")
    registry.add(weather, "a package 1.0")
    chat = visitor.opens(stage.url)
    examples = chat.page.get_by_role("list", name="Examples", exact=True).get_by_role("button")
    expect(examples).to_have_text(["What does the ticket say?", "How is the weather", "Where is Bern"])


def test_an_example_brings_its_picture(stage: Stage, visitor: Visitor) -> None:
    stage.brain.engine.registry.add(ocr, "brain-sse 1.0")
    chat = visitor.opens(stage.url)
    example = chat.button("What does the ticket say?")
    expect(example.locator("img")).to_have_js_property("naturalWidth", 560)
    example.click()
    expect(chat.question.get_by_role("img", name="ticket.png")).to_have_js_property("naturalWidth", 560)
    chat.unfold("ocr")
    expect(chat.call("ocr")).to_contain_text("ticket.png: 1549 bytes")
    stage.model.ends()
    chat.is_idle()
