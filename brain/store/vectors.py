"""Embeddings of items: stored, and searched for the nearest."""

import math
import sqlite3
import struct
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from operator import mul
from typing import Any

from brain.messages import Item, Kind, Query
from brain.store import rows, users
from brain.store.items import of_keys

RESCORED = 100
USERS_MOST = 64
"""So many users' signs are kept ready."""
Signs = Mapping[str, Mapping[int, int]]
"""For each kind, the signs of its items' vectors: numbers alone, in which Python looks for no garbage."""


class SignCache:
    """The signs of users' vectors, kept ready until any of their items changes. Used by one thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], tuple[int, Signs]] = OrderedDict()

    def of(self, db: sqlite3.Connection, user: int, model: str) -> Signs:
        """Those of one user and model."""
        ((revision,),) = db.execute("SELECT revision FROM user WHERE key = ?", (user,))
        kept = self._kept.get((user, model))
        if kept is None or kept[0] != revision:
            kept = revision, _read(db, user, model)
        self._kept[user, model] = kept
        self._kept.move_to_end((user, model))
        if len(self._kept) > USERS_MOST:
            self._kept.popitem(last=False)
        return kept[1]


def search(
    db: sqlite3.Connection, cache: SignCache, user: str, query: Query, kinds: Collection[Kind], limit: int
) -> list[tuple[Item, float]]:
    """The items of a user whose vectors are nearest, best first, with their cosines."""
    number = users.find(db, user)
    if number is None:
        return []
    wanted = _normalised(query.vector)
    signs = int.from_bytes(_signs(wanted), "little")
    kept = cache.of(db, number, query.model)
    apart = (((other ^ signs).bit_count(), key) for kind in kinds for key, other in kept.get(kind, {}).items())
    keys = [key for _, key in nsmallest(max(limit, RESCORED), apart)]
    marks = ", ".join("?" * len(keys))
    values = db.execute(
        f"SELECT item, value FROM vector WHERE user = ? AND model = ? AND item IN ({marks})",
        (number, query.model, *keys),
    )
    cosines = {key: sum(map(mul, wanted, _unpacked(value))) for key, value in values if len(value) == 2 * len(wanted)}
    nearest = sorted(cosines, key=lambda key: -cosines[key])[:limit]
    return [(item, cosines[key]) for key, item in of_keys(db, number, nearest)]


def lacking(db: sqlite3.Connection, model: str, limit: int) -> list[tuple[str, Item]]:
    """Items that have no vector of this model, each with its user; the newest first.

    An item knows the model of its newest vector, so that those of this model, mostly all, are passed over in the index.
    """
    found: list[tuple[str, Item]] = []
    for clause in ("i.embedded = ''", "i.embedded > '' AND i.embedded < ?1", "i.embedded > ?1"):
        some = db.execute(
            f"SELECT u.name, {rows.ITEM} FROM {rows.ITEMS} JOIN user u ON u.key = i.user "
            f"WHERE {clause} AND u.hidden = 0 "
            "AND NOT EXISTS (SELECT 1 FROM vector v WHERE v.item = i.key AND v.model = ?1) "
            "ORDER BY i.embedded DESC, i.key DESC",
            (model,),
        )
        found += islice(rows.readable(_owned, some), limit - len(found))
    return found


def _owned(row: Sequence[Any]) -> tuple[str, Item]:
    return row[0], rows.read_item(row[1:])


def write(db: sqlite3.Connection, model: str, vectors: Sequence[tuple[str, str, str, Sequence[float]]]) -> None:
    """Gives items their vectors: user, id, the text that was embedded, vector; not where that changed meanwhile."""
    for user, item_id, text, vector in vectors:
        row = db.execute(
            "SELECT i.key, i.user, i.kind FROM item i JOIN user u ON u.key = i.user "
            "WHERE u.name = ? AND i.id = ? AND i.text = ?",
            (user, item_id, text),
        ).fetchone()
        if row is not None:
            value = _normalised(vector)
            db.execute(
                "INSERT OR REPLACE INTO vector (item, user, kind, model, signs, value) VALUES (?, ?, ?, ?, ?, ?)",
                (*row, model, _signs(value), struct.pack(f"<{len(value)}e", *value)),
            )
            db.execute("UPDATE item SET embedded = ? WHERE key = ?", (model, row[0]))


def _read(db: sqlite3.Connection, user: int, model: str) -> Signs:
    found = db.execute("SELECT item, kind, signs FROM vector WHERE user = ? AND model = ?", (user, model))
    read: dict[str, dict[int, int]] = {}
    for item, kind, signs in found:
        read.setdefault(kind, {})[item] = int.from_bytes(signs, "little")
    return read


def _normalised(vector: Sequence[float]) -> Sequence[float]:
    """The vector with length 1; one that points nowhere is near to nothing."""
    length = math.hypot(*vector)
    if not 0 < length < math.inf:
        return [0.0] * len(vector)
    return [number / length for number in vector]


def _signs(vector: Sequence[float]) -> bytes:
    """A bit for each number, set where it is positive."""
    signs = sum(1 << place for place, number in enumerate(vector) if number > 0)
    return signs.to_bytes((len(vector) + 7) // 8, "little")


def _unpacked(value: bytes) -> Sequence[float]:
    return struct.unpack(f"<{len(value) // 2}e", value)
