"""Halves of characters: joined, kept for the next text, or replaced."""

import pytest

from brain.unicode import joined, well_formed


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
    assert joined(text) == (whole, half)
    assert well_formed(text) == whole + ("\ufffd" if half else "")
