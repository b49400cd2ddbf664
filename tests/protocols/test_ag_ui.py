"""AG-UI without a server: the fields of a request, and the events of a run."""

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from ag_ui_stream import verify

from brain import events as ev
from brain.errors import BadRequest
from brain.messages import Attachment, Call
from brain.protocols import ag_ui
from brain.protocols.ag_ui import Encoder, InterruptAnswer, RequestOptions, messages_since, parse, parse_resume
from brain.protocols.common import Client, ClientMessage
from brain.settings import read
from brain.turn_request import Tool, TurnRequest

SETTINGS = read({"BRAIN_TIME_ZONE": "UTC", "BRAIN_CALLS": "7"})
PNG = b"\x89PNG\r\n\x1a\n"
RUN = RequestOptions("thread", "run", None, "thread")
START = ev.TurnStart("t1", "thread", "player", "mono", ev.Limits())


def parse_body(**body: Any) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """A run with one question, and what else is in the body."""
    usual = {"threadId": "thread", "runId": "run", "messages": [{"id": "1", "role": "user", "content": "Hi"}]}
    return parse(json.dumps({**usual, **body}).encode(), Client("me", SETTINGS, frozenset({"builtin"})))


def messages(*messages: Mapping[str, Any], **body: Any) -> list[ClientMessage]:
    return parse_body(messages=[{"id": str(n), **message} for n, message in enumerate(messages)], **body)[1]


def tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def data_of(data: bytes, mime_type: str) -> dict[str, str]:
    return {"type": "data", "value": base64.b64encode(data).decode(), "mimeType": mime_type}


# Requests


def test_fields() -> None:
    request = TurnRequest(
        "Hi", "me", ev.Limits(calls=7), ("bracket", "function_call"), "UTC", conversation_id="thread", asks_person=True
    )
    assert parse_body() == (request, [ClientMessage("user", "Hi")], RUN)
    assert parse_body(shiny="new") == parse_body()
    for props in (5, "text", [1], {}, {"limits": None, "command": {"of": "others"}}):
        assert parse_body(forwardedProps=props) == parse_body()
    schema = {"type": "object", "properties": {"color": {"type": "string"}}}
    found, messages, options = parse_body(
        parentRunId="before",
        tools=[{"name": "paint", "description": "Paints.", "parameters": schema}, {"name": "go", "parameters": None}],
        context=[{"description": "The page", "value": "Cart"}, {"description": "Currency", "value": "CHF"}],
    )
    assert found.tools == (Tool("paint", "Paints.", schema), Tool("go"))
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


def test_messages_of_all_roles() -> None:
    image = {"type": "image", "source": data_of(PNG, "image/png"), "metadata": {"filename": "../scan.png"}}
    audio = {"type": "audio", "source": data_of(b"RIFF", "audio/wav"), "metadata": None}
    linked = {"type": "document", "source": {"type": "url", "value": "data:text/csv;base64,YSxi"}}
    binary = {"type": "binary", "mimeType": "text/csv", "data": "YSxi", "filename": "f"}
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
        {"role": "user", "content": [image, audio, linked, binary]},
    ) == [
        ClientMessage("system", "Be kind."),
        ClientMessage("system", "Be short."),
        ClientMessage("user", "Weather?"),
        ClientMessage("assistant", "I ask.", calls=(Call("weather", params={"city": "Bern"}, id="a", by="client"),)),
        ClientMessage("tool", "Sunny.", call_id="a"),
        ClientMessage("tool", "No such file.", call_id="b"),
        ClientMessage("tool", "In parts.", call_id="c"),
        ClientMessage("assistant"),
        ClientMessage("user", "And\nnow?"),
        ClientMessage(
            "user",
            attachments=(
                Attachment(0, "scan.png", "image/png", PNG),
                Attachment(0, "audio", "audio/wav", b"RIFF"),
                Attachment(0, "document", "text/csv", b"a,b"),
                Attachment(0, "f", "text/csv", b"a,b"),
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("arguments", "params"),
    [(" ", {}), ('{"a":[1]}', {"a": [1]}), ('{"a":', {"arguments": '{"a":'}), ("[1]", {"arguments": [1]})],
)
def test_arguments_that_are_no_object_stay_readable(arguments: str, params: dict[str, Any]) -> None:
    found = messages({"role": "assistant", "toolCalls": [tool_call("a", "f", arguments)]})
    assert found[0].calls == (Call("f", params=params, id="a", by="client"),)


def message(role: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, **more}]}


def part(**fields: Any) -> dict[str, Any]:
    return message("user", content=[{"type": "text", "text": "Hi"}, fields])


PART = "messages[0].content[1]"


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        *[({"threadId": thread_id}, 400, "threadId") for thread_id in ("", "a\nb", "x" * 257)],
        ({"runId": 5}, 400, "runId"),
        ({"parentRunId": ""}, 400, "parentRunId"),
        (message("activity", content={}), 400, "messages"),
        (message("user", content={}), 400, "messages[0].content"),
        (message("tool", toolCallId="a", error="x" * 200_001), 413, "messages[0].error"),
        (part(type="text"), 400, f"{PART}.text"),
        (part(type="smell"), 400, f"{PART}.type"),
        (part(type="image"), 400, f"{PART}.source"),
        (part(type="document", source={"type": "file", "value": "file-1"}), 400, f"{PART}.source"),
        (part(type="binary", mimeType="image/png", url="https://x"), 400, PART),
        (part(type="image", source={"type": "data", "value": ""}), 400, f"{PART}.source.value"),
        ({"tools": [{"name": "a"}, {"name": "a"}]}, 400, "tools[1].name"),
        ({"context": [{"description": "a", "value": "x" * 200_001}]}, 413, "context"),
        ({"context": [{"value": "a"}]}, 400, "context[0].description"),
        ({"resume": [{"interruptId": "a", "status": "perhaps"}]}, 400, "resume[0].status"),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_a_rejection_names_the_field(body: Mapping[str, Any], status: int, field: str) -> None:
    with pytest.raises(BadRequest) as raised:
        parse_body(**body)
    assert (raised.value.status, raised.value.field) == (status, field)


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
    for payload in (None, {}, {"approved": "yes"}, "yes", 1, [True], {"approve": None}):
        with pytest.raises(BadRequest) as raised:
            parse_answers({"interruptId": "t1.c1.7", "status": "resolved", "payload": payload})
        assert raised.value.field == "resume[0].payload"
    with pytest.raises(BadRequest):  # a call is decided once
        parse_answers({"interruptId": "a", "status": "cancelled"}, {"interruptId": "a", "status": "cancelled"})


def test_user_messages_after_a_call_are_new() -> None:
    call = {"role": "assistant", "toolCalls": [tool_call("t1.c1", "sends", "{}")]}
    found = messages({"role": "user", "content": "Send it."}, call, {"role": "user", "content": "No, wait."})
    assert messages_since(found, {"t1.c1"}) == ["No, wait."]
    assert messages_since(found, {"t1.c2"}) == []


# Responses

STARTED = """
{"type":"RUN_STARTED","threadId":"thread","runId":"run","protocolVersion":"1.0"}
{"type":"CUSTOM","name":"turn","value":{"turnId":"t1","conversationId":"thread","model":"player"}}
"""
DONE = ev.Done("complete", "m1", "text", 0, 1, 3, 20)


def frames(*events: ev.Event, encoder: Encoder | None = None) -> list[str]:
    """The data of the frames for these events, each on its own, which follow the protocol."""
    encoder = encoder or Encoder(RUN, "t1", "player")
    stream = "".join(encoder.encode([event]).decode() for event in events)
    verify(stream)
    return [frame.removeprefix("data: ") for frame in stream.removesuffix("\n\n").split("\n\n")]


def lines(expected: str) -> list[str]:
    """The lines of a literal; those with an indent belong to the line before."""
    return re.sub(r"\n +", "", expected).strip().split("\n")


def test_a_call_after_reasoning_has_a_message_of_its_own() -> None:
    calls = [ev.SpecialistStart(f"c{n}", "a", {}, "model") for n in (1, 2)]
    found = [json.loads(one) for one in frames(START, ev.Thinking("Hm"), *calls)]
    assert [one["parentMessageId"] for one in found if "parentMessageId" in one] == ["t1.3", "t1.3"]


def test_other_ends() -> None:
    encoder = Encoder(RequestOptions("thread", "run", "before", "thread"), "t1", "player")
    cancelled = ev.Done("cancelled", "m1", "", 0, 1, 3, 20)
    started, _, last = map(json.loads, frames(START, ev.Token(""), ev.Thinking(""), cancelled, encoder=encoder))
    assert started["parentRunId"] == "before"
    assert last["outcome"] == {"type": "cancelled"}
    failure = frames(START, ev.Usage(10, 5, None, False), ev.Error("model_failed", "It stopped.", recoverable=True))[-1]
    assert failure == (
        '{"type":"RUN_ERROR","message":"It stopped.","code":"model_failed",'
        '"usage":[{"model":"player","inputTokens":10,"outputTokens":5,"totalTokens":15}]}'
    )
    error = BadRequest("No.", "resume", code="gone", status=410)
    run_error = {"type": "RUN_ERROR", "message": "No.", "code": "gone"}
    assert ag_ui.encode_rejection(error) == (410, run_error)
    assert verify(ag_ui.encode_failed_run(RUN, error).decode())[1:] == [run_error]


# Approvals


def approval(call_id: str, params: Any = None, preview: str | None = None) -> ev.ApprovalRequired:
    until = datetime(2026, 11, 21, 10, 20, 30, tzinfo=UTC)
    return ev.ApprovalRequired(call_id, "sends", params or {"to": "Ada"}, until, preview)


def interrupts(*events: ev.Event) -> list[tuple[str, str]]:
    """IDs and messages of the interrupts with which a run ends."""
    encoder = Encoder(RUN, "t1", "player")
    [*_, last] = verify(encoder.encode([START, *events]).decode())
    assert encoder.closed == (last["type"] == "RUN_FINISHED")
    return [(one["id"], one["message"]) for one in last.get("outcome", {}).get("interrupts", ())]


def test_interrupts() -> None:
    both = interrupts(approval("c1"), approval("c2"), ev.SpecialistStart("c3", "echo", {}, "model"))
    assert [interrupt_id for interrupt_id, _ in both] == ["t1.c1.4", "t1.c2.4"]
    assert interrupts(approval("c1"), ev.SpecialistStart("c1", "sends", {"to": "Ada"}, "model")) == []
    assert interrupts(approval("c1", {"a": "x" * 6000}))[0][1] == f'Allow sends with {{"a":"{"x" * 6000}"}}?'
    preview = interrupts(approval("c1", preview="Send a letter\nto Ada Lovelace"))[0][1]
    assert preview == 'Send a letter\nto Ada Lovelace\n\nAllow sends with {"to":"Ada"}?'


def test_a_step_ends_with_its_run_and_starts_again_with_the_next() -> None:
    step = ev.Round(1, 20, "actor", "m")
    assert frames(START, step, approval("c1"))[-2] == '{"type":"STEP_FINISHED","stepName":"Round 1 of 20, actor"}'
    later = Encoder(RequestOptions("thread", "run2", None, "thread"), "t1", "player", 3, {"t1.c1"}, step)
    next_step, done = ev.Round(2, 20, "thinker", "m"), DONE
    steps = [json.loads(one).get("stepName") for one in frames(ev.Token("Sent."), next_step, done, encoder=later)]
    assert [name for name in steps if name] == ["Round 1 of 20, actor"] * 2 + ["Round 2 of 20, thinker"] * 2


def test_the_rest_of_a_turn_is_a_run_of_its_own() -> None:
    encoder = Encoder(RequestOptions("thread", "run2", None, "thread"), "t1", "player", 3, {"t1.c1"})
    assert frames(
        ev.SpecialistStart("c1", "sends", {"to": "Ada"}, "model"),
        ev.SpecialistResult("c1", "sends", {"to": "Ada"}, "sent", (), cached=False, ms=2),
        encoder=encoder,
    ) == lines(
        STARTED.replace('"run"', '"run2"').strip()
        + """
{"type":"TOOL_CALL_RESULT","messageId":"t1.5","toolCallId":"t1.c1","content":"sent","role":"tool",
  "metadata":{"outcome":"ok","ms":2}}
"""
    )
