"""Renews the leases of the turns that run in this process every few seconds."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from functools import partial

from brain.errors import StoreError
from brain.store import turns
from brain.store.database import Database
from brain.store.turns import Lease

PROLONG_SECONDS = 2.0

log = logging.getLogger("brain")


class Leases:
    """The leases of this process in one store.

    Args:
        now: microseconds since 1970.

    Attributes:
        owner: a unique name of this process.
        keys: keys of the running exchanges.
    """

    def __init__(self, database: Database, now: Callable[[], int]) -> None:
        self._database = database
        self._now = now
        self.owner = secrets.token_hex(8)
        self.keys: set[int] = set()

    @property
    def lease(self) -> Lease:
        """Return a lease that begins now."""
        return Lease(self.owner, self._now(), frozenset(self.keys))

    async def prolong_forever(self) -> None:
        """Renew the leases, and shorten those that are too long."""
        while True:
            await asyncio.sleep(PROLONG_SECONDS)
            lease = self.lease
            try:
                self._database.check_place()
                is_too_long = await self._database.read(partial(turns.any_too_long, lease=lease))
                if lease.running or is_too_long:
                    await self._database.write(partial(turns.prolong, lease=lease), durable=False)
            except StoreError as error:
                log.warning("the leases of running turns cannot be renewed: %s", error)
