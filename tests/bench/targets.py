"""The measured servers, each alone on a core in front of the fake model server; their CPU time and memory."""

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from load import Client, Failed, Outcome, Play, Window

HERE = Path(__file__).parent
CORES = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else [0]
TOOLS_CORE, TARGET_CORE = CORES[0], CORES[-1]
START_SECONDS = 60.0
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
LITELLM = shutil.which(os.environ.get("LITELLM", "litellm"))

LITELLM_CONF = """
model_list:
  - model_name: fake
    litellm_params: {{model: openai/fake, api_base: "http://127.0.0.1:{model_port}/v1", api_key: "-"}}
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}  # only this machine can connect
"""

NGINX_CONF = """
worker_processes 1; daemon off; pid nginx.pid; error_log stderr crit; worker_rlimit_nofile 16000;
events {{ worker_connections 8000; }}
http {{
  access_log off;
  client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
  upstream model {{ server 127.0.0.1:{model_port}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""

SPECIALIST = '''"""Reports when it was called."""

import time

from brain import specialist


@specialist
async def stopwatch(lap: str) -> str:
    """When it was called, in nanoseconds."""
    return f"at {time.monotonic_ns()} ns"
'''

MORE_SPECIALISTS = '''

@specialist(name="number_{n}")
async def number_{n}(city: str, days: int = 1) -> str:
    """Number {n} of many: the weather in a city."""
    return city
'''


@dataclass(frozen=True)
class Kind:
    """A server that can be started.

    Attributes:
        what: a short description for the page.
        missing: why it cannot start here, if it cannot.
        slow: whether it gets less work because of its cost per token.
        repeats: whether the end of an answer repeats all its text.
    """

    what: str
    path: str = "/v1/chat/completions"
    missing: str | None = None
    slow: bool = False
    repeats: bool = False


KINDS = {
    "direct": Kind("the client connects to the fake model server: the cost of the tools"),
    "splice": Kind("two uvloop sockets and nothing between them: the minimum for a Python process"),
    "nginx": Kind("nginx, buffering off", missing=None if NGINX else "nginx is not installed"),
    "brain": Kind("`brain serve`, default settings", path="/v1/chat/stream", repeats=True),
    "passthrough": Kind("Starlette and httpx, which pass bytes on unread"),
    "baseline": Kind("the `ollama` client, one regex over the full text per token, sse-starlette"),
    "openai": Kind(
        "the `openai` client, whose stream is passed on",
        missing=None if find_spec("openai") else "the extra bench is not installed",
        slow=True,
    ),
    "litellm": Kind(
        "the proxy of LiteLLM, one worker",
        missing=None if LITELLM else "LITELLM does not name the program `litellm` of a virtual environment",
        slow=True,
    ),
}


class Target:
    """A running server; `pid` is None if its time is not measured."""

    def __init__(self, name: str, port: int, pid: int | None) -> None:
        self.name, self.kind, self.port, self.pid = name, KINDS[name], port, pid

    def run(
        self,
        plays: Sequence[Play],
        at_once: int = 0,
        spread: float = 0.0,
        window: Window | None = None,
        limit: float = 60.0,
    ) -> Outcome:
        """Stream these plays from the server."""
        client = Client(self.port, self._request, repeats=self.kind.repeats)
        try:
            return client.run(plays, at_once, spread, window, limit)
        except Failed as error:
            raise Failed(f"{self.name}: {error}") from None

    def cpu(self) -> float:
        """Return nanoseconds of CPU time so far, of all its processes and threads."""
        return float(sum(map(_on_cpu, _family(self.pid)))) if self.pid else 0.0

    def reads(self) -> int:
        """Return the number of reads so far."""
        said = Path(f"/proc/{self.pid}/io").read_text("utf-8")
        return int(said.partition("syscr: ")[2].split()[0])

    def memory(self) -> float:
        """Return its proportional memory (PSS), in KiB."""
        return float(sum(map(_kib, _family(self.pid)))) if self.pid else 0.0

    def _request(self, play: Play) -> bytes:
        body = json.dumps(_body(self.name, play)).encode()
        head = f"POST {self.kind.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _body(name: str, play: Play) -> dict[str, object]:
    if name == "brain":
        talk = {"conversation_id": play.conversation} if play.conversation else {}
        return {"message": play.message, **talk}
    return {"model": "fake", "stream": True, "messages": [{"role": "user", "content": play.message}]}


class Bench:
    """The fake model server, and the servers in front of it.

    Attributes:
        brain: The arguments of Python that run the command `brain`.
    """

    def __init__(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="brain-bench-")))
        self._model_port = 0
        self._started: dict[str, Target] = {}
        self.brain: Sequence[str] = ("-m", "brain")

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def target(self, name: str) -> Target:
        """Return a server that keeps running for later tables."""
        if name not in self._started:
            self._started[name] = self._stack.enter_context(self.fresh(name))
        return self._started[name]

    @contextmanager
    def fresh(
        self, name: str, specialists: int | None = None, settings: Mapping[str, str] | None = None
    ) -> Iterator[Target]:
        """Start a new server and warm it up; Brain gets this many more specialists.

        Args:
            settings: Environment variables of a server that is not warmed up.

        Raises:
            Failed: it does not answer as expected.
        """
        model_port = self._model()
        if name == "direct":
            yield Target(name, model_port, None)
            return
        port = _free_port()
        environ = {"UPSTREAM": f"http://127.0.0.1:{model_port}"} | self._brain(model_port, specialists)
        environ |= settings or {}
        with _started(self._command(name, port), environ, TARGET_CORE, port) as process:
            target = Target(name, port, process.pid)
            if settings is None:
                target.run([Play(50)] * 20, at_once=4)
            yield target

    def log(self) -> list[tuple[str, str, int]]:
        """Return the model server's log since the last request: event, label and time."""
        with socket.create_connection(("127.0.0.1", self._model()), 5) as sock:
            sock.sendall(b"GET /log HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            data = sock.recv(1 << 20)
            while len(data.partition(b"\r\n\r\n")[2]) < int(data.partition(b"Content-Length: ")[2].split(b"\r")[0]):
                data += sock.recv(1 << 20)
        return [(what, label, at) for what, label, at in json.loads(data.partition(b"\r\n\r\n")[2])]

    def _model(self) -> int:
        if not self._model_port:
            port = _free_port()
            command = [sys.executable, str(HERE / "upstream.py"), str(port)]
            self._stack.enter_context(_started(command, {}, TOOLS_CORE, port))
            os.sched_setaffinity(0, {TOOLS_CORE})
            self._model_port = port
        return self._model_port

    def _brain(self, model_port: int, specialists: int | None) -> dict[str, str]:
        """Return Brain's settings; without a number of specialists, it has the included ones only."""
        settings = {
            "BRAIN_MODEL": "openai:fake",
            "BRAIN_MODEL_URL": f"http://127.0.0.1:{model_port}/v1",
            "BRAIN_STORE": f"sqlite:{self._folder / str(time.monotonic_ns())}.db",
        }
        if specialists is None:
            return settings
        folder = self._folder / f"specialists-{specialists}"
        folder.mkdir(exist_ok=True)
        more = "".join(MORE_SPECIALISTS.format(n=n) for n in range(specialists))
        (folder / "stopwatch.py").write_text(SPECIALIST + more, "utf-8")
        return {**settings, "BRAIN_SPECIALISTS_FOLDER": str(folder)}

    def _command(self, name: str, port: int) -> list[str]:
        if name == "brain":
            return [sys.executable, *self.brain, "serve", "--port", str(port)]
        if name == "nginx":
            conf = self._folder / f"nginx-{port}.conf"
            conf.write_text(NGINX_CONF.format(port=port, model_port=self._model_port), "utf-8")
            return [str(NGINX), "-p", f"{self._folder}/", "-c", str(conf)]
        if name == "litellm":
            conf = self._folder / "litellm.yaml"
            conf.write_text(LITELLM_CONF.format(model_port=self._model_port), "utf-8")
            return [str(LITELLM), "--config", str(conf), "--host", "127.0.0.1", "--port", str(port)]
        if name == "splice":
            return [sys.executable, str(HERE / "peers" / "splice.py"), str(port)]
        app = {"passthrough": "passthrough:app", "baseline": "baseline:app", "openai": "openai_client:app"}[name]
        options = "--no-access-log --log-level warning --loop uvloop --http httptools --backlog 4096"
        folder = ["--app-dir", str(HERE / "peers")]
        return [sys.executable, "-m", "uvicorn", app, "--port", str(port), *folder, *options.split()]


@contextmanager
def _started(
    command: Sequence[str], environ: Mapping[str, str], core: int, port: int
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process on a core and wait until it listens; on a failure, report its last output."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("BRAIN_") and key != "PORT"}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *command], env={**clean, **environ}, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            if not _listens(port, process):
                output.seek(0)
                raise Failed(f"{' '.join(command[:4])} does not listen: {output.read()[-500:].decode()}")
            yield process
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _listens(port: int, process: "subprocess.Popen[bytes]") -> bool:
    end = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        time.sleep(0.05)
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def _family(pid: int | None) -> Iterator[int]:
    """Yield a process and its children."""
    if pid:
        yield pid
        with suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                    yield from _family(int(child))


def _on_cpu(pid: int) -> int:
    used = 0
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            used += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
    return used


def _kib(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
