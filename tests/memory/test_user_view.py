"""What a model can do to the memory of its user, and what it cannot, although every word is the user's."""

import asyncio

import pytest
from remembering import remembered, view

from brain.errors import Refused
from brain.memory.items import FORMER_MOST


def test_an_update_about_something_else_is_refused_and_loses_nothing() -> None:
    async def test() -> None:
        async with remembered() as (memory, store, _):
            fact = (await view(memory, "I am allergic to penicillin").save("I am allergic to penicillin")).item
            mine = view(memory, "The page is long")
            with pytest.raises(Refused) as problem:
                await mine.update(fact.id, "The page is long")
            assert problem.value.reason == (
                f'#{fact.id} of 2026-03-01, "I am allergic to penicillin", says something else; '
                f"save this as a fact of its own, or forget #{fact.id} first"
            )
            assert [item.text for item in await store.items("ada")] == ["I am allergic to penicillin"]
            await view(memory, "I am not allergic to penicillin").update(fact.id, "I am not allergic to penicillin")

    asyncio.run(test())


def test_no_number_of_corrections_loses_what_a_fact_said_first() -> None:
    async def test() -> None:
        async with remembered() as (memory, _, _):
            item = (await view(memory, "I live in Oslo").save("I live in Oslo")).item
            for n in range(FORMER_MOST + 5):
                item = (await view(memory, f"I live in Rome{n}").update(item.id, f"I live in Rome{n}")).item
            assert len(item.was) == FORMER_MOST
            assert (item.was[0].text, item.was[1].text) == ("I live in Oslo", "I live in Rome5")

    asyncio.run(test())


def test_an_immutable_fact_stays_so_and_in_its_words_however_often_it_is_written() -> None:
    async def test() -> None:
        async with remembered() as (memory, store, _):
            fact = await memory.by_hand.write("ada", "I prefer tea to coffee", mutable=False)
            again = await memory.by_hand.write("ada", "The user prefers tea to coffee")
            assert (again.id, again.text, again.mutable) == (fact.id, "I prefer tea to coffee", False)
            other = await memory.by_hand.write("ada", "I prefer coffee to tea")
            assert other.id != fact.id
            assert other.against == (fact.id,)
            said = await view(memory, "Correction: I prefer coffee to tea").save("I prefer coffee to tea")
            assert (said.how, said.item.id) == ("known", other.id)
            assert await store.item("ada", fact.id) == again

    asyncio.run(test())
