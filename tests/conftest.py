"""What all tests share: a data folder of their own, and an option by which a skipped test fails."""

from collections.abc import Generator
from itertools import count
from pathlib import Path

import pytest

pytest_plugins = ["nodes"]

_numbers = count()


@pytest.fixture(scope="session")
def _data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(autouse=True)
def _own_data(_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversations, calendars and indexes of whoever runs the tests are none of theirs, nor those of another test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(_data / str(next(_numbers))))


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
