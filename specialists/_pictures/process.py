"""Built in: a process of our own that works on foreign files, and the queue before it.

What it does may take long, take much memory, hang or crash, and none of that reaches the server: bytes go in, an answer
comes out, and a call that is given up ends the process at once, with all that it runs. The next call starts a new one.
One queue serves all event loops of the server; between calls the process stays, warm, until it was idle for long.
"""

import asyncio
import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from specialists._pictures.engine import Message, read, write

IDLE_SECONDS = 300.0
ENDING_SECONDS = 0.02
"""For a process to end what it runs, before it is killed."""

FRUGAL = {
    "OMP_NUM_THREADS": "1",
    "OMP_THREAD_LIMIT": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "1000000",
}
"""One core is the server's own. What a page took goes back to the system behind it: 0.25 GB stay instead of 0.7."""


class Gone(Exception):
    """The process ended before it had answered, and so did a second one."""


class Child:
    """A process that serves one request after the other, started for the first one.

    Args:
        module: of `specialists`; its function `main` is what the process runs.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        start = f"import sys; sys.path[:] = {sys.path!r}; from specialists.{module} import main; main()"
        self._command = [sys.executable, "-P", "-c", start, *arguments]
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None
        self._serving: Job | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        process = self._process
        return process.pid if process and process.returncode is None else None

    def job(self, words: Mapping[str, Any], data: bytes | bytearray = b"") -> "Job":
        """Queues a request: some words, as JSON, and the bytes they are about. To be used in a `with` block."""
        job = Job(self, words, data)
        with self._lock:
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="brain-child", daemon=True)
                self._worker.start()
        self._jobs.put(job)
        return job

    def give_up(self, job: "Job") -> None:
        """Takes a request back; ends the process if it is at work on it. Does not wait for that."""
        with self._lock:
            job.given_up = True
            process = self._process if self._serving is job else None
        if process:
            _end(process)

    def end(self) -> None:
        """Ends the process; a later request starts another."""
        with self._lock:
            process = self._process
        if process:
            _end(process)
        self._jobs.put(None)

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS if self._process else None)
            except queue.Empty:
                job = None
            if job is None:
                self._reap()
                continue
            with self._lock:
                self._serving = None if job.given_up else job
            if self._serving:
                job.post(job.begun, None)
                self._serve(job)
            del job  # with its bytes, which would wait here for the next one

    def _serve(self, job: "Job") -> None:
        for _ in range(2):
            try:
                answer: Message | Exception = self._exchange(job)
                break
            except (OSError, EOFError, ValueError, MemoryError) as error:  # it ended, or what it says makes no sense
                self._reap()
                answer = Gone(str(error))
            if job.given_up:
                break
        with self._lock:
            self._serving = None
        job.post(job.done, answer)

    def _exchange(self, job: "Job") -> Message:
        with self._lock:
            if job.given_up:
                raise EOFError
            if self._process is None:
                self._process = _started(self._command)
            process = self._process
        assert process.stdin
        assert process.stdout
        write(process.stdin, job.words, job.data)
        return read(process.stdout)

    def _reap(self) -> None:
        """Ends what is left of the process and waits for it, so that nothing stays in the system's table."""
        with self._lock:
            process, self._process = self._process, None
        if process:
            _kill(process)
            with contextlib.suppress(OSError):  # what was still to be written
                process.communicate()


class Job:
    """One request, from the queue to its answer. To leave its `with` block gives up what is not done."""

    def __init__(self, owner: Child, words: Mapping[str, Any], data: bytes | bytearray) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self.words = words
        self.data = data
        self.begun: asyncio.Future[None] = self._loop.create_future()
        self.done: asyncio.Future[Message] = self._loop.create_future()
        self.given_up = False

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self.done.done():
            self._owner.give_up(self)
        elif not self.done.cancelled():
            self.done.exception()  # retrieved, so that nothing warns
        self.data = b""

    async def begins(self, seconds: float) -> bool:
        """Whether its turn comes within so many seconds."""
        return await _settled(self.begun, seconds)

    async def answer(self, seconds: float) -> Message | None:
        """What the process says to it, if it does within so many seconds.

        Raises:
            Gone: when the process ended, and a second one too.
        """
        return self.done.result() if await _settled(self.done, seconds) else None

    def post(self, future: asyncio.Future[Any], value: Any) -> None:
        """Settles one of the futures, from the thread of the worker."""
        settle: Callable[[Any], None] = future.set_exception if isinstance(value, Exception) else future.set_result
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(lambda: None if self.given_up else settle(value))


async def _settled(future: asyncio.Future[Any], seconds: float) -> bool:
    await asyncio.wait({future}, timeout=max(0.0, seconds))
    return future.done()


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    """In a group of its own, so that it can be ended with all that it runs, and no Ctrl-C of a terminal reaches it."""
    own_group: dict[str, Any] = {"process_group": 0} if hasattr(os, "killpg") else {}
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    environ = {**os.environ, **FRUGAL}
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, env=environ, bufsize=0, **own_group)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process without waiting for it; it is asked first, for it may have to end another one."""
    with contextlib.suppress(OSError):
        process.terminate()
    threading.Thread(target=_kill_soon, args=(process,), name="brain-child-end", daemon=True).start()


def _kill_soon(process: subprocess.Popen[bytes]) -> None:
    time.sleep(ENDING_SECONDS)
    if process.returncode is None:  # else it was waited for, and its number may be another's
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The process, if it is still there, and its group."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
