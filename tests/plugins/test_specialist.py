"""Creating specialists from functions, and from tools with a schema."""

import functools
from collections.abc import Mapping
from typing import Any, Literal

import pytest

from brain.errors import RegistrationError
from brain.plugins.context import Context
from brain.plugins.schema import InjectedParameter
from brain.plugins.specialist import Options, Specialist, from_schema, specialist


def weather(city: str, units: Literal["metric", "imperial"] = "metric", *, context: Context) -> str:
    """Current weather
    for a city.

    Not for the model.
    """
    return f"{city} {units}"


def test_a_function_and_the_defaults() -> None:
    one = specialist(weather)
    assert (one.name, one.description) == ("weather", "Current weather for a city.")
    assert list(one.parameters["properties"]) == ["city", "units"]
    assert one.injected == {"context": InjectedParameter((Context,), optional=False)}
    assert (one.timeout, one.idle_timeout, one.cache_seconds) == (None, None, 0.0)
    assert (one.requires_user, one.needs_approval({}), one.reads_only({})) == (False, False, False)
    assert (one.outside, one.private, one.sent_params({"city": "Rome"}, "Hi")) == (True, False, {})
    assert (one.tags, one.examples, one.activates_on, one.version) == ((), (), frozenset(), "")


def test_options() -> None:
    one = specialist(
        name="web-search",
        timeout=10,
        requires_user=True,
        read_only=True,
        cache_seconds=60,
        activates_on=["image", "pdf"],
        tags=["a"],
        sends=["city"],
        approval="always",
    )(weather)
    assert (one.name, one.timeout, one.cache_seconds, one.read_only) == ("web-search", 10, 60, True)
    assert (one.activates_on, one.tags) == (frozenset({"image", "pdf"}), ("a",))
    assert (one.needs_approval({}), one.private) == (True, True)
    assert one.sent_params({"city": "Rome", "units": "metric"}, "Hi") == {"city": "Rome"}
    assert specialist(sends=lambda params, message: {"city": message})(weather).sent_params({}, "Hi") == {"city": "Hi"}


def test_options_that_depend_on_the_parameters() -> None:
    by_value: Any = lambda params: params["value"]  # noqa: E731
    one = specialist(approval=by_value, read_only=by_value)(weather)
    assert [one.needs_approval({"value": value}) for value in (True, False)] == [True, False]
    assert [one.reads_only({"value": value}) for value in (True, False, None, 1, "read")] == [True, *[False] * 4]
    assert one("Rome", context=None) == "Rome metric"  # type: ignore[arg-type]


async def asynchronous(params: Mapping[str, Any]) -> bool:
    return False


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        *[({"name": name}, "the name must be") for name in ("9lives", "a b", "a\n", "é", "x" * 65)],
        *[({"timeout": value}, "timeout must be a number of seconds above 0") for value in (0, "5", True)],
        ({"idle_timeout": float("nan")}, "idle_timeout must be"),
        *[({"read_only": value, "cache_seconds": 5}, "cache_seconds requires") for value in (False, len)],
        ({"approval": "sometimes"}, "approval must be"),
        ({"requires_user": "no"}, "requires_user must be"),
        ({"read_only": 1}, "read_only must be"),
        ({"tags": "one"}, "tags must be"),
        *[
            ({"examples": value}, "examples must be")
            for value in ([1], "weather", [("weather", "Rome")], [("weather",)])
        ],
        ({"examples": [("weather", {"units": "C"})]}, "the parameters of example 'weather' "),
        ({"health": "yes"}, "health must be"),
        ({"forget": lambda user: None}, "forget must take"),
        ({"forget": 1}, "its parameters cannot be read"),
        ({"not_examples": "one"}, "not_examples must be"),
        ({"assist": lambda message: None}, "assist must take"),
        ({"assist": asynchronous}, "assist must be"),
        ({"preview": lambda params: ""}, "preview requires approval"),
        ({"preview": lambda n, m: "", "approval": "always"}, "preview must take"),
        ({"approval": asynchronous}, "approval must be"),
        ({"approval": "always", "read_only": asynchronous}, "read_only must be"),
        ({"colour": "red"}, "unknown option colour"),
        ({"timeouts": 5}, "unknown option timeouts. Did you mean 'timeout'?"),
    ],
)
def test_a_bad_option_is_named(options: Any, reason: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        specialist(**options)(weather)
    assert str(caught.value).startswith(f"specialist {options.get('name', 'weather')}: {reason}")


def undocumented(city: str) -> None: ...


def greedy(question: str, context: Context | None = None) -> None:
    """Asks."""


@pytest.mark.parametrize(("function", "reason"), [(undocumented, "no docstring"), (greedy, "make it keyword-only")])
def test_a_bad_function_is_named(function: Any, reason: str) -> None:
    with pytest.raises(RegistrationError, match=f"^specialist {function.__name__}: .*{reason}"):
        specialist(function)


SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}


def handler(params: Mapping[str, Any], *, context: Context | None = None) -> str:
    return str(params["q"])


class Handler:
    def __call__(self, params: Mapping[str, Any]) -> str:
        return str(params)


def two(first: str, params: Mapping[str, Any]) -> str:
    return first + str(params)


@pytest.mark.parametrize("good", [handler, Handler(), Handler().__call__, functools.partial(two, "x"), lambda p: p])
def test_a_tool_that_brings_its_schema(good: Any) -> None:
    one = from_schema("tool", "Does it.", SCHEMA, good, Options(timeout=3))
    assert isinstance(one, Specialist)
    assert (one.name, one.description, one.parameters, one.timeout) == ("tool", "Does it.", SCHEMA, 3)


@pytest.mark.parametrize(
    ("name", "description", "schema", "function", "reason"),
    [
        ("a.b", "Does it.", SCHEMA, handler, "specialist a.b: the name"),
        ("tool", "", SCHEMA, handler, "specialist tool: its description"),
        ("tool", "Does it.", {"type": "string"}, handler, "specialist tool: its parameters must be a JSON Schema"),
        ("tool", "Does it.", SCHEMA, two, "specialist tool: its handler must take"),
        ("tool", "Does it.", SCHEMA, "text", "specialist tool: its parameters cannot be read"),
    ],
)
def test_a_bad_tool_is_named(name: str, description: str, schema: Any, function: Any, reason: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        from_schema(name, description, schema, function, {})
    assert str(caught.value).startswith(reason)
