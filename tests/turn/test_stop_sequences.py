"""The stop texts of clients: the same text is shown however the model's was cut."""

import asyncio
import random
import time
from collections.abc import Iterable
from dataclasses import replace

import pytest
from playing import Item, Player, ask_for, played, read, short, turn_of

from brain.errors import ModelError
from brain.events import Done
from brain.turn.text_filters import StopSequences
from brain.turn_request import TurnRequest


def shown(stops: Iterable[str], chunks: Iterable[str]) -> tuple[str, bool]:
    """The visible text, and whether a stop came."""
    watching = StopSequences(tuple(stops))
    text = "".join([*map(watching.feed, chunks), watching.close()])
    return text, watching.is_found


ENDS = [
    (["STOP"], "one STOP two", "one ", True),
    (["STOP"], "one two", "one two", False),
    (["STOP"], "STOP", "", True),
    (["STOP"], "", "", False),
    (["STOP"], "one ST", "one ST", False),
    (["STOP"], "one STSTOP", "one ST", True),
    (["aab"], "aaab", "a", True),
    (["abab"], "aabaabab", "aaba", True),
    (["\n\nUser:"], "Hi\n\nUs\n\nUser: you", "Hi\n\nUs", True),
    (["b", "d"], "abcd", "a", True),
    (["d", "b"], "abcd", "a", True),
    (["abcd", "bc"], "abcd", "a", True),  # the second is complete before the first
    (["abc", "bc"], "xabc", "x", True),  # both are at the same time: the longer one is cut off
    (["bc", "abc"], "xabc", "x", True),
    (["a", "ab"], "xab", "x", True),
    (["ab", "a"], "xab", "x", True),
    (["ab"], "xa", "xa", False),
    (["."], "One. Two.", "One", True),
    (["Ende 🌙"], "Das ist das Ende 🌙 davon", "Das ist das ", True),
    ([" "], "one two", "one", True),
]


@pytest.mark.parametrize(("stops", "text", "expected", "found"), ENDS)
def test_an_answer_ends_at_a_stop_however_it_is_cut(stops: list[str], text: str, expected: str, found: bool) -> None:
    assert shown(stops, [text]) == (expected, found)
    assert shown(stops, text) == (expected, found)
    for place in range(len(text) + 1):
        assert shown(stops, [text[:place], "", text[place:]]) == (expected, found)


@pytest.mark.parametrize("seed", range(5))
def test_any_cut_of_any_text_with_any_stops_shows_the_same(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(300):
        stops = ["".join(dice.choices("ab", k=dice.randint(1, 5))) for _ in range(dice.randint(1, 4))]
        text = "".join(dice.choices("abc", k=dice.randint(0, 30)))
        places = sorted(dice.choices(range(len(text) + 1), k=dice.randint(1, 8)))
        pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
        assert shown(stops, pieces) == shown(stops, text) == shown(stops, [text]), (stops, text, pieces)


def test_no_more_is_held_back_than_could_become_a_stop() -> None:
    watching = StopSequences(("\n\nUser:", "END"))
    assert watching.feed("Hello.\n") == "Hello."
    assert watching.feed("\nBye") == "\n\nBye"
    assert watching.feed(" E") == " "
    assert watching.feed("N") == ""
    assert watching.close() == "EN"
    assert watching.close() == ""


def test_the_most_stops_of_the_greatest_length_take_no_time() -> None:
    stops = tuple("a" * (256 - 1) + chr(ord("b") + n) for n in range(16))
    watching = StopSequences(stops)
    began = time.monotonic()
    for _ in range(1000):
        watching.feed("aaaa")
    assert time.monotonic() - began < 3


# In a turn


def asked(*stops: str) -> TurnRequest:
    return replace(ask_for(), stop=stops)


ECHO = "SPECIALIST_REQUEST[echo]"
RAN = [{"start": "c1", "name": "echo", "params": {}}, {"result": "c1", "text": "nothing"}]


def done(text: str, calls: int = 0, passes: int = 1) -> dict[str, object]:
    return {"done": "complete", "text": text, "calls": calls, "passes": passes}


IN_TURNS: list[tuple[tuple[str, ...], list[str], list[object]]] = [
    (("STOP",), ["one STOP two"], ["one ", done("one ")]),
    (("STOP",), [f"one STOP {ECHO}", "never"], ["one ", done("one ")]),  # no call behind a stop is run
    (("STOP",), [f"one {ECHO}", "two STOP three"], ["one ", *RAN, "two ", done("one two ", 1, 2)]),
    (("STOP",), [f"one ST{ECHO}", "OP two"], ["one ST", *RAN, "OP two", done("one STOP two", 1, 2)]),
    (("REQUEST", "SPECIALIST"), [f"one {ECHO}", "two"], ["one ", *RAN, "two", done("one two", 1, 2)]),
    (("nothing",), [f"one {ECHO}", "two"], ["one ", *RAN, "two", done("one two", 1, 2)]),
    (("STOP",), ["one ST"], ["one ST", done("one ST")]),
    (("STOP",), ["<think>STOP</think>one"], [{"thinking": "STOP"}, "one", done("one")]),
]


@pytest.mark.parametrize(("stops", "passes", "expected"), IN_TURNS)
def test_a_turn_ends_at_a_stop(stops: tuple[str, ...], passes: list[str], expected: list[object]) -> None:
    whole, turn, _ = played(*passes, ask=asked(*stops))
    tiny, _, _ = played(*map(list, passes), ask=asked(*stops))
    assert whole == tiny == expected
    assert turn.exchange.visible == expected[-1]["text"]  # type: ignore[index]


def test_the_models_stream_is_closed_at_a_stop() -> None:
    items: list[Item] = ["one ", "STOP", " two", " three"]
    events, _, model = played(items, ask=asked("STOP"))
    assert events == ["one ", done("one ")]
    assert model.given == [["one ", "STOP"]]


def test_what_is_held_back_when_a_model_fails_is_neither_shown_nor_kept() -> None:
    model = Player(["one ST", ModelError("model_failed", "It failed.")])
    turn = turn_of(model, ask=asked("STOP"))
    assert short(asyncio.run(read(turn))) == ["one ", {"failed": "model_failed"}]
    assert turn.exchange.visible == "one "


def test_the_first_word_counts_though_it_was_held_back() -> None:
    *_, last = asyncio.run(read(turn_of(Player("ST"), ask=asked("STOP"))))
    assert isinstance(last, Done)
    assert last.text == "ST"
    assert last.first_token_ms is not None
