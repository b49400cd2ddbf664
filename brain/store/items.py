"""Reads, writes and searches facts and memories."""

import math
from collections.abc import Iterator, Sequence
from heapq import nlargest, nsmallest

from brain.errors import BadRequest
from brain.messages import Category, Item, Kind
from brain.store import counts, exchanges, full_text, rows, users
from brain.store.tx import Tx

KINDS: Sequence[Kind] = ("fact", "memory")
MAX_RANKED = 200
"""Maximum number of search results."""
MIN_SCORED = 100
"""The text length of at least this many candidates is part of their score."""
MAX_WORDS, MAX_HITS = 12, 500
"""Limits per search of words, and of items per word. They bound the time for users who store a lot."""
MAX_CANDIDATES = 500
"""Once this many candidates are found, further words only add to their scores."""
MAX_COUNTED = 10_000
"""Upper bound of the item count in the weight of a word."""
SATURATION, LENGTH_SHARE, USUAL_LENGTH = 1.2, 0.75, 12
"""k1 and b of BM25, and the typical length of a fact in words."""
PREFIX_SHARE = 0.5
"""Weight of a word that only shares its beginning, such as `allergic` for `allergies`."""

_SELECT = f"SELECT {rows.ITEM} FROM {rows.ITEMS}"


def list_items(
    tx: Tx,
    user: str,
    *,
    kind: Kind | None = None,
    category: Category | None = None,
    words: str = "",
    before: str | None = None,
    limit: int = 50,
) -> list[Item]:
    """List the items of a user, newest first; with words, those with any of them, best first.

    Raises:
        BadRequest: the item `before` does not exist.
    """
    number = users.find(tx, user)
    if number is None:
        return []
    no_such_item = BadRequest("`before` must be the id of the last item that was listed.", "before")
    if words:
        ranked = search(tx, user, words, KINDS if kind is None else (kind,), MAX_RANKED)
        found = [item for item, _ in ranked if category in (None, item.category)]
        places = [place for place, item in enumerate(found) if item.id == before]
        if before is not None and not places:
            raise no_such_item
        start = places[0] + 1 if places else 0
        return found[start : start + limit]
    place = (2**62, 0)
    if before is not None:
        place = tx.execute("SELECT created, key FROM item WHERE account = ? AND id = ?", (number, before)).fetchone()
        if place is None:
            raise no_such_item
    filters = {clause: value for clause, value in (("i.kind = ?", kind), ("i.category = ?", category)) if value}
    clauses = " AND ".join(("i.account = ?", "(i.created, i.key) < (?, ?)", *filters))
    newest = f"{_SELECT} WHERE {clauses} ORDER BY i.created DESC, i.key DESC"
    return rows.read_first(tx, rows.read_item, newest, (number, *place, *filters.values()), limit)


def find(tx: Tx, user: str, item_id: str) -> Item | None:
    """Return the item with this ID."""
    row = tx.execute(f"{_SELECT} WHERE i.account = ? AND i.id = ?", (users.find(tx, user), item_id)).fetchone()
    return None if row is None else rows.read_item(row)


def memory_of(tx: Tx, user: str, conversation_id: str) -> Item | None:
    """Return the summary of a conversation."""
    number = users.find(tx, user)
    query = f"{_SELECT} WHERE i.account = ? AND i.key = (SELECT memory FROM conversation WHERE account = ? AND id = ?)"
    row = tx.execute(query, (number, number, conversation_id)).fetchone()
    return None if row is None else rows.read_item(row)


def put(tx: Tx, user: str, item: Item) -> int:
    """Write an item, replacing one with the same ID; return its key.

    Raises:
        BadRequest: `too_large`, the user's quota is exceeded.
    """
    number = users.add(tx, user)
    key = write(tx, number, item)
    users.check_quota(tx, number, "text")
    return key


def write(tx: Tx, user: int, item: Item, import_key: int | None = None) -> int:
    """Write an item without checking the quota; return its key.

    Args:
        import_key: the import to which it belongs until that ends.
    """
    query = (
        "SELECT c.key, (SELECT e.key FROM exchange e WHERE e.key BETWEEN c.key << 32 AND (c.key + 1) << 32 "
        "AND e.question_id = ? ORDER BY e.key DESC LIMIT 1) "
        "FROM conversation c WHERE c.id = ? AND (c.account = ? OR (c.account IS NULL AND c.import = ?)) "
        "ORDER BY c.account IS NOT NULL LIMIT 1"
    )
    values = item.message_id, item.conversation_id, user, import_key
    found = None if item.conversation_id is None else tx.execute(query, values).fetchone()
    conversation, exchange = (None, None) if found is None else found
    owner = user if import_key is None else None
    columns = rows.item_columns(item) | {"conversation": conversation, "exchange": exchange}
    query = "SELECT key, bytes, kind, text FROM item WHERE account = ? AND id = ?"
    former = tx.execute(query, (owner, item.id)).fetchone()
    if former is None:
        key = exchanges.insert(tx, "item", columns | {"account": owner, "import": import_key})
        counts.change_items(tx, owner, columns["bytes"])
    else:
        key = int(former[0])
        assigned = ", ".join(f"{column} = ?" for column in columns)
        tx.execute(f"UPDATE item SET {assigned} WHERE key = ?", (*columns.values(), key))
        counts.change_items(tx, owner, columns["bytes"] - former[1])
        if former[2:] == (item.kind, item.text):
            return key
        counts.delete_embeddings(tx, key)
        tx.words.remove(tx, "item_words", key)
    index(tx, key, user, item.kind, item.text)
    return key


def index(tx: Tx, key: int, user: int, kind: Kind, text: str) -> None:
    """Index the words of an item for a user."""
    full_text.put(tx, "item_words", key, _term_prefix(user, kind), text)


def erase(tx: Tx, user: str, item_id: str) -> bool:
    """Delete an item, also from questions that recalled it; return whether it existed."""
    number = users.find(tx, user)
    recalled = tx.execute(
        f"SELECT e.key, e.recalled_ids FROM conversation c JOIN exchange e ON {exchanges.IN_CONVERSATION} "
        "WHERE c.account = ? AND e.recalled_ids <> '[]'",
        (number,),
    ).fetchall()
    for key, item_ids in recalled:
        exchange = exchanges.read(tx, key) if rows.encode(item_id) in item_ids else None
        if exchange is not None:
            exchanges.remove_recalled(exchange)  # else later turns read it again
            exchanges.write(tx, key, exchange)
    return counts.delete_items(tx, "account = ? AND id = ?", (number, item_id))


def search(tx: Tx, user: str, text: str, kinds: Sequence[Kind], limit: int) -> list[tuple[Item, float]]:
    """Return items with any word of a text and their scores, best first.

    Rare words come first. Once they find enough items, frequent words only add to the scores of these items.
    """
    number = users.find(tx, user)
    if number is None:
        return []
    query = "SELECT count(*) FROM (SELECT 1 FROM item WHERE account = ? LIMIT ?) found"
    ((count,),) = tx.execute(query, (number, MAX_COUNTED))
    prefixes = [_term_prefix(number, kind) for kind in kinds]
    words = full_text.search_words(text)
    if len(words) > MAX_WORDS:
        words = _rarest(tx, prefixes, words)
    hits = list[tuple[frozenset[int], float]]()
    for word in words:
        exact = full_text.newest(tx, "item_words", full_text.query(tx, prefixes, word), MAX_HITS)
        hits.append((exact, 1.0))
        stem = full_text.stem(word)
        if stem != word and len(exact) < MAX_HITS:
            query = full_text.query(tx, prefixes, stem, is_prefix=True)
            begun = full_text.newest(tx, "item_words", query, MAX_HITS)  # also of an import that has not ended
            hits.append((begun - exact, PREFIX_SHARE))
    weights: dict[int, float] = {}
    for keys, share in sorted(hits, key=lambda hit: len(hit[0])):
        weight = share * math.log(1 + (count - len(keys) + 0.5) / (len(keys) + 0.5))
        for key in keys if len(weights) < MAX_CANDIDATES else keys & weights.keys():
            weights[key] = weights.get(key, 0.0) + weight
    if not weights:
        return []
    best = nlargest(max(limit, MIN_SCORED), weights, key=weights.__getitem__)
    marks = ", ".join("?" * len(best))
    # with the account as a condition, SQLite would read all of its items
    texts = tx.execute(f"SELECT key, account, text FROM item WHERE key IN ({marks})", best)
    scores = {key: weights[key] * _shortness(text) for key, owner, text in texts if owner == number}
    first = nlargest(limit, (key for key in best if key in scores), key=scores.__getitem__)
    return [(item, scores[key]) for key, item in of_keys(tx, number, first)]


def _rarest(tx: Tx, prefixes: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the words with the fewest matches, but at least one."""

    frequent = f"SELECT count(*) FROM (SELECT 1 FROM {tx.words.matching('item_words')} LIMIT ?) found"

    def count(match: str) -> int:
        return int(tx.execute(frequent, (match, 2 * MAX_HITS)).fetchone()[0])

    counts = {}
    for word in words:
        found = count(full_text.query(tx, prefixes, word))
        counts[word] = found or count(full_text.query(tx, prefixes, full_text.stem(word), is_prefix=True))
    return nsmallest(MAX_WORDS, (word for word in words if counts[word]), key=counts.__getitem__)


def of_keys(tx: Tx, user: int, keys: Sequence[int]) -> Iterator[tuple[int, Item]]:
    """Yield the user's items with these keys, in this order, each with its key."""
    if not keys:
        return iter(())
    marks = ", ".join("?" * len(keys))
    found = tx.execute(f"SELECT i.key, i.account, {rows.ITEM} FROM {rows.ITEMS} WHERE i.key IN ({marks})", keys)
    own = (row for row in found if row[1] == user)
    items = dict(rows.readable(lambda row: (int(row[0]), rows.read_item(row[2:])), own))
    return ((key, items[key]) for key in keys if key in items)


def _term_prefix(user: int, kind: Kind) -> str:
    """Return the prefix of index terms for a user's facts or memories."""
    return f"{user}{kind[0]}"


def _shortness(text: str) -> float:
    """Return the length factor of BM25: a word counts less in a long text."""
    length = len(text.split()) / USUAL_LENGTH
    return (SATURATION + 1) / (1 + SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length))
