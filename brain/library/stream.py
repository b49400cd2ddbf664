"""Brain without a server. Wraps a stream of chunks; the specialists are found and run all the same."""

import asyncio
import base64
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, closing
from inspect import isawaitable
from typing import Any, Unpack

from brain.concurrency import iterate
from brain.errors import BrainError, Refused
from brain.events import Error, Event, Limits, Resume, SpecialistError, SpecialistResult, SyntaxName, Thinking, Token
from brain.markers.neutralize import BLOCK_BYTES
from brain.markers.scanner import Scanner, Stop
from brain.messages import Attachment, Call, Chunk, EmbeddingCheck, History, Message, renumbered, sniff
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
from brain.turn_request import UNSAID, Sampling, TurnRequest

SYNTAX: tuple[SyntaxName, ...] = ("bracket", "function_call")

AnyStream = AsyncIterable[Any] | Iterable[Any]
ResumeStream = Callable[[str], AnyStream | Awaitable[AnyStream]]

_installed: Registry | None = None


def installed() -> Registry:
    """The process's own registry: what is installed, and what `register` added. Filled at first use."""
    global _installed
    if _installed is None:
        _installed = Registry().discover()
    return _installed


def register(
    name: str, description: str, parameters: Schema, handler: Callable[..., Any], **options: Unpack[Options]
) -> None:
    """Adds a tool that brings its JSON Schema; `handler` is called with the parameters as one mapping.

    Raises:
        RegistrationError: naming it and what is wrong; for a taken name, both origins.
    """
    installed().register(name, description, parameters, handler, **options)


def list_specialists() -> list[dict[str, Any]]:
    """What is registered in this process, as `GET /v1/specialists` tells it."""
    return [entry.describe() for entry in installed().values()]


async def stream_with_specialists(
    base_stream: AnyStream,
    request_context: Mapping[str, Any] | None,
    max_specialist_calls: int = 5,
    *,
    resume: ResumeStream | None = None,
    specialists: Registry | Iterable[Specialist[..., Any]] | None = None,
) -> AsyncGenerator[dict[str, Any], None]:
    """Runs the specialists that a model's stream asks for, and gives the stream with their results.

    Args:
        base_stream: an iterable, asynchronous or not, of texts or of chunks with a `token`, of which only the text
            is kept. Other chunks pass as they are.
        request_context: what specialists may know: `attachments` (or `media`, `ocr_context`), `user`,
            `conversation_id`, `message`, `time_zone`; None tells them nothing. It never overrides parameters.
        max_specialist_calls: how many calls are run.
        resume: called with the assistant's message so far, blocks and all; gives the stream that goes on from there.
            The first stream is then closed at its first call. Without it the result stands where the marker stood, and
            the rest of the same stream follows.
        specialists: those that may be called; the installed and registered ones when left out.

    Yields:
        `{"token": …}`, `{"thinking": …}`, and `{"type": "specialist_result" | "specialist_error", "name", "call_id",
        "params", "text"?, "citations"?, "code"?, "reason"?}`.

    Raises:
        ValueError: when `max_specialist_calls` is negative.
    """
    if max_specialist_calls < 0:
        raise ValueError(f"max_specialist_calls is {max_specialist_calls}; it must be 0 or more")
    context = request_context or {}
    registry = _registry(specialists)
    ask = _ask(context, max_specialist_calls)
    conversation_id = str(context.get("conversation_id") or "library")
    if resume is None:
        chunks = _in_place(base_stream, registry, ask, conversation_id)
    else:
        chunks = _resumed(_Streams(base_stream, resume), registry, ask, conversation_id)
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk


async def _in_place(
    stream: AnyStream, registry: Registry, request: TurnRequest, conversation_id: str
) -> AsyncGenerator[dict[str, Any], None]:
    """Each result stands where its marker stood; the same stream follows."""
    events: list[Event] = []
    history = History(conversation_id)
    with closing(Deadline(request.limits, lambda reason: None)) as deadline:
        names = [specialist.name for specialist in registry.usable()]
        policy = CallPolicy(request, history, registry, allowed=registry.is_allowed, usable=names)
        context = CallContext(
            request, history, registry, _Streams(stream, None), policy, Approvals(0.0), deadline, events.extend,
            max_block_bytes=BLOCK_BYTES,
        )  # fmt: skip
        async with aclosing(_pieces(stream)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Stop):
                    return
                if isinstance(piece, Call):
                    calls = CallGroup(context, turn_pass=0)
                    try:
                        calls.start(piece)
                        calls.close()
                        await calls.wait()
                    finally:
                        await calls.end("cancelled")
                    for chunk in filter(None, map(_chunk, events)):
                        yield chunk
                    events.clear()
                elif isinstance(piece, str):
                    yield {"token": piece}
                else:
                    yield {"thinking": piece.text} if isinstance(piece, Thinking) else piece


async def _pieces(stream: AnyStream) -> AsyncGenerator[Any, None]:
    """What the scanner finds in the stream's text; chunks that are no text, as they are."""
    scanner = Scanner(SYNTAX, stops=False)
    async with aclosing(iterate(stream)) as chunks:
        async for chunk in chunks:
            text = _text(chunk)
            for piece in [chunk] if text is None else scanner.feed(text):
                yield piece
    for piece in scanner.close():
        yield piece


async def _resumed(
    model: "_Streams", registry: Registry, request: TurnRequest, conversation_id: str
) -> AsyncGenerator[dict[str, Any], None]:
    """A whole turn: the stream is closed at a call, and another one continues."""
    history = History(conversation_id)
    turn = Turn(request, history, model, registry, silence=request.limits.turn_seconds, automatic=False)
    run = Run(turn, request, "library", lambda report: None, replayable=False, unread_seconds=None)
    run.log.subscribe(model.pace)
    async with aclosing(run.events()) as batches:
        async for events in batches:
            for event in events:
                while model.others:
                    yield model.others.popleft()
                if chunk := _chunk(event):
                    yield chunk
                elif isinstance(event, Error) and not (model.ended and event.code == "model_failed"):
                    raise model.error or BrainError(event.message)
            model.take(events)


class _Streams:
    """The caller's streams as a model: the first one, then one for each resume; `others` are chunks without text."""

    name = "library"
    is_demo = False
    resume: Resume = "prefill"
    context_tokens = None
    sees_images = False

    template = ""

    def __init__(self, first: AnyStream, resume: ResumeStream | None) -> None:
        self._first = first
        self._resume = resume
        self.others: deque[Any] = deque()
        self.error: Exception | None = None
        self.ended = False  # by itself: a caller's stream may be empty
        self.is_wanted = asyncio.Event()
        self._untaken = 0  # batches of text that the caller has not taken yet
        self.is_wanted.set()

    def pace(self, events: Sequence[Event], frames: bytes) -> None:
        """After text, the caller's stream is not read on before the caller has taken it."""
        if _is_text(events):
            self._untaken += 1
            self.is_wanted.clear()
        else:
            self.is_wanted.set()

    def take(self, events: Sequence[Event]) -> None:
        """The caller has taken the chunks of these events."""
        self._untaken -= _is_text(events)
        if not self._untaken:
            self.is_wanted.set()

    async def stream(
        self, sent: Sequence[Message], turn_pass: int = 0, sampling: Sampling = UNSAID
    ) -> AsyncGenerator[Chunk, None]:
        """The next of the caller's streams."""
        self.ended = False
        try:
            stream = self._first
            if turn_pass > 0 and self._resume is not None:
                answer = self._resume(sent[-1].content)
                stream = await answer if isawaitable(answer) else answer
            async with aclosing(iterate(stream)) as chunks:
                async for chunk in chunks:
                    text = _text(chunk)
                    if text is not None:
                        yield text
                        await self.is_wanted.wait()
                    else:
                        self.others.append(chunk)
            self.ended = True
        except Exception as error:
            self.error = error  # the caller's own error, raised to the caller as it is
            raise

    async def describe(self, image: bytes, question: str) -> str:
        """A stream sees nothing."""
        raise Refused("no model that sees images is connected")

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A stream has no embeddings."""
        raise Refused("no model with embeddings is connected")

    async def check_embeddings(self) -> EmbeddingCheck:
        """A stream has no embeddings."""
        raise Refused("no model with embeddings is connected")


def _is_text(events: Sequence[Event]) -> bool:
    return all(isinstance(event, Token | Thinking) for event in events)


def _text(chunk: Any) -> str | None:
    if isinstance(chunk, str):
        return chunk
    token = chunk.get("token") if isinstance(chunk, Mapping) else None
    return token if isinstance(token, str) else None


def _chunk(event: Event) -> dict[str, Any] | None:
    match event:
        case Token(text=text):
            return {"token": text}
        case Thinking(text=text):
            return {"thinking": text}
        case SpecialistResult():
            citations = [{"id": c.id, "title": c.title, **({"url": c.url} if c.url else {})} for c in event.citations]
            told = {"name": event.name, "call_id": event.call_id, "params": dict(event.params)}
            return {"type": "specialist_result", **told, "text": event.text, "citations": citations}
        case SpecialistError():
            told = {"name": event.name, "call_id": event.call_id, "params": dict(event.params or {})}
            return {"type": "specialist_error", **told, "code": event.code, "reason": event.reason}
    return None


def _registry(specialists: Registry | Iterable[Specialist[..., Any]] | None) -> Registry:
    if specialists is None:
        return installed()
    if isinstance(specialists, Registry):
        return specialists
    registry = Registry()
    for specialist in specialists:
        registry.add(specialist)
    return registry


def _ask(context: Mapping[str, Any], calls: int) -> TurnRequest:
    user = context.get("user")
    return TurnRequest(
        message=str(context.get("message") or ""),
        user=None if user is None else str(user),
        limits=Limits(calls=calls, calls_per_specialist=calls),
        syntax=SYNTAX,
        time_zone=str(context.get("time_zone") or machine_time_zone()),
        attachments=_attachments(context),
    )


def _attachments(context: Mapping[str, Any]) -> tuple[Attachment, ...]:
    found: list[Attachment] = []
    for key in ("attachments", "media", "ocr_context"):
        value = context.get(key) or ()
        items = [value] if isinstance(value, Mapping | Attachment | bytes | str) else value
        found += [_attachment(item, key) for item in items]
    return renumbered(tuple(found), after=0)


def _attachment(item: Any, key: str) -> Attachment:
    if isinstance(item, Attachment):
        return item
    fields: Mapping[str, Any] = (
        item if isinstance(item, Mapping) else {"text" if isinstance(item, str) else "data": item}
    )
    data, text = fields.get("data"), fields.get("text")
    if isinstance(data, str):
        data = _decoded(data)
    elif data is None and isinstance(text, str):
        data = text.encode(errors="replace")
    if not isinstance(data, bytes):
        raise TypeError(f"request_context[{key!r}]: each file needs data (bytes, or base64) or text")
    name = str(fields.get("name") or fields.get("filename") or "file")
    return Attachment(0, name, sniff(data, str(fields.get("type") or "text/plain")), data)


def _decoded(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return None
