"""The memory of a user: facts saved, corrected and forgotten; recent messages; edits by hand; nothing of others."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from memory_helpers import BreakableStore, add_exchanges, open_memory, texts, until, view
from msgspec.structs import replace
from store_helpers import NOON, Clock, place_of, refuse_nul

from brain.errors import BadRequest, Refused, StoreError
from brain.memory import Memory
from brain.memory.cache import CACHED_INTERACTIONS, TEXT_LENGTH, StoreVersion
from brain.memory.items import MAX_FORMER
from brain.memory.quotes import UserMessage
from brain.memory.user_view import UserMemory
from brain.messages import Exchange, FormerText, Item, Text
from brain.plugins.context import Saved
from brain.store import conversations, items

pytestmark = pytest.mark.anyio


async def saved(memory: Memory, *facts: str, user: str = "ada") -> list[Item]:
    """Facts as the store has them: no conversation with their messages exists."""
    items = [(await view(memory, fact, user=user).save(fact, "personal")).item for fact in facts]
    return [replace(item, conversation_id=None) for item in items]


async def reason(work: Awaitable[object]) -> str:
    """Why a specialist's operation is refused, and the advice."""
    with pytest.raises(Refused) as caught:
        await work
    return f"{caught.value.reason}; {caught.value.advice}"


async def problem(work: Awaitable[object]) -> tuple[str | None, str]:
    with pytest.raises(BadRequest) as caught:
        await work
    return caught.value.field, caught.value.code


# facts


async def test_the_users_sentence_is_stored_with_its_message_and_date(
    memory: Memory, store: BreakableStore, clock: Clock
) -> None:
    await add_exchanges(store, "ada", "c1", ("Hi! I'm hardly ever ill.", "ok"))
    page = await store.read(conversations.read_page, "ada", "c1")
    assert page is not None
    message, sent = page.exchanges[0], NOON - timedelta(days=3)
    clock.advance(days=1)
    own = [UserMessage(message.message, message.question_id, sent), UserMessage("I like tea")]
    mine = memory.view("ada", "c1", lambda: own)
    ill = await mine.save("The user is ill")
    text = "I'm hardly ever ill."
    assert ill == Saved(Item(ill.item.id, "fact", text, sent, sent, "general", True, "c1", message.question_id), "new")
    assert await store.read(items.find, "ada", ill.item.id) == ill.item
    tea = (await mine.save("The user likes tea", "preferences", mutable=False)).item
    assert (tea.category, tea.mutable, tea.message_id) == ("preferences", False, None)
    assert tea.created == NOON + timedelta(days=1)


async def test_nothing_is_saved_from_a_private_conversation(memory: Memory) -> None:
    (fact,) = await saved(memory, "I live in Rome")
    mine = memory.view("ada", "c1", lambda: [UserMessage("I live in Oslo")], private=True)
    for work in (mine.save("I live in Oslo"), mine.store("I live in Oslo"), mine.update(fact.id, "I live in Oslo")):
        assert "private" in await reason(work)
    assert texts(await mine.facts()) == ["I live in Rome"]
    assert (await mine.forget(fact.id)).id == fact.id


async def test_what_the_user_did_not_write_is_refused(memory: Memory, store: BreakableStore) -> None:
    summary = Item("m1", "memory", "The user's bank is evil.example", NOON, NOON)
    await store.write(items.put, "ada", summary)
    mine = view(memory, "What does this page say?", "my bank is good", "a long one " * 60)
    (fact,) = await saved(memory, "I live in Rome")
    for work in (
        mine.save("The user's bank is evil.example"),
        mine.store("The user's bank is evil.example"),
        mine.update(fact.id, "I live at evil.example"),
        mine.update("m1", "my bank is good"),
        mine.save("  "),
        mine.save("my bank is good " * 100),
        mine.save("a long one " * 60),
    ):
        await reason(work)
    assert await store.read(items.list_items, "ada") == [fact, summary]


async def test_a_fact_with_the_same_words_only_gets_the_new_date(
    memory: Memory, store: BreakableStore, clock: Clock
) -> None:
    (first,) = await saved(memory, "I am allergic to penicillin")
    clock.advance(days=1)
    again = await view(memory, "i am  allergic to PENICILLIN!").save("penicillin allergy", "general")
    assert again == Saved(replace(first, updated=NOON + timedelta(days=1)), "known")
    own = [UserMessage("I am allergic to penicillin", "q0", NOON - timedelta(days=1))]
    earlier = await memory.view("ada", "c0", lambda: own).save("penicillin allergy", mutable=False)
    assert earlier == Saved(replace(again.item, mutable=False), "known")
    for other in ("I am not allergic to penicillin", "Penicillin: I am allergic to it"):
        assert (await view(memory, other).save(other)).how == "new"
    together = await asyncio.gather(*(view(memory, "I ski").save("I ski") for _ in range(8)))
    assert sorted(one.how for one in together) == [*["known"] * 7, "new"]
    assert len(await store.read(items.list_items, "ada")) == 4


async def test_an_update_replaces_by_id_and_keeps_former_texts(memory: Memory, clock: Clock) -> None:
    (berlin,) = await saved(memory, "I live in Berlin")
    clock.advance(days=1)
    oslo = await view(memory, "We moved to Oslo.", conversation_id="c2").update(berlin.id, "The user moved to Oslo")
    assert (oslo.how, oslo.item.id, oslo.item.text) == ("corrected", berlin.id, "We moved to Oslo.")
    assert oslo.item.former == (FormerText("I live in Berlin", NOON + timedelta(days=1)),)
    item = oslo.item
    for n in range(MAX_FORMER + 5):
        item = (await view(memory, f"I live in Rome{n}").update(berlin.id, f"I live in Rome{n}")).item
    assert [former.text for former in item.former][:2] == ["I live in Berlin", "I live in Rome5"]
    assert len(item.former) == MAX_FORMER
    (cat,) = await saved(memory, "The cat is old")
    assert f"#{item.id} " in await reason(view(memory, item.text).update(cat.id, item.text))


async def test_a_fact_is_named_by_its_id_or_by_words_that_it_alone_has(memory: Memory, store: BreakableStore) -> None:
    dog, cat = await saved(memory, "My dog is called Pickle", "My cat is called Ida")
    mine = view(memory, "My dog is called Rex", "the cat is Zoe")
    rex = (await mine.update(f"#{dog.id.upper()}", "My dog is called Rex")).item
    assert (rex.id, rex.text) == (dog.id, "My dog is called Rex")
    assert (await mine.update("cat", "the cat is Zoe", "knowledge")).item.category == "knowledge"
    await reason(mine.update("horse", "the cat is Zoe"))
    await reason(mine.update(" ", "the cat is Zoe"))
    (ida,) = await saved(memory, "My cat is called Ida")
    several = await reason(mine.forget("called"))
    assert rex.id in several
    assert ida.id in several
    await reason(mine.forget(rex.id, "Ida"))
    await reason(mine.forget(rex.id, approved=ida))
    assert (await mine.forget("called Rex", approved=rex)).id == rex.id
    assert {item.id for item in await store.read(items.list_items, "ada")} == {cat.id, ida.id}


async def test_a_name_with_a_nul_character_is_no_id(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_nul(monkeypatch)
    (fact,) = await saved(memory, "I live in Rome")
    mine = view(memory, "I live in Oslo")
    for which in (f"#{fact.id}\0", "\0", f"{fact.id}\0x"):
        assert (await reason(mine.forget(which))).partition(" ")[0] in ("no", "the")
    assert (await mine.forget("live\0 in Rome")).id == fact.id


async def test_an_immutable_fact_is_changed_only_by_its_user(memory: Memory, store: BreakableStore) -> None:
    mine = view(memory, "I live in Berlin", "I live in Oslo")
    fact = (await mine.save("I live in Berlin", mutable=False)).item
    for work in (mine.update(fact.id, "I live in Oslo"), mine.forget(fact.id)):
        assert "protected" in await reason(work)
    again = await memory.edits.write("ada", "i live in berlin!")
    assert (again.id, again.text, again.mutable) == (fact.id, "I live in Berlin", False)
    assert await store.read(items.list_items, "ada") == [again]


async def test_a_memory_of_a_conversation_is_made_of_quotes(memory: Memory) -> None:
    mine = view(memory, "I paint the study, I think.", "Sage green it is. Hm?")
    item = await mine.store("The user paints the study. It is sage green.")
    assert (item.kind, item.category, item.is_summary) == ("memory", None, False)
    assert item.text == "In the user's own words: I paint the study, I think. / Sage green it is."
    assert texts(await mine.memories()) == [item.text]
    assert await mine.facts() == []
    again = await view(memory, "I paint the study, i think!", "sage green it is").store(
        "I paint the study. Sage green."
    )
    assert (again.id, texts(await mine.memories())) == (item.id, [again.text])
    assert (await mine.forget(item.id)).id == item.id


async def test_a_user_who_stores_too_much_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("brain.store.users.MAX_USER_BYTES", 100)
    async with open_memory(path=tmp_path / "brain.db") as (memory, store, _):
        assert "MiB" in await reason(view(memory, "I like tea " * 20).save("I like tea"))
        assert await store.read(items.list_items, "ada") == []


async def test_ids_are_short_and_unique(memory: Memory, store: BreakableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.choice", lambda letters: "a")
    await saved(memory, *(f"number {n} is lucky" for n in range(6)))
    ids = {item.id for item in await store.read(items.list_items, "ada")}
    assert len(ids) == 6
    assert ids > {"aaaa", "aaaaa", "aaaaaa", "aaaaaaaa"}


# recent messages


async def recent(memory: Memory, user: str = "ada") -> list[str]:
    return [one.message for one in await view(memory, user=user).recent(50)]


def exchange(message: str, reply: str = "ok", clock: Clock | None = None) -> Exchange:
    return Exchange("q", [Text(reply, 1)], message=message, started=clock.time if clock else NOON)


async def test_the_newest_messages_of_all_conversations_come_first(
    memory: Memory, store: BreakableStore, clock: Clock
) -> None:
    assert await recent(memory) == []
    for n in range(CACHED_INTERACTIONS + 5):
        clock.advance(seconds=1)
        await add_exchanges(store, "ada", f"c{n % 3}", (f"question {n}", f"answer {n}"))
    memory.invalidate("ada")
    assert await recent(memory) == [f"question {n}" for n in range(CACHED_INTERACTIONS + 4, 4, -1)]
    assert len(await view(memory).recent(3)) == 3
    assert await view(memory).recent(-1) == []


async def test_ended_turns_are_known_without_the_store(memory: Memory, store: BreakableStore, clock: Clock) -> None:
    await add_exchanges(store, "ada", "c1", ("first", "1"))
    assert await recent(memory) == ["first"]
    clock.advance(minutes=2)
    memory.add_exchange("ada", "c2", exchange("second", "x" * 20_000, clock))
    memory.add_exchange("ada", "c2", exchange("second", "x" * 20_000, clock))  # as if it was read, too
    memory.add_exchange("ada", "c3", exchange("", clock=clock))
    memory.add_exchange("bob", "c2", exchange("of bob"))
    clock.advance(minutes=-1)
    memory.add_exchange("ada", "c3", exchange("long", clock=clock))
    store.broken = True
    assert await recent(memory) == ["second", "long", "first"]
    assert len((await view(memory).recent())[0].answer) == TEXT_LENGTH


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_what_changes_while_the_store_is_read_is_seen(
    memory: Memory, store: BreakableStore, is_deleted: bool
) -> None:
    await add_exchanges(store, "ada", "c1", ("first", "1"))
    store.gate = asyncio.Event()
    reading = asyncio.create_task(recent(memory))
    await until(lambda: store.reads == 1)
    if is_deleted:
        await store.delete("ada", "c1")
        memory.invalidate("ada")
    else:
        await add_exchanges(store, "ada", "c2", ("second", "2"))
        memory.add_exchange("ada", "c2", exchange("second"))
    store.gate.set()
    expected = [] if is_deleted else ["second", "first"]
    assert sorted(await reading) == sorted(expected)
    assert sorted(await recent(memory)) == sorted(expected)


async def test_what_other_processes_write_is_seen_in_a_moment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("brain.memory.cache.VERSION_SECONDS", 3600.0)
    path = tmp_path / "brain.db"
    async with open_memory(path=path) as (memory, store, _), open_memory(path=path) as (_, other, _):
        assert await recent(memory) == []
        await add_exchanges(other, "ada", "c1", ("elsewhere", "1"))
        assert (await recent(memory), store.reads) == ([], 1)  # the store was asked a moment ago
    monkeypatch.setattr("brain.memory.cache.VERSION_SECONDS", 0.0)
    async with open_memory(path=path) as (memory, store, _), open_memory(path=path) as (_, other, _):
        await other.delete("ada", "c1")
        assert await recent(memory) == []
        await add_exchanges(other, "ada", "c1", ("elsewhere", "1"))
        assert await recent(memory) == ["elsewhere"]
        await add_exchanges(store, "bob", "c1", ("of bob", "1"))
        await saved(memory, "I like tea", user="bob")
        reads = store.reads
        assert (await recent(memory), store.reads) == (["elsewhere"], reads)  # what this process writes drops nothing
        await other.delete("ada", "c1")
        assert await recent(memory) == []


@pytest.mark.postgresql
async def test_what_other_processes_write_is_seen_when_they_announce_it(postgresql_store_url: str) -> None:
    place = place_of(postgresql_store_url)
    async with open_memory(path=place) as (memory, store, _), open_memory(path=place) as (_, other, _):
        assert await recent(memory) == []
        await add_exchanges(other, "ada", "c1", ("elsewhere", "1"))

        async def is_seen() -> bool:
            return await recent(memory) == ["elsewhere"]

        async def is_cached() -> bool:
            reads = store.reads
            return await is_seen() and store.reads == reads

        await until(is_seen)
        await until(is_cached)  # once the last of its writes is announced


@pytest.mark.parametrize(
    ("limit", "value"), [("CACHE_SECONDS", 0.0), ("MAX_USERS", 0), ("MAX_BYTES", 100), ("busy", True)]
)
async def test_what_is_cached_is_limited(limit: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "VERSION_TIMEOUT" if limit == "busy" else limit
    monkeypatch.setattr(f"brain.memory.cache.{name}", 0.01 if limit == "busy" else value)
    async with open_memory() as (memory, store, _):
        store.busy = limit == "busy"  # a store that cannot say whether others wrote is read each time
        await add_exchanges(store, "ada", "c1", ("first", "1"))
        store.database.known_version = 0, -math.inf
        for reads in (1, 2):
            assert await recent(memory) == ["first"]
            assert store.reads == reads
        store.broken = True
        with pytest.raises(StoreError):
            await recent(memory)


# edits by hand


async def test_the_user_writes_changes_and_deletes_by_hand(memory: Memory, store: BreakableStore, clock: Clock) -> None:
    item = await memory.edits.write("ada", " My  boat is\nred ", "general", mutable=False)
    assert (item.text, item.category, item.mutable, item.kind) == ("My boat is red", "general", False, "fact")
    assert (await memory.edits.write("ada", "my boat is red")).id == item.id
    await memory.edits.change("ada", item.id, mutable=False)
    assert await problem(memory.edits.change("ada", item.id, text="My boat is blue")) == ("text", "immutable")
    clock.advance(days=1)
    blue = await memory.edits.change("ada", item.id, text="My boat is blue", mutable=True, category="personal")
    assert (blue.text, blue.mutable, blue.category, blue.created) == ("My boat is blue", True, "personal", NOON)
    assert [former.text for former in blue.former] == ["My boat is red"]
    green = await memory.edits.write("ada", "My boat is green")
    assert (green.id != item.id, green.category) == (True, "general")
    assert [await memory.edits.delete("ada", item.id) for _ in range(2)] == [True, False]
    assert texts(await store.read(items.list_items, "ada", words="boat")) == ["My boat is green"]
    white = await asyncio.gather(*(memory.edits.write("ada", "My boat is white") for _ in range(3)))
    assert len({item.id for item in white}) == 1  # one change of a user's at a time


async def test_what_cannot_be_written_by_hand_is_named(memory: Memory) -> None:
    (fact,) = await saved(memory, "I like tea")
    note = await view(memory, "the study is green").store("the study is green")
    edits, bad = memory.edits, "bad_request"
    assert await problem(edits.write("ada", " ")) == ("text", bad)
    assert await problem(edits.write("ada", "x" * 501)) == ("text", bad)
    assert await problem(edits.change("ada", "nope", text="x")) == ("id", "not_found")
    assert await problem(edits.change("ada", fact.id, text="\u202e")) == ("text", bad)
    assert await problem(edits.change("ada", note.id, category="general")) == ("category", bad)
    assert (await edits.change("ada", note.id, text="y" * 1000)).category is None
    assert await problem(edits.change("ada", note.id, text="y" * 1001)) == ("text", bad)


# two users


@pytest.mark.parametrize(
    "read",
    [
        lambda mine: mine.recent(50),
        lambda mine: mine.memories(),
        lambda mine: mine.memories("study tea"),
        lambda mine: mine.facts(),
        lambda mine: mine.facts("tea", "personal"),
        lambda mine: mine.search("tea study", 50),
    ],
)
async def test_no_user_reads_what_is_anothers(
    memory: Memory, store: BreakableStore, read: Callable[[UserMemory], Any]
) -> None:
    await add_exchanges(store, "ada", "c1", ("I like tea", "ok"))
    await saved(memory, "I like tea")
    await view(memory, "the study is green").store("the study is green")
    assert await read(view(memory, "I like tea", user="bob")) == []
    assert await read(view(memory, "I like tea")) != []


async def test_no_user_changes_what_is_anothers(memory: Memory, store: BreakableStore) -> None:
    (fact,) = await saved(memory, "I live in Berlin")
    bobs = view(memory, "I live in Oslo", "I live in Berlin", user="bob")
    for work in (bobs.update(fact.id, "I live in Oslo"), bobs.forget(fact.id), bobs.forget("Berlin")):
        await reason(work)
    assert (await bobs.save("I live in Oslo", "personal")).how == "new"
    assert await problem(memory.edits.change("bob", fact.id, text="x")) == ("id", "not_found")
    assert not await memory.edits.delete("bob", fact.id)
    await memory.edits.set_recall("bob", on=False)
    assert texts((await memory.recall("ada", "Berlin?")).items) == ["I live in Berlin"]
    assert (await memory.recall("bob", "Berlin?")).items == ()
    assert await store.read(items.find, "ada", fact.id) == fact
    await store.write(items.put, "bob", replace(fact, text="I like beer"))  # under the same ID
    assert (await view(memory).forget(fact.id)).text == "I live in Berlin"
    assert "I like beer" in texts(await store.read(items.list_items, "bob"))


async def test_a_busy_store_is_asked_once_whether_others_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.memory.cache.VERSION_TIMEOUT", 0)
    monkeypatch.setattr("brain.memory.cache.VERSION_SECONDS", math.inf)
    asked, is_free = 0, asyncio.Event()

    async def data_version() -> int:
        nonlocal asked
        asked += 1
        await is_free.wait()
        return 7

    database = SimpleNamespace(known_version=(0, -math.inf), data_version=data_version)
    others = StoreVersion(SimpleNamespace(database=database))  # type: ignore[arg-type]
    assert [await others.version() for _ in range(3)] == [None, None, None]
    is_free.set()
    while (version := await others.version()) is None:
        pass
    assert (version, asked) == (7, 1)
