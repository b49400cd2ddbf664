"""Server-sent events as the WHATWG's standard has browsers read them, strictly: what is no UTF-8 is an error.

Sans-IO, and one character after the other, so that no cut of the bytes can make a difference.
"""

import codecs
from dataclasses import dataclass

BOM = "\ufeff"


@dataclass(frozen=True)
class Message:
    """One event as a page gets it."""

    type: str
    data: str
    last_event_id: str


class EventSource:
    """Reads one stream after the other, as one does that comes back when it is cut off.

    Attributes:
        last_event_id: what it says in `Last-Event-ID` when it comes back; empty when it says nothing.
        retry: milliseconds before it comes back, once the server has said.
        comments: all that came.
        ignored: names of fields that mean nothing.
    """

    def __init__(self) -> None:
        self.last_event_id = ""
        self.retry: int | None = None
        self.comments: list[str] = []
        self.ignored: list[str] = []
        self.opened()

    def opened(self) -> None:
        """A new connection: what was not dispatched of the one before is lost."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._first = True
        self._behind_cr = False
        self._line: list[str] = []
        self._type = ""
        self._data: list[str] = []
        self._id = self.last_event_id

    def feed(self, data: bytes) -> list[Message]:
        """What these bytes dispatch.

        Raises:
            UnicodeDecodeError: when they are no UTF-8.
        """
        messages = (self._take(character) for character in self._decoder.decode(data))
        return [message for message in messages if message is not None]

    def _take(self, character: str) -> Message | None:
        if self._first:
            self._first = False
            if character == BOM:
                return None
        if character == "\n" and self._behind_cr:
            self._behind_cr = False
            return None
        self._behind_cr = character == "\r"
        if character not in "\r\n":
            self._line.append(character)
            return None
        line = "".join(self._line)
        self._line.clear()
        if not line:
            return self._dispatch()
        self._field(line)
        return None

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            self.comments.append(line[1:])
        elif name == "event":
            self._type = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry = int(value)
        else:
            self.ignored.append(name)

    def _dispatch(self) -> Message | None:
        self.last_event_id = self._id
        message = Message(self._type or "message", "\n".join(self._data), self._id)
        dispatched = bool(self._data)
        self._type = ""
        self._data.clear()
        return message if dispatched else None


def read(stream: bytes) -> list[Message]:
    """The events of a whole stream."""
    return EventSource().feed(stream)
