"""Erases the data that specialists store about a user or a conversation."""

import asyncio
import logging
from functools import partial

from brain.concurrency import call_in_thread
from brain.plugins.registry import Registry
from brain.plugins.schema import find_injected, inject

ERASURE_SECONDS = 30.0
"""Time limit for one specialist."""

log = logging.getLogger("brain")


async def erase_user_data(registry: Registry, user: str, conversation_id: str | None = None) -> list[str]:
    """Call the `forget` function of every specialist, for one conversation of the user or for all data.

    Returns:
        The names of specialists that failed. The log has the errors.
    """
    registry.drop_cached(user)
    failed = []
    for name, entry in registry.items():
        forget = entry.specialist.forget
        if forget is None:
            continue
        erase = partial(forget, user, conversation_id, **inject(find_injected(forget), entry.dependencies))
        try:
            async with asyncio.timeout(ERASURE_SECONDS):
                await call_in_thread(name, erase)
        except Exception:
            log.warning("specialist %s could not erase its data", name, exc_info=True)
            failed.append(name)
    return failed
