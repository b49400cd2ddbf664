"""PostgreSQL and PgBouncer for tests, from Debian's packages: in temporary folders, on free ports, without a service.

A test with the marker `postgresql` asks for one of these fixtures:

- `postgresql_url`: an empty database of its own, in the cluster that all tests of the process share (`shared_cluster`);
- `postgresql_cluster`: a cluster of its own, to be stopped, killed or paused;

with the marker `pgbouncer` also for this one:

- `pgbouncer_url`: the database of `postgresql_url` through PgBouncer, with a connection per transaction.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from select import select
from typing import Any

import pytest
from limits import WAIT_SECONDS
from ports import reserve_port, with_port

USER = "brain"
"""Owns the databases, and may do nothing else."""
_numbers = count()
_IS_ROOT = os.name == "posix" and os.geteuid() == 0
_SYSTEM_USER = "postgres" if _IS_ROOT else None  # neither program runs as root
_MEMORY = Path("/dev/shm")
_MEMORY_BYTES = 2**30
_DEBIAN = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: [*map(int, re.findall(r"\d+", str(path)))])
_PATH = os.pathsep.join([*map(str, reversed(_DEBIAN)), os.environ.get("PATH", ""), "/usr/sbin"])
_OPTIONS = (
    "fsync=off",  # nothing here outlives the machine
    "max_wal_size=64MB",  # its folder may be in memory
    "log_checkpoints=off",  # each new database makes one
    "dynamic_shared_memory_type=mmap",  # what is killed leaves nothing outside of its folder
)
_GUARD = """\
read -r _
kill -KILL "$(head -n 1 pgbouncer.pid)"
pid=$(head -n 1 data/postmaster.pid)
kill -CONT "$pid" $(cat "/proc/$pid/task/$pid/children")
pg_ctl -D data -m immediate stop
rm -rf "$PWD"
"""
"""Waits until its input ends, as it does when the tests end in any way, and removes what is left of them."""
_PGBOUNCER_INI = """\
[databases]
* = host=127.0.0.1 port={server} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pidfile = pgbouncer.pid
pool_mode = transaction
"""


class _Server:
    """A running program that tells on standard error when it is ready."""

    def __init__(self, command: Sequence[str], folder: Path, ready: str, log: deque[str]) -> None:
        self.process = _spawn(command, folder)
        self._is_ready = False
        self._is_known = threading.Event()
        self._reader = threading.Thread(target=self._read_log, args=(ready, log), daemon=True)
        self._reader.start()
        if not self._is_known.wait(WAIT_SECONDS) or not self._is_ready:
            self.end(signal.SIGKILL)
            raise AssertionError("".join(log))

    def end(self, number: signal.Signals) -> None:
        """Send it a signal that ends it, and wait for its end."""
        self.process.send_signal(number)
        self.process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)

    def _read_log(self, ready: str, log: deque[str]) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                log.append(line)
                if ready in line:
                    self._is_ready = True
                    self._is_known.set()
        self._is_known.set()


class Cluster:
    """A PostgreSQL server with its databases; it keeps its port while it is stopped.

    Attributes:
        log: The last lines that it wrote.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reserved, self.port = reserve_port()
        self.log = deque[str](maxlen=1000)
        self._server: _Server | None = None
        command = ("initdb", "-D", "data", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N", "-U", "postgres")
        made = _spawn(command, folder)
        _, error = made.communicate(timeout=WAIT_SECONDS)
        assert made.returncode == 0, error
        self.start()
        self.execute(f"CREATE ROLE {USER} LOGIN")

    def url(self, database: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str, template: str = "template1") -> str:
        """Copy a database without connections; return the URL of the copy."""
        self.execute(f"CREATE DATABASE {name} OWNER {USER} TEMPLATE {template}")
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, and end the connections to it."""
        # FORCE does the same, but looks only every 100 ms whether they have ended
        self.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
            f"DROP DATABASE {name} WITH (FORCE)",
        )

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Execute statements as superuser, in the database `postgres`; return the rows of the last one."""
        import psycopg  # of an extra, and this module is loaded for all tests

        url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start it, and wait until it has recovered and takes connections."""
        listen = ("-h", "127.0.0.1", "-p", str(self.port), "-k", str(self.folder))
        options = [part for option in _OPTIONS for part in ("-c", option)]
        command = ("postgres", "-D", "data", *listen, *options)
        self._server = _Server(command, self.folder, "database system is ready to accept connections", self.log)

    def stop(self) -> None:
        """Stop it as a service is stopped: transactions are rolled back, and connections end."""
        self._end(signal.SIGINT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kill all its processes at once; `start` recovers."""
        _, children = self._freeze()
        descriptors = [os.pidfd_open(child) for child in children]
        for child in children:
            os.kill(child, signal.SIGKILL)
        self._end(signal.SIGKILL)
        for descriptor in descriptors:
            assert select([descriptor], [], [], WAIT_SECONDS)[0]
            os.close(descriptor)
        self._remove_lock()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Its processes do nothing until the block ends; connections to it are neither answered nor closed."""
        process, children = self._freeze()
        try:
            yield
        finally:
            if process.poll() is None:  # else it was killed
                for pid in (*children, process.pid):
                    os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """Stop it at once, if it runs; it cannot be started again."""
        if self._server is not None:
            self._end(signal.SIGQUIT)
        self._reserved.close()

    def _freeze(self) -> tuple["subprocess.Popen[str]", list[int]]:
        """Pause the process and then its children, so that it can neither add nor reap any."""
        assert self._server is not None
        process = self._server.process
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        for child in children:
            os.kill(child, signal.SIGSTOP)
        return process, children

    def _end(self, number: signal.Signals) -> None:
        assert self._server is not None
        self._server.end(number)
        self._server = None

    def _remove_lock(self) -> None:
        """Remove what only processes that were killed leave: the guard must not take their numbers for theirs."""
        lock = self.folder / "data" / "postmaster.pid"
        memory = lock.read_text().splitlines()[6].split()[1]
        subprocess.run(["ipcrm", "-m", memory], check=True)
        lock.unlink()


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    """A running cluster in which each test uses only its own databases."""
    _require("initdb", "postgresql")
    with run_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _shared_pgbouncer(shared_cluster: Cluster) -> Iterator[int]:
    _require("pgbouncer", "pgbouncer")
    with run_pgbouncer(shared_cluster) as port:
        yield port


@pytest.fixture
def postgresql_url(shared_cluster: Cluster) -> Iterator[str]:
    """The URL of an empty database, which is dropped after the test; its user owns it and is no superuser."""
    name = f"test_{next(_numbers)}"
    yield shared_cluster.create_database(name)
    shared_cluster.drop_database(name)


@pytest.fixture
def pgbouncer_url(postgresql_url: str, _shared_pgbouncer: int) -> str:
    """The URL of the database of `postgresql_url` at PgBouncer."""
    return with_port(postgresql_url, _shared_pgbouncer)


@pytest.fixture
def postgresql_cluster() -> Iterator[Cluster]:
    """A running cluster that only this test uses."""
    _require("initdb", "postgresql")
    with run_cluster() as cluster:
        yield cluster


def _require(program: str, package: str) -> None:
    if sys.platform != "linux" or shutil.which(program, path=_PATH) is None:
        pytest.skip(f"Debian's package {package} is not installed")


@contextmanager
def run_cluster() -> Iterator[Cluster]:
    """Run a PostgreSQL of its own until the block ends; it also ends, with its folder, when this process is killed."""
    folder = _make_folder()
    guard = _spawn(("sh", "-c", _GUARD), folder, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        cluster = Cluster(folder)
        try:
            yield cluster
        finally:
            cluster.close()
    finally:
        guard.communicate(timeout=WAIT_SECONDS)


@contextmanager
def run_pgbouncer(cluster: Cluster) -> Iterator[int]:
    """Run a PgBouncer in front of a cluster until the block ends; yield its port."""
    reserved, port = reserve_port()
    config = _PGBOUNCER_INI.format(server=cluster.port, user=USER, port=port)
    path = cluster.folder / "pgbouncer.ini"
    path.write_text(config)
    path.chmod(0o644)
    server = _Server(("pgbouncer", "pgbouncer.ini"), cluster.folder, "process up", deque(maxlen=1000))
    try:
        yield port
    finally:
        server.end(signal.SIGKILL)  # newer versions take SIGTERM as a wish to wait for clients
        (cluster.folder / "pgbouncer.pid").unlink()
        reserved.close()


def _spawn(
    command: Sequence[str], folder: Path, stdin: int = subprocess.DEVNULL, stderr: int = subprocess.PIPE
) -> "subprocess.Popen[str]":
    """Start a program as a user that is not root, and where Ctrl-C does not reach it."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PATH": _PATH},
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        text=True,
        errors="replace",
        start_new_session=True,
        user=_SYSTEM_USER,
        group=_SYSTEM_USER,
        extra_groups=[] if _IS_ROOT else None,
    )


def _make_folder() -> Path:
    """Make a folder of the user of the servers, in memory if there is space.

    A database has 300 files. On ext4 without a journal it takes up to a second to create them soon after as many were
    deleted.
    """
    has_space = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES
    folder = Path(tempfile.mkdtemp(prefix="brain-postgresql-", dir=_MEMORY if has_space else "/tmp"))
    if _SYSTEM_USER is not None:
        shutil.chown(folder, _SYSTEM_USER, _SYSTEM_USER)
    return folder
