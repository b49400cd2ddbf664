"""OpenAI's protocol without a server: every field of a request, and every chunk of a response."""

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


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def parse_body(
    body: Any, conversation_id: str | None = None
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse(data, "me", SETTINGS, MODELS, conversation_id)


def request(**fields: Any) -> TurnRequest:
    return parse_body({"messages": [HI], **fields})[0]


def messages(*sent: Any) -> list[ClientMessage]:
    return parse_body({"messages": sent})[1]


def rejection(**fields: Any) -> tuple[int, str | None]:
    with pytest.raises(BadRequest) as raised:
        parse_body({"messages": [HI], **fields})
    return raised.value.status, raised.value.field


def parts(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def image(url: str) -> dict[str, Any]:
    return parts({"type": "image_url", "image_url": {"url": url}})


def function(name: str = "add", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


# Requests


def test_the_smallest_request() -> None:
    options = RequestOptions("brain", stream=False, with_usage=False)
    assert parse_body({"messages": [HI]}) == (PLAIN, [ClientMessage("user", "Hi")], options)


def test_null_and_default_values_change_nothing() -> None:
    fields = (
        "model stream stream_options max_tokens max_completion_tokens temperature top_p top_k min_p seed "
        "frequency_penalty presence_penalty reasoning_effort response_format stop tools tool_choice "
        "parallel_tool_calls n logprobs top_logprobs modalities audio functions function_call brain"
    )
    assert request(**dict.fromkeys(fields.split())) == PLAIN
    assert request(n=1, logprobs=False, top_logprobs=0, modalities=["text"], parallel_tool_calls=True) == PLAIN
    assert request(tools=[], tool_choice="auto", stop=[], response_format={"type": "text"}, max_tokens=-1) == PLAIN
    assert request(continue_final_message=True, add_generation_prompt=False) == PLAIN


def test_all_fields() -> None:
    sampling: dict[str, Any] = {"temperature": 0.0, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 7,
                "frequency_penalty": 0.5, "presence_penalty": -0.5}  # fmt: skip
    unknown = {"logit_bias": {"7": -100}, "user": "ada", "metadata": {"a": [1, 2.5, None, True, "ä"]}, "store": None}
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    response_format = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    found, _, options = parse_body(
        {
            "messages": [HI],
            "model": "ollama:m",
            "stream": True,
            "stream_options": {"include_usage": True, "include_obfuscation": False},
            "max_tokens": 100,
            "max_completion_tokens": 50,
            "reasoning_effort": "low",
            "stop": ["a", "", "b"],
            "response_format": response_format,
            **sampling,
            **unknown,
            "brain": {
                "specialists": ["web"],
                "limits": {"calls": 2, "call_seconds": 1},
                "time_zone": "Europe/Berlin",
                "source": "voice",
                "memory": False,
            },
        },
        "chat-1",
    )
    assert options == RequestOptions("ollama:m", stream=True, with_usage=True)
    assert found == TurnRequest(
        message="Hi",
        user="me",
        limits=Limits(calls=2, call_seconds=1.0),
        syntax=("bracket", "function_call"),
        time_zone="Europe/Berlin",
        conversation_id="chat-1",
        model="ollama:m",
        specialists=frozenset({"web"}),
        call_seconds=1.0,
        stop=("a", "b"),
        sampling=Sampling(
            max_tokens=50, effort="low", format=schema, dialect="openai", **sampling,
            more={**unknown, "response_format": response_format},
        ),
        asks_person=True,
        source="voice",
        memory=False,
    )  # fmt: skip
    assert request(response_format={"type": "json_object"}).sampling.format == "json"
    assert request(stop="END").stop == ("END",)


def test_tools_and_which_of_them_has_to_be_called() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tools = [function(description="Adds.", parameters=schema, strict=True), function("now", parameters=None)]
    both = (Tool("add", "Adds.", schema), Tool("now"))
    for choice, expected in (
        ("auto", (both, False)), (None, (both, False)), ("required", (both, True)), (function("now"), (both, "now")),
        ("none", ((), False)),
    ):  # fmt: skip
        found = request(tools=tools, tool_choice=choice)
        assert (found.tools, found.must_call) == expected


REJECTED: list[tuple[dict[str, Any], int, str | None]] = [
    ({"n": 2}, 400, "n"),
    ({"n": 0}, 400, "n"),
    ({"logprobs": True}, 400, "logprobs"),
    ({"top_logprobs": 3}, 400, "top_logprobs"),
    ({"modalities": ["text", "audio"]}, 400, "modalities"),
    ({"audio": {"voice": "alloy"}}, 400, "audio"),
    ({"functions": []}, 400, "functions"),
    ({"function_call": "auto"}, 400, "function_call"),
    ({"messages": []}, 400, "messages"),
    ({"messages": "Hi"}, 400, "messages"),
    ({"messages": None}, 400, "messages"),
    ({"messages": ["Hi"]}, 400, "messages[0]"),
    ({"messages": [HI, {"content": "Hi"}]}, 400, "messages[1].role"),
    ({"messages": [HI] * 4097}, 413, "messages"),
    ({"model": "gpt-5"}, 404, "model"),
    ({"model": ""}, 404, "model"),
    ({"model": 7}, 400, "model"),
    ({"max_tokens": 0}, 400, "max_tokens"),
    ({"max_completion_tokens": -2}, 400, "max_completion_tokens"),
    ({"max_tokens": "9"}, 400, "max_tokens"),
    ({"seed": 2**63}, 400, "seed"),
    ({"temperature": "hot"}, 400, "temperature"),
    ({"stream": "yes"}, 400, "stream"),
    ({"stop": list("abcde")}, 400, "stop"),
    ({"stop": "x" * 257}, 400, "stop"),
    ({"response_format": "json"}, 400, "response_format"),
    ({"response_format": {"type": "xml"}}, 400, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, 400, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": 7}}}, 400,
     "response_format.json_schema.schema"),
    ({"response_format": {"type": "x" * 70_000}}, 413, "response_format"),
    ({"tools": [{"type": "custom", "custom": {"name": "a"}}]}, 400, "tools[0].type"),
    ({"tools": [{"function": {"name": "a"}}]}, 400, "tools[0].type"),
    ({"tools": [function(), function("b"), function()]}, 400, "tools[2]"),
    ({"tools": [function("")]}, 400, "tools[0].function.name"),
    ({"tools": [function("x" * 129)]}, 400, "tools[0].function.name"),
    ({"tools": [function(parameters="x")]}, 400, "tools[0].function.parameters"),
    ({"tools": [function(parameters={"a": "x" * 33_000})]}, 413, "tools[0].function.parameters"),
    ({"tools": [function(description="x" * 33_000)]}, 413, "tools[0].function.description"),
    ({"tools": [function()] * 129}, 413, "tools"),
    ({"tools": [function()], "tool_choice": function("b")}, 400, "tool_choice"),
    ({"tool_choice": "required"}, 400, "tool_choice"),
    ({"tool_choice": "any"}, 400, "tool_choice"),
    ({"tool_choice": {"type": "auto", "function": {"name": "a"}}}, 400, "tool_choice"),
    ({"tool_choice": {"type": "function"}}, 400, "tool_choice.function"),
    ({"brain": {"limits": {"calls": 8}}}, 400, "brain.limits.calls"),
    ({"brain": {"time_zone": "Mars"}}, 400, "brain.time_zone"),
    ({"brain": {"source": "fax"}}, 400, "brain.source"),
    ({"brain": {"memory": "no"}}, 400, "brain.memory"),
    ({"brain": {"colour": 1}}, 400, "brain.colour"),
    ({"a": "x" * 200_000, "b": "x" * 100_000}, 413, "b"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "status", "field"), REJECTED, ids=lambda value: str(value)[:50])
def test_a_rejection_names_the_field(fields: dict[str, Any], status: int, field: str) -> None:
    assert rejection(**fields) == (status, field)


def test_the_header_with_the_conversation_is_checked() -> None:
    with pytest.raises(BadRequest) as raised:
        parse_body({"messages": [HI]}, "../x")
    assert raised.value.field == "X-Conversation-Id"


def test_nesting_is_limited() -> None:
    def nested(levels: int) -> Any:
        return [nested(levels - 1)] if levels else 1

    assert request(more=nested(65)).sampling.more == {"more": nested(65)}
    assert rejection(more=nested(66)) == (400, "more")
    assert rejection(tools=[function(parameters={"a": nested(66)})]) == (400, "tools[0].function.parameters")


@pytest.mark.parametrize(
    "body",
    [b"", b'{"messages":[]} x', b'{"messages":[{"role":"user","content":"\xff"}]}', b"[]", b"{}", b"[" * 100_000,
     b'{"messages":' + b"[" * 100_000, b'{"messages":[],"x":' + b"[" * 100_000],
)  # fmt: skip
def test_a_body_that_is_not_a_request(body: bytes) -> None:
    with pytest.raises(BadRequest) as raised:
        parse_body(body)
    assert raised.value.status == 400


# Messages


def test_messages_of_all_roles() -> None:
    pdf = f"data:application/pdf;base64,{base64_of(b'%PDF-1.7')}"
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64_of(PNG)}", "detail": "high"}}
    assert messages(
        {"role": "developer", "content": "Be brief."},
        {"role": "assistant", "content": "Hello", "reasoning_content": "hm", "annotations": [], "function_call": None},
        {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "kind."}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "assistant", "content": None, "refusal": "Never."},
        parts(
            {"type": "text", "text": "What is this?"},
            picture,
            {"type": "image_url", "image_url": f"data:image/svg+xml;base64,{base64_of(b'<svg>')}"},
            {"type": "file", "file": {"filename": "../a.pdf", "file_data": pdf}},
            {"type": "file", "file": {"file_data": base64_of(b"text")}},
            {"type": "text", "text": "And that?"},
        ),
    ) == [
        ClientMessage("system", "Be brief."),
        ClientMessage("assistant", "Hello"),
        ClientMessage("system", "Be\nkind."),
        ClientMessage("assistant", "No."),
        ClientMessage("assistant", "Never."),
        ClientMessage(
            "user",
            "What is this?\nAnd that?",
            (
                Attachment(0, "image.png", "image/png", PNG),
                Attachment(0, "image.svg", "image/svg+xml", b"<svg>"),
                Attachment(0, "a.pdf", "application/pdf", b"%PDF-1.7"),
                Attachment(0, "file", "application/octet-stream", b"text"),
            ),
        ),
    ]


def test_the_question_is_the_newest_message_of_the_user() -> None:
    assistant = {"role": "assistant", "content": "Well,"}
    assert parse_body({"messages": [HI, {"role": "user", "content": "Go"}, assistant]})[0].message == "Go"
    assert parse_body({"messages": [{"role": "system", "content": "Say hello."}]})[0].message == ""


@pytest.mark.parametrize(
    ("arguments", "params"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        (" ", {}),
        (None, {}),
        ("{", {"arguments": "{"}),
        ("[1]", {"arguments": [1]}),
        (7, {"arguments": 7}),
        ("[" * 70 + "]" * 70, {"arguments": "[" * 70 + "]" * 70}),
    ],
)
def test_calls_of_client_tools(arguments: Any, params: Mapping[str, Any]) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "3"}]}
    assert messages(HI, {"role": "assistant", "content": None, "tool_calls": [call]}, result)[1:] == [
        ClientMessage("assistant", "", calls=(ClientToolCall("call_1", "add", params),)),
        ClientMessage("tool", "3", call_id="call_1"),
    ]


@pytest.mark.parametrize(
    ("message", "status", "field"),
    [
        ({"role": "bot", "content": "Hi"}, 400, "role"),
        ({"role": "function", "name": "a", "content": "Hi"}, 400, "role"),
        ({"role": "tool", "content": "3"}, 400, "tool_call_id"),
        ({"role": "user", "content": 7}, 400, "content"),
        (parts("Hi"), 400, "content[0]"),
        (parts({"text": "Hi"}), 400, "content[0].type"),
        (parts({"type": "text"}), 400, "content[0].text"),
        (parts({"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {}}), 400, "content[1].type"),
        (parts({"type": "image_url"}), 400, "content[0].image_url"),
        (image("https://example.org/a.png"), 400, "content[0].image_url"),
        (image("data:image/png,abc"), 400, "content[0].image_url"),
        (image("data:image/png;base64"), 400, "content[0].image_url"),
        (image("data:image/png;base64,%%%"), 400, "content[0].image_url"),
        (image("data:image/png;base64,"), 400, "content[0].image_url"),
        (parts({"type": "file", "file": {"file_id": "file-1"}}), 400, "content[0].file"),
        (parts({"type": "file", "file": {"file_data": "="}}), 400, "content[0].file.file_data"),
        (parts({"type": "file", "file": {"file_data": "data:a/b,x"}}), 400, "content[0].file.file_data"),
        ({"role": "assistant", "content": image("data:;base64,aGk=")["content"]}, 400, "content"),
        ({"role": "assistant", "function_call": {"name": "a", "arguments": "{}"}}, 400, "function_call"),
        ({"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "function": {"name": "a"}}]}, 400,
         "tool_calls[0].type"),
        ({"role": "assistant", "tool_calls": [{"id": "1", "type": "function"}]}, 400, "tool_calls[0].function"),
        ({"role": "user", "content": "x" * 200_001}, 413, "content"),
        (parts(*[{"type": "text", "text": "x" * 100_000}] * 3), 413, "content"),
        (parts(*[{"type": "text", "text": "x"}] * 1001), 413, "content"),
        ({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "a"}}] * 129}, 413, "tool_calls"),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_a_rejected_message_is_named(message: Any, status: int, field: str) -> None:
    assert rejection(messages=[HI, message]) == (status, f"messages[1].{field}")


def test_files_are_counted() -> None:
    files = image("data:;base64,aGk=")["content"]
    assert rejection(messages=[parts(*files * 11)]) == (413, "attachments")
    assert rejection(messages=[parts(*files * 9)] * 12) == (413, "messages")


# Responses

START = TurnStart("t1", "c", "ollama:m", "mono", Limits())
USAGE = Usage(7, 2, None, estimated=False)
HEAD = b'data: {"id":"chatcmpl-t1","object":"chat.completion.chunk","created":1700000000,"model":"brain","choices":['
TAIL = b',"logprobs":null,"finish_reason":null}]}\n\n'
ROLE = HEAD + b'{"index":0,"delta":{"role":"assistant","content":""}' + TAIL
END = b"data: [DONE]\n\n"
RESULT = SpecialistResult("c1", "web", {}, "found", (), cached=False, ms=3)
CALLS: list[Event] = [ToolCall("call_1", "add", {"a": 1, "b": "ä"}), ToolCall("call_2", "now", {})]
CALL_FIELDS = [
    {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":"ä"}'}},
    {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
]


def text_chunk(text: bytes, field: bytes = b"content") -> bytes:
    return HEAD + b'{"index":0,"delta":{"' + field + b'":"' + text + b'"}' + TAIL


def last_chunk(reason: bytes) -> bytes:
    return HEAD + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"' + reason + b'"}]}\n\n'


def done(stop_reason: StopReason = "complete", text: str = "Hi") -> Done:
    return Done(stop_reason, "m1", text, calls=0, passes=1, first_token_ms=1, total_ms=2)


def encoder(
    *, with_usage: bool = False, show: Any = "hidden", headers: Sequence[tuple[bytes, bytes]] = ()
) -> openai.Encoder:
    options = RequestOptions("brain", stream=True, with_usage=with_usage)
    return openai.Encoder("t1", 1_700_000_000, options, InlineText(show, "http://h/v1/turns/t1"), headers)


def stream(*events: Event, with_usage: bool = False) -> bytes:
    return encoder(with_usage=with_usage).encode(events)


def response(*events: Event) -> tuple[int, Any]:
    status, body = encoder().encode_response(events)
    return status, json.loads(body)


def chunks(data: bytes) -> list[Any]:
    """The data of each frame, which has no other lines."""
    frames = data.decode().split("\n\n")
    assert frames.pop() == ""
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    return [frame[6:] if frame == "data: [DONE]" else json.loads(frame[6:]) for frame in frames]


def visible_text(data: bytes) -> str:
    """What a client shows of a stream that follows the protocol."""
    *found, end = chunks(data)
    assert end == "[DONE]"
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in found}) == 1
    choices = [choice for chunk in found for choice in chunk["choices"]]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert choices[-1]["delta"] == {}
    assert [choice["delta"].get("role") for choice in choices] == ["assistant", *[None] * (len(choices) - 1)]
    return "".join(choice["delta"].get("content", "") for choice in choices)


def test_the_stream_literally() -> None:
    events: list[Event] = [
        START, Notice("stand_in", "No model."), Thinking("hm"), Token('"Hé"\n☕'),
        SpecialistStart("c1", "web", {}, "model"), RESULT, Token("\ud800"), USAGE, done(),
    ]  # fmt: skip
    assert stream(*events) == b"".join(
        (
            ROLE,
            text_chunk(b"hm", b"reasoning_content"),
            text_chunk(rb"\"H" + 'é\\"\\n☕'.encode()),
            text_chunk("\ufffd".encode()),
            last_chunk(b"stop"),
            END,
        )
    )


def test_the_usage_comes_last_where_the_client_wants_it() -> None:
    *others, last, end = chunks(stream(START, Token("Hi"), Usage(7, 2, 5, estimated=True), done(), with_usage=True))
    assert end == "[DONE]"
    assert [chunk["usage"] for chunk in others] == [None, None, None]
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 5},
        "estimated": True,
    }


@pytest.mark.parametrize(
    ("stop_reason", "reason"),
    [("complete", b"stop"), ("length", b"length"), ("deadline", b"length"), ("call_limit", b"stop"),
     ("cancelled", b"stop")],
)  # fmt: skip
def test_finish_reasons(stop_reason: StopReason, reason: bytes) -> None:
    assert stream(USAGE, done(stop_reason)) == last_chunk(reason) + END


def test_calls_of_client_tools_are_streamed() -> None:
    *found, end = chunks(stream(START, Token("Let me add."), *CALLS, USAGE, done()))
    deltas = [chunk["choices"][0]["delta"] for chunk in found]
    assert deltas[2:] == [{"tool_calls": [{"index": n, **call}]} for n, call in enumerate(CALL_FIELDS)] + [{}]
    assert (found[-1]["choices"][0]["finish_reason"], end) == ("tool_calls", "[DONE]")


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (Error("model_failed", "Oh.", recoverable=True), 502, "server_error", "model_failed"),
        (Error("model_failed", "Oh.", recoverable=False, status=401), 401, "authentication_error", "model_failed"),
        (Error("model_failed", "Oh.", recoverable=False, status=403), 403, "permission_error", "model_failed"),
        (Error("model_failed", "Oh.", recoverable=False, status=404), 404, "invalid_request_error", "model_failed"),
        (Error("model_failed", "Oh.", recoverable=True, status=429), 429, "rate_limit_error", "model_failed"),
        (Error("model_failed", "Oh.", recoverable=True, status=500), 502, "server_error", "model_failed"),
        (Error("model_context", "Oh.", recoverable=False, status=500), 400, "invalid_request_error",
         "context_length_exceeded"),
        (Error("model_unreachable", "Oh.", recoverable=True), 502, "server_error", "model_unreachable"),
        (Error("shutdown", "Oh.", recoverable=True), 503, "server_error", "shutdown"),
        (Error("internal", "Oh.", recoverable=True), 500, "server_error", "internal"),
    ],
)  # fmt: skip
def test_failures_before_and_within_a_stream(error: Error, status: int, kind: str, code: str) -> None:
    body = {"error": {"message": "Oh.", "type": kind, "param": None, "code": code}}
    assert chunks(stream(START, Token("Hi"), USAGE, error))[2:] == [body, "[DONE]"]
    assert response(START, Token("Hi"), USAGE, error) == (status, body)
    assert openai.encode_failure(error) == (status, msgspec.json.encode(body))


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
def test_rejections(error: BadRequest, kind: str, code: str | None) -> None:
    body = {"error": {"message": "No.", "type": kind, "param": error.field, "code": code}}
    assert openai.encode_rejection(error) == (error.status, body)


def test_a_response_that_is_not_streamed() -> None:
    status, body = response(START, Thinking("h"), Thinking("m"), Token("He"), RESULT, Token("llo"), USAGE, done())
    message = {"role": "assistant", "content": "Hello", "refusal": None, "reasoning_content": "hm"}
    assert status == 200
    assert body == {
        "id": "chatcmpl-t1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "brain",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
    }
    (choice,) = response(START, *CALLS, USAGE, done())[1]["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None, "tool_calls": CALL_FIELDS}
    assert response(START, Token("So:"), *CALLS, USAGE, done())[1]["choices"][0]["message"]["content"] == "So:"
    assert response(START, USAGE, done())[1]["choices"][0]["message"]["content"] == ""


def test_events_in_any_batches_give_the_same_bytes() -> None:
    events: list[Event] = [START, Thinking("hm"), Token("He"), RESULT, Token("llo"), *CALLS, USAGE, done()]
    expected = encoder(with_usage=True, show="block").encode(events)
    for width in range(1, len(events) + 1):
        one = encoder(with_usage=True, show="block")
        assert b"".join(one.encode(events[at : at + width]) for at in range(0, len(events), width)) == expected


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
        assert visible_text(encoder().encode(events)) == visible
        status, body = response(*events)
        assert (status, body["choices"][0]["message"]["content"]) == (200, visible)


def test_the_response_headers() -> None:
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


# Any JSON

NAMES = [*(field.encode_name for field in msgspec.structs.fields(CompletionBody)), "type", "function", "name", "url"]
ROLES = ["system", "developer", "user", "assistant", "tool", "bot"]
FIELDS = ["content", "tool_calls", "tool_call_id", "refusal", "name"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
MESSAGES = st.lists(st.fixed_dictionaries({"role": st.sampled_from(ROLES)}, optional=dict.fromkeys(FIELDS, VALUES)))


@given(st.fixed_dictionaries({}, optional={**dict.fromkeys(NAMES, VALUES), "messages": MESSAGES | VALUES}))
def test_any_json_is_read_or_rejected_by_name(body: Any) -> None:
    rejected = None
    try:
        found, sent, options = parse_body(body)
    except BadRequest as error:
        rejected = error
    if rejected is not None:
        assert rejected.status in (400, 404, 413)
        assert rejected.field
    else:
        assert len(sent) == len(body["messages"])
        assert (found.user, found.sampling.dialect) == ("me", "openai")
        assert options.stream == bool(body.get("stream"))
