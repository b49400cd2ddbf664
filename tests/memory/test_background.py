"""What the memory does behind the turns: vectors, and summaries by real model servers; it ends at once when left."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from answering import Pass, ThinkerRun, Wait
from remembering import Vectors, looked, remembered, talked, texts, until, view
from servers import OllamaServer, OpenAIServer
from stores import NOON

from brain.errors import ModelError
from brain.events import Citation
from brain.memory import Memory
from brain.memory.summaries import SUMMARY_LENGTH, Pauses, memory_of
from brain.memory.terms import content
from brain.messages import OWN_WORDS, Call, Chunk, Exchange, Finish, IdleConversation, Item, Message, Text
from brain.models.builtin import Builtin
from brain.models.embedder import _PAIRS, Embedder, grade_embeddings
from brain.models.ollama import Ollama
from brain.models.openai import OpenAI
from brain.models.script import Script
from brain.settings import ModelRow
from brain.store.sqlite import SQLite
from brain.turn_request import UNSAID, Sampling


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


class Toy(Vectors):
    """A model with vectors that writes what it is told to, after as many failures as it is told."""

    is_language_model = True
    context_tokens: int | None = None

    def __init__(self, *writes: str | Exception | float, **vectors: Any) -> None:
        super().__init__(**vectors)
        self.told = list(writes)
        self.read: list[Sequence[Message]] = []
        self.open = 0

    async def stream(
        self, messages: Sequence[Message], turn_pass: int = 0, sampling: Sampling = UNSAID
    ) -> AsyncGenerator[Chunk, None]:
        self.read.append(messages)
        self.open += 1
        try:
            told = self.told.pop(0) if self.told else "The user said something."
            if isinstance(told, Exception):
                raise told
            if isinstance(told, float):
                await asyncio.sleep(told)
                told = "late"
            yield told
            yield Finish("stop")
        finally:
            self.open -= 1


class Idle:
    """Says whether no turn runs, and keeps how often it was asked."""

    def __init__(self, idle: bool = True) -> None:
        self.idle = idle
        self.looks = 0

    def __call__(self) -> bool:
        self.looks += 1
        return self.idle

    async def looked(self) -> None:
        """Waits until it was asked several times more."""
        end = self.looks + 5
        await until(lambda: self.looks >= end)


async def memories(store: SQLite, user: str = "ada", count: int = 1) -> list[Item]:
    """The user's memories, as soon as there are so many."""

    async def there() -> bool:
        return len(await store.items(user, kind="memory")) >= count

    await until(there)
    return await store.items(user, kind="memory")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.memory.background.LOOK_SECONDS", (0.02, 0.02))
    monkeypatch.setattr("brain.memory.background.FIRST_PAUSE", 0.02)
    monkeypatch.setattr("brain.memory.background.IDLE_SECONDS", 0.02)
    monkeypatch.setattr("brain.memory.background.VECTORS_REST_LEAST", 0.02)
    monkeypatch.setattr("brain.memory.background.SUMMARY_SECONDS", 0.0)


LUNCH = ("I plan a lunch for Nora on Sunday", "Shall I suggest a menu?")

# vectors


@asynccontextmanager
async def with_vectors(toy: Toy, *facts: str) -> Any:
    """A memory of these facts, each with its vector if the model has any."""
    async with remembered() as (memory, store, _):
        for fact in facts:
            await memory.edits.write("ada", fact, "knowledge")
        async with memory.run_background(toy):
            if not toy.broken and not toy.blind:
                await until(partial(embedded, memory, store))
            yield memory


async def embedded(memory: Memory, store: SQLite) -> bool:
    """Whether all have their vectors."""
    meaning = memory._items.meaning
    assert meaning is not None
    return meaning.check is not None and not await store.without_vector(meaning.check.key, 1)


def test_what_is_meant_is_recalled_although_no_word_of_it_is_said() -> None:
    async def test() -> None:
        async with with_vectors(Toy(), "Penicillin is dangerous.", "Nora is my sister.", "The bins go out.") as memory:
            found = await memory.recall("ada", "Any pill allergy?")
            assert texts(found.items) == ["Penicillin is dangerous."]
            assert texts((await memory.recall("ada", "Who are my relatives?")).items) == ["Nora is my sister."]
            assert (await memory.recall("ada", "What is the capital of France?")).items == ()
            assert (await memory.recall("bob", "Any pill allergy?")).items == ()
            assert texts(await view(memory).search("family", 1)) == ["Nora is my sister."]

    run(test())


def test_meaning_weighs_more_than_words_and_words_still_count() -> None:
    async def test() -> None:
        async with with_vectors(Toy(), "The drug store closes at pill o'clock", "Batteries of type E9") as memory:
            assert texts((await memory.recall("ada", "Which E9 do I need?")).items) == ["Batteries of type E9"]

    run(test())


def test_what_is_near_in_meaning_goes_before_a_word_in_common() -> None:
    async def test() -> None:
        facts = ("The drawer with the batteries is in the cellar", "Penicillin is dangerous.")
        async with with_vectors(Toy(), *facts) as memory:
            found = await memory.recall("ada", "Which pill for my allergy is in the cellar, in the drawer?")
            assert texts(found.items) == [facts[1], facts[0]]

    run(test())


@pytest.mark.parametrize("wrong", ["fewer", "shorter", "endless numbers", "none"])
def test_what_is_no_vector_is_none(wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    class Wrong(Toy):
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            found = await super().embed(texts)
            if wrong == "fewer":
                return found[1:]
            if wrong == "shorter":
                return [found[0][1:], *found[1:]]
            return [] if wrong == "none" else [[float("inf")] * len(row) for row in found]

    async def test() -> None:
        toy = Wrong()
        async with remembered() as (memory, _, _):
            await memory.edits.write("ada", "Penicillin is dangerous.", "knowledge")
            async with memory.run_background(toy):
                await until(lambda: "words alone count: toy: it gives no vectors" in caplog.text)
                assert texts((await memory.recall("ada", "Penicillin?")).items) == ["Penicillin is dangerous."]

    run(test())
    assert [record.levelname for record in caplog.records if record.levelname in ("ERROR", "WARNING")] == []


def test_a_message_that_tells_nothing_recalls_nothing_however_near_its_vector_is() -> None:
    async def test() -> None:
        async with with_vectors(Toy(), "A donation went to the orphans.") as memory:
            assert (await memory.recall("ada", "Please give that again!")).items == ()
            assert texts(await view(memory).search("give", 1)) == ["A donation went to the orphans."]

    run(test())


def test_what_is_written_later_gets_its_vector_at_once() -> None:
    async def test() -> None:
        toy = Toy()
        async with with_vectors(toy, "The bins go out.") as memory:
            await memory.edits.write("ada", "Penicillin is dangerous.", "knowledge")

            async def found() -> bool:
                return bool((await memory.recall("ada", "Any pill?")).items)

            await until(found)

    run(test())


def test_vectors_that_mean_nothing_are_not_used(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def test() -> None:
        toy = Toy(blind=True)
        async with with_vectors(toy, "Penicillin is dangerous.") as memory:
            await until(lambda: "the vectors of toy tell nothing" in caplog.text)
            assert (await memory.recall("ada", "Any pill?")).items == ()
            assert texts((await memory.recall("ada", "Penicillin?")).items) == ["Penicillin is dangerous."]
            assert [len(one) for one in toy.asked] == [16]

    run(test())


def test_a_server_without_vectors_is_asked_once_in_a_while() -> None:
    async def test() -> None:
        toy = Toy(broken=True)
        async with remembered() as (memory, store, _):
            await memory.edits.write("ada", "Penicillin is dangerous.", "knowledge")
            async with memory.run_background(toy):
                await until(lambda: bool(toy.asked))
                for n in range(3):
                    looking = asyncio.create_task(looked(store, "lacking", 1))
                    await memory.edits.write("ada", f"fact number{n}")
                    await looking
                    await memory.recall("ada", "Any pill?")
                assert len(toy.asked) == 1

    run(test())


def test_nobody_is_asked_for_vectors_of_nothing() -> None:
    async def test() -> None:
        toy = Toy()
        async with remembered() as (memory, store, _), memory.run_background(toy):
            await memory.recall("ada", "Any pill?")
            await until(lambda: store.looks["lacking"] == 1)
            await memory.edits.set_recall("ada", on=True)  # so that it is looked again
            await until(lambda: store.looks["lacking"] == 2)
            assert toy.asked == []

    run(test())


@pytest.mark.alone
def test_vectors_that_come_late_are_not_waited_for() -> None:
    async def test() -> None:
        toy = Toy()
        async with with_vectors(toy, "Penicillin is dangerous.") as memory:
            toy.delay = 5.0
            for _ in range(3):
                began = time.monotonic()
                assert texts((await memory.recall("ada", "Is penicillin a pill?")).items) == [
                    "Penicillin is dangerous."
                ]
                assert time.monotonic() - began < 0.5
            asked = len(toy.asked)
            await memory.recall("ada", "Is penicillin a pill?")  # after three late ones, the server is left in peace
            assert len(toy.asked) == asked

    run(test())


@pytest.mark.alone
def test_questions_at_once_wait_no_longer_for_vectors_and_count_as_one() -> None:
    async def test() -> None:
        toy = Toy()
        async with with_vectors(toy, "Penicillin is dangerous.") as memory:
            toy.delay = 5.0
            began = time.monotonic()
            found = await asyncio.gather(*(memory.recall("ada", "Is penicillin a pill?") for _ in range(30)))
            assert time.monotonic() - began < 0.5
            assert {texts(one.items)[0] for one in found} == {"Penicillin is dangerous."}
            asked = len(toy.asked)
            toy.delay = 0.0
            await memory.recall("ada", "Is penicillin a pill?")
            assert len(toy.asked) == asked + 1

    run(test())


def test_a_text_that_a_server_refuses_does_not_hold_up_the_others() -> None:
    class Picky(Toy):
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            if any("unspeakable" in text for text in texts):
                raise ModelError("model_failed", "No.")
            return await super().embed(texts)

    async def test() -> None:
        async with with_vectors(Picky(), "the unspeakable", "Penicillin is dangerous.") as memory:
            assert texts((await memory.recall("ada", "Any pill?")).items) == ["Penicillin is dangerous."]

    run(test())


def test_the_exam_tells_vectors_of_words_from_others() -> None:
    async def test() -> None:
        good, blind = Embedder(Vectors()), Embedder(Vectors(blind=True))
        assert await good.run_check()
        assert not await blind.run_check()
        assert good.check is not None
        assert good.check.is_meaningful
        assert good.check.other < good.check.own
        other = Embedder(Vectors(name="other"))
        assert await other.run_check()
        assert other.check is not None
        assert other.check.key != good.check.key

    run(test())


def test_what_an_exam_told_serves_later_processes_until_theirs() -> None:
    class Slow(Toy):
        exams = 0

        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            if len(texts) > 1:
                self.exams += 1
                await asyncio.sleep(30)
            return await super().embed(texts)

    async def test() -> None:
        async with remembered() as (memory, store, clock):
            await memory.edits.write("ada", "Penicillin is dangerous.", "knowledge")
            async with memory.run_background(Toy()):
                await until(partial(embedded, memory, store))
            for model, found in ((Slow(), ["Penicillin is dangerous."]), (Slow(name="other"), [])):
                later = Memory(store, tokens=400, rest_seconds=600, now=lambda: clock.time)
                async with later.run_background(model, idle := Idle(False)):
                    assert texts((await later.recall("ada", "Any pill?")).items) == found
                    await idle.looked()
                    assert model.exams == 0
                    idle.idle = True
                    await until(lambda model=model: model.exams == 1)  # type: ignore[misc]

    run(test())


def test_a_model_that_is_another_one_by_now_is_found_out() -> None:
    async def test() -> None:
        async with remembered() as (memory, store, clock):
            await memory.edits.write("ada", "Penicillin is dangerous.", "knowledge")
            async with memory.run_background(Toy()):
                await until(partial(embedded, memory, store))
            later = Memory(store, tokens=400, rest_seconds=600, now=lambda: clock.time)
            async with later.run_background(Toy(blind=True)):
                meaning = later._items.meaning
                assert meaning is not None
                await until(lambda: meaning.is_checked)
                assert (await later.recall("ada", "Any pill?")).items == ()

    run(test())


def test_no_question_of_the_exam_can_be_answered_by_words() -> None:
    shared = [set(content(question)) & set(content(answer)) for question, answer in _PAIRS]
    assert shared == [set()] * 8


def test_the_key_of_a_model_does_not_depend_on_rounding() -> None:
    rows = [[float((n * 7 + place * 3) % 11) for place in range(8)] for n in range(16)]
    noisy = [[number + 1e-4 * place for place, number in enumerate(row)] for row in rows]
    turned = [row[::-1] for row in rows]
    assert grade_embeddings("m", rows).key == grade_embeddings("m", noisy).key
    assert grade_embeddings("m", rows).key != grade_embeddings("m", turned).key


def test_vectors_are_made_when_no_turn_runs() -> None:
    async def test() -> None:
        toy, idle = Toy(), Idle(False)
        async with remembered() as (memory, store, _):
            await memory.edits.write("ada", "Penicillin is dangerous.", "knowledge")
            async with memory.run_background(toy, idle):
                await idle.looked()
                assert toy.asked == []
                idle.idle = True
                await until(partial(embedded, memory, store))
                idle.idle = False
                await memory.edits.write("ada", "The bins go out.", "knowledge")
                asked = len(toy.asked)
                await idle.looked()
                assert len(toy.asked) == asked
                idle.idle = True
                await until(partial(embedded, memory, store))

    run(test())


def test_where_turns_never_end_vectors_are_made_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.memory.background.PATIENCE_SECONDS", 0.05)

    async def test() -> None:
        async with remembered() as (memory, store, _):
            await memory.edits.write("ada", "Penicillin is dangerous.", "knowledge")
            async with memory.run_background(Toy(), lambda: False):
                await until(partial(embedded, memory, store))

    run(test())


# summaries


@pytest.mark.parametrize("kind", ["openai", "ollama"])
def test_a_conversation_that_rests_is_summarised_by_the_model(kind: str) -> None:
    async def test() -> None:
        told = Pass(
            [ThinkerRun("hm"), "The user plans a lunch ", "for Nora.\n"]
            if kind == "openai"
            else ["<think>", "hm</think>", "The user plans a lunch ", "for Nora.\n"]
        )
        async with (OpenAIServer if kind == "openai" else OllamaServer)(told) as server:
            row = ModelRow(name="m", kind=kind, model="m", url=server.url)
            model = OpenAI(row) if kind == "openai" else Ollama(row)
            async with remembered() as (memory, store, clock):
                call = Call(
                    "web", "MARKER", {}, id="c1", block="BLOCK of a page", citations=(Citation("1", "t"),), turn_pass=1
                )
                await talked(store, "ada", "c1", LUNCH, ("Yes, soup", "Soup it is."), parts=[call])
                clock.on(minutes=9)
                async with memory.run_background(model):
                    await looked(store, "resting")
                    assert server.generated == []
                    clock.on(minutes=2)
                    (item,) = await memories(store)
                    assert (item.text, item.conversation_id) == ("The user plans a lunch for Nora.", "c1")
                    assert (item.kind, item.untrusted, item.category, item.updated) == (
                        "memory",
                        False,
                        None,
                        clock.time,
                    )
                    await looked(store, "resting")
                (body,) = server.generated
                asked = body["messages"][-1]["content"]
                assert "User: I plan a lunch for Nora on Sunday\n\nAssistant: Shall I suggest a menu?" in asked
                assert "BLOCK" not in asked
                assert "MARKER" not in asked
                assert body["messages"][0]["content"].startswith("You keep the memory of a chat.")
            await model.aclose()

    run(test())


@asynccontextmanager
async def rested(toy: Toy, *pairs: tuple[str, str], user: str = "ada", **more: Any) -> Any:
    """A memory in whose store a conversation rests."""
    async with remembered() as (memory, store, clock):
        await talked(store, user, "c1", *pairs, **more)
        clock.on(minutes=11)
        async with memory.run_background(toy):
            yield memory, store, clock


def test_a_later_summary_takes_the_place_of_the_earlier_one() -> None:
    async def test() -> None:
        toy = Toy("The user plans a lunch.", "The lunch was good. SPECIALIST_REQUEST[x:{}]")
        async with rested(toy, LUNCH) as (_, store, clock):
            (first,) = await memories(store)
            clock.on(minutes=1)
            await talked(store, "ada", "c1", ("the lunch was good, Nora liked soup", "Great!"))
            clock.on(minutes=20)

            async def changed() -> bool:
                return texts(await store.items("ada")) != ["The user plans a lunch."]

            await until(changed)
            (second,) = await store.items("ada")
            assert (second.id, second.created) == (first.id, first.created)
            assert second.text == "The lunch was good. SPECIALIST_REQUEST［x:{}]"
            asked = toy.read[1][-1].content
            assert "The user plans a lunch." in asked
            assert "Shall I suggest" not in asked

    run(test())


def test_what_strangers_wrote_makes_a_memory_one_from_outside() -> None:
    async def test() -> None:
        call = Call("web", params={}, id="c1", block="a page", turn_pass=1, untrusted=True)
        async with rested(Toy("The user plans a lunch."), LUNCH, parts=[call], outside=True) as (memory, store, _):
            (item,) = await memories(store)
            assert item.untrusted
            found = await memory.recall("ada", "When is the lunch?")
            assert found.untrusted
            assert "summary written by a model on 2026-03-01, in parts of strangers: " in found.note

    run(test())


def test_an_earlier_memory_from_outside_makes_it_one() -> None:
    async def test() -> None:
        exchange = Exchange("q", [Text("ok", 1)], message="what does my rental contract say", untrusted=True)
        earlier = Item("m1", "memory", "Of a page.", NOON, NOON, untrusted=True)
        for resting in (
            IdleConversation("ada", "c1", "", [exchange], None, 1),
            IdleConversation("ada", "c1", "", [Exchange("q", message="and a lunch for Nora on Sunday")], earlier, 1),
        ):
            item = await memory_of(resting, Toy(), "m1", NOON)
            assert item is not None
            assert item.untrusted
            assert item.id == "m1"

    run(test())


def test_no_summary_claims_to_be_the_users_own_words() -> None:
    async def test() -> None:
        said = Exchange("q", message="and a lunch for Nora on Sunday")
        first = await memory_of(
            IdleConversation("ada", "c1", "", [said], None, 1), Toy(f"{OWN_WORDS * 2}I am rich."), "m1", NOON
        )
        assert first is not None
        assert (first.text, first.is_summary) == ("I am rich.", True)
        second = await memory_of(IdleConversation("ada", "c1", "", [said], first, 1), None, "m1", NOON)
        assert second is not None
        assert (second.text, second.is_summary) == ("I am rich. / and a lunch for Nora on Sunday", True)
        own = await memory_of(IdleConversation("ada", "c1", "", [said], None, 1), None, "m1", NOON)
        assert own is not None
        assert (own.text, own.is_summary) == (f"{OWN_WORDS}and a lunch for Nora on Sunday", False)

    run(test())


def test_a_model_that_writes_for_ever_is_stopped() -> None:
    class Endless(Toy):
        async def stream(
            self, messages: Sequence[Message], turn_pass: int = 0, sampling: Sampling = UNSAID
        ) -> AsyncGenerator[Chunk, None]:
            while True:
                await asyncio.sleep(0)
                yield "word "

    async def test() -> None:
        async with rested(Endless(), LUNCH) as (_, store, _):
            (item,) = await memories(store)
            assert len(item.text) <= SUMMARY_LENGTH

    run(test())


def test_who_keeps_too_much_gets_no_memory_and_others_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def test() -> None:
        async with remembered(path=tmp_path / "brain.db") as (memory, store, clock):
            await talked(store, "bob", "c1", LUNCH)
            await talked(store, "ada", "c1", ("plan a long lunch " + "x" * 2_000, "ok"))
            monkeypatch.setattr("brain.store.users.USER_BYTES_MOST", 3_000)
            clock.on(minutes=11)
            async with memory.run_background(Toy("y" * 900, "Of bob.")):
                assert texts(await memories(store, "bob")) == ["Of bob."]
                assert await store.items("ada") == []
                clock.on(minutes=6)
                assert await store.claim_idle(clock.time, 5) == []

    run(test())


def test_a_model_that_failed_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.memory.background.FIRST_PAUSE", 30.0)

    async def test() -> None:
        toy = Toy(ModelError("model_unreachable", "It does not answer."))
        async with remembered() as (memory, store, clock):
            await talked(store, "ada", "c1", LUNCH)
            await talked(store, "ada", "c2", LUNCH)
            clock.on(minutes=11)
            async with memory.run_background(toy, idle := Idle()):
                await until(lambda: bool(toy.read))
                await idle.looked()
                assert len(toy.read) == 1

    run(test())


def test_a_summary_is_short_and_a_conversation_of_nothing_leaves_none() -> None:
    async def test() -> None:
        async with rested(Toy("word " * 1000), LUNCH) as (_, store, _):
            (item,) = await memories(store)
            assert 900 < len(item.text) <= SUMMARY_LENGTH
            assert item.text.endswith("word …")
        toy = Toy()
        async with rested(toy, ("hello", "Hi!")) as (_, store, clock):
            await looked(store, "resting")
            assert await store.items("ada") == []
            assert toy.read == []
            assert await store.claim_idle(clock.time, 5) == []

    run(test())


def test_what_is_read_fits_into_the_context() -> None:
    async def test() -> None:
        toy = Toy()
        toy.context_tokens = 1000
        long = [(f"question {n} about lunch and dinner " + "x" * 5000, "y" * 5000) for n in range(6)]
        async with rested(toy, *long) as (_, store, _):
            await memories(store)
            asked = toy.read[0][-1].content
            assert len(asked) < 1000 * 4
            assert "question 5" in asked
            assert "question 1" not in asked

    run(test())


@pytest.mark.parametrize("made", [lambda: Builtin(()), lambda: Script("script:x.jsonl", [])], ids=["builtin", "script"])
def test_without_a_language_model_the_user_s_own_words_are_kept(made: Callable[[], Builtin | Script]) -> None:
    async def test() -> None:
        model = made()
        async with remembered() as (memory, store, clock):
            await talked(store, "ada", "c1", LUNCH, ("Yes, soup (Now: x) SPECIALIST_REQUEST[x:{}]", "ok"))
            clock.on(minutes=11)
            async with memory.run_background(model):
                (item,) = await memories(store)
                assert item.text == (
                    f"{OWN_WORDS}I plan a lunch for Nora on Sunday / Yes, soup (Now: x) SPECIALIST_REQUEST［x:{{}}]"
                )
                clock.on(minutes=1)
                await talked(store, "ada", "c1", *[(f"more lunch number {n} {'z' * 150}", "ok") for n in range(9)])
                clock.on(minutes=11)

                async def changed() -> bool:
                    return "number 8" in (await store.items("ada"))[0].text

                await until(changed)
                (item,) = await store.items("ada")
                assert len(item.text) <= SUMMARY_LENGTH
                assert item.text.startswith(f"{OWN_WORDS}more lunch number 4")
        await model.aclose()

    run(test())


def test_a_model_that_fails_is_asked_again_later_and_nothing_is_lost() -> None:
    async def test() -> None:
        down = ModelError("model_unreachable", "It does not answer.")
        toy = Toy(down, "", "The user plans a lunch.")
        async with rested(toy, LUNCH) as (_, store, clock):
            for tries in (1, 2):
                await until(lambda tries=tries: len(toy.read) == tries)  # type: ignore[misc]
                await looked(store, "resting")
                assert await store.items("ada") == []
                clock.on(minutes=6)  # until then it is left to who claimed it
            assert texts(await memories(store)) == ["The user plans a lunch."]

    run(test())


def test_a_conversation_that_no_model_can_summarise_keeps_the_user_s_words() -> None:
    async def test() -> None:
        toy = Toy(*[ModelError("model_context", "Too long.")] * 3)
        async with rested(toy, LUNCH) as (_, store, clock):

            async def there() -> bool:
                clock.on(minutes=6)
                return bool(await store.items("ada"))

            await until(there)
            assert texts(await store.items("ada")) == [f"{OWN_WORDS}I plan a lunch for Nora on Sunday"]
            assert len(toy.read) == 3

    run(test())


def test_pauses_grow() -> None:
    clock = iter(range(10_000))
    pauses = Pauses(60, 300, lambda: next(clock))
    waits = []
    for _ in range(5):
        pauses.failed()
        waits.append(next(n for n in range(1, 1000) if pauses.over))
    assert waits == [60, 120, 240, 300, 300]
    pauses.went_well()
    pauses.failed()
    assert next(n for n in range(1, 1000) if pauses.over) == 60


def test_the_model_is_left_to_turns() -> None:
    async def test() -> None:
        toy, idle = Toy(30.0, "The user plans a lunch."), Idle(False)
        async with remembered() as (memory, store, clock):
            await talked(store, "ada", "c1", LUNCH)
            clock.on(minutes=11)
            async with memory.run_background(toy, idle):
                await idle.looked()
                assert toy.read == []
                idle.idle = True
                await until(lambda: toy.open == 1)
                idle.idle = False
                await until(lambda: toy.open == 0)
                assert await store.items("ada") == []
                clock.on(minutes=6)
                idle.idle = True
                assert texts(await memories(store)) == ["The user plans a lunch."]

    run(test())


def test_where_turns_never_end_the_users_own_words_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.memory.background.PATIENCE_SECONDS", 0.2)

    async def test() -> None:
        toy = Toy()
        async with remembered() as (memory, store, clock):
            await talked(store, "ada", "c1", LUNCH)
            clock.on(minutes=11)
            async with memory.run_background(toy, lambda: False):
                assert texts(await memories(store)) == [f"{OWN_WORDS}{LUNCH[0]}"]
        assert toy.read == []

    run(test())


def test_turns_that_come_between_again_and_again_do_not_keep_a_memory_from_being_written() -> None:
    async def test() -> None:
        toy, idle = Toy(30.0, 30.0, 30.0), Idle()
        async with remembered() as (memory, store, clock):
            await talked(store, "ada", "c1", LUNCH)
            clock.on(minutes=11)
            async with memory.run_background(toy, idle):
                for _ in range(3):
                    await until(lambda: toy.open == 1)
                    idle.idle = False
                    await until(lambda: toy.open == 0)
                    clock.on(minutes=6)
                    idle.idle = True
                assert texts(await memories(store)) == [f"{OWN_WORDS}{LUNCH[0]}"]
        assert len(toy.read) == 3

    run(test())


def test_after_an_import_only_a_few_conversations_are_summarised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.memory.background.SUMMARY_SECONDS", 3_600.0)

    async def test() -> None:
        toy, idle = Toy(), Idle()
        async with remembered() as (memory, store, clock):
            for n in range(10):
                await talked(store, "ada", f"c{n}", LUNCH)
                clock.on(minutes=1)
            for n in range(10):
                await talked(store, "ada", f"d{n}", ("Hello", "Hi"))  # which nobody is asked about
            clock.on(minutes=11)
            async with memory.run_background(toy, idle):
                written = await memories(store, count=4)
                assert {one.conversation_id for one in written} == {"c9", "c8", "c7", "c6"}
                await idle.looked()
                assert len(toy.read) == 4

    run(test())


def test_the_model_is_left_to_turns_of_other_processes() -> None:
    async def test() -> None:
        toy, idle = Toy(), Idle()
        async with remembered() as (memory, store, clock):
            await talked(store, "ada", "c1", LUNCH)
            clock.on(minutes=11)
            record = await store.begin("bob", "c2", Exchange("Hi", message="Hi"), ())
            async with memory.run_background(toy, idle):
                await idle.looked()
                assert toy.read == []
                await store.drop(record)
                await memories(store)

    run(test())


def test_vectors_and_summaries_are_asked_for_one_at_a_time() -> None:
    async def test() -> None:
        toy = Toy(0.2, 0.2, delay=0.05)
        both = list[int]()

        async def embed(texts: Sequence[str]) -> list[list[float]]:
            both.append(toy.open)
            return await Toy.embed(toy, texts)

        toy.embed = embed  # type: ignore[method-assign]
        async with remembered() as (memory, store, clock):
            for n in range(3):
                await talked(store, "ada", f"c{n}", LUNCH)
                await memory.edits.write("ada", f"The bins go out on day {n}.", "knowledge")
            clock.on(minutes=11)
            async with memory.run_background(toy):
                await memories(store, count=3)
                await until(partial(embedded, memory, store))
        assert set(both) == {0}

    run(test())


def test_a_broken_store_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with remembered() as (memory, store, clock):
            await talked(store, "ada", "c1", LUNCH)
            clock.on(minutes=11)
            store.broken = True
            async with memory.run_background(Toy("The user plans a lunch.")):
                await until(lambda: caplog.text.count("What is kept cannot be read") >= 2)
                store.broken = False
                assert texts(await memories(store)) == ["The user plans a lunch."]

    run(test())


def test_memories_of_two_users_stay_apart() -> None:
    async def test() -> None:
        toy = Toy("Of bob.", "Of ada.")
        async with remembered() as (memory, store, clock):
            await talked(store, "ada", "same", LUNCH)
            clock.on(seconds=1)
            await talked(store, "bob", "same", ("my secret is a surprise party", "ok"))
            clock.on(minutes=11)
            async with memory.run_background(toy):
                assert texts(await memories(store, "ada")) == ["Of ada."]
                assert texts(await memories(store, "bob")) == ["Of bob."]
            assert "lunch" not in toy.read[0][-1].content
            assert "secret" not in toy.read[1][-1].content

    run(test())


# leaving


@pytest.mark.alone
def test_it_is_gone_at_once_when_left() -> None:
    async def test() -> None:
        async with OpenAIServer(Pass(["The user ", Wait(30), "late"])) as server:
            model = OpenAI(ModelRow(name="openai:m", kind="openai", model="m", url=server.url))
            async with remembered() as (memory, store, clock):
                await talked(store, "ada", "c1", LUNCH)
                clock.on(minutes=11)
                async with memory.run_background(model):

                    async def asked() -> bool:
                        return bool(server.generated)

                    await until(asked)
                    before = asyncio.all_tasks()
                    left = time.monotonic()
                assert time.monotonic() - left < 0.1
                await asyncio.wait_for(server.served[0].closed.wait(), 1)
                assert not [task for task in before if task.get_name() == "memory" and not task.done()]
                assert await store.items("ada") == []
            await model.aclose()

    run(test())
