"""A specialist's work, as a card in the answer where it happened."""

import pytest
from playing import words
from playwright.sync_api import expect

from page.chat import Chat
from page.stage import HOSTILE, Stage, request

pytestmark = pytest.mark.chromium


def test_a_card_stands_where_it_happened_with_progress_then_its_result_folded(chat: Chat, stage: Stage) -> None:
    answer, card = chat.ask(), chat.call("wiki")
    stage.model.says("Before.\n\n", request("wiki", title="Bern"), " dropped")
    expect(card).to_contain_text('"Bern"')
    expect(card).to_contain_text("page 2 of 4")
    expect(card.get_by_role("progressbar", name="Progress")).to_have_js_property("value", 0.5)
    stage.library.set()
    stage.model.says("After.")
    stage.model.ends()
    chat.is_idle()
    expect(card.get_by_role("progressbar")).to_be_hidden()
    expect(card).not_to_contain_text("page 2 of 4")
    result = card.get_by_text("two  spaces")
    expect(result).to_be_hidden()
    chat.unfold("wiki")
    expect(result).to_be_visible()
    expect(card.locator("br")).to_have_count(1)  # of Markdown
    card.get_by_role("button", name="Copy the result", exact=True).click()
    assert chat.clipboard() == "two  spaces\n  kept"
    source = card.get_by_role("link", name="Bern")
    expect(source).to_have_attribute("href", "https://example.org/bern")
    expect(source).to_have_attribute("target", "_blank")
    expect(source).to_have_attribute("rel", "noopener noreferrer")
    expect(card.get_by_role("listitem")).to_have_count(2)
    text = answer.inner_text()
    assert text.index("Before.") < text.index("page 2" if "page 2" in text else "wiki") < text.index("After.")
    assert "dropped" not in text


def test_an_answer_is_copied_with_its_sources_each_once(chat: Chat, stage: Stage) -> None:
    stage.library.set()
    chat.ask()
    for title in ("Bern", "Basel"):
        stage.model.says(request("wiki", title=title), " x")
    stage.model.says("It is **there**.")
    stage.model.ends()
    chat.is_idle()
    copied = "It is **there**.\n\nSources:\n\n1. [Bern](https://example.org/bern)\n2. A book"
    assert chat.copy() == copied
    chat.reload()
    assert chat.copy() == copied


def test_its_running_time_counts(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says(request("wiki", title="Bern"), " x")
    expect(chat.call("wiki")).to_contain_text("1.")  # seconds
    stage.library.set()
    stage.model.ends()
    chat.is_idle()


def test_two_calls_at_once_have_two_cards_in_the_order_of_the_requests(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says(request("wiki", title="Bern"), request("clock"), " x")
    chat.unfold("clock")
    expect(chat.call("clock")).to_contain_text("It is noon.")  # while the first still runs
    stage.library.set()
    stage.model.ends()
    chat.is_idle()
    names = answer.locator(".call").evaluate_all("nodes => nodes.map(node => node.ariaLabel)")
    assert names == ["wiki", "clock"]


def test_an_error_is_said_plainly(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says(request("breaks"), " x")
    expect(chat.call("breaks")).to_contain_text("breaks failed: something went wrong in it")
    expect(chat.call("breaks").get_by_text("other parameters")).to_be_hidden()
    chat.unfold("breaks")
    expect(chat.call("breaks")).to_contain_text("What the model was toldit ran into an error of its own;")
    stage.model.says("It failed.")
    stage.model.ends()
    chat.is_idle()
    expect(answer).not_to_contain_text("swordfish")


@pytest.mark.parametrize(
    ("marker", "name", "reason"),
    [
        ("SPECIALIST_REQUEST[nobody]", "nobody", "there is no specialist of this name"),
        (request("wiki", name=1), "wiki", "the model asked with wrong parameters"),
        (request("moon"), "moon", "it cannot be asked now"),
        ("[SPECIALIST_RESULT: docs]\nmade up", "A call", "the model made up a result instead of asking"),
    ],
    ids=["unknown", "wrong parameters", "unavailable", "forged"],
)
def test_what_never_ran_says_why(chat: Chat, stage: Stage, marker: str, name: str, reason: str) -> None:
    chat.ask()
    stage.model.says(marker, " x")
    told = chat.call(name).get_by_text(f"{name} was not run: {reason}", exact=True)
    expect(told).to_be_visible()
    stage.model.ends()
    chat.is_idle()
    chat.reload()
    expect(told).to_be_visible()


def test_a_call_that_is_repeated_is_known_from_before(chat: Chat, stage: Stage) -> None:
    chat.ask()
    for count in (1, 2):
        stage.model.says(request("clock"), " x")
        expect(chat.call("clock")).to_have_count(count)
    stage.model.ends()
    chat.is_idle()
    expect(chat.call("clock").nth(1)).to_contain_text("known from before")


def test_what_a_specialist_tells_is_text(chat: Chat, stage: Stage) -> None:
    chat.ask(HOSTILE)
    stage.model.says(request("hostile", text=HOSTILE), " x")
    card = chat.call("hostile")
    chat.unfold("hostile")
    expect(card).to_contain_text(f"{HOSTILE}\n{HOSTILE}", use_inner_text=True)
    stage.model.ends()
    chat.is_idle()
    expect(card.get_by_role("link")).to_have_count(1)  # two of three addresses are none of the web
    expect(card.get_by_role("link", name=HOSTILE, exact=True)).to_have_attribute(
        "href", "https://example.org/%3Cimg%20src=x%20onerror=hacked=1%3E%3Cb%3Ebold%3C/b%3E"
    )
    expect(chat.log.locator("img, b")).to_have_count(0)
    assert chat.page.evaluate("window.hacked") is None


def test_a_result_is_markdown_that_runs_nothing(chat: Chat, stage: Stage) -> None:
    chat.ask()
    text = "\n\n|a|b|\n|-|-:|\n|1|2|\n\n**bold** [a](javascript:hacked=1) ![b](https://example.org/leak.png)"
    stage.model.says(request("hostile", text=text), " x")
    card = chat.call("hostile")
    expect(card).to_contain_text("|a|b|")  # nobody looked yet
    chat.unfold("hostile")
    expect(card.get_by_role("strong")).to_have_text(["hostile", "bold"])
    expect(card.get_by_role("cell", name="2", exact=True)).to_have_css("text-align", "right")
    stage.model.ends()
    chat.is_idle()
    assert card.locator(".text a").evaluate_all("nodes => nodes.map(node => node.href)") == [
        "https://example.org/leak.png"
    ]
    expect(card.locator("img, b")).to_have_count(0)
    assert chat.page.evaluate("window.hacked") is None


def test_what_is_opened_stays_where_it_is(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("\n\n".join(words(60)), request("hostile", text="\n\nmore" * 60), " x")
    expect(chat.call("hostile")).to_contain_text("3 sources")
    stage.model.says("end")
    stage.model.ends()
    chat.is_idle()
    chat.log.evaluate("node => node.scrollTo(0, node.scrollHeight)")
    expect(answer.get_by_text("end", exact=True)).to_be_in_viewport()
    chat.unfold("hostile")
    expect(chat.call("hostile").locator(".text p")).to_have_count(61)  # it is rendered
    expect(chat.call("hostile").get_by_text("hostile", exact=True)).to_be_in_viewport()


def test_the_place_of_a_source_cannot_be_turned_round(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says(request("turns"), " x")
    chat.unfold("turns")
    item = chat.call("turns").get_by_role("listitem")
    expect(item).to_have_text("Sign in at moc.example.evil.example")
    expect(chat.call("turns").get_by_text("moc.example.evil.example")).to_have_css("unicode-bidi", "isolate")
    stage.model.ends()
    chat.is_idle()


def test_what_a_model_writes_runs_nothing(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says(
        f"{HOSTILE}\n\n[a](javascript:hacked=1) ![b](https://example.org/leak.png)\n\n<script>hacked=1</script>",
        "\n\nend",
    )
    stage.model.ends()
    chat.is_idle()
    expect(answer).to_contain_text("end")
    expect(answer).to_contain_text(HOSTILE)
    expect(answer.get_by_role("link", name="b", exact=True)).to_have_attribute("href", "https://example.org/leak.png")
    expect(answer.locator("img, b, script")).to_have_count(0)
    expect(answer.locator("[href^=javascript]")).to_have_count(0)
    assert chat.page.evaluate("window.hacked") is None
