"""The archive: files for their owner only, within limits, and gone when their conversation or user is erased."""

import logging
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from turn_helpers import Player, ask_for, echo, registry_of

from brain.messages import PassUsage
from brain.runtime.archive import MAX_WAITING, Archive, Recorded, erase
from brain.runtime.engine import Engine
from brain.runtime.recording import ControlLine, Line
from brain.runtime.replay import make_run, read_recording
from brain.settings import read

pytestmark = pytest.mark.anyio

KIB = 1024


def recorded(turn_id: str, lines: Iterable[Line] = (), *, days_ago: float = 0, conversation: str = "c") -> Recorded:
    return Recorded(turn_id, "ada", conversation, datetime.now(UTC) - timedelta(days=days_ago), lambda: lines)


def line_of(size: int) -> Line:
    return ControlLine(0.0, steer="x" * size)


def turns_in(folder: Path) -> list[str]:
    return sorted(path.name.split(".")[1] for path in folder.glob("2*/*"))


def opened(folder: Path, max_bytes: int = KIB * KIB, days: int = 30) -> Archive:
    archive = Archive(folder, max_bytes, days)
    archive.open()
    return archive


async def test_a_turn_is_one_file_that_only_its_owner_can_read_and_that_can_be_played(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "archive"
    settings = read({"BRAIN_STORE": "memory:", "BRAIN_MODEL": "builtin", "BRAIN_ARCHIVE": str(folder)})
    engine = Engine(settings, registry_of(echo))
    await engine.open()
    player = Player(["Look: ", "SPECIALIST_REQUEST[echo]"], ["Done.", PassUsage(90, 2, 80)])
    engine.models = [player]
    for conversation, is_private in (("c", False), ("d", False), ("e", False), ("e", True), ("f", True)):
        run = await engine.begin(ask_for("Hi", conversation_id=conversation, private=is_private), "native")
        async for _ in run.events():
            pass
    await engine.delete("ada", "d")
    await engine.close()
    (path,) = folder.glob("2*/*")
    assert [stat.S_IMODE(one.stat().st_mode) for one in (folder, path.parent, path)] == [0o700, 0o700, 0o600]
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert [line["type"] for line in lines] == ["turn", "pass", "event", "event", "pass", "end"]
    assert (lines[0]["conversation_id"], lines[0]["user"], lines[-1]["outcome"]) == ("c", "ada", "complete")
    first, second = lines[1], lines[4]
    assert [text for _, text in first["chunks"]][:2] == ["Look: ", "SPECIALIST_REQUEST[echo]"]
    assert second["messages"][-1]["role"] == "assistant"
    assert (second["report"]["reused_tokens"], second["model"]) == (80, "player")
    assert make_run(read_recording(path)).id == lines[0]["turn_id"]


async def test_old_recordings_are_deleted_first(tmp_path: Path) -> None:
    archive = opened(tmp_path, 20 * KIB, days=7)
    for n, days_ago in enumerate((9, 3, 2, 1, 0)):
        archive.put(recorded(f"t{n}", [line_of(8 * KIB)], days_ago=days_ago))
    await archive.close()
    assert turns_in(tmp_path) == ["t3", "t4"]
    assert len(list(tmp_path.glob("2*"))) == 2


async def test_erasing_reaches_recordings_that_wait_and_those_of_other_processes(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    late = recorded("t9")
    for name, archive in (("one", one), ("other", other)):
        archive.put(recorded(f"{name}1"))
        archive.put(recorded(f"{name}2", conversation="kept"))
    await one.erase("ada", "c")
    other.put(late)
    other.put(recorded("t3", days_ago=-1))
    await one.close()
    await other.close()
    assert turns_in(tmp_path) == ["one2", "other2", "t3"]
    assert erase(tmp_path, "ada") == 3
    assert turns_in(tmp_path) == []


async def test_a_full_disk_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def full() -> Iterator[Line]:
        yield line_of(KIB)
        raise OSError(28, os.strerror(28))

    archive = opened(tmp_path)
    with caplog.at_level(logging.WARNING, "brain"):
        for n in range(3):
            archive.put(Recorded(f"t{n}", "ada", "c", datetime.now(UTC), full))
        archive.put(recorded("t3"))
        await archive.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert turns_in(tmp_path) == ["t3"]


async def test_a_slow_disk_delays_no_turn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow() -> Iterator[Line]:
        begun.set()
        may_end.wait()
        yield line_of(KIB)

    archive = opened(tmp_path)
    archive.put(Recorded("t", "ada", "c", datetime.now(UTC), slow))
    begun.wait()
    with caplog.at_level(logging.WARNING, "brain"):
        for n in range(MAX_WAITING + 2):
            archive.put(recorded(f"t{n}"))
    assert len(caplog.records) == 1
    may_end.set()
    await archive.close()
    assert len(turns_in(tmp_path)) == MAX_WAITING + 1


async def test_recordings_that_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError

    archive = opened(tmp_path)
    monkeypatch.setattr("brain.runtime.archive.erase", fail)
    with pytest.raises(PermissionError):
        await archive.erase("ada", "c")
    archive.erase_soon("ada", "c")
    await archive.close()
    assert "became private could not be deleted" in caplog.text


async def test_a_recording_that_breaks_does_not_stop_the_others(tmp_path: Path) -> None:
    archive = opened(tmp_path)
    archive.put(recorded("t1", map(line_of, iter(lambda: 1 // 0, 0))))
    archive.put(recorded("t2", [line_of(1)]))
    await archive.close()
    assert turns_in(tmp_path) == ["t2"]
