"""Data of the server: what it learned about models, and specialists that blocked the event loop."""

import sqlite3
from collections.abc import Sequence

REPORT_SECONDS = 30 * 86_400_000_000
"""How long a specialist that blocked the event loop is listed, in microseconds."""


def server_value(db: sqlite3.Connection, name: str) -> str | None:
    """Return the value stored under a name: the result of an embedding check, or what is known about a model."""
    row = db.execute("SELECT result FROM exam WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def set_server_value(db: sqlite3.Connection, name: str, value: str) -> None:
    """Store a value under a name, for other processes."""
    db.execute("INSERT OR REPLACE INTO exam (name, result) VALUES (?, ?)", (name, value))


def add_blocked(db: sqlite3.Connection, specialist: str, place: str, now: int) -> None:
    """Count a block of the event loop; `now` is in microseconds since 1970."""
    db.execute(
        "INSERT INTO blocked (specialist, times, last, place) VALUES (?, 1, ?, ?) "
        "ON CONFLICT (specialist) DO UPDATE SET times = times + 1, last = excluded.last, place = excluded.place",
        (specialist, now, place),
    )


def blocked(db: sqlite3.Connection, now: int) -> Sequence[tuple[str, int, int, str]]:
    """Return (name, count, last time in microseconds, code location) for the last 30 days."""
    query = "SELECT specialist, times, last, place FROM blocked WHERE last >= ? ORDER BY specialist"
    return db.execute(query, (now - REPORT_SECONDS,)).fetchall()
