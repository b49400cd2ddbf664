import asyncio
import time
from contextlib import suppress

import pytest

from brain.errors import Interrupted
from brain.turn.deadline import Deadline

LONG = 30.0


async def interrupted(alarm: Deadline, seconds: float = LONG) -> str:
    """How a guarded wait of so many seconds ends."""
    try:
        with alarm:
            await asyncio.sleep(seconds)
    except Interrupted as interruption:
        return interruption.reason
    return "in time"


def test_the_deadline_ends_a_wait() -> None:
    async def main() -> None:
        alarm = Deadline(0.05, LONG)
        began = time.monotonic()
        assert await interrupted(alarm) == "deadline"
        assert 0.04 < time.monotonic() - began < 2
        assert await interrupted(alarm, 0) == "deadline"

    asyncio.run(main())


def test_what_rings_between_two_waits_ends_the_next_before_it_begins() -> None:
    async def main() -> None:
        alarm = Deadline(LONG, LONG)
        assert await interrupted(alarm, 0) == "in time"
        alarm.ring("shutdown")
        alarm.ring("deadline")
        began = []
        with pytest.raises(Interrupted, match="shutdown"), alarm:
            began.append(1)
        assert began == []
        alarm.close()

    asyncio.run(main())


def test_a_wait_that_is_too_long_without_anything() -> None:
    async def main() -> None:
        alarm = Deadline(LONG, 0.08)
        for _ in range(4):
            assert await interrupted(alarm, 0.04) == "in time"
        began = time.monotonic()
        assert await interrupted(alarm) == "silent"
        assert 0.07 < time.monotonic() - began < 2
        alarm.close()

    asyncio.run(main())


def test_patience_and_unguarded_waits_are_no_silence() -> None:
    async def main() -> None:
        alarm = Deadline(LONG, 0.05)
        alarm.patient = True
        assert await interrupted(alarm, 0.12) == "in time"
        alarm.patient = False
        await asyncio.sleep(0.12)
        assert await interrupted(alarm) == "silent"
        alarm.close()

    asyncio.run(main())


def test_a_cancellation_from_outside_stays_one() -> None:
    async def main(ring_too: bool) -> None:
        alarm = Deadline(LONG, LONG)
        waiting = asyncio.create_task(interrupted(alarm))
        await asyncio.sleep(0.01)
        if ring_too:
            alarm.ring("deadline")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        alarm.close()

    asyncio.run(main(ring_too=False))
    asyncio.run(main(ring_too=True))


def test_an_interruption_leaves_no_cancellation_behind() -> None:
    async def main() -> None:
        alarm = Deadline(0.02, LONG)
        assert await interrupted(alarm) == "deadline"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        async with asyncio.timeout(LONG):
            await asyncio.sleep(0.01)

    asyncio.run(main())


def test_an_interruption_of_a_task_that_was_cancelled_before_is_one() -> None:
    async def main() -> None:
        alarm = Deadline(0.02, LONG)

        async def wait() -> str:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(LONG)
            return await interrupted(alarm)

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        assert await waiting == "deadline"
        assert waiting.cancelling() == 1

    asyncio.run(main())


def test_what_swallows_the_cancellation_is_interrupted_all_the_same() -> None:
    async def main() -> None:
        alarm = Deadline(0.02, LONG)
        with pytest.raises(Interrupted), alarm, suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG)

    asyncio.run(main())


def test_an_error_of_its_own_comes_through() -> None:
    async def main() -> None:
        alarm = Deadline(0.02, LONG)

        async def wait() -> None:
            try:
                await asyncio.sleep(LONG)
            except asyncio.CancelledError:
                raise ValueError("mine") from None

        with pytest.raises(ValueError, match="mine"), alarm:
            await wait()

    asyncio.run(main())


def test_a_closed_alarm_does_not_ring() -> None:
    async def main() -> None:
        alarm = Deadline(0.02, 0.02)
        alarm.close()
        assert await interrupted(alarm, 0.06) == "in time"

    asyncio.run(main())


def test_the_clock_stands_still_and_goes_on() -> None:
    async def main() -> None:
        alarm = Deadline(0.15, LONG)
        for _ in range(2):
            alarm.hold()
            assert await interrupted(alarm, 0.2) == "in time"
            alarm.go_on()
        began = time.monotonic()
        assert await interrupted(alarm) == "deadline"
        assert 0.1 < time.monotonic() - began < 2

    asyncio.run(main())


def test_a_clock_that_stands_still_does_not_hear_for_longer() -> None:
    async def main() -> None:
        alarm = Deadline(LONG, 0.05)
        alarm.hold()
        assert await interrupted(alarm) == "silent"

    asyncio.run(main())


def test_a_nudge_ends_a_wait_without_an_error_and_the_next_goes_on() -> None:
    async def main() -> None:
        alarm = Deadline(LONG, LONG)
        alarm.nudge()  # nobody waits
        assert await interrupted(alarm, 0) == "in time"
        asyncio.get_running_loop().call_soon(alarm.nudge)
        asyncio.get_running_loop().call_soon(alarm.nudge)
        began = time.monotonic()
        assert await interrupted(alarm) == "in time"
        assert time.monotonic() - began < 2
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert await interrupted(alarm, 0.01) == "in time"
        alarm.close()

    asyncio.run(main())


@pytest.mark.parametrize("nudged_first", [True, False])
def test_a_nudge_does_not_hide_an_interruption(nudged_first: bool) -> None:
    async def main() -> None:
        alarm = Deadline(LONG, LONG)
        steps = [alarm.nudge, lambda: alarm.ring("cancelled")]
        for step in steps if nudged_first else reversed(steps):
            asyncio.get_running_loop().call_soon(step)
        assert await interrupted(alarm) == "cancelled"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        alarm.nudge()
        assert await interrupted(alarm) == "cancelled"
        alarm.close()

    asyncio.run(main())


@pytest.mark.parametrize("nudged_first", [True, False])
def test_a_nudge_does_not_hide_a_cancellation_from_outside(nudged_first: bool) -> None:
    async def main() -> None:
        alarm = Deadline(LONG, LONG)
        waiting = asyncio.create_task(interrupted(alarm))
        await asyncio.sleep(0.01)
        for step in (alarm.nudge, waiting.cancel) if nudged_first else (waiting.cancel, alarm.nudge):
            step()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        alarm.close()

    asyncio.run(main())


def test_an_error_that_a_nudge_brings_about_comes_through() -> None:
    async def main() -> None:
        alarm = Deadline(LONG, LONG)

        async def wait() -> None:
            try:
                await asyncio.sleep(LONG)
            except asyncio.CancelledError:
                raise ValueError("mine") from None

        asyncio.get_running_loop().call_soon(alarm.nudge)
        with pytest.raises(ValueError, match="mine"), alarm:
            await wait()
        alarm.close()

    asyncio.run(main())
