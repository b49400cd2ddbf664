"""Facts and memories: written, read, and found by words."""

import math
import sqlite3
from collections.abc import Iterator, Sequence
from heapq import nlargest, nsmallest
from itertools import islice

from brain.errors import BadRequest
from brain.messages import Category, Item, Kind
from brain.store import exchanges, rows, search_terms, users

KINDS: Sequence[Kind] = ("fact", "memory")
MAX_RANKED = 200
"""Items that are ranked by words before they are listed."""
MIN_SCORED = 100
"""Items of which the length counts, too; of others only the words that they have."""
MAX_WORDS, MAX_HITS = 12, 500
"""Words of a text that are looked for, and items with each: searches take no longer for a user who stores much."""
MAX_CANDIDATES = 500
"""From so many items on, further words find no more."""
MAX_COUNTED = 10_000
"""Items beyond so many do not change what a word weighs."""
SATURATION, LENGTH_SHARE, USUAL_LENGTH = 1.2, 0.75, 12
"""BM25's k1 and b, and the length in words of a usual fact."""
PREFIX_SHARE = 0.5
"""What a word counts that only begins like the one looked for, as `allergic` like `allergies`."""

_SELECT = f"SELECT {rows.ITEM} FROM {rows.ITEMS}"


def list_items(
    db: sqlite3.Connection,
    user: str,
    kind: Kind | None,
    category: Category | None,
    text: str,
    before: str | None,
    limit: int,
) -> list[Item]:
    """The items of a user, newest first; with a text, those that have any of its words, best first.

    Raises:
        BadRequest: when there is no item `before`.
    """
    number = users.find(db, user)
    if number is None:
        return []
    no_such_item = BadRequest("before must be the id of an item: that of the last one that was listed.", "before")
    if text:
        ranked = search(db, user, text, KINDS if kind is None else (kind,), MAX_RANKED)
        found = [item for item, _ in ranked if category in (None, item.category)]
        places = [place for place, item in enumerate(found) if item.id == before]
        if before is not None and not places:
            raise no_such_item
        start = places[0] + 1 if places else 0
        return found[start : start + limit]
    place = (2**62, 0)
    if before is not None:
        place = db.execute("SELECT created, key FROM item WHERE user = ? AND id = ?", (number, before)).fetchone()
        if place is None:
            raise no_such_item
    filters = {clause: value for clause, value in (("i.kind = ?", kind), ("i.category = ?", category)) if value}
    clauses = " AND ".join(("i.user = ?", "(i.created, i.key) < (?, ?)", *filters))
    newest = f"{_SELECT} WHERE {clauses} ORDER BY i.created DESC, i.key DESC"
    return list(islice(rows.readable(rows.read_item, db.execute(newest, (number, *place, *filters.values()))), limit))


def find(db: sqlite3.Connection, user: str, item_id: str) -> Item | None:
    """The item with this ID."""
    row = db.execute(f"{_SELECT} WHERE i.user = ? AND i.id = ?", (users.find(db, user), item_id)).fetchone()
    return None if row is None else rows.read_item(row)


def memory_of(db: sqlite3.Connection, user: str, conversation_id: str) -> Item | None:
    """The memory of a conversation."""
    number = users.find(db, user)
    query = f"{_SELECT} WHERE i.user = ? AND i.key = (SELECT memory FROM conversation WHERE user = ? AND id = ?)"
    row = db.execute(query, (number, number, conversation_id)).fetchone()
    return None if row is None else rows.read_item(row)


def put(db: sqlite3.Connection, user: str, item: Item) -> int:
    """Write an item, instead of the one with the same ID if there is one; returns its key.

    Raises:
        BadRequest: `too_large`, when the user stores too much.
    """
    number = users.add(db, user)
    key, conversation = write(db, number, number, item)
    users.check_quota(db, number, "text", conversation=conversation)
    return key


def write(db: sqlite3.Connection, user: int, target: int, item: Item) -> tuple[int, int | None]:
    """The same without checking how much is stored; returns its key, and that of the conversation that it quotes.

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
    terms = search_terms.index_terms(_term_prefix(target, item.kind), item.text)
    db.execute("INSERT OR REPLACE INTO item_words (rowid, words) VALUES (?, ?)", (key, terms))
    return int(key), conversation


def erase(db: sqlite3.Connection, user: str, item_id: str) -> bool:
    """Delete an item, also from the questions for which it was recalled; whether there was one."""
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
    """The items that have any of the words of a text, best first, with their scores.

    The rarest words come first. Once they have found enough items, more frequent ones only add to the scores of these.
    """
    number = users.find(db, user)
    if number is None:
        return []
    query = "SELECT count(*) FROM (SELECT 1 FROM item WHERE user = ? LIMIT ?)"
    ((count,),) = db.execute(query, (number, MAX_COUNTED))
    prefixes = [_term_prefix(number, kind) for kind in kinds]
    words = search_terms.search_words(text)
    if len(words) > MAX_WORDS:
        words = _rarest(db, prefixes, words)
    importing = db.execute("SELECT 1 FROM user WHERE hidden > 0 AND target = ?", (number,)).fetchone()
    visible_to = None if importing is None else number  # items of an import are hidden under the same terms
    hits = list[tuple[frozenset[int], float]]()
    for word in words:
        exact = _hits(db, visible_to, search_terms.query(prefixes, word))
        hits.append((exact, 1.0))
        stem = search_terms.stem(word)
        if stem != word and len(exact) < MAX_HITS:
            hits.append(
                (_hits(db, visible_to, search_terms.query(prefixes, stem, is_prefix=True)) - exact, PREFIX_SHARE)
            )
    weights: dict[int, float] = {}
    for keys, share in sorted(hits, key=lambda hit: len(hit[0])):
        weight = share * math.log(1 + (count - len(keys) + 0.5) / (len(keys) + 0.5))
        for key in keys if len(weights) < MAX_CANDIDATES else keys & weights.keys():
            weights[key] = weights.get(key, 0.0) + weight
    best = nlargest(max(limit, MIN_SCORED), weights, key=weights.__getitem__)
    marks = ", ".join("?" * len(best))
    texts = db.execute(f"SELECT key, text FROM item WHERE +user = ? AND key IN ({marks})", (number, *best))
    scores = {key: weights[key] * _shortness(text) for key, text in texts}
    first = nlargest(limit, (key for key in best if key in scores), key=scores.__getitem__)
    return [(item, scores[key]) for key, item in of_keys(db, number, first)]


def _rarest(db: sqlite3.Connection, prefixes: Sequence[str], words: Sequence[str]) -> list[str]:
    """The words that say most, in a question of many: those of the fewest items, but of one at least."""

    def count(match: str) -> int:
        query = "SELECT count(*) FROM (SELECT 1 FROM item_words WHERE item_words MATCH ? LIMIT ?)"
        return int(db.execute(query, (match, 2 * MAX_HITS)).fetchone()[0])

    counts = {}
    for word in words:
        found = count(search_terms.query(prefixes, word))
        counts[word] = found or count(search_terms.query(prefixes, search_terms.stem(word), is_prefix=True))
    return nsmallest(MAX_WORDS, (word for word in words if counts[word]), key=counts.__getitem__)


def _hits(db: sqlite3.Connection, visible_to: int | None, match: str) -> frozenset[int]:
    """The newest items that have a word of one user: the terms of the index are that user's own.

    Args:
        visible_to: to whom they must belong, too; None where nothing is hidden under these terms.
    """
    visible = "" if visible_to is None else "AND (SELECT user FROM item WHERE key = item_words.rowid) = ? "
    values = (match, MAX_HITS) if visible_to is None else (match, visible_to, MAX_HITS)
    newest = f"SELECT rowid FROM item_words WHERE item_words MATCH ? {visible}ORDER BY rowid DESC LIMIT ?"
    ((keys,),) = db.execute(f"SELECT group_concat(rowid) FROM ({newest})", values)
    return frozenset(map(int, keys.split(","))) if keys else frozenset()


def of_keys(db: sqlite3.Connection, user: int, keys: Sequence[int]) -> Iterator[tuple[int, Item]]:
    """The user's items with these keys, in their order, each with its key."""
    marks = ", ".join("?" * len(keys))
    query = f"SELECT i.key, {rows.ITEM} FROM {rows.ITEMS} WHERE +i.user = ? AND i.key IN ({marks})"
    items = dict(rows.readable(lambda row: (int(row[0]), rows.read_item(row[1:])), db.execute(query, (user, *keys))))
    return ((key, items[key]) for key in keys if key in items)


def _term_prefix(user: int, kind: Kind) -> str:
    """What each word of a user's facts, or memories, begins with in the index."""
    return f"{user}{kind[0]}"


def _shortness(text: str) -> float:
    """How much a word counts in a text: less in a long one."""
    length = len(text.split()) / USUAL_LENGTH
    return (SATURATION + 1) / (1 + SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length))
