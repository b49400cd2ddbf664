"""The events of a stream, as httpx-sse reads them."""

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
from httpx_sse import EventSource


@dataclass(frozen=True)
class Message:
    """One event, as a client of the stream gets it."""

    type: str
    data: str
    last_event_id: str


def messages(response: httpx.Response) -> Iterator[Message]:
    """The events of a response, as they arrive."""
    for event in EventSource(response).iter_sse():
        if event.data:  # by the standard, others are none
            yield Message(event.event, event.data, event.id)


def read(stream: bytes) -> list[Message]:
    """The events of a whole stream, which must be UTF-8."""
    return [*messages(httpx.Response(200, headers={"content-type": "text/event-stream"}, text=stream.decode()))]
