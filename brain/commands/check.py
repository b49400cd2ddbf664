"""Roof: `brain check`: whether all is well."""

import argparse
import asyncio
import inspect
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from brain import threads
from brain.errors import Refused
from brain.models import AnyModel, opened, trouble_of
from brain.process import DONE, FAILED, completed
from brain.registry import Entry, Registry
from brain.schema import filled, injected_of
from brain.settings import Settings
from brain.specialist import Context

HEALTH_SECONDS = 10.0


def check(given: argparse.Namespace, settings: Settings) -> int:
    """Says whether the model answers, how it resumes, and whether each specialist loads and is healthy."""
    return completed(_check(settings))


async def _check(settings: Settings) -> int:
    registry = Registry(settings).discover()
    troubles = 0
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(registry.running())
        models = await opened(settings, registry.usable())
        for one in models:
            stack.push_async_callback(one.model.aclose)
            trouble = one.trouble or await trouble_of(one.model)
            troubles += _line(f"model {one.model.name}", trouble, f"{one.why}; resumes by {one.model.resume}")
        for name, entry in registry.items():
            trouble = entry.missing or await _illness(registry, entry, models[0].model, settings.time_zone)
            troubles += _line(f"specialist {name}", trouble, entry.origin)
    for refusal in registry.refused:
        troubles += _line(f"specialist {refusal.name}", refusal.reason, refusal.origin)
    return FAILED if troubles else DONE


def _line(what: str, trouble: str | None, detail: str) -> bool:
    print(f"{'FAIL' if trouble else 'ok  '} {what}: {trouble or detail}")
    return trouble is not None


def _ignore(item: Any) -> None:
    """A health check has no progress to tell."""


async def _illness(registry: Registry, entry: Entry, model: AnyModel, time_zone: str) -> str | None:
    """What a specialist's health check finds."""
    health = entry.specialist.health
    if health is None:
        return None
    deadline = time.monotonic() + HEALTH_SECONDS
    context = Context(None, "", "", (), time_zone, deadline, entry.settings, model, registry.fetch)
    check = partial(health, **filled(injected_of(health), {**entry.provided, Context: context}))
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            found = await threads.in_thread(entry.specialist.name, check, _ignore)
            trouble: str | None = (await found) if inspect.isawaitable(found) else found
            return trouble
    except TimeoutError:
        return f"its health check took longer than {HEALTH_SECONDS:g} seconds"
    except Refused as refusal:
        return refusal.reason
    except Exception as error:  # noqa: BLE001 - a stranger's check; whatever it raises is what it found
        return f"{type(error).__name__}: {error}"
