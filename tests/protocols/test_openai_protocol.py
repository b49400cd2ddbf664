"""OpenAI's protocol without a server: the fields of a request, and the chunks of a response."""

import base64
import json
from typing import Any

import pytest

from brain import events as ev
from brain.errors import BadRequest
from brain.messages import Attachment, Call
from brain.protocols import openai
from brain.protocols.common import Client, ClientMessage
from brain.protocols.openai import RequestOptions
from brain.settings import read
from brain.turn_request import Sampling, Tool, TurnRequest

SETTINGS = read({"BRAIN_TIME_ZONE": "UTC", "BRAIN_CALLS": "7"})
PNG = b"\x89PNG\r\n\x1a\n"
HI = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def parse(
    *messages: Any, conversation_id: str | None = None, **fields: Any
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    data = json.dumps({"messages": messages or [HI], **fields}).encode()
    return openai.parse(data, Client("me", SETTINGS, frozenset({"builtin", "ollama:m"})), conversation_id)


def rejection(*messages: Any, **fields: Any) -> tuple[int, str | None]:
    with pytest.raises(BadRequest) as raised:
        parse(*messages, **fields)
    return raised.value.status, raised.value.field


def parts(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def image(url: str) -> dict[str, Any]:
    return parts({"type": "image_url", "image_url": {"url": url}})


def function(name: str = "add", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def request(**fields: Any) -> TurnRequest:
    defaults: dict[str, Any] = {"source": "api", "sampling": Sampling(dialect="openai")}
    return TurnRequest("Hi", "me", ev.Limits(calls=7), ("bracket", "function_call"), "UTC", **{**defaults, **fields})


# Requests


def test_defaults() -> None:
    options = RequestOptions("brain", stream=False, with_usage=False)
    assert parse() == (request(), [ClientMessage("user", "Hi")], options)
    defaults: dict[str, Any] = {
        "n": 1, "logprobs": False, "top_logprobs": 0, "modalities": ["text"], "parallel_tool_calls": True,
        "continue_final_message": True, "tools": [], "tool_choice": "auto", "stop": [], "max_tokens": -1,
        "response_format": {"type": "text"},
    }  # fmt: skip
    assert parse(**defaults)[0] == request()


def test_all_fields() -> None:
    sampling: dict[str, Any] = {
        "temperature": 0.0, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 7, "frequency_penalty": 0.5,
        "presence_penalty": -0.5,
    }  # fmt: skip
    unknown = {"logit_bias": {"7": -100}, "user": "ada", "metadata": {"a": [1, 2.5, None, True, "ä"]}, "store": None}
    response_format = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}
    found, _, options = parse(
        model="ollama:m",
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
        max_tokens=100,
        max_completion_tokens=50,
        reasoning_effort="low",
        stop=["a", "", "b"],
        response_format=response_format,
        conversation_id="chat-1",
        **sampling,
        **unknown,
    )
    assert options == RequestOptions("ollama:m", stream=True, with_usage=True)
    more = {**unknown, "response_format": response_format}
    assert found == request(
        conversation_id="chat-1",
        model="ollama:m",
        stop=("a", "b"),
        sampling=Sampling(max_tokens=50, effort="low", format=SCHEMA, dialect="openai", more=more, **sampling),
        asks_person=True,
    )
    assert parse(response_format={"type": "json_object"})[0].sampling.format == "json"
    assert parse(stop="END")[0].stop == ("END",)


def test_a_model_name_chooses_a_strategy() -> None:
    assert [parse(model=f"brain:{name}")[0].strategy for name in ("mono", "dual")] == ["mono", "dual"]
    found, _, options = parse(model="brain:reason")
    assert (found.model, found.strategy, found.limits.rounds, options.model) == (None, "reason", 20, "brain:reason")
    assert parse(brain={"context": {"goal": "Sail."}})[0].context == (("goal", "Sail."),)
    found = parse(model="brain:reason", brain={"strategy": "step", "limits": {"steps": 3}})[0]
    assert (found.strategy, found.limits.rounds, found.limits.steps) == ("step", None, 3)


def test_tools_and_which_of_them_has_to_be_called() -> None:
    tools = [function(description="Adds.", parameters=SCHEMA, strict=True), function("now", parameters=None)]
    both = (Tool("add", "Adds.", SCHEMA), Tool("now"))
    for choice, expected in (
        ("auto", (both, False)), (None, (both, False)), ("required", (both, True)), (function("now"), (both, "now")),
        ("none", ((), False)),
    ):  # fmt: skip
        found = parse(tools=tools, tool_choice=choice)[0]
        assert (found.tools, found.must_call) == expected
        assert found.assist == "off"
    assert parse(tools=tools, brain={"assist": "always"})[0].assist == "always"
    assert parse(tools=[])[0].assist is None


REJECTED: list[tuple[dict[str, Any], int, str]] = [
    *[({"n": n}, 400, "n") for n in (0, 2)],
    ({"logprobs": True}, 400, "logprobs"),
    ({"top_logprobs": 3}, 400, "top_logprobs"),
    ({"modalities": ["text", "audio"]}, 400, "modalities"),
    ({"audio": {"voice": "alloy"}}, 400, "audio"),
    ({"functions": []}, 400, "functions"),
    ({"function_call": "auto"}, 400, "function_call"),
    *[({"model": model}, 404, "model") for model in ("gpt-5", "", "brain:", "brain:Reason", "brain:reason:latest")],
    ({"max_tokens": 0}, 400, "max_tokens"),
    ({"max_completion_tokens": -2}, 400, "max_completion_tokens"),
    ({"seed": 2**63}, 400, "seed"),
    *[({"stop": stop}, 400, "stop") for stop in (list("abcde"), "x" * 257)],
    *[({"response_format": one}, 400, "response_format")
      for one in ("json", {"type": "xml"}, {"type": "json_schema", "json_schema": {"name": "a"}})],
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": 7}}}, 400,
     "response_format.json_schema.schema"),
    ({"response_format": {"type": "x" * 70_000}}, 413, "response_format"),
    *[({"tools": [tool]}, 400, "tools[0].type")
      for tool in ({"type": "custom", "custom": {"name": "a"}}, {"function": None}, {"type": "function"})],
    ({"tools": [function(), function("b"), function()]}, 400, "tools[2].function.name"),
    ({"tools": [function()], "tool_choice": function("b")}, 400, "tool_choice"),
    *[({"tool_choice": choice}, 400, "tool_choice")
      for choice in ("required", "any", {"type": "auto", "function": {"name": "a"}})],
    ({"tool_choice": {"type": "function"}}, 400, "tool_choice.function"),
    ({"brain": {"colour": 1}}, 400, "brain.colour"),
    ({"brain": {"context": {"goal": "a" * 50_001}}}, 413, "brain.context.goal"),
    ({"a": "x" * 200_000, "b": "x" * 100_000}, 413, "b"),
    ({"conversation_id": "../x"}, 400, "X-Conversation-Id"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "status", "field"), REJECTED, ids=lambda value: str(value)[:50])
def test_a_rejection_names_the_field(fields: dict[str, Any], status: int, field: str) -> None:
    assert rejection(**fields) == (status, field)


def test_messages_of_all_roles() -> None:
    pdf = f"data:application/pdf;base64,{base64_of(b'%PDF-1.7')}"
    found = parse(
        {"role": "developer", "content": "Be brief."},
        {"role": "assistant", "content": "Hello", "reasoning_content": "hm", "function_call": None},
        {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "kind."}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        parts(
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64_of(PNG)}", "detail": "high"}},
            {"type": "image_url", "image_url": f"data:image/svg+xml;base64,{base64_of(b'<svg>')}"},
            {"type": "file", "file": {"filename": "../a.pdf", "file_data": pdf}},
            {"type": "file", "file": {"file_data": base64_of(b"text")}},
            {"type": "text", "text": "And that?"},
        ),
        {"role": "assistant", "content": None, "refusal": "Never."},
    )
    assert found[0].message == "What is this?\nAnd that?"
    assert found[1] == [
        ClientMessage("system", "Be brief."),
        ClientMessage("assistant", "Hello"),
        ClientMessage("system", "Be\nkind."),
        ClientMessage("assistant", "No."),
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
        ClientMessage("assistant", "Never."),
    ]
    assert parse({"role": "system", "content": "Say hello."})[0].message == ""


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
def test_calls_of_client_tools(arguments: Any, params: dict[str, Any]) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "3"}]}
    assert parse({"role": "assistant", "content": None, "tool_calls": [call]}, result)[1] == [
        ClientMessage("assistant", "", calls=(Call("add", params=params, id="call_1", by="client"),)),
        ClientMessage("tool", "3", call_id="call_1"),
    ]


@pytest.mark.parametrize(
    ("message", "status", "field"),
    [
        ({"role": "user", "content": 7}, 400, "content"),
        (parts("Hi"), 400, "content[0]"),
        (parts({"text": "Hi"}), 400, "content[0].type"),
        (parts({"type": "text"}), 400, "content[0].text"),
        (parts({"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {}}), 400, "content[1].type"),
        (parts({"type": "image_url"}), 400, "content[0].image_url"),
        (image("https://example.org/a.png"), 400, "content[0].image_url"),
        (parts({"type": "file", "file": {"file_id": "file-1"}}), 400, "content[0].file"),
        *[(parts({"type": "file", "file": {"file_data": data}}), 400, "content[0].file.file_data")
          for data in ("=", "data:a/b,")],
        ({"role": "assistant", "function_call": {"name": "a", "arguments": "{}"}}, 400, "function_call"),
        ({"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "function": {"name": "a"}}]}, 400,
         "tool_calls[0].type"),
        ({"role": "assistant", "tool_calls": [{"id": "1", "type": "function"}]}, 400, "tool_calls[0].function"),
        (parts(*[{"type": "text", "text": "x" * 100_000}] * 3), 413, "content"),
        (parts(*[{"type": "text", "text": "x"}] * 1001), 413, "content"),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_a_rejected_message_is_named(message: Any, status: int, field: str) -> None:
    assert rejection(HI, message) == (status, f"messages[1].{field}")


# Responses

USAGE = ev.Usage(7, 2, None, estimated=False)
HEAD = b'data: {"id":"chatcmpl-t1","object":"chat.completion.chunk","created":1700000000,"model":"brain","choices":['
END = b"data: [DONE]\n\n"


def chunk(delta: str, reason: str = "null") -> bytes:
    return HEAD + f'{{"index":0,"delta":{{{delta}}},"logprobs":null,"finish_reason":{reason}}}]}}\n\n'.encode()


def done(stop_reason: ev.StopReason = "complete") -> ev.Done:
    return ev.Done(stop_reason, "m1", "Hi", calls=0, passes=1, first_token_ms=1, total_ms=2)


def encoder(*, with_usage: bool = False) -> openai.Encoder:
    options = RequestOptions("brain", stream=True, with_usage=with_usage)
    return openai.Encoder("t1", 1_700_000_000, options, lambda event: "")


@pytest.mark.parametrize(
    ("stop_reason", "reason"),
    [("complete", "stop"), ("length", "length"), ("deadline", "length"), ("call_limit", "stop"), ("cancelled", "stop"),
     ("content_filter", "content_filter")],
)  # fmt: skip
def test_finish_reasons(stop_reason: ev.StopReason, reason: str) -> None:
    assert encoder().encode([USAGE, done(stop_reason)]) == chunk("", f'"{reason}"') + END


def test_errors_in_openais_words() -> None:
    errors: list[tuple[ev.Error, str, str]] = [
        (ev.Error("model_failed", "Oh.", True), "server_error", "model_failed"),
        (ev.Error("model_failed", "Oh.", False, 401), "authentication_error", "model_failed"),
        (ev.Error("model_failed", "Oh.", False, 403), "permission_error", "model_failed"),
        (ev.Error("model_failed", "Oh.", False, 404), "invalid_request_error", "model_failed"),
        (ev.Error("model_failed", "Oh.", True, 429), "rate_limit_error", "model_failed"),
        (ev.Error("model_context", "Oh.", False, 500), "invalid_request_error", "context_length_exceeded"),
    ]
    for error, kind, code in errors:
        body = {"error": {"message": "Oh.", "type": kind, "param": None, "code": code}}
        frame = b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"
        assert encoder().encode([error]) == frame + END
    rejections: list[tuple[BadRequest, str, str | None]] = [
        (BadRequest("No.", "n"), "invalid_request_error", None),
        (BadRequest("No.", "model", code="model_not_found", status=404), "invalid_request_error", "model_not_found"),
        (BadRequest("No.", code="unauthorized", status=401), "authentication_error", "invalid_api_key"),
        (BadRequest("No.", code="rate_limited", status=429), "rate_limit_error", "rate_limit_exceeded"),
        (BadRequest("No.", code="unavailable", status=503), "server_error", "unavailable"),
    ]
    for rejected, kind, rejected_code in rejections:
        body = {"error": {"message": "No.", "type": kind, "param": rejected.field, "code": rejected_code}}
        assert openai.encode_rejection(rejected) == (rejected.status, body)


def test_the_models() -> None:
    one = {"id": "ollama:m", "object": "model", "created": 5, "owned_by": "brain"}
    expected = {"object": "list", "data": [{**one, "id": "brain"}, one]}
    assert openai.list_models(["brain", "ollama:m"], 5) == expected
