"""JSON Schemas of parameters, and problems of given parameters."""

import datetime
import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from msgspec import Meta

from brain.errors import RegistrationError
from brain.plugins.registry import Registry
from brain.plugins.schema import build_validator, check_schema, find_problems, read_signature


class Unit(enum.Enum):
    METRIC = "metric"
    IMPERIAL = "imperial"


@dataclass
class Place:
    city: str
    country: str | None = None


class Window(TypedDict):
    start: datetime.date
    days: NotRequired[int]


def everything(
    text: str,
    number: int,
    choice: Literal["b", "a"],
    unit: Unit,
    tags: list[Literal[3, 1]],
    extra: dict[str, int],
    place: Place,
    window: Window,
    maybe: Literal["sun", "rain"] | None = None,
    limit: Annotated[int, Meta(ge=1, le=10, description="how many")] = 5,
    anything: Any = None,
    *,
    kitchen: Place,
    cellar: Unit | None = None,
    note: Annotated[Place, "note"],
) -> None: ...


def test_a_signature() -> None:
    signature = read_signature(everything)
    place = {
        "city": {"type": "string"},
        "country": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    }
    window = {"start": {"type": "string", "format": "date"}, "days": {"type": "integer"}}
    assert signature.schema == {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "number": {"type": "integer"},
            "choice": {"enum": ["b", "a"]},  # as written
            "unit": {"$ref": "#/$defs/Unit"},
            "tags": {"type": "array", "items": {"enum": [3, 1]}},
            "extra": {"type": "object", "additionalProperties": {"type": "integer"}},
            "place": {"$ref": "#/$defs/Place"},
            "window": {"$ref": "#/$defs/Window"},
            "maybe": {"anyOf": [{"enum": ["sun", "rain"]}, {"type": "null"}], "default": None},
            "limit": {"type": "integer", "minimum": 1, "maximum": 10, "description": "how many", "default": 5},
            "anything": {"default": None},
        },
        "required": ["text", "number", "choice", "unit", "tags", "extra", "place", "window"],
        "additionalProperties": False,
        "$defs": {
            "Unit": {"title": "Unit", "enum": ["imperial", "metric"]},
            "Place": {"title": "Place", "type": "object", "properties": place, "required": ["city"]},
            "Window": {"title": "Window", "type": "object", "properties": window, "required": ["start"]},
        },
    }
    assert {name: (one.types, one.optional) for name, one in signature.injected.items()} == {
        "kitchen": ((Place,), False),
        "cellar": ((Unit,), True),
        "note": ((Place,), False),
    }


def variadic(*words: str) -> None: ...
def keywords(**words: str) -> None: ...
def bare(word) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001
def positional(word: str, /) -> None: ...
def strange(word: complex) -> None: ...
def mutable(words: list[str] = ["a"]) -> None: ...  # noqa: B006
def forward(word: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (variadic, r"^parameter \*words: str "),
        (keywords, r"^parameter \*\*words: str "),
        (bare, "^parameter word .*annotation"),
        (positional, "^parameter word .*positional"),
        (strange, "JSON Schema .*complex"),
        (mutable, "JSON Schema .*parameters"),
        (forward, "annotation .*'Nowhere'"),
        ("no function", "parameters cannot be read"),
    ],
)
def test_a_function_without_a_schema(function: Any, reason: str) -> None:
    with pytest.raises(RegistrationError, match=reason):
        read_signature(function)


def of_object(**properties: Any) -> Any:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (None, 'of type "object"'),
        ({"type": "array"}, 'of type "object"'),
        ({"type": "object", "required": "a"}, "'a' is not of type 'array'"),
        (of_object(a={"$ref": "https://example.org/x"}), "another document"),
        (of_object(a={"$ref": "#/$defs/no"}), "#/$defs/no"),
        ({**of_object(a={"$ref": "#/$defs/T/type/x"}), "$defs": {"T": {"type": ["string"]}}}, "#/$defs/T"),
        ({"type": "object", "$ref": "#"}, "themselves"),
    ],
)
def test_a_bad_schema(schema: Any, reason: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        check_schema(schema)
    assert reason in str(caught.value)


GOOD = {"text": "x", "number": 1, "choice": "a", "unit": "metric", "tags": [], "extra": {}}
GOOD |= {"place": {"city": "Rome"}, "window": {"start": "2024-01-01"}}
TREE = {"$defs": {"tree": {"type": "object", "additionalProperties": {"$ref": "#/$defs/tree"}}}}


@pytest.mark.parametrize(
    ("params", "problems"),
    [
        ({}, []),
        ({"number": True}, ["number cannot be true (expected integer)"]),
        ({"choice": "c"}, ["choice cannot be 'c' (allowed: b, a)"]),
        ({"tags": [3, 2]}, ["tags[1] cannot be 2 (allowed: 3, 1)"]),
        ({"place": {}}, ["place.city is missing"]),
        ({"place": {"city": "x", "country": 5}}, ["place.country cannot be 5 (expected string or null)"]),
        ({"limit": 11}, ["limit cannot be 11 (the maximum is 10)"]),
        ({"nope": 1}, [
            "unknown parameter 'nope' (allowed: text, number, choice, unit, tags, extra, place, window, maybe, limit, "
            "anything)"
        ]),
        ({"text": 1, "limit": 0}, ["limit cannot be 0 (the minimum is 1)", "text cannot be 1 (expected string)"]),
    ],
)  # fmt: skip
def test_every_problem_is_named(params: dict[str, Any], problems: list[str]) -> None:
    assert find_problems(build_validator(read_signature(everything).schema), {**GOOD, **params}) == problems


@pytest.mark.parametrize(
    ("schema", "params", "problems"),
    [
        ({"anyOf": [{"enum": ["s"]}, {"type": "integer"}]}, "m", ["'m' (allowed: s, any integer)"]),
        ({"type": "string", "maxLength": 5}, "x" * 5_000, [f"'{'x' * 38}… (the maximum length is 5)"]),
        ({"multipleOf": 0.1}, 10**400, None),
        ({"$ref": "#/$defs/tree"}, {"b": {"c": 1}}, None),
    ],
)  # fmt: skip
def test_problems_of_one_value(schema: Any, params: Any, problems: list[str] | None) -> None:
    found = find_problems(build_validator({**of_object(a=schema), **TREE}), {"a": params})
    if problems is not None:
        assert found == [f"a cannot be {problem}" for problem in problems]
    elif isinstance(params, int):
        assert found == ["a number is too large to check"]
    else:
        assert found == ["a.b.c cannot be 1 (expected object)"]


def test_many_problems_are_counted() -> None:
    properties = {f"p{n:02}": {"type": "string"} for n in range(20)}
    found = find_problems(build_validator(of_object(**properties)), dict.fromkeys(properties, 1))
    assert (len(found), found[0], found[-1]) == (13, "p00 cannot be 1 (expected string)", "and 8 more")


def test_the_schemas_and_examples_of_the_included_specialists_are_valid() -> None:
    """They are not checked at each start."""
    included = [entry.specialist for entry in Registry().discover().values()]
    assert len(included) == 11
    for one in included:
        check_schema(one.parameters)
        for params in one.example_params.values():
            assert find_problems(one.validator, params) == []
