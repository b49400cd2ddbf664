"""OpenAI's protocol without a server: what clients may ask and how it is read, and every chunk that they get."""

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import Player, read, turn_of

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
from brain.protocols import openai
from brain.protocols.inline_results import InlineText
from brain.protocols.openai.request import RequestOptions, parse
from brain.protocols.openai.schema import CompletionBody
from brain.settings import read as read_settings
from brain.turn_request import Sampling, Tool, TurnRequest

CASES = [
    case
    for case in json.loads((Path(__file__).parent.parent / "corpus" / "turns.json").read_text("utf-8"))
    if "text" in case["events"][-1]
]
SETTINGS = read_settings({"BRAIN_TIME_ZONE": "UTC", "BRAIN_CALLS": "7"})
MODELS = frozenset({"builtin", "ollama:m"})
PNG = b"\x89PNG\r\n\x1a\n"
HI = {"role": "user", "content": "Hi"}
PLAIN = TurnRequest(
    message="Hi",
    user="me",
    limits=Limits(calls=7),
    syntax=("bracket", "function_call"),
    time_zone="UTC",
    source="api",
    sampling=Sampling(dialect="openai"),
)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def parsed(body: Any, conversation_id: str | None = None) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse(data, "me", SETTINGS, MODELS, conversation_id)


def asked(**fields: Any) -> TurnRequest:
    return parsed({"messages": [HI], **fields})[0]


def spoken(*messages: Any) -> list[ClientMessage]:
    return parsed({"messages": messages})[1]


def refused(**fields: Any) -> tuple[str | None, int, str]:
    """Which field, with which status, in which words."""
    with pytest.raises(BadRequest) as raised:
        parsed({"messages": [HI], **fields})
    return raised.value.field, raised.value.status, raised.value.message


def refused_message(message: Any) -> tuple[str | None, int, str]:
    return refused(messages=[HI, message])


def parts(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def function(name: str = "add", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


# What is asked


def test_the_least_that_can_be_asked() -> None:
    assert parsed({"messages": [HI]}) == (
        PLAIN,
        [ClientMessage("user", "Hi")],
        RequestOptions("brain", stream=False, usage=False),
    )


def test_null_is_as_good_as_nothing() -> None:
    names = (
        "model stream stream_options max_tokens max_completion_tokens temperature top_p top_k min_p seed "
        "frequency_penalty presence_penalty reasoning_effort response_format stop tools tool_choice "
        "parallel_tool_calls n logprobs top_logprobs modalities audio functions function_call brain"
    )
    assert asked(**dict.fromkeys(names.split())) == PLAIN
    assert asked(n=1, logprobs=False, top_logprobs=0, modalities=["text"], parallel_tool_calls=True) == PLAIN
    assert asked(
        tools=[], tool_choice="auto", stop=[], response_format={"type": "text"}, stop_sequences=None
    ) == TurnRequest(
        **{name: getattr(PLAIN, name) for name in ("message", "user", "limits", "syntax", "time_zone", "source")},
        sampling=Sampling(dialect="openai", more={"stop_sequences": None}),
    )


def test_a_stream_is_asked_for_and_somebody_reads_it() -> None:
    ask, _, wanted = parsed({"messages": [HI], "model": "brain", "stream": True})
    assert (ask.asks_person, ask.model, wanted) == (True, None, RequestOptions("brain", stream=True, usage=False))
    options = {"include_usage": True, "include_obfuscation": False}
    _, _, wanted = parsed({"messages": [HI], "model": "ollama:m", "stream": True, "stream_options": options})
    assert wanted == RequestOptions("ollama:m", stream=True, usage=True)
    assert not asked(stream=False).asks_person


def test_the_model_is_one_that_is_offered() -> None:
    assert asked(model="ollama:m").model == "ollama:m"
    there = "there are: brain, builtin, ollama:m."
    assert refused(model="gpt-5") == ("model", 404, f"The model 'gpt-5' does not exist here; {there}")
    assert refused(model="")[:2] == ("model", 404)
    assert refused(model=7) == ("model", 400, "model: Expected `str | null`, got `int`.")


def test_how_to_write_is_told_in_our_words() -> None:
    ask = asked(
        max_tokens=100,
        temperature=0,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        seed=7,
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        reasoning_effort="low",
        stop="END",
    )
    assert ask.stop == ("END",)
    assert ask.sampling == Sampling(
        max_tokens=100,
        temperature=0,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        seed=7,
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        effort="low",
        dialect="openai",
    )
    assert asked(max_tokens=100, max_completion_tokens=50).sampling.max_tokens == 50
    assert asked(max_tokens=-1).sampling.max_tokens is None
    assert asked(stop=["a", "", "b"]).stop == ("a", "b")


def test_what_is_not_known_goes_on() -> None:
    more = {"logit_bias": {"7": -100}, "user": "ada", "metadata": {"a": [1, 2.5, None, True, "ä"]}, "store": False}
    ask = asked(**more)
    assert ask.sampling.more == more
    assert ask.user == "me"
    assert asked(continue_final_message=True, add_generation_prompt=False) == PLAIN


def test_the_form_of_the_answer() -> None:
    assert asked(response_format={"type": "json_object"}).sampling.format == "json"
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    sampling = asked(response_format=wanted).sampling
    assert sampling.format == schema
    assert sampling.more == {"response_format": wanted}


def test_brains_own_fields() -> None:
    own = {"specialists": ["web"], "limits": {"calls": 2, "call_seconds": 1}, "time_zone": "Europe/Berlin"}
    ask = asked(brain=own)
    assert ask.specialists == frozenset({"web"})
    assert (ask.limits.calls, ask.call_seconds, ask.time_zone) == (2, 1.0, "Europe/Berlin")
    assert ask.now is not None
    assert refused(brain={"limits": {"calls": 8}}) == (
        "brain.limits.calls",
        400,
        "brain.limits.calls may only lower the server's, which is 7, and not below 0.",
    )
    zone = "brain.time_zone must be an IANA name such as Europe/Berlin."
    assert refused(brain={"time_zone": "Mars"}) == ("brain.time_zone", 400, zone)
    assert (asked().source, asked().memory) == (asked(brain={"source": None}).source, True) == ("api", True)
    spoken = asked(brain={"source": "voice", "memory": False})
    assert (spoken.source, spoken.memory) == ("voice", False)
    source = "brain.source must be one of: chat, voice, api."
    assert refused(brain={"source": "fax"}) == ("brain.source", 400, source)
    assert refused(brain={"memory": "no"}) == ("brain.memory", 400, "brain.memory: Expected `bool | null`, got `str`.")
    assert refused(brain={"colour": 1}) == ("brain.colour", 400, "brain.colour: This field does not exist.")


def test_the_conversation_is_named_by_a_header() -> None:
    assert parsed({"messages": [HI]}, "chat-1")[0].conversation_id == "chat-1"
    with pytest.raises(BadRequest) as raised:
        parsed({"messages": [HI]}, "../x")
    assert raised.value.field == "X-Conversation-Id"
    assert raised.value.message == "X-Conversation-Id must be 1 to 64 letters, digits, _ or -."


ANSWER = "an answer is put together from several of the model's, and has none; leave it out."


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"n": 2}, "n", "n: one answer is given: leave it out, or ask again for another."),
        ({"n": 0}, "n", "n: one answer is given: leave it out, or ask again for another."),
        ({"logprobs": True}, "logprobs", f"logprobs: {ANSWER}"),
        ({"top_logprobs": 3}, "top_logprobs", f"top_logprobs: {ANSWER}"),
        ({"modalities": ["text", "audio"]}, "modalities", "modalities: answers are text; leave it out."),
        ({"audio": {"voice": "alloy"}}, "audio", "audio: answers are text; leave it out."),
        ({"functions": []}, "functions", "functions is no longer known; use tools and tool_choice."),
        ({"function_call": "auto"}, "function_call", "function_call is no longer known; use tools and tool_choice."),
        ({"messages": []}, "messages", "messages is empty."),
        ({"messages": "Hi"}, "messages", "messages: This must be a list."),
        ({"messages": None}, "messages", "messages: This must be a list."),
        ({"messages": ["Hi"]}, "messages[0]", "messages[0]: Expected `object`, got `str`."),
        ({"messages": [HI, {"content": "Hi"}]}, "messages[1].role", "messages[1].role: This field is missing."),
        ({"max_tokens": 0}, "max_tokens", "max_tokens must be 1 or more."),
        ({"max_completion_tokens": -2}, "max_completion_tokens", "max_completion_tokens must be 1 or more."),
        ({"max_tokens": "9"}, "max_tokens", "max_tokens: Expected `int | null`, got `str`."),
        ({"seed": 2**63}, "seed", "seed: Expected `int` <= 9223372036854775807."),
        ({"temperature": "hot"}, "temperature", "temperature: Expected `float | null`, got `str`."),
        ({"stream": "yes"}, "stream", "stream: Expected `bool | null`, got `str`."),
        ({"stop": list("abcde")}, "stop", "At most 4 texts in stop."),
        ({"stop": "x" * 257}, "stop", "A text in stop may be 256 characters long."),
        ({"stop": 7}, "stop", "stop: Expected `str | array | null`, got `int`."),
        ({"response_format": "json"}, "response_format", "response_format: Expected `object`, got `str`."),
        ({"response_format": {"type": "xml"}}, "response_format",
         "response_format must be text, json_object, or json_schema with a schema."),
        ({"response_format": {"type": "json_schema"}}, "response_format",
         "response_format must be text, json_object, or json_schema with a schema."),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, "response_format",
         "response_format must be text, json_object, or json_schema with a schema."),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": 7}}},
         "response_format.json_schema.schema",
         "response_format.json_schema.schema: Expected `object | null`, got `int`."),
        ({"tools": [{"type": "custom", "custom": {"name": "a"}}]}, "tools[0].type",
         "tools[0] must be of the type function, and have one."),
        ({"tools": [{"type": "function"}]}, "tools[0].type", "tools[0] must be of the type function, and have one."),
        ({"tools": [{"function": {"name": "a"}}]}, "tools[0].type", "tools[0].type: This field is missing."),
        ({"tools": [function(), function("b"), function()]}, "tools[2]",
         "tools[2].function.name: there is another tool of this name."),
        ({"tools": [function("")]}, "tools[0].function.name",
         "tools[0].function.name must be 1 to 128 characters long."),
        ({"tools": [function(parameters="x")]}, "tools[0].function.parameters",
         "tools[0].function.parameters must be a JSON Schema."),
        ({"tools": [function()], "tool_choice": function("b")}, "tool_choice",
         "tool_choice names a tool that is not among tools."),
        ({"tool_choice": "required"}, "tool_choice", "tool_choice is required, but there are no tools."),
        ({"tool_choice": "any"}, "tool_choice", "tool_choice must be none, auto, required, or a function."),
        ({"tool_choice": {"type": "custom", "function": {"name": "a"}}}, "tool_choice",
         "tool_choice must be none, auto, required, or a function."),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function",
         "tool_choice.function: This field is missing."),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_refused_by_name(fields: dict[str, Any], param: str, message: str) -> None:
    assert refused(**fields) == (param, 400, message)


@pytest.mark.parametrize(
    ("message", "param", "text"),
    [
        ({"role": "bot", "content": "Hi"}, "role", "must be system, developer, user, assistant or tool."),
        ({"role": "function", "name": "a", "content": "Hi"}, "role",
         "must be system, developer, user, assistant or tool."),
        ({"role": "tool", "content": "3"}, "tool_call_id", "is missing."),
        ({"role": "user", "content": 7}, "content", ": Expected `str | array | null`, got `int`."),
        (parts("Hi"), "content[0]", ": Expected `object`, got `str`."),
        (parts({"text": "Hi"}), "content[0].type", ": This field is missing."),
        (parts({"type": "text"}), "content[0].text", "is missing."),
        (parts({"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {}}), "content[1].type",
         "must be text, image_url or file."),
        (parts({"type": "image_url"}), "content[0].image_url", "is missing."),
        (parts({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}), "content[0].image_url",
         ": pictures are not fetched; send it as data:image/png;base64,…."),
        (parts({"type": "image_url", "image_url": {"url": "data:image/png,abc"}}), "content[0].image_url",
         "must be data:TYPE;base64,…."),
        (parts({"type": "image_url", "image_url": {"url": "data:image/png;base64"}}), "content[0].image_url",
         "must be data:TYPE;base64,…."),
        (parts({"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%"}}), "content[0].image_url",
         "is not valid base64."),
        (parts({"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}), "content[0].image_url",
         "is empty."),
        (parts({"type": "file", "file": {"file_id": "file-1"}}), "content[0].file",
         ": files are not kept here; send its content as file_data."),
        (parts({"type": "file", "file": {"file_data": "=", "filename": "a"}}), "content[0].file.file_data",
         "is not valid base64."),
        ({"role": "assistant", "content": [{"type": "image_url", "image_url": "data:image/png;base64,aGk="}]},
         "content", ": only a user's message has files."),
        ({"role": "assistant", "function_call": {"name": "a", "arguments": "{}"}}, "function_call",
         "is no longer known; use tool_calls."),
        ({"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "function": {"name": "a"}}]},
         "tool_calls[0].type", "must be function."),
        ({"role": "assistant", "tool_calls": [{"id": "1", "type": "function"}]}, "tool_calls[0].function",
         ": This field is missing."),
    ],
)  # fmt: skip
def test_a_message_that_cannot_be_read_is_named(message: Any, param: str, text: str) -> None:
    field = f"messages[1].{param}"
    space = "" if text.startswith(":") else " "
    assert refused_message(message) == (field, 400, f"{field}{space}{text}")


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"messages": [HI] * 4097}, "messages", "At most 4,096 messages."),
        ({"messages": [{"role": "user", "content": "x" * 200_001}]}, "messages[0].content",
         "messages[0].content may be 200,000 characters long."),
        ({"messages": [parts(*[{"type": "text", "text": "x" * 100_000}] * 3)]}, "messages[0].content",
         "messages[0].content may be 200,000 characters long."),
        ({"messages": [parts(*[{"type": "text", "text": "x"}] * 1001)]}, "messages[0].content",
         "messages[0].content: at most 1,000 parts."),
        ({"messages": [parts(*[{"type": "image_url", "image_url": "data:;base64,aGk="}] * 11)]}, "attachments",
         "At most 10 attachments a message."),
        ({"messages": [parts(*[{"type": "image_url", "image_url": "data:;base64,aGk="}] * 9)] * 12}, "messages",
         "At most 100 files in all messages."),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "a"}}] * 129}]},
         "messages[0].tool_calls", "messages[0].tool_calls: at most 128."),
        ({"tools": [function()] * 129}, "tools", "At most 128 tools."),
        ({"tools": [function(parameters={"a": "x" * 33_000})]}, "tools[0].function.parameters",
         "tools[0].function.parameters may be 32,768 bytes long."),
        ({"tools": [function(description="x" * 33_000)]}, "tools[0].function.description",
         "tools[0].function.description may be 32,768 characters long."),
        ({"response_format": {"type": "x" * 70_000}}, "response_format", "response_format may be 65,536 bytes long."),
        ({"a": "x" * 200_000, "b": "x" * 100_000}, "b", "b may be 62,142 bytes long."),
    ],
)  # fmt: skip
def test_what_is_too_much_is_refused_by_name(fields: dict[str, Any], param: str, message: str) -> None:
    assert refused(**fields) == (param, 413, message)


def test_what_is_nested_too_deeply_is_refused() -> None:
    assert asked(more=deep(65)).sampling.more == {"more": deep(65)}
    assert refused(more=deep(66)) == ("more", 400, "more may be nested 64 levels deep.")
    assert refused(tools=[function(parameters={"a": deep(66)})])[0] == "tools[0].function.parameters"
    for body in (b'{"messages":' + b"[" * 100_000, b'{"messages":[],"x":' + b"[" * 100_000, b"[" * 100_000):
        with pytest.raises(BadRequest):
            parsed(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The body is not valid JSON: it ends too early, or in the middle of a character."),
        (b'{"messages":[]} x', "The body is not valid JSON: trailing characters (byte 17)."),
        (b'{"messages":[{"role":"user","content":"\xff"}]}', "messages[0] is not valid JSON: it is not UTF-8."),
        (b"[]", "Expected `object`, got `array`."),
        (b"{}", "messages: This field is missing."),
    ],
)
def test_a_body_that_is_none(body: bytes, message: str) -> None:
    with pytest.raises(BadRequest) as raised:
        parsed(body)
    assert (raised.value.status, raised.value.message) == (400, message)


# What was said


def test_messages_stay_in_order() -> None:
    assert spoken(
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello", "reasoning_content": "hm", "annotations": [], "function_call": None},
        {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "kind."}]},
        {"role": "user", "content": "Go", "name": "ada"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "assistant", "content": None, "refusal": "Never."},
    ) == [
        ClientMessage("system", "Be brief."),
        ClientMessage("user", "Hi"),
        ClientMessage("assistant", "Hello"),
        ClientMessage("system", "Be\nkind."),
        ClientMessage("user", "Go"),
        ClientMessage("assistant", "No."),
        ClientMessage("assistant", "Never."),
    ]


def test_what_is_asked_is_the_newest_message_of_the_user() -> None:
    assistant = {"role": "assistant", "content": "Well,"}
    assert parsed({"messages": [HI, {"role": "user", "content": "Go"}, assistant]})[0].message == "Go"
    assert parsed({"messages": [{"role": "system", "content": "Say hello."}]})[0].message == ""


def test_pictures_and_files_are_attachments() -> None:
    url = f"data:image/png;base64,{encoded(PNG)}"
    pdf = encoded(b"%PDF-1.7")
    (message,) = spoken(
        parts(
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": url, "detail": "high"}},
            {"type": "image_url", "image_url": url},
            {"type": "file", "file": {"filename": "../a.pdf", "file_data": f"data:application/pdf;base64,{pdf}"}},
            {"type": "file", "file": {"file_data": encoded(b"text")}},
            {"type": "text", "text": "And that?"},
        )
    )
    assert message == ClientMessage(
        "user",
        "What is this?\nAnd that?",
        (
            Attachment(0, "image.png", "image/png", PNG),
            Attachment(0, "image.png", "image/png", PNG),
            Attachment(0, "a.pdf", "application/pdf", b"%PDF-1.7"),
            Attachment(0, "file", "application/octet-stream", b"text"),
        ),
    )


@pytest.mark.parametrize(
    ("arguments", "params"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (" ", {}),
        (None, {}),
        ("{", {"arguments": "{"}),
        ("[1]", {"arguments": [1]}),
        ("7", {"arguments": 7}),
        ("[" * 70 + "]" * 70, {"arguments": "[" * 70 + "]" * 70}),
    ],
)
def test_calls_of_the_clients_tools(arguments: Any, params: Mapping[str, Any]) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "3"}]}
    assert spoken(HI, {"role": "assistant", "content": None, "tool_calls": [call]}, result)[1:] == [
        ClientMessage("assistant", "", calls=(ClientToolCall("call_1", "add", params),)),
        ClientMessage("tool", "3", call_id="call_1"),
    ]


def test_the_clients_tools() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tools = [function(description="Adds.", parameters=schema, strict=True), function("now", parameters=None)]
    ours = (Tool("add", "Adds.", schema), Tool("now"))
    for choice, must_call in (("auto", False), ("required", True), (function("now"), "now"), (None, False)):
        ask = asked(tools=tools, tool_choice=choice)
        assert (ask.tools, ask.must_call) == (ours, must_call)
    ask = asked(tools=tools, tool_choice="none")
    assert (ask.tools, ask.must_call) == ((), False)


# What is answered

START = TurnStart("t1", "c", "ollama:m", "mono", Limits())
USAGE = Usage(7, 2, None, estimated=False)
HEAD = b'data: {"id":"chatcmpl-t1","object":"chat.completion.chunk","created":1700000000,"model":"brain","choices":['
NOT_YET = b',"logprobs":null,"finish_reason":null}]}\n\n'
ROLE = HEAD + b'{"index":0,"delta":{"role":"assistant","content":""}' + NOT_YET
END = b"data: [DONE]\n\n"
RESULT = SpecialistResult("c1", "web", {}, "found", (), cached=False, ms=3)


def said(text: bytes) -> bytes:
    return HEAD + b'{"index":0,"delta":{"content":"' + text + b'"}' + NOT_YET


def finished(reason: bytes) -> bytes:
    return HEAD + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"' + reason + b'"}]}\n\n'


def done(stop_reason: StopReason = "complete", text: str = "Hi") -> Done:
    return Done(stop_reason, "m1", text, calls=0, passes=1, first_token_ms=1, total_ms=2)


def encoder(
    *, usage: bool = False, written: InlineText | None = None, headers: Sequence[tuple[bytes, bytes]] = ()
) -> openai.Encoder:
    wanted = RequestOptions("brain", stream=True, usage=usage)
    return openai.Encoder("t1", 1_700_000_000, wanted, written or InlineText("hidden", "http://h/v1/turns/t1"), headers)


def streamed(*events: Event, usage: bool = False) -> bytes:
    return encoder(usage=usage).encode(events)


def whole(*events: Event) -> tuple[int, Any]:
    status, body = encoder().whole(events)
    return status, json.loads(body)


def chunks(stream: bytes) -> list[Any]:
    """The data of each frame, which is nothing but data."""
    frames = stream.decode().split("\n\n")
    assert frames.pop() == ""
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    return [frame[6:] if frame == "data: [DONE]" else json.loads(frame[6:]) for frame in frames]


def text_of(stream: bytes) -> str:
    """What a client shows, of a stream that is as it must be."""
    *found, end = chunks(stream)
    assert end == "[DONE]"
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in found}) == 1
    choices = [choice for chunk in found for choice in chunk["choices"]]
    assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
    assert choices[-1]["finish_reason"] == "stop"
    assert choices[-1]["delta"] == {}
    assert [choice["delta"].get("role") for choice in choices] == ["assistant", *[None] * (len(choices) - 1)]
    return "".join(choice["delta"].get("content", "") for choice in choices)


def test_the_stream_literally() -> None:
    events: list[Event] = [START, Token("He"), Token('"llo"\n☕'), USAGE, done()]
    assert streamed(*events) == ROLE + said(b"He") + said(rb"\"llo\"\n" + "☕".encode()) + finished(b"stop") + END


def test_the_usage_comes_last_and_only_when_it_is_asked_for() -> None:
    usage = Usage(7, 2, 5, estimated=False)
    *others, last, end = chunks(streamed(START, Token("Hi"), usage, done(), usage=True))
    assert end == "[DONE]"
    assert [chunk["usage"] for chunk in others] == [None, None, None]
    assert others[-1]["choices"][0]["finish_reason"] == "stop"
    assert last == {
        "id": "chatcmpl-t1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "brain",
        "choices": [],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 2,
            "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 5},
        },
    }
    assert not any("usage" in chunk for chunk in chunks(streamed(START, usage, done()))[:-1])


def test_reasoning_has_a_field_of_its_own() -> None:
    thought = HEAD + b'{"index":0,"delta":{"reasoning_content":"hm"}' + NOT_YET
    assert streamed(START, Thinking("hm"), Token("Hi")) == ROLE + thought + said(b"Hi")


def test_specialists_are_nobodys_business() -> None:
    events: list[Event] = [
        Notice("stand_in", "No model."),
        SpecialistStart("c1", "web", {}, "model"),
        SpecialistProgress("c1", "reading"),
        RESULT,
    ]
    assert streamed(*events) == b""
    assert text_of(streamed(START, Token("a "), *events, Token("b"), USAGE, done())) == "a b"


@pytest.mark.parametrize(
    ("stop_reason", "reason"),
    [
        ("complete", b"stop"),
        ("length", b"length"),
        ("deadline", b"length"),
        ("call_limit", b"stop"),
        ("cancelled", b"stop"),
    ],
)
def test_why_it_stopped(stop_reason: StopReason, reason: bytes) -> None:
    assert streamed(USAGE, done(stop_reason)) == finished(reason) + END


CALLS: list[Event] = [ToolCall("call_1", "add", {"a": 1, "b": "ä"}), ToolCall("call_2", "now", {})]
TOLD = [
    {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":"ä"}'}},
    {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
]


def test_calls_of_the_clients_tools_are_its_own() -> None:
    *found, end = chunks(streamed(START, Token("Let me add."), *CALLS, USAGE, done()))
    deltas = [chunk["choices"][0]["delta"] for chunk in found]
    assert deltas[2:] == [{"tool_calls": [{"index": n, **call}]} for n, call in enumerate(TOLD)] + [{}]
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert end == "[DONE]"


def test_halves_of_characters_in_a_call_do_not_break_it() -> None:
    (chunk,) = chunks(streamed(ToolCall("call_1", "add", {"a": "\ud800"})))
    function = chunk["choices"][0]["delta"]["tool_calls"][0]["function"]
    assert json.loads(function["arguments"]) == {"a": "\ufffd"}


@pytest.mark.parametrize(
    ("error", "status", "body"),
    [
        (Error("model_failed", "It failed.", recoverable=True), 502, ("server_error", "model_failed")),
        (Error("model_failed", "No key.", recoverable=False, status=401), 401,
         ("authentication_error", "model_failed")),
        (Error("model_failed", "No.", recoverable=False, status=403), 403, ("permission_error", "model_failed")),
        (Error("model_failed", "No.", recoverable=False, status=404), 404, ("invalid_request_error", "model_failed")),
        (Error("model_failed", "Wait.", recoverable=True, status=429), 429, ("rate_limit_error", "model_failed")),
        (Error("model_failed", "Oh.", recoverable=True, status=500), 502, ("server_error", "model_failed")),
        (Error("model_context", "Too long.", recoverable=False, status=400), 400,
         ("invalid_request_error", "context_length_exceeded")),
        (Error("model_context", "Too long.", recoverable=False, status=500), 400,
         ("invalid_request_error", "context_length_exceeded")),
        (Error("model_unreachable", "Gone.", recoverable=True), 502, ("server_error", "model_unreachable")),
        (Error("shutdown", "Bye.", recoverable=True), 503, ("server_error", "shutdown")),
        (Error("internal", "Oh.", recoverable=True), 500, ("server_error", "internal")),
    ],
)  # fmt: skip
def test_errors_in_all_their_places(error: Error, status: int, body: tuple[str, str]) -> None:
    expected = {"error": {"message": error.message, "type": body[0], "param": None, "code": body[1]}}
    assert chunks(streamed(START, Token("Hi"), USAGE, error))[2:] == [expected, "[DONE]"]
    assert whole(START, Token("Hi"), USAGE, error) == (status, expected)
    found, told = openai.encode_failure(error)
    assert (found, json.loads(told)) == (status, expected)


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (BadRequest("No.", "n"), "invalid_request_error", None),
        (BadRequest("No.", "model", code="model_not_found", status=404), "invalid_request_error", "model_not_found"),
        (BadRequest("No.", code="unauthorized", status=401), "authentication_error", "invalid_api_key"),
        (BadRequest("No.", code="rate_limited", status=429), "rate_limit_error", "rate_limit_exceeded"),
        (BadRequest("No.", code="unavailable", status=503), "server_error", "unavailable"),
    ],
)
def test_refusals(error: BadRequest, kind: str, code: str | None) -> None:
    told = {"error": {"message": "No.", "type": kind, "param": error.field, "code": code}}
    assert openai.encode_rejection(error) == (error.status, told)


def test_a_whole_answer() -> None:
    usage = Usage(7, 2, 5, estimated=True)
    status, body = whole(START, Thinking("h"), Thinking("m"), Token("He"), RESULT, Token("llo"), usage, done())
    assert status == 200
    assert body == {
        "id": "chatcmpl-t1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "brain",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "refusal": None, "reasoning_content": "hm"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 2,
            "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 5},
            "estimated": True,
        },
    }


def test_a_whole_answer_with_calls() -> None:
    _, body = whole(START, *CALLS, USAGE, done(text=""))
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None, "tool_calls": TOLD}
    assert body["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    _, body = whole(START, Token("So:"), *CALLS, USAGE, done())
    assert body["choices"][0]["message"]["content"] == "So:"
    _, body = whole(START, USAGE, done(text=""))
    assert body["choices"][0]["message"]["content"] == ""


def test_how_events_come_together_makes_no_difference() -> None:
    events: list[Event] = [START, Thinking("hm"), Token("He"), RESULT, Token("llo"), *CALLS, USAGE, done()]
    expected = encoder(usage=True, written=InlineText("block", "")).encode(events)
    for width in range(1, len(events) + 1):
        one = encoder(usage=True, written=InlineText("block", ""))
        batches = [events[at : at + width] for at in range(0, len(events), width)]
        assert b"".join(map(one.encode, batches)) == expected
        assert one.taken == len(events)


def cuts(text: str) -> Iterator[list[str]]:
    yield [text]
    yield list(text)
    for at in range(0, len(text), 7):
        yield [text[:at], text[at:]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_client_sees_the_visible_answer_and_nothing_else(case: dict[str, Any]) -> None:
    visible = case["events"][-1]["text"]
    for pieces in zip(*(list(cuts(text))[:12] for text in case["passes"]), strict=False):
        events = asyncio.run(read(turn_of(Player(*pieces))))
        assert text_of(encoder().encode(events)) == visible
        status, body = whole(*events)
        assert (status, body["choices"][0]["message"]["content"]) == (200, visible)


def test_what_a_stream_is() -> None:
    header = (b"x-conversation-id", b"c")
    one = encoder(headers=[header])
    assert (one.content_type, one.heartbeat) == (b"text/event-stream; charset=utf-8", b": heartbeat\n\n")
    assert (one.closed, list(one.headers)) == (False, [header])


def test_the_models() -> None:
    one = {"id": "ollama:m", "object": "model", "created": 5, "owned_by": "brain"}
    assert openai.describe_model("ollama:m", 5) == one
    assert openai.list_models(["ollama:m", "builtin"], 5) == {
        "object": "list",
        "data": [{**one, "id": "brain"}, {**one, "id": "builtin"}, one],
    }


# Anything at all

WORDS = [
    *(field.encode_name for field in msgspec.structs.fields(CompletionBody)),
    "type",
    "function",
    "name",
    "content",
    "url",
]
ROLES = ["system", "developer", "user", "assistant", "tool", "bot"]
FIELDS = ["content", "tool_calls", "tool_call_id", "refusal", "name"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)
MESSAGES = st.lists(st.fixed_dictionaries({"role": st.sampled_from(ROLES)}, optional=dict.fromkeys(FIELDS, VALUES)))


@given(st.fixed_dictionaries({}, optional={**dict.fromkeys(WORDS, VALUES), "messages": MESSAGES | VALUES}))
def test_whatever_is_sent_is_read_or_refused_by_name(body: Any) -> None:
    refused = None
    try:
        ask, messages, wanted = parsed(body)
    except BadRequest as error:
        refused = error
    if refused is None:
        assert len(messages) == len(body["messages"])
        assert ask.user == "me"
        assert ask.sampling.dialect == "openai"
        assert wanted.stream == bool(body.get("stream"))
    else:
        assert refused.status in (400, 404, 413)
        assert refused.message
        assert refused.field
