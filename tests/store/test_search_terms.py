"""The words of the index: whatever is written, those of a user are of that user."""

import asyncio
import sqlite3

from stores import fact, kept, turn

from brain.store import search_terms

SEPARATOR = "\u19b0"
"""A letter to Python that is none to SQLite."""
PLANTED = " ".join(f"{SEPARATOR}{user}{kind}penicillin" for user in range(4) for kind in "fmq")


def test_every_term_that_the_index_makes_begins_with_its_owner() -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE t USING fts5 (words, tokenize = 'porter unicode61 remove_diacritics 2')")
    db.execute("CREATE VIRTUAL TABLE term USING fts5vocab (t, row)")
    letters = [one for one in map(chr, range(0x10000, 0x110000)) if one.isalnum()]
    characters = [*map(chr, range(0xD800)), *map(chr, range(0xE000, 0x10000)), *letters]
    texts = (search_terms.indexed("7q", f"{one}9fb a{one}9fb") for one in characters)
    db.executemany("INSERT INTO t (words) VALUES (?)", ((text,) for text in texts))
    strange = [term for (term,) in db.execute("SELECT term FROM term") if not term.startswith("7q")]
    db.close()
    assert strange == []


def test_words_are_found_without_case_and_accents_in_any_script() -> None:
    async def test() -> None:
        async with kept(None) as store:
            for number, text in enumerate(
                ["Straße ÉCLAIR", "Привет Ёлка", "Καλημέρα Ἀθῆναι", "お茶 をください", "नमस्ते"]
            ):
                await store.put("ann", fact(f"i{number}", text))
            wanted = ["strasse", "eclair", "привет", "елка", "ΚΑΛΗΜΕΡΑ", "αθηναι", "お茶", "नमस्ते"]
            found = [[item.id for item in await store.items("ann", words=one)] for one in wanted]
            assert found == [["i0"], ["i0"], ["i1"], ["i1"], ["i2"], ["i2"], ["i3"], ["i4"]]

    asyncio.run(test())


def test_nobody_writes_words_for_another() -> None:
    async def test() -> None:
        async with kept(None) as store:
            await turn(store, "ann", "c", "I like tea")
            await store.put("ann", fact("a", "I like tea"))
            await turn(store, "eve", "d", PLANTED)
            await store.put("eve", fact("e", PLANTED))
            assert await store.conversations("ann", words="penicillin") == []
            assert await store.search_words("ann", "penicillin", kinds=("fact", "memory"), limit=9) == []

    asyncio.run(test())


def test_whatever_stands_in_the_index_nobody_finds_what_is_anothers() -> None:
    def plant(db: sqlite3.Connection) -> None:
        of_both = " ".join(f"{user}{kind}penicillin" for user in range(4) for kind in "fmq")
        db.execute("UPDATE item_words SET words = ?", (of_both,))
        db.execute("UPDATE exchange_words SET words = ?", (of_both,))

    async def test() -> None:
        async with kept(None) as store:
            for user in ("ann", "eve"):
                await turn(store, user, f"c-{user}", "I like tea")
                await store.put(user, fact(f"f-{user}", "I like tea"))
            await store._database.write(plant)
            for user in ("ann", "eve"):
                assert [one.id for one in await store.conversations(user, words="penicillin")] == [f"c-{user}"]
                assert [one.id for one in await store.items(user, words="penicillin")] == [f"f-{user}"]

    asyncio.run(test())
