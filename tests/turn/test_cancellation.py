"""Turns that end early, at each of their waits: nothing is left running, the stream is closed, the record is honest."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from typing import Any

import anyio
import pytest
from playing import PNG, WAIT, Item, Player, ask_for, outcome, read, registry_of, short, turn_of

from brain.events import ApprovalRequired, Done, Event, SpecialistStart, Token
from brain.messages import Attachment, Call, Exchange, Record, Steer
from brain.plugins.context import Progress
from brain.plugins.specialist import Specialist, specialist
from brain.prompts import context_window
from brain.prompts.context_window import Window
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest

GONE_SECONDS = 0.5
"""What a cancellation may take here: 0.1 seconds, and whatever a busy machine adds."""

MOST_STEPS = 400


@specialist(timeout=WAIT)
async def obeys() -> str:
    """Takes a few steps, and ends when told."""
    for _ in range(5):
        await asyncio.sleep(0)
    return "obeyed"


@specialist(timeout=WAIT)
async def cleans() -> str:
    """Takes a few steps to clean up, too."""
    try:
        for _ in range(5):
            await asyncio.sleep(0)
    finally:
        for _ in range(5):
            await asyncio.sleep(0)
    return "cleaned"


@specialist(timeout=WAIT)
async def generates() -> AsyncGenerator[Progress | str, None]:
    """Tells how far it is."""
    yield Progress("half", 0.5)
    await asyncio.sleep(0)
    yield "generated"


@specialist(timeout=WAIT)
def threads() -> Iterator[Progress | str]:
    """Works in a thread."""
    yield Progress("half", 0.5)
    yield "threaded"


@specialist(activates_on=["image"], timeout=WAIT)
async def looks() -> str:
    """Looks at images by itself."""
    await asyncio.sleep(0)
    return "looked"


async def for_ever() -> str:
    await asyncio.sleep(WAIT)
    return "never"


async def deaf() -> str:
    """Does not listen, for a while."""
    until = time.monotonic() + 0.4
    while time.monotonic() < until:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(until - time.monotonic())
    return "never"


async def tidy() -> str:
    """Waits 50 ms before it goes."""
    try:
        return await for_ever()
    finally:
        await asyncio.sleep(0.05)


async def telling() -> AsyncGenerator[Progress | str, None]:
    """Tells that it began."""
    yield Progress("began")
    yield await for_ever()


def blocking() -> str:
    """Blocks its thread."""
    threading.Event().wait(0.4)
    return "never"


SLOW: list[Callable[..., Any]] = [for_ever, deaf, tidy, telling, blocking]


class Slowly(Player):
    """A model whose every chunk and whose closing are waited for."""

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        stream = super().stream(*args, **kwargs)
        try:
            async for chunk in stream:
                await asyncio.sleep(0)
                yield chunk
        finally:
            await stream.aclose()
            await asyncio.sleep(0)


def marked(name: str) -> str:
    return f"SPECIALIST_REQUEST[{name}]"


PASSES: list[list[Item]] = [
    [
        "Let me ",
        "look: ",
        marked("obeys"),
        " ",
        marked("cleans"),
        " ",
        marked("generates"),
        marked("threads"),
        " \n",
        "x",
    ],
    ["And ", marked("looks"), " dropped"],
    ["That ", "is ", "all."],
]
TEXT = "Let me look: And That is all."
IMAGE = Attachment(1, "a.png", "image/png", PNG)


class Session:
    """One conversation with one model, its turns recorded as the server records them."""

    def __init__(self, *specialists: Specialist[..., Any], passes: list[list[Item]] | None = None) -> None:
        self.record = Record(1, "ada", "c")
        self.registry = registry_of(*(specialists or (obeys, cleans, generates, threads, looks)))
        self.model = Slowly(*(PASSES if passes is None else passes))

    def turn(self, message: str = "Hi", *, attached: bool = True, **more: Any) -> tuple[Turn, TurnRequest]:
        asked = ask_for(message, attachments=(IMAGE,) if attached else (), **more)
        recalled = context_window.select_window(self.record, Exchange("", said=message), Window(), None)
        return turn_of(self.model, self.registry, asked, recalled), asked

    def keep(self, turn: Turn, asked: TurnRequest) -> None:
        if turn.exchange.parts:
            self.record.exchanges.append(turn.exchange)
            self.record.count += 1
            self.record.attachments += asked.attachments

    async def assert_clean(self, turn: Turn) -> None:
        """Nothing runs, nothing is open, and what is kept of the turn is true."""
        await only_this_task()
        assert self.model.open == 0
        parts = turn.exchange.parts
        assert TEXT.startswith(turn.exchange.visible)
        called = [part for part in parts if isinstance(part, Call)]
        assert len({part.id for part in called}) == len(called)
        assert all(part.code in (None, "cancelled") for part in called)
        for part in called:
            if part.code is None:
                assert part.block.startswith(f"[SPECIALIST_RESULT: {part.name}]\n")
            else:
                reason = "the turn was stopped before it was done"
                assert part.block == f"[SPECIALIST_ERROR: {part.name} failed - {reason}]"
        markers = [part.marker for part in called]
        assert (
            markers == [marked(name) for name in ("obeys", "cleans", "generates", "threads", "looks")][: len(markers)]
        )

    async def assert_goes_on(self) -> None:
        """The next turn of the conversation works."""
        self.model = Slowly(["Still ", "here."])
        turn, _ = self.turn("And now?", attached=False)
        assert short(await read(turn))[-2:] == [
            "Still here.",
            {"done": "complete", "text": "Still here.", "calls": 0, "passes": 1},
        ]
        last = self.model.requests[0][-1]
        assert (last.role, last.content) == ("user", "And now?")


async def only_this_task() -> None:
    """What was let go may need a moment to end."""
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        _, running = await asyncio.wait(others, timeout=GONE_SECONDS)
        assert not running


async def collect(turn: Turn, events: list[Event]) -> None:
    async with aclosing(turn.events()) as stream:
        async for event in stream:
            events.append(event)
            await asyncio.sleep(0)  # as a wire that sends it


async def after_steps(steps: int, reading: "asyncio.Task[None]") -> None:
    for _ in range(steps):
        if not reading.done():
            await asyncio.sleep(0)


async def by_cancelling(turn: Turn, events: list[Event], steps: int) -> None:
    """The task that reads is cancelled, once."""
    reading = asyncio.create_task(collect(turn, events))
    await after_steps(steps, reading)
    reading.cancel()
    await asyncio.wait({reading})


async def by_cancelling_twice(turn: Turn, events: list[Event], steps: int) -> None:
    """It is cancelled again while it ends."""
    reading = asyncio.create_task(collect(turn, events))
    await after_steps(steps, reading)
    reading.cancel()
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait({reading})


async def by_a_cancel_scope(turn: Turn, events: list[Event], steps: int) -> None:
    """It is cancelled at every wait, as the scopes of anyio do it, from another task of the group."""

    async def leave(scope: anyio.CancelScope) -> None:
        for _ in range(steps):
            await asyncio.sleep(0)
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(leave, group.cancel_scope)
        await collect(turn, events)
        group.cancel_scope.cancel()


async def by_closing(turn: Turn, events: list[Event], steps: int) -> None:
    """The generator is closed after so many events."""
    stream = turn.events()
    for _ in range(steps):
        event = await anext(stream, None)
        if event is None:
            break
        events.append(event)
    await stream.aclose()


Ending = Callable[[Turn, list[Event], int], Awaitable[None]]
ENDINGS: list[Ending] = [by_cancelling, by_cancelling_twice, by_a_cancel_scope, by_closing]


@pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)
def test_a_turn_can_end_at_every_step(end: Ending) -> None:
    async def ended_after(steps: int) -> bool:
        session = Session()
        turn, asked = session.turn()
        events: list[Event] = []
        began = time.monotonic()
        await end(turn, events, steps)
        assert time.monotonic() - began < 5
        await session.assert_clean(turn)
        session.keep(turn, asked)
        whole = any(isinstance(event, Done) for event in events)
        if steps % 7 == 0 or whole:
            await session.assert_goes_on()
        return whole

    async def main() -> int:
        for steps in range(MOST_STEPS):
            if await ended_after(steps):
                return steps
        raise AssertionError("the turn was always ended")

    assert asyncio.run(main()) > 20


@specialist(approval="always", timeout=WAIT)
async def asks() -> str:
    """Is asked about."""
    await asyncio.sleep(0)
    return "asked"


class Ruled:
    """A turn with a person at its side, who approves every call, and puts something in at the first text of a pass."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.said: list[str] = []

    async def events(self) -> AsyncGenerator[Event, None]:
        async with aclosing(self.turn.events()) as events:
            async for event in events:
                if isinstance(event, ApprovalRequired):
                    await asyncio.sleep(0)
                    self.turn.decide(event.call_id, True)
                elif isinstance(event, Token) and event.text.rstrip().endswith("1"):
                    self.said.append(f"after {event.text.rstrip()}")
                    self.turn.steer(self.said[-1])
                yield event


@pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)
def test_a_turn_with_a_person_at_its_side_can_end_at_every_step(end: Ending) -> None:
    passes: list[list[Item]] = [
        ["A1", "\n", "never"],
        ["B1 ", marked("asks"), " ", marked("obeys")],
        ["C1", ". ", "never"],
        ["D."],
    ]

    async def ended_after(steps: int) -> bool:
        session = Session(asks, obeys, passes=passes)
        turn, asked = session.turn(attached=False, asks_person=True)
        events: list[Event] = []
        ruled: Any = Ruled(turn)
        await end(ruled, events, steps)
        whole = any(isinstance(event, Done) for event in events)
        if not whole and turn.last is None:
            turn.cut()
        await only_this_task()
        assert session.model.open == 0
        assert not turn.waits
        parts = turn.exchange.parts
        assert [part.text for part in parts if isinstance(part, Steer)] == ruled.said
        assert all(part.code in (None, "cancelled") for part in parts if isinstance(part, Call))
        assert "A1\nB1 C1. \n\nD.".startswith(turn.exchange.visible)
        session.keep(turn, asked)
        if whole:
            assert ruled.said == ["after A1", "after B1", "after C1"]
            assert short(events)[-1]["done"] == "complete"
        return whole

    async def main() -> int:
        for steps in range(MOST_STEPS):
            if await ended_after(steps):
                return steps
        raise AssertionError("the turn was always ended")

    assert asyncio.run(main()) > 15


@pytest.mark.alone
@pytest.mark.parametrize("chunks", [["A ", "{}", WAIT], ["A ", "{} x", WAIT], ["A ", "{}", " ", "{}", "x", WAIT]])
@pytest.mark.parametrize("function", SLOW, ids=lambda function: function.__name__)
@pytest.mark.parametrize("end", ENDINGS[:3], ids=lambda end: end.__name__)
def test_a_running_specialist_is_let_go(end: Ending, function: Callable[..., Any], chunks: list[Item]) -> None:
    async def main() -> float:
        name = function.__name__
        slow = specialist(timeout=WAIT)(described(function))
        passes = [[item.replace("{}", marked(name)) if isinstance(item, str) else item for item in chunks]]
        session = Session(slow, passes=passes)
        turn, asked = session.turn(attached=False)
        events: list[Event] = []
        began = time.monotonic()
        await end(turn, events, 40)
        seconds = time.monotonic() - began
        assert session.model.open == 0
        assert [event.name for event in events if isinstance(event, SpecialistStart)] == [name]
        called = [part for part in turn.exchange.parts if isinstance(part, Call)]
        assert [(part.code, part.block.count("failed - ")) for part in called] == [("cancelled", 1)] * len(called)
        assert len(called) == (2 if " " in chunks else 1)
        assert turn.exchange.visible == "A "
        session.keep(turn, asked)
        if end is not by_cancelling_twice:
            await session.assert_goes_on()
        await only_this_task()
        return seconds

    assert asyncio.run(main()) < GONE_SECONDS


def described(function: Callable[..., Any]) -> Callable[..., Any]:
    function.__doc__ = function.__doc__ or "Never ends."
    return function


@pytest.mark.parametrize("end", ENDINGS[:3], ids=lambda end: end.__name__)
def test_one_way_calls_are_let_go(end: Ending) -> None:
    @specialist(activates_on=["image"], timeout=WAIT)
    async def stares() -> str:
        """Looks at images for ever."""
        return await for_ever()

    async def main() -> None:
        session = Session(stares)
        turn, asked = session.turn("Look!")
        events: list[Event] = []
        await end(turn, events, 20)
        assert isinstance(events[-1], SpecialistStart)
        await only_this_task()
        assert session.model.requests == []
        assert turn.exchange.question == (
            '(Attached, by image_id: 1: "a.png" (image/png))\n\n'
            "[SPECIALIST_ERROR: stares failed - the turn was stopped before it was done]\n\nLook!"
        )
        session.keep(turn, asked)
        assert session.record.exchanges == []
        assert outcome(turn) == "cut, 0 calls, 0 passes"

    asyncio.run(main())


@pytest.mark.parametrize("end", ENDINGS[:3], ids=lambda end: end.__name__)
@pytest.mark.parametrize("chunks", [[WAIT], ["Let ", WAIT]])
def test_a_silent_model_is_let_go(end: Ending, chunks: list[Item]) -> None:
    async def main() -> None:
        session = Session(obeys, passes=[chunks])
        turn, _ = session.turn(attached=False)
        await end(turn, [], 30)
        await session.assert_clean(turn)
        assert turn.exchange.visible == ("Let " if len(chunks) > 1 else "")

    asyncio.run(main())


@pytest.mark.parametrize("end", ENDINGS[:3], ids=lambda end: end.__name__)
def test_a_call_is_let_go_while_the_stream_behind_it_is_closed(end: Ending) -> None:
    class Closing(Slowly):
        async def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            try:
                async with aclosing(super().stream(*args, **kwargs)) as stream:
                    async for chunk in stream:
                        yield chunk
            finally:
                await asyncio.sleep(0.05)

    async def main() -> None:
        session = Session(specialist(timeout=WAIT)(described(for_ever)))
        session.model = Closing([f"A {marked('for_ever')} x"])
        turn, _ = session.turn(attached=False)
        await end(turn, [], 20)
        await only_this_task()
        (call,) = [part for part in turn.exchange.parts if isinstance(part, Call)]
        assert call.code == "cancelled"

    asyncio.run(main())


def test_a_reader_that_leaves_while_it_sends_cancels_the_turn() -> None:
    async def main() -> None:
        session = Session(obeys, passes=[["Let ", "me ", WAIT]])
        turn, _ = session.turn(attached=False)

        async def send() -> None:
            async with asyncio.timeout(0.05):
                async with aclosing(turn.events()) as stream:
                    async for event in stream:
                        if isinstance(event, Token):
                            await asyncio.sleep(WAIT)

        with pytest.raises(TimeoutError):
            await send()
        await session.assert_clean(turn)
        assert turn.exchange.visible == "Let "

    asyncio.run(main())


def test_a_cancellation_is_not_mistaken_for_the_deadline() -> None:
    """Both at once: whoever cancelled must see the cancellation."""

    async def main() -> None:
        session = Session(obeys, passes=[["Let ", WAIT]])
        turn, _ = session.turn(attached=False)
        reading = asyncio.create_task(collect(turn, []))
        await asyncio.sleep(0.02)
        turn.stop("deadline")
        reading.cancel()
        await asyncio.wait({reading})
        assert reading.cancelled()
        await session.assert_clean(turn)

    asyncio.run(main())
