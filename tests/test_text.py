"""Halves of characters: joined, kept for the next text, or replaced."""

import tracemalloc

import pytest

import brain.text as text_module
from brain.text import (
    TextBuffer,
    escape_invisible,
    first_words,
    join_surrogates,
    one_line,
    replace_surrogates,
    shorten,
    strip_invisible,
)


def test_a_text_becomes_one_line() -> None:
    assert one_line(" a\u202e\n\t b\u2028c ") == "a b c"


@pytest.mark.parametrize(
    ("text", "cut", "words"),
    [
        ("", "", ""),
        ("one two", "one two", "one two"),
        ("one two three", "one two t…", "one two…"),
        ("one two th", "one two th", "one two th"),
        ("abcdefghijkl", "abcdefghi…", "abcdefghi…"),
    ],
)
def test_a_long_text_ends_with_an_ellipsis(text: str, cut: str, words: str) -> None:
    assert (shorten(text, 10), first_words(text, 10)) == (cut, words)


@pytest.mark.parametrize(
    ("text", "whole", "half"),
    [
        ("", "", ""),
        ("plain é 😀", "plain é 😀", ""),
        ("\ud83d\ude00", "😀", ""),
        ("a\ud83d", "a", "\ud83d"),
        ("\ud83da", "\ufffda", ""),
        ("x\ude00", "x\ufffd", ""),
        ("\ud83d\ud83d\ude00", "\ufffd😀", ""),
        ("\ude00\ud83d", "\ufffd", "\ud83d"),
    ],
)
def test_halves_are_joined_or_replaced(text: str, whole: str, half: str) -> None:
    assert join_surrogates(text) == (whole, half)
    assert replace_surrogates(text) == whole + ("\ufffd" if half else "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("Zoë, 😀 and שלום", "Zoë, 😀 and שלום"),
        ("a\u202eb\u2066c\u200bd", "a\\u{202e}b\\u{2066}c\\u{200b}d"),
        ("\x1b[2J\n", "\\u{1b}[2J\\u{a}"),
        ("👩\u200d👧 1\ufe0f\u20e3 ❤\ufe0f", "👩\u200d👧 1\ufe0f\u20e3 ❤\ufe0f"),
        ("1\ufe0f0 x\ufe0f", "1\\u{fe0f}0 x\\u{fe0f}"),
        ("a\u3164\u115f\u1160\uffa0b", "a\\u{3164}\\u{115f}\\u{1160}\\u{ffa0}b"),
        ("a\u034f\u180b\u17b4\U000e0100b", "a\\u{34f}\\u{180b}\\u{17b4}\\u{e0100}b"),
        ("a\u2800\xa0\u3000\u2028\ud800b", "a\\u{2800}\\u{a0}\\u{3000}\\u{2028}\\u{d800}b"),
        ("a\u0301\u0302\u0303\u0301\u0302b\u0301", "a\u0301\u0302\u0303\\u{301}\\u{302}b\u0301"),
        ("\u1100\u1161\u11a8\u11a8\u11a8", "\u1100\u1161\u11a8\u11a8\\u{11a8}"),
    ],
)
def test_what_nobody_sees_is_made_visible(text: str, shown: str) -> None:
    assert escape_invisible(text) == shown


def test_a_text_without_what_nobody_sees_keeps_its_spaces() -> None:
    assert strip_invisible("a\u3164\u202e\ufe0fbc\xa0\u3000\u2800 d") == "abc\xa0\u3000\u2800 d"


@pytest.mark.parametrize("size", [1, 5, 447, 448, 10_000])
def test_a_text_grows_in_little_more_than_its_length(size: int) -> None:
    tracemalloc.start()
    try:
        text = TextBuffer()
        for number in range(20_000 // size):
            text.add(f"{number:04}"[:size].ljust(size, "é" if number == 3 else "x"))
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    own = snapshot.filter_traces([tracemalloc.Filter(True, text_module.__file__)])  # without those of other threads
    kept = sum(trace.size for trace in own.traces)
    assert 19_000 < kept < 25_000
    assert len(text.whole()) == 20_000 // size * size
    assert ("é" in text.whole()) == (20_000 // size > 3 and size > 4)
