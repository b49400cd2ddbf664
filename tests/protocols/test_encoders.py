"""What each wire writes for the same events: golden files, and that no batching changes what clients read.

The events of a file are those in its native stream, `NAME.native`. `UPDATE_GOLDEN=1 pytest` writes the other files
again; review them as you review code.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ag_ui_stream import verify
from hypothesis import given
from hypothesis import strategies as st
from turn_helpers import Player, read, turn_of

from brain import events as ev
from brain.protocols import ag_ui, ai_sdk, native, ollama, openai
from brain.protocols.encoding import as_rejection, encode

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.native"))
NOW = 1_795_256_430_123_456_789
RUN = ag_ui.RequestOptions("thread", "run", None, "thread")
WIRES = ("native", "openai", "ollama", "generate", "ai_sdk_5", "ai_sdk_7", "ag_ui")
WITH_CALLS = ("native", "ai_sdk_5", "ai_sdk_7", "ag_ui")
"""Wires whose clients see calls of specialists."""
WITH_TOOLS = ("native", "openai", "ollama", "generate", "ag_ui")
"""Wires whose clients have tools of their own."""


def show(event: ev.Event) -> str:
    """Return the text that a wire without such an event shows for it."""
    match event:
        case ev.SpecialistResult():
            return f"<{event.name}>"
        case ev.ApprovalRequired():
            return f"<approve {event.call_id}>"
    return ""


def hide(event: ev.Event) -> str:
    return ""


def encoder_of(wire: str, inline_text: Callable[[ev.Event], str] = hide) -> Any:
    options = openai.RequestOptions("brain", stream=True, with_usage=True)
    encoders: Mapping[str, Callable[[], Any]] = {
        "native": lambda: native.FrameEncoder("t1"),
        "openai": lambda: openai.Encoder("t1", 1_700_000_000, options, inline_text),
        "ollama": lambda: ollama.Encoder("brain", lambda: NOW, inline_text),
        "generate": lambda: ollama.Encoder("brain", lambda: NOW, inline_text, generate=True),
        "ai_sdk_5": lambda: ai_sdk.Encoder(5, "m1", turn_id="t1", conversation_id="c"),
        "ai_sdk_7": lambda: ai_sdk.Encoder(7, "m1", turn_id="t1", conversation_id="c"),
        "ag_ui": lambda: ag_ui.Encoder(RUN, "t1", "player"),
    }
    return encoders[wire]()


def encode_batches(encoder: Any, batches: Iterable[Sequence[ev.Event]]) -> bytes:
    """The stream of these batches, up to its end."""
    stream = b""
    for batch in batches:
        stream += encoder.encode(batch)
        if getattr(encoder, "closed", False):
            break
    return stream


# Golden files


def events_of(name: str) -> list[ev.Event]:
    return [*native.decode_frames((GOLDEN / f"{name}.native").read_bytes())]


def has_wire(wire: str, events: Iterable[ev.Event]) -> bool:
    return wire in WITH_TOOLS or not any(isinstance(event, ev.ToolCall) for event in events)


def check(path: Path, data: bytes) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_bytes(data)
    assert data.decode() == path.read_text("utf-8")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", NAMES)
def test_the_stream_of_each_wire(name: str, wire: str) -> None:
    events = events_of(name)
    if has_wire(wire, events):
        check(GOLDEN / f"{name}.{wire}", encode_batches(encoder_of(wire, show), [[event] for event in events]))


@pytest.mark.parametrize("wire", ["openai", "ollama", "generate"])
@pytest.mark.parametrize("name", NAMES)
def test_the_whole_response(name: str, wire: str) -> None:
    events = events_of(name)
    if isinstance(events[-1], ev.Done):
        check(GOLDEN / f"{name}.{wire}.json", encode(encoder_of(wire, show).encode_response(events)) + b"\n")


def test_the_files_have_every_event() -> None:
    assert {type(event) for name in NAMES for event in events_of(name)} == set(ev.Event.__args__)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.*")), ids=lambda path: path.name)
def test_no_client_takes_a_character_for_the_end_of_a_line(path: Path) -> None:
    """Python's `splitlines` and JavaScript before 2019 end lines at more characters than LF and CR."""
    text = path.read_bytes().decode()
    assert text.splitlines() == text.removesuffix("\n").split("\n")


# What clients read


@dataclass
class Answer:
    """What a client has at the end. Calls have name, parameters and outcome; those of tools have none."""

    text: str = ""
    thinking: str = ""
    calls: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    tools: list[tuple[str, str, Any]] = field(default_factory=list)


def read_native(stream: bytes) -> Answer:
    """What a client has that drops the events after a rewind."""
    numbers = map(int, re.findall(rb"^id: t1\.(\d+)$", stream, re.MULTILINE))
    kept: list[tuple[int, ev.Event]] = []
    for number, event in zip(numbers, native.decode_frames(stream), strict=True):
        if isinstance(event, ev.Rewind):
            kept = [(n, one) for n, one in kept if n <= event.to and not isinstance(one, ev.Token)]
            kept.append((number, ev.Token(event.text)))
        else:
            kept.append((number, event))
    return read_events(event for _, event in kept)


def read_events(events: Iterable[ev.Event]) -> Answer:
    answer = Answer()
    for event in events:
        match event:
            case ev.Token(text):
                answer.text += text
            case ev.Thinking(text):
                answer.thinking += text
            case ev.SpecialistResult():
                answer.calls[event.call_id] = (event.name, event.params, "ok", event.text)
            case ev.SpecialistError():
                answer.calls[event.call_id] = (event.name, event.params or {}, "failed", event.reason)
            case ev.ToolCall():
                answer.tools.append((event.call_id, event.name, event.params))
    return answer


def data_of(stream: bytes) -> list[Any]:
    """The values of a stream of unnamed events."""
    frames = [frame.removeprefix("data: ") for frame in stream.decode().removesuffix("\n\n").split("\n\n")]
    return [json.loads(frame) for frame in frames if frame != "[DONE]"]


def read_openai(stream: bytes) -> Answer:
    answer = Answer()
    for delta in (choice["delta"] for chunk in data_of(stream) for choice in chunk["choices"]):
        answer.text += delta.get("content", "")
        answer.thinking += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", ()):
            assert call["index"] == len(answer.tools)
            answer.tools.append((call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])))
    return answer


def read_ollama(stream: bytes) -> Answer:
    answer = Answer()
    for line in map(json.loads, stream.splitlines()):
        message = line.get("message", line)
        answer.text += message["response"] if "response" in message else message["content"]
        answer.thinking += message.get("thinking", "")
        for call in message.get("tool_calls", ()):
            answer.tools.append((call["id"], call["function"]["name"], call["function"]["arguments"]))
    return answer


def read_ai_sdk(stream: bytes) -> Answer:
    answer, names = Answer(), {}
    for frame in data_of(stream):
        match frame["type"]:
            case "text-delta":
                answer.text += frame["delta"]
            case "reasoning-delta":
                answer.thinking += frame["delta"]
            case "tool-input-available":
                names[frame["toolCallId"]] = (frame["toolName"], frame["input"])
            case "tool-output-available" | "tool-output-error" as kind:
                call_id, is_ok = frame["toolCallId"], kind == "tool-output-available"
                outcome = ("ok", frame["output"]) if is_ok else ("failed", frame["errorText"])
                answer.calls[call_id.removeprefix("t1.")] = (*names[call_id], *outcome)
    return answer


def read_ag_ui(stream: bytes) -> Answer:
    answer, names, arguments = Answer(), {}, {}
    for frame in verify(stream.decode()):
        match frame["type"]:
            case "TEXT_MESSAGE_CONTENT":
                answer.text += frame["delta"]
            case "REASONING_MESSAGE_CONTENT":
                answer.thinking += frame["delta"]
            case "TOOL_CALL_START":
                names[frame["toolCallId"]] = frame["toolCallName"]
            case "TOOL_CALL_ARGS":
                arguments[frame["toolCallId"]] = json.loads(frame["delta"])
            case "TOOL_CALL_RESULT":
                call_id = frame["toolCallId"]
                name, is_ok = names.pop(call_id), frame["metadata"]["outcome"] == "ok"
                text = frame["content"] if is_ok else frame["content"].removeprefix(f"{name} failed - ")
                outcome = "ok" if is_ok else "failed"
                answer.calls[call_id.removeprefix("t1.")] = (name, arguments[call_id], outcome, text)
    answer.tools = [(call_id, name, arguments[call_id]) for call_id, name in names.items()]
    return answer


READERS: Mapping[str, Callable[[bytes], Answer]] = {
    "native": read_native,
    "openai": read_openai,
    "ollama": read_ollama,
    "generate": read_ollama,
    "ai_sdk_5": read_ai_sdk,
    "ai_sdk_7": read_ai_sdk,
    "ag_ui": read_ag_ui,
}

texts = st.text(max_size=8) | st.sampled_from(["\u2028", "\x85\r\n", '"\\', "data: [DONE]", "\n\n", "日本", "😀", "\0"])
params = st.dictionaries(texts, texts | st.integers() | st.none() | st.lists(texts, max_size=2), max_size=2)
names = st.from_regex(r"[a-z][a-z0-9_-]{0,9}", fullmatch=True)


@st.composite
def turns(draw: st.DrawFn, *, tools: bool) -> list[ev.Event]:
    """The events of a turn in an order in which they can happen."""
    events: list[ev.Event] = []
    open_calls: dict[str, ev.SpecialistStart] = {}
    kinds = ["token", "token", "thinking", "start", "result", "error", "progress", "notice", "round", "task"]
    for n, kind in enumerate(draw(st.lists(st.sampled_from([*kinds, *(["tool"] if tools else [])]), max_size=12))):
        match kind:
            case "token":
                events.append(ev.Token(draw(texts)))
            case "thinking":
                events.append(ev.Thinking(draw(texts)))
            case "start":
                start = ev.SpecialistStart(f"c{n}", draw(names), draw(params), "model")
                open_calls[start.call_id] = start
                events.append(start)
            case "result" if open_calls:
                start = open_calls.pop(draw(st.sampled_from([*open_calls])))
                citations = (ev.Citation("1", draw(texts), draw(st.none() | st.just("https://example.org"))),)
                events.append(
                    ev.SpecialistResult(
                        start.call_id, start.name, start.params, draw(texts), citations, draw(st.booleans()), 1
                    )
                )
            case "progress" if open_calls:
                events.append(ev.SpecialistProgress(draw(st.sampled_from([*open_calls])), draw(texts)))
            case "error":
                events.append(ev.SpecialistError(f"c{n}", draw(names), draw(params), "unknown", draw(texts), 0))
            case "notice":
                events.append(ev.Notice("steered", draw(texts)))
            case "round":
                events.append(ev.Round(n, 20, "actor", "m"))
            case "task":
                events.append(ev.TaskChange("task1", draw(texts), "pending", "c"))
            case "tool":
                events.append(ev.ToolCall(f"call{n}", draw(names), draw(params)))
    events += [
        ev.SpecialistError(call.call_id, call.name, call.params, "timeout", "late", 1) for call in open_calls.values()
    ]
    start_event = ev.TurnStart("t1", "c", "player", "mono", ev.Limits())
    return [start_event, *events, ev.Usage(1, 2, None, True), ev.Done("complete", "m1", "", 0, 1, 3, 20)]


def cut(events: Sequence[ev.Event], cuts: Sequence[bool]) -> list[list[ev.Event]]:
    """The events in batches, with a cut before each event where there is one."""
    batches: list[list[ev.Event]] = [[]]
    for n, event in enumerate(events):
        if batches[-1] and cuts and cuts[n % len(cuts)]:
            batches.append([])
        batches[-1].append(event)
    return batches


@pytest.mark.parametrize("wire", WIRES)
def test_every_wire_says_the_same_in_any_batches(wire: str) -> None:
    @given(events=turns(tools=wire in WITH_TOOLS), cuts=st.lists(st.booleans(), max_size=9))
    def test(events: list[ev.Event], cuts: list[bool]) -> None:
        stream = encode_batches(encoder_of(wire), cut(events, cuts))
        assert stream == encode_batches(encoder_of(wire), [[event] for event in events])
        expected, answer = read_events(events), READERS[wire](stream)
        assert answer.text == expected.text
        assert answer.tools == expected.tools
        assert answer.calls == (expected.calls if wire in WITH_CALLS else {})
        if not any(isinstance(event, ev.Round) for event in events):  # some wires show rounds as thinking
            assert answer.thinking == expected.thinking

    test()


@pytest.mark.parametrize("wire", WIRES)
def test_after_a_rewind_a_client_has_the_whole_answer(wire: str) -> None:
    """Whatever of the first log it has seen, and wherever the checkpoint was."""

    @given(turns(tools=False), st.integers(0, 15), st.integers(0, 15))
    def test(events: list[ev.Event], to: int, seen: int) -> None:
        to = min(to, len(events) - 2)
        seen = min(seen, len(events) - 1)
        whole, text = read_events(events), read_events(events[:to]).text
        heir = [ev.Rewind(to, text), *events[to:]]
        if wire == "native":
            frames = native.FrameEncoder("t1").encode(events[:seen])
            answer = read_native(frames + native.FrameEncoder("t1", 100_000_000).encode(heir))
            if seen >= to:
                assert answer == whole
        else:  # a stream of its own
            answer = READERS[wire](encode_batches(encoder_of(wire), [heir]))
        assert answer.text == whole.text

    test()


@pytest.mark.parametrize("wire", ["openai", "ollama", "generate"])
def test_a_whole_response_after_a_rewind(wire: str) -> None:
    usage, done = ev.Usage(1, 2, None, True), ev.Done("complete", "m1", "One two", 0, 1, 3, 20)
    response = encoder_of(wire).encode_response([ev.Rewind(4, "One "), ev.Token("two"), usage, done])
    message = response.get("message") or response.get("choices", [{"message": response}])[0]["message"]
    assert message.get("content", message.get("response")) == "One two"


@pytest.mark.parametrize(("wire", "last"), [("ai_sdk_5", "error"), ("ai_sdk_7", "error"), ("ag_ui", "RUN_ERROR")])
def test_a_stream_that_cannot_take_back_its_text_ends_in_an_error(wire: str, last: str) -> None:
    encoder = encoder_of(wire)
    call = ev.SpecialistStart("c1", "sends", {}, "model")
    stream = encoder.encode([ev.TurnStart("t1", "c", "m", "mono", ev.Limits()), ev.Token("One two"), call])
    stream += encoder.encode([ev.Rewind(2, "One "), ev.Token("2")])
    assert (data_of(stream)[-1]["type"], encoder.closed) == (last, True)
    if wire == "ag_ui":
        verify(stream.decode())


@pytest.mark.parametrize("wire", WIRES)
def test_half_a_character_never_breaks_a_stream(wire: str) -> None:
    odd = {"\ud800": ["\udfff", 10**30]}
    events: list[ev.Event] = [
        ev.TurnStart("t1", "c", "m", "mono", ev.Limits()),
        ev.Token("a\ud83d"),
        ev.ToolCall("c1", "look", odd) if wire in WITH_TOOLS else ev.SpecialistStart("c1", "look", odd, "model"),
        ev.SpecialistResult("c2", "look", {}, "b\ud83d", (), False, 1),
        ev.Done("complete", "m1", "", 0, 1, 3, 20),
    ]
    answer = READERS[wire](encoder_of(wire).encode(events))
    assert answer.text == "a\ufffd"
    assert answer.tools == ([("c1", "look", {"\ufffd": ["\ufffd", 10**30]})] if wire in WITH_TOOLS else [])
    assert answer.calls.get("c2") == (("look", {}, "ok", "b\ufffd") if wire in WITH_CALLS else None)


TURNS = [
    case
    for case in json.loads((Path(__file__).parent.parent / "corpus" / "turns.json").read_text("utf-8"))
    if "text" in case["events"][-1]
]


@pytest.mark.parametrize("case", TURNS, ids=lambda case: case["name"])
def test_a_client_sees_the_visible_answer_and_nothing_else(case: dict[str, Any]) -> None:
    visible = case["events"][-1]["text"]
    for size in (1, 7, 10_000):
        passes = ([text[at : at + size] for at in range(0, len(text), size)] for text in case["passes"])
        events = asyncio.run(read(turn_of(Player(*passes))))
        for wire in WIRES:
            assert READERS[wire](encoder_of(wire).encode(events)).text == visible
        response = encoder_of("openai").encode_response(events)
        assert response["choices"][0]["message"]["content"] == visible
        assert encoder_of("generate").encode_response(events)["response"] == visible


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ev.Error("model_unreachable", "No.", True), 502),
        (ev.Error("model_failed", "No.", True), 502),
        (ev.Error("model_failed", "No.", False, 401), 401),
        (ev.Error("model_failed", "No.", True, 429), 429),
        (ev.Error("model_failed", "No.", True, 500), 502),
        (ev.Error("model_failed", "No.", True, 503), 503),
        (ev.Error("model_context", "No.", False, 500), 400),
        (ev.Error("shutdown", "No.", True), 503),
        (ev.Error("internal", "No.", True), 500),
    ],
)
def test_a_failure_before_the_stream_has_a_status(error: ev.Error, status: int) -> None:
    rejection = as_rejection(error)
    assert (rejection.status, rejection.code, rejection.message) == (status, error.code, "No.")
    assert openai.encode_rejection(rejection)[0] == status
    assert ollama.encode_rejection(rejection) == (status, {"error": "No."})
