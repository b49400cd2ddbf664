"""The parameters of assisted calls."""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from brain import AssistContext, Refused, specialist
from brain.assist.params import build_params, fill_params, is_stated, required_schema
from brain.plugins.specialist import Specialist, from_schema

CONTEXT = AssistContext(datetime(2026, 11, 23, 10, tzinfo=ZoneInfo("Europe/Berlin")))
"""A Monday."""
TEXT = {"type": "string"}


def tool(
    name: str, description: str, properties: Mapping[str, Any], required: list[str], *examples: str
) -> Specialist[..., Any]:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return from_schema(name, description, parameters, lambda params: "", {"examples": examples, "read_only": True})


UNITS = {"type": "string", "enum": ["metric", "imperial"]}
WEATHER = tool(
    "weather", "Weather in a city.", {"city": TEXT, "units": UNITS, "hourly": {"type": "boolean"}}, ["city"],
    "weather in Paris", "will it rain in Oslo tomorrow", "how hot is it in Cairo",
)  # fmt: skip
RATE = tool(
    "rate", "Converts money.",
    {"amount": {"type": "number", "default": 1}, "source": {"type": "string", "description": "ISO 4217 code"},
     "target": {"type": "string", "description": "ISO 4217 code"}},
    ["source", "target"], "100 USD in EUR", "exchange rate CHF to SEK",
)  # fmt: skip
LENGTHS = {"type": "string", "enum": ["km", "mi", "m", "ft", "c", "f"]}
LENGTH = tool(
    "length", "Converts units.", {"value": {"type": "number"}, "from_unit": LENGTHS, "to_unit": LENGTHS},
    ["value", "from_unit", "to_unit"], "5 miles in km",
)  # fmt: skip
TRAINS = tool(
    "trains", "Trains between two stations.",
    {"origin": TEXT, "destination": TEXT, "date": {"type": "string", "format": "date"},
     "passengers": {"type": "integer", "minimum": 1, "maximum": 9},
     "direct_only": {"type": "boolean", "description": "no changes"}},
    ["origin", "destination"], "train from Berlin to Prague", "next train Leeds to York",
)  # fmt: skip
MENU = tool(
    "menu", "Lunch in the canteen.", {"day": {"type": "string", "enum": ["monday", "tuesday", "wednesday"]}}, ["day"],
    "canteen menu monday",
)  # fmt: skip
TRANSLATE = tool(
    "translate", "Translates a text.", {"text": TEXT, "to": {"type": "string", "description": "language code"}},
    ["text", "to"], "translate good morning into German", "how do you say cheese in French",
)  # fmt: skip
RECIPES = tool(
    "recipes", "Finds recipes.", {"ingredients": {"type": "string", "description": "comma separated"},
    "max_minutes": {"type": "integer"}}, ["ingredients"], "recipe with chicken and rice", "soups with lentils",
)  # fmt: skip
SEARCH = tool(
    "handbook", "Searches the handbook.", {"query": TEXT, "limit": {"type": "integer"}}, ["query"],
    "search the handbook for onboarding", "what does the handbook say about expenses",
)  # fmt: skip
FETCH = tool("fetch", "Checks a page.", {"url": {"type": "string", "format": "uri"}}, ["url"], "is it online")
PAINT = from_schema(
    "paint", "Prices of paint.",
    {"type": "object", "properties": {"color": {"$ref": "#/$defs/Color"}}, "required": ["color"],
     "$defs": {"Color": {"enum": ["red", "blue"]}}},
    lambda params: "", {"read_only": True},
)  # fmt: skip
FILMS = tool("films", "Films in cinemas.", {"city": TEXT, "title": TEXT}, ["city", "title"], "Vertigo in Oxford")
STATUS = tool("status", "Tickets.", {"id": {"type": "integer"}}, ["id"], "status of ticket 4711")


@pytest.mark.parametrize(
    ("one", "message", "params"),
    [
        (WEATHER, "weather in Lima", {"city": "Lima"}),
        (WEATHER, "Flying to Lima in an hour, jacket or t-shirt?", {"city": "Lima"}),
        (WEATHER, "is the sun out in São Paulo? hourly, in Fahrenheit", {"city": "São Paulo", "units": "imperial",
                                                                       "hourly": True}),
        (WEATHER, "temp in phoenix az", {"city": "phoenix az"}),
        (WEATHER, "how is the weather?", None),
        (RATE, "how much is 1,200.50 dollars in euros?", {"amount": 1200.5, "source": "USD", "target": "EUR"}),
        (RATE, "how many Canadian dollars are 49.90 €", {"amount": 49.9, "source": "EUR", "target": "CAD"}),
        (RATE, "EUR/TRY rate?", {"source": "EUR", "target": "TRY"}),
        (RATE, "half a million Indian rupees in USD", {"amount": 500_000.0, "source": "INR", "target": "USD"}),
        (RATE, "how much is 5 euros?", None),
        (LENGTH, "how many feet is 1.8 m", {"value": 1.8, "from_unit": "m", "to_unit": "ft"}),
        (LENGTH, "Is minus 40 C the same in F?", {"value": -40.0, "from_unit": "c", "to_unit": "f"}),
        (LENGTH, "Wie viel Kilometer sind 26 Meilen?", {"value": 26.0, "from_unit": "mi", "to_unit": "km"}),
        (TRAINS, "to Vienna from Salzburg on Friday", {"origin": "Salzburg", "destination": "Vienna",
                                                       "date": "2026-11-27"}),
        (TRAINS, "connection Hamburg - Köln tomorrow for 3 passengers, no changes",
         {"origin": "Hamburg", "destination": "Köln", "date": "2026-11-24", "passengers": 3, "direct_only": True}),
        (TRAINS, "train from Rome to Bari for 12 passengers", {"origin": "Rome", "destination": "Bari"}),
        (TRAINS, "un train de Lille à Nantes le 14 juillet", {"origin": "Lille", "destination": "Nantes",
                                                               "date": "2027-07-14"}),
        (MENU, "lunch menu tue", {"day": "tuesday"}),
        (MENU, "Was gibt es am Mittwoch?", {"day": "wednesday"}),
        (MENU, "what is for lunch?", None),
        (TRANSLATE, "translate where is the station into Italian", {"text": "where is the station", "to": "it"}),
        (TRANSLATE, "how do you say “see you” in Polish?", {"text": "see you", "to": "pl"}),
        (RECIPES, "fridge contains: leeks, potatoes and cream", {"ingredients": "leeks, potatoes, cream"}),
        (RECIPES, "something with tofu in 20 minutes", {"ingredients": "tofu", "max_minutes": 20}),
        (SEARCH, "look up parental leave in the handbook", {"query": "parental leave"}),
        (FETCH, "is (https://example.org/a?b=(c)) online?", {"url": "https://example.org/a?b=(c)"}),
        (FETCH, "is example online?", None),
        (FILMS, 'when is "The Third Man" on in Vienna?', {"title": "The Third Man", "city": "Vienna"}),
        (STATUS, "what about #23?", {"id": 23}),
        (PAINT, "how much is blue?", {"color": "blue"}),
    ],
)  # fmt: skip
def test_rules_for_a_schema(one: Specialist[..., Any], message: str, params: Any) -> None:
    assert build_params(one, message, CONTEXT) == params


@pytest.mark.parametrize(
    ("previous", "message", "params"),
    [
        ("train from Rome to Bari", "and on Friday for 3 passengers?",
         {"origin": "Rome", "destination": "Bari", "date": "2026-11-27", "passengers": 3}),
        ("train from Rome to Bari", "thank you", None),
        ("train from Rome to Bari", "Rome is beautiful and Bari loud, my friends say, so I like both of them", None),
        ("hello", "and on Friday?", None),
    ],
)  # fmt: skip
def test_a_follow_up(previous: str, message: str, params: Any) -> None:
    context = AssistContext(CONTEXT.now, previous=previous)
    assert build_params(TRAINS, message, context) == params


def assisted(function: Any) -> Specialist[..., Any]:
    def greet(name: str) -> str:
        """Greets."""
        return name

    return specialist(examples=[("greet Ada", {"name": "Ada"})], read_only=True, assist=function)(greet)


@pytest.mark.parametrize(
    ("function", "message", "params"),
    [
        (lambda message, context: {"name": f"{context.previous} {message}"}, "x", {"name": " x"}),
        (lambda message, context: {"name": "x"}, "Greet the Bob!", {"name": "Bob"}),  # repeats the example
        (lambda message, context: None, "x", None),
        (lambda message, context: {"name": 1}, "x", None),
        (lambda message, context: {"name": message}, "x" * 3000, {"name": "x" * 2000}),
    ],
)
def test_the_function_of_a_specialist(function: Any, message: str, params: Any) -> None:
    assert build_params(assisted(function), message, CONTEXT) == params


def test_a_function_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "brain"):
        assert build_params(assisted(lambda message, context: {"name": int(message)}), "x", CONTEXT) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_function_that_refuses() -> None:
    def refuse(message: str, context: AssistContext) -> None:
        raise Refused("Do it yourself.")

    with pytest.raises(Refused, match="Do it yourself"):
        build_params(assisted(refuse), "x", CONTEXT)
    assert fill_params(assisted(refuse), "greet Eve", CONTEXT) == {"name": "Eve"}


def test_the_schema_for_a_model() -> None:
    schema = required_schema(RATE)
    assert schema is not None
    assert (schema["required"], list(schema["properties"])) == (["source", "target"], ["source", "target"])
    assert schema["properties"]["source"]["description"] == "ISO 4217 code"
    unclear = tool("odd", "Odd.", {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, ["a"])
    assert [required_schema(one) for one in (unclear, tool("none", "None.", {"a": TEXT}, []))] == [None, None]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"city": "York"}, True),
        ({"city": "new york"}, True),
        ({"city": "Yor"}, False),
        ({"city": ""}, False),
        ({"city": "Hull"}, False),
        ({"count": 3}, True),
        ({"count": 1}, False),
        ({"count": 2019.0}, True),
        ({"names": ["York", "Bath"]}, True),
        ({"names": []}, False),
        ({"unit": "km"}, True),  # one of few
        ({"is_direct": False}, True),
    ],
)
def test_values_of_a_model_must_be_stated(params: Mapping[str, Any], expected: bool) -> None:
    schema = {"properties": {"unit": {"enum": ["km", "mi"]}}}
    assert is_stated(params, schema, "Trains from Bath to New York in 2019 for three?") is expected


@pytest.mark.parametrize(
    "repeated", ["in ", "“", "1,", "12:", "Ab ", "https://", "a@a.", "minus ", "half a ", "'", " "]
)
def test_only_the_beginning_of_a_message_is_read(repeated: str) -> None:
    short, long = ((repeated * length)[:length] for length in (2_000, 1_000_000))
    for one in (WEATHER, RATE, LENGTH, TRAINS, TRANSLATE, RECIPES, FETCH):
        assert build_params(one, long, CONTEXT) == build_params(one, short, CONTEXT)
