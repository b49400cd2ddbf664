"""`brain index`: index files for `knowledge`, the only specialist with a command."""

import argparse
import sys
from functools import partial

from brain.cli.process import DONE, FAILED, CommandError
from brain.models import connect_models
from brain.plugins.registry import Registry
from brain.settings import Settings


async def index(arguments: argparse.Namespace, settings: Settings) -> int:
    """Index files, with progress on standard error."""
    from specialists.knowledge import index as index_documents  # with its libraries: only this command pays for them

    registry = Registry(settings).discover()
    if "knowledge" not in registry:
        reason = next((refusal.reason for refusal in registry.refused if refusal.name == "knowledge"), "not installed")
        raise CommandError(f"Cannot use the specialist knowledge: {reason}", "brain check")
    async with connect_models(settings, registry.usable()) as models:
        is_complete = await index_documents(
            arguments.path,
            registry["knowledge"].settings,
            arguments.user,
            models.offered[0],
            print,
            partial(print, file=sys.stderr, flush=True),
            forget=arguments.forget,
            listing=arguments.list,
        )
        return DONE if is_complete else FAILED
