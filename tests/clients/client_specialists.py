"""What the tests of real clients share: specialists, and a server that has them."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

from brain_servers import Server, brain_served

from brain import Citation, Context, Progress, Registry, Result, specialist
from brain.plugins.specialist import Specialist

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
PNG_BASE64 = base64.b64encode(PNG).decode()
WEATHER = 'SPECIALIST_REQUEST[weather:{"city":"Rome"}]'
BREAKS = "SPECIALIST_REQUEST[breaks]"
NAP = "SPECIALIST_REQUEST[nap]"
LETTER = 'SPECIALIST_REQUEST[letter:{"to":"Ada"}]'
SENT: list[str] = []
"""Recipients of letters."""


@specialist
async def weather(city: str) -> Result:
    """Weather for a city."""
    return Result(f"Sunny in {city}.", [Citation("1", "Forecast", "https://weather.example/rome")])


@specialist
async def breaks() -> str:
    """Fails."""
    raise RuntimeError("the password is swordfish")


@specialist(timeout=1000)
async def nap() -> AsyncGenerator[Progress | str, None]:
    """Never ends."""
    yield Progress("falls asleep", 0.5)
    await asyncio.Event().wait()
    yield "Rested."


@specialist(approval="always", preview=lambda params: f"Write to {params['to']}.")
async def letter(to: str) -> str:
    """Sends a letter."""
    SENT.append(to)
    return f"Sent to {to}."


@specialist(read_only=True, activates_on=["image"])
async def vision(*, context: Context) -> str:
    """Looks at pictures."""
    return ", ".join(f"{a.id} {a.name} {a.type} {len(a.data)}" for a in context.attachments)


@contextmanager
def serve(*more: Specialist[..., Any], **settings: object) -> Iterator[Server]:
    """Brain with these specialists and more; no task may be left at the end."""
    registry = Registry()
    specialists: list[Specialist[..., Any]] = [weather, breaks, nap, letter, vision, *more]
    for one in specialists:
        registry.add(one)
    SENT.clear()
    with brain_served(registry, **settings) as server:
        yield server
        assert server.left() == []


def prompt(player: Any, number: int = -1) -> str:
    """A request to the model, without its instructions."""
    return "\n".join(f"{message.role}: {message.content}" for message in player.requests[number][1:])
