"""`brain serve`: the server as one process, or as several workers that share a port."""

import argparse
import asyncio
import errno
import gc
import ipaddress
import itertools
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from brain.cli.commands.names import describe_rejected, discover
from brain.cli.ports import describe_port_user
from brain.cli.process import DONE, FAILED, CommandError, log_as_server, log_to_stderr, run_command
from brain.errors import BrainError, SettingsError
from brain.models import Models, connect_models
from brain.prompts.system_prompt import check_context_size
from brain.runtime.engine import Engine
from brain.runtime.processes import UNIX
from brain.server.admission import Acceptor
from brain.server.app import create_app
from brain.server.event_stream import SHUTDOWN_SECONDS, UNREAD_HEARTBEATS
from brain.server.forwarding import end_if_unreachable
from brain.server.state import ServerState
from brain.server.uvicorn_protocol import Protocol
from brain.settings import ALL_ADDRESSES, LOOPBACK, Settings
from brain.store import database_of, open_store
from brain.telemetry.metrics import share
from brain.telemetry.tracing import make_processor

BACKLOG = 4096
MAX_DESCRIPTORS = 65_536
"""Limit of open files and connections that a process requests."""
MIN_STALL_SECONDS = 20.0
"""Minimum time before a client that reads nothing is dropped; a bad connection may stall for some seconds."""
FORCED_EXIT_SECONDS = 0.2
"""Time in which a second signal ends the wait for turns."""
HANG_SECONDS = 10
"""A worker that serves and then hangs for this time is replaced."""
SOCKET_PATH_BYTES = 103
"""Maximum length of the path of a Unix socket; on Linux 107."""
SOCKET_NAME_BYTES = 40
"""Length of a socket's directory and name below the directory for temporary files."""
MAX_PORTS = 256
"""Ports that are tried for forwarded requests: as many as there can be workers."""
COLLECT_AFTER = 1_000, 10, 100
"""Thresholds of the garbage collector. With 1,000 streams, its pauses then last up to 10 ms, but for a full collection,
which comes after a million objects that stay."""
COLLECT_IDLE_AFTER = 20
"""The same for a full collection while no turn runs, as the last threshold."""
COLLECT_SECONDS = 10.0
DEFAULT_LISTEN = "brain serve --host 127.0.0.1 --port 8000"

log = logging.getLogger("brain")


def serve(arguments: argparse.Namespace, settings: Settings) -> int:
    """Serve until a signal stops the server; return the exit code."""
    if settings.host not in LOOPBACK and not settings.keys:
        danger = f"Refusing to start without API keys on {settings.host}: anyone on the network could use the server."
        is_default = settings.host == "0.0.0.0" and os.environ.get("PORT") and "BRAIN_HOST" not in os.environ
        default = " PORT without BRAIN_HOST listens on 0.0.0.0." if is_default else ""
        raise SettingsError(f"{danger}{default}", "export BRAIN_KEYS=KEY:USER, or brain serve --host 127.0.0.1")
    log_as_server()
    raise_descriptor_limit()
    stop = _StopLog("the server")
    signal.signal(signal.SIGTERM, stop.exit)  # uvicorn raises the signal again when it is done
    try:
        return _serve_with_workers(settings, stop) if settings.workers > 1 else _serve_alone(settings, stop)
    except SystemExit:
        stop.write()  # a signal, before the server listened
        raise
    except BrainError:
        raise
    except Exception:
        log.exception("the server failed")
        stop.write("an error")
        return FAILED


def raise_descriptor_limit() -> None:
    """Raise the limit of open files for this process and its workers, as far as the system allows."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


class _StopLog:
    """Logs why this process stops, and how long that takes."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._start = time.monotonic()
        self._reason = ""
        self._stop_start = 0.0

    def record_reason(self, reason: str) -> None:
        """Store the first reason to stop, and its time."""
        if not self._reason:
            self._reason, self._stop_start = reason, time.monotonic()

    def exit(self, number: int, frame: Any) -> None:
        """Exit on a signal that comes before the server listens."""
        self.record_reason(_name_signal(number))
        raise SystemExit(DONE)

    def watch_signals(self, engine: Engine) -> None:
        """Note the signals that stop uvicorn, after it has set its handlers. SIGHUP acts like SIGTERM."""
        loop = asyncio.get_running_loop()
        handle_stop = signal.getsignal(signal.SIGTERM)

        def handle(number: int, frame: Any) -> None:
            if not self._reason:
                self.record_reason(_name_signal(number))
                line = f"{self._process} stops on {self._reason}; running turns: {len(engine.runs.running)}"
                loop.call_soon_threadsafe(log.info, "%s", line)  # the signal may have interrupted a log line
            if callable(handle_stop):
                handle_stop(number, frame)

        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handle)

    def write(self, default: str = "its own end") -> None:
        """Write the log line; `default` is the reason if none was noted."""
        self.record_reason(default)
        end = time.monotonic()
        duration, lifetime = end - self._stop_start, end - self._start
        line = "%s stopped on %s; the stop took %.2f s, the run %.1f s"
        log.info(line, self._process, self._reason, duration, lifetime)


def _name_signal(number: int) -> str:
    return "Ctrl-C (SIGINT)" if number == signal.SIGINT else signal.Signals(number).name


def _make_config(settings: Settings, app: Any, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Protocol,
        host=settings.host,
        port=settings.port,
        log_config=None,
        log_level="warning",
        access_log=False,
        ws="none",
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=int(SHUTDOWN_SECONDS) + 1,
        **options,
    )


@asynccontextmanager
async def _running(state: ServerState) -> AsyncIterator[None]:
    """Run the server's state for the duration of the block.

    Objects loaded by then stay to the end, so the garbage collector skips them. A collection of all other objects takes
    0.2 s with 1,000 streams. It waits until no turn runs, since a usual turn leaves no garbage.
    """
    async with state.running():
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT_AFTER)
        collecting = asyncio.create_task(_collect_when_idle(state.engine), name="collect garbage")
        try:
            yield
        finally:
            collecting.cancel()


async def _collect_when_idle(engine: Engine) -> None:
    while True:
        await asyncio.sleep(COLLECT_SECONDS)
        if gc.get_count()[2] >= COLLECT_IDLE_AFTER and not engine.runs.running:
            gc.collect()


def drop_stalled_clients(listener: socket.socket, settings: Settings) -> None:
    """Let the system end connections of clients that read nothing, a little before the stream does.

    An ASGI application cannot: a closed connection stays until the client has read what was written.
    """
    if sys.platform == "linux":
        seconds = max(MIN_STALL_SECONDS, settings.heartbeat_seconds * (UNREAD_HEARTBEATS - 1))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


class _Server(uvicorn.Server):
    """Uvicorn's server, which also listens for requests that other processes of the store forward."""

    _state: ServerState
    _forwarded: Sequence[asyncio.Server] = ()
    _path: Path | None = None

    async def startup(self, sockets: Any = None) -> None:
        await super().startup([])
        await self._join()  # other processes get requests about a turn of this one as soon as it can begin one
        loop, make_protocol = asyncio.get_running_loop(), self._protocol()
        self.servers = [await loop.create_server(make_protocol, sock=one, backlog=BACKLOG) for one in sockets]

    def _protocol(self, **options: Any) -> partial[Protocol]:
        return partial(Protocol, self.config, self.server_state, app_state=self.lifespan.state, **options)

    async def _join(self) -> None:
        """Listen for the requests of other processes."""
        app: Any = self.config.loaded_app
        while not hasattr(app, "state"):  # the application inside uvicorn's middleware
            app = app.app
        state: ServerState = app.state.brain
        self._state = state
        processes = state.engine.runs.processes
        if processes is None:
            return
        address = find_advertised(state.engine.settings)
        if address is not None:
            await processes.listen_at(await self._listen_at_address(address, state.engine.settings))
        elif state.socket_folder is not None:
            self._path = state.socket_folder / f"{processes.process}.sock"
            if len(os.fsencode(self._path)) > SOCKET_PATH_BYTES:
                problem = "Other processes cannot forward requests to this one: %s is too long for a socket"
                log.warning(problem, self._path)
                return
            loop, make_protocol = asyncio.get_running_loop(), self._protocol(is_private=True)
            self._forwarded = [await loop.create_unix_server(make_protocol, self._path, backlog=BACKLOG)]
            await processes.listen_at(f"{UNIX}{self._path}")

    async def _listen_at_address(self, address: str, settings: Settings) -> str:
        """Listen on the first free port of an address; return its URL."""
        loop, make_protocol = asyncio.get_running_loop(), self._protocol(is_private=True, only_forwarded=True)
        listeners = listen_at_advertised(address)
        for one in listeners:
            drop_stalled_clients(one, settings)
            end_if_unreachable(one)
        self._forwarded = [await loop.create_server(make_protocol, sock=one, backlog=BACKLOG) for one in listeners]
        host = address.rpartition(":")[0]
        url = f"http://{host}:{listeners[0].getsockname()[1]}"
        reach = "; other machines do not reach it (BRAIN_ADVERTISE)" if host.strip("[]") in LOOPBACK else ""
        log.info("other processes reach this one at %s%s", url, reach)
        return url

    async def shutdown(self, sockets: Any = None) -> None:
        for server in self.servers:
            server.close()
        for connection in cast(set[Protocol], self.server_state.connections.copy()):
            connection.end_when_idle()
        draining = asyncio.create_task(self._state.stop_turns())
        while not (draining.done() or self.force_exit):
            await asyncio.wait({draining}, timeout=FORCED_EXIT_SECONDS)
        await super().shutdown(sockets)  # until then, other processes can reach the turns that are ending
        for server in self._forwarded:
            server.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A private directory for the duration of the block, with a path that is short enough for Unix sockets."""
    is_long = len(os.fsencode(tempfile.gettempdir())) + SOCKET_NAME_BYTES > SOCKET_PATH_BYTES
    short = "/tmp" if is_long and os.path.isdir("/tmp") else None
    with tempfile.TemporaryDirectory(prefix="brain-", dir=short) as folder:
        yield Path(folder)


def _socket_folder(settings: Settings, folder: Path) -> Path | None:
    """The directory of the sockets, if other processes can use the store, and the system has such sockets."""
    return folder if hasattr(socket, "AF_UNIX") and database_of(settings.store).is_shared else None


# One process


def _serve_alone(settings: Settings, stop: _StopLog) -> int:
    app = create_app(settings, discover(settings))
    state: ServerState = app.state.brain

    class Server(_Server):
        """Prints the greeting as soon as it accepts connections."""

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                stop.watch_signals(state.engine)
                engine = state.engine
                models = Models(engine.models, engine.embedder, engine.entries)
                port = listeners[0].getsockname()[1]
                _greet(settings, port, models, _describe_specialists(settings, state.engine))

    config = _make_config(settings, app, lifespan="off")

    async def main() -> int:
        async with _running(state):  # not in uvicorn's lifespan, which would log the stack of a BrainError
            await Server(config).serve([one.dup() for one in listeners])  # which uvicorn closes
        return DONE

    with listen(settings) as listeners, _temporary_folder() as folder:
        state.acceptor = Acceptor(listeners)
        state.socket_folder = _socket_folder(settings, folder)
        code = run_command(main(), DONE, config.get_loop_factory(), signals=(), on_forced_exit=stop.write)
    if code == DONE:
        stop.write()
    return code


# Several processes


def _serve_with_workers(settings: Settings, stop: _StopLog) -> int:
    """Open the port, start the workers and replace those that exit."""
    if settings.allowed_specialists or settings.users:
        discover(settings)  # reports an unknown name once, and not in each worker
    if (address := find_advertised(settings)) is not None:
        for one in listen_at_advertised(address):  # so that a problem is reported once
            one.close()
    if settings.traces != "off":
        make_processor(settings.traces).shutdown()  # the same for a wrong setting
    try:
        models = asyncio.run(_connect(settings))
    except KeyboardInterrupt:
        stop.write(_name_signal(signal.SIGINT))
        return DONE
    connected = [*models.offered, *([models.embedder] if models.embedder is not None else [])]
    rows = {row.name: row for row in (*settings.models, *(one.row for one in connected if one.row is not None))}
    names = tuple(one.name for one in models.offered)  # `auto` is decided here, for all workers
    worker_settings = replace(settings, model=names, models=tuple(rows.values()))
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with listen(settings) as listeners, _temporary_folder() as folder:
        config = _make_config(
            settings,
            partial(_make_worker_app, worker_settings, sender, folder, listeners),
            factory=True,
            lifespan="on",
            workers=settings.workers,
        )
        port = listeners[0].getsockname()[1]
        threading.Thread(target=_greet_when_ready, args=(settings, port, models, receiver), daemon=True).start()
        supervisor = _Supervisor(config, listeners, stop)
        supervisor.run()
    has_failed = any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes)
    stop.write("the failed start of a worker" if has_failed else "its own end")
    return FAILED if has_failed else DONE


async def _connect(settings: Settings) -> Models:
    """Connect to the models once for all workers, and open the store, so that a problem is reported once."""
    await (await open_store(settings.store)).close()
    async with connect_models(settings, ()) as models:
        return models


@contextmanager
def listen(settings: Settings) -> Iterator[list[socket.socket]]:
    """Listen on every address of the host for the duration of the block: localhost has one of IPv4 and one of IPv6."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(one) for one in _open_listeners(settings)]
        for one in listeners:
            drop_stalled_clients(one, settings)
        yield listeners


def _open_listeners(settings: Settings) -> list[socket.socket]:
    try:
        return _bind(settings.host, settings.port)
    except OSError as error:
        address = f"{settings.host}:{settings.port}"
        if error.errno == errno.EADDRINUSE:
            user = describe_port_user(settings.host, settings.port)
            advice = f"brain serve --port {settings.port + 1 if settings.port < 65535 else 0}"
            raise CommandError(f"Cannot listen on {address}: the port is in use by {user}", advice) from None
        raise CommandError(f"Cannot listen on {address}: {_reason(error)}", DEFAULT_LISTEN) from None


def find_advertised(settings: Settings) -> str | None:
    """Return ADVERTISE; by default HOST or the name of this machine, and any port, if others may use the store.

    None if processes use Unix sockets.
    """
    if settings.advertise is not None or not database_of(settings.store).is_remote:
        return settings.advertise
    host = socket.gethostname() if settings.host in ALL_ADDRESSES else settings.host
    return f"[{host}]:0" if ":" in host else f"{host}:0"


def listen_at_advertised(address: str) -> list[socket.socket]:
    """Listen on the first free port from that of an address on: each worker needs its own.

    A host name listens on all addresses, because a machine may resolve its own name to a loopback address.
    """
    name, _, port = address.rpartition(":")
    host, first = name.strip("[]"), int(port)
    for number in range(MAX_PORTS):
        try:
            return _bind(host if host in LOOPBACK or _is_ip_address(host) else None, first and first + number)
        except OSError as error:
            problem = error
            if error.errno != errno.EADDRINUSE or first + number == 65535:
                break
    what = f"Cannot listen on {address} for other processes: {_reason(problem)}"
    raise CommandError(what, "Set BRAIN_ADVERTISE to an IP address of this machine, or to its host name.")


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).partition(" (")[0].lower()  # without the address


def _bind(host: str | None, port: int) -> list[socket.socket]:
    """Listen on each address of a host, or on all addresses of the machine. Port 0 is the same free port for all."""
    listeners: list[socket.socket] = []
    try:
        found = dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
        for number, (family, _, _, _, (address, _, *more)) in enumerate(found, 1):
            try:
                one = socket.create_server((address, port, *more), family=family, backlog=BACKLOG)
            except OSError as error:
                is_last = number == len(found) and not listeners
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) or is_last:
                    raise
                continue  # such as ::1 on a machine without IPv6
            listeners.append(one)
            port = one.getsockname()[1]
    except OSError:
        for one in listeners:
            one.close()
        raise
    return listeners


def _greet_when_ready(settings: Settings, port: int, models: Models, receiver: Connection) -> None:
    for number in itertools.count(1):  # workers that start later replace others
        lines = receiver.recv()
        if number == settings.workers:
            _greet(settings, port, models, lines)


class _Worker(Process):
    """Uvicorn's process of a worker, with our server."""

    @property
    def server(self) -> uvicorn.Server:
        if self._server is None:
            self._server = _Server(self.config)
        return self._server


class _Supervisor(Multiprocess):
    """Uvicorn's supervisor. Only its process handles signals of the terminal, and it stops the workers.

    A worker may take any time to start. Uvicorn would replace it if it does not answer within `HANG_SECONDS`.
    """

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], stop: _StopLog) -> None:
        super().__init__(config, sockets)
        self._stop = stop
        self._starting: set[Process] = set()

    def handle_signals(self) -> None:
        for number in self.signal_queue:
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                name = _name_signal(number)
                self._stop.record_reason(name)
                log.info("the server stops on %s; workers: %d", name, len(self.processes))
                break
        super().handle_signals()

    def init_processes(self) -> None:
        self.processes = [self._start_worker() for _ in range(self.processes_num)]

    def _start_worker(self) -> Process:
        worker = _Worker(self.config, self.sockets)
        with _terminal_signals_blocked():
            worker.start()
        worker.parent_conn.send(b"ping")  # it answers when it gets to that
        self._starting.add(worker)
        return worker

    def keep_subprocess_alive(self) -> None:
        for number, worker in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if self._is_healthy(worker):
                continue
            worker.kill()
            worker.join()
            self._starting.discard(worker)
            if worker.exitcode == STARTUP_FAILURE:  # the others would fail in the same way
                self.should_exit.set()
                return
            new = self.processes[number] = self._start_worker()
            log.warning("worker %s exited with code %s; worker %s replaces it", worker.pid, worker.exitcode, new.pid)

    def _is_healthy(self, worker: Process) -> bool:
        if worker not in self._starting:
            return worker.is_alive(HANG_SECONDS)
        if not worker.process.is_alive():
            return False
        if worker.parent_conn.poll():
            if worker.parent_conn.recv():  # it serves
                self._starting.discard(worker)
            else:
                worker.parent_conn.send(b"ping")
        return True

    def handle_ttin(self) -> None:
        """Add a worker."""
        self.processes_num += 1
        self.processes.append(self._start_worker())

    def handle_hup(self) -> None:
        """A closed terminal stops the server; uvicorn would restart the workers."""
        self.handle_term()

    def terminate_all(self) -> None:
        for one in self.sockets:
            one.close()  # rejects new clients at once, which would wait for a worker
        super().terminate_all()


@contextmanager
def _terminal_signals_blocked() -> Iterator[None]:
    """Block the signals of the terminal for the block; processes that start in it keep them blocked."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _make_worker_app(settings: Settings, sender: Connection, folder: Path, listeners: list[socket.socket]) -> Any:
    """Return the application of a worker, which sends lines for the greeting when it is ready."""
    log_to_stderr(settings.log)
    log_as_server()
    share(folder)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def stop_after_parent() -> None:
        parent.join()
        log.warning("the supervisor of this worker has exited")
        os.kill(os.getpid(), signal.SIGTERM)  # else nothing would release the port

    threading.Thread(target=stop_after_parent, daemon=True).start()
    app = create_app(settings)
    state: ServerState = app.state.brain
    state.acceptor = Acceptor(listeners)
    state.socket_folder = _socket_folder(settings, folder)
    stop = _StopLog(f"worker {os.getpid()}")

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with _running(state):
            stop.watch_signals(state.engine)
            sender.send(_describe_specialists(settings, state.engine))  # short enough to stay in one piece
            yield
        stop.write()
        if not parent.is_alive():  # and so it cannot delete the folder
            shutil.rmtree(folder, ignore_errors=True)

    app.router.lifespan_context = lifespan
    return app


# The greeting


def _describe_specialists(settings: Settings, engine: Engine) -> list[str]:
    """Return lines about the specialists and about settings without effect."""
    registry = engine.registry
    lines = [f"Specialists: {', '.join(one.name for one in registry.usable()) or 'none'}"]
    for entry in registry.values():
        if entry.unavailable_reason:
            lines.append(f"Unavailable: {entry.specialist.name}: {entry.unavailable_reason}")
    for one in engine.models:
        context = one.context_tokens
        small, _ = check_context_size(
            registry.usable(), settings.limits(settings.strategy), settings.syntax, settings.system, context,
            accepts_tools=one.accepts_tools,
        )  # fmt: skip
        lines += [f"Warning: small context of {one.name}: {small}"] if small else []
    lines += settings.warnings
    return [*lines, *describe_rejected(registry)]


def _greet(settings: Settings, port: int, models: Models, more: Sequence[str]) -> None:
    """Print the URL, the models, the database and more lines."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    database = database_of(settings.store)
    lines = [f"Brain is running at http://{host}:{port}"]
    if settings.workers > 1:
        caveat = "" if database.is_shared else " (with BRAIN_STORE=memory:, each turn lives in one worker)"
        lines.append(f"Workers: {settings.workers}{caveat}")
    if settings.host in ALL_ADDRESSES and not settings.hosts:
        lines.append("Warning: only localhost names are accepted. Set BRAIN_HOSTS to your public host name.")
    uses = [("Model", one) for one in models.offered]
    for role, name in (("Thinker", settings.thinker), ("Actor", settings.actor)):
        uses += [(role, models.by_name[name])] if name is not None else []
    fallbacks = dict.fromkeys(model for _, one in uses for model in one.fallbacks)
    uses += [("Fallback", model) for model in fallbacks]
    if models.embedder is not None:
        uses.append(("Embeddings", models.embedder))
    for use, one in uses:
        problem = f": {one.problem}" if one.problem else f" Warning: {one.warning}" if one.warning else ""
        remedy = f" Try: {one.remedy}" if one.remedy else ""
        lines.append(f"{use}: {one.name} ({one.reason}){problem}{remedy}")
    place = database.place if database.is_shared else "in memory only; lost when the process ends (BRAIN_STORE=memory:)"
    lines.append(f"Database: {place}")
    if settings.archive is not None:
        lines.append(f"Archive: {settings.archive} (all turns are recorded, except private ones)")
    lines += more
    if settings.log == "json":
        for line in lines:
            log.info(line)
    else:
        print("\n".join(lines), file=sys.stderr, flush=True)
