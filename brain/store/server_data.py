"""Data of the server: what it learned about models, and specialists that blocked the event loop."""

from datetime import datetime

from brain.store.rows import moment
from brain.store.tx import Tx

REPORT_SECONDS = 30 * 86_400_000_000
"""How long a specialist that blocked the event loop is listed, in microseconds."""


def server_value(tx: Tx, name: str) -> str | None:
    """Return the value stored under a name: the result of an embedding check, or what is known about a model."""
    row = tx.execute("SELECT value FROM server_value WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def set_server_value(tx: Tx, name: str, value: str) -> None:
    """Store a value under a name, for other processes."""
    tx.execute(
        "INSERT INTO server_value (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def add_blocked(tx: Tx, specialist: str, place: str) -> None:
    """Record that a specialist blocked the event loop."""
    tx.execute(
        "INSERT INTO blocked (specialist, times, last, place) VALUES (?, 1, ?, ?) "
        "ON CONFLICT (specialist) DO UPDATE "
        "SET times = blocked.times + 1, last = excluded.last, place = excluded.place",
        (specialist, tx.now, place),
    )


def blocked(tx: Tx) -> list[tuple[str, datetime, int, str]]:
    """List specialists that blocked the event loop in the last 30 days: name, last time, count, code location."""
    query = "SELECT specialist, last, times, place FROM blocked WHERE last >= ? ORDER BY specialist"
    found = tx.execute(query, (tx.now - REPORT_SECONDS,))
    return [(name, moment(last), times, place) for name, last, times, place in found]
