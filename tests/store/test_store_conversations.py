"""Conversations as their user sees them: titles, lists, pages, search, deletion, and how much may be stored."""

import pytest
from msgspec.structs import replace
from store_helpers import (
    TOMORROW,
    Clock,
    add_turn,
    answer,
    fact,
    file,
    lose_turns,
    memory,
    question,
    store_at,
)

from brain.errors import BadRequest
from brain.events import Citation
from brain.messages import Call, Interaction, Part, Text
from brain.store import conversations, items, users
from brain.store.store import Store

pytestmark = pytest.mark.anyio


async def listed(store: Store, user: str = "ada", **query: str) -> list[str]:
    return [one.id for one in await store.list_conversations(user, **query)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("  One\n two ", "One two"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("word " * 30, "word " * 10 + "word word…"),
        ("I fly\u202e to \x1b]0;Oslo\x07 on\U000e0041 Monday", "I fly to ]0;Oslo on Monday"),
        ("", "a.txt b.txt"),
    ],
)
async def test_the_title_is_the_first_words_or_the_files(store: Store, words: str, title: str) -> None:
    await add_turn(store, "ada", "c", words, files=[file(b""), file(b"", "b.txt")])
    assert [one.title for one in await store.list_conversations("ada")] == [title]


async def test_a_title_follows_the_first_question_until_its_user_gives_one(store: Store) -> None:
    await add_turn(store, "ada", "c", "Old words", number=1)
    await add_turn(store, "ada", "c", "New words", number=2, replaces="q1")
    assert [one.title for one in await store.list_conversations("ada")] == ["New words"]
    assert await listed(store, words="old") == []
    renamed = await store.write(conversations.rename, "ada", "c", "  My \n own ")
    assert renamed is not None
    assert renamed.title == "My own"
    await add_turn(store, "ada", "c", "Newest", number=3, replaces="q2")
    assert [one.title for one in await store.list_conversations("ada", words="own")] == ["My own"]
    assert await store.write(conversations.rename, "eve", "c", "Of eve") is None


async def test_conversations_are_listed_by_last_use_page_by_page(store: Store) -> None:
    for n in (1, 2, 3, 4, 5, 2):
        await add_turn(store, "ada", f"c{n}")
    await add_turn(store, "eve", "c9")
    pages = [await store.list_conversations("ada", limit=2)]
    while pages[-1]:
        pages.append(await store.list_conversations("ada", limit=2, before=pages[-1][-1].id))
    assert [[one.id for one in page] for page in pages] == [["c2", "c5"], ["c4", "c3"], ["c1"], []]
    with pytest.raises(BadRequest) as caught:
        await store.list_conversations("ada", before="c9")
    assert (caught.value.status, caught.value.field) == (400, "before")


async def test_the_last_used_is_first_although_a_clock_was_ahead(store: Store, clock: Clock) -> None:
    await add_turn(store, "ada", "before")
    clock.advance(days=20)
    await add_turn(store, "ada", "ahead")
    await add_turn(store, "ada", "also ahead")
    clock.advance(days=-20)
    for name, number in (("after", 1), ("ahead", 2), ("last", 1)):
        await add_turn(store, "ada", name, number=number)
    order = ["last", "ahead", "after", "also ahead", "before"]
    assert await listed(store) == order
    assert await listed(store, before="after") == order[3:]
    assert (await store.list_conversations("ada"))[0].updated < TOMORROW
    await store.drop(await store.write_question("ada", "after", question("Dropped", 9), ()))
    assert (await listed(store))[:2] == order[:2]


async def test_a_conversation_is_read_page_by_page(store: Store) -> None:
    for n in range(1, 6):
        await add_turn(store, "ada", "c", f"{n}", number=n, files=[file(b"x", f"{n}")])
    seen, before = list[object](), None
    while not seen or before:
        page = await store.read(conversations.read_page, "ada", "c", before=before, limit=2)
        assert page is not None
        seen.append(([one.message for one in page.exchanges], [one.name for one in page.files], page.earlier))
        before = page.earlier
    assert seen == [(["4", "5"], ["4", "5"], "q4"), (["2", "3"], ["2", "3"], "q2"), (["1"], ["1"], None)]
    with pytest.raises(BadRequest) as caught:
        await store.read(conversations.read_page, "ada", "c", before="q9")
    assert (caught.value.status, caught.value.field) == (400, "before")
    assert await store.read(conversations.read_page, "eve", "c") is None


async def test_pages_of_long_exchanges_are_shorter(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "PAGE_BYTES", 4000)
    in_params = Call("web", params={"q": "ß" * 800}, id="c1", turn_pass=1)
    cited = replace(in_params, params={}, citations=(Citation("1", "T", "u" * 1600),))
    answers: list[list[Part]] = [[in_params], [Text("short", 1)], [cited], [in_params], [in_params] * 3]
    for number, parts in enumerate(answers):
        await add_turn(store, "ada", "c", reply=parts, number=number)
    seen, before = list[list[str]](), None
    while not seen or before:
        page = await store.read(conversations.read_page, "ada", "c", before=before)
        assert page is not None
        assert 1600 < page.size < 6000
        seen.append([one.question_id for one in page.exchanges])
        before = page.earlier
    assert seen == [["q4"], ["q1", "q2", "q3"], ["q0"]]


async def test_the_newest_messages_of_all_conversations(store: Store) -> None:
    await add_turn(store, "ada", "a", "1", number=1)
    await add_turn(store, "ada", "b", "2", number=2)
    await add_turn(store, "ada", "a", "3", [], number=3, outcome="model_failed")
    await add_turn(store, "eve", "a", "of eve")
    await store.write_question("ada", "b", question("runs", 4), ())
    found = await store.read(conversations.recent, "ada", 2)
    assert [(one.conversation_id, one.message, one.answer) for one in found] == [("a", "3", ""), ("b", "2", "Hi")]
    assert found[1] == Interaction("b", found[1].started, "2", "Hi")
    assert [one.message for one in await store.read(conversations.recent, "ada", 9)] == ["3", "2", "1"]


# search


SEARCHES: list[tuple[str, list[str]]] = [
    ("penicillin", ["c1"]),
    ("PENICILLINS", ["c1"]),
    ("penic", ["c1"]),  # the last word may be a prefix
    ("penic doctor", ["c3", "c1"]),  # others may not
    ("doctor allergic", ["c1"]),  # both in one message and its answer
    ("muller", ["c3"]),
    ("müll", ["c3"]),
    ("北京", ["c2"]),
    ("天气", ["c2"]),
    ("京天", []),
    ("the", ["c3"]),
    ("to", ["c3", "c1"]),
    ('" OR NEAR( * ^ -', []),
    ("title:penicillin", ["c1"]),
    ("journey", ["c2"]),
    ("eve", []),
    ("   ", ["c3", "c2", "c1"]),
    ("?", ["c3"]),  # signs are in no index; they are looked for in titles
    ("%", []),
    ("_", []),
]


async def test_conversations_are_found_by_their_words(store: Store) -> None:
    await add_turn(store, "ada", "c1", "I am allergic to penicillin", "Tell your doctor.")
    await add_turn(store, "ada", "c2", "北京的天气好吗", "很好")
    await store.write(conversations.rename, "ada", "c2", "Journeys")
    await add_turn(store, "ada", "c3", "Who is the doctor?", "Dr. Müller, the one to ask.")
    await add_turn(store, "eve", "c1", "I take penicillin, says eve's doctor")
    for words, found in SEARCHES:
        assert await listed(store, words=words) == found, words


async def test_frequent_words_are_found_wherever_they_are(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "FREQUENT", 10)
    monkeypatch.setattr(conversations, "NEWEST_SEARCHED", 30)
    for count, message, name in ((100, "I like jazz", "c"), (60, "I like chess", "d")):  # the latter are newer
        for n in range(count):
            await add_turn(store, "ada", f"{name}{n}", message)
    for words in ("jazz", "jazz like", "jazz tuba", "ja"):
        found, before = list[str](), None
        while page := await store.list_conversations("ada", words=words, before=before, limit=15):
            found += [one.id for one in page]
            before = found[-1]
        assert found == [f"c{n}" for n in range(99, -1, -1)], words


async def test_an_excerpt_shows_where_the_words_are(store: Store) -> None:
    await add_turn(store, "ada", "c", "Hello", "lorem " * 100 + "The appointment is\non Friday. " + "ipsum " * 100)
    (found,) = await store.list_conversations("ada", words="appointments")
    assert "The appointment is on Friday." in found.excerpt
    assert (found.excerpt[0], found.excerpt[-1], len(found.excerpt) < 170) == ("…", "…", True)
    (found,) = await store.list_conversations("ada", words="hello")
    assert found.excerpt.startswith("Hello lorem")


async def test_what_was_replaced_or_deleted_or_still_runs_is_not_found(store: Store) -> None:
    await add_turn(store, "ada", "c", "apple", "pear", number=1)
    assert await listed(store, words="apple") == ["c"]
    await add_turn(store, "ada", "c", "plum", "cherry", number=2, replaces="q1")
    assert [len(await listed(store, words=word)) for word in ("apple", "pear", "plum")] == [0, 0, 1]
    await store.write_question("ada", "c", question("quince", 3), ())
    assert await listed(store, words="quince") == []
    lose_turns(store)
    await add_turn(store, "ada", "c", "fig", number=4)
    assert await listed(store, words="quince") == ["c"]  # it was interrupted
    await add_turn(store, "ada", "d", "grape")
    await store.delete("ada", "d")
    assert await listed(store, words="grape") == []


async def test_deleting_a_conversation_leaves_its_facts(store: Store) -> None:
    for user in ("ada", "eve"):
        await add_turn(store, user, "c", "I like jazz", files=[file(b"x")])
        await store.write(items.put, user, fact("f1", "I like jazz", conversation_id="c", message_id="q1"))
        await store.write(items.put, user, memory("m1", "They like jazz", conversation_id="c"))
    assert (await store.delete("ada", "c"), await store.delete("ada", "c")) == (True, False)
    assert (await listed(store), await store.read(conversations.recent, "ada", 5)) == ([], [])
    assert await store.read(items.list_items, "ada") == [fact("f1", "I like jazz")]
    assert await listed(store, "eve", words="jazz") == ["c"]
    assert [(one.id, one.conversation_id) for one in await store.read(items.list_items, "eve")] == [
        ("m1", "c"),
        ("f1", "c"),
    ]
    assert (await store.write_question("ada", "c", question("Anew"), [file(b"y")])).files[0].id == 1


# limits


async def is_too_large(store: Store, user: str, conversation: str, words: str, size: int) -> str | None:
    """The field that is too large, if one is, when a turn with a file begins; a turn that can begin is ended."""
    files = [file(b"x" * size)] if size else []
    try:
        await add_turn(store, user, conversation, words, number=f"{words[:5]}{size}", files=files)
    except BadRequest as error:
        return error.field if (error.code, error.status) == ("too_large", 413) else error.code
    return None


async def test_a_conversation_has_a_largest_size(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "MAX_CONVERSATION_BYTES", 10_000)
    assert await is_too_large(store, "ada", "c", "x" * 2_000, 4_000) is None
    assert await is_too_large(store, "ada", "c", "More", 5_000) == "attachments"
    assert await is_too_large(store, "ada", "c", "x" * 3_000, 0) == "conversation_id"
    assert await is_too_large(store, "ada", "c", "More", 1_000) is None
    await add_turn(store, "ada", "c", "Less", number=3, replaces="qxxxxx4000")
    assert await is_too_large(store, "ada", "c", "More", 4_000) is None


async def test_a_user_may_store_so_much(shared_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "MAX_USER_BYTES", 10_000)
    assert await is_too_large(shared_store, "ada", "a", "Hi", 6_000) is None
    assert await is_too_large(shared_store, "ada", "b", "Hi", 5_000) == "attachments"
    with pytest.raises(BadRequest) as caught:
        await shared_store.write(items.put, "ada", fact("f1", "x" * 5_000))
    assert (caught.value.code, caught.value.field) == ("too_large", "text")
    assert await is_too_large(shared_store, "eve", "b", "Hi", 5_000) is None
    await shared_store.delete("ada", "a")
    assert await is_too_large(shared_store, "ada", "b", "Hi", 5_000) is None


async def test_in_memory_the_longest_unused_conversations_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "MAX_MEMORY_USER_BYTES", 10_000)
    monkeypatch.setattr(users, "MAX_MEMORY_BYTES", 15_000)
    monkeypatch.setattr(users, "MAX_MEMORY_CONVERSATIONS", 4)
    async with store_at(None) as store:

        async def left() -> tuple[list[str], list[str]]:
            return sorted(await listed(store, "ada")), sorted(await listed(store, "eve"))

        await add_turn(store, "eve", "e", files=[file(b"x" * 6_000)])
        running = await store.write_question("ada", "a", question("Hi"), [file(b"x" * 4_000)])
        for name in ("b", "c"):
            await add_turn(store, "ada", name, files=[file(b"x" * 4_000)])
        assert await left() == (["a", "c"], ["e"])  # the user's own, and not one that runs
        await add_turn(store, "eve", "f", files=[file(b"x" * 3_000)])
        assert await left() == (["a", "c"], ["f"])  # of the user who stores most
        await store.end(running, answer("Done"))
        for name in ("g", "h"):
            await add_turn(store, "eve", name)
        assert await left() == (["a", "c"], ["g", "h"])  # of the user with the most conversations


async def test_in_memory_conversations_make_room_with_their_memories(
    memory_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "MAX_MEMORY_USER_BYTES", 10_000)
    monkeypatch.setattr(users, "MAX_MEMORY_BYTES", 15_000)
    store = memory_store
    await add_turn(store, "ada", "a", files=[file(b"x" * 6_000)])
    (idle,) = await store.write_unsynced(conversations.claim_idle, TOMORROW, 1)
    await store.write(conversations.set_memory, idle, memory("m1", "They sent a file", conversation_id="a"))
    await store.write(items.put, "ada", fact("f1", "I send files", conversation_id="a", message_id="q1"))
    await store.write(items.put, "ada", fact("f2", "x" * 5_000))
    assert await listed(store) == []
    assert [(one.id, one.conversation_id) for one in await store.read(items.list_items, "ada")] == [
        ("f2", None),
        ("f1", None),
    ]
    await add_turn(store, "ada", "b", "x" * 500)
    await store.write(items.put, "eve", fact("f1", "x" * 9_900))
    assert await listed(store) == []
    for user in ("ada", "bob"):  # where no conversation is left, facts are rejected
        with pytest.raises(BadRequest) as caught:
            await store.write(items.put, user, fact("f3", "x" * 5_000))
        assert caught.value.code == "too_large"
    assert await store.read(items.list_items, "bob") == []
