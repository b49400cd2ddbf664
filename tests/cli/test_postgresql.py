"""Commands on PostgreSQL: all that use the store work there, failures are explained, and no password is shown."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from brain_servers import post, script
from limits import WAIT_SECONDS
from postgresql_servers import Cluster, run_cluster

from cli.command import Brain

pytestmark = pytest.mark.postgresql

SECRET = "a-long-password"
HBA = """\
host all ada 127.0.0.1/32 scram-sha-256
host all banned 127.0.0.1/32 reject
host all all 127.0.0.1/32 trust
"""


@pytest.fixture(scope="module")
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with users who have a password, no rights, or no connections, and a database of another program."""
    with run_cluster() as cluster:
        for statement in (
            f"CREATE ROLE ada LOGIN PASSWORD '{SECRET}'",
            "CREATE ROLE banned LOGIN",
            "CREATE ROLE busy LOGIN CONNECTION LIMIT 0",
            "CREATE ROLE guest LOGIN",
            "ALTER ROLE brain CONNECTION LIMIT 9",
        ):
            cluster.execute(statement)
        for name in ("empty", "used", "other"):
            cluster.create_database(name)
        for encoding in ("latin1", "sql_ascii"):
            how = f"OWNER brain TEMPLATE template0 ENCODING {encoding} LC_COLLATE 'C' LC_CTYPE 'C'"
            cluster.execute(f"CREATE DATABASE {encoding} {how}")
        with psycopg.connect(cluster.url("other")) as connection:
            connection.execute("CREATE TABLE account (name text)")
        (cluster.folder / "data" / "pg_hba.conf").write_text(HBA)
        cluster.execute("SELECT pg_reload_conf()")
        yield cluster


def url(cluster: Cluster, user: str = "brain", database: str = "empty", more: str = "") -> str:
    return cluster.url(database).replace("://brain@", f"://{user}@") + more


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (lambda cluster: url(cluster, f"ada:x{SECRET}"), ["password authentication failed", "PGPASSWORD"]),
        (lambda cluster: url(cluster, "ada"), ["no password", "PGPASSWORD"]),
        (lambda cluster: url(cluster, "banned"), ["rejects", "pg_hba.conf"]),
        (lambda cluster: url(cluster, "nobody"), ['role "nobody" does not exist', "createuser"]),
        (lambda cluster: url(cluster, "busy"), ["too many connections", "limit"]),
        (lambda cluster: url(cluster, "guest"), ["may not create", "owner"]),
        (lambda cluster: url(cluster, database="missing"), ['database "missing" does not exist', "createdb"]),
        (lambda cluster: url(cluster, database="other"), ["another program", "empty database"]),
        (lambda cluster: url(cluster, database="latin1"), ["encoding LATIN1", "createdb --encoding=UTF8"]),
        (lambda cluster: url(cluster, database="sql_ascii"), ["encoding SQL_ASCII", "createdb --encoding=UTF8"]),
        (lambda cluster: url(cluster, more="?sslmode=require"), ["SSL", "sslmode"]),
        (lambda cluster: f"postgresql://ada:{SECRET}@host.invalid/empty", ["host.invalid", "correct the host"]),
        (lambda cluster: f"postgresql://ada:{SECRET}@127.0.0.1:1/empty", ["refused", "start the server"]),
        (lambda cluster: url(cluster, f"ada:{SECRET}", more="?sslmod=require"), ["invalid URL", "parameter"]),
        (lambda cluster: url(cluster, f"ada:{SECRET}", more="?options=-c%20a=b"), ["invalid URL", "%3D"]),
        (lambda cluster: url(cluster, f"ada:{SECRET}%zz"), ["invalid URL", "%40"]),
    ],
)
def test_a_failure_names_the_cause_and_the_remedy(
    place: Callable[[Cluster], str],
    words: list[str],
    cluster: Cluster,
    brain: Brain,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = place(cluster)
    monkeypatch.setenv("BRAIN_STORE", store)
    monkeypatch.setenv("BRAIN_MODEL", "builtin")
    for command in ("memory add tea", "check", "ask hello"):
        code, out, err = brain(*command.split())
        line = err if command != "check" else next(line for line in out.splitlines() if "database" in line)
        assert (code, err.count("\n") < 2) == (1, True), err
        assert [word for word in words if word not in line] == []
        assert SECRET not in out + err


@pytest.mark.parametrize(
    "store",
    [
        f"postgresql://ada:{SECRET}/brain",
        f"postgresql://ada:{SECRET[:3]}/{SECRET}@host/brain",
        f"postgresql://ada:{SECRET[:3]}@{SECRET}@host/brain",
        f"host=host dbname=brain user=ada password={SECRET}",
    ],
)
def test_an_invalid_url_is_shown_without_its_password(
    store: str, brain: Brain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAIN_STORE", store)
    code, out, err = brain("check")
    assert (code, out, SECRET in err) == (2, "", False)


def test_a_process_has_up_to_nine_connections(cluster: Cluster, brain: Brain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIN_STORE", url(cluster, database="used"))
    with brain.process("serve", "--port", "0", "--model", "builtin") as server:
        address = server.url()
        with ThreadPoolExecutor(20) as threads:
            answers = threads.map(lambda n: post(address, json={"message": f"hello {n}"}), range(40))
        assert {answer.names[-1] for answer in answers} == {"done"}
        server.process.terminate()
        server.end(WAIT_SECONDS)
    _, out, _ = brain("check", "--model", "builtin")
    assert re.search(r"^ok   database postgresql://brain@.*: PostgreSQL [\d.]+, .*LISTEN works", out, re.MULTILINE)


def test_all_commands_for_data_work(
    postgresql_url: str, brain: Brain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAIN_STORE", postgresql_url.replace("://brain@", f"://brain:{SECRET}@"))
    monkeypatch.setenv("BRAIN_MODEL", script(tmp_path, ["Fine."]))
    shown = ""

    def run(*arguments: str, stdin: bytes | None = None, code: int = 0) -> str:
        nonlocal shown
        found, out, err = brain(*arguments, stdin=stdin)
        assert found == code, out + err
        shown += out + err
        return out

    run("memory", "list", code=1)  # no command but those that write creates the tables
    run("export", code=1)
    fact = run("memory", "add", "I like tea.").split()[0]
    run("memory", "edit", fact, "I like green tea.")
    assert "green" in run("memory", "list", "--search", "tea")
    assert run("ask", "hello", "--conversation", "c") == "Fine.\n"
    assert "complete" in run("explain", "last")
    assert "Fine." in run("chat", "--conversation", "c", stdin=b"hello again\n")
    task = re.findall(r"task\w{16}", run("tasks", "add", "Read.", "--json"))[0]
    for action in ("show", "pause", "cancel", "delete"):
        assert brain("tasks", action, task)[0] in (0, 1)
    exported = run("export")
    run("import", "-", "--user", "ben", stdin=exported.encode())
    assert "green" in run("memory", "list", "--user", "ben")
    assert "ok   database" in brain("check")[1]
    run("memory", "delete", fact)
    run("forget", "local", "--yes")
    assert "traces" in shown
    run("export", code=1)
    assert "green" in run("export", "--user", "ben")
    assert SECRET not in shown


def test_a_server_shows_no_password(postgresql_url: str, brain: Brain) -> None:
    store = postgresql_url.replace("://brain@", f"://brain:{SECRET}@")
    with brain.process("serve", "--port", "0", "--model", "builtin", STORE=store) as server:
        server.url()
        shown = server.said("Database: postgresql://brain@")
        server.process.terminate()
        server.end(WAIT_SECONDS)
        assert SECRET not in shown + server.stderr
