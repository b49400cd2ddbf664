"""Turns that are cancelled, at each of their waits: nothing runs, the stream is closed, the stored turn is correct."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import virtual
from playing import PNG, WAIT, Item, Player, ask_for, registry_of, short, turn_of

from brain.errors import Interruption
from brain.events import ApprovalRequired, Done, Error, Event, SpecialistResult, SpecialistStart, Token, Usage
from brain.messages import Attachment, Exchange, Steer
from brain.plugins.context import Progress
from brain.plugins.specialist import specialist
from brain.turn.turn import Turn

MAX_STEPS = 400
IMAGE = Attachment(1, "a.png", "image/png", PNG)
CANCELLED = "[SPECIALIST_ERROR: %s failed - the turn was stopped before it was done]"


def marker(name: str) -> str:
    return f"SPECIALIST_REQUEST[{name}]"


@specialist(timeout=WAIT)
async def obeys() -> str:
    """Takes a few steps."""
    for _ in range(5):
        await asyncio.sleep(0)
    return "obeyed"


@specialist(timeout=WAIT)
async def cleans() -> str:
    """Takes a few steps to clean up, too."""
    try:
        await asyncio.sleep(0)
    finally:
        for _ in range(5):
            await asyncio.sleep(0)
    return "cleaned"


@specialist(timeout=WAIT)
async def generates() -> AsyncGenerator[Progress | str, None]:
    """Reports progress."""
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


@specialist(timeout=WAIT)
async def hangs() -> str:
    """Never ends."""
    await asyncio.Event().wait()
    return "never"


@specialist(approval="always", timeout=WAIT)
async def asks() -> str:
    """Needs an approval."""
    await asyncio.sleep(0)
    return "asked"


class SlowPlayer(Player):
    """A model whose chunks and whose closing take a step each."""

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        stream = super().stream(*args, **kwargs)
        try:
            async for chunk in stream:
                await asyncio.sleep(0)
                yield chunk
        finally:
            await stream.aclose()
            await asyncio.sleep(0)


class Execution:
    """A turn in a task of its own, with what it emits and what it stores."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.events: list[Event] = []
        self.stored: list[tuple[str, str]] = []
        self.on_event: Callable[[Event], None] = lambda event: None
        self.task: asyncio.Task[None]

    def emit(self, events: Any) -> None:
        for event in events:
            self.events.append(event)
            self.on_event(event)

    async def store(self, exchange: Exchange) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.stored.append((exchange.outcome, exchange.answer))

    def start(self) -> None:
        self.task = asyncio.create_task(self.turn.run(self.emit))

    async def wait(self) -> None:
        await asyncio.wait({self.task})

    def assert_over(self, model: Player) -> Done | Error:
        """Nothing runs, nothing is open, each call has its block, and the ending came once."""
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert model.open == 0
        assert not self.turn.is_waiting
        for call in self.turn.report("native").calls:
            assert call.code in (None, "cancelled", "deadline")
            assert call.block.startswith(f"[SPECIALIST_{'RESULT' if call.code is None else 'ERROR'}: {call.name}")
        last = self.events[-1]
        assert isinstance(last, Done | Error)
        assert isinstance(self.events[-2], Usage)
        assert sum(isinstance(event, Done | Error) for event in self.events) == 1
        assert self.turn.exchange.answer == "".join(one.text for one in self.events if isinstance(one, Token))
        return last


def execution(model: Player, *specialists: Any, **options: Any) -> Execution:
    found = Execution.__new__(Execution)
    found.__init__(turn_of(model, registry_of(*specialists), store=lambda one: found.store(one), **options))  # type: ignore[misc]
    return found


async def stop(one: Execution) -> None:
    one.turn.stop("cancelled")


async def stop_twice(one: Execution) -> None:
    one.turn.stop("cancelled")
    await asyncio.sleep(0)
    one.turn.stop("shutdown")


async def cancel(one: Execution) -> None:
    one.task.cancel()


async def cancel_twice(one: Execution) -> None:
    one.task.cancel()
    await asyncio.sleep(0)
    one.task.cancel()


async def stop_and_cancel(one: Execution) -> None:
    one.turn.stop("cancelled")
    one.task.cancel()


async def steer_and_stop(one: Execution) -> None:
    with suppress(Exception):
        one.turn.steer("Be short!")
    one.turn.stop("cancelled")


Ending = Callable[[Execution], Awaitable[None]]
ENDINGS: list[Ending] = [stop, stop_twice, cancel, cancel_twice, stop_and_cancel, steer_and_stop]

PASSES: list[list[Item]] = [
    ["Let me ", "look: ", *(f"{marker(name)} " for name in ("obeys", "cleans", "generates", "threads")), "x"],
    ["And ", marker("looks"), " dropped"],
    ["That ", "is ", "all."],
]
TEXT = "Let me look: And That is all."


@pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)
def test_a_turn_can_be_cancelled_at_every_step(end: Ending) -> None:
    async def ended_after(steps: int) -> bool:
        model = SlowPlayer(*PASSES)
        one = execution(model, obeys, cleans, generates, threads, looks, ask=ask_for(attachments=(IMAGE,)))
        one.start()
        for _ in range(steps):
            await asyncio.sleep(0)
        is_whole = one.task.done() or bool(one.turn.exchange.outcome)
        await end(one)
        await one.wait()
        if not one.events:
            assert steps == 0, "it was cancelled before its first step"
            return False
        if one.turn.last is None or len(one.stored) == 0:
            assert end in (cancel_twice, cancel, stop_and_cancel), "only a cancellation from elsewhere skips the store"
        elif not is_whole:
            assert one.stored[0][0] == "cancelled"
        last = one.assert_over(model)
        assert TEXT.startswith(one.turn.exchange.answer.removesuffix("\n\n"))
        assert isinstance(last, Done)
        assert last.stop_reason == ("complete" if is_whole else "cancelled")
        return one.task.done() and is_whole and not one.task.cancelled()

    async def main() -> int:
        for steps in range(MAX_STEPS):
            if await ended_after(steps):
                return steps
        raise AssertionError("the turn was always cancelled")

    assert asyncio.run(main()) > 20


@pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)
def test_a_turn_with_approvals_and_steering_can_be_cancelled_at_every_step(end: Ending) -> None:
    passes: list[list[Item]] = [
        ["A1", "\n", "never"],
        ["B1 ", marker("asks"), " ", marker("obeys")],
        ["C1", ". ", "never"],
        ["D."],
    ]

    async def ended_after(steps: int) -> bool:
        model = SlowPlayer(*passes)
        one = execution(model, asks, obeys, ask=ask_for(asks_person=True))
        accepted: list[str] = []

        def react(event: Event) -> None:
            if isinstance(event, ApprovalRequired):
                asyncio.get_running_loop().call_soon(decide, event.call_id)
            elif isinstance(event, Token) and event.text.rstrip().endswith("1") and not one.turn.is_stopped:
                one.turn.steer(f"after {event.text.rstrip()}")
                accepted.append(f"after {event.text.rstrip()}")

        def decide(call_id: str) -> None:
            with suppress(Exception):
                one.turn.decide(call_id, True)

        one.on_event = react
        one.start()
        for _ in range(steps):
            await asyncio.sleep(0)
        is_whole = bool(one.turn.exchange.outcome)
        await end(one)
        await one.wait()
        if not one.events:
            return False
        one.assert_over(model)
        steered = [part.text for part in one.turn.exchange.parts if isinstance(part, Steer)]
        assert [text for text in steered if text != "Be short!"] == accepted
        assert "A1\nB1 C1. \n\nD.".startswith(one.turn.exchange.answer.removesuffix("\n\n"))
        return is_whole and one.task.done() and not one.task.cancelled()

    async def main() -> int:
        for steps in range(MAX_STEPS):
            if await ended_after(steps):
                return steps
        raise AssertionError("the turn was always cancelled")

    assert asyncio.run(main()) > 15


# One by one


async def run_until(one: Execution, when: Callable[[Event], bool], end: Callable[[], None], *, inside: bool) -> None:
    """Start the turn, and end it at an event: in the same step, or when everything waits."""
    reached = asyncio.Event()

    def react(event: Event) -> None:
        if when(event) and not reached.is_set():
            reached.set()
            if inside:
                end()

    one.on_event = react
    one.start()
    await reached.wait()
    if not inside:
        await asyncio.sleep(0.001)
        end()
    await one.wait()


def is_a(kind: type[Event]) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, kind)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    ("reason", "last", "code"),
    [
        ("cancelled", {"done": "cancelled"}, "cancelled"),
        ("deadline", {"done": "deadline"}, "deadline"),
        ("shutdown", {"failed": "shutdown"}, "cancelled"),
        ("silent", {"failed": "model_failed"}, "cancelled"),
    ],
)
@pytest.mark.parametrize(
    ("items", "when"),
    [
        (["Let ", WAIT], is_a(Token)),  # while text streams
        (["Let ", marker("hangs"), WAIT], is_a(SpecialistStart)),  # while a call runs
        (["Let ", marker("hangs"), " x"], is_a(SpecialistStart)),  # and the stream is closed
        (["Let ", marker("asks"), WAIT], is_a(ApprovalRequired)),  # while an approval waits
        (["Let ", marker("echo"), WAIT], is_a(SpecialistResult)),  # while the result is injected
    ],
)
def test_each_reason_ends_each_wait(
    items: list[Item],
    when: Callable[[Event], bool],
    reason: Interruption,
    last: dict[str, str],
    code: str,
    inside: bool,
) -> None:
    @specialist
    async def echo() -> str:
        """Answers."""
        return "nothing"

    async def main() -> None:
        model = Player(items)
        one = execution(model, hangs, asks, echo, ask=ask_for(asks_person=True))
        await run_until(one, when, lambda: one.turn.stop(reason), inside=inside)
        one.assert_over(model)
        assert last.items() <= short(one.events)[-1].items()
        assert one.stored == [(next(iter(last.values())), "Let ")]
        assert [call.code for call in one.turn.report("native").calls] in ([], [code], [None])

    virtual.run(main())


def test_a_specialist_that_ignores_its_cancellation_is_abandoned() -> None:
    released = asyncio.Event()

    @specialist(timeout=WAIT)
    async def ignores() -> str:
        """Does not react."""
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()
        return "never"

    async def main() -> float:
        loop, stopped_at = asyncio.get_running_loop(), 0.0
        model = Player(["A ", marker("ignores"), WAIT])
        one = execution(model, ignores)

        def end() -> None:
            nonlocal stopped_at
            stopped_at = loop.time()
            one.turn.stop("cancelled")

        await run_until(one, is_a(SpecialistStart), end, inside=False)
        seconds = loop.time() - stopped_at
        released.set()
        await asyncio.sleep(0.001)
        one.assert_over(model)
        assert [call.block for call in one.turn.report("native").calls] == [CANCELLED % "ignores"]
        return seconds

    assert virtual.run(main()) <= 0.1


@pytest.mark.parametrize("is_failing", [True, False])
def test_a_stream_that_does_not_close_is_left(is_failing: bool) -> None:
    class Stubborn(Player):
        async def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            try:
                async for chunk in super().stream(*args, **kwargs):
                    yield chunk
            finally:
                if is_failing:
                    raise RuntimeError("the connection is broken")
                await asyncio.Event().wait()

    async def main() -> float:
        loop, model = asyncio.get_running_loop(), Stubborn([f"A {marker('hangs')}", WAIT if is_failing else " x"])
        one = execution(model, hangs)
        await run_until(one, is_a(SpecialistStart), lambda: one.turn.stop("cancelled"), inside=True)
        assert isinstance(one.events[-1], Done)
        assert [call.code for call in one.turn.report("native").calls] == ["cancelled"]
        return loop.time()

    assert virtual.run(main()) <= 0.2


def test_a_stream_that_swallows_the_cancellation_ends_the_turn_all_the_same() -> None:
    class Deaf(Player):
        async def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            yield "A "
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            for _ in range(100):
                yield "x"

    async def main() -> None:
        model = Deaf()
        one = execution(model, hangs)
        await run_until(one, is_a(Token), lambda: one.turn.stop("cancelled"), inside=False)
        assert one.assert_over(model).text == "A "  # type: ignore[union-attr]

    virtual.run(main())


def test_automatic_calls_are_cancelled() -> None:
    @specialist(activates_on=["image"], timeout=WAIT)
    async def stares() -> str:
        """Looks at images for ever."""
        await asyncio.Event().wait()
        return "never"

    async def main() -> None:
        model = Player(["never"])
        one = execution(model, stares, ask=ask_for("Look!", attachments=(IMAGE,)))
        await run_until(one, is_a(SpecialistStart), lambda: one.turn.stop("cancelled"), inside=False)
        one.assert_over(model)
        assert model.requests == []
        assert one.turn.exchange.question.endswith(f"{CANCELLED % 'stares'}\n\nLook!")
        assert [call.by for call in one.turn.exchange.automatic_calls] == ["auto"]

    virtual.run(main())


# The store, the beginning and the end


@pytest.mark.parametrize("end", ["stop", "cancel"])
def test_only_a_cancellation_from_elsewhere_interrupts_the_store(end: str) -> None:
    async def main() -> None:
        writing, written = asyncio.Event(), asyncio.Event()

        async def store(exchange: Exchange) -> None:
            writing.set()
            await written.wait()
            stored.append(exchange.outcome)

        stored: list[str] = []
        one = Execution(turn_of(Player(["One."]), store=store))
        one.start()
        await writing.wait()
        assert not any(isinstance(event, Done) for event in one.events), "it is stored before its end is emitted"
        if end == "stop":
            one.turn.stop("cancelled")
            await asyncio.sleep(0)
            assert not one.task.done()
            written.set()
        else:
            one.task.cancel()
        await one.wait()
        assert (stored, one.task.cancelled()) == ((["complete"], False) if end == "stop" else ([], True))
        assert isinstance(one.events[-1], Done)
        assert one.events[-1].stop_reason == "complete"

    asyncio.run(main())


def test_a_turn_that_was_stopped_before_it_began_asks_nobody() -> None:
    async def main() -> None:
        model = Player(["never"])
        one = execution(model, hangs)
        one.turn.stop("shutdown")
        one.turn.stop("cancelled")
        one.start()
        await one.wait()
        assert model.requests == []
        assert short(one.events) == [{"failed": "shutdown"}]
        assert one.stored == [("shutdown", "")]
        assert one.turn.exchange.question == "Hi"

    asyncio.run(main())


def test_a_turn_whose_task_never_began_can_be_cut() -> None:
    async def main() -> None:
        one = execution(Player(["never"]), hangs)
        one.start()
        one.task.cancel()
        await one.wait()
        assert one.events == []
        assert short(one.turn.cut())[-1]["done"] == "cancelled"

    asyncio.run(main())


def test_a_stop_in_the_last_step_ends_the_turn_as_stopped_and_leaves_no_cancellation_behind() -> None:
    async def main() -> None:
        model = Player(["One."])
        one = execution(model, hangs)
        one.on_event = lambda event: one.turn.stop("cancelled") if isinstance(event, Token) else None
        await one.turn.run(one.emit)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)
        assert one.stored == [("cancelled", "One.")]

    asyncio.run(main())


def test_what_is_said_after_the_end_changes_nothing() -> None:
    async def main() -> None:
        one = execution(Player(["One."]), hangs)
        one.on_event = lambda event: one.turn.stop("cancelled") if isinstance(event, Done) else None
        one.start()
        await one.wait()
        assert one.stored == [("complete", "One.")]
        assert not one.task.cancelled()

    asyncio.run(main())
