"""Wing: how the vectors of models did in the memory's exam, so that not every process has to ask. Of no user."""

import sqlite3


def exam(db: sqlite3.Connection, name: str) -> str | None:
    """What was kept under this name."""
    row = db.execute("SELECT result FROM exam WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def set_exam(db: sqlite3.Connection, name: str, result: str) -> None:
    """Keeps the newest."""
    db.execute("INSERT OR REPLACE INTO exam (name, result) VALUES (?, ?)", (name, result))
