"""The events of a stream, as httpx-sse reads them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from httpx_sse import EventSource


@dataclass(frozen=True)
class Event:
    """One event, as a client of the stream gets it."""

    name: str
    text: str
    id: str

    @property
    def data(self) -> dict[str, Any]:
        """The JSON object that each event of a native stream has."""
        found: dict[str, Any] = json.loads(self.text)
        return found


def events(response: httpx.Response) -> Iterator[Event]:
    """The events of a response, as they arrive."""
    for event in EventSource(response).iter_sse():
        if event.data:  # by the standard, others are none
            yield Event(event.event, event.data, event.id)


def read(stream: bytes) -> list[Event]:
    """The events of a whole stream, which must be UTF-8."""
    return [*events(httpx.Response(200, headers={"content-type": "text/event-stream"}, text=stream.decode()))]
