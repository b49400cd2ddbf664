"""Filters of a pass's text: the same is shown however the text is cut."""

import asyncio
import itertools
import random
from collections.abc import Iterable

import pytest
from playing import Item, Player, ask_for, played, read, short, turn_of

from brain.errors import ModelError
from brain.events import Done
from brain.turn.text_filters import PrefillEcho, StopSequences

# What was to be continued, what the server sends, what of it is new.
CASES = [
    ("", "Hello", "Hello"),
    ("  \n", "Hello", "Hello"),
    ("Look: [x]\n\n", "It is x.", "It is x."),
    ("Look: [x]\n\n", "Look: [x]\n\nIt is x.", "It is x."),
    ("Look: [x]\n\n", "Look: [x]It is x.", "It is x."),
    ("Look: [x]\n\n", "Look: [x]\nIt is x.", "\nIt is x."),
    ("Look: [x]\n\n", "Look: [x]\n\n\nIt", "\nIt"),
    ("Look: [x]\n\n", "Look: [x]\n\n", ""),
    ("Look: [x]\n\n", "Look: [x]\n", ""),
    ("Look: [x]\n\n", "Look: [x]", ""),
    ("Look: [x]\n\n", "Look: [y] It", "Look: [y] It"),
    ("Look: [x]\n\n", "Look: ", "Look: "),
    ("Look: [x]\n\n", "Look: [", "Look: ["),
    ("Look: [x]\n\n", "L", "L"),
    ("Look: [x]\n\n", "", ""),
    ("Look: [x]\n\n", " Look: [x]\n\nIt", " Look: [x]\n\nIt"),
    ("ab", "abab", "ab"),
    ("ab", "ababab and so on", "abab and so on"),
    ("ab ", "ab ab", "ab"),
    ("aab", "aaab", "aaab"),
    ("größe 👩‍👩‍👧\n", "größe 👩‍👩‍👧\nist", "ist"),
]


def told(prefix: str, pieces: list[str]) -> str:
    echo = PrefillEcho(prefix)
    return "".join(echo.feed(piece) for piece in pieces) + echo.close()


@pytest.mark.parametrize(("prefix", "text", "new"), CASES)
def test_what_is_new_in_every_cut(prefix: str, text: str, new: str) -> None:
    assert told(prefix, [text]) == new
    assert told(prefix, list(text)) == new
    for a, b in itertools.combinations(range(len(text) + 1), 2):
        assert told(prefix, [text[:a], text[a:b], text[b:]]) == new


def test_text_that_differs_is_not_held_back() -> None:
    echo = PrefillEcho("Look: [x]\n\n")
    assert echo.feed("Loo") == ""
    assert echo.feed("n") == "Loon"
    assert echo.is_settled
    assert echo.feed("Look: [x]\n\n") == "Look: [x]\n\n"


def test_without_an_answer_to_continue_nothing_is_held_back() -> None:
    assert PrefillEcho("").is_settled
    assert PrefillEcho("").feed("a") == "a"


LINE = "It is Monday 2026-11-23 14:02, UTC."


@pytest.mark.parametrize(
    ("text", "new"),
    [
        (f"{LINE}\n\nHello.", "Hello."),
        (f"{LINE} \n Hello.", "Hello."),
        (f"{LINE}\nIt is", "It is"),
        (f"{LINE}\n\n{LINE}\nHello.", "Hello."),
        (f"{LINE}\n{LINE}", LINE),
        (LINE, LINE),
        (f"{LINE}\n", f"{LINE}\n"),
        (f"{LINE} Hello.\nYes.", f"{LINE} Hello.\nYes."),
        ("It is Monday.", "It is Monday."),
        (f"Hello. {LINE}\n\nYes.", f"Hello. {LINE}\n\nYes."),
        (LINE + "\n" * 65 + "Hello.", LINE + "\n" * 65 + "Hello."),
    ],
)
def test_a_line_is_dropped_above_other_text_only(text: str, new: str) -> None:
    for size in range(1, len(text) + 1):
        echo = PrefillEcho(LINE, is_line=True)
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert "".join(echo.feed(piece) for piece in pieces) + echo.close() == new


# Stop texts


def shown(stops: Iterable[str], chunks: Iterable[str]) -> tuple[str, bool]:
    """The visible text, and whether a stop came."""
    filter_ = StopSequences(tuple(stops))
    text = "".join([*map(filter_.feed, chunks), filter_.close()])
    return text, filter_.is_found


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
    filter_ = StopSequences(("\n\nUser:", "END"))
    assert filter_.feed("Hello.\n") == "Hello."
    assert filter_.feed("\nBye") == "\n\nBye"
    assert filter_.feed(" E") == " "
    assert filter_.feed("N") == ""
    assert filter_.close() == "EN"
    assert filter_.close() == ""


# In a turn


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
    whole, turn, _ = played(*passes, ask=ask_for(stop=stops))
    tiny, _, _ = played(*map(list, passes), ask=ask_for(stop=stops))
    assert whole == tiny == expected
    assert turn.exchange.answer == expected[-1]["text"]  # type: ignore[index]


def test_the_models_stream_is_closed_at_a_stop() -> None:
    items: list[Item] = ["one ", "STOP", " two", " three"]
    events, _, model = played(items, ask=ask_for(stop=("STOP",)))
    assert events == ["one ", done("one ")]
    assert model.given == [["one ", "STOP"]]


def test_what_is_held_back_when_a_model_fails_is_neither_shown_nor_kept() -> None:
    model = Player(["one ST", ModelError("model_failed", "It failed.")])
    turn = turn_of(model, ask=ask_for(stop=("STOP",)))
    assert short(asyncio.run(read(turn))) == ["one ", {"failed": "model_failed"}]
    assert turn.exchange.answer == "one "


def test_the_first_word_counts_though_it_was_held_back() -> None:
    *_, last = asyncio.run(read(turn_of(Player("ST"), ask=ask_for(stop=("STOP",)))))
    assert isinstance(last, Done)
    assert last.text == "ST"
    assert last.first_token_ms is not None
