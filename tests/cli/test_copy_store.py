"""`brain copy-store`: its arguments, its progress, what it prints, and servers on the same databases."""

import signal
from pathlib import Path

import psycopg
import pytest
from brain_servers import post, script
from limits import WAIT_SECONDS
from store_helpers import add_turn

from brain.cli.commands import store_access
from brain.store.store import Store
from cli.command import Brain, interrupt

SECRET = "a-long-password"


@pytest.fixture
def url(postgresql_url: str) -> str:
    """The URL of an empty database, with a password, which the server does not ask for."""
    return postgresql_url.replace("://brain@", f"://brain:{SECRET}@") + "?application_name=test"


@pytest.fixture
def source(brain: Brain) -> str:
    """A store with 200 turns."""

    async def fill(store: Store) -> None:
        for n in range(200):
            await add_turn(store, "ada", f"c{n % 7}", f"I like tea {n}", number=n)

    brain.use(fill)
    return f"sqlite:{brain.store}"


@pytest.mark.parametrize(
    ("source", "target", "name", "advice"),
    [
        ("brain.db", "sqlite:b.db", "FROM", "brain copy-store sqlite:brain.db TO"),
        ("sqlite:a.db", "my brain.db", "TO", "brain copy-store FROM 'sqlite:my brain.db'"),
        ("memory:", "sqlite:b.db", "FROM", "brain copy-store sqlite:PATH TO"),
        ("mysql://h/d", "sqlite:b.db", "FROM", "brain copy-store sqlite:PATH TO"),
        ("", "sqlite:b.db", "FROM", "brain copy-store sqlite:PATH TO"),
        ("sqlite:a.db", f"postgresql://ada:{SECRET}@host", "TO", "brain copy-store FROM sqlite:PATH"),
        ("sqlite:a.db", f"postgresql://host?password={SECRET}", "TO", "brain copy-store FROM sqlite:PATH"),
        ("sqlite:a.db", f"postgresql://ada:pa@{SECRET}@host/b", "TO", "brain copy-store FROM sqlite:PATH"),
        ("sqlite:a.db", f"host=a password={SECRET} user=ada", "TO", "brain copy-store FROM sqlite:PATH"),
        ("sqlite:a.db", f"password='a {SECRET}' host=a", "TO", "brain copy-store FROM sqlite:PATH"),
    ],
)
def test_a_wrong_argument_is_named(source: str, target: str, name: str, advice: str, brain: Brain) -> None:
    code, out, err = brain("copy-store", source, target)
    assert (code, out) == (2, "")
    assert err.startswith(f"brain: Invalid {name}: ")
    assert err.endswith(f" Try: {advice}\n")
    assert SECRET not in err


def test_a_store_that_does_not_exist_is_not_created(brain: Brain, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    code, _, err = brain("copy-store", f"sqlite:{brain.store}", f"sqlite:{target}")
    assert (code, str(brain.store) in err) == (1, True)
    assert not brain.store.exists()
    assert not target.exists()


@pytest.mark.postgresql
def test_a_copy_is_used_as_the_command_says(
    brain: Brain, source: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROGRESS_SECONDS", "MAX_PROGRESS_SECONDS"):
        monkeypatch.setattr(store_access, name, 0.001)
    code, out, err = brain("copy-store", source, url)
    assert code == 0
    assert " of 208 rows copied, " in err
    shown = url.replace(SECRET, "…")
    assert out.splitlines()[-1] == f"To use the copy: export BRAIN_STORE='{shown}'"
    assert SECRET not in out + err
    exports = [brain("export", "--user", "ada")[1]]
    with monkeypatch.context() as patch:
        patch.setenv("BRAIN_STORE", url)
        exports.append(brain("export", "--user", "ada")[1])
    back = f"sqlite:{tmp_path / 'back.db'}"
    code, out, _ = brain("copy-store", url, back)
    assert (code, out.splitlines()[-1]) == (0, f"To use the copy: export BRAIN_STORE={back}")
    monkeypatch.setenv("BRAIN_STORE", back)
    exports.append(brain("export", "--user", "ada")[1])
    lines = [one.splitlines()[1:] for one in exports]
    assert lines[0] == lines[1] == lines[2] != []


@pytest.mark.postgresql
def test_databases_of_servers_are_neither_copied_nor_written(
    brain: Brain, source: str, postgresql_url: str, tmp_path: Path
) -> None:
    model = script(tmp_path, ["Hello."])
    assert brain("copy-store", source, postgresql_url)[0] == 0
    for store in (source, postgresql_url):
        with brain.process("serve", "--port", "0", "--model", model, STORE=store) as server:
            url = server.url()
            if store == postgresql_url:
                with psycopg.connect(postgresql_url, autocommit=True) as connection:
                    connection.execute("UPDATE process SET until = 1")  # a server that is alone renews no lease
            for pair in ((source, postgresql_url), (postgresql_url, source)):
                code, out, err = brain("copy-store", *pair)
                assert (code, out, " in use" in err) == (1, "", True)
            assert post(url, json={"message": "hi"}).status == 200
            interrupt(server)


@pytest.mark.postgresql
def test_a_copy_that_is_stopped_continues(brain: Brain, source: str, postgresql_url: str, tmp_path: Path) -> None:
    assert brain("copy-store", source, postgresql_url)[0] == 0
    pair = postgresql_url, f"sqlite:{tmp_path / 'back.db'}"
    with psycopg.connect(postgresql_url) as connection, brain.process("copy-store", *pair) as process:
        connection.execute("LOCK TABLE file")  # the command waits for it
        process.said("Opening the databases")
        process.process.send_signal(signal.SIGTERM)
        connection.rollback()
        assert process.end(WAIT_SECONDS)[0] == 128 + signal.SIGTERM
        assert process.stderr.endswith("The same command continues it.\n")
    assert brain("copy-store", *pair)[0] == 0
