"""Ground: whatever can be gone through, gone through in one way."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from inspect import isawaitable
from typing import TypeVar

import anyio

T = TypeVar("T")


async def iterated(found: AsyncIterable[T] | Iterable[T]) -> AsyncGenerator[T, None]:
    """Any iterable as an asynchronous one, that is closed when it is left."""
    try:
        if isinstance(found, AsyncIterable):
            async for one in found:
                yield one
        else:
            for one in found:
                yield one
    finally:
        close = getattr(found, "aclose", None) or getattr(found, "close", None)
        closing = close() if close is not None else None
        if isawaitable(closing):
            with anyio.CancelScope(shield=True):
                await closing
