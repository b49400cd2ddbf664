"""What the router learned: the file for the included specialists, and the stored weights of others."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from store_helpers import store_at

from brain.assist import fitting
from brain.assist.fitting import FitError
from brain.assist.router import STORED, Previous, Router, digest, find_partial_router, find_router, label_texts, learn
from brain.assist.weights import Learned, Weights, read_shipped, unpack
from brain.concurrency import MAX_ABANDONED_PER_NAME
from brain.plugins.registry import Registry
from brain.plugins.specialist import Specialist, from_schema
from brain.store import server_data

BENCH = Path(__file__).parent.parent / "bench"
STALE = "Examples, descriptions or no_specialist.txt changed. Run: python tests/bench/router_weights.py"


@pytest.fixture(scope="module")
def included() -> list[Specialist[..., Any]]:
    """The specialists of this package, also those whose extra is missing."""
    return [entry.specialist for entry in Registry().discover().values() if entry.origin.startswith("brain-sse ")]


def trains(*examples: str) -> Specialist[..., Any]:
    schema = {"type": "object", "properties": {"origin": {"type": "string"}}, "required": ["origin"]}
    return from_schema("trains", "Departures of trains.", schema, lambda params: "", {"examples": examples})


EXAMPLES = ("when does the next train to Leeds leave", "trains from Berlin to Prague", "is my train to York late")


def test_the_file_is_fitted_on_these_texts(included: list[Specialist[..., Any]]) -> None:
    shipped = read_shipped()
    assert {one.name: digest(one) for one in included}.items() <= shipped.classes.items(), STALE
    assert shipped.texts == len(label_texts(included)), STALE
    assert len(shipped.classes) == len(included) + 1


def test_a_new_fit_chooses_the_same(included: list[Specialist[..., Any]]) -> None:
    shipped, names = read_shipped(), [one.name for one in included]
    fresh = replace(learn(included), sigmoid=shipped.sigmoid)
    assert fresh.classes == shipped.classes, STALE
    routers = Router(included, [fresh]), Router(included, [shipped])
    differing = []
    for path in sorted(BENCH.glob("questions*.jsonl")):
        for question in map(json.loads, path.read_text("utf-8").splitlines()):
            previous = Previous(question["previous"], question["specialist"]) if "previous" in question else None
            new, old = (
                router.choose(
                    question["message"], names, previous=previous, has_files="attach" in question, can_read_files=True
                )
                for router in routers
            )
            if (new and (new.name, new.is_sure)) != (old and (old.name, old.is_sure)):
                differing.append(question["message"])
    assert differing == [], STALE


def test_the_weights_of_others_are_stored_until_their_examples_change(included: list[Specialist[..., Any]]) -> None:
    message = "trains from Paris to Lyon"

    async def main() -> None:
        async with store_at(None) as store:

            async def choose(*examples: str) -> bool:
                router = await find_router((*included, trains(*examples)), store)
                return router.choose(message, ["trains"]) is not None

            async def learned() -> Learned:
                stored = await store.read(server_data.server_value, STORED)
                return unpack(base64.b64decode(stored or ""))

            async def put(value: str) -> None:
                await store.write(server_data.set_server_value, STORED, value)

            assert await choose(*EXAMPLES)
            first = await learned()
            assert [*first.classes] == ["trains"]
            low = replace(first, weights=Weights(first.weights.scales, [-9.0], first.weights.rows))
            await put(base64.b64encode(low.pack()).decode())
            assert not await choose(*EXAMPLES)  # a new start reads what is stored
            assert await choose(*EXAMPLES, "trains to Bonn")
            assert (await learned()).classes != first.classes
            for damaged in ("x", "eJw=", base64.b64encode(replace(low, base="other").pack()).decode()):
                await put(damaged)
                assert await choose(*EXAMPLES)
                assert await learned() == first

    asyncio.run(main())


def test_turns_that_do_not_wait_for_the_router_any_more_leave_no_thread() -> None:
    async def give_up_and_ask_again() -> Router:
        specialists = (trains(*EXAMPLES, "a train that only this test knows"),)
        waiting = [asyncio.create_task(find_router(specialists)) for _ in range(2 * MAX_ABANDONED_PER_NAME)]
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
        return await find_router(specialists)

    assert asyncio.run(give_up_and_ask_again()).choose(EXAMPLES[0], ["trains"]) is not None


def test_new_specialists_match_by_their_examples_before_they_are_learned(
    included: list[Specialist[..., Any]],
) -> None:
    async def choices() -> list[str]:
        router = await find_partial_router((*included, trains(*EXAMPLES)))
        names = [one.name for one in included] + ["trains"]
        found = [router.choose(message, names) for message in (EXAMPLES[1].upper(), "How tall is the Eiffel Tower?")]
        return [one.name for one in found if one is not None]

    assert asyncio.run(choices()) == ["trains", "wiki"]


def test_a_process_that_cannot_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "COMMAND", ("missing-program",))
    with pytest.raises(FitError, match="missing-program"):
        asyncio.run(find_router((trains(*EXAMPLES, "a train that only this test of a missing program knows"),)))


def test_others_do_not_change_the_scores_of_the_included_ones(included: list[Specialist[..., Any]]) -> None:
    names = [one.name for one in included]
    other = (*included, trains(*EXAMPLES))
    routers = asyncio.run(find_router(tuple(included))), asyncio.run(find_router(other))
    for message in (
        "How tall is the Eiffel Tower?",
        "what's on my calendar tomorrow",
        "hello",
        "search the web for tea",
    ):
        first, second = (router.choose(message, names) for router in routers)
        assert first == second


@pytest.mark.parametrize(
    "message",
    [
        "What is the meaning of life?",
        "What's the purpose of life?",
        "Was ist der Sinn des Lebens?",
        "Quel est le sens de la vie ?",
        "¿Cuál es el sentido de la vida?",
        "Which colour is nicer, red or blue?",
        "Is chocolate better than vanilla?",
        "Ist Fußball schöner als Tennis?",
        "Qui est le meilleur acteur de tous les temps ?",
        "¿Qué es mejor, el té o el café?",
        "Do you believe in God?",
    ],
)
def test_meaning_taste_and_opinion_need_no_specialist(included: list[Specialist[..., Any]], message: str) -> None:
    choice = asyncio.run(find_router(tuple(included))).choose(message, [one.name for one in included])
    assert choice is None or not choice.is_sure
