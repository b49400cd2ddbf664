"""What all tests share: a data folder of their own, and an option by which a skipped test fails."""

import gc
import os
import sys
import tempfile
from collections.abc import Generator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["exclusive", "node_clients", "postgresql_servers", "databases"]

_numbers = count()

sys.dont_write_bytecode = False  # else each of hundreds of processes compiles Brain again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("beside others", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("beside others")  # which take the time that an example may have


@pytest.fixture(scope="session", autouse=True)
def _data(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder))
        yield folder


def _own(data: Path) -> Generator[None]:
    """Conversations, calendars and indexes of whoever runs the tests are none of theirs, nor those of another test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(data / str(next(_numbers))))
        yield


@pytest.fixture(scope="module", autouse=True)
def _data_of_module(_data: Path) -> Generator[None]:
    yield from _own(_data)  # for servers that serve a whole module


@pytest.fixture(autouse=True)
def _data_of_test(_data: Path) -> Generator[None]:
    yield from _own(_data)


@pytest.fixture
def short_path() -> Generator[Path]:
    """A folder whose path leaves room for that of a Unix socket; the path of `tmp_path` is too long."""
    with tempfile.TemporaryDirectory(prefix="test-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def anyio_backend() -> str:
    """Tests marked `anyio` are coroutines that asyncio runs."""
    return "asyncio"


def pytest_collection_finish() -> None:
    """What stays for all tests is no work for the collector: its pauses would be taken for those of Brain."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fail-on-skip", action="store_true", help="a skipped test fails the run")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.config.getoption("--fail-on-skip") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which is not allowed here: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if collector.config.getoption("--fail-on-skip") and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped, which is not allowed here: {report.longrepr}"
    return report
