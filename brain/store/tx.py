"""A transaction, as the functions of this package get it.

A function that reads or writes the data of one user takes the name of the user as its first argument after the
transaction.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

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


class Tx(Protocol):
    """One transaction, which ends with the function that gets it.

    Attributes:
        now: The time, in microseconds since 1970: the same for the whole transaction.
        uptime: The time in microseconds on a monotonic clock that all processes of the store share.
        process: The ID of this process.
    """

    @property
    def now(self) -> int: ...
    @property
    def process(self) -> str: ...
    @property
    def uptime(self) -> int: ...

    def count(self, *written: str | bytes) -> None:
        """Count texts and files that are written, for the metrics."""

    def execute(self, query: str, values: Values = ..., /) -> Cursor: ...
    def executemany(self, query: str, rows: Iterable[Values], /) -> Cursor: ...
