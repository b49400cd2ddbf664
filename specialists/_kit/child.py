"""The program that every child process runs: it limits itself, then answers messages. It imports nothing of
Brain, and nothing that takes long.

    python -m specialists._kit.child MODULE LIMITS

MODULE has a function `answer(words, data, report)`, which returns the answer to one request; `report` sends steps
before it. A message is some words, as JSON, and the bytes they are about. Requests come in on stdin and answers go out
on stdout until stdin ends: then nobody waits for an answer any more.
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
"""Bytes of address space, also of the processes that a child starts itself."""
MAX_DATA = 1 << 30
"""Bytes that a process without a limit of address space may take for itself."""
RESTART_MEMORY = 800_000_000
"""Resident bytes above which a process ends after its answer, so that a new one takes its place."""
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
    """Serves until stdin ends, or the process is worn out."""
    module, limits = sys.argv[1], json.loads(sys.argv[2])
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)  # libraries that print do not disturb the messages
    os.close(nothing)
    confine(memory=limits["memory"], network=limits["network"], nice=limits["nice"])
    requests: queue.SimpleQueue[Message] = queue.SimpleQueue()
    woken, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno())  # waiting for a lock would miss a signal that came just before
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
            except Exception:  # noqa: BLE001 - whatever it is, it is reported, and the next request is served
                reply = {"broken": traceback.format_exc()}, b""
            write(out, *reply)
            del data, reply
            if _resident() > RESTART_MEMORY:
                break
    finally:
        with contextlib.suppress(OSError):
            while True:
                os.waitpid(-1, 0)  # also what ended while it was being started, so that no zombie stays
        os._exit(0)  # at once: the other thread waits for stdin


def confine(*, memory: int | None, network: bool, nice: int) -> None:
    """Limits the memory, network and rights of this process, as far as the system can.

    Args:
        memory: bytes of address space; None for a process that maps large files, of which only its own data count.
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
        score.write("500")  # if memory ends, this one goes and not the server
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(AttributeError, OSError):
            libc = ctypes.CDLL(None)
            libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
            if not network and libc.unshare(_NEW_NET):  # root may; others only in a user namespace of their own
                libc.unshare(_NEW_USER | _NEW_NET)


def limit_cpu(seconds: float) -> None:
    """Makes the system end this process, by SIGPROF, after so many seconds of CPU time from now."""
    with contextlib.suppress(AttributeError):  # of Windows, which knows no such timer
        signal.setitimer(signal.ITIMER_PROF, seconds)


def write(stream: IO[bytes], words: Any, data: Payload = b"", *, is_last: bool = True) -> None:
    """Sends a message: whether it is the last one of its request, two lengths, the words as JSON, and the bytes."""
    text = json.dumps(words).encode()
    for piece in (_FRAME.pack(is_last, len(text), len(data)) + text, data):
        rest = memoryview(piece)
        while rest:
            rest = rest[stream.write(rest) :]


def read(stream: IO[bytes]) -> tuple[bool, Message]:
    """Reads a message, and whether it is the last one of its request.

    Raises:
        EOFError: when the other side has ended.
        ValueError: when it is no message.
    """
    is_last, words, data = _FRAME.unpack(_read_exactly(stream, _FRAME.size))
    if max(words, data) > MAX_MESSAGE:
        raise ValueError("a message is too long")
    return is_last, (json.loads(_read_exactly(stream, words)), _read_exactly(stream, data))


def _read_exactly(stream: IO[bytes], size: int) -> bytearray:
    """So many bytes, copied once: copying 36 MB holds the interpreter for long."""
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
        os.killpg(0, signal.SIGKILL)  # with the program that it waits for, if it does
    os._exit(0)


def _terminate(*_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if _has_own_group():
        os.killpg(0, signal.SIGTERM)
    raise SystemExit  # which has `isolated` end the program that it runs, and wait for it


def _has_own_group() -> bool:
    return hasattr(os, "killpg") and os.getpgrp() == os.getpid()


def _resident() -> int:
    """Bytes of memory, 0 where the system does not report them."""
    with contextlib.suppress(OSError), open("/proc/self/statm", encoding="ascii") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


if __name__ == "__main__":
    main()
