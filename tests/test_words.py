"""Days, numbers and content words of a message."""

from datetime import date

import pytest

from brain.words import content_words, find_days, find_numbers

TODAY = date(2026, 11, 23)
"""A Monday."""


@pytest.mark.parametrize(
    ("message", "first", "last"),
    [
        ("today or tonight", "2026-11-23", "2026-11-23"),
        ("the day after tomorrow", "2026-11-25", "2026-11-25"),
        ("mañana por la mañana", "2026-11-24", "2026-11-24"),
        ("on monday", "2026-11-23", "2026-11-23"),
        ("next monday", "2026-11-30", "2026-11-30"),
        ("last Friday", "2026-11-20", "2026-11-20"),
        ("am Freitagnachmittag", "2026-11-27", "2026-11-27"),
        ("this weekend", "2026-11-28", "2026-11-29"),
        ("la semaine prochaine", "2026-11-30", "2026-12-06"),
        ("in zwei Wochen", "2026-12-07", "2026-12-07"),
        ("the next 3 days", "2026-11-23", "2026-11-26"),
        ("in February", "2027-02-01", "2027-02-28"),
        ("3 de marzo de 2028", "2028-03-03", "2028-03-03"),
        ("24.12.", "2026-12-24", "2026-12-24"),
        ("from 2026-01-05 to 2026-01-09", "2026-01-05", "2026-01-09"),
        ("appointments from 1 to 7 December", "2026-12-01", "2026-12-07"),
        ("vom 1. bis 7. Dezember", "2026-12-01", "2026-12-07"),
        ("du 1er au 7 décembre", "2026-12-01", "2026-12-07"),
        ("del 1 al 7 de diciembre", "2026-12-01", "2026-12-07"),
        ("from Monday to Wednesday", "2026-11-23", "2026-11-25"),
        ("am I free Friday to Monday?", "2026-11-27", "2026-11-30"),
        ("zwischen Montag und Mittwoch", "2026-11-23", "2026-11-25"),
        ("next weekend", "2026-12-05", "2026-12-06"),
        ("nächstes Wochenende", "2026-12-05", "2026-12-06"),
        ("whats on mon", "2026-11-23", "2026-11-23"),
        ("Qu'y a-t-il dans mon agenda demain ?", "2026-11-24", "2026-11-24"),
        ("Montre-moi mon agenda", None, None),
        ("from Leeds to York", None, None),
        ("the 31st of February 2026", None, None),
        ("I may march on", None, None),
    ],
)
def test_days(message: str, first: str | None, last: str | None) -> None:
    found = find_days(message, TODAY)
    assert (found and (str(found[0]), str(found[1]))) == (first and (first, last))


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
