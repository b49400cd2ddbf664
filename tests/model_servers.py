"""Model servers for tests: they speak the real protocols on a real port, and answer what a test gives them."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from background_server import beside

Json = Any

FALLBACK = (
    "{%- for message in messages -%}\n"
    "  {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}\n"
    "{%- endfor -%}\n{%- if add_generation_prompt -%}\n  {{- '<|im_start|>assistant\n' -}}\n{%- endif -%}"
)
"""The chat template that llama.cpp reports for a model without one."""
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


@dataclass(frozen=True)
class Reasoning:
    """Reasoning, in the field where this server has it."""

    text: str
    field: str = "reasoning_content"


@dataclass(frozen=True)
class Raw:
    """Bytes of the body, written as they are."""

    data: bytes


@dataclass(frozen=True)
class Wait:
    """Silence."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """The connection ends here: reset, or closed in the middle of the body."""

    reset: bool = False


Item = str | Reasoning | Raw | Wait | Cut


@dataclass(frozen=True)
class Pass:
    """What one generating request is answered with.

    Attributes:
        items: texts and the like, one frame each; may be endless.
        every: seconds before each of them.
        finish: why it stopped; None leaves the last frame out.
        usage: prompt, completion and cached tokens.
        done: whether `[DONE]` is sent, where the protocol has it.
        echo: whether the started answer is repeated first.
        newline: how lines end.
        piece: how many bytes go into one write; 0 for one frame each, -1 for all at once.
        status, answer, kind: of a request that is refused, or not answered with a stream.
    """

    items: Iterable[Item] = ()
    every: float = 0.0
    finish: str | None = "stop"
    usage: tuple[int, int, int | None] | None = (10, 3, None)
    done: bool = True
    echo: bool = False
    newline: bytes = b"\n"
    piece: int = 0
    status: int = 200
    answer: Json = None
    kind: str = "application/json"


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Json


@dataclass
class Generation:
    """What became of one generating request: when its text held the marker, what followed it, when it ended."""

    text: str = ""
    marker_at: float | None = None
    tokens_after_marker: int = 0
    closed_at: float | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def seconds_until_closed(self) -> float:
        """From the end of the marker until the client closed the connection."""
        assert self.marker_at is not None
        assert self.closed_at is not None
        return self.closed_at - self.marker_at


class Server:
    """A server that answers generating requests with `passes`, one after the other, and others with `answers`.

    Args:
        answers: status and JSON (or bytes) by method and path; they may change while it runs.
        marker: text from whose end on tokens are counted.
        refuses_prefill: the text of the 400 for a message of the assistant to continue.
        silent: accept connections and never answer.

    Attributes:
        requests: all requests, in order.
        generations: one entry per generating request with a response 200.
        marked: set when an answer has held the marker.
    """

    generating: tuple[str, ...] = ()
    content_type = ""

    def __init__(
        self,
        *passes: Pass,
        answers: Mapping[str, tuple[int, Json]] | None = None,
        marker: str = "]",
        refuses_prefill: str | None = None,
        silent: bool = False,
    ) -> None:
        self.requests: list[ReceivedRequest] = []
        self.generations: list[Generation] = []
        self.marked = asyncio.Event()
        self.url = ""
        self._passes = iter(passes)
        self.answers = dict(answers or {})
        self._marker = marker
        self._refuses_prefill = refuses_prefill
        self._silent = silent
        self._connections: set[asyncio.Task[None]] = set()

    def play(self, *passes: Pass) -> None:
        """Answer with these from now on, and forget what was before."""
        self._passes = iter(passes)
        self.requests.clear()
        self.generations.clear()

    @property
    def lines(self) -> list[str]:
        """Method and path of all requests."""
        return [f"{request.method} {request.path}" for request in self.requests]

    @property
    def generated(self) -> list[Json]:
        """The bodies of the generating requests."""
        return [request.body for request in self.requests if request.path in self.generating]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{self.prefix}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    prefix = ""

    def close(self) -> None:
        """Accept no more connections."""
        self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if self._silent:
                await asyncio.sleep(3600)
            request = await _read(reader)
            if request is not None:
                self.requests.append(request)
                await self.answer(request, reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def answer(
        self, request: ReceivedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if request.method != "POST" or request.path not in self.generating:
            status, answer = self.answers.get(f"{request.method} {request.path}", (404, {"error": "not found"}))
            await _send(writer, status, answer)
            return
        if self._refuses_prefill is not None and request.body["messages"][-1]["role"] == "assistant":
            await _send(writer, 400, self.refusal(self._refuses_prefill))
            return
        plan = next(self._passes)
        if plan.status != 200 or plan.answer is not None:
            await _send(writer, plan.status, plan.answer, plan.kind)
            return
        generation = Generation()
        self.generations.append(generation)
        watcher = asyncio.create_task(_watch(reader, generation))
        try:
            await self._generate(plan, request.body, generation, writer)
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(generation.closed.wait(), 1)
            watcher.cancel()

    async def _generate(self, plan: Pass, body: Json, generation: Generation, writer: asyncio.StreamWriter) -> None:
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: {self.content_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        )
        held = b""
        async for frame in self._frames(plan, body, generation):
            if isinstance(frame, Cut):
                await _write(writer, held)
                await writer.drain()
                await asyncio.sleep(0.02)
                if frame.reset:
                    writer.transport.abort()
                generation.closed.set()
                return
            held += frame.replace(b"\n", plan.newline) if plan.newline != b"\n" else frame
            if plan.piece == 0:
                await _write(writer, held)
                held = b""
            while 0 < plan.piece <= len(held):
                await _write(writer, held[: plan.piece])
                held = held[plan.piece :]
            if generation.closed.is_set():
                return
        await _write(writer, held)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        with suppress(OSError):  # a client that has been killed
            writer.write_eof()

    async def _frames(self, plan: Pass, body: Json, generation: Generation) -> AsyncIterator[bytes | Cut]:
        for frame in self.opening(body):
            yield frame
        started = body["messages"][-1] if plan.echo else {"role": ""}
        echo = [started["content"]] if started["role"] == "assistant" else []
        for item in (*echo, *plan.items) if isinstance(plan.items, Sequence) else plan.items:
            await asyncio.sleep(item.seconds if isinstance(item, Wait) else plan.every)
            if isinstance(item, Wait):
                continue
            yield item if isinstance(item, Cut) else item.data if isinstance(item, Raw) else self.frame(item, body)
            if isinstance(item, str):
                self._count(generation, item)
        for frame in self.closing(plan, body):
            yield frame

    def _count(self, generation: Generation, item: str) -> None:
        if generation.marker_at is not None:
            generation.tokens_after_marker += 1
        generation.text += item
        if generation.marker_at is None and self._marker in generation.text:
            generation.marker_at = time.monotonic()
            self.marked.set()

    def refusal(self, text: str) -> Json:
        """How this server words a 400."""
        raise NotImplementedError

    def opening(self, body: Json) -> Iterator[bytes]:
        """Frames before the first text."""
        yield from ()

    def frame(self, item: str | Reasoning, body: Json) -> bytes:
        """One text."""
        raise NotImplementedError

    def closing(self, plan: Pass, body: Json) -> Iterator[bytes]:
        """Frames after the last text."""
        raise NotImplementedError


@contextmanager
def in_thread(server: Server) -> Iterator[Server]:
    """The server on a loop of its own, for tests that are not asynchronous."""

    async def serve(ready: threading.Event, over: threading.Event) -> None:
        async with server:
            ready.set()
            await asyncio.to_thread(over.wait)

    with beside(serve):
        yield server


async def _watch(reader: asyncio.StreamReader, generation: Generation) -> None:
    with suppress(ConnectionError):
        await reader.read()
    generation.closed_at = time.monotonic()
    generation.closed.set()


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *rest = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
    data = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(method, path, headers, json.loads(data) if data else None)


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if data:
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()
        await asyncio.sleep(0)


async def _send(writer: asyncio.StreamWriter, status: int, answer: Json, kind: str = "application/json") -> None:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    writer.write(
        f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()


class OpenAIServer(Server):
    """Any server of the chat completions API; `owned_by` tells which one it is."""

    generating: tuple[str, ...] = ("/v1/chat/completions",)
    content_type = "text/event-stream"
    prefix = "/v1"

    def refusal(self, text: str) -> Json:
        return {"error": {"message": text, "type": "invalid_request_error", "param": None, "code": 400}}

    def opening(self, body: Json) -> Iterator[bytes]:
        yield self._chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])

    def frame(self, item: str | Reasoning, body: Json) -> bytes:
        delta = {"content": item} if isinstance(item, str) else {item.field: item.text}
        return self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])

    def closing(self, plan: Pass, body: Json) -> Iterator[bytes]:
        if plan.finish is not None:
            yield self._chunk([{"index": 0, "delta": {}, "finish_reason": plan.finish}])
        if plan.usage is not None and body.get("stream_options", {}).get("include_usage"):
            prompt, completion, cached = plan.usage
            usage: Json = {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            }
            if cached is not None:
                usage["prompt_tokens_details"] = {"cached_tokens": cached}
            yield self._chunk([], usage=usage)
        if plan.done:
            yield b"data: [DONE]\n\n"

    def _chunk(self, choices: Sequence[Json], **more: Json) -> bytes:
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        chunk = {**head, "choices": choices, "usage": None, **more}
        return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


class LlamaCppServer(OpenAIServer):
    """llama.cpp's own server, which also completes a prompt.

    Args:
        template: the chat template that it reports.
        answers: for other requests, over its own answers.
    """

    generating = (*OpenAIServer.generating, "/completion")

    def __init__(
        self, *passes: Pass, template: str = TEMPLATE, answers: Mapping[str, tuple[int, Json]] | None = None
    ) -> None:
        props = {"chat_template": template, "bos_token": "<bos>", "eos_token": "<eos>"}
        own = {**models("m", owned_by="llamacpp"), "GET /props": (200, props)}
        super().__init__(*passes, answers={**own, **(answers or {})})
        self._has_prompt = "POST /apply-template" in self.answers

    async def answer(
        self, request: ReceivedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if request.path == "/apply-template" and not self._has_prompt:
            lines = [f"<{message['role']}>{message['content']}" for message in request.body["messages"]]
            end = [] if request.body["messages"][-1]["role"] == "assistant" else ["<assistant>"]
            self.answers["POST /apply-template"] = 200, {"prompt": "\n".join(lines + end)}
        await super().answer(request, reader, writer)

    def opening(self, body: Json) -> Iterator[bytes]:
        if "prompt" not in body:
            yield from super().opening(body)
        elif body.get("return_progress"):
            for processed in (0, 7):
                progress = {"total": 7, "cache": 0, "processed": processed, "time_ms": processed}
                yield self._event(content="", tokens=[0], stop=False, prompt_progress=progress)

    def frame(self, item: str | Reasoning, body: Json) -> bytes:
        if "prompt" not in body:
            return super().frame(item, body)
        assert isinstance(item, str)
        return self._event(content=item, tokens=[7], stop=False, tokens_predicted=1, tokens_evaluated=7)

    def closing(self, plan: Pass, body: Json) -> Iterator[bytes]:
        if "prompt" not in body:
            yield from super().closing(plan, body)
        elif plan.finish is not None and plan.usage is not None:
            prompt, completion, cached = plan.usage
            counts = {"tokens_evaluated": prompt, "tokens_predicted": completion, "timings/cache_n": cached}
            kind = "limit" if plan.finish == "length" else "eos"
            last = {"content": "", "stop": True, "stop_type": kind, **counts}
            yield b"data: " + json.dumps({name: last[name] for name in body["response_fields"]}).encode() + b"\n\n"

    def _event(self, **fields: Json) -> bytes:
        event = {"index": 0, **fields, "id_slot": -1}
        return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"


class OllamaServer(Server):
    """Ollama's own API."""

    generating = ("/api/chat",)
    content_type = "application/x-ndjson"

    def refusal(self, text: str) -> Json:
        return {"error": text}

    def frame(self, item: str | Reasoning, body: Json) -> bytes:
        message = {"content": item} if isinstance(item, str) else {"content": "", "thinking": item.text}
        return self._line(message={"role": "assistant", **message}, done=False)

    def closing(self, plan: Pass, body: Json) -> Iterator[bytes]:
        if plan.finish is not None:
            counts: Json = {}
            if plan.usage is not None:
                counts = {
                    "prompt_eval_count": plan.usage[0],
                    "eval_count": plan.usage[1],
                    "eval_duration": 4_000_000,
                }
            yield self._line(message={"role": "assistant", "content": ""}, done=True, done_reason=plan.finish, **counts)

    def _line(self, **fields: Json) -> bytes:
        line = {"model": "m", "created_at": "2026-11-21T00:00:00.123456789Z", **fields}
        return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def models(*ids: str, owned_by: str, **more: Json) -> dict[str, tuple[int, Json]]:
    """The answer to `GET /v1/models`."""
    data = [{"id": name, "object": "model", "owned_by": owned_by, **more} for name in ids]
    return {"GET /v1/models": (200, {"object": "list", "data": data})}
