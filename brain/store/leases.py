"""The turns of this process that run: it says so every few seconds."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from functools import partial

from brain.errors import StoreError
from brain.messages import Record
from brain.store import turns
from brain.store.connection import Database
from brain.store.turns import Lease

PROLONG_SECONDS = 2.0

log = logging.getLogger("brain")


class Leases:
    """Those of one store.

    Args:
        now: microseconds since 1970.

    Attributes:
        owner: a name of this process that no other one has.
        keys: of the exchanges that run.
    """

    def __init__(self, database: Database, now: Callable[[], int]) -> None:
        self._database = database
        self._now = now
        self.owner = secrets.token_hex(8)
        self.keys: set[int] = set()

    @property
    def lease(self) -> Lease:
        """One that begins now."""
        return Lease(self.owner, self._now(), frozenset(self.keys))

    def hold(self, record: Record) -> None:
        """A turn began."""
        self.keys.add(record.key)

    def let_go(self, record: Record) -> None:
        """It ended."""
        self.keys.discard(record.key)

    async def prolong_for_ever(self) -> None:
        """Says of all that they still run."""
        while True:
            await asyncio.sleep(PROLONG_SECONDS)
            try:
                await self._prolong(self.lease)
            except StoreError as error:
                log.warning("the store cannot note that turns run: %s", error)

    async def _prolong(self, lease: Lease) -> None:
        self._database.check_place()
        too_long = await self._database.read(lambda db: turns.any_too_long(db, lease))
        if lease.running or too_long:
            await self._database.write(partial(turns.prolong, lease=lease), durable=False)
