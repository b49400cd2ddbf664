"""The full-text indexes in SQLite (FTS5). Another engine needs its own form of these functions, and of no others."""

from collections.abc import Iterable, Sequence
from typing import Literal

from brain.store import search_terms
from brain.store.tx import Tx

Index = Literal["exchange_words", "item_words"]
"""An index has one text of terms per key; triggers delete those of deleted rows."""


def put(tx: Tx, index: Index, key: int, terms: str) -> None:
    """Index terms, replacing those of the same key."""
    tx.execute(f"INSERT OR REPLACE INTO {index} (rowid, words) VALUES (?, ?)", (key, terms))


def matching(index: Index) -> str:
    """Return the subquery for the column `key` of what matches its one value, a query."""
    return f"(SELECT rowid AS key FROM {index} WHERE {index} MATCH ?) matching"


def newest(tx: Tx, index: Index, query: str, limit: int) -> frozenset[int]:
    """Return the greatest keys of what matches a query."""
    found = f"SELECT rowid FROM {index} WHERE {index} MATCH ? ORDER BY rowid DESC LIMIT ?"
    ((keys,),) = tx.execute(f"SELECT group_concat(rowid) FROM ({found})", (query, limit))
    return frozenset(map(int, keys.split(","))) if keys else frozenset()


def query(owners: Iterable[str], word: str, *, is_prefix: bool = False) -> str:
    """Return the query for one word of any of these owners; a phrase if each of its characters is a term.

    Args:
        is_prefix: whether words that begin with it match, too.
    """
    phrases = (f'"{" ".join(search_terms.terms(owner, word))}"' for owner in owners)
    return " OR ".join(f"{phrase}{'*' if is_prefix else ''}" for phrase in phrases)


def all_of(queries: Sequence[str]) -> str:
    """Return the query for texts that match all of these."""
    return " AND ".join(queries)


def any_of(queries: Sequence[str]) -> str:
    """Return the query for texts that match any of these."""
    return " OR ".join(queries)
