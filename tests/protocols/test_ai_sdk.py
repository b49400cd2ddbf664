"""The Vercel AI SDK's protocol without a server: every field of a request, and every frame of a response."""

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from brain import events as ev
from brain.errors import BadRequest
from brain.messages import Attachment, Call
from brain.protocols.ai_sdk import Decision, Encoder, RequestOptions, SdkVersion, encode_rejection, parse
from brain.protocols.common import Client, ClientMessage
from brain.settings import read

START = ev.TurnStart("t1", "chat", "player", "mono", ev.Limits())
UNTIL = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
APPROVAL = ev.ApprovalRequired("c1", "sends", {"to": "Ann"}, UNTIL)
SENDS = ev.SpecialistStart("c1", "sends", {"to": "Ann"}, "model")
RESULT = ev.SpecialistResult("c1", "sends", {"to": "Ann"}, "sent", (), cached=False, ms=5)
DECLINED = ev.SpecialistError("c1", "sends", {"to": "Ann"}, "declined", "A person said no.", 5)
WAITS = ev.SpecialistStart("c2", "waits", {}, "model")
WAITED = ev.SpecialistResult("c2", "waits", {}, "waited", (), cached=False, ms=5)
SECOND = ev.ApprovalRequired("c3", "sends", {}, UNTIL)

STARTED = '{"type":"start","messageId":"m1","messageMetadata":{"turn_id":"t1","conversation_id":"chat"}}'
STEP, STEP_OVER, OVER = '{"type":"start-step"}', '{"type":"finish-step"}', "[DONE]"


def done(stop_reason: ev.StopReason = "complete") -> ev.Done:
    return ev.Done(stop_reason, "m1", "Hello.", 0, 1, 5, 9)


def split(stream: bytes) -> list[str]:
    """The data of each frame."""
    assert stream.endswith(b"\n\n")
    frames = stream.decode().removesuffix("\n\n").split("\n\n")
    assert all(frame.startswith("data: ") for frame in frames)
    return [frame.removeprefix("data: ") for frame in frames]


def frames(*events: ev.Event, version: SdkVersion = 5) -> list[str]:
    """The frames after the first one, which are the same however the events come together."""
    together, one_by_one = Encoder(version, "m1"), Encoder(version, "m1")
    stream = together.encode([START, *events])
    batches = [one_by_one.encode([event]) for event in [START, *events][: together.event_count]]
    assert (b"".join(batches), one_by_one.closed) == (stream, together.closed)
    first, *rest = split(stream)
    assert first == STARTED
    return rest


def types(data: Sequence[str]) -> str:
    """The types of frames, with the three frames of a call as one."""
    names = " ".join(json.loads(one)["type"] for one in data if one != OVER)
    return names.replace("tool-input-start tool-input-delta tool-input-available", "call")


def text(kind: str, number: int, *deltas: str) -> list[str]:
    part = f'"id":"{number}"'
    return [
        f'{{"type":"{kind}-start",{part}}}',
        *(f'{{"type":"{kind}-delta",{part},"delta":{json.dumps(delta, ensure_ascii=False)}}}' for delta in deltas),
        f'{{"type":"{kind}-end",{part}}}',
    ]


def call(name: str, call_id: str, params: str, executed: str = '"providerExecuted":true,') -> list[str]:
    fields = f'"toolCallId":"t1.{call_id}","toolName":"{name}",{executed}"dynamic":true'
    delta = json.dumps(params, ensure_ascii=False)
    return [
        f'{{"type":"tool-input-start",{fields}}}',
        f'{{"type":"tool-input-delta","toolCallId":"t1.{call_id}","inputTextDelta":{delta}}}',
        f'{{"type":"tool-input-available",{fields},"input":{params}}}',
    ]


# Responses


def test_an_answer_that_continues_a_message_has_no_id() -> None:
    (start,) = split(Encoder(5, None).encode([START]))
    assert json.loads(start) == {"type": "start", "messageMetadata": {"turn_id": "t1", "conversation_id": "chat"}}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([WAITED], "start-step call tool-output-available"),
        ([SENDS, WAITS, RESULT, WAITED, ev.SpecialistStart("c4", "echo", {}, "model"),
          ev.Error("internal", "Oh.", True)],
         "start-step call call tool-output-available tool-output-available finish-step start-step call "
         "tool-output-error finish-step start-step finish-step error"),
        ([ev.Token("Hel"), ev.Error("model_failed", "It failed.", True)],
         "start-step text-start text-delta text-end finish-step error"),
        ([WAITS, done("cancelled")],
         "start-step call tool-output-error finish-step start-step finish-step message-metadata abort"),
    ],
)  # fmt: skip
def test_steps_end_when_all_calls_have_outputs(events: list[ev.Event], expected: str) -> None:
    assert types(frames(*events)) == expected


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [
        ("complete", "stop"),
        ("length", "length"),
        ("call_limit", "stop"),
        ("deadline", "other"),
        ("content_filter", "content-filter"),
    ],
)
def test_newer_clients_read_why_it_finished(stop_reason: ev.StopReason, finish_reason: str) -> None:
    finish: dict[str, Any] = {"type": "finish", "messageMetadata": {"stop_reason": stop_reason}}
    assert json.loads(frames(done(stop_reason))[0]) == finish
    for version in (6, 7):
        found = frames(done(stop_reason), version=version)[0]
        assert json.loads(found) == {**finish, "finishReason": finish_reason}


# Approvals


def approval(state: str) -> str:
    return (
        '{"type":"data-approval","id":"t1.c1","data":{"turnId":"t1","callId":"c1","name":"sends",'
        f'"params":{{"to":"Ann"}},"expiresAt":"2026-11-21T12:00:00+00:00","state":{state}}}}}'
    )


def test_version_5_has_approvals_in_a_part_and_reads_on() -> None:
    answered = "call tool-output-available finish-step start-step finish-step finish"
    rows: list[tuple[list[ev.Event], str, str]] = [
        ([APPROVAL, SENDS, RESULT, done()], "approved", answered),
        ([APPROVAL, DECLINED], "declined", "call tool-output-error"),
        ([APPROVAL, done("cancelled")], "declined", "finish-step message-metadata abort"),
    ]
    for events, state, rest in rows:
        found = frames(*events)
        assert found[:3] == [STEP, approval('"asked"'), approval(f'"{state}"')]
        assert types(found[3:]) == rest
    preview = ev.ApprovalRequired("c1", "sends", {"to": "Ann"}, UNTIL, "Send a letter\nto Ann")
    assert frames(preview)[1] == approval('"asked","text":"Send a letter\\nto Ann"')


@pytest.mark.parametrize("version", [6, 7])
def test_newer_versions_end_the_stream_for_approvals(version: SdkVersion) -> None:
    question = '{"type":"tool-approval-request","approvalId":"t1.c1","toolCallId":"t1.c1"}'
    pause = [STEP_OVER, '{"type":"finish","finishReason":"tool-calls"}', OVER]
    opening = [STEP, *call("sends", "c1", '{"to":"Ann"}', "")]
    assert frames(APPROVAL, SENDS, RESULT, version=version) == [*opening, question, *pause]
    with_preview = ev.ApprovalRequired("c1", "sends", {"to": "Ann"}, UNTIL, "Send a letter\nto Ann")
    preview = '{"type":"data-preview","id":"t1.c1","data":{"toolCallId":"t1.c1","text":"Send a letter\\nto Ann"}}'
    assert frames(with_preview, version=version) == [*opening, preview, question, *pause]


def test_the_stream_ends_when_all_open_calls_wait() -> None:
    encoder = Encoder(6, "m1")
    closed = [(encoder.encode([event]), encoder.closed)[1] for event in (START, WAITS, APPROVAL, SECOND, WAITED)]
    assert closed == [False, False, False, False, True]
    encoder = Encoder(6, "m1", lambda call_ids: "c1" not in call_ids)  # already decided
    assert types(split(encoder.encode([START, APPROVAL, SENDS, RESULT, ev.Token("Sent."), done()]))) == (
        "start start-step call tool-approval-request tool-output-available finish-step start-step text-start "
        "text-delta text-end finish-step finish"
    )


def rest(earlier: Sequence[ev.Event], decided: set[str], *later: ev.Event, version: SdkVersion = 6) -> list[str]:
    """The stream that a client reads after its decisions on a turn with these earlier events."""
    encoder = Encoder(version, "m1")
    encoder.skip([*earlier, *later], decided)
    assert (encoder.event_count, encoder.closed) == (len(earlier), False)
    return split(b"".join(encoder.encode([event]) for event in later))


@pytest.mark.parametrize(
    ("version", "earlier", "decided", "later", "expected"),
    [
        (6, [START, ev.Token("I"), APPROVAL], {"c1"}, [SENDS, RESULT, ev.Thinking("So"), ev.Token("Sent."), done()],
         "start tool-output-available start-step reasoning-start reasoning-delta reasoning-end text-start text-delta "
         "text-end finish-step finish"),
        (6, [START, APPROVAL], {"c1"}, [DECLINED], "start tool-output-denied"),
        (7, [START, APPROVAL], {"c1"}, [DECLINED], "start tool-approval-response tool-output-denied"),
        (7, [START, APPROVAL], {"c1"}, [SENDS], "start tool-approval-response"),
        (6, [START, APPROVAL], {"c1"}, [SENDS, RESULT, SECOND],
         "start tool-output-available start-step call tool-approval-request finish-step finish"),
        (6, [START, APPROVAL, SENDS, RESULT, SECOND], {"c3"}, [done()],
         "start tool-output-error start-step finish-step finish"),
    ],
)  # fmt: skip
def test_the_next_stream_continues_where_the_first_ended(
    version: SdkVersion, earlier: list[ev.Event], decided: set[str], later: list[ev.Event], expected: str
) -> None:
    assert types(rest(earlier, decided, *later, version=version)) == expected


def test_decisions_before_the_stream_ended() -> None:
    encoder = Encoder(6, "m1", lambda _: False)
    encoder.skip([START, WAITS, APPROVAL], {"c1"})
    assert (encoder.event_count, encoder.closed) == (3, False)
    assert types(split(encoder.encode([WAITED, SENDS]))) == "start tool-output-available"


# Requests


def message(role: str, *parts: dict[str, Any] | str) -> dict[str, Any]:
    return {
        "role": role,
        "parts": [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts],
    }


def request(*messages: dict[str, Any] | str, **more: Any) -> tuple[Any, list[ClientMessage], RequestOptions]:
    bodies = [message("user", one) if isinstance(one, str) else one for one in messages]
    body = json.dumps({"id": "chat", "messages": bodies, "trigger": "submit-message", **more})
    return parse(body.encode(), Client("ann", read({}), frozenset({"player", "other"})))


def tool(state: str | None, **more: Any) -> dict[str, Any]:
    part = {"type": "dynamic-tool", "toolName": "web", "toolCallId": "t0.c1", "input": {"query": "brains"}}
    return {**part, "state": state, **more}


def file(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "file", "mediaType": "text/plain", "url": url, **more}


def decided(call_id: str, **approval: Any) -> dict[str, Any]:
    return tool("approval-responded", approval={"id": call_id, **approval})


def test_options() -> None:
    found, messages, options = request("Hello", data={"of": "the application"})
    assert (found.message, found.user, found.asks_person, found.conversation_id) == ("Hello", "ann", True, "chat")
    assert messages == [ClientMessage("user", "Hello")]
    assert options == RequestOptions(5, resumable=False, continues=False, decisions=())
    options = request("Hello", resumable=True, sdk_version=7)[2]
    assert options == RequestOptions(7, resumable=True, continues=False, decisions=())


def test_a_history() -> None:
    count = {"type": "tool-count", "toolCallId": "c3", "state": "output-available", "input": {}, "output": {"n": 3}}
    skipped = [tool(state) for state in ("input-streaming", "input-available", "approval-requested", None, "new")]
    skipped += [tool("output-error", toolName="?", errorText="Not JSON."),
                {"type": "tool-", "state": "output-error", "errorText": "No name."},
                tool("output-available", output="so far", preliminary=True)]  # fmt: skip
    messages = request(
        message("system", "Be kind."),
        "Hello",
        message(
            "assistant",
            {"type": "step-start"},
            {"type": "reasoning", "text": "Hm.", "state": "done"},
            "Let me ",
            {"type": "data-notice", "data": {"text": "?"}},
            "see.",
            tool("output-available", output="They are soft."),
            tool("output-error", errorText="It broke.", input=None),
            {"type": "source-url", "sourceId": "s", "url": "https://example.org", "title": "A page"},
            "Soft. ",
            count,
            tool("output-denied"),
            *skipped,
        ),
        message("assistant", *skipped),
        "Why?",
    )[1]
    place = "messages[2].parts[{}]".format
    web = {"query": "brains"}
    first = (Call("web", params=web, id=place(5), by="client"), Call("web", params={}, id=place(6), by="client"))
    second = (Call("count", params={}, id=place(9), by="client"), Call("web", params=web, id=place(10), by="client"))
    assert messages == [
        ClientMessage("system", "Be kind."),
        ClientMessage("user", "Hello"),
        ClientMessage("assistant", "Let me see.", calls=first),
        ClientMessage("tool", "They are soft.", call_id=place(5)),
        ClientMessage("tool", "It broke.", call_id=place(6)),
        ClientMessage("assistant", "Soft. ", calls=second),
        ClientMessage("tool", '{"n":3}', call_id=place(9)),
        ClientMessage("tool", "The user declined this call.", call_id=place(10)),
        ClientMessage("user", "Why?"),
    ]


def test_files_come_in_their_urls() -> None:
    png = b"\x89PNG\r\n\x1a\n"
    picture = file(f"data:image/png;base64,{base64.b64encode(png).decode()}", filename="a/ticket.png")
    (found,) = request(message("user", picture, "What is it?", file("data:text/plain,a%20b"), "And this?"))[1]
    assert found.text == "What is it?\nAnd this?"
    assert found.attachments == (
        Attachment(0, "ticket.png", "image/png", png),
        Attachment(0, "file", "text/plain", b"a b"),
    )


def test_the_question_is_the_newest_of_the_user_and_an_answer_can_be_continued() -> None:
    found, _, options = request("One", message("assistant", "1"), "Two", message("assistant", "2"))
    assert (found.message, options.continues) == ("Two", True)
    found, _, options = request("Hello", message("assistant", "Hel"), "Go on")
    assert (found.message, options.continues) == ("Go on", False)


def test_decisions_of_the_newest_message() -> None:
    yes, no = decided("t1.c1", approved=True), decided("t1.c2", approved=False, reason="No.")
    old = tool("output-available", output="sent", approval={"id": "t1.c0", "approved": True})
    assert request("Hello", message("assistant", old, yes, no))[2].decisions == (
        Decision("t1", "c1", approve=True),
        Decision("t1", "c2", approve=False),
    )
    assert request("Hello", message("assistant", yes), "Go on")[2].decisions == ()
    assert request("Hello", message("user", yes | {"type": "text"}))[2].decisions == ()


DEEP: Any = {}
for _ in range(70):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    ("messages", "more", "status", "field"),
    [
        (["Hi"], {"id": "no spaces"}, 400, "id"),
        (["Hi"], {"sdk_version": 4}, 400, "sdk_version"),
        ([message("user", {"type": "video"})], {}, 400, "messages[0].parts[0].type"),
        ([message("user", file("data:,"))], {}, 400, "messages[0].parts[0].url"),
        ([message("assistant", "x" * 200_001), "Hi"], {}, 413, "messages[0].parts[0].text"),
        ([message("assistant", *["x"] * 1001)], {}, 413, "messages[0].parts"),
        ([message("assistant", tool("output-available", output=DEEP)), "Hi"], {}, 400, "messages[0].parts[0].output"),
        ([message("assistant", tool("output-error", input=DEEP)), "Hi"], {}, 400, "messages[0].parts[0].input"),
        (["Hi", message("assistant", decided("t1.c1"))], {}, 400, "messages[1].parts[0].approval.approved"),
        (["Hi", message("assistant", decided("aitxt-1", approved=True))], {}, 400, "messages[1].parts[0].approval.id"),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_a_rejection_names_the_field(messages: list[Any], more: dict[str, Any], status: int, field: str) -> None:
    with pytest.raises(BadRequest) as raised:
        request(*messages, **more)
    assert (raised.value.status, raised.value.field) == (status, field)
    assert encode_rejection(raised.value) == (status, raised.value.message.encode())
