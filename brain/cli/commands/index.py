"""`brain index`: reads documents into `knowledge`, the one specialist with a command of its own."""

import argparse
import sys
from functools import partial

from brain.cli.process import DONE, FAILED, run_command
from brain.errors import BrainError
from brain.models import connect_models
from brain.plugins.registry import Registry
from brain.settings import Settings


def index(arguments: argparse.Namespace, settings: Settings) -> int:
    """Read documents into the specialist `knowledge`, with progress on standard error."""
    return run_command(_index(arguments, settings))


async def _index(arguments: argparse.Namespace, settings: Settings) -> int:
    from specialists.knowledge import index as index_documents  # with its libraries: only this command pays for them

    registry = Registry(settings).discover()
    if "knowledge" not in registry:
        reason = next((refusal.reason for refusal in registry.refused if refusal.name == "knowledge"), "not installed")
        raise BrainError(f"specialist knowledge: {reason}")
    async with connect_models(settings, registry.usable()) as models:
        is_complete = await index_documents(
            arguments.path,
            registry["knowledge"].settings,
            arguments.user,
            models.offered[0].model,
            print,
            partial(print, file=sys.stderr, flush=True),
            forget=arguments.forget,
            listing=arguments.list,
        )
        return DONE if is_complete else FAILED
