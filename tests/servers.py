"""Model servers for tests: they speak the real protocols, and say exactly what a test tells them to."""

import json
from collections.abc import Iterator, Sequence

from answering import Json, Pass, Server, ThinkerRun


class OpenAIServer(Server):
    """Any server of the chat completions API; `owned_by` tells which one it is."""

    generating = "/v1/chat/completions"
    content_type = "text/event-stream"
    prefix = "/v1"

    def refusal(self, text: str) -> Json:
        return {"error": {"message": text, "type": "invalid_request_error", "param": None, "code": 400}}

    def opening(self, body: Json) -> Iterator[bytes]:
        yield self._chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])

    def frame(self, said: str | ThinkerRun) -> bytes:
        delta = {"content": said} if isinstance(said, str) else {said.field: said.text}
        return self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])

    def closing(self, told: Pass, body: Json) -> Iterator[bytes]:
        if told.finish is not None:
            yield self._chunk([{"index": 0, "delta": {}, "finish_reason": told.finish}])
        if told.usage is not None and body.get("stream_options", {}).get("include_usage"):
            prompt, completion, cached = told.usage
            usage: Json = {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            }
            if cached is not None:
                usage["prompt_tokens_details"] = {"cached_tokens": cached}
            yield self._chunk([], usage=usage)
        if told.done:
            yield b"data: [DONE]\n\n"

    def _chunk(self, choices: Sequence[Json], **more: Json) -> bytes:
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        chunk = {**head, "choices": choices, "usage": None, **more}
        return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


class OllamaServer(Server):
    """Ollama's own API."""

    generating = "/api/chat"
    content_type = "application/x-ndjson"

    def refusal(self, text: str) -> Json:
        return {"error": text}

    def frame(self, said: str | ThinkerRun) -> bytes:
        message = {"content": said} if isinstance(said, str) else {"content": "", "thinking": said.text}
        return self._line(message={"role": "assistant", **message}, done=False)

    def closing(self, told: Pass, body: Json) -> Iterator[bytes]:
        if told.finish is not None:
            counts: Json = {}
            if told.usage is not None:
                counts = {"prompt_eval_count": told.usage[0], "eval_count": told.usage[1], "eval_duration": 4_000_000}
            yield self._line(message={"role": "assistant", "content": ""}, done=True, done_reason=told.finish, **counts)

    def _line(self, **fields: Json) -> bytes:
        line = {"model": "m", "created_at": "2026-11-21T00:00:00.123456789Z", **fields}
        return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def models(*ids: str, owned_by: str, **more: Json) -> dict[str, tuple[int, Json]]:
    """The answer to `GET /v1/models`."""
    data = [{"id": name, "object": "model", "owned_by": owned_by, **more} for name in ids]
    return {"GET /v1/models": (200, {"object": "list", "data": data})}
