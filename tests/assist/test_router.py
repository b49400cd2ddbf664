"""The choice of a specialist for a message."""

import asyncio
from typing import Any

import pytest

from brain.assist.router import Previous, Router, find_router
from brain.plugins.registry import Registry
from brain.plugins.specialist import Specialist, from_schema

TOWER = Previous("How tall is the Eiffel Tower?", "wiki")
CALENDAR = Previous("What is on my calendar tomorrow?", "calendar")
FILE = {"can_read_files": True, "has_files": True}
EARLIER_FILE = {"can_read_files": True}


def trains(*examples: str) -> Specialist[..., Any]:
    schema = {"type": "object", "properties": {"origin": {"type": "string"}}, "required": ["origin"]}
    return from_schema("trains", "Departures of trains.", schema, lambda params: "", {"examples": examples})


TRAINS = trains("when does the next train to Leeds leave", "trains from Berlin to Prague", "is my train to York late")


@pytest.fixture(scope="module")
def installed() -> tuple[Specialist[..., Any], ...]:
    return tuple(Registry().discover().usable())


@pytest.fixture(scope="module")
def router(installed: tuple[Specialist[..., Any], ...]) -> Router:
    return asyncio.run(find_router((*installed, TRAINS)))


@pytest.mark.parametrize(
    ("message", "options", "name"),
    [
        ("How tall is the Eiffel Tower?", {}, "wiki"),
        ("Wann wurde Goethe geboren?", {}, "wiki"),
        ("Quelle est la hauteur de la tour Eiffel ?", {}, "wiki"),
        ("¿Cuándo nació Frida Kahlo?", {}, "wiki"),
        ("what's on my calendar tomorrow", {}, "calendar"),
        ("¿Qué reuniones tengo mañana?", {}, "calendar"),
        ("Berechne den BMI bei 70 kg und 175 cm", {}, "medical"),
        ("Quelles études sur la vitamine D ?", {}, "pubmed"),
        ("Welche Studien gibt es zu Metformin?", {}, "pubmed"),
        ("Was weißt du über mich?", {}, "memory"),
        ("Erinnere mich in zehn Minuten an den Tee", {}, "tasks"),
        ("Search my documents for the notice period", {}, "knowledge"),
        ("trains from Paris to Lyon", {}, "trains"),
        ("Hello!", {}, None),
        ("", {}, None),
        ("Write a poem about autumn", {}, None),
        ("Translate 'good morning' into French", {}, None),
        ("Danke, das war hilfreich", {}, None),
        ("Schreibe eine E-Mail an meinen Chef", {}, None),
        ("¿Cómo estás?", {}, None),
        ("Qu'est-ce que tu penses de moi ?", {}, None),
        # the previous message
        ("And the Colosseum?", {"previous": TOWER}, "wiki"),
        ("and on Friday?", {"previous": CALENDAR}, "calendar"),
        ("Thanks!", {"previous": TOWER}, None),
        ("Write a poem about it", {"previous": TOWER}, None),
        ("What is on my calendar tomorrow?", {"previous": TOWER}, "calendar"),
        # files and URLs
        ("What is in the picture?", {}, None),
        ("What is in the picture?", EARLIER_FILE, "vision"),
        ("Read the text in this scan", {}, None),
        ("Read the text in this scan", FILE, "ocr"),
        ("https://example.org/a", {}, "web"),
        ("www.example.org/a please", {}, "web"),
        # specialists that may not be called
        ("How tall is the Eiffel Tower?", {"allowed": ["calendar", "web"]}, None),
        ("What do you know about me?", {"allowed": ["wiki"]}, None),
        ("How tall is the Eiffel Tower?", {"allowed": []}, None),
        ("Put lunch with Carla tomorrow at noon in my calendar", {"allowed": ["wiki", "web"]}, None),
        # texts to work on
        (f"Summarize this: The Eiffel Tower was built in 1889. {'It is a tall tower in Paris. ' * 4}", {}, None),
        (f"Summarize https://example.org/a {'and tell me what the page says about towers ' * 3}", {}, "web"),
        ("How tall is the Eiffel Tower?", {"allowed": ["wiki", "unknown"]}, "wiki"),
        # long and odd messages
        ("How tall is the Eiffel Tower? " * 30_000, {}, "wiki"),
        ("x" * 300_000, {}, None),
        ("a " * 200_000, {}, None),
        ("\x00\ud800\u202e\N{COMBINING ACUTE ACCENT}" * 9_000, {}, None),
    ],
)  # fmt: skip
def test_a_message_gets_its_specialist(
    router: Router, installed: tuple[Specialist[..., Any], ...], message: str, options: dict[str, Any], name: str | None
) -> None:
    choice = router.choose(message, **{"allowed": [*(one.name for one in installed), "trains"], **options})
    assert (choice.name if choice is not None and choice.is_sure else None) == name


def test_a_follow_up_is_marked(router: Router) -> None:
    follows_up = [
        choice.follows_up
        for message in ("And the Colosseum?", "How tall is the Colosseum?")
        if (choice := router.choose(message, ["wiki"], previous=TOWER))
    ]
    assert follows_up == [True, False]


def test_the_router_is_fitted_again_when_specialists_change(installed: tuple[Specialist[..., Any], ...]) -> None:
    async def main() -> None:
        before = await find_router(installed)
        assert await find_router(installed) is before
        assert before.choose("trains from Paris to Lyon", ["trains"]) is None
        after = await find_router((*installed, TRAINS))
        assert after is not before
        found = after.choose("trains from Paris to Lyon", ["trains"])
        assert found is not None
        assert found.name == "trains"

    asyncio.run(main())


def test_a_router_of_few_specialists_chooses() -> None:
    (of_none, of_one) = asyncio.run(find_router(())), asyncio.run(find_router((TRAINS,)))
    assert of_none.choose("trains from Paris to Lyon", []) is None
    messages = "trains from Paris to Lyon", "Hello!", "Fine.", "zzzqj wwxkv"
    assert [of_one.choose(message, ["trains"]) is None for message in messages] == [False, True, True, True]
