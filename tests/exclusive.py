"""Tests run in several processes at once. One with the marker `alone` has the machine for itself meanwhile.

It measures how soon something happens, or how long something is held up, in tens of milliseconds, or has one of two
measured against the other: the work of others would count as Brain's.
"""

import os
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

if sys.platform != "win32":  # where no file can be locked in this way, and such tests run beside others
    import fcntl

_locks = pytest.StashKey[tuple[int, int]]()
_folder = pytest.StashKey["tempfile.TemporaryDirectory[str]"]()


def pytest_configure(config: pytest.Config) -> None:
    folder = getattr(config, "workerinput", {}).get("alone")
    if folder is not None and sys.platform != "win32":
        config.stash[_locks] = (opened(f"{folder}/door"), opened(f"{folder}/room"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In the process that gives the tests out, for each that runs them."""
    stash = node.config.stash
    if _folder not in stash:
        stash[_folder] = tempfile.TemporaryDirectory(prefix="brain-tests-")
    node.workerinput["alone"] = stash[_folder].name


def pytest_unconfigure(config: pytest.Config) -> None:
    for lock in config.stash.get(_locks, ()):
        os.close(lock)
    if _folder in config.stash:
        config.stash[_folder].cleanup()


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around the time limit: what is waited here is not the test's
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    locks = item.config.stash.get(_locks, None)
    if locks is None:
        return (yield)
    with _room(*locks, alone=item.get_closest_marker("alone") is not None):
        return (yield)


@contextmanager
def _room(door: int, room: int, alone: bool) -> Iterator[None]:
    """Who waits to be alone waits in the door, so that nobody enters meanwhile."""
    with locked(door):
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    try:
        yield
    finally:
        fcntl.flock(room, fcntl.LOCK_UN)


def opened(path: str | os.PathLike[str]) -> int:
    """A file to be locked: its descriptor, to be closed."""
    return os.open(path, os.O_CREAT | os.O_RDWR)


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Holds a file against other processes."""
    if sys.platform == "win32":
        yield
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
