"""The other processes that use the same store, as far as requests are forwarded to them."""

import asyncio
from typing import Protocol


class Peers(Protocol):
    """Other processes of the store.

    Attributes:
        secret: the key of the signatures of forwarded requests; all processes of the store have the same one.
        process: the ID of this process.
        any: whether another living process has an address.
    """

    secret: bytes
    process: str
    any: bool

    def lost(self, process: str) -> asyncio.Event:
        """Return an event that is set when the lease of a process is over."""
        ...

    def clock(self) -> float:
        """Return the store's time, in seconds since 1970."""
        ...
