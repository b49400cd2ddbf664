"""Text filters: echo, stop sequences and endless repetition, with the same result for any split of the text."""

import base64
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from turn_helpers import Item, ask_for, done, played, succeeded

from brain.errors import ModelError
from brain.events import Thinking
from brain.turn.text_filters import STEP, PrefillEcho, RepetitionGuard, StopSequences

ECHO = "SPECIALIST_REQUEST[echo]"


def without_echo(prefix: str, pieces: Iterable[str], *, is_line: bool = False) -> str:
    echo = PrefillEcho(prefix, is_line=is_line)
    return "".join(echo.feed(piece) for piece in pieces) + echo.close()


@pytest.mark.parametrize(
    ("prefix", "text", "new"),
    [
        ("", "Hello", "Hello"),
        ("  \n", "Hello", "Hello"),
        ("Look: [x]\n\n", "It is x.", "It is x."),
        ("Look: [x]\n\n", "Look: [x]\n\nIt is x.", "It is x."),
        ("Look: [x]\n\n", "Look: [x]It is x.", "It is x."),
        ("Look: [x]\n\n", "Look: [x]\nIt is x.", "\nIt is x."),
        ("Look: [x]\n\n", "Look: [x]\n\n\nIt", "\nIt"),
        ("Look: [x]\n\n", "Look: [x]\n\n", ""),
        ("Look: [x]\n\n", "Look: [x]", ""),
        ("Look: [x]\n\n", "Look: [y] It", "Look: [y] It"),
        ("Look: [x]\n\n", "Look: [", "Look: ["),
        ("Look: [x]\n\n", "", ""),
        ("Look: [x]\n\n", " Look: [x]\n\nIt", " Look: [x]\n\nIt"),
        ("ab", "ababab and so on", "abab and so on"),
        ("ab ", "ab ab", "ab"),
        ("aab", "aaab", "aaab"),
        ("größe 👩‍👩‍👧\n", "größe 👩‍👩‍👧\nist", "ist"),
    ],
)
def test_text_after_an_echo(prefix: str, text: str, new: str) -> None:
    assert without_echo(prefix, text) == new
    for a, b in itertools.combinations_with_replacement(range(len(text) + 1), 2):
        assert without_echo(prefix, [text[:a], text[a:b], text[b:]]) == new


def test_text_that_differs_from_the_echo_is_not_held_back() -> None:
    echo = PrefillEcho("Look: [x]\n\n")
    assert [echo.feed(text) for text in ("Loo", "n", "Look: [x]\n\n")] == ["", "Loon", "Look: [x]\n\n"]


LINE = "Monday 2026-11-23 14:02, UTC."


@pytest.mark.parametrize(
    ("text", "new"),
    [
        (f"{LINE}\n\nHello.", "Hello."),
        (f"{LINE} \n Hello.", "Hello."),
        (f"{LINE}\n\n{LINE}\nHello.", "Hello."),
        (f"{LINE}\n{LINE}", LINE),
        (LINE, LINE),
        (f"{LINE}\n", f"{LINE}\n"),
        (f"{LINE} Hello.\nYes.", f"{LINE} Hello.\nYes."),
        ("Monday.", "Monday."),
        (f"Hello. {LINE}\n\nYes.", f"Hello. {LINE}\n\nYes."),
        (LINE + "\n" * 65 + "Hello.", LINE + "\n" * 65 + "Hello."),
    ],
)
def test_a_line_is_removed_only_above_other_text(text: str, new: str) -> None:
    for size in range(1, len(text) + 1):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert without_echo(LINE, pieces, is_line=True) == new


# Stop sequences


def until_stop(stops: Sequence[str], chunks: Iterable[str]) -> tuple[str, bool]:
    """Return the visible text, and whether it has a stop sequence."""
    filter_ = StopSequences(stops)
    return "".join([*map(filter_.feed, chunks), filter_.close()]), filter_.is_found


@pytest.mark.parametrize(
    ("stops", "text", "expected", "found"),
    [
        (["STOP"], "one STOP two", "one ", True),
        (["STOP"], "one two", "one two", False),
        (["STOP"], "STOP", "", True),
        (["STOP"], "", "", False),
        (["STOP"], "one ST", "one ST", False),
        (["STOP"], "one STSTOP", "one ST", True),
        (["aab"], "aaab", "a", True),
        (["abab"], "aabaabab", "aaba", True),
        (["\n\nUser:"], "Hi\n\nUs\n\nUser: you", "Hi\n\nUs", True),
        (["d", "b"], "abcd", "a", True),
        (["abcd", "bc"], "abcd", "a", True),  # the second is complete before the first
        (["bc", "abc"], "xabc", "x", True),  # both end together: the longer one is cut off
        (["ab", "a"], "xab", "x", True),
        (["Ende 🌙"], "Das ist das Ende 🌙 davon", "Das ist das ", True),
        ([" "], "one two", "one", True),
    ],
)
def test_an_answer_ends_at_a_stop_sequence(stops: list[str], text: str, expected: str, found: bool) -> None:
    assert until_stop(stops, text) == (expected, found)
    for place in range(len(text) + 1):
        assert until_stop(stops, [text[:place], "", text[place:]]) == (expected, found)


def test_any_cut_of_any_text_with_any_stop_sequences_shows_the_same() -> None:
    dice = random.Random(0)
    for _ in range(1500):
        stops = ["".join(dice.choices("ab", k=dice.randint(1, 5))) for _ in range(dice.randint(1, 4))]
        text = "".join(dice.choices("abc", k=dice.randint(0, 30)))
        places = sorted(dice.choices(range(len(text) + 1), k=dice.randint(1, 8)))
        pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
        assert until_stop(stops, pieces) == until_stop(stops, text) == until_stop(stops, [text])


def test_only_a_possible_stop_sequence_is_held_back() -> None:
    filter_ = StopSequences(("\n\nUser:", "END"))
    assert [filter_.feed(text) for text in ("Hello.\n", "\nBye", " E", "N")] == ["Hello.", "\n\nBye", " ", ""]
    assert [filter_.close(), filter_.close()] == ["EN", ""]


RESULT = succeeded("echo", "nothing")


@pytest.mark.parametrize(
    ("stop", "passes", "expected"),
    [
        ("STOP", ["one STOP two"], ["one ", done("one ")]),
        ("END", ["END"], [done("")]),
        ("STOP", [f"one STOP {ECHO}", "never"], ["one ", done("one ")]),  # the call does not run
        ("STOP", [f"one {ECHO}", "two STOP three"], ["one ", *RESULT, "two ", done("one two ", 1, 2)]),
        ("STOP", [f"one ST{ECHO}", "OP two"], ["one ST", *RESULT, "OP two", done("one STOP two", 1, 2)]),
        ("SPECIALIST", [f"one {ECHO}", "two"], ["one ", *RESULT, "two", done("one two", 1, 2)]),
        ("nothing", [f"one {ECHO}", "two"], ["one ", *RESULT, "two", done("one two", 1, 2)]),
        ("STOP", ["one ST"], ["one ST", done("one ST")]),
        ("STOP", ["<think>STOP</think>one"], [{"thinking": "STOP"}, "one", done("one")]),
    ],
)
def test_a_turn_ends_at_a_stop_sequence(stop: str, passes: list[str], expected: list[Any]) -> None:
    for cut in ([*passes], [[*text] for text in passes]):
        events, turn, _ = played(*cut, ask=ask_for(stop=(stop,)))
        assert events == expected
        assert turn.state.exchange.answer == expected[-1]["text"]


def test_the_models_stream_is_closed_at_a_stop_sequence() -> None:
    assert played(["one ", "STOP", " two"], ask=ask_for(stop=("STOP",)))[2].given == [["one ", "STOP"]]


def test_held_text_is_not_part_of_a_failed_answer() -> None:
    events, turn, _ = played(["one ST", ModelError("model_failed", "It failed.")], ask=ask_for(stop=("STOP",)))
    assert (events, turn.state.exchange.answer) == (["one ", {"failed": "model_failed"}], "one ")


# Repetition


ONE = "The quick brown fox jumps over the lazy dog. "
PARAGRAPH = (
    "Rivers carry water from the mountains to the sea. On their way they move sand and stones, and cut valleys into "
    "the land. Where they slow down, they drop what they carry: first the stones, then the sand, and at last the mud. "
)
INTRODUCTION = "Here is what I found about your question, as far as the page says something about it:\n\n"
chance = random.Random(3)

LOOPS = {
    "a sentence": ONE * 40,
    "a word": "very " * 200,
    "a paragraph": PARAGRAPH * 12,
    "after other text": INTRODUCTION + PARAGRAPH + ONE * 40,
    "Chinese": "我喜欢在河边散步，看看水和天空。" * 40,
    "German": "Der schnelle braune Fuchs springt über den faulen Hund, äöü. " * 20,
    "a line that counts on": "".join(f"{n}. The model writes the same line again.\n" for n in range(1, 500)),
    "code": "    print(result)\n" * 60,
    "a sign": "!" * 9000,
    "a digit": "0" * 9000,
    "letters": "ha" * 4500,
    "line ends": "So:\n" + "\n" * 9000,
}

TEXTS = {
    "a paragraph, three times": PARAGRAPH * 3 + INTRODUCTION * 2,
    "a plan": "".join(f"Day {n}: Walk {n % 5 + 2} km and rest.\n" for n in range(90)),
    "a counting song": "".join(
        f"{n} bottles of beer on the wall, {n} bottles of beer.\nTake one down and pass it around.\n"
        for n in range(99, 60, -1)
    ),
    "a refrain": "".join(f"Verse {n}: {''.join(chance.sample(PARAGRAPH, 150))}\n{ONE}\n{ONE}\n" for n in range(9)),
    "a song": "Row, row, row your boat,\nGently down the stream,\nMerrily, merrily, merrily, merrily,\n" * 2,
    "a list": "".join(f"- {''.join(chance.sample('abcdefghij', 6))}: see page {n}\n" for n in range(200)),
    "a table": "| yes | no | yes |\n|-----|----|-----|\n" + "| - | - | - |\n" * 200,
    "a table of numbers": "".join(f"{n}, {n * n}, 0.0, 0.0\n" for n in range(400)),
    "enumerations": "".join(f"#define LOG_LOCAL{n} ({n} << 3) /* reserved */\n" for n in range(12)),
    "a ruler": ("=" * 79 + "\n") * 20,
    "base64": base64.b64encode(bytes(900) + random.Random(4).randbytes(3000)).decode(),
    "zeros": "0" * 8000,
    "True and False": "[" + ", ".join("True" if n % 3 else "False" for n in range(28)) + "]",
}


def until_repetition(chunks: Iterable[str]) -> tuple[str, bool]:
    guard, text = RepetitionGuard(), ""
    for chunk in chunks:
        text += guard.feed(chunk)
        if guard.is_found:
            break
    return text, guard.is_found


def cuts(text: str) -> Iterator[Iterable[str]]:
    yield text
    yield from ([text[:place], text[place:]] for place in range(1, len(text), 211))
    for _ in range(5):
        places = sorted(chance.sample(range(1, len(text)), 9))
        yield [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_cut_at_the_same_place_however_the_text_is_cut(name: str) -> None:
    text = LOOPS[name]
    shown, is_found = until_repetition([text])
    assert is_found
    assert (len(shown) % STEP, text.startswith(shown)) == (0, True)
    assert all(until_repetition(chunks) == (shown, True) for chunks in cuts(text))


@pytest.mark.parametrize("name", TEXTS)
def test_ordinary_text_is_left_as_it_is(name: str) -> None:
    assert all(until_repetition(chunks) == (TEXTS[name], False) for chunks in ([TEXTS[name]], TEXTS[name]))


@pytest.mark.parametrize("size", [1, 5, 129, 10_000])
def test_a_turn_ends_where_its_model_repeats_itself(size: int) -> None:
    text = INTRODUCTION + ONE * 40 + ECHO
    shown = text[: 4 * STEP]
    events, turn, model = played([text[at : at + size] for at in range(0, len(text), size)])
    assert events == [shown, {"notice": "repetition"}, done(shown, reason="repetition")]
    assert turn.state.exchange.answer == shown
    assert len(model.given[0]) * size <= len(shown) + size


def test_a_turn_ends_where_its_model_repeats_its_thinking() -> None:
    items: list[Item] = [*(Thinking(ONE) for _ in range(40)), "Done."]
    assert played(items)[0][-2:] == [{"notice": "repetition"}, done("", reason="repetition")]


def test_each_pass_is_guarded_on_its_own() -> None:
    assert played([ONE * 4, ECHO], ONE * 4)[0][-1]["done"] == "complete"
