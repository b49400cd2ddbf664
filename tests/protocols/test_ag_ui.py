"""AG-UI without a server: what clients may ask and how it is read, every event that they get, and in which order."""

import base64
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from ag_ui_stream import verify

from brain.errors import BadRequest
from brain.events import (
    ApprovalRequired,
    Citation,
    Done,
    Error,
    Event,
    Limits,
    Notice,
    SpecialistError,
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
from brain.protocols import ag_ui
from brain.protocols.ag_ui import Encoder, InterruptAnswer, RequestOptions, messages_since, parse, parse_resume
from brain.settings import read
from brain.turn_request import Tool, TurnRequest

SETTINGS = read({"BRAIN_TIME_ZONE": "UTC", "BRAIN_CALLS": "7"})
MODELS = frozenset({"builtin", "openai:gpt"})
PNG = b"\x89PNG\r\n\x1a\n"
PDF = b"%PDF-1.7"
WANTED = RequestOptions("thread", "run", None, "thread")
UNTIL = datetime(2026, 11, 21, 10, 20, 30, tzinfo=UTC)
START = TurnStart("t1", "thread", "player", "mono", Limits())
USAGE = Usage(10, 5, None, estimated=False)


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def parse_body(**body: Any) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """A run with one question, and what else is in the body."""
    usual = {"threadId": "thread", "runId": "run", "messages": [{"id": "1", "role": "user", "content": "Hi"}]}
    return parse(json.dumps({**usual, **body}).encode(), "me", SETTINGS, MODELS)


def messages(*messages: Mapping[str, Any], **body: Any) -> list[ClientMessage]:
    return parse_body(messages=[{"id": str(n), **message} for n, message in enumerate(messages)], **body)[1]


def done(stop_reason: StopReason = "complete", calls: int = 0) -> Done:
    return Done(stop_reason, "m1", "text", calls, 1, 3, 20)


# Requests


def test_the_smallest_request() -> None:
    expected = TurnRequest(
        "Hi", "me", Limits(calls=7), ("bracket", "function_call"), "UTC", conversation_id="thread", asks_person=True
    )
    assert parse_body() == (expected, [ClientMessage("user", "Hi")], WANTED)


def test_null_and_unknown_fields_change_nothing() -> None:
    nulls = dict.fromkeys(("parentRunId", "state", "tools", "context", "forwardedProps", "resume", "protocolVersion"))
    assert parse_body(**nulls, shiny="new") == parse_body()
    for props in (5, "text", [1], {}, {"limits": None, "system": None, "source": None, "memory": None}):
        assert parse_body(forwardedProps=props) == parse_body()


def test_all_fields() -> None:
    schema = {"type": "object", "properties": {"color": {"type": "string"}}}
    found, messages, options = parse_body(
        parentRunId="before",
        tools=[{"name": "paint", "description": "Paints.", "parameters": schema}, {"name": "go", "parameters": None}],
        context=[{"description": "The page", "value": "Cart"}, {"description": "Currency", "value": "CHF"}],
        forwardedProps={
            "model": "openai:gpt",
            "specialists": ["web"],
            "limits": {"calls": 2, "call_seconds": 1.5},
            "system": "Be brief.",
            "time_zone": "Europe/Berlin",
            "source": "voice",
            "memory": False,
            "command": {"of": "others"},
        },
    )
    assert found == TurnRequest(
        "Hi",
        "me",
        Limits(calls=2, call_seconds=1.5),
        ("bracket", "function_call"),
        "Europe/Berlin",
        conversation_id="thread",
        model="openai:gpt",
        specialists=frozenset({"web"}),
        system="Be brief.",
        call_seconds=1.5,
        tools=(Tool("paint", "Paints.", schema), Tool("go")),
        asks_person=True,
        source="voice",
        memory=False,
    )
    assert messages == [ClientMessage("system", "The page: Cart\nCurrency: CHF"), ClientMessage("user", "Hi")]
    assert options == RequestOptions("thread", "run", "before", "thread")


def test_context_stands_before_the_newest_question() -> None:
    context = [{"description": "a", "value": "b"}]
    question, answer = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}
    roles = [message.role for message in messages(question, answer, question, answer, context=context)]
    assert roles == ["user", "assistant", "system", "user", "assistant"]
    assert [message.role for message in messages(answer, context=context)] == ["assistant", "system"]


@pytest.mark.parametrize(
    ("thread_id", "conversation_id"),
    [
        ("0b6ea5b2-37cc-4b8f-8b43-0a1fd8a2a1d1", "0b6ea5b2-37cc-4b8f-8b43-0a1fd8a2a1d1"),
        ("chat/7", "thread-c47cafccf07f9126a053bbb09383a934774a5671"),
        ("x" * 65, "thread-9537c5fdf120482f7d58d25e9ed583f52c02b4e3"),
    ],
)
def test_a_thread_is_a_conversation(thread_id: str, conversation_id: str) -> None:
    found, _, options = parse_body(threadId=thread_id)
    assert (found.conversation_id, options.conversation_id) == (conversation_id, conversation_id)
    assert options.thread_id == thread_id


def tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def media(kind: str, source: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": kind, "source": source, **more}]}


def data_of(data: bytes, mime_type: str) -> dict[str, str]:
    return {"type": "data", "value": base64_of(data), "mimeType": mime_type}


def test_messages_of_all_roles() -> None:
    binary = {"type": "binary", "mimeType": "text/csv", "data": base64_of(b"a,b"), "filename": "f"}
    assert messages(
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": "Weather?", "name": None, "metadata": {"x": None}, "encryptedValue": "y"},
        {"role": "reasoning", "content": "Hm."},
        {"role": "assistant", "content": "I ask.", "toolCalls": [tool_call("a", "weather", '{"city":"Bern"}')]},
        {"role": "tool", "toolCallId": "a", "content": "Sunny.", "error": "Cut."},
        {"role": "tool", "toolCallId": "b", "content": "", "error": "No such file."},
        {"role": "tool", "toolCallId": "c", "content": [{"type": "text", "text": "In parts."}]},
        {"role": "activity", "activityType": "PLAN", "content": {"steps": []}},
        {"role": "assistant", "content": None, "toolCalls": None},
        {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "now?"}]},
        media("image", data_of(PNG, "image/png"), metadata={"filename": "../scan.png"}),
        media("document", data_of(PDF, "application/pdf")),
        media("audio", data_of(b"RIFF", "audio/wav")),
        media("video", data_of(b"....", "video/mp4"), metadata=None),
        media("image", {"type": "url", "value": f"data:image/png;base64,{base64_of(PNG)}"}),
        {"role": "user", "content": [binary]},
    ) == [
        ClientMessage("system", "Be kind."),
        ClientMessage("system", "Be short."),
        ClientMessage("user", "Weather?"),
        ClientMessage("assistant", "I ask.", calls=(ClientToolCall("a", "weather", {"city": "Bern"}),)),
        ClientMessage("tool", "Sunny.", call_id="a"),
        ClientMessage("tool", "No such file.", call_id="b"),
        ClientMessage("tool", "In parts.", call_id="c"),
        ClientMessage("assistant"),
        ClientMessage("user", "And\nnow?"),
        ClientMessage("user", "", (Attachment(0, "scan.png", "image/png", PNG),)),
        ClientMessage("user", "", (Attachment(0, "document", "application/pdf", PDF),)),
        ClientMessage("user", "", (Attachment(0, "audio", "audio/wav", b"RIFF"),)),
        ClientMessage("user", "", (Attachment(0, "video", "video/mp4", b"...."),)),
        ClientMessage("user", "", (Attachment(0, "image", "image/png", PNG),)),
        ClientMessage("user", "", (Attachment(0, "f", "text/csv", b"a,b"),)),
    ]


@pytest.mark.parametrize(
    ("arguments", "params"),
    [
        (" ", {}),
        ('{"a":[1]}', {"a": [1]}),
        ('{"a":', {"arguments": '{"a":'}),
        ("[1]", {"arguments": [1]}),
        ("[" * 500 + "]" * 500, {"arguments": "[" * 500 + "]" * 500}),
    ],
)
def test_arguments_that_are_no_object_stay_readable(arguments: str, params: Mapping[str, Any]) -> None:
    found = messages({"role": "assistant", "toolCalls": [tool_call("a", "f", arguments)]})
    assert found[0].calls == (ClientToolCall("a", "f", params),)


TEXT = "x" * 200_001


def message(role: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, **more}]}


def part(**fields: Any) -> dict[str, Any]:
    return message("user", content=[{"type": "text", "text": "Hi"}, fields])


PART = "messages[0].content[1]"


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"threadId": ""}, 400, "threadId"),
        ({"threadId": "a\nb"}, 400, "threadId"),
        ({"threadId": "x" * 257}, 400, "threadId"),
        ({"runId": 5}, 400, "runId"),
        ({"parentRunId": ""}, 400, "parentRunId"),
        ({"messages": None}, 400, "messages"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"content": "?"}]}, 400, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "a"}] * 10_001}, 413, "messages"),
        (message("activity", content={}), 400, "messages"),
        (message("robot"), 400, "messages[0].role"),
        (message("user"), 400, "messages[0].content"),
        (message("user", content={}), 400, "messages[0].content"),
        (message("system", content=[]), 400, "messages[0].content"),
        (message("tool"), 400, "messages[0].toolCallId"),
        (message("user", content=TEXT), 413, "messages[0].content"),
        (message("system", content=TEXT), 413, "messages[0].content"),
        (message("assistant", content=TEXT), 413, "messages[0].content"),
        (message("tool", toolCallId="a", error=TEXT), 413, "messages[0].error"),
        (message("tool", toolCallId="a", content=[{"type": "image"}]), 400, "messages[0].content"),
        (message("user", content=[{"type": "image", "source": data_of(PNG, "a/b")}] * 11), 413, "attachments"),
        (part(type="text"), 400, f"{PART}.text"),
        (part(type="smell"), 400, f"{PART}.type"),
        (part(type="image"), 400, f"{PART}.source"),
        (part(type="image", source={"type": "url", "value": "https://example.org/a.png"}), 400, f"{PART}.source"),
        (part(type="document", source={"type": "file", "value": "file-1"}), 400, f"{PART}.source"),
        (part(type="binary", mimeType="image/png", url="https://x"), 400, PART),
        (part(type="image", source={"type": "data", "value": "é"}), 400, f"{PART}.source.value"),
        (part(type="image", source={"type": "data", "value": ""}), 400, f"{PART}.source.value"),
        ({"tools": [{"name": "", "description": ""}]}, 400, "tools[0].name"),
        ({"tools": [{"description": "no name"}]}, 400, "tools[0].name"),
        ({"tools": [{"name": "a", "description": ""}] * 129}, 413, "tools"),
        ({"tools": [{"name": "a", "description": "x" * 65_537}]}, 413, "tools[0].description"),
        ({"tools": [{"name": "a", "parameters": {"x": "x" * 65_536}}]}, 413, "tools[0].parameters"),
        ({"context": [{"description": "a", "value": TEXT}]}, 413, "context"),
        ({"context": [{"value": "a"}]}, 400, "context[0].description"),
        ({"forwardedProps": {"model": "gpt-9"}}, 400, "forwardedProps.model"),
        ({"forwardedProps": {"model": 9}}, 400, "forwardedProps.model"),
        ({"forwardedProps": {"limits": {"calls": 8}}}, 400, "forwardedProps.limits.calls"),
        ({"forwardedProps": {"limits": {"tools": 1}}}, 400, "forwardedProps.limits.tools"),
        ({"forwardedProps": {"time_zone": "Mars/Base"}}, 400, "forwardedProps.time_zone"),
        ({"forwardedProps": {"source": "fax"}}, 400, "forwardedProps.source"),
        ({"forwardedProps": {"memory": 0}}, 400, "forwardedProps.memory"),
        ({"forwardedProps": {"specialists": "web"}}, 400, "forwardedProps.specialists"),
        ({"forwardedProps": {"system": TEXT}}, 413, "forwardedProps.system"),
        ({"resume": [{"interruptId": "a", "status": "perhaps"}]}, 400, "resume[0].status"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_rejection_names_the_field(body: Mapping[str, Any], status: int, field: str) -> None:
    with pytest.raises(BadRequest) as raised:
        parse_body(**body)
    assert (raised.value.status, raised.value.field) == (status, field)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"threadId":"a","runId":"b"}'])
def test_a_body_that_is_not_a_request(body: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(body, "me", SETTINGS, MODELS)
    assert caught.value.status == 400


# Answers to interrupts


def parse_answers(*entries: Mapping[str, Any]) -> list[InterruptAnswer]:
    return parse_resume(parse_body(messages=[], resume=list(entries))[2].resume)


def test_answers_to_interrupts() -> None:
    assert parse_answers(
        {"interruptId": "t1.c1.7", "status": "resolved", "payload": {"approved": True, "editedArgs": {}}},
        {"interruptId": "t1.c2.7", "status": "resolved", "payload": {"approve": False}},
        {"interruptId": "t1.c3.7", "status": "resolved", "payload": True},
        {"interruptId": "t1.c4.7", "status": "cancelled", "payload": None},
        {"interruptId": "somebody else's", "status": "cancelled"},
    ) == [
        InterruptAnswer("t1.c1.7", "t1", "c1", 7, approve=True),
        InterruptAnswer("t1.c2.7", "t1", "c2", 7, approve=False),
        InterruptAnswer("t1.c3.7", "t1", "c3", 7, approve=True),
        InterruptAnswer("t1.c4.7", "t1", "c4", 7, approve=None),
        InterruptAnswer("somebody else's", "", "", 0, approve=None),
    ]


@pytest.mark.parametrize("payload", [None, {}, {"approved": "yes"}, "yes", 1, [True], {"approve": None}])
def test_answers_in_other_words_than_asked_for(payload: Any) -> None:
    with pytest.raises(BadRequest, match=r"resume\[0\]\.payload must be") as caught:
        parse_answers({"interruptId": "t1.c1.7", "status": "resolved", "payload": payload})
    assert caught.value.field == "resume[0].payload"


def test_an_interrupt_is_answered_once() -> None:
    with pytest.raises(BadRequest, match="twice"):
        parse_answers({"interruptId": "a", "status": "cancelled"}, {"interruptId": "a", "status": "cancelled"})


def test_what_was_said_behind_a_call_is_new() -> None:
    call = {"role": "assistant", "toolCalls": [tool_call("t1.c1", "sends", "{}")]}
    found = messages({"role": "user", "content": "Send it."}, call, {"role": "user", "content": "No, wait."})
    assert messages_since(found, {"t1.c1"}) == ["No, wait."]
    assert messages_since(found, {"t1.c2"}) == []


# Responses

STARTED = [
    '{"type":"RUN_STARTED","threadId":"thread","runId":"run","protocolVersion":"1.0"}',
    '{"type":"CUSTOM","name":"turn","value":{"turnId":"t1","conversationId":"thread","model":"player"}}',
]
USAGE_FIELDS = '"usage":[{"model":"player","inputTokens":10,"outputTokens":5,"totalTokens":15}]'


def finished(more: str = "", outcome: str = '{"type":"success"}', calls: int = 0, stop: str = "complete") -> str:
    result = f'{{"stopReason":"{stop}","calls":{calls},"passes":1,"totalMs":20}}'
    run = '"threadId":"thread","runId":"run"'
    return f'{{"type":"RUN_FINISHED",{run},"result":{result},"outcome":{outcome}{more}}}'


def text(number: int, *deltas: str) -> list[str]:
    message = f'"messageId":"t1.{number}"'
    return [
        f'{{"type":"TEXT_MESSAGE_START",{message},"role":"assistant"}}',
        *(f'{{"type":"TEXT_MESSAGE_CONTENT",{message},"delta":"{delta}"}}' for delta in deltas),
        f'{{"type":"TEXT_MESSAGE_END",{message}}}',
    ]


def reasoning(number: int, *deltas: str) -> list[str]:
    message = f'"messageId":"t1.{number}"'
    return [
        f'{{"type":"REASONING_START",{message}}}',
        f'{{"type":"REASONING_MESSAGE_START",{message},"role":"reasoning"}}',
        *(f'{{"type":"REASONING_MESSAGE_CONTENT",{message},"delta":"{delta}"}}' for delta in deltas),
        f'{{"type":"REASONING_MESSAGE_END",{message}}}',
        f'{{"type":"REASONING_END",{message}}}',
    ]


def call(call_id: str, name: str, params: str, parent: int) -> list[str]:
    return [
        f'{{"type":"TOOL_CALL_START","toolCallId":"{call_id}","toolCallName":"{name}","parentMessageId":"t1.{parent}"}}',
        f'{{"type":"TOOL_CALL_ARGS","toolCallId":"{call_id}","delta":{json.dumps(params, ensure_ascii=False)}}}',
        f'{{"type":"TOOL_CALL_END","toolCallId":"{call_id}"}}',
    ]


def tool_result(number: int, call_id: str, content: str, metadata: str) -> str:
    ids = f'"messageId":"t1.{number}","toolCallId":"{call_id}"'
    return f'{{"type":"TOOL_CALL_RESULT",{ids},"content":"{content}","role":"tool","metadata":{{{metadata}}}}}'


def custom(name: str, value: str) -> str:
    return f'{{"type":"CUSTOM","name":"{name}","value":{{{value}}}}}'


def frames(*events: Event, encoder: Encoder | None = None) -> list[str]:
    """The data of the frames for these events, each on its own, which follow the protocol."""
    encoder = encoder or Encoder(WANTED, "t1", "player")
    stream = "".join(encoder.encode([event]).decode() for event in events)
    verify(stream)
    return [frame.removeprefix("data: ") for frame in stream.removesuffix("\n\n").split("\n\n")]


def after_start(*events: Event) -> list[str]:
    found = frames(START, *events)
    assert found[:2] == STARTED
    return found[2:]


def test_a_turn_literally() -> None:
    citations = (Citation("1", "Bern", "https://example.org/bern"), Citation("2", "A book"))
    params, content = {"city": "Zürich"}, "Sunny.\n“Yes”"
    assert after_start(
        Notice("stand_in", "No model."),
        Thinking("Hm"),
        Thinking("…"),
        Token("I "),
        Token("ask\ud800."),
        SpecialistStart("c1", "weather", params, "model"),
        SpecialistProgress("c1", "looking", 0.5),
        SpecialistProgress("c1", "still"),
        SpecialistResult("c1", "weather", params, content, citations, cached=False, ms=12),
        Token("It is fine."),
        Usage(10, 5, 4, estimated=True),
        done(calls=1),
    ) == [
        custom("notice", '"code":"stand_in","text":"No model."'),
        *reasoning(3, "Hm", "…"),
        *text(5, "I ", "ask\ufffd."),
        *call("t1.c1", "weather", '{"city":"Zürich"}', 5),
        custom("specialist_progress", '"toolCallId":"t1.c1","text":"looking","fraction":0.5'),
        custom("specialist_progress", '"toolCallId":"t1.c1","text":"still"'),
        tool_result(10, "t1.c1", "Sunny.\\n“Yes”", '"outcome":"ok","ms":12'),
        custom(
            "sources",
            '"toolCallId":"t1.c1","sources":[{"id":"1","title":"Bern","url":"https://example.org/bern"},'
            '{"id":"2","title":"A book"}]',
        ),
        *text(11, "It is fine."),
        finished(
            ',"usage":[{"model":"player","inputTokens":10,"outputTokens":5,"totalTokens":15,"cachedInputTokens":4}],'
            '"metadata":{"usageEstimated":true}',
            calls=1,
        ),
    ]


def test_a_token_within_a_message_is_one_frame() -> None:
    encoder = Encoder(WANTED, "t1", "player")
    encoder.encode([START, Token("a")])
    expected = b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"t1.2","delta":"b\\"\\n"}\n\n'
    assert encoder.encode([Token('b"\n')]) == expected


def test_calls_side_by_side_belong_to_one_message_and_later_ones_to_another() -> None:
    assert after_start(
        SpecialistStart("c1", "a", {}, "model"),
        SpecialistStart("c2", "b", {}, "model"),
        SpecialistResult("c2", "b", {}, "B", (), cached=True, ms=1),
        SpecialistResult("c1", "a", {}, "A", (), cached=False, ms=2),
        SpecialistError("c3", "?", None, "malformed", "the body is no JSON", 0),
        Thinking(""),
        done(),
    ) == [
        *call("t1.c1", "a", "{}", 2),
        *call("t1.c2", "b", "{}", 2),
        tool_result(4, "t1.c2", "B", '"outcome":"ok","ms":1,"cached":true'),
        tool_result(5, "t1.c1", "A", '"outcome":"ok","ms":2'),
        *call("t1.c3", "?", "{}", 6),
        tool_result(6, "t1.c3", "? failed - the body is no JSON", '"outcome":"malformed","ms":0'),
        finished(),
    ]


def test_calls_of_client_tools_are_left_to_the_client() -> None:
    assert after_start(Token("I paint."), ToolCall("call_t1_c1", "paint", {"color": "red"}), USAGE, done(calls=1)) == [
        *text(2, "I paint."),
        *call("call_t1_c1", "paint", '{"color":"red"}', 2),
        finished(f",{USAGE_FIELDS}", '{"type":"success","pendingToolCallIds":["call_t1_c1"]}', calls=1),
    ]


@pytest.mark.parametrize(
    ("stop_reason", "outcome"),
    [("cancelled", "cancelled"), ("deadline", "success"), ("call_limit", "success"), ("length", "success")],
)
def test_outcomes(stop_reason: StopReason, outcome: str) -> None:
    assert after_start(Token(""), Thinking(""), done(stop_reason)) == [
        finished(outcome=f'{{"type":"{outcome}"}}', stop=stop_reason)
    ]


def test_an_error_closes_what_is_open() -> None:
    assert after_start(Token("Half"), USAGE, Error("model_failed", "It stopped.", recoverable=True)) == [
        *text(2, "Half"),
        f'{{"type":"RUN_ERROR","message":"It stopped.","code":"model_failed",{USAGE_FIELDS}}}',
    ]


def test_the_parent_is_repeated() -> None:
    encoder = Encoder(RequestOptions("thread", "run", "before", "thread"), "t1", "player")
    assert json.loads(frames(START, encoder=encoder)[0])["parentRunId"] == "before"


# Approvals


def approval(call_id: str, params: Any = None, preview: str | None = None) -> ApprovalRequired:
    return ApprovalRequired(call_id, "sends", params or {"to": "Ada"}, UNTIL, preview)


def test_an_approval_ends_the_run() -> None:
    encoder = Encoder(WANTED, "t1", "player")
    *found, last = frames(START, Token("I send."), approval("c1"), encoder=encoder)
    assert found == [*STARTED, *text(2, "I send."), *call("t1.c1", "sends", '{"to":"Ada"}', 2)]
    assert encoder.closed
    assert json.loads(last) == {
        "type": "RUN_FINISHED",
        "threadId": "thread",
        "runId": "run",
        "outcome": {
            "type": "interrupt",
            "interrupts": [
                {
                    "id": "t1.c1.3",
                    "reason": "tool_call",
                    "message": 'May sends be called with {"to":"Ada"}?',
                    "toolCallId": "t1.c1",
                    "responseSchema": {
                        "type": "object",
                        "properties": {"approved": {"type": "boolean"}},
                        "required": ["approved"],
                    },
                    "expiresAt": "2026-11-21T10:20:30Z",
                }
            ],
        },
    }


def interrupts(*events: Event) -> list[tuple[str, str]]:
    """IDs and messages of the interrupts with which a run ends."""
    encoder = Encoder(WANTED, "t1", "player")
    [*_, last] = verify(encoder.encode([START, *events]).decode())
    assert encoder.closed == (last["type"] == "RUN_FINISHED")
    return [(one["id"], one["message"]) for one in last.get("outcome", {}).get("interrupts", ())]


def test_interrupts() -> None:
    both = interrupts(approval("c1"), approval("c2"), SpecialistStart("c3", "echo", {}, "model"))
    assert [interrupt_id for interrupt_id, _ in both] == ["t1.c1.4", "t1.c2.4"]
    assert interrupts(approval("c1"), SpecialistStart("c1", "sends", {"to": "Ada"}, "model")) == []
    assert interrupts(approval("c1", {"a": "x" * 600}))[0][1] == (
        f'May sends be called with {{"a":"{"x" * 492}…}}? '
        "This is cut; the whole stands in the tool call, and at GET /v1/turns/t1."
    )
    assert interrupts(approval("c1", preview="Send a letter\nto Ada Lovelace"))[0][1] == (
        'Send a letter\nto Ada Lovelace\n\nMay sends be called with {"to":"Ada"}?'
    )


def test_the_rest_of_a_turn_is_a_run_of_its_own() -> None:
    encoder = Encoder(RequestOptions("thread", "run2", None, "thread"), "t1", "player", 3, {"t1.c1"})
    assert frames(
        SpecialistStart("c1", "sends", {"to": "Ada"}, "model"),
        SpecialistResult("c1", "sends", {"to": "Ada"}, "sent", (), cached=False, ms=2),
        Token("It is sent."),
        encoder=encoder,
    ) == [
        STARTED[0].replace('"run"', '"run2"'),
        STARTED[1],
        tool_result(5, "t1.c1", "sent", '"outcome":"ok","ms":2'),
        *text(6, "It is sent.")[:-1],
    ]


def test_rejections() -> None:
    error = BadRequest("No.", "resume", code="gone", status=410)
    run_error = {"type": "RUN_ERROR", "message": "No.", "code": "gone"}
    assert ag_ui.encode_rejection(error) == (410, run_error)
    assert verify(ag_ui.encode_failed_run(WANTED, error).decode()) == [json.loads(STARTED[0]), run_error]


# Any order of events


WHOLE: Sequence[Event] = (
    START,
    Notice("trimmed", "The oldest 3 messages no longer fit and were left out."),
    Thinking("Let me "),
    Thinking("see."),
    Token("I ask "),
    Token("two."),
    SpecialistStart("c1", "weather", {"city": "Bern"}, "model"),
    SpecialistStart("c2", "echo", {"text": "日本"}, "model"),
    SpecialistProgress("c1", "half", 0.5),
    SpecialistError("c3", "nobody", {}, "unknown", "there is no such specialist", 0),
    SpecialistResult("c2", "echo", {"text": "日本"}, "日本", (Citation("1", "日"),), cached=False, ms=3),
    SpecialistResult("c1", "weather", {"city": "Bern"}, "Sunny.", (), cached=True, ms=9),
    Thinking("Good."),
    Token("Sunny"),
    Token(", and 日本."),
    ToolCall("call_t1_c4", "paint", {}),
    USAGE,
    done(calls=4),
)


def splits(events: Sequence[Event]) -> Iterator[list[Sequence[Event]]]:
    """Whole, every cut in two, and one by one."""
    for n in range(len(events)):
        yield [part for part in (events[:n], events[n:]) if part]
    yield [[event] for event in events]


def test_how_events_are_put_together_changes_nothing() -> None:
    streams = set()
    for batches in splits(WHOLE):
        encoder = Encoder(WANTED, "t1", "player")
        streams.add(b"".join(map(encoder.encode, batches)))
    assert len(streams) == 1
    assert [event["type"] for event in verify(streams.pop().decode())].count("TOOL_CALL_START") == 4


@pytest.mark.parametrize("last", [done("cancelled"), Error("shutdown", "Bye.", recoverable=True)])
def test_a_turn_may_end_behind_any_event(last: Done | Error) -> None:
    for n in range(1, len(WHOLE) - 2):
        verify(Encoder(WANTED, "t1", "player").encode([*WHOLE[:n], last]).decode())


def test_no_order_of_events_breaks_the_protocol() -> None:
    kinds: Sequence[Event] = (
        Token("a"),
        Thinking("b"),
        SpecialistStart("c1", "a", {}, "model"),
        SpecialistError("c2", "b", None, "malformed", "no", 1),
        ToolCall("call_1", "d", {}),
        Notice("steered", "x"),
    )
    for order in itertools.permutations(kinds):
        verify(Encoder(WANTED, "t1", "player").encode([START, *order, done()]).decode())
