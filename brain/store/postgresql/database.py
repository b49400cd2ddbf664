"""PostgreSQL: functions in threads, each of which has a connection. Locks let them run as if they were alone."""

import asyncio
import hashlib
import logging
import math
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import zip_longest
from typing import Any, Concatenate, NoReturn
from weakref import WeakValueDictionary

import psycopg
from psycopg import errors, pq
from psycopg.types.numeric import Int8BinaryDumper, NumericBinaryLoader

from brain.errors import OutcomeUnknown, StoreError
from brain.store.database import Database, P, T, Work
from brain.store.postgresql import failures, tables
from brain.store.postgresql.words import TsVector
from brain.store.rows import MIB, SECOND
from brain.store.tx import FullText, Tx, Values

THREADS, SEARCH_THREADS = 6, 2
"""Connections of a process, beside the one that listens."""
CONNECT_SECONDS = 2
SILENCE_SECONDS = 10.0
"""After this time, a server whose machine does not respond counts as lost."""
_NETWORK: dict[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    "tcp_user_timeout": round(SILENCE_SECONDS * 1000),
    "keepalives_idle": round(SILENCE_SECONDS / 2),
    "keepalives_interval": 1,
    "keepalives_count": round(SILENCE_SECONDS / 2),
}
"""Parameters of libpq that the URL can change."""
MAX_PAUSE = 2.0
"""Longest time between two attempts to connect, in seconds."""
FROZEN_SECONDS = 2.0
"""After this time without a statement, the server ends a transaction, whose process may be frozen or cut off. Others
wait for its locks until then."""
BUSY_SECONDS = 10.0
"""How long a write waits for others."""
ALONE_SECONDS = 0.2
"""How long a write that runs alone delays new ones while it waits for running ones."""
ATTEMPTS = 3
"""How often a transaction is tried whose connection was lost, or that stood in another one's way."""
PREPARED_AFTER = 5
"""Executions of a statement on a connection, after which it is prepared."""
PROBE_SECONDS, PROBE_PERIOD_SECONDS = 5.0, 1.0
ANNOUNCE_SECONDS = 0.05
"""Shortest time between two announcements of changes."""
HEAR_SECONDS = 1.0
CHANNEL = "brain"
UNREACHABLE = "The database cannot be reached."

_TIME = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT {_TIME}"
_PARAMETER = re.compile(r"\?|(?<!:):([a-z_]+)")

Connection = psycopg.Connection[tuple[Any, ...]]

log = logging.getLogger("brain")


class _IntLoader(NumericBinaryLoader):
    """Loads sums of integers."""

    def load(self, data: Any) -> int:  # type: ignore[override]
        return int(super().load(data))


class _BoolDumper(Int8BinaryDumper):
    """Writes a bool as an integer, as SQLite does."""

    def dump(self, obj: Any) -> Any:
        return super().dump(int(obj))


class _Busy(Exception):
    """Others hold the locks of a write."""

    def __init__(self, error: psycopg.Error) -> None:
        self.error = error


class PostgreSQLTx:
    """A transaction of PostgreSQL: see `Tx`."""

    __slots__ = ("_connection", "_database", "now", "process", "uptime")
    words: FullText = TsVector()
    lock_rows = " FOR UPDATE SKIP LOCKED"

    def __init__(self, connection: Connection, database: "PostgreSQL", now: int) -> None:
        self.process = database.process
        self.now, self.uptime = database.times(now)
        self._connection = connection
        self._database = database

    def execute(self, query: str, values: Values = (), /) -> psycopg.Cursor[Any]:
        text, names = _translate(query)
        if names:
            values = [values[name] for name in names]  # type: ignore[call-overload]
        return self._connection.execute(text, values, binary=True)

    def executemany(self, query: str, rows: Iterable[Values], /) -> psycopg.Cursor[Any]:
        cursor = self._connection.cursor(binary=True)
        cursor.executemany(_translate(query)[0], rows)
        return cursor

    def count(self, *written: str | bytes) -> None:
        self._database.written += sum(map(len, written))

    def last_key(self, table: str) -> int:
        query = "SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence(?, 'key')::regclass), 0)"
        ((key,),) = self.execute(query, (table,)).fetchall()
        return int(key)

    def set_last_key(self, table: str, key: int) -> None:
        if key:
            self.execute("SELECT setval(pg_get_serial_sequence(?, 'key')::regclass, ?)", (table, key))


class PostgreSQL(Database):
    """A database on a PostgreSQL server.

    A write takes the lock of its owner, and shares the common lock; one without an owner takes the common lock alone.
    So functions that check and then write need no locks of rows.

    Args:
        url: `postgresql://USER@HOST/NAME`, or what else libpq accepts.
        clock: None for the clock of the server, which all processes share.
        uptime: The same.

    Raises:
        StoreError: The URL is invalid.
    """

    is_shared = True
    traces = "PostgreSQL keeps traces of deleted data until it writes over them: in its files, its log and backups."
    is_remote = True

    def __init__(
        self, url: str, *, clock: Callable[[], float] | None = None, uptime: Callable[[], float] | None = None
    ) -> None:
        super().__init__(clock or self._server_time, uptime or self._server_time)
        self.place = _describe(url)
        self._has_clock, self._has_uptime = clock is not None, uptime is not None
        self._url = url
        self._ahead = 0.0  # seconds of the server's clock
        self._threads = ThreadPoolExecutor(THREADS, "brain-store")
        self._searches = ThreadPoolExecutor(SEARCH_THREADS, "brain-store-searches")
        self._own = threading.local()
        self._connections: set[Connection] = set()
        self._lock = threading.Lock()  # of what follows
        self._failures = 0
        self._reached_at = self._away_until = -math.inf
        self._lanes: WeakValueDictionary[tuple[str, bool], asyncio.Lock] = WeakValueDictionary()
        self._pending: set[asyncio.Task[Any]] = set()
        self._give_up_at = math.inf
        self._probe: tuple[float, str | None] = -math.inf, None
        self._listener: Connection | None = None
        self._listened = -1  # its descriptor
        self._listening: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        self._hears = False
        self._version = 0
        self._announcing: asyncio.Task[None] | None = None
        self._has_news = False
        self._is_open = False
        self._is_closing = False

    # Opening and closing

    async def open(self, take_over: Work[None]) -> None:
        """Open the database as `Database` says. Turns and tasks of dead processes are found later, by their leases."""
        self._loop = asyncio.get_running_loop()
        try:
            with self._explaining():
                if not await self._listen():
                    message = "%s: LISTEN does not work, as with PgBouncer; Brain looks for changes every second"
                    log.info(message, self.place)
                await self._run(self._threads, partial(self._write, tables.prepare, None, durable=True, alone=False))
        except BaseException:
            await self.close()
            raise
        self._is_open = True

    async def close(self) -> None:
        while self._pending:
            await asyncio.wait(self._pending)
        self._is_closing = True
        tasks = [one for one in (self._announcing, self._listening) if one is not None]
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._has_news:
            with suppress(StoreError, psycopg.Error):
                await self._run(self._threads, partial(self._notify, self.process))
        self._stop_listening()
        for executor in (self._threads, self._searches):
            executor.shutdown()
        for connection in self._connections:
            connection.close()

    async def exists(self) -> bool:
        def look() -> bool:
            connection = self._connect()
            try:
                row = connection.execute("SELECT to_regclass('schema_version') IS NOT NULL").fetchone()
            finally:
                self._connections.discard(connection)
                connection.close()
            return bool(row and row[0])

        with self._explaining():
            return await asyncio.to_thread(look)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Add the place and the remedy to errors."""
        try:
            yield
        except StoreError as error:
            raise StoreError(f"{self.place}: {failures.explain(error)}", may_pass=error.may_pass) from error

    def limit_waiting(self, seconds: float) -> None:
        self._give_up_at = min(self._give_up_at, time.monotonic() + seconds)

    def _connect(self) -> Connection:
        """Open a connection, unless the last attempts have failed.

        Raises:
            StoreError: The server cannot be reached, or rejects the connection.
        """
        began = time.monotonic()
        if began < self._away_until:
            raise StoreError(UNREACHABLE, may_pass=True)
        try:
            connection = psycopg.connect(
                psycopg.conninfo.make_conninfo(**_NETWORK | psycopg.conninfo.conninfo_to_dict(self._url)),
                client_encoding="UTF8",
                autocommit=True,
                cursor_factory=psycopg.RawCursor,
                prepare_threshold=None,
                application_name="brain",
            )
        except psycopg.Error as error:
            with self._lock:
                has_returned = self._reached_at > began
                if not has_returned:
                    self._failures += 1
                    pause = min(MAX_PAUSE, 0.05 * 2**self._failures)
                    self._away_until = time.monotonic() + pause
                is_new = self._is_open and self._failures == 1
            if has_returned:  # as another thread has seen
                return self._connect()
            detail = str(error).strip().partition("\n")[0]
            if is_new:
                log.error("%s cannot be reached: %s", self.place, detail)  # noqa: TRY400 - it has no more to say
            raise StoreError(UNREACHABLE, detail, may_pass=True) from None
        with self._lock:
            has_failed, self._failures, self._away_until = self._failures > 0, 0, -math.inf
            self._reached_at = time.monotonic()
            self._connections.add(connection)
        if has_failed:
            log.info("%s is reached again", self.place)
        connection.prepared_max = 500
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        connection.adapters.register_dumper(bool, _BoolDumper)
        connection.adapters.register_loader("numeric", _IntLoader)
        return connection

    def _connection(self) -> Connection:
        """Return the connection of this thread."""
        connection: Connection | None = getattr(self._own, "connection", None)
        if connection is None or connection.closed:
            connection = self._own.connection = self._connect()
        # PgBouncer gives each transaction another connection to the server, which lacks the prepared statements
        connection.prepare_threshold = PREPARED_AFTER if self._hears else None
        return connection

    def _forget(self) -> None:
        """Close the connection of this thread."""
        connection: Connection | None = getattr(self._own, "connection", None)
        self._own.connection = None
        if connection is not None:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    # Time

    def _server_time(self) -> float:
        return time.time() + self._ahead

    def times(self, now: int) -> tuple[int, int]:
        """Return the time and the uptime of a transaction that began at this time of the server, in microseconds."""
        self._ahead = now / SECOND - time.time()
        return (
            round(self.clock() * SECOND) if self._has_clock else now,
            round(self.uptime() * SECOND) if self._has_uptime else now,
        )

    # Writing

    def submit(
        self, work: Work[T], owner: str | None = None, *, durable: bool = True, alone: bool = False
    ) -> "asyncio.Future[T]":
        """Queue a write as `Database` says. Those of one owner keep their order."""
        writing = asyncio.get_running_loop().create_task(self._submit(work, owner, durable, alone), name="write")
        self._pending.add(writing)
        writing.add_done_callback(self._pending.discard)
        return writing

    async def _submit(self, work: Work[T], owner: str | None, durable: bool, alone: bool) -> T:
        async with self._lane(owner or "", slow=False):
            outcome = await self._run(self._threads, partial(self._write, work, owner, durable=durable, alone=alone))
        if owner != self.process:  # of whose own state others know enough
            self._announce()
        return outcome

    def _lane(self, owner: str, *, slow: bool) -> asyncio.Lock:
        """Return the lock that lets one user wait for one connection at a time, and one more for what is slow."""
        return self._lanes.setdefault((owner, slow), asyncio.Lock())

    def _write(self, work: Work[T], owner: str | None, *, durable: bool, alone: bool) -> T:
        """Run a write in this thread; again if it can be repeated."""
        until = min(time.monotonic() + BUSY_SECONDS, self._give_up_at)
        begin = _begin(owner, durable, ALONE_SECONDS if owner is None else max(until - time.monotonic(), ALONE_SECONDS))
        attempt = 0
        while True:
            try:
                return self._transact(work, begin, alone=alone)
            except _Busy as busy:
                if owner is not None or time.monotonic() > until:
                    _raise_store_error(busy.error)
                time.sleep(ALONE_SECONDS / 4)
            except psycopg.Error as error:
                attempt += 1
                if alone or attempt >= ATTEMPTS or not _may_repeat(error):
                    _raise_store_error(error)

    def _transact(self, work: Work[T], begin: str, *, alone: bool) -> T:
        """Run a write once.

        Raises:
            _Busy: Others hold locks that it needs. It may be repeated.
        """
        connection, transaction, now = self._begin(begin)
        try:
            outcome = work(PostgreSQLTx(connection, self, now))
        except BaseException as error:
            self._roll_back(connection)
            if isinstance(error, errors.LockNotAvailable) and not alone:  # of a table, which an upgrade changes
                raise _Busy(error) from None
            raise
        try:
            connection.execute("COMMIT")
        except psycopg.OperationalError:
            self._forget()
            if not self._has_committed(transaction):
                raise
        return outcome

    def _begin(self, begin: str) -> tuple[Connection, str, int]:
        """Begin a write, on a new connection if that of this thread was lost; return its ID and time, too.

        Raises:
            _Busy: Others hold the locks.
        """
        for is_last in (False, True):
            connection = self._connection()
            try:
                cursor = connection.execute(begin)
                while cursor.nextset():
                    pass
                *_, transaction, now = cursor.fetchone() or ()
            except errors.LockNotAvailable as error:
                self._roll_back(connection)
                raise _Busy(error) from None
            except psycopg.OperationalError:
                self._forget()
                if is_last:
                    raise
            else:
                return connection, transaction, now
        raise AssertionError

    def _has_committed(self, transaction: str) -> bool:
        """Return whether a transaction whose connection was lost has committed.

        Raises:
            OutcomeUnknown: The server cannot be asked.
        """
        try:
            for _ in range(10):
                query = "SELECT pg_xact_status($1::text::xid8)"
                row = self._connection().execute(query, (transaction,)).fetchone()
                status = None if row is None else row[0]
                if status in ("committed", "aborted"):
                    return bool(status == "committed")
                time.sleep(0.1)  # the server has not noticed yet that the connection is lost
        except (psycopg.Error, StoreError):
            self._forget()
        raise OutcomeUnknown(UNREACHABLE, "the connection was lost at the commit", may_pass=True)

    def _roll_back(self, connection: Connection) -> None:
        with suppress(psycopg.Error):
            if not connection.closed and connection.info.transaction_status != pq.TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
        if connection.closed or connection.broken:
            self._forget()

    # Reading

    async def run_read(self, work: Work[T], owner: str | None, *, slow: bool) -> T:
        reading = asyncio.get_running_loop().create_task(self._run_read(work, owner, slow), name="read")
        self._pending.add(reading)
        reading.add_done_callback(self._pending.discard)
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            reading.cancel()  # if it has not begun
            raise

    async def _run_read(self, work: Work[T], owner: str | None, slow: bool) -> T:
        read = partial(self._run, self._searches if slow else self._threads, partial(self._read, work))
        if owner is None:
            return await read()
        async with self._lane(owner, slow=slow):
            return await read()

    def _read(self, work: Work[T]) -> T:
        for attempt in range(ATTEMPTS):
            try:
                with self._reading(self._connection()) as tx:
                    return work(tx)
            except psycopg.Error as error:
                if attempt == ATTEMPTS - 1 or not _may_repeat(error):
                    _raise_store_error(error)
        raise AssertionError

    @contextmanager
    def _reading(self, connection: Connection) -> Iterator[PostgreSQLTx]:
        try:
            cursor = connection.execute(_READ)
            cursor.nextset()
            ((now,),) = cursor.fetchall()
            yield PostgreSQLTx(connection, self, now)
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back(connection)
            raise

    async def walk(
        self, function: Callable[Concatenate[Tx, P], Iterator[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]:
        found = self._walk(lambda tx: function(tx, *args, **kwargs))
        thread = ThreadPoolExecutor(1, "brain-store-walks")
        try:
            while (one := await self._run(thread, partial(next, found, None))) is not None:
                yield one
        finally:
            thread.submit(found.close)  # type: ignore[attr-defined]
            thread.shutdown(wait=False)

    def _walk(self, begin: Work[Iterator[T]]) -> Iterator[T]:
        connection = self._connect()
        try:
            with self._reading(connection) as tx:
                yield from begin(tx)
        except psycopg.Error as error:
            _raise_store_error(error)
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    async def _run(self, threads: ThreadPoolExecutor, function: Callable[[], T]) -> T:
        """Run a function in a thread. A caller that is cancelled waits for it."""
        running = threads.submit(function)
        future = asyncio.wrap_future(running)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not running.cancel():
                await asyncio.wait({future})
            raise

    # Changes of other processes

    async def data_version(self) -> int:
        """Return a number as `Database` says: always another one while changes are not announced."""
        if not self._hears:
            self._version += 1
        return self._version

    async def _listen(self) -> bool:
        """Open the connection that listens; return whether it gets announcements. With PgBouncer, it gets none."""
        connection = self._listener = await self._run(self._threads, self._connect)
        await self._run(self._threads, lambda: connection.execute(f"LISTEN {CHANNEL}") and None)
        self._heard.clear()
        with suppress(NotImplementedError):  # a loop without readers, as on Windows
            self._loop.add_reader(connection.fileno(), self._hear)
            self._listened = connection.fileno()
        await self._run(self._threads, partial(self._notify, f"{self.process}?"))
        with suppress(TimeoutError):
            async with asyncio.timeout(HEAR_SECONDS):
                await self._heard.wait()
        self._hears = self._heard.is_set()
        if self._hears:
            self.note_change()
        else:
            self._stop_listening()
        return self._hears

    def _hear(self) -> None:
        """Read what the connection that listens has received."""
        assert self._listener is not None
        connection = self._listener.pgconn
        try:
            connection.consume_input()
        except psycopg.Error:
            self._stop_listening()
            if not self._is_closing:
                self._listening = self._loop.create_task(self._listen_again(), name="listen")
            return
        is_new = False
        while (notice := connection.notifies()) is not None:
            sender = notice.extra.decode(errors="replace")
            if sender == f"{self.process}?":
                self._heard.set()
            is_new = is_new or sender.rstrip("?") != self.process
        if is_new:
            self.note_change()

    def note_change(self) -> None:
        if self._hears:
            self._version += 1
            self.known_version = self._version, math.inf
        super().note_change()

    async def _listen_again(self) -> None:
        """Listen again after the connection was lost. Changes since then are unknown."""
        while not self._is_closing:
            try:
                if await self._listen():
                    return
            except (StoreError, psycopg.Error):
                self._stop_listening()
            await asyncio.sleep(MAX_PAUSE)

    def _stop_listening(self) -> None:
        self._hears = False
        self.known_version = self._version, -math.inf
        if self._listener is not None:
            if self._listened >= 0:
                self._loop.remove_reader(self._listened)
                self._listened = -1
            with self._lock:
                self._connections.discard(self._listener)
            self._listener.close()
            self._listener = None

    def _announce(self) -> None:
        """Tell other processes that something has changed. In a transaction, it would slow down commits."""
        self._has_news = True
        if self._announcing is None and not self._is_closing:
            self._announcing = self._loop.create_task(self._announce_soon(), name="announce")

    async def _announce_soon(self) -> None:
        while self._has_news:
            self._has_news, pause = False, ANNOUNCE_SECONDS
            try:
                await self._run(self._threads, partial(self._notify, self.process))
            except (StoreError, psycopg.Error):
                self._has_news, pause = True, MAX_PAUSE
            await asyncio.sleep(pause)
        self._announcing = None

    def _notify(self, sender: str) -> None:
        try:
            self._connection().execute("SELECT pg_notify($1, $2)", (CHANNEL, sender))
        except psycopg.OperationalError:
            self._forget()
            raise

    # Health

    async def find_problem(self) -> str | None:
        asked_at, problem = self._probe
        if time.monotonic() < asked_at + PROBE_PERIOD_SECONDS:
            return problem
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                ((is_standby,),) = await self.read(lambda tx: tx.execute("SELECT pg_is_in_recovery()").fetchall())
            problem = "The database is read-only." if is_standby else None
        except StoreError as error:
            problem = error.message
        except TimeoutError:
            problem = UNREACHABLE
        self._probe = time.monotonic(), problem
        return problem

    async def diagnose(self) -> tuple[str | None, str]:
        started = time.monotonic()
        await self.read(lambda tx: tx.execute("SELECT 1").fetchone())
        milliseconds = (time.monotonic() - started) * 1000
        query = (
            "SELECT current_setting('server_version'), pg_database_size(current_database()), "
            "(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), "
            "current_setting('max_connections'), (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid())"
        )
        row = await self.read(lambda tx: tx.execute(query).fetchone())
        version, size, connections, limit, is_encrypted = row
        return None, (
            f"PostgreSQL {version.split()[0]}, {milliseconds:.1f} ms per read, {size / MIB:,.0f} MiB, "
            f"{connections} of {limit} connections in use, {'TLS' if is_encrypted else 'no TLS'}, "
            f"{'LISTEN works' if self._hears else 'LISTEN does not work, as with PgBouncer: Brain polls'}"
        )

    async def sweep(self, until: float) -> None:
        """Finish an upgrade. The server itself removes traces of deleted rows."""
        if await self.read(tables.is_unfinished):
            await self.write(tables.finish)

    async def scrub(self) -> None:
        def vacuum() -> None:
            try:
                self._connection().execute(tables.VACUUM)
            except psycopg.Error as error:
                _raise_store_error(error)

        await self._run(self._threads, vacuum)


@lru_cache(1024)
def _translate(query: str) -> tuple[str, Sequence[str]]:
    """Return a query with numbered parameters, and the names of its named ones."""
    names: list[str] = []
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        if match[1] is None:
            count += 1
            return f"${count}"
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return _PARAMETER.sub(number, query), names


def _begin(owner: str | None, durable: bool, seconds: float) -> str:
    """Return the statements that begin a write, in one round trip: the last one returns its ID and time.

    Args:
        seconds: How long it waits for others.
    """
    if owner is None:
        locks = f"pg_advisory_xact_lock({_lock_key('')})"
    else:
        shared = f"pg_advisory_xact_lock_shared({_lock_key('')})"
        locks = f"{shared}, pg_advisory_xact_lock({_lock_key(owner)})"
    return (
        "BEGIN ISOLATION LEVEL READ COMMITTED; "
        f"SET LOCAL idle_in_transaction_session_timeout = {round(FROZEN_SECONDS * 1000)}; "
        f"SET LOCAL lock_timeout = {round(seconds * 1000)}; "
        f"{'' if durable else 'SET LOCAL synchronous_commit = off; '}"
        f"SELECT {locks}, pg_current_xact_id()::text, {_TIME}"
    )


@lru_cache(10_000)
def _lock_key(owner: str) -> int:
    digest = hashlib.blake2b(f"brain:{owner}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def _may_repeat(error: psycopg.Error) -> bool:
    """Return whether a transaction that failed with this error may succeed at once."""
    return _is_lost(error) or (error.sqlstate or "").startswith("40")


def _is_lost(error: psycopg.Error) -> bool:
    """Return whether an error means that there is no connection any more."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)  # and not a value that cannot be sent
    return error.sqlstate[:2] in ("08", "57") or error.sqlstate == "25P03"


def _raise_store_error(error: psycopg.Error) -> NoReturn:
    """Raise an error of PostgreSQL as `StoreError`, without its message, which may quote stored text."""
    state = error.sqlstate or ""
    detail = f"{type(error).__name__} {state}".strip()
    if _is_lost(error) or state == "53300":
        raise StoreError(UNREACHABLE, detail, may_pass=True) from None
    if state == "53100":
        raise StoreError("The disk is full.", detail, may_pass=True) from None
    if state == "25006":
        raise StoreError("The database is read-only.", detail, may_pass=True) from None
    if state[:2] in ("40", "53", "55"):
        raise StoreError("Other processes are using the database. Try again.", detail, may_pass=True) from None
    raise StoreError("The database cannot be used.", detail) from None


def _describe(url: str) -> str:
    """Return a URL without its password.

    Raises:
        StoreError: It is invalid.
    """
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise StoreError(f"STORE has an invalid URL: {failures.explain_url(error)}.") from None
    hosts, ports = (f"{parts.get(name) or ''}".split(",") for name in ("host", "port"))
    places = (f"{host}:{port}" if port else host for host, port in zip_longest(hosts, ports, fillvalue=ports[-1]))
    user = f"{parts['user']}@" if parts.get("user") else ""
    return f"postgresql://{user}{','.join(places) or 'localhost'}/{parts.get('dbname') or parts.get('user') or ''}"
