"""Ollama's protocol without a server: what clients may ask and how it is read, and every line that they get."""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import Player, turn_of
from playing import read as heard

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
from brain.protocols.ollama.schema import ChatBody, GenerateBody, MessageBody, OptionsBody
from brain.settings import read
from brain.turn_request import Sampling, Tool, TurnRequest

SETTINGS = read({"BRAIN_TIME_ZONE": "UTC", "BRAIN_CALLS": "7"})
MODELS = frozenset({"builtin", "ollama:m:latest", "openai:gpt"})
ASKED_AT = datetime(2026, 11, 21, 10, 20, 30, 123456, UTC)
NOW = 1_795_256_430_123_456_789
PNG = b"\x89PNG\r\n\x1a\n"
HI = ClientMessage("user", "Hi")
STAMP = '"created_at":"2026-11-21T10:20:30.123456789Z"'


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def bytes_of(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def chat(body: Any) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    return parse_chat(bytes_of(body), "me", SETTINGS, MODELS)


def generate(body: Any) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    return parse_generate(bytes_of(body), "me", SETTINGS, MODELS)


def asking(**more: Any) -> dict[str, Any]:
    """A chat with one question."""
    return {"model": "brain", "messages": [{"role": "user", "content": "Hi"}], **more}


def prompting(**more: Any) -> dict[str, Any]:
    """A prompt to complete."""
    return {"model": "brain", "prompt": "Hi", **more}


def ask(message: str = "Hi", **more: Any) -> TurnRequest:
    """What is asked when nothing is said of how."""
    usual: dict[str, Any] = {"asks_person": True, "sampling": Sampling(dialect="ollama"), "source": "api"}
    return TurnRequest(message, "me", Limits(calls=7), ("bracket", "function_call"), "UTC", **{**usual, **more})


# What clients ask


def test_the_least_that_can_be_asked() -> None:
    assert chat(asking()) == (ask(), [HI], RequestOptions("brain", stream=True, load=None))
    assert generate(prompting()) == (ask(), [HI], RequestOptions("brain", stream=True, load=None))


def test_the_most_that_can_be_asked_of_a_chat() -> None:
    options = {
        "num_predict": 64,
        "temperature": 0,
        "top_k": 40.0,
        "top_p": 0.9,
        "min_p": 0.05,
        "seed": -1,
        "presence_penalty": 1.5,
        "frequency_penalty": 0.25,
        "repeat_penalty": 1.1,
        "num_ctx": 8192,
        "mirostat": None,
        "stop": ["END", "", "\n\n"],
    }
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    weather = {"name": "weather", "description": "Weather.", "parameters": schema}
    found, spoken, wanted = chat(
        {
            "model": "openai:gpt",
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "USER", "content": "Look", "images": [encoded(PNG)]},
                {"role": "assistant", "content": "I see.", "thinking": "Hm."},
                {"role": "user", "content": "Go on"},
            ],
            "stream": False,
            "format": schema,
            "keep_alive": "5m",
            "think": "high",
            "tools": [{"type": "function", "function": weather}, {"function": {"name": "beep"}}],
            "options": options,
            "shift": False,
            "truncate": True,
            "logprobs": False,
            "top_logprobs": 0,
            "_debug_render_only": False,
            "colour": "red",
        }
    )
    assert spoken == [
        ClientMessage("system", "Be kind."),
        ClientMessage("user", "Look", (Attachment(0, "image", "image/png", PNG),)),
        ClientMessage("assistant", "I see."),
        ClientMessage("user", "Go on"),
    ]
    assert wanted == RequestOptions("openai:gpt", stream=False, load=None)
    assert found == ask(
        "Go on",
        model="openai:gpt",
        tools=(Tool("weather", "Weather.", schema), Tool("beep", "", {})),
        stop=("END", "\n\n"),
        asks_person=False,
        sampling=Sampling(
            max_tokens=64,
            temperature=0.0,
            top_k=40,
            top_p=0.9,
            min_p=0.05,
            seed=-1,
            presence_penalty=1.5,
            frequency_penalty=0.25,
            effort="high",
            format=schema,
            keep_alive="5m",
            dialect="ollama",
            more={"repeat_penalty": 1.1, "num_ctx": 8192},
        ),
    )


def test_the_most_that_can_be_asked_of_a_prompt() -> None:
    found, spoken, wanted = generate(
        prompting(
            system="Be kind.",
            images=[encoded(PNG), "data:image/gif;base64," + encoded(b"GIF89a")],
            format="json",
            keep_alive=-1,
            think=False,
            stream=None,
            options={"num_predict": -2, "num_gpu": 0},
            suffix="",
            template="",
            context=[],
            raw=False,
        )
    )
    images = (Attachment(0, "image", "image/png", PNG), Attachment(0, "image", "image/gif", b"GIF89a"))
    assert spoken == [ClientMessage("system", "Be kind."), ClientMessage("user", "Hi", images)]
    sampling = Sampling(
        effort=False, format="json", keep_alive=-1, dialect="ollama", more={"num_gpu": 0}
    )  # fmt: skip
    assert (found, wanted) == (ask(sampling=sampling), RequestOptions("brain", stream=True, load=None))


def test_null_is_as_good_as_nothing() -> None:
    names = ("stream", "format", "keep_alive", "options", "think", "logprobs", "top_logprobs", "shift", "truncate")
    assert chat(asking(**dict.fromkeys((*names, "tools")))) == chat(asking())
    more = ("system", "images", "suffix", "template", "context", "raw")
    assert generate(prompting(**dict.fromkeys((*names, *more)))) == generate(prompting())
    assert chat(asking(format="")) == chat(asking())


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
def test_models_have_a_tag_or_none(name: str, model: str | None) -> None:
    found, _, wanted = chat(asking(model=name))
    assert (found.model, wanted.model) == (model, name)
    assert parse_show(bytes_of({"model": name}), MODELS) == (name, model)
    assert parse_show(bytes_of({"name": name, "verbose": True}), MODELS) == (name, model)


@pytest.mark.parametrize("name", ["llama3", "brain:8b", "Brain", ":latest", "builtin:latest:latest", "x" * 10_000])
def test_an_unknown_model_is_not_found_in_ollamas_words(name: str) -> None:
    for parse in (chat, generate):
        with pytest.raises(BadRequest) as raised:
            parse({"model": name, "messages": [{"role": "user"}], "prompt": "Hi"})
        assert ollama.encode_rejection(raised.value) == (404, {"error": f"model '{name[:200]}' not found"})
        assert raised.value.field == "model"


@pytest.mark.parametrize(
    ("keep_alive", "loads"),
    [
        (None, "load"),
        (300, "load"),
        (-1, "load"),
        ("10m", "load"),
        ("1h30m", "load"),
        ("1.5s", "load"),
        (0, "unload"),
        (0.0, "unload"),
        ("0", "unload"),
        ("0s", "unload"),
        ("0m0.0s", "unload"),
    ],
)
def test_a_request_without_a_question_loads_or_unloads(keep_alive: Any, loads: str) -> None:
    model = {"model": "brain", "keep_alive": keep_alive}
    for body in (model, {**model, "messages": []}, {**model, "messages": None}):
        assert chat(body)[2].load == loads
    for body in (model, {**model, "prompt": ""}, {**model, "prompt": None}):
        assert generate(body)[2].load == loads
    assert chat(asking(keep_alive=keep_alive))[2].load is None


def calling(name: str, call_id: str | None = None, **arguments: Any) -> dict[str, Any]:
    call = {"function": {"name": name, "arguments": arguments}}
    return call if call_id is None else {"id": call_id, "type": "function", **call}


def told(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "content": text, **more}


def test_results_find_their_calls() -> None:
    _, spoken, _ = chat(
        {
            "model": "brain",
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "tool_calls": [calling("f", n=1), calling("g"), calling("f", n=2)]},
                told("g of nothing", tool_name="g"),
                told("f of 1", tool_name="f"),
                told("f of 2", tool_name="f"),
                {"role": "assistant", "content": "b"},
                {"role": "user", "content": "c"},
                {"role": "assistant", "content": None, "tool_calls": [calling("f", "x1"), calling("f", "x2")]},
                told("second", tool_call_id="x2"),
                told("first", tool_call_id="x1", tool_name="called otherwise"),
                {"role": "assistant", "tool_calls": [calling("h"), calling("i", "")]},
                told("h, as nothing is said"),
                told("i", tool_name="", tool_call_id=""),
                told("of a call that was cut off", tool_call_id="gone"),
                told("of none", tool_name="f"),
            ],
        }
    )
    assert [(one.role, one.text, one.call_id, one.calls) for one in spoken] == [
        ("user", "a", "", ()),
        ("assistant", "", "",
         (ClientToolCall("call_1_0", "f", {"n": 1}), ClientToolCall("call_1_1", "g", {}),
          ClientToolCall("call_1_2", "f", {"n": 2}))),
        ("tool", "g of nothing", "call_1_1", ()),
        ("tool", "f of 1", "call_1_0", ()),
        ("tool", "f of 2", "call_1_2", ()),
        ("assistant", "b", "", ()),
        ("user", "c", "", ()),
        ("assistant", "", "", (ClientToolCall("x1", "f", {}), ClientToolCall("x2", "f", {}))),
        ("tool", "second", "x2", ()),
        ("tool", "first", "x1", ()),
        ("assistant", "", "", (ClientToolCall("call_10_0", "h", {}), ClientToolCall("call_10_1", "i", {}))),
        ("tool", "h, as nothing is said", "call_10_0", ()),
        ("tool", "i", "call_10_1", ()),
        ("tool", "of a call that was cut off", "gone", ()),
        ("tool", "of none", "", ()),
    ]  # fmt: skip


def test_the_question_is_the_newest_of_the_user() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant"}]
    assert chat({"model": "brain", "messages": messages})[0].message == "b"
    assert chat({"model": "brain", "messages": [{"role": "system", "content": "s"}]})[0].message == ""


def refused(parse: Any, body: Any) -> tuple[int, str, str | None]:
    with pytest.raises(BadRequest) as raised:
        parse(body)
    error = raised.value
    status, said = ollama.encode_rejection(error)
    assert said == {"error": error.message}
    return status, error.message, error.field


@pytest.mark.parametrize(
    ("body", "message", "field"),
    [
        (b"", "missing request body", None),
        (b"{", "The body is not valid JSON: it ends too early, or in the middle of a character.", None),
        (b'{"model":"\xff"}', "The body is not valid JSON: it is not UTF-8.", None),
        (b'{"model":"brain","options":' + b'{"a":' * 100_000, "The body is not valid JSON: it is nested too deeply.",
         None),
        (b'{"model":"brain","options":{"a":' + b"[" * 65 + b"]" * 65 + b"}}",
         "options may be nested 64 levels deep.", "options"),
        (b"[]", "Expected `object`, got `array`.", None),
        ({}, "model is required", "model"),
        ({"model": ""}, "model is required", "model"),
        ({"model": 1}, "model: Expected `str`, got `int`.", "model"),
        ({"model": None}, "model: Expected `str`, got `null`.", "model"),
        (asking(stream="yes"), "stream: Expected `bool | null`, got `str`.", "stream"),
        (asking(format="xml"), "format must be json or a JSON Schema.", "format"),
        (asking(format=1), "format must be json or a JSON Schema.", "format"),
        (asking(think="hardest"), "think must be true, false, low, medium, high or max.", "think"),
        (asking(think=1), "think: Expected `bool | str | null`, got `int`.", "think"),
        (asking(keep_alive="soon"), "keep_alive must be a number of seconds, or a duration such as 5m.", "keep_alive"),
        (asking(keep_alive=""), "keep_alive must be a number of seconds, or a duration such as 5m.", "keep_alive"),
        (asking(keep_alive="5"), "keep_alive must be a number of seconds, or a duration such as 5m.", "keep_alive"),
        (asking(keep_alive="1h" * 33), "keep_alive must be a number of seconds, or a duration such as 5m.",
         "keep_alive"),
        (asking(logprobs=True),
         "logprobs: an answer is put together from several of the model's, and has none. Leave it out.", "logprobs"),
        (asking(top_logprobs=3),
         "logprobs: an answer is put together from several of the model's, and has none. Leave it out.", "logprobs"),
        (asking(_debug_render_only=True), "_debug_render_only: the prompt is the model server's affair. Leave it out.",
         "_debug_render_only"),
        (asking(options=[]), "options: Expected `object`.", "options"),
        (asking(options={"temperature": "hot"}), "options.temperature: Expected `float | null`, got `str`.",
         "options.temperature"),
        (asking(options={"top_k": 1.5}), "options.top_k: Expected `int | null`, got `float`.", "options.top_k"),
        (asking(options={"seed": 2**63}), "options.seed: Expected `int` <= 9223372036854775807.", "options.seed"),
        (asking(options={"stop": "END"}), "options.stop: This must be a list.", "options.stop"),
        (asking(options={"stop": [1]}), "options.stop[0]: Expected `str`, got `int`.", "options.stop[0]"),
        (asking(options={"stop": ["a"] * 17}), "options.stop: at most 16 texts of 256 characters.", "options.stop"),
        (asking(options={"stop": ["a" * 257]}), "options.stop: at most 16 texts of 256 characters.", "options.stop"),
        (asking(messages={}), "messages: This must be a list.", "messages"),
        (asking(messages=["Hi"]), "messages[0]: Expected `object`, got `str`.", "messages[0]"),
        (asking(messages=[{"content": "Hi"}]), "messages[0].role: This field is missing.", "messages[0].role"),
        (asking(messages=[{"role": "boss", "content": "Hi"}]),
         "messages[0].role must be system, user, assistant or tool.", "messages[0].role"),
        (asking(messages=[{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]),
         "messages[0].content: Expected `str | null`, got `array`.", "messages[0].content"),
        (asking(messages=[{"role": "user", "images": ["aGk="]}, {"role": "user", "images": ["aGk=", "aGk"]}]),
         "messages[1].images[1] is not valid base64.", "messages[1].images[1]"),
        (asking(messages=[{"role": "user", "images": ["scan.png"]}]), "messages[0].images[0] is not valid base64.",
         "messages[0].images[0]"),
        (asking(messages=[{"role": "user", "images": ["ä"]}]), "messages[0].images[0] is not valid base64.",
         "messages[0].images[0]"),
        (asking(messages=[{"role": "user", "images": [""]}]), "messages[0].images[0] is empty.",
         "messages[0].images[0]"),
        (asking(messages=[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]),
         "messages[0].tool_calls[0].function.arguments: Expected `object`.",
         "messages[0].tool_calls[0].function.arguments"),
        (asking(messages=[{"role": "assistant", "tool_calls": [{"name": "f"}]}]),
         "messages[0].tool_calls[0].function: This field is missing.", "messages[0].tool_calls[0].function"),
        (asking(tools=[{"function": {"name": "f"}}] * 129), "tools: at most 128.", "tools"),
        (asking(tools=[{"type": "function"}]), "tools[0].function: This field is missing.", "tools[0].function"),
        (asking(tools=[{"function": {"name": ""}}]), "tools[0].function.name is empty.", "tools[0].function.name"),
        (asking(tools=[{"function": {"name": "f", "parameters": []}}]),
         "tools[0].function.parameters: Expected `object`.", "tools[0].function.parameters"),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_a_chat_that_is_refused(body: Any, message: str, field: str | None) -> None:
    assert refused(chat, body)[::2] == (400, field)


def test_a_number_that_is_none() -> None:
    status, message, _ = refused(chat, b'{"model":"brain","options":{"temperature":1e999}}')
    assert status == 400
    assert message.endswith("Number out of range.")


@pytest.mark.parametrize(
    ("body", "message", "field"),
    [
        (prompting(suffix="}"), '"brain" does not support insert: leave suffix out.', "suffix"),
        (prompting(template="{{ .Prompt }}"),
         "template: the model's own is used. Leave it out, and put instructions into system.", "template"),
        (prompting(raw=True), "raw: Brain's instructions stand in each prompt. Leave it out.", "raw"),
        (prompting(context=[1, 2]),
         "context: Brain gives none, since other models' tokens mean nothing. Send the messages to /api/chat.",
         "context"),
        (prompting(context=["a"]), "context[0]: Expected `int`, got `str`.", "context[0]"),
        (prompting(prompt=1), "prompt: Expected `str | null`, got `int`.", "prompt"),
        (prompting(images=["!"]), "images[0] is not valid base64.", "images[0]"),
        (prompting(logprobs=True),
         "logprobs: an answer is put together from several of the model's, and has none. Leave it out.", "logprobs"),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_a_prompt_that_is_refused(body: Any, message: str, field: str) -> None:
    assert refused(generate, body)[::2] == (400, field)


@pytest.mark.parametrize(
    ("parse", "body", "message", "field"),
    [
        (chat, asking(messages=[{"role": "user", "content": "a" * 200_001}]),
         "messages[0].content may be 200,000 characters long.", "messages[0].content"),
        (chat, asking(messages=[{"role": "user", "images": ["aGk="] * 11}]), "At most 10 attachments a message.",
         "attachments"),
        (chat, asking(messages=[{"role": "user"}] * 4097), "messages: at most 4,096; leave the oldest out.",
         "messages"),
        (chat, asking(messages=[{"role": "user", "images": ["aGk="] * 10}] * 11),
         "messages: at most 100 images in all of them; leave the oldest out.", "messages"),
        (chat, asking(format={"a": "b" * 65_536}), "format may be 65,536 bytes long.", "format"),
        (chat, asking(options={"a": "b" * 16_384}), "options may be 16,384 bytes long.", "options"),
        (chat, asking(tools=[{"function": {"name": "f", "parameters": {"a": "b" * 65_536}}}]),
         "tools[0].function.parameters may be 65,536 bytes long.", "tools[0].function.parameters"),
        (chat, asking(messages=[{"role": "assistant", "tool_calls": [calling("f", a="b" * 200_000)]}]),
         "messages[0].tool_calls[0].function.arguments may be 200,000 bytes long.",
         "messages[0].tool_calls[0].function.arguments"),
        (chat, asking(messages=[{"role": "assistant", "tool_calls": [calling("f")] * 129}]),
         "messages[0].tool_calls: at most 128.", "messages[0].tool_calls"),
        (generate, prompting(prompt="a" * 200_001), "prompt may be 200,000 characters long.", "prompt"),
        (generate, prompting(system="a" * 200_001), "system may be 200,000 characters long.", "system"),
    ],
)  # fmt: skip
def test_what_is_too_large(parse: Any, body: Any, message: str, field: str) -> None:
    assert refused(parse, body)[::2] == (413, field)


def test_what_is_just_small_enough() -> None:
    _, spoken, _ = chat(asking(messages=[{"role": "user", "content": "a" * 200_000, "images": ["aGk="] * 10}]))
    assert (len(spoken[0].text), len(spoken[0].attachments)) == (200_000, 10)


# Anything at all

SENT = (ChatBody, GenerateBody, MessageBody, OptionsBody)
WORDS = {field.encode_name for kind in SENT for field in msgspec.structs.fields(kind)}
WORDS |= {"function", "name", "arguments", "parameters", "id"}
ROLES = ["system", "user", "assistant", "tool", "bot"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(WORDS)), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("content", "images", "tool_calls", "tool_name", "tool_call_id")
MESSAGES = st.lists(st.fixed_dictionaries({"role": st.sampled_from(ROLES)}, optional=dict.fromkeys(FIELDS, VALUES)))
MORE = {**dict.fromkeys(WORDS - {"model"}, VALUES), "messages": MESSAGES | VALUES}


@pytest.mark.parametrize("parse", [chat, generate])
@given(body=st.fixed_dictionaries({"model": st.sampled_from(["brain", "x", 1])}, optional=MORE))
def test_whatever_is_sent_is_read_or_refused_by_name(parse: Any, body: dict[str, Any]) -> None:
    refused = None
    try:
        found, _, wanted = parse(body)
    except BadRequest as error:
        refused = error
    if refused is None:
        assert (found.user, found.sampling.dialect) == ("me", "ollama")
        assert wanted.stream == (body.get("stream") is not False)
    else:
        assert refused.status in (400, 404, 413)
        assert refused.message
        assert refused.field


# What they get


def written(event: Event) -> str:
    """What the test has stand in the answer for what is no text."""
    return f"<{event.name}>" if isinstance(event, SpecialistResult) else ""


def encoder(model: str = "brain", *, generate: bool = False) -> ollama.Encoder:
    return ollama.Encoder(model, lambda: NOW, written, generate=generate)


START = TurnStart("t1", "c1", "builtin", "mono", Limits())
USAGE = Usage(120, 8, None, False)
RESULT = SpecialistResult("c1", "web", {}, "text", (), False, 3)
DONE = Done("complete", "m1", "Hi", 1, 2, 40, 90)
COUNTED = (
    '"total_duration":90000000,"load_duration":0,"prompt_eval_count":120,"prompt_eval_duration":40000000,'
    '"eval_count":8,"eval_duration":50000000'
)
LINES: Sequence[tuple[Event, str, str]] = [
    (START, "", ""),
    (Notice("stand_in", "No model."), "", ""),
    (Thinking("hm\n"),
     '"message":{"role":"assistant","content":"","thinking":"hm\\n"},"done":false}\n',
     '"response":"","thinking":"hm\\n","done":false}\n'),
    (Token('Hä "quoted"\n\r\\'),
     '"message":{"role":"assistant","content":"Hä \\"quoted\\"\\n\\r\\\\"},"done":false}\n',
     '"response":"Hä \\"quoted\\"\\n\\r\\\\","done":false}\n'),
    (SpecialistStart("c1", "web", {}, "model"), "", ""),
    (SpecialistProgress("c1", "half", 0.5), "", ""),
    (RESULT,
     '"message":{"role":"assistant","content":"<web>"},"done":false}\n',
     '"response":"<web>","done":false}\n'),
    (ToolCall("call_a", "f", {"n": 1}),
     '"message":{"role":"assistant","content":"","tool_calls":[{"id":"call_a","function":{"index":0,"name":"f",'
     '"arguments":{"n":1}}}]},"done":false}\n',
     '"response":"","tool_calls":[{"id":"call_a","function":{"index":0,"name":"f","arguments":{"n":1}}}],'
     '"done":false}\n'),
    (ToolCall("call_b", "g", {}),
     '"message":{"role":"assistant","content":"","tool_calls":[{"id":"call_b","function":{"index":1,"name":"g",'
     '"arguments":{}}}]},"done":false}\n',
     '"response":"","tool_calls":[{"id":"call_b","function":{"index":1,"name":"g","arguments":{}}}],"done":false}\n'),
    (USAGE, "", ""),
    (DONE,
     f'"message":{{"role":"assistant","content":""}},"done":true,"done_reason":"stop",{COUNTED}}}\n',
     f'"response":"","done":true,"done_reason":"stop",{COUNTED}}}\n'),
]  # fmt: skip
EVENTS = [event for event, _, _ in LINES]


@pytest.mark.parametrize("generate", [False, True])
def test_every_line_literally(generate: bool) -> None:
    made = encoder(generate=generate)
    for event, chatted, generated in LINES:
        line = generated if generate else chatted
        assert made.encode([event]).decode() == (f'{{"model":"brain",{STAMP},{line}' if line else "")
    assert not made.closed


def test_what_came_together_leaves_together() -> None:
    expected = "".join(f'{{"model":"brain",{STAMP},{line}' for _, line, _ in LINES if line)
    assert encoder().encode(EVENTS).decode() == expected
    for cut in range(len(EVENTS) + 1):
        made = encoder()
        assert (made.encode(EVENTS[:cut]) + made.encode(EVENTS[cut:])).decode() == expected


def content(stream: bytes) -> str:
    """The text of all lines, as a client puts it together."""
    return "".join(json.loads(line)["message"]["content"] for line in stream.splitlines())


CASES = [
    case
    for case in json.loads((Path(__file__).parent.parent / "corpus" / "turns.json").read_text("utf-8"))
    if "text" in case["events"][-1]
]


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_client_sees_the_visible_answer_and_nothing_else(case: dict[str, Any]) -> None:
    visible = case["events"][-1]["text"]
    for size in (1, 7, 10_000):
        events = asyncio.run(heard(turn_of(Player(*(pieces(text, size) for text in case["passes"])))))
        made = ollama.Encoder("brain", lambda: NOW, lambda event: "")
        assert content(made.encode(events)) == visible
        assert made.encode_response(events)[1]["message"]["content"] == visible


def test_every_cut_of_a_text_says_the_same() -> None:
    text = 'I "say" \\ 😀 \u2028 \x85 \x00 <b>&amp;</b>\r\n end'
    cuts = [0, *range(1, len(text)), len(text)]
    assert content(encoder().encode([Token(text[a:b]) for a, b in pairwise(cuts)])) == text
    for cut in cuts:
        assert content(encoder().encode([Token(text[:cut]), Token(text[cut:])])) == text


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Token("\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\u2027\u202a\xc2\x86"),
         '"content":"\\u2028\\u2029\\u0085\\u000b\\f\\u001c\\u001d\\u001e\u2027\u202a\xc2\x86"}'),
        (ToolCall("c", "f", {"\u2028": "a\x85"}), '"arguments":{"\\u2028":"a\\u0085"}'),
        (Thinking("\u2029"), '"thinking":"\\u2029"'),
    ],
)  # fmt: skip
def test_a_line_is_one_to_python_too(event: Event, line: str) -> None:
    data = encoder("a\u2028b").encode([event]).decode()
    assert line in data
    assert data.splitlines(keepends=True) == [data]
    assert json.loads(data)["model"] == "a\u2028b"


def test_halves_of_characters_break_nothing() -> None:
    stream = encoder().encode([Token("a\ud83d"), ToolCall("c", "f", {"\ud800": [10**30]})])
    first, second = (json.loads(line)["message"] for line in stream.splitlines())
    assert first["content"] == "a\ufffd"
    assert second["tool_calls"][0]["function"]["arguments"] == {"\ufffd": [10**30]}


def test_a_heartbeat_says_nothing_in_a_line() -> None:
    said = f'{{"model":"brain",{STAMP},"message":{{"role":"assistant","content":""}},"done":false}}\n'
    assert encoder().heartbeat.decode() == said
    assert encoder(generate=True).heartbeat.decode() == f'{{"model":"brain",{STAMP},"response":"","done":false}}\n'


@pytest.mark.parametrize(
    ("stop_reason", "done_reason"),
    [("complete", "stop"), ("length", "length"), ("call_limit", "stop"), ("deadline", "length"), ("cancelled", "stop")],
)
def test_why_it_ended(stop_reason: StopReason, done_reason: str) -> None:
    last = json.loads(encoder().encode([Done(stop_reason, "m1", "", 0, 1, 1, 2)]))
    assert (last["done"], last["done_reason"]) == (True, done_reason)


@pytest.mark.parametrize(
    ("first", "total", "before", "after"),
    [(40, 90, 40, 50), (None, 90, 90, 1), (0, 0, 1, 1), (None, 0, 1, 1), (7, 7, 7, 1)],
)
def test_durations_add_up_and_are_never_nothing(first: int | None, total: int, before: int, after: int) -> None:
    last = json.loads(encoder().encode([Done("complete", "m1", "", 0, 1, first, total)]))
    assert last["prompt_eval_duration"] == before * 1_000_000
    assert last["eval_duration"] == after * 1_000_000
    assert last["total_duration"] == (before + after) * 1_000_000


@pytest.mark.parametrize("generate", [False, True])
def test_without_a_stream_the_same_is_one_object(generate: bool) -> None:
    status, body = encoder(generate=generate).encode_response(EVENTS)
    calls = [
        {"id": "call_a", "function": {"index": 0, "name": "f", "arguments": {"n": 1}}},
        {"id": "call_b", "function": {"index": 1, "name": "g", "arguments": {}}},
    ]
    said = 'Hä "quoted"\n\r\\<web>'
    message: Mapping[str, Any] = {"role": "assistant", "content": said, "thinking": "hm\n", "tool_calls": calls}
    generated = {"response": said, "thinking": "hm\n", "tool_calls": calls}
    assert status == 200
    assert body == {
        "model": "brain",
        "created_at": "2026-11-21T10:20:30.123456789Z",
        **(generated if generate else {"message": message}),
        "done": True,
        "done_reason": "stop",
        **json.loads(f"{{{COUNTED}}}"),
    }


def test_without_a_stream_nothing_stands_where_nothing_was() -> None:
    _, body = encoder().encode_response([START, Token("Hi"), USAGE, DONE])
    assert body["message"] == {"role": "assistant", "content": "Hi"}


def test_an_error_inside_is_a_line_of_its_own_and_the_last() -> None:
    error = Error("model_failed", "It broke.\u2028", recoverable=True, status=500)
    assert encoder().encode([Token("a"), USAGE, error]).decode() == (
        f'{{"model":"brain",{STAMP},"message":{{"role":"assistant","content":"a"}},"done":false}}\n'
        '{"error":"It broke.\\u2028"}\n'
    )


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Error("model_unreachable", "No.", True), 502),
        (Error("model_failed", "No.", True), 502),
        (Error("model_failed", "No.", True, 401), 401),
        (Error("model_failed", "No.", True, 404), 404),
        (Error("model_failed", "No.", True, 429), 429),
        (Error("model_failed", "No.", True, 500), 502),
        (Error("model_context", "No.", False, 400), 400),
        (Error("model_context", "No.", False), 400),
        (Error("shutdown", "No.", True), 503),
        (Error("internal", "No.", True), 500),
    ],
)
def test_an_error_before_all_else_has_a_status(error: Error, status: int) -> None:
    assert encoder().encode_failure(error) == (status, b'{"error":"No."}')
    assert encoder().encode_response([START, Token("a"), USAGE, error]) == (status, {"error": "No."})


def test_to_load_is_answered_at_once() -> None:
    known = {"created_at": "2026-11-21T10:20:30.123456789Z", "done": True}
    message = {"role": "assistant", "content": ""}
    assert encoder("m:latest").load_response("load") == {
        "model": "m:latest", "message": message, "done_reason": "load", **known
    }  # fmt: skip
    assert encoder(generate=True).load_response("unload") == {
        "model": "brain", "response": "", "done_reason": "unload", **known
    }  # fmt: skip


def test_times_have_a_fraction_even_when_it_is_nothing() -> None:
    assert timestamp(0) == "1970-01-01T00:00:00.000000000Z"


def test_each_line_has_its_own_time() -> None:
    clock = iter([NOW, NOW + 1, NOW + 900_000_000, NOW + 60_000_000_000])
    made = ollama.Encoder("brain", lambda: next(clock), written)
    stream = made.encode([Token("a"), Thinking("b")]) + made.heartbeat + made.encode([Token("c")])
    assert [json.loads(line)["created_at"] for line in stream.splitlines()] == [
        "2026-11-21T10:20:30.123456789Z",
        "2026-11-21T10:20:30.123456790Z",
        "2026-11-21T10:20:31.023456789Z",
        "2026-11-21T10:21:30.123456789Z",
    ]


# The models on offer

BLIND = ModelInfo("brain", sees_images=False, context_tokens=None)
SEES = ModelInfo("ollama:m", sees_images=True, context_tokens=8192)
DETAILS = {
    "parent_model": "",
    "format": "brain",
    "family": "brain",
    "families": ["brain"],
    "parameter_size": "",
    "quantization_level": "",
}


def test_models_are_listed_with_all_that_clients_read() -> None:
    blind, sees = ollama_models.tags([BLIND, SEES], NOW)["models"]
    assert len(blind["digest"]) == 64
    assert blind == {
        "name": "brain:latest",
        "model": "brain:latest",
        "size": 0,
        "digest": blind["digest"],
        "details": DETAILS,
        "modified_at": "2026-11-21T10:20:30.123456789Z",
    }
    assert (sees["name"], sees["details"]["families"]) == ("ollama:m", ["brain", "clip"])
    assert sees["digest"] != blind["digest"]


def test_all_models_run_for_ever() -> None:
    blind, sees = ollama_models.ps([BLIND, SEES])["models"]
    assert (blind["name"], blind["expires_at"], blind["size_vram"]) == (
        "brain:latest",
        "2318-01-01T00:00:00.000000000Z",
        0,
    )
    assert (blind["context_length"], sees["context_length"]) == (131072, 8192)


def test_a_model_is_shown() -> None:
    assert ollama_models.show(BLIND, NOW) == {
        "license": "",
        "modelfile": "# brain is Brain: a model, and the specialists that it asks.\nFROM brain\n",
        "parameters": "",
        "template": "{{ .Prompt }}",
        "details": DETAILS,
        "model_info": {
            "general.architecture": "brain",
            "general.basename": "brain",
            "brain.context_length": 131072,
        },
        "capabilities": ["completion", "tools"],
        "modified_at": "2026-11-21T10:20:30.123456789Z",
    }
    assert ollama_models.show(SEES, NOW)["capabilities"] == ["completion", "tools", "vision"]
    assert ollama_models.show(SEES, NOW)["model_info"]["brain.context_length"] == 8192
