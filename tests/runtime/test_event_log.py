"""What a turn told, for readers that come and go: from any place on, in order, whole, and in bounded memory."""

import asyncio
import random
import tracemalloc
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest

from brain.errors import BadRequest
from brain.events import (
    ApprovalRequired,
    Citation,
    Done,
    Error,
    Event,
    Notice,
    SpecialistResult,
    SpecialistStart,
    Thinking,
    Token,
    Usage,
)
from brain.runtime.event_log import Journal

DONE = Done("complete", "m1", "", 0, 1, None, 5)
TOLD: list[list[Event]] = [
    [Token("Grüße"), Thinking("so"), Token(" 😀")],
    [SpecialistStart("c1", "echo", {"text": "a"}, "model")],
    [Token("b")],
    [Usage(1, 2, None, True), DONE],
]
ALL = [event for batch in TOLD for event in batch]


def filled(batches: Sequence[Sequence[Event]] = TOLD) -> Journal:
    journal = Journal()
    for batch in batches:
        journal.add(batch)
    return journal


async def read(journal: Journal, after: int = 0, pause: Callable[[], Coroutine[Any, Any, None]] | None = None) -> Any:
    """All events behind one, by a reader that may take its time."""
    events: list[Event] = []
    async with aclosing(journal.follow(after)) as pieces:
        async for piece in pieces:
            assert piece
            events += piece
            if pause is not None:
                await pause()
    return events


async def first_piece(journal: Journal, after: int) -> Sequence[Event]:
    async with aclosing(journal.follow(after)) as pieces:
        return await anext(pieces)


async def told_slowly(journal: Journal, batches: Sequence[Sequence[Event]] = TOLD) -> None:
    for batch in batches:
        await asyncio.sleep(0.001)
        journal.add(batch)


def gone(journal: Journal, after: int) -> tuple[str, int, str | None]:
    with pytest.raises(BadRequest) as caught:
        journal.check(after)
    return caught.value.code, caught.value.status, caught.value.field


def waiting(journal: Journal) -> int:
    return len(journal._waiting)


# Readers


@pytest.mark.parametrize("after", range(len(ALL) + 1))
def test_it_is_read_from_any_place_on(after: int) -> None:
    journal = filled()
    journal.check(after)
    assert asyncio.run(read(journal, after)) == ALL[after:]
    assert (journal.count, journal.over) == (7, True)


def test_readers_that_come_before_the_first_event_in_the_middle_and_behind_the_last_get_the_same() -> None:
    async def main() -> list[Any]:
        journal = Journal()
        first = asyncio.create_task(read(journal))
        await told_slowly(journal, TOLD[:2])
        middle = asyncio.create_task(read(journal))
        rest = asyncio.create_task(read(journal, 2))
        await told_slowly(journal, TOLD[2:])
        return [await first, await middle, ALL[:2] + await rest, await read(journal)]

    assert asyncio.run(main()) == [ALL] * 4


def test_readers_at_different_speeds_get_the_same() -> None:
    async def main() -> list[Any]:
        journal = Journal()
        pauses = [None, lambda: asyncio.sleep(0), lambda: asyncio.sleep(0.003), lambda: asyncio.sleep(0.02)]
        readers = [asyncio.create_task(read(journal, 0, pause)) for pause in pauses]
        await told_slowly(journal)
        return await asyncio.gather(*readers)

    assert asyncio.run(main()) == [ALL] * 4


def test_a_reader_gets_each_event_when_it_is_told() -> None:
    async def main() -> None:
        journal = Journal()
        async with aclosing(journal.follow()) as pieces:
            for batch in TOLD:
                asyncio.get_running_loop().call_soon(journal.add, batch)
                assert await anext(pieces) == batch
            with pytest.raises(StopAsyncIteration):
                await anext(pieces)

    asyncio.run(main())


def test_an_error_is_a_last_event_too() -> None:
    failed = Error("model_failed", "It failed.", recoverable=True)
    journal = filled([[Token("a")], [failed]])
    assert journal.over
    assert asyncio.run(read(journal)) == [Token("a"), failed]


def test_a_reader_that_leaves_while_it_waits_leaves_nothing_behind() -> None:
    async def main() -> None:
        journal = filled(TOLD[:1])
        for _ in range(100):
            reader = asyncio.create_task(read(journal, 3))
            await asyncio.sleep(0)
            assert waiting(journal) == 1
            reader.cancel()
            await asyncio.wait({reader})
        assert waiting(journal) == 0

    asyncio.run(main())


def test_one_that_catches_up_lets_others_have_their_turn() -> None:
    async def main() -> int:
        journal = filled([[Token("word")] * 20_000, [DONE]])
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        await read(journal)
        beside.cancel()
        return turns

    assert asyncio.run(main()) >= 39


@pytest.mark.parametrize(
    ("text", "most"),
    [("word", 512), ("a" * 1_000, 59), ("ü" * 1_000, 58), ("😀" * 1_000, 16), ("a" * 1_000_000, 1)],
)
def test_what_is_given_at_once_is_small(text: str, most: int) -> None:
    async def main() -> list[int]:
        journal = filled([[Token(text)] * 2_000 if len(text) < 9_999 else [Token(text)] * 3, [DONE]])
        async with aclosing(journal.follow()) as pieces:
            return [len(piece) async for piece in pieces]

    assert max(asyncio.run(main())[:-1]) == most


@pytest.mark.parametrize("seed", range(5))
def test_whatever_was_told_is_told_again(seed: int) -> None:
    chance = random.Random(seed)
    told: list[Event] = []
    journal = Journal()
    for n in range(300):
        batch: list[Event] = [Token(chance.choice(("", "a", "wörd", "😀" * 3, "b" * 1_500))) for _ in range(n % 7)]
        batch.insert(chance.randrange(len(batch) + 1), Thinking(f"{n}") if n % 11 == 0 else Token(f"{n}"))
        told += batch
        journal.add(batch)
        assert (journal.count, journal.told()) == (len(told), told)
        after = chance.randrange(len(told))
        piece = asyncio.run(first_piece(journal, after))
        assert 0 < len(piece) <= 512
        assert piece == told[after : after + len(piece)]
    journal.add([DONE])
    told.append(DONE)
    for after in range(0, len(told) + 1, 7):
        assert asyncio.run(read(journal, after)) == told[after:]
    assert journal.told() == told
    assert [journal.told(count) for count in (1, 63, 64, 65, 500)] == [told[:count] for count in (1, 63, 64, 65, 500)]


def test_the_beginning_is_told_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.event_log.JOURNAL_BYTES", 3_000)
    journal = filled([[Token("a" * 1_100)]])
    assert journal.told(1) == journal.told() == [Token("a" * 1_100)]
    with pytest.raises(BadRequest, match="no longer kept") as more:
        journal.told(2)
    journal.add([Token("a" * 1_100)] * 4)
    with pytest.raises(BadRequest, match="no longer kept") as forgotten:
        journal.told()
    assert [(one.value.code, one.value.status) for one in (more, forgotten)] == [("gone", 410)] * 2


# Memory


def test_a_token_takes_little_more_than_its_characters() -> None:
    tracemalloc.start()
    try:
        journal = filled([[Token(f"{n:05}")] for n in range(50_000)])
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert journal.count == 50_000
    assert taken / 50_000 < 16
    assert 0.7 < journal.bytes / taken < 1.1


def test_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.event_log.JOURNAL_BYTES", 10_000)
    journal = filled([[Token(f"{n:036}")] for n in range(1, 1_001)])
    assert (journal.count, journal.bytes <= 10_000) == (1_000, True)
    kept = [n for n in range(1_001) if not is_gone(journal, n)]
    assert kept == list(range(kept[0], 1_001))
    assert 64 <= len(kept) <= 300
    assert asyncio.run(first_piece(journal, kept[0])) == [Token(f"{n:036}") for n in range(kept[0] + 1, 1_001)]


def is_gone(journal: Journal, after: int) -> bool:
    try:
        journal.check(after)
    except BadRequest:
        return True
    return False


def test_what_is_no_longer_kept_or_was_never_told_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.event_log.JOURNAL_BYTES", 3_000)
    journal = filled([[Token("a" * 1_100)]] * 5)
    assert gone(journal, 0) == ("gone", 410, None)
    assert gone(journal, 1) == ("gone", 410, "last-event-id")
    assert gone(journal, 6) == ("gone", 410, "last-event-id")
    journal.check(5)
    journal.check(4)


def test_a_reader_too_slow_for_what_is_kept_is_told_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.event_log.JOURNAL_BYTES", 1_000)

    async def main() -> None:
        journal = filled([[Token("a")]])
        async with aclosing(journal.follow()) as pieces:
            assert await anext(pieces) == [Token("a")]
            for _ in range(20):
                journal.add([Token("b" * 200)])
            journal.add([DONE])
            with pytest.raises(StopAsyncIteration):
                await anext(pieces)
        assert journal.over

    asyncio.run(main())


def test_the_last_event_is_kept_however_large() -> None:
    large = Done("complete", "m1", "a" * 20_000_000, 0, 1, None, 5)
    journal = filled([[Token("a" * 1_000)] * 100, [Usage(1, 2, None, True), large]])
    assert asyncio.run(read(journal, 101)) == [large]
    assert is_gone(journal, 100)


def of_events(make: Callable[[int], Event]) -> Callable[[Journal, int], None]:
    return lambda journal, n: journal.add([make(n)])


@pytest.mark.parametrize(
    "told",
    [
        of_events(lambda n: Token(f"word{n}")),
        of_events(lambda n: Token(f"wörd{n}")),
        of_events(lambda n: Token(f"{n}" + "a" * 5_000 + "😀")),
        of_events(lambda n: Thinking(f"word{n}")),
        of_events(lambda n: Notice("steered", f"{n}" * 1_000)),
        of_events(lambda n: Error("internal", f"{n}" * 1_000, recoverable=True)),
        of_events(lambda n: SpecialistStart("c1", "echo", {"text": f"{n}" * 1_000}, "model")),
        of_events(
            lambda n: SpecialistResult(
                "c1",
                "echo",
                {},
                f"{n}" * 100,
                [Citation(f"{n}:{m}", f"{m} Title {n}", f"https://example.org/{n}/{m}") for m in range(50)],
                False,
                1,
            )
        ),
    ],
    ids=["words", "latin", "wide", "thinking", "notices", "errors", "parameters", "citations"],
)
def test_it_takes_no_more_memory_than_it_may(
    told: Callable[[Journal, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.runtime.event_log.JOURNAL_BYTES", 500_000)
    journal = Journal()
    tracemalloc.start()
    try:
        for n in range(100_000):
            told(journal, n)
            if journal.count > 200 and is_gone(journal, 0):
                break
        tracemalloc.reset_peak()
        before = journal.count
        for n in range(before, before * 3):
            told(journal, n)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert is_gone(journal, before)
    assert most < 750_000


def test_halving_gives_back_what_it_took() -> None:
    async def main() -> None:
        journal = filled()
        while journal.count and not is_gone(journal, journal.count - 2):
            before = journal.bytes
            journal.shorten()
            assert journal.bytes <= before
        assert await read(journal, 6) == [DONE]
        journal.shorten()
        assert await read(journal, 6) == [DONE]
        assert journal.bytes < 600

    asyncio.run(main())


def test_an_approval_is_an_event_like_others() -> None:
    asked = ApprovalRequired("c1", "letter", {"to": "ann"}, datetime(2026, 11, 21, tzinfo=UTC))
    journal = filled([[asked], [DONE]])
    assert asyncio.run(read(journal)) == [asked, DONE]
