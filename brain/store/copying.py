"""Copies all rows of a store to another database, with their keys. It can end anywhere and be continued.

The rows of a table are copied in the order of their primary key, in small transactions. So a table with the column
`key` continues after its greatest key; the few others start again. The words are indexed again, since each engine
stores them in its own way.

Marks in the table `server_value` name the copy in both databases. Opening the source in any other way removes its mark,
and what was copied before is then outdated. No other process opens a copy that is not complete.
"""

import asyncio
import re
import secrets
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, Concatenate

from brain.errors import StoreError
from brain.store import exchanges, items, processes, rows, schema, transfer
from brain.store.database import Database, P, T
from brain.store.processes import LEASE_SECONDS
from brain.store.rows import MIB
from brain.store.tx import Tx

MAX_ROWS, MAX_BYTES = 500, MIB
"""Limits of one transaction, whose rows are in memory; one row may be larger."""
NOTICE_SECONDS = 1.0
"""How long a process may take to renew its lease after another one has come, in addition to the lease."""

SOURCE, UNFINISHED, COMPLETE = "copied store", "unfinished copy", "complete copy"
"""Names of the marks in the table `server_value`, of a store and of its copy; the value is the copy's ID."""
_NOT_COPIED = ("server_value", "process", "leftover")
"""Tables that are copied first, belong to running processes, or are about SQLite's file."""
_TABLES = tuple(name for name in schema.TABLES if name not in _NOT_COPIED)
"""In an order in which each row comes after those to which it refers, except for `conversation.memory`."""
_LATER = {("conversation", "memory"): "NULL"}
"""Columns that are written when the rows exist to which they refer."""
_SIZES = {"exchange": "bytes", "file": "size"}
"""Columns with about the size of a row, in tables with large rows."""


@dataclass
class Progress:
    """What has been copied so far.

    Attributes:
        rows: Rows of the copy, also of earlier attempts.
        total: Rows of the source.
        size: Bytes of texts and files that this attempt has copied.
        starts_again: Whether rows of an earlier attempt were deleted, because the source was used since then.
    """

    rows: int = 0
    total: int = 0
    size: int = 0
    starts_again: bool = False


def marks(tx: Tx) -> dict[str, str]:
    """Return the IDs of copies by the names of their marks."""
    query = "SELECT name, value FROM server_value WHERE name IN (?, ?, ?)"
    return dict(tx.execute(query, (SOURCE, UNFINISHED, COMPLETE)).fetchall())


def remove_marks(tx: Tx) -> None:
    """Remove the marks of complete copies, since the database is used from now on."""
    tx.execute("DELETE FROM server_value WHERE name IN (?, ?)", (SOURCE, COMPLETE))


async def copy(source: Database, target: Database, progress: Progress) -> Mapping[str, int]:
    """Copy a store, or continue an unfinished copy; return the number of rows by table.

    Raises:
        StoreError: With the place of the database, and what to do.
    """
    async with _opened(source):
        with _naming(source):
            await _check_unused(source)
            await source.sweep(0)  # which ends an upgrade
            copy_id = await source.write(_mark)
            server_rows = await source.read(_server_rows)
            counts = await source.search(_count)
        async with _opened(target):
            with _naming(target):
                await _prepare(target, copy_id, server_rows, progress)
                is_complete = COMPLETE in await target.read(marks)
            progress.total = sum(counts.values())
            if not is_complete:
                await _copy_rows(source, target, copy_id, progress)
            await _compare(source, target, copy_id)
    return counts


@asynccontextmanager
async def _opened(database: Database) -> AsyncIterator[None]:
    """Open a database; if no other process has it open, forget those that have ended."""

    def forget_others(tx: Tx) -> None:
        processes.remove_all(tx)
        transfer.expire_all(tx)

    await database.open(forget_others)
    try:
        yield
    finally:
        await database.close()


@contextmanager
def _naming(database: Database) -> Iterator[None]:
    """Add the place of the database to errors."""
    try:
        yield
    except StoreError as error:
        raise StoreError(f"{database.place}: {error}") from error


async def _check_unused(database: Database) -> None:
    """Check that no other process uses a database.

    Raises:
        StoreError: One does.
    """
    if not database.is_alone or await _is_used(database):
        raise StoreError("The database is in use. Stop all processes of Brain that use it.")


async def _is_used(database: Database) -> bool:
    """Return whether a process lives that has a row, or an import is running."""
    if await database.read(processes.read):
        await database.write(processes.add, "")  # a process that was alone renews its lease when it sees another one
        await asyncio.sleep(LEASE_SECONDS + NOTICE_SECONDS)
        others = [one for one in await database.read(processes.read) if one.id != database.process]
        await database.write(processes.remove)
        await database.write(processes.remove_dead)
        if not all(one.is_over for one in others):
            return True
    return await database.read(transfer.is_running)


def _mark(tx: Tx) -> str:
    """Mark a store as copied; return the ID of the copy, that of an earlier attempt unless it was used since then."""
    found = marks(tx)
    if UNFINISHED in found:
        raise StoreError("The store to copy is an unfinished copy itself.")
    if SOURCE not in found:
        found[SOURCE] = secrets.token_hex(16)
        tx.execute("INSERT INTO server_value (name, value) VALUES (?, ?)", (SOURCE, found[SOURCE]))
    return found[SOURCE]


def _server_rows(tx: Tx) -> dict[str, str]:
    """Return the rows of `server_value`, such as secrets, without marks."""
    found = dict(tx.execute("SELECT name, value FROM server_value").fetchall())
    return {name: value for name, value in found.items() if name not in (SOURCE, UNFINISHED, COMPLETE)}


async def _prepare(target: Database, copy_id: str, server_rows: Mapping[str, str], progress: Progress) -> None:
    """Mark a database as the copy. One of the same store that is outdated becomes empty.

    Raises:
        StoreError: It has other data.
    """
    found = await target.read(marks)
    if found.get(SOURCE) == copy_id:
        raise StoreError("This is the database to copy. Name another one.")
    await _check_unused(target)
    if copy_id in (found.get(UNFINISHED), found.get(COMPLETE)):
        return
    if UNFINISHED in found:
        if (await target.read(_server_rows)).get(schema.PROCESS_SECRET) != server_rows[schema.PROCESS_SECRET]:
            raise StoreError("The database is an unfinished copy of another store. Use an empty database.")
        progress.starts_again = True
        for table in ("exchange_words", "item_words", *reversed(_TABLES)):
            await target.write_unsynced(_empty, table)
    elif not await target.search(_is_empty):
        raise StoreError("The database has data. Use an empty database.")
    await target.write(_begin, copy_id, server_rows)


def _is_empty(tx: Tx) -> bool:
    tables = [name for name in _TABLES if name != "blocked"]
    return all(tx.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is None for table in tables)


def _empty(tx: Tx, table: str) -> None:
    tx.execute(f"DELETE FROM {table}")


def _begin(tx: Tx, copy_id: str, server_rows: Mapping[str, str]) -> None:
    tx.execute("DELETE FROM server_value")
    found = [*server_rows.items(), (UNFINISHED, copy_id)]
    tx.executemany("INSERT INTO server_value (name, value) VALUES (?, ?)", found)


async def _copy_rows(source: Database, target: Database, copy_id: str, progress: Progress) -> None:
    for table in _TABLES:
        columns, primary_key = _columns(table), _primary_key(table)
        with _naming(target):
            after = await target.write(_last_copied, table)
            progress.rows += await target.search(_count_rows, table)
        while page := await _read(source, _read_page, copy_id, table, after):
            with _naming(target):
                await target.write_unsynced(_write_page, table, page)
            after = tuple(page[-1][columns.index(name)] for name in primary_key)
            progress.rows += len(page)
            progress.size += sum(len(value) for row in page for value in row if isinstance(value, str | bytes))
    last = 0
    while links := await _read(source, _read_links, copy_id, last):
        with _naming(target):
            await target.write_unsynced(_write_links, links)
        last = links[-1][1]
    last_keys = await _read(source, _last_keys)
    with _naming(target):
        await target.write(_finish, last_keys)


async def _read(source: Database, function: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    with _naming(source):
        return await source.search(function, *args, **kwargs)


def _last_copied(tx: Tx, table: str) -> tuple[Any, ...]:
    """Return the primary key after which a table continues; remove the rows of one that starts again."""
    if "key" not in _columns(table):
        _empty(tx, table)
        return ()
    ((key,),) = tx.execute(f"SELECT coalesce(max(key), 0) FROM {table}").fetchall()
    return (key,)


def _read_page(tx: Tx, copy_id: str, table: str, after: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return the next rows after a primary key."""
    _check_unchanged(tx, copy_id)
    key = ", ".join(_primary_key(table))
    where = f"WHERE ({key}) > ({', '.join('?' * len(after))})" if after else ""
    limit = MAX_ROWS
    if table in _SIZES:
        query = f"SELECT {_SIZES[table]} FROM {table} {where} ORDER BY {key} LIMIT ?"
        sizes = [size for (size,) in tx.execute(query, (*after, limit)).fetchall()]
        limit = max(1, bisect_right([*accumulate(sizes)], MAX_BYTES))
    columns = ", ".join(_LATER.get((table, column), column) for column in _columns(table))
    query = f"SELECT {columns} FROM {table} {where} ORDER BY {key} LIMIT ?"
    return tx.execute(query, (*after, limit)).fetchall()


def _check_unchanged(tx: Tx, copy_id: str) -> None:
    if marks(tx).get(SOURCE) != copy_id:
        raise StoreError("The store was used while it was copied. Stop all processes of Brain, and copy it again.")


def _write_page(tx: Tx, table: str, page: Sequence[tuple[Any, ...]]) -> None:
    columns = _columns(table)
    # older versions stored NUL characters, which PostgreSQL rejects
    found = [[value.replace("\0", "") if isinstance(value, str) else value for value in row] for row in page]
    query = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    tx.executemany(query, found)
    _index(tx, table, [dict(zip(columns, row, strict=True)) for row in found])


def _index(tx: Tx, table: str, page: Sequence[Mapping[str, Any]]) -> None:
    """Index the words of copied rows. Those without a user are deleted, or of an import that was cut off."""
    if table == "conversation":
        for row in page:
            if row["account"] is not None and row["title"]:
                exchanges.index_title(tx, row["key"], row["title"], row["account"])
    elif table == "exchange":
        for conversation, some in groupby(page, lambda row: row["key"] >> schema.EXCHANGES):
            found = tx.execute("SELECT account FROM conversation WHERE key = ?", (conversation,)).fetchone()
            if found is None or found[0] is None:
                continue
            for row in some:
                if not row["unindexed"] and row["source"] != "task":
                    for exchange in rows.readable(rows.read_exchange, [(row["key"], row["data"])]):
                        exchanges.index(tx, row["key"], exchange, found[0])
    elif table == "item":
        for row in page:
            if row["account"] is not None:
                items.index(tx, row["key"], row["account"], row["kind"], row["text"])


def _read_links(tx: Tx, copy_id: str, after: int) -> list[tuple[int, int]]:
    """Return the memories of the next conversations, each with the key of its conversation."""
    _check_unchanged(tx, copy_id)
    query = "SELECT memory, key FROM conversation WHERE memory IS NOT NULL AND key > ? ORDER BY key LIMIT ?"
    return tx.execute(query, (after, MAX_ROWS)).fetchall()


def _write_links(tx: Tx, links: Sequence[tuple[int, int]]) -> None:
    tx.executemany("UPDATE conversation SET memory = ? WHERE key = ?", links)


def _last_keys(tx: Tx) -> dict[str, int]:
    return {table: tx.last_key(table) for table in _TABLES if "key" in _columns(table)}


def _finish(tx: Tx, last_keys: Mapping[str, int]) -> None:
    """Mark the copy as complete. New rows get keys that no row of the source ever had."""
    for table, last in last_keys.items():
        ((copied,),) = tx.execute(f"SELECT coalesce(max(key), 0) FROM {table}").fetchall()
        tx.set_last_key(table, max(last, copied))
    tx.execute("UPDATE server_value SET name = ? WHERE name = ?", (COMPLETE, UNFINISHED))


async def _compare(source: Database, target: Database, copy_id: str) -> None:
    """Compare the number of rows of each table.

    Raises:
        StoreError: They differ. The next attempt starts again.
    """
    await _read(source, _check_unchanged, copy_id)
    counts = await _read(source, _count)
    with _naming(target):
        copied = await target.search(_count)
        different = [table for table in counts if copied[table] != counts[table]]
        if different:
            await source.write(remove_marks)
            await target.write(_mark_unfinished)
            table = different[0]
            difference = f"The copy has {copied[table]:,} rows of {table} instead of {counts[table]:,}."
            raise StoreError(f"{difference} Copy the store again.")


def _mark_unfinished(tx: Tx) -> None:
    tx.execute("UPDATE server_value SET name = ? WHERE name = ?", (UNFINISHED, COMPLETE))


def _count(tx: Tx) -> dict[str, int]:
    return {table: _count_rows(tx, table) for table in _TABLES}


def _count_rows(tx: Tx, table: str) -> int:
    ((count,),) = tx.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(count)


def _columns(table: str) -> list[str]:
    return re.findall(r"(\w+) (?:INTEGER|TEXT|BLOB)\b", schema.TABLES[table])


def _primary_key(table: str) -> list[str]:
    definition = schema.TABLES[table]
    composite = re.search(r"^ +PRIMARY KEY \((.*?)\)", definition, re.MULTILINE)
    return composite[1].split(", ") if composite else re.findall(r"(\w+) \w+ PRIMARY KEY", definition)
