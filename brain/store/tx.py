"""A transaction, as the functions of this package get it.

A function that reads or writes the data of one user takes the name of the user as its first argument after the
transaction.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

Index = Literal["exchange_words", "item_words"]
"""A full-text index has one text of terms per key."""

Values = Sequence[Any] | Mapping[str, Any]


class Cursor(Protocol):
    """The rows that a statement returns."""

    @property
    def rowcount(self) -> int:
        """The number of rows that a statement changed."""

    def __iter__(self) -> Iterator[Any]: ...
    def fetchone(self) -> Any: ...
    def fetchmany(self, size: int, /) -> list[Any]: ...
    def fetchall(self) -> list[Any]: ...


class FullText(Protocol):
    """The full-text indexes of an engine. Terms consist of `a` to `z` and digits; see `full_text.py`."""

    def put(self, tx: "Tx", index: Index, key: int, terms: str, /) -> None:
        """Index terms, replacing those of the same key."""

    def remove(self, tx: "Tx", index: Index, key: int, /) -> None:
        """Remove the terms of a key."""

    def matching(self, index: Index, /) -> str:
        """Return the subquery for the column `key` of what matches its one value, a query."""

    def query(self, term: str, /, *, is_prefix: bool = False) -> str:
        """Return the query for a term, or for all that begin with it."""

    def all_of(self, queries: Sequence[str], /) -> str:
        """Return the query for texts that match all of these."""

    def any_of(self, queries: Sequence[str], /) -> str:
        """Return the query for texts that match any of these."""


class Tx(Protocol):
    """One transaction, which ends with the function that gets it.

    Attributes:
        words: The full-text indexes.
        lock_rows: The end of a query whose rows no other write may change before this one ends, and which leaves out
            those that another one is changing. Only a write whose owner has not all of these rows needs it.
        now: The time, in microseconds since 1970: the same for the whole transaction.
        uptime: The time in microseconds on a monotonic clock that all processes of the store share.
        process: The ID of this process.
    """

    @property
    def words(self) -> FullText: ...
    @property
    def lock_rows(self) -> str: ...
    @property
    def now(self) -> int: ...
    @property
    def process(self) -> str: ...
    @property
    def uptime(self) -> int: ...

    def count(self, *written: str | bytes) -> None:
        """Count texts and files that are written, for the metrics."""

    def last_key(self, table: str) -> int:
        """Return the greatest key that the engine has given to a row of a table, 0 if none or not known."""

    def set_last_key(self, table: str, key: int) -> None:
        """Let the engine give greater keys to new rows of a table."""

    def execute(self, query: str, values: Values = ..., /) -> Cursor: ...
    def executemany(self, query: str, rows: Iterable[Values], /) -> Cursor: ...
