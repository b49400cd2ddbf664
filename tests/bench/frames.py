"""Count the functions of Brain on the way of a request: `python tests/bench/frames.py`.

`brain serve` runs in this process with default settings, in front of a model server that writes one token at a time.
A profile hook in all threads notes each function of `brain/` and `specialists/`. Four ways are printed:

- request: from the bytes of `POST /v1/chat/stream` until the first event is in the log of the turn
- token: from the bytes of the model's token, which Brain writes to the client, until it waits for the next token
- call: from the end of a call in the model's text to the specialist's function
- result: from the return of this function, which Brain writes to the client, until it waits again

A frame is a start or a resumption of a function, generator or coroutine; a comprehension is part of its function. A
change is a frame in another file than the frame before it. Each way is the shortest of several rounds, because periodic
work of the server can fall into a round.
"""

import argparse
import json
import os
import queue
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise, takewhile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from upstream import MODELS, OPENAI, chunk, openai_event
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

import brain
from brain import settings
from brain.cli.serve import serve
from brain.markers.scanner import Scanner
from brain.runtime.event_log import EventLog

ROOT = Path(brain.__file__).parents[1]
OWN = (f"{ROOT / 'brain'}{os.sep}", f"{ROOT / 'specialists'}{os.sep}")
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
SECONDS = 30.0
"""Time limit of each step."""
SETTLE_SECONDS = 0.2
"""Time for the work that a step causes."""
SPECIALIST = '''"""Reports a lap."""

from brain import specialist


@specialist(read_only=True)
async def stopwatch(lap: str) -> str:
    """The time of a lap."""
    return f"The time of lap {lap} is 7 s."
'''
CALL = 'SPECIALIST_REQUEST[stopwatch:{"lap":"seven"}]'
WAYS = ("request", "token", "call", "result")

out = sys.stdout.write


class Step(NamedTuple):
    """One event of the profile hook.

    Attributes:
        kind: `start` or `resume` of a function, or one of `MARKS`.
        depth: number of functions of Brain that wait for this one.
    """

    kind: str
    code: CodeType
    depth: int
    thread: int


class Trace:
    """The profile hook, and the steps that it noted since `start`."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._is_on = False

    def install(self) -> None:
        """Trace this thread, all threads that start later, and writes of uvicorn."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        connect: Callable[[Any, Any], None] = HttpToolsProtocol.connection_made

        def connection_made(self: HttpToolsProtocol, transport: Any) -> None:
            connect(self, _Transport(transport))

        HttpToolsProtocol.connection_made = connection_made  # type: ignore[method-assign]

    def start(self) -> None:
        self.steps, self._is_on = [], True

    def stop(self) -> Sequence[Step]:
        """Stop when the server has finished its work for the step, and return the events."""
        time.sleep(SETTLE_SECONDS)
        self._is_on = False
        return self.steps

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if self._is_on and event in ("call", "return") and (kind := _kind(frame, event)):
            self.steps.append(Step(kind, frame.f_code, _depth(frame), threading.get_ident()))


class _Transport:
    """A transport of a client. The profile hook sees its writes, and not those of uvloop, which are written in C."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self._transport.write(data)


MARKS = {
    (EventLog.append.__code__, "return"): "logged",
    (Scanner.feed.__code__, "return"): "scanned",
    (_Transport.write.__code__, "call"): "written",
}


def _kind(frame: FrameType, event: str) -> str:
    code = frame.f_code
    if (mark := MARKS.get((code, event))) is not None:
        return mark
    if code.co_filename.endswith("stopwatch.py"):
        return "called" if event == "call" else "returned"
    if event == "return" or not code.co_filename.startswith(OWN) or code.co_name in COMPREHENSIONS:
        return ""
    # the argument of the instruction RESUME is 0 at the start of a function
    return "resume" if code.co_code[frame.f_lasti + 1] & 3 else "start"


def _depth(frame: FrameType) -> int:
    depth, caller = 0, frame.f_back
    while caller is not None:
        depth += caller.f_code.co_filename.startswith(OWN)
        caller = caller.f_back
    return depth


class Model(ThreadingHTTPServer):
    """A model server. `asked` has the requests that wait for an answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ModelRequest)
        self.asked: queue.Queue[_ModelRequest] = queue.Queue()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def next_request(self) -> "_ModelRequest":
        return self.asked.get(timeout=SECONDS)


class _ModelRequest(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Model

    def setup(self) -> None:
        super().setup()
        self._has_ended = threading.Event()

    def do_GET(self) -> None:
        self._send_json(MODELS.get(self.path, {}))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/v1/chat/completions":
            self._send_json({})
            return
        self._has_ended.clear()
        self.server.asked.put(self)
        self._has_ended.wait()

    def write(self, text: str) -> None:
        """Write an event with this text."""
        self.wfile.write(chunk(openai_event(text)))

    def end(self) -> None:
        """Write the end of the answer, if Brain has not closed the connection."""
        self.close_connection = True
        with suppress(OSError):
            self.wfile.write(OPENAI.end)
        self._has_ended.set()

    def begin(self) -> None:
        self.wfile.write(OPENAI.head)

    def _send_json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Log nothing."""


class Client:
    """A connection to Brain that sends one request after another."""

    def __init__(self, port: int) -> None:
        self._sock = _connect(port)
        self._received = b""

    def ask(self) -> None:
        body = b'{"message":"hi"}'
        head = "POST /v1/chat/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self._received = b""
        self._sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def read_until(self, end: bytes) -> None:
        """Read until the response has these bytes."""
        while end not in self._received:
            data = self._sock.recv(1 << 16)
            if not data:
                raise SystemExit(f"Brain closed the connection after {self._received[-300:]!r}")
            self._received += data


def _connect(port: int) -> socket.socket:
    end = time.monotonic() + SECONDS
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), SECONDS)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def measure(port: int, model: Model, trace: Trace, rounds: int) -> dict[str, Sequence[Step]]:
    """Return the shortest of each way."""
    client = Client(port)
    found: dict[str, list[Sequence[Step]]] = {way: [] for way in WAYS}
    for number in range(rounds + 1):  # the first one warms up
        ways = _one_turn(client, model, trace)
        for way, steps in ways.items():
            if number:
                found[way].append(steps)
    return {way: min(walks, key=len) for way, walks in found.items()}


def _one_turn(client: Client, model: Model, trace: Trace) -> dict[str, Sequence[Step]]:
    time.sleep(SETTLE_SECONDS)  # for the end of the turn before
    trace.start()
    client.ask()
    answer = model.next_request()
    request = trace.stop()
    answer.begin()
    for text in (" one", " two"):
        answer.write(text)
        client.read_until(text.encode())
    time.sleep(SETTLE_SECONDS)
    trace.start()
    answer.write(" three")
    client.read_until(b" three")
    token = trace.stop()
    for start in range(0, len(CALL) - 1, 5):
        answer.write(CALL[start : min(start + 5, len(CALL) - 1)])
    time.sleep(SETTLE_SECONDS)
    trace.start()
    answer.write(CALL[-1])
    client.read_until(b"lap seven is 7 s")
    call = trace.stop()
    answer.end()
    answer = model.next_request()
    answer.begin()
    answer.write(" done")
    answer.end()
    client.read_until(b"\r\n0\r\n\r\n")
    return {
        "request": _frames(request[: _find(request, "logged")]),
        "token": _until_idle(token),
        "call": _frames(call[_find(call, "scanned") : _find(call, "called")]),
        "result": _until_idle(call[_find(call, "returned") :]),
    }


def _find(steps: Sequence[Step], kind: str) -> int:
    return next(place for place, step in enumerate(steps) if step.kind == kind)


def _until_idle(steps: Sequence[Step]) -> list[Step]:
    """Return the frames until the event loop has finished what wrote to the client."""
    written = steps[_find(steps, "written")]
    loop = [step for step in steps if step.thread == written.thread]
    lowest = _frames(loop)[0].depth
    after = takewhile(lambda step: step.depth > lowest, loop[loop.index(written) :])
    return _frames([*loop[: loop.index(written)], *after])


def _frames(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.kind in ("start", "resume")]


def count(steps: Sequence[Step]) -> tuple[int, int, int, int]:
    """Return the number of frames, of their files, of changes of file, and of frames that are resumptions."""
    files = [step.code.co_filename for step in steps]
    changes = sum(one != following for one, following in pairwise(files))
    return len(files), len(set(files)), changes, sum(step.kind == "resume" for step in steps)


def _print_steps(way: str, steps: Sequence[Step]) -> None:
    out(f"{way}\n\n")
    threads = list(dict.fromkeys(step.thread for step in steps))
    lowest = min(step.depth for step in steps)
    for step in steps:
        place = f"{Path(step.code.co_filename).relative_to(ROOT)}:{step.code.co_firstlineno}"
        thread = f" [thread {number}]" if (number := threads.index(step.thread)) else ""
        resumed = " (resumed)" if step.kind == "resume" else ""
        out(f"{place:<44} {'  ' * (step.depth - lowest)}{step.code.co_qualname}{resumed}{thread}\n")
    out("\n")


def main() -> int:
    parser = argparse.ArgumentParser("python tests/bench/frames.py", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=WAYS, default=WAYS, metavar="WAY", help=f"ways: {', '.join(WAYS)}")
    parser.add_argument("--list", action="store_true", help="list the frames, indented by depth")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds (default: 5)")
    given = parser.parse_args()
    model, trace = Model(), Trace()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "stopwatch.py").write_text(SPECIALIST, "utf-8")
        with socket.create_server(("127.0.0.1", 0)) as sock:
            port = sock.getsockname()[1]
        environ = {
            "BRAIN_MODEL": "openai:fake",
            "BRAIN_MODEL_URL": f"http://127.0.0.1:{model.server_port}/v1",
            "BRAIN_STORE": f"sqlite:{folder}/brain.db",
            "BRAIN_SPECIALISTS_FOLDER": folder,
            "BRAIN_PORT": str(port),
        }
        measured: dict[str, Sequence[Step]] = {}

        def drive() -> None:
            try:
                measured.update(measure(port, model, trace, given.rounds))
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=drive).start()
        trace.install()
        with suppress(SystemExit):
            serve(argparse.Namespace(), settings.read(environ))
    if not measured:
        return 1
    if given.list:
        for way in given.only:
            _print_steps(way, measured[way])
    out("| way | frames | files | changes | resumed |\n|---|---|---|---|---|\n")
    for way in given.only:
        out(f"| {way} | {' | '.join(map(str, count(measured[way])))} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
