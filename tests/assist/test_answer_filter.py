"""What is shown of the text of an assisted model."""

import pytest

from brain.assist.answer_filter import STOPS, AnswerFilter

QUESTION = "How tall is the Eiffel Tower? (It is Monday 2026-11-23, 10:00)"
RESULT = (
    "The Eiffel Tower is a lattice tower in Paris, 330 m tall. Gustave Eiffel finished it in 1889 for 1,490 visitors."
)
GERMAN = "Der Kölner Dom ist 157 m hoch. Meister Gerhard begann den Bau 1248."
TALL = "It is 330 m tall."


def show(text: str, pieces: list[str], results: list[str], stops: tuple[str, ...] = STOPS) -> str:
    answer = AnswerFilter(QUESTION, results, stops)
    shown = "".join([piece for one in pieces for _, piece in answer.feed(one)] + [piece for _, piece in answer.close()])
    assert (answer.has_shown, answer.is_holding) == (bool(shown), False)
    return shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (TALL, TALL),
        (f"  Answer: {TALL}", TALL),
        ("**330 m**", "**330 m**"),
        (f"{TALL} It stands in Paris!\n\nIt is old.\n", f"{TALL} It stands in Paris!\n\nIt is old.\n"),
        # a repeated sentence
        (f"{TALL} it is 330 M tall! It is old.", TALL),
        # a part of the prompt
        (f"{TALL} Information: The tower", TALL),
        (f"{TALL} It is Monday 2026-11-23.", TALL),
        ("Answer the question in one sentence, 330 m.", ""),
        # numbers and names of unknown source
        (f"{TALL} It was built in 1925.", TALL),
        (f"{TALL} Stephen built it. It was Sauvestre, not Eiffel.", f"{TALL} Stephen built it."),
        (f"{TALL} He is Gustave Eiffel.", f"{TALL} He is Gustave Eiffel."),
        ("It had 1490 visitors. It had 1'490 visitors.", "It had 1490 visitors. It had 1'490 visitors."),
        ("It had 1,490 visitors, 1.490 in Paris.", "It had 1,490 visitors, 1.490 in Paris."),
        ("It had 1,491 visitors.", ""),
        *((f"It is {number} m tall.", "") for number in ("33", "3.30", "33.0", "3,300", "30")),
        ("It is 330.0 m tall.", "It is 330.0 m tall."),
        ("It had 1.49 visitors.", ""),
        ("It had 1490 thousand visitors.", ""),
        ("1. It is 330 m tall.\n2. It is in Paris.\n3. It has 5 lifts.", "1. It is 330 m tall.\n2. It is in Paris.\n"),
        # abbreviations end no sentence
        ("The tower is approx. 330 m tall, e.g. in Paris.", "The tower is approx. 330 m tall, e.g. in Paris."),
        ("The tower is approx. 5 m tall.", ""),
        # sentences about something else wait for one about the result
        (f"Let me think. {TALL}", f"Let me think. {TALL}"),
        (f"Let me think.\n\n{TALL}", f"Let me think.\n\n{TALL}"),
        ("I cannot help you with that.", ""),
        ("330.", "330."),
        ("1.", ""),
        (f"One thing. Two things. Three things. {TALL}", ""),
        ("The Eiffel Tower is tall.", ""),
        # the last sentence
        (f"{TALL} It stands in Par", TALL),
        ("It is 330 m ta", "It is 330 m ta"),
        # stop texts
        (f"{TALL}<|im_end|>It is old.", TALL),
        (f"{TALL}\nQuestion: and now?", TALL),
        (f"{TALL}\nQuite.", f"{TALL}\nQuite."),
        (f"{TALL} It is <|old|>.", f"{TALL} It is <|old|>."),
        ("It is 330 m ta<end_of_turn>ll", "It is 330 m ta"),
    ],
)  # fmt: skip
def test_the_text_is_the_same_however_it_is_cut(text: str, expected: str) -> None:
    assert show(text, [text], [RESULT]) == expected
    assert show(text, list(text), [RESULT]) == expected
    for place in range(len(text)):
        assert show(text, [text[:place], "", text[place:]], [RESULT]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Der Dom hat eine Höhe von 157 Metern. Er ist alt.", "Der Dom hat eine Höhe von 157 Metern. Er ist alt."),
        ("Den Bau begann der alte Meister 1248.", "Den Bau begann der alte Meister 1248."),
        ("Der Dom ist 157 m hoch und steht in Berlin.", ""),
        ("Das Münster wurde 1248 von Konrad begonnen.", ""),
        ("Der Bau dauerte 632 Jahre.", ""),
    ],
)
def test_a_german_noun_is_no_name(text: str, expected: str) -> None:
    assert show(text, list(text), [GERMAN]) == expected


ROAD = (
    "Elm Road 8 is 0.125 km long, costs 2.5 million and has 1.490 trees, 31 shops, 8.5 lamps and 12,000 tiles "
    "(2026-11-23)."
)


@pytest.mark.parametrize(
    ("number", "is_known"),
    [
        ("8", True),
        ("8,000", False),  # a thousand times more than Elm Road 8
        ("8.000", False),
        ("8'000", False),
        ("8,500", False),
        ("8 thousand", False),
        ("8k", False),
        ("8 million", False),
        ("8 Millionen", False),
        ("31,000", False),
        ("0.125", True),
        ("125", False),
        ("2.5 million", True),
        ("2500000", True),
        ("2,500,000", True),
        ("2.5", False),
        ("2500 thousand", True),
        ("1.490", True),
        ("1,490", True),  # as ambiguous as in the text
        ("1490", False),
        ("8.5", True),
        ("12,000", True),
        ("12000", True),
        ("12 thousand", True),
        ("12k", True),
        ("12", False),
        ("2026", True),
        ("23.11.2026", True),
        ("24.11.2026", False),
    ],
)
def test_all_that_a_number_may_mean_must_be_known(number: str, is_known: bool) -> None:
    for text in (f"The shops and lamps have {number} things.", f"Elm Road costs {number}."):
        assert show(text, list(text), [ROAD]) == (text if is_known else "")


def test_a_chinese_sentence_is_about_the_result() -> None:
    text = "珠穆朗玛峰位于中国和尼泊尔边界，是世界最高峰。"
    assert show(text, list(text), ["珠穆朗玛峰，世界最高峰，位于中国和尼泊尔边界，海拔8848米。"]) == text
    assert show("今天天气很好。", ["今天天气很好。"], ["珠穆朗玛峰，世界最高峰。"]) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Berlin has 5 lakes. I like Paul.", "Berlin has 5 lakes. I like Paul."),
        ("Hello! Hello! Bye.", "Hello! Hello! Bye."),
        ("It is Monday 2026-11-23, 10:00. Bye.", "It is Monday 2026-11-23, 10:00. Bye."),
        ("Hello. It is Monday 2026-11-23, 10:00.", "Hello."),
        ("Hello. Monday 2026-11-23 10:00, Europe/Berlin.", "Hello."),
        ("Hello. Monday 2026-11-23 10:00, dentist.", "Hello. Monday 2026-11-23 10:00, dentist."),
        ("Buy:\n- apples\n- pears", "Buy:\n- apples\n- pears"),
        (
            "for x in a:\n    print(x)\nfor y in b:\n    print(x)",
            "for x in a:\n    print(x)\nfor y in b:\n    print(x)",
        ),
        ("1. " * 150, "1. " * 150),
        ("Bonn\n\nBerlin", "Bonn"),
        ("你好。。再见！", "你好。再见！"),
        ("x" * 2_000, "x" * 2_000),
        (f"It is long. It has 150{',000' * 90} parts.", "It is long."),
    ],
)
def test_without_results_only_stops_copies_and_endless_numbers_end_the_text(text: str, expected: str) -> None:
    assert show(text, [text], [], ("\n\n",)) == expected
    assert show(text, list(text), [], ("\n\n",)) == expected
