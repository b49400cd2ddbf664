"""The process that reads pages: it ends with the call that is given up, and what befalls it costs one page at most."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from PIL import Image
from specialist_calls import INVOICE, context, file, nested_pdf, written

from brain import Context, Refused
from brain.running import Failure, prepare, run
from specialists import _reading
from specialists._pictures import process
from specialists.ocr import ocr
from specialists.vision import vision

PAGE = file(written(INVOICE))
LONG = file(written("\n".join(["The quick brown fox jumps over the lazy dog."] * 12), (700, 500)))


@pytest.fixture
def slow_tesseract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that notes its number, and then takes for ever; there is no other engine."""
    program, noted = tmp_path / "tesseract", tmp_path / "pid"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --list-langs ] && printf "list\\neng\\n" && exit\necho $$ >{noted}\nexec /bin/sleep 100\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    return noted


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and only waits to be counted does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until(condition: Callable[[], object], seconds: float = 5.0) -> float:
    """How long it took to come true."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds
        await asyncio.sleep(0.002)
    return time.monotonic() - started


def pid_in(noted: Path) -> int:
    return int(noted.read_text() or 0) if noted.exists() else 0


def forget(noted: Path) -> None:
    noted.unlink()


def children_of(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for listed in lists for child in listed.read_text().split()]


def within(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


def reading_pid() -> int:
    pid = _reading.reader.pid
    assert pid
    return pid


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_turn_that_is_cancelled_in_the_middle_of_a_page_leaves_nothing_running(slow_tesseract: Path) -> None:
    async def main() -> None:
        arguments = prepare(ocr, {})
        assert not isinstance(arguments, Failure)
        call = run(ocr, arguments, {Context: context(("a.png", PAGE))}, print, timeout=50)
        turn = asyncio.create_task(call)
        await until(lambda: pid_in(slow_tesseract))
        pids = [reading_pid(), pid_in(slow_tesseract)]
        assert all(map(is_there, pids))
        turn.cancel()
        assert await until(lambda: not any(map(is_there, pids))) < 0.1
        await asyncio.wait({turn})

    within(main)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_turn_that_is_cancelled_while_a_picture_is_looked_at_leaves_nothing_running() -> None:
    photo = file(Image.effect_noise((6000, 4000), 60).convert("RGB"), "JPEG")

    async def main() -> None:
        arguments = prepare(vision, {})
        assert not isinstance(arguments, Failure)
        turn = asyncio.create_task(run(vision, arguments, {Context: context(("a.jpg", photo))}, print, timeout=50))
        await until(lambda: _reading.looker.pid)
        await asyncio.sleep(0.2)
        pid = _reading.looker.pid
        assert pid
        turn.cancel()
        assert await until(lambda: not is_there(pid)) < 0.1
        await asyncio.wait({turn})

    within(main)


def test_the_next_call_after_a_cancelled_one_is_answered() -> None:
    async def main() -> None:
        call = asyncio.create_task(_reading.page_text(LONG))
        await asyncio.sleep(0.2)
        first = reading_pid()
        call.cancel()
        assert (await _reading.page_text(PAGE)).text == INVOICE
        assert reading_pid() != first

    within(main)


def test_a_call_that_is_cancelled_in_the_queue_does_not_disturb_the_one_before() -> None:
    async def main() -> None:
        first = asyncio.create_task(_reading.page_text(LONG))
        second = asyncio.create_task(_reading.page_text(PAGE))
        await asyncio.sleep(0.1)
        pid = reading_pid()
        second.cancel()
        assert (await first).text.count("lazy dog") == 12
        assert reading_pid() == pid

    within(main)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_page_whose_process_is_killed_is_read_by_another(how: signal.Signals) -> None:
    async def main() -> None:
        call = asyncio.create_task(_reading.page_text(LONG))
        await until(lambda: _reading.reader.pid)
        await asyncio.sleep(0.1)
        os.kill(reading_pid(), how)
        assert (await call).text.count("lazy dog") == 12

    within(main)


def test_a_process_that_was_killed_between_two_pages_is_replaced() -> None:
    async def main() -> None:
        await _reading.page_text(PAGE)
        os.kill(reading_pid(), signal.SIGKILL)
        assert (await _reading.page_text(PAGE)).text == INVOICE

    within(main)


def test_a_page_that_kills_two_processes_is_refused(slow_tesseract: Path) -> None:
    async def main() -> None:
        call = asyncio.create_task(_reading.page_text(PAGE, name="a.png"))
        for _ in range(2):
            await until(lambda: pid_in(slow_tesseract))
            forget(slow_tesseract)
            os.kill(reading_pid(), signal.SIGKILL)
        with pytest.raises(
            Refused, match=r"^'a\.png' broke the process that reads files; ask the user for another copy of it$"
        ):
            await call

    within(main)


def test_a_process_that_hangs_is_ended() -> None:
    async def main() -> None:
        await _reading.page_text(PAGE)
        pid = reading_pid()
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(Refused, match=r"^'a\.png' could not be read in time; ask for a single page, "):
            await _reading.page_text(PAGE, name="a.png", seconds=0.3)
        await until(lambda: not is_there(pid))
        assert (await _reading.page_text(PAGE)).text == INVOICE

    within(main)


def test_refuses_while_other_pages_are_read() -> None:
    async def main() -> None:
        first = asyncio.create_task(_reading.page_text(LONG))
        await asyncio.sleep(0.05)
        with pytest.raises(Refused, match="the OCR engine is busy with other documents; ask again in a minute"):
            await _reading.page_text(PAGE, seconds=0.05)
        assert (await first).text

    within(main)


def test_ten_users_share_one_process() -> None:
    async def main() -> None:
        readings = await asyncio.gather(*(_reading.page_text(file(written(f"User {n}"))) for n in range(10)))
        assert [reading.text for reading in readings] == [f"User {n}" for n in range(10)]

    within(main)


def test_one_process_serves_one_loop_after_the_other() -> None:
    asyncio.run(_reading.page_text(PAGE))
    pid = reading_pid()
    assert asyncio.run(_reading.page_text(PAGE)).text == INVOICE
    assert reading_pid() == pid


def test_an_idle_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(process, "IDLE_SECONDS", 0.1)
        child = process.Child("_pictures.engine")
        with child.job({"do": "pages", "name": "a", "pdf": False, "pages": [], "pdf_seconds": 1.0}, PAGE) as job:
            answer = await job.answer(5)
        assert answer is not None
        assert answer[0]["count"] == 1
        pid = child.pid
        assert pid
        await until(lambda: not is_there(pid))

    within(main)


def test_the_processes_end_with_the_server() -> None:
    async def main() -> None:
        async with _reading.lifespan():
            await _reading.page_text(PAGE)
            pid = reading_pid()
        await until(lambda: not is_there(pid))

    within(main)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_processes_end_when_the_server_is_killed(slow_tesseract: Path) -> None:
    code = (
        "import asyncio, sys; sys.modules['rapidocr'] = None\n"
        "from specialists import _reading\n"
        f"asyncio.run(_reading.page_text({PAGE!r}))"
    )
    server = subprocess.Popen([sys.executable, "-c", code])

    async def main() -> None:
        await until(lambda: pid_in(slow_tesseract), 20)
        pids = children_of(server.pid)
        assert len(pids) == 1
        server.kill()
        server.wait()
        await until(lambda: not any(map(is_there, [*pids, pid_in(slow_tesseract)])))

    within(main)


def test_what_opens_foreign_files_is_not_in_the_server() -> None:
    code = (
        "import asyncio, sys\n"
        "from specialists import _reading\n"
        f"print(asyncio.run(_reading.page_text({PAGE!r})).text.split()[0], *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert loaded[0] == "Invoice"
    assert {"PIL", "numpy", "cv2", "zxingcpp", "pypdfium2", "rapidocr", "onnxruntime"}.isdisjoint(loaded)


def test_a_hostile_pdf_takes_no_process_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(_reading, "PDF_SECONDS", 0.5)
        await _reading.page_text(PAGE)
        pid = reading_pid()
        with pytest.raises(Refused, match="could not be read in time"):
            await _reading.page_text(nested_pdf(12))
        assert reading_pid() == pid

    within(main)


def test_an_error_of_ours_is_told_and_the_process_goes_on() -> None:
    async def main() -> None:
        with _reading.looker.job({"do": "nothing"}) as job, pytest.raises(RuntimeError, match="KeyError: 'nothing'"):
            await _reading.answered(job, "a.png", 5)
        assert (await _reading.pages(PAGE, name="a.png")).count == 1

    within(main)
