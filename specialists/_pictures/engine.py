"""Built in: the program of the process that works on foreign files. It imports nothing of Brain.

A message comes in on stdin, its answer goes out on stdout, until stdin ends: then the server is gone, or wants no more.
"""

import contextlib
import json
import os
import queue
import signal
import socket
import struct
import threading
import traceback
from collections.abc import Callable
from typing import IO, Any

MEMORY_MOST = 3 << 30
"""Address space. RapidOCR has 1.2 GB of it on a page of A4."""
MEMORY_WORN = 800_000_000
"""Resident bytes from which a process makes room for a fresh one after its answer."""
REQUESTS_MOST = 500
NICE = 10
_FRAME = struct.Struct(">II")

Message = tuple[Any, bytearray]
Payload = bytes | bytearray


def main() -> None:
    """Serves until stdin ends, or the process is worn out."""
    out = _own_stdout()
    _bounded()
    requests: queue.SimpleQueue[Message] = queue.SimpleQueue()
    bell, ring = socket.socketpair()
    ring.setblocking(False)
    signal.set_wakeup_fd(ring.fileno())  # a lock would sleep on through a signal that came before it was waited for
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_listen, args=(requests, ring), daemon=True).start()
    try:
        for _ in range(REQUESTS_MOST):
            bell.recv(1)
            words, data = requests.get()
            write(out, *answer(words, bytes(data)))
            del data
            if _resident() > MEMORY_WORN:
                break
    finally:
        with contextlib.suppress(OSError):
            while True:
                os.waitpid(-1, 0)  # also what was ended while it was being started, so that no zombie stays
        os._exit(0)  # at once: the other thread waits for stdin


def answer(words: Any, data: bytes) -> tuple[Any, Payload]:
    """What is said to one request: what its function returns, or what was wrong with the file or with us."""
    from specialists._pictures.images import Unreadable

    try:
        return _functions()[words.pop("do")](data, **words)
    except Unreadable as error:
        return {"refused": str(error)}, b""
    except MemoryError:
        return {"refused": "it takes too much memory to be read; ask the user for a smaller copy"}, b""
    except Exception:  # noqa: BLE001 - whatever it is, it is told, and the next request is served
        return {"broken": traceback.format_exc()}, b""


def _functions() -> dict[str, Callable[..., tuple[Any, Payload]]]:
    from specialists._pictures import images, looking, ocr

    return {"pages": images.pages, "read": ocr.read, "look": looking.look}


def write(stream: IO[bytes], words: Any, data: Payload = b"") -> None:
    """Sends one message: the lengths of its words, as JSON, and of the bytes they are about, then both."""
    text = json.dumps(words).encode()
    for piece in (_FRAME.pack(len(text), len(data)) + text, data):
        rest = memoryview(piece)
        while rest:
            rest = rest[stream.write(rest) :]


def read(stream: IO[bytes]) -> Message:
    """Takes one message.

    Raises:
        EOFError: when the other side has ended.
    """
    words, data = _FRAME.unpack(_exactly(stream, _FRAME.size))
    return json.loads(_exactly(stream, words)), _exactly(stream, data)


def _exactly(stream: IO[bytes], size: int) -> bytearray:
    """So many bytes, copied once: whoever copies 36 MB holds the interpreter for long."""
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = stream.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        rest = rest[count:]
    return data


def _listen(requests: "queue.SimpleQueue[Message]", ring: socket.socket) -> None:
    with contextlib.suppress(EOFError, OSError), os.fdopen(0, "rb", buffering=0) as stdin:
        while True:
            requests.put(read(stdin))
            ring.send(b"\0")
    if _has_own_group():
        os.killpg(0, signal.SIGKILL)  # with the program that it waits for, if it does
    os._exit(0)


def _leave(*_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if _has_own_group():
        os.killpg(0, signal.SIGTERM)
    raise SystemExit  # from which `subprocess.run` ends its program and waits for it


def _has_own_group() -> bool:
    return hasattr(os, "killpg") and os.getpgrp() == os.getpid()


def _own_stdout() -> IO[bytes]:
    """What stdout was; libraries that print from now on print to nobody."""
    own = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    return own


def _bounded() -> None:
    """Limits what the process may take, and lets others go first, where the system knows of such things."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MOST, MEMORY_MOST))
    with contextlib.suppress(AttributeError, OSError):
        os.nice(NICE)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("500")  # if memory ends, this one goes and not the server


def _resident() -> int:
    """Bytes of memory, 0 where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/statm", encoding="ascii") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
