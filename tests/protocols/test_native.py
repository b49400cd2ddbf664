"""Brain's own protocol: the fields of a request, and the frames of a response."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from brain import events as ev
from brain.errors import BadRequest
from brain.messages import Attachment
from brain.protocols import native
from brain.protocols.common import Client
from brain.settings import read
from brain.turn_request import TurnRequest

SETTINGS = read({"BRAIN_TIME_ZONE": "UTC", "BRAIN_CALLS": "7"})
CLIENT = Client("me", SETTINGS, frozenset({"builtin", "ollama:m"}), ("docs", "ocr"), lambda: ["docs", "ocr"])
MIB = 1024 * 1024
FILE = Attachment(0, "f", "text/plain", b"f")


def parse(body: Any) -> TurnRequest:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return native.parse(data, CLIENT)


def parse_form(fields: Mapping[str, str], *files: Attachment) -> TurnRequest:
    return native.parse_form(fields, list(files), CLIENT)


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def attached(**fields: Any) -> dict[str, Any]:
    return {"message": "a", "attachments": [fields]}


def test_defaults() -> None:
    limits = ev.Limits(calls=7)
    plain = TurnRequest("Hi", "me", limits, ("bracket", "function_call"), "UTC", asks_person=True)
    assert parse({"message": "Hi"}) == parse({"prompt": "Hi"}) == plain
    assert (
        parse_form({"message": "Hi", "attachments": '[{"name":"a","text":"\\ud800"}]'}).attachments[0].text == "\ufffd"
    )
    names = ("limits", "context", "memory", "private", "barge_in", "critic", "attachments", "specialists", "syntax")
    for form in ({"message": "Hi"}, {"prompt": "Hi"}, {"message": "Hi", **dict.fromkeys(names, "null")}):
        assert parse_form(form) == plain


def test_all_fields() -> None:
    expected = TurnRequest(
        message="Hi",
        user="me",
        limits=ev.Limits(calls=2, calls_per_specialist=1, turn_seconds=30.0, call_seconds=0.5, rounds=7),
        syntax=("mention", "bracket"),
        time_zone="Europe/Berlin",
        conversation_id="conv-1_a",
        attachments=(Attachment(1, "a.txt", "text/plain", b"\xc3\xa4"), Attachment(2, "b", "image/gif", b"GIF89a")),
        model="ollama:m",
        specialists=frozenset({"ocr", "docs"}),
        system="Be kind.",
        context=(("goal", "Sail."), ("lessons", "Ask first.")),
        call_seconds=0.5,
        asks_person=True,
        source="voice",
        memory=False,
        barge_in=True,
        strategy="dual",
        critic=True,
    )
    body = {
        "message": "Hi", "conversation_id": "conv-1_a", "model": "ollama:m", "specialists": ["ocr", "docs"],
        "attachments": [{"name": "a.txt", "type": "text/plain", "text": "ä"},
                        {"name": "b", "type": "application/x", "data": "R0lGODlh"}],
        "limits": {"calls": 2, "calls_per_specialist": 1, "turn_seconds": 30, "call_seconds": 0.5, "rounds": 7},
        "context": {"lessons": "Ask first.", "goal": "Sail.\n", "knowledge": " ", "background": None},
        "system": "Be kind.", "syntax": ["mention", "bracket", "mention"], "time_zone": "Europe/Berlin",
        "source": "voice", "memory": False, "barge_in": True, "strategy": "dual", "critic": True,
    }  # fmt: skip
    assert parse(body) == expected
    form = {name: value if isinstance(value, str) else json.dumps(value) for name, value in body.items()}
    assert parse_form(form) == expected
    assert parse_form(form | {"specialists": " ocr, docs,", "syntax": "mention,bracket"}) == expected
    assert parse_form({"message": "Hi", "specialists": ""}).specialists == frozenset()


def test_the_largest_request() -> None:
    request = parse({"message": "a" * 200_000, "attachments": [{"name": "x", "data": base64_of(bytes(16 * MIB))}]})
    assert len(request.attachments[0].data) == 16 * MIB
    request = parse_form({"message": "Hi", "attachments": '[{"name":"a","text":"a"}]'}, *[FILE] * 9)
    assert [file.id for file in request.attachments] == list(range(1, 11))
    with pytest.raises(BadRequest) as raised:
        parse_form({"message": "a"}, *[FILE] * 11)
    assert (raised.value.field, raised.value.status) == ("attachments", 413)


DATA, TEXT = "attachments[0].data", "attachments[0].text"
REJECTED: list[tuple[Any, int, str | None]] = [
    (b'{"message":"Hi","x":' + b"[" * 100_000, 400, "x"),
    (b'{"message":"Hi","attachments":' + b"[" * 100_000, 400, "attachments[0]"),
    (b'{"message":"Hi","limits":{"turn_seconds":1e999}}', 400, "limits.turn_seconds"),
    (b'{"message":"Hi","limits":{"calls":' + b"9" * 400 + b"}}", 400, "limits.calls"),
    ({"message": "Hi", "nope": 1}, 400, "nope"),
    ({"message": "Hi", "no\npe": 1}, 400, "no\npe"),
    ({"message": "Hi", "source": "tv"}, 400, "source"),
    ({"message": "Hi", "assist": "t\nv"}, 400, "assist"),
    ({"message": "Hi", "barge_in": "yes"}, 400, "barge_in"),
    ({"message": "Hi", "critic": True}, 400, "critic"),
    ({"message": "Hi", "critic": True, "strategy": "dual", "limits": {"rounds": 4}}, 400, "critic"),
    *[(body, 400, "message") for body in ({}, {"message": " \n"}, {"prompt": ""}, {"message": 1})],
    ({"message": "a", "prompt": "b"}, 400, "prompt"),
    ({"message": "a", "context": "Sail."}, 400, "context"),
    ({"message": "a", "context": {"aim": "Sail."}}, 400, "context.aim"),
    ({"message": "a", "context": {"goal": ["Sail."]}}, 400, "context.goal"),
    ({"message": "a", "context": {"previous_output": "a" * 50_001}}, 413, "context.previous_output"),
    *[({"message": "a", "conversation_id": value}, 400, "conversation_id")
      for value in ("", "a/../b", "a\n", "a" * 65)],
    ({"message": "a", "request_id": "ä"}, 400, "request_id"),
    ({"message": "a", "replace_from": " "}, 400, "replace_from"),
    ({"message": "a", "specialists": ["ocr", "dosc"]}, 400, "specialists[1]"),
    ({"message": "a", "syntax": []}, 400, "syntax"),
    ({"message": "a", "syntax": ["xml"]}, 400, "syntax[0]"),
    ({"message": "a", "attachments": {}}, 400, "attachments"),
    ({"message": "a", "attachments": [{"name": "x", "text": "y"}, {"data": "eA=="}]}, 400, "attachments[1].name"),
    ({"message": "a", "attachments": [{"name": "x", "data": "no base64!"}] * 11}, 413, "attachments"),
    (attached(name="x", text="y", size=1), 400, "attachments[0].size"),
    (attached(name="x"), 400, DATA),
    (attached(name="x", text="y", data="eA=="), 400, DATA),
    (attached(name="x", text=""), 400, TEXT),
    (attached(name="x", text="y" * (16 * MIB + 1)), 413, TEXT),
    (attached(id=1), 400, "attachments[0].id"),
    ({**attached(id=1, name="x"), "replace_from": "m1"}, 400, "attachments[0].id"),
    ({**attached(id=0), "replace_from": "m1"}, 400, "attachments[0].id"),
    ({"message": "a", "attachments": [{"id": 1}, {"id": 1}], "replace_from": "m1"}, 400, "attachments[1].id"),
]  # fmt: skip
REJECTED_FORMS: list[tuple[dict[str, str], int, str | None]] = [
    *[({"message": "a", "limits": value}, 400, "limits") for value in ("{", "calls=1", "[" * 100_000, "\ud800")],
    *[({"message": "a", "limits": value}, 400, "limits.calls")
      for value in ('{"calls": 9}', '{"calls": "1"}', '{"calls":1,"calls":2}')],
    ({"message": "a", "limits": '{"x":' + "[" * 100_000}, 400, "limits.x"),
    ({"message": "a", "attachments": "x"}, 400, "attachments"),
    ({"message": "a", "attachments": '[{"name":"x","data":"!"}]'}, 400, DATA),
    ({"message": "a", "syntax": "xml"}, 400, "syntax[0]"),
    ({"message": "a", "syntax": ""}, 400, "syntax"),
    ({"message": "a", "specialists": "[1]"}, 400, "specialists[0]"),
    ({"message": "a", "specialists": "[ocr]"}, 400, "specialists"),
    ({"message": "a", "nope": "1"}, 400, "nope"),
    ({}, 400, "message"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("parser", "body", "status", "field"),
    [(parse, *row) for row in REJECTED] + [(parse_form, *row) for row in REJECTED_FORMS],
    ids=lambda value: getattr(value, "__name__", str(value)[:50]),
)
def test_a_rejection_names_the_field(parser: Any, body: Any, status: int, field: str | None) -> None:
    with pytest.raises(BadRequest) as raised:
        parser(body)
    assert (raised.value.field, raised.value.status) == (field, status)


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        ("request_id", "a b", "must be 1 to 64 letters, digits, _ or -"),
        ("source", "tv", 'is "tv"; use one of: api, chat, voice'),
    ],
)
def test_a_rejection_says_what_is_allowed(field: str, value: str, remedy: str) -> None:
    with pytest.raises(BadRequest) as raised:
        parse({"message": "Hi", field: value})
    assert raised.value.message == f"`{field}` {remedy}."


@pytest.mark.parametrize(
    ("body", "name", "media_type", "data"),
    [
        ({"name": "a.txt", "text": "hä"}, "a.txt", "text/plain", "hä".encode()),
        ({"name": "a.md", "type": "text/markdown; charset=utf-8", "text": "x"}, "a.md", "text/markdown", b"x"),
        ({"name": "a", "data": "eH\nk=\r\n"}, "a", "application/octet-stream", b"xy"),
        ({"name": "a", "data": "data:text/csv;base64,eHk="}, "a", "text/csv", b"xy"),
        ({"name": "a", "type": "text/x", "data": "data:text/csv;base64,eHk="}, "a", "text/x", b"xy"),
        ({"name": "a", "type": "no type\nat all", "data": "eHk="}, "a", "application/octet-stream", b"xy"),
        ({"name": "a.png", "type": "text/html", "data": "iVBORw0KGgo="}, "a.png", "image/png", b"\x89PNG\r\n\x1a\n"),
        ({"name": "a", "type": "image/png", "data": base64_of(b"%PDF-1.7")}, "a", "application/pdf", b"%PDF-1.7"),
        ({"name": "../../etc/passwd", "text": "x"}, "passwd", "text/plain", b"x"),
        ({"name": "C:\\scans\\a b.png", "text": "x"}, "a b.png", "text/plain", b"x"),
        ({"name": "folder/", "text": "x"}, "file", "text/plain", b"x"),
        ({"name": "", "text": "x"}, "file", "text/plain", b"x"),
        ({"name": " a\n\t b\x00\x1b[0m\u202e ", "text": "x"}, "a b [0m", "text/plain", b"x"),
        ({"name": "a" * 500, "text": "x"}, "a" * 200, "text/plain", b"x"),
    ],
)
def test_attachments(body: dict[str, str], name: str, media_type: str, data: bytes) -> None:
    request = parse({"message": "Hi", "attachments": [body]})
    assert request.attachments == (Attachment(1, name, media_type, data),)


# Responses

UNTIL = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
FRAMES: list[tuple[ev.Event, str, str]] = [
    (ev.Token("Hä \"q\"\n\r\u2028\x85\\\x00\x7f"), "token",
     '{"text":"Hä \\"q\\"\\n\\r\\u2028\\u0085\\\\\\u0000\x7f"}'),
    (ev.SpecialistResult("c", "web", {}, "a", (), True, 0, by="assist"), "specialist_result",
     '{"call_id":"c","name":"web","params":{},"text":"a","citations":[],"cached":true,"ms":0,"by":"assist"}'),
    (ev.TaskChange("task1", "Briefing", "waiting", "c1"), "task",
     '{"task_id":"task1","title":"Briefing","state":"waiting","conversation_id":"c1"}'),
    (ev.Rewind(17, "Let me"), "rewind", '{"to":17,"text":"Let me"}'),
    (ev.Notice("prompt_progress", "", 0.5), "notice", '{"code":"prompt_progress","text":"","fraction":0.5}'),
    (ev.Usage(7, 2, None, False, {"m": ev.ModelUsage(7, 2, None, False)}), "usage",
     '{"prompt_tokens":7,"completion_tokens":2,"estimated":false,'
     '"models":{"m":{"prompt_tokens":7,"completion_tokens":2,"estimated":false}}}'),
    (ev.ApprovalRequired("c", "mail", {}, UNTIL.replace(microsecond=250_000)), "approval_required",
     '{"call_id":"c","name":"mail","params":{},"expires_at":"2026-11-21T08:30:00.250000Z"}'),
    # halves of characters, and numbers larger than most: nothing may break the stream
    (ev.SpecialistStart("c", "x", {"\ud800": ["\udfff", 10**30, 1.5]}, "auto"), "specialist_start",
     '{"call_id":"c","name":"x","params":{"\ufffd":["\ufffd",1000000000000000000000000000000,1.5]},"by":"auto"}'),
]  # fmt: skip


def test_fields_that_are_rare_and_frames_after_others() -> None:
    for event, name, data in FRAMES:
        first = f"retry: 2000\nevent: {name}\ndata: {data}\nid: t1.1\n\n".encode()
        second = f"event: {name}\ndata: {data}\nid: t1.2\n\n".encode()
        encoder = native.FrameEncoder("t1")
        if name == "rewind":  # it begins a log
            second = b"retry: 2000\n" + second
        assert [encoder.encode([event]), encoder.encode([event])] == [first, second]
        assert native.FrameEncoder("t1").encode([*native.decode_frames(first + second)]) == first + second
        assert native.FrameEncoder("t1", 1).encode([event]) == second
    rewound = native.FrameEncoder("t1", 100_000_000).encode([ev.Rewind(17, "a"), ev.Token("b")]).decode()
    assert rewound == (
        'retry: 2000\nevent: rewind\ndata: {"to":17,"text":"a"}\nid: t1.100000001\n\n'
        'event: token\ndata: {"text":"b"}\nid: t1.100000002\n\n'
    )
