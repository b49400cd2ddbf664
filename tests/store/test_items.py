"""Facts and memories: stored, listed, found by words and by vectors; and idle conversations, which leave memories."""

import math
import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from store_helpers import NOON, TOMORROW, Clock, add_turn, fact, memory, question

from brain.errors import BadRequest
from brain.messages import FormerText, Item, Kind
from brain.store import conversations, items, users, vectors
from brain.store.store import Store
from brain.store.vectors import ItemEmbedding, Query

pytestmark = pytest.mark.anyio

BOTH: Sequence[Kind] = ("fact", "memory")


def ids(found: Sequence[Item] | Sequence[tuple[Item, float]] | Sequence[tuple[Item, float, float, float]]) -> list[str]:
    return [one.id if isinstance(one, Item) else one[0].id for one in found]


async def lacking(store: Store, model: str, limit: int = 9) -> list[tuple[str, str]]:
    return [(user, item.id) for user, item in await store.search(vectors.lacking, model, limit)]


@pytest.mark.parametrize("damaged", [0, 1, 2, 3, 5, 8])
async def test_damaged_items_leave_no_gaps_in_a_page(store: Store, damaged: int) -> None:
    names = [f"f{n}" for n in range(8)]
    for n, name in enumerate(names):
        await store.write(items.put, "ada", fact(name, "jazz", n))
    newest = names[::-1]
    damage = f"UPDATE item SET former = '[{{' WHERE id IN ({', '.join(map(repr, ('', *newest[:damaged])))})"
    await store.write(lambda tx: tx.execute(damage).rowcount)
    left = newest[damaged:]
    assert ids(await store.read(items.list_items, "ada", limit=2)) == left[:2]
    assert [name for _, name in await lacking(store, "m", 2)] == left[:2]
    assert ids(await store.read(items.list_items, "ada", limit=9)) == left
    records = [record async for record in store.export("ada")]
    assert [record["id"] for record in records if record["kind"] == "item"] == left[::-1]


async def test_an_item_is_read_as_it_was_written(store: Store) -> None:
    await add_turn(store, "ada", "c")
    whole = Item(
        "f1", "fact", "I live in Köln", NOON, TOMORROW, "personal", False, "c", "q1", True,
        (FormerText("I live in Bonn", NOON),),
    )  # fmt: skip
    await store.write(items.put, "ada", whole)
    await store.write(items.put, "ada", memory("m1", "They moved", conversation_id="gone", message_id="q1"))
    await store.write(items.put, "eve", fact("f1", "rock"))
    assert await store.read(items.find, "ada", "f1") == whole
    assert await store.read(items.find, "ada", "m1") == memory("m1", "They moved")
    await store.write(items.put, "ada", replace(whole, text="I live in Ulm", former=()))
    assert [one.text for one in await store.read(items.list_items, "ada")] == ["They moved", "I live in Ulm"]
    assert [ids(await store.read(items.list_items, "ada", words=word)) for word in ("koln", "ulm")] == [[], ["f1"]]
    assert not await store.write(items.erase, "bob", "f1")
    assert [await store.write(items.erase, "ada", "f1") for _ in range(2)] == [True, False]
    assert ids(await store.read(items.list_items, "ada")) == ["m1"]
    assert [one.text for one in await store.read(items.list_items, "eve")] == ["rock"]


async def test_items_are_listed_by_kind_and_category_page_by_page(store: Store) -> None:
    for n in range(6):
        await store.write(items.put, "ada", fact(f"f{n}", f"fact {n}", n, category="personal" if n % 2 else "general"))
    await store.write(items.put, "ada", memory("m1", "memory of facts", 9))
    assert ids(await store.read(items.list_items, "ada")) == ["m1", "f5", "f4", "f3", "f2", "f1", "f0"]
    assert ids(await store.read(items.list_items, "ada", kind="fact", limit=2)) == ["f5", "f4"]
    assert ids(await store.read(items.list_items, "ada", kind="fact", limit=2, before="f4")) == ["f3", "f2"]
    assert ids(await store.read(items.list_items, "ada", category="personal")) == ["f5", "f3", "f1"]
    assert ids(await store.read(items.list_items, "ada", category="personal", words="facts")) == ["f1", "f3", "f5"]
    assert ids(await store.read(items.list_items, "ada", words="facts", limit=2, before="f1")) == ["f2", "f3"]
    for words in ("", "facts"):
        with pytest.raises(BadRequest) as caught:
            await store.read(items.list_items, "ada", words=words, before="f9")
        assert (caught.value.status, caught.value.field) == (400, "before")


async def test_recalling_is_on_until_the_user_turns_it_off(store: Store) -> None:
    assert await store.read(users.recalls, "ada")
    await store.write(users.set_recalls, "ada", False)
    assert (await store.read(users.recalls, "ada"), await store.read(users.recalls, "eve")) == (False, True)
    assert await store.search(users.names) == ["ada"]
    await store.write(users.set_recalls, "ada", True)
    assert await store.read(users.recalls, "ada")


# words


SEARCHES: list[tuple[str, list[str]]] = [
    ("Am I allergic to anything?", ["f1"]),
    ("allergies", ["f1"]),  # begins like it
    ("where do I live", ["f2"]),
    ("in Köln or koln", ["f2"]),
    ("what is my dog called", ["f3"]),
    ("北京", ["f4"]),
    ("the dog of the allergic", ["f1", "f3"]),
    ("what do you do", []),
    ("me", ["f3"]),  # nothing but function words
    ("", []),
    ('"*()^:', []),
    ("penicillin " * 100 + "dog", ["f1", "f3"]),
]


async def test_items_are_found_by_any_word(store: Store) -> None:
    await store.write(items.put, "ada", fact("f1", "I am allergic to penicillin"))
    await store.write(items.put, "ada", fact("f2", "I live in Köln"))
    await store.write(items.put, "ada", fact("f3", "The name of a dog that lives beside me, and that barks, is Bello"))
    await store.write(items.put, "ada", fact("f4", "我住在北京"))
    await store.write(items.put, "eve", fact("f1", "I live with a dog, allergic to penicillin 北京, you do"))
    for words, found in SEARCHES:
        best = ids(await store.read(items.search, "ada", words, kinds=("fact",), limit=5))
        assert best[: len(found) or 5] == found, words
        assert await store.read(items.search, "bob", words, kinds=BOTH, limit=5) == []


async def test_scores_count_rare_words_short_texts_and_one_users_items(store: Store) -> None:
    for n in range(9):
        await store.write(items.put, "ada", fact(f"f{n}", f"I like music number {n}"))
    await store.write(items.put, "ada", fact("f9", "I like jazz a lot"))
    await store.write(items.put, "ada", memory("m1", "They talked about jazz and about the weather, at length"))
    assert ids(await store.read(items.search, "ada", "music or jazz", kinds=BOTH, limit=2)) == ["f9", "m1"]
    alone = await store.read(items.search, "ada", "jazz", kinds=BOTH, limit=5)
    assert ids(alone) == ["f9", "m1"]
    assert alone[0][1] > alone[1][1] > 0
    for n in range(50):
        await store.write(items.put, "eve", fact(f"f{n}", "jazz jazz"))
    assert await store.read(items.search, "ada", "jazz", kinds=BOTH, limit=5) == alone
    assert ids(await store.read(items.search, "ada", "jazz", kinds=("memory",), limit=5)) == ["m1"]


async def test_few_words_and_few_items_with_each_are_searched(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "MAX_WORDS", 2)
    monkeypatch.setattr(items, "MAX_HITS", 3)
    for number, text in enumerate(["oak", "elm oak", "elm oak ash", "oak", "oak", "oak"]):
        await store.write(items.put, "ada", fact(f"f{number}", text))
    await store.write(items.put, "eve", fact("e", "ash"))
    for words, found in (("fir oak elm ash", ["f1", "f2"]), ("oak", ["f3", "f4", "f5"])):
        assert sorted(ids(await store.read(items.search, "ada", words, kinds=BOTH, limit=9))) == found


# vectors


async def test_items_are_found_by_their_vectors(store: Store) -> None:
    near = Query("m", [1.0, 0.0, 0.0])

    async def found(user: str = "ada", kinds: Sequence[Kind] = BOTH, query: Query = near) -> list[str]:
        return ids(await store.read(vectors.search, user, query, kinds=kinds, limit=5, cache=store.signs))

    for user in ("ada", "eve"):
        await store.write(items.put, user, fact("f1", "one"))
        await store.write(items.put, user, fact("f2", "two"))
        await store.write(items.put, user, memory("m1", "three"))
    assert await lacking(store, "m", 4) == [("eve", "m1"), ("eve", "f2"), ("eve", "f1"), ("ada", "m1")]
    embedded = (("f1", "one", [1.0, 0.0, 0.0]), ("f2", "two", [0.0, 0.8, 0.6]), ("m1", "three", [0.96, 0.28, 0.0]))
    await store.write_unsynced(
        vectors.write, [("ada", name, text, ItemEmbedding(vector, 0.5, 0.25)) for name, text, vector in embedded], "m"
    )
    same = ItemEmbedding([1.0, 0.0, 0.0])
    await store.write_unsynced(vectors.write, [("eve", "f1", "one", same), ("eve", "f2", "changed", same)], "m")
    scored = await store.read(vectors.search, "ada", near, kinds=BOTH, limit=5, cache=store.signs)
    assert [(item.id, round(cosine, 2), *statistics) for item, cosine, *statistics in scored] == [
        ("f1", 1.0, 0.5, 0.25), ("m1", 0.96, 0.5, 0.25), ("f2", 0.0, 0.5, 0.25)
    ]  # fmt: skip
    assert await found(kinds=("memory",)) == ["m1"]
    assert await found("eve") == ["f1"]
    assert await found("nobody") == []
    assert await found(query=Query("other", [1.0, 0.0, 0.0])) == []
    assert await found(query=Query("m", [1.0, 0.0])) == []
    assert await lacking(store, "m") == [("eve", "m1"), ("eve", "f2")]
    await store.write(items.put, "ada", fact("f1", "one", category="personal"))
    assert await found() == ["f1", "m1", "f2"]
    await store.write(items.put, "ada", fact("f1", "another"))
    assert await found() == ["m1", "f2"]
    await store.write(items.erase, "ada", "m1")
    assert await found() == ["f2"]
    await store.write(items.put, "ada", fact("f3", "new"))
    await store.write_unsynced(vectors.write, [("ada", "f3", "new", ItemEmbedding([1.0, 0.0, 0.0]))], "m")
    assert await found() == ["f3", "f2"]


async def test_items_may_have_vectors_of_several_models(store: Store) -> None:
    for n in range(3):
        await store.write(items.put, "ada", fact(f"f{n}", f"{n}"))
    await store.write_unsynced(
        vectors.write, [("ada", f"f{n}", f"{n}", ItemEmbedding([1.0, 0.0])) for n in range(3)], "m"
    )
    for model in ("a", "z"):
        assert await lacking(store, model) == [("ada", "f2"), ("ada", "f1"), ("ada", "f0")]
        await store.write_unsynced(
            vectors.write, [("ada", f"f{n}", f"{n}", ItemEmbedding([0.0, 1.0])) for n in range(2)], model
        )
        assert await lacking(store, model) == [("ada", "f2")]
    assert await lacking(store, "m") == []
    assert (
        len(await store.read(vectors.search, "ada", Query("m", [1.0, 0.0]), kinds=BOTH, limit=9, cache=store.signs))
        == 3
    )
    await store.write(items.put, "ada", fact("f1", "another"))
    assert [[name for _, name in await lacking(store, model)] for model in "amz"] == [
        ["f1", "f2"], ["f1"], ["f1", "f2"]
    ]  # fmt: skip
    assert len(await lacking(store, "a", 1)) == 1


async def test_a_vector_without_a_direction_is_near_to_nothing(store: Store) -> None:
    await store.write(items.put, "ada", fact("f1", "one"))
    await store.write_unsynced(vectors.write, [("ada", "f1", "one", ItemEmbedding([0.0, 0.0]))], "m")
    assert await lacking(store, "m") == []
    found = await store.read(vectors.search, "ada", Query("m", [0.6, 0.8]), kinds=BOTH, limit=5, cache=store.signs)
    assert [(item.id, score) for item, score, *_ in found] == [("f1", 0.0)]


async def test_comparing_signs_first_misses_little(store: Store) -> None:
    rng = random.Random(4)

    def draw(around: Sequence[float] | None = None) -> list[float]:
        numbers = [rng.gauss(0, 1) + 8.0 * (around[n] if around else 0) for n in range(64)]
        return [number / math.hypot(*numbers) for number in numbers]

    def cosine(one: Sequence[float], other: Sequence[float]) -> float:
        return sum(a * b for a, b in zip(one, other, strict=True))

    topics = [draw() for _ in range(20)]
    embedded = {f"f{n}": draw(rng.choice(topics)) for n in range(600)}
    await store.write(lambda tx: [items.put(tx, "ada", fact(name, name)) for name in embedded] and None)
    await store.write_unsynced(
        vectors.write, [("ada", name, name, ItemEmbedding(vector)) for name, vector in embedded.items()], "m"
    )
    hits = 0
    for _ in range(20):
        asked = draw(rng.choice(topics))
        exact = sorted(embedded, key=lambda name: -cosine(asked, embedded[name]))[:5]
        found = ids(await store.read(vectors.search, "ada", Query("m", asked), kinds=BOTH, limit=5, cache=store.signs))
        hits += len({*exact} & {*found})
    assert hits >= 95  # of 100


# idle conversations


async def claimed(store: Store) -> list[list[str]]:
    return [
        [one.message for one in idle.exchanges]
        for idle in await store.write_unsynced(conversations.claim_idle, TOMORROW, 5)
    ]


async def test_an_idle_conversation_is_claimed_once_for_each_new_exchange(store: Store, clock: Clock) -> None:
    await add_turn(store, "ada", "c", "I like jazz", number=1)
    await add_turn(store, "ada", "c", "Failed", [], number=2, outcome="model_failed")
    await add_turn(store, "eve", "c", "Failed", [], outcome="model_failed")
    assert await store.write_unsynced(conversations.claim_idle, NOON, 5) == []
    (idle,) = await store.write_unsynced(conversations.claim_idle, TOMORROW, 5)
    assert (idle.user, idle.conversation_id, idle.title) == ("ada", "c", "I like jazz")
    assert ([one.message for one in idle.exchanges], idle.memory) == (["I like jazz"], None)
    assert await claimed(store) == []  # another process may be at it
    clock.advance(seconds=301)
    (idle,) = await store.write_unsynced(conversations.claim_idle, TOMORROW, 5)
    first = memory("m1", "They like jazz", conversation_id="c")
    await store.write(conversations.set_memory, idle, first)
    assert await store.read(items.memory_of, "ada", "c") == first
    clock.advance(seconds=301)
    assert await claimed(store) == []
    await add_turn(store, "ada", "c", "And rock", number=3)
    running = await store.write_question("ada", "c", question("Wait", 4), ())
    assert await claimed(store) == []
    await store.drop(running)
    (idle,) = await store.write_unsynced(conversations.claim_idle, TOMORROW, 5)
    assert ([one.message for one in idle.exchanges], idle.memory) == (["And rock"], first)
    await add_turn(store, "ada", "c", "And folk", number=5)
    await store.write(conversations.set_memory, idle, memory("m2", "They like jazz and rock", conversation_id="c"))
    assert ids(await store.read(items.list_items, "ada")) == ["m2"]
    (idle,) = await store.write_unsynced(conversations.claim_idle, TOMORROW, 5)
    assert [one.message for one in idle.exchanges] == ["And folk"]
    await store.write(conversations.set_memory, idle, None)
    assert ids(await store.read(items.list_items, "ada")) == ["m2"]
    assert await claimed(store) == []


async def test_what_was_deleted_leaves_no_memory_and_an_erased_one_is_not_made_again(
    store: Store, clock: Clock
) -> None:
    await add_turn(store, "ada", "c", "I like jazz")
    (idle,) = await store.write_unsynced(conversations.claim_idle, TOMORROW, 5)
    await store.delete("ada", "c")
    await add_turn(store, "ada", "c", "Anew")
    await store.write(conversations.set_memory, idle, memory("m1", "They like jazz", conversation_id="c"))
    assert await store.read(items.list_items, "ada") == []
    (idle,) = await store.write_unsynced(conversations.claim_idle, TOMORROW, 5)
    await store.write(conversations.set_memory, idle, memory("m1", "They begin anew", conversation_id="c"))
    await store.write(items.erase, "ada", "m1")
    clock.advance(seconds=301)
    assert await claimed(store) == []
    await add_turn(store, "ada", "c", "I like rock", number=2)
    (idle,) = await store.write_unsynced(conversations.claim_idle, TOMORROW, 5)
    assert ([one.message for one in idle.exchanges], idle.memory) == (["I like rock"], None)


async def test_a_wrong_clock_keeps_no_conversation_from_its_summary(store: Store, clock: Clock) -> None:
    await add_turn(store, "ada", "c", number=1)
    clock.advance(days=60)
    await add_turn(store, "eve", "d", number=2)
    assert [one.user for one in await store.write_unsynced(conversations.claim_idle, TOMORROW, 5)] == ["ada"]
    clock.advance(days=-60)
    assert sorted(one.user for one in await store.write_unsynced(conversations.claim_idle, NOON, 5)) == ["eve"]
    assert [one.user for one in await store.write_unsynced(conversations.claim_idle, TOMORROW, 5)] == ["ada"]


async def test_of_a_long_conversation_the_newest_exchanges_are_claimed(store: Store) -> None:
    for n in range(45):
        await add_turn(store, "ada", "c", f"{n}", number=n)
    (idle,) = await store.write_unsynced(conversations.claim_idle, TOMORROW, 5)
    assert [one.message for one in idle.exchanges] == [f"{n}" for n in range(5, 45)]
    await store.write(conversations.set_memory, idle, None)
    assert await claimed(store) == []
