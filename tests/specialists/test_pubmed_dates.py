"""Phrases of dates: what they mean on one day, and that nothing unreadable is passed over."""

import random
from datetime import date

import pytest

from brain import Refused
from specialists._pubmed.dates import period

TODAY = date(2026, 11, 21)

READ = {
    "2024-01-01 to 2024-12-31": ("2024",),
    "2019-01-01 to 2023-12-31": ("2019-2023", "2019–2023", "2023-2019", "2019:2023", "from 2019 to 2023",
        "between 2019 and 2023", "years 2019 - 2023"),
    "since 2020-01-01": ("since 2020", "published since 2020", "2020-", "2020 onwards", ">=2020"),
    "2020-01-01 to 2026-11-21": ("2020-present",),
    "since 2021-01-01": ("after 2020", ">2020"),
    "until 2009-12-31": ("before 2010",),
    "until 2010-12-31": ("until 2010",),
    "2021-11-21 to 2026-11-21": ("last 5 years", "Last Five Years", "last_5_years", "from the past 5 yrs",
        "5 years"),
    "2026-05-21 to 2026-11-21": ("last 6 months",),
    "2025-11-21 to 2026-11-21": ("last year", "in the last year"),
    "2025-01-01 to 2025-12-31": ("previous year", "last calendar year"),
    "2026-10-01 to 2026-10-31": ("previous month",),
    "2026-01-01 to 2026-11-21": ("this year",),
    "2026-10-22 to 2026-11-21": ("last 30 days",),
    "2026-11-07 to 2026-11-21": ("last 2 weeks",),
    "2016-11-21 to 2026-11-21": ("past decade",),
    "1700-01-01 to 2026-11-21": ("last 9999 years",),
    "2024-02-01 to 2024-02-29": ("2024-02",),
    "2024-02-29 to 2024-02-29": ("2024-02-29",),
    "2024-01-15 to 2024-06-30": ("2024-01-15 to 2024-06-30", "2024-01-15/2024-06-30", "2024/01/15:2024/06/30"),
    "2024-01-01 to 2024-06-30": ("2024-01..2024-06",),
    "2023-12-01 to 2026-11-21": ("2023-12-01 to today",),
    "2024-03-01 to 2024-03-31": ("March 2024",),
    "2023-01-01 to 2024-03-31": ("Jan 2023 - Mar 2024",),
    "2024-03-05 to 2024-03-05": ("5 March 2024", "March 5, 2024"),
    "since 2023-09-01": ("since Sept 2023",),
    "2024-07-01 to 2024-09-30": ("Q3 2024",),
    "1990-01-01 to 1999-12-31": ("the 1990s",),
    "None": ("all time",),
}  # fmt: skip
UNREADABLE = (
    "recent", "recent years", "last few years", "last years", "last 0 years", "yesterday", "2019-23", "2024-13",
    "2024-00", "2023-02-29", "2023-02-30 to 2023-05-01", "24", "0024", "2019, 2020, 2021", "31.12.2024", "12/2024",
    "to", "-", "since", "since forever", "may", "5 march 5 2024", "2024-01-15T10:00:00Z; DROP", "x" * 200, "2024 " * 40,
    "last 5 centuries", "²⁰²⁴", "١٢", "🗓",
)  # fmt: skip


@pytest.mark.parametrize("days", READ)
def test_phrases_mean_these_days(days: str) -> None:
    assert {phrase: str(period(phrase, TODAY)) for phrase in READ[days]} == dict.fromkeys(READ[days], days)


@pytest.mark.parametrize("phrase", UNREADABLE)
def test_what_cannot_be_read_is_refused(phrase: str) -> None:
    with pytest.raises(Refused, match=r"cannot be read; write '2024', '2019-2023', 'since 2020', 'last 5 years'") as no:
        period(phrase, TODAY)
    assert len(no.value.reason) < 250


def test_a_leap_day_goes_back_to_the_last_day_of_february() -> None:
    assert str(period("last year", date(2024, 2, 29))) == "2023-02-28 to 2024-02-29"
    assert str(period("last 1 month", date(2026, 3, 31))) == "2026-02-28 to 2026-03-31"


def test_whatever_stands_there_is_days_or_a_refusal() -> None:
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
            found = period(phrase, TODAY)
        except Refused:
            continue
        read += 1
        assert found is not None
        assert found.start or found.end
        assert found.start is None or found.end is None or found.start <= found.end
    assert read > 200
