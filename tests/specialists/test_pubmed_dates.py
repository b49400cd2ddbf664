"""Date ranges: what phrases mean on one day, and which are refused."""

import random
import tomllib
from datetime import date
from pathlib import Path

import pytest

from brain import Refused
from specialists._pubmed.dates import parse_period

TODAY = date(2026, 11, 21)

CASES = tomllib.loads((Path(__file__).parent / "pubmed_cases.toml").read_text("utf-8"))


@pytest.mark.parametrize("days", CASES["dates"])
def test_phrases_mean_these_days(days: str) -> None:
    phrases = CASES["dates"][days]
    assert {phrase: str(parse_period(phrase, TODAY)) for phrase in phrases} == dict.fromkeys(phrases, days)


@pytest.mark.parametrize("phrase", [*CASES["unreadable"]["dates"], "x" * 200, "2024 " * 40])
def test_an_invalid_phrase_is_refused(phrase: str) -> None:
    with pytest.raises(Refused) as invalid:
        parse_period(phrase, TODAY)
    assert phrase[:40] in invalid.value.reason
    assert len(invalid.value.reason) < 100


def test_a_leap_day_goes_back_to_the_last_day_of_february() -> None:
    assert str(parse_period("last year", date(2024, 2, 29))) == "2023-02-28 to 2024-02-29"
    assert str(parse_period("last 1 month", date(2026, 3, 31))) == "2026-02-28 to 2026-03-31"


def test_any_phrase_is_a_period_or_refused() -> None:
    words = [
        "last", "past", "previous", "this", "since", "until", "before", "after", "from", "to", "and", "-", "/", "..",
        ":", "5", "0", "99999", "2024", "1066", "13", "29", "02", "year", "years", "months", "weeks", "decade", "q1",
        "march", "2010s", "present", "the", "in", "₂", "\x00", "\n", "'", "%s", "{}", "2024-02-30", "9" * 50,
    ]  # fmt: skip
    rng = random.Random(4711)
    read = 0
    for _ in range(20_000):
        phrase = rng.choice(["", " "]).join(rng.choices(words, k=rng.randint(0, 6)))
        try:
            found = parse_period(phrase, TODAY)
        except Refused:
            continue
        read += 1
        assert found is not None
        assert found.start or found.end
        assert found.start is None or found.end is None or found.start <= found.end
    assert read > 200
