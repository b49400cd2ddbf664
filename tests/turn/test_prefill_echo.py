import itertools

import pytest

from brain.turn.text_filters import PrefillEcho

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
