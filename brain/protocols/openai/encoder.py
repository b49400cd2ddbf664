"""OpenAI's protocol. What happens in a turn, as the chunks of a chat completion, or as a whole one.

Of server-sent events no ids, names or `retry`: behind them, its clients take a comment for broken JSON.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from brain.errors import BadRequest
from brain.events import Done, Error, ErrorCode, Event, StopReason, Thinking, Token, ToolCall, TurnStart, Usage
from brain.protocols.bodies import encode
from brain.protocols.openai.request import DEFAULT_NAME, RequestOptions

_STATUS: Mapping[ErrorCode, int] = {
    "model_unreachable": 502,
    "model_failed": 502,
    "model_context": 400,
    "shutdown": 503,
    "internal": 500,
}
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {
    "bad_request": None,
    "model_context": "context_length_exceeded",
    "rate_limited": "rate_limit_exceeded",
    "unauthorized": "invalid_api_key",
}
"""What clients look for, where it is not our own word."""
_CUT: frozenset[StopReason] = frozenset({"length", "deadline"})
_CHUNK = "chat.completion.chunk"
_END = b"data: [DONE]\n\n"


class Encoder:
    """Writes the events of one turn.

    Args:
        created: when, in seconds since 1970.
        written: what stands in the answer for an event for which the protocol has no word; empty for most.
        headers: further ones of the stream.
    """

    content_type = b"text/event-stream; charset=utf-8"
    heartbeat = b": heartbeat\n\n"
    closed = False

    def __init__(
        self,
        turn_id: str,
        created: int,
        wanted: RequestOptions,
        written: Callable[[Event], str],
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self.headers = headers
        self.taken = 0
        self._front = {"id": f"chatcmpl-{turn_id}", "object": _CHUNK, "created": created, "model": wanted.model}
        self._written = written
        self._with_usage = wanted.usage
        self._usage: Usage | None = None
        self._calls = 0
        self._head = b"data: " + encode(self._front)[:-1] + b',"choices":[{"index":0,"delta":'
        self._behind = b',"usage":null}\n\n' if wanted.usage else b"}\n\n"
        self._tail = b',"logprobs":null,"finish_reason":null}]' + self._behind
        self._said = self._head + b'{"content":', b"}" + self._tail
        self._thought = self._head + b'{"reasoning_content":', b"}" + self._tail

    def encode(self, events: Sequence[Event]) -> bytes:
        """What came together as its chunks."""
        self.taken += len(events)
        return self._chunks(events[0]) if len(events) == 1 else b"".join(map(self._chunks, events))

    def _chunks(self, event: Event) -> bytes:
        if type(event) is Token:
            return b"%b%b%b" % (self._said[0], encode(event.text), self._said[1])
        match event:
            case Thinking():
                return b"%b%b%b" % (self._thought[0], encode(event.text), self._thought[1])
            case TurnStart():
                return self._delta({"role": "assistant", "content": ""})
            case ToolCall():
                self._calls += 1
                return self._delta({"tool_calls": [{"index": self._calls - 1, **_call(event)}]})
            case Usage():
                self._usage = event
                return b""
            case Error():
                return b"data: %b\n\n" % encode_failure(event)[1] + _END
            case Done():
                return self._last(event) + _END
        written = self._written(event)
        return self._delta({"content": written}) if written else b""

    def _delta(self, delta: Mapping[str, Any]) -> bytes:
        return self._head + encode(delta) + self._tail

    def _last(self, done: Done) -> bytes:
        finish = _finish(done, self._calls).encode()
        last = self._head + b'{},"logprobs":null,"finish_reason":"%b"}]' % finish + self._behind
        if not self._with_usage or self._usage is None:
            return last
        return last + b"data: %b\n\n" % encode({**self._front, "choices": [], "usage": _usage(self._usage)})

    def whole(self, events: Sequence[Event]) -> tuple[int, bytes]:
        """Status and body where no stream is wanted, of a turn that is over."""
        last = events[-1]
        if isinstance(last, Error):
            return encode_failure(last)
        assert isinstance(last, Done)
        calls = [_call(event) for event in events if isinstance(event, ToolCall)]
        usage = next(event for event in events if isinstance(event, Usage))
        finish = _finish(last, len(calls))
        choice = {"index": 0, "message": self._message(events, calls), "logprobs": None, "finish_reason": finish}
        whole = {**self._front, "object": "chat.completion", "choices": [choice], "usage": _usage(usage)}
        return 200, encode(whole)

    def _message(self, events: Iterable[Event], calls: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        said = "".join([event.text if type(event) is Token else self._written(event) for event in events])
        thought = "".join([event.text for event in events if isinstance(event, Thinking)])
        more = {"reasoning_content": thought, "tool_calls": calls}
        content = None if calls and not said else said
        return {"role": "assistant", "content": content, "refusal": None, **{k: v for k, v in more.items() if v}}


def encode_failure(error: Error) -> tuple[int, bytes]:
    """Status and body for a turn that failed: what the model's server said no with, if it did."""
    status = error.status if error.status is not None and 400 <= error.status < 500 else _STATUS[error.code]
    return status, encode(_error(error.message, status, error.code))


def encode_rejection(error: BadRequest) -> tuple[int, Mapping[str, Any]]:
    """Status and body for a request that is refused."""
    return error.status, _error(error.message, error.status, error.code, error.field)


def list_models(names: Iterable[str], created: int) -> Mapping[str, Any]:
    """What answers `GET /v1/models`."""
    return {"object": "list", "data": [describe_model(name, created) for name in (DEFAULT_NAME, *sorted(names))]}


def describe_model(name: str, created: int) -> Mapping[str, Any]:
    """What answers `GET /v1/models/{name}`."""
    return {"id": name, "object": "model", "created": created, "owned_by": "brain"}


def _error(message: str, status: int, code: str, param: str | None = None) -> Mapping[str, Any]:
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": _CODES.get(code, code)}}


def _finish(done: Done, calls: int) -> str:
    return "tool_calls" if calls else "length" if done.stop_reason in _CUT else "stop"


def _call(event: ToolCall) -> Mapping[str, Any]:
    function = {"name": event.name, "arguments": encode(event.params).decode()}
    return {"id": event.call_id, "type": "function", "function": function}


def _usage(usage: Usage) -> Mapping[str, Any]:
    """In OpenAI's own words, but for `estimated`, which it does not know."""
    counted: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.reused_tokens is not None:
        counted["prompt_tokens_details"] = {"cached_tokens": usage.reused_tokens}
    if usage.estimated:
        counted["estimated"] = True
    return counted
