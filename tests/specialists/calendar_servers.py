"""CalDAV servers for tests: a real Radicale, and one that answers what a test tells it to."""

import base64
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.sax.saxutils import escape

USER, PASSWORD = "ada", "s3cret"


@dataclass
class Radicale:
    """A running Radicale with one user."""

    url: str

    def request(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str]:
        """A request as any other program would make it."""
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(
            f"{self.url}{path}", body.encode() or None, {"Authorization": f"Basic {login}", **names}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
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


@contextmanager
def radicale(folder: Path) -> Iterator[Radicale]:
    """Radicale on a free port, in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "users").write_text(f"{USER}:{PASSWORD}\n")
    (folder / "config").write_text(
        f"[server]\nhosts = 127.0.0.1:{port}\n[auth]\ntype = htpasswd\nhtpasswd_filename = {folder / 'users'}\n"
        f"htpasswd_encryption = plain\ndelay = 0\n[storage]\nfilesystem_folder = {folder / 'data'}\n"
        "[logging]\nlevel = critical\n"
    )
    process = subprocess.Popen([sys.executable, "-m", "radicale", "-C", str(folder / "config")])
    try:
        _wait_for(port)
        yield Radicale(f"http://127.0.0.1:{port}/")
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(port: int) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < end, "Radicale did not start"
            time.sleep(0.02)
        else:
            return


@dataclass(frozen=True)
class Told:
    """One answer."""

    status: int = 207
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    every: float = 0.0
    """Seconds between the octets, for a server that drips."""


@dataclass
class Fake:
    """A server that says what `answer` makes of method and path."""

    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def fake(answer: Callable[[str, str], Told]) -> Iterator[Fake]:
    told = Fake()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def respond(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            told.asked.append((self.command, self.path))
            said = answer(self.command, self.path)
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(said.body)))
            self.end_headers()
            try:
                if not said.every:
                    self.wfile.write(said.body)
                else:
                    for octet in said.body:
                        self.wfile.write(bytes([octet]))
                        time.sleep(said.every)
            except OSError:  # the client left
                self.close_connection = True

        do_GET = do_PUT = do_DELETE = do_PROPFIND = do_REPORT = do_OPTIONS = respond

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
