"""Background work of the memory: vectors of items, and summaries of idle conversations by real model servers."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from limits import WAIT_SECONDS
from memory_helpers import BreakableStore, Vectors, add_exchanges, looked, open_memory, texts, until, view
from model_servers import OllamaServer, OpenAIServer, Pass, Reasoning, Wait
from store_helpers import NOON, Clock

from brain.errors import ModelError
from brain.memory import Memory
from brain.memory.background import Backoff
from brain.memory.summaries import SUMMARY_LENGTH, make_memory
from brain.memory.terms import content_words
from brain.messages import OWN_WORDS, Call, Chunk, Exchange, Finish, Item, Message, Text
from brain.models.builtin import Builtin
from brain.models.model import PassRequest
from brain.models.ollama import Ollama
from brain.models.openai import OpenAI
from brain.models.relevance import PAIRS, grade
from brain.models.script import Script
from brain.settings import ModelRow
from brain.store import conversations, items
from brain.store.conversations import IdleConversation
from brain.store.store import Store

pytestmark = pytest.mark.anyio

DANGEROUS = "Penicillin is dangerous."
LUNCH = ("I plan a lunch for Nora on Sunday", "Shall I suggest a menu?")
NEVER = asyncio.Event
"""What a model waits for that is never set."""


class Toy(Vectors):
    """A model with vectors that writes what it is given: texts, errors, or an event that it waits for first."""

    def __init__(self, *writes: str | Exception | asyncio.Event, **vectors: Any) -> None:
        super().__init__(**vectors)
        self.writes = list(writes)
        self.read: list[Sequence[Message]] = []
        self.streams = 0

    async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        self.read.append(request.messages)
        self.streams += 1
        try:
            written = self.writes.pop(0) if self.writes else "The user said something."
            if isinstance(written, Exception):
                raise written
            if isinstance(written, asyncio.Event):
                await written.wait()
                written = "late"
            yield written
            yield Finish("stop")
        finally:
            self.streams -= 1


class Idle:
    """Says whether no turn runs, and counts how often it was asked."""

    def __init__(self, is_idle: bool = True) -> None:
        self.is_idle = is_idle
        self.looks = 0

    def __call__(self) -> bool:
        self.looks += 1
        return self.is_idle

    async def looked(self) -> None:
        end = self.looks + 5
        await until(lambda: self.looks >= end)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.memory.background.LOOK_SECONDS", (0.0, 0.0))
    for name in ("FIRST_PAUSE", "IDLE_SECONDS", "MIN_VECTORS_REST", "SUMMARY_SECONDS"):
        monkeypatch.setattr(f"brain.memory.background.{name}", 0.0)


# vectors


async def are_embedded(store: Store) -> bool:
    """Whether each item has a vector."""
    lacking = "SELECT 1 FROM item WHERE key NOT IN (SELECT item FROM embedding)"
    return await store.search(lambda tx: tx.execute(lacking).fetchone()) is None


@asynccontextmanager
async def embedded(toy: Vectors, *facts: str) -> AsyncIterator[Memory]:
    """A memory of these facts, each with its vector."""
    async with open_memory() as (memory, store, _):
        for fact in facts:
            await memory.edits.write("ada", fact, "knowledge")
        async with memory.run_background(toy):
            await until(lambda: are_embedded(store))
            yield memory


async def recalled(memory: Memory, message: str, user: str = "ada", *, private: bool = False) -> list[str]:
    query = await memory.embed_query(message, private=private)
    return texts((await memory.recall(user, message, query=query)).items)


async def test_meaning_is_recalled_without_a_word_in_common() -> None:
    facts = (DANGEROUS, "Nora is my sister.", "Batteries of type E9", "A donation went to the orphans.")
    async with embedded(Toy(), *facts) as memory:
        assert await recalled(memory, "Any pill allergy?") == [DANGEROUS]
        assert await recalled(memory, "Who are my relatives?") == ["Nora is my sister."]
        assert await recalled(memory, "What is the capital of France?") == []
        assert await recalled(memory, "Any pill allergy?", "bob") == []
        assert texts(await view(memory).search("family", 1)) == ["Nora is my sister."]
        assert await recalled(memory, "Which E9 do I need?") == ["Batteries of type E9"]  # words still count
        assert await recalled(memory, "Please give that again!") == []  # which names nothing
        assert texts(await view(memory).search("give", 1)) == ["A donation went to the orphans."]
        await memory.edits.write("ada", "My brothers ski", "knowledge")

        async def is_found() -> bool:
            return "My brothers ski" in await recalled(memory, "Who are my relatives?")

        await until(is_found)


async def test_meaning_weighs_more_than_a_word_in_common() -> None:
    facts = ("The drawer with the batteries is in the cellar", DANGEROUS)
    async with embedded(Toy(), *facts) as memory:
        found = await recalled(memory, "Which pill for my allergy is in the cellar, in the drawer?")
        assert found == [DANGEROUS, facts[0]]


@pytest.mark.parametrize("wrong", ["fewer", "shorter", "infinite", "none", "broken", "blind"])
async def test_vectors_that_are_none_or_mean_nothing_are_not_used(
    wrong: str, memory: Memory, store: BreakableStore, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(Toy):
        async def _embed(self, texts: Sequence[str]) -> list[list[float]]:
            found = await super()._embed(texts)
            match wrong:
                case "fewer":
                    return found[1:]
                case "shorter":
                    return [found[0][1:], *found[1:]]
                case "infinite":
                    return [[float("inf")] * len(row) for row in found]
            return [] if wrong == "none" else found

    caplog.set_level("INFO")
    toy = Wrong(broken=wrong == "broken", blind=wrong == "blind")
    await memory.edits.write("ada", DANGEROUS, "knowledge")
    async with memory.run_background(toy):
        await until(lambda: "keyword search only" in caplog.text)
        for n in range(3) if wrong == "broken" else ():  # the server is left alone then
            looking = asyncio.create_task(looked(store, "without vector", 1))
            await memory.edits.write("ada", f"fact number{n}", "knowledge")
            await looking
        assert await recalled(memory, "Any pill?") == []
        assert await recalled(memory, "Penicillin?") == [DANGEROUS]
        assert [len(one) for one in toy.requests] == ([8, 8] if wrong == "blind" else [8])
    assert [record.levelname for record in caplog.records if record.levelname in ("ERROR", "WARNING")] == []


async def test_no_vectors_are_asked_for_where_there_is_nothing(memory: Memory, store: BreakableStore) -> None:
    toy = Toy()
    async with memory.run_background(toy):
        await recalled(memory, "Any pill?")
        await until(lambda: store.looks["without vector"] == 1)
        await memory.edits.set_recall("ada", on=True)
        await until(lambda: store.looks["without vector"] == 2)
    assert toy.requests == []


async def test_questions_do_not_wait_for_late_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.models.embedder.QUERY_SECONDS", 0.02)
    toy = Toy()
    async with embedded(toy, DANGEROUS) as memory:
        asked, toy.gate = "Is penicillin a pill?", NEVER()
        found = await asyncio.gather(*(recalled(memory, asked) for _ in range(30)))  # which count as one
        assert found == [[DANGEROUS]] * 30
        for _ in range(2):
            assert await recalled(memory, asked) == [DANGEROUS]
        requests = len(toy.requests)
        await recalled(memory, asked)  # after three late ones, the server is left alone
        assert len(toy.requests) == requests


async def test_a_remote_server_reads_no_private_question() -> None:
    toy = Toy()
    async with embedded(toy, DANGEROUS) as memory:
        for toy.is_local, found in ((True, [DANGEROUS]), (False, [])):
            mine, requests = memory.view("ada", "c1", list, private=True), len(toy.requests)
            assert await recalled(memory, "Any pill?", private=True) == found
            assert texts(await mine.search("pill")) == texts(await mine.facts("pill")) == found
            assert await mine.memories("pill") == []
            assert len(toy.requests) == requests + 4 * toy.embeds_locally
        assert await recalled(memory, "Any pill?") == [DANGEROUS]


async def test_a_text_that_a_server_refuses_does_not_hold_up_the_others() -> None:
    class Picky(Toy):
        async def _embed(self, texts: Sequence[str]) -> list[list[float]]:
            if any("unspeakable" in text for text in texts):
                raise ModelError("model_failed", "No.")
            return await super()._embed(texts)

    async with embedded(Picky(), "the unspeakable", DANGEROUS) as memory:
        assert await recalled(memory, "Any pill?") == [DANGEROUS]


async def test_the_result_of_a_check_serves_later_processes_until_theirs(
    memory: Memory, store: BreakableStore, clock: Clock
) -> None:
    await memory.edits.write("ada", DANGEROUS, "knowledge")
    async with memory.run_background(Toy()):
        await until(lambda: are_embedded(store))

    def start(model: Toy, idle: Callable[[], bool]) -> tuple[Memory, Any]:
        later = Memory(store, tokens=400, rest_seconds=600, now=lambda: clock.time)
        return later, later.run_background(model, quiet)

    for model, found in ((Toy(), [DANGEROUS]), (Toy(name="other"), [])):
        later, background = start(model, quiet := Idle(False))
        async with background:
            assert await recalled(later, "Any pill?") == found
            await quiet.looked()
            assert [one for one in model.requests if len(one) > 1] == []
            quiet.is_idle = True
            await until(lambda model=model: any(PAIRS[0][0] in one for one in model.requests))  # type: ignore[misc]
    later, background = start(Toy(blind=True), Idle())  # another model has the name by now
    async with background:

        async def recalls_nothing() -> bool:
            return await recalled(later, "Any pill?") == []

        await until(recalls_nothing)


def test_the_check_needs_meaning_and_names_a_model_whatever_the_rounding() -> None:
    assert [set(content_words(question)) & set(content_words(answer)) for question, answer in PAIRS] == [set()] * 8
    rows = [[float((n * 7 + place * 3) % 11) for place in range(8)] for n in range(16)]
    noisy = [[number + 1e-4 * place for place, number in enumerate(row)] for row in rows]
    backwards = [row[::-1] for row in rows]
    key, same, other = (grade("m", some[::2], some[1::2]).key for some in (rows, noisy, backwards))
    assert key == same != other


async def test_vectors_are_made_while_no_turn_runs(
    memory: Memory, store: BreakableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy, quiet = Toy(), Idle(False)
    await memory.edits.write("ada", DANGEROUS, "knowledge")
    async with memory.run_background(toy, quiet):
        for fact in ("The bins go out.", "The cat is old."):
            requests = len(toy.requests)
            await quiet.looked()
            assert len(toy.requests) == requests
            quiet.is_idle = True
            await until(lambda: are_embedded(store))
            quiet.is_idle = False
            await memory.edits.write("ada", fact, "knowledge")
    monkeypatch.setattr("brain.memory.background.PATIENCE_SECONDS", 0.05)
    async with memory.run_background(toy, lambda: False):  # where turns never end, beside them
        await until(lambda: are_embedded(store))


# summaries


async def memories(store: Store, user: str = "ada", count: int = 1) -> list[str]:
    """The user's memories, as soon as there are so many."""

    async def exist() -> bool:
        return len(await store.read(items.list_items, user, kind="memory")) >= count

    await until(exist)
    return texts(await store.read(items.list_items, user, kind="memory"))


async def only_item(store: Store) -> Item:
    await memories(store)
    (item,) = await store.read(items.list_items, "ada")
    return item


@asynccontextmanager
async def summarising(
    toy: Any, *pairs: tuple[str, str], quiet: Callable[[], bool] = lambda: True, **more: Any
) -> AsyncIterator[tuple[Memory, BreakableStore, Clock]]:
    """A memory in whose store a conversation is idle."""
    async with open_memory() as (memory, store, clock):
        await add_exchanges(store, "ada", "c1", *(pairs or (LUNCH,)), **more)
        clock.advance(minutes=11)
        async with memory.run_background(toy, quiet):
            yield memory, store, clock


@pytest.mark.parametrize("kind", ["openai", "ollama"])
async def test_an_idle_conversation_is_summarised_by_the_model(
    kind: str, memory: Memory, store: BreakableStore, clock: Clock
) -> None:
    thought = [Reasoning("hm")] if kind == "openai" else ["<think>", "hm</think>"]
    reply = Pass([*thought, "The user plans a lunch ", "for Nora.\n"])
    async with (OpenAIServer if kind == "openai" else OllamaServer)(reply) as server:
        row = ModelRow(name="m", kind=kind, model="m", url=server.url)
        model = OpenAI(row) if kind == "openai" else Ollama(row)
        call = Call("web", "MARKER", {}, id="c1", block="BLOCK of a page", turn_pass=1)
        await add_exchanges(store, "ada", "c1", LUNCH, ("Yes, soup", "Soup it is."), parts=[call])
        clock.advance(minutes=9)
        async with memory.run_background(model):
            await looked(store, "idle")
            assert server.generated == []
            clock.advance(minutes=2)
            item = await only_item(store)
            assert (item.text, item.conversation_id) == ("The user plans a lunch for Nora.", "c1")
            assert (item.kind, item.untrusted, item.category, item.updated) == ("memory", False, None, clock.time)
            await looked(store, "idle")
        (body,) = server.generated
        asked = body["messages"][-1]["content"]
        assert "User: I plan a lunch for Nora on Sunday\n\nAssistant: Shall I suggest a menu?" in asked
        assert "BLOCK" not in asked
        assert "MARKER" not in asked
        await model.aclose()


async def test_a_later_summary_replaces_the_earlier_one() -> None:
    toy = Toy("The user plans a lunch.", "The lunch was good. SPECIALIST_REQUEST[x:{}]")
    async with summarising(toy) as (_, store, clock):
        first = await only_item(store)
        clock.advance(minutes=1)
        await add_exchanges(store, "ada", "c1", ("the lunch was good, Nora liked soup", "Great!"))
        clock.advance(minutes=20)

        async def is_changed() -> bool:
            return texts(await store.read(items.list_items, "ada")) != [first.text]

        await until(is_changed)
        second = await only_item(store)
        assert (second.id, second.created) == (first.id, first.created)
        assert second.text == "The lunch was good. SPECIALIST_REQUEST［x:{}]"
        asked = toy.read[1][-1].content
        assert first.text in asked
        assert "Shall I suggest" not in asked


async def test_what_strangers_wrote_makes_a_summary_untrusted() -> None:
    call = Call("web", params={}, id="c1", block="a page", turn_pass=1, untrusted=True)
    async with summarising(Toy("The user plans a lunch."), LUNCH, parts=[call], untrusted=True) as (memory, store, _):
        assert (await only_item(store)).untrusted
        found = await memory.recall("ada", "When is the lunch?")
        assert found.untrusted
        assert "summary written by a model on 2026-03-01, partly from untrusted sources: " in found.note
    exchange = Exchange("q", message="and a lunch for Nora on Sunday")
    earlier = Item("m1", "memory", "Of a page.", NOON, NOON, untrusted=True)
    item = await make_memory(IdleConversation("ada", "c1", "", [exchange], earlier, 1), Toy(), "m1", NOON)
    assert item is not None
    assert (item.id, item.untrusted) == ("m1", True)


async def test_no_summary_claims_to_be_the_users_own_words() -> None:
    async def make(model: Toy | None, earlier: Item | None = None) -> tuple[Item, bool]:
        exchange = Exchange("q", [Text("ok", 1)], message="and a\u202e lunch for\U000e0041 Nora on Sunday")
        item = await make_memory(IdleConversation("ada", "c1", "", [exchange], earlier, 1), model, "m1", NOON)
        assert item is not None
        return item, item.is_summary

    rich, is_summary = await make(Toy(f"{OWN_WORDS * 2}I am rich."))
    assert (rich.text, is_summary) == ("I am rich.", True)
    both, is_summary = await make(None, rich)
    assert (both.text, is_summary) == ("I am rich. / and a lunch for Nora on Sunday", True)
    own, is_summary = await make(None)
    assert (own.text, is_summary) == (f"{OWN_WORDS}and a lunch for Nora on Sunday", False)


async def test_a_summary_is_short_and_a_conversation_of_nothing_leaves_none() -> None:
    class Endless(Toy):
        async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
            while True:
                await asyncio.sleep(0)
                yield "word "

    async with summarising(Endless()) as (_, store, _):
        item = await only_item(store)
        assert 900 < len(item.text) <= SUMMARY_LENGTH
        assert item.text.endswith("word…")
    async with summarising(toy := Toy(), ("hello", "Hi!")) as (_, store, clock):
        await looked(store, "idle")
        assert await store.read(items.list_items, "ada") == []
        assert await store.write_unsynced(conversations.claim_idle, clock.time, 5) == []
    assert toy.read == []


async def test_what_is_read_fits_into_the_context() -> None:
    toy = Toy()
    toy.context_tokens = 1000
    long = [(f"question {n} about lunch and dinner " + "x" * 5000, "y" * 5000) for n in range(6)]
    async with summarising(toy, *long) as (_, store, _):
        await memories(store)
    asked = toy.read[0][-1].content
    assert len(asked) < 1000 * 4
    assert "question 5" in asked
    assert "question 1" not in asked


@pytest.mark.parametrize("make", [lambda: Builtin(()), lambda: Script("script:x.jsonl", [])], ids=["builtin", "script"])
async def test_without_a_language_model_the_users_own_words_are_stored(make: Callable[[], Builtin | Script]) -> None:
    model = make()
    async with summarising(model, LUNCH, ("Yes, soup SPECIALIST_REQUEST[x:{}]", "ok")) as (_, store, clock):
        text = (await only_item(store)).text
        assert text == f"{OWN_WORDS}I plan a lunch for Nora on Sunday / Yes, soup SPECIALIST_REQUEST［x:{{}}]"
        clock.advance(minutes=1)
        await add_exchanges(store, "ada", "c1", *[(f"more lunch number {n} {'z' * 150}", "ok") for n in range(9)])
        clock.advance(minutes=11)

        async def is_changed() -> bool:
            return "number 8" in (await store.read(items.list_items, "ada"))[0].text

        await until(is_changed)
        text = (await only_item(store)).text
        assert len(text) <= SUMMARY_LENGTH
        assert text.startswith(f"{OWN_WORDS}more lunch number 4")
    await model.aclose()


async def test_a_user_who_stores_too_much_gets_no_memory_and_others_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with open_memory(path=tmp_path / "brain.db") as (memory, store, clock):
        await add_exchanges(store, "bob", "c1", LUNCH)
        await add_exchanges(store, "ada", "c1", ("plan a long lunch " + "x" * 2_000, "ok"))
        monkeypatch.setattr("brain.store.users.MAX_USER_BYTES", 3_000)
        clock.advance(minutes=11)
        async with memory.run_background(Toy("y" * 900, "Of bob.")):
            assert await memories(store, "bob") == ["Of bob."]
            assert await store.read(items.list_items, "ada") == []
            clock.advance(minutes=6)
            assert await store.write_unsynced(conversations.claim_idle, clock.time, 5) == []


async def test_a_model_that_failed_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    down = ModelError("model_unreachable", "It does not answer.")
    toy = Toy(down, "", "The user plans a lunch.")
    async with summarising(toy) as (_, store, clock):
        for tries in (1, 2):
            await until(lambda tries=tries: len(toy.read) == tries)  # type: ignore[misc]
            await looked(store, "idle")
            assert await store.read(items.list_items, "ada") == []
            clock.advance(minutes=6)  # until then the conversation is claimed
        assert await memories(store) == ["The user plans a lunch."]
    monkeypatch.setattr("brain.memory.background.FIRST_PAUSE", 3600.0)
    async with summarising(toy := Toy(down), quiet=(quiet := Idle())) as (_, store, clock):
        await until(lambda: bool(toy.read))
        await add_exchanges(store, "ada", "c2", LUNCH)
        clock.advance(minutes=11)
        await quiet.looked()
        assert len(toy.read) == 1


@pytest.mark.parametrize("why", ["fails", "interrupted"])
async def test_after_three_tries_the_users_own_words_are_stored(why: str) -> None:
    failure = ModelError("model_context", "Too long.")
    toy, quiet = Toy(*[failure if why == "fails" else NEVER() for _ in range(3)]), Idle()
    async with summarising(toy, quiet=quiet) as (_, store, clock):
        for tries in (1, 2, 3):
            await until(lambda tries=tries: len(toy.read) == tries)  # type: ignore[misc]
            quiet.is_idle = why == "fails"  # a turn begins: the model is left to it at once
            await until(lambda: toy.streams == 0)
            assert await store.read(items.list_items, "ada") == []
            await quiet.looked()
            clock.advance(minutes=6)
            quiet.is_idle = True
        assert await memories(store) == [f"{OWN_WORDS}{LUNCH[0]}"]
    assert len(toy.read) == 3


def test_pauses_grow_and_begin_anew_after_a_success() -> None:
    clock = iter(range(10_000))
    pauses, waits = Backoff(60, 300, lambda: next(clock)), []
    for n in range(6):
        if n == 5:
            pauses.record_success()
        pauses.record_failure()
        waits.append(next(n for n in range(1, 1000) if pauses.is_over))
    assert waits == [60, 120, 240, 300, 300, 60]


@pytest.mark.parametrize("where", ["this process", "another"])
async def test_the_model_is_left_to_turns(where: str, memory: Memory, store: BreakableStore, clock: Clock) -> None:
    toy, quiet = Toy("The user plans a lunch."), Idle(where == "another")
    await add_exchanges(store, "ada", "c1", LUNCH)
    clock.advance(minutes=11)
    running = await store.write_question("bob", "c2", Exchange("Hi", message="Hi"), ()) if where == "another" else None
    async with memory.run_background(toy, quiet):
        await quiet.looked()
        assert toy.read == []
        quiet.is_idle = True
        if running is not None:
            await store.drop(running)
        assert await memories(store) == ["The user plans a lunch."]


async def test_where_turns_never_end_the_users_own_words_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.memory.background.PATIENCE_SECONDS", 0.1)
    async with summarising(toy := Toy(), quiet=lambda: False) as (_, store, _):
        assert await memories(store) == [f"{OWN_WORDS}{LUNCH[0]}"]
    assert toy.read == []


WEATHER = ("What is the weather in Lisbon tomorrow?", "Sunny.")


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (Builtin([]), f"{OWN_WORDS}{WEATHER[0]}"),
        (Toy(*["The user asked about Lisbon."] * 12), "The user asked about Lisbon."),
    ],
    ids=["quotes", "summaries"],
)
async def test_conversations_that_say_the_same_have_one_memory(
    memory: Memory, store: BreakableStore, clock: Clock, model: Any, text: str
) -> None:
    async def summarised(conversation: str) -> dict[str, int]:
        """The count of each memory, once the conversation has one."""

        async def has_one() -> bool:
            return conversation in {
                one.conversation_id for one in await store.read(items.list_items, "ada", kind="memory")
            }

        clock.advance(minutes=11)
        async with memory.run_background(model):
            await until(has_one)
        return await counts()

    async def counts() -> dict[str, int]:
        return {one.text: one.count for one in await store.read(items.list_items, "ada", kind="memory")}

    for n in range(10):
        await add_exchanges(store, "ada", f"c{n}", WEATHER)
        assert await summarised(f"c{n}") == {text: n + 1}
    (item,) = await store.read(items.list_items, "ada", kind="memory")
    assert item.created == item.updated == clock.time
    assert texts((await memory.recall("ada", "How is the weather in Lisbon?")).items) == [text]
    # one of them continues
    await add_exchanges(store, "ada", "c3", LUNCH)
    if isinstance(model, Toy):
        model.writes = ["The user plans a lunch."]
    (own,) = (await summarised("c3")).keys() - {text}
    assert await counts() == {own: 1, text: 9}
    # others are deleted
    for n in (9, 0, 1, 2):
        assert await store.delete("ada", f"c{n}")
    assert await counts() == {own: 1, text: 5}
    for n in range(4, 9):
        assert await store.delete("ada", f"c{n}")
    assert await counts() == {own: 1}


async def test_a_question_is_quoted_once(memory: Memory, store: BreakableStore, clock: Clock) -> None:
    await add_exchanges(store, "ada", "c1", WEATHER, LUNCH, ("what is the weather in lisbon, tomorrow", "Rain."))
    clock.advance(minutes=11)
    async with memory.run_background(Builtin([])):
        assert await memories(store) == [f"{OWN_WORDS}{LUNCH[0]} / what is the weather in lisbon, tomorrow"]


async def test_after_an_import_a_few_conversations_are_summarised_at_once(
    memory: Memory, store: BreakableStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.memory.background.SUMMARY_SECONDS", 3_600.0)
    toy, quiet = Toy(*(f"The user plans lunch {n}." for n in range(10))), Idle()
    for n in range(10):
        await add_exchanges(store, "ada", f"c{n}", LUNCH)
        clock.advance(minutes=1)
    for n in range(10):
        await add_exchanges(store, "ada", f"d{n}", ("Hello", "Hi"))  # for which no model is needed
    clock.advance(minutes=11)
    async with memory.run_background(toy, quiet):
        await memories(store, count=4)
        await quiet.looked()
    written = await store.read(items.list_items, "ada", kind="memory")
    assert {one.conversation_id for one in written} == {"c9", "c8", "c7", "c6"}
    assert len(toy.read) == 4


async def test_the_model_does_one_thing_at_a_time(memory: Memory, store: BreakableStore, clock: Clock) -> None:
    class Slow(Toy):
        together = 0

        async def _embed(self, texts: Sequence[str]) -> list[list[float]]:
            for _ in range(20):
                self.together = max(self.together, self.streams)
                await asyncio.sleep(0)
            return await super()._embed(texts)

    for n in range(3):
        await add_exchanges(store, "ada", f"c{n}", LUNCH)
        await memory.edits.write("ada", f"The bins go out on day {n}.", "knowledge")
    clock.advance(minutes=11)
    async with memory.run_background(toy := Slow(*(f"The user plans lunch {n}." for n in range(3)))):
        await memories(store, count=3)
        await until(lambda: are_embedded(store))
    assert toy.together == 0


async def test_a_broken_store_ends_nothing(
    memory: Memory, store: BreakableStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    await add_exchanges(store, "ada", "c1", LUNCH)
    clock.advance(minutes=11)
    store.broken = True
    async with memory.run_background(Toy("The user plans a lunch.")):
        await until(lambda: caplog.text.count("The database cannot be read") >= 2)
        store.broken = False
        clock.advance(minutes=6)
        assert await memories(store) == ["The user plans a lunch."]


async def test_summaries_of_two_users_stay_apart(memory: Memory, store: BreakableStore, clock: Clock) -> None:
    toy = Toy("Of bob.", "Of ada.")
    await add_exchanges(store, "ada", "same", LUNCH)
    clock.advance(seconds=1)
    await add_exchanges(store, "bob", "same", ("my secret is a surprise party", "ok"))
    clock.advance(minutes=11)
    async with memory.run_background(toy):
        assert [await memories(store, user) for user in ("ada", "bob")] == [["Of ada."], ["Of bob."]]
    assert "lunch" not in toy.read[0][-1].content
    assert "secret" not in toy.read[1][-1].content


async def test_leaving_ends_a_summary_that_is_being_written() -> None:
    async with OpenAIServer(Pass(["The user ", Wait(3600), "late"])) as server:
        model = OpenAI(ModelRow(name="openai:m", kind="openai", model="m", url=server.url))
        async with summarising(model):
            await until(lambda: bool(server.generated))
            working = [task for task in asyncio.all_tasks() if task.get_name() == "memory"]
        assert working
        assert all(task.done() for task in working)
        async with asyncio.timeout(WAIT_SECONDS):
            await server.generations[0].closed.wait()
        await model.aclose()
