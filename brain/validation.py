"""Sentences from the errors of msgspec."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect

from brain.text import find_similar, replace_surrogates, shorten

SHOWN_LENGTH = 60
"""Characters of a value in an error message."""
NAME_LENGTH = 100
"""Characters of an unknown field's name in an error message, and of a name that is compared with the known ones."""

_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_STEP = re.compile(r"\[[^\]]*\]|[^.\[]+")
_TYPE_NAMES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_UNITS = {"str": "characters", "array": "items", "object": "fields", "bytes": "bytes"}
_BOUND = re.compile(r"Expected `(\w+)` (of length )?(>=|<=) (-?[\d.]+)(?: and <= (-?[\d.]+))?")


def describe_mismatch(error: msgspec.ValidationError, kind: Any) -> tuple[str, str]:
    """Return the path of a value that does not fit the type of the whole, and the problem as the rest of a sentence."""
    problem, path = str(error), ""
    if match := _PATH.search(problem):
        problem, path = problem[: match.start()], match["path"]
    found = _type_at(kind, path)
    if missing := re.search(r"missing required field `([^`]*)`", problem):
        path, problem = f"{path}.{missing[1]}", "is missing"
    elif unknown := re.search(r"unknown field `(.*)`", problem, re.DOTALL):
        name = unknown[1][:NAME_LENGTH]
        path, problem = f"{path}.{name}", f"is an unknown field{_suggest(name, found)}"
    elif types := re.fullmatch(r"Expected `([^`]*)`, got `([^`]*)`", problem):
        expected = [_TYPE_NAMES.get(one, one) for one in types[1].split(" | ") if one != "null"]
        problem = f"must be {' or '.join(expected)}, not {_TYPE_NAMES.get(types[2], types[2])}"
    elif value := re.fullmatch(r"Invalid (?:enum )?value '?(.*?)'?", problem):
        allowed = found.values if isinstance(found, msgspec.inspect.LiteralType) else ()
        choices = f"; use one of: {', '.join(map(str, allowed))}" if allowed else ", which is not an allowed value"
        problem = f"is {quote_value(value[1])}{choices}"
    elif bound := _BOUND.fullmatch(problem):
        problem = _describe_bound(*bound.groups())
    elif isinstance(found, msgspec.inspect.Metadata) and problem.startswith("Expected `str` matching"):
        problem = f"must be {(found.extra_json_schema or {})['description']}"
    elif problem == "Invalid RFC3339 encoded datetime":
        problem = "must be a time such as 2026-11-20T12:00:00Z"
    else:
        problem = f"is invalid: {problem[:1].lower()}{problem[1:]}"
    return path, problem


def _describe_bound(name: str, of_length: str | None, sign: str, bound: str, most: str | None) -> str:
    unit = f" {_UNITS.get(name, 'items')}" if of_length else ""
    start = "must have" if of_length else "must be"
    if most is not None:
        return f"{start} {bound} to {most}{unit}"
    if unit and bound == "1":
        unit = unit.removesuffix("s")
    return f"{start} at {'least' if sign == '>=' else 'most'} {bound}{unit}"


def _type_at(kind: Any, path: str) -> msgspec.inspect.Type | None:
    """Return the type at the path of a `ValidationError`, without `None`; None if it is not known."""
    found: msgspec.inspect.Type | None = msgspec.inspect.type_info(kind)
    for step in _STEP.findall(path):
        inner: list[msgspec.inspect.Type] = []
        for one in _alternatives(found):
            if isinstance(one, msgspec.inspect.ListType) and step.startswith("["):
                inner.append(one.item_type)
            elif isinstance(one, msgspec.inspect.StructType):
                inner += [field.type for field in one.fields if field.encode_name == step]
        found = inner[0] if inner else None
    return next(_alternatives(found), None)


def _alternatives(found: msgspec.inspect.Type | None) -> Iterator[msgspec.inspect.Type]:
    types = found.types if isinstance(found, msgspec.inspect.UnionType) else (found,)
    yield from (one for one in types if one is not None and not isinstance(one, msgspec.inspect.NoneType))


def _suggest(field: str, parent: msgspec.inspect.Type | None) -> str:
    known = [one.encode_name for one in parent.fields] if isinstance(parent, msgspec.inspect.StructType) else []
    near = find_similar(field, known)
    return f"; did you mean `{near}`?" if near else f"; known fields: {', '.join(known)}"


def quote_value(value: str) -> str:
    """Return a value for an error message: as a JSON string, shortened."""
    return json.dumps(replace_surrogates(shorten(value, SHOWN_LENGTH)), ensure_ascii=False)
