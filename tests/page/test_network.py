"""Lost connections, reloads and other tabs: messages are sent once, and answers are complete."""

import re

import pytest
from limits import WAIT_SECONDS
from playwright.sync_api import expect

from brain.messages import Exchange, Text
from page.chat import SET_HIDDEN, Chat
from page.server import PageServer, request
from page.texts import page_text
from page.visitor import NEW, Visitor

pytestmark = pytest.mark.chromium

LOST = page_text("lost")
WAITING = page_text("elsewhere")
PATIENCE = 60_000  # ms: the page waits longer after each attempt to reconnect


def count(chat: Chat, server: PageServer, *numbers: str) -> None:
    """Let the model write these numbers and wait until they are visible, perhaps before Markdown is rendered."""
    server.model.write(*(f"{number} " for number in numbers))
    expect(chat.answer).to_contain_text(numbers[-1].strip("*"), timeout=PATIENCE)


def counted(chat: Chat) -> str:
    """The numbers in the newest answer."""
    return " ".join(re.findall(r"\b(?:one|two|three|four)\b", chat.answer.inner_text()))


def test_a_lost_connection_loses_nothing(chat: Chat, server: PageServer, visitor: Visitor) -> None:
    visitor.allow("net::")
    server.network.cut()
    chat.ask("count")
    expect(chat.page.get_by_text(page_text("sendsAgain"))).to_be_visible()
    server.network.restore()
    assert server.model.begun.wait(WAIT_SECONDS)
    count(chat, server, "one")
    server.network.cut()
    server.model.write("two ", "three ")
    expect(chat.page.get_by_text(LOST)).to_be_visible()
    server.network.restore()
    expect(chat.answer).to_contain_text("one two three", timeout=PATIENCE)
    expect(chat.page.get_by_text(LOST)).to_be_hidden()
    server.network.cut()
    server.model.write("four")
    server.model.end()
    server.wait_until_quiet()
    server.network.restore()
    expect(chat.button("Send")).to_be_visible(timeout=PATIENCE)
    assert counted(chat) == "one two three four"
    assert len(server.model.requests) == 1
    expect(chat.questions).to_have_count(1)


@pytest.mark.parametrize("visitor", [NEW], indirect=True)
def test_time_passes_while_a_machine_sleeps_a_tab_is_hidden_or_the_server_is_away(
    chat: Chat, server: PageServer, visitor: Visitor
) -> None:
    visitor.allow("net::")
    clock = chat.page.clock
    clock.install()
    chat.reload()
    chat.ask("count")
    count(chat, server, "one")
    server.network.lose_connections()
    clock.fast_forward(60_000)  # the machine slept
    count(chat, server, "two")
    chat.page.evaluate(SET_HIDDEN, True)
    clock.fast_forward(10_000)
    server.model.write("three ")
    server.model.end()
    server.wait_until_quiet()
    chat.show()
    chat.wait_until_idle()
    assert counted(chat) == "one two three"
    server.network.cut()
    chat.box.fill("count")
    chat.box.press("Enter")
    away = chat.log.get_by_text(page_text("unreachable"), exact=True)
    while not away.is_visible():  # the page retries a few times
        clock.fast_forward(4000)
    server.network.restore()
    while away.is_visible():  # the list checks for news regularly
        clock.fast_forward(10_000)


def test_a_reload_continues_the_answer(chat: Chat, server: PageServer) -> None:
    chat.ask("count")
    expect(chat.page).to_have_url(re.compile("#/c/"))
    chat.reload()
    expect(chat.question).to_contain_text("count")
    count(chat, server, "one", "**two**")
    chat.reload()
    expect(chat.answer.get_by_role("strong")).to_have_text("two")
    expect(chat.button("Stop")).to_be_visible()
    server.model.write(request("wiki", title="Bern"), " x")
    expect(chat.card("wiki")).to_contain_text("page 2 of 4")
    chat.reload()
    expect(chat.card("wiki")).to_contain_text("page 2 of 4")
    server.wiki_release.set()
    count(chat, server, "three")
    server.finish(chat)
    for _ in range(2):
        expect(chat.answer).to_contain_text("three")
        assert counted(chat) == "one two three"
        expect(chat.card("wiki")).to_have_count(1)
        expect(chat.answers).to_have_count(1)
        expect(chat.questions).to_have_count(1)
        chat.reload()


def test_an_answer_without_events_is_read_from_the_store(chat: Chat, server: PageServer, visitor: Visitor) -> None:
    visitor.allow("net::", "410", "404")
    chat.ask("count")
    count(chat, server, "one")
    server.network.cut()
    server.model.write("two ", "three ")
    server.model.end()
    server.wait_until_quiet()
    server.forget_turns()
    server.network.restore()
    expect(chat.button("Send")).to_be_visible(timeout=PATIENCE)
    assert counted(chat) == "one two three"
    expect(chat.answers).to_have_count(1)
    record = server.begin_elsewhere(Exchange("(read)", message="and on", question_id="q2"))
    chat.reload()
    expect(chat.question).to_contain_text("and on")
    expect(chat.answer).to_contain_text(WAITING)
    ended = Exchange("(read)", [Text("four", 1)], answer_id="a2", outcome="complete")
    server.brain.on_loop(server.store.end(record, ended))
    expect(chat.answer).to_contain_text("four", timeout=PATIENCE)
    expect(chat.answers).to_have_count(2)


@pytest.mark.parametrize("visitor", [NEW], indirect=True)
@pytest.mark.parametrize("are_hidden", [True, False], ids=["hidden", "visible"])
def test_answers_in_six_tabs_do_not_block_another(
    chat: Chat, server: PageServer, visitor: Visitor, are_hidden: bool
) -> None:
    """A browser has six connections per server, shared by all tabs."""
    tabs = [chat, *(visitor.open(server.url) for _ in range(5))]
    for tab in tabs:
        tab.bring_to_front()
        tab.ask()
        expect(tab.page).to_have_url(re.compile("#/c/"))
        if are_hidden:
            tab.hide()
    if are_hidden:
        front = visitor.open(server.url)
        front.ask()
        expect(front.page).to_have_url(re.compile("#/c/"))
        tabs.insert(0, front)
    for tab in tabs if are_hidden else tabs[::-1]:
        tab.bring_to_front()
        tab.show()
        tab.stop()
        tab.wait_until_idle()
    server.wait_until_quiet()


def test_two_tabs_show_one_answer_while_it_is_written(chat: Chat, server: PageServer, visitor: Visitor) -> None:
    chat.ask("count")
    count(chat, server, "one")
    other = visitor.open(chat.page.url)
    expect(other.answer).to_contain_text("one")
    count(chat, server, "two")
    expect(other.answer).to_contain_text("one two")
    other.stop()
    for tab in (chat, other):
        tab.wait_until_idle()
        expect(tab.answer).to_contain_text("Stopped.")
        assert counted(tab) == "one two"
    server.answer(other, "and on", "three")
    for tab in (other, chat):
        expect(tab.questions.nth(1)).to_contain_text("and on")
        expect(tab.answers.nth(1)).to_contain_text("three")
        tab.wait_until_idle()
    chat.bring_to_front()
    server.answer(chat, "and then", "four")
    for tab in (chat, other):
        expect(tab.answers.last).to_contain_text("four")
        texts = [re.findall("one|two|three|four", text) for text in tab.answers.all_inner_texts()]
        assert texts == [["one", "two"], ["three"], ["four"]]
