"""The words of the index: whatever a user writes, its terms are that user's."""

import sqlite3

import pytest
from store_helpers import add_turn, fact

from brain.store import full_text, items
from brain.store.store import Store
from brain.store.tx import Tx

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


async def test_words_are_found_without_case_and_accents_in_any_script(memory_store: Store) -> None:
    texts = ["Straße ÉCLAIR", "Привет Ёлка", "Καλημέρα Ἀθῆναι", "お茶 をください", "नमस्ते"]
    for number, text in enumerate(texts):
        await memory_store.write(items.put, "ann", fact(f"i{number}", text))
    words = ["strasse", "eclair", "привет", "елка", "ΚΑΛΗΜΕΡΑ", "αθηναι", "お茶", "नमस्ते"]
    found = [[item.id for item in await memory_store.read(items.list_items, "ann", words=word)] for word in words]
    assert found == [["i0"], ["i0"], ["i1"], ["i1"], ["i2"], ["i2"], ["i3"], ["i4"]]


async def test_no_user_writes_terms_for_another(memory_store: Store) -> None:
    planted = " ".join(f"{OTHER_LETTER}{term}" for term in TERMS)
    await add_turn(memory_store, "ann", "c", "I like tea")
    await memory_store.write(items.put, "ann", fact("a", "I like tea"))
    await add_turn(memory_store, "eve", "d", planted)
    await memory_store.write(items.put, "eve", fact("e", planted))
    assert await memory_store.list_conversations("ann", words="penicillin") == []
    assert await memory_store.read(items.search, "ann", "penicillin", kinds=("fact", "memory"), limit=9) == []


async def test_whatever_is_in_the_index_no_user_finds_what_is_anothers(memory_store: Store) -> None:
    def plant(tx: Tx) -> None:
        tx.execute("UPDATE item_words SET words = ?", (" ".join(TERMS),))
        tx.execute("UPDATE exchange_words SET words = ?", (" ".join(TERMS),))

    for user in ("ann", "eve"):
        await add_turn(memory_store, user, f"c-{user}", "I like tea")
        await memory_store.write(items.put, user, fact(f"f-{user}", "I like tea"))
        assert len(await memory_store.list_conversations(user, words="tea")) == 1
    await memory_store.write(plant)
    for user in ("ann", "eve"):
        assert [one.id for one in await memory_store.list_conversations(user, words="penicillin")] == [f"c-{user}"]
        assert [one.id for one in await memory_store.read(items.list_items, user, words="penicillin")] == [f"f-{user}"]
