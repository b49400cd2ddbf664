"""The context window: the part of a conversation that the model reads."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import get_args

import pytest

from brain.events import Resume
from brain.messages import Attachment, Call, Exchange, History, Message, Part, Steer, Text
from brain.prompts import transcript
from brain.prompts.context_window import Window, count_tokens, fit_to_context, select_newest, select_window

NOON = datetime(2026, 5, 3, 12, 0, tzinfo=UTC)
BLOCK = "[SPECIALIST_RESULT: echo]\nx\n[/SPECIALIST_RESULT]"
RESUMES: Sequence[Resume] = get_args(Resume)


def exchange(question: str, answer: str = "", *, tokens: int = 0, at: datetime | None = None) -> Exchange:
    parts = [Text(answer, 1)] if answer else []
    return Exchange(question, [*parts], message=question, tokens=tokens, started=at, ended=at)


def call(number: int, turn_pass: int, block: str = BLOCK) -> Call:
    return Call("echo", "SPECIALIST_REQUEST[echo]", {}, id=f"c{number}", block=block, turn_pass=turn_pass)


def chain(question: str, calls: int, block: str = BLOCK) -> Exchange:
    """Return a question with this number of calls, each in a separate pass."""
    parts: list[Part] = []
    for n in range(1, calls + 1):
        parts += [Text(f"Pass {n}. ", n), call(n, n, block)]
    return Exchange(question, [*parts, Text("Done.", calls + 1)], message=question)


def numbered(count: int) -> list[Exchange]:
    return [exchange(f"Question {n}?", f"Answer {n}.") for n in range(count)]


def questions(exchanges: Sequence[Exchange]) -> list[str]:
    return [exchange.question for exchange in exchanges]


def select(exchanges: list[Exchange], room: Window, *, at: datetime = NOON, context: int | None = None) -> History:
    record = History("c", exchanges, count=len(exchanges))
    return select_window(record, Exchange("", message="Now?", started=at), room, context)


# How much


@pytest.mark.parametrize(
    ("messages", "selected"), [(20, [7, 8, 9]), (7, [7, 8, 9]), (6, [8, 9]), (5, [8, 9]), (3, [9]), (2, []), (1, [])]
)
def test_messages_are_counted_with_the_question(messages: int, selected: list[int]) -> None:
    found = select(numbered(10)[7:], Window(messages=messages))
    assert questions(found.exchanges) == [f"Question {n}?" for n in selected]


@pytest.mark.parametrize(("tokens", "selected"), [(31, 3), (30, 2), (21, 2), (20, 1), (11, 1), (10, 0)])
def test_tokens_are_counted_with_the_question(tokens: int, selected: int) -> None:
    exchanges = [exchange(f"Question {n}?", "x" * 29) for n in range(3)]  # 40 bytes, 10 tokens each; the question: 1
    assert len(select(exchanges, Window(tokens=tokens)).exchanges) == selected


def test_the_servers_count_goes_before_the_estimate() -> None:
    exchanges = [exchange("One?", "1.", tokens=50), exchange("Two?", "2.", tokens=50)]
    assert len(select(exchanges, Window(tokens=101)).exchanges) == 2
    assert len(select(exchanges, Window(tokens=100)).exchanges) == 1
    assert [count_tokens(one) for one in (exchanges[0], exchange("One?", "1."))] == [50, 2]


def test_new_text_files_take_their_room() -> None:
    file = Attachment(1, "a.txt", "text/plain", b"x" * 4000)
    record = History("c", [exchange("One?", "x" * 396)], count=1, files=(file,))
    question = Exchange("", message="Hi", started=NOON)
    assert len(select_window(record, question, Window(tokens=1101), None).exchanges) == 1
    assert len(select_window(record, question, Window(tokens=1100), None).exchanges) == 0


def test_instructions_of_clients_count_as_tokens() -> None:
    around = (Message("system", "x" * 4000),)
    history = History("c", [Exchange("old", messages_before=around), Exchange("new")])
    assert questions(fit_to_context(history, 4096).exchanges) == ["old", "new"]
    assert questions(fit_to_context(history, 1024).exchanges) == ["new"]
    assert fit_to_context(history, 1024).trimmed == 1


# Chains


@pytest.mark.parametrize("calls", [0, 1, 5, 12])
def test_an_exchange_counts_once_however_many_calls_it_has(calls: int) -> None:
    exchanges = [exchange("Before?", "Yes."), *(chain(f"Look {n}!", calls) for n in range(9))]
    found = select(exchanges[:9], Window())
    assert list(found.exchanges) == exchanges[:9]
    assert questions(select_newest(exchanges, 2, 8000)) == ["Look 7!", "Look 8!"]


def test_only_the_visible_text_of_an_exchange_larger_than_the_window_is_read() -> None:
    large = chain("Look!", 1, block="x" * 40_000)
    assert [one.parts for one in select_newest([large], 10, 8000)] == [[Text("Pass 1. Done.", 1)]]


# Steps


def test_the_window_moves_in_steps() -> None:
    firsts = []
    for count in range(9, 22):
        selected = select_newest(numbered(count), 9, 8000)
        assert selected[-1].question == f"Question {count - 1}?"
        firsts.append(int(selected[0].question[9:-1]))
    assert firsts == [0, 3, 3, 3, 6, 6, 6, 9, 9, 9, 12, 12, 12]


def test_a_small_window_moves_less_far() -> None:
    for max_exchanges, moves in ((4, [0, 2, 2, 4, 4, 6, 6, 8]), (2, [2, 3, 4, 5, 6, 7, 8, 9])):
        selected = [select_newest(numbered(count), max_exchanges, 8000) for count in range(4, 12)]
        assert [int(exchanges[0].question[9:-1]) for exchanges in selected] == moves
    assert [select(numbered(count), Window()).trimmed for count in range(8, 17)] == [0, 0, 3, 0, 0, 6, 0, 0, 9]


def test_the_window_starts_at_the_same_places_when_only_the_newest_are_known() -> None:
    for count in range(20, 40):
        newest = numbered(count)[-20:]
        assert questions(select_newest(newest, 9, 8000, count - 20)) == questions(
            select_newest(numbered(count), 9, 8000)
        )


# Rest


@pytest.mark.parametrize(("seconds", "selected"), [(3599, 2), (3600, 0)])
def test_after_a_long_idle_time_the_context_is_empty(seconds: int, selected: int) -> None:
    exchanges = [exchange("One?", "1.", at=NOON), exchange("Two?", "2.", at=NOON)]
    found = select(exchanges, Window(), at=NOON + timedelta(seconds=seconds))
    assert (len(found.exchanges), found.trimmed, found.after_idle) == (selected, 0, selected == 0)
    later = [*exchanges, exchange("Three?", "3.", at=NOON + timedelta(hours=6))]
    assert questions(select(later, Window(), at=NOON + timedelta(hours=6, minutes=1)).exchanges) == ["Three?"]


# Whatever was said


def any_exchange(chance: random.Random) -> Exchange:
    answer = chain("q" * chance.randrange(1, 400), chance.choice([0, 0, 0, 1, 2, 5, 12]), "b" * chance.randrange(2000))
    if chance.random() < 0.2:
        answer.parts.insert(chance.randrange(len(answer.parts) + 1), Steer("Be short!", 1))
    if chance.random() < 0.2:
        answer.parts = []
    if chance.random() < 0.5:
        answer.tokens = count_tokens(answer) * chance.randrange(50, 200) // 100
    return answer


@pytest.mark.parametrize("seed", range(40))
def test_the_window_is_hard_and_keeps_calls_with_their_blocks(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        exchanges = [any_exchange(chance) for _ in range(chance.randrange(30))]
        max_exchanges, tokens = chance.randrange(12), chance.randrange(1, 8000)
        resume = chance.choice(RESUMES)
        selected = select_newest(exchanges, max_exchanges, tokens, chance.randrange(9))
        request = transcript.messages("", selected, resume)
        assert len(selected) <= max_exchanges
        assert sum(map(count_tokens, selected)) <= tokens
        whole = exchanges[len(exchanges) - len(selected) :]
        assert questions(selected) == questions(whole), "the newest, in their order, none left out between them"
        for one, original in zip(selected, whole, strict=True):
            if one is not original:
                assert one.parts == [Text(original.answer, 1)]
                assert count_tokens(original) > tokens
            text = "".join(message.content for message in transcript.messages("", [one], resume))
            assert text.count("SPECIALIST_REQUEST[echo]") == sum(isinstance(part, Call) for part in one.parts)
        roles = [message.role for message in request]
        assert all(a != b for a, b in pairwise(roles))
