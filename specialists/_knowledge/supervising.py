"""Built in: has a worker bring an index up to date. A file that kills the worker, or holds it up, is left out."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from specialists._knowledge.worker import Job, Step

FILE_SECONDS = 20.0
GRACE_SECONDS = 60.0
"""For the start of a worker, and what it does between files: looking through folders, counting words."""
ENDING_SECONDS = 0.5
"""For a worker that has said all to be gone."""
BROKEN_MOST = 50
"""Files that end a worker, in one job."""
_PACKAGES = str(Path(__file__).parents[2])
_decoder = msgspec.json.Decoder(Step)


class Failed(Exception):
    """The worker ended, and not because of a file."""


async def supervised(
    job: Job, uploads: Sequence[bytes] = (), *, file_seconds: float = FILE_SECONDS
) -> AsyncGenerator[Step, None]:
    """Does a job in a worker, and passes on its steps; the worker ends when this is closed.

    Args:
        file_seconds: for a file, unless its reader says that it takes longer.

    Raises:
        Failed: when it cannot be done.
    """
    for _ in range(BROKEN_MOST):
        file: Step | None = None
        over, trouble = False, "it breaks the program that reads it"
        async with _worker(job, uploads) as process:
            assert process.stdout is not None
            seconds = GRACE_SECONDS
            while True:
                try:
                    async with asyncio.timeout(seconds):
                        line = await process.stdout.readline()
                except TimeoutError:
                    trouble = "it takes too long to be read"
                    process.kill()
                    break
                if not line:
                    break
                step = _decoder.decode(line)
                if step.what == "failed":
                    raise Failed(f"the index cannot be written: {step.trouble}")
                file = step if step.what == "at" else None if step.what == "read" else file
                seconds = {"at": file_seconds, "slow": step.seconds}.get(step.what, GRACE_SECONDS)
                yield step
                if step.what in ("over", "busy"):
                    over = True
                    break
        if over:
            return
        if file is None:
            raise Failed(f"the worker ended with {process.returncode}")
        job = msgspec.structs.replace(job, bad=[*job.bad, (file.root, file.name, trouble)])
    raise Failed("too many files ended the worker")


@asynccontextmanager
async def _worker(job: Job, uploads: Sequence[bytes]) -> AsyncIterator[Process]:
    path = os.pathsep.join(filter(None, (_PACKAGES, os.environ.get("PYTHONPATH"))))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "specialists._knowledge.worker"),
        stdin=PIPE,
        stdout=PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
    feeding = asyncio.create_task(_feed(process, job, uploads))
    try:
        yield process
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await process.wait()
    finally:
        feeding.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _feed(process: Process, job: Job, uploads: Sequence[bytes]) -> None:
    assert process.stdin is not None
    with suppress(ConnectionError):
        for data in (msgspec.json.encode(job) + b"\n", *uploads):
            process.stdin.write(data)
            await process.stdin.drain()
        process.stdin.close()
