"""The databases on which the tests of the store run: in memory, in a file, on PostgreSQL, or one of your own.

A test that asks for `store_place` or `store` runs once on each of them. One that asks for `shared_place`,
`shared_store` or `store_setting` needs a database that several processes can use.

With `--database MODULE:FUNCTION`, pytest runs only these tests, and on your database. The function gets an empty
directory and returns a context manager; its value is a `DatabasePlace`.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path

import pytest
from postgresql_servers import Cluster
from store_helpers import Clock, DatabasePlace, opened, place_of, store_at

from brain.store import database_of
from brain.store.sqlite.database import SQLite
from brain.store.store import Store

SHARED = ("file", pytest.param("postgresql", marks=pytest.mark.postgresql))
FIXTURES = {"store_place": ("memory", *SHARED), "shared_place": SHARED, "store_setting": SHARED}
TEMPLATE = "brain_template"
_numbers = count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--database", metavar="MODULE:FUNCTION", help="run the tests of the store on your own database")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    own = metafunc.config.getoption("database")
    for fixture, engines in FIXTURES.items():
        if fixture in metafunc.fixturenames:
            is_own = own is not None and fixture != "store_setting"
            metafunc.parametrize(fixture, [own] if is_own else engines, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    own = config.getoption("database")
    if own is not None:
        used = [one for one in items if isinstance(one, pytest.Function) and own in _params(one)]
        config.hook.pytest_deselected(items=[*{*items} - {*used}])
        items[:] = used


def _params(item: pytest.Function) -> Collection[object]:
    return item.callspec.params.values() if hasattr(item, "callspec") else ()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store_setting(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The value of STORE for an empty database, which several processes can use."""
    return _setting(request, tmp_path)


def _setting(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"sqlite:{tmp_path / 'data' / 'brain.db'}"
    return str(request.getfixturevalue("postgresql_store_url"))


@contextmanager
def _new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DatabasePlace]:
    match request.param:
        case "memory":
            yield partial(SQLite, None)
        case "file" | "postgresql":
            yield place_of(_setting(request, tmp_path))
        case own:
            module, _, function = own.partition(":")
            with getattr(import_module(module), function)(tmp_path) as place:
                yield place


@pytest.fixture
def store_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DatabasePlace]:
    """An empty database. One in memory has only one user, and a new one for each `Database`."""
    with _new_place(request, tmp_path) as place:
        yield place


@pytest.fixture
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DatabasePlace]:
    """An empty database, which several processes can use."""
    with _new_place(request, tmp_path) as place:
        yield place


@pytest.fixture
async def store(store_place: DatabasePlace, clock: Clock) -> AsyncIterator[Store]:
    async with store_at(store_place, clock) as store:
        yield store


@pytest.fixture
async def shared_store(shared_place: DatabasePlace, clock: Clock) -> AsyncIterator[Store]:
    async with store_at(shared_place, clock) as store:
        yield store


@pytest.fixture
async def memory_store(clock: Clock) -> AsyncIterator[Store]:
    async with store_at(None, clock) as store:
        yield store


@pytest.fixture(scope="session")
def _postgresql_template(shared_cluster: Cluster) -> str:
    """A database with tables, to be copied: this takes a third of the time of creating them."""

    async def create_tables() -> None:
        async with opened(Store(database_of(shared_cluster.create_database(TEMPLATE)))):
            pass

    asyncio.run(create_tables())
    return TEMPLATE


@pytest.fixture
def postgresql_store_url(shared_cluster: Cluster, _postgresql_template: str) -> Iterator[str]:
    """The URL of a database with empty tables, which is dropped after the test."""
    name = f"store_{next(_numbers)}"
    yield shared_cluster.create_database(name, _postgresql_template)
    shared_cluster.drop_database(name)
