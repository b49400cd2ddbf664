"""Rooms: what takes some milliseconds of thought, beside the loop.

In one thread of its own: the loop's are for what everybody waits for, such as names of servers that are looked up.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_THREAD = ThreadPoolExecutor(1, "memory")


async def aside(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a pure function returns."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, partial(work, *args, **kwargs))
