"""Child processes: environment, network and limits; and that none outlives its call or the server."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing, closing, suppress
from pathlib import Path

import pytest
from limits import WAIT_SECONDS
from specialist_calls import INVOICE, file, nested_pdf, text_pdf, written

from brain import Refused
from specialists._kit import isolated
from specialists._kit.child import read, write
from specialists._kit.isolated import ALLOWED, Ended, IsolatedProcess, Limits, OutOfTime, run_isolated
from specialists._knowledge.index import Index
from specialists._knowledge.worker import Job, run_worker
from specialists._pictures import reader

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, and waits for pidfds")

PAGE = file(written(INVOICE))
WEB_PAGE = {"way": "html", "url": "http://x.example", "links": False}
OWN = {
    "PYTHONPATH", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT",
    "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "LC_CTYPE",
}  # fmt: skip
SECRETS = {"BRAIN_KEYS": "s3cret:ada", "BRAIN_MODEL_KEY": "s3cret", "OPENAI_API_KEY": "s3cret", "BIG_KEY": "s3cret"}
TIMEOUT = WAIT_SECONDS
"""Only a hanging test takes this long."""


# environment and limits


def test_no_child_knows_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each child stores its environment from /proc: Python children at their start, and Tesseract."""
    seen, docs = tmp_path / "seen", tmp_path / "docs"
    seen.mkdir()
    docs.mkdir()
    (docs / "a.pdf").write_bytes(text_pdf("one"))
    (tmp_path / "sitecustomize.py").write_text(
        "import os, shutil, sys\n"
        f"shutil.copyfile('/proc/self/environ', f'{seen}/{{sys.orig_argv[4]}} {{os.getpid()}}')\n"
    )
    program = tmp_path / "tesseract"
    program.write_text(f"#!/bin/sh\n/bin/cat /proc/$$/environ >'{seen}/tesseract '$$\n")
    program.chmod(0o755)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(reader, "page_process", IsolatedProcess("_pictures.worker", Limits(memory=None)))
    monkeypatch.setattr(reader, "file_process", IsolatedProcess("_pictures.worker", Limits(memory=None)))

    async def main() -> None:
        async with reader.lifespan():
            await reader.open_pages(text_pdf("one"), name="a.pdf", numbers=[1])
            with pytest.raises(Refused):  # this Tesseract has no languages
                await reader.read_page(PAGE)
        await run_isolated("_web.extract", WEB_PAGE, b"<p>one</p>", limits=Limits(), seconds=TIMEOUT)
        await run_isolated("_wiki.page", None, b"<p>one</p>", limits=Limits(), seconds=TIMEOUT)
        request = ["check", "no file", ""]
        with pytest.raises(Ended):
            await run_isolated("_wiki.archive", request, limits=Limits(memory=None), seconds=TIMEOUT)
        with pytest.raises(Ended):
            await run_isolated("_web.ddgs_search", {}, limits=Limits(network=True), seconds=TIMEOUT)
        with closing(Index(tmp_path / "index.db")) as index:
            index.add_root("folder", str(docs))
        job = Job(str(tmp_path / "index.db"), "en", 1_000_000, 1000)
        async with aclosing(run_worker(job)) as steps:
            assert [step.passages async for step in steps if step.what == "read"] == [1]

    asyncio.run(main())
    assert {path.name.split()[0] for path in seen.iterdir()} == {
        "tesseract",
        "specialists._pictures.worker",
        "specialists._pictures.pdf",
        "specialists._knowledge.worker",
        "specialists._web.extract",
        "specialists._web.ddgs_search",
        "specialists._wiki.archive",
        "specialists._wiki.page",
    }
    for path in seen.iterdir():
        environ = dict(entry.split("=", 1) for entry in path.read_text().split("\0") if entry)
        assert environ.keys() <= OWN | {*ALLOWED, "PWD", "SHLVL", "_"}, path.name
        assert "s3cret" not in path.read_text(), path.name


def confined(code: str, *, network: bool = False) -> str:
    """The output of a program that limits itself first."""
    start = f"from specialists._kit.child import *\nconfine(memory=1 << 30, network={network}, nice=3)\n"
    done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or str(done.returncode)


def test_a_child_reaches_no_network() -> None:
    namespace = "import os; print(os.readlink('/proc/self/ns/net'))"
    if confined(namespace) == confined(namespace, network=True):
        pytest.skip("this system does not allow network namespaces")
    assert confined("print(socket.socket().connect_ex(('127.0.0.1', 80)))") == "101"  # unreachable


def test_a_child_has_limits_and_no_way_to_more_rights() -> None:
    lines = confined("print(open('/proc/self/status').read(), open('/proc/self/limits').read())").splitlines()
    assert "NoNewPrivs:\t1" in lines
    assert any(line.split()[:4] == ["Max", "address", "space", str(1 << 30)] for line in lines)
    assert any(line.split()[:5] == ["Max", "core", "file", "size", "0"] for line in lines)
    assert confined("import os; print(os.nice(0))") == "3"
    assert confined("limit_cpu(0.1)\nwhile True: pass") == str(-signal.SIGPROF)


def test_a_request_over_its_cpu_time_is_not_retried() -> None:
    async def main() -> None:
        process = IsolatedProcess("_web.extract", Limits(cpu_seconds=0.2))
        with process.job(WEB_PAGE, b"<div>" * 400_000) as job, pytest.raises(OutOfTime):
            await job.answer(TIMEOUT)

    asyncio.run(main())


# the reader of pictures, which stays and serves all calls


class Engine:
    """A Tesseract that reads `Done` on every page. A slow one writes its process ID, and waits to be released."""

    def __init__(self, folder: Path) -> None:
        self._slow = folder / "slow"
        for name in ("started", "released"):
            os.mkfifo(folder / name)
        self._started, self._released = (
            os.open(folder / name, os.O_RDWR | os.O_NONBLOCK) for name in ("started", "released")
        )
        program = folder / "tesseract"
        program.write_text(
            '#!/bin/sh\n[ "$1" = --list-langs ] && printf "list\\neng\\n" && exit\n'
            f"[ -e {self._slow} ] && echo $$ >{folder}/started && read go <{folder}/released\n"
            'printf "head\\n5\\t1\\t1\\t1\\t1\\t1\\t10\\t10\\t80\\t20\\t95\\tDone\\n"\n'
        )
        program.chmod(0o755)

    def close(self) -> None:
        os.close(self._started)
        os.close(self._released)

    def be_slow(self) -> None:
        self._slow.touch()

    def be_quick(self) -> None:
        self._slow.unlink()

    async def start(self) -> int:
        """The process ID of the next slow one."""
        await until_readable(self._started)
        return int(os.read(self._started, 100))

    def release(self) -> None:
        self.be_quick()
        os.write(self._released, b"go\n")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The only installed engine."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    engine = Engine(tmp_path)
    yield engine
    engine.close()


async def until_readable(descriptor: int) -> None:
    readable = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, readable.set)
    try:
        async with asyncio.timeout(TIMEOUT):
            await readable.wait()
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)


async def until_ended(*pids: int) -> None:
    """Wait until none of these processes runs."""
    for pid in pids:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                await until_readable(descriptor)
            finally:
                os.close(descriptor)


def children_of(pid: int, command: str = "") -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for listed in lists for child in listed.read_text().split()]
    return [child for child in children if command in Path(f"/proc/{child}/cmdline").read_text()]


def page_process_pid() -> int:
    assert reader.page_process.pid
    return reader.page_process.pid


def test_a_cancelled_turn_ends_its_processes_and_the_next_one_works(engine: Engine) -> None:
    async def main() -> None:
        engine.be_slow()
        turn = asyncio.create_task(reader.read_page(PAGE))
        pids = [await engine.start(), page_process_pid()]
        turn.cancel()
        await until_ended(*pids)
        await asyncio.wait({turn})
        engine.be_quick()
        assert (await reader.read_page(PAGE)).text == "Done"
        assert page_process_pid() not in pids

    asyncio.run(main())


def test_a_cancelled_or_late_call_in_the_queue_does_not_disturb_the_running_one(engine: Engine) -> None:
    async def main() -> None:
        engine.be_slow()
        first = asyncio.create_task(reader.read_page(PAGE))
        await engine.start()
        pid = page_process_pid()
        second = asyncio.create_task(reader.read_page(PAGE))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(Refused):
            await reader.read_page(PAGE, seconds=0.05)
        engine.release()
        assert (await first).text == "Done"
        assert page_process_pid() == pid

    asyncio.run(main())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_another_process_reads_a_page_after_a_kill(engine: Engine, how: signal.Signals) -> None:
    async def main() -> None:
        engine.be_slow()
        call = asyncio.create_task(reader.read_page(PAGE))
        await engine.start()
        engine.be_quick()
        os.kill(page_process_pid(), how)
        assert (await call).text == "Done"
        os.kill(page_process_pid(), signal.SIGKILL)  # between two pages
        assert (await reader.read_page(PAGE)).text == "Done"

    asyncio.run(main())


def test_a_page_that_kills_two_processes_is_refused(engine: Engine) -> None:
    async def main() -> None:
        engine.be_slow()
        call = asyncio.create_task(reader.read_page(PAGE, name="a.png"))
        for _ in range(2):
            await engine.start()
            os.kill(page_process_pid(), signal.SIGKILL)
        with pytest.raises(Refused, match=r"a\.png"):
            await call

    asyncio.run(main())


def test_a_process_that_hangs_is_ended(engine: Engine) -> None:
    async def main() -> None:
        await reader.read_page(PAGE)
        pid = page_process_pid()
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(Refused, match=r"a\.png"):
            await reader.read_page(PAGE, name="a.png", seconds=0.1)
        await until_ended(pid)
        assert (await reader.read_page(PAGE)).text == "Done"

    asyncio.run(main())


def test_all_event_loops_share_one_process_which_ends_with_the_server(engine: Engine) -> None:
    async def main() -> None:
        readings = await asyncio.gather(*(reader.read_page(PAGE) for _ in range(10)))
        assert [reading.text for reading in readings] == ["Done"] * 10
        assert len(children_of(os.getpid(), "_pictures.worker")) <= 2

    asyncio.run(main())

    async def end() -> None:
        async with reader.lifespan():
            await main()
            assert page_process_pid() == pid
        await until_ended(pid)

    pid = page_process_pid()
    asyncio.run(end())


def test_an_idle_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(isolated, "IDLE_SECONDS", 0.01)
        child = IsolatedProcess("_pictures.worker", Limits(memory=None))
        with child.job({"do": "nothing"}) as job:
            await job.has_started(TIMEOUT)
            pid = child.pid
            answer = await job.answer(TIMEOUT)
        assert answer is not None
        assert "KeyError: 'nothing'" in answer[0]["broken"]
        await until_ended(*filter(None, [pid]))

    asyncio.run(main())


def test_the_processes_end_when_the_server_is_killed(engine: Engine) -> None:
    engine.be_slow()
    code = (
        "import asyncio, sys; sys.modules['rapidocr'] = None\n"
        "from specialists._pictures import reader\n"
        f"asyncio.run(reader.read_page({PAGE!r}))"
    )
    server = subprocess.Popen([sys.executable, "-c", code])

    async def main() -> None:
        pids = [await engine.start(), *children_of(server.pid)]
        assert len(pids) == 2
        server.kill()
        server.wait()
        await until_ended(*pids)

    asyncio.run(main())


def test_a_hostile_pdf_or_an_error_does_not_end_the_process(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(reader, "PDF_SECONDS", 0.3)
        await reader.read_page(PAGE)
        pid = page_process_pid()
        with pytest.raises(Refused):
            await reader.read_page(nested_pdf(12))
        with reader.page_process.job({"do": "x"}) as job, pytest.raises(RuntimeError, match="KeyError: 'x'"):
            await reader.receive(job, "a.png", TIMEOUT)
        assert (await reader.read_page(PAGE)).text == "Done"
        assert page_process_pid() == pid

    asyncio.run(main())


# signals

CHILD = """
import os, signal, subprocess, sys, threading
from specialists._kit.child import main
grandchild = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(grandchild.pid, flush=True)
def stop():
    os.read(int(sys.argv[3]), 1)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
threading.Thread(target=stop, daemon=True).start()
main()
"""


def test_sigterm_to_another_thread_ends_a_process_with_its_children() -> None:
    """As if the signal came just before the main thread began to wait for requests."""
    hears, tells = os.pipe()
    limits = '{"cpu_seconds": 20, "memory": null, "network": false, "nice": 0}'
    command = [sys.executable, "-c", CHILD, "specialists._pictures.worker", limits, str(hears)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, process_group=0, pass_fds=[hears]) as program:
        assert program.stdin
        assert program.stdout
        grandchild = int(program.stdout.readline())
        write(program.stdin, {"do": "nothing"})
        program.stdin.flush()
        read(program.stdout)
        os.write(tells, b"!")
        assert program.wait(TIMEOUT) == 0
    asyncio.run(until_ended(grandchild))
    os.close(hears)
    os.close(tells)
