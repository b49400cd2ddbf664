"""Ollama's protocol without a server: every field of a request, and every line of a response."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from brain.errors import BadRequest
from brain.events import (
    Done,
    Error,
    Event,
    Limits,
    Notice,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    StopReason,
    Thinking,
    Token,
    ToolCall,
    TurnStart,
    Usage,
)
from brain.messages import Attachment, ClientMessage, ClientToolCall
from brain.protocols import ollama
from brain.protocols.ollama import models as ollama_models
from brain.protocols.ollama.encoder import timestamp
from brain.protocols.ollama.models import ModelInfo
from brain.protocols.ollama.request import RequestOptions, parse_chat, parse_generate, parse_show
from brain.settings import read
from brain.turn_request import Sampling, Tool, TurnRequest

SETTINGS = read({"BRAIN_TIME_ZONE": "UTC", "BRAIN_CALLS": "7"})
MODELS = frozenset({"builtin", "ollama:m:latest", "openai:gpt"})
NOW = 1_795_256_430_123_456_789
TIME = "2026-11-21T10:20:30.123456789Z"
PNG = b"\x89PNG\r\n\x1a\n"
PNG_BASE64 = base64.b64encode(PNG).decode()
HI = {"role": "user", "content": "Hi"}


def to_bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def chat(body: Any) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    return parse_chat(to_bytes(body), "me", SETTINGS, MODELS)


def generate(body: Any) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    return parse_generate(to_bytes(body), "me", SETTINGS, MODELS)


def with_messages(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "brain", "messages": messages or [HI], **more}


def with_prompt(**more: Any) -> dict[str, Any]:
    return {"model": "brain", "prompt": "Hi", **more}


def request(message: str = "Hi", **more: Any) -> TurnRequest:
    defaults: dict[str, Any] = {"asks_person": True, "sampling": Sampling(dialect="ollama"), "source": "api"}
    return TurnRequest(message, "me", Limits(calls=7), ("bracket", "function_call"), "UTC", **{**defaults, **more})


# Requests


def test_the_smallest_requests() -> None:
    expected = (request(), [ClientMessage("user", "Hi")], RequestOptions("brain", stream=True, load=None))
    assert chat(with_messages()) == expected
    assert generate(with_prompt()) == expected


def test_null_and_default_values_change_nothing() -> None:
    fields = ("stream", "format", "keep_alive", "options", "think", "logprobs", "top_logprobs", "shift", "truncate")
    assert chat(with_messages(**dict.fromkeys((*fields, "tools")))) == chat(with_messages())
    assert chat(with_messages(format="")) == chat(with_messages())
    more = ("system", "images", "suffix", "template", "context", "raw")
    assert generate(with_prompt(**dict.fromkeys((*fields, *more)))) == generate(with_prompt())
    assert generate(with_prompt(suffix="", template="", context=[], raw=False)) == generate(with_prompt())


def test_all_fields_of_a_chat() -> None:
    sampling: dict[str, Any] = {"temperature": 0.0, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "seed": -1,
                                "presence_penalty": 1.5, "frequency_penalty": 0.25}  # fmt: skip
    unknown = {"repeat_penalty": 1.1, "num_ctx": 8192}
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    weather = {"name": "weather", "description": "Weather.", "parameters": schema}
    found, messages, options = chat(
        {
            "model": "openai:gpt",
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "USER", "content": "Look", "images": [PNG_BASE64]},
                {"role": "assistant", "content": "I see.", "thinking": "Hm."},
                {"role": "user", "content": "Go on"},
            ],
            "stream": False,
            "format": schema,
            "keep_alive": "5m",
            "think": "high",
            "tools": [{"type": "function", "function": weather}, {"function": {"name": "beep"}}],
            "options": {**sampling, "top_k": 40.0, "num_predict": 64, "stop": ["END", ""], "mirostat": None, **unknown},
            "colour": "red",
        }
    )
    assert messages == [
        ClientMessage("system", "Be kind."),
        ClientMessage("user", "Look", (Attachment(0, "image", "image/png", PNG),)),
        ClientMessage("assistant", "I see."),
        ClientMessage("user", "Go on"),
    ]
    assert options == RequestOptions("openai:gpt", stream=False, load=None)
    assert found == request(
        "Go on",
        model="openai:gpt",
        tools=(Tool("weather", "Weather.", schema), Tool("beep", "", {})),
        stop=("END",),
        asks_person=False,
        sampling=Sampling(max_tokens=64, effort="high", format=schema, keep_alive="5m", dialect="ollama", more=unknown,
                          **sampling),
    )  # fmt: skip


def test_all_fields_of_a_prompt() -> None:
    found, messages, _ = generate(
        with_prompt(
            system="Be kind.",
            images=[PNG_BASE64, "data:image/gif;base64,R0lGODlh"],
            format="json",
            keep_alive=-1,
            think=False,
            options={"num_predict": -2, "num_gpu": 0},
        )
    )
    images = (Attachment(0, "image", "image/png", PNG), Attachment(0, "image", "image/gif", b"GIF89a"))
    assert messages == [ClientMessage("system", "Be kind."), ClientMessage("user", "Hi", images)]
    assert found == request(
        sampling=Sampling(effort=False, format="json", keep_alive=-1, dialect="ollama", more={"num_gpu": 0})
    )


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("brain", None),
        ("brain:latest", None),
        ("builtin", "builtin"),
        ("builtin:latest", "builtin"),
        ("ollama:m", "ollama:m:latest"),
        ("ollama:m:latest", "ollama:m:latest"),
        ("openai:gpt:latest", "openai:gpt"),
    ],
)
def test_a_model_is_found_with_its_tag_or_without(name: str, model: str | None) -> None:
    found, _, options = chat(with_messages(model=name))
    assert (found.model, options.model) == (model, name)
    assert parse_show(to_bytes({"model": name}), MODELS) == (name, model)
    assert parse_show(to_bytes({"name": name, "verbose": True}), MODELS) == (name, model)


@pytest.mark.parametrize("name", ["llama3", "brain:8b", "Brain", ":latest", "builtin:latest:latest", "x" * 10_000])
def test_an_unknown_model_is_rejected_in_ollamas_words(name: str) -> None:
    for parse in (chat, generate):
        with pytest.raises(BadRequest) as raised:
            parse({"model": name, "messages": [{"role": "user"}], "prompt": "Hi"})
        assert ollama.encode_rejection(raised.value) == (404, {"error": f"model '{name[:200]}' not found"})


@pytest.mark.parametrize(
    ("keep_alive", "load"),
    [(None, "load"), (300, "load"), (-1, "load"), ("10m", "load"), ("1h30m", "load"), ("1.5s", "load"),
     (0, "unload"), (0.0, "unload"), ("0", "unload"), ("0s", "unload"), ("0m0.0s", "unload")],
)  # fmt: skip
def test_a_request_without_a_question_loads_or_unloads(keep_alive: Any, load: str) -> None:
    body = {"model": "brain", "keep_alive": keep_alive}
    empty: list[dict[str, Any]] = [{}, {"messages": [], "prompt": ""}, {"messages": None, "prompt": None}]
    for fields in empty:
        assert chat({**body, **fields})[2].load == load
        assert generate({**body, **fields})[2].load == load
    assert chat(with_messages(keep_alive=keep_alive))[2].load is None


def call(name: str, call_id: str | None = None, **arguments: Any) -> dict[str, Any]:
    body = {"function": {"name": name, "arguments": arguments}}
    return body if call_id is None else {"id": call_id, "type": "function", **body}


def result(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "content": text, **more}


def test_results_find_their_calls() -> None:
    messages = chat(
        with_messages(
            {"role": "assistant", "tool_calls": [call("f", n=1), call("g"), call("f", n=2)]},
            result("g", tool_name="g"),
            result("f 1", tool_name="f"),
            result("f 2", tool_name="f"),
            {"role": "assistant", "content": "b"},
            {"role": "assistant", "tool_calls": [call("f", "x1"), call("f", "x2")]},
            result("second", tool_call_id="x2"),
            result("first", tool_call_id="x1", tool_name="another"),
            {"role": "assistant", "tool_calls": [call("h"), call("i", "")]},
            result("h"),
            result("i", tool_name="", tool_call_id=""),
            result("unknown ID", tool_call_id="gone"),
            result("unknown name", tool_name="f"),
        )
    )[1]
    assert messages[0].calls == (
        ClientToolCall("call_0_0", "f", {"n": 1}),
        ClientToolCall("call_0_1", "g", {}),
        ClientToolCall("call_0_2", "f", {"n": 2}),
    )
    assert [(message.text, message.call_id) for message in messages if message.role == "tool"] == [
        ("g", "call_0_1"), ("f 1", "call_0_0"), ("f 2", "call_0_2"), ("second", "x2"), ("first", "x1"),
        ("h", "call_8_0"), ("i", "call_8_1"), ("unknown ID", "gone"), ("unknown name", ""),
    ]  # fmt: skip


CHAT_REJECTIONS: list[tuple[Any, int, str | None]] = [
    (b'{"model":"brain","options":' + b'{"a":' * 100_000, 400, None),
    (b'{"model":"brain","options":{"a":' + b"[" * 65 + b"]" * 65 + b"}}", 400, "options"),
    (b'{"model":"brain","options":{"temperature":1e999}}', 400, "options[]"),
    ({}, 400, "model"),
    (with_messages(format="xml"), 400, "format"),
    (with_messages(format={"a": "b" * 65_536}), 413, "format"),
    (with_messages(think="hardest"), 400, "think"),
    (with_messages(think=1), 400, "think"),
    *[(with_messages(keep_alive=text), 400, "keep_alive") for text in ("soon", "", "5", "1h" * 33)],
    (with_messages(logprobs=True), 400, "logprobs"),
    (with_messages(top_logprobs=3), 400, "logprobs"),
    (with_messages(_debug_render_only=True), 400, "_debug_render_only"),
    (with_messages(options=[]), 400, "options"),
    (with_messages(options={"a": "b" * 16_384}), 413, "options"),
    (with_messages(options={"temperature": "hot"}), 400, "options.temperature"),
    (with_messages(options={"top_k": 1.5}), 400, "options.top_k"),
    (with_messages(options={"seed": 2**63}), 400, "options.seed"),
    (with_messages(options={"stop": "END"}), 400, "options.stop"),
    (with_messages(options={"stop": ["a"] * 17}), 400, "options.stop"),
    (with_messages(options={"stop": ["a" * 257]}), 400, "options.stop"),
    (with_messages({"content": "Hi"}), 400, "messages[0].role"),
    (with_messages({"role": "user", "content": ["Hi"]}), 400, "messages[0].content"),
    (with_messages({"role": "user", "images": ["aGk=", "aGk"]}), 400, "messages[0].images[1]"),
    (with_messages({"role": "user", "images": ["scan.png"]}), 400, "messages[0].images[0]"),
    (with_messages({"role": "user", "images": [""]}), 400, "messages[0].images[0]"),
    (with_messages({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}), 400,
     "messages[0].tool_calls[0].function.arguments"),
    (with_messages({"role": "assistant", "tool_calls": [call("f", a="b" * 200_000)]}), 413,
     "messages[0].tool_calls[0].function.arguments"),
    (with_messages({"role": "assistant", "tool_calls": [{"name": "f"}]}), 400, "messages[0].tool_calls[0].function"),
    (with_messages({"role": "assistant", "tool_calls": [call("f")] * 129}), 413, "messages[0].tool_calls"),
    (with_messages(tools=[{"function": {"name": "f"}}] * 129), 400, "tools"),
    (with_messages(tools=[{"type": "function"}]), 400, "tools[0].function"),
    (with_messages(tools=[{"function": {"name": ""}}]), 400, "tools[0].function.name"),
    (with_messages(tools=[{"function": {"name": "f", "parameters": []}}]), 400, "tools[0].function.parameters"),
    (with_messages(tools=[{"function": {"name": "f", "parameters": {"a": "b" * 65_536}}}]), 413,
     "tools[0].function.parameters"),
]  # fmt: skip
PROMPT_REJECTIONS: list[tuple[Any, int, str | None]] = [
    (with_prompt(suffix="}"), 400, "suffix"),
    (with_prompt(template="{{ .Prompt }}"), 400, "template"),
    (with_prompt(raw=True), 400, "raw"),
    (with_prompt(context=[1, 2]), 400, "context"),
    (with_prompt(context=["a"]), 400, "context[0]"),
    (with_prompt(prompt=1), 400, "prompt"),
    (with_prompt(images=["!"]), 400, "images[0]"),
    (with_prompt(prompt="a" * 200_001), 413, "prompt"),
    (with_prompt(system="a" * 200_001), 413, "system"),
]


@pytest.mark.parametrize(
    ("parse", "body", "status", "field"),
    [(chat, *row) for row in CHAT_REJECTIONS] + [(generate, *row) for row in PROMPT_REJECTIONS],
    ids=lambda value: getattr(value, "__name__", str(value)[:50]),
)
def test_a_rejection_names_the_field(parse: Any, body: Any, status: int, field: str | None) -> None:
    with pytest.raises(BadRequest) as raised:
        parse(body)
    assert ollama.encode_rejection(raised.value) == (status, {"error": raised.value.message})
    assert raised.value.field == field


# Responses


def inline_text(event: Event) -> str:
    return f"<{event.name}>" if isinstance(event, SpecialistResult) else ""


def encoder(model: str = "brain", *, generate: bool = False) -> ollama.Encoder:
    return ollama.Encoder(model, lambda: NOW, inline_text, generate=generate)


START = TurnStart("t1", "c1", "builtin", "mono", Limits())
USAGE = Usage(120, 8, None, False)
CALLS = [
    {"id": "call_a", "function": {"index": 0, "name": "f", "arguments": {"n": 1}}},
    {"id": "call_b", "function": {"index": 1, "name": "g", "arguments": {}}},
]
END = (
    '"done":true,"done_reason":"stop","total_duration":90000000,"load_duration":0,"prompt_eval_count":120,'
    '"prompt_eval_duration":40000000,"eval_count":8,"eval_duration":50000000}\n'
)
LINES: Sequence[tuple[Event, str, str]] = [
    (START, "", ""),
    (Notice("stand_in", "No model."), "", ""),
    (Thinking("hm\n"), '"content":"","thinking":"hm\\n"},"done":false}\n',
     '"","thinking":"hm\\n","done":false}\n'),
    (Token('Hä "q"\n\r\\'), '"content":"Hä \\"q\\"\\n\\r\\\\"},"done":false}\n',
     '"Hä \\"q\\"\\n\\r\\\\","done":false}\n'),
    (SpecialistStart("c1", "web", {}, "model"), "", ""),
    (SpecialistProgress("c1", "half", 0.5), "", ""),
    (SpecialistResult("c1", "web", {}, "text", (), False, 3), '"content":"<web>"},"done":false}\n',
     '"<web>","done":false}\n'),
    (ToolCall("call_a", "f", {"n": 1}),
     '"content":"","tool_calls":[{"id":"call_a","function":{"index":0,"name":"f","arguments":{"n":1}}}]},'
     '"done":false}\n',
     '"","tool_calls":[{"id":"call_a","function":{"index":0,"name":"f","arguments":{"n":1}}}],"done":false}\n'),
    (ToolCall("call_b", "g", {}),
     '"content":"","tool_calls":[{"id":"call_b","function":{"index":1,"name":"g","arguments":{}}}]},"done":false}\n',
     '"","tool_calls":[{"id":"call_b","function":{"index":1,"name":"g","arguments":{}}}],"done":false}\n'),
    (USAGE, "", ""),
    (Done("complete", "m1", "Hi", 1, 2, 40, 90), f'"content":""}},{END}', f'"",{END}'),
]  # fmt: skip
EVENTS = [event for event, _, _ in LINES]


@pytest.mark.parametrize("generate", [False, True])
def test_every_line_literally(generate: bool) -> None:
    one = encoder(generate=generate)
    head = f'{{"model":"brain","created_at":"{TIME}",'
    head += '"response":' if generate else '"message":{"role":"assistant",'
    expected = [(head + line if line else "") for line in (row[2] if generate else row[1] for row in LINES)]
    assert [one.encode([event]).decode() for event in EVENTS] == expected


@pytest.mark.parametrize("generate", [False, True])
def test_a_response_that_is_not_streamed(generate: bool) -> None:
    content = {"thinking": "hm\n", "tool_calls": CALLS}
    text = 'Hä "q"\n\r\\<web>'
    message: Mapping[str, Any] = {"message": {"role": "assistant", "content": text, **content}}
    assert encoder(generate=generate).encode_response(EVENTS) == (
        200,
        {
            "model": "brain",
            "created_at": TIME,
            **({"response": text, **content} if generate else message),
            **json.loads("{" + END),
        },
    )


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Token("\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\u2027\u202a\xc2\x86"),
         '"content":"\\u2028\\u2029\\u0085\\u000b\\f\\u001c\\u001d\\u001e\u2027\u202a\xc2\x86"}'),
        (ToolCall("c", "f", {"\u2028": "a\x85"}), '"arguments":{"\\u2028":"a\\u0085"}'),
        (Thinking("\u2029"), '"thinking":"\\u2029"'),
        (Token("a\ud83d"), '"content":"a\ufffd"'),
        (ToolCall("c", "f", {"\ud800": [10**30]}), '"arguments":{"\ufffd":[1000000000000000000000000000000]}'),
        (Error("model_failed", "It broke.\u2028", True, 500), '{"error":"It broke.\\u2028"}'),
    ],
)  # fmt: skip
def test_a_line_is_one_line_for_python_clients_too(event: Event, line: str) -> None:
    data = encoder("a\u2028b").encode([event]).decode()
    assert line in data
    assert data.splitlines(keepends=True) == [data]


@pytest.mark.parametrize(
    ("stop_reason", "done_reason"),
    [("complete", "stop"), ("length", "length"), ("call_limit", "stop"), ("deadline", "length"), ("cancelled", "stop")],
)
def test_done_reasons(stop_reason: StopReason, done_reason: str) -> None:
    last = json.loads(encoder().encode([Done(stop_reason, "m1", "", 0, 1, 1, 2)]))
    assert (last["done"], last["done_reason"]) == (True, done_reason)


@pytest.mark.parametrize(
    ("first", "total", "before", "after"),
    [(40, 90, 40, 50), (None, 90, 90, 1), (0, 0, 1, 1), (None, 0, 1, 1), (7, 7, 7, 1)],
)
def test_durations_add_up_and_are_never_zero(first: int | None, total: int, before: int, after: int) -> None:
    last = json.loads(encoder().encode([Done("complete", "m1", "", 0, 1, first, total)]))
    durations = (last["prompt_eval_duration"], last["eval_duration"], last["total_duration"])
    assert durations == (before * 1_000_000, after * 1_000_000, (before + after) * 1_000_000)


def test_a_loaded_model() -> None:
    common = {"created_at": TIME, "done": True}
    assert encoder("m:latest").load_response("load") == {
        "model": "m:latest", "message": {"role": "assistant", "content": ""}, "done_reason": "load", **common
    }  # fmt: skip
    assert encoder(generate=True).load_response("unload") == {
        "model": "brain", "response": "", "done_reason": "unload", **common
    }  # fmt: skip


def test_each_line_has_its_own_time() -> None:
    clock = iter([NOW, NOW + 1, NOW + 900_000_000, NOW + 60_000_000_000])
    one = ollama.Encoder("brain", lambda: next(clock), inline_text)
    lines = (one.encode([Token("a"), Thinking("b")]) + one.heartbeat + one.encode([Token("c")])).splitlines()
    assert [json.loads(line)["created_at"] for line in lines] == [
        "2026-11-21T10:20:30.123456789Z",
        "2026-11-21T10:20:30.123456790Z",
        "2026-11-21T10:20:31.023456789Z",
        "2026-11-21T10:21:30.123456789Z",
    ]
    assert json.loads(lines[2])["message"] == {"role": "assistant", "content": ""}
    assert timestamp(0) == "1970-01-01T00:00:00.000000000Z"


# Models


def test_the_models() -> None:
    infos = [ModelInfo("brain", False, None), ModelInfo("ollama:m", True, 8192)]
    text, vision = ollama_models.tags(infos, NOW)["models"]
    details = {"parent_model": "", "format": "brain", "family": "brain", "families": ["brain"],
               "parameter_size": "", "quantization_level": ""}  # fmt: skip
    digest = text["digest"]
    assert text == {"name": "brain:latest", "model": "brain:latest", "size": 0, "digest": digest, "details": details,
                    "modified_at": TIME}  # fmt: skip
    assert (vision["name"], vision["details"]["families"]) == ("ollama:m", ["brain", "clip"])
    assert (len(digest), vision["digest"] == digest) == (64, False)
    running = ollama_models.ps(infos)["models"]
    assert [model["context_length"] for model in running] == [131072, 8192]
    assert (running[0]["expires_at"], running[0]["size_vram"]) == ("2318-01-01T00:00:00.000000000Z", 0)
    shown = ollama_models.show(infos[0], NOW)
    assert shown == {
        "license": "",
        "modelfile": "# brain is Brain: a model, and the specialists that it asks.\nFROM brain\n",
        "parameters": "",
        "template": "{{ .Prompt }}",
        "details": details,
        "model_info": {
            "general.architecture": "brain",
            "general.basename": "brain",
            "brain.context_length": 131072,
        },
        "capabilities": ["completion", "tools"],
        "modified_at": TIME,
    }
    assert ollama_models.show(infos[1], NOW)["capabilities"] == ["completion", "tools", "vision"]
