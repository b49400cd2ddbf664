import datetime
import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from msgspec import Meta

from brain.errors import RegistrationError
from brain.plugins.schema import build_validator, find_problems, read_signature


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
    fraction: float,
    flag: bool,
    choice: Literal["a", "b"],
    unit: Unit,
    tags: list[str],
    extra: dict[str, int],
    place: Place,
    window: Window,
    when: datetime.datetime,
    maybe: str | None = None,
    limit: Annotated[int, Meta(ge=1, le=10, description="how many")] = 5,
    anything: Any = None,
) -> None: ...


def test_the_words_of_a_literal_stay_in_their_order() -> None:
    def forecast(
        units: Literal["metric", "imperial"] = "metric",
        days: list[Literal[3, 1, 2]] = [],  # noqa: B006
        sky: Literal["sun", "rain", "fog"] | None = None,
    ) -> None: ...

    properties = read_signature(forecast).schema["properties"]
    assert properties["units"] == {"enum": ["metric", "imperial"], "default": "metric"}
    assert properties["days"]["items"] == {"enum": [3, 1, 2]}
    assert "['sun', 'rain', 'fog'" in str(properties["sky"])


def test_the_schema_comes_from_the_annotations() -> None:
    assert read_signature(everything).schema == {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "number": {"type": "integer"},
            "fraction": {"type": "number"},
            "flag": {"type": "boolean"},
            "choice": {"enum": ["a", "b"]},
            "unit": {"$ref": "#/$defs/Unit"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "extra": {"type": "object", "additionalProperties": {"type": "integer"}},
            "place": {"$ref": "#/$defs/Place"},
            "window": {"$ref": "#/$defs/Window"},
            "when": {"type": "string"},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "limit": {"type": "integer", "minimum": 1, "maximum": 10, "description": "how many", "default": 5},
            "anything": {"default": None},
        },
        "required": [
            *("text", "number", "fraction", "flag", "choice", "unit", "tags", "extra", "place", "window", "when"),
        ],
        "additionalProperties": False,
        "$defs": {
            "Unit": {"title": "Unit", "enum": ["imperial", "metric"]},
            "Place": {
                "title": "Place",
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "country": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                },
                "required": ["city"],
            },
            "Window": {
                "title": "Window",
                "type": "object",
                "properties": {"start": {"type": "string", "format": "date"}, "days": {"type": "integer"}},
                "required": ["start"],
            },
        },
    }


def test_keyword_only_parameters_are_not_in_the_schema() -> None:
    def function(a: int, *, place: Place, unit: Unit | None = None, other: Annotated[Place, "note"]) -> None: ...

    signature = read_signature(function)
    assert list(signature.schema["properties"]) == ["a"]
    assert {name: (one.types, one.optional) for name, one in signature.injected.items()} == {
        "place": ((Place,), False),
        "unit": ((Unit,), True),
        "other": ((Place,), False),
    }


def variadic(*words: str) -> None: ...
def keywords(**words: str) -> None: ...
def bare(word) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001
def positional(word: str, /) -> None: ...
def strange(word: complex) -> None: ...
def function_typed(word: type) -> None: ...
def mutable(words: list[str] = ["a"]) -> None: ...  # noqa: B006
def forward(word: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def attribute(word: "datetime.nowhere") -> None: ...  # type: ignore[name-defined]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (variadic, r"^parameter \*words: str cannot be described to a model; name each parameter$"),
        (keywords, r"^parameter \*\*words: str cannot be described to a model; name each parameter$"),
        (bare, "^parameter word has no annotation$"),
        (positional, "^parameter word cannot be given by name; drop the / behind it$"),
        (strange, "^its parameters cannot be described in JSON Schema: .*complex"),
        (function_typed, "^its parameters cannot be described in JSON Schema: "),
        (mutable, "^its parameters cannot be described in JSON Schema: "),
        (forward, "^an annotation cannot be read: name 'Nowhere' is not defined$"),
        (attribute, "^an annotation cannot be read: .*nowhere"),
        ("no function", "^it is no function whose parameters can be read: "),
    ],
)
def test_what_cannot_be_described_is_refused(function: Any, reason: str) -> None:
    with pytest.raises(RegistrationError, match=reason) as caught:
        read_signature(function)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (None, 'its parameters must be a JSON Schema of type "object"'),
        ({}, 'its parameters must be a JSON Schema of type "object"'),
        ({"type": "array"}, 'its parameters must be a JSON Schema of type "object"'),
        ({"type": "object", "required": "a"}, "its parameters are no valid JSON Schema: 'a' is not of type 'array'"),
        ({"type": "object", "properties": {"a": {"$ref": "https://example.org/x"}}}, "refer to another document"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/no"}}}, "refer to #/$defs/no, which is not there"),
        ({"type": "object", "$ref": "#"}, "its parameters are described by themselves"),
    ],
)
def test_a_bad_schema_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        build_validator(schema)
    assert reason in str(caught.value)


def test_a_schema_may_refer_to_itself_further_down() -> None:
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": {"type": "object", "additionalProperties": {"$ref": "#/$defs/tree"}}},
    }
    assert find_problems(build_validator(schema), {"tree": {"a": {"b": 1}}}) == ["tree.a.b: 1 is not of type 'object'"]


def found(params: dict[str, Any], **changes: Any) -> list[str]:
    good = {"text": "x", "number": 1, "fraction": 0.5, "flag": True, "choice": "a", "unit": "metric", "tags": []}
    good |= {"extra": {}, "place": {"city": "Rome"}, "window": {"start": "2024-01-01"}, "when": "2024-01-01T00:00:00Z"}
    return find_problems(build_validator(read_signature(everything).schema), {**good, **params, **changes})


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, []),
        ({"text": 1}, ["text: 1 is not of type 'string'"]),
        ({"number": True}, ["number: True is not of type 'integer'"]),
        ({"choice": "c"}, ["choice: 'c' is not one of ['a', 'b']"]),
        ({"tags": ["a", 2]}, ["tags[1]: 2 is not of type 'string'"]),
        ({"place": {}}, ["place: 'city' is a required property"]),
        ({"maybe": 5}, ["maybe: 5 is not of type string or null"]),
        ({"limit": 11}, ["limit: 11 is greater than the maximum of 10"]),
        ({"nope": 1}, [
            "Additional properties are not allowed ('nope' was unexpected), only text, number, fraction, flag, "
            "choice, unit, tags, extra, place, window, when, maybe, limit, anything"
        ]),
        ({"text": 1, "flag": "yes", "limit": 0}, [
            "flag: 'yes' is not of type 'boolean'",
            "limit: 0 is less than the minimum of 1",
            "text: 1 is not of type 'string'",
        ]),
    ],
)  # fmt: skip
def test_every_problem_is_named(params: dict[str, Any], expected: list[str]) -> None:
    assert found(params) == expected


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"since": "fortnight"}, ["since: 'fortnight' is not one of ['day', 'week']"]),
        ({"since": 5}, ["since: 5 is not one of ['day', 'week']"]),
        ({"size": "huge"}, ["size: 'huge' is not one of ['small', 'large'] or of type integer"]),
        ({"kinds": "big"}, ["kinds: 'big' is not of type array or null"]),
        ({"kinds": ["big"]}, ["kinds[0]: 'big' is not one of ['new', 'old']"]),
    ],
)
def test_a_problem_says_what_would_be_right(params: dict[str, Any], expected: list[str]) -> None:
    def search(
        since: Annotated[Literal["day", "week"] | None, Meta(description="of the last")] = None,
        size: Literal["small", "large"] | int = 1,
        kinds: list[Literal["new", "old"]] | None = None,
    ) -> None: ...

    assert find_problems(build_validator(read_signature(search).schema), params) == expected


def test_a_long_value_does_not_hide_what_is_wrong_with_it() -> None:
    validator = build_validator({"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}}})
    assert find_problems(validator, {"a": "x" * 5_000}) == [f"a: '{'x' * 38}… is too long"]


def test_many_problems_are_counted() -> None:
    properties = {f"p{n:02}": {"type": "string"} for n in range(20)}
    named = find_problems(build_validator({"type": "object", "properties": properties}), dict.fromkeys(properties, 1))
    assert named[:2] == ["p00: 1 is not of type 'string'", "p01: 1 is not of type 'string'"]
    assert named[11:] == ["p11: 1 is not of type 'string'", "and 8 more"]


def test_a_number_too_large_to_divide_is_a_problem() -> None:
    validator = build_validator({"type": "object", "properties": {"a": {"multipleOf": 0.1}}})
    assert find_problems(validator, {"a": 10**400}) == ["a number is too large to be checked"]
