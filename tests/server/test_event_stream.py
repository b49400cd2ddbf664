"""A run's stream at the ASGI `send`: every reader gets the events once and in order, and never delays the run.

The clock of these tests jumps (`clock.py`): no time passes while a stream waits.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from itertools import product
from typing import Any

import pytest
from fast_clock import now, run_jumping
from sse_starlette.sse import AppStatus
from starlette.types import Message as Sent
from turn_helpers import Player, prose, turn_of

from brain.errors import ModelError
from brain.events import Done, Event, Notice, Token
from brain.protocols import encoding
from brain.runtime.run import Run, RunOptions
from brain.server.event_stream import (
    SHUTDOWN_SECONDS,
    STREAM_EXTENSION,
    Channel,
    EventStreamResponse,
    Heartbeats,
    Reader,
)

HEARTBEAT = 8.0
LIMIT = 10_000.0
"""Seconds of the jumping clock, longer than a turn may take."""
NEVER = 100_000.0
UNKNOWN = ModelError("model_failed", "The model server has no such model.", status=404)
DONE = Done(stop_reason="complete", message_id="m1", text="", calls=0, passes=1, first_token_ms=0, total_ms=0)
BOTH = pytest.mark.parametrize("direct", [False, True])
OWNS = pytest.mark.parametrize("owns_run", [False, True])


def jumping(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on the jumping clock. It leaves no task but the one by which sse_starlette awaits the server's end."""

    @wraps(test)
    def run(**arguments: Any) -> None:
        async def main() -> None:
            async with asyncio.timeout(2 * LIMIT):
                await test(**arguments)
            await asyncio.sleep(0)  # by which a cancelled task ends
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            assert {task.get_coro().__qualname__ for task in tasks} <= {"_shutdown_watcher"}  # type: ignore[union-attr]

        run_jumping(main())

    return run


class Client:
    """Records what is sent. It can stop reading, and leave."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.left = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self._news = asyncio.Event()
        self._reader: Reader | None = None
        self._has_ended = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def receive(self) -> Sent:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Sent) -> None:
        await self.reads.wait()
        self.sent.append(message)
        self._news.set()

    def attach(self, reader: Reader) -> Channel:
        """The extension by which a reader gets the connection."""
        self._reader = reader
        self._tasks.append(asyncio.create_task(self._wait_until_left(reader)))
        return Channel(self._write, self._end, self._has_ended.set)

    async def served(self, response: Coroutine[Any, Any, None]) -> None:
        """Serve a response whose application may return before its end."""
        try:
            await response
            if self._reader is not None and not self._reader.is_closed:
                await self._has_ended.wait()
        finally:
            if self._reader is not None:
                self._reader.close()
            for task in self._tasks:
                task.cancel()

    def _write(self, data: bytes) -> bool:
        if not self.reads.is_set():
            assert self._reader is not None
            self._tasks.append(asyncio.create_task(self._wait_until_it_reads(self._reader)))
            return False
        if data:
            self.sent.append({"type": STREAM_EXTENSION, "body": data})
            self._news.set()
        return True

    def _end(self) -> None:
        self.sent.append({"type": "http.response.body", "body": b"", "more_body": False})
        self._has_ended.set()

    async def _wait_until_left(self, reader: Reader) -> None:
        await self.left.wait()
        reader.close()
        self._has_ended.set()

    async def _wait_until_it_reads(self, reader: Reader) -> None:
        await self.reads.wait()
        reader.resume()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT):
            while not condition():
                self._news.clear()
                await self._news.wait()

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def frames(self) -> bytes:
        """All bytes without heartbeats."""
        return b"".join(
            message["body"] for message in self.sent if message.get("body", encoding.HEARTBEAT) != encoding.HEARTBEAT
        )

    @property
    def names(self) -> list[str]:
        lines = self.frames.decode().split("\n")
        return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]

    @property
    def numbers(self) -> list[int]:
        lines = self.frames.decode().split("\n")
        return [int(line.rpartition(".")[2]) for line in lines if line.startswith("id: ")]

    @property
    def is_complete(self) -> bool:
        return [message.get("more_body") for message in self.sent][-1:] == [False]


class Stage:
    """One run, and the responses that stream it."""

    def __init__(self, *items: Any, unread_seconds: float | None = None) -> None:
        self.outcomes: list[str] = []
        self.open_streams = 0
        self.heartbeats = Heartbeats(HEARTBEAT)
        self.model = Player(items)
        turn = turn_of(self.model)
        self.run = Run(turn, "native", RunOptions(unread_seconds=unread_seconds))
        self.run.on_end.append(lambda run: self.outcomes.append(run.snapshot().outcome))

    def count_streams(self, change: int) -> None:
        self.open_streams += change

    def stream(
        self,
        client: Client,
        after: int = 0,
        *,
        encoder: Any = None,
        owns_run: bool = False,
        direct: bool = False,
        send: Any = None,
        rejects: Any = None,
    ) -> "asyncio.Task[None]":
        """Begin to stream the run to a client."""
        response = EventStreamResponse(
            Reader(self.run, encoder, after, heartbeats=self.heartbeats, owns_run=owns_run),
            heartbeat=HEARTBEAT,
            count_streams=self.count_streams,
            rejects=rejects,
        )
        extensions = {STREAM_EXTENSION: client.attach} if direct else {}
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "extensions": extensions}
        return asyncio.create_task(client.served(response(scope, client.receive, send or client.send)), name="response")

    async def started(self, client: Client, **options: Any) -> "asyncio.Task[None]":
        """Stream the run to a client, and start it."""
        response = self.stream(client, **options)
        await asyncio.sleep(0)
        self.run.start()
        return response

    async def ended(self) -> str:
        """Wait for the end of the turn, and return its outcome. Check that it was recorded once and has no readers."""
        async with asyncio.timeout(LIMIT):
            await self.run.wait_ended()
        (outcome,) = self.outcomes
        assert (self.open_streams, self.run.readers, self.run.log.subscribers) == (0, 0, 0)
        return outcome

    @property
    def frames(self) -> bytes:
        return b"".join(self.run.log.frames(0))


@BOTH
@OWNS
@jumping
async def test_a_client_disconnects(owns_run: bool, direct: bool) -> None:
    gate = asyncio.Event()
    stage, client, other = Stage("Hi", gate, " again"), Client(), Client()
    following = stage.stream(other)
    response = await stage.started(client, owns_run=owns_run, direct=direct)
    await client.until(lambda: client.names == ["turn_start", "token"])
    client.left.set()
    await response
    assert stage.run.last_received == 2
    gate.set()
    await following
    assert await stage.ended() == ("cancelled" if owns_run else "complete")
    assert (client.names, client.is_complete) == (["turn_start", "token"], False)
    assert other.names == ["turn_start", "token", *([] if owns_run else ["token"]), "usage", "done"]
    assert other.is_complete


@OWNS
@pytest.mark.parametrize("is_cancelled", [False, True])
@jumping
async def test_a_stream_that_breaks_leaves_the_run(is_cancelled: bool, owns_run: bool) -> None:
    gate = asyncio.Event()
    stage, client = Stage("Hi", gate, " again"), Client()

    async def send(message: Sent) -> None:
        await client.send(message)
        if b"Hi" in message.get("body", b""):
            if not is_cancelled:
                raise OSError("the connection is lost")
            response.cancel()

    response = await stage.started(client, owns_run=owns_run, send=send)
    with pytest.raises((OSError, asyncio.CancelledError)):
        await response
    gate.set()
    assert await stage.ended() == ("cancelled" if owns_run else "complete")


# A response that begins when the model answers


@pytest.mark.parametrize(
    ("items", "begins_at", "status", "names"),
    [
        ((1.0, UNKNOWN), 1.0, 404, []),
        ((4.0, "Hi", 1.0, UNKNOWN), 4.0, 200, ["turn_start", "token", "usage", "error"]),
        ((HEARTBEAT + 1, UNKNOWN), HEARTBEAT, 200, ["turn_start", "usage", "error"]),
    ],
    ids=["fails before", "answers", "is silent for a heartbeat interval"],
)
@jumping
async def test_the_response_has_the_models_status(
    items: Sequence[Any], begins_at: float, status: int, names: Sequence[str]
) -> None:
    stage, client = Stage(*items), Client()
    response = await stage.started(client, rejects=lambda error: True)
    await client.until(lambda: bool(client.sent))
    assert (now(), client.sent[0]["status"]) == (begins_at, status)
    await response
    assert await stage.ended() == "model_failed"
    if status == 404:
        assert client.headers[b"content-type"] == b"application/json"
        assert json.loads(client.frames)["error"]["code"] == "model_failed"
        assert client.is_complete or "more_body" not in client.sent[-1]
    else:
        assert (client.names, client.is_complete) == (names, True)


@pytest.mark.parametrize("is_cancelled", [False, True])
@jumping
async def test_a_client_leaves_before_the_response_begins(is_cancelled: bool) -> None:
    stage, client = Stage(NEVER), Client()
    response = await stage.started(client, rejects=lambda error: True, owns_run=True)
    while not stage.model.requests:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0)
    if is_cancelled:
        response.cancel()
    else:
        client.left.set()
    await asyncio.wait({response})
    assert client.sent == []
    assert await stage.ended() == "cancelled"


# Heartbeats, and slow clients


@BOTH
@jumping
async def test_heartbeats_are_sent_in_silence_only(direct: bool) -> None:
    stage, client = Stage("a", 5.0, "b", 5.0, "c", 25.0, "d", 5.0, "e"), Client()
    await (await stage.started(client, direct=direct))
    assert await stage.ended() == "complete"
    lines = b"".join(message.get("body", b"") for message in client.sent).decode().split("\n")
    texts = [f'data: {{"text":"{text}"}}' for text in "abcde"]
    expected = [*texts[:3], *[": heartbeat"] * 3, *texts[3:]]
    assert [line for line in lines if line.startswith((": ", 'data: {"text"'))] == expected
    assert client.frames == stage.frames


@BOTH
@jumping
async def test_events_that_a_protocol_leaves_out_delay_no_heartbeat(direct: bool) -> None:
    stage, client = Stage(), Client()
    response = stage.stream(client, encoder=Doubling(), direct=direct)
    for _ in range(4):
        await asyncio.sleep(HEARTBEAT / 2 + 1)
        stage.run.log.append([Notice("repeated_call", "again")])
    stage.run.log.append([DONE])
    await response
    assert b"".join(message.get("body", b"") for message in client.sent) == b".."


@BOTH
@pytest.mark.parametrize("count", [0, 2, 3], ids=["takes nothing", "takes two events", "takes three events"])
@jumping
async def test_a_slow_client_never_delays_the_run_and_gets_everything(count: int, direct: bool) -> None:
    gates = [asyncio.Event() for _ in range(3)]
    stage = Stage(gates[0], "a", gates[1], "b", gates[2], *(f"{number} " for number in range(200)))
    client = Client()
    if not count:
        client.reads.clear()
    response = await stage.started(client, direct=direct)
    for gate in gates[: max(0, count - 1)]:
        gate.set()
    if count:
        await client.until(lambda: len(client.names) == count)
    client.reads.clear()
    for gate in gates:
        gate.set()
    await stage.run.wait_ended()
    assert len(client.names) == count
    client.reads.set()
    await response
    assert await stage.ended() == "complete"
    assert (client.frames, client.is_complete) == (stage.frames, True)


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
        assert "fails" not in texts
        self.closed = self.closed or self.last in texts
        return "".join(text + text for text in texts).encode()


@pytest.mark.parametrize("is_foreign", [False, True])
@jumping
async def test_direct_writes_in_any_order(is_foreign: bool) -> None:
    """Appends whose write the server accepts or rejects, and clients that become ready for more."""

    async def act(actions: Sequence[str]) -> None:
        stage, found = Stage(), bytearray()
        reader = Reader(stage.run, Doubling() if is_foreign else None, heartbeats=stage.heartbeats)
        accepts, ends = True, 0

        def write(data: bytes) -> bool:
            if accepts:
                found.extend(data)
            return accepts

        def end() -> None:
            nonlocal ends
            ends += 1

        reader.begin(Channel(write, end, pytest.fail))
        for number, action in enumerate(actions):
            accepts = action != "rejected"
            if action == "resumed":
                reader.resume()
            else:
                stage.run.log.append([Token(f"{number} ")])
        accepts = True
        stage.run.log.append([DONE])
        is_ready = "rejected" not in "".join(actions).rpartition("resumed")[2]
        assert (ends, reader.is_closed) == ((1, True) if is_ready else (0, False))
        reader.resume()
        assert (ends, reader.is_closed) == (1, True)
        texts = [f"{number} " for number, action in enumerate(actions) if action in ("accepted", "rejected")]
        assert bytes(found) == ("".join(text * 2 for text in texts).encode() if is_foreign else stage.frames), actions
        assert stage.run.last_received == len(texts) + 1

    for actions in product(("accepted", "rejected", "resumed"), repeat=6):
        await act(actions)


@BOTH
@jumping
async def test_a_client_too_far_behind_is_disconnected(direct: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("brain.server.event_stream.PENDING_BYTES", 4_000)
        gate = asyncio.Event()
        stage = Stage("a", gate, *(f"{number} " for number in range(200)))
        client, other, rest = Client(), Client(), Client()
        following = stage.stream(other, direct=True)
        response = await stage.started(client, direct=direct)
        await client.until(lambda: len(client.names) == 2)
        client.reads.clear()
        gate.set()
        await following
        client.reads.set()
        await response
        assert await stage.ended() == "complete"
        assert "done" not in client.names
        assert client.numbers == list(range(1, len(client.numbers) + 1))
        assert (stage.run.last_received, other.frames) == (len(client.numbers), stage.frames)
        await stage.stream(rest, stage.run.last_received)
        assert client.frames + rest.frames == stage.frames
        run = Stage().run
        run.log.append([Token(prose(20_000))])
        reader = Reader(run, heartbeats=Heartbeats(HEARTBEAT))  # which joins a log longer than what may wait for it
        run.log.append([Token("end"), DONE])
        assert b"".join([data async for data in reader]) == b"".join(run.log.frames(0))
        await reader.aclose()


@BOTH
@OWNS
@pytest.mark.parametrize("items", [["Hi", NEVER], ["Hi", 1.0, " again", 300.0]], ids=["a heartbeat", "an event"])
@jumping
async def test_a_client_that_reads_nothing_for_four_heartbeats_is_disconnected(
    items: list[Any], owns_run: bool, direct: bool
) -> None:
    stage, client = Stage(*items, unread_seconds=0.0), Client()
    response = await stage.started(client, owns_run=owns_run, direct=direct)
    await client.until(lambda: len(client.names) == 2)
    client.reads.clear()
    await response
    assert 4 * HEARTBEAT <= now() <= 5 * HEARTBEAT
    assert (client.names, client.is_complete, stage.run.last_received) == (["turn_start", "token"], False, 2)
    assert await stage.ended() == "cancelled"


# Streams that end before their turn


@BOTH
@jumping
async def test_an_encoder_ends_its_stream_before_the_turn_ends(direct: bool) -> None:
    gate = asyncio.Event()
    stage, client, rest = Stage("a", "b", gate, "c"), Client(), Client()
    await (await stage.started(client, encoder=Doubling("b"), direct=direct))
    assert (client.headers[b"content-type"], client.headers[b"x-doubled"]) == (b"application/x-doubled", b"yes")
    assert (client.frames, client.is_complete) == (b"aabb", True)
    assert (stage.run.has_ended, stage.run.last_received) == (False, 3)
    gate.set()
    await stage.stream(rest, stage.run.last_received, encoder=Doubling())
    assert await stage.ended() == "complete"
    assert rest.frames == b"cc"


@BOTH
@jumping
async def test_an_encoder_that_fails_ends_its_stream_only(direct: bool) -> None:
    gate = asyncio.Event()
    stage, client, other = Stage("a", gate, "fails", "c"), Client(), Client()
    following = stage.stream(other)
    response = await stage.started(client, encoder=Doubling(), direct=direct)
    await client.until(lambda: client.frames == b"aa")
    gate.set()
    await asyncio.gather(response, following)
    assert await stage.ended() == "complete"
    assert (client.frames, other.frames) == (b"aa", stage.frames)


@BOTH
@jumping
async def test_what_follows_the_end_of_an_encoders_stream_was_not_read(direct: bool) -> None:
    stage, client = Stage("a", "b", "c"), Client()
    client.reads.clear()
    response = await stage.started(client, encoder=Doubling("b"), direct=direct)
    await stage.run.wait_ended()
    client.reads.set()
    await response
    assert await stage.ended() == "complete"
    assert (client.frames, client.is_complete, stage.run.last_received) == (b"aabb", True, 3)


# Shutdown


@pytest.mark.parametrize("ends_in_time", [True, False])
@jumping
async def test_a_server_that_stops_waits_a_while_for_the_end_of_a_run(ends_in_time: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stage, client = Stage("Hi", SHUTDOWN_SECONDS / 2 if ends_in_time else NEVER, " again"), Client()
        response = await stage.started(client)
        await client.until(lambda: len(client.names) == 2)
        patch.setattr(AppStatus, "should_exit", True)
        await response
        assert client.is_complete is ends_in_time
        assert client.names == ["turn_start", "token", *(["token", "usage", "done"] if ends_in_time else [])]
        if not ends_in_time:
            assert now() == pytest.approx(SHUTDOWN_SECONDS, abs=1)
            stage.run.stop()
        assert await stage.ended() == ("complete" if ends_in_time else "cancelled")
