"""Grammars of calls (GBNF, as llama.cpp reads it), made of the JSON Schemas of the parameters.

A grammar allows a subset of what a schema allows: known properties in their order, short texts and numbers. What the
converter does not know becomes any short JSON value, and Brain checks all parameters afterwards.

Small models prefer parameters that say nothing. So if no property is required, a call starts with the first property or
the next one for any text, and it has parameters unless the first property has a default value.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from brain.events import MarkerSyntax
from brain.markers.bracket import OPENERS
from brain.plugins.schema import resolve
from brain.plugins.specialist import Specialist

MAX_GRAMMAR = 100_000
"""Longest grammar, in characters."""
MAX_STRING = 150
"""Longest text, in characters. Small models repeat themselves in longer ones."""
MAX_DIGITS = 9
MAX_ITEMS = 8
"""Most items of an array whose schema has no smaller limit."""
MAX_VALUES = 100
"""Most values of an enumeration, or of integers in a range."""
MAX_PROPERTIES = 64
MAX_DEPTH = 4
MAX_SCHEMAS = 500
"""Most parts of one schema that are converted."""

_OPENER = OPENERS[0].removesuffix("[")
_COMMON = r"""
rest ::= [^[] [^\x00]*
space ::= " "?
character ::= [^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})
boolean ::= "true" | "false"
integer ::= "-"? ("0" | [1-9] [0-9]{0,8})
number ::= integer ("." [0-9]{1,6})?
scalar ::= "\"" character{0,100} "\"" | number | boolean | "null"
short ::= scalar | "[" (scalar ("," space scalar){0,7})? "]"
pair ::= "\"" character{1,40} "\":" space short
object ::= "{" (pair ("," space pair){0,7})? "}"
value ::= short | object
"""
"""Rules of every grammar. Text that only mentions the opener continues as it likes (`rest`)."""
_TYPES = {"boolean": "boolean", "null": '"null"', "number": "number", "object": "object"}


def call_grammar(specialists: Sequence[Specialist[..., Any]], syntax: MarkerSyntax = "bracket") -> str:
    """Return the grammar of text that starts with `SPECIALIST_REQUEST`: a call of a specialist, or not a call.

    It is empty without specialists, for another call syntax, or if it would be too long.
    """
    return _build_grammar(tuple(specialists)) if specialists and syntax == "bracket" else ""


@lru_cache(maxsize=32)
def _build_grammar(specialists: tuple[Specialist[..., Any], ...]) -> str:
    rules = _Rules()
    calls = [f"{_quote(f'{one.name}:')} {_Converter(one.parameters, rules).convert()}" for one in specialists]
    call = rules.add(_join(calls))
    root = f'root ::= {_quote(_OPENER)} ("[" {call} "]" | rest)?'
    grammar = "\n".join((root, *rules.lines())) + _COMMON
    return grammar if len(grammar) <= MAX_GRAMMAR else ""


class _Rules:
    """The named rules of one grammar, each once."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def add(self, definition: str) -> str:
        """Return the name of the rule with this definition."""
        return self._names.setdefault(definition, f"r{len(self._names)}")

    def lines(self) -> Iterable[str]:
        for definition, name in self._names.items():
            yield f"{name} ::= {definition}"


class _Converter:
    """Converts the schema of one specialist."""

    def __init__(self, root: Mapping[str, Any], rules: _Rules) -> None:
        self._root = root
        self._rules = rules
        self._left = MAX_SCHEMAS

    def convert(self) -> str:
        """Return the expression for the parameters."""
        return self._object(self._root, 0)

    def _value(self, schema: Any, depth: int) -> str:
        self._left -= 1
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH or self._left < 0:
            return "value"
        if isinstance(schema.get("$ref"), str):
            return self._value(resolve(schema, self._root), depth + 1)
        if "const" in schema:
            return _quote(_encode(schema["const"]))
        if isinstance(values := schema.get("enum"), list) and 0 < len(values) <= MAX_VALUES:
            return self._rules.add(_join(_quote(_encode(value)) for value in values))
        for key in ("anyOf", "oneOf"):
            if isinstance(options := schema.get(key), list) and 0 < len(options) <= MAX_ITEMS:
                return self._rules.add(_join(self._value(option, depth + 1) for option in options))
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            return self._rules.add(_join(self._value({**schema, "type": one}, depth + 1) for one in kind))
        match kind:
            case "string":
                return self._string(schema)
            case "integer":
                return self._integer(schema)
            case "array":
                return self._array(schema, depth)
            case "object" if schema.get("properties"):
                return self._object(schema, depth)
        return _TYPES.get(str(kind), "value")

    def _string(self, schema: Mapping[str, Any]) -> str:
        most = min(_count(schema.get("maxLength"), MAX_STRING), MAX_STRING)
        least = min(_count(schema.get("minLength"), 1), most)
        return self._rules.add(rf'"\"" character{{{least},{most}}} "\""')

    def _integer(self, schema: Mapping[str, Any]) -> str:
        least, most = schema.get("minimum"), schema.get("maximum")
        if not isinstance(least, int):
            return "integer"
        if isinstance(most, int) and 0 <= most - least < MAX_VALUES:
            return self._rules.add(_join(_quote(str(number)) for number in range(least, most + 1)))
        if least not in (0, 1):
            return "integer"
        digits = min(len(str(most)) - 1, MAX_DIGITS) if isinstance(most, int) else MAX_DIGITS
        positive = f"[1-9] [0-9]{{0,{digits - 1}}}"
        return self._rules.add(positive if least else f'"0" | {positive}')

    def _array(self, schema: Mapping[str, Any], depth: int) -> str:
        item = self._value(schema.get("items"), depth + 1)
        most = _count(schema.get("maxItems"), MAX_ITEMS)
        least = _count(schema.get("minItems"), 0)
        most = max(min(most, MAX_ITEMS), least)
        if not 0 < most <= MAX_VALUES:
            return '"[]"'
        items = f'{item} ("," space {item}){{{max(least - 1, 0)},{most - 1}}}'
        return self._rules.add(f'"[" {items if least else f"({items})?"} "]"')

    def _object(self, schema: Mapping[str, Any], depth: int) -> str:
        """Return the expression for an object: the properties that it starts with, then others in their order."""
        properties, required = schema.get("properties") or {}, schema.get("required") or ()
        if not isinstance(properties, Mapping) or len(properties) > MAX_PROPERTIES:
            return "object"
        separator, optional = '"," space', [name for name in properties if name not in required]
        first = [*optional[:1], *[name for name in optional[1:] if _is_text(properties[name])][:1]]
        more, starts = "", list[str]()  # after a property; for the whole object. Built from the last property on.
        for name in reversed(optional):
            schema = properties[name]
            if name in first:
                starts.append(f"{self._pair(name, _remove_null(schema), depth)} {more}".strip())
            more = self._rules.add(f"({separator} {self._pair(name, schema, depth)})? {more}".strip())
        if required:
            pairs = [self._pair(name, properties.get(name), depth) for name in required]
            body = f" {separator} ".join(pairs) + f" {more}"
        elif starts:
            default = properties[optional[0]].get("default") if isinstance(properties[optional[0]], Mapping) else None
            body = f"({_join(reversed(starts))}){'' if default is None else '?'}"
        else:
            body = ""
        return self._rules.add(f'"{{" {body} "}}"')

    def _pair(self, name: str, schema: Any, depth: int) -> str:
        return self._rules.add(f"{_quote(f'{_encode(name)}:')} space {self._value(schema, depth + 1)}")


def _is_text(schema: Any) -> bool:
    """Return whether a schema allows any text."""
    options = schema.get("anyOf", [schema]) if isinstance(schema, Mapping) else []
    return any(one.get("type") == "string" and "enum" not in one for one in options if isinstance(one, Mapping))


def _remove_null(schema: Any) -> Any:
    """Return the schema without null, if that is one of several options."""
    options = schema.get("anyOf") if isinstance(schema, Mapping) else None
    if not isinstance(options, list):
        return schema
    return {"anyOf": [one for one in options if one != {"type": "null"}] or options}


def _count(value: Any, default: int) -> int:
    return value if isinstance(value, int) and value >= 0 else default


def _join(options: Iterable[str]) -> str:
    return " | ".join(options)


def _encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _quote(text: str) -> str:
    """Return the literal of a text. JSON has escaped its control characters."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
