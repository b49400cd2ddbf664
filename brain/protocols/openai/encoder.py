"""Encodes a turn as chunks of a chat completion, or as one completion.

The stream has no event IDs, names or `retry` fields: after them, OpenAI clients parse a comment as JSON and fail.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from brain.errors import BadRequest
from brain.events import Done, Error, Event, Rewind, Round, StopReason, Thinking, Token, ToolCall, TurnStart, Usage
from brain.protocols.encoding import HEARTBEAT, SSE_TYPE, ReasoningText, as_rejection, data_frame, encode
from brain.protocols.openai.request import RequestOptions

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {
    "bad_request": None,
    "model_context": "context_length_exceeded",
    "rate_limited": "rate_limit_exceeded",
    "unauthorized": "invalid_api_key",
}
"""OpenAI's codes, which clients check. All others are Brain's."""
_FINISH_REASONS: Mapping[StopReason, str] = {
    "length": "length",
    "deadline": "length",
    "content_filter": "content_filter",
}
_END = b"data: [DONE]\n\n"


class Encoder:
    """Encodes the events of one turn.

    Args:
        created: start of the turn, in seconds since 1970.
        inline_text: returns the text for an event that the protocol cannot express; empty for most events.
    """

    content_type = SSE_TYPE
    heartbeat = HEARTBEAT
    closed = False

    def __init__(
        self,
        turn_id: str,
        created: int,
        options: RequestOptions,
        inline_text: Callable[[Event], str],
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self.headers = headers
        self._fields = {
            "id": f"chatcmpl-{turn_id}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": options.model,
        }
        self._inline_text = inline_text
        self._reasoning_text = ReasoningText()
        self._with_usage = options.with_usage
        self._usage: Usage | None = None
        self._call_count = 0
        self._head = b"data: " + encode(self._fields)[:-1] + b',"choices":[{"index":0,"delta":'
        self._end = b',"usage":null}\n\n' if options.with_usage else b"}\n\n"
        self._tail = b',"logprobs":null,"finish_reason":null}]' + self._end
        self._text_head, self._thought_head = self._head + b'{"content":', self._head + b'{"reasoning_content":'
        self._text_tail = b"}" + self._tail

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the chunks of events that happened together."""
        return self._encode(events[0]) if len(events) == 1 else b"".join(map(self._encode, events))

    def _encode(self, event: Event) -> bytes:
        if type(event) is Token:
            return b"%b%b%b" % (self._text_head, encode(event.text), self._text_tail)
        match event:
            case Thinking() | Round():
                return b"%b%b%b" % (self._thought_head, encode(self._reasoning_text(event)), self._text_tail)
            case TurnStart():
                return self._encode_delta({"role": "assistant", "content": ""})
            case Rewind():  # nobody can resume this stream, so it is the first event
                return self._encode_delta({"role": "assistant", "content": event.text})
            case ToolCall():
                self._call_count += 1
                return self._encode_delta({"tool_calls": [{"index": self._call_count - 1, **_tool_call(event)}]})
            case Usage():
                self._usage = event
                return b""
            case Error():
                return data_frame(encode_rejection(as_rejection(event))[1]) + _END
            case Done():
                finish = _finish_reason(event, self._call_count).encode()
                last = self._head + b'{},"logprobs":null,"finish_reason":"%b"}]' % finish + self._end
                if self._with_usage and self._usage is not None:
                    last += data_frame({**self._fields, "choices": [], "usage": _usage(self._usage)})
                return last + _END
        text = self._inline_text(event)
        return self._encode_delta({"content": text}) if text else b""

    def _encode_delta(self, delta: Mapping[str, Any]) -> bytes:
        return self._head + encode(delta) + self._tail

    def encode_response(self, events: Sequence[Event]) -> Mapping[str, Any]:
        """Return the body for all events of a turn, for a client that does not stream."""
        last = events[-1]
        assert isinstance(last, Done)
        text = "".join(
            [event.text if isinstance(event, Token | Rewind) else self._inline_text(event) for event in events]
        )
        thought = "".join([self._reasoning_text(event) for event in events if isinstance(event, Thinking | Round)])
        calls = [_tool_call(event) for event in events if isinstance(event, ToolCall)]
        usage = next(event for event in events if isinstance(event, Usage))
        message = {
            "role": "assistant",
            "content": None if calls and not text else text,
            "refusal": None,
            **({"reasoning_content": thought} if thought else {}),
            **({"tool_calls": calls} if calls else {}),
        }
        finish = _finish_reason(last, len(calls))
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return {**self._fields, "object": "chat.completion", "choices": [choice], "usage": _usage(usage)}


def encode_rejection(error: BadRequest) -> tuple[int, Mapping[str, Any]]:
    """Return status and body for a rejected request."""
    kind = _TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    code = _CODES.get(error.code, error.code)
    return error.status, {"error": {"message": error.message, "type": kind, "param": error.field, "code": code}}


def list_models(names: Iterable[str], created: int) -> Mapping[str, Any]:
    """Return the body of `GET /v1/models`."""
    return {"object": "list", "data": [describe_model(name, created) for name in names]}


def describe_model(name: str, created: int) -> Mapping[str, Any]:
    """Return the body of `GET /v1/models/{name}`."""
    return {"id": name, "object": "model", "created": created, "owned_by": "brain"}


def _finish_reason(done: Done, call_count: int) -> str:
    return "tool_calls" if call_count else _FINISH_REASONS.get(done.stop_reason, "stop")


def _tool_call(event: ToolCall) -> Mapping[str, Any]:
    function = {"name": event.name, "arguments": encode(event.params).decode()}
    return {"id": event.call_id, "type": "function", "function": function}


def _usage(usage: Usage) -> Mapping[str, Any]:
    """OpenAI's fields, and Brain's `estimated`."""
    counts: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.reused_tokens is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.reused_tokens}
    if usage.estimated:
        counts["estimated"] = True
    return counts
