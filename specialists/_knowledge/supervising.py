"""Has a worker bring an index up to date. A file that ends the worker, or holds it up, is left out."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from specialists._kit.isolated import IsolatedProcess, Limits, OutOfTime
from specialists._knowledge.worker import Job, Step

SILENCE_SECONDS = 600.0
"""Between two steps of a worker, whose CPU time is limited for each: on a busy machine it may wait for long."""
BROKEN_MOST = 50
"""Files that end a worker, in one job."""
LIMITS = Limits(cpu_seconds=60, memory=1 << 30)
"""CPU time for the start of a worker."""


class Failed(Exception):
    """The worker ended, and not because of a file."""


async def supervised(job: Job, uploads: Sequence[bytes] = ()) -> AsyncGenerator[Step, None]:
    """Does a job in a worker, and passes on its steps; the worker ends when this is closed.

    Raises:
        Failed: when it cannot be done.
    """
    for _ in range(BROKEN_MOST):
        file: Step | None = None
        trouble = "it takes too long to be read"
        steps: asyncio.Queue[Any] = asyncio.Queue()
        process = IsolatedProcess("_knowledge.worker", LIMITS, warm=False)
        with process.job(msgspec.to_builtins(job), b"".join(uploads), tell=steps.put_nowait) as working:
            working.done.add_done_callback(steps.put_nowait)
            while True:
                try:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        told = await steps.get()
                except TimeoutError:
                    break
                if told is working.done:
                    break
                step = msgspec.convert(told, Step)
                if step.what == "failed":
                    raise Failed(f"the index cannot be written: {step.trouble}")
                file = step if step.what == "at" else None if step.what == "read" else file
                yield step
                if step.what in ("over", "busy"):
                    return
        if working.done.done():
            error = working.done.exception()
            if file is None:
                raise Failed("the worker ended") from error
            if not isinstance(error, OutOfTime):
                trouble = "it breaks the program that reads it"
        elif file is None:
            raise Failed("the worker does nothing")
        job = msgspec.structs.replace(job, bad=[*job.bad, (file.root, file.name, trouble)])
    raise Failed("too many files ended the worker")
