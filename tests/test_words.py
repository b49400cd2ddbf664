"""Numbers and content words of a message."""

import pytest

from brain.words import content_words, find_numbers


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,200.50 or 1.234,56 or 2,5", [1200.5, 1234.56, 2.5]),
        ("minus 40, -3 and 10-12", [-40, -3, 10, 12]),
        ("half a million, 3 million, 18k", [500_000, 3_000_000, 18_000]),
        ("two of H2O", [2]),
    ],
)
def test_numbers(text: str, values: list[float]) -> None:
    assert [one.value for one in find_numbers(text)] == values


def test_content_words() -> None:
    assert content_words("What was the Battle of Lepanto about?") == ["Battle", "of", "Lepanto"]
    assert content_words("C'est qui l'ingénieur d'astreinte ?") == ["ingénieur", "astreinte"]
    assert content_words("what is the latest on Brain's logs", {"latest"}) == ["Brain", "logs"]
