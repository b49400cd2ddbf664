"""Which specialists blocked the event loop of a server, for who runs it. Of no user."""

import sqlite3
from collections.abc import Sequence

SHOWN = 30 * 86_400_000_000
"""Microseconds that one is shown for."""


def add_blocked(db: sqlite3.Connection, specialist: str, place: str, now: int) -> None:
    """Count one more time; `now` is in microseconds since 1970."""
    db.execute(
        "INSERT INTO blocked (specialist, times, last, place) VALUES (?, 1, ?, ?) "
        "ON CONFLICT (specialist) DO UPDATE SET times = times + 1, last = excluded.last, place = excluded.place",
        (specialist, now, place),
    )


def blocked(db: sqlite3.Connection, now: int) -> Sequence[tuple[str, int, int, str]]:
    """Name, times, microseconds of the last time, and place, of those of the last 30 days."""
    query = "SELECT specialist, times, last, place FROM blocked WHERE last >= ? ORDER BY specialist"
    return db.execute(query, (now - SHOWN,)).fetchall()
