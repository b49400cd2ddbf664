"""`brain index`: reads documents into `knowledge`, the one specialist that has a command."""

import argparse
import sys
from functools import partial

from brain.cli.process import DONE, FAILED, run_command
from brain.errors import BrainError
from brain.models import connect_models
from brain.plugins.registry import Registry
from brain.settings import Settings


def index(given: argparse.Namespace, settings: Settings) -> int:
    """Reads documents into the specialist `knowledge`, with progress on standard error."""
    return run_command(_index(given, settings))


async def _index(given: argparse.Namespace, settings: Settings) -> int:
    from specialists.knowledge import index as indexed  # the one specialist that has a command

    registry = Registry(settings).discover()
    if "knowledge" not in registry:
        refused = next((refusal.reason for refusal in registry.refused if refusal.name == "knowledge"), "not installed")
        raise BrainError(f"specialist knowledge: {refused}")
    async with connect_models(settings, registry.usable()) as models:
        model = models.offered[0].model
        tell = partial(print, file=sys.stderr, flush=True)
        chosen = {"forget": given.forget, "listing": given.list}
        done = await indexed(given.path, registry["knowledge"].settings, given.user, model, print, tell, **chosen)
        return DONE if done else FAILED
