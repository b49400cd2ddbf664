"""`brain models`: list the configured models and what their servers offer."""

import argparse
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

from brain.cli.commands.store_access import open_learned
from brain.cli.process import DONE
from brain.errors import ModelError
from brain.models import Models, connect_models
from brain.models.model import Model
from brain.runtime.assistant import describe_assistance
from brain.settings import Settings
from brain.text import escape_invisible

MAX_SHOWN, MAX_LENGTH = 20, 200
"""Models of a server to print, and characters of their names."""


async def models(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print each model: where it is, what it can do, which models take over, and the models of its server."""
    async with AsyncExitStack() as stack:
        connected = await stack.enter_async_context(connect_models(settings, ()))
        store = await stack.enter_async_context(open_learned(settings))
        found = [
            {
                "name": model.name,
                "use": use,
                **await _describe(model),
                "assistance": "" if use == "embeddings" else await describe_assistance(settings, store, model),
            }
            for use, model in _uses(connected)
        ]
    if arguments.json:
        print(json.dumps({"models": found}, indent=2))
        return DONE
    for one in found:
        print(f"{one['name']} ({one['description']})")
        facts = [
            one["use"],
            "local" if one["local"] else "remote",
            f"resume mode: {one['resume']}",
            f"context: {one['context']:,} tokens" if one["context"] else "",
            "image input" if one["sees_images"] else "",
            f"falls back to: {', '.join(one['fallbacks'])}" if one["fallbacks"] else "",
            one["assistance"],
        ]
        print(f"  {'; '.join(filter(None, facts))}")
        if one["problem"]:
            print(f"  {one['problem']}")
        if names := one["server_models"]:
            more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
            print(f"  models of the server: {', '.join(names[:MAX_SHOWN])}{more}")
    return DONE


def _uses(connected: Models) -> Iterator[tuple[str, Model]]:
    """Yield each model with its use, the default first."""
    for place, model in enumerate(connected.offered):
        yield "offered" if place else "default", model
    for model in connected.by_name.values():
        if model not in connected.offered:
            yield "reserve", model
    if connected.embedder is not None and connected.embedder not in connected.offered:
        yield "embeddings", connected.embedder


async def _describe(model: Model) -> dict[str, Any]:
    names, problem = list[str](), model.problem
    try:
        names = [escape_invisible(name)[:MAX_LENGTH] for name in await model.list_names()]
    except ModelError:
        problem = problem or "The server does not list its models."
    return {
        "description": model.reason,
        "problem": problem,
        "local": model.is_local,
        "resume": model.resume,
        "context": model.context_tokens,
        "sees_images": model.sees_images,
        "fallbacks": [fallback.name for fallback in model.fallbacks],
        "server_models": names,
    }
