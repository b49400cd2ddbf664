"""Other processes of a store for tests: their leases, the store's clock, and servers that send requests to them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from brain.errors import RunsElsewhere
from brain.runtime.runs import RunRegistry

SECRET = b"the secret of the store"


class Peers:
    """What a process knows about the others; each process of a test has its own."""

    def __init__(self, process: str = "here", now: float = 1_800_000_000.0) -> None:
        self.secret = SECRET
        self.process = process
        self.now = now
        self.leases: dict[str, asyncio.Event] = {}

    def lost(self, process: str) -> asyncio.Event:
        return self.leases.setdefault(process, asyncio.Event())

    def clock(self) -> float:
        return self.now


def send_elsewhere(runs: RunRegistry, address: str, times: int = 1_000_000) -> None:
    """Let requests about turns that are not in this process go to an owner, so often."""
    left = times

    def elsewhere(find: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def found(*args: Any) -> Any:
            nonlocal left
            run = await find(*args)
            if run is None and left:
                left -= 1
                raise RunsElsewhere("owner", address)
            return run

        return found

    for name in ("find", "find_newest", "find_requested"):
        setattr(runs, name, elsewhere(getattr(runs, name)))
