"""The server, as one process or as several workers on one port."""

import asyncio
import gc
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
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from brain.cli.process import DONE, FAILED, log_as_server, log_to_stderr, run_command
from brain.errors import BrainError, SettingsError
from brain.models import Models, connect_models
from brain.prompts.system_prompt import check_context_size
from brain.runtime.engine import Engine
from brain.server.admission import Acceptor
from brain.server.app import create_app
from brain.server.event_stream import SHUTDOWN_SECONDS, UNREAD_HEARTBEATS
from brain.server.state import ServerState
from brain.server.uvicorn_protocol import Protocol
from brain.settings import LOOPBACK, Settings
from brain.store import open_store, path_of
from brain.telemetry.metrics import share
from brain.telemetry.tracing import make_processor

BACKLOG = 4096
DESCRIPTORS = 65_536
"""Open files and connections that a process asks for, if the system allows so many."""
LOST_SECONDS = 20.0
"""How long a client may take nothing, at least: what a bad connection does, too."""
HUNG_SECONDS = 10
"""A worker whose threads do not run for so long is replaced."""
EVERY_ADDRESS = ("0.0.0.0", "::")

log = logging.getLogger("brain")


def serve(settings: Settings) -> int:
    """Serves until it is told to stop; the exit code.

    Raises:
        BrainError: what is set does not let it start.
    """
    if settings.host not in LOOPBACK and not settings.keys:
        raise SettingsError(
            f"HOST={settings.host} is not loopback, so anybody who reaches it could call: "
            "set BRAIN_KEYS=key:user, or BRAIN_HOST=127.0.0.1 (plain PORT alone means 0.0.0.0)."
        )
    log_as_server()
    raise_descriptor_limit()
    stop = _Stop()
    signal.signal(signal.SIGTERM, stop.leave)  # uvicorn raises the signal again when it is done
    try:
        return _in_workers(settings, stop) if settings.workers > 1 else _alone(settings, stop)
    except SystemExit:
        stop.log()  # by a signal, before the server listened
        raise
    except BrainError:
        raise
    except Exception:
        log.exception("the server failed")
        stop.log("an error")
        return FAILED


def raise_descriptor_limit() -> None:
    """Let this process, and the workers it starts, open as many files and connections as the system allows."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Stop:
    """Logs why this process stops, and how long that takes.

    Args:
        who: the process, as the log names it.
    """

    def __init__(self, who: str = "the server") -> None:
        self._who = who
        self._started = time.monotonic()
        self._reason = ""
        self._told_at = 0.0

    def note(self, reason: str) -> None:
        """Remember the first reason to stop, and when it came."""
        if not self._reason:
            self._reason, self._told_at = reason, time.monotonic()

    def leave(self, number: int, frame: Any) -> None:
        """Handle a signal that comes while nothing is served."""
        self.note(_signal_name(number))
        raise SystemExit(DONE)

    def watch_signals(self, engine: Engine) -> None:
        """Note the signals that stop uvicorn, which has set its handlers; a closed terminal stops it like SIGTERM."""
        loop = asyncio.get_running_loop()
        stops = signal.getsignal(signal.SIGTERM)

        def handle(number: int, frame: Any) -> None:
            if not self._reason:
                self.note(_signal_name(number))
                line = f"{self._who} stops on {self._reason}; running turns: {len(engine.turns.running)}"
                loop.call_soon_threadsafe(
                    log.info, "%s", line
                )  # not in here: the signal may have interrupted a log line
            if callable(stops):
                stops(number, frame)

        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handle)

    def log(self, otherwise: str = "its own end") -> None:
        """Write the line; `otherwise` is the reason when none was noted."""
        now = time.monotonic()
        self.note(otherwise)
        log.info(
            "%s stopped on %s; the stop took %.2f s, the run %.1f s",
            self._who,
            self._reason,
            now - self._told_at,
            now - self._started,
        )


def _signal_name(number: int) -> str:
    return "Ctrl-C (SIGINT)" if number == signal.SIGINT else signal.Signals(number).name


def _config(settings: Settings, app: Any, **more: Any) -> uvicorn.Config:
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
        **more,
    )


@asynccontextmanager
async def _open(state: ServerState) -> AsyncIterator[None]:
    """The server's state from before the first request until after the last."""
    async with state.running():
        _spare_the_collector()
        yield


def _spare_the_collector() -> None:
    """What is loaded by now stays to the end. A full collection would walk all of it, and every stream would stand."""
    gc.collect()
    gc.freeze()


# One process


def _alone(settings: Settings, stop: _Stop) -> int:
    app = create_app(settings)
    state: ServerState = app.state.brain

    class Server(uvicorn.Server):
        """Says where it listens, and on whom, as soon as it does."""

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                stop.watch_signals(state.engine)
                bound = [address for server in self.servers for address in server.sockets]
                listening = [socket.socket(fileno=os.dup(one.fileno())) for one in bound]
                state.acceptor = Acceptor(listening)
                for one in listening:
                    _forget_the_deaf(one, settings)
                port = bound[0].getsockname()[1] if bound else settings.port
                models = Models(state.engine.models, state.engine.embedder)
                _greet(settings, port, models, _lines(settings, state.engine))

    config = _config(settings, app, lifespan="off")

    async def opened_and_served() -> int:
        async with _open(state):  # not in uvicorn's lifespan: what is wrong with it is to be said in a sentence
            await Server(config).serve()
        return DONE

    code = run_command(opened_and_served(), DONE, config.get_loop_factory(), signals=(), leaving=stop.log)
    if code == DONE:
        stop.log()
    return code


# Several


def _in_workers(settings: Settings, stop: _Stop) -> int:
    """This process opens the port, starts the workers and starts them anew; they do the rest."""
    if settings.traces != "off":
        make_processor(settings.traces).shutdown()  # what is wrong with it is said once, and not by each worker
    try:
        models = asyncio.run(_models(settings))
    except KeyboardInterrupt:
        stop.log(_signal_name(signal.SIGINT))
        return DONE
    decided = _decided(settings, models)
    told, tell = multiprocessing.Pipe(duplex=False)
    with _listening(settings) as listening, tempfile.TemporaryDirectory(prefix="brain-metrics-") as folder:
        config = _config(
            settings,
            partial(_worker, decided, tell, Path(folder), listening),
            factory=True,
            lifespan="on",
            workers=settings.workers,
            timeout_worker_healthcheck=HUNG_SECONDS,
        )
        port = listening.getsockname()[1]
        threading.Thread(target=_greet_when_up, args=(settings, port, models, told), daemon=True).start()
        supervisor = _Supervisor(config, [listening], stop)
        supervisor.run()
    failed = any(one.exitcode == STARTUP_FAILURE for one in supervisor.processes)
    stop.log("the failed start of a worker" if failed else "its own end")
    return FAILED if failed else DONE


def _decided(settings: Settings, models: Models) -> Settings:
    """The same with the models that were opened, each with its server and key, and so without `auto`."""
    opened = [*models.offered, *([models.embedder] if models.embedder is not None else [])]
    rows = {row.name: row for row in (*settings.models, *(one.row for one in opened if one.row is not None))}
    return replace(settings, model=tuple(one.model.name for one in models.offered), models=tuple(rows.values()))


async def _models(settings: Settings) -> Models:
    """What the settings name, looked at once for all workers: they are not to decide differently on `auto`.

    The store is opened once, too, so that what is wrong with it is said in a sentence, and by one.
    """
    await (await open_store(settings.store)).close()
    async with connect_models(settings, ()) as models:
        return models


def _listening(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listening = socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0].lower()  # without the address, which follows
        raise SettingsError(f"HOST={settings.host} PORT={settings.port} cannot be listened on: {reason}.") from None
    _forget_the_deaf(listening, settings)
    return listening


def _forget_the_deaf(listening: socket.socket, settings: Settings) -> None:
    """Lets the system end connections whose client takes nothing, a little before `TurnResponse` would leave them.

    No ASGI application can: a connection that is closed is there until its client has taken what was written.
    """
    if sys.platform == "linux":
        seconds = max(LOST_SECONDS, settings.heartbeat_seconds * (UNREAD_HEARTBEATS - 1))
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


def _greet_when_up(settings: Settings, port: int, models: Models, told: Connection) -> None:
    for number in itertools.count(1):  # those that come later take the place of others
        lines = told.recv()
        if number == settings.workers:
            _greet(settings, port, models, lines)


class _Supervisor(Multiprocess):
    """Uvicorn's. Only this process listens to the terminal; the workers end when it tells them."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], stop: _Stop) -> None:
        super().__init__(config, sockets)
        self._stop = stop

    def handle_signals(self) -> None:
        for number in self.signal_queue:
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._stop.note(name := _signal_name(number))
                log.info("the server stops on %s; workers: %d", name, len(self.processes))
                break
        super().handle_signals()

    def init_processes(self) -> None:
        with _terminal_held():
            super().init_processes()

    def keep_subprocess_alive(self) -> None:
        before = self.processes.copy()
        with _terminal_held():
            super().keep_subprocess_alive()
        for old, new in zip(before, self.processes, strict=True):
            if old is not new:
                log.warning("worker %s ended (exit code %s), %s takes its place", old.pid, old.exitcode, new.pid)

    def handle_hup(self) -> None:
        """A terminal that is closed ends the server, of one process or of several."""
        self.handle_term()

    def terminate_all(self) -> None:
        for one in self.sockets:
            one.close()  # who comes now is refused, and does not wait for a worker that never comes
        super().terminate_all()


@contextmanager
def _terminal_held() -> Iterator[None]:
    """Holds back the terminal's signals; processes that are started meanwhile hold them back for ever."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _worker(settings: Settings, tell: Connection, folder: Path, listening: socket.socket) -> Any:
    """The application in a process of its own, which tells the first one when it is ready."""
    log_to_stderr(settings.log)
    log_as_server()
    share(folder)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    app = create_app(settings)
    state: ServerState = app.state.brain
    state.acceptor = Acceptor([listening])
    stop = _Stop(f"worker {os.getpid()}")

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with _open(state):
            stop.watch_signals(state.engine)
            tell.send(_lines(settings, state.engine))  # all write to one pipe, which keeps so little together
            yield
        stop.log()
        if not parent.is_alive():  # and so it cannot clear up
            shutil.rmtree(folder, ignore_errors=True)

    app.router.lifespan_context = lifespan
    return app


def _leave_with(parent: BaseProcess) -> None:
    """Nobody is left to hold the port when the first process was killed."""
    parent.join()
    log.warning("the process that started this worker is gone")
    os.kill(os.getpid(), signal.SIGTERM)


# What it says


def _lines(settings: Settings, engine: Engine) -> list[str]:
    registry = engine.registry
    lines = [f"Specialists: {', '.join(one.name for one in registry.usable()) or 'none'}"]
    lines += [
        f"Unavailable: {e.specialist.name}: {e.unavailable_reason}" for e in registry.values() if e.unavailable_reason
    ]
    lines += [
        f"Not there: {name}, which ALLOWED_SPECIALISTS names"
        for name in settings.allowed_specialists
        if name not in registry
    ]
    lines += [
        f"Not there: {name}, which USERS names for {user}"
        for user in settings.users or ()
        for name in sorted(settings.rights(user).specialists or ())
        if name not in registry
    ]
    for one in engine.models:
        context = one.model.context_tokens
        small, _ = check_context_size(registry.usable(), settings.limits, settings.syntax, settings.system, context)
        lines += [f"Small context: {one.model.name}: {small}"] if small else []
    lines += settings.warnings
    lines += [f"Refused: {refusal.name} from {refusal.origin}: {refusal.reason}" for refusal in registry.refused]
    return lines


def _greet(settings: Settings, port: int, models: Models, more: Sequence[str]) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    lines = [f"Brain listens on http://{host}:{port}"]
    if settings.workers > 1:
        alone = "" if path_of(settings.store) else "; with STORE=memory: a turn is known to one of them alone"
        lines.append(f"Workers: {settings.workers}{alone}")
    if settings.host in EVERY_ADDRESS and not settings.hosts:
        lines.append("Only loopback names are accepted as Host until BRAIN_HOSTS names the public one.")
    uses = [("Model", one) for one in models.offered]
    if models.embedder is not None:
        uses.append(("Embeddings", models.embedder))
    for use, one in uses:
        lines.append(f"{use}: {one.model.name} ({one.reason})" + (f" - {one.problem}" if one.problem else ""))
    lines.append(f"Conversations: {_place(settings)}")
    if settings.log == "json":
        for line in (*lines, *more):
            log.info(line)
    else:
        print("\n".join([*lines, *more]), file=sys.stderr, flush=True)


def _place(settings: Settings) -> str:
    """Where conversations are kept, in words."""
    path = path_of(settings.store)
    if path is not None:
        return str(path)
    return f"in the memory of {'each worker' if settings.workers > 1 else 'this process'}; they end with it (STORE)"
