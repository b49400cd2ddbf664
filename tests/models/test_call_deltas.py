"""Joining the pieces of native calls, in the forms of many servers: what runs is what the model wrote, or nothing."""

import json
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from model_answers import decode

from brain.events import Thinking
from brain.messages import Finish, NativeCall
from brain.models import ollama, openai
from brain.models.native_calls import (
    CUT,
    LOST,
    MAX_CALLS,
    NAMELESS,
    SEVERAL,
    UNREADABLE,
    CallAssembler,
    CallDelta,
    find_offered,
)

OFFERED = ("lamp", "weather", "get_weather", "time", "a-b")
OFF = '{"state":"off"}'
"""Arguments without which the lamp would go on."""

Delta = tuple[int | None, str, str, Any]
"""Index, ID, name and arguments."""
Call = tuple[str, str] | tuple[str, str, str]
"""Name, arguments, and the problem of a call that must not run."""


def frame(delta: Delta) -> bytes:
    """The delta as an event of a server that leaves out what is missing."""
    index, call_id, name, arguments = delta
    head = {key: value for key, value in {"index": index, "id": call_id or None}.items() if value is not None}
    function = {
        key: value for key, value in {"name": name or None, "arguments": arguments}.items() if value is not None
    }
    delta_fields = {"tool_calls": [{**head, "type": "function", "function": function}]}
    return event({"index": 0, "delta": delta_fields, "finish_reason": None})


def event(*choices: Any, **more: Any) -> bytes:
    return b"data: " + json.dumps({"choices": choices, **more}).encode() + b"\n\n"


def finish(reason: str) -> bytes:
    return event({"index": 0, "delta": {}, "finish_reason": reason})


def calls_of(chunks: Sequence[Any]) -> list[Call]:
    calls = [chunk for chunk in chunks if isinstance(chunk, NativeCall)]
    return [(c.name, c.arguments, c.problem) if c.problem else (c.name, c.arguments) for c in calls]


def joined(*bodies: bytes, offered: Sequence[str] = OFFERED) -> list[Call]:
    return calls_of(decode(lambda: openai.build_reply(offered), bodies))


LAMP: list[Call] = [("lamp", OFF)]
TWO: list[Call] = [("lamp", OFF), ("time", '{"zone":"UTC"}')]
ZONE = '{"zone":"UTC"}'

STREAMS: dict[str, tuple[list[Delta], list[Call]]] = {
    # as OpenAI, vLLM, llama.cpp and Mistral send them
    "in pieces": ([(0, "c1", "lamp", ""), (0, "", "", '{"sta'), (0, "", "", 'te":"off"}')], LAMP),
    "whole": ([(0, "c1", "lamp", OFF)], LAMP),
    "two": ([(0, "c1", "lamp", ""), (0, "", "", OFF), (1, "c2", "time", ""), (1, "", "", ZONE)], TWO),
    "side by side": (
        [(0, "c1", "lamp", ""), (1, "c2", "time", ""), (0, "", "", OFF[:9]), (1, "", "", ZONE), (0, "", "", OFF[9:])],
        TWO,
    ),
    "side by side, by ID": (
        [(0, "c1", "lamp", ""), (0, "c2", "time", ""), (0, "c1", "", OFF), (0, "c2", "", ZONE)], TWO
    ),
    "the older form": ([(None, "", "lamp", ""), (None, "", "", OFF)], LAMP),
    # IDs
    "an ID that changes": ([(0, "c1", "lamp", ""), (0, "c2", "", '{"state"'), (0, "c3", "", ':"off"}')], LAMP),
    "an ID that changes, with the name": (
        [(0, "c1", "lamp", ""), (0, "c2", "lamp", '{"state"'), (0, "c3", "lamp", ':"off"}')], LAMP
    ),
    "an ID that changes, without an index": ([(None, "c1", "lamp", ""), (None, "c2", "", OFF)], LAMP),
    "a blank ID": ([(0, "c1", "lamp", ""), (0, " ", "", OFF)], LAMP),
    "one ID for all": ([(0, "c", "lamp", OFF), (1, "c", "time", ZONE)], TWO),
    "one ID for all, in pieces": (
        [(0, "c", "lamp", ""), (0, "c", "", OFF), (1, "c", "time", ""), (1, "c", "", ZONE)], TWO
    ),
    "an ID that comes late": ([(0, "", "lamp", ""), (0, "c1", "", OFF)], LAMP),
    # indexes
    "no index": ([(None, "c1", "lamp", ""), (None, "c1", "", OFF), (None, "c2", "time", ZONE)], TWO),
    "no index and no ID": (
        [(None, "", "lamp", ""), (None, "", "", OFF), (None, "", "time", ""), (None, "", "", ZONE)], TWO
    ),
    "an index only at first": (
        [(0, "c1", "lamp", ""), (None, "", "", OFF), (1, "c2", "time", ""), (None, "", "", ZONE)], TWO
    ),
    "an index only at last": ([(None, "c1", "lamp", ""), (0, "", "", OFF)], LAMP),
    "one index for whole calls": ([(0, "c1", "lamp", OFF), (0, "c2", "time", ZONE)], TWO),
    "one index for whole calls of one name": (
        [(0, "", "lamp", OFF), (0, "", "lamp", '{"state":"on"}')], [*LAMP, ("lamp", '{"state":"on"}')]
    ),
    "one index for calls in pieces": (
        [(0, "c1", "lamp", ""), (0, "", "", OFF), (0, "c2", "time", ""), (0, "", "", ZONE)], TWO
    ),
    "the index of the next call": (
        [(0, "c1", "lamp", ""), (0, "", "", OFF), (0, "c2", "time", ""), (1, "", "", ZONE)], TWO
    ),
    "an index that is text": ([("0", "c1", "lamp", ""), ("0", "", "", OFF)], LAMP),  # type: ignore[list-item]
    "an index from 1": ([(1, "c1", "lamp", ""), (1, "", "", OFF)], LAMP),
    # arguments
    "null": ([(0, "c1", "time", None)], [("time", "")]),
    "the text null": ([(0, "c1", "time", "null")], [("time", "")]),
    "an object": ([(0, "c1", "lamp", {"state": "off"})], LAMP),
    "an object after a head": ([(0, "c1", "lamp", ""), (0, "c1", "lamp", {"state": "off"})], LAMP),
    "an empty object": ([(0, "c1", "time", {})], [("time", "{}")]),
    "an empty object as a placeholder before other calls": (
        [(0, "c1", "lamp", "{}"), (1, "c2", "time", "{}"), (0, "", "", OFF), (1, "", "", ZONE)], TWO
    ),
    "an empty object as a placeholder": ([(0, "c1", "lamp", {}), (0, "", "", OFF)], LAMP),
    "the text of an empty object as a placeholder": ([(0, "c1", "lamp", "{}"), (0, "c1", "lamp", OFF)], LAMP),
    "repeated as a whole": ([(0, "c1", "lamp", ""), (0, "", "", OFF), (0, "", "", OFF)], LAMP),
    "repeated after pieces": (
        [(0, "c1", "lamp", ""), (0, "", "", '{"state"'), (0, "", "", ':"off"}'), (0, "", "", OFF)], LAMP
    ),
    "repeated with other white space": ([(0, "c1", "lamp", OFF), (0, "", "", '{ "state": "off" }')], LAMP),
    "repeated with all fields": ([(0, "c1", "lamp", OFF), (0, "c1", "lamp", OFF)], LAMP),
    "a repeated head": ([(0, "c1", "lamp", OFF), (0, "c1", "lamp", "")], LAMP),
    "repeated after the next call": ([(0, "c1", "lamp", OFF), (1, "c2", "time", ZONE), (0, "c1", "lamp", OFF)], TWO),
    "cumulative": ([(0, "c1", "lamp", OFF[:end]) for end in (0, 1, 5, 9, len(OFF))], LAMP),
    "cumulative, without the name": (
        [(0, "c1", "lamp", ""), *((0, "", "", OFF[:end]) for end in (1, 5, 9, len(OFF)))], LAMP
    ),
    "a piece and the whole": ([(0, "c1", "lamp", "{"), (0, "", "", OFF)], LAMP),
    "fenced": ([(0, "c1", "lamp", "```json\n"), (0, "", "", OFF), (0, "", "", "\n```")], LAMP),
    "encoded twice": ([(0, "c1", "lamp", json.dumps(OFF)[:5]), (0, "", "", json.dumps(OFF)[5:])], LAMP),
    "with white space": ([(0, "c1", "lamp", ""), (0, "", "", OFF), (0, "", "", " \n")], LAMP),
    # names
    "a name in two pieces": (
        [(0, "c1", "get_", ""), (0, "", "weather", ""), (0, "", "", ZONE)], [("get_weather", ZONE)]
    ),
    "a name in two pieces with IDs": ([(0, "c1", "get_", ""), (0, "c2", "weather", ZONE)], [("get_weather", ZONE)]),
    "a cumulative name": ([(0, "c1", "get_", ""), (0, "c1", "get_weather", ZONE)], [("get_weather", ZONE)]),
    "two calls without arguments": (
        [(0, "c1", "time", ""), (1, "c2", "weather", "")], [("time", ""), ("weather", "")]
    ),
    "two names under one index": ([(0, "", "time", ""), (0, "", "lamp", OFF)], [("time", ""), *LAMP]),
    # what is not certain does not run
    "no name": ([(0, "c1", "", OFF)], [("", "", NAMELESS)]),
    "no name, and nothing else": ([(0, "c1", "", "")], []),
    "a name that comes late": ([(0, "c1", "", OFF), (0, "c1", "lamp", "")], [("lamp", "", LOST), ("", "", NAMELESS)]),
    "the next call without a name": ([(0, "c1", "lamp", OFF), (1, "c2", "", ZONE)], [*LAMP, ("", "", NAMELESS)]),
    "two heads, and arguments of either": (
        [(None, "", "lamp", ""), (None, "", "time", ""), (None, "", "", OFF)], [("lamp", "", LOST), ("time", OFF)]
    ),
    "two heads under one index": (
        [(0, "c1", "lamp", ""), (0, "c2", "time", ""), (0, "", "", OFF)], [("lamp", "", LOST), ("time", OFF)]
    ),
    "arguments after those of the last call": (
        [(0, "c1", "lamp", ""), (1, "c2", "time", ZONE), (2, "", "", OFF)], [("lamp", "", LOST), ("time", ZONE),
                                                                          ("", "", NAMELESS)]
    ),
    "a head with another ID": ([(0, "c1", "lamp", OFF), (0, "c2", "lamp", "")], [*LAMP, ("lamp", "", LOST)]),
    "two objects": ([(0, "c1", "lamp", '{"state":"on"}' + OFF)], [("lamp", '{"state":"on"}' + OFF, SEVERAL)]),
    "two objects, and a call without arguments": (
        [(0, "c1", "lamp", OFF + ZONE), (1, "c2", "time", "")], [("lamp", OFF + ZONE, SEVERAL), ("time", "", LOST)]
    ),
    "arguments after the call": (
        [(0, "c1", "lamp", OFF), (1, "c2", "time", ZONE), (0, "c1", "", ZONE)], [*TWO, ("", "", LOST)]
    ),
    "a list": ([(0, "c1", "lamp", [1])], [("lamp", "[1]")]),
    "half": ([(0, "c1", "lamp", OFF[:-1])], [("lamp", OFF[:-1])]),
}  # fmt: skip


@pytest.mark.parametrize(("deltas", "expected"), STREAMS.values(), ids=STREAMS)
def test_forms_of_openai_servers(deltas: list[Delta], expected: list[Call]) -> None:
    body = [*map(frame, deltas), finish("tool_calls"), b"data: [DONE]\n\n"]
    assert joined(*body) == expected
    assert joined(b"".join(body)) == expected
    # a part of the stream has only calls of the whole stream, in the same order, or calls that do not run
    runs = [call for call in expected if is_run(call)]
    for end in range(len(deltas)):
        for ending in (b"", b"data: [DONE]\n\n", finish("length"), body[end][:-9], body[end][:-9] + b"\n\n" + body[-1]):
            rest = iter(runs)
            assert all(call in rest for call in joined(*body[:end], ending) if is_run(call)), (end, ending)


TEXT = event({"index": 0, "delta": {"content": "It is off."}})
THOUGHT = event({"index": 0, "delta": {"reasoning_content": "\n"}})


def before_text(chunks: Sequence[Any]) -> list[Call]:
    """The calls that a pass sees: text after a call ends it."""
    first = next((at for at, chunk in enumerate(chunks) if isinstance(chunk, NativeCall)), 0)
    is_text = [isinstance(chunk, Thinking) or (isinstance(chunk, str) and bool(chunk.strip())) for chunk in chunks]
    return calls_of(chunks[: is_text.index(True, first) if any(is_text[first:]) else None])


@pytest.mark.parametrize(("deltas", "expected"), STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("text", [TEXT, THOUGHT], ids=["text", "a thought"])
def test_no_call_is_lost_if_text_follows(deltas: list[Delta], expected: list[Call], text: bytes) -> None:
    body = [*map(frame, deltas), text, text, finish("tool_calls")]
    for bodies in (body, [b"".join(body)]):
        assert before_text(decode(lambda: openai.build_reply(OFFERED), bodies)) == expected


def is_run(call: Call) -> bool:
    """Whether a call runs: arguments that are no object are found out when they are read."""
    if len(call) > 2:
        return False
    try:
        return isinstance(json.loads(call[1] or "{}"), dict)
    except ValueError:
        return False


def line(*calls: Any, **more: Any) -> bytes:
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    return json.dumps({"model": "m", "message": message, "done": False, **more}).encode() + b"\n"


def tool(name: str, arguments: Any, index: int | None = 0) -> Any:
    return {"function": {**({} if index is None else {"index": index}), "name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([line(tool("lamp", {"state": "off"}), tool("time", {"zone": "UTC"}, 1))], TWO),
        ([line(tool("lamp", {"state": "off"})), line(tool("time", {"zone": "UTC"}))], TWO),
        ([line(tool("lamp", {"state": "off"}, None), tool("time", {"zone": "UTC"}, None))], TWO),
        ([line(tool("lamp", {"state": "off"})), line(tool("lamp", {"state": "off"}))], LAMP),
        ([line(tool("lamp", {"state": "off"})), line(tool("lamp", {"state": "on"}))],
         [*LAMP, ("lamp", '{"state":"on"}')]),
        ([line(tool("time", {}), tool("lamp", {"state": "off"}))], [("time", "{}"), *LAMP]),
        ([line(tool("lamp", {})), line(tool("lamp", {"state": "off"}))], LAMP),
        ([line(tool("lamp", {"state": "off"}), tool("time", {}, 1)), b'{"message":{"content":"Off."},"done":false}\n'],
         [*LAMP, ("time", "{}")]),
        ([line(tool("lamp", OFF))], LAMP),
        ([line(tool("lamp", json.dumps(OFF)))], LAMP),
        ([line(tool("time", None), tool("lamp", {"state": "off"}, 1))], [("time", ""), *LAMP]),
        ([line({"function": {"arguments": {"state": "off"}}})], [("", "", NAMELESS)]),
        ([line(tool("lamp", "")), line({"function": {"index": 0, "arguments": {"state": "off"}}})], LAMP),
        ([line(tool("lamp", ""), tool("time", {"zone": "UTC"}, 1)), line({"function": {"arguments": OFF}})],
         [("lamp", "", LOST), ("time", ZONE + OFF, SEVERAL)]),
    ],
)  # fmt: skip
def test_forms_of_ollama(lines: list[bytes], expected: list[Call]) -> None:
    body = b"".join([*lines, b'{"done":true,"done_reason":"stop"}\n'])
    for size in (len(body), 1, 13):
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        assert before_text(decode(lambda: ollama.build_reply(OFFERED), pieces)) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({"name": "lamp", "arguments": OFF}, LAMP),
        ({"function": {"name": "lamp", "parameters": {"state": "off"}}}, LAMP),
        ({"function": {"name": "lamp", "arguments": "", "args": {"state": "off"}}}, LAMP),
        ({"function": {"name": "lamp"}, "arguments": OFF}, LAMP),
        ({"function": None, "name": "lamp", "input": {"state": "off"}}, LAMP),
        ({"function": {"name": "lamp", "arguments": {}}}, [("lamp", "{}")]),
        ({"function": 7}, []),
        (7, []),
    ],
)
def test_calls_whose_fields_have_other_places_or_names(call: Any, expected: list[Call]) -> None:
    for calls in ([call], call):
        assert joined(event({"delta": {"tool_calls": calls}}), finish("stop")) == expected


def test_text_beside_a_call_does_not_end_the_calls_before() -> None:
    both = {"message": {"content": "Off.", "tool_calls": [tool("time", {"zone": "UTC"}, 1)]}, "done": False}
    lines = [line(tool("lamp", {"state": "off"})), json.dumps(both).encode() + b"\n"]
    assert before_text(decode(lambda: ollama.build_reply(OFFERED), lines)) == TWO


def test_a_whole_call_of_ollama_runs_before_the_answer_ends() -> None:
    assert ollama.build_reply().feed(line(tool("lamp", {"state": "off"}))) == [NativeCall("lamp", OFF)]


HEAD = frame((0, "c1", "lamp", ""))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (HEAD + finish("tool_calls"), [("lamp", "")]),
        (HEAD + finish("length"), [("lamp", "", CUT)]),
        (HEAD + finish("content_filter"), [("lamp", "", CUT)]),
        (HEAD + finish("an unknown reason"), [("lamp", "", CUT)]),
        (HEAD + b"data: [DONE]\n\n", [("lamp", "", CUT)]),
        (HEAD + finish("function_call_filter: MALFORMED_FUNCTION_CALL"), [("lamp", "", LOST), ("", "", UNREADABLE)]),
        (HEAD + event(error={"message": "Failed to parse input at pos 7"}), [("lamp", "", LOST), ("", "", UNREADABLE)]),
        (HEAD + finish("error"), []),
        (HEAD, []),
        (frame((0, "c1", "lamp", OFF)) + finish("length"), LAMP),
        (frame((0, "c1", "lamp", OFF[:-1])) + finish("length"), [("lamp", OFF[:-1], CUT)]),
    ],
)
def test_an_answer_that_ends_in_a_call(body: bytes, expected: list[Call]) -> None:
    assert joined(body) == expected


def test_the_names_of_the_tools_tell_two_calls_from_a_name_in_pieces() -> None:
    deltas = [frame((0, "", "time", "")), frame((0, "", "lamp", OFF)), finish("stop")]
    assert joined(*deltas, offered=("timelamp",)) == [("timelamp", OFF)]
    assert joined(*deltas, offered=("time", "lamp", "timelamp")) == [("time", "", LOST), *LAMP]
    assert joined(*deltas, offered=()) == [("timelamp", OFF)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("weather", "weather"),
        (" weather\n", "weather"),
        ("functions.weather", "weather"),
        ("default_api:weather", "weather"),
        ("default_api.weather", "weather"),
        ("functions.weather:0", "weather"),
        ("functions.get_weather:12", "get_weather"),
        ("weather:3", "weather"),
        ("tools/home.weather", "weather"),
        ("functions.a-b", "a-b"),
        ("weather<|channel|>commentary", "weather"),
        ("functions.lamp<|constrain|>json", "lamp"),
        ("my_weather", None),
        ("weather_now", None),
        ("functions.", None),
        ("functions.Weather", None),
        ("oracle", None),
        ("", None),
        ("x." * 50_000 + "lamp!", None),
    ],
)
def test_names_with_more_than_the_offered_name(name: str, expected: str | None) -> None:
    assert find_offered(name, OFFERED) == expected


def test_a_name_that_fits_two_tools() -> None:
    assert find_offered("functions.a.weather", ("weather", "a.weather")) is None
    assert find_offered("a.weather", ("weather", "a.weather")) == "a.weather"


def test_long_arguments_cost_no_more_than_their_length() -> None:
    """Many pieces, many repetitions, and texts that look like fences or like many objects."""
    pieces = [frame((0, "c1", "lamp", '{"a":"')), *[frame((0, "c1", "lamp", "}" * 8)) for _ in range(2_000)]]
    assert joined(*pieces, frame((0, "", "", '"}')), finish("stop")) == [("lamp", '{"a":"' + "}" * 16_000 + '"}')]
    for text in ("```" + " " * 60_000, "{}" * 30_000 + "x", '"' * 60_001, "[" * 60_000, '{"a":' * 10_000):
        assert joined(frame((0, "c1", "lamp", text)), finish("stop")) == [("lamp", text)]


def test_what_is_remembered_of_a_call_is_bounded() -> None:
    head = frame((0, "c1", "lamp", '{"a":"'))
    for deltas in (
        [frame((None, f"{number:0<2000}", "", "x")) for number in range(500)],  # an ID per piece
        [frame((0, "", "ab"[number % 2] * 1_500, "")) for number in range(500)],  # a name without an end
        [frame((0, "", "", "x" * 2_000)) for _ in range(500)],
    ):
        reply = openai.build_reply(OFFERED)
        reply.feed(head)
        tracemalloc.start()
        for delta in deltas:
            reply.feed(delta)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < 150_000


def test_the_calls_of_an_answer_are_limited() -> None:
    assembler = CallAssembler(OFFERED)
    for number in range(MAX_CALLS + 10):
        assembler.add(CallDelta(number, f"c{number}", "lamp", f'{{"a": {number}}}'))
    assert len(assembler.calls) == MAX_CALLS


def test_a_finish_of_calls_is_an_ordinary_end() -> None:
    assert decode(openai.build_reply, [finish("tool_calls")]) == [Finish("stop")]
