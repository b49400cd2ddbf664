"""What all protocols have in common: Brain's options, limits of histories, and encoders that no batching changes."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ag_ui_stream import verify
from turn_helpers import Player, read, turn_of

from brain import events as ev
from brain.errors import BadRequest
from brain.protocols import ag_ui, ai_sdk, native, ollama, openai
from brain.protocols.ag_ui.request import PropsBody, RunBody, RunMessage
from brain.protocols.ai_sdk.request import ChatBody as SdkChatBody
from brain.protocols.ai_sdk.request import UIMessage
from brain.protocols.common import Client, ContextBody, TurnOptions
from brain.protocols.encoding import as_rejection
from brain.protocols.native.queries import ChangeBody, FactBody, TaskBody
from brain.protocols.native.request import TurnBody as NativeBody
from brain.protocols.ollama.request import ChatBody as OllamaChatBody
from brain.protocols.ollama.request import GenerateBody, OllamaMessage, ShowBody
from brain.protocols.ollama.request import OptionsBody as OllamaOptions
from brain.protocols.openai.request import ChoiceBody, CompletionBody, FormatBody, OpenAIMessage
from brain.runtime.client_tasks import is_for_client
from brain.settings import read as read_settings
from brain.task import TaskEdit
from brain.turn_request import TurnRequest

SETTINGS = read_settings({"BRAIN_TIME_ZONE": "UTC", "BRAIN_CALLS": "7"})
CLIENT = Client("me", SETTINGS, frozenset({"builtin"}), frozenset({"ocr", "web"}))
PARSERS: Mapping[str, Callable[[bytes], Any]] = {
    "native": lambda data: (native.parse(data, CLIENT), []),
    "openai": lambda data: openai.parse(data, CLIENT),
    "ollama": lambda data: ollama.parse_chat(data, CLIENT),
    "generate": lambda data: ollama.parse_generate(data, CLIENT),
    "ag_ui": lambda data: ag_ui.parse(data, CLIENT),
    "ai_sdk": lambda data: ai_sdk.parse(data, CLIENT),
}
LONG = "x" * 200_001
NULLABLE = (msgspec.inspect.NoneType, msgspec.inspect.RawType, msgspec.inspect.AnyType)


def text_message(protocol: str, text: str, role: str = "user") -> dict[str, Any]:
    if protocol == "ai_sdk":
        return {"role": role, "parts": [{"type": "text", "text": text}]}
    return {"role": role, "content": text}


def body_of(protocol: str, *messages: Any, **options: Any) -> dict[str, Any]:
    """A body with these messages, or with one, and with Brain's options where the protocol has them."""
    entries = list(messages) or [text_message(protocol, "Hi")]
    return {
        "native": {"message": "Hi", **options},
        "openai": {"messages": entries, "brain": options},
        "ollama": {"model": "brain", "messages": entries},
        "generate": {"model": "brain", "prompt": "Hi"},
        "ag_ui": {"threadId": "t", "runId": "r", "messages": entries, "forwardedProps": options},
        "ai_sdk": {"messages": entries, **options},
    }[protocol]


def parse(protocol: str, body: Any) -> tuple[TurnRequest, Sequence[Any]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return PARSERS[protocol](data)[:2]  # type: ignore[no-any-return]


def rejection(protocol: str, body: Any) -> tuple[int, str | None]:
    with pytest.raises(BadRequest) as raised:
        parse(protocol, body)
    assert raised.value.code == ("too_large" if raised.value.status == 413 else "bad_request")
    return raised.value.status, raised.value.field


# Brain's options

PLACES = {"native": "", "openai": "brain.", "ag_ui": "forwardedProps.", "ai_sdk": ""}


@pytest.mark.parametrize("protocol", PLACES)
def test_options(protocol: str) -> None:
    limits = {"calls": 2, "calls_per_specialist": 1, "turn_seconds": 30, "call_seconds": 0.5}
    request, _ = parse(
        protocol,
        body_of(
            protocol,
            specialists=["ocr", "web"],
            limits=limits,
            time_zone="Asia/Kolkata",
            source="voice",
            memory=False,
            private=True,
        ),
    )
    assert request.limits == ev.Limits(2, 1, 30.0, 0.5)
    assert (request.specialists, request.time_zone) == (frozenset({"ocr", "web"}), "Asia/Kolkata")
    assert (request.source, request.memory, request.call_seconds) == ("voice", False, 0.5)
    assert request.private
    assert request.now is not None
    assert request.now.strftime("%z") == "+0530"
    assert parse(protocol, body_of(protocol, specialists=[]))[0].specialists == frozenset()
    for absent in ({}, {"limits": {"calls": None}}, {"specialists": None, "limits": None, "time_zone": None}):
        request, _ = parse(protocol, body_of(protocol, **absent))
        assert (request.limits, request.specialists, request.time_zone) == (ev.Limits(calls=7), None, "UTC")
        assert (request.source, request.memory) == ("api" if protocol == "openai" else "chat", True)
        assert not request.private


@pytest.mark.parametrize("protocol", PLACES)
@pytest.mark.parametrize(
    ("options", "field"),
    [
        *[({"limits": {"calls": calls}}, "limits.calls") for calls in (8, -1, 1.5, "1", True)],
        ({"limits": {"calls_per_specialist": 4}}, "limits.calls_per_specialist"),
        ({"limits": {"turn_seconds": 601}}, "limits.turn_seconds"),
        ({"limits": {"call_seconds": 0}}, "limits.call_seconds"),
        ({"limits": {"passes": 1}}, "limits.passes"),
        ({"limits": []}, "limits"),
        *[({"time_zone": zone}, "time_zone") for zone in ("Mars/Olympus", "", "../../etc/passwd", "Europe", "a\x00")],
        ({"source": "fax"}, "source"),
        ({"memory": "no"}, "memory"),
        ({"specialists": "web"}, "specialists"),
        ({"specialists": ["a", 1]}, "specialists[1]"),
    ],
)
def test_a_rejected_option_is_named_with_its_place(protocol: str, options: dict[str, Any], field: str) -> None:
    assert rejection(protocol, body_of(protocol, **options)) == (400, PLACES[protocol] + field)


@pytest.mark.parametrize("protocol", ["native", "ag_ui", "ai_sdk"])
@pytest.mark.parametrize(
    ("options", "status", "field"),
    [({"model": "gpt"}, 400, "model"), ({"system": 1}, 400, "system"), ({"system": LONG}, 413, "system")],
)
def test_model_and_system_are_options(protocol: str, options: dict[str, Any], status: int, field: str) -> None:
    request, _ = parse(protocol, body_of(protocol, model="builtin", system="Be kind."))
    assert (request.model, request.system) == ("builtin", "Be kind.")
    assert rejection(protocol, body_of(protocol, **options)) == (status, PLACES[protocol] + field)


# Bodies


BODIES: Mapping[str, type[msgspec.Struct]] = {
    "native": NativeBody,
    "openai": CompletionBody,
    "ollama": OllamaChatBody,
    "generate": GenerateBody,
    "ag_ui": RunBody,
    "ai_sdk": SdkChatBody,
}
PARTS: Sequence[type[msgspec.Struct]] = (
    *(
        ContextBody,
        OpenAIMessage,
        ChoiceBody,
        FormatBody,
        OllamaMessage,
        OllamaOptions,
        ShowBody,
        RunMessage,
        PropsBody,
    ),
    *(UIMessage, TaskBody, TaskEdit, FactBody, ChangeBody),
)


@pytest.mark.parametrize("protocol", BODIES)
def test_null_is_the_same_as_no_field(protocol: str) -> None:
    body = body_of(protocol)
    for options in (body.get("brain"), body.get("forwardedProps")):
        if options is not None:
            options.update(dict.fromkeys(TurnOptions.__struct_fields__))
    nulls = {one.encode_name: None for one in msgspec.structs.fields(BODIES[protocol]) if not one.required}
    assert parse(protocol, {**nulls, **body}) == parse(protocol, body_of(protocol))


@pytest.mark.parametrize("kind", [*BODIES.values(), *PARTS], ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_each_field_that_can_be_left_out_can_be_null(kind: type[msgspec.Struct]) -> None:
    types = [msgspec.inspect.type_info(kind)]
    for found in types:  # it grows
        if isinstance(found, msgspec.inspect.StructType):
            for one in found.fields:
                inner = one.type.types if isinstance(one.type, msgspec.inspect.UnionType) else (one.type,)
                can_be_null = any(isinstance(each, NULLABLE) for each in inner)
                assert one.required or can_be_null, (found.cls, one.name)
                types += [each for each in inner if each not in types]
        elif isinstance(found, msgspec.inspect.ListType):
            types.append(found.item_type)


@pytest.mark.parametrize("protocol", PARSERS)
def test_half_a_character_is_replaced_anywhere(protocol: str) -> None:
    body = json.dumps(body_of(protocol) | {"user": 1}).replace('"Hi"', '"a\\ud800b\\udfff \\ud83d\\ude00"')
    body = body.replace('"user": 1', '"model": "brain"' if protocol in ("ollama", "generate") else '"model": null')
    for data in (body.encode(), json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8", "surrogatepass")):
        assert parse(protocol, data)[0].message == "a\ufffdb\ufffd 😀"


# Encoders

NOW = 1_795_256_430_123_456_789
UNTIL = datetime(2026, 11, 21, 10, 20, 30, tzinfo=UTC)
EVENTS: Sequence[ev.Event] = (
    ev.TurnStart("t1", "c", "player", "mono", ev.Limits()),
    ev.Notice("trimmed", "Left out."),
    ev.Round(1, 20, "thinker", "big"),
    ev.Thinking("Let me "),
    ev.Thinking("see."),
    ev.Token("I ask "),
    ev.Token("\ud83d two."),
    ev.SpecialistStart("c1", "weather", {"city": "Bern"}, "model"),
    ev.SpecialistStart("c2", "echo", {"text": "日本"}, "model"),
    ev.SpecialistProgress("c1", "half", 0.5),
    ev.SpecialistError("c3", "nobody", {}, "unknown", "there is no such specialist", 0),
    ev.SpecialistResult("c2", "echo", {"text": "日本"}, "日本", (ev.Citation("1", "日"),), cached=False, ms=3),
    ev.SpecialistResult("c1", "weather", {"city": "Bern"}, "Sunny.", (), cached=True, ms=9),
    ev.Round(2, 20, "actor", "ollama:small", "Find the\n height."),
    ev.Thinking("Good."),
    ev.Token("Sunny"),
    ev.Token(", and 日本."),
    ev.ToolCall("call_t1_c4", "paint", {}),
    ev.TaskChange("task1", "日", "pending", "c"),
    ev.Usage(10, 5, 4, estimated=False),
    ev.Done("complete", "m1", "Sunny, and 日本.", 4, 2, 1, 9),
)
RUN = ag_ui.RequestOptions("thread", "run", None, "thread")


def show(event: ev.Event) -> str:
    return "<result>" if isinstance(event, ev.SpecialistResult) else ""


def hide(event: ev.Event) -> str:
    return ""


def encoder_of(name: str, inline_text: Callable[[ev.Event], str] = show) -> Any:
    encoders: dict[str, Callable[[], Any]] = {
        "native": lambda: native.FrameEncoder("t1"),
        "openai": lambda: openai.Encoder("t1", 5, openai.RequestOptions("brain", True, True), inline_text),
        "ollama": lambda: ollama.Encoder("brain", lambda: NOW, inline_text),
        "generate": lambda: ollama.Encoder("brain", lambda: NOW, inline_text, generate=True),
        "ag_ui": lambda: ag_ui.Encoder(RUN, "t1", "player"),
        "ai_sdk": lambda: ai_sdk.Encoder(6, "m1"),
    }
    return encoders[name]()


ENCODERS = ("native", "openai", "ollama", "generate", "ag_ui", "ai_sdk")


@pytest.mark.parametrize("name", ENCODERS)
def test_events_in_any_batches_give_the_same_bytes(name: str) -> None:
    events = [event for event in EVENTS if name != "ai_sdk" or not isinstance(event, ev.ToolCall)]
    cuts = [[events[:at], events[at:]] for at in range(1, len(events))] + [[[event] for event in events]]
    whole = encoder_of(name).encode(events)
    for batches in cuts:
        encoder = encoder_of(name)
        assert b"".join(map(encoder.encode, batches)) == whole
    if name == "ag_ui":
        verify(whole.decode())


ROUNDS = {
    "native": [
        'event: round\ndata: {"n":1,"of":20,"role":"thinker","model":"big"}\n',
        'event: round\ndata: {"n":2,"of":20,"role":"actor","model":"ollama:small","text":"Find the\\n height."}\n',
    ],
    "openai": [
        '"delta":{"reasoning_content":"Round 1 of 20, thinker (big)\\n\\n"}',
        '"delta":{"reasoning_content":"\\n\\nRound 2 of 20, actor (ollama:small): Find the height.\\n\\n"}',
    ],
    "ollama": [
        '"content":"","thinking":"Round 1 of 20, thinker (big)\\n\\n"}',
        '"content":"","thinking":"\\n\\nRound 2 of 20, actor (ollama:small): Find the height.\\n\\n"}',
    ],
    "generate": [
        '"response":"","thinking":"Round 1 of 20, thinker (big)\\n\\n"',
        '"response":"","thinking":"\\n\\nRound 2 of 20, actor (ollama:small): Find the height.\\n\\n"',
    ],
    "ag_ui": [
        '{"type":"STEP_STARTED","stepName":"Round 1 of 20, thinker","metadata":{"n":1,"of":20,"role":"thinker",'
        '"model":"big"}}',
        '{"type":"STEP_FINISHED","stepName":"Round 1 of 20, thinker"}',
        '{"type":"STEP_STARTED","stepName":"Round 2 of 20, actor","metadata":{"n":2,"of":20,"role":"actor",'
        '"model":"ollama:small","text":"Find the\\n height."}}',
        '{"type":"STEP_FINISHED","stepName":"Round 2 of 20, actor"}',
    ],
    "ai_sdk": [
        '{"type":"data-round","id":"t1.3","data":{"n":1,"of":20,"role":"thinker","model":"big"}}',
        '{"type":"data-round","id":"t1.14","data":{"n":2,"of":20,"role":"actor","model":"ollama:small",'
        '"text":"Find the\\n height."}}',
    ],
}


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("end", [EVENTS[-1], ev.Error("internal", "No.", True)])
def test_rounds(name: str, end: ev.Event) -> None:
    events = [*(event for event in EVENTS[:-1] if not isinstance(event, ev.ToolCall)), end]
    encoder = encoder_of(name)
    stream = "".join(encoder.encode([event]).decode() for event in events)
    places = [stream.index(one) for one in ROUNDS[name]]
    assert places == sorted(places)
    if name == "ag_ui":
        verify(stream)


def test_rounds_in_a_whole_response() -> None:
    events = [event for event in EVENTS if not isinstance(event, ev.ToolCall)]
    events[-2:-2] = [ev.Round(3, 20, "thinker", "big"), ev.Round(4, 20, "actor", "b")]
    thought = (
        "Round 1 of 20, thinker (big)\n\nLet me see.\n\nRound 2 of 20, actor (ollama:small): Find the height.\n\nGood."
        "\n\nRound 3 of 20, thinker (big)\n\nRound 4 of 20, actor (b)\n\n"
    )
    message = encoder_of("openai").encode_response(events)["choices"][0]["message"]
    assert message["reasoning_content"] == thought
    assert encoder_of("generate").encode_response(events)["thinking"] == thought


def test_usage_of_several_models() -> None:
    models = {"big": ev.ModelUsage(8, 3, 4, False), "small": ev.ModelUsage(2, 2, None, False)}
    events: list[ev.Event] = [EVENTS[0], ev.Usage(10, 5, 4, False, models), EVENTS[-1]]
    ui_usage = (
        '"models":{"big":{"inputTokens":8,"outputTokens":3,"totalTokens":11,"cachedInputTokens":4,"estimated":false},'
        '"small":{"inputTokens":2,"outputTokens":2,"totalTokens":4,"estimated":false}}'
    )
    run_usage = (
        '"usage":[{"model":"big","inputTokens":8,"outputTokens":3,"totalTokens":11,"cachedInputTokens":4},'
        '{"model":"small","inputTokens":2,"outputTokens":2,"totalTokens":4}]'
    )
    assert ui_usage in encoder_of("ai_sdk").encode(events).decode()
    assert run_usage in encoder_of("ag_ui").encode(events).decode()


def visible_text(name: str, stream: bytes) -> str:
    """The text that a client shows."""
    if name in ("ollama", "generate"):
        lines = [json.loads(line) for line in stream.splitlines()]
        return "".join(line["response"] if name == "generate" else line["message"]["content"] for line in lines)
    data = [frame.removeprefix("data: ") for frame in stream.decode().removesuffix("\n\n").split("\n\n")]
    frames = [json.loads(one) for one in data if one != "[DONE]"]
    if name == "openai":
        return "".join(one["delta"].get("content", "") for frame in frames for one in frame["choices"])
    kind = "TEXT_MESSAGE_CONTENT" if name == "ag_ui" else "text-delta"
    return "".join(frame["delta"] for frame in frames if frame["type"] == kind)


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
        for name in ENCODERS[1:]:
            assert visible_text(name, encoder_of(name, hide).encode(events)) == visible
        response = encoder_of("openai", hide).encode_response(events)
        assert response["choices"][0]["message"]["content"] == visible
        assert encoder_of("generate", hide).encode_response(events)["response"] == visible


@pytest.mark.parametrize("name", ENCODERS)
def test_every_cut_of_a_text_gives_the_same_text(name: str) -> None:
    text = 'I "say" \\ 😀 \u2028 \x85 \x00 <b>&amp;</b>\r\n end'
    start = EVENTS[0]
    for at in range(1, len(text)):
        events = [start, ev.Token(text[:at]), ev.Token(text[at:])]
        stream = encoder_of(name).encode(events)
        if name == "native":
            assert list(native.decode_frames(stream)) == events
        else:
            assert visible_text(name, stream) == text


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


@pytest.mark.parametrize("name", ENCODERS)
def test_no_client_takes_a_character_for_the_end_of_a_line(name: str) -> None:
    """Python's `splitlines` and JavaScript before 2019 end lines at more characters than LF and CR."""
    odd = "a\u2028b\u2029c\x85d\u2027\u202a\xc2"
    events: list[ev.Event] = [
        EVENTS[0],
        ev.Token(odd),
        ev.Thinking(odd),
        ev.SpecialistStart("c1", "web", {odd: odd}, "model"),
        ev.SpecialistResult("c1", "web", {odd: odd}, odd, (ev.Citation("1", odd, "https://x.example"),), False, 1),
        ev.Notice("recalled", odd),
        ev.Error("model_failed", odd, True),
    ]
    data = encoder_of(name).encode(events).decode()
    assert not {"\u2028", "\u2029", "\x85"} & set(data)
    assert all(json.loads(text) is not None for text in re.findall(r"^(?:data: )?(\{.*\})$", data, re.MULTILINE))
    assert "\\u2028b\\u2029c\\u0085d\u2027\u202a\xc2" in data


@pytest.mark.parametrize("protocol", PARSERS)
def test_what_a_client_asks_for_itself_is_recognized(protocol: str) -> None:
    title = "### Task:\nGenerate a concise title.\n### Chat History:\n<chat_history>\nUSER: Hi\n</chat_history>"
    for text in (title, "Give me a title."):
        body = body_of(protocol, text_message(protocol, text))
        body |= {key: text for key in ("message", "prompt") if key in body}
        assert is_for_client(parse(protocol, body)[0]) == (text == title)
