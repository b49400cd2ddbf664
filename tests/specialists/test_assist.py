"""The parameters that built-in specialists make for assisted calls."""

from datetime import datetime
from importlib import import_module
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from brain import AssistContext, Attachment, Refused, Specialist
from brain.assist.params import build_params
from brain.plugins.registry import Registry

NOW = datetime(2026, 11, 23, 10, tzinfo=ZoneInfo("Europe/Berlin"))
"""A Monday."""
PNG = b"\x89PNG\r\n\x1a\n"
FILES = (Attachment(1, "a.png", "image/png", PNG), Attachment(2, "b.png", "image/png", PNG))


def find(name: str) -> Specialist[..., Any]:
    one = getattr(import_module(f"specialists.{name}"), name)
    assert isinstance(one, Specialist)
    return one


def make(name: str, message: str, previous: str = "") -> Any:
    one = find(name)
    filled = build_params(one, message, AssistContext(NOW, "Europe/Berlin", FILES, previous))
    assert filled is None or (filled.is_certain and one.reads_only(filled.params))
    return filled and filled.params


def days(first: str, last: str, action: str = "list") -> dict[str, Any]:
    return {"action": action, "start": f"2026-{first}", "end": f"2026-{last}"}


@pytest.mark.parametrize(
    ("name", "message", "params"),
    [
        ("calendar", "What's on my calendar tomorrow?", days("11-24", "11-24")),
        ("calendar", "Would you tell me which appointments I have next week?", days("11-30", "12-06")),
        ("calendar", "qu'est-ce que j'ai le 12 décembre ?", days("12-12", "12-12")),
        ("calendar", "am i free thursday after 4", days("11-26", "11-26", "free")),
        ("calendar", "Habe ich am Freitagnachmittag eine Lücke von zwei Stunden?",
         days("11-27", "11-27", "free") | {"duration_minutes": 120}),
        ("calendar", "a 90-minute slot this week", days("11-23", "11-29", "free") | {"duration_minutes": 90}),
        ("calendar", "When is my dentist appointment?",
         {"action": "list", "start": "2026-11-23", "end": "2027-02-21", "query": "dentist"}),
        ("calendar", "show my appointments", days("11-23", "12-06")),
        ("docs", "How do I set the port?", {"query": "set port"}),
        ("docs", "how?", {"query": "how?"}),
        ("knowledge", "Search my notes for the wifi password of the cabin.", {"query": "wifi password cabin"}),
        ("medical", "BMI of 83 kg at 179 cm?", {"search": "BMI of 83 kg at 179 cm?"}),
        ("memory", "What do you know about me?", {"operation": "facts"}),
        ("memory", "what did we talk about last time", {"operation": "short_memory"}),
        ("memory", "Do you remember what my daughter is called?", {"operation": "search", "text": "daughter"}),
        ("ocr", "read page 3 of b.png", {"image_id": 2, "page": 3}),
        ("ocr", "What does it say in image 7?", {}),
        ("vision", "What is in image 1?", {"focus": "What is in image 1?", "image_id": 1}),
        ("pubmed", "Show me the abstract of PMID 32109013", {"pmid": "32109013"}),
        ("pubmed", "meta-analyses on yoga and back pain since 2020",
         {"query": "yoga back pain", "article_types": ["meta-analysis"], "date_range": "since 2020"}),
        ("web", "Summarise https://example.org/a.", {"url": "https://example.org/a"}),
        ("web", "open example.org/news and read it", {"url": "https://example.org/news"}),
        ("web", "Give me today's headlines about the strike", {"query": "today headlines strike", "since": "day"}),
        ("wiki", "Tell me about the Battle of Lepanto", {"query": "Battle of Lepanto"}),
        ("wiki", "Wer war Alexander von Humboldt?", {"query": "Alexander von Humboldt", "language": "de"}),
        ("wiki", "find the German Wikipedia page on Goethe", {"query": "German Goethe", "language": "de"}),
        ("tasks", "which tasks run every day?", {"operation": "list"}),
    ],
)  # fmt: skip
def test_the_parameters(name: str, message: str, params: Any) -> None:
    assert make(name, message) == params


@pytest.mark.parametrize(
    ("name", "previous", "message", "params"),
    [
        ("wiki", "Who was Hedy Lamarr?", "and when was she born?", {"query": "Hedy Lamarr born"}),
        ("wiki", "Wer war Käthe Kollwitz?", "und wo ist sie gestorben?",
         {"query": "Käthe Kollwitz gestorben", "language": "de"}),
        ("wiki", "Who was Hedy Lamarr?", "Who was Ada Lovelace and where did she live?",
         {"query": "Ada Lovelace live"}),
        ("web", "weather in Lisbon", "and tomorrow?", {"query": "weather Lisbon tomorrow"}),
        ("web", "¿Qué tiempo hace en Sevilla?", "¿y en Cádiz?", {"query": "tiempo Cádiz"}),
        ("pubmed", "studies on magnesium for migraine", "any from 2023?",
         {"query": "magnesium migraine", "date_range": "2023"}),
        ("calendar", "what's on my calendar today", "and on friday?", days("11-27", "11-27")),
        ("calendar", "do I have anything tomorrow morning?", "what about the afternoon?", days("11-24", "11-24")),
    ],
)  # fmt: skip
def test_the_parameters_of_a_follow_up(name: str, previous: str, message: str, params: Any) -> None:
    assert make(name, message, previous) == params


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("calendar", "Put lunch with Ana on Friday in my diary"),
        ("calendar", "ok then put in a call with Marek"),
        ("calendar", "Kannst du den Termin am Freitag verschieben?"),
        ("calendar", "Peux-tu annuler ma réunion de vendredi ?"),
        ("calendar", "Añade una cita mañana a las 10"),
        ("memory", "Can you remember that I like tea?"),
        ("memory", "forget that I like jazz"),
        ("memory", "Merk dir bitte, dass ich mittwochs nie kann."),
        ("memory", "N'oublie pas que j'habite à Lyon"),
        ("memory", "Recuerda que soy alérgico"),
        ("tasks", "remind us tomorrow at 9 to call Ann"),
        ("tasks", "jeden Montag um 9: Nachrichten"),
        ("tasks", "Rappelle-moi de payer le loyer"),
        ("tasks", "Recuérdame llamar a Ana mañana"),
        ("tasks", "compare the attached papers in the background"),
        ("tasks", "remind me tomorrow at 9 to call Ann"),  # repeats an example whose call creates a task
    ],
)
def test_a_request_to_change_something(name: str, message: str) -> None:
    with pytest.raises(Refused):
        make(name, message)


@pytest.mark.parametrize("repeated", ["please ", "in ", "sag ", "1 ", ", ", "a.", "https://", "open a.", "next "])
def test_only_the_beginning_of_a_message_is_read(repeated: str) -> None:
    short, long = ((repeated * length)[:length] for length in (2_000, 100_000))
    for one in Registry().discover().usable():
        assert build_params(one, long, AssistContext(NOW)) == build_params(one, short, AssistContext(NOW))
