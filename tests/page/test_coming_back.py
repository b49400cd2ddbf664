"""A page that was reloaded, cut off or asleep, and two tabs: all show the whole answer, once."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from brain import journal
from brain.messages import Exchange, Said
from page.chat import Chat
from page.stage import Stage, request, staged
from page.visitor import Visitor

pytestmark = pytest.mark.chromium

CUT = "Failed to load resource: net::"
"""What Chromium complains of when a connection is gone."""
RECONNECTS = 15_000  # ms: the browser waits for two seconds, then for twice as long


def says(stage: Stage, *words: str) -> None:
    for word in words:
        stage.model.says(f"{word} ")


def text_of(chat: Chat) -> str:
    """The words of the newest answer, without what stands below it."""
    return " ".join(re.findall(r"\b(?:one|two|three|four|five|six)\b", chat.answer.inner_text()))


def test_a_reload_in_the_middle_of_an_answer_goes_on_with_it(chat: Chat, stage: Stage) -> None:
    chat.ask("count")
    says(stage, "one", "two")
    expect(chat.answer).to_contain_text("one two")
    chat.reload()
    expect(chat.answer).to_contain_text("one two")
    expect(chat.question).to_contain_text("count")
    expect(chat.button("Stop")).to_be_visible()
    says(stage, "three")
    expect(chat.answer).to_contain_text("one two three")
    stage.model.ends()
    chat.is_idle()
    assert text_of(chat) == "one two three"
    assert len(stage.model.asked) == 1
    expect(chat.answers).to_have_count(1)
    expect(chat.questions).to_have_count(1)


def test_a_reload_in_the_middle_of_a_call_shows_its_card(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says("one ", request("wiki", title="Bern"), " x")
    expect(chat.call("wiki")).to_contain_text("page 2 of 4")
    chat.reload()
    expect(chat.call("wiki")).to_contain_text("page 2 of 4")
    stage.library.set()
    stage.model.says("two")
    stage.model.ends()
    chat.is_idle()
    expect(chat.call("wiki")).to_have_count(1)
    for word in ("one", "two"):
        expect(chat.answer.get_by_text(word, exact=True)).to_be_visible()
    assert text_of(chat) == "one two"
    chat.unfold("wiki")
    expect(chat.call("wiki")).to_contain_text("kept")


def test_a_reload_before_the_first_token(chat: Chat, stage: Stage) -> None:
    chat.ask("count")
    expect(chat.page).to_have_url(re.compile("#/c/"))
    chat.reload()
    expect(chat.question).to_contain_text("count")
    says(stage, "one")
    expect(chat.answer).to_contain_text("one")
    stage.model.ends()
    chat.is_idle()
    assert len(stage.model.asked) == 1


def test_a_conversation_is_the_same_when_it_is_opened_again(chat: Chat, stage: Stage) -> None:
    chat.ask("count")
    stage.library.set()
    stage.model.says("one **two** ", request("wiki", title="Bern"), " x")
    expect(chat.call("wiki")).to_be_visible()
    stage.model.says("three")
    stage.model.ends()
    chat.is_idle()
    expect(chat.answer.get_by_role("paragraph").get_by_role("strong")).to_have_text("two")
    chat.reload()
    expect(chat.answer.get_by_role("paragraph").get_by_role("strong")).to_have_text("two")
    expect(chat.call("wiki")).to_have_count(1)
    assert text_of(chat) == "one two three"


def test_a_cut_network_that_comes_back_loses_nothing(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects(CUT)
    chat.ask("count")
    says(stage, "one")
    expect(chat.answer).to_contain_text("one")
    stage.line.cut()
    says(stage, "two", "three")
    expect(chat.page.get_by_text("The connection is lost; it comes back by itself.")).to_be_visible()
    stage.line.restore()
    expect(chat.answer).to_contain_text("one two three", timeout=RECONNECTS)
    expect(chat.page.get_by_text("The connection is lost; it comes back by itself.")).to_be_hidden()
    says(stage, "four")
    expect(chat.answer).to_contain_text("one two three four")
    stage.model.ends()
    chat.is_idle()
    assert text_of(chat) == "one two three four"
    assert len(stage.model.asked) == 1


def test_a_network_that_is_cut_again_and_again(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects(CUT)
    chat.ask("count")
    words = ["one", "two", "three"]
    for n, word in enumerate(words, 1):
        says(stage, word)
        expect(chat.answer).to_contain_text(" ".join(words[:n]), timeout=RECONNECTS)
        stage.line.cut()
        stage.line.restore()
    stage.model.ends()
    expect(chat.button("Send")).to_be_visible(timeout=RECONNECTS)
    assert text_of(chat) == "one two three"


def test_an_answer_that_ended_while_the_network_was_cut(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects(CUT)
    chat.ask("count")
    says(stage, "one")
    expect(chat.answer).to_contain_text("one")
    stage.line.cut()
    says(stage, "two")
    stage.model.ends()
    assert stage.brain.left(5) == []
    stage.line.restore()
    expect(chat.button("Send")).to_be_visible(timeout=RECONNECTS)
    assert text_of(chat) == "one two"


CLOCKS = """() => {
    const { setInterval, clearInterval } = window;
    window.clocks = new Set();
    window.setInterval = (...how) => {
        const clock = setInterval(...how);
        clocks.add(clock);
        return clock;
    };
    window.clearInterval = (clock) => {
        clocks.delete(clock);
        clearInterval(clock);
    };
}"""


def test_who_leaves_leaves_no_clock_running(chat: Chat, stage: Stage) -> None:
    chat.page.evaluate(CLOCKS)
    chat.ask()
    stage.model.says(request("wiki", title="Bern"), " x")
    expect(chat.call("wiki")).to_contain_text("page 2 of 4")
    assert chat.page.evaluate("clocks.size") == 2  # of the card, and of who looks whether the machine slept
    chat.begin_anew()
    expect(chat.answers).to_have_count(0)
    assert chat.page.evaluate("clocks.size") == 0


def test_a_machine_that_slept_comes_back_without_its_connection(chat: Chat, stage: Stage) -> None:
    chat.page.clock.install()
    chat.reload()
    chat.ask("count")
    says(stage, "one")
    expect(chat.answer).to_contain_text("one")
    stage.line.die()
    chat.page.clock.fast_forward(60_000)
    says(stage, "two", "three")
    expect(chat.answer).to_contain_text("one two three")
    stage.model.ends()
    chat.is_idle()
    assert text_of(chat) == "one two three"


def test_a_tab_that_nobody_sees_goes_on_when_it_is_seen(chat: Chat, stage: Stage) -> None:
    chat.ask("count")
    says(stage, "one")
    expect(chat.answer).to_contain_text("one")
    chat.hide()
    says(stage, "two")
    stage.model.ends()
    assert stage.brain.left(5) == []
    chat.look_again()
    chat.is_idle()
    assert text_of(chat) == "one two"


def test_tabs_in_which_answers_are_written_do_not_hold_up_another(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    """A browser has six connections to a server, for all tabs together."""
    behind = [chat, *(visitor.opens(stage.url) for _ in range(5))]
    for one in behind:
        one.ask()
        expect(one.page).to_have_url(re.compile("#/c/"))
        one.hide()
    front = visitor.opens(stage.url)
    front.ask()
    expect(front.page).to_have_url(re.compile("#/c/"))
    for one in (front, *behind):
        one.look_again()
        one.stop()
        one.is_idle()
    assert stage.brain.left(5) == []


def test_windows_side_by_side_let_a_request_go_first(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    windows = [chat, *(visitor.opens(stage.url) for _ in range(5))]
    for one in windows:
        one.ask()
        expect(one.page).to_have_url(re.compile("#/c/"))
    for one in reversed(windows):
        one.stop()
        one.is_idle()


def test_who_slept_until_the_turn_was_no_longer_kept_reads_what_was_stored(
    chat: Chat, stage: Stage, visitor: Visitor
) -> None:
    visitor.expects(CUT, "410", "404")
    chat.ask("count")
    says(stage, "one")
    expect(chat.answer).to_contain_text("one")
    stage.line.cut()
    says(stage, "two", "three")
    stage.model.ends()
    assert stage.brain.left(5) == []
    stage.forgets_turns()
    stage.line.restore()
    expect(chat.button("Send")).to_be_visible(timeout=RECONNECTS)
    expect(chat.answer).to_contain_text("one two three")
    assert text_of(chat) == "one two three"
    expect(chat.answers).to_have_count(1)
    again = chat.ask("go on")
    says(stage, "four")
    expect(again).to_contain_text("four")


def test_an_answer_whose_beginning_is_no_longer_told_comes_when_it_is_whole(
    chat: Chat, stage: Stage, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor.expects("410")
    monkeypatch.setattr(journal, "JOURNAL_BYTES", 1500)
    chat.ask("count")
    says(stage, "one")
    for count in range(10):
        says(stage, *["word"] * 20, f"w{count}")
        expect(chat.answer).to_contain_text(f"w{count}")
    says(stage, "two")
    expect(chat.answer).to_contain_text("two")
    chat.reload()
    expect(chat.answer).to_contain_text("Brain is still writing this. It appears here when it is finished.")
    says(stage, "three")
    stage.model.ends()
    expect(chat.answer).to_contain_text("three")
    assert text_of(chat) == "one two three"
    expect(chat.answers).to_have_count(1)
    chat.is_idle()


def test_an_answer_that_another_process_writes_comes_when_it_is_whole(chat: Chat, stage: Stage) -> None:
    chat.ask("count")
    says(stage, "one")
    stage.model.ends()
    expect(chat.answer).to_contain_text("one")
    chat.is_idle()
    store = stage.brain.house.store
    (heading,) = stage.brain.on_loop(store.conversations("local"))
    question = Exchange("(read)", said="and on", question_id="q2")
    record = stage.brain.on_loop(store.begin("local", heading.id, question, ()))
    chat.reload()
    expect(chat.question).to_contain_text("and on")
    expect(chat.answer).to_contain_text("Brain is still writing this. It appears here when it is finished.")
    ended = Exchange("(read)", [Said("two", 1)], answer_id="a2", outcome="complete")
    stage.brain.on_loop(store.end(record, ended))
    expect(chat.answer).to_contain_text("two")
    expect(chat.answers).to_have_count(2)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A server that keeps at each moment how far an answer is."""
    monkeypatch.setattr("brain.store.leases.PROLONG_SECONDS", 0.01)
    with staged() as stage:
        yield stage


def test_how_far_an_answer_was_is_kept_while_it_is_written(often: Stage, visitor: Visitor) -> None:
    stage, chat = often, visitor.opens(often.url)
    chat.ask("count")
    stage.model.says("two **three** ", request("wiki", title="Bern"), " x")
    expect(chat.call("wiki")).to_be_visible()
    stage.library.set()
    says(stage, "four")
    expect(chat.answer).to_contain_text("four")
    store = stage.brain.house.store
    (heading,) = stage.brain.on_loop(store.conversations("local"))
    for _ in range(500):
        found = stage.brain.on_loop(store.conversation("local", heading.id))
        if found is not None and "four" in found.exchanges[-1].visible:
            break
    assert found is not None
    assert [type(part).__name__ for part in found.exchanges[-1].parts] == ["Said", "Called", "Said"]
    stage.model.ends()
    chat.is_idle()


def test_a_question_that_did_not_reach_the_server_is_sent_once_it_does(
    chat: Chat, stage: Stage, visitor: Visitor
) -> None:
    visitor.expects(CUT)
    stage.line.cut()
    chat.ask("count")
    expect(chat.page.get_by_text("The server could not be reached; trying again…")).to_be_visible()
    stage.line.restore()
    assert stage.model.open.wait(10)
    says(stage, "one")
    stage.model.ends()
    expect(chat.answer).to_contain_text("one")
    chat.is_idle()
    assert len(stage.model.asked) == 1
    expect(chat.questions).to_have_count(1)


def test_two_tabs_show_one_answer_as_it_is_written(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    chat.ask("count")
    says(stage, "one")
    expect(chat.answer).to_contain_text("one")
    other = visitor.opens(chat.page.url)
    expect(other.answer).to_contain_text("one")
    says(stage, "two")
    for one in (chat, other):
        expect(one.answer).to_contain_text("one two")
    other.stop()
    for one in (chat, other):
        one.is_idle()
        expect(one.answer).to_contain_text("Stopped.")
        assert text_of(one) == "one two"


@pytest.mark.parametrize("seconds", [0.0, 0.3], ids=["fast", "slow"])
def test_what_is_asked_in_one_tab_comes_to_the_other(
    chat: Chat, stage: Stage, visitor: Visitor, seconds: float
) -> None:
    chat.ask("count")
    says(stage, "one")
    stage.model.ends()
    chat.is_idle()
    other = visitor.opens(chat.page.url)
    expect(other.answer).to_contain_text("one")
    stage.line.seconds = seconds
    other.ask("and on")
    says(stage, "two")
    stage.model.ends()
    for one in (other, chat):
        expect(one.questions.nth(1)).to_contain_text("and on")
        expect(one.answers.nth(1)).to_contain_text("two")
        one.is_idle()
    stage.line.seconds = 0.0
    chat.ask("and then")  # behind which nothing comes in twice any more
    says(stage, "three")
    stage.model.ends()
    for one in (chat, other):
        expect(one.answers.last).to_contain_text("three")
        assert [re.findall("one|two|three", text) for text in one.answers.all_inner_texts()] == [
            ["one"],
            ["two"],
            ["three"],
        ]


def test_what_is_kept_is_rendered_when_the_server_is_back(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    visitor.expects(CUT)
    chat.ask("count")
    stage.model.says("one **two**")
    stage.model.ends()
    chat.is_idle()
    failing = [True]
    chat.page.route("**/page/markdown", lambda route: route.abort() if failing else route.continue_())
    with chat.page.expect_event("requestfailed"):
        chat.reload()
    expect(chat.answer).to_contain_text("one **two**")
    failing.clear()
    expect(chat.answer.get_by_role("strong")).to_have_text("two")


def test_what_is_kept_and_too_large_for_one_request_is_rendered(chat: Chat, stage: Stage) -> None:
    """Its characters are fewer than the bytes that a request may have; their bytes are not."""
    chat.ask("count")
    stage.model.says("**\u4e8c\u4e8c\u4e8c\u4e8c\u4e8c\u4e8c\u4e8c\u4e8c**\n\n" * 5000)
    stage.model.ends()
    chat.is_idle()
    chat.reload()
    expect(chat.answer.get_by_role("strong")).to_have_count(5000, timeout=20_000)
