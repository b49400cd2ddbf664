"""A run's stream at the ASGI `send`: every reader gets the events once and in order, and never delays the run.

The clock of these tests jumps (`clock.py`), so that no time passes while a stream waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import product
from typing import Any

import pytest
from clock import run_jumping
from playing import Player, ask_for, prose, turn_of
from sse_starlette.sse import AppStatus
from starlette.types import Message as Sent

from brain.errors import BadRequest, ModelError
from brain.events import Done, Error, Event, Token
from brain.messages import TurnReport
from brain.protocols import native
from brain.runtime.run import Run
from brain.server.event_stream import SHUTDOWN_SECONDS, WRITE_EXTENSION, EventStreamResponse, Reader

HEARTBEAT = 8.0
LIMIT = 10_000.0
"""Seconds of the jumping clock, longer than a turn may take."""
NEVER = 100_000.0


class Client:
    """Records what is sent. It can stop to take it, and leave."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.left = asyncio.Event()
        self.takes = asyncio.Event()
        self.takes.set()
        self._news = asyncio.Event()

    async def receive(self) -> Sent:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Sent) -> None:
        await self.takes.wait()
        self.sent.append(message)
        self._news.set()

    def write(self, data: bytes) -> bool:
        """The extension by which a server writes at once."""
        if not self.takes.is_set():
            return False
        self.sent.append({"type": WRITE_EXTENSION, "body": data})
        self._news.set()
        return True

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT):
            while not condition():
                self._news.clear()
                await self._news.wait()

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent if message.get("body")]

    @property
    def frames(self) -> bytes:
        """All bytes without heartbeats."""
        return b"".join(body for body in self.bodies if body != native.HEARTBEAT)

    @property
    def names(self) -> list[str]:
        lines = self.frames.decode().split("\n")
        return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]

    @property
    def numbers(self) -> list[int]:
        lines = self.frames.decode().split("\n")
        return [int(line.rpartition(".")[2]) for line in lines if line.startswith("id: ")]

    @property
    def complete(self) -> bool:
        """Whether the response is whole."""
        return [message.get("more_body") for message in self.sent][-1:] == [False]


class Stage:
    """One run, the responses that stream it, and what became of both."""

    def __init__(self, *items: Any, unread_seconds: float | None = None) -> None:
        self.settled: list[TurnReport] = []
        self.open_streams = 0
        ask = ask_for()
        turn = turn_of(Player(items), ask=ask)
        self.run = Run(turn, ask, "native", self.settled.append, replayable=True, unread_seconds=unread_seconds)

    def count_streams(self, change: int) -> None:
        self.open_streams += change

    def stream(
        self,
        client: Client,
        after: int = 0,
        *,
        direct: bool = False,
        send: Any = None,
        refusal: Any = None,
        **more: Any,
    ) -> "asyncio.Task[None]":
        """Begin to stream the run to a client."""
        response = EventStreamResponse(
            Reader(self.run, more.pop("encoder", None), after, **more),
            heartbeat=HEARTBEAT,
            count_streams=self.count_streams,
            refusal=refusal,
        )
        extensions = {WRITE_EXTENSION: client.write} if direct else {}
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "extensions": extensions}
        return asyncio.create_task(response(scope, client.receive, send or client.send), name="response")

    async def ended(self) -> str:
        """How the turn ended, once it did. It was recorded once, and nobody reads it any more."""
        async with asyncio.timeout(LIMIT):
            await self.run.wait_ended()
        (report,) = self.settled
        assert (self.open_streams, self.run.readers, self.run.log.subscribers) == (0, 0, 0)
        return str(report.error or report.stop_reason)

    @property
    def frames(self) -> bytes:
        return b"".join(self.run.log.frames(0))


def play(main: Callable[[], Awaitable[None]]) -> None:
    """Run a test. No task of it is left, except for the one by which sse_starlette waits for the server's end."""

    async def alone() -> None:
        async with asyncio.timeout(2 * LIMIT):
            await main()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert {task.get_coro().__qualname__ for task in tasks} <= {"_shutdown_watcher"}  # type: ignore[union-attr]

    run_jumping(alone())


# Whole streams


@pytest.mark.parametrize("direct", [False, True])
def test_a_whole_stream(direct: bool) -> None:
    async def main() -> None:
        stage, client = Stage("Hel", "lo"), Client()
        response = stage.stream(client, direct=direct)
        await asyncio.sleep(0)
        stage.run.start()
        await response
        assert await stage.ended() == "complete"
        assert client.sent[0]["status"] == 200
        headers = dict(client.sent[0]["headers"])
        assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
        assert headers[b"cache-control"] == b"no-cache, no-transform"
        assert headers[b"x-accel-buffering"] == b"no"
        assert client.names == ["turn_start", "token", "token", "usage", "done"]
        assert (client.numbers, client.complete) == ([1, 2, 3, 4, 5], True)
        assert client.frames == stage.frames
        assert stage.run.left_at == 5

    play(main)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_reader_joins_in_the_middle(after: int, direct: bool) -> None:
    async def main() -> None:
        go_on = asyncio.Event()
        stage, first, second, late = Stage("a", "b", go_on, "c"), Client(), Client(), Client()
        responses = [stage.stream(first)]
        stage.run.start()
        await first.until(lambda: len(first.names) == 3)
        responses.append(stage.stream(second, after, direct=direct))
        if after < 3:
            await second.until(lambda: second.numbers == list(range(after + 1, 4)))
        go_on.set()
        await asyncio.gather(*responses)
        await stage.stream(late, after)
        assert await stage.ended() == "complete"
        assert first.numbers == [1, 2, 3, 4, 5, 6]
        assert second.numbers == late.numbers == list(range(after + 1, 7))
        assert second.complete
        assert late.complete
        with pytest.raises(BadRequest) as refused:
            Reader(stage.run, None, 7)
        assert refused.value.code == "gone"

    play(main)


# Readers that leave


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("owns_run", [True, False])
def test_a_client_hangs_up(owns_run: bool, direct: bool) -> None:
    async def main() -> None:
        go_on = asyncio.Event()
        stage, client, other = Stage("Hi", go_on, " again"), Client(), Client()
        response, following = stage.stream(client, owns_run=owns_run, direct=direct), stage.stream(other)
        stage.run.start()
        await client.until(lambda: client.names == ["turn_start", "token"])
        client.left.set()
        await response
        assert stage.run.left_at == 2
        go_on.set()
        await following
        assert await stage.ended() == ("cancelled" if owns_run else "complete")
        assert (client.names, client.complete) == (["turn_start", "token"], False)
        assert other.names == ["turn_start", "token", *([] if owns_run else ["token"]), "usage", "done"]
        assert other.complete

    play(main)


@pytest.mark.parametrize(
    ("unread_seconds", "ended_at"),
    [(None, 50.0), (20.0, 20.0), (0.0, 0.0)],
    ids=["runs to its end", "runs for a while", "stops"],
)
def test_a_run_without_readers(unread_seconds: float | None, ended_at: float) -> None:
    async def main() -> None:
        stage, client = Stage("Hi", 50.0, " again", unread_seconds=unread_seconds), Client()
        response = stage.stream(client)
        stage.run.start()
        await client.until(lambda: len(client.names) == 2)
        client.left.set()
        await response
        assert await stage.ended() == ("complete" if unread_seconds is None else "cancelled")
        assert asyncio.get_running_loop().time() == pytest.approx(ended_at)

    play(main)


@pytest.mark.parametrize("owns_run", [True, False])
@pytest.mark.parametrize("how", ["the connection fails", "the response is cancelled"])
def test_a_stream_that_is_broken_off_leaves_the_run(how: str, owns_run: bool) -> None:
    async def main() -> None:
        go_on = asyncio.Event()
        stage, client = Stage("Hi", go_on, " again"), Client()

        async def send(message: Sent) -> None:
            await client.send(message)
            if b"Hi" not in message.get("body", b""):
                return
            if how == "the connection fails":
                raise OSError("the connection is lost")
            response.cancel()

        response = stage.stream(client, owns_run=owns_run, send=send)
        stage.run.start()
        with pytest.raises((OSError, asyncio.CancelledError)):
            await response
        go_on.set()
        assert await stage.ended() == ("cancelled" if owns_run else "complete")

    play(main)


# The response begins when the model does, for protocols that refuse with its status


def refuse(error: Error) -> tuple[int, bytes]:
    return error.status or 500, error.code.encode()


UNKNOWN = ModelError("model_failed", "The model server has no such model.", status=404)


def test_a_turn_that_fails_before_the_model_answers_is_refused() -> None:
    async def main() -> None:
        stage, client = Stage(1.0, UNKNOWN), Client()
        response = stage.stream(client, refusal=refuse)
        stage.run.start()
        await response
        assert await stage.ended() == "model_failed"
        start, body = client.sent
        assert (start["status"], dict(start["headers"])[b"content-type"]) == (404, b"application/json")
        assert (body["body"], body.get("more_body", False)) == (b"model_failed", False)

    play(main)


def test_the_response_begins_when_the_model_answers() -> None:
    async def main() -> None:
        go_on = asyncio.Event()
        stage, client = Stage(4.0, "Hi", go_on, UNKNOWN), Client()
        response = stage.stream(client, refusal=refuse)
        stage.run.start()
        await client.until(lambda: client.numbers == [1, 2])
        assert asyncio.get_running_loop().time() == 4.0
        go_on.set()
        await response
        assert await stage.ended() == "model_failed"
        assert client.sent[0]["status"] == 200
        assert (client.names, client.complete) == (["turn_start", "token", "usage", "error"], True)

    play(main)


def test_the_response_begins_after_one_heartbeat() -> None:
    async def main() -> None:
        stage, client = Stage(HEARTBEAT + 1, UNKNOWN), Client()
        response = stage.stream(client, refusal=refuse)
        stage.run.start()
        await client.until(lambda: client.numbers == [1])
        assert asyncio.get_running_loop().time() == HEARTBEAT
        await response
        assert await stage.ended() == "model_failed"
        assert client.sent[0]["status"] == 200
        assert client.names == ["turn_start", "usage", "error"]

    play(main)


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_client_leaves_before_the_response_begins(cancelled: bool) -> None:
    async def main() -> None:
        stage, client = Stage(NEVER), Client()
        response = stage.stream(client, refusal=refuse, owns_run=True)
        stage.run.start()
        await asyncio.sleep(1)
        if cancelled:
            response.cancel()
        else:
            client.left.set()
        await asyncio.wait({response})
        assert client.sent == []
        assert await stage.ended() == "cancelled"

    play(main)


# Heartbeats


@pytest.mark.parametrize("direct", [False, True])
def test_heartbeats_are_sent_in_silence_only(direct: bool) -> None:
    async def main() -> None:
        stage, client = Stage("a", 5.0, "b", 5.0, "c", 25.0, "d", 5.0, "e"), Client()
        response = stage.stream(client, direct=direct)
        stage.run.start()
        await response
        assert await stage.ended() == "complete"
        lines = b"".join(client.bodies).decode().split("\n")
        told = [line for line in lines if line.startswith((": ", 'data: {"text"'))]
        texts = [f'data: {{"text":"{text}"}}' for text in "abcde"]
        assert told == [*texts[:3], *[": heartbeat"] * 3, *texts[3:]]
        assert client.frames == stage.frames

    play(main)


# Slow clients


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("taken", [0, 2, 3])
def test_a_slow_client_never_delays_the_run_and_gets_everything(taken: int, direct: bool) -> None:
    """`taken` is how many events it takes before it stops."""

    async def main() -> None:
        steps = [asyncio.Event() for _ in range(3)]
        texts = [f"{number} " for number in range(200)]
        stage, client = Stage(steps[0], "a", steps[1], "b", steps[2], *texts), Client()
        if taken:
            steps[0].set()
        else:
            client.takes.clear()
        response = stage.stream(client, direct=direct)
        stage.run.start()
        if taken:
            await client.until(lambda: len(client.names) == 2)
        if taken > 2:
            steps[1].set()
            await client.until(lambda: len(client.names) == 3)
        client.takes.clear()
        for step in steps:
            step.set()
        await stage.run.wait_ended()
        assert len(client.names) == taken
        client.takes.set()
        await response
        assert await stage.ended() == "complete"
        assert (client.frames, client.complete) == (stage.frames, True)

    play(main)


class Doubling:
    """A protocol that writes each text twice, and may end after one."""

    content_type = b"application/x-doubled"
    headers = ((b"x-doubled", b"yes"),)
    heartbeat = b"."

    def __init__(self, last: str | None = None) -> None:
        self.last = last
        self.closed = False

    def encode(self, events: Sequence[Event]) -> bytes:
        texts = [event.text for event in events if isinstance(event, Token)] if not self.closed else []
        self.closed = self.closed or self.last in texts
        return "".join(text + text for text in texts).encode()


ACTIONS = ("written", "refused", "others run", "taken")
DONE = Done(stop_reason="complete", message_id="m1", text="", calls=0, passes=1, first_token_ms=0, total_ms=0)


@pytest.mark.parametrize("foreign", [False, True])
def test_direct_writes_in_any_order(foreign: bool) -> None:
    """Appends whose direct write the server accepts or refuses, other tasks that run, and sends that finish."""

    async def act(actions: Sequence[str]) -> None:
        stage, got, permits = Stage(), bytearray(), asyncio.Semaphore(0)
        reader = Reader(stage.run, Doubling() if foreign else None)
        accepts = False

        def write(data: bytes) -> bool:
            if accepts:
                got.extend(data)
            return accepts

        async def send_all() -> None:
            async for data in reader:
                got.extend(data)
                await permits.acquire()

        reader.write = write
        sending = asyncio.create_task(send_all())
        await asyncio.sleep(0)
        for number, action in enumerate(actions):
            if action == "others run":
                await asyncio.sleep(0)
            elif action == "taken":
                permits.release()
            else:
                accepts = action == "written"
                stage.run.log.append([Token(f"{number} ")])
        stage.run.log.append([DONE])
        for _ in actions:
            permits.release()
        permits.release()
        await sending
        reader.close()
        texts = [f"{number} " for number, action in enumerate(actions) if action in ("written", "refused")]
        expected = "".join(text * 2 for text in texts).encode() if foreign else stage.frames
        assert bytes(got) == expected, actions
        assert stage.run.left_at == len(texts) + 1

    async def main() -> None:
        for actions in product(ACTIONS, repeat=5):
            await act(actions)

    play(main)


def test_a_client_too_far_behind_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.server.event_stream.PENDING_BYTES", 4_000)

    async def main() -> None:
        go_on = asyncio.Event()
        stage, client, other = Stage("a", go_on, *(f"{number} " for number in range(200))), Client(), Client()
        response, following = stage.stream(client), stage.stream(other, direct=True)
        stage.run.start()
        await client.until(lambda: len(client.names) == 2)
        client.takes.clear()
        go_on.set()
        await following
        client.takes.set()
        await response
        assert await stage.ended() == "complete"
        assert "done" not in client.names
        assert client.numbers == list(range(1, len(client.numbers) + 1))
        assert stage.run.left_at == len(client.numbers)
        assert other.frames == stage.frames
        rest = Client()
        await stage.stream(rest, stage.run.left_at)
        assert client.frames + rest.frames == stage.frames

    play(main)


def test_a_client_that_joins_a_long_log_is_not_too_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.server.event_stream.PENDING_BYTES", 4_000)

    async def main() -> None:
        run = Stage().run
        run.log.append([Token(prose(20_000))])
        reader = Reader(run)
        run.log.append([Token("end"), DONE])
        assert b"".join([data async for data in reader]) == b"".join(run.log.frames(0))
        reader.close()

    play(main)


@pytest.mark.parametrize("owns_run", [True, False])
@pytest.mark.parametrize("texts", [["Hi", NEVER], ["Hi", 1.0, " again", 300.0]], ids=["a heartbeat", "an event"])
def test_a_client_that_takes_nothing_for_four_heartbeats_is_disconnected(texts: list[Any], owns_run: bool) -> None:
    async def main() -> None:
        stage, client = Stage(*texts, unread_seconds=0.0), Client()
        response = stage.stream(client, owns_run=owns_run)
        stage.run.start()
        await client.until(lambda: len(client.names) == 2)
        client.takes.clear()
        await response
        assert 4 * HEARTBEAT <= asyncio.get_running_loop().time() <= 5 * HEARTBEAT
        assert (client.names, client.complete, stage.run.left_at) == (["turn_start", "token"], False, 2)
        assert await stage.ended() == "cancelled"

    play(main)


# Streams that end before their turn


def test_an_encoder_ends_its_stream_before_the_turn_ends() -> None:
    async def main() -> None:
        go_on = asyncio.Event()
        stage, client, rest = Stage("a", "b", go_on, "c"), Client(), Client()
        response = stage.stream(client, encoder=Doubling("b"))
        stage.run.start()
        await response
        headers = dict(client.sent[0]["headers"])
        assert (headers[b"content-type"], headers[b"x-doubled"]) == (b"application/x-doubled", b"yes")
        assert (client.frames, client.complete, stage.run.has_ended) == (b"aabb", True, False)
        assert stage.run.left_at == 3
        go_on.set()
        await stage.stream(rest, stage.run.left_at, encoder=Doubling())
        assert await stage.ended() == "complete"
        assert rest.frames == b"cc"

    play(main)


def test_what_happens_after_an_encoder_ended_its_stream_was_not_read() -> None:
    async def main() -> None:
        stage, client = Stage("a", "b", "c"), Client()
        client.takes.clear()
        response = stage.stream(client, encoder=Doubling("b"))
        stage.run.start()
        await stage.run.wait_ended()
        client.takes.set()
        await response
        assert await stage.ended() == "complete"
        assert (client.frames, client.complete, stage.run.left_at) == (b"aabb", True, 3)

    play(main)


@pytest.mark.parametrize("taken", [1, 2, 3])
def test_where_a_reader_left(taken: int) -> None:
    async def main() -> None:
        steps = [asyncio.Event() for _ in range(3)]
        stage, client = Stage(steps[0], "a", steps[1], "b", steps[2], "c"), Client()
        response = stage.stream(client)
        stage.run.start()
        for number in range(1, taken + 1):
            await client.until(lambda: len(client.names) == number)  # noqa: B023
            if number < taken:
                steps[number - 1].set()
        client.takes.clear()
        for step in steps:
            step.set()
        await stage.run.wait_ended()
        client.left.set()
        await response
        assert await stage.ended() == "complete"
        assert (client.numbers, stage.run.left_at) == (list(range(1, taken + 1)), taken)

    play(main)


# Shutdown


def test_a_stream_gets_the_end_of_its_run_when_the_server_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        stage, client = Stage("Hi", NEVER), Client()
        response = stage.stream(client)
        stage.run.start()
        await client.until(lambda: len(client.names) == 2)
        monkeypatch.setattr(AppStatus, "should_exit", True)
        await asyncio.sleep(1)  # until sse_starlette sees it
        stage.run.stop("shutdown")
        await response
        assert await stage.ended() == "shutdown"
        assert (client.names, client.complete) == (["turn_start", "token", "usage", "error"], True)

    play(main)


def test_a_stream_ends_though_its_run_does_not_when_the_server_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        stage, client = Stage("Hi", NEVER), Client()
        response = stage.stream(client)
        stage.run.start()
        await client.until(lambda: len(client.names) == 2)
        monkeypatch.setattr(AppStatus, "should_exit", True)
        await response
        assert asyncio.get_running_loop().time() == pytest.approx(SHUTDOWN_SECONDS, abs=1)
        assert not client.complete
        stage.run.stop()
        assert await stage.ended() == "cancelled"

    play(main)
