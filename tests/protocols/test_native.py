"""Brain's own protocol: every field of a request, and every frame of a response."""

import base64
import json
from collections.abc import Mapping
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
    Thinking,
    Token,
    ToolCall,
    TurnStart,
    Usage,
)
from brain.messages import Attachment
from brain.protocols import native
from brain.settings import read
from brain.turn_request import TurnRequest

SETTINGS = read({"BRAIN_TIME_ZONE": "UTC", "BRAIN_CALLS": "7"})
MODELS = frozenset({"builtin", "ollama:m"})
MIB = 1024 * 1024
FILE = Attachment(0, "f", "text/plain", b"f")
PLAIN = TurnRequest(
    message="Hi",
    user="me",
    limits=Limits(calls=7),
    syntax=("bracket", "function_call"),
    time_zone="UTC",
    asks_person=True,
)


def parse(body: Any) -> TurnRequest:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return native.parse(data, "me", SETTINGS, MODELS)


def parse_form(fields: Mapping[str, str], *files: Attachment) -> TurnRequest:
    return native.parse_form(fields, list(files), "me", SETTINGS, MODELS)


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_the_smallest_requests() -> None:
    for fields in ({"message": "Hi"}, {"prompt": "Hi"}):
        assert parse(fields) == parse_form(fields) == PLAIN
    nulls = ("prompt", "conversation_id", "model", "specialists", "limits", "syntax", "time_zone")
    assert parse({"message": "Hi", **dict.fromkeys(nulls)}) == PLAIN
    assert (
        parse({"message": "Hi", "limits": {"calls": None}}) == parse_form({"message": "Hi", "limits": "null"}) == PLAIN
    )


def test_all_fields() -> None:
    expected = TurnRequest(
        message="Hi",
        user="me",
        limits=Limits(calls=2, calls_per_specialist=1, turn_seconds=30.0, call_seconds=0.5),
        syntax=("mention", "bracket"),
        time_zone="Europe/Berlin",
        conversation_id="conv-1_a",
        attachments=(Attachment(1, "a.txt", "text/plain", b"\xc3\xa4"), Attachment(2, "b", "image/gif", b"GIF89a")),
        model="ollama:m",
        specialists=frozenset({"ocr", "docs"}),
        system="Be kind.",
        call_seconds=0.5,
        asks_person=True,
        source="voice",
        memory=False,
        barge_in=True,
    )
    body = {
        "message": "Hi",
        "conversation_id": "conv-1_a",
        "attachments": [
            {"name": "a.txt", "type": "text/plain", "text": "ä"},
            {"name": "b", "type": "application/x", "data": "R0lGODlh"},
        ],
        "model": "ollama:m",
        "specialists": ["ocr", "docs"],
        "limits": {"calls": 2, "calls_per_specialist": 1, "turn_seconds": 30, "call_seconds": 0.5},
        "system": "Be kind.",
        "syntax": ["mention", "bracket", "mention"],
        "time_zone": "Europe/Berlin",
        "source": "voice",
        "memory": False,
        "barge_in": True,
    }
    assert parse(body) == expected
    form = {name: value if isinstance(value, str) else json.dumps(value) for name, value in body.items()}
    assert parse_form(form) == expected
    assert parse_form(form | {"specialists": " ocr, docs,", "syntax": "mention,bracket"}) == expected


def test_files_of_a_form_follow_its_other_attachments() -> None:
    request = parse_form({"message": "Hi", "attachments": '[{"name":"a","text":"a"}]'}, FILE, FILE)
    assert [(file.id, file.data) for file in request.attachments] == [(1, b"a"), (2, b"f"), (3, b"f")]


def test_the_largest_request() -> None:
    request = parse({"message": "a" * 200_000, "attachments": [{"name": "x", "data": base64_of(bytes(16 * MIB))}]})
    assert len(request.attachments[0].data) == 16 * MIB
    assert len(parse({"message": "a", "attachments": [{"name": "x", "text": "y"}] * 10}).attachments) == 10
    assert len(parse_form({"message": "a"}, *[FILE] * 10).attachments) == 10
    with pytest.raises(BadRequest) as raised:
        parse_form({"message": "a"}, *[FILE] * 11)
    assert (raised.value.field, raised.value.status) == ("attachments", 413)


def attached(**fields: Any) -> dict[str, Any]:
    return {"message": "a", "attachments": [fields]}


DATA, TEXT = "attachments[0].data", "attachments[0].text"
REJECTED: list[tuple[Any, int, str | None]] = [
    (b'{"message":"Hi"', 400, None),
    (b'{"message":"Hi"} x', 400, None),
    (b'{"message":"\xff"}', 400, None),
    (b'{"message":"\\ud800"}', 400, None),
    (b'{"message":"Hi","limits":{"turn_seconds":NaN}}', 400, None),
    (b'{"message":"Hi","x":' + b"[" * 100_000, 400, "x"),
    (b'{"message":' + b"[" * 100_000, 400, "message"),
    (b'{"message":"Hi","attachments":' + b"[" * 100_000, 400, "attachments[0]"),
    (b'{"message":"Hi","limits":{"turn_seconds":1e999}}', 400, "limits.turn_seconds"),
    (b'{"message":"Hi","limits":{"calls":' + b"9" * 400 + b"}}", 400, "limits.calls"),
    ({"message": "Hi", "nope": 1}, 400, "nope"),
    ({"message": "Hi", "barge_in": "yes"}, 400, "barge_in"),
    ({"message": "Hi", "memory": 0}, 400, "memory"),
    ({"message": "Hi", "memory": None}, 400, "memory"),
    ({}, 400, "message"),
    ({"message": " \n"}, 400, "message"),
    ({"prompt": ""}, 400, "message"),
    ({"message": "a", "prompt": "b"}, 400, "prompt"),
    ({"message": 1}, 400, "message"),
    ({"message": "a" * 200_001}, 413, "message"),
    ({"message": "a", "conversation_id": ""}, 400, "conversation_id"),
    ({"message": "a", "conversation_id": "a/../b"}, 400, "conversation_id"),
    ({"message": "a", "conversation_id": "a\n"}, 400, "conversation_id"),
    ({"message": "a", "conversation_id": "a" * 65}, 400, "conversation_id"),
    ({"message": "a", "request_id": "ä"}, 400, "request_id"),
    ({"message": "a", "replace_from": " "}, 400, "replace_from"),
    ({"message": "a", "syntax": []}, 400, "syntax"),
    ({"message": "a", "syntax": ["xml"]}, 400, "syntax[0]"),
    ({"message": "a", "attachments": {}}, 400, "attachments"),
    ({"message": "a", "attachments": [{"name": "x", "text": "y"}, {"data": "eA=="}]}, 400, "attachments[1].name"),
    ({"message": "a", "attachments": [{"name": "x", "data": "no base64!"}] * 11}, 413, "attachments"),
    (attached(name="x", text="y", size=1), 400, "attachments[0].size"),
    (attached(name="x"), 400, DATA),
    (attached(name="x", text="y", data="eA=="), 400, DATA),
    *[(attached(name="x", data=data), 400, DATA) for data in ("e!==", "eA", "ä===", "", "data:text/plain;base64,")],
    (attached(name="x", text=""), 400, TEXT),
    (attached(name="x", text="y" * (16 * MIB + 1)), 413, TEXT),
    (attached(name="x", data=base64_of(bytes(16 * MIB + 1))), 413, DATA),
    (attached(id=1), 400, "attachments[0].id"),
    ({**attached(id=1, name="x"), "replace_from": "m1"}, 400, "attachments[0].id"),
    ({**attached(id=0), "replace_from": "m1"}, 400, "attachments[0].id"),
    ({"message": "a", "attachments": [{"id": 1}, {"id": 1}], "replace_from": "m1"}, 400, "attachments[1].id"),
]  # fmt: skip
REJECTED_FORMS: list[tuple[dict[str, str], int, str | None]] = [
    ({"message": "a", "limits": "{"}, 400, "limits"),
    ({"message": "a", "limits": "calls=1"}, 400, "limits"),
    ({"message": "a", "limits": '{"calls": 9}'}, 400, "limits.calls"),
    ({"message": "a", "limits": '{"calls": "1"}'}, 400, "limits.calls"),
    ({"message": "a", "limits": "[" * 100_000}, 400, "limits"),
    ({"message": "a", "limits": '{"x":' + "[" * 100_000}, 400, "limits.x"),
    ({"message": "a", "limits": '{"calls":1,"calls":2}'}, 400, "limits.calls"),
    ({"message": "a", "limits": "\ud800"}, 400, "limits"),
    ({"message": "a", "attachments": "x"}, 400, "attachments"),
    ({"message": "a", "attachments": '[{"name":"x","data":"!"}]'}, 400, DATA),
    ({"message": "a", "syntax": "xml"}, 400, "syntax[0]"),
    ({"message": "a", "syntax": ""}, 400, "syntax"),
    ({"message": "a", "specialists": "[1]"}, 400, "specialists[0]"),
    ({"message": "a", "specialists": "[ocr]"}, 400, "specialists"),
    ({"message": "a", "nope": "1"}, 400, "nope"),
    ({}, 400, "message"),
]


@pytest.mark.parametrize(
    ("parser", "sent", "status", "field"),
    [(parse, *row) for row in REJECTED] + [(parse_form, *row) for row in REJECTED_FORMS],
    ids=lambda value: getattr(value, "__name__", str(value)[:50]),
)
def test_a_rejection_names_the_field(parser: Any, sent: Any, status: int, field: str | None) -> None:
    with pytest.raises(BadRequest) as raised:
        parser(sent)
    code = "too_large" if status == 413 else "bad_request"
    assert (raised.value.field, raised.value.status, raised.value.code) == (field, status, code)


@pytest.mark.parametrize(
    ("sent", "name", "media_type", "data"),
    [
        ({"name": "a.txt", "text": "hä"}, "a.txt", "text/plain", "hä".encode()),
        ({"name": "a.md", "type": "text/markdown; charset=utf-8", "text": "x"}, "a.md", "text/markdown", b"x"),
        ({"name": "a", "data": "eHk="}, "a", "application/octet-stream", b"xy"),
        ({"name": "a", "data": "data:text/csv;base64,eHk="}, "a", "text/csv", b"xy"),
        ({"name": "a", "type": "text/x", "data": "data:text/csv;base64,eHk="}, "a", "text/x", b"xy"),
        ({"name": "a", "data": "eH\nk=\r\n"}, "a", "application/octet-stream", b"xy"),
        ({"name": "a", "type": "no type\nat all", "data": "eHk="}, "a", "application/octet-stream", b"xy"),
        ({"name": "a.png", "type": "text/html", "data": base64_of(b"\x89PNG\r\n\x1a\n")}, "a.png", "image/png",
         b"\x89PNG\r\n\x1a\n"),
        ({"name": "a", "type": "image/png", "data": base64_of(b"%PDF-1.7")}, "a", "application/pdf", b"%PDF-1.7"),
        ({"name": "../../etc/passwd", "text": "x"}, "passwd", "text/plain", b"x"),
        ({"name": "C:\\scans\\a b.png", "text": "x"}, "a b.png", "text/plain", b"x"),
        ({"name": "folder/", "text": "x"}, "file", "text/plain", b"x"),
        ({"name": "", "text": "x"}, "file", "text/plain", b"x"),
        ({"name": " a\n\t b\x00\x1b[0m\u202e ", "text": "x"}, "a b [0m", "text/plain", b"x"),
        ({"name": "a" * 500, "text": "x"}, "a" * 200, "text/plain", b"x"),
    ],
)  # fmt: skip
def test_attachments(sent: dict[str, str], name: str, media_type: str, data: bytes) -> None:
    request = parse({"message": "Hi", "attachments": [sent]})
    assert request.attachments == (Attachment(1, name, media_type, data),)


START = TurnStart("t1", "c1", "builtin", "mono", Limits())
START_DATA = (
    '{"turn_id":"t1","conversation_id":"c1","model":"builtin","strategy":"mono",'
    '"limits":{"calls":5,"calls_per_specialist":3,"turn_seconds":600.0,"call_seconds":5.0}}'
)


@pytest.mark.parametrize(
    ("event", "name", "data"),
    [
        (START, "turn_start", START_DATA),
        (Token("Hä \"quoted\"\n\r\u2028\u0085\\"), "token",
         '{"text":"Hä \\"quoted\\"\\n\\r\u2028\u0085\\\\"}'),
        (Token("\x00\x1b\x7f"), "token", '{"text":"\\u0000\\u001b\x7f"}'),
        (Thinking("hm\nhm"), "thinking", '{"text":"hm\\nhm"}'),
        (SpecialistStart("call1", "ocr", {"page": 3, "x": None, "url": None}, "model"), "specialist_start",
         '{"call_id":"call1","name":"ocr","params":{"page":3,"x":null,"url":null},"by":"model"}'),
        (SpecialistProgress("call1", "page 1", 0.5), "specialist_progress",
         '{"call_id":"call1","text":"page 1","fraction":0.5}'),
        (SpecialistProgress("call1", "page 1"), "specialist_progress", '{"call_id":"call1","text":"page 1"}'),
        (SpecialistResult("call1", "web", {}, "a\nb", (Citation("1", "A"), Citation("2", "B", "https://b")), True, 12),
         "specialist_result",
         '{"call_id":"call1","name":"web","params":{},"text":"a\\nb","citations":[{"id":"1","title":"A"},'
         '{"id":"2","title":"B","url":"https://b"}],"cached":true,"ms":12}'),
        (SpecialistResult("call1", "web", {}, "a", (), False, 0), "specialist_result",
         '{"call_id":"call1","name":"web","params":{},"text":"a","citations":[],"cached":false,"ms":0}'),
        (SpecialistError("call1", "?", None, "malformed", "no JSON", 0), "specialist_error",
         '{"call_id":"call1","name":"?","code":"malformed","reason":"no JSON","ms":0}'),
        (SpecialistError("call1", "ocr", {"page": 0}, "refused", "no page 0", 3), "specialist_error",
         '{"call_id":"call1","name":"ocr","params":{"page":0},"code":"refused","reason":"no page 0","ms":3}'),
        (ApprovalRequired("call1", "mail", {"to": "ann"}, datetime(2026, 11, 21, 8, 30, tzinfo=UTC), "To: ann"),
         "approval_required", '{"call_id":"call1","name":"mail","params":{"to":"ann"},'
         '"expires_at":"2026-11-21T08:30:00Z","text":"To: ann"}'),
        (ApprovalRequired("call1", "mail", {}, datetime(2026, 11, 21, 8, 30, 0, 250_000, UTC)), "approval_required",
         '{"call_id":"call1","name":"mail","params":{},"expires_at":"2026-11-21T08:30:00.250000Z"}'),
        (ToolCall("call1", "theirs", {"a": []}), "tool_call", '{"call_id":"call1","name":"theirs","params":{"a":[]}}'),
        (Notice("stand_in", "No model."), "notice", '{"code":"stand_in","text":"No model."}'),
        (Usage(7, 2, None, True), "usage", '{"prompt_tokens":7,"completion_tokens":2,"estimated":true}'),
        (Usage(7, 2, 0, False), "usage",
         '{"prompt_tokens":7,"completion_tokens":2,"reused_tokens":0,"estimated":false}'),
        (Notice("prompt_progress", "Reading", 0.5), "notice",
         '{"code":"prompt_progress","text":"Reading","fraction":0.5}'),
        (Error("model_failed", "It broke.", False, 503), "error",
         '{"code":"model_failed","message":"It broke.","recoverable":false,"status":503}'),
        (Error("model_failed", "It broke.", True), "error",
         '{"code":"model_failed","message":"It broke.","recoverable":true}'),
        (Done("complete", "m1", "Hi", 1, 2, None, 9), "done",
         '{"stop_reason":"complete","message_id":"m1","text":"Hi","calls":1,"passes":2,"first_token_ms":null,'
         '"total_ms":9}'),
        (Done("call_limit", "m1", "", 0, 1, 4, 9), "done",
         '{"stop_reason":"call_limit","message_id":"m1","text":"","calls":0,"passes":1,"first_token_ms":4,'
         '"total_ms":9}'),
        # halves of characters, and numbers larger than most: nothing may break the stream
        (Token("a\ud83d"), "token", '{"text":"a\ufffd"}'),
        (Thinking("\ude00 \ud83d\ude00"), "thinking", '{"text":"\ufffd 😀"}'),
        (SpecialistStart("call1", "x", {"\ud800": ["\udfff", 10**30, 1.5]}, "auto"), "specialist_start",
         '{"call_id":"call1","name":"x","params":{"\ufffd":["\ufffd",1000000000000000000000000000000,1.5]},'
         '"by":"auto"}'),
        (SpecialistError("call1", "x", {"n": 10**30}, "failed", "\ud800", 1), "specialist_error",
         '{"call_id":"call1","name":"x","params":{"n":1000000000000000000000000000000},"code":"failed",'
         '"reason":"\ufffd","ms":1}'),
    ],
)  # fmt: skip
def test_a_frame_literally(event: Event, name: str, data: str) -> None:
    first = f"retry: 2000\nevent: {name}\ndata: {data}\nid: t1.1\n\n".encode()
    second = f"event: {name}\ndata: {data}\nid: t1.2\n\n".encode()
    encoder = native.FrameEncoder("t1")
    assert [encoder.encode([event]), encoder.encode([event])] == [first, second]
    assert native.FrameEncoder("t1").encode([*native.decode_frames(first + second)]) == first + second


def test_ids_count_from_1_without_gaps_and_retry_stands_in_the_first_frame() -> None:
    encoder = native.FrameEncoder("t9")
    events: list[Event] = [START, Token("a"), Thinking("b"), Token("c"), Error("internal", "x", True)]
    stream = b"".join(encoder.encode([event]) for event in events).decode()
    assert [line for line in stream.split("\n") if line.startswith("id: ")] == [f"id: t9.{n}" for n in range(1, 6)]
    assert stream.startswith("retry: 2000\n")
    assert stream.count("retry:") == 1
    assert "\r" not in stream
    assert native.FrameEncoder("t9").encode(events).decode() == stream
    assert [*native.decode_frames(stream.encode())] == events


def test_every_event_has_a_name() -> None:
    assert set(native.EVENT_NAMES) == set(Event.__args__)
