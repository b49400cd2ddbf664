"""A process that runs tasks is killed before any of its writes: each task ends, and is reported, exactly once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "task_crashes.py"


@pytest.mark.parametrize(("kind", "writes"), [("alone", (1, 26, 2)), ("shared", (2, 20, 6))])
def test_nothing_is_lost_or_repeated(kind: str, writes: tuple[int, int, int]) -> None:
    check(kind, writes)


@pytest.mark.postgresql
@pytest.mark.parametrize(("kind", "writes"), [("alone", (3, 30, 9)), ("shared", (4, 30, 9))])
def test_nothing_is_lost_or_repeated_on_postgresql(
    kind: str, writes: tuple[int, int, int], postgresql_url: str
) -> None:
    check(kind, writes, postgresql_url)


def check(kind: str, writes: tuple[int, int, int], *store: str) -> None:
    command = [sys.executable, str(SCRIPT), kind, *map(str, writes), *store]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [one["write"] for one in found] == list(range(*writes))
    assert any(one["killed"] for one in found)
    for one in found:
        assert one["states"] == ["succeeded"] * 3, one
        assert one["ends"] == [1, 1, 1], one
        assert one["reports"] == [1, 1, 1], one
        assert one["repeated"] == 0, one
        assert one["effects"] <= 6, one
        assert (one["unknown"] > 0) == (one["warned"] > 0), one
