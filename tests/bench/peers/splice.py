"""Two sockets and nothing between them: the cost of one Python process that passes bytes on.

UPSTREAM=http://127.0.0.1:11434 python tests/bench/peers/splice.py PORT
"""

import asyncio
import os
import sys
from typing import cast
from urllib.parse import urlsplit

import uvloop

MODEL = urlsplit(os.environ.get("UPSTREAM", ""))


class Side(asyncio.Protocol):
    """One of the two sockets."""

    def __init__(self, other: "Side | None" = None) -> None:
        self.other = other
        self.transport: asyncio.Transport | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.other is None:
            self.connecting = asyncio.create_task(self.connect())
        else:
            self.other.other = self
            self.transport.writelines(self.other.early)

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: Side(self), MODEL.hostname or "", MODEL.port or 80)

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Side, "127.0.0.1", int(sys.argv[1]), backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
