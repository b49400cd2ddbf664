"""Encodes a turn as the lines of `/api/chat` and `/api/generate`."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from brain.errors import BadRequest
from brain.events import Done, Error, Event, Rewind, Round, StopReason, Thinking, Token, ToolCall, Usage
from brain.protocols.encoding import ReasoningText, encode

SECOND, MILLISECOND = 1_000_000_000, 1_000_000
"""In nanoseconds, the unit of the protocol."""

_DONE_REASONS: Mapping[StopReason, str] = {
    "length": "length",
    "deadline": "length",
    "content_filter": "content_filter",
}
_NOT_DONE = b',"done":false}\n'


class Encoder:
    """Encodes the events of one turn, one line per event.

    Args:
        clock: returns nanoseconds since 1970, as `time.time_ns` does.
        inline_text: returns the text for an event that the protocol cannot express; empty for most events.
    """

    __slots__ = (
        "_call_count", "_clock", "_front", "_generate", "_head", "_inline_text", "_model", "_reasoning_text", "_second",
        "_tail", "_text_head", "_thought_head", "_usage", "headers",
    )  # fmt: skip

    content_type = b"application/x-ndjson"
    closed = False

    def __init__(
        self,
        model: str,
        clock: Callable[[], int],
        inline_text: Callable[[Event], str],
        *,
        generate: bool = False,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self.headers = headers
        self._model = model
        self._clock = clock
        self._inline_text = inline_text
        self._reasoning_text = ReasoningText()
        self._generate = generate
        self._front = b'{"model":%b,"created_at":"' % encode(model)
        self._head = b""  # up to the time of this second
        self._second = 0
        self._text_head = b'","response":' if generate else b'","message":{"role":"assistant","content":'
        self._thought_head = self._text_head + b'"","thinking":'
        self._tail = _NOT_DONE if generate else b"}" + _NOT_DONE
        self._call_count = 0
        self._usage = Usage(0, 0, None, True)

    @property
    def heartbeat(self) -> bytes:
        """A line without text: the protocol has no comments."""
        return self._encode_text(self._text_head, "")

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the lines of events that happened together."""
        return self._encode(events[0]) if len(events) == 1 else b"".join(map(self._encode, events))

    def _encode(self, event: Event) -> bytes:
        if type(event) is Token:
            return self._encode_text(self._text_head, event.text)
        match event:
            case Rewind():  # no client can resume this stream, so it is the first event
                return self._encode_text(self._text_head, event.text)
            case Thinking() | Round():
                return self._encode_text(self._thought_head, self._reasoning_text(event))
            case ToolCall():
                return encode(self._fields(self._message(calls=[self._tool_call(event)]), done=False)) + b"\n"
            case Done():
                return encode(self._fields(self._message(), **self._end(event))) + b"\n"
            case Error():
                return encode({"error": event.message}) + b"\n"
            case Usage():
                self._usage = event
        text = self._inline_text(event)
        return self._encode_text(self._text_head, text) if text else b""

    def _encode_text(self, head: bytes, text: str) -> bytes:
        second, rest = divmod(self._clock(), SECOND)
        if second != self._second:
            self._second, self._head = second, self._front + _date_and_time(second).encode()
        return b"%b.%09dZ%b%b%b" % (self._head, rest, head, encode(text), self._tail)

    def encode_response(self, events: Sequence[Event]) -> Mapping[str, Any]:
        """Return the body for all events of a turn, for a client that does not stream."""
        last = events[-1]
        assert isinstance(last, Done)
        text = "".join(
            [event.text if isinstance(event, Token | Rewind) else self._inline_text(event) for event in events]
        )
        thought = "".join([self._reasoning_text(event) for event in events if isinstance(event, Thinking | Round)])
        calls = [self._tool_call(event) for event in events if isinstance(event, ToolCall)]
        self._usage = next((event for event in events if isinstance(event, Usage)), self._usage)
        return self._fields(self._message(text, thought, calls), **self._end(last))

    def load_response(self, done_reason: str) -> Mapping[str, Any]:
        """Return the body for a request without a message, which loads or unloads a model."""
        return self._fields(self._message(), done=True, done_reason=done_reason)

    def _fields(self, message: Mapping[str, Any], **more: Any) -> Mapping[str, Any]:
        return {"model": self._model, "created_at": timestamp(self._clock()), **message, **more}

    def _message(self, text: str = "", thought: str = "", calls: Sequence[Mapping[str, Any]] = ()) -> Mapping[str, Any]:
        more = {**({"thinking": thought} if thought else {}), **({"tool_calls": calls} if calls else {})}
        if self._generate:
            return {"response": text, **more}
        return {"message": {"role": "assistant", "content": text, **more}}

    def _tool_call(self, event: ToolCall) -> Mapping[str, Any]:
        function = {"index": self._call_count, "name": event.name, "arguments": event.params}
        self._call_count += 1
        return {"id": event.call_id, "function": function}

    def _end(self, event: Done) -> Mapping[str, Any]:
        """The fields that only the last line has. Both durations are at least one millisecond.

        The time until the first visible text, including thinking and calls, counts as prompt evaluation.
        """
        first = event.total_ms if event.first_token_ms is None else event.first_token_ms
        before, after = max(first, 1), max(event.total_ms - first, 1)
        return {
            "done": True,
            "done_reason": _DONE_REASONS.get(event.stop_reason, "stop"),
            "total_duration": (before + after) * MILLISECOND,
            "load_duration": 0,
            "prompt_eval_count": self._usage.prompt_tokens,
            "prompt_eval_duration": before * MILLISECOND,
            "eval_count": self._usage.completion_tokens,
            "eval_duration": after * MILLISECOND,
        }


def encode_rejection(error: BadRequest) -> tuple[int, dict[str, str]]:
    """Return status and body for a rejected request."""
    return error.status, {"error": error.message}


def timestamp(nanoseconds: int) -> str:
    """Return a time since 1970 in RFC 3339 format: UTC with nanoseconds, as Ollama writes it."""
    second, rest = divmod(nanoseconds, SECOND)
    return f"{_date_and_time(second)}.{rest:09}Z"


def _date_and_time(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
