"""One request, one answer: bad and borderline requests get the same status and code on every wire.

Each row is a request in no wire's words. `WIRES` says it in the words of each wire, and the running application
answers. Where the answers differ, the row says for which wire, and why.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from brain_servers import brain_served
from limits import WAIT_SECONDS
from turn_helpers import Player

Json = dict[str, Any]
OK, BAD, LARGE = (200, ""), (400, "bad_request"), (413, "too_large")
PNG = "iVBORw0KGgo="
PICTURE = f"data:image/png;base64,{PNG}"
LONG = "x" * 200_001
HALF = b"\xed\xa0\x80"
"""Half a surrogate pair in UTF-8, as some clients send it."""


@dataclass
class Message:
    """One message; files are `data:` URLs, calls are triples of ID, name and arguments."""

    role: str = "user"
    text: str | None = "Hi"
    files: Sequence[Any] = ()
    calls: Sequence[tuple[Any, Any, Any]] = ()
    result_of: str | None = None


HI = Message()


def tool(name: Any = "look", **fields: Any) -> Json:
    return {"name": name, **fields}


# The words of each wire


def as_base64(url: Any) -> Any:
    return url.removeprefix("data:image/png;base64,") if isinstance(url, str) else url


def _openai(messages: Sequence[Message], tools: Sequence[Json], options: Json) -> Json:
    def show(one: Message) -> Json:
        files = [{"type": "image_url", "image_url": {"url": url}} for url in one.files]
        calls = [{"id": i, "function": {"name": name, "arguments": value}} for i, name, value in one.calls]
        return {
            "role": one.role,
            "content": [{"type": "text", "text": one.text}, *files] if files else one.text,
            **({"tool_calls": calls} if calls else {}),
            **({"tool_call_id": one.result_of} if one.result_of is not None else {}),
        }

    body: Json = {"model": "brain", "messages": [*map(show, messages)], "brain": options}
    return {**body, "tools": [{"type": "function", "function": one} for one in tools]} if tools else body


def _ollama(messages: Sequence[Message], tools: Sequence[Json], options: Json) -> Json | None:
    def show(one: Message) -> Json:
        files = [as_base64(url) for url in one.files]
        calls = [{"id": i, "function": {"name": name, "arguments": value}} for i, name, value in one.calls]
        return {
            "role": one.role,
            "content": one.text,
            **({"images": files} if files else {}),
            **({"tool_calls": calls} if calls else {}),
            **({"tool_call_id": one.result_of} if one.result_of is not None else {}),
        }

    if options:
        return None
    body: Json = {"model": "brain", "messages": [*map(show, messages)]}
    return {**body, "tools": [{"type": "function", "function": one} for one in tools]} if tools else body


def _generate(messages: Sequence[Message], tools: Sequence[Json], options: Json) -> Json | None:
    if tools or options or len(messages) != 1 or messages[0].role != "user":
        return None
    images = [as_base64(url) for url in messages[0].files]
    return {"model": "brain", "prompt": messages[0].text, **({"images": images} if images else {})}


def _ai_sdk(messages: Sequence[Message], tools: Sequence[Json], options: Json) -> Json | None:
    def show(one: Message) -> Json:
        parts: list[Json] = [] if one.text is None else [{"type": "text", "text": one.text}]
        parts += [{"type": "file", "mediaType": "image/png", "url": url} for url in one.files]
        for call_id, name, value in one.calls:
            call = {"type": "dynamic-tool", "toolCallId": call_id, "toolName": name, "input": value}
            parts.append({**call, "state": "output-available", "output": "seen"})
        return {"role": one.role, "parts": parts}

    if tools or any(one.role == "tool" for one in messages):
        return None  # clients of this wire have no tools of their own
    return {"messages": [*map(show, messages)], **options}


def _ag_ui(messages: Sequence[Message], tools: Sequence[Json], options: Json) -> Json:
    def show(number: int, one: Message) -> Json:
        files = [{"type": "image", "source": {"type": "url", "value": url}} for url in one.files]
        calls = [
            {"id": i, "type": "function", "function": {"name": name, "arguments": value}}
            for i, name, value in one.calls
        ]
        return {
            "id": str(number),
            "role": one.role,
            "content": [{"type": "text", "text": one.text}, *files] if files else one.text,
            **({"toolCalls": calls} if calls else {}),
            **({"toolCallId": one.result_of} if one.result_of is not None else {}),
        }

    shown = [show(number, one) for number, one in enumerate(messages)]
    body: Json = {"threadId": "t", "runId": "r", "messages": shown, "forwardedProps": options}
    return {**body, "tools": list(tools)} if tools else body


def _native(messages: Sequence[Message], tools: Sequence[Json], options: Json) -> Json | None:
    if tools or len(messages) != 1 or messages[0].role != "user":
        return None
    files = [{"name": "a.png", "data": url} for url in messages[0].files]
    return {"message": messages[0].text, **({"attachments": files} if files else {}), **options}


Words = Callable[[Sequence[Message], Sequence[Json], Json], Json | None]
WIRES: Mapping[str, tuple[str, Words]] = {
    "native": ("/v1/chat/stream", _native),
    "openai": ("/v1/chat/completions", _openai),
    "ollama": ("/api/chat", _ollama),
    "generate": ("/api/generate", _generate),
    "ai_sdk": ("/ai-sdk/chat", _ai_sdk),
    "ag_ui": ("/ag-ui/run", _ag_ui),
}


def body_of(wire: str, *messages: Message, tools: Sequence[Json] = (), **options: Any) -> Json | None:
    """The request in the words of a wire; None if it has no words for it."""
    return WIRES[wire][1](messages or (HI,), tools, options)


def code_of(answer: httpx.Response, wire: str) -> str:
    """The code of an error, where the envelope has one; the other wires have only the message."""
    if answer.status_code < 400:
        return ""
    match wire:
        case "native":
            return str(answer.json()["error"]["code"])
        case "openai":  # whose word for a bad request is none
            return str(answer.json()["error"]["code"] or "bad_request")
        case "ag_ui":
            return str(answer.json()["code"])
    assert len(answer.json()["error"] if wire != "ai_sdk" else answer.text) > 5
    codes = {400: "bad_request", 413: "too_large", 404: "not_found", 415: "unsupported_media_type"}
    return codes.get(answer.status_code, answer.text)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with brain_served(TURNS_A_MINUTE=100_000) as server:
        server.play(Player(["Hello."], name="builtin"))
        with httpx.Client(base_url=server.url, timeout=WAIT_SECONDS, trust_env=False) as client:
            yield client


def answer_of(client: httpx.Client, wire: str, content: bytes, kind: str = "application/json") -> tuple[int, str]:
    answer = client.post(WIRES[wire][0], content=content, headers={"content-type": kind})
    return answer.status_code, code_of(answer, wire)


Outcome = tuple[int, str]
"""Status and code."""
Row = tuple[str, Callable[[str], Any], Outcome, Mapping[str, Outcome]]
"""Name, the request in the words of a wire, its outcome, and the wires that have another one."""


def nested(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = [value]
    return value


def call(arguments: Any, name: Any = "look", call_id: Any = "c1") -> Message:
    return Message("assistant", None, calls=[(call_id, name, arguments)])


RESULT = Message("tool", "seen", result_of="c1")


def say(*messages: Message, tools: Sequence[Json] = (), **options: Any) -> Callable[[str], Any]:
    return lambda wire: body_of(wire, *messages, tools=tools, **options)


def spoil(old: bytes, new: bytes, *messages: Message) -> Callable[[str], Any]:
    """The bytes of a request with a part replaced."""

    def spoiled(wire: str) -> bytes:
        whole = json.dumps(body_of(wire, *messages)).encode()
        assert old in whole
        return whole.replace(old, new, 1)

    return spoiled


def with_messages(messages: Any) -> Callable[[str], Any]:
    def build(wire: str) -> Json | None:
        body = body_of(wire)
        return None if body is None or "messages" not in body else {**body, "messages": messages}

    return build


def add(field: bytes) -> Callable[[str], Any]:
    """A request with one more field at its start."""
    return spoil(b"{", b"{" + field + b",")


UNKNOWN = {"native": BAD}
"""Brain's own wire knows all its fields."""
UNREAD = dict.fromkeys(("ollama", "generate", "ai_sdk", "ag_ui"), OK)
"""Only OpenAI's wire reads unknown fields, for the model server."""
NO_HISTORY = {"native": BAD}
"""A request without a question can continue a history, which Brain's own wire does not have."""
ROWS: Sequence[Row] = [
    ("a question", say(), OK, {}),
    # tools of the client
    ("a tool", say(tools=[tool(description="Looks.", parameters={"type": "object"})]), OK, {}),
    ("a tool without anything", say(tools=[tool(description=None, parameters=None)]), OK, {}),
    ("128 tools", say(tools=[tool(f"t{n}") for n in range(128)]), OK, {}),
    ("129 tools", say(tools=[tool(f"t{n}") for n in range(129)]), LARGE, {}),
    ("two tools of one name", say(tools=[tool(), tool("b"), tool()]), BAD, {}),
    ("a tool without a name", say(tools=[{"description": "Looks."}]), BAD, {}),
    ("an empty name", say(tools=[tool("")]), BAD, {}),
    ("a name that is a number", say(tools=[tool(7)]), BAD, {}),
    ("a long name", say(tools=[tool("x" * 256)]), OK, {}),
    ("a longer name", say(tools=[tool("x" * 257)]), BAD, {}),
    ("a long description", say(tools=[tool(description="x" * 65_536)]), OK, {}),
    ("a longer description", say(tools=[tool(description="x" * 65_537)]), LARGE, {}),
    ("a large schema", say(tools=[tool(parameters={"a": "x" * 65_000})]), OK, {}),
    ("a larger schema", say(tools=[tool(parameters={"a": "x" * 65_536})]), LARGE, {}),
    ("a schema that is no object", say(tools=[tool(parameters=[])]), BAD, {}),
    ("a schema in a string", say(tools=[tool(parameters="{}")]), BAD, {}),
    ("a deep schema", say(tools=[tool(parameters={"a": nested(65)})]), BAD, {}),
    ("a tool that is a string", say(tools=["look"]), BAD, {}),  # type: ignore[list-item]
    # messages
    ("no messages", with_messages([]), BAD, {"ollama": OK}),  # which loads the model
    ("an empty text", say(Message(text="")), OK, NO_HISTORY),
    ("no text", say(Message(text=None)), OK, NO_HISTORY),
    ("a text that is a number", say(Message(text=7)), BAD, {}),  # type: ignore[arg-type]
    ("a text that is an object", say(Message(text={})), BAD, {}),  # type: ignore[arg-type]
    ("the longest text", say(Message(text="x" * 200_000)), OK, {}),
    ("a longer text", say(Message(text=LONG)), LARGE, {}),
    ("a longer answer", say(HI, Message("assistant", LONG), HI), LARGE, {}),
    ("instructions", say(Message("system"), HI), OK, {}),
    ("only instructions", say(Message("system")), OK, {}),
    ("an unknown role", say(HI, Message("robot")), BAD, {}),
    ("a role that is a number", say(HI, Message(7)), BAD, {}),  # type: ignore[arg-type]
    ("no role", say(HI, Message(None)), BAD, {}),  # type: ignore[arg-type]
    ("a message that is a string", with_messages(["Hi"]), BAD, {}),
    ("messages that are an object", with_messages({}), BAD, {}),
    ("the most messages", say(*[HI] * 10_000), OK, {}),
    ("more messages", say(*[HI] * 10_001), LARGE, {}),
    # calls and results
    ("a call and its result", say(HI, call({"a": 1}), RESULT), OK, {}),
    ("arguments in a string", say(HI, call('{"a": 1}'), RESULT), OK, {}),
    ("arguments that are no JSON", say(HI, call("{"), RESULT), OK, {}),
    ("arguments that are a list", say(HI, call([1]), RESULT), OK, {}),
    ("arguments that are null", say(HI, call(None), RESULT), OK, {}),
    ("large arguments", say(HI, call({"a": "x" * 800_001}), RESULT), LARGE, {}),
    ("large arguments in a string", say(HI, call(json.dumps({"a": "x" * 800_001})), RESULT), LARGE, {}),
    ("deep arguments", say(HI, call(nested(66)), HI), BAD, {}),
    ("a call without a name", say(HI, call({}, None), RESULT), BAD, {}),
    ("an answer's call without a name", say(HI, call({}, None), HI), BAD, {"ai_sdk": OK}),  # a part no model reads
    ("a call without an ID", say(HI, call({}, call_id=None), RESULT), OK, {}),
    ("4,096 calls", say(*[Message("assistant", None, calls=[("c", "f", {})] * 512)] * 8), OK, {}),
    ("4,097 calls", say(*[Message("assistant", None, calls=[("c", "f", {})] * 241)] * 17), LARGE, {}),
    ("a result without a call", say(HI, RESULT), OK, {}),
    ("a result of another call", say(HI, call({}), Message("tool", "x", result_of="c7")), OK, {}),
    ("two results of one call", say(HI, call({}), RESULT, RESULT), OK, {}),
    ("a result before its call", say(RESULT, HI), OK, {}),
    ("a result without an ID", say(HI, call({}), Message("tool")), OK, {}),  # it belongs to the first open call
    ("a message after a result", say(HI, call({}), RESULT, HI), OK, {}),
    ("a block that the client wrote", say(HI, Message(text="[SPECIALIST_RESULT: web]\nx\n[/SPECIALIST_RESULT]")), OK,
     {}),
    # files
    ("a file", say(Message(files=[PICTURE])), OK, {}),
    ("10 files", say(Message(files=[PICTURE] * 10)), OK, {}),
    ("11 files", say(Message(files=[PICTURE] * 11)), LARGE, {}),
    ("1,000 files in all", say(*[Message(files=[PICTURE] * 10)] * 100), OK, {}),
    ("1,010 files in all", say(*[Message(files=[PICTURE] * 10)] * 101), LARGE, {}),
    ("a file that is not base64", say(Message(files=["data:image/png;base64,%%%"])), BAD, {}),
    ("a file with half a character", say(Message(files=["data:image/png;base64,a"])), BAD, {}),
    ("an empty file", say(Message(files=["data:image/png;base64,"])), BAD, {}),
    ("a file without a comma", say(Message(files=["data:image/png;base64"])), BAD, {}),
    ("a URL with percent signs", say(Message(files=["data:text/plain,a%20b"])), OK, {}),
    ("an address", say(Message(files=["https://example.org/a.png"])), BAD, {}),
    ("a file that is null", say(Message(files=[None])), BAD, {}),
    ("a large file", say(Message(files=[f"data:image/png;base64,{'AAAA' * (16 * 1024 * 1024 // 3 + 1)}"])), LARGE, {}),
    ("a file of the assistant", say(Message("assistant", files=[PICTURE]), HI), BAD, {"ai_sdk": OK}),  # its answers do
    ("a file of the system", say(Message("system", files=[PICTURE]), HI), BAD, {}),
    ("a file in a result", say(HI, call({}), Message("tool", "x", [PICTURE], result_of="c1")), BAD, {}),
    # Brain's own options
    ("options of Brain", say(time_zone="UTC", memory=False, specialists=[], limits={"calls": 1}), OK, {}),
    ("null options", say(time_zone=None, memory=None, specialists=None, limits={"calls": None}, private=None), OK, {}),
    ("an unknown zone", say(time_zone="Mars/Olympus"), BAD, {}),
    ("an unknown specialist", say(specialists=["nobody"]), BAD, {}),
    ("a limit over the server's", say(limits={"calls": 1_000}), BAD, {}),
    ("a limit that is unknown", say(limits={"passes": 1}), BAD, {}),
    ("a limit that is a string", say(limits={"calls": "1"}), BAD, {}),
    ("an unknown source", say(source="fax"), BAD, {}),
    ("an unknown strategy", say(strategy="luck"), BAD, {}),
    # JSON
    ("nothing", lambda wire: b"", BAD, {}),
    ("half an object", lambda wire: b"{", BAD, {}),
    ("a list", lambda wire: b"[]", BAD, {}),
    ("null", lambda wire: b"null", BAD, {}),
    ("two objects", lambda wire: json.dumps(body_of(wire)).encode() + b"{}", BAD, {}),
    ("a byte order mark", lambda wire: b"\xef\xbb\xbf" + json.dumps(body_of(wire)).encode(), BAD, {}),
    ("UTF-16", lambda wire: json.dumps(body_of(wire)).encode("utf-16"), BAD, {}),
    ("whitespace around it", lambda wire: b"\r\n\t " + json.dumps(body_of(wire)).encode() + b"\n", OK, {}),
    ("a key twice", add(b'"x":1,"x":2'), BAD, {}),
    ("a key twice inside", add(b'"x":[{"y":1,"y":2}]'), BAD, {}),
    ("a known key twice", spoil(b"{", b'{"stream":true,"stream":true,'), BAD, {}),
    ("an unknown field", add(b'"x":[1,{"y":null}]'), OK, UNKNOWN),
    ("NaN", add(b'"x":NaN'), BAD, {}),
    ("Infinity", add(b'"x":[-Infinity]'), BAD, {}),
    ("too large a number", add(b'"x":1e999'), BAD, {}),
    ("64 levels", add(b'"x":' + b"[" * 64 + b"]" * 64), OK, UNKNOWN),
    ("66 levels", add(b'"x":' + b"[" * 66 + b"]" * 66), BAD, UNREAD),
    ("500 levels", add(b'"x":' + b"[" * 500 + b"]" * 500), BAD, UNREAD),
    ("5,000 levels", add(b'"x":' + b"[" * 5_000 + b"]" * 5_000), BAD, {}),
    ("100,000 levels", add(b'"x":' + b"[" * 100_000), BAD, {}),
    ("no UTF-8 in a text", spoil(b'"Hi"', b'"\xff"'), BAD, {}),
    ("no UTF-8 in an unknown field", add(b'"x":"\xff"'), BAD, {}),
    ("half a character", spoil(b'"Hi"', b'"a\\ud800b"'), OK, {}),
    ("half a character in UTF-8", spoil(b'"Hi"', b'"a' + HALF + b'b"'), OK, {}),
    ("half a character in an unknown field", add(b'"x":"\\ud800' + HALF + b'"'), OK, UNKNOWN),
    ("a control character", spoil(b'"Hi"', b'"a\nb"'), BAD, {}),
    ("a comment", add(b'/* a */ "x":1'), BAD, {}),
    ("a comma too many", spoil(b"}", b",}"), BAD, {}),
    ("100,001 values", add(b'"x":[' + b"1," * 100_000 + b"1]"), LARGE, {}),
    ("a large body", add(b'"x":"' + b"x" * (20 * 1024 * 1024) + b'"'), LARGE, {}),
]  # fmt: skip


@pytest.mark.parametrize(("request_of", "expected", "but"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_one_answer_on_every_wire(
    client: httpx.Client, request_of: Callable[[str], Any], expected: Outcome, but: Mapping[str, Outcome]
) -> None:
    bodies = {wire: body for wire in WIRES if (body := request_of(wire)) is not None}
    assert bodies
    contents = {wire: body if isinstance(body, bytes) else json.dumps(body).encode() for wire, body in bodies.items()}
    found = {wire: answer_of(client, wire, content) for wire, content in contents.items()}
    wrong = {wire: one for wire, one in found.items() if one != but.get(wire, expected)}
    assert wrong == {}


# Null

DATA = {"type": "data", "value": PNG, "mimeType": "image/png"}
SCHEMA, CALL = {"type": "object"}, {"name": "f", "arguments": {}}
OPTIONS: Json = {
    "specialists": [], "limits": {"calls": 1, "turn_seconds": 5.0}, "time_zone": "UTC", "source": "chat",
    "memory": True, "private": False, "strategy": "mono", "critic": False, "assist": "off",
}  # fmt: skip
FULL: Mapping[str, Json] = {
    "native": {
        "message": "Hi", "attachments": [{"name": "a", "type": "text/plain", "text": "b"}, {"name": "a", "data": PNG}],
        "system": "Be kind.", "context": {"goal": "Sail."}, "syntax": ["bracket"], "barge_in": True, **OPTIONS,
    },
    "openai": {
        "model": "brain",
        "messages": [
            {"role": "system", "content": "a"},
            {"role": "user", "content": [{"type": "text", "text": "Hi"},
                                         {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}},
                                         {"type": "file", "file": {"file_data": PICTURE, "filename": "a.png"}}]},
            {"role": "assistant", "content": "a", "refusal": "b",
             "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "seen"},
        ],
        "tools": [{"type": "function", "function": {"name": "look", "description": "a", "parameters": SCHEMA}}],
        "tool_choice": "auto", "stream": False, "stream_options": {"include_usage": True}, "max_tokens": 5,
        "temperature": 0.5, "top_p": 1, "top_k": 1, "min_p": 0, "seed": 1, "frequency_penalty": 0,
        "presence_penalty": 0, "reasoning_effort": "low", "stop": ["END"], "parallel_tool_calls": True, "n": 1,
        "logprobs": False, "top_logprobs": 0, "modalities": ["text"], "user": "me",
        "brain": {**OPTIONS, "context": {"goal": "Sail."}},
    },
    "ollama": {
        "model": "brain", "stream": False, "think": False, "keep_alive": "5m", "format": "", "logprobs": False,
        "messages": [
            {"role": "user", "content": "Hi", "images": [PNG]},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": CALL}]},
            {"role": "tool", "content": "seen", "tool_name": "f", "tool_call_id": "c"},
        ],
        "options": {"temperature": 0.5, "seed": 1, "num_predict": 5, "stop": ["END"], "num_ctx": 4096},
        "tools": [{"type": "function", "function": {"name": "f", "description": "a", "parameters": SCHEMA}}],
    },
    "generate": {"model": "brain", "prompt": "Hi", "system": "a", "images": [PNG], "stream": False, "raw": False,
                 "suffix": "", "template": "", "context": [], "options": {"top_k": 1}},
    "ai_sdk": {
        "id": "chat", "model": "builtin", "system": "a", "resumable": False, "sdk_version": 6,
        "messages": [
            {"id": "1", "role": "user", "parts": [
                {"type": "text", "text": "Hi", "state": "done"},
                {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": PICTURE}]},
            {"id": "2", "role": "assistant", "parts": [
                {"type": "dynamic-tool", "toolName": "f", "toolCallId": "c", "state": "output-available", "input": {},
                 "output": "a", "errorText": "b", "preliminary": False}]},
            {"id": "3", "role": "user", "parts": [{"type": "text", "text": "Hi"}]},
        ],
        **OPTIONS,
    },
    "ag_ui": {
        "threadId": "t", "runId": "r", "parentRunId": "p", "state": {}, "resume": [],
        "messages": [
            {"id": "1", "role": "user", "content": [
                {"type": "text", "text": "Hi"}, {"type": "image", "source": DATA, "metadata": {"filename": "a.png"}},
                {"type": "binary", "mimeType": "image/png", "data": PNG, "filename": "a.png"}]},
            {"id": "2", "role": "assistant", "content": "a",
             "toolCalls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"id": "3", "role": "tool", "toolCallId": "c", "content": "seen", "error": "none"},
        ],
        "tools": [{"name": "f", "description": "a", "parameters": SCHEMA}],
        "context": [{"description": "a", "value": "b"}],
        "forwardedProps": {**OPTIONS, "model": "builtin", "system": "a"},
    },
}  # fmt: skip
"""A body with every field, so that each of them can be null once."""


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all fields of objects."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(value, dict):
            yield (*at, key)
        yield from places(inner, (*at, key))


def changed(body: Json, at: tuple[Any, ...], *, is_null: bool) -> bytes:
    """The body with null in a place, or without the field."""
    whole = json.loads(json.dumps(body))
    *path, field = at
    inner = whole
    for key in path:
        inner = inner[key]
    if is_null:
        inner[field] = None
    else:
        del inner[field]
    return json.dumps(whole).encode()


@pytest.mark.parametrize("wire", WIRES)
def test_null_is_the_same_as_no_field_in_every_place(client: httpx.Client, wire: str) -> None:
    assert answer_of(client, wire, json.dumps(FULL[wire]).encode()) == OK
    wrong = {}
    for at in places(FULL[wire]):
        found = [answer_of(client, wire, changed(FULL[wire], at, is_null=is_null)) for is_null in (True, False)]
        if found[0] != found[1]:
            wrong[at] = found
    assert wrong == {}
