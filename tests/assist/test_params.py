"""The parameters of assisted calls."""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from brain import AssistContext, Refused, specialist
from brain.assist.params import build_params, fill_params, is_stated, required_schema
from brain.assist.proposal import is_yes, word_question
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
        (RATE, "how much is 1,200.50 USD in EUR?", {"amount": 1200.5, "source": "USD", "target": "EUR"}),
        (RATE, "EUR/TRY rate?", {"source": "EUR", "target": "TRY"}),
        (RATE, "how much is 5 dollars in euros?", None),
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
    filled = build_params(one, message, CONTEXT)
    assert (filled and filled.params) == params


COFFEE = tool(
    "coffee", "The price of coffee.", {"origin": TEXT}, ["origin"],
    "price of coffee from Kenya", "what does coffee from Brazil cost", "coffee prices for Colombia",
)  # fmt: skip
BOARD = tool(
    "board", "Departures of trains.", {"station": TEXT, "after": {"type": "integer"}}, ["station"],
    "trains from Leeds", "next trains from Hull", "when does the train from Bath leave",
)  # fmt: skip
DEGREES = {"type": "string", "enum": ["celsius", "fahrenheit", "kelvin"]}
CONVERT = tool(
    "convert", "Converts temperatures.", {"value": {"type": "number"}, "to": DEGREES}, ["value", "to"],
    "convert 20 celsius to fahrenheit", "100 fahrenheit in kelvin", "how much is 5 kelvin in celsius",
)  # fmt: skip
TIMER = tool(
    "timer", "Sets a timer.", {"minutes": {"type": "integer"}}, ["minutes"], "timer for 5 minutes", "timer 10 min"
)
PARCEL = tool(
    "parcel", "Tracks a parcel.", {"number": TEXT, "weight": {"type": "number"}}, ["number"],
    "track 1Z12345E0205271688", "where is H1000730118", "parcel 00340434161094",
)  # fmt: skip


@pytest.mark.parametrize(
    ("one", "message", "filled"),
    [
        (COFFEE, "What does coffee from Ethiopia cost?", ({"origin": "Ethiopia"}, True)),
        (COFFEE, "coffee from ethiopia", ({"origin": "ethiopia"}, True)),
        (COFFEE, "I burned my tongue on my coffee", None),
        (COFFEE, "My coffee is cold", None),
        (COFFEE, "I spilled coffee on Anna", ({"origin": "Anna"}, False)),
        (COFFEE, "Is coffee from Peru or Ethiopia cheaper?", ({"origin": "Peru"}, False)),
        (BOARD, "trains from York", ({"station": "York"}, True)),
        (BOARD, "trains from York after 10", ({"station": "York"}, False)),
        (BOARD, "trains from York in half an hour", ({"station": "York"}, False)),
        (BOARD, "trains after 10", None),
        (CONVERT, "convert 68 fahrenheit to celsius", ({"to": "celsius", "value": 68.0}, True)),
        (CONVERT, "68 fahrenheit in celsius", ({"to": "celsius", "value": 68.0}, True)),
        (CONVERT, "convert 68 fahrenheit to celsius or kelvin", ({"to": "celsius", "value": 68.0}, False)),
        (CONVERT, "1.500 fahrenheit in celsius", ({"to": "celsius", "value": 1.5}, False)),
        (CONVERT, "68 fahrenheit", None),
        (TIMER, "timer 7 minutes", ({"minutes": 7}, True)),
        (TIMER, "timer 7", ({"minutes": 7}, True)),
        (TIMER, "timer 2 hours", ({"minutes": 2}, False)),
        (TIMER, "timer 5 or 6 minutes", ({"minutes": 6}, False)),
        (PARCEL, "my shoes should be here, they gave me LX482091775DE", ({"number": "LX482091775DE"}, True)),
        (PARCEL, "LX482091775DE or JJD01497720061?", ({"number": "JJD01497720061"}, False)),
        (PARCEL, "LX482091775DE, 3 times", ({"number": "LX482091775DE"}, False)),
        (WEATHER, "will Hull or York have rain?", ({"city": "Hull"}, False)),
        (FILMS, 'when is "Psycho" on in Vienna?', ({"title": "Psycho", "city": "Vienna"}, True)),
        (FILMS, "when is Psycho on in Vienna?", ({"city": "Psycho", "title": "Vienna"}, False)),
        (MENU, "monday or tuesday menu", ({"day": "monday"}, False)),
        (TRAINS, "train from Rome to Bari for 12 passengers", ({"origin": "Rome", "destination": "Bari"}, False)),
    ],
)
def test_a_parameter_that_is_not_certain(one: Specialist[..., Any], message: str, filled: Any) -> None:
    assert build_params(one, message, CONTEXT) == filled


@pytest.mark.parametrize(
    ("one", "params", "question"),
    [
        (COFFEE, {"origin": "Peru"}, "Do you want this: price of coffee from Peru?"),
        (BOARD, {"station": "York"}, "Do you want this: trains from York?"),
        (BOARD, {"station": "York", "after": 10},
         "Do you want me to use board (station: York, after: 10)? Departures of trains."),
        # the source unit of the example is no parameter, so it would stay
        (CONVERT, {"value": 68.0, "to": "kelvin"},
         "Do you want me to use convert (value: 68, to: kelvin)? Converts temperatures."),
        (COFFEE, {"origin": "<|im_end|>"}, "Do you want this: price of coffee from ＜|im_end|>?"),
    ],
)  # fmt: skip
def test_the_question_before_a_call(one: Specialist[..., Any], params: Mapping[str, Any], question: str) -> None:
    assert word_question(one, params) == question


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        *((one, True) for one in ("yes", "Yes, please!", "ja bitte", "oui", "d’accord", "sí", "ok", "sure, go ahead")),
        *((one, False) for one in ("no", "yes but from Kenya", "", "yesterday", "yes " * 99, "okra", "si tú quieres")),
    ],
)
def test_a_message_that_only_agrees(message: str, expected: bool) -> None:
    assert is_yes(message) == expected


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
    filled = build_params(TRAINS, message, context)
    assert (filled and filled.params) == params


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
    assert build_params(assisted(function), message, CONTEXT) == (params and (params, True))


def test_a_function_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "brain"):
        assert build_params(assisted(lambda message, context: {"name": int(message)}), "x", CONTEXT) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_function_that_refuses() -> None:
    def refuse(message: str, context: AssistContext) -> None:
        raise Refused("Do it yourself.")

    with pytest.raises(Refused, match="Do it yourself"):
        build_params(assisted(refuse), "x", CONTEXT)
    assert fill_params(assisted(refuse), "greet Eve", CONTEXT) == ({"name": "Eve"}, True)


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
        ({"city": "early"}, False),  # no name, and after no preposition
    ],
)
def test_values_of_a_model_must_be_stated(params: Mapping[str, Any], expected: bool) -> None:
    names = {"type": "array", "items": TEXT}
    properties = {"city": TEXT, "count": {"type": "integer"}, "names": names, "unit": {"enum": ["km", "mi"]}}
    one = tool("trains", "Trains.", {**properties, "is_direct": {"type": "boolean"}}, [], "Trains to Rome")
    assert is_stated(one, params, "Any early trains from Bath to New York in 2019 for three?") is expected


@pytest.mark.parametrize(
    "repeated", ["in ", "“", "1,", "12:", "Ab ", "https://", "a@a.", "minus ", "half a ", "'", " "]
)
def test_only_the_beginning_of_a_message_is_read(repeated: str) -> None:
    short, long = ((repeated * length)[:length] for length in (2_000, 1_000_000))
    for one in (WEATHER, RATE, LENGTH, TRAINS, TRANSLATE, RECIPES, FETCH):
        assert build_params(one, long, CONTEXT) == build_params(one, short, CONTEXT)
