"""The words of the index: whatever a user writes, its terms are that user's."""

import sqlite3

import pytest
from store_helpers import add_turn, fact

from brain.store import full_text, items
from brain.store.store import Store
from brain.store.tx import Index, Tx

pytestmark = pytest.mark.anyio

OTHER_LETTER = "\u19b0"
"""A letter to Python that is none to SQLite."""
TERMS = [f"{user}{kind}penicillin" for user in range(4) for kind in "fmq"]


def test_every_term_that_the_index_makes_begins_with_its_owner() -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE t USING fts5 (words, tokenize = 'porter unicode61 remove_diacritics 2')")
    db.execute("CREATE VIRTUAL TABLE term USING fts5vocab (t, row)")
    characters = [
        one for one in map(chr, (*range(0xD800), *range(0xE000, 0x110000))) if ord(one) < 256 or one.isalnum()
    ]
    for start in range(0, len(characters), 1000):
        some = " ".join(f"{one}9fb a{one}9fb" for one in characters[start : start + 1000])
        db.execute("INSERT INTO t (words) VALUES (?)", (full_text.index_terms("7q", some),))
    assert [term for (term,) in db.execute("SELECT term FROM term") if not term.startswith("7q")] == []
    db.close()


async def test_words_are_found_without_case_and_accents_in_any_script(store: Store) -> None:
    texts = ["Straße ÉCLAIR", "Привет Ёлка", "Καλημέρα Ἀθῆναι", "お茶 をください", "नमस्ते"]
    for number, text in enumerate(texts):
        await store.write(items.put, "ann", fact(f"i{number}", text))
    words = ["strasse", "eclair", "привет", "елка", "ΚΑΛΗΜΕΡΑ", "αθηναι", "お茶", "नमस्ते"]
    found = [[item.id for item in await store.read(items.list_items, "ann", words=word)] for word in words]
    assert found == [["i0"], ["i0"], ["i1"], ["i1"], ["i2"], ["i2"], ["i3"], ["i4"]]


async def test_no_user_writes_terms_for_another(store: Store) -> None:
    planted = " ".join(f"{OTHER_LETTER}{term}" for term in TERMS)
    await add_turn(store, "ann", "c", "I like tea")
    await store.write(items.put, "ann", fact("a", "I like tea"))
    await add_turn(store, "eve", "d", planted)
    await store.write(items.put, "eve", fact("e", planted))
    assert await store.list_conversations("ann", words="penicillin") == []
    assert await store.read(items.search, "ann", "penicillin", kinds=("fact", "memory"), limit=9) == []


async def test_whatever_is_in_the_index_no_user_finds_what_is_anothers(store: Store) -> None:
    def plant(tx: Tx) -> None:
        indexes: tuple[tuple[str, Index], ...] = (("item", "item_words"), ("exchange", "exchange_words"))
        for table, index in indexes:
            for (key,) in tx.execute(f"SELECT key FROM {table}").fetchall():
                tx.words.put(tx, index, key, " ".join(TERMS))

    for user in ("ann", "eve"):
        await add_turn(store, user, f"c-{user}", "I like tea")
        await store.write(items.put, user, fact(f"f-{user}", "I like tea"))
        assert len(await store.list_conversations(user, words="tea")) == 1
    await store.write(plant)
    for user in ("ann", "eve"):
        assert [one.id for one in await store.list_conversations(user, words="penicillin")] == [f"c-{user}"]
        assert [one.id for one in await store.read(items.list_items, user, words="penicillin")] == [f"f-{user}"]
