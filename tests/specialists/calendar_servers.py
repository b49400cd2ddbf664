"""CalDAV servers for tests: a real Radicale, and a fake one with given responses."""

import base64
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from xml.sax.saxutils import escape

from limits import WAIT_SECONDS
from radicale import config
from radicale.app import Application

USER, PASSWORD = "ada", "s3cret"


@dataclass
class Radicale:
    """A running Radicale with one user."""

    url: str

    def request(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str]:
        """Send a request like another program."""
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(
            f"{self.url}{path}", body.encode() or None, {"Authorization": f"Basic {login}", **names}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def make_calendar(self, name: str, title: str) -> None:
        props = f'<D:prop xmlns:D="DAV:"><D:displayname>{escape(title)}</D:displayname></D:prop>'
        made = f'xmlns:C="urn:ietf:params:xml:ns:caldav" xmlns:D="DAV:"><D:set>{props}</D:set>'
        body = f"<C:mkcalendar {made}</C:mkcalendar>"
        status, _ = self.request("MKCALENDAR", f"{USER}/{name}/", body)
        assert status == 201

    def put(self, calendar: str, name: str, text: str) -> None:
        path = f"{USER}/{calendar}/{name}"
        status, _ = self.request("PUT", path, text.replace("\n", "\r\n"), Content_Type="text/calendar")
        assert status in (201, 204)

    def get(self, calendar: str, name: str) -> str:
        return self.request("GET", f"{USER}/{calendar}/{name}")[1]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(server: HTTPServer) -> Iterator[str]:
    """Serve in a thread; yield the URL."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def run_radicale(folder: Path) -> Iterator[Radicale]:
    """Run Radicale on a free port."""
    (folder / "users").write_text(f"{USER}:{PASSWORD}\n")
    users = {"type": "htpasswd", "htpasswd_filename": str(folder / "users"), "htpasswd_encryption": "plain"}
    configuration = config.load()
    configuration.update(
        {"auth": users | {"delay": "0"}, "storage": {"filesystem_folder": str(folder / "data")}}, "tests"
    )
    server = make_server("127.0.0.1", 0, Application(configuration), _Server, _QuietHandler)
    with serving(server) as url:
        yield Radicale(url)


@dataclass(frozen=True)
class Response:
    """A response."""

    status: int = 207
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class FakeServer:
    """A server whose responses depend on method and path."""

    url: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def fake_server(answer: Callable[[str, str], Response]) -> Iterator[FakeServer]:
    state = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def respond(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.requests.append((self.command, self.path))
            response = answer(self.command, self.path)
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            with suppress(OSError):  # the client left
                self.wfile.write(response.body)

        do_GET = do_PUT = do_DELETE = do_PROPFIND = do_REPORT = do_OPTIONS = respond

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with serving(server) as state.url:
        yield state
