"""The servers that tests of a database start: what one test leaves is no other's, and nothing is left of them."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Any

import psycopg
import pytest
from limits import WAIT_SECONDS
from postgresql_servers import Cluster
from tcp_proxy import run_proxy

SSL_REQUEST = bytes.fromhex("0000000804d2162f")

pytestmark = pytest.mark.postgresql


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_has_an_empty_database(postgresql_url: str, number: int) -> None:
    query(postgresql_url, f"CREATE TABLE seen AS SELECT {number} AS number")
    assert query(postgresql_url, "SELECT number FROM seen") == [(number,)]


def test_a_database_is_dropped_although_it_is_in_use(shared_cluster: Cluster) -> None:
    url = shared_cluster.create_database("used")
    with psycopg.connect(url):
        shared_cluster.drop_database("used")
        assert query(shared_cluster.url("postgres"), "SELECT 1 FROM pg_database WHERE datname = 'used'") == []


def test_what_is_committed_survives_the_end_of_a_cluster(postgresql_cluster: Cluster) -> None:
    url = postgresql_cluster.create_database("brain")
    query(url, "CREATE TABLE done (number int)")
    ways = (postgresql_cluster.stop, postgresql_cluster.kill)
    for number, end in enumerate(ways):
        query(url, f"INSERT INTO done VALUES ({number})")
        end()
        with pytest.raises(psycopg.OperationalError):
            query(url, "SELECT 1")
        postgresql_cluster.start()
    postgresql_cluster.restart()
    assert query(url, "SELECT number FROM done ORDER BY number") == [(0,), (1,)]


def test_a_paused_cluster_accepts_connections_and_answers_later_or_never(postgresql_cluster: Cluster) -> None:
    for ends, answer in ((False, b"N"), (True, b"")):
        with socket.create_connection(("127.0.0.1", postgresql_cluster.port)) as connection:
            with postgresql_cluster.paused():
                connection.sendall(SSL_REQUEST)
                assert select([connection], [], [], 0.2)[0] == []
                if ends:
                    postgresql_cluster.kill()
            connection.settimeout(WAIT_SECONDS)
            with suppress(ConnectionError):
                assert connection.recv(1) == answer


@pytest.mark.usefixtures("shared_cluster")  # so that it is skipped where PostgreSQL is not installed
def test_nothing_is_left_of_a_cluster_whose_tests_are_killed() -> None:
    code = (
        "from postgresql_servers import run_cluster\n"
        "with run_cluster() as cluster:\n"
        "    with cluster.paused():\n"
        "        print(cluster.folder, flush=True)\n"
        "        input()\n"
    )
    pipe = subprocess.PIPE
    tests = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent, stdin=pipe, stdout=pipe)
    with tests:
        assert tests.stdout is not None
        folder = Path(tests.stdout.readline().decode().strip())
        children = Path(f"/proc/{tests.pid}/task/{tests.pid}/children").read_text().split()
        descriptors = [os.pidfd_open(int(child)) for child in children]
        tests.send_signal(signal.SIGKILL)
    assert len(descriptors) == 2
    for descriptor in descriptors:
        assert select([descriptor], [], [], WAIT_SECONDS)[0]
        os.close(descriptor)
    assert not folder.exists()


@pytest.mark.pgbouncer
def test_pgbouncer_shares_a_connection_between_clients(pgbouncer_url: str) -> None:
    with psycopg.connect(pgbouncer_url, autocommit=True) as one, psycopg.connect(pgbouncer_url, autocommit=True) as two:
        found = [client.execute("SELECT pg_backend_pid(), current_user").fetchone() for client in (one, two, one)]
    assert len(set(found)) == 1
    assert found[0] is not None
    assert found[0][1] == "brain"


def test_a_proxy_delays_cuts_and_refuses(postgresql_url: str) -> None:
    with run_proxy(postgresql_url) as proxy:
        with psycopg.connect(proxy.url, autocommit=True) as connection:
            proxy.request_delay, proxy.response_delay = 0.02, 0.03
            begin = time.monotonic()
            connection.execute("SELECT 1")
            assert time.monotonic() - begin >= 0.05
            proxy.cut()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError):
            query(proxy.url, "SELECT 1")
        proxy.accept()
        assert query(proxy.url, "SELECT repeat('x', 1000000)") == [("x" * 1_000_000,)]


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_proxy_cuts_a_connection_before_or_after_the_server_gets_a_statement(
    postgresql_url: str, is_answered: bool
) -> None:
    with run_proxy(postgresql_url) as proxy, psycopg.connect(proxy.url, autocommit=True) as connection:
        ((port,),) = connection.execute("SELECT inet_client_port()")
        proxy.cut_next(port, is_answered=is_answered, refuses=True)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("CREATE TABLE done ()")
        with pytest.raises(psycopg.OperationalError):
            query(proxy.url, "SELECT 1")
        assert query(postgresql_url, "SELECT to_regclass('done') IS NOT NULL") == [(is_answered,)]
