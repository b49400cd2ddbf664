"""`brain check`: whether all is well."""

import argparse
import asyncio
import time
from contextlib import AsyncExitStack, suppress
from functools import partial

from brain import concurrency
from brain.cli.commands.store_access import open_existing_store
from brain.cli.process import DONE, FAILED, run_command
from brain.errors import Refused, StoreError
from brain.models import AnyModel, ModelEntry, check_model, connect_models
from brain.models.embedder import Embedder
from brain.models.remote import Remote
from brain.plugins.context import Context
from brain.plugins.executor import TASK_NAME
from brain.plugins.registry import Entry, Registry
from brain.plugins.schema import find_injected, inject
from brain.prompts.system_prompt import check_context_size
from brain.settings import Settings
from brain.store import connection, path_of
from brain.telemetry.watchdog import Blocked, Watchdog

HEALTH_SECONDS = 10.0
VECTORS_SECONDS = 30.0
"""A server may have to load the model that makes them."""


def check(given: argparse.Namespace, settings: Settings) -> int:
    """Says whether the model, the store and each specialist are well, and how far they serve."""
    return run_command(_check(settings))


async def _check(settings: Settings) -> int:
    registry = Registry(settings).discover()
    troubles = 0
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(registry.running())
        models = await stack.enter_async_context(connect_models(settings, registry.usable()))
        for one in models.offered:
            trouble = one.problem or await check_model(one.model)
            specialists, context = registry.usable(), one.model.context_tokens
            small, fails = check_context_size(specialists, settings.limits, settings.syntax, settings.system, context)
            detail = f"{one.reason}; resumes by {one.model.resume}"
            troubles += _line(f"model {one.model.name}", trouble or (small if fails else None), detail, small)
        troubles += await _check_store(settings)
        if models.embedder is not None:
            troubles += await _check_embedder(models.embedder)
        _line("memory", None, await _vectors((models.embedder or models.offered[0]).model))
        model = models.offered[0].model
        warnings = await _warnings(settings)
        for name, entry in registry.items():
            blocked: list[Blocked] = []
            with Watchdog({name: entry}, blocked.append):
                check = _illness(registry, entry, model, settings.time_zone)
                illness = await asyncio.create_task(check, name=f"{TASK_NAME}{name}")
            warning = f"its health check blocks the event loop at {blocked[0].place}" if blocked else warnings.get(name)
            troubles += _line(f"specialist {name}", entry.unavailable_reason or illness, entry.origin, warning)
    for refusal in registry.refused:
        troubles += _line(f"specialist {refusal.name}", refusal.reason, refusal.origin)
    return FAILED if troubles else DONE


async def _check_store(settings: Settings) -> bool:
    path = path_of(settings.store)
    if path is None:
        return _line("store", None, "in memory: what is said ends with its process (STORE)")
    try:
        async with open_existing_store(settings, makes=True):
            trouble = await asyncio.to_thread(connection.find_problem, path)
    except StoreError as error:
        trouble = str(error).removeprefix(f"{path}").lstrip(": ")
    return _line(f"store {path}", trouble, "" if trouble else connection.describe_size(path))


async def _check_embedder(one: ModelEntry) -> bool:
    """Whether the model of EMBEDDINGS makes any."""
    try:
        async with asyncio.timeout(VECTORS_SECONDS):
            trouble = None if await one.model.embed(["Hello."]) else "The model server made no embedding."
    except (Refused, TimeoutError) as error:
        trouble = one.problem or (error.reason if isinstance(error, Refused) else "The model server does not answer.")
    return _line(f"embeddings {one.model.name}", trouble, one.reason)


async def _vectors(model: AnyModel) -> str:
    """How memories are found: whether the vectors that the model's server makes tell meanings apart."""
    if not isinstance(model, Remote):
        return "found by words; with a model server that makes vectors, by meaning, too"
    meaning = Embedder(model)
    with suppress(TimeoutError):
        async with asyncio.timeout(VECTORS_SECONDS):
            if await meaning.run_check():
                return f"found by words and by meaning, with the vectors of {model.name}"
    if meaning.check is None:
        return f"found by words: {model.name} gives no vectors (EMBEDDINGS names a model that does)"
    return f"found by words: the vectors of {model.name} tell meanings badly apart (EMBEDDINGS names another)"


async def _warnings(settings: Settings) -> dict[str, str]:
    """What servers with this store noted about specialists, by their names."""
    if path_of(settings.store) is None:
        return {}
    try:
        async with open_existing_store(settings, makes=True) as store:
            found = await store.blocked()
    except StoreError:
        return {}
    return {
        name: f"it blocked a server's event loop {times:,} time{'s' if times > 1 else ''}, "
        f"last on {last:%Y-%m-%d %H:%M} UTC at {place}: await there, or make it a plain def"
        for name, last, times, place in found
    }


def _line(what: str, trouble: str | None, detail: str, warning: str | None = None) -> bool:
    state = "FAIL" if trouble else "WARN" if warning else "ok  "
    print(f"{state} {what}: {trouble or (f'{warning} ({detail})' if warning else detail)}")
    return trouble is not None


async def _illness(registry: Registry, entry: Entry, model: AnyModel, time_zone: str) -> str | None:
    """What a specialist's health check finds."""
    health = entry.specialist.health
    if health is None:
        return None
    deadline = time.monotonic() + HEALTH_SECONDS
    context = Context(None, "", "", (), time_zone, deadline, entry.settings, model, registry.fetch)
    check = partial(health, **inject(find_injected(health), {**entry.dependencies, Context: context}))
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            problem: str | None = await concurrency.call_in_thread(entry.specialist.name, check)
            return problem
    except TimeoutError:
        return f"its health check took longer than {HEALTH_SECONDS:g} seconds"
    except Refused as refusal:
        return refusal.reason
    except Exception as error:  # noqa: BLE001 - a stranger's check; whatever it raises is what it found
        return f"{type(error).__name__}: {error}"
