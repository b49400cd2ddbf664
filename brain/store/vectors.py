"""Stores embeddings of items, and finds the nearest."""

import struct
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from operator import mul
from typing import Any

from brain.messages import Item, Kind
from brain.store import counts, items, rows, users
from brain.store.tx import Tx

RESCORED = 100
"""Candidates by sign bits whose full vectors are compared."""
MAX_USERS = 64
"""Users in the cache of sign bits."""
_STATISTICS = struct.Struct("<2f")
"""Mean and spread of an item's cosines, after its vector."""
Signs = Mapping[str, Mapping[int, int]]
"""Per kind and item key, the signs of the vector, one bit per dimension."""


@dataclass(frozen=True, slots=True)
class ItemEmbedding:
    """The embedding of an item.

    Attributes:
        mean, spread: Mean and standard deviation of its cosines to unrelated messages.
    """

    vector: Sequence[float]
    mean: float = 0.0
    spread: float = 1.0


@dataclass(frozen=True, slots=True)
class Query:
    """The embedding of a query, and its model."""

    model: str
    vector: Sequence[float]


class SignCache:
    """Caches the signs of users' vectors until one of their items changes."""

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[int, str], tuple[int, Signs]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, tx: Tx, user: int, model: str) -> Signs:
        """Return the signs of a user's vectors of one model."""
        ((revision,),) = tx.execute("SELECT revision FROM account WHERE key = ?", (user,))
        with self._lock:
            cached = self._cache.get((user, model))
        if cached is None or cached[0] != revision:
            signs: dict[str, dict[int, int]] = {}
            query = "SELECT item, kind, signs FROM embedding WHERE account = ? AND model = ?"
            for item, kind, bits in tx.execute(query, (user, model)):
                signs.setdefault(kind, {})[item] = int.from_bytes(bits, "little")
            cached = revision, signs
        with self._lock:
            self._cache[user, model] = cached
            self._cache.move_to_end((user, model))
            if len(self._cache) > MAX_USERS:
                self._cache.popitem(last=False)
        return cached[1]


def search(
    tx: Tx, user: str, query: Query, kinds: Collection[Kind], limit: int, cache: SignCache
) -> list[tuple[Item, float, float, float]]:
    """Return the items with the nearest vectors, nearest first.

    Args:
        query: A vector of length 1.

    Returns:
        Each item with its cosine, and with the mean and spread of its cosines to unrelated messages.
    """
    number = users.find(tx, user)
    if number is None:
        return []
    vector = query.vector
    signs = int.from_bytes(_signs(vector), "little")
    cached = cache.get(tx, number, query.model)
    distances = (((other ^ signs).bit_count(), key) for kind in kinds for key, other in cached.get(kind, {}).items())
    keys = [key for _, key in nsmallest(max(limit, RESCORED), distances)]
    if not keys:
        return []
    marks = ", ".join("?" * len(keys))
    found = tx.execute(
        f"SELECT item, value FROM embedding WHERE account = ? AND model = ? AND item IN ({marks})",
        (number, query.model, *keys),
    )
    stored = struct.Struct(f"<{len(vector)}e")
    values = {key: value for key, value in found if len(value) == stored.size + _STATISTICS.size}
    cosines = {key: sum(map(mul, vector, stored.unpack_from(value))) for key, value in values.items()}
    nearest = sorted(cosines, key=lambda key: -cosines[key])[:limit]
    return [
        (item, cosines[key], *_STATISTICS.unpack_from(values[key], stored.size))
        for key, item in items.of_keys(tx, number, nearest)
    ]


def lacking(tx: Tx, model: str, limit: int) -> list[tuple[str, Item]]:
    """Return items without a vector of this model, each with its user, newest first.

    `item.embedded` holds the model of the newest vector, so that the index skips items of this model.
    """
    found: list[tuple[str, Item]] = []
    for clause, models in (
        ("i.embedded = ''", (model,)),
        ("i.embedded > '' AND i.embedded < ?", (model, model)),
        ("i.embedded > ?", (model, model)),
    ):
        query = (
            f"SELECT a.name, {rows.ITEM} FROM {rows.ITEMS} JOIN account a ON a.key = i.account "
            f"WHERE {clause} AND a.name IS NOT NULL "
            "AND NOT EXISTS (SELECT 1 FROM embedding v WHERE v.item = i.key AND v.model = ?) "
            "ORDER BY i.embedded DESC, i.key DESC"
        )
        found += rows.read_first(tx, _read_owned, query, models, limit - len(found))
    return found


def _read_owned(row: Sequence[Any]) -> tuple[str, Item]:
    return str(row[0]), rows.read_item(row[1:])


def write(tx: Tx, embedded: Sequence[tuple[str, str, str, ItemEmbedding]], model: str) -> None:
    """Store embeddings as (user, item ID, embedded text, embedding). Items whose text changed are skipped."""
    for user, item_id, text, embedding in embedded:
        row = tx.execute(
            "SELECT i.key, i.account, i.kind FROM item i JOIN account a ON a.key = i.account "
            "WHERE a.name = ? AND i.id = ? AND i.text = ?",
            (user, item_id, text),
        ).fetchone()
        if row is not None:
            value = embedding.vector
            statistics = _STATISTICS.pack(embedding.mean, embedding.spread)
            tx.execute(
                "INSERT INTO embedding (item, account, kind, model, signs, value) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (item, model) DO UPDATE SET signs = excluded.signs, value = excluded.value",
                (*row, model, _signs(value), struct.pack(f"<{len(value)}e", *value) + statistics),
            )
            tx.execute("UPDATE item SET embedded = ? WHERE key = ?", (model, row[0]))
            counts.change_items(tx, row[1], 0)


def _signs(vector: Sequence[float]) -> bytes:
    """Return one bit per number, set if it is positive."""
    signs = sum(1 << place for place, number in enumerate(vector) if number > 0)
    return signs.to_bytes((len(vector) + 7) // 8, "little")
