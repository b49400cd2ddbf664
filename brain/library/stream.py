"""Brain without a server: finds calls in any stream of chunks, and runs the specialists."""

import asyncio
import base64
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, closing, suppress
from inspect import isawaitable
from typing import Any, Unpack

from brain.concurrency import iterate
from brain.errors import BrainError, Refused
from brain.events import Error, Event, Limits, Resume, SpecialistError, SpecialistResult, SyntaxName, Thinking, Token
from brain.markers.neutralize import BLOCK_BYTES
from brain.markers.scanner import PassEnd, Scanner
from brain.messages import Attachment, Call, Chunk, EmbeddingCheck, History, Message, renumber, sniff
from brain.plugins.registry import Registry
from brain.plugins.schema import Schema
from brain.plugins.specialist import Options, Specialist
from brain.runtime.run import Run
from brain.settings import machine_time_zone
from brain.turn.approvals import Approvals
from brain.turn.call_group import CallContext, CallGroup
from brain.turn.call_policy import CallPolicy
from brain.turn.deadline import Deadline
from brain.turn.turn import Turn
from brain.turn_request import DEFAULT_SAMPLING, Sampling, TurnRequest

SYNTAX: tuple[SyntaxName, ...] = ("bracket", "function_call")

AnyStream = AsyncIterable[Any] | Iterable[Any]
ResumeStream = Callable[[str], AnyStream | Awaitable[AnyStream]]

_registry: Registry | None = None


def process_registry() -> Registry:
    """Return the specialists that are installed, and those that `register` added. Found at first use."""
    global _registry
    if _registry is None:
        _registry = Registry().discover()
    return _registry


def register(
    name: str, description: str, parameters: Schema, handler: Callable[..., Any], **options: Unpack[Options]
) -> None:
    """Add a tool that brings its JSON Schema. `handler` is called with the parameters as one mapping.

    Raises:
        RegistrationError: naming it and what is wrong; for a name that exists, both origins.
    """
    process_registry().register(name, description, parameters, handler, **options)


def list_specialists() -> list[dict[str, Any]]:
    """Return the specialists of this process, as `GET /v1/specialists` does."""
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
        base_stream: an iterable, asynchronous or not, of texts or of chunks with a `token`, whose other fields are
            dropped. All other chunks are yielded as they are.
        request_context: what specialists can know: `attachments` (or `media`, `ocr_context`), `user`,
            `conversation_id`, `message`, `time_zone`. It never overrides parameters.
        max_specialist_calls: how many calls run.
        resume: called with the assistant's message so far, including blocks; returns the stream that continues it. The
            first stream is then closed at its first call. Without it, results take the places of their markers, and
            the rest of the same stream follows.
        specialists: those that can be called; the installed and registered ones by default.

    Yields:
        `{"token": …}`, `{"thinking": …}`, and `{"type": "specialist_result" | "specialist_error", "name", "call_id",
        "params", "text"?, "citations"?, "code"?, "reason"?}`.

    Raises:
        ValueError: when `max_specialist_calls` is negative.
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
    """Yield each result in the place of its marker; the same stream follows."""
    events: list[Event] = []
    with closing(Deadline(request.limits, lambda reason: None)) as deadline:
        names = [specialist.name for specialist in registry.usable()]
        policy = CallPolicy(request, history, registry, allowed=registry.is_allowed, usable=names)
        context = CallContext(
            request, history, registry, model, policy, Approvals(0.0), deadline, events.extend,
            max_block_bytes=BLOCK_BYTES,
        )  # fmt: skip
        async with aclosing(_scan(model.first)) as pieces:
            async for piece in pieces:
                if isinstance(piece, PassEnd):
                    return
                if isinstance(piece, Call):
                    calls = CallGroup(context, turn_pass=0)
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
                else:
                    yield {"thinking": piece.text} if isinstance(piece, Thinking) else piece


async def _scan(stream: AnyStream) -> AsyncGenerator[Any, None]:
    """Yield what the scanner finds in the texts of a stream, and all other chunks as they are."""
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
    """Yield a whole turn: a stream is closed at its calls, and another one continues."""
    turn = Turn(request, history, model, registry, silence=request.limits.turn_seconds, automatic=False)
    run = Run(turn, request, "library", lambda report: None, replayable=False, unread_seconds=None)
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


class StreamModel:
    """The caller's streams as a model: the first one, then one for each resume.

    Attributes:
        other_chunks: chunks without text that are still to be yielded.
        error: what a stream raised; the caller gets it as it is.
        is_complete: whether the newest stream ended by itself. It can be empty.
    """

    name = "library"
    is_demo = False
    resume: Resume = "prefill"
    context_tokens = None
    sees_images = False
    template = ""

    def __init__(self, first: AnyStream, resume: ResumeStream | None) -> None:
        self.first = first
        self._resume = resume
        self.other_chunks: deque[Any] = deque()
        self.error: Exception | None = None
        self.is_complete = False
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._unread_batches = 0  # of text, which the caller has not read yet

    def pause(self, events: Sequence[Event], frames: bytes) -> None:
        """After text, do not read the stream before the caller has read that text."""
        if _is_text(events):
            self._unread_batches += 1
            self._may_read.clear()
        else:
            self._may_read.set()

    def resume_after(self, events: Sequence[Event]) -> None:
        """Read on when these events were the last text that the caller had not read."""
        self._unread_batches -= _is_text(events)
        if not self._unread_batches:
            self._may_read.set()

    async def stream(
        self, messages: Sequence[Message], turn_pass: int = 0, sampling: Sampling = DEFAULT_SAMPLING
    ) -> AsyncGenerator[Chunk, None]:
        """Read the next of the caller's streams."""
        self.is_complete = False
        try:
            stream = self.first
            if turn_pass > 0 and self._resume is not None:
                result = self._resume(messages[-1].content)
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

    async def describe(self, image: bytes, question: str) -> str:
        """A stream sees no images."""
        raise Refused("no model that sees images is connected")

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A stream has no embeddings."""
        raise Refused("no model with embeddings is connected")

    async def check_embeddings(self) -> EmbeddingCheck:
        """A stream has no embeddings."""
        raise Refused("no model with embeddings is connected")


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
            citations = [{"id": c.id, "title": c.title, **({"url": c.url} if c.url else {})} for c in event.citations]
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
        raise TypeError(f"request_context[{key!r}]: each file needs data (bytes, or base64) or text")
    name = str(fields.get("name") or fields.get("filename") or "file")
    return Attachment(0, name, sniff(data, str(fields.get("type") or "text/plain")), data)
