"""What all routes read of a request: whose house it is at, and a body within limits."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request
from starlette.types import Message, Receive

from brain.errors import BadRequest
from brain.protocols.bodies import BODY_BYTES, check_keys
from brain.server.state import ServerState

BODY_SECONDS = 20.0
BODY_BYTES_A_SECOND = 64 * 1024
"""How long a body may take: so many seconds, and what it takes at this rate."""

LARGE_BYTES = 256 * 1024
_reading = ThreadPoolExecutor(1, "reading")

T = TypeVar("T")


def house_of(request: Request) -> ServerState:
    """The house that the request came to."""
    house = request.app.state.house
    assert isinstance(house, ServerState)
    return house


def user_of(request: Request) -> str | None:
    """Who asks, as the door found out."""
    user: str | None = request.scope["brain.user"]
    return user


def limited(request: Request, most: int = BODY_BYTES) -> Request:
    """The same request, of which no more is read than may be.

    Args:
        most: bytes of its body.

    Raises:
        BadRequest: when it says itself that it is larger; and while it is read, when it is, or comes too slowly.
    """
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise _too_large(most)
    return Request(request.scope, _counted(request.receive, most))


def kind(request: Request) -> str:
    """The media type that a body is said to have."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read(body: bytes, made: Callable[[], T]) -> T:
    """What is made of a body: of a large one in a thread, one after the other, for others have their turn meanwhile."""
    return await large(len(body), made)


async def parsed(body: bytes, made: Callable[[], T]) -> T:
    """The same of a body of JSON, in which no object may have a key twice. What it says is bounded first."""

    def strict() -> T:
        found = made()
        check_keys(body, "")
        return found

    return await large(len(body), strict)


async def large(size: int, made: Callable[[], T]) -> T:
    """The same of anything that takes so many bytes, such as an answer."""
    if size <= LARGE_BYTES:
        return made()
    return await asyncio.get_running_loop().run_in_executor(_reading, made)


def _counted(receive: Receive, most: int) -> Receive:
    clock = asyncio.get_running_loop().time
    received = 0
    began = clock()

    async def counted() -> Message:
        nonlocal received
        try:
            async with asyncio.timeout_at(began + BODY_SECONDS + received / BODY_BYTES_A_SECOND):
                message = await receive()
        except TimeoutError:
            raise BadRequest("The body comes too slowly.", status=408) from None
        received += len(message.get("body", b""))
        if received > most:
            raise _too_large(most)
        return message

    return counted


def _too_large(most: int) -> BadRequest:
    size = f"{most >> 20} MiB" if most >= 1 << 20 else f"{most >> 10} KiB"
    return BadRequest(f"The body may be {size} large.", code="too_large", status=413)
