"""Native tool calls with real protocols: requests, answers, servers that do not support them, and several servers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from model_answers import model_of
from model_servers import Cut, Item, OllamaServer, OpenAIServer, Pass, Raw, Server, models
from turn_helpers import add, ask_for, done, echo, failed, read, registry_of, short, succeeded, turn_of

from brain import specialist
from brain.events import Event, Limits, SyntaxName
from brain.messages import Call
from brain.turn.turn import Turn
from brain.turn_request import Tool

pytestmark = pytest.mark.anyio

NATIVE: tuple[SyntaxName, ...] = ("native",)
MARKER = 'SPECIALIST_REQUEST[add:{"a":1,"b":2}]'
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}


def openai(*deltas: Mapping[str, Any]) -> list[Item]:
    frames = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    return [Raw(b"data: " + json.dumps(frame).encode() + b"\n\n") for frame in frames]


def piece(index: int, *, id: str | None = None, **function: Any) -> Mapping[str, Any]:
    head = {} if id is None else {"id": id, "type": "function"}
    return {"tool_calls": [{"index": index, **head, "function": function}]}


def ollama(*messages: Mapping[str, Any]) -> list[Item]:
    lines = [{"model": "m", "message": {"role": "assistant", "content": "", **one}, "done": False} for one in messages]
    return [Raw(json.dumps(line).encode() + b"\n") for line in lines]


def whole(name: str, arguments: Mapping[str, Any], index: int = 0) -> Mapping[str, Any]:
    return {"function": {"index": index, "name": name, "arguments": arguments}}


CALL = openai(piece(0, id="x", name="add", arguments='{"a":1,"b":2}'))
LLAMA_CPP = models("m", owned_by="llamacpp")
"""Each of the following lists is one pass: text, then two calls."""
NEXT_CALL = openai(piece(1, id="call_2", name="echo", arguments=""))[0]
OPENAI_PASS = openai(
    {"role": "assistant", "content": "Let "},
    {"content": "me add."},
    piece(0, id="call_1", name="add", arguments=""),
    piece(0, arguments='{"a": 1'),
    piece(0, arguments=', "b": 2}'),
    piece(1, id="call_2", name="echo", arguments=""),
    piece(1, arguments='{"text":"hi"}'),
)
LLAMA_CPP_PASS = openai(
    {"role": "assistant", "content": None},
    {"content": "Let me add."},
    piece(0, id="uWq0", name="add", arguments="{"),
    piece(0, arguments='"a":1,"b":2}'),
    piece(1, id="0bdX", name="echo", arguments='{"text":"hi"}'),
)
VLLM_PASS = openai(
    {"role": "assistant", "content": ""},
    {"content": "Let me add."},
    piece(0, id="chatcmpl-tool-1", name="add"),
    piece(0, arguments='{"a": 1, "b": 2}'),
    piece(1, id="chatcmpl-tool-2", name="echo"),
    piece(1, arguments='{"text": "hi"}'),
)
OLLAMA_PASS = ollama(
    {"content": "Let me add."},
    {"tool_calls": [whole("add", {"a": 1, "b": 2}), whole("echo", {"text": "hi"}, 1)]},
)
SERVERS: Mapping[str, tuple[type[Server], Mapping[str, Any], Sequence[Item]]] = {
    "openai": (OpenAIServer, models("m", owned_by="unknown"), OPENAI_PASS),
    "llama.cpp": (
        OpenAIServer,
        LLAMA_CPP | {"GET /props": (200, {"chat_template": "{{ tools }}", "chat_template_caps": {}})},
        LLAMA_CPP_PASS,
    ),
    "vllm": (OpenAIServer, models("m", owned_by="vllm"), VLLM_PASS),
    "ollama": (OllamaServer, {"POST /api/show": (200, {"capabilities": ["completion", "tools"]})}, OLLAMA_PASS),
}


async def run(model: Any, syntax: tuple[SyntaxName, ...] = NATIVE, **options: Any) -> tuple[Sequence[Any], Turn]:
    turn = turn_of(model, registry_of(echo, add), ask_for("What is 1 + 2?", syntax=syntax), **options)
    events: Sequence[Event] = await read(turn)
    return short(events), turn


@pytest.mark.parametrize("size", [0, 1, 7, -1])
@pytest.mark.parametrize("kind", SERVERS)
async def test_calls_in_the_form_of_each_server(kind: str, size: int) -> None:
    server_class, answers, items = SERVERS[kind]
    passes = [Pass(items, finish="tool_calls", piece=size), Pass(["It is ", "3."], piece=size)]
    async with server_class(*passes, answers=answers) as server, model_of(server, identify=True) as model:
        events, turn = await run(model)
        first, second = server.generated
    starts = [event for event in events if not isinstance(event, str) and "start" in event]
    assert [(event["name"], event["params"]) for event in starts] == [
        ("add", {"a": 1, "b": 2}),
        ("echo", {"text": "hi"}),
    ]
    assert (events[0], events[-2:]) == ("Let me add.", ["\n\nIt is 3.", done("Let me add.\n\nIt is 3.", 2, 2)])
    assert [part.marker for part in turn.state.exchange.parts if isinstance(part, Call)] == [
        MARKER,
        'SPECIALIST_REQUEST[echo:{"text":"hi"}]',
    ]
    assert first["tools"] == second["tools"]
    assert first["tools"][0] == ADD
    assert ("tool_choice" in first, "tool_choice" in second) == (False, False)
    assert "SPECIALIST_REQUEST" not in json.dumps(second)
    assert second["messages"][:-3] == first["messages"]
    if kind == "ollama":
        assert second["messages"][-3:] == [
            {
                "role": "assistant",
                "content": "Let me add.",
                "tool_calls": [
                    {"id": "call00001", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}},
                    {"id": "call00002", "function": {"name": "echo", "arguments": {"text": "hi"}}},
                ],
            },
            {"role": "tool", "tool_name": "add", "tool_call_id": "call00001", "content": "3"},
            {"role": "tool", "tool_name": "echo", "tool_call_id": "call00002", "content": "hi"},
        ]
    else:
        functions = [
            {"name": "add", "arguments": '{"a": 1, "b": 2}'},
            {"name": "echo", "arguments": '{"text": "hi"}'},
        ]
        calls = [{"id": f"call0000{n}", "type": "function", "function": one} for n, one in enumerate(functions, 1)]
        assert second["messages"][-3:] == [
            {"role": "assistant", "content": "Let me add.", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "call00001", "content": "3"},
            {"role": "tool", "tool_call_id": "call00002", "content": "hi"},
        ]


@pytest.mark.parametrize("at", range(len(OPENAI_PASS) + 1))
async def test_a_stream_that_fails_at_any_chunk(at: int) -> None:
    """A call runs once the next one begins, and then no other is lost. Without any, another model continues."""
    cut = Pass([*OPENAI_PASS[:at], Cut(reset=True)], finish=None, done=False)
    async with (
        OpenAIServer(cut, Pass(["It is 3."])) as first,
        OllamaServer(Pass([MARKER]), Pass(["It is 3."])) as second,
        model_of(first) as native,
        model_of(second) as other,
    ):
        other.accepts_tools = False
        events, _ = await run(native, fallbacks=[other])
    text, has_call = "".join(["Let ", "me add."][:at]), at > OPENAI_PASS.index(NEXT_CALL)
    separator = "\n\n" if has_call else ""  # the other model continues the text itself
    assert events[-1] == done(f"{text}{separator}It is 3.", 2 if has_call else 1, 2 if has_call else 3)
    is_whole = at == len(OPENAI_PASS)
    assert [event["name"] for event in events if "start" in event] == (["add", "echo"] if is_whole else ["add"])
    codes = [event["code"] for event in events if "error" in event]
    assert codes == (["malformed"] if has_call and not is_whole else [])
    assert ({"notice": "fallback"} in events) is not has_call


@pytest.mark.parametrize(
    ("first", "second"), [(True, False), (False, True)], ids=["native, then markers", "markers, then native"]
)
async def test_a_model_with_another_form_of_calls_continues(first: bool, second: bool) -> None:
    def call(is_native: bool) -> Sequence[Item]:
        return CALL if is_native else [MARKER]

    cut = Pass(["So it ", Cut(reset=True)], finish=None, done=False)
    echoes = openai(piece(0, id="y", name="echo", arguments="{}")) if second else ["SPECIALIST_REQUEST[echo]"]
    async with (
        OpenAIServer(Pass(call(first)), cut) as failing,
        OpenAIServer(Pass(["is 3. ", *echoes]), Pass(["Done."])) as other,
        model_of(failing, resume="prefill") as one,
        model_of(other, resume="prefill") as two,
    ):
        one.accepts_tools, two.accepts_tools = first, second
        events, _ = await run(one, fallbacks=[two])
        bodies = [*failing.generated, *other.generated]
    assert events[-1] == done("So it is 3. Done.", 2, 4)
    assert ["tools" in body for body in bodies] == [first, first, second, second]
    assert ["tool_calls" in json.dumps(body["messages"]) for body in bodies] == [False, first, second, second]
    assert ["SPECIALIST_RESULT: add]" in json.dumps(body) for body in bodies] == [False, not first, first, first]


# Servers without support


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (500, "tools param requires --jinja flag"),
        (404, "No endpoints found that support tool use. To learn more, visit: https://openrouter.ai/docs"),
        (400, "`tool calling` is not supported with this model"),
        (400, "Function calling is not enabled for models/gemma-3-27b-it"),
        (400, "Unrecognized request argument supplied: tools"),
        (422, '[{"type":"extra_forbidden","loc":["body","tools"],"msg":"Extra inputs are not permitted"}]'),
    ],
)
@pytest.mark.parametrize("server_class", [OpenAIServer, OllamaServer])
async def test_a_server_without_tools_reads_about_calls_in_the_prompt(
    server_class: type[Server], status: int, text: str
) -> None:
    refusal = Pass(status=status, answer={"error": text if server_class is OllamaServer else {"message": text}})
    passes = [refusal, Pass([MARKER]), Pass(["It is 3."]), Pass(["Yes."])]
    async with server_class(*passes) as server, model_of(server) as model:
        events, _ = await run(model)
        assert [*succeeded("add", "3", a=1, b=2), "It is 3.", done("It is 3.", 1, 2)] == events
        await run(model)
        assert ["tools" in body for body in server.generated] == [True, False, False, False]
        assert "SPECIALIST_REQUEST[name:" in server.generated[1]["messages"][0]["content"]
        assert "SPECIALIST_REQUEST" not in server.generated[0]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "Invalid schema for function 'add'"),
        (400, "Unexpected role 'user' after role 'tool'"),
        (422, "Function call is missing a thought_signature"),
    ],
)
async def test_a_rejected_request_leaves_the_turn_without_tools(status: int, text: str) -> None:
    refusal = Pass(status=status, answer={"error": {"message": text}})
    passes = [Pass(CALL), refusal, Pass(["So: ", MARKER.replace("2", "3")]), Pass(["It is 4."]), Pass(["Yes."])]
    async with OpenAIServer(*passes) as server, model_of(server) as model:
        events, _ = await run(model)
        assert events[-1] == done("So: It is 4.", 2, 3)
        await run(model)
        assert ["tools" in body for body in server.generated] == [True, True, False, False, True]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "This model's maximum context length is 4096 tokens"),
        (400, "Bad image"),
        (500, "Internal error"),
        (401, "This key does not support tools"),
    ],
)
async def test_other_errors_end_the_turn(status: int, text: str) -> None:
    refusal = Pass(status=status, answer={"error": {"message": text}})
    async with OpenAIServer(refusal, refusal) as server, model_of(server) as model:
        events, _ = await run(model)
        assert ("failed" in events[-1], model.accepts_tools) == (True, True)


async def test_a_server_may_reject_a_prefill_and_then_tools() -> None:
    refusals = ["conversation must end with a user message", "tools are not supported"]
    passes = [*(Pass(status=400, answer={"error": {"message": text}}) for text in refusals), Pass(["is 3."])]
    cut = Pass(["It ", Cut(reset=True)], finish=None, done=False)
    async with OpenAIServer(cut) as failing, OpenAIServer(*passes) as server:
        async with model_of(failing) as first, model_of(server, resume="prefill") as model:
            events, _ = await run(first, fallbacks=[model])
        assert events[-1] == done("It is 3.", 0, 2)
        assert ["tools" in body for body in server.generated] == [True, True, False]
        assert [body["messages"][-1]["role"] for body in server.generated] == ["assistant", "user", "user"]


LLAMA_CAPS = {"supports_tools": True, "supports_tool_calls": True}


@pytest.mark.parametrize(
    ("server_class", "answers", "accepts"),
    [
        (OllamaServer, {"POST /api/show": (200, {"capabilities": ["completion", "tools"]})}, True),
        (OllamaServer, {"POST /api/show": (200, {"capabilities": ["completion"]})}, False),
        (OllamaServer, {"POST /api/show": (200, {})}, True),
        (OpenAIServer, LLAMA_CPP | {"GET /props": (200, {"chat_template_caps": LLAMA_CAPS})}, True),
        (OpenAIServer, LLAMA_CPP | {"GET /props": (200, {"chat_template_caps": {"supports_tools": False}})}, False),
        (OpenAIServer, LLAMA_CPP | {"GET /props": (200, {"chat_template": "{% if tools %}"})}, True),
        (OpenAIServer, LLAMA_CPP | {"GET /props": (200, {"chat_template": "{{ messages }}"})}, False),
        (OpenAIServer, LLAMA_CPP, True),
        (OpenAIServer, models("m", owned_by="vllm"), True),
        (OpenAIServer, models("m", owned_by="x", capabilities={"function_calling": False}), False),
        (OpenAIServer, models("m", owned_by="x", capabilities={"function_calling": True}), True),
        (OpenAIServer, models("m", owned_by="x", supported_parameters=["temperature"]), False),
        (OpenAIServer, models("m", owned_by="x", supported_parameters=["tools"]), True),
    ],
)
async def test_what_free_requests_report(server_class: type[Server], answers: Any, accepts: bool) -> None:
    async with server_class(answers=answers) as server, model_of(server, identify=True) as model:
        assert (model.accepts_tools, server.generated) == (accepts, [])


@pytest.mark.parametrize(
    ("server_class", "frame"),
    [
        (OpenAIServer, b'data: {"error":{"code":500,"message":"Failed to parse input at pos 7: <tool_call>"}}\n\n'),
        (OllamaServer, b'{"error":"error parsing tool call: raw=\'{\', err=unexpected end of JSON input"}\n'),
    ],
)
async def test_a_call_that_the_server_cannot_read(server_class: type[Server], frame: bytes) -> None:
    passes = [Pass(["Look. ", Raw(frame)], finish=None, done=False), Pass(["Well."])]
    async with server_class(*passes) as server, model_of(server) as model:
        events, _ = await run(model)
        assert events == ["Look. ", failed("?", "malformed"), "Well.", done("Look. Well.", 1, 2)]
        assert [message["role"] for message in server.generated[1]["messages"]][-2:] == ["assistant", "user"]


@pytest.mark.parametrize(
    ("answers", "must_call", "choice", "names"),
    [
        ({}, True, "required", ["echo", "add", "f"]),
        ({}, "f", {"type": "function", "function": {"name": "f"}}, ["echo", "add", "f"]),
        (LLAMA_CPP, True, "required", ["echo", "add", "f"]),
        (LLAMA_CPP, "f", "required", ["f"]),
    ],
)
async def test_the_server_makes_the_model_call(
    answers: Mapping[str, Any], must_call: bool | str, choice: object, names: list[str]
) -> None:
    async with OpenAIServer(Pass(["Hi."]), answers=answers) as server, model_of(server, identify=True) as model:
        request = ask_for(syntax=NATIVE, tools=(Tool("f"),), must_call=must_call)
        await read(turn_of(model, registry_of(echo, add), request))
        (body,) = server.generated
        assert (body["tool_choice"], sorted(tool["function"]["name"] for tool in body["tools"])) == (
            choice,
            sorted(names),
        )


async def test_a_server_that_rejects_a_choice_still_gets_tools() -> None:
    refusal = Pass(status=400, answer={"error": {"message": "tool_choice 'required' is not supported"}})
    async with OpenAIServer(refusal, Pass(["Hi."]), Pass(["Hi."])) as server, model_of(server) as model:
        for must_call in (True, False):
            request = ask_for(syntax=NATIVE, tools=(Tool("f"),), must_call=must_call)
            await read(turn_of(model, registry_of(echo, add), request))
        assert ["tools" in body for body in server.generated] == [True, False, True]


@pytest.mark.parametrize(
    ("fields", "is_given"),
    [
        ({"arguments": "{}"}, True),
        ({"arguments": {}}, True),
        ({"parameters": {}}, True),
        ({"arguments": None, "args": {}}, True),
        ({"arguments": ""}, False),
        ({"arguments": " "}, False),
        ({"arguments": None}, False),
        ({"arguments": "null"}, False),
        ({"arguments": '""'}, False),
        ({}, False),
    ],
)
@pytest.mark.parametrize("server_class", [OpenAIServer, OllamaServer])
async def test_missing_arguments_are_none_only_if_there_are_no_parameters(
    server_class: type[Server], fields: Mapping[str, Any], is_given: bool
) -> None:
    @specialist
    async def ping() -> str:
        """Answers."""
        return "pong"

    encode = openai if server_class is OpenAIServer else ollama
    for name, client_schema, runs in (
        ("echo", {}, is_given),
        ("ping", {}, True),
        ("lamp", {"type": "object", "properties": {"state": {"type": "string"}}}, is_given),
        ("lamp", {"$ref": "#/$defs/state", "$defs": {"state": {"properties": {"state": {}}}}}, is_given),
        ("lamp", {"type": "object"}, True),
    ):
        items = encode({"tool_calls": [{"index": 0, "id": "x", "function": {"name": name, **fields}}]})
        async with server_class(Pass(items), Pass(["Well."])) as server, model_of(server) as model:
            request = ask_for(syntax=NATIVE, tools=(Tool("lamp", "", client_schema),))
            events = short(await read(turn_of(model, registry_of(echo, ping), request)))
        assert (events[0] != failed(name, "malformed")) is runs
        assert runs or len(server.generated) == 2


async def test_the_last_pass_keeps_the_tools_for_the_cache() -> None:
    async with OpenAIServer(Pass(CALL), Pass(CALL), Pass(["Done."])) as server, model_of(server) as model:
        turn = turn_of(model, registry_of(echo, add), ask_for(syntax=NATIVE, limits=Limits(calls=1)))
        await read(turn)
        assert [body.get("tool_choice") for body in server.generated] == [None, None, "none"]
        assert all(body["tools"] == server.generated[0]["tools"] for body in server.generated)
