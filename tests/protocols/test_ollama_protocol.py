"""Ollama's protocol without a server: the fields of a request, and the lines of a response."""

import json
from typing import Any

import pytest

from brain import events as ev
from brain.errors import BadRequest
from brain.messages import Attachment, Call
from brain.protocols import ollama
from brain.protocols.common import Client, ClientMessage
from brain.protocols.ollama import RequestOptions, models
from brain.protocols.ollama.encoder import timestamp
from brain.settings import read
from brain.turn_request import Sampling, Tool, TurnRequest

SETTINGS = read({"BRAIN_TIME_ZONE": "UTC", "BRAIN_CALLS": "7"})
MODELS = frozenset({"builtin", "ollama:m:latest", "openai:gpt"})
NOW = 1_795_256_430_123_456_789
TIME = "2026-11-21T10:20:30.123456789Z"
CLIENT = Client("me", SETTINGS, MODELS)
PNG, PNG_BASE64 = b"\x89PNG\r\n\x1a\n", "iVBORw0KGgo="
HI = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def to_bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def chat(body: Any) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    return ollama.parse_chat(to_bytes(body), CLIENT)


def generate(body: Any) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    return ollama.parse_generate(to_bytes(body), CLIENT)


def with_messages(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "brain", "messages": messages or [HI], **more}


def with_prompt(**more: Any) -> dict[str, Any]:
    return {"model": "brain", "prompt": "Hi", **more}


def request(message: str = "Hi", **more: Any) -> TurnRequest:
    defaults: dict[str, Any] = {"asks_person": True, "sampling": Sampling(dialect="ollama"), "source": "api"}
    return TurnRequest(message, "me", ev.Limits(calls=7), ("bracket", "function_call"), "UTC", **{**defaults, **more})


# Requests


def test_defaults() -> None:
    expected = (request(), [ClientMessage("user", "Hi")], RequestOptions("brain", stream=True, load=None))
    assert chat(with_messages()) == chat(with_messages(format="")) == expected
    assert generate(with_prompt()) == generate(with_prompt(suffix="", template="", context=[], raw=False)) == expected


def test_all_fields() -> None:
    sampling: dict[str, Any] = {"temperature": 0.0, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "seed": -1,
                                "presence_penalty": 1.5, "frequency_penalty": 0.25}  # fmt: skip
    unknown = {"repeat_penalty": 1.1, "num_ctx": 8192}
    tools = [{"type": "function", "function": {"name": "weather", "description": "Weather.", "parameters": SCHEMA}},
             {"function": {"name": "beep"}}]  # fmt: skip
    found, messages, options = chat(
        with_messages(
            {"role": "system", "content": "Be kind."},
            {"role": "USER", "content": "Look", "images": [PNG_BASE64, "data:image/gif;base64,R0lGODlh"]},
            {"role": "assistant", "content": "I see.", "thinking": "Hm."},
            {"role": "user", "content": "Go on"},
            stream=False, format=SCHEMA, keep_alive="5m", think="high", tools=tools, colour="red",
            options={**sampling, "top_k": 40.0, "num_predict": 64, "stop": ["END", ""], "mirostat": None, **unknown},
        )
    )  # fmt: skip
    images = (Attachment(0, "image", "image/png", PNG), Attachment(0, "image", "image/gif", b"GIF89a"))
    assert messages == [
        ClientMessage("system", "Be kind."),
        ClientMessage("user", "Look", images),
        ClientMessage("assistant", "I see."),
        ClientMessage("user", "Go on"),
    ]
    assert options == RequestOptions("brain", stream=False, load=None)
    common: dict[str, Any] = {"dialect": "ollama", "format": SCHEMA, "keep_alive": "5m"}
    assert found == request(
        "Go on",
        tools=(Tool("weather", "Weather.", SCHEMA), Tool("beep", "", {})),
        stop=("END",),
        asks_person=False,
        sampling=Sampling(max_tokens=64, effort="high", more=unknown, **common, **sampling),
    )
    body = with_prompt(
        system="Be kind.", images=[PNG_BASE64], format="json", keep_alive=-1, think=False, options={"num_predict": -2}
    )
    found, messages, _ = generate(body)
    assert messages == [ClientMessage("system", "Be kind."), ClientMessage("user", "Hi", images[:1])]
    assert found == request(sampling=Sampling(effort=False, format="json", keep_alive=-1, dialect="ollama"))


@pytest.mark.parametrize(
    ("name", "model"),
    [("brain", None), ("brain:latest", None), ("builtin", "builtin"), ("builtin:latest", "builtin"),
     ("ollama:m", "ollama:m:latest"), ("ollama:m:latest", "ollama:m:latest"), ("openai:gpt:latest", "openai:gpt")],
)  # fmt: skip
def test_a_model_is_found_with_its_tag_or_without(name: str, model: str | None) -> None:
    found, _, options = chat(with_messages(model=name))
    assert (found.model, options.model) == (model, name)
    assert ollama.parse_show(to_bytes({"model": name}), CLIENT) == (name, model)
    assert ollama.parse_show(to_bytes({"name": name, "verbose": True}), CLIENT) == (name, model)


@pytest.mark.parametrize("name", ["brain:reason", "brain:reason:latest"])
def test_a_model_name_chooses_a_strategy(name: str) -> None:
    for found, _, options in (chat(with_messages(model=name)), generate(with_prompt(model=name))):
        assert (found.model, found.strategy, found.limits.rounds, options.model) == (None, "reason", 20, name)
    assert ollama.parse_show(to_bytes({"model": name}), CLIENT) == (name, None)


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
        assert chat({**body, **fields})[2].load == generate({**body, **fields})[2].load == load
    assert chat(with_messages(keep_alive=keep_alive))[2].load is None


def call(name: str, call_id: str | None = None, **arguments: Any) -> dict[str, Any]:
    body = {"function": {"name": name, "arguments": arguments}}
    return body if call_id is None else {"id": call_id, "type": "function", **body}


def test_results_find_their_calls() -> None:
    def result(text: str, **more: Any) -> dict[str, Any]:
        return {"role": "tool", "content": text, **more}

    messages = chat(
        with_messages(
            {"role": "assistant", "tool_calls": [call("f", n=1), call("g"), call("f", n=2)]},
            result("g", tool_name="g"), result("f 1", tool_name="f"), result("f 2", tool_name="f"),
            {"role": "assistant", "content": "b"},
            {"role": "assistant", "tool_calls": [call("f", "x1"), call("f", "x2")]},
            result("second", tool_call_id="x2"), result("first", tool_call_id="x1", tool_name="another"),
            {"role": "assistant", "tool_calls": [call("h"), call("i", "")]},
            result("h"), result("i", tool_name="", tool_call_id=""),
            result("unknown ID", tool_call_id="gone"), result("unknown name", tool_name="f"),
        )
    )[1]  # fmt: skip
    assert messages[0].calls == (
        Call("f", params={"n": 1}, id="call_0_0", by="client"),
        Call("g", params={}, id="call_0_1", by="client"),
        Call("f", params={"n": 2}, id="call_0_2", by="client"),
    )
    assert [(message.text, message.call_id) for message in messages if message.role == "tool"] == [
        ("g", "call_0_1"), ("f 1", "call_0_0"), ("f 2", "call_0_2"), ("second", "x2"), ("first", "x1"),
        ("h", "call_8_0"), ("i", "call_8_1"), ("unknown ID", "gone"), ("unknown name", ""),
    ]  # fmt: skip


def test_rejections_name_the_field() -> None:
    user, assistant = {"role": "user"}, {"role": "assistant"}
    fields: list[tuple[dict[str, Any], int, str]] = [
        *[({"format": value}, 400, "format") for value in ("xml", 7, [1])],
        ({"format": {"a": "b" * 65_536}}, 413, "format"),
        *[({"think": value}, 400, "think") for value in ("hardest", 1)],
        *[({"keep_alive": value}, 400, "keep_alive") for value in ("soon", "", "5", "1h" * 33)],
        ({"logprobs": True}, 400, "logprobs"),
        ({"top_logprobs": 3}, 400, "logprobs"),
        ({"_debug_render_only": True}, 400, "_debug_render_only"),
        ({"options": []}, 400, "options"),
        ({"options": {"a": "b" * 16_384}}, 413, "options"),
        ({"options": {"temperature": "hot"}}, 400, "options.temperature"),
        ({"options": {"top_k": 1.5}}, 400, "options.top_k"),
        ({"options": {"seed": 2**63}}, 400, "options.seed"),
        *[({"options": {"stop": value}}, 400, "options.stop") for value in ("END", ["a"] * 17, ["a" * 257])],
    ]
    prompts: list[tuple[dict[str, Any], int, str]] = [
        ({"suffix": "}"}, 400, "suffix"), ({"template": "{{ .Prompt }}"}, 400, "template"), ({"raw": True}, 400, "raw"),
        ({"context": [1, 2]}, 400, "context"), ({"context": ["a"]}, 400, "context[0]"),
        ({"images": ["!"]}, 400, "images[0]"), ({"system": "a" * 200_001}, 413, "system"),
    ]  # fmt: skip
    place = "messages[0].tool_calls"
    chats: list[tuple[Any, int, str | None]] = [
        (b'{"model":"brain","options":{"a":' + b"[" * 65 + b"]" * 65 + b"}}", 400, "options"),
        ({}, 400, "model"),
        (with_messages({**user, "images": ["a.png"]}), 400, "messages[0].images[0]"),
        *[(with_messages({**assistant, "tool_calls": calls}), status, place + field) for calls, status, field in (
            ([call("f", a="b" * 800_000)], 413, "[0].function.arguments"),
            ([{"name": "f"}], 400, "[0].function"),
        )],
        (with_messages(tools=[{"type": "function"}]), 400, "tools[0].type"),
        (with_messages(tools=[{"function": {"name": "f", "parameters": []}}]), 400, "tools[0].function.parameters"),
    ]  # fmt: skip
    rows = [(chat, with_messages(**more), status, field) for more, status, field in fields]
    rows += [(generate, with_prompt(**more), status, field) for more, status, field in (*fields, *prompts)]
    for parse, body, status, field in [*rows, *((chat, *row) for row in chats)]:
        with pytest.raises(BadRequest) as raised:
            parse(body)
        assert (raised.value.status, raised.value.field) == (status, field), str(body)[:100]


# Responses


def encoder(model: str = "brain", *, generate: bool = False) -> ollama.Encoder:
    def inline_text(event: ev.Event) -> str:
        return f"<{event.name}>" if isinstance(event, ev.SpecialistResult) else ""

    return ollama.Encoder(model, lambda: NOW, inline_text, generate=generate)


@pytest.mark.parametrize(
    ("stop_reason", "first", "total", "expected"),
    [("complete", 40, 90, ("stop", 40, 50)), ("length", None, 90, ("length", 90, 1)),
     ("content_filter", None, 90, ("content_filter", 90, 1)),
     ("call_limit", 0, 0, ("stop", 1, 1)),
     ("deadline", None, 0, ("length", 1, 1)), ("cancelled", 7, 7, ("stop", 7, 1))],
)  # fmt: skip
def test_the_reason_and_durations_which_are_never_zero(
    stop_reason: ev.StopReason, first: int | None, total: int, expected: tuple[str, int, int]
) -> None:
    last = json.loads(encoder().encode([ev.Done(stop_reason, "m1", "", 0, 1, first, total)]))
    durations = (last["prompt_eval_duration"], last["eval_duration"])
    assert (last["done_reason"], *(duration // 1_000_000 for duration in durations)) == expected
    assert last["total_duration"] == sum(durations)


def test_a_loaded_model() -> None:
    common = {"created_at": TIME, "done": True}
    message = {"role": "assistant", "content": ""}
    expected = {"model": "m:latest", "message": message, "done_reason": "load", **common}
    assert encoder("m:latest").load_response("load") == expected
    expected = {"model": "brain", "response": "", "done_reason": "unload", **common}
    assert encoder(generate=True).load_response("unload") == expected


def test_each_line_has_its_own_time() -> None:
    clock = iter([NOW, NOW + 1, NOW + 900_000_000, NOW + 60_000_000_000])
    one = ollama.Encoder("brain", lambda: next(clock), lambda event: "")
    lines = (one.encode([ev.Token("a"), ev.Thinking("b")]) + one.heartbeat + one.encode([ev.Token("c")])).splitlines()
    times = [json.loads(line)["created_at"][17:] for line in lines]
    assert times == ["30.123456789Z", "30.123456790Z", "31.023456789Z", "30.123456789Z"]
    assert json.loads(lines[2])["message"] == {"role": "assistant", "content": ""}
    assert timestamp(0) == "1970-01-01T00:00:00.000000000Z"


# Models


def test_the_models() -> None:
    infos = [models.ModelInfo("brain", False, None), models.ModelInfo("ollama:m", True, 8192)]
    text, vision = models.tags(infos, NOW)["models"]
    details = {"parent_model": "", "format": "brain", "family": "brain", "families": ["brain"],
               "parameter_size": "", "quantization_level": ""}  # fmt: skip
    common = {"name": "brain:latest", "model": "brain:latest", "size": 0, "details": details}
    assert text == {**common, "digest": text["digest"], "modified_at": TIME}
    assert (vision["name"], vision["details"]["families"]) == ("ollama:m", ["brain", "clip"])
    assert (len(text["digest"]), vision["digest"] == text["digest"]) == (64, False)
    running = models.ps(infos)["models"]
    assert [model["context_length"] for model in running] == [131072, 8192]
    assert running[0].items() >= {**common, "expires_at": "2318-01-01T00:00:00.000000000Z", "size_vram": 0}.items()
    shown = models.show(infos[0], NOW)
    assert (shown["details"], shown["modified_at"]) == (details, TIME)
    info = {"general.architecture": "brain", "general.basename": "brain", "brain.context_length": 131072}
    assert (shown["model_info"], shown["capabilities"]) == (info, ["completion", "tools"])
    assert models.show(infos[1], NOW)["capabilities"] == ["completion", "tools", "vision"]
