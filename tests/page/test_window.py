"""Windows of every kind: a phone, the dark, no motion, very long answers."""

import pytest
from playwright.sync_api import expect

from page.chat import Chat
from page.stage import Stage, request
from page.visitor import DARK, PHONE, STILL

pytestmark = pytest.mark.chromium


@pytest.mark.parametrize("visitor", [PHONE], indirect=True)
def test_a_phone_shows_everything_without_scrolling_sideways(chat: Chat, stage: Stage) -> None:
    chat.ask("a" * 200)
    stage.model.says("b" * 3000, "\n\n```\n" + "c" * 500 + "\n```\n\n|d|e|\n|-|-|\n|" + "f" * 300 + "|g|\n\n")
    stage.model.says(request("nobody" + "y" * 50, x="z" * 400), " x")
    stage.model.ends()
    stage.model.ends()
    chat.is_idle()
    assert chat.page.evaluate("document.documentElement.scrollWidth") == 360
    assert chat.log.evaluate("node => node.scrollWidth <= node.clientWidth")
    expect(chat.box).to_be_in_viewport(ratio=1)
    expect(chat.button("Send")).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize("visitor", [DARK], indirect=True)
def test_the_dark_is_dark(chat: Chat) -> None:
    ground, ink = chat.page.evaluate(
        "(({ backgroundColor, color }) => [backgroundColor, color])(getComputedStyle(document.body))"
    )
    assert _light(ground) < 60 < 200 < _light(ink)


def _light(colour: str) -> float:
    red, green, blue = (float(part) for part in colour.split("(")[1].rstrip(")").split(",")[:3])
    return (red + green + blue) / 3


@pytest.mark.parametrize("visitor", [STILL], indirect=True)
def test_nothing_moves_for_who_wants_no_motion(chat: Chat, stage: Stage) -> None:
    chat.ask()
    stage.model.says(request("wiki", title="Bern"), " x")
    expect(chat.call("wiki")).to_contain_text("page 2 of 4")
    assert chat.page.evaluate("document.getAnimations().filter(one => one.effect.getTiming().duration > 1).length") == 0
    stage.library.set()
    stage.model.ends()
    chat.is_idle()


@pytest.mark.alone
def test_a_long_answer_is_whole(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    words = [f"word {n} " if n % 40 else f"word {n}.\n\n" for n in range(10_000)]
    for at in range(0, len(words), 100):
        stage.model.says(*words[at : at + 100])
    stage.model.ends()
    expect(chat.button("Send")).to_be_visible(timeout=30_000)
    expect(answer.get_by_role("paragraph")).to_have_count(251, timeout=15_000)
    assert answer.inner_text().split("player")[0].split() == "".join(words).split()


@pytest.mark.alone
def test_what_is_read_does_not_jump_while_it_is_written(chat: Chat, stage: Stage) -> None:
    answer = chat.ask()
    stage.model.says("Start. ")
    expect(answer).to_contain_text("Start.")
    jumps = chat.jumps()
    for n in range(200):
        stage.model.says(f"word {n} **bold** " if n % 20 else f"\n\n- item {n}\n\n")
    expect(answer).to_contain_text("word 199")
    stage.model.ends()
    chat.is_idle()
    assert sum(jumps()) < 0.1
