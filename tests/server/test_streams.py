"""Streams as they leave a real port, byte by byte, and as httpx-sse and OpenAI's client read them."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest
from brain_servers import Server, brain_served, client_of
from sse_events import Event, read
from turn_helpers import Player, registry_of

from brain import Progress, specialist
from brain.errors import ModelError
from brain.events import Thinking
from brain.messages import Chunk
from brain.models.model import PassRequest
from brain.protocols.native import EVENT_NAMES

HEARTBEAT = ": heartbeat"
TRICKS = (
    'a\r\nb\rc\u2028d\x85e\x00f\x7fg"h\\i😀\ufeff\n\ndata: [DONE]\n\nevent: done\nid: 7\nretry: 1\ndata: {}\n\n: x\n\n'
)
"""Text that would end a line, a frame or a stream outside a JSON string."""


class Thinker(Player):
    """Thinks before each pass."""

    async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        yield Thinking(TRICKS)
        async for chunk in super().stream(request):
            yield chunk


@specialist
async def tricks(text: str = "") -> AsyncGenerator[Progress | str, None]:
    """Returns what would break a stream."""
    yield Progress(f"tries {TRICKS}", 0.5)
    yield text + TRICKS


@specialist
async def breaks() -> str:
    """Fails."""
    raise RuntimeError(TRICKS)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with brain_served(registry_of(tricks, breaks), SHOW_RESULTS="block") as server:
        yield server


CALL = 'SPECIALIST_REQUEST[tricks:{"text":"“hm”"}]'
TURNS: dict[str, Callable[[], Player]] = {
    "one character": lambda: Player(["."]),
    "tricks": lambda: Player([TRICKS, *TRICKS]),
    "thoughts": lambda: Thinker([TRICKS, CALL], ["Well."]),
    "calls": lambda: Player(
        ["I ask. ", CALL, "SPECIALIST_REQUEST[breaks]", "SPECIALIST_REQUEST[oracle]"], ["It ", "is."]
    ),
    "an incomplete call": lambda: Player(["I ask. ", 'SPECIALIST_REQUEST[tricks:{"text":'], ["No."]),
    "the same call again": lambda: Player([CALL], [CALL], [CALL], ["Enough."]),
    "an error in the middle": lambda: Player(["Once ", ModelError("model_failed", TRICKS)]),
}
EVERY_TURN = pytest.mark.parametrize("turn", TURNS.values(), ids=TURNS)


def frames_of(body: bytes) -> list[str]:
    """The frames of a stream whose lines end in LF, and whose frames end in just one blank line."""
    text = body.decode()
    assert "\r" not in text
    assert not text.startswith(("\ufeff", "\n"))
    assert "\n\n\n" not in text
    assert text.endswith("\n\n")
    return text.removesuffix("\n\n").split("\n\n")


def events_of(body: bytes, first: int = 1) -> list[Event]:
    """The events of a native stream, of which every byte is as documented; `first` is the number of the first one."""
    frames, messages = frames_of(body), read(body)
    turn_id = messages[0].id.partition(".")[0]
    for number, (frame, message) in enumerate(zip(frames, messages, strict=True), first):
        retry = "retry: 2000\n" if number == 1 else ""
        assert frame == f"{retry}event: {message.name}\ndata: {message.text}\nid: {turn_id}.{number}"
        assert message.name in EVENT_NAMES.values()
        assert isinstance(message.data, dict)
    names = [message.name for message in messages]
    assert names[0] == "turn_start" or first > 1
    assert names[-1] in ("done", "error")
    assert not {"done", "error", "usage"} & set(names[:-2])
    assert names[-2:-1] in (["usage"], [])
    return messages


def chunks_of(body: bytes) -> list[dict[str, Any]]:
    """The chunks of a stream for OpenAI's clients, of which every byte is as they need it."""
    messages = read(body)
    assert frames_of(body) == [f"data: {message.text}" for message in messages], "neither ids, nor names, nor retry"
    assert messages[-1].text == "[DONE]"
    found: list[dict[str, Any]] = [message.data for message in messages[:-1]]
    if "error" in found[-1]:
        assert set(found[-1]["error"]) == {"message", "type", "param", "code"}
        return found[:-1]
    reasons = [choice["finish_reason"] for chunk in found for choice in chunk["choices"]]
    assert reasons.count(None) == len(reasons) - 1
    assert reasons[-1] in ("stop", "length", "tool_calls")
    return found


def stream(server: Server, player: Player, path: str = "/v1/chat/stream", **body: Any) -> bytes:
    server.play(player)
    with client_of(server) as client:
        answer = client.post(path, json=body or {"message": "Hi"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    return answer.content


def complete(server: Server, player: Player, **more: Any) -> bytes:
    body = {"model": "brain", "messages": [{"role": "user", "content": "Hi"}], "stream": True, **more}
    return stream(server, player, "/v1/chat/completions", **body)


def text_of(chunks: Sequence[dict[str, Any]], field: str = "content") -> str:
    return "".join(choice["delta"].get(field, "") for chunk in chunks for choice in chunk["choices"])


@pytest.mark.parametrize("ask", [stream, complete])
@pytest.mark.parametrize("turn", [TURNS["one character"], TURNS["calls"]], ids=["one character", "calls"])
def test_a_turn_leaves_no_garbage(
    server: Server, turn: Callable[[], Player], ask: Callable[[Server, Player], bytes]
) -> None:
    """A reference cycle would stay until the next pause for the garbage collector."""
    ask(server, turn())
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        ask(server, turn())
        gc.collect()
        assert [type(one) for one in gc.garbage if type(one).__module__.startswith(("brain.", "uvicorn."))] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@EVERY_TURN
def test_every_byte_of_a_turn_and_of_its_replay_from_any_event(server: Server, turn: Callable[[], Player]) -> None:
    body = stream(server, turn())
    whole = events_of(body)
    turn_id = whole[0].id.partition(".")[0]
    if whole[-1].name == "done":
        text = "".join(one.data["text"] for one in whole if one.name == "token")
        assert whole[-1].data["text"] == text
    with client_of(server) as client:

        def replay(last_event_id: str) -> httpx.Response:
            headers = {"last-event-id": last_event_id} if last_event_id else {}
            return client.get(f"/v1/turns/{turn_id}/events", headers=headers)

        assert events_of(replay("").content) == whole
        for number, message in enumerate(whole[:-1], 1):
            assert whole[:number] + events_of(replay(message.id).content, number + 1) == whole
        assert replay(whole[-1].id).status_code == 204


def test_a_text_arrives_as_the_model_wrote_it(server: Server) -> None:
    tokens = [one for one in events_of(stream(server, TURNS["tricks"]())) if one.name == "token"]
    assert "".join(message.data["text"] for message in tokens) == TRICKS + TRICKS
    assert text_of(chunks_of(complete(server, TURNS["tricks"]()))) == TRICKS + TRICKS
    thoughts = chunks_of(complete(server, TURNS["thoughts"]()))
    assert text_of(thoughts, "reasoning_content") == TRICKS + TRICKS
    assert text_of(thoughts).startswith(f"{TRICKS}\n\n[SPECIALIST_RESULT: tricks]\n“hm”a\r\n")
    assert text_of(thoughts).endswith("\n[/SPECIALIST_RESULT]\n\nWell.")


@pytest.mark.parametrize("path", ["/v1/chat/stream", "/v1/chat/completions"])
def test_heartbeats_are_comments_between_frames(path: str) -> None:
    body: dict[str, Any] = {"message": "Hi"}
    if path == "/v1/chat/completions":
        body = {"model": "brain", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    with brain_served(HEARTBEAT_SECONDS=0.1) as server, client_of(server) as client:
        gate = asyncio.Event()
        server.play(Player(["a", gate, "b"]))
        with client.stream("POST", path, json=body) as response:
            pieces, found = response.iter_raw(), b""
            while found.count(b": heartbeat\n\n") < 2:
                found += next(pieces)
            server.release(gate)
            found += b"".join(pieces)
    frames = frames_of(found)
    assert {frame for frame in frames if frame.startswith(":")} == {HEARTBEAT}
    assert frames[-1] != HEARTBEAT


@EVERY_TURN
@pytest.mark.parametrize("usage", [True, False])
def test_every_byte_of_a_completion(server: Server, turn: Callable[[], Player], usage: bool) -> None:
    body = complete(server, turn(), stream_options={"include_usage": usage})
    chunks = chunks_of(body)
    assert len({(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {"usage" in chunk for chunk in chunks} == {usage}
    if usage and b'"error"' not in body:
        assert [chunk["usage"] is None for chunk in chunks] == [*[True] * (len(chunks) - 1), False]
        assert chunks[-1]["choices"] == []


@pytest.mark.parametrize("number", [1, 3])
def test_the_connections_of_a_turn_that_another_process_continues_break(server: Server, number: int) -> None:
    """Whether a reader waits for its first event or has had some; a proper end would be that of the answer."""
    server.play(Player(["One, ", "two, ", asyncio.Event()]))
    with client_of(server) as client:
        turn_id = client.post("/v1/turns", json={"message": "hi"}).json()["turn_id"]
        path = f"/v1/turns/{turn_id}/events"
        with client.stream("GET", path) as response:
            lines = response.iter_lines()
            while '"two, "' not in next(lines):
                pass
            with client.stream("GET", path, params={"after": number}) as other:
                others = other.iter_lines()
                for _ in range(4 * (3 - number)):
                    next(others)
                hand_over(server, turn_id)
                for reader in (lines, others):
                    with pytest.raises(httpx.RemoteProtocolError):
                        list(reader)


def hand_over(server: Server, turn_id: str) -> None:
    """Let a process continue the turn that is none of the test."""

    async def hand_over_run() -> None:
        (run,) = [run for run in server.engine.runs.running if run.id == turn_id]
        server.engine.runs.hand_over(run)
        await run.wait_ended()

    server.on_loop(hand_over_run())
