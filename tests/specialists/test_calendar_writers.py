"""Concurrent writers of one event: the second is refused, and no change is lost."""

import fcntl
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from calendars import CHANGED, Calendars, ics, id_in
from limits import WAIT_SECONDS

from brain import Refused
from specialists._calendar.calendars import VersionConflict
from specialists._calendar.folder import FolderStore, hash_content

EVENT = "UID:1\nSUMMARY:Old\nDTSTART;TZID=Europe/Berlin:20260323T090000\nDESCRIPTION:0"
COUNTER = """
import sys
from pathlib import Path
from specialists._calendar.folder import FolderStore, hash_content
from specialists._calendar.calendars import Calendar, VersionConflict

root, times = Path(sys.argv[1]), int(sys.argv[2])
folder, home = FolderStore(root, lambda: 60), Calendar("home", "home")
done = 0
while done < times:
    data = (root / "home" / "a.ics").read_bytes()
    head, _, rest = data.partition(b"DESCRIPTION:")
    number, _, tail = rest.partition(b"\\r\\n")
    more = head + b"DESCRIPTION:" + str(int(number) + 1).encode() + b"\\r\\n" + tail
    try:
        folder.write(home, "a.ics", more, hash_content(data).hex())
    except VersionConflict:
        continue
    done += 1
"""


@pytest.fixture
def calendars(tmp_path: Path) -> Calendars:
    made = Calendars(tmp_path)
    made.put("a.ics", EVENT)
    return made


def test_the_second_of_two_conversations_is_refused_once(calendars: Calendars) -> None:
    for conversation in ("one", "two"):
        calendars.text(conversation, start="2026-03-23")
    change = {"action": "update", "event_id": "1"}
    for title in ("A", "B"):
        calendars.text("one", **change, title=title)
    assert CHANGED in calendars.refusal("two", **change, title="C")
    assert "SUMMARY:B" in calendars.only_file()
    calendars.text("two", **change, title="C")  # now knows the new state
    calendars.text("three", **change, title="D")  # never listed it
    calendars.put("a.ics", EVENT.replace("Old", "Moved by khal"))
    assert CHANGED in calendars.refusal("three", action="delete", event_id="1")
    assert "Moved by khal" in calendars.only_file()


def test_a_change_between_reading_and_writing_is_noticed(calendars: Calendars) -> None:
    folder = FolderStore(calendars.folder / "ada", lambda: 60)
    (home,) = folder.calendars()
    (resource,) = folder.find(home, "1")
    path = calendars.put("a.ics", EVENT.replace("Old", "New"))
    for version in (resource.version, None):
        with pytest.raises(VersionConflict):
            folder.write(home, "a.ics", b"mine", version)
    with pytest.raises(VersionConflict):
        folder.remove(home, "a.ics", resource.version)
    path.unlink()
    with pytest.raises(VersionConflict):
        folder.write(home, "a.ics", b"mine", resource.version)
    assert list(path.parent.iterdir()) == []
    path.parent.rmdir()
    with pytest.raises(Refused, match="cannot be written"):
        folder.write(home, "a.ics", b"", None)


def test_a_change_with_the_same_size_and_time_is_noticed(calendars: Calendars) -> None:
    (path,) = calendars.files()
    os.utime(path, ns=(10**18, 10**18))
    calendars.text(start="2026-03-23")
    stamp = path.stat()
    path.unlink()  # programs replace files
    calendars.put("b.ics", EVENT.replace("Old", "New")).rename(path)
    os.utime(path, ns=(stamp.st_mtime_ns, stamp.st_mtime_ns))
    assert path.stat().st_size == stamp.st_size
    folder = FolderStore(calendars.folder / "ada", lambda: 60)
    with pytest.raises(VersionConflict):
        folder.write(
            folder.calendars()[0], "a.ics", b"mine", hash_content(ics(EVENT).replace("\n", "\r\n").encode()).hex()
        )


def test_threads_lose_nothing(calendars: Calendars) -> None:
    """Each of eight concurrent changes is either in the file or refused."""

    def change(title: str) -> bool:
        try:
            return bool(calendars.text(title, action="update", event_id="1", title=title))
        except Refused:
            return False

    with ThreadPoolExecutor(8) as pool:
        done = sum(pool.map(change, "ABCDEFGH"))
    assert done
    assert f"SEQUENCE:{done}\n" in calendars.only_file()


def test_processes_lose_nothing(calendars: Calendars) -> None:
    """Three processes increment the same number in one file."""
    command = [sys.executable, "-c", COUNTER, str(calendars.folder / "ada"), "25"]
    processes = [subprocess.Popen(command, cwd=Path(__file__).parent.parent.parent) for _ in range(3)]
    assert [process.wait(WAIT_SECONDS) for process in processes] == [0, 0, 0]
    assert "DESCRIPTION:75\n" in calendars.only_file()


def test_readers_never_see_half_a_file(calendars: Calendars) -> None:
    over = threading.Event()
    wrong: list[str] = []

    def read() -> None:
        while not over.is_set():
            data = calendars.files()[0].read_text()
            if not data.endswith("END:VCALENDAR\n"):
                wrong.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(50):
        calendars.update(description="x" * 2000 * (number % 2))
    over.set()
    reader.join()
    assert wrong == []


def test_nothing_is_left_behind_and_a_file_keeps_its_rights(calendars: Calendars) -> None:
    (path,) = calendars.files()
    path.chmod(0o640)
    calendars.update(title="New")
    made = id_in(calendars.text(action="create", title="x", start="2026-03-30"))
    calendars.text(action="delete", event_id=made)
    assert [path.name for path in path.parent.iterdir()] == ["a.ics"]
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_lock_that_another_process_holds_is_refused(calendars: Calendars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specialists._calendar.folder.LOCK_SECONDS", 0.0)
    with (calendars.folder / "ada/.brain.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        reason = calendars.refusal(action="update", event_id="1", title="New")
    assert "another program" in reason
    assert "New" in calendars.update(title="New")
