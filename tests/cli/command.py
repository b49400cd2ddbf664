"""Commands of `brain`, run inside the test's process: much faster than `python -m brain`."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TextIO

import pytest
from brain_servers import Process

from brain.cli.main import run
from brain.store.sqlite.database import SQLite
from brain.store.store import Store


def interrupt(process: Process) -> int:
    """Press Ctrl-C until the process ends, since Python misses one right before it waits; the exit code."""
    while True:
        process.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return process.end(5)[0]


class Brain:
    """Runs commands on a store of its own.

    Attributes:
        store: the file of the store, which does not exist yet.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self.store = folder / "store" / "brain.db"
        self._patch = patch
        self._capture = capture
        self._input = folder / "input"
        patch.setenv("BRAIN_STORE", f"sqlite:{self.store}")

    def __call__(self, *arguments: str, stdin: bytes | TextIO | None = None) -> tuple[int, str, str]:
        """Exit code, standard output and standard error.

        Args:
            stdin: standard input, or what a file holds that is redirected to it; None for nothing.
        """
        if isinstance(stdin, bytes):
            self._input.write_bytes(stdin)
        self._capture.readouterr()
        path = Path("/dev/null") if stdin is None else self._input
        with path.open() if stdin is None or isinstance(stdin, bytes) else stdin as source, self._patch.context() as p:
            p.setattr(sys, "stdin", source)
            try:
                code = run(arguments)
            except SystemExit as exit:
                code = int(str(exit.code))
        return code, *self._capture.readouterr()

    def process(self, *arguments: str, stdin: int = subprocess.DEVNULL, **settings: object) -> Process:
        """`python -m brain` in a process of its own, on the same store."""
        env = {key: value for key, value in os.environ.items() if key.startswith("BRAIN_")}
        env |= {f"BRAIN_{key}": str(value) for key, value in settings.items()}
        return Process(*arguments, env=env, stdin=stdin)

    def use(self, act: Callable[[Store], Coroutine[Any, Any, Any]]) -> Any:
        """What a function of the opened store returns."""

        async def main() -> Any:
            store = Store(SQLite(self.store))
            await store.open()
            try:
                return await act(store)
            finally:
                await store.close()

        return asyncio.run(main())

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of the store."""
        with closing(sqlite3.connect(self.store)) as database:
            return database.execute(sql).fetchall()
