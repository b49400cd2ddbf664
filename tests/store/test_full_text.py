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


async def test_any_part_of_a_text_without_spaces_is_found(store: Store) -> None:
    texts = ["お茶をください", "绿茶好喝", "茶", "한국어", "𠀀𠀁", "𠀁", "\u4e00\u4e10"]
    for number, text in enumerate(texts):
        await store.write(items.put, "ann", fact(f"i{number}", text))
        await add_turn(store, "ann", f"c{number}", text, number=number)
    for word, expected in {
        "茶": [0, 1, 2], "い": [0], "ください": [0], "お茶を": [0], "をお": [], "好喝": [1], "绿好": [], "喝好": [],
        "국어": [3], "𠀀": [4], "𠀁": [4, 5], "\u4e01": [], "\u4e10": [6], "茶 好": [1],
    }.items():  # fmt: skip
        found = await store.read(items.list_items, "ann", words=word)
        if " " not in word:  # items with any of the words are found
            assert {one.id for one in found} == {f"i{number}" for number in expected}, word
        listed = await store.list_conversations("ann", words=word)
        assert {one.id for one in listed} == {f"c{number}" for number in expected}, word


def test_no_stemmer_changes_terms_of_pairs() -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE t USING fts5 (words, tokenize = 'porter unicode61 remove_diacritics 2')")
    db.execute("CREATE VIRTUAL TABLE term USING fts5vocab (t, row)")
    terms = full_text.index_terms("7q", "".join(map(chr, range(0x4E00, 0x9FFF))))
    db.execute("INSERT INTO t (words) VALUES (?)", (terms,))
    assert {term for (term,) in db.execute("SELECT term FROM term")} == set(terms.split())
    db.close()


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
