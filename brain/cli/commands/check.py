"""`brain check`: test the models, the database and each specialist."""

import argparse
import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from functools import partial

import msgspec

from brain import concurrency
from brain.cli.commands.store_access import open_existing_store, open_learned
from brain.cli.process import DONE, FAILED
from brain.errors import Refused, StoreError
from brain.installation import install_command, missing_extras
from brain.memory.items import OWN_SHARE, RECALL_SHARE
from brain.models import connect_models, failures
from brain.models.embedder import Embedder
from brain.models.model import Model
from brain.plugins.context import Context
from brain.plugins.executor import TASK_NAME
from brain.plugins.registry import Entry, Registry
from brain.plugins.schema import find_injected, inject
from brain.prompts.system_prompt import check_context_size
from brain.runtime.assistant import describe_assistance
from brain.runtime.processes import UNIX
from brain.server.forwarding import find_connection_problem
from brain.settings import LOOPBACK, Settings, redact_url
from brain.store import database_of, processes, server_data, tasks
from brain.store.processes import Process
from brain.store.store import Store
from brain.telemetry.watchdog import Blocked, Watchdog

HEALTH_SECONDS = 10.0
EMBEDDING_SECONDS = 30.0
"""A server may have to load the embedding model."""
MEMORY_SECONDS = 120.0
"""Time limit of the embedding check, which embeds about 200 texts."""


async def check(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print a line for each part, and for each missing extra; the exit code is 1 if any part fails."""
    registry = Registry(settings).discover()
    failures = 0
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(registry.running())
        models = await stack.enter_async_context(connect_models(settings, registry.usable()))
        learned = await stack.enter_async_context(open_learned(settings))
        named = {"thinker": settings.thinker, "actor": settings.actor}
        for model in models.by_name.values():
            specialists, context = registry.usable(), model.context_tokens
            small, fails = check_context_size(
                specialists, settings.limits(settings.strategy), settings.syntax, settings.system, context,
                accepts_tools=model.accepts_tools,
            )  # fmt: skip
            problem = await _find_model_problem(model) or (small if fails else None)
            fallbacks = ", ".join(one.name for one in model.fallbacks)
            fallbacks = f"; falls back to: {fallbacks}" if fallbacks else ""
            roles = [role for role, name in named.items() if name and models.by_name[name] is model]
            role = f"; {' and '.join(roles)} of the strategy dual" if roles else ""
            native = f"; native calls: {'on' if model.accepts_tools else 'off'}"
            native = native if "native" in settings.syntax else ""
            assistance = await describe_assistance(settings, learned, model)
            assistance = f"; {assistance}" if assistance else ""
            detail = f"{model.reason} (resume mode: {model.resume}{native}{fallbacks}{role}{assistance})"
            failures += _report(f"model {model.name}", problem, detail, model.warning or small)
        failures += await _check_store(settings)
        if models.embedder is not None:
            failures += await _check_embedder(models.embedder)
        _report("memory", None, await _describe_recall(models.embedder or models.offered[0]))
        model = models.offered[0]
        warnings = await _find_warnings(learned)
        for name, specialist in registry.items():
            blocked: list[Blocked] = []
            with Watchdog({name: specialist}, blocked.append):
                health_check = _check_health(registry, specialist, model, settings.time_zone)
                problem = await asyncio.create_task(health_check, name=f"{TASK_NAME}{name}")
            warning = f"its health check blocks the event loop at {blocked[0].place}" if blocked else warnings.get(name)
            problem = specialist.unavailable_reason or problem
            failures += _report(f"specialist {name}", problem, specialist.origin, warning)
    for extra in missing_extras():
        print(f"off  extra {extra}: not installed. Try: {install_command(extra)}")
    for refusal in registry.refused:
        failures += _report("Rejected", f"{refusal.name} from {refusal.origin}: {refusal.reason}", "")
    return FAILED if failures else DONE


def _report(subject: str, problem: str | None, detail: str, warning: str | None = None) -> bool:
    """Print a line; return whether there is a problem."""
    state = "FAIL" if problem else "WARN" if warning else "ok  "
    print(f"{state} {subject}: {problem or (f'{warning} ({detail})' if warning else detail)}")
    return problem is not None


async def _find_model_problem(model: Model) -> str | None:
    if model.problem:
        return f"{model.problem} Try: {model.remedy}" if model.remedy else model.problem
    problem = await model.find_problem()
    if problem is None or model.row is None or model.row.url is None:
        return problem
    return failures.add_detail(problem, redact_url(model.row.url))


async def _check_store(settings: Settings) -> int:
    """Report the state of the database, and whether its processes can be reached; return the number of problems."""
    try:
        database = database_of(settings.store)
    except StoreError as error:
        return _report("database", str(error), "")
    if not database.is_shared:
        return _report("database", None, "in memory; data is lost when the process ends (BRAIN_STORE=memory:)")
    detail, damaged = "", 0
    found: Sequence[Process] = ()
    try:
        async with open_existing_store(settings, creates=True) as store:
            problem, detail = await store.database.diagnose()
            found = await store.read(processes.read)
            detail += f", {_describe_processes(found)}"
            damaged = 0 if problem else await store.read(tasks.count_unreadable)
    except StoreError as error:
        problem = str(error).removeprefix(database.place).lstrip(": ")
    rows = "row of a task is" if damaged == 1 else "rows of tasks are"
    warning = f"{damaged:,} {rows} damaged; Brain does not use such rows" if damaged else None
    failures = _report(f"database {database.place}", problem, detail, warning)
    return failures + await _check_processes(found)


def _describe_processes(found: Sequence[Process]) -> str:
    """Return how many processes use the database. One that is alone renews its lease only when it sees another one."""
    if len(found) == 1 and found[0].is_over:
        return "used by 1 process, unless it was killed"
    alive = sum(not one.is_over for one in found)
    return f"used by {alive} process{'es' if alive > 1 else ''}" if alive else "no process uses it"


async def _check_processes(found: Sequence[Process]) -> int:
    """Report whether processes can be reached from here; return how many cannot."""
    failures = 0
    is_alone = len(found) == 1  # then it does not renew its lease
    for one in found if is_alone else [one for one in found if not one.is_over]:
        problem = await find_connection_problem(one.address) if one.address else ""
        if problem is None or (problem and not one.is_over):
            remedy = "" if one.address.startswith(UNIX) else ". Try: export BRAIN_ADVERTISE=HOST:PORT there"
            is_local = one.address.startswith((UNIX, *(f"http://{host}:" for host in (*LOOPBACK, "[::1]"))))
            detail = "" if is_local else "; not encrypted: use a private network or TLS between the machines"
            subject = f"process {one.id} at {one.address}"
            failures += _report(subject, f"{problem}{remedy}" if problem else None, f"can be reached{detail}")
    return failures


async def _check_embedder(model: Model) -> bool:
    """Report whether the model of EMBEDDINGS returns embeddings."""
    try:
        async with asyncio.timeout(EMBEDDING_SECONDS):
            problem = None if await model.embed(["Hello."]) else "the model server returned no embedding"
    except Refused as error:
        problem = error.reason
    except TimeoutError:
        problem = f"no embedding within {EMBEDDING_SECONDS:g} s"
    if problem is not None:
        problem = await _find_model_problem(model) or problem
    return _report(f"embeddings {model.name}", problem, model.reason)


async def _describe_recall(model: Model) -> str:
    """Return how memory is searched: by keywords, and semantically if the embeddings are good enough."""
    if not model.is_language_model:
        return "keyword search. For semantic search, connect a model server with embeddings"
    embedder = Embedder(model)
    with suppress(TimeoutError):
        async with asyncio.timeout(MEMORY_SECONDS):
            if await embedder.run_check() and embedder.relevance is not None:
                own, other = (embedder.relevance.least(share) for share in (OWN_SHARE, RECALL_SHARE))
                least = f"messages in the first person recall from relevance {own:.1f}, others from {other:.1f}"
                prefixes = ", ".join(
                    f'"{one}"' for one in dict.fromkeys(msgspec.structs.astuple(model.prefixes)) if one
                )
                way = f"{least}; prefixes {prefixes}" if prefixes else least
                return f"keyword and semantic search, with embeddings of {model.name}; {way}"
    problem = f"{model.name} returns no embeddings"
    if embedder.check is not None:
        problem = f"embeddings of {model.name} failed the quality check"
    return f"keyword search only: {problem}. Set BRAIN_EMBEDDINGS to an embedding model"


async def _find_warnings(store: Store | None) -> dict[str, str]:
    """Return what servers with this database recorded about specialists, by their names."""
    rows: Sequence[tuple[str, datetime, int, str]] = ()
    with suppress(StoreError):
        rows = await store.read(server_data.blocked) if store is not None else ()
    return {
        name: f"it blocked a server's event loop {times:,} time{'s' if times > 1 else ''}, "
        f"last on {last:%Y-%m-%d %H:%M} UTC at {place}: await there, or make it a plain def"
        for name, last, times, place in rows
    }


async def _check_health(registry: Registry, entry: Entry, model: Model, time_zone: str) -> str | None:
    """Return the problem that the health check of a specialist finds."""
    health = entry.specialist.health
    if health is None:
        return None
    deadline = time.monotonic() + HEALTH_SECONDS
    context = Context(None, "", "", (), time_zone, deadline, entry.settings, model, registry.fetch)
    call = partial(health, **inject(find_injected(health), {**entry.dependencies, Context: context}))
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            problem: str | None = await concurrency.call_in_thread(entry.specialist.name, call)
            return problem
    except TimeoutError:
        return f"its health check took longer than {HEALTH_SECONDS:g} s"
    except Refused as refusal:
        return refusal.reason
    except Exception as error:  # noqa: BLE001 - third-party code; any exception is the problem
        return f"its health check failed with {type(error).__name__}: {error}"
