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

from brain import Context, Progress, Refused
from brain.plugins.executor import Answer, Failure, execute, prepare
from specialists._kit import isolated
from specialists._kit.child import read, write
from specialists._pictures import reader
from specialists.ocr import ocr
from specialists.vision import vision

PAGE = file(written(INVOICE))
LIMITS = '{"cpu_seconds": 20, "memory": null, "network": false, "nice": 0}'


class Engine:
    """A Tesseract that reads `Done` on every page; while it is slow, it notes its number and takes for ever."""

    def __init__(self, folder: Path) -> None:
        self._slow, self._noted = folder / "slow", folder / "pid"
        program = folder / "tesseract"
        program.write_text(
            '#!/bin/sh\n[ "$1" = --list-langs ] && printf "list\\neng\\n" && exit\n'
            f"[ -e {self._slow} ] && echo $$ >{self._noted} && exec /bin/sleep 100\n"
            'printf "head\\n5\\t1\\t1\\t1\\t1\\t1\\t10\\t10\\t80\\t20\\t95\\tDone\\n"\n'
        )
        program.chmod(0o755)

    def be_slow(self) -> None:
        self._slow.touch()

    def be_quick(self) -> None:
        self._slow.unlink()

    def forget(self) -> None:
        self._noted.unlink()

    def pid(self) -> int:
        """The number of the one that is slow, or 0."""
        return int(self._noted.read_text() or 0) if self._noted.exists() else 0


@pytest.fixture(autouse=True)
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The only one there is."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    return Engine(tmp_path)


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and only waits to be counted does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until(condition: Callable[[], object], seconds: float = 30.0) -> float:
    """How long it took to come true."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds
        await asyncio.sleep(0.002)
    return time.monotonic() - started


def children_of(pid: int, named: str = "") -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for listed in lists for child in listed.read_text().split()]
    return [child for child in children if named in Path(f"/proc/{child}/cmdline").read_text()]


def within(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


def reading_pid() -> int:
    pid = reader.reader.pid
    assert pid
    return pid


@pytest.mark.alone
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_turn_that_is_cancelled_in_the_middle_of_a_page_leaves_nothing_running(engine: Engine) -> None:
    async def main() -> None:
        engine.be_slow()
        arguments = prepare(ocr, {})
        assert not isinstance(arguments, Failure)
        call = execute(ocr, arguments, {Context: context(("a.png", PAGE))}, print, timeout=50)
        turn = asyncio.create_task(call)
        await until(engine.pid)
        pids = [reading_pid(), engine.pid()]
        assert all(map(is_there, pids))
        turn.cancel()
        assert await until(lambda: not any(map(is_there, pids))) < 0.1
        await asyncio.wait({turn})

    within(main)


@pytest.mark.alone
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_turn_that_is_cancelled_while_a_picture_is_looked_at_leaves_nothing_running() -> None:
    photo = file(Image.effect_noise((3000, 2000), 60), "JPEG")

    async def main() -> None:
        arguments = prepare(vision, {})
        assert not isinstance(arguments, Failure)
        turn = asyncio.create_task(execute(vision, arguments, {Context: context(("a.jpg", photo))}, print, timeout=50))
        await until(lambda: reader.looker.pid)
        await asyncio.sleep(0.2)
        pid = reader.looker.pid
        assert pid
        turn.cancel()
        assert await until(lambda: not is_there(pid)) < 0.1
        await asyncio.wait({turn})

    within(main)


def test_the_next_call_after_a_cancelled_one_is_answered(engine: Engine) -> None:
    async def main() -> None:
        engine.be_slow()
        call = asyncio.create_task(reader.page_text(PAGE))
        await until(engine.pid)
        first = reading_pid()
        call.cancel()
        engine.be_quick()
        assert (await reader.page_text(PAGE)).text == "Done"
        assert reading_pid() != first

    within(main)


def test_a_call_that_is_cancelled_in_the_queue_does_not_disturb_the_one_before(engine: Engine) -> None:
    async def main() -> None:
        engine.be_slow()
        first = asyncio.create_task(reader.page_text(PAGE))
        second = asyncio.create_task(reader.page_text(PAGE))
        await until(engine.pid)
        pids = [reading_pid(), engine.pid()]
        second.cancel()
        await asyncio.wait({second})
        await asyncio.sleep(0.1)
        assert all(map(is_there, pids))
        first.cancel()

    within(main)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_page_whose_process_is_killed_is_read_by_another(engine: Engine, how: signal.Signals) -> None:
    async def main() -> None:
        engine.be_slow()
        call = asyncio.create_task(reader.page_text(PAGE))
        await until(engine.pid)
        engine.be_quick()
        os.kill(reading_pid(), how)
        assert (await call).text == "Done"

    within(main)


def test_a_process_that_was_killed_between_two_pages_is_replaced() -> None:
    async def main() -> None:
        await reader.page_text(PAGE)
        os.kill(reading_pid(), signal.SIGKILL)
        assert (await reader.page_text(PAGE)).text == "Done"

    within(main)


def test_a_page_that_kills_two_processes_is_refused(engine: Engine) -> None:
    async def main() -> None:
        engine.be_slow()
        call = asyncio.create_task(reader.page_text(PAGE, name="a.png"))
        for _ in range(2):
            await until(engine.pid)
            engine.forget()
            os.kill(reading_pid(), signal.SIGKILL)
        with pytest.raises(
            Refused, match=r"^'a\.png' broke the process that reads files; ask the user for another copy of"
        ):
            await call

    within(main)


def test_a_process_that_hangs_is_ended() -> None:
    async def main() -> None:
        await reader.page_text(PAGE)
        pid = reading_pid()
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(Refused, match=r"^'a\.png' could not be read in time, because the server is busy"):
            await reader.page_text(PAGE, name="a.png", seconds=0.3)
        await until(lambda: not is_there(pid))
        assert (await reader.page_text(PAGE)).text == "Done"

    within(main)


def test_refuses_while_other_pages_are_read(engine: Engine) -> None:
    async def main() -> None:
        engine.be_slow()
        first = asyncio.create_task(reader.page_text(PAGE))
        await until(engine.pid)
        with pytest.raises(Refused, match=r"^the OCR engine is busy with other documents; ask again in a minute$"):
            await reader.page_text(PAGE, seconds=0.05)
        first.cancel()

    within(main)


def test_a_page_that_waits_says_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr("specialists.ocr.TOLD_SECONDS", 0.02)
        engine.be_slow()
        first = asyncio.create_task(reader.page_text(PAGE))
        await until(engine.pid)
        told: list[Progress] = []
        arguments = prepare(ocr, {})
        assert not isinstance(arguments, Failure)
        call = execute(ocr, arguments, {Context: context(("a.png", PAGE))}, told.append, timeout=50)
        second = asyncio.create_task(call)
        waiting = Progress("page 1 waits for the OCR engine, which reads other documents", 0.0)
        await until(lambda: waiting in told)
        engine.be_quick()
        first.cancel()
        assert isinstance(await second, Answer)

    within(main)


def test_a_page_that_takes_long_says_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, so that its call is not taken for idle."""

    async def main() -> None:
        monkeypatch.setattr("specialists.ocr.TOLD_SECONDS", 0.02)
        engine.be_slow()
        told: list[Progress] = []
        arguments = prepare(ocr, {})
        assert not isinstance(arguments, Failure)
        call = asyncio.create_task(
            execute(ocr, arguments, {Context: context(("a.png", PAGE))}, told.append, timeout=50)
        )
        await until(engine.pid)
        await until(lambda: Progress("page 1 is being read, for 0 s now", 0.0) in told)
        engine.be_quick()
        os.kill(engine.pid(), signal.SIGKILL)  # as its own limit does; then the page is tried in other ways
        assert isinstance(await call, Answer)

    within(main)


def test_ten_users_share_one_process() -> None:
    async def main() -> None:
        readings = await asyncio.gather(*(reader.page_text(PAGE) for _ in range(10)))
        assert [reading.text for reading in readings] == ["Done"] * 10
        assert len(children_of(os.getpid(), "_pictures.worker")) <= 2

    within(main)


def test_one_process_serves_one_loop_after_the_other() -> None:
    asyncio.run(reader.page_text(PAGE))
    pid = reading_pid()
    assert asyncio.run(reader.page_text(PAGE)).text == "Done"
    assert reading_pid() == pid


def test_an_idle_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(isolated, "IDLE_SECONDS", 0.1)
        child = isolated.IsolatedProcess("_pictures.worker", isolated.Limits(memory=None))
        with child.job(
            {"do": "pages", "name": "a", "pdf": False, "pages": [], "stamps": False, "pdf_seconds": 1.0}, PAGE
        ) as job:
            answer = await job.answer(5)
        assert answer is not None
        assert answer[0]["count"] == 1
        pid = child.pid
        assert pid
        await until(lambda: not is_there(pid))

    within(main)


def test_the_processes_end_with_the_server() -> None:
    async def main() -> None:
        async with reader.lifespan():
            await reader.page_text(PAGE)
            pid = reading_pid()
        await until(lambda: not is_there(pid))

    within(main)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_processes_end_when_the_server_is_killed(engine: Engine) -> None:
    engine.be_slow()
    code = (
        "import asyncio, sys; sys.modules['rapidocr'] = None\n"
        "from specialists._pictures import reader\n"
        f"asyncio.run(reader.page_text({PAGE!r}))"
    )
    server = subprocess.Popen([sys.executable, "-c", code])

    async def main() -> None:
        await until(engine.pid, 20)
        pids = children_of(server.pid)
        assert len(pids) == 1
        server.kill()
        server.wait()
        await until(lambda: not any(map(is_there, [*pids, engine.pid()])))

    within(main)


def test_what_opens_foreign_files_is_not_in_the_server() -> None:
    code = (
        "import asyncio, sys\n"
        "from specialists._pictures import reader\n"
        f"print(asyncio.run(reader.page_text({PAGE!r})).text.split()[0], *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert loaded[0] == "Invoice"
    assert {"PIL", "numpy", "cv2", "zxingcpp", "pypdfium2", "rapidocr", "onnxruntime"}.isdisjoint(loaded)


def test_a_hostile_pdf_takes_no_process_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(reader, "PDF_SECONDS", 0.3)
        await reader.page_text(PAGE)
        pid = reading_pid()
        with pytest.raises(Refused, match="takes too long to be read"):
            await reader.page_text(nested_pdf(12))
        assert reading_pid() == pid

    within(main)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_process_that_is_asked_to_leave_ends_what_it_runs() -> None:
    code = (
        "import subprocess, sys\n"
        "from specialists._kit.child import main\n"
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid, flush=True)\n"
        "main()"
    )
    command = [sys.executable, "-c", code, "specialists._pictures.worker", LIMITS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0) as program:
        assert program.stdin
        assert program.stdout
        pid = int(program.stdout.readline())
        write(program.stdin, {"do": "nothing"})
        program.stdin.flush()
        read(program.stdout)
        program.terminate()
        program.wait(5)
    assert not is_there(pid)


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal to a thread")
def test_a_process_that_waits_for_work_leaves_whichever_thread_the_signal_comes_to() -> None:
    """Which is as if it came to the waiting one just before it began to wait: nothing interrupts that."""
    code = (
        "import os, signal, sys, threading\n"
        "from specialists._kit.child import main\n"
        "def stop():\n"
        "    os.read(int(sys.argv[3]), 1)\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "threading.Thread(target=stop, daemon=True).start()\n"
        "main()"
    )
    told, report = os.pipe()
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code, "specialists._pictures.worker", LIMITS, str(told)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, process_group=0, pass_fds=[told]) as program:
        assert program.stdin
        assert program.stdout
        write(program.stdin, {"do": "nothing"})
        program.stdin.flush()
        read(program.stdout)
        os.write(report, b"!")
        assert program.wait(5) == 0
    os.close(told)
    os.close(report)


def test_an_error_of_ours_is_told_and_the_process_goes_on() -> None:
    async def main() -> None:
        with reader.looker.job({"do": "nothing"}) as job, pytest.raises(RuntimeError, match="KeyError: 'nothing'"):
            await reader.receive(job, "a.png", 5)
        assert (await reader.pages(PAGE, name="a.png")).count == 1

    within(main)
