"""Roof: what all routes read of a request: whose house it is at, and a body within limits."""

import asyncio

from starlette.requests import Request
from starlette.types import Message, Receive

from brain.errors import BadRequest
from brain.house import House
from brain.wire.native import BODY_BYTES

BODY_SECONDS = 20.0
BODY_BYTES_A_SECOND = 64 * 1024
"""How long a body may take: so many seconds, and what it takes at this rate."""


def house_of(request: Request) -> House:
    """The house that the request came to."""
    house = request.app.state.house
    assert isinstance(house, House)
    return house


def limited(request: Request) -> Request:
    """The same request, of which no more is read than may be.

    Raises:
        BadRequest: when it says itself that it is larger; and while it is read, when it is, or comes too slowly.
    """
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > BODY_BYTES:
        raise _too_large()
    return Request(request.scope, _counted(request.receive))


def kind(request: Request) -> str:
    """The media type that a body is said to have."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _counted(receive: Receive) -> Receive:
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
        if received > BODY_BYTES:
            raise _too_large()
        return message

    return counted


def _too_large() -> BadRequest:
    return BadRequest("The body may be 20 MiB large.", code="too_large", status=413)
