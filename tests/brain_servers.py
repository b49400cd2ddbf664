"""Real servers for tests, in a thread or a process; a scripted model; and the answers that clients read."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import httpx
import uvicorn
from limits import WAIT_SECONDS
from sse_events import Event
from sse_events import read as read_events
from starlette.applications import Starlette
from turn_helpers import Player
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from brain.plugins.registry import Registry
from brain.runtime.engine import Engine
from brain.server.app import create_app
from brain.server.state import ServerState
from brain.server.uvicorn_protocol import Protocol
from brain.settings import Settings, read
from brain.settings.models import STANDARD

T = TypeVar("T")
SERVER_TASKS = (
    "serve",
    "_stop_at_shutdown",
    "_measure_forever",
    "_maintain_forever",
    "sweep_forever",
    "_look_forever",
    "_report_forever",
    ".embed",
    ".summarise",
    "_shutdown_watcher",
    "LifespanOn.main",
    "wait_for_disconnect",
    "TaskHandle._run_coro",  # part of a request that is a task itself
)


class Server(uvicorn.Server):
    """An application, served in a thread on a port of its own."""

    def __init__(self, app: Starlette) -> None:
        protocol = Protocol if hasattr(app.state, "brain") else "httptools"  # which others use who mount Brain
        config = uvicorn.Config(app, http=protocol, log_level="critical", ws="none", timeout_graceful_shutdown=1)
        super().__init__(config)
        self.app = app
        self.ready = threading.Event()
        self.sock = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self.sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def state(self) -> ServerState:
        state: ServerState = self.app.state.brain
        return state

    @property
    def engine(self) -> Engine:
        return self.state.engine

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        self.ready.set()

    def on_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(WAIT_SECONDS)

    def left(self) -> list[str]:
        """The names of tasks of turns and requests that do not end."""

        async def names() -> list[str]:
            found = asyncio.all_tasks() - {asyncio.current_task()}
            tasks = [one for one in found if one is not None and not _stays(one)]
            if tasks:
                await asyncio.wait(tasks, timeout=WAIT_SECONDS)
            return sorted(_name(one) for one in tasks if not one.done())

        return asyncio.run_coroutine_threadsafe(names(), self.loop).result(2 * WAIT_SECONDS)

    def release(self, event: asyncio.Event) -> None:
        """Set an event for which a model or a specialist waits."""
        self.loop.call_soon_threadsafe(event.set)

    def play(self, *models: Player) -> None:
        """Let these models answer; the first is the default."""
        self.engine.models = list(models)


def _stays(task: "asyncio.Task[Any]") -> bool:
    """Whether it belongs to the server, or is the stream of tasks that each open chat page reads."""
    frame = getattr(task.get_coro(), "cr_frame", None)
    variables = {} if frame is None else frame.f_locals
    cycle = variables.get("cycle", variables.get("self"))
    path = getattr(cycle, "scope", {}).get("path", "") if isinstance(cycle, RequestResponseCycle) else ""
    return _name(task).endswith(SERVER_TASKS) or path.endswith("/v1/tasks/events")


def _name(task: "asyncio.Task[Any]") -> str:
    return getattr(task.get_coro(), "__qualname__", "?")


@contextmanager
def served(app: Starlette) -> Iterator[Server]:
    """Serve an application until the block ends."""
    server = Server(app)
    thread = threading.Thread(target=server.run, args=([server.sock],))
    thread.start()
    try:
        assert server.ready.wait(WAIT_SECONDS)
        yield server
    finally:
        server.should_exit = True
        thread.join(WAIT_SECONDS)
        server.sock.close()
    assert not thread.is_alive()


def settings(**values: object) -> Settings:
    """Settings as the environment would give them."""
    named = {key: str(value) for key, value in values.items()}
    return read({f"BRAIN_{key}": value for key, value in ({"MODEL": "builtin"} | named).items()})


def script(folder: Path, *passes: Sequence[str] | Mapping[str, object], name: str = "script.jsonl") -> str:
    """The setting MODEL for a file with these passes."""
    path = folder / name
    path.write_text("".join(json.dumps(one) + "\n" for one in passes), "utf-8")
    return f"script:{path}"


@contextmanager
def brain_served(registry: Registry | None = None, **values: object) -> Iterator[Server]:
    """Serve Brain with these settings and specialists."""
    app = create_app(settings(**values), registry if registry is not None else Registry())
    with served(app) as server:
        yield server


@dataclass
class Answer:
    """The answer of a server, in the pieces in which it arrived."""

    status: int
    headers: httpx.Headers
    chunks: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def events(self) -> list[Event]:
        return read_events(self.body)

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.events]

    @property
    def last(self) -> dict[str, Any]:
        return self.events[-1].data

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)["error"]
        return found


def problem(answer: Answer | httpx.Response) -> tuple[int, str, str | None]:
    """Status, code and field of an error of Brain's own protocol."""
    if isinstance(answer, Answer):
        status, error = answer.status, answer.error
    else:
        status, error = answer.status_code, answer.json()["error"]
    assert answer.headers["content-type"] == "application/json"
    assert set(error) <= {"code", "message", "field", *(("task_id",) if error["code"] == "duplicate" else ())}
    return status, error["code"], error.get("field")


def client_of(server: Server, key: str | None = None, **headers: str) -> httpx.Client:
    """A client of the server, with a key or without."""
    return client_at(server.url, key, **headers)


def client_at(url: str, key: str | None = None, **headers: str) -> httpx.Client:
    """A client of the server at this URL."""
    sent = headers if key is None else {"authorization": f"Bearer {key}", **headers}
    return httpx.Client(base_url=url, headers=sent, timeout=WAIT_SECONDS, trust_env=False, verify=False)


def post(url: str, **options: Any) -> Answer:
    """The whole answer to `POST /v1/chat/stream`."""
    with streaming(url, **options) as answer:
        pass
    return answer


@contextmanager
def streaming(url: str, until: str | None = None, **options: Any) -> Iterator[Answer]:
    """The answer up to this text, with the connection open; it is closed after the block."""
    with (
        httpx.Client(timeout=WAIT_SECONDS, trust_env=False, verify=False) as client,
        client.stream("POST", f"{url}/v1/chat/stream", **options) as response,
    ):
        answer = Answer(response.status_code, response.headers)
        pieces = response.iter_raw()  # named, so that it is not closed before the block ends
        for data in pieces:
            answer.chunks.append(data)
            if until is not None and until in answer.body.decode():
                break
        yield answer


def plain(stream: bytes) -> str:
    """The text of a stream without what differs each time: IDs, milliseconds, the length of the prompt."""
    text = re.sub(r"\bt[0-9a-f]{24}\b", "TURN", stream.decode())
    text = re.sub(r"\bconv[0-9a-f]{16}\b", "CONVERSATION", text)
    text = re.sub(r"\bm[0-9a-f]{16,24}\b", "MESSAGE", text)
    return re.sub(r'"(ms|first_token_ms|total_ms|prompt_tokens)":\d+', r'"\1":0', text)


class Process:
    """`python -m brain` with these arguments."""

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int | IO[Any] = subprocess.DEVNULL,
    ) -> None:
        ours = ("PORT", *STANDARD)
        clean = {key: value for key, value in os.environ.items() if not key.startswith("BRAIN_") and key not in ours}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "brain", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=stdin,
            env={**clean, **(env or {})},
            cwd=cwd,
        )
        assert self.process.stderr is not None
        self._pipe, self.process.stderr = self.process.stderr, None
        self._stderr = b""
        self._has_ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._reader.start()

    def _read_stderr(self) -> None:
        """Take what the process writes, as a shell does: a full pipe would block it."""
        with self._pipe:
            while not self._has_ended:
                data = os.read(self._pipe.fileno(), 65536)
                with self._changed:
                    self._stderr += data
                    self._has_ended = not data
                    self._changed.notify_all()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=WAIT_SECONDS)
        self._reader.join()

    def said(self, text: str, seconds: float = 100) -> str:
        """Standard error, once it has a complete line with this text."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: re.search(rf"{re.escape(text)}.*\n", self.stderr) or self._has_ended, seconds
            )
            assert isinstance(found, re.Match), f"never said {text!r}: {self.stderr}"
            return self.stderr

    @property
    def stderr(self) -> str:
        """What came of standard error."""
        return self._stderr.decode(errors="replace")

    def url(self) -> str:
        """The URL of the server, once it has printed its greeting."""
        found = re.search(r"running at (\S+)", self.said("Specialists:"))
        assert found is not None
        return found[1]

    def end(self, seconds: float = 100) -> tuple[int, str, str]:
        """Exit code, standard output, all of standard error."""
        out, _ = self.process.communicate(timeout=seconds)
        self._reader.join()
        return self.process.returncode, out.decode(), self.stderr
