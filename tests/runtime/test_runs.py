"""The turns of a process: each is led once, read by many, steered from outside, and kept for a while."""

import asyncio
import gc
import time
import weakref
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from playing import WAIT, Item, Player, ask_for, registry_of, short, turn_of

from brain.errors import BadRequest
from brain.events import Done, Event, TurnStart, Usage
from brain.messages import Conversation, TurnReport
from brain.runtime import runs
from brain.runtime.run import Run
from brain.runtime.runs import Turns
from brain.turn.turn import Turn
from brain.turn_request import Ask

SOON = 0.25


class House:
    """Where turns are begun; keeps what was settled."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.settled: list[TurnReport] = []

    def begin(
        self,
        *passes: Sequence[Item] | str,
        user: str | None = "ada",
        request_id: str | None = None,
        conversation: str = "c",
        model: Any = None,
        **options: Any,
    ) -> Run:
        ask = Ask("Hi", user, ask_for().limits, ("bracket",), "UTC", request_id=request_id, asks_person=True)
        turn = turn_of(model or Player(*passes), ask=ask, conversation=Conversation(conversation))
        return self.turns.begin(turn, ask, "native", self.settled.append, **options)


@pytest.fixture
def house() -> House:
    return House()


def run(main: Coroutine[Any, Any, None], house: House) -> None:
    """Runs a test; no task may be left behind it, and no timer of the house."""

    async def alone() -> None:
        await main
        house.turns.close()
        for _ in range(3):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(alone())


async def led(run: Run) -> list[Event]:
    async with aclosing(run.lead()) as batches:
        return [event async for batch in batches for event in batch]


async def told(run: Run, after: int = 0) -> list[Event]:
    assert run.journal is not None
    async with aclosing(run.journal.follow(after)) as pieces:
        return [event async for piece in pieces for event in piece]


async def heard(run: Run, count: int) -> None:
    """Waits until so many events were told."""
    assert run.journal is not None
    if run.journal.count < count:
        async with aclosing(run.journal.follow(run.journal.count)) as pieces:
            async for _ in pieces:
                if run.journal.count >= count:
                    return


# Led once, read by many


def test_its_readers_get_what_its_leader_gets(house: House) -> None:
    async def main() -> None:
        one = house.begin(["a", 0.01, 'SPECIALIST_REQUEST[echo:{"text":"b"}]'], "c")
        reader = asyncio.create_task(told(one))
        events = await led(one)
        assert [*short(events)] == [
            "a",
            {"start": "c1", "name": "echo", "params": {"text": "b"}},
            {"result": "c1", "text": "b"},
            "c",
            {"done": "complete", "text": "ac", "calls": 1, "passes": 2},
        ]
        assert await reader == events == await told(one)
        assert (await told(one, 3)) == events[3:]

    run(main(), house)


def test_it_is_settled_once_and_before_anybody_reads_that_it_ended(house: House) -> None:
    async def main() -> None:
        one = house.begin("a")
        async with aclosing(one.lead()) as batches:
            async for batch in batches:
                ended = isinstance(batch[-1], Done)
                assert (len(house.settled), one.over) == ((1, True) if ended else (0, False))
        assert len(house.settled) == 1
        assert one.report() == house.settled[0]

    run(main(), house)


def test_readers_are_told_of_an_end_that_cannot_be_recorded(house: House) -> None:
    class Full(list[TurnReport]):
        def append(self, report: TurnReport) -> None:
            raise OSError("the disk is full")

    async def main() -> None:
        house.settled = Full()
        one = house.begin("a")
        reader = asyncio.create_task(told(one))
        with pytest.raises(OSError, match="disk is full"):
            await led(one)
        assert isinstance((await reader)[-1], Done)
        assert one.over

    run(main(), house)


@pytest.mark.alone
@pytest.mark.parametrize("alone", [True, False])
def test_what_is_stopped_ends_soon_and_says_so(house: House, *, alone: bool) -> None:
    async def main() -> None:
        one = house.begin(["a", "SPECIALIST_REQUEST[waits]", WAIT])
        if alone:
            one.alone()
        leading = asyncio.create_task(told(one) if alone else led(one))
        await heard(one, 3)
        began = time.monotonic()
        one.stop()
        one.stop("shutdown")
        events = await leading
        assert time.monotonic() - began < SOON
        assert short(events)[-2:] == [
            {"error": "c1", "name": "waits", "code": "cancelled"},
            {"done": "cancelled", "text": "a", "calls": 1, "passes": 1},
        ]
        one.stop()
        assert [report.stop_reason for report in house.settled] == ["cancelled"]

    run(main(), house)


def test_a_turn_that_is_stopped_before_it_began_asks_no_model(house: House) -> None:
    async def main() -> None:
        model = Player("never")
        one = house.begin(model=model)
        one.stop()
        await led(one)
        assert [report.stop_reason for report in house.settled] == ["cancelled"]
        assert model.requests == []

    run(main(), house)


def test_a_turn_that_is_led_no_further_is_cut(house: House) -> None:
    async def main() -> None:
        one = house.begin(["a", WAIT])
        async with aclosing(one.lead()) as batches:
            await anext(batches)
            await anext(batches)
        events = await told(one)
        assert [type(event) for event in events][-2:] == [Usage, Done]
        assert isinstance(events[-1], Done)
        assert (events[-1].stop_reason, events[-1].text) == ("cancelled", "a")
        assert len(house.settled) == 1

    run(main(), house)


def test_turns_that_run_alone_are_given_up_together(house: House) -> None:
    async def main() -> None:
        runs = [house.begin(["a", "SPECIALIST_REQUEST[waits]", WAIT]) for _ in range(20)]
        for one in runs:
            one.alone()
        for one in runs:
            await heard(one, 3)
        began = time.monotonic()
        await asyncio.gather(*(one.give_up() for one in house.turns.running))
        assert time.monotonic() - began < 8 * SOON
        assert [one.over for one in runs] == [True] * 20
        assert [report.stop_reason for report in house.settled] == ["cancelled"] * 20
        assert isinstance((await told(runs[0]))[-1], Done)

    run(main(), house)


def test_a_turn_that_is_given_up_before_its_first_step_is_over(house: House) -> None:
    async def main() -> None:
        one = house.begin("a")
        one.alone()
        await one.give_up()
        assert [report.stop_reason for report in house.settled] == ["cancelled"]
        assert [type(event) for event in await told(one)] == [Usage, Done]

    run(main(), house)


def test_a_turn_that_nobody_can_join_keeps_nothing(house: House) -> None:
    async def main() -> None:
        one = house.begin("a", joinable=False)
        first, *_ = await led(one)
        assert isinstance(first, TurnStart)
        assert one.journal is None

    run(main(), house)


def test_a_turn_that_is_over_lets_go_of_all_that_it_held(house: House) -> None:
    async def main() -> None:
        model = Player(["a", 'SPECIALIST_REQUEST[echo:{"text":"b"}]'], "c")
        ask = ask_for()
        turn = Turn(ask, Conversation("c"), model, registry_of())
        kept = weakref.WeakSet([model])
        one = house.turns.begin(turn, ask, "native", house.settled.append)
        exchange = turn.exchange
        del turn, model
        one.alone()
        await told(one)
        await asyncio.sleep(0)
        gc.collect()
        assert len(kept) == 0
        assert exchange.answer_id == one.report().message_id

    run(main(), house)


# Readers come and go


@pytest.mark.alone
def test_it_runs_on_without_a_reader_for_as_long_as_it_survives(house: House) -> None:
    async def main() -> None:
        one = house.begin(["a", WAIT], survives=0.05)
        one.alone()
        began = time.monotonic()
        events = await told(one)
        assert 0.04 < time.monotonic() - began < 0.05 + SOON
        assert short(events)[-1] == {"done": "cancelled", "text": "a", "calls": 0, "passes": 1}

    run(main(), house)


def test_a_reader_keeps_it_alive_and_the_last_that_leaves_counts(house: House) -> None:
    async def main() -> None:
        one = house.begin(["a", WAIT], survives=0.05)
        one.alone()
        one.joined()
        one.joined()
        await asyncio.sleep(0.1)
        one.left()
        await asyncio.sleep(0.1)
        assert not one.over
        one.left()
        await asyncio.sleep(0.02)
        one.joined()
        await asyncio.sleep(0.1)
        assert not one.over
        one.left()
        await told(one)
        assert one.over

    run(main(), house)


def test_what_is_over_needs_no_reader(house: House) -> None:
    async def main() -> None:
        one = house.begin("a", survives=WAIT)
        one.alone()
        await told(one)
        assert one._grace is not None
        assert one._grace.cancelled()

    run(main(), house)


def test_without_a_word_on_it_it_survives_all_readers(house: House) -> None:
    async def main() -> None:
        one = house.begin(["a", 0.1, "b"])
        one.alone()
        one.joined()
        one.left()
        assert short(await told(one))[-1] == {"done": "complete", "text": "ab", "calls": 0, "passes": 1}

    run(main(), house)


@pytest.mark.parametrize(("comes_back", "outcome"), [(True, "complete"), (False, "cancelled")])
def test_who_leaves_to_come_back_with_an_approval_is_waited_for(
    house: House, outcome: str, *, comes_back: bool
) -> None:
    async def main() -> None:
        one = house.begin(["SPECIALIST_REQUEST[sends]"], "Sent.", survives=0.0)
        one.alone()
        one.joined()
        await heard(one, 2)
        assert one.waits
        one.left(comes_back=comes_back)
        await asyncio.sleep(0.05)
        if comes_back:
            one.joined()
            one.decide("c1", approve=True)
        await told(one)
        assert [report.stop_reason for report in house.settled] == [outcome]

    run(main(), house)


# Steered from outside


def test_what_is_over_can_neither_be_steered_nor_decided(house: House) -> None:
    async def main() -> None:
        one = house.begin("a")
        await led(one)
        with pytest.raises(BadRequest, match="This turn is over") as steered:
            one.steer("more")
        with pytest.raises(BadRequest, match="nothing waits for an approval") as decided:
            one.decide("c1", approve=True)
        assert [(error.value.code, error.value.status) for error in (steered, decided)] == [("gone", 410)] * 2
        assert not one.waits

    run(main(), house)


def test_it_is_steered_and_approved_while_it_runs(house: House) -> None:
    async def main() -> None:
        one = house.begin(["SPECIALIST_REQUEST[sends]"], "Sent.")
        one.alone()
        await heard(one, 2)
        assert (one.waits, one.report().state) == (True, "waiting")
        one.steer("hurry")
        one.decide("c1", approve=True)
        events = short(await told(one))
        assert {"steered": "hurry"} in events
        assert {"result": "c1", "text": "sent"} in events
        assert one.report().state == "done"

    run(main(), house)


# Whose it is


def test_a_turn_is_found_by_its_user_alone(house: House) -> None:
    async def main() -> None:
        ada, nobody = house.begin("a"), house.begin("b", user=None)
        assert house.turns.find(ada.id, "ada") is ada
        assert house.turns.find(nobody.id, None) is nobody
        for turn_id, user in [(ada.id, "bob"), (ada.id, None), (nobody.id, "ada"), ("t0", "ada"), ("", "ada")]:
            assert house.turns.find(turn_id, user) is None
        for one in (ada, nobody):
            await led(one)

    run(main(), house)


def test_the_same_request_finds_the_same_turn_of_the_same_user(house: House) -> None:
    async def main() -> None:
        def asked(user: str | None, request_id: str | None) -> Run | None:
            return house.turns.asked(Ask("Hi", user, ask_for().limits, ("bracket",), "UTC", request_id=request_id))

        one = house.begin("a", request_id="r1")
        without = house.begin("a")
        assert asked("ada", "r1") is one
        await led(one)
        await led(without)
        assert asked("ada", "r1") is one
        assert [asked("bob", "r1"), asked(None, "r1"), asked("ada", "r2"), asked("ada", None)] == [None] * 4

    run(main(), house)


def test_the_newest_turn_of_a_conversation_is_its_users(house: House) -> None:
    async def main() -> None:
        runs = [
            house.begin("a", conversation="x"),
            house.begin("a", conversation="y"),
            house.begin("a", conversation="x"),
            house.begin("a", conversation="x", user="bob"),
        ]
        for one in runs:
            await led(one)
        assert house.turns.newest("x", "ada") is runs[2]
        assert house.turns.newest("x", "bob") is runs[3]
        assert house.turns.newest("y", "ada") is runs[1]
        assert house.turns.newest("z", "ada") is None

    run(main(), house)


def test_ids_cannot_be_guessed(house: House) -> None:
    async def main() -> None:
        ids = [house.begin("a").id for _ in range(200)]
        assert len(set(ids)) == 200
        digits = [set(column) for column in zip(*(one[1:] for one in ids), strict=True)]
        assert len(digits) == 16
        assert all(len(found) > 10 for found in digits)
        for one in house.turns.running:
            await led(one)

    run(main(), house)


# Kept for a while


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.runs.SWEEP_SECONDS", 0.01)


@pytest.mark.alone
@pytest.mark.usefixtures("often")
def test_turns_that_ended_are_forgotten_after_a_while(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.runs.KEPT_SECONDS", 0.1)

    async def main() -> None:
        running = house.begin(["a", WAIT])
        running.alone()
        ended = [house.begin("a", request_id=f"r{n}") for n in range(10)]
        for one in ended:
            await led(one)
        began = time.monotonic()
        assert len(house.turns) == 11
        kept = weakref.WeakSet(ended)
        first = ended[0].id
        del one, ended
        while house.turns.find(first, "ada") is not None:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.005)
        assert 0.09 < time.monotonic() - began < 0.1 + SOON
        await asyncio.sleep(0.02)
        assert len(house.turns) == 1
        gc.collect()
        assert len(kept) == 0
        assert house.turns._asked == {}
        running.stop()
        await told(running)
        await asyncio.sleep(0.2)
        assert (len(house.turns), house.turns._sweeper) == (0, None)
        await led(house.begin("a"))
        assert house.turns._sweeper is not None

    run(main(), house)


def test_a_house_that_closes_forgets_all(house: House) -> None:
    async def main() -> None:
        one = house.begin("a", request_id="r")
        await led(one)
        house.turns.close()
        assert (len(house.turns), house.turns._asked, house.turns._sweeper) == (0, {}, None)
        again = house.begin("a")
        await led(again)
        house.turns._sweep()
        assert house.turns.find(again.id, "ada") is again

    run(main(), house)


@pytest.mark.parametrize(("answers", "stay"), [(["a"] * 6, 3), (["a" * 20_000, "a", "a"], 2), (["a", "a" * 20_000], 0)])
def test_what_ended_takes_no_more_than_so_much(
    house: House, monkeypatch: pytest.MonkeyPatch, answers: list[str], stay: int
) -> None:
    async def main() -> None:
        ids = []
        for answer in answers:
            one = house.begin(answer)
            ids.append(one.id)
            await led(one)
        assert one.journal is not None
        short = one.journal.bytes if len(answers[-1]) == 1 else 1_100
        monkeypatch.setattr("brain.runtime.runs.OVER_BYTES_MOST", 3 * (runs.RUN_BYTES + short))
        house.turns._sweep()
        found = [house.turns.find(turn_id, "ada") is not None for turn_id in ids]
        assert found == [False] * (len(ids) - stay) + [True] * stay

    run(main(), house)


@pytest.mark.usefixtures("often")
def test_all_journals_together_have_a_limit(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.runs.BYTES_MOST", 60_000)

    async def main() -> None:
        old = house.begin(["a" * 10_000])
        small = house.begin(["b" * 1_000, WAIT])
        large = house.begin([*["c" * 10_000] * 5, WAIT])
        await led(old)
        small.alone()
        large.alone()
        await heard(small, 2)
        await heard(large, 6)
        await asyncio.sleep(0.05)
        assert house.turns.find(old.id, "ada") is None  # what ended makes room first
        assert large.journal is not None
        assert small.journal is not None
        large.journal.check(0)
        more = house.begin([*["d" * 10_000] * 2, WAIT])
        more.alone()
        await heard(more, 3)
        await asyncio.sleep(0.05)
        with pytest.raises(BadRequest, match="is not kept"):  # then the beginning of the largest
            large.journal.check(0)
        large.journal.check(6)
        small.journal.check(0)
        for one in (small, large, more):
            one.stop()
            await told(one, 6 if one is large else 0)

    run(main(), house)
