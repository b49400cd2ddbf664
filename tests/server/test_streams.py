"""Streams as they leave a real port, byte by byte, judged by strict parsers: Brain's own, OpenAI's and Ollama's."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest
from eventsource import EventSource, Message, read
from serving import Player, Server, brain_served

from brain import Progress, Registry, specialist
from brain.errors import ModelError
from brain.events import Thinking
from brain.messages import Chunk
from brain.messages import Message as Asked
from brain.protocols.native import EVENT_NAMES
from brain.turn_request import UNSAID, Sampling

NAMES = set(EVENT_NAMES.values())
BEAT = ": heartbeat"
TRICKS = (
    'a\r\nb\rc\u2028d\x85e\x00f\x7fg"h\\i😀\ufeff\n\ndata: [DONE]\n\nevent: done\nid: 7\nretry: 1\ndata: {}\n\n: x\n\n'
)
"""What would end a line, a frame or a stream, if it were not within a text of JSON."""
CUBE = {"type": "function", "function": {"name": "cube", "parameters": {"type": "object"}}}


class Thinker(Player):
    """Thinks before it plays a pass."""

    async def stream(
        self, messages: Sequence[Asked], turn_pass: int = 0, sampling: Sampling = UNSAID
    ) -> AsyncGenerator[Chunk, None]:
        yield Thinking(TRICKS)
        async for chunk in super().stream(messages, turn_pass, sampling):
            yield chunk


@specialist
async def tricks(text: str = "") -> str:
    """Says what a model would not."""
    return text + TRICKS


@specialist
async def breaks() -> str:
    """Fails."""
    raise RuntimeError(TRICKS)


@specialist(timeout=5)
async def nap(seconds: float) -> AsyncGenerator[Progress | str, None]:
    """Sleeps."""
    yield Progress(f"falls asleep {TRICKS}", 0.5)
    await asyncio.sleep(seconds)
    yield "Rested."


@specialist(approval="always")
async def letter(to: str) -> str:
    """Sends a letter."""
    return f"Sent to {to}."


def everyone() -> Registry:
    registry = Registry()
    for one in (tricks, breaks, nap, letter):
        registry.add(one)
    return registry


@pytest.fixture(scope="module")
def brain() -> Iterator[Server]:
    with brain_served(everyone(), HEARTBEAT_SECONDS=0.05, SHOW_RESULTS="block") as server:
        yield server


CALL = 'SPECIALIST_REQUEST[tricks:{"text":"“hm”"}]'
TURNS: dict[str, Callable[[], Player]] = {
    "a text": lambda: Player(["Hello, ", "world."]),
    "one character": lambda: Player(["."]),
    "tricks": lambda: Player([TRICKS, *TRICKS]),
    "thoughts": lambda: Thinker([TRICKS, CALL], ["Well."]),
    "calls": lambda: Player(
        ["I ask. ", CALL, "SPECIALIST_REQUEST[breaks]", "SPECIALIST_REQUEST[oracle]"], ["It ", "is."]
    ),
    "a call that is never whole": lambda: Player(["I ask. ", 'SPECIALIST_REQUEST[tricks:{"text":'], ["No."]),
    "the same call again": lambda: Player([CALL], [CALL], [CALL], ["Enough."]),
    "silences": lambda: Player([0.12, "a", 0.12, 'SPECIALIST_REQUEST[nap:{"seconds":0.12}]'], [0.12, "b"]),
    "an error in the middle": lambda: Player(["Once ", ModelError("model_failed", TRICKS)]),
    "an error behind a call": lambda: Player([CALL], [ModelError("model_context", "Full.")]),
    "an error behind a silence": lambda: Player([0.12, ModelError("model_unreachable", "Away.", status=401)]),
}
EVERY_TURN = pytest.mark.parametrize("turn", TURNS.values(), ids=TURNS)


def frames_of(body: bytes) -> list[str]:
    """The frames of a stream in which each line ends in LF, and each frame in just one blank line."""
    text = body.decode()
    assert "\r" not in text
    assert not text.startswith(("\ufeff", "\n"))
    assert "\n\n\n" not in text
    assert text.endswith("\n\n")
    return text.removesuffix("\n\n").split("\n\n")


def events_of(body: bytes, first: int = 1, turn_id: str | None = None) -> list[Message]:
    """The events of a stream of Brain's own, of which every byte is as it was promised.

    Args:
        first: the number of the first event.
    """
    frames = [frame for frame in frames_of(body) if frame != BEAT]
    messages = read(body)
    assert len(frames) == len(messages)
    turn_id = turn_id or messages[0].last_event_id.partition(".")[0]
    for number, (frame, message) in enumerate(zip(frames, messages, strict=True), first):
        retry = "retry: 2000\n" if number == 1 else ""
        assert frame == f"{retry}event: {message.type}\ndata: {message.data}\nid: {turn_id}.{number}"
        assert message.last_event_id == f"{turn_id}.{number}"
        assert message.type in NAMES
        assert "\n" not in message.data
        assert isinstance(json.loads(message.data), dict)
    names = [message.type for message in messages]
    assert names[0] == "turn_start" or first > 1
    assert names[-1] in ("done", "error")
    assert not {"done", "error", "usage"} & set(names[:-2])
    assert names[-2:-1] in (["usage"], [])
    return messages


def chunks_of(body: bytes) -> list[dict[str, Any]]:
    """The chunks of a stream for OpenAI's clients, of which every byte is as they need it."""
    frames = [frame for frame in frames_of(body) if frame != BEAT]
    source = EventSource()
    messages = source.feed(body)
    assert frames == [f"data: {message.data}" for message in messages], "neither ids, nor names, nor retry"
    assert (source.last_event_id, source.retry, source.ignored) == ("", None, [])
    assert set(source.comments) <= {" heartbeat"}
    assert messages[-1].data == "[DONE]"
    found: list[dict[str, Any]] = [json.loads(message.data) for message in messages[:-1]]
    if "error" in found[-1]:
        assert set(found[-1]["error"]) == {"message", "type", "param", "code"}
        return found[:-1]
    reasons = [choice["finish_reason"] for chunk in found for choice in chunk["choices"]]
    assert reasons.count(None) == len(reasons) - 1
    assert reasons[-1] in ("stop", "length", "tool_calls")
    return found


def asked(brain: Server, turn: Callable[[], Player], path: str, **body: Any) -> httpx.Response:
    brain.play(turn())
    answer = httpx.post(f"{brain.url}{path}", json=body, trust_env=False, timeout=20)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert not {"content-length", "content-encoding"} & set(answer.headers)
    return answer


def completion(brain: Server, turn: Callable[[], Player], **more: Any) -> httpx.Response:
    body = {"model": "brain", "messages": [{"role": "user", "content": "Hi"}], "stream": True, **more}
    return asked(brain, turn, "/v1/chat/completions", **body)


# Brain's own


@EVERY_TURN
def test_every_byte_of_a_turn(brain: Server, turn: Callable[[], Player]) -> None:
    messages = events_of(asked(brain, turn, "/v1/chat/stream", message="Hi").content)
    tokens = "".join(json.loads(message.data)["text"] for message in messages if message.type == "token")
    last = json.loads(messages[-1].data)
    if messages[-1].type == "done":
        assert last["text"] == tokens
    else:
        assert set(last) == {"code", "message", "recoverable"} | (set(last) & {"status"})


@pytest.mark.alone
def test_heartbeats_are_comments_between_events(brain: Server) -> None:
    body = asked(brain, TURNS["silences"], "/v1/chat/stream", message="Hi").content
    frames = frames_of(body)
    assert {frame for frame in frames if frame.startswith(":")} == {BEAT}
    assert 4 <= frames.count(BEAT) <= 12
    assert frames[-1] != BEAT
    source = EventSource()
    source.feed(body)
    assert source.comments == [" heartbeat"] * frames.count(BEAT)
    assert source.ignored == []


def test_a_text_comes_out_as_the_model_wrote_it(brain: Server) -> None:
    body = asked(brain, TURNS["tricks"], "/v1/chat/stream", message="Hi").content
    tokens = [json.loads(message.data)["text"] for message in events_of(body) if message.type == "token"]
    assert "".join(tokens) == TRICKS + TRICKS


def test_a_call_that_waits_for_a_person(brain: Server) -> None:
    brain.play(Player(['SPECIALIST_REQUEST[letter:{"to":"Ann"}]'], ["Done."]))
    body = b""
    with httpx.stream("POST", f"{brain.url}/v1/chat/stream", json={"message": "Hi"}, trust_env=False) as answer:
        for data in answer.iter_raw():
            body += data
            if b"event: approval_required" in data:
                waits = read(body)[-1]
                turn_id, call_id = waits.last_event_id.partition(".")[0], json.loads(waits.data)["call_id"]
                time.sleep(0.15)
                url = f"{brain.url}/v1/turns/{turn_id}/approvals/{call_id}"
                assert httpx.post(url, json={"approve": True}, trust_env=False).status_code == 200
    names = [message.type for message in events_of(body)]
    assert [name for name in names if name != "usage"] == [
        "turn_start", "approval_required", "specialist_start", "specialist_result", "token", "done",
    ]  # fmt: skip
    assert frames_of(body).count(BEAT) >= 2


def test_a_turn_that_is_stopped_and_one_that_is_steered(brain: Server) -> None:
    for action, body, last in (("cancel", {}, "cancelled"), ("steer", {"message": TRICKS}, "complete")):
        brain.play(Player(["One. ", 0.3, "Two. ", 0.1, "Three."], ["Four."]))
        stream = b""
        with httpx.stream("POST", f"{brain.url}/v1/chat/stream", json={"message": "Hi"}, trust_env=False) as answer:
            for data in answer.iter_raw():
                if b'"text":"One. "}' in data:
                    turn_id = read(stream + data)[0].last_event_id.partition(".")[0]
                    url = f"{brain.url}/v1/turns/{turn_id}/{action}"
                    assert httpx.post(url, json=body, trust_env=False).status_code == 202
                stream += data
        messages = events_of(stream)
        assert json.loads(messages[-1].data)["stop_reason"] == last


def test_every_cut_says_the_same(brain: Server) -> None:
    body = asked(brain, TURNS["calls"], "/v1/chat/stream", message="Hi").content
    whole = read(body)
    source = EventSource()
    assert [message for n in range(len(body)) for message in source.feed(body[n : n + 1])] == whole
    for cut in range(0, len(body), 7):
        source = EventSource()
        assert source.feed(body[:cut]) + source.feed(body[cut:]) == whole


# Coming back


def begun(brain: Server, player: Player) -> str:
    """Begins a turn that runs on by itself, and gives its address."""
    brain.play(player)
    answer = httpx.post(f"{brain.url}/v1/turns", json={"message": "Hi"}, trust_env=False)
    assert answer.status_code == 201
    return f"{brain.url}{answer.headers['location']}"


def events(url: str, last_event_id: str = "") -> httpx.Response:
    headers = {"last-event-id": last_event_id} if last_event_id else {}
    return httpx.get(f"{url}/events", headers=headers, trust_env=False, timeout=20)


@EVERY_TURN
def test_who_was_cut_off_at_any_byte_misses_nothing_and_hears_nothing_twice(
    brain: Server, turn: Callable[[], Player]
) -> None:
    url = begun(brain, turn())
    body = events(url).content
    whole = events_of(body)
    behind = {"": events_of(events(url).content)}
    for number, message in enumerate(whole[:-1], 2):
        behind[message.last_event_id] = events_of(events(url, message.last_event_id).content, number)
    source = EventSource()
    heard: list[Message] = []
    for cut in range(len(body)):
        assert heard + behind[source.last_event_id] == whole
        heard += source.feed(body[cut : cut + 1])
    over = events(url, source.last_event_id)
    assert (heard, over.status_code, over.content) == (whole, 204, b"")


def test_all_who_listen_hear_the_same_whenever_they_came(brain: Server) -> None:
    url = begun(brain, Player(["One. ", 0.1, CALL], [*(0.02, "Two. ") * 20]))
    heard: list[list[Message]] = []

    def listen() -> None:
        heard.append(events_of(events(url).content))

    listeners = [threading.Thread(target=listen) for _ in range(5)]
    for listener in listeners:
        listener.start()
        time.sleep(0.05)
    for listener in listeners:
        listener.join()
    listen()
    assert heard == heard[:1] * 6


def test_an_event_source_comes_back_to_its_turn(brain: Server) -> None:
    """As a browser does it: the same address again, with the last id."""
    player = Player(["One. ", 0.3, "Two."])
    brain.play(player)
    url = f"{brain.url}/v1/chat/stream?message=Hi"
    source = EventSource()
    with httpx.stream("GET", url, trust_env=False) as answer:
        heard = []
        for data in answer.iter_raw():
            heard += source.feed(data)
            if heard[-1].type == "token":
                break
    assert (source.retry, [message.type for message in heard]) == (2000, ["turn_start", "token"])
    source.opened()
    with httpx.stream("GET", url, headers={"last-event-id": source.last_event_id}, trust_env=False) as answer:
        for data in answer.iter_raw():
            heard += source.feed(data)
    assert [message.type for message in heard] == ["turn_start", "token", "token", "usage", "done"]
    assert [message.last_event_id.partition(".")[2] for message in heard] == ["1", "2", "3", "4", "5"]
    over = httpx.get(url, headers={"last-event-id": source.last_event_id}, trust_env=False)
    assert (over.status_code, over.content) == (204, b"")
    assert len(player.asked) == 1


# OpenAI's


@EVERY_TURN
@pytest.mark.parametrize("usage", [True, False])
def test_every_byte_of_a_completion(brain: Server, turn: Callable[[], Player], usage: bool) -> None:
    body = completion(brain, turn, stream_options={"include_usage": usage}).content
    chunks = chunks_of(body)
    assert len({(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {"usage" in chunk for chunk in chunks} == {usage}
    if usage and b'"error"' not in body:
        assert [chunk["usage"] is None for chunk in chunks] == [*[True] * (len(chunks) - 1), False]
        assert chunks[-1]["choices"] == []


def said(chunks: Sequence[dict[str, Any]], field: str = "content") -> str:
    return "".join(choice["delta"].get(field, "") for chunk in chunks for choice in chunk["choices"])


def test_texts_come_out_as_they_were_written(brain: Server) -> None:
    assert said(chunks_of(completion(brain, TURNS["tricks"]).content)) == TRICKS + TRICKS
    thoughts = chunks_of(completion(brain, TURNS["thoughts"]).content)
    assert said(thoughts, "reasoning_content") == TRICKS + TRICKS
    assert said(thoughts).startswith(f"{TRICKS}\n\n[SPECIALIST_RESULT: tricks]\n“hm”a\r\n")
    assert said(thoughts).endswith("\n[/SPECIALIST_RESULT]\n\nWell.")


@pytest.mark.alone
def test_heartbeats_are_comments_between_chunks(brain: Server) -> None:
    frames = frames_of(completion(brain, TURNS["silences"]).content)
    assert 4 <= frames.count(BEAT) <= 12
    assert frames[1] == BEAT  # after the role, which the client gets after one heartbeat
    assert frames[-1] == "data: [DONE]"


def test_a_tool_of_the_client_in_a_completion(brain: Server) -> None:
    body = completion(brain, lambda: Player(["I count. ", 'SPECIALIST_REQUEST[cube:{"n":3}]']), tools=[CUBE]).content
    chunks = chunks_of(body)
    assert said(chunks) == "I count. "
    (call,) = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert (call["index"], call["type"], call["function"]) == (0, "function", {"name": "cube", "arguments": '{"n":3}'})
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


# Ollama's


@EVERY_TURN
@pytest.mark.parametrize("path", ["chat", "generate"])
def test_every_line_for_ollamas_clients(brain: Server, turn: Callable[[], Player], path: str) -> None:
    brain.play(turn())
    body = {"model": "brain", "messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi"}
    answer = httpx.post(f"{brain.url}/api/{path}", json=body, trust_env=False, timeout=20)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
    text = answer.content.decode()
    assert text.splitlines(keepends=True) == [f"{line}\n" for line in text.split("\n")[:-1]], (
        "LF, as Python sees it, too"
    )
    *lines, last = [json.loads(line) for line in text.splitlines()]
    said = {"message"} if path == "chat" else {"response"}
    assert all(set(line) - {"thinking"} == {"model", "created_at", "done"} | said for line in lines)
    assert not any(line["done"] for line in lines)
    assert set(last) == {"error"} or (last["done"], last["done_reason"]) == (True, "stop")
