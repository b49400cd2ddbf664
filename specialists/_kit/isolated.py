"""Run code on untrusted bytes in a child process, where it may hang, use too much memory, or crash.

A child gets only the environment variables that a program needs, so no keys and no proxies. It has limits for memory
and CPU time, and no network unless it needs one. It ends with its own children when its call is abandoned or the server
has ended. `child` is the program in the process.

- `IsolatedProcess` stays warm and serves one request after the other. One queue serves all event loops.
- `run_isolated` starts a process for one request.
- `messages` and `run_program` are for code in a child process: they start another process and wait for it.
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
"""Time for a process to end its children before it is killed."""
AT_ONCE = 4
"""Maximum processes of `run_isolated` per event loop; each may use all the memory of its limit."""
ALLOWED = (
    "DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH", "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "SYSTEMROOT", "TEMP",
    "TESSDATA_PREFIX", "TMP", "TMPDIR",
)  # fmt: skip
"""The environment variables that a child inherits."""
_FRUGAL_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_THREAD_LIMIT": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "1000000",
}
"""Leave one core to the server, and return the memory of a page to the system: 0.25 GB remain instead of 0.7."""

BROKEN = (OSError, EOFError, ValueError, RecursionError, MemoryError)
"""Raised when reading from a process that has ended or sends no valid messages."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a child.

    Attributes:
        cpu_seconds: CPU time per request; on a busy machine this may take much longer.
        memory: bytes of address space, or None for a program that maps large files.
        network: whether it has network access.
        nice: the niceness that is added.
    """

    cpu_seconds: float = 20.0
    memory: int | None = 1 << 30
    network: bool = False
    nice: int = 0


class Ended(Exception):
    """The process ended before it responded."""


class OutOfTime(Ended):
    """The process used up its CPU time."""


class IsolatedProcess:
    """A process that serves one request after the other. It starts with the first request.

    Args:
        module: module in `specialists` with a function `answer`, which serves the requests.
        warm: keep the process for further requests, and retry a request that crashed it once in a new process.
            Otherwise the process ends with its request.
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
        """The id of the running process, or None."""
        process = self._process
        return process.pid if process and process.returncode is None else None

    def job(self, words: Any, data: Payload = b"", *, report: Callable[[Any], None] = lambda step: None) -> "Job":
        """Queue a request. Use the job in a `with` block.

        Args:
            words: the request, as JSON values.
            data: the bytes of the request.
            report: called on the event loop with each progress report.
        """
        job = Job(self, words, data, report)
        with self._lock:
            self._jobs.put(job)
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="brain-child", daemon=True)
                self._worker.start()
        return job

    def cancel(self, job: "Job") -> None:
        """Cancel a request, and end the process if it is serving the request. Does not wait for the end."""
        with self._lock:
            job.is_cancelled = True
            if self._process and self._serving is job:
                _end_process(self._process) if self._warm else _kill(self._process, own_group=True)

    def end(self) -> None:
        """End the process; a later request starts a new one."""
        with self._lock:
            process = self._process
        if process:
            _end_process(process)
        self._jobs.put(None)

    def _work(self) -> None:
        """Serve requests in a thread until the process has been idle for `IDLE_SECONDS`."""
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
            del job  # frees its bytes before the next one arrives

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
    """One request, from the queue to its response. Leaving the `with` block cancels it if it is not done."""

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
            self.done.exception()  # marks it as retrieved, to avoid a warning
        self.data = b""

    async def has_started(self, seconds: float) -> bool:
        """Wait until a process serves the request; False after this time."""
        return await _is_settled(self.started, seconds)

    async def has_ended(self, seconds: float) -> bool:
        """Wait until the request ends; False after this time."""
        return await _is_settled(self.done, seconds)

    async def answer(self, seconds: float) -> Message | None:
        """Wait for the response; None after this time.

        Raises:
            Ended: if the process ended, and the retry failed, too.
        """
        return self.done.result() if await _is_settled(self.done, seconds) else None

    def post(self, future: asyncio.Future[Any], value: Any) -> None:
        """Set the result or exception of a future, from the thread of the process."""
        self._call_soon(future.set_exception if isinstance(value, Exception) else future.set_result, value)

    def report(self, step: Any) -> None:
        """Pass a progress report to the event loop, from the thread of the process."""
        self._call_soon(self._report, step)

    def _call_soon(self, function: Callable[[Any], None], value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(lambda: None if self.is_cancelled else function(value))


async def _is_settled(future: asyncio.Future[Any], seconds: float) -> bool:
    await asyncio.wait({future}, timeout=max(0.0, seconds))
    return future.done()


_places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def run_isolated(module: str, words: Any, data: bytes = b"", *, limits: Limits, seconds: float) -> Any:
    """Serve one request in a new process and return the response.

    Args:
        seconds: time limit, besides the limit of CPU time.

    Raises:
        Ended: if the process takes too long, fails or ends.
    """
    async with _places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE)):
        with IsolatedProcess(module, limits, warm=False).job(words, data) as job:
            answer = await job.answer(seconds)
    if answer is None:
        raise Ended
    return _check_answer(answer)[0]


def messages(module: str, words: Any, data: Payload, limits: Limits) -> Iterator[Message]:
    """Yield all messages of a new process for one request. It belongs to the caller's process group.

    Raises:
        Ended: if the process fails or ends before the last message.
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
    """Run a program and return its standard output, even if it was ended at its limit of CPU time.

    It belongs to the caller's process group and has the caller's limits.
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
    """Return the CPU time of the ended children of this process; 0 if the system does not count it."""
    with contextlib.suppress(ImportError):
        import resource

        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime
    return 0.0


def _make_command(module: str, limits: Limits) -> list[str]:
    return [sys.executable, "-P", "-m", "specialists._kit.child", f"specialists.{module}", json.dumps(asdict(limits))]


def _start(command: Sequence[str], *, own_group: bool) -> subprocess.Popen[bytes]:
    """Start a process. With its own group, it ends with its children, and Ctrl-C in the terminal does not reach it."""
    path = os.pathsep.join(folder for folder in sys.path if folder)
    environment = {name: os.environ[name] for name in ALLOWED if name in os.environ} | _FRUGAL_ENVIRONMENT
    environment |= {"PYTHONPATH": path, "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    group: dict[str, Any] = {"process_group": 0} if own_group and hasattr(os, "killpg") else {}
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, env=environment, bufsize=0, **group)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """End a process without waiting, after a moment in which it ends its children."""

    def kill() -> None:
        if process.returncode is None:  # else the system may have reused its id
            _kill(process, own_group=True)

    with contextlib.suppress(OSError):
        process.terminate()
    timer = threading.Timer(ENDING_SECONDS, kill)
    timer.daemon = True
    timer.start()


def _kill(process: subprocess.Popen[bytes], *, own_group: bool) -> None:
    with contextlib.suppress(OSError):  # it has ended
        if own_group and hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _reap_process(process: subprocess.Popen[bytes], error: Exception | None = None, *, own_group: bool) -> Ended:
    """End a process, wait for it so that no zombie remains, and return why it ended."""
    if process.returncode is None:
        _kill(process, own_group=own_group)
    with contextlib.suppress(OSError, ValueError):  # raised by unwritten input
        process.communicate()
    computed_too_long = process.returncode is not None and -process.returncode == getattr(signal, "SIGPROF", None)
    return (OutOfTime if computed_too_long else Ended)(str(error))
