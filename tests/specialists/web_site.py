"""A web site for tests: a real server on a real port, which answers by path as it is told and keeps what was asked."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from brain.net.fetch import Fetch


@dataclass(frozen=True)
class Text:
    """One answer; `after` is how many seconds it takes to come."""

    body: bytes | str = b""
    type: str = "text/html; charset=utf-8"
    status: int = 200
    after: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Site:
    """What was asked: path with query, and headers with names in lower case."""

    port: int
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def fetch(self) -> Fetch:
        """A way to the web on which this site counts as a public one."""
        return Fetch(frozenset({f"127.0.0.1:{self.port}"}))

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


@contextmanager
def site(answers: Mapping[str, Text | str]) -> Iterator[Site]:
    """A site that gives these answers by path; 404 for other ones."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            told = answers.get(self.path.partition("?")[0], Text("not here", status=404))
            said = Text(told) if isinstance(told, str) else told
            ended.wait(said.after)
            body = said.body.encode() if isinstance(said.body, str) else said.body
            self.send_response(said.status)
            for name, value in {"Content-Type": said.type, "Content-Length": str(len(body)), **said.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: object) -> None:
            """Nothing is logged."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that left is none."""

    ended = threading.Event()
    server = Server(("127.0.0.1", 0), Handler)
    found = Site(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, seconds: float) -> None:
    """Until something listens."""
    for _ in range(round(seconds * 20)):
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            threading.Event().wait(0.05)
    raise AssertionError(f"nothing listens on port {port}")
