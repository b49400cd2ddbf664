"""The Vercel AI SDK's protocol without any I/O: what its clients ask, and every frame that they get."""

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

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
    TurnStart,
    Usage,
)
from brain.messages import ClientMessage, ClientToolCall
from brain.protocols.ai_sdk import Decision, Encoder, RequestOptions, SdkVersion, encode_rejection, parse
from brain.settings import read

START = TurnStart("t1", "chat", "player", "mono", Limits())
USAGE = Usage(12, 3, 8, estimated=False)
UNTIL = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ASKED = ApprovalRequired("c1", "sends", {"to": "Ann"}, UNTIL)
SENDS = SpecialistStart("c1", "sends", {"to": "Ann"}, "model")
SENT = SpecialistResult("c1", "sends", {"to": "Ann"}, "sent", (), cached=False, ms=5)
DECLINED = SpecialistError("c1", "sends", {"to": "Ann"}, "declined", "A person said no.", 5)
WAITS = SpecialistStart("c2", "waits", {}, "model")
WAITED = SpecialistResult("c2", "waits", {}, "waited", (), cached=False, ms=5)


def done(stop_reason: StopReason = "complete") -> Done:
    return Done(stop_reason, "m1", "Hello.", 0, 1, 5, 9)


def written(*events: Event, version: SdkVersion = 5) -> list[str]:
    """The frames for these events, however they come together."""
    whole = Encoder(version, "m1")
    frames = whole.encode(events)
    one_by_one = Encoder(version, "m1")
    assert b"".join(one_by_one.encode([event]) for event in events[: whole.event_count]) == frames
    assert one_by_one.closed == whole.closed
    assert frames.endswith(b"\n\n")
    return frames.decode().removesuffix("\n\n").split("\n\n")


def behind_start(*events: Event, version: SdkVersion = 5) -> list[str]:
    start, *rest = written(START, *events, version=version)
    assert start == STARTED
    return rest


STARTED = 'data: {"type":"start","messageId":"m1","messageMetadata":{"turn_id":"t1","conversation_id":"chat"}}'
STEP = 'data: {"type":"start-step"}'
STEP_OVER = 'data: {"type":"finish-step"}'
FINISHED = 'data: {"type":"finish","messageMetadata":{"stop_reason":"complete"}}'
OVER = "data: [DONE]"


def test_text_and_what_is_thought() -> None:
    assert written(
        START, Thinking("Hm"), Thinking("…"), Token("Hel"), Token('"lo"\n\n'), Token("…"), USAGE, done()
    ) == [
        STARTED,
        STEP,
        'data: {"type":"reasoning-start","id":"1"}',
        'data: {"type":"reasoning-delta","id":"1","delta":"Hm"}',
        'data: {"type":"reasoning-delta","id":"1","delta":"…"}',
        'data: {"type":"reasoning-end","id":"1"}',
        'data: {"type":"text-start","id":"2"}',
        'data: {"type":"text-delta","id":"2","delta":"Hel"}',
        'data: {"type":"text-delta","id":"2","delta":"\\"lo\\"\\n\\n"}',
        'data: {"type":"text-delta","id":"2","delta":"…"}',
        'data: {"type":"message-metadata","messageMetadata":{"usage":'
        '{"inputTokens":12,"outputTokens":3,"totalTokens":15,"cachedInputTokens":8,"estimated":false}}}',
        'data: {"type":"text-end","id":"2"}',
        STEP_OVER,
        FINISHED,
        OVER,
    ]


def test_halves_of_characters_are_replaced() -> None:
    assert behind_start(Token("a\ud800"))[-1] == 'data: {"type":"text-delta","id":"1","delta":"a�"}'


def test_what_the_model_server_does_not_count_is_left_out() -> None:
    assert behind_start(Usage(1, 2, None, estimated=True)) == [
        'data: {"type":"message-metadata","messageMetadata":{"usage":'
        '{"inputTokens":1,"outputTokens":2,"totalTokens":3,"estimated":true}}}'
    ]


def test_a_call_and_its_result() -> None:
    citations = (
        Citation("1", "The web", "https://example.org/a"),
        Citation("2", "A file"),
        Citation("3", "A trap", "javascript:alert(1)"),
        Citation("4", "The web again", "https://example.org/a"),
    )
    assert behind_start(
        Token("Let me see."),
        SpecialistStart("c1", "web", {"query": "brains"}, "model"),
        SpecialistProgress("c1", "searching", 0.5),
        SpecialistProgress("c1", "reading"),
        SpecialistResult("c1", "web", {"query": "brains"}, "They are soft.", citations, cached=False, ms=5),
        Token("Soft."),
        done(),
    ) == [
        STEP,
        'data: {"type":"text-start","id":"1"}',
        'data: {"type":"text-delta","id":"1","delta":"Let me see."}',
        'data: {"type":"text-end","id":"1"}',
        'data: {"type":"tool-input-start","toolCallId":"t1.c1","toolName":"web","providerExecuted":true,'
        '"dynamic":true}',
        'data: {"type":"tool-input-delta","toolCallId":"t1.c1","inputTextDelta":"{\\"query\\":\\"brains\\"}"}',
        'data: {"type":"tool-input-available","toolCallId":"t1.c1","toolName":"web","providerExecuted":true,'
        '"dynamic":true,"input":{"query":"brains"}}',
        'data: {"type":"data-progress","data":{"toolCallId":"t1.c1","text":"searching","fraction":0.5},'
        '"transient":true}',
        'data: {"type":"data-progress","data":{"toolCallId":"t1.c1","text":"reading"},"transient":true}',
        'data: {"type":"tool-output-available","toolCallId":"t1.c1","output":"They are soft.",'
        '"providerExecuted":true,"dynamic":true}',
        'data: {"type":"source-url","sourceId":"t1.c1.1","url":"https://example.org/a","title":"The web"}',
        'data: {"type":"source-document","sourceId":"t1.c1.2","mediaType":"text/plain","title":"A file"}',
        'data: {"type":"source-document","sourceId":"t1.c1.3","mediaType":"text/plain","title":"A trap"}',
        STEP_OVER,
        STEP,
        'data: {"type":"text-start","id":"2"}',
        'data: {"type":"text-delta","id":"2","delta":"Soft."}',
        'data: {"type":"text-end","id":"2"}',
        STEP_OVER,
        FINISHED,
        OVER,
    ]


def types(frames: Sequence[str]) -> list[str]:
    return [json.loads(frame.removeprefix("data: "))["type"] for frame in frames if frame != OVER]


def test_a_step_ends_when_all_its_calls_are_answered() -> None:
    echo = SpecialistStart("c1", "echo", {}, "model")
    echoed = SpecialistResult("c1", "echo", {}, "echo", (), cached=False, ms=1)
    again = SpecialistStart("c3", "echo", {}, "model")
    assert types(behind_start(echo, WAITS, echoed, WAITED, again, Error("internal", "Oh.", recoverable=True))) == [
        "start-step",
        *("tool-input-start", "tool-input-delta", "tool-input-available"),
        *("tool-input-start", "tool-input-delta", "tool-input-available"),
        "tool-output-available",
        "tool-output-available",
        "finish-step",
        "start-step",
        *("tool-input-start", "tool-input-delta", "tool-input-available"),
        "tool-output-error",
        *("finish-step", "start-step", "finish-step"),
        "error",
    ]


def test_a_call_that_did_not_run_is_shown_with_its_reason() -> None:
    assert behind_start(SpecialistError("c1", "?", None, "malformed", "Not JSON.", 0)) == [
        STEP,
        'data: {"type":"tool-input-start","toolCallId":"t1.c1","toolName":"?","providerExecuted":true,"dynamic":true}',
        'data: {"type":"tool-input-delta","toolCallId":"t1.c1","inputTextDelta":"{}"}',
        'data: {"type":"tool-input-available","toolCallId":"t1.c1","toolName":"?","providerExecuted":true,'
        '"dynamic":true,"input":{}}',
        'data: {"type":"tool-output-error","toolCallId":"t1.c1","errorText":"Not JSON.",'
        '"providerExecuted":true,"dynamic":true}',
    ]


def test_a_result_that_was_kept_has_its_call_before_it() -> None:
    assert types(behind_start(WAITED)) == [
        "start-step",
        *("tool-input-start", "tool-input-delta", "tool-input-available"),
        "tool-output-available",
    ]


def test_a_notice_passes() -> None:
    assert behind_start(Notice("stand_in", "Nobody is here.")) == [
        'data: {"type":"data-notice","data":{"code":"stand_in","text":"Nobody is here."},"transient":true}'
    ]


def test_an_error_closes_all_that_is_open() -> None:
    assert behind_start(Token("Hel"), Error("model_failed", "The model failed.", recoverable=True))[-4:] == [
        'data: {"type":"text-end","id":"1"}',
        STEP_OVER,
        'data: {"type":"error","errorText":"The model failed."}',
        OVER,
    ]


@pytest.mark.parametrize("version", [5, 6, 7])
def test_a_cancelled_turn_is_an_abort(version: SdkVersion) -> None:
    assert behind_start(WAITS, done("cancelled"), version=version)[-6:] == [
        'data: {"type":"tool-output-error","toolCallId":"t1.c2","errorText":"The call was cancelled.",'
        '"providerExecuted":true,"dynamic":true}',
        *(STEP_OVER, STEP, STEP_OVER),
        'data: {"type":"abort"}',
        OVER,
    ]


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [("complete", "stop"), ("length", "length"), ("call_limit", "stop"), ("deadline", "other")],
)
def test_newer_clients_are_told_why_it_finished(stop_reason: StopReason, finish_reason: str) -> None:
    metadata = f'"messageMetadata":{{"stop_reason":"{stop_reason}"}}}}'
    assert behind_start(done(stop_reason))[0] == f'data: {{"type":"finish",{metadata}'
    for version in (6, 7):
        finish = behind_start(done(stop_reason), version=version)[0]
        assert finish == f'data: {{"type":"finish","finishReason":"{finish_reason}",{metadata}'


def test_an_answer_that_goes_on_with_a_message_has_no_id_of_its_own() -> None:
    metadata = '{"turn_id":"t1","conversation_id":"chat"}'
    assert Encoder(5, None).encode([START]).decode() == f'data: {{"type":"start","messageMetadata":{metadata}}}\n\n'


# Approvals


def approval(state: str) -> str:
    return (
        'data: {"type":"data-approval","id":"t1.c1","data":{"turnId":"t1","callId":"c1","name":"sends",'
        f'"params":{{"to":"Ann"}},"expiresAt":"2026-11-21T12:00:00+00:00","state":"{state}"}}}}'
    )


def test_version_5_is_asked_in_a_part_of_its_own_and_reads_on() -> None:
    frames = behind_start(ASKED, SENDS, SENT, done())
    assert frames[:3] == [STEP, approval("asked"), approval("approved")]
    assert types(frames[3:]) == [
        *("tool-input-start", "tool-input-delta", "tool-input-available"),
        "tool-output-available",
        *("finish-step", "start-step", "finish-step"),
        "finish",
    ]
    frames = behind_start(ASKED, DECLINED)
    assert frames[:3] == [STEP, approval("asked"), approval("declined")]
    assert types(frames[3:]) == [
        *("tool-input-start", "tool-input-delta", "tool-input-available"),
        "tool-output-error",
    ]
    assert behind_start(ASKED, done("cancelled")) == [
        STEP,
        approval("asked"),
        approval("declined"),
        STEP_OVER,
        'data: {"type":"abort"}',
        OVER,
    ]


QUESTION = [
    'data: {"type":"tool-input-start","toolCallId":"t1.c1","toolName":"sends","dynamic":true}',
    'data: {"type":"tool-input-delta","toolCallId":"t1.c1","inputTextDelta":"{\\"to\\":\\"Ann\\"}"}',
    'data: {"type":"tool-input-available","toolCallId":"t1.c1","toolName":"sends","dynamic":true,"input":{"to":"Ann"}}',
    'data: {"type":"tool-approval-request","approvalId":"t1.c1","toolCallId":"t1.c1"}',
]
PAUSE = [STEP_OVER, 'data: {"type":"finish","finishReason":"tool-calls"}', OVER]


@pytest.mark.parametrize("version", [6, 7])
def test_newer_versions_are_asked_at_the_end_of_the_stream(version: SdkVersion) -> None:
    assert behind_start(ASKED, version=version) == [STEP, *QUESTION, *PAUSE]


TOLD = ApprovalRequired("c1", "sends", {"to": "Ann"}, UNTIL, "Send a letter\nto Ann")


@pytest.mark.parametrize("version", [6, 7])
def test_newer_versions_are_told_what_a_call_would_do_in_a_part_before_the_question(version: SdkVersion) -> None:
    *call, question = QUESTION
    preview = 'data: {"type":"data-preview","id":"t1.c1","data":{"toolCallId":"t1.c1","text":"Send a letter\\nto Ann"}}'
    assert behind_start(TOLD, version=version) == [STEP, *call, preview, question, *PAUSE]


def test_version_5_is_told_in_the_part_that_asks() -> None:
    told = approval("asked").replace('"asked"', '"asked","text":"Send a letter\\nto Ann"')
    assert behind_start(TOLD)[:2] == [STEP, told]


def test_the_stream_ends_when_all_that_is_open_waits() -> None:
    other = ApprovalRequired("c3", "sends", {}, UNTIL)
    encoder = Encoder(6, "m1")
    closed = [(encoder.encode([event]), encoder.closed)[1] for event in (START, WAITS, ASKED, other, WAITED)]
    assert closed == [False, False, False, False, True]


def test_nothing_is_written_behind_the_end_of_the_stream() -> None:
    encoder = Encoder(6, "m1")
    assert encoder.encode([START, ASKED, SENDS, SENT]).endswith(b"[DONE]\n\n")
    assert encoder.event_count == 2


def test_a_question_that_was_answered_meanwhile_ends_no_stream() -> None:
    encoder = Encoder(6, "m1", lambda call_ids: "c1" not in call_ids)
    frames = encoder.encode([START, ASKED, SENDS, SENT, Token("Sent."), done()]).decode()
    assert encoder.event_count == 6
    assert types(frames.removesuffix("\n\n").split("\n\n")) == [
        *("start", "start-step"),
        *("tool-input-start", "tool-input-delta", "tool-input-available", "tool-approval-request"),
        *("tool-output-available", "finish-step", "start-step", "text-start", "text-delta", "text-end"),
        *("finish-step", "finish"),
    ]


def rest(told: Sequence[Event], decided: set[str], *behind: Event, version: SdkVersion = 6) -> list[str]:
    """What a client reads behind its decisions, of a turn that had told so much by then."""
    encoder = Encoder(version, "m1")
    encoder.skip([*told, *behind], decided)
    assert encoder.event_count == len(told)
    frames = b"".join(encoder.encode([event]) for event in behind)
    return frames.decode().removesuffix("\n\n").split("\n\n")


def test_the_next_stream_goes_on_where_the_first_one_ended() -> None:
    assert rest([START, Token("I"), ASKED], {"c1"}, SENDS, SENT, Thinking("So"), Token("Sent."), done()) == [
        'data: {"type":"start"}',
        'data: {"type":"tool-output-available","toolCallId":"t1.c1","output":"sent","providerExecuted":true,'
        '"dynamic":true}',
        STEP,
        'data: {"type":"reasoning-start","id":"2"}',
        'data: {"type":"reasoning-delta","id":"2","delta":"So"}',
        'data: {"type":"reasoning-end","id":"2"}',
        'data: {"type":"text-start","id":"3"}',
        'data: {"type":"text-delta","id":"3","delta":"Sent."}',
        'data: {"type":"text-end","id":"3"}',
        STEP_OVER,
        'data: {"type":"finish","finishReason":"stop","messageMetadata":{"stop_reason":"complete"}}',
        OVER,
    ]


def test_what_was_declined_is_denied() -> None:
    denied = 'data: {"type":"tool-output-denied","toolCallId":"t1.c1"}'
    assert rest([START, ASKED], {"c1"}, DECLINED)[1:] == [denied]
    assert rest([START, ASKED], {"c1"}, DECLINED, version=7)[1:] == [
        'data: {"type":"tool-approval-response","approvalId":"t1.c1","approved":false}',
        denied,
    ]


def test_version_7_is_told_what_was_decided() -> None:
    assert rest([START, ASKED], {"c1"}, SENDS, version=7)[1:] == [
        'data: {"type":"tool-approval-response","approvalId":"t1.c1","approved":true}'
    ]


def test_the_stream_ends_again_at_the_next_question() -> None:
    question = ApprovalRequired("c3", "sends", {}, UNTIL)
    told: list[Event] = [START, ASKED, SENDS, SENT, question]
    assert types(rest(told[:2], {"c1"}, *told[2:])) == [
        *("start", "tool-output-available", "start-step"),
        *("tool-input-start", "tool-input-delta", "tool-input-available", "tool-approval-request"),
        *("finish-step", "finish"),
    ]
    assert types(rest(told, {"c3"}, done())) == [
        *("start", "tool-output-error", "start-step", "finish-step", "finish"),
    ]


def test_decisions_that_come_before_the_stream_ended_are_behind_all_that_was_told() -> None:
    encoder = Encoder(6, "m1", lambda _: False)
    encoder.skip([START, WAITS, ASKED], {"c1"})
    assert (encoder.event_count, encoder.closed) == (3, False)
    assert types(encoder.encode([WAITED, SENDS]).decode().removesuffix("\n\n").split("\n\n")) == [
        "start",
        "tool-output-available",
    ]


# Requests


def parsed(*messages: dict[str, Any] | str, **more: Any) -> tuple[Any, list[ClientMessage], RequestOptions]:
    listed = [said("user", message) if isinstance(message, str) else message for message in messages]
    body = json.dumps({"id": "chat", "messages": listed, "trigger": "submit-message", **more})
    return parse(body.encode(), "ann", read({}), frozenset({"player", "other"}))


def said(role: str, *parts: dict[str, Any] | str) -> dict[str, Any]:
    listed = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"id": "x", "role": role, "parts": listed}


def tool(state: str, **more: Any) -> dict[str, Any]:
    part = {"type": "dynamic-tool", "toolName": "web", "toolCallId": "t0.c1", "input": {"query": "brains"}}
    return {**part, "state": state, **more}


def test_a_message() -> None:
    ask, spoken, wanted = parsed("Hello", messageId=None)
    assert (ask.message, ask.user, ask.conversation_id, ask.asks_person) == ("Hello", "ann", "chat", True)
    assert (ask.model, ask.specialists, ask.system) == (None, None, "")
    assert spoken == [ClientMessage("user", "Hello")]
    assert wanted == RequestOptions(5, resumable=False, continues=False, decisions=())


def test_its_own_fields() -> None:
    ask, _, wanted = parsed(
        "Hello",
        model="other",
        specialists=["web"],
        limits={"calls": 2},
        system="Be brief.",
        time_zone="Europe/Berlin",
        source="voice",
        memory=False,
        resumable=True,
        sdk_version=7,
        data={"an application": "sends what it likes"},
    )
    assert (ask.model, ask.specialists, ask.limits.calls) == ("other", frozenset({"web"}), 2)
    assert (ask.system, ask.time_zone) == ("Be brief.", "Europe/Berlin")
    assert (ask.source, ask.memory) == ("voice", False)
    assert (wanted.sdk_version, wanted.resumable) == (7, True)


def test_fields_may_be_null() -> None:
    names = (
        "model",
        "specialists",
        "limits",
        "system",
        "time_zone",
        "source",
        "memory",
        "resumable",
        "sdk_version",
        "id",
    )
    ask, _, wanted = parsed("Hello", **dict.fromkeys(names))
    assert (ask.source, ask.memory) == ("chat", True)
    assert (ask.conversation_id, ask.system, wanted) == (None, "", RequestOptions())


def test_a_history() -> None:
    source = {"type": "source-url", "sourceId": "s", "url": "https://example.org", "title": "A page"}
    _, spoken, _ = parsed(
        said("system", "Be kind."),
        "Hello",
        said(
            "assistant",
            {"type": "step-start"},
            {"type": "reasoning", "text": "Hm.", "state": "done"},
            "Let me ",
            {"type": "data-notice", "data": {"text": "?"}},
            "see.",
            tool("output-available", output="They are soft."),
            tool("output-error", errorText="It broke.", input=None),
            source,
            {"type": "step-start"},
            "Soft. ",
            {"type": "tool-count", "toolCallId": "t0.c3", "state": "output-available", "input": {}, "output": {"n": 3}},
            tool("output-denied"),
        ),
        "Why?",
    )
    assert spoken == [
        ClientMessage("system", "Be kind."),
        ClientMessage("user", "Hello"),
        ClientMessage(
            "assistant",
            "Let me see.",
            calls=(
                ClientToolCall("messages[2].parts[5]", "web", {"query": "brains"}),
                ClientToolCall("messages[2].parts[6]", "web", {}),
            ),
        ),
        ClientMessage("tool", "They are soft.", call_id="messages[2].parts[5]"),
        ClientMessage("tool", "It broke.", call_id="messages[2].parts[6]"),
        ClientMessage(
            "assistant",
            "Soft. ",
            calls=(
                ClientToolCall("messages[2].parts[10]", "count", {}),
                ClientToolCall("messages[2].parts[11]", "web", {"query": "brains"}),
            ),
        ),
        ClientMessage("tool", '{"n":3}', call_id="messages[2].parts[10]"),
        ClientMessage("tool", "A person did not allow this call.", call_id="messages[2].parts[11]"),
        ClientMessage("user", "Why?"),
    ]


@pytest.mark.parametrize("state", ["input-streaming", "input-available", "approval-requested", None, "new"])
def test_calls_without_an_outcome_are_left_out(state: str) -> None:
    assert parsed("Hello", said("assistant", "I.", tool(state)), "Go on")[1][1] == ClientMessage("assistant", "I.")


def test_calls_that_nobody_could_read_are_left_out() -> None:
    unreadable = tool("output-error", toolName="?", errorText="Not JSON.")
    unnamed = {"type": "tool-", "state": "output-error", "errorText": "No name."}
    preliminary = tool("output-available", output="so far", preliminary=True)
    assert parsed("Hello", said("assistant", unreadable, unnamed, preliminary), "Go on")[1] == [
        ClientMessage("user", "Hello"),
        ClientMessage("user", "Go on"),
    ]


PNG = b"\x89PNG\r\n\x1a\n"


def file(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "file", "mediaType": "text/plain", "url": url, **more}


def test_files_come_in_their_urls() -> None:
    picture = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    _, (spoken,), _ = parsed(
        said("user", file(picture, filename="a/ticket.png"), "What is it?", file("data:text/plain,a%20b"), "And this?")
    )
    assert spoken.text == "What is it?\nAnd this?"
    assert [(one.name, one.type, one.data) for one in spoken.attachments] == [
        ("ticket.png", "image/png", PNG),
        ("file", "text/plain", b"a b"),
    ]


def test_the_newest_question_is_asked() -> None:
    assert parsed("One", said("assistant", "1"), "Two", said("assistant", "2"))[0].message == "Two"
    assert parsed(said("assistant", "Hi."))[0].message == ""


def test_an_answer_can_be_gone_on_with() -> None:
    assert parsed("Hello", said("assistant", "Hel"))[2].continues
    assert not parsed("Hello", said("assistant", "Hel"), "Go on")[2].continues


def test_decisions_of_the_newest_message() -> None:
    yes = tool("approval-responded", approval={"id": "t1.c1", "approved": True})
    no = tool("approval-responded", approval={"id": "t1.c2", "approved": False, "reason": "No."})
    old = tool("output-available", output="sent", approval={"id": "t1.c0", "approved": True})
    assert parsed("Hello", said("assistant", old, yes, no))[2].decisions == (
        Decision("t1", "c1", approve=True),
        Decision("t1", "c2", approve=False),
    )
    assert parsed("Hello", said("assistant", yes), "Go on")[2].decisions == ()
    assert parsed("Hello", said("user", yes | {"type": "text"}))[2].decisions == ()


def refused(*messages: Any, **more: Any) -> tuple[int, str | None, str]:
    with pytest.raises(BadRequest) as caught:
        parsed(*messages, **more)
    assert encode_rejection(caught.value) == (caught.value.status, caught.value.message.encode())
    return caught.value.status, caught.value.field, ""


def test_what_is_wrong_is_named() -> None:
    assert refused()[:2] == (400, "messages")
    assert refused("Hi", id="no spaces")[:2] == (400, "id")
    assert refused({"role": "user", "content": "Hi"})[1] == "messages[0].parts"
    assert refused(said("tool", "Hi"))[:2] == (400, "messages[0].role")
    assert refused("Hi", sdk_version=4)[:2] == (400, "sdk_version")
    assert refused("Hi", model="gpt")[1] == "model"
    assert refused("Hi", limits={"calls": 99})[1] == "limits.calls"
    assert refused("Hi", time_zone="Mars")[1] == "time_zone"
    assert refused("Hi", source="fax")[:2] == (400, "source")
    assert refused("Hi", memory="no")[:2] == (400, "memory")
    assert refused("Hi", system="x" * 200_001)[:2] == (413, "system")


def test_what_is_wrong_with_a_part_is_named() -> None:
    place = "messages[0].parts[0]"
    assert refused(said("user", {"type": "video"}))[:2] == (400, f"{place}.type")
    assert refused(said("user", file("https://example.org/a.png")))[:2] == (400, f"{place}.url")
    assert refused(said("user", file("data:;base64,ü")))[1] == f"{place}.url"
    assert refused(said("user", file("data:,")))[1] == f"{place}.url"
    assert refused(said("user", *[file("data:,a")] * 11))[:2] == (413, "attachments")
    assert refused(said("user", "x" * 200_001))[:2] == (413, "messages[0]")
    assert refused(said("assistant", "x" * 200_001), "Hi")[:2] == (413, f"{place}.text")
    deep: Any = {}
    for _ in range(70):
        deep = {"a": deep}
    assert refused(said("assistant", tool("output-available", output=deep)), "Hi")[1] == f"{place}.output"
    assert refused(said("assistant", tool("output-error", input=deep)), "Hi")[1] == f"{place}.input"


def test_there_is_an_end_of_messages_parts_and_files() -> None:
    answer = said("assistant", "Hi.")
    assert len(parsed(*[answer] * 4095, "Hi")[1]) == 4096
    assert refused(*[answer] * 4096, "Hi")[:2] == (413, "messages")
    assert refused(said("assistant", *["x"] * 1001))[:2] == (413, "messages[0].parts")
    files = said("user", *[file("data:,a")] * 10)
    assert len(parsed(*[files] * 10)[1]) == 10
    assert refused(*[files] * 11)[:2] == (413, "messages")


def test_decisions_about_nothing_that_was_asked_here_are_refused() -> None:
    field = "messages[1].parts[0].approval"
    unsaid = tool("approval-responded", approval={"id": "t1.c1"})
    assert refused("Hi", said("assistant", unsaid))[1] == f"{field}.approved"
    foreign = tool("approval-responded", approval={"id": "aitxt-123", "approved": True})
    assert refused("Hi", said("assistant", foreign))[1] == f"{field}.id"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"messages":1}', b"\xff", b'{"messages":[' + b"[" * 100_000])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        parse(body, None, read({}), frozenset())
