"""A turn's response at the ASGI `send`: whoever cancels it, it settles once and swallows no other's cancellation."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from playing import WAIT, Player, turn_of
from starlette.types import Message as Sent

from brain.messages import Chunk, Message
from brain.response import TurnResponse
from brain.sampling import UNSAID, Sampling

SCOPE = {"type": "http", "method": "POST", "path": "/", "headers": []}


class ClosesSlowly(Player):
    """A model that waits for ever, and whose stream takes its time to close."""

    async def stream(
        self, messages: Sequence[Message], turn_pass: int = 0, sampling: Sampling = UNSAID
    ) -> AsyncGenerator[Chunk, None]:
        try:
            yield "Hi"
            await asyncio.sleep(WAIT)
        finally:
            await asyncio.sleep(0.05)


class Reader:
    """The other side: keeps what is sent, hangs up when told to."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.gone = asyncio.Event()

    async def receive(self) -> Sent:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Sent) -> None:
        self.sent.append(message)


def response_of(model: Any, settled: list[int], heartbeat: float = 15.0) -> tuple[TurnResponse, set[TurnResponse]]:
    open_ones: set[TurnResponse] = set()
    turn = turn_of(model)
    return TurnResponse(turn, open_ones=open_ones, heartbeat=heartbeat, settle=lambda: settled.append(1)), open_ones


def test_it_ends_with_its_turn_though_the_reader_stays() -> None:
    async def main() -> None:
        settled: list[int] = []
        reader = Reader()
        response, open_ones = response_of(Player("Hi"), settled)
        await response(SCOPE, reader.receive, reader.send)
        assert (settled, open_ones) == ([1], set())
        assert [message.get("more_body") for message in reader.sent] == [None, True, True, False]
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    asyncio.run(main())


def test_it_ends_when_the_reader_hangs_up() -> None:
    async def main() -> None:
        settled: list[int] = []
        reader = Reader()
        response, open_ones = response_of(Player(["Hi", WAIT]), settled)
        asyncio.get_running_loop().call_later(0.05, reader.gone.set)
        await response(SCOPE, reader.receive, reader.send)
        assert (settled, open_ones) == ([1], set())
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_a_second_cancellation_while_it_ends_leaves_nothing_open() -> None:
    async def main() -> None:
        settled: list[int] = []
        reader = Reader()
        response, open_ones = response_of(ClosesSlowly(), settled)
        answering = asyncio.create_task(response(SCOPE, reader.receive, reader.send))
        await asyncio.sleep(0.02)
        reader.gone.set()
        await asyncio.sleep(0.01)
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering
        assert (settled, open_ones) == ([1], set())

    asyncio.run(main())


def test_a_cancellation_from_outside_at_the_very_end_is_not_taken_for_its_own() -> None:
    async def main() -> None:
        settled: list[int] = []
        reader = Reader()
        response, open_ones = response_of(Player("Hi"), settled)

        async def send(message: Sent) -> None:
            if message.get("more_body") is False:
                answering.cancel()

        answering = asyncio.create_task(response(SCOPE, reader.receive, send))
        with pytest.raises(asyncio.CancelledError):
            await answering
        assert (settled, open_ones) == ([1], set())

    asyncio.run(main())


def test_heartbeats_are_sent_in_silence_and_never_behind_the_end() -> None:
    async def main() -> list[Sent]:
        reader = Reader()
        response, _ = response_of(Player(["Hi", 0.12, " again"]), [], heartbeat=0.05)
        await response(SCOPE, reader.receive, reader.send)
        await asyncio.sleep(0.1)
        return reader.sent

    bodies = [message["body"] for message in asyncio.run(main()) if "body" in message]
    beats = [number for number, body in enumerate(bodies) if body.startswith(b":")]
    assert beats == [2, 3]
    assert b"event: done" in bodies[-1]
