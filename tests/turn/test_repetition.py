"""A model that repeats itself without end, and text that only looks like it."""

import asyncio
import base64
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from playing import Item, Player, read, registry_of, short, turn_of

from brain.events import Thinking
from brain.turn.text_filters import STEP, RepetitionGuard

ONE = "The quick brown fox jumps over the lazy dog. "
PARAGRAPH = (
    "Rivers carry water from the mountains to the sea. On their way they move sand and stones, and cut valleys into "
    "the land. Where they slow down, they drop what they carry: first the stones, then the sand, and at last the mud. "
)
INTRODUCTION = "Here is what I found about your question, as far as the page says something about it:\n\n"
chance = random.Random(3)


def numbered(line: str, count: int) -> str:
    return "".join(f"{n}. {line}\n" for n in range(1, count))


LOOPS = {
    "a sentence": ONE * 40,
    "a word": "very " * 200,
    "a paragraph": PARAGRAPH * 12,
    "after other text": INTRODUCTION + PARAGRAPH + ONE * 40,
    "Chinese": "我喜欢在河边散步，看看水和天空。" * 40,
    "German": "Der schnelle braune Fuchs springt über den faulen Hund, äöü. " * 20,
    "a line that counts on": numbered("The model writes the same line again.", 500),
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


def fed(chunks: Sequence[str]) -> tuple[str, bool]:
    guard, given = RepetitionGuard(), ""
    for chunk in chunks:
        given += guard.feed(chunk)
        if guard.is_found:
            break
    return given, guard.is_found


def splits(text: str) -> Iterator[list[str]]:
    yield list(text)
    yield from ([text[:place], text[place:]] for place in range(1, len(text), 7))
    for _ in range(20):
        places = sorted(chance.sample(range(1, len(text)), 9))
        yield [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_cut_at_the_same_place_however_the_text_is_cut(name: str) -> None:
    text = LOOPS[name]
    given, found = fed([text])
    assert found
    assert len(given) % STEP == 0
    assert text.startswith(given)
    assert all(fed(chunks) == (given, True) for chunks in splits(text))


@pytest.mark.parametrize("name", TEXTS)
def test_ordinary_text_is_left_as_it_is(name: str) -> None:
    assert all(fed(chunks) == (TEXTS[name], False) for chunks in ([TEXTS[name]], list(TEXTS[name])))


def test_a_sentence_is_stopped_within_a_hundred_tokens_or_so() -> None:
    assert len(fed([ONE * 40])[0]) <= 4 * STEP


def told(*passes: Sequence[Item] | str) -> tuple[list[Any], str, Player]:
    """What a turn tells, what is stored of its answer, and the model."""

    async def main() -> tuple[list[Any], str, Player]:
        model = Player(*passes)
        turn = turn_of(model, registry_of())
        events = short(await read(turn))
        assert model.open == 0
        return events, turn.exchange.answer, model

    return asyncio.run(main())


@pytest.mark.parametrize("size", [1, 5, 129, 10_000])
def test_a_turn_ends_where_its_model_repeats_itself(size: int) -> None:
    text = INTRODUCTION + ONE * 40 + "SPECIALIST_REQUEST[echo]"
    shown = text[: 4 * STEP]
    events, stored, model = told([text[at : at + size] for at in range(0, len(text), size)])
    assert events == [
        shown,
        {"notice": "repetition"},
        {"done": "repetition", "text": shown, "calls": 0, "passes": 1},
    ]
    assert stored == shown
    assert len(model.given[0]) * size <= len(shown) + size


def test_so_does_one_that_repeats_its_thoughts() -> None:
    events, stored, _ = told([*(Thinking(ONE) for _ in range(40)), "Done."])
    assert events[-2:] == [
        {"notice": "repetition"},
        {"done": "repetition", "text": "", "calls": 0, "passes": 1},
    ]
    assert stored == ""


def test_each_pass_is_looked_at_on_its_own() -> None:
    events, _, _ = told([ONE * 4, "SPECIALIST_REQUEST[echo]"], ONE * 4)
    assert events[-1]["done"] == "complete"
