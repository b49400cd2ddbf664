"""Child processes: what they know of the environment, what they may reach, and what they may take."""

import asyncio
import subprocess
import sys
from contextlib import aclosing, closing
from pathlib import Path

import pytest
from specialist_calls import INVOICE, file, text_pdf, written

from brain import Refused
from specialists._kit.isolated import ALLOWED, Ended, IsolatedProcess, Limits, OutOfTime, run_isolated
from specialists._knowledge.index import Index
from specialists._knowledge.worker import Job, run_worker
from specialists._pictures import reader

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

OWN = {
    "PYTHONPATH", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT",
    "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "LC_CTYPE",
}  # fmt: skip
SECRETS = {"BRAIN_KEYS": "s3cret:ada", "BRAIN_MODEL_KEY": "s3cret", "OPENAI_API_KEY": "s3cret", "BIG_KEY": "s3cret"}


def test_no_child_knows_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each child writes down what /proc says of its environment: Python ones as they start, and Tesseract."""
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
    monkeypatch.setattr(reader, "reader", IsolatedProcess("_pictures.worker", Limits(memory=None)))
    monkeypatch.setattr(reader, "looker", IsolatedProcess("_pictures.worker", Limits(memory=None)))
    page = {"way": "html", "url": "http://x.example", "links": False}

    async def main() -> None:
        async with reader.lifespan():
            await reader.pages(text_pdf("one"), name="a.pdf", wanted=[1])
            with pytest.raises(Refused):  # that Tesseract reads no language
                await reader.page_text(file(written(INVOICE)))
        await run_isolated("_web.extract", page, b"<p>one</p>", limits=Limits(), seconds=50)
        await run_isolated("_wiki.page", None, b"<p>one</p>", limits=Limits(), seconds=50)
        with pytest.raises(Ended):
            await run_isolated("_wiki.archive", ["check", "no file", ""], limits=Limits(memory=None), seconds=50)
        with pytest.raises(Ended):
            await run_isolated("_web.ddgs_search", {}, limits=Limits(network=True), seconds=50)
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
    """What a program prints that limits itself first."""
    start = f"from specialists._kit.child import *\nconfine(memory=1 << 30, network={network}, nice=3)\n"
    done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or str(done.returncode)


def test_a_child_reaches_no_network() -> None:
    place = "import os; print(os.readlink('/proc/self/ns/net'))"
    if confined(place) == confined(place, network=True):
        pytest.skip("this system lets nobody have a network of their own")
    assert confined("print(socket.socket().connect_ex(('127.0.0.1', 80)))") == "101"  # unreachable


def test_a_child_has_limits_and_no_way_to_more_rights() -> None:
    lines = confined("print(open('/proc/self/status').read(), open('/proc/self/limits').read())").splitlines()
    told = {line.partition(":")[0].strip(): line.split(":")[1].strip() for line in lines if ":" in line}
    assert told["NoNewPrivs"] == "1"
    assert any(line.split()[:4] == ["Max", "address", "space", str(1 << 30)] for line in lines)
    assert any(line.split()[:5] == ["Max", "core", "file", "size", "0"] for line in lines)
    assert confined("import os; print(os.nice(0))") == "3"


def test_a_child_ends_at_its_limit_of_cpu_time() -> None:
    assert confined("limit_cpu(0.1)\nwhile True: pass") == "-27"  # SIGPROF


def test_a_request_that_computes_for_too_long_is_not_tried_twice() -> None:
    async def main() -> None:
        with (
            IsolatedProcess("_web.extract", Limits(cpu_seconds=0.2)).job(
                {"way": "html", "url": "http://x.example", "links": False}, b"<div>" * 400_000
            ) as job,
            pytest.raises(OutOfTime),
        ):
            await job.answer(50)

    asyncio.run(main())


def test_a_child_that_says_what_makes_no_sense_has_ended() -> None:
    async def main() -> None:
        with pytest.raises(Ended):
            await run_isolated("_kit.no_such_module", None, limits=Limits(), seconds=50)

    asyncio.run(main())
