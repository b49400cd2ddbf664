"""Has specialists forget what they keep of a user, or of one conversation."""

import asyncio
import inspect
import logging
from functools import partial
from typing import Any

from brain import concurrency
from brain.plugins.registry import Entry, Registry
from brain.plugins.schema import find_injected, inject

FORGET_SECONDS = 30.0

log = logging.getLogger("brain")


async def erase_user_data(registry: Registry, user: str, conversation_id: str | None = None) -> list[str]:
    """Has them all forget it: one conversation of the user's, or everything.

    Returns:
        The names of those that could not; the log says why.
    """
    registry.drop_cached(user)
    return [name for name, entry in registry.items() if not await _forgot(entry, user, conversation_id)]


async def _forgot(entry: Entry, user: str, conversation_id: str | None) -> bool:
    forget = entry.specialist.forget
    if forget is None:
        return True
    forgetting = partial(forget, user, conversation_id, **inject(find_injected(forget), entry.dependencies))
    try:
        async with asyncio.timeout(FORGET_SECONDS):
            found = await concurrency.run_in_thread(entry.specialist.name, forgetting, _ignore)
            if inspect.isawaitable(found):
                await found
    except Exception:
        log.warning("specialist %s could not forget what it keeps", entry.specialist.name, exc_info=True)
        return False
    return True


def _ignore(item: Any) -> None:
    """Forgetting has no progress to tell."""
