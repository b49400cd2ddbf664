"""A call that acts only when the person at the page says so."""

import pytest
from playwright.sync_api import expect

from page.chat import Chat
from page.stage import Stage, request
from page.visitor import Visitor

pytestmark = pytest.mark.chromium


def test_nothing_is_done_before_approve(chat: Chat, stage: Stage) -> None:
    answer, card = chat.ask(), chat.call("burns")
    stage.model.says("I will. ", request("burns", title="Emma"), " x")
    expect(card).to_contain_text("needs your approval")
    expect(card.get_by_text('"title": "Emma"').last).to_be_visible()
    expect(card.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    expect(chat.box).to_be_focused()  # so that nobody approves while typing
    assert stage.burnt == []
    chat.approve("burns")
    expect(chat.button("Approve")).to_have_count(0)
    expect(chat.button("Decline")).to_have_count(0)
    stage.model.says("It burnt.")
    stage.model.ends()
    chat.is_idle()
    assert stage.burnt == ["Emma"]
    expect(card).to_contain_text("approved · ")
    chat.unfold("burns")
    expect(card).to_contain_text("Emma is ashes.")
    chat.reload()
    expect(card).to_contain_text("approved · ")
    expect(answer).to_contain_text("It burnt.")


def test_decline_says_so_and_the_answer_goes_on(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says(request("burns", title="Emma"), " x")
    chat.decline("burns")
    expect(chat.call("burns")).to_contain_text("not approved")
    expect(chat.button("Approve")).to_have_count(0)
    stage.model.says("I did not.")
    stage.model.ends()
    chat.is_idle()
    expect(answer).to_contain_text("I did not.")
    assert stage.burnt == []


@pytest.mark.parametrize("stage", [{"APPROVAL_SECONDS": 1}], indirect=True)
def test_what_nobody_approves_in_time_expires(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says(request("burns", title="Emma"), " x")
    expect(chat.button("Approve")).to_be_visible()
    expect(chat.call("burns")).to_contain_text("not approved in time")
    expect(chat.button("Approve")).to_have_count(0)
    stage.model.says("I did not.")
    stage.model.ends()
    chat.is_idle()
    expect(answer).to_contain_text("I did not.")
    assert stage.burnt == []
    chat.reload()
    expect(chat.call("burns")).to_contain_text("not approved in time")


def test_each_of_two_calls_has_its_own_buttons(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says(request("burns", title="Emma"), request("burns", title="Ulysses"), " x")
    cards = chat.call("burns")
    expect(chat.button("Approve")).to_have_count(2)
    cards.nth(1).get_by_role("button", name="Approve", exact=True).click()
    expect(chat.button("Approve")).to_have_count(1)
    expect(cards.nth(0)).to_contain_text("needs your approval")
    cards.nth(0).get_by_role("button", name="Decline", exact=True).press("Enter")
    expect(cards.nth(0)).to_contain_text("not approved")
    stage.model.ends()
    chat.is_idle()
    assert stage.burnt == ["Ulysses"]


def test_stop_ends_the_wait(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says(request("burns", title="Emma"), " x")
    expect(chat.button("Approve")).to_be_visible()
    chat.stop()
    chat.is_idle()
    expect(chat.button("Approve")).to_have_count(0)
    assert stage.brain.left(2) == []
    assert stage.burnt == []


def test_every_character_of_the_parameters_is_there(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says(request("burns", title="a\u202egpj.exe\u200b\u00a0<b>é</b>\n" + "long " * 2000), " x")
    shown = chat.call("burns").get_by_text('"title"').last
    chat.call("burns").get_by_role("button", name="more characters").click()
    expect(shown).to_contain_text('"title": "a\\u{202e}gpj.exe\\u{200b}\\u{a0}<b>é</b>\\nlong long ')
    assert shown.inner_text().count("long") == 2000
    chat.decline("burns")
    stage.model.ends()
    chat.is_idle()


def test_each_parameter_is_in_sight_however_long_the_others_are(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says(request("burns", title="long " * 2000, copies=3), " x")
    question = chat.call("burns")
    expect(question.get_by_role("button", name="… 9,642 more characters …", exact=True)).to_be_visible()
    last = question.get_by_text('"copies": 3').last
    expect(last).to_be_in_viewport()
    assert last.evaluate("it => it.parentElement.scrollHeight - it.parentElement.clientHeight") == 0
    expect(question.get_by_text("more below")).to_be_hidden()
    question.get_by_role("button", name="more characters").click()
    expect(question.get_by_text("more below")).to_be_visible()
    question.get_by_text('"copies": 3').last.evaluate("it => it.parentElement.scrollTo(0, it.scrollHeight)")
    expect(question.get_by_text("more below")).to_be_hidden()
    chat.decline("burns")
    stage.model.ends()
    chat.is_idle()


def test_numbers_are_shown_as_they_are_run(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says('SPECIALIST_REQUEST[burns:{"title":"Emma","copies":9007199254740993}]', " x")
    expect(chat.call("burns")).to_contain_text('"copies": 9007199254740993')
    chat.decline("burns")
    stage.model.ends()
    chat.is_idle()
    chat.reload()
    expect(chat.call("burns").get_by_text("copies: 9007199254740993")).to_be_visible()


def test_an_approval_in_one_tab_is_seen_in_the_other(chat: Chat, stage: Stage, visitor: Visitor) -> None:
    chat.ask()
    stage.model.says(request("burns", title="Emma"), " x")
    expect(chat.button("Approve")).to_be_visible()
    other = visitor.opens(chat.page.url)
    expect(other.button("Approve")).to_be_visible()
    other.approve("burns")
    expect(chat.button("Approve")).to_have_count(0)
    stage.model.says("It burnt.")
    stage.model.ends()
    for one in (chat, other):
        expect(one.answer).to_contain_text("It burnt.")
        one.is_idle()
    assert stage.burnt == ["Emma"]


def test_an_approval_survives_a_reload(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says(request("burns", title="Emma"), " x")
    expect(chat.button("Approve")).to_be_visible()
    chat.reload()
    chat.approve("burns")
    stage.model.says("It burnt.")
    stage.model.ends()
    expect(chat.answer).to_contain_text("It burnt.")
    assert stage.burnt == ["Emma"]


def test_a_decision_that_does_not_reach_the_server_can_be_made_again(
    chat: Chat, stage: Stage, visitor: Visitor
) -> None:
    visitor.expects("Failed to load resource: net::")
    chat.ask()
    stage.model.says(request("burns", title="Emma"), " x")
    expect(chat.button("Approve")).to_be_visible()
    chat.page.route("**/approvals/*", lambda route: route.abort())
    chat.approve("burns")
    expect(chat.call("burns")).to_contain_text("could not be reached")
    chat.page.unroute("**/approvals/*")
    assert stage.burnt == []
    chat.approve("burns")
    expect(chat.button("Approve")).to_have_count(0)
    stage.model.ends()
    chat.is_idle()
    assert stage.burnt == ["Emma"]
