"""The program of every child process: it limits itself, then serves requests. Imports nothing from `brain`.

    python -m specialists._kit.child MODULE LIMITS

MODULE has a function `answer(words, data, report)`, which returns the response to one request; `report` sends progress
before it. A message has words, which are JSON values, and bytes. Requests arrive on stdin and responses leave on stdout
until stdin ends: then nothing waits for a response.
"""

import contextlib
import importlib
import json
import os
import queue
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from typing import IO, Any

MAX_MEMORY = 3 << 30
"""Hard limit of the address space in bytes, also for a child's own children."""
MAX_DATA = 1 << 30
"""Limit of the data segment in bytes for a process without a limit of address space."""
RESTART_MEMORY = 800_000_000
"""Resident bytes above which a process ends after its response, so that a new one replaces it."""
MAX_REQUESTS = 500
MAX_MESSAGE = 256 << 20
_FRAME = struct.Struct(">?II")
_NO_NEW_PRIVS = 38
_NEW_USER, _NEW_NET = 0x10000000, 0x40000000

Message = tuple[Any, bytearray]
Payload = bytes | bytearray
Report = Callable[[Any], None]
Answer = Callable[[Any, bytes, Report], tuple[Any, Payload]]


def main() -> None:
    """Serve requests until stdin ends, or the process should be replaced."""
    module, limits = sys.argv[1], json.loads(sys.argv[2])
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)  # so that libraries that print do not corrupt the messages
    os.close(nothing)
    confine(memory=limits["memory"], network=limits["network"], nice=limits["nice"])
    requests: queue.SimpleQueue[Message] = queue.SimpleQueue()
    woken, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno())  # waiting for a lock would miss a signal that arrived just before
    signal.signal(signal.SIGTERM, _terminate)
    threading.Thread(target=_listen, args=(requests, wakeup), daemon=True).start()
    try:
        answer: Answer = importlib.import_module(module).answer
        for _ in range(MAX_REQUESTS):
            woken.recv(1)
            words, data = requests.get()
            limit_cpu(limits["cpu_seconds"])
            try:
                reply = answer(words, bytes(data), lambda step: write(out, step, is_last=False))
            except Exception:  # noqa: BLE001 - it is reported, and the next request is served
                reply = {"broken": traceback.format_exc()}, b""
            write(out, *reply)
            del data, reply
            if _resident() > RESTART_MEMORY:
                break
    finally:
        with contextlib.suppress(OSError):
            while True:
                os.waitpid(-1, 0)  # also children that ended during their start, so that no zombie remains
        os._exit(0)  # at once, because the other thread waits for stdin


def confine(*, memory: int | None, network: bool, nice: int) -> None:
    """Limit memory, network and rights of this process, as far as the system supports it.

    Args:
        memory: bytes of address space; None for a process that maps large files, which limits only its data.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (memory or MAX_DATA, MAX_MEMORY))
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, MAX_MEMORY))
    with contextlib.suppress(AttributeError, OSError):
        os.nice(nice)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("500")  # out of memory, the system kills this process and not the server
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(AttributeError, OSError):
            libc = ctypes.CDLL(None)
            libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
            if not network and libc.unshare(_NEW_NET):  # only root may do this without a user namespace
                libc.unshare(_NEW_USER | _NEW_NET)


def limit_cpu(seconds: float) -> None:
    """Let the system end this process with SIGPROF after this CPU time from now."""
    with contextlib.suppress(AttributeError):  # Windows has no such timer
        signal.setitimer(signal.ITIMER_PROF, seconds)


def write(stream: IO[bytes], words: Any, data: Payload = b"", *, is_last: bool = True) -> None:
    """Send a message: a flag for the last one of a request, two lengths, the words as JSON, and the bytes."""
    text = json.dumps(words).encode()
    for piece in (_FRAME.pack(is_last, len(text), len(data)) + text, data):
        rest = memoryview(piece)
        while rest:
            rest = rest[stream.write(rest) :]


def read(stream: IO[bytes]) -> tuple[bool, Message]:
    """Read a message, and whether it is the last one of its request.

    Raises:
        EOFError: if the other side has ended.
        ValueError: if it is not a message.
    """
    is_last, words, data = _FRAME.unpack(_read_exactly(stream, _FRAME.size))
    if max(words, data) > MAX_MESSAGE:
        raise ValueError("a message is too long")
    return is_last, (json.loads(_read_exactly(stream, words)), _read_exactly(stream, data))


def _read_exactly(stream: IO[bytes], size: int) -> bytearray:
    """Read this many bytes without a second copy: copying 36 MB blocks other threads."""
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = stream.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        rest = rest[count:]
    return data


def _listen(requests: "queue.SimpleQueue[Message]", wakeup: socket.socket) -> None:
    with contextlib.suppress(EOFError, OSError), os.fdopen(0, "rb", buffering=0) as stdin:
        while True:
            requests.put(read(stdin)[1])
            wakeup.send(b"\0")
    if _has_own_group():
        os.killpg(0, signal.SIGKILL)  # with its children
    os._exit(0)


def _terminate(*_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if _has_own_group():
        os.killpg(0, signal.SIGTERM)
    raise SystemExit  # `isolated` then ends the program that it runs, and waits for it


def _has_own_group() -> bool:
    return hasattr(os, "killpg") and os.getpgrp() == os.getpid()


def _resident() -> int:
    """Return the resident bytes, 0 if the system does not report them."""
    with contextlib.suppress(OSError), open("/proc/self/statm", encoding="ascii") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


if __name__ == "__main__":
    main()
