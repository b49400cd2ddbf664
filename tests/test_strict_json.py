"""Strict JSON: one answer to the same text, whoever reads it."""

import json
from typing import Any

import pytest

from brain.errors import BadRequest, SettingsError
from brain.markers.arguments import read_arguments
from brain.markers.scanner import Scanner
from brain.messages import Call, NativeCall
from brain.protocols import native
from brain.protocols.common import Client
from brain.settings import read
from brain.strict_json import decode_object, is_deeper, replace_json_surrogates
from brain.turn.model_pass import read_native_call

CLIENT = Client("me", read({}))

REFUSED = [
    # Parsers disagree about them: a proxy, a log or a person may see another call than the one that runs
    ("a key twice", '{"a":1,"a":2}', "the JSON repeats a key in one object"),
    ("a key twice inside", '{"a":[{"b":1,"b":2}]}', "the JSON repeats a key in one object"),
    ("the same key after repair", r'{"\ud800":1,"\udfff":2}', "the JSON repeats a key in one object"),
    # Python writes and reads them; Pandas, NumPy and small models pass them on
    ("NaN", '{"a":NaN}', "NaN is not JSON"),
    ("Infinity", '{"a":-Infinity}', "-Infinity is not JSON"),
    # Python makes them Infinity, JavaScript too; the next encoder writes `Infinity` or null
    ("a number over the range of floats", '{"a":1e999}', "the JSON contains a number that is too large"),
    # Converting takes quadratic time; a model that loops writes them
    ("a long integer", '{"a":' + "9" * 310 + "}", "the JSON contains a number that is too large"),
    # A model that loops; every later walk along the value would need as many frames
    ("endless nesting", '{"a":' + "[" * 10_000, "the JSON nests deeper than 64 levels"),
    # What models, people and other languages add to JSON
    ("a comma too many", '{"a":1,}', "the JSON is not valid at character 8"),
    ("a comment", '{"a":1 /* b */}', "the JSON is not valid at character 8"),
    ("a control character", '{"a":"\n"}', "the JSON is not valid at character 7"),
    ("a byte order mark", '\ufeff{"a":1}', "the JSON is not valid at character 1"),
    ("two objects", '{"a":1} {"b":1}', "the JSON is not valid at character 9"),
    ("no end", '{"a":1', "the JSON is not valid at character 7"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_all_readers_refuse_it(text: str, problem: str) -> None:
    assert decode_object(text) == (None, problem)
    assert read_native_call(NativeCall("look", text), "bracket") == Call("look", code="malformed", reason=problem)
    with pytest.raises(BadRequest):
        native.parse_form({"message": "Hi", "limits": text}, [], CLIENT)
    with pytest.raises(SettingsError):
        read({"BRAIN_MODELS": text})


NESTED = [
    ("63 levels in an object", '{"a":' + "[" * 63 + "]" * 63 + "}", ""),
    ("64 levels in an object", '{"a":' + "[" * 64 + "]" * 64 + "}", "the JSON nests deeper than 64 levels"),
    ("an array", "[1]", "the JSON is not one object in braces"),
    ("a number", "1", "the JSON is not one object in braces"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), [row[1:] for row in NESTED], ids=[row[0] for row in NESTED])
def test_an_object_of_limited_depth(text: str, problem: str) -> None:
    assert decode_object(text) == ((None, problem) if problem else (json.loads(text), ""))
    with pytest.raises(BadRequest):
        native.parse_form({"message": "Hi", "limits": text}, [], CLIENT)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (' \n{"a": [1, -0.5e2, true, null, "\\u00e9"]}\t', {"a": [1, -50.0, True, None, "é"]}),
        ('{"a":123456789012345678901234567890}', {"a": 123456789012345678901234567890}),  # an ID is no float
        # Half a character: servers cut texts between the halves, and UTF-8 cannot encode one alone
        (r'{"\ud83d":"\ud800a\ude00"}', {"\ufffd": "\ufffda\ufffd"}),
        (r'{"a":"\ud83d\ude00 \\ud800"}', {"a": "😀 \\ud800"}),
    ],
)
def test_what_is_read(text: str, value: Any) -> None:
    assert decode_object(text) == (value, "")
    whole = f"f(x={text.strip()})"
    assert read_arguments(whole, 2, like_python=True).params == {"x": value}
    assert scan(f"SPECIALIST_REQUEST[look:{text}]") == value


def scan(text: str) -> Any:
    scanner = Scanner(("bracket",))
    (call,) = [piece for piece in [*scanner.feed(text), *scanner.close()] if isinstance(piece, Call)]
    return call.params


def test_halves_in_a_text_that_is_not_utf_8() -> None:
    assert decode_object('{"a":"\ud83d\ude00\ud800"}') == ({"a": "😀\ufffd"}, "")


@pytest.mark.parametrize("value", ['{"a":1,"a":2}', "[NaN]", "[1e999]", "[" * 65 + "]" * 65])
def test_a_value_among_arguments_like_those_of_python(value: str) -> None:
    assert read_arguments(f"f(x={value})", 2, like_python=True).params is None


def test_depth() -> None:
    flat: list[Any] = [1, "a", [], {}, [1], {"a": 1}]
    deeper: list[Any] = [[[]], {"a": {}}, [1, [2]]]
    assert [is_deeper(value, 1) for value in [*flat, *deeper]] == [False] * 6 + [True] * 3


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("\ud83d\ude00", "😀"),
        ("a\ud83d", "a\ufffd"),
        ("\ud83da", "\ufffda"),
        ("x\ude00", "x\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
    ],
)
def test_halves_of_characters_are_joined_or_replaced(text: str, repaired: str) -> None:
    for data in (json.dumps([text, {text: text}]), json.dumps([text, {text: text}], ensure_ascii=False)):
        bytes_ = data.encode("utf-8", "surrogatepass")
        assert json.loads(replace_json_surrogates(bytes_)) == [repaired, {repaired: repaired}]


def test_escaped_backslashes_are_no_halves() -> None:
    for text in (r'"\\ud800"', r'"\ud83d\ude00\n"', '"퟿\ue000"'):
        assert replace_json_surrogates(text.encode()) == text.encode()
    assert replace_json_surrogates(rb'"\\\uD800x\u"') == rb'"\\\ufffdx\u"'
