"""Wraps any stream of chunks: finds specialist calls in it and runs them, without a server."""

import asyncio
import base64
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, closing, suppress
from inspect import isawaitable
from typing import Any, Unpack

from brain.concurrency import iterate
from brain.errors import BrainError
from brain.events import Error, Event, Limits, MarkerSyntax, SpecialistError, SpecialistResult, Thinking, Token
from brain.markers.neutralize import BLOCK_BYTES
from brain.markers.scanner import PassEnd, ReasoningEnd, Scanner
from brain.messages import Attachment, Call, Chunk, History, renumber, sniff
from brain.models.model import Model, PassRequest
from brain.plugins.registry import Registry
from brain.plugins.schema import Schema
from brain.plugins.specialist import Options, Specialist
from brain.protocols.encoding import citation_data
from brain.runtime.run import Run, RunOptions
from brain.settings import machine_time_zone
from brain.strategies.mono import Mono
from brain.turn.call_group import CallGroup
from brain.turn.deadline import Deadline
from brain.turn.setup import Timeouts, TurnSetup
from brain.turn.state import TurnState
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest

SYNTAX: tuple[MarkerSyntax, ...] = ("bracket", "function_call")

AnyStream = AsyncIterable[Any] | Iterable[Any]
ResumeStream = Callable[[str], AnyStream | Awaitable[AnyStream]]

_registry: Registry | None = None


def process_registry() -> Registry:
    """Return the registry of the process: installed specialists, discovered at first use, and registered ones."""
    global _registry
    if _registry is None:
        _registry = Registry().discover()
    return _registry


def register(
    name: str, description: str, parameters: Schema, handler: Callable[..., Any], **options: Unpack[Options]
) -> None:
    """Add a tool with a JSON Schema. Brain calls `handler` with the parameters as one mapping.

    Raises:
        RegistrationError: The message has the name and the problem. For a taken name, it has both origins.
    """
    process_registry().register(name, description, parameters, handler, **options)


def list_specialists() -> list[dict[str, Any]]:
    """Return descriptions of the specialists of this process, like `GET /v1/specialists`."""
    return [entry.describe() for entry in process_registry().values()]


async def stream_with_specialists(
    base_stream: AnyStream,
    request_context: Mapping[str, Any] | None,
    max_specialist_calls: int = 5,
    *,
    resume: ResumeStream | None = None,
    specialists: Registry | Iterable[Specialist[..., Any]] | None = None,
) -> AsyncGenerator[dict[str, Any], None]:
    """Run the specialists that a model's stream calls, and yield the stream with their results.

    Args:
        base_stream: An iterable or async iterable of strings, or of chunks with a `token`, whose other fields are
            dropped. Other chunks are yielded unchanged.
        request_context: Values for specialists: `attachments` (or `media`, `ocr_context`), `user`, `conversation_id`,
            `message`, `time_zone`. They never override parameters.
        max_specialist_calls: Limit of calls.
        resume: Called with the assistant's message so far, including blocks. Returns the stream that continues it.
            Brain then closes each stream at its first call. Without `resume`, each result replaces its marker, and the
            same stream continues.
        specialists: The specialists to offer (default: the installed and registered ones).

    Yields:
        `{"token": …}`, `{"thinking": …}`, and `{"type": "specialist_result" | "specialist_error", "name", "call_id",
        "params", "text"?, "citations"?, "code"?, "reason"?}`.

    Raises:
        ValueError: `max_specialist_calls` is negative.
    """
    if max_specialist_calls < 0:
        raise ValueError(f"max_specialist_calls is {max_specialist_calls}; it must be 0 or more")
    if specialists is None:
        registry = process_registry()
    elif isinstance(specialists, Registry):
        registry = specialists
    else:
        registry = Registry()
        for specialist in specialists:
            registry.add(specialist)
    context = request_context or {}
    user = context.get("user")
    request = TurnRequest(
        message=str(context.get("message") or ""),
        user=None if user is None else str(user),
        limits=Limits(calls=max_specialist_calls, calls_per_specialist=max_specialist_calls),
        syntax=SYNTAX,
        time_zone=str(context.get("time_zone") or machine_time_zone()),
        attachments=_read_attachments(context),
    )
    history = History(str(context.get("conversation_id") or "library"))
    model = StreamModel(base_stream, resume)
    chunks = (_read_in_place if resume is None else _read_run)(model, registry, request, history)
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk


async def _read_in_place(
    model: "StreamModel", registry: Registry, request: TurnRequest, history: History
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the stream with each marker replaced by its result."""
    events: list[Event] = []
    setup = TurnSetup(request=request, history=history, models=[model], registry=registry)
    state = TurnState(setup)
    state.emit, state.max_block_bytes = events.extend, BLOCK_BYTES
    with closing(Deadline(request.limits, lambda: None)) as state.deadline:
        async with aclosing(_scan(model.first)) as pieces:
            async for piece in pieces:
                if isinstance(piece, PassEnd):
                    return
                if isinstance(piece, Call):
                    calls = CallGroup(setup, state, turn_pass=0)
                    try:
                        calls.start(piece)
                        calls.close()
                        await calls.wait()
                    finally:
                        await calls.end("cancelled")
                    for chunk in filter(None, map(_make_chunk, events)):
                        yield chunk
                    events.clear()
                elif isinstance(piece, str):
                    yield {"token": piece}
                elif not isinstance(piece, ReasoningEnd):
                    yield {"thinking": piece.text} if isinstance(piece, Thinking) else piece


async def _scan(stream: AnyStream) -> AsyncGenerator[Any, None]:
    """Yield the scanner's pieces of the texts of a stream, and all other chunks unchanged."""
    scanner = Scanner(SYNTAX, stops=False)
    async with aclosing(iterate(stream)) as chunks:
        async for chunk in chunks:
            text = _get_text(chunk)
            for piece in [chunk] if text is None else scanner.feed(text):
                yield piece
    for piece in scanner.close():
        yield piece


async def _read_run(
    model: "StreamModel", registry: Registry, request: TurnRequest, history: History
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the chunks of a whole turn. Each stream ends at its calls, and `resume` continues it."""
    timeouts = Timeouts(silence=request.limits.turn_seconds)
    setup = TurnSetup(
        request=request, history=history, models=[model], registry=registry, timeouts=timeouts, automatic=False
    )
    turn = Turn(setup, Mono)
    run = Run(turn, "library", RunOptions(replayable=False))
    run.log.subscribe(model.pause)
    async with aclosing(run.events()) as batches:
        async for events in batches:
            for event in events:
                while model.other_chunks:
                    yield model.other_chunks.popleft()
                if chunk := _make_chunk(event):
                    yield chunk
                elif isinstance(event, Error) and not (model.is_complete and event.code == "model_failed"):
                    raise model.error or BrainError(event.message)
            model.resume_after(events)


class StreamModel(Model):
    """The caller's streams as a model: the first one, then one for each resume.

    Attributes:
        other_chunks: Chunks without text that are still to yield.
        error: Exception of a stream. The caller gets it unchanged.
        is_complete: Whether the newest stream ended by itself. It can be empty.
    """

    def __init__(self, first: AnyStream, resume: ResumeStream | None) -> None:
        super().__init__("library")
        self.first = first
        self._resume = resume
        self.other_chunks: deque[Any] = deque()
        self.error: Exception | None = None
        self.is_complete = False
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._unread_batches = 0  # batches of text that the caller has not read yet

    def pause(self, events: Sequence[Event], frames: bytes) -> None:
        """Pause the stream after text until the caller has read the text."""
        if _is_text(events):
            self._unread_batches += 1
            self._may_read.clear()
        else:
            self._may_read.set()

    def resume_after(self, events: Sequence[Event]) -> None:
        """Continue the stream once the caller has read all text."""
        self._unread_batches -= _is_text(events)
        if not self._unread_batches:
            self._may_read.set()

    async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        """Read the next of the caller's streams."""
        self.is_complete = False
        try:
            stream = self.first
            if request.turn_pass > 0 and self._resume is not None:
                result = self._resume(request.messages[-1].content)
                stream = await result if isawaitable(result) else result
            async with aclosing(iterate(stream)) as chunks:
                async for chunk in chunks:
                    text = _get_text(chunk)
                    if text is not None:
                        yield text
                        await self._may_read.wait()
                    else:
                        self.other_chunks.append(chunk)
            self.is_complete = True
        except Exception as error:
            self.error = error
            raise


def _is_text(events: Sequence[Event]) -> bool:
    return all(isinstance(event, Token | Thinking) for event in events)


def _get_text(chunk: Any) -> str | None:
    if isinstance(chunk, str):
        return chunk
    token = chunk.get("token") if isinstance(chunk, Mapping) else None
    return token if isinstance(token, str) else None


def _make_chunk(event: Event) -> dict[str, Any] | None:
    match event:
        case Token(text=text):
            return {"token": text}
        case Thinking(text=text):
            return {"thinking": text}
        case SpecialistResult():
            citations = [*map(citation_data, event.citations)]
            call = {"name": event.name, "call_id": event.call_id, "params": dict(event.params)}
            return {"type": "specialist_result", **call, "text": event.text, "citations": citations}
        case SpecialistError():
            call = {"name": event.name, "call_id": event.call_id, "params": dict(event.params or {})}
            return {"type": "specialist_error", **call, "code": event.code, "reason": event.reason}
    return None


def _read_attachments(context: Mapping[str, Any]) -> tuple[Attachment, ...]:
    attachments: list[Attachment] = []
    for key in ("attachments", "media", "ocr_context"):
        value = context.get(key) or ()
        items = [value] if isinstance(value, Mapping | Attachment | bytes | str) else value
        attachments += [_read_attachment(item, key) for item in items]
    return renumber(tuple(attachments), after=0)


def _read_attachment(item: Any, key: str) -> Attachment:
    if isinstance(item, Attachment):
        return item
    fields: Mapping[str, Any] = (
        item if isinstance(item, Mapping) else {"text" if isinstance(item, str) else "data": item}
    )
    data, text = fields.get("data"), fields.get("text")
    if isinstance(data, str):
        with suppress(ValueError):
            data = base64.b64decode(data, validate=True)
    elif data is None and isinstance(text, str):
        data = text.encode(errors="replace")
    if not isinstance(data, bytes):
        raise TypeError(f"request_context[{key!r}]: each file needs `data` (bytes or base64) or `text`")
    name = str(fields.get("name") or fields.get("filename") or "file")
    return Attachment(0, name, sniff(data, str(fields.get("type") or "text/plain")), data)
