import asyncio
import math
import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from stores import NOON, Clock, asked, fact, kept, memory, said, turn

from brain.errors import BadRequest
from brain.messages import FormerText, Item, Kind, Query
from brain.store import items, vectors
from brain.store.sqlite import SQLite

BOTH: Sequence[Kind] = ("fact", "memory")
LATER = NOON + timedelta(days=1)


@pytest.fixture(params=["memory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return None if request.param == "memory" else tmp_path / "brain.db"


def run(path: Path | None, test: Callable[[SQLite], Awaitable[None]], clock: Clock | None = None) -> None:
    async def main() -> None:
        async with kept(path, clock) as store:
            await test(store)

    asyncio.run(main())


def ids(found: Sequence[Item] | Sequence[tuple[Item, float]]) -> list[str]:
    return [one.id if isinstance(one, Item) else one[0].id for one in found]


def test_an_item_is_kept_as_it_was(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        await turn(store, "ada", "c")
        whole = Item(
            "f1", "fact", "I live in Köln", NOON, LATER, "personal", False, "c", "q1", True,
            (FormerText("I live in Bonn", NOON),),
        )  # fmt: skip
        await store.put("ada", whole)
        await store.put("ada", memory("m1", "They moved", conversation_id="gone", message_id="q1"))
        assert await store.item("ada", "f1") == whole
        assert await store.item("ada", "m1") == memory("m1", "They moved")
        assert await store.item("eve", "f1") is None
        await store.put("ada", replace(whole, text="I live in Ulm", former=()))
        assert [one.text for one in await store.items("ada")] == ["They moved", "I live in Ulm"]
        assert [ids(await store.items("ada", words=word)) for word in ("koln", "ulm")] == [[], ["f1"]]
        assert (await store.erase("ada", "f1"), await store.erase("ada", "f1")) == (True, False)
        assert ids(await store.items("ada")) == ["m1"]

    run(path, test)


def test_two_users_may_use_the_same_ids(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        await store.put("ada", fact("f1", "jazz"))
        await store.put("eve", fact("f1", "rock"))
        assert [[one.text for one in await store.items(user)] for user in ("ada", "eve")] == [["jazz"], ["rock"]]
        assert not await store.erase("bob", "f1")
        await store.erase("ada", "f1")
        assert [[one.text for one in await store.items(user)] for user in ("ada", "eve")] == [[], ["rock"]]

    run(path, test)


def test_items_are_listed_by_kind_and_category_page_by_page(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        for n in range(6):
            await store.put("ada", fact(f"f{n}", f"fact {n}", n, category="personal" if n % 2 else "general"))
        await store.put("ada", memory("m1", "memory of facts", 9))
        assert ids(await store.items("ada")) == ["m1", "f5", "f4", "f3", "f2", "f1", "f0"]
        assert ids(await store.items("ada", kind="fact", limit=2)) == ["f5", "f4"]
        assert ids(await store.items("ada", kind="fact", limit=2, before="f4")) == ["f3", "f2"]
        assert ids(await store.items("ada", category="personal")) == ["f5", "f3", "f1"]
        assert ids(await store.items("ada", category="personal", words="facts")) == ["f1", "f3", "f5"]
        assert ids(await store.items("ada", words="facts", limit=2, before="f1")) == ["f2", "f3"]
        for words in ("", "facts"):
            with pytest.raises(BadRequest) as caught:
                await store.items("ada", words=words, before="f9")
            assert (caught.value.status, caught.value.field) == (400, "before")

    run(path, test)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("Am I allergic to anything?", ["f1"]),
        ("allergies", ["f1"]),  # begins like it
        ("where do I live", ["f2"]),
        ("in Köln or koln", ["f2"]),
        ("what is my dog called", ["f3"]),
        ("北京", ["f4"]),
        ("the dog of the allergic", ["f1", "f3"]),
        ("what do you do", []),
        ("me", ["f3"]),  # nothing but such words
        ("", []),
        ('"*()^:', []),
        ("penicillin " * 100 + "dog", ["f1", "f3"]),
    ],
)
def test_items_are_found_by_any_word(path: Path | None, words: str, found: list[str]) -> None:
    async def test(store: SQLite) -> None:
        await store.put("ada", fact("f1", "I am allergic to penicillin"))
        await store.put("ada", fact("f2", "I live in Köln"))
        await store.put("ada", fact("f3", "The name of a dog that lives beside me, and that barks, is Bello"))
        await store.put("ada", fact("f4", "我住在北京"))
        await store.put("eve", fact("f1", "I live with a dog, allergic to penicillin 北京, you do"))
        assert ids(await store.search_words("ada", words, kinds=("fact",), limit=5))[: len(found) or 5] == found
        assert await store.search_words("bob", words, kinds=BOTH, limit=5) == []

    run(path, test)


def test_what_others_keep_changes_no_score(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        await store.put("ada", fact("f1", "I like jazz"))
        await store.put("ada", memory("m1", "They talked about jazz and about the weather"))
        alone = await store.search_words("ada", "jazz", kinds=BOTH, limit=5)
        assert ids(alone) == ["f1", "m1"]
        assert alone[0][1] > alone[1][1] > 0
        for n in range(50):
            await store.put("eve", fact(f"f{n}", "jazz jazz"))
        assert await store.search_words("ada", "jazz", kinds=BOTH, limit=5) == alone
        assert ids(await store.search_words("ada", "jazz", kinds=("memory",), limit=5)) == ["m1"]

    run(path, test)


def test_rare_words_count_more(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        for n in range(9):
            await store.put("ada", fact(f"f{n}", f"I like music number {n}"))
        await store.put("ada", fact("f9", "I like chess a lot"))
        found = await store.search_words("ada", "music or chess", kinds=BOTH, limit=2)
        assert found[0][0].id == "f9"
        assert len(found) == 2

    run(path, test)


def test_items_are_found_by_their_meaning(path: Path | None) -> None:
    vectors = {"f1": [1.0, 0.1, 0.0], "f2": [0.0, 1.0, 0.1], "m1": [0.9, 0.2, 0.1]}

    async def test(store: SQLite) -> None:
        for user in ("ada", "eve"):
            await store.put(user, fact("f1", "one"))
            await store.put(user, fact("f2", "two"))
            await store.put(user, memory("m1", "three"))
        assert [(user, item.id) for user, item in await store.without_vector("m", 4)] == [
            ("eve", "m1"), ("eve", "f2"), ("eve", "f1"), ("ada", "m1")
        ]  # fmt: skip
        await store.embed("m", [("ada", i, t, vectors[i]) for i, t in (("f1", "one"), ("f2", "two"), ("m1", "three"))])
        await store.embed("m", [("eve", "f1", "one", [1.0, 0.0, 0.0]), ("eve", "f2", "changed", [1.0, 0.0, 0.0])])
        near = Query("m", [2.0, 0.0, 0.0])
        found = await store.search_vectors("ada", near, kinds=BOTH, limit=5)
        assert ids(found) == ["f1", "m1", "f2"]
        assert [round(score, 2) for _, score in found] == [1.0, 0.97, 0.0]
        assert ids(await store.search_vectors("ada", near, kinds=("memory",), limit=5)) == ["m1"]
        assert ids(await store.search_vectors("eve", near, kinds=BOTH, limit=5)) == ["f1"]
        assert await store.search_vectors("ada", Query("other", [1.0, 0.0, 0.0]), kinds=BOTH, limit=5) == []
        assert await store.search_vectors("ada", Query("m", [1.0, 0.0]), kinds=BOTH, limit=5) == []
        assert [(user, item.id) for user, item in await store.without_vector("m", 9)] == [("eve", "m1"), ("eve", "f2")]
        await store.put("ada", fact("f1", "one", category="personal"))
        assert ids(await store.search_vectors("ada", near, kinds=BOTH, limit=1)) == ["f1"]
        await store.put("ada", fact("f1", "another"))
        assert ids(await store.search_vectors("ada", near, kinds=BOTH, limit=5)) == ["m1", "f2"]
        await store.erase("ada", "m1")
        assert ids(await store.search_vectors("ada", near, kinds=BOTH, limit=5)) == ["f2"]
        await store.put("ada", fact("f3", "new"))
        await store.embed("m", [("ada", "f3", "new", [1.0, 0.0, 0.0])])
        assert ids(await store.search_vectors("ada", near, kinds=BOTH, limit=5)) == ["f3", "f2"]

    run(path, test)


def test_what_lacks_a_vector_is_found_whichever_models_there_were(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        for n in range(3):
            await store.put("ada", fact(f"f{n}", f"{n}"))
        await store.embed("m", [("ada", f"f{n}", f"{n}", [1.0, 0.0]) for n in range(3)])
        for model in ("a", "z"):
            assert [item.id for _, item in await store.without_vector(model, 9)] == ["f2", "f1", "f0"]
            await store.embed(model, [("ada", f"f{n}", f"{n}", [0.0, 1.0]) for n in range(2)])
            assert [item.id for _, item in await store.without_vector(model, 9)] == ["f2"]
        assert await store.without_vector("m", 9) == []
        assert len(await store.search_vectors("ada", Query("m", [1.0, 0.0]), kinds=BOTH, limit=9)) == 3
        await store.put("ada", fact("f1", "another"))
        assert [[item.id for _, item in await store.without_vector(model, 9)] for model in "amz"] == [
            ["f1", "f2"], ["f1"], ["f1", "f2"]
        ]  # fmt: skip
        assert len(await store.without_vector("a", 1)) == 1

    run(path, test)


def test_what_lacks_no_vector_is_not_looked_at(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        for n in range(300):
            await store.put("ada", fact(f"f{n}", f"{n}"))
        await store.embed("m", [("ada", f"f{n}", f"{n}", [1.0]) for n in range(299)])
        steps = 0

        def step() -> None:
            nonlocal steps
            steps += 1

        def looked(db: sqlite3.Connection) -> list[tuple[str, Item]]:
            db.set_progress_handler(step, 1)
            try:
                return vectors.lacking(db, "m", 32)
            finally:
                db.set_progress_handler(None, 1)

        assert [item.id for _, item in await store._database.read(looked)] == ["f299"]
        assert steps < 300

    run(path, test)


@pytest.mark.parametrize("vector", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], [1e308, 1e308]])
def test_vectors_that_point_nowhere_are_near_to_nothing(vector: list[float]) -> None:
    async def test(store: SQLite) -> None:
        await store.put("ada", fact("f1", "one"))
        await store.embed("m", [("ada", "f1", "one", vector)])
        assert await store.without_vector("m", 5) == []
        found = await store.search_vectors("ada", Query("m", [0.6, 0.8]), kinds=BOTH, limit=5)
        assert ids(found) == ["f1"]
        if vector[0] != 1e308:
            assert found[0][1] == 0

    run(None, test)


def test_comparing_signs_first_misses_little() -> None:
    rng = random.Random(4)

    def drawn(around: Sequence[float] | None = None) -> list[float]:
        return [rng.gauss(0, 1) + 1.0 * (around[n] if around else 0) for n in range(128)]

    async def test(store: SQLite) -> None:
        topics = [drawn() for _ in range(20)]
        vectors = {f"f{n}": drawn(rng.choice(topics)) for n in range(1500)}
        for name in vectors:
            await store.put("ada", fact(name, name))
        await store.embed("m", [("ada", name, name, vector) for name, vector in vectors.items()])
        hits = 0
        for _ in range(20):
            question = drawn(rng.choice(topics))
            exact = sorted(vectors, key=lambda name: -cosine(question, vectors[name]))[:5]
            found = ids(await store.search_vectors("ada", Query("m", question), kinds=BOTH, limit=5))
            hits += len({*exact} & {*found})
        assert hits >= 95  # of 100

    def cosine(one: Sequence[float], other: Sequence[float]) -> float:
        return sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)

    run(None, test)


def test_signs_of_few_users_are_kept_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "USERS_MOST", 2)

    async def test(store: SQLite) -> None:
        for user in ("a", "b", "c"):
            await store.put(user, fact("f1", user))
            await store.embed("m", [(user, "f1", user, [1.0])])
            assert ids(await store.search_vectors(user, Query("m", [1.0]), kinds=BOTH, limit=1)) == ["f1"]
        assert len(store._sketches._kept) == 2

    run(None, test)


def test_a_conversation_that_rests_is_taken_in_once(path: Path | None) -> None:
    clock = Clock()

    async def test(store: SQLite) -> None:
        await turn(store, "ada", "c", "I like jazz", number=1)
        await turn(store, "ada", "c", "Failed", [], number=2, outcome="model_failed")
        await turn(store, "eve", "c", "Failed", [], outcome="model_failed")
        assert await store.claim_idle(NOON, 5) == []
        clock.now += 3600
        later = NOON + timedelta(hours=1)
        (resting,) = await store.claim_idle(later, 5)
        assert (resting.user, resting.conversation_id, resting.title) == ("ada", "c", "I like jazz")
        assert ([one.message for one in resting.exchanges], resting.memory) == (["I like jazz"], None)
        assert await store.claim_idle(later, 5) == []  # somebody is at it
        clock.now += 301
        (resting,) = await store.claim_idle(later, 5)
        first = memory("m1", "They like jazz", conversation_id="c")
        await store.set_memory(resting, first)
        clock.now += 301
        assert await store.claim_idle(later, 5) == []
        await turn(store, "ada", "c", "And rock", number=3)
        running = await store.begin("ada", "c", asked("Wait", 4), ())
        latest = NOON + timedelta(days=1)
        assert await store.claim_idle(latest, 5) == []
        await store.drop(running)
        (resting,) = await store.claim_idle(latest, 5)
        assert ([one.message for one in resting.exchanges], resting.memory) == (["And rock"], first)
        await turn(store, "ada", "c", "And folk", number=5)
        await store.set_memory(resting, memory("m2", "They like jazz and rock", conversation_id="c"))
        assert ids(await store.items("ada")) == ["m2"]
        (resting,) = await store.claim_idle(latest, 5)
        assert [one.message for one in resting.exchanges] == ["And folk"]
        await store.set_memory(resting, None)
        assert ids(await store.items("ada")) == ["m2"]
        assert await store.claim_idle(latest, 5) == []

    run(path, test, clock)


def test_what_was_deleted_gets_no_memory(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        await turn(store, "ada", "c", "I like jazz")
        (resting,) = await store.claim_idle(NOON + timedelta(days=1), 5)
        await store.delete("ada", "c")
        await turn(store, "ada", "c", "Anew")
        await store.set_memory(resting, memory("m1", "They like jazz", conversation_id="c"))
        assert await store.items("ada") == []

    run(path, test)


def test_an_erased_memory_is_not_made_again_of_the_same(path: Path | None) -> None:
    clock = Clock()

    async def test(store: SQLite) -> None:
        await turn(store, "ada", "c", "I like jazz")
        (resting,) = await store.claim_idle(NOON + timedelta(days=1), 5)
        await store.set_memory(resting, memory("m1", "They like jazz", conversation_id="c"))
        await store.erase("ada", "m1")
        clock.now += 301
        assert await store.claim_idle(NOON + timedelta(days=1), 5) == []
        await turn(store, "ada", "c", "I like rock", number=2)
        (resting,) = await store.claim_idle(NOON + timedelta(days=1), 5)
        assert ([one.message for one in resting.exchanges], resting.memory) == (["I like rock"], None)

    run(path, test, clock)


def test_of_a_long_conversation_the_newest_is_taken_in(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        for n in range(45):
            await turn(store, "ada", "c", f"{n}", number=n)
        (resting,) = await store.claim_idle(NOON + timedelta(days=1), 5)
        assert [one.message for one in resting.exchanges] == [f"{n}" for n in range(5, 45)]
        await store.set_memory(resting, None)
        assert await store.claim_idle(NOON + timedelta(days=1), 5) == []
        assert len(await said(store, "ada", "c")) == 45

    run(path, test)


def test_users_say_whether_they_are_recalled(path: Path | None) -> None:
    async def test(store: SQLite) -> None:
        assert await store.is_recall_on("ada")
        await store.set_recall("ada", False)
        assert (await store.is_recall_on("ada"), await store.is_recall_on("eve")) == (False, True)
        assert await store.users() == ["ada"]
        await store.set_recall("ada", True)
        assert await store.is_recall_on("ada")

    run(path, test)


def test_who_keeps_much_is_not_searched_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "WORDS_MOST", 2)
    monkeypatch.setattr(items, "HITS_MOST", 3)

    async def test(store: SQLite) -> None:
        for number, text in enumerate(["oak", "elm oak", "elm oak ash", "oak", "oak", "oak"]):
            await store.put("ada", fact(f"f{number}", text))
        await store.put("eve", fact("e", "ash"))
        assert sorted(ids(await store.search_words("ada", "fir oak elm ash", kinds=BOTH, limit=9))) == ["f1", "f2"]
        assert sorted(ids(await store.search_words("ada", "oak", kinds=BOTH, limit=9))) == ["f3", "f4", "f5"]

    run(None, test)
