"""Grammars of calls. None of their rules is recursive, so a regular expression can stand for llama.cpp."""

import re
from typing import Any

import pytest

from brain.assist.grammar import MAX_GRAMMAR, call_grammar
from brain.plugins.specialist import Specialist, from_schema

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\{\d+(?:,\d+)?\}|[\w-]+|[()|?*]|\s+')


def of(name: str, *required: str, **properties: Any) -> Specialist[..., Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return from_schema(name, "Looks.", schema, lambda params: "", {})


def pattern(grammar: str) -> "re.Pattern[str]":
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines() if line)
    expanded: dict[str, str] = {}

    def expand(name: str) -> str:
        if name not in expanded:
            found = _TOKEN.findall(rules[name])
            assert "".join(found) == rules[name]
            expanded[name] = "(?:" + "".join(map(convert, found)) + ")"
        return expanded[name]

    def convert(token: str) -> str:
        if token[0] == '"':
            return "(?:" + re.escape(re.sub(r"\\(.)", r"\1", token[1:-1])) + ")"
        if token[0] == "[":
            return "[" + token[1:-1].replace("[", r"\[") + "]"
        return "" if token.isspace() else expand(token) if token[0].isalpha() else token

    return re.compile(expand("root"))


TEXT = {"type": "string"}
OPTIONAL = {"anyOf": [TEXT, {"type": "null"}], "default": None}
TREE = {
    "type": "object",
    "properties": {"t": {"$ref": "#/$defs/tree"}},
    "required": ["t"],
    "$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}, "required": ["left"]}},
}


@pytest.mark.parametrize(
    ("specialist", "bodies", "others"),
    [
        (of("a"), ["{}"], ['{"x":1}', ""]),
        (of("a", "q", q=TEXT), [r'{"q":"x"}', r'{"q": "ä \" \\ ] é\u00e9"}', '{"q":"%s"}' % ("x" * 150)],
         ["{}", '{"q":""}', '{"q":"\n"}', r'{"q":"\x"}', '{"q":1}', '{"q":"%s"}' % ("x" * 151), '{"q":"x","r":1}']),
        (of("a", "q", q={**TEXT, "minLength": 2, "maxLength": 3}), ['{"q":"xy"}'], ['{"q":"x"}', '{"q":"wxyz"}']),
        # required properties first, then the others in their order
        (of("a", "c", "b", a=OPTIONAL, b=TEXT, c=TEXT, d={"type": "boolean"}),
         ['{"c":"x","b":"y"}', '{"c":"x", "b":"y", "a":null, "d":true}', '{"c":"x","b":"y","d":false}'],
         ['{"b":"y","c":"x"}', '{"c":"x"}', '{"c":"x","b":"y","d":true,"a":"z"}', '{"c":"x","b":"y",}']),
        # without required ones: not empty, and first the first property or the next text
        (of("a", q=OPTIONAL, n={"type": "integer"}, u=OPTIONAL, s=OPTIONAL),
         ['{"q":"x"}', '{"u":"x"}', '{"q":"x","n":-7,"s":null}', '{"u":"x","s":"y"}'],
         ["{}", '{"q":null}', '{"n":7}', '{"s":"x"}']),
        (of("a", f={"type": "boolean", "default": False}, q=TEXT), ["{}", '{"f":true}', '{"q":"x"}'], ['{"f":1}']),
        # other types
        (of("a", "n", n={"type": "integer", "minimum": 9, "maximum": 11}), ['{"n":9}', '{"n":11}'],
         ['{"n":8}', '{"n":12}', '{"n":9.5}', '{"n":99}']),
        (of("a", "n", n={"type": "integer", "minimum": 1, "maximum": 20160}), ['{"n":1}', '{"n":9999}'],
         ['{"n":0}', '{"n":-1}', '{"n":01}', '{"n":20161}']),
        (of("a", "n", n={"type": "number"}), ['{"n":0}', '{"n":-1.25}'], ['{"n":.5}', '{"n":1e9}', '{"n":01}']),
        (of("a", "n", n={"enum": ["a\"b", 7, None]}), [r'{"n":"a\"b"}', '{"n":7}', '{"n":null}'], ['{"n":"7"}']),
        (of("a", "n", n={"const": "x"}), ['{"n":"x"}'], ['{"n":"y"}']),
        (of("a", "n", n={"type": ["string", "null"]}), ['{"n":"x"}', '{"n":null}'], ['{"n":1}']),
        (of("a", "n", n={"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}),
         ['{"n":[1]}', '{"n":[1, 2]}'], ['{"n":[]}', '{"n":[1,2,3]}', '{"n":["x"]}']),
        (of("a", "n", n={"type": "array", "items": TEXT}), ['{"n":[]}', '{"n":["x","]"]}'], ['{"n":[1]}']),
        # any short value where the schema says no more, or too much
        *[(of("a", "n", n=schema), ['{"n":"x"}', '{"n":[1,true,null]}', '{"n":{"x":[1]}}'],
           ['{"n":[[1]]}', '{"n":{"x":{"y":1}}}', '{"n":}'])
          for schema in (True, {}, {"allOf": [TEXT]}, {"enum": list(range(101))})],
        (of("a", "n", n={"type": "object"}), ["{\"n\":{}}", '{"n":{"x":"1 m"}}'], ['{"n":"x"}']),
        (of("a", "n", n={"type": "object", "properties": {"k": TEXT}, "required": ["k"]}),
         ['{"n":{"k":"x"}}'], ['{"n":{}}', '{"n":{"x":1}}']),
        (from_schema("a", "Looks.", TREE, lambda params: "", {}),
         ['{"t":{"left":{"left":7}}}'], ['{"t":7}', '{"t":{}}']),
        (of("a", 'k"[\\', **{'k"[\\': TEXT}), [r'{"k\"[\\":"x"}'], ['{"k":"x"}']),
    ],
)  # fmt: skip
def test_parameters(specialist: Specialist[..., Any], bodies: list[str], others: list[str]) -> None:
    match = pattern(call_grammar([specialist])).fullmatch
    assert [body for body in bodies if not match(f"SPECIALIST_REQUEST[a:{body}]")] == []
    assert [body for body in others if match(f"SPECIALIST_REQUEST[a:{body}]")] == []


def test_a_call_and_text_that_only_mentions_one() -> None:
    match = pattern(call_grammar([of("one", "q", q=TEXT), of("two")])).fullmatch
    for text in ('[one:{"q":"x"}]', "[two:{}]", "", " is a word.\nIt [stays] so.", "S", ": one"):
        assert match(f"SPECIALIST_REQUEST{text}")
    for text in ("[", "[three:{}]", "[two]", "[two:{}", "[two:{}] and", '["one"]', "[ two:{}]", '[two:{"q":"x"}]'):
        assert not match(f"SPECIALIST_REQUEST{text}")


def test_no_grammar() -> None:
    assert call_grammar([]) == ""
    assert call_grammar([of("a")], "mention") == call_grammar([of("a")], "function_call") == ""
    long = [of(f"a{n}", "q", q={"enum": [f"{n} {m} {'x' * 90}" for m in range(90)]}) for n in range(12)]
    assert 0 < len(call_grammar(long[:9])) < MAX_GRAMMAR
    assert call_grammar(long) == ""


def test_a_wide_tree_takes_no_time() -> None:
    node = {"type": "object", "properties": {f"p{n}": {"$ref": "#/$defs/n"} for n in range(60)}}
    tree = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}}
    assert call_grammar([from_schema("a", "Looks.", tree, lambda params: "", {})])
