"""Facts and memories: written, read, and found by words."""

import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Any

from brain.errors import BadRequest
from brain.messages import Category, Item, Kind
from brain.store import exchanges, rows, search_terms, users

KINDS: Sequence[Kind] = ("fact", "memory")
RANKED_MOST = 200
"""So many are ranked by words before they are listed."""
SCORED_LEAST = 100
"""Of so many the length counts, too; of others only the words that they have."""
WORDS_MOST, HITS_MOST = 12, 500
"""So many words of a text are looked for, and so many items with each: who keeps much is not searched for longer."""
CANDIDATES_MOST = 500
"""From so many items on, further words find no more."""
COUNTED_MOST = 10_000
"""Where there are more items, they weigh a word no more than so many."""
SATURATION, LENGTH_SHARE, LENGTH_USUAL = 1.2, 0.75, 12
"""BM25's k1 and b, and the length in words of a usual fact."""

ALIKE_SHARE = 0.5
"""What a word counts that only begins like the one looked for, as `allergic` like `allergies`."""

_NEWEST = "ORDER BY i.created DESC, i.key DESC"


def list_items(
    db: sqlite3.Connection,
    user: str,
    kind: Kind | None,
    category: Category | None,
    text: str,
    before: str | None,
    limit: int,
) -> list[Item]:
    """The items of a user, newest first; with a text those in which its words stand, best first.

    Raises:
        BadRequest: when there is no item `before`.
    """
    number = users.find(db, user)
    if number is None:
        return []
    if text:
        kinds = KINDS if kind is None else (kind,)
        ranked = [item for item, _ in search(db, user, text, kinds, RANKED_MOST)]
        fitting = [item for item in ranked if category in (None, item.category)]
        ids = [item.id for item in fitting]
        start = 0 if before is None else _index_in(ids, before) + 1
        return fitting[start : start + limit]
    page = (2**62, 0) if before is None else _place(db, number, before)
    wanted = {"i.kind = ?": kind, "i.category = ?": category}
    given = {clause: value for clause, value in wanted.items() if value is not None}
    clauses = " AND ".join(("i.user = ?", "(i.created, i.key) < (?, ?)", *given))
    found = db.execute(
        f"SELECT {rows.ITEM} FROM {rows.ITEMS} WHERE {clauses} {_NEWEST}", (number, *page, *given.values())
    )
    return list(islice(rows.readable(rows.read_item, found), limit))


def find(db: sqlite3.Connection, user: str, item_id: str) -> Item | None:
    """The item of this id."""
    row = db.execute(
        f"SELECT {rows.ITEM} FROM {rows.ITEMS} WHERE i.user = ? AND i.id = ?", (users.find(db, user), item_id)
    ).fetchone()
    return None if row is None else rows.read_item(row)


def memory_of(db: sqlite3.Connection, user: str, conversation_id: str) -> Item | None:
    """What sums up a conversation."""
    number = users.find(db, user)
    which = "(SELECT memory FROM conversation WHERE user = ? AND id = ?)"
    query = f"SELECT {rows.ITEM} FROM {rows.ITEMS} WHERE i.user = ? AND i.key = {which}"
    row = db.execute(query, (number, number, conversation_id)).fetchone()
    return None if row is None else rows.read_item(row)


def put(db: sqlite3.Connection, user: str, item: Item) -> int:
    """Writes an item, in the place of that of the same id if there is one; its key.

    Raises:
        BadRequest: `too_large`, when the user keeps too much.
    """
    number = users.add(db, user)
    key, conversation = write(db, number, number, item)
    users.check_quota(db, number, "text", conversation=conversation)
    return key


def write(db: sqlite3.Connection, user: int, target: int, item: Item) -> tuple[int, int | None]:
    """The same without looking at how much is kept: its key, and the conversation in which it was said.

    Args:
        target: who will find it by its words.
    """
    found = db.execute(
        "SELECT c.key, (SELECT e.key FROM exchange e WHERE e.key BETWEEN c.key << 32 AND (c.key + 1) << 32 "
        "AND e.question_id = ? ORDER BY e.key DESC LIMIT 1) "
        "FROM conversation c WHERE c.user IN (?, ?) AND c.id = ? ORDER BY c.user <> ? LIMIT 1",
        (item.message_id, user, target, item.conversation_id, user),
    ).fetchone()
    conversation, exchange = (None, None) if found is None else found
    columns = rows.item_columns(item) | {"user": user, "conversation": conversation, "exchange": exchange}
    assigned = ", ".join(f"{column} = excluded.{column}" for column in columns)
    marks = ", ".join("?" * len(columns))
    ((key,),) = db.execute(
        f"INSERT INTO item ({', '.join(columns)}) VALUES ({marks}) "
        f"ON CONFLICT (user, id) DO UPDATE SET {assigned} RETURNING key",
        tuple(columns.values()),
    ).fetchall()
    terms = search_terms.indexed(owner(target, item.kind), item.text)
    db.execute("INSERT OR REPLACE INTO item_words (rowid, words) VALUES (?, ?)", (key, terms))
    return int(key), conversation


def erase(db: sqlite3.Connection, user: str, item_id: str) -> bool:
    """Remove an item, also from the questions for which it was recalled; whether there was one."""
    number = users.find(db, user)
    recalled = db.execute(
        "SELECT e.key, e.data FROM conversation c JOIN exchange e INDEXED BY exchange_recalled "
        "ON e.key BETWEEN c.key << 32 AND (c.key + 1) << 32 "
        "WHERE c.user = ? AND e.recalled_ids <> '[]' AND instr(e.recalled_ids, ?)",
        (number, rows.encode(item_id)),
    ).fetchall()
    for row in recalled:
        for exchange in rows.readable(rows.read_exchange, [row]):
            exchanges.remove_recalled(exchange)  # later turns would read it again
            exchanges.write(db, row[0], exchange)
    return db.execute("DELETE FROM item WHERE user = ? AND id = ?", (number, item_id)).rowcount > 0


def search(db: sqlite3.Connection, user: str, text: str, kinds: Sequence[Kind], limit: int) -> list[tuple[Item, float]]:
    """Those in which any word of a text stands, best first, by BM25 among the items of this user alone.

    FTS5's own `bm25` would count the items of all users, and takes words for worthless that stand in most of a few.
    The rarest words come first. Once they have found enough items, more frequent ones only add to the scores of these.
    """
    number = users.find(db, user)
    if number is None:
        return []
    counted = "SELECT count(*) FROM (SELECT 1 FROM item WHERE user = ? LIMIT ?)"
    ((count,),) = db.execute(counted, (number, COUNTED_MOST))
    owners = [owner(number, kind) for kind in kinds]
    found = search_terms.searched(text)
    if len(found) > WORDS_MOST:
        found = _rarest(db, owners, found)
    hidden = db.execute("SELECT 1 FROM user WHERE hidden > 0 AND target = ?", (number,)).fetchone()
    visible_to = None if hidden is None else number  # items of an import may be hidden under the same terms
    hits = [(some, share) for word in found for some, share in _hits_of(db, visible_to, owners, word)]
    weights: dict[int, float] = {}
    for some, share in sorted(hits, key=lambda pair: len(pair[0])):
        weight = share * math.log(1 + (count - len(some) + 0.5) / (len(some) + 0.5))
        for key in some if len(weights) < CANDIDATES_MOST else some & weights.keys():
            weights[key] = weights.get(key, 0.0) + weight
    best = nlargest(max(limit, SCORED_LEAST), weights, key=weights.__getitem__)
    marks = ", ".join("?" * len(best))
    texts = db.execute(f"SELECT key, text FROM item WHERE +user = ? AND key IN ({marks})", (number, *best))
    scores = {key: weights[key] * _shortness(text) for key, text in texts}
    first = nlargest(limit, (key for key in best if key in scores), key=scores.__getitem__)
    return [(item, scores[key]) for key, item in of_keys(db, number, first)]


def _hits_of(
    db: sqlite3.Connection, visible_to: int | None, owners: Sequence[str], word: str
) -> Iterator[tuple[frozenset[int], float]]:
    """The items in which a word stands, and those in which one only begins like it; each with what that counts."""
    exact = _hits(db, visible_to, search_terms.query(owners, word))
    yield exact, 1.0
    begun = search_terms.stem(word)
    if begun != word and len(exact) < HITS_MOST:
        yield _hits(db, visible_to, search_terms.query(owners, begun, begun=True)) - exact, ALIKE_SHARE


def _rarest(db: sqlite3.Connection, owners: Sequence[str], found: Sequence[str]) -> list[str]:
    """The words that tell most, in a question of many: those that stand in the fewest items, but in one at least."""
    counts = {}
    for word in found:
        there = _count(db, search_terms.query(owners, word)) or _count(
            db, search_terms.query(owners, search_terms.stem(word), begun=True)
        )
        if there:
            counts[word] = there
    return nsmallest(WORDS_MOST, counts, key=counts.__getitem__)


def _count(db: sqlite3.Connection, query: str) -> int:
    """In how many items a word stands, up to a bound."""
    counted = "SELECT count(*) FROM (SELECT 1 FROM item_words WHERE item_words MATCH ? LIMIT ?)"
    ((count,),) = db.execute(counted, (query, 2 * HITS_MOST))
    return int(count)


def _hits(db: sqlite3.Connection, visible_to: int | None, query: str) -> frozenset[int]:
    """The newest items in which a word of one user stands: the terms of the index are that user's own.

    Args:
        visible_to: whose they must be, too; None where nothing is hidden under these terms.
    """
    visible = "" if visible_to is None else "AND (SELECT user FROM item WHERE key = item_words.rowid) = ? "
    given = (query, HITS_MOST) if visible_to is None else (query, visible_to, HITS_MOST)
    newest = f"SELECT rowid FROM item_words WHERE item_words MATCH ? {visible}ORDER BY rowid DESC LIMIT ?"
    ((keys,),) = db.execute(f"SELECT group_concat(rowid) FROM ({newest})", given)
    return frozenset(map(int, keys.split(","))) if keys else frozenset()


def of_keys(db: sqlite3.Connection, user: int, keys: Sequence[int]) -> Iterator[tuple[int, Item]]:
    """The user's items of these keys, in their order, each with its key."""
    marks = ", ".join("?" * len(keys))
    query = f"SELECT i.key, {rows.ITEM} FROM {rows.ITEMS} WHERE +i.user = ? AND i.key IN ({marks})"
    items = dict(rows.readable(_keyed, db.execute(query, (user, *keys))))
    return ((key, items[key]) for key in keys if key in items)


def _keyed(row: Sequence[Any]) -> tuple[int, Item]:
    return row[0], rows.read_item(row[1:])


def owner(user: int, kind: Kind) -> str:
    """What stands before each word of a user's facts, or memories, in the index."""
    return f"{user}{kind[0]}"


def _shortness(text: str) -> float:
    """How much a word counts in a text: less in a long one."""
    length = len(text.split()) / LENGTH_USUAL
    return (SATURATION + 1) / (1 + SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length))


def _index_in(ids: Iterable[str], before: str) -> int:
    for place, item_id in enumerate(ids):
        if item_id == before:
            return place
    raise _no_such_item()


def _place(db: sqlite3.Connection, user: int, item_id: str) -> tuple[Any, ...]:
    row = db.execute("SELECT created, key FROM item WHERE user = ? AND id = ?", (user, item_id)).fetchone()
    if row is None:
        raise _no_such_item()
    return tuple(row)


def _no_such_item() -> BadRequest:
    return BadRequest("before must be the id of an item: that of the last one that was listed.", "before")
