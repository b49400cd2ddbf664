"""Ollama's protocol. What happens in a turn, as the lines of `/api/chat` and `/api/generate`."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from brain.errors import BadRequest
from brain.events import Done, Error, ErrorCode, Event, StopReason, Thinking, Token, ToolCall, Usage
from brain.protocols.bodies import encode

SECOND, MILLISECOND = 1_000_000_000, 1_000_000
"""In nanoseconds, in which the protocol counts."""

_STATUS: Mapping[ErrorCode, int] = {
    "model_unreachable": 502,
    "model_failed": 502,
    "model_context": 400,
    "shutdown": 503,
    "internal": 500,
}
_CUT: frozenset[StopReason] = frozenset({"length", "deadline"})
_LINE_ENDS = re.compile(b"\xc2\x85|\xe2\x80[\xa8\xa9]")
"""U+0085, U+2028, U+2029 in UTF-8: within a line, the Python client takes them for its end."""
_GOES_ON = b',"done":false}\n'


class Encoder:
    """Writes the events of one turn: a line each, as far as the protocol has a word for them.

    Args:
        model: as the client called it.
        clock: nanoseconds since 1970, as `time.time_ns` tells them.
        written: what stands in the answer for an event that is none of the model's; empty for most.
        generate: whether the lines are those of `/api/generate`.

    Attributes:
        taken: how many events were written.
    """

    __slots__ = (
        "_calls", "_clock", "_front", "_generate", "_head", "_model", "_said", "_second", "_tail", "_thought", "_usage",
        "_written", "taken",
    )  # fmt: skip

    content_type = b"application/x-ndjson"
    headers: Sequence[tuple[bytes, bytes]] = ()
    closed = False

    def __init__(
        self, model: str, clock: Callable[[], int], written: Callable[[Event], str], *, generate: bool = False
    ) -> None:
        self._model = model
        self._clock = clock
        self._written = written
        self._generate = generate
        self._front = b'{"model":%b,"created_at":"' % _json(model)
        self._head = b""
        self._second = 0
        self._said = b'","response":' if generate else b'","message":{"role":"assistant","content":'
        self._thought = self._said + b'"","thinking":'
        self._tail = _GOES_ON if generate else b"}" + _GOES_ON
        self._calls = 0
        self._usage = Usage(0, 0, None, True)
        self.taken = 0

    @property
    def heartbeat(self) -> bytes:
        """Sent when nothing else was: a line in which nothing is said, since the protocol has no comments."""
        return self._line(self._said, "")

    def encode(self, events: Sequence[Event]) -> bytes:
        """What came together as its lines."""
        self.taken += len(events)
        return self._lines(events[0]) if len(events) == 1 else b"".join(map(self._lines, events))

    def whole(self, events: Sequence[Event]) -> tuple[int, Mapping[str, Any]]:
        """Status and body for a turn that is over, where no stream is wanted."""
        last = events[-1]
        if isinstance(last, Error):
            return _status(last), {"error": last.message}
        assert isinstance(last, Done)
        said = "".join([event.text if isinstance(event, Token) else self._written(event) for event in events])
        thought = "".join([event.text for event in events if isinstance(event, Thinking)])
        calls = [self._call(event) for event in events if isinstance(event, ToolCall)]
        self._usage = next((event for event in events if isinstance(event, Usage)), self._usage)
        return 200, self._object(self._message(said, thought, calls), **self._end(last))

    def refusal(self, error: Error) -> tuple[int, bytes]:
        """Status and body for a turn that failed before anything was said; a model server's own no passes through."""
        return _status(error), _json({"error": error.message})

    def loaded(self, done_reason: str) -> Mapping[str, Any]:
        """The answer to a request with no question in it, which loads or unloads a model."""
        return self._object(self._message(), done=True, done_reason=done_reason)

    def _lines(self, event: Event) -> bytes:
        if type(event) is Token:
            return self._line(self._said, event.text)
        match event:
            case Thinking():
                return self._line(self._thought, event.text)
            case ToolCall():
                return _json(self._object(self._message(calls=[self._call(event)]), done=False)) + b"\n"
            case Done():
                return _json(self._object(self._message(), **self._end(event))) + b"\n"
            case Error():
                return _json({"error": event.message}) + b"\n"
            case Usage():
                self._usage = event
        written = self._written(event)
        return self._line(self._said, written) if written else b""

    def _line(self, front: bytes, text: str) -> bytes:
        second, rest = divmod(self._clock(), SECOND)
        if second != self._second:
            self._second, self._head = second, self._front + _date_and_time(second).encode()
        return b"%b.%09dZ%b%b%b" % (self._head, rest, front, _json(text), self._tail)

    def _object(self, message: Mapping[str, Any], **more: Any) -> Mapping[str, Any]:
        return {"model": self._model, "created_at": timestamp(self._clock()), **message, **more}

    def _message(self, said: str = "", thought: str = "", calls: Sequence[Mapping[str, Any]] = ()) -> Mapping[str, Any]:
        extra = {key: value for key, value in (("thinking", thought), ("tool_calls", calls)) if value}
        if self._generate:
            return {"response": said, **extra}
        return {"message": {"role": "assistant", "content": said, **extra}}

    def _call(self, event: ToolCall) -> Mapping[str, Any]:
        function = {"index": self._calls, "name": event.name, "arguments": event.params}
        self._calls += 1
        return {"id": event.call_id, "function": function}

    def _end(self, event: Done) -> Mapping[str, Any]:
        """What the last line tells besides; the turn's clock counts milliseconds, of which each part has one at least.

        Up to its first visible text a turn counts as prompt evaluation, whatever it did: thinking and calls are in it.
        """
        first = event.total_ms if event.first_token_ms is None else event.first_token_ms
        before, after = max(first, 1), max(event.total_ms - first, 1)
        return {
            "done": True,
            "done_reason": "length" if event.stop_reason in _CUT else "stop",
            "total_duration": (before + after) * MILLISECOND,
            "load_duration": 0,
            "prompt_eval_count": self._usage.prompt_tokens,
            "prompt_eval_duration": before * MILLISECOND,
            "eval_count": self._usage.completion_tokens,
            "eval_duration": after * MILLISECOND,
        }


def _status(error: Error) -> int:
    return error.status if error.status is not None and 400 <= error.status < 500 else _STATUS[error.code]


def encode_rejection(error: BadRequest) -> tuple[int, dict[str, str]]:
    """Status and body for a request that is refused before there is a turn."""
    return error.status, {"error": error.message}


def timestamp(moment: int) -> str:
    """Nanoseconds since 1970 as RFC 3339 writes them, in UTC and with a fraction, as Ollama does."""
    second, rest = divmod(moment, SECOND)
    return f"{_date_and_time(second)}.{rest:09}Z"


def _date_and_time(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _json(value: Any) -> bytes:
    """JSON on one line, whoever tells where lines end."""
    data = encode(value)
    return data if data.isascii() else _LINE_ENDS.sub(_escaped, data)


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(found[0].decode())
