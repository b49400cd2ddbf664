"""Cancelling a turn at each of its waits: nothing runs on, the stream closes, and the stored turn is correct."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from fast_clock import run_jumping
from turn_helpers import PNG, WAIT, Item, Player, ask_for, done, registry_of, short, turn_of

from brain.errors import BadRequest, Interruption
from brain.events import ApprovalRequired, Done, Error, Event, Notice, SpecialistResult, SpecialistStart, Token, Usage
from brain.messages import Attachment, Exchange, NativeCall, Steer
from brain.models.model import PassRequest
from brain.plugins.context import Progress
from brain.plugins.specialist import specialist

MAX_STEPS = 400
IMAGE = Attachment(1, "a.png", "image/png", PNG)
CANCELLED = "[SPECIALIST_ERROR: %s failed - the turn was stopped]"


def marker(name: str) -> str:
    return f"SPECIALIST_REQUEST[{name}]"


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@specialist(timeout=WAIT)
async def obeys() -> str:
    """Takes a few steps, also to clean up."""
    try:
        await steps(3)
    finally:
        await steps(3)
    return "obeyed"


@specialist(timeout=WAIT)
def threads() -> Iterator[Progress | str]:
    """Reports progress from a thread."""
    yield Progress("half", 0.5)
    yield "threaded"


@specialist(activates_on=["image"], timeout=WAIT)
async def looks() -> str:
    """Looks at images by itself."""
    await steps(1)
    return "looked"


@specialist(timeout=WAIT, activates_on=["pdf"])
async def hangs() -> str:
    """Never ends."""
    await asyncio.Event().wait()
    return "never"


@specialist(approval="always", timeout=WAIT)
async def asks() -> str:
    """Needs an approval."""
    await steps(1)
    return "asked"


@specialist
async def echo() -> str:
    """Answers."""
    return "nothing"


class SlowPlayer(Player):
    """A model that needs one step for each chunk and for closing."""

    async def stream(self, request: PassRequest) -> AsyncGenerator[Any, None]:
        stream = super().stream(request)
        try:
            async for chunk in stream:
                await steps(1)
                yield chunk
        finally:
            await stream.aclose()
            await steps(1)


class Execution:
    """A turn in a separate task, with its events and its stored outcomes."""

    task: asyncio.Task[None]

    def __init__(self, model: Player, *specialists: Any, **options: Any) -> None:
        self.model = model
        self.events: list[Event] = []
        self.stored: list[tuple[str, str]] = []
        self.on_event: Callable[[Event], None] = lambda event: None
        self.turn = turn_of(model, registry_of(*specialists), **{"store": self.store, **options})

    def emit(self, events: Any) -> None:
        for event in events:
            self.events.append(event)
            self.on_event(event)

    async def store(self, exchange: Exchange) -> None:
        await steps(2)
        self.stored.append((exchange.outcome, exchange.answer))

    def start(self) -> None:
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        try:
            await self.turn.run(self.emit)
        finally:
            self.emit(self.turn.end())

    async def run_until(self, when: type[Event], end: Callable[[], None], *, inside: bool = False) -> None:
        """Start the turn and end it at an event: in the same step, or once everything waits."""
        reached = asyncio.Event()

        def react(event: Event) -> None:
            if isinstance(event, when) and not reached.is_set():
                reached.set()
                if inside:
                    end()

        self.on_event = react
        self.start()
        await reached.wait()
        if not inside:
            await steps(9)
            end()
        await asyncio.wait({self.task})

    def assert_over(self) -> Done | Error:
        """Check that nothing runs or is open, each call has its block, and the end came once."""
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert self.model.open == 0
        assert not self.turn.state.approvals.is_waiting
        for call in self.turn.snapshot().calls:
            assert call.code in (None, "cancelled", "deadline")
            assert call.block.startswith(f"[SPECIALIST_{'RESULT' if call.code is None else 'ERROR'}: {call.name}")
        last = self.events[-1]
        assert isinstance(last, Done | Error)
        assert isinstance(self.events[-2], Usage)
        assert sum(isinstance(event, Done | Error) for event in self.events) == 1
        assert self.turn.state.exchange.answer == "".join(one.text for one in self.events if isinstance(one, Token))
        return last


# At every step


async def stop(one: Execution) -> None:
    one.turn.stop("cancelled")


async def stop_twice(one: Execution) -> None:
    one.turn.stop("cancelled")
    await steps(1)
    one.turn.stop("shutdown")


async def cancel(one: Execution) -> None:
    one.task.cancel()


async def cancel_twice(one: Execution) -> None:
    one.task.cancel()
    await steps(1)
    one.task.cancel()


async def stop_and_cancel(one: Execution) -> None:
    one.turn.stop("cancelled")
    one.task.cancel()


async def steer_and_stop(one: Execution) -> None:
    with suppress(BadRequest):
        one.turn.steer("Be short!")
    one.turn.stop("cancelled")


def with_calls(accepted: list[str]) -> Execution:
    passes: list[list[Item]] = [
        ["Let me ", "look: ", marker("obeys"), " ", marker("threads"), "x"],
        ["And ", marker("looks"), " dropped"],
        ["That ", "is ", "all."],
    ]
    return Execution(SlowPlayer(*passes), obeys, threads, looks, ask=ask_for(attachments=(IMAGE,)))


def with_approvals_and_steering(accepted: list[str]) -> Execution:
    passes: list[list[Item]] = [
        ["A1", "\n", "never"],
        ["B1 ", marker("asks"), " ", marker("obeys")],
        ["C1", ". ", "never"],
        ["D."],
    ]
    one = Execution(SlowPlayer(*passes), asks, obeys, ask=ask_for(asks_person=True))

    def react(event: Event) -> None:
        if isinstance(event, ApprovalRequired):
            asyncio.get_running_loop().call_soon(decide, event.call_id)
        elif isinstance(event, Token) and event.text.rstrip().endswith("1") and not one.turn.is_stopped:
            one.turn.steer(f"after {event.text}")
            accepted.append(f"after {event.text}")

    def decide(call_id: str) -> None:
        with suppress(BadRequest):
            one.turn.state.approvals.decide(call_id, True)

    one.on_event = react
    return one


@pytest.mark.parametrize("end", [stop, stop_twice, cancel, cancel_twice, stop_and_cancel, steer_and_stop])
@pytest.mark.parametrize(
    ("make", "text"),
    [(with_calls, "Let me look: And That is all."), (with_approvals_and_steering, "A1\nB1 C1. \n\nD.")],
)
def test_a_turn_can_be_cancelled_at_every_step(
    make: Callable[[list[str]], Execution], text: str, end: Callable[[Execution], Awaitable[None]]
) -> None:
    async def is_whole_after(count: int) -> bool:
        accepted: list[str] = []
        one = make(accepted)
        one.start()
        await steps(count)
        is_whole = bool(one.turn.state.exchange.outcome)
        await end(one)
        await asyncio.wait({one.task})
        await steps(3)  # who cancels twice does not wait for calls that clean up
        if not one.events:
            assert count == 0, "it was cancelled before its first step"
            return False
        last = one.assert_over()
        assert isinstance(last, Done)
        assert last.stop_reason == ("complete" if is_whole else "cancelled")
        assert one.stored or end in (cancel, cancel_twice, stop_and_cancel), "only others can skip the store"
        assert not one.stored or one.stored == [(last.stop_reason, one.turn.state.exchange.answer)]
        assert text.startswith(one.turn.state.exchange.answer.removesuffix("\n\n"))
        steered = [part.text for part in one.turn.state.exchange.parts if isinstance(part, Steer)]
        assert [message for message in steered if message != "Be short!"] == accepted
        return is_whole and not one.task.cancelled()

    async def main() -> None:
        for count in range(MAX_STEPS):
            if await is_whole_after(count):
                assert count > 15
                return
        raise AssertionError("the turn was always cancelled")

    asyncio.run(main())


# At each wait, for each reason


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    ("reason", "last", "code"),
    [
        ("cancelled", {"done": "cancelled"}, "cancelled"),
        ("deadline", {"done": "deadline"}, "deadline"),
        ("shutdown", {"failed": "shutdown"}, "cancelled"),
    ],
)
@pytest.mark.parametrize(
    ("items", "when"),
    [
        (["Let ", WAIT], Token),
        (["Let ", marker("hangs"), WAIT], SpecialistStart),
        (["Let ", marker("hangs"), " x"], SpecialistStart),  # the stream is closed
        (["Let ", marker("asks"), WAIT], ApprovalRequired),
        (["Let ", marker("echo"), WAIT], SpecialistResult),
    ],
)
def test_each_reason_ends_each_wait(
    items: list[Item], when: type[Event], reason: Interruption, last: dict[str, str], code: str, inside: bool
) -> None:
    async def main() -> None:
        one = Execution(Player(items), hangs, asks, echo, ask=ask_for(asks_person=True))
        await one.run_until(when, lambda: one.turn.stop(reason), inside=inside)
        one.assert_over()
        assert last.items() <= short(one.events)[-1].items()
        assert one.stored == [(next(iter(last.values())), "Let ")]
        assert [call.code for call in one.turn.snapshot().calls] in ([], [code], [None])

    run_jumping(main())


def test_automatic_calls_are_cancelled() -> None:
    async def main() -> None:
        pdf = Attachment(1, "a.pdf", "application/pdf", b"%PDF-")
        one = Execution(Player(["never"]), hangs, ask=ask_for("Look!", attachments=(pdf,)))
        await one.run_until(SpecialistStart, lambda: one.turn.stop("cancelled"))
        one.assert_over()
        assert one.model.requests == []
        assert one.turn.state.exchange.question.endswith(f"{CANCELLED % 'hangs'}\n\nLook!")
        assert [call.by for call in one.turn.state.exchange.automatic_calls] == ["auto"]

    run_jumping(main())


# What does not obey


@specialist(timeout=WAIT)
async def ignores() -> str:
    """Does not react to its first cancellation."""
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.sleep(WAIT)
    return "never"


async def never_closes(stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    try:
        async for chunk in stream:
            yield chunk
    finally:
        await asyncio.Event().wait()


async def fails_to_close(stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    try:
        async for chunk in stream:
            yield chunk
    finally:
        raise RuntimeError("the connection is broken")


async def swallows_cancellation(stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    with suppress(asyncio.CancelledError):
        async for chunk in stream:
            yield chunk
    yield "x"


async def fails_when_cancelled(stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    try:
        async for chunk in stream:
            yield chunk
    except asyncio.CancelledError:
        raise RuntimeError("the connection is broken") from None


@pytest.mark.parametrize(
    ("wrap", "items", "codes"),
    [
        (None, ["A ", marker("ignores"), WAIT], ["cancelled"]),
        (never_closes, ["A ", marker("hangs"), " x"], ["cancelled"]),
        (fails_to_close, ["A ", marker("hangs"), " x"], ["cancelled"]),
        (fails_to_close, ["A ", marker("hangs"), WAIT], ["cancelled"]),
        (swallows_cancellation, ["A ", WAIT], []),
        (fails_when_cancelled, ["A ", WAIT], []),
    ],
)
def test_code_that_ignores_its_cancellation_is_abandoned(wrap: Any, items: list[Item], codes: list[str]) -> None:
    class Wrapped(Player):
        def stream(self, request: PassRequest) -> AsyncGenerator[Any, None]:
            stream = super().stream(request)
            return wrap(stream) if wrap is not None else stream

    async def main() -> None:
        one = Execution(Wrapped(items), hangs, ignores)
        await one.run_until(SpecialistStart if codes else Token, lambda: one.turn.stop("cancelled"))
        assert asyncio.get_running_loop().time() <= 0.2
        assert short(one.events)[-1] == done("A ", len(codes), 1, "cancelled")
        assert [call.code for call in one.turn.snapshot().calls] == codes
        assert one.stored == [("cancelled", "A ")]

    run_jumping(main())


# The store, the beginning and the end


@pytest.mark.parametrize("is_stopped", [True, False])
def test_only_a_cancellation_from_elsewhere_interrupts_the_store(is_stopped: bool) -> None:
    async def main() -> None:
        writing, written, stored = asyncio.Event(), asyncio.Event(), []

        async def store(exchange: Exchange) -> None:
            writing.set()
            await written.wait()
            stored.append(exchange.outcome)

        one = Execution(Player(["One."]), store=store)
        one.start()
        await writing.wait()
        assert not any(isinstance(event, Done) for event in one.events), "it is stored before its end is emitted"
        if is_stopped:
            one.turn.stop("cancelled")
            await steps(1)
            assert not one.task.done()
            written.set()
        else:
            one.task.cancel()
        await asyncio.wait({one.task})
        assert (stored, one.task.cancelled()) == ((["complete"], False) if is_stopped else ([], True))
        assert short(one.events)[-1]["done"] == "complete"

    asyncio.run(main())


def test_a_turn_that_is_stopped_before_its_start_sends_no_request() -> None:
    async def main() -> None:
        one = Execution(Player(["never"]))
        one.turn.stop("shutdown")
        one.turn.stop("cancelled")
        await one.run()
        assert (one.model.requests, short(one.events)) == ([], [{"failed": "shutdown"}])
        assert (one.stored, one.turn.state.exchange.question) == ([("shutdown", "")], "Hi")

    asyncio.run(main())


def test_a_turn_can_be_cut_before_its_task_starts() -> None:
    async def main() -> None:
        one = Execution(Player(["never"]))
        one.start()
        one.task.cancel()
        await asyncio.wait({one.task})
        assert one.events == []
        assert short(one.turn.end())[-1]["done"] == "cancelled"

    asyncio.run(main())


@pytest.mark.parametrize(("when", "outcome"), [(Token, "cancelled"), (Notice, "cancelled"), (Done, "complete")])
def test_a_stop_in_the_last_step_leaves_no_cancellation(when: type[Event], outcome: str) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, when) and (one.turn.state.exchange.answer or when is Token):
            one.turn.stop("cancelled")

    async def main() -> None:
        one.on_event = stop
        await one.run()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await steps(1)
        assert one.stored == [(outcome, "One.")]

    unknown = NativeCall("unknown", "{}")  # makes a notice after each pass
    one = Execution(Player([unknown], ["One.", unknown]))
    asyncio.run(main())
