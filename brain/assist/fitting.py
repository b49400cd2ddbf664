"""Fits weights in a child process of low priority: it takes seconds of CPU time, and no stream may wait for it.

    python -m brain.assist.fitting

reads a request from stdin and writes the weights to stdout.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from brain.assist.weights import EmbeddingClassifier, Learned, fit_embeddings, learn, read_shipped, unpack
from brain.concurrency import run_in_thread

NICENESS = 19
COMMAND = (sys.executable, "-P", "-m", "brain.assist.fitting")


class FitError(Exception):
    """The process failed or cannot start."""


class Texts(msgspec.Struct, tag=True):
    """A request to learn the classes that `router.bin` lacks. The arguments are those of `learn`."""

    classes: list[tuple[str, str]]
    labelled: list[tuple[str, int]]


class Embeddings(msgspec.Struct, tag=True):
    """A request for a classifier. The arguments are those of `fit_embeddings`."""

    vectors: Sequence[Sequence[float]]
    labels: Sequence[int]


async def learn_apart(classes: Sequence[tuple[str, str]], labelled: Sequence[tuple[str, int]]) -> Learned:
    """Call `learn` in a child process, based on `router.bin`."""
    return unpack(await _run(Texts([*classes], [*labelled])))


async def fit_embeddings_apart(vectors: Sequence[Sequence[float]], labels: Sequence[int]) -> EmbeddingClassifier:
    """Call `fit_embeddings` in a child process."""
    return msgspec.msgpack.decode(await _run(Embeddings(vectors, labels)), type=EmbeddingClassifier)


async def _run(request: Texts | Embeddings) -> bytes:
    """Return what a child process writes. It is killed if this task is cancelled.

    Raises:
        FitError: The process failed, or cannot start.
        NoThread: No thread can wait for it.
    """
    pipe = subprocess.PIPE
    path = os.pathsep.join(folder for folder in sys.path if folder)
    started: list[subprocess.Popen[bytes]] = []
    is_cancelled = False

    def run() -> bytes:
        with subprocess.Popen(
            COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, "PYTHONPATH": path}
        ) as process:
            started.append(process)
            if is_cancelled:
                process.kill()
            out, err = process.communicate(msgspec.msgpack.encode(request))
        if process.returncode:
            raise FitError(f"exit code {process.returncode}: {err[-500:].decode('utf-8', 'replace')}")
        return out

    try:
        found: bytes = await run_in_thread("router", run)
    except OSError as error:
        raise FitError(str(error)) from error
    else:
        return found
    finally:
        is_cancelled = True
        for process in started:
            process.kill()  # does nothing to a process that has ended


def main() -> None:
    """Serve one request."""
    with suppress(AttributeError, OSError):  # Windows has none
        os.nice(NICENESS)
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Texts | Embeddings)
    if isinstance(request, Texts):
        answer = learn(request.classes, request.labelled, read_shipped()).pack()
    else:
        answer = msgspec.msgpack.encode(fit_embeddings(request.vectors, request.labels))
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main()
