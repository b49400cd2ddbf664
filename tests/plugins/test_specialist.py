import functools
from collections.abc import Mapping
from typing import Any, Literal

import pytest

from brain.errors import RegistrationError
from brain.plugins.context import Context, Result
from brain.plugins.schema import InjectedParameter
from brain.plugins.specialist import Options, Specialist, from_schema, specialist


def weather(city: str, units: Literal["metric", "imperial"] = "metric", *, context: Context) -> str:
    """Current weather
    for a city.

    Not for the model.
    """
    return f"{city} {units}"


def test_name_description_and_schema_come_from_the_function() -> None:
    one = specialist(weather)
    assert (one.name, one.description) == ("weather", "Current weather for a city.")
    assert one.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "units": {"enum": ["metric", "imperial"], "default": "metric"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert one.injected == {"context": InjectedParameter((Context,), optional=False)}


def test_options() -> None:
    @specialist(
        name="web-search",
        timeout=10,
        idle_timeout=2.5,
        requires_user=True,
        read_only=True,
        cache_seconds=60,
        activates_on=["image", "pdf"],
        tags=["a"],
        examples=["news of today"],
        version="1.2",
        needs="search",
        approval="always",
    )
    async def search(query: str) -> str:
        """Searches."""
        return query

    assert search.name == "web-search"
    assert (search.timeout, search.idle_timeout, search.cache_seconds) == (10, 2.5, 60)
    assert (search.requires_user, search.read_only) == (True, True)
    assert search.activates_on == frozenset({"image", "pdf"})
    assert (search.tags, search.examples) == (("a",), ("news of today",))
    assert (search.version, search.needs) == ("1.2", "search")
    assert search.needs_approval({}) is True


def test_defaults() -> None:
    @specialist()
    def plain() -> str:
        """Plain."""
        return "x"

    assert (plain.timeout, plain.idle_timeout, plain.cache_seconds) == (None, None, 0.0)
    assert (plain.requires_user, plain.read_only, plain.needs_approval({})) == (False, False, False)
    assert (plain.outside, plain.reads_only({})) == (True, False)
    assert (plain.tags, plain.examples, plain.activates_on, plain.version) == ((), (), frozenset(), "")


def test_approval_may_depend_on_the_parameters() -> None:
    @specialist(approval=lambda params: bool(params["send"]))
    def mail(send: bool) -> str:
        """Mails."""
        return str(send)

    assert mail.needs_approval({"send": True}) is True
    assert mail.needs_approval({"send": False}) is False


def test_reading_may_depend_on_the_parameters_and_is_said_in_as_many_words() -> None:
    says: Any = lambda params: params["how"]  # noqa: E731

    @specialist(read_only=says)
    def mail(how: str) -> str:
        """Mails."""
        return how

    assert mail.reads_only({"how": True}) is True
    others: list[Any] = [False, None, 1, "read", []]
    assert [mail.reads_only({"how": how}) for how in others] == [False] * 5


def test_calling_a_specialist_calls_its_function() -> None:
    @specialist
    def add(a: int, b: int = 1, *, unit: str = "m") -> Result:
        """Adds."""
        return Result(f"{a + b} {unit}")

    assert add(1, unit="km").text == "2 km"
    assert add(a=1, b=2).text == "3 m"


def test_a_specialist_may_be_made_of_a_method() -> None:
    class ServerState:
        def rooms(self, floor: int) -> str:
            """Counts rooms."""
            return f"{floor} rooms"

    assert specialist(ServerState().rooms)(2) == "2 rooms"


def undocumented(city: str) -> str:
    return city


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"name": "9lives"}, "its name must be a letter, then letters, digits, _ or -, at most 64"),
        ({"name": "a b"}, "its name must be a letter, then letters, digits, _ or -, at most 64"),
        ({"name": "a\n"}, "its name must be a letter, then letters, digits, _ or -, at most 64"),
        ({"name": "é"}, "its name must be a letter, then letters, digits, _ or -, at most 64"),
        ({"name": "x" * 65}, "its name must be a letter, then letters, digits, _ or -, at most 64"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"timeout": "5"}, "timeout must be a number of seconds above 0"),
        ({"timeout": True}, "timeout must be a number of seconds above 0"),
        ({"idle_timeout": -1}, "idle_timeout must be a number of seconds above 0"),
        ({"idle_timeout": float("nan")}, "idle_timeout must be a number of seconds above 0"),
        ({"cache_seconds": 5}, "only a read_only specialist may have cache_seconds"),
        ({"approval": "sometimes"}, "approval must be never, always, or a function of the parameters"),
        ({"requires_user": "no"}, "requires_user must be True or False"),
        ({"read_only": 1}, "read_only must be True, False, or a function of the parameters"),
        ({"read_only": len, "cache_seconds": 5}, "only a read_only specialist may have cache_seconds"),
        ({"outside": "no"}, "outside must be True or False"),
        ({"tags": "one"}, "tags must be a list of texts"),
        ({"examples": [1]}, "examples must be a list of texts"),
        ({"activates_on": "image"}, "activates_on must be a list of texts"),
        ({"health": "yes"}, "health must be a function"),
        ({"lifespan": 1}, "lifespan must be a function"),
        ({"forget": lambda user: None}, "forget must take a user and the id of a conversation"),
        ({"forget": 1}, "it is no function whose parameters can be read: 1 is not a callable object"),
        ({"timeouts": 5, "colour": "red"}, "unknown option colour, timeouts"),
    ],
)
def test_bad_options_are_refused_with_the_name(options: Any, reason: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        specialist(**options)(weather)
    assert str(caught.value) == f"specialist {options.get('name', 'weather')}: {reason}"


def test_a_function_without_a_docstring_is_refused_with_its_name() -> None:
    with pytest.raises(RegistrationError, match=r"^specialist undocumented: it has no docstring, so no model would"):
        specialist(undocumented)


def test_a_bad_signature_is_refused_with_the_name() -> None:
    def listing(*words: str) -> None:
        """Lists."""

    with pytest.raises(RegistrationError, match=r"^specialist listing: parameter \*words: str cannot be described"):
        specialist(listing)


SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}


def handler(params: Mapping[str, Any], *, context: Context | None = None) -> str:
    return str(params["q"])


class Callable:
    def __call__(self, params: Mapping[str, Any]) -> str:
        return str(params)


def two(first: str, params: Mapping[str, Any]) -> str:
    return first + str(params)


@pytest.mark.parametrize("good", [handler, Callable(), Callable().__call__, functools.partial(two, "x"), lambda p: p])
def test_a_tool_that_brings_its_schema(good: Any) -> None:
    one = from_schema("tool", "Does it.", SCHEMA, good, Options(timeout=3))
    assert isinstance(one, Specialist)
    assert (one.name, one.description, one.parameters, one.timeout) == ("tool", "Does it.", SCHEMA, 3)


@pytest.mark.parametrize(
    ("name", "description", "schema", "function", "reason"),
    [
        ("a.b", "Does it.", SCHEMA, handler, "specialist a.b: its name must be a letter"),
        ("tool", "", SCHEMA, handler, "specialist tool: its description is empty"),
        ("tool", "Does it.", {"type": "string"}, handler, "specialist tool: its parameters must be a JSON Schema"),
        ("tool", "Does it.", SCHEMA, two, "specialist tool: its handler must take the parameters as one mapping"),
        ("tool", "Does it.", SCHEMA, lambda: 1, "specialist tool: its handler must take the parameters as one mapping"),
        ("tool", "Does it.", SCHEMA, "no function", "specialist tool: it is no function whose parameters can be read"),
    ],
)
def test_a_bad_tool_is_refused(name: str, description: str, schema: Any, function: Any, reason: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        from_schema(name, description, schema, function, {})
    assert str(caught.value).startswith(reason)


def test_a_reference_into_a_list_by_name_is_refused() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/T/type/x"}},
        "$defs": {"T": {"type": ["string"]}},
    }
    with pytest.raises(RegistrationError, match="refer to #/\\$defs/T/type/x, which is not there"):
        from_schema("x", "Does.", schema, lambda params: None, {})


def test_a_context_among_the_parameters_is_told_where_it_belongs() -> None:
    async def asks(question: str, context: Context) -> str:
        """Asks."""
        return question

    async def may_ask(context: Context | None = None) -> str:
        """May ask."""
        return ""

    for name, function in (("asks", asks), ("may_ask", may_ask)):
        with pytest.raises(RegistrationError) as caught:
            specialist(function)
        assert str(caught.value) == (
            f"specialist {name}: parameter context is none of the model's; make it keyword-only (*, context: Context)"
        )
