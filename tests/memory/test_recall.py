"""Which facts and memories belong to a question: what few words tell, in bounded time."""

import asyncio
import time
from datetime import timedelta

import pytest
from stores import NOON

from brain.memory.items import CANDIDATES, QUESTION_LENGTH
from brain.memory.recall import LETTERS_MOST, WORDS_MOST, Found, QuestionWords, chosen, note, ranked
from brain.memory.summaries import memory_of
from brain.messages import OWN_WORDS, Exchange, IdleConversation, Item
from brain.prompts.templates import memory_line
from brain.store.exchanges import title_of

ALIKE = [f"lik{a}{b}{c}" for a in "abcdefghij" for b in "abcdefghij" for c in "abcdefghijklmno"]


def memory(text: str, item_id: str = "m1") -> Item:
    return Item(item_id, "memory", text, NOON, NOON)


def found(*texts: str) -> Found:
    return Found([(memory(text, f"m{n}"), 1.0) for n, text in enumerate(texts)])


def test_the_longest_words_of_a_question_tell_what_it_is_about() -> None:
    said = [f"ab{n:02}" for n in range(WORDS_MOST)]
    assert QuestionWords(" ".join(["tea", *said, "penicillin"])).words == " ".join([*said[:-1], "penicillin"])
    assert QuestionWords("Am I allergic to penicillin?").words == "allergic penicillin"


def test_only_the_best_of_long_items_are_read() -> None:
    long = "Nora sings. " * 83
    asked = QuestionWords("When does Nora sing?")
    assert len(ranked(found(*[long] * CANDIDATES), asked)) == LETTERS_MOST // len(long) < CANDIDATES
    assert len(ranked(found(*["Nora sings."] * CANDIDATES), asked)) == CANDIDATES
    assert ranked(found("x" * 10_000 + " Nora sings."), asked) == []


@pytest.mark.alone
@pytest.mark.parametrize("repeated", [" ".join(ALIKE), "likings ", "1st ", "a'd ", "\ufdfa", "\u6c49", "tea. "])
@pytest.mark.parametrize("length", [500, 1_000, 10_000])
def test_no_question_takes_long(repeated: str, length: int) -> None:
    text = repeated * 10_000
    looked_up = found(*(text[n : n + length] for n in range(CANDIDATES)))
    began = time.process_time()
    ranked(looked_up, QuestionWords(text[:QUESTION_LENGTH]))
    assert time.process_time() - began < 0.05


@pytest.mark.parametrize("tokens", [50, 100, 400, 1000])
def test_a_note_keeps_to_its_budget_with_what_stands_between(tokens: int) -> None:
    items = [memory("tea", f"m{n}") for n in range(500)]
    told = note(chosen(items, [], tokens, ()), tokens)
    longest = len(f"; {memory_line(items[0], 100)}")
    assert 4 * tokens - longest < len(told.encode()) <= 4 * tokens


def test_nothing_that_nobody_sees_is_told() -> None:
    assert memory_line(memory("te\u202ea \U000e0041\x1b[31m"), 100).endswith(': "tea [31m"')


def test_a_summary_is_named_as_what_a_model_wrote_and_the_newest_comes_first() -> None:
    day = timedelta(days=1)
    items = [
        Item("f1", "fact", "I live in Bergen", NOON, NOON),
        Item("m1", "memory", "The user lives in Rome.", NOON, NOON - day),
        Item("f2", "fact", "I moved to Oslo", NOON, NOON + 2 * day),
        Item("m2", "memory", f"{OWN_WORDS}I paint", NOON, NOON + day),
    ]
    assert note(items, 1000).partition("instruction: ")[2] == (
        'fact of 2026-03-03: "I moved to Oslo"; '
        'memory of 2026-03-02: "In the user\'s own words: I paint"; '
        'fact of 2026-03-01: "I live in Bergen"; '
        'summary written by a model on 2026-02-28: "The user lives in Rome.")'
    )


def test_no_title_and_no_summary_has_what_nobody_sees() -> None:
    said = "I fly\u202e to \x1b]0;Oslo\x07 on\U000e0041 Monday"
    assert title_of(said) == "I fly to ]0;Oslo on Monday"
    exchange = Exchange(said, message=said)
    made = asyncio.run(memory_of(IdleConversation("ada", "c1", said, [exchange], None, 1), None, "m1", NOON))
    assert made is not None
    assert made.text == "In the user's own words: I fly to ]0;Oslo on Monday"
