import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
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
PLAIN = TurnRequest(
    message="Hi",
    user="me",
    limits=Limits(calls=7),
    syntax=("bracket", "function_call"),
    time_zone="UTC",
    asks_person=True,
)


def parsed(body: Any) -> TurnRequest:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return native.parse(data, "me", SETTINGS, MODELS)


def from_form(fields: Mapping[str, str], *files: Attachment) -> TurnRequest:
    return native.parse_form(fields, list(files), "me", SETTINGS, MODELS)


def refusal(body: Any) -> BadRequest:
    with pytest.raises(BadRequest) as raised:
        parsed(body)
    return raised.value


def without_place(message: str) -> str:
    return re.sub(r" \(byte \d+\)", "", message)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_the_least_that_can_be_asked() -> None:
    assert parsed({"message": "Hi"}) == PLAIN
    assert parsed({"prompt": "Hi"}) == PLAIN
    assert from_form({"message": "Hi"}) == PLAIN
    assert from_form({"prompt": "Hi"}) == PLAIN


def test_the_most_that_can_be_asked() -> None:
    whole = TurnRequest(
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
        "syntax": ["mention", "bracket"],
        "time_zone": "Europe/Berlin",
        "source": "voice",
        "memory": False,
        "barge_in": True,
    }
    assert parsed(body) == whole
    written = {name: value if isinstance(value, str) else json.dumps(value) for name, value in body.items()}
    assert from_form(written) == whole
    assert from_form(written | {"specialists": " ocr, docs,", "syntax": "mention,bracket"}) == whole


def test_when_it_is_asked_is_told_in_the_users_time_zone() -> None:
    now = parsed({"message": "Hi", "time_zone": "Asia/Kolkata"}).now
    assert now is not None
    assert now.utcoffset() == timedelta(hours=5, minutes=30)
    assert abs(now - datetime.now(UTC)) < timedelta(minutes=1)


def test_files_of_a_form_come_behind_its_other_attachments() -> None:
    file = Attachment(0, "f", "text/plain", b"f")
    ask = from_form({"message": "Hi", "attachments": '[{"name":"a","text":"a"}]'}, file, file)
    assert [(a.id, a.data) for a in ask.attachments] == [(1, b"a"), (2, b"f"), (3, b"f")]


def test_null_is_as_good_as_nothing() -> None:
    names = ("prompt", "conversation_id", "model", "specialists", "limits", "syntax", "time_zone")
    assert parsed({"message": "Hi", **dict.fromkeys(names)}) == PLAIN
    assert parsed({"message": "Hi", "limits": {"calls": None}}) == PLAIN
    assert from_form({"message": "Hi", "limits": "null"}) == PLAIN


def test_nobody_may_be_called() -> None:
    assert parsed({"message": "Hi", "specialists": []}).specialists == frozenset()
    assert from_form({"message": "Hi", "specialists": ""}).specialists == frozenset()
    assert parsed({"message": "Hi", "limits": {"calls": 0}}).limits.calls == 0


NOT_JSON = "The body is not valid JSON: "


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (b"", None, NOT_JSON + "it ends too early, or in the middle of a character."),
        (b'{"message":"Hi"', None, NOT_JSON + "it ends too early, or in the middle of a character."),
        (b'{"message":"Hi"} x', None, NOT_JSON + "trailing characters."),
        (b'{"message":"\xff"}', None, NOT_JSON + "it is not UTF-8."),
        (b'{"message":"\\ud800"}', None, NOT_JSON + "it ends too early, or in the middle of a character."),
        (b'{"message":"Hi","limits":{"turn_seconds":NaN}}', None, NOT_JSON + "invalid character."),
        (b"[]", None, "Expected `object`, got `array`."),
        (b"null", None, "Expected `object`, got `null`."),
        (b"[" * 100_000, None, "Expected `object`, got `array`."),
        (b'{"message":"Hi","x":' + b"[" * 100_000, "x", "x: This field does not exist."),
        (b'{"message":' + b"[" * 100_000, "message", "message: Expected `str | null`, got `array`."),
        (b'{"message":"Hi","attachments":' + b"[" * 100_000, "attachments[0]",
         "attachments[0]: Expected `object`, got `array`."),
        (b'{"message":"Hi","limits":{"turn_seconds":1e999}}', "limits.turn_seconds",
         "limits.turn_seconds: Number out of range."),
        (b'{"message":"Hi","limits":{"calls":' + b"9" * 400 + b"}}", "limits.calls",
         "limits.calls may only lower the server's, which is 7, and not below 0."),
        ({"message": "Hi", "nope": 1}, "nope", "nope: This field does not exist."),
        ({"message": "Hi", "barges_in": True}, "barges_in", "barges_in: This field does not exist."),
        ({"message": "Hi", "barge_in": "yes"}, "barge_in", "barge_in: Expected `bool`, got `str`."),
        ({"message": "Hi", "memory": 0}, "memory", "memory: Expected `bool`, got `int`."),
        ({"message": "Hi", "source": "fax"}, "source", "source must be one of: chat, voice, api."),
        ({}, "message", "message is missing or empty."),
        ({"message": " \n"}, "message", "message is missing or empty."),
        ({"prompt": ""}, "message", "message is missing or empty."),
        ({"message": "a", "prompt": "b"}, "prompt", "Give either message or prompt, not both."),
        ({"message": 1}, "message", "message: Expected `str | null`, got `int`."),
        ({"message": "a", "conversation_id": ""}, "conversation_id",
         "conversation_id must be 1 to 64 letters, digits, _ or -."),
        ({"message": "a", "conversation_id": "a/../b"}, "conversation_id",
         "conversation_id must be 1 to 64 letters, digits, _ or -."),
        ({"message": "a", "conversation_id": "a\n"}, "conversation_id",
         "conversation_id must be 1 to 64 letters, digits, _ or -."),
        ({"message": "a", "conversation_id": "a" * 65}, "conversation_id",
         "conversation_id must be 1 to 64 letters, digits, _ or -."),
        ({"message": "a", "model": "gpt"}, "model", "model must be one of: builtin, ollama:m."),
        ({"message": "a", "specialists": "ocr"}, "specialists", "specialists: This must be a list."),
        ({"message": "a", "syntax": "mention"}, "syntax", "syntax: This must be a list."),
        ({"message": "a", "specialists": ["a", 1]}, "specialists[1]", "specialists[1]: Expected `str`, got `int`."),
        ({"message": "a", "syntax": []}, "syntax", "syntax must name one syntax at least."),
        ({"message": "a", "syntax": ["xml"]}, "syntax[0]",
         "syntax[0] must be one of: bracket, function_call, mention."),
        ({"message": "a", "system": 1}, "system", "system: Expected `str`, got `int`."),
        ({"message": "a", "time_zone": "Mars/Olympus"}, "time_zone",
         "time_zone must be an IANA name such as Europe/Berlin."),
        ({"message": "a", "time_zone": ""}, "time_zone", "time_zone must be an IANA name such as Europe/Berlin."),
        ({"message": "a", "time_zone": "../../etc/passwd"}, "time_zone",
         "time_zone must be an IANA name such as Europe/Berlin."),
        ({"message": "a", "time_zone": "Europe"}, "time_zone", "time_zone must be an IANA name such as Europe/Berlin."),
        ({"message": "a", "time_zone": "x" * 10_000}, "time_zone",
         "time_zone must be an IANA name such as Europe/Berlin."),
        ({"message": "a", "time_zone": "a\x00"}, "time_zone", "time_zone must be an IANA name such as Europe/Berlin."),
        ({"message": "a", "limits": []}, "limits", "limits: Expected `object | null`, got `array`."),
        ({"message": "a", "limits": {"passes": 1}}, "limits.passes", "limits.passes: This field does not exist."),
        ({"message": "a", "limits": {"calls": 8}}, "limits.calls",
         "limits.calls may only lower the server's, which is 7, and not below 0."),
        ({"message": "a", "limits": {"calls": -1}}, "limits.calls",
         "limits.calls may only lower the server's, which is 7, and not below 0."),
        ({"message": "a", "limits": {"calls": 1.5}}, "limits.calls",
         "limits.calls: Expected `int | null`, got `float`."),
        ({"message": "a", "limits": {"calls": "1"}}, "limits.calls",
         "limits.calls: Expected `int | null`, got `str`."),
        ({"message": "a", "limits": {"calls": True}}, "limits.calls",
         "limits.calls: Expected `int | null`, got `bool`."),
        ({"message": "a", "limits": {"calls_per_specialist": 4}}, "limits.calls_per_specialist",
         "limits.calls_per_specialist may only lower the server's, which is 3, and not below 0."),
        ({"message": "a", "limits": {"turn_seconds": 601}}, "limits.turn_seconds",
         "limits.turn_seconds may only lower the server's, which is 600, and not below 0.001."),
        ({"message": "a", "limits": {"call_seconds": 0}}, "limits.call_seconds",
         "limits.call_seconds may only lower the server's, which is 5, and not below 0.001."),
        ({"message": "a", "attachments": {}}, "attachments", "attachments: This must be a list."),
        ({"message": "a", "attachments": [{"name": "x", "text": "y"}, {"data": "eA=="}]}, "attachments[1].name",
         "attachments[1].name: This field is missing."),
        ({"message": "a", "attachments": [{"name": "x", "text": "y", "size": 1}]}, "attachments[0].size",
         "attachments[0].size: This field does not exist."),
        ({"message": "a", "attachments": [{"name": "x"}]}, "attachments[0].data",
         "Give either data (base64) or text."),
        ({"message": "a", "attachments": [{"name": "x", "text": "y", "data": "eA=="}]}, "attachments[0].data",
         "Give either data (base64) or text."),
        ({"message": "a", "attachments": [{"name": "x", "text": "y"}, {"name": "x", "data": "e!=="}]},
         "attachments[1].data", "data is not valid base64."),
        ({"message": "a", "attachments": [{"name": "x", "data": "eA"}]}, "attachments[0].data",
         "data is not valid base64."),
        ({"message": "a", "attachments": [{"name": "x", "data": "ä==="}]}, "attachments[0].data",
         "data is not valid base64."),
        ({"message": "a", "attachments": [{"name": "x", "data": ""}]}, "attachments[0].data",
         "attachments[0].data is empty."),
        ({"message": "a", "attachments": [{"name": "x", "data": "data:text/plain;base64,"}]}, "attachments[0].data",
         "attachments[0].data is empty."),
        ({"message": "a", "attachments": [{"name": "x", "text": ""}]}, "attachments[0].text",
         "attachments[0].text is empty."),
    ],
)  # fmt: skip
def test_every_error_names_the_field_and_what_is_wrong(body: Any, field: str | None, message: str) -> None:
    error = refusal(body)
    assert (error.field, error.code, error.status) == (field, "bad_request", 400)


def test_a_syntax_that_is_named_again_is_the_same() -> None:
    body = {"message": "a", "syntax": ["mention", "bracket", "mention", "bracket"]}
    assert parsed(body).syntax == ("mention", "bracket")


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"message": "a" * 200_001}, "message", "message may be 200,000 characters long."),
        ({"message": "a", "system": "a" * 200_001}, "system", "system may be 200,000 characters long."),
        ({"message": "a", "attachments": [{"name": "x", "text": "y"}] * 11}, "attachments",
         "At most 10 attachments a message."),
        ({"message": "a", "attachments": [{"name": "x", "data": "no base64!"}] * 11}, "attachments",
         "At most 10 attachments a message."),
        ({"message": "a", "attachments": [{"name": "x", "text": "y" * (16 * MIB + 1)}]}, "attachments[0].text",
         "attachments[0].text is larger than 16 MiB."),
        ({"message": "a", "attachments": [{"name": "x", "data": encoded(bytes(16 * MIB + 1))}]}, "attachments[0].data",
         "attachments[0].data is larger than 16 MiB."),
    ],
)  # fmt: skip
def test_what_is_too_large(body: Any, field: str, message: str) -> None:
    error = refusal(body)
    assert (error.field, error.code, error.status) == (field, "too_large", 413)


def test_what_is_just_small_enough() -> None:
    ask = parsed({"message": "a" * 200_000, "attachments": [{"name": "x", "data": encoded(bytes(16 * MIB))}]})
    assert len(ask.attachments[0].data) == 16 * MIB
    assert len(parsed({"message": "a", "attachments": [{"name": "x", "text": "y"}] * 10}).attachments) == 10
    assert len(from_form({"message": "a"}, *[Attachment(0, "f", "text/plain", b"f")] * 10).attachments) == 10
    with pytest.raises(BadRequest, match="At most 10 attachments"):
        from_form({"message": "a"}, *[Attachment(0, "f", "text/plain", b"f")] * 11)


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"message": "a", "limits": "{"}, "limits",
         "limits must be JSON: it ends too early, or in the middle of a character."),
        ({"message": "a", "limits": "calls=1"}, "limits", "limits must be JSON: invalid character."),
        ({"message": "a", "limits": '{"calls": 9}'}, "limits.calls",
         "limits.calls may only lower the server's, which is 7, and not below 0."),
        ({"message": "a", "limits": '{"calls": "1"}'}, "limits.calls",
         "limits.calls: Expected `int | null`, got `str`."),
        ({"message": "a", "limits": "[" * 100_000}, "limits", "limits: Expected `object | null`, got `array`."),
        ({"message": "a", "limits": '{"x":' + "[" * 100_000}, "limits.x", "limits.x: This field does not exist."),
        ({"message": "a", "limits": '"\ud800"'}, "limits", "limits must be JSON: it is not UTF-8."),
        ({"message": "a", "attachments": "x"}, "attachments", "attachments must be JSON: invalid character."),
        ({"message": "a", "attachments": '[{"name":"x","data":"!"}]'}, "attachments[0].data",
         "data is not valid base64."),
        ({"message": "a", "syntax": "xml"}, "syntax[0]",
         "syntax[0] must be one of: bracket, function_call, mention."),
        ({"message": "a", "syntax": ""}, "syntax", "syntax must name one syntax at least."),
        ({"message": "a", "specialists": "[1]"}, "specialists[0]", "specialists[0]: Expected `str`, got `int`."),
        ({"message": "a", "specialists": "[ocr]"}, "specialists",
         "specialists must be JSON: invalid character."),
        ({"message": "a", "model": "gpt"}, "model", "model must be one of: builtin, ollama:m."),
        ({"message": "a", "nope": "1"}, "nope", "nope: This field does not exist."),
        ({}, "message", "message is missing or empty."),
    ],
)  # fmt: skip
def test_errors_of_a_form_name_the_field_too(fields: Mapping[str, str], field: str, message: str) -> None:
    with pytest.raises(BadRequest) as raised:
        from_form(fields)
    assert (raised.value.field, raised.value.status) == (field, 400)


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
        ({"name": "a.png", "type": "text/html", "data": encoded(b"\x89PNG\r\n\x1a\n")}, "a.png", "image/png",
         b"\x89PNG\r\n\x1a\n"),
        ({"name": "a", "type": "image/png", "data": encoded(b"%PDF-1.7")}, "a", "application/pdf", b"%PDF-1.7"),
        ({"name": "../../etc/passwd", "text": "x"}, "passwd", "text/plain", b"x"),
        ({"name": "C:\\scans\\a b.png", "text": "x"}, "a b.png", "text/plain", b"x"),
        ({"name": "folder/", "text": "x"}, "file", "text/plain", b"x"),
        ({"name": "", "text": "x"}, "file", "text/plain", b"x"),
        ({"name": " a\n\t b\x00\x1b[0m\u202e ", "text": "x"}, "a b [0m", "text/plain", b"x"),
        ({"name": "a" * 500, "text": "x"}, "a" * 200, "text/plain", b"x"),
    ],
)  # fmt: skip
def test_an_attachment_is_a_name_a_type_and_bytes(
    sent: dict[str, str], name: str, media_type: str, data: bytes
) -> None:
    ask = parsed({"message": "Hi", "attachments": [sent]})
    assert ask.attachments == (Attachment(1, name, media_type, data),)


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


def test_the_heartbeat_is_a_comment() -> None:
    assert native.HEARTBEAT == b": heartbeat\n\n"
