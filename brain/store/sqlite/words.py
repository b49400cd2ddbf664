"""Full-text search with FTS5."""

from collections.abc import Sequence

from brain.store.tx import Index, Tx


class Fts5:
    """The indexes of SQLite; see `FullText`."""

    def put(self, tx: Tx, index: Index, key: int, terms: str) -> None:
        tx.execute(f"INSERT OR REPLACE INTO {index} (rowid, words) VALUES (?, ?)", (key, terms))

    def remove(self, tx: Tx, index: Index, key: int) -> None:
        tx.execute(f"DELETE FROM {index} WHERE rowid = ?", (key,))
        # one row by its key: before a statement that may change several, FTS5 writes the changes that it has in memory
        tx.execute("UPDATE leftover SET removed = removed + 1 WHERE rowid = 1")

    def matching(self, index: Index) -> str:
        return f"(SELECT rowid AS key FROM {index} WHERE {index} MATCH ?) matching"

    def query(self, term: str, *, is_prefix: bool = False) -> str:
        return f'"{term}"*' if is_prefix else f'"{term}"'

    def all_of(self, queries: Sequence[str]) -> str:
        return f"({' AND '.join(queries)})" if len(queries) > 1 else queries[0]

    def any_of(self, queries: Sequence[str]) -> str:
        return f"({' OR '.join(queries)})" if len(queries) > 1 else queries[0]
