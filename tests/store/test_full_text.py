"""The words of the index: whatever a user writes, its terms are that user's, and all databases find the same."""

import random
import re
import sqlite3
import unicodedata
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from store_helpers import NOON, add_turn, fact

from brain.messages import Kind
from brain.runtime import import_sanitizer
from brain.store import conversations, full_text, items
from brain.store.store import Store
from brain.store.tx import Index, Tx

pytestmark = pytest.mark.anyio

OTHER_LETTER = "\u19b0"
"""A letter to Python that is none to SQLite."""
BOTH: tuple[Kind, ...] = ("fact", "memory")
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


async def test_words_are_found_in_other_forms(store: Store) -> None:
    forms = {
        "running": "runs", "penicillins": "penicillin", "nationalization": "nationally", "hopping": "hopped",
        "technological": "technology", "apologies": "apology", "assembled": "assemblies", "feasible": "feasibly",
        "biology": "biologies", "ponies": "pony", "Arztes": "arzte",
    }  # fmt: skip
    for number, text in enumerate(forms):
        await add_turn(store, "ann", f"c{number}", text)
    found = [await store.list_conversations("ann", words=word) for word in forms.values()]
    assert [[one.id for one in some] for some in found] == [[f"c{number}"] for number in range(len(forms))]


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


async def test_a_text_of_any_length_is_found_by_its_first_words(store: Store) -> None:
    rng = random.Random(7)
    texts = {
        "pairs": "".join(chr(0x4E00 + rng.randrange(20_000)) for _ in range(120_000)),
        "words": " ".join(f"{rng.randrange(10**9)}" for _ in range(12_000)),
        "word": "xyz" * 40_000,
        "spelled": "Ж" * 120_000,
    }
    for name, text in texts.items():
        await add_turn(store, "ann", name, text, text)
    for name, text in texts.items():
        assert [one.id for one in await store.list_conversations("ann", words=text[:70])] == [name]
        assert [one.id for one in await store.list_conversations("ann", words=text[:3])] == [name]


OTHER_TEXTS = """
Je préfère l'été à l'hiver; ça coûte 3,50 € à Besançon. Où êtes-vous né, Zoë? Le cœur a ses raisons.
Übermäßige Größe: die Straßen von Köln und Düsseldorf, 12.345 Einwohner, Maße 3x4 und 10kg.
Příliš žluťoučký kůň úpěl ďábelské ódy. Zażółć gęślą jaźń. Iğdır'da ılık bir akşam.
Привет, как дела? Ёлка и ёжик, 25 рублей. Καλημέρα κόσμε, Ἀθῆναι. שלום עולם. مرحبا بالعالم. नमस्ते दुनिया. สวัสดีชาวโลก
今天北京的天气很好，我们去公园吧。我住在上海，喜欢喝绿茶。北京大学在海淀区。
昨日は東京で寿司を食べました。ｶﾀｶﾅとカタカナ。すもももももももものうち。한국어는 재미있어요. 서울에 살아요.
v1.2.3 R2-D2 COVID-19 C3PO 007 1e9 0x1F 2026-11-29 14:30 foo_bar snake_case_name a.b.c user@example.org x²+y² ½
""".strip().splitlines()


def read_texts() -> list[str]:
    pages = sorted((Path(__file__).parents[2] / "docs").glob("how-to/*.md"))
    paragraphs = [one for page in pages for one in page.read_text("utf-8").split("\n\n") if len(one) > 60]
    return [*paragraphs[:: len(paragraphs) // 140], *OTHER_TEXTS * 3]


def records(texts: list[str]) -> Iterator[dict[str, Any]]:
    yield {"kind": "brain", "version": 2}
    for n, text in enumerate(texts):
        times = {"created": NOON + timedelta(minutes=n), "started": NOON + timedelta(minutes=n)}
        yield {"kind": "conversation", "id": f"c{n}", "title": text[:40], "created": times["created"].isoformat()}
        yield {
            "kind": "exchange", "conversation": f"c{n}", "question_id": "q", "answer_id": "a", "message": text,
            "question": text, "started": times["started"].isoformat(), "outcome": "complete",
            "parts": [{"type": "text", "text": texts[n * 7 % len(texts)], "turn_pass": 1}],
        }  # fmt: skip
    for n, text in enumerate(texts):
        time = (NOON + timedelta(minutes=n)).isoformat()
        kind = "fact" if n % 3 else "memory"
        yield {"kind": "item", "type": kind, "id": f"i{n}", "text": text[:300], "created": time, "updated": time}


def draw_searches(texts: list[str], count: int) -> Iterator[str]:
    """Words of texts as people type them: beginnings, other forms, without accents; some do not occur."""
    rng = random.Random(400)
    for _ in range(count):
        words = []
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
            word = rng.choice(re.findall(r"\S+", rng.choice(texts)))
            match rng.randrange(8):
                case 0:
                    word = word[: rng.randrange(1, 6)]
                case 1:
                    word = word.rstrip("seding") + rng.choice(("s", "ed", "ing", "ly", "es", "ation", "y", ""))
                case 2:
                    word = word.upper()
                case 3:
                    word = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFD", word))
                case 4 if full_text.has_pairs(word):
                    start = rng.randrange(len(word))
                    word = word[start : start + rng.randrange(1, 5)]
            words.append(word)
        yield " ".join(words)


async def test_all_databases_find_the_same_in_the_same_order(shared_store: Store, memory_store: Store) -> None:
    texts = read_texts()
    searches = list(draw_searches(texts, 400))

    def find(tx: Tx) -> list[Any]:
        return [
            (
                words,
                [(one.id, one.excerpt) for one in conversations.list_conversations(tx, "ann", words, None, 200)],
                [one.id for one in items.list_items(tx, "ann", words=words, limit=200)],
                [(one.id, round(score, 9)) for one, score in items.search(tx, "ann", words, kinds=BOTH, limit=30)],
            )
            for words in searches
        ]

    for store in (shared_store, memory_store):
        await store.import_user("ann", records(texts), import_sanitizer)
        await store.list_conversations("ann", words="index")
    found, expected = [await store.search(find) for store in (shared_store, memory_store)]
    assert [one for one, other in zip(found, expected, strict=True) if one != other] == []
    assert sum(bool(listed) for _, listed, _, _ in found) > 300
