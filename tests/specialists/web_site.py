"""A web site for tests: a real server, which answers by path and notes the requests."""

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from brain.net.fetch import Fetch


@dataclass(frozen=True)
class Text:
    """One response; a silent one never arrives."""

    body: bytes | str = b""
    type: str = "text/html; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    is_silent: bool = False


Answers = Mapping[str, Text | str] | Callable[[str, bytes], Text]
"""By path, or a function of the path with its query and the body."""


@dataclass
class Site:
    """Responses, and requests as path with query and headers with lower-case names."""

    port: int
    answers: Answers
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def fetch(self) -> Fetch:
        """A `Fetch` that treats this site as public."""
        return Fetch(frozenset({f"127.0.0.1:{self.port}"}))

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def serve(self, answers: Answers) -> None:
        """Serve other responses from now on, and clear the requests."""
        self.answers = answers
        self.requests.clear()


@contextmanager
def site(answers: Answers) -> Iterator[Site]:
    """Serve these responses by path, and 404 for other paths."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            sent = self.rfile.read(int(self.headers["Content-Length"] or 0))
            if isinstance(served.answers, Mapping):
                found = served.answers.get(self.path.partition("?")[0], Text("not here", status=404))
            else:
                found = served.answers(self.path, sent)
            answer = Text(found) if isinstance(found, str) else found
            if answer.is_silent:
                ended.wait()
            body = answer.body.encode() if isinstance(answer.body, str) else answer.body
            self.send_response(answer.status)
            headers = {"Content-Type": answer.type, "Content-Length": str(len(body)), **answer.headers}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *values: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore clients that disconnect."""

    server = Server(("127.0.0.1", 0), Handler)
    served = Site(server.server_address[1], answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def program(command: list[str], environ: Mapping[str, str], ready: bytes) -> Iterator[None]:
    """Run another server, starting with the line with `ready` on its standard error."""
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr
        try:
            assert any(ready in line for line in process.stderr), f"{command} ended"
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield
        finally:
            process.kill()
