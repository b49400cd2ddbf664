"""The one way to start a child process, for whatever may hang, swell or crash on a stranger's bytes.

A child gets only the variables of the environment that a program needs, so no key and no proxy. It gets limits of
memory and CPU time, no network unless it must have one, and ends with all that it runs: when its call is abandoned, or
the server is gone. `child` is the program that it runs.

- `IsolatedProcess` stays, warm, and answers one request after the other; one queue serves all event loops.
- `run_isolated` starts a process for one request.
- `messages` and `run_program` are for code that runs in a child itself: they start another one, and wait for it.
"""

import asyncio
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from specialists._kit.child import Message, Payload, read, write

IDLE_SECONDS = 300.0
ENDING_SECONDS = 0.02
"""Time for a process to end its own children before it is killed."""
AT_ONCE = 4
"""Processes of `run_isolated` for one event loop; each may take as much memory as its limit."""
ALLOWED = (
    "DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH", "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "SYSTEMROOT", "TEMP",
    "TESSDATA_PREFIX", "TMP", "TMPDIR",
)  # fmt: skip
"""The variables of the environment that a child gets."""
_FRUGAL_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_THREAD_LIMIT": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "1000000",
}
"""One core is the server's own. The memory of a page goes back to the system after it: 0.25 GB stay instead of 0.7."""

BROKEN = (OSError, EOFError, ValueError, RecursionError, MemoryError)
"""Raised by reading from a process that ended, or that sends no messages."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources of a child.

    Attributes:
        cpu_seconds: for each request; on a busy machine that may take any time.
        memory: bytes of address space, None for a program that maps large files.
        network: whether it may reach one.
        nice: how much others go first.
    """

    cpu_seconds: float = 20.0
    memory: int | None = 1 << 30
    network: bool = False
    nice: int = 0


class Ended(Exception):
    """The process ended before it had answered."""


class OutOfTime(Ended):
    """It computed for longer than its limit."""


class IsolatedProcess:
    """A process that serves one request after the other, started for the first one.

    Args:
        module: of `specialists`; its function `answer` is what the process runs.
        warm: whether the process stays for further requests, and a second one retries a request that ended it; else
            it ends with its request.
    """

    def __init__(self, module: str, limits: Limits, *, warm: bool = True) -> None:
        self._command, self._warm = _make_command(module, limits), warm
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

    def job(self, words: Any, data: Payload = b"", *, report: Callable[[Any], None] = lambda step: None) -> "Job":
        """Queues a request: some words, as JSON, and the bytes they are about. To be used in a `with` block.

        Args:
            report: called on the event loop with each step before the answer.
        """
        job = Job(self, words, data, report)
        with self._lock:
            self._jobs.put(job)
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="brain-child", daemon=True)
                self._worker.start()
        return job

    def cancel(self, job: "Job") -> None:
        """Cancels a request; ends the process if it serves it. Does not wait for that."""
        with self._lock:
            job.is_cancelled = True
            if self._process and self._serving is job:
                _end_process(self._process) if self._warm else _kill(self._process, own_group=True)

    def end(self) -> None:
        """Ends the process; a later request starts another."""
        with self._lock:
            process = self._process
        if process:
            _end_process(process)
        self._jobs.put(None)

    def _work(self) -> None:
        """Serves requests in a thread until the process was idle for long enough."""
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS if self._warm and self._process else 0)
            except queue.Empty:
                job = None
            if job is None:
                self._reap()
                with self._lock:
                    if self._jobs.empty():
                        self._worker = None
                        return
                continue
            with self._lock:
                self._serving = None if job.is_cancelled else job
            if self._serving:
                job.post(job.started, None)
                self._serve(job)
            del job  # with its bytes, which would wait here for the next one

    def _serve(self, job: "Job") -> None:
        answer: Message | Ended = Ended()
        for _ in range(2 if self._warm else 1):
            try:
                answer = self._exchange(job)
                break
            except BROKEN as error:
                answer = self._reap(error)
            if job.is_cancelled or isinstance(answer, OutOfTime):
                break
        with self._lock:
            self._serving = None
        job.post(job.done, answer)

    def _exchange(self, job: "Job") -> Message:
        with self._lock:
            if job.is_cancelled:
                raise EOFError
            process = self._process = self._process or _start(self._command, own_group=True)
        assert process.stdin
        assert process.stdout
        write(process.stdin, job.words, job.data)
        while True:
            is_last, message = read(process.stdout)
            if is_last:
                return message
            job.report(message[0])

    def _reap(self, error: Exception | None = None) -> Ended:
        with self._lock:
            process, self._process = self._process, None
        return _reap_process(process, error, own_group=True) if process else Ended(str(error))


class Job:
    """One request, from the queue to its answer. Leaving its `with` block cancels it if it is not done."""

    def __init__(self, owner: IsolatedProcess, words: Any, data: Payload, report: Callable[[Any], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._report = report
        self.words = words
        self.data = data
        self.started: asyncio.Future[None] = self._loop.create_future()
        self.done: asyncio.Future[Message] = self._loop.create_future()
        self.is_cancelled = False

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self.done.done():
            self._owner.cancel(self)
        elif not self.done.cancelled():
            self.done.exception()  # retrieved, so that nothing warns
        self.data = b""

    async def has_started(self, seconds: float) -> bool:
        """Whether a process takes the request within so many seconds."""
        return await _is_settled(self.started, seconds)

    async def has_ended(self, seconds: float) -> bool:
        """Whether the request ends within so many seconds."""
        return await _is_settled(self.done, seconds)

    async def answer(self, seconds: float) -> Message | None:
        """The answer, None if it takes longer than so many seconds.

        Raises:
            Ended: when the process ended, and so did the one that retried.
        """
        return self.done.result() if await _is_settled(self.done, seconds) else None

    def post(self, future: asyncio.Future[Any], value: Any) -> None:
        """Settles one of the futures, from the thread of the process."""
        self._call_soon(future.set_exception if isinstance(value, Exception) else future.set_result, value)

    def report(self, step: Any) -> None:
        """Passes a step on, from the thread of the process."""
        self._call_soon(self._report, step)

    def _call_soon(self, function: Callable[[Any], None], value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(lambda: None if self.is_cancelled else function(value))


async def _is_settled(future: asyncio.Future[Any], seconds: float) -> bool:
    await asyncio.wait({future}, timeout=max(0.0, seconds))
    return future.done()


_places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def run_isolated(module: str, words: Any, data: bytes = b"", *, limits: Limits, seconds: float) -> Any:
    """The answer of a new process to one request.

    Args:
        seconds: time limit for its answer, besides its limit of CPU time.

    Raises:
        Ended: when it takes too long, breaks or ends.
    """
    async with _places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE)):
        with IsolatedProcess(module, limits, warm=False).job(words, data) as job:
            answer = await job.answer(seconds)
    if answer is None:
        raise Ended
    return _check_answer(answer)[0]


def messages(module: str, words: Any, data: Payload, limits: Limits) -> Iterator[Message]:
    """All messages of a process in answer to one request. It belongs to the group of the process that calls this.

    Raises:
        Ended: when it breaks, or ends before its last message.
    """
    process = _start(_make_command(module, limits), own_group=False)
    assert process.stdin
    assert process.stdout
    is_last = False
    try:
        write(process.stdin, words, data)
        while not is_last:
            is_last, message = read(process.stdout)
            yield _check_answer(message)
    except BROKEN as error:
        raise _reap_process(process, error, own_group=False) from error
    finally:
        _reap_process(process, own_group=False)


def _check_answer(message: Message) -> Message:
    if isinstance(message[0], dict) and "broken" in message[0]:
        raise Ended(message[0]["broken"])
    return message


def run_program(command: Sequence[str], data: bytes = b"", *, cpu_seconds: float) -> bytes:
    """The output of a program on stdout, also when it ends at its limit of CPU time.

    It belongs to the group of the process that calls this, and has its limits.
    """
    process = _start(command, own_group=False)
    try:
        with contextlib.suppress(ImportError, AttributeError, OSError):
            import resource

            seconds = max(1, round(cpu_seconds))
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds, seconds + 1))
        return process.communicate(data)[0]
    finally:
        _reap_process(process, own_group=False)


def children_seconds() -> float:
    """The CPU time of the ended children of this process; 0 where the system does not count it."""
    with contextlib.suppress(ImportError):
        import resource

        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime
    return 0.0


def _make_command(module: str, limits: Limits) -> list[str]:
    return [sys.executable, "-P", "-m", "specialists._kit.child", f"specialists.{module}", json.dumps(asdict(limits))]


def _start(command: Sequence[str], *, own_group: bool) -> subprocess.Popen[bytes]:
    """A process; in a group of its own it ends with all that it runs, and no Ctrl-C of a terminal reaches it."""
    path = os.pathsep.join(folder for folder in sys.path if folder)
    environment = {name: os.environ[name] for name in ALLOWED if name in os.environ} | _FRUGAL_ENVIRONMENT
    environment |= {"PYTHONPATH": path, "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    group: dict[str, Any] = {"process_group": 0} if own_group and hasattr(os, "killpg") else {}
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, env=environment, bufsize=0, **group)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """Ends a process without waiting for it; it gets a moment to end another one."""

    def kill() -> None:
        if process.returncode is None:  # else it was waited for, and its number may be another's
            _kill(process, own_group=True)

    with contextlib.suppress(OSError):
        process.terminate()
    timer = threading.Timer(ENDING_SECONDS, kill)
    timer.daemon = True
    timer.start()


def _kill(process: subprocess.Popen[bytes], *, own_group: bool) -> None:
    with contextlib.suppress(OSError):  # it is gone
        if own_group and hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _reap_process(process: subprocess.Popen[bytes], error: Exception | None = None, *, own_group: bool) -> Ended:
    """Ends a process and waits for it, so that no zombie stays; returns why it ended."""
    if process.returncode is None:
        _kill(process, own_group=own_group)
    with contextlib.suppress(OSError, ValueError):  # of what was still to be written
        process.communicate()
    computed_too_long = process.returncode is not None and -process.returncode == getattr(signal, "SIGPROF", None)
    return (OutOfTime if computed_too_long else Ended)(str(error))
