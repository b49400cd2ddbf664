"""After any changes, counts are those of the rows, and words and embeddings are those of the texts."""

import io
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_helpers import TOMORROW, Clock, DatabasePlace, answer, fact, file, lose_turns, memory, question, store_at

from brain.errors import BadRequest
from brain.messages import Kind, Text
from brain.runtime import import_sanitizer
from brain.store import conversations, deletion, exchanges, items, schema, transfer, turns, vectors
from brain.store.sqlite.database import SQLite
from brain.store.store import Store
from brain.store.turns import QuestionOptions
from brain.store.tx import Tx
from brain.store.vectors import ItemEmbedding

pytestmark = pytest.mark.anyio

STEPS = (
    *("turn", "turn", "turn", "long turn", "running", "dropped", "failed", "report", "replace", "replace", "claim"),
    *("fact", "fact", "fact", "memory", "erase", "embed", "embed", "summarize", "rename", "rename"),
    *("index", "index", "index", "index", "delete", "forget", "import", "import begun", "remove some"),
)
Steps = list[tuple[str, bool, int]]
ANY_STEPS = st.lists(st.tuples(st.sampled_from(STEPS), st.booleans(), st.integers(0, 13)), min_size=20, max_size=60)
WRONG = """
SELECT 'conversation ' || id FROM conversation c LEFT JOIN (
    SELECT key >> 32 AS conversation, sum(bytes) AS bytes, sum(messages) AS messages, sum(in_history) AS history
    FROM exchange GROUP BY 1
) e ON e.conversation = c.key
WHERE c.bytes <> coalesce(e.bytes, 0) OR c.messages <> coalesce(e.messages, 0) OR c.history <> coalesce(e.history, 0)
UNION ALL SELECT 'time of conversation ' || id FROM conversation c
    JOIN exchange e ON e.key = (SELECT max(key) FROM exchange WHERE key >> 32 = c.key)
    WHERE e.ended IS NOT NULL AND c.updated <> e.ended
UNION ALL SELECT 'account ' || key FROM account a WHERE bytes <>
    (SELECT coalesce(sum(bytes), 0) FROM conversation WHERE account = a.key) +
    (SELECT coalesce(sum(bytes), 0) FROM item WHERE account = a.key)
UNION ALL SELECT 'exchange ' || key FROM exchange WHERE key >> 32 NOT IN (SELECT key FROM conversation)
UNION ALL SELECT 'words of ' || w.{key} FROM exchange_words w
    WHERE w.{key} NOT IN (SELECT key FROM exchange) AND w.{key} NOT IN (SELECT key << 32 FROM conversation)
UNION ALL SELECT 'words of item ' || w.{key} FROM item_words w WHERE w.{key} NOT IN (SELECT key FROM item)
UNION ALL SELECT 'no words of item ' || key FROM item WHERE key NOT IN (SELECT w.{key} FROM item_words w)
UNION ALL SELECT 'embedding of item ' || i.key FROM item i LEFT JOIN embedding e ON e.item = i.key
    WHERE i.embedded <> coalesce(e.model, '') OR e.account <> i.account OR e.kind <> i.kind
"""


class Seen:
    """What a user sees who looks after each change."""

    def __init__(self, store: Store) -> None:
        self._is_sqlite = isinstance(store.database, SQLite)
        self._key = "rowid" if self._is_sqlite else "key"  # of the full-text indexes
        self._revisions: dict[tuple[int, int], set[Any]] = {}
        self._removed = 0
        self._words = dict[tuple[str, int], str]()

    async def check(self, store: Store) -> None:
        await store.read(self._check)

    def _check(self, tx: Tx) -> None:
        assert tx.execute(WRONG.format(key=self._key)).fetchall() == []
        for key, revision in tx.execute("SELECT key, revision FROM account").fetchall():
            signs = set(tx.execute("SELECT item, kind, signs FROM embedding WHERE account = ?", (key,)).fetchall())
            assert self._revisions.setdefault((key, revision), signs) == signs
        for text, signs in tx.execute("SELECT i.text, e.signs FROM embedding e JOIN item i ON i.key = e.item"):
            assert f"word{signs[0]}" == text
        words = {
            (index, key): text
            for index in ("exchange_words", "item_words")
            for key, text in tx.execute(f"SELECT {self._key}, words FROM {index}").fetchall()
        }
        if self._is_sqlite:  # which must know that it has traces to remove
            ((removed,),) = tx.execute("SELECT removed FROM leftover").fetchall()
            assert removed > self._removed or self._words.items() <= words.items()
            self._removed, self._words = removed, words


def embed(text: str) -> ItemEmbedding:
    """Return a vector whose signs are the number in a text."""
    number = int(text.removeprefix("word"))
    return ItemEmbedding([1.0 if number >> place & 1 else -1.0 for place in range(8)])


async def change(store: Store, step: str, user: str, other: str, number: int) -> None:
    name, text = f"c{number % 2}", f"word{number}"

    async def begin(**options: Any) -> Any:
        asked = question(text, number, source="report" if step == "report" else "chat")
        long = step == "long turn"
        asked.message += " long" * 600 * long
        return await store.write_question(user, name, asked, [file(b"x" * 99)] * long, QuestionOptions(**options))

    match step:
        case "turn" | "long turn":
            await store.end(await begin(), answer(text, number))
        case "running":
            history = await begin()
            so_far = msgspec.structs.replace(history.question, parts=[Text(text, 1)])
            await store.write(turns.checkpoint, history, 1, so_far)
        case "dropped":
            await store.drop(await begin())
        case "failed":
            await store.end(await begin(), answer([], number, "failed"))
        case "report":
            await store.end(await begin(), answer(text, number, "interrupted"))
        case "replace":
            history = await begin(replaces=f"q{number - 1 - number % 2}")
            await store.end(history, answer(text if number % 3 else [], number))
        case "fact":
            await store.write(items.put, user, fact(f"i{number % 3}", f"word{number % 4}", conversation_id=name))
        case "memory":
            await store.write(items.put, user, memory(f"m{number % 3}", text, conversation_id=name))
        case "erase":
            await store.write(items.erase, user, f"i{number % 3}")
        case "embed":
            lacking = await store.read(vectors.lacking, "m", 2)
            await store.write(
                vectors.write, [(owner, one.id, one.text, embed(one.text)) for owner, one in lacking], "m"
            )
        case "summarize":
            for idle in await store.write(conversations.claim_idle, TOMORROW, 2):
                await store.write(conversations.set_memory, idle, memory(f"m{number % 3}", text))
        case "rename":
            await store.write(conversations.rename, user, name, text)
        case "index":
            await store.write(exchanges.index_some)
        case "delete":
            await store.write(conversations.delete, user, name)
        case "forget":
            await store.write(conversations.delete_user, user)
        case "import" | "import begun":
            lines = io.BytesIO()
            await transfer.check([record async for record in store.export(other)], lines)
            lines.seek(0)
            new = transfer.Import(user, lines, import_sanitizer)
            await store.write(new.begin)
            while await store.write(new.insert_some):
                pass
            if step == "import":
                await store.write(new.end)
        case "remove some":
            await store.write(deletion.remove_some)
        case "claim":
            lose_turns(store)
            await store.write(turns.claim, 5, continues=number % 2 == 0)


def delete_all(tx: Tx) -> None:
    for table in (*(schema.TABLES.keys() - {"server_value", "leftover"}), "exchange_words", "item_words"):
        tx.execute(f"DELETE FROM {table}")


@settings(max_examples=80)
@given(ANY_STEPS)
async def test_counts_are_those_of_the_rows(steps: Steps) -> None:
    await play(None, steps)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANY_STEPS)
async def test_counts_are_those_of_the_rows_of_a_shared_database(shared_place: DatabasePlace, steps: Steps) -> None:
    await play(shared_place, steps)


async def play(place: DatabasePlace | None, steps: Steps) -> None:
    async with store_at(place, Clock()) as store:
        await store.write(delete_all)  # of the example before
        seen = Seen(store)
        for step, is_first, number in steps:
            user, other = ("ada", "bob") if is_first else ("bob", "ada")
            with suppress(BadRequest):
                await change(store, step, user, other, number)
            await seen.check(store)


@pytest.mark.parametrize("kind", ["fact", "memory"])
async def test_an_item_that_is_the_same_stays_embedded(store: Store, kind: Kind) -> None:
    one = {"fact": fact, "memory": memory}[kind]("i1", "I like jazz")
    await store.write(items.put, "ada", one)
    await store.write(vectors.write, [("ada", "i1", "I like jazz", ItemEmbedding([1.0]))], "m")
    await store.write(items.put, "ada", one)
    assert await store.read(vectors.lacking, "m", 5) == []
