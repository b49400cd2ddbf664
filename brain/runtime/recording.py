"""Records a turn: what Brain asked the models, what came back and when. `brain replay` reads the recording.

A recording is a list of lines: one `TurnLine`, then the requests and events, and one `EndLine`.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, fields, replace
from typing import Any, cast, get_args

import msgspec

from brain.assist.assistance import Assistance
from brain.errors import Interruption, ModelError, ModelErrorCode, PrefillRefused, ToolsRefused
from brain.events import (
    ApprovalRequired,
    Event,
    Notice,
    Resume,
    Role,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    TurnStart,
    Usage,
)
from brain.messages import (
    Attachment,
    Call,
    Chunk,
    Exchange,
    Message,
    PassRecord,
    Time,
    sniff,
)
from brain.models.model import Model, PassRequest
from brain.prompts.assisted import INFORMATION
from brain.prompts.blocks import result_text
from brain.protocols.native.encoder import EVENT_NAMES, event_data
from brain.runtime.commands import CancelTurn, Command, Decide, SteerTurn, StopTurn
from brain.text import utf8_size
from brain.turn.setup import TurnSetup
from brain.turn_request import TurnRequest

VERSION = 1
MAX_LENGTH = 16 * 1024 * 1024
"""Characters of messages and chunks in one recording. What follows is left out."""
MIN_QUOTED = 24
"""Characters of a file by which its beginning is found in a message."""
CHUNK_LENGTH = 64
"""Characters to count for a chunk besides its text."""

CallEvent = SpecialistStart | SpecialistProgress | ApprovalRequired | SpecialistResult | SpecialistError
CALL_EVENTS = get_args(CallEvent)
CHUNKS: Mapping[str, Any] = {kind.__name__: kind for kind in get_args(Chunk) if kind is not str}
"""The chunks that are not text, by their names in a recording."""


class RecordedFile(msgspec.Struct, frozen=True):
    """An attachment without its content."""

    id: int
    name: str
    type: str
    size: int


class RecordedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model that the turn could use."""

    name: str
    resume: Resume
    context_tokens: int | None = None
    is_demo: bool = False
    is_base: bool = False
    template: str = ""
    accepts_tools: bool = False


class Setup(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a turn can use.

    Attributes:
        models: The model of the turn and those that take over.
        role_models: Models for some roles of a strategy.
        specialists: Names of the specialists, with the kinds of files that start them.
        silence: Time limits of the turn, in seconds, like the next two. See `Turn`.
        assistance: What Brain did for a model that calls no specialists.
    """

    models: tuple[RecordedModel, ...]
    role_models: dict[Role, tuple[RecordedModel, ...]] = {}
    specialists: dict[str, tuple[str, ...]] = {}
    silence: float = 60.0
    first_token: float | None = None
    approval_seconds: float = 600.0
    assistance: Assistance | None = None


class TurnLine(msgspec.Struct, tag="turn", omit_defaults=True):
    """The request for the turn, and what its events depend on.

    Attributes:
        protocol: Protocol of the client.
        request: The fields of the `TurnRequest` that are not the default, without attachments.
        earlier: Number of earlier exchanges.
        trimmed: As in `History`, like `after_idle`.
        recalled: The sentence about recalled facts.
        relevant: The relevant ones.
        fixed_text: Answer of a report on tasks if all models fail.
    """

    turn_id: str
    conversation_id: str
    user: str | None
    protocol: str
    began: Time | None
    request: dict[str, Any]
    setup: Setup
    version: int = VERSION
    files: tuple[RecordedFile, ...] = ()
    earlier: int = 0
    trimmed: int = 0
    after_idle: bool = False
    recalled: str = ""
    relevant: tuple[str, ...] = ()
    fixed_text: str = ""


class RecordedError(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error of a request. An error without a code is a fault of Brain."""

    code: ModelErrorCode | None = None
    message: str = ""
    recoverable: bool = True
    status: int | None = None
    retry_after: int | None = None
    is_prefill_refused: bool = False
    are_tools_refused: bool = False


class PassLine(msgspec.Struct, tag="pass", omit_defaults=True):
    """One request to a model.

    Attributes:
        attempt: Number of the request within its pass, from 1.
        ms: Milliseconds from the start of the turn, like `ended_ms` and the times of the chunks.
        messages: The messages, with `images` without their content. `size` is the original size in bytes of a message
            without the content of its files.
        tools: Tools in the form of the OpenAI API.
        chunks: Milliseconds, and a text or an object with the name of the chunk's type.
        ended_ms: When the server ended the stream. None if Brain closed it, or it failed.
        report: Times, usage and outcome of the pass.
    """

    number: int
    attempt: int
    model: str
    ms: float
    messages: tuple[dict[str, Any], ...] = ()
    tools: tuple[Any, ...] = ()
    chunks: list[tuple[float, Any]] = []
    ended_ms: float | None = None
    error: tuple[float, RecordedError] | None = None
    role: Role | None = None
    round: int = 0
    report: PassRecord | None = None


class EventLine(msgspec.Struct, tag="event", omit_defaults=True):
    """An event of a call, or the notice of a repeated one, as in the native protocol."""

    ms: float
    event: str
    data: dict[str, Any]


class ControlLine(msgspec.Struct, tag="control", omit_defaults=True):
    """A command to the turn: an added message, the reason of a stop, or a decision about a call."""

    ms: float
    steer: str = ""
    stop: Interruption | None = None
    call_id: str = ""
    approve: bool = False


class EndLine(msgspec.Struct, tag="end", omit_defaults=True):
    """How the turn ended. `is_cut` means that the recording is longer than `MAX_LENGTH`, so it cannot be played."""

    ms: float
    outcome: str
    text: str
    usage: Usage
    calls: tuple[Call, ...] = ()
    unkept: str = ""
    is_cut: bool = False


Line = TurnLine | PassLine | EventLine | ControlLine | EndLine


class _Attempt:
    """One request to a model, as it is recorded."""

    def __init__(
        self,
        turn_pass: int,
        model: str,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        seconds: float,
    ) -> None:
        self.turn_pass = turn_pass
        self.model = model
        self.messages = messages
        self.tools = tools
        self.began = seconds
        self.chunks: list[tuple[float, Chunk]] = []
        self.ended: float | None = None
        self.error: tuple[float, Exception] | None = None


class Recorder:
    """Records one turn. It only appends to lists; `lines` does the work, in a thread."""

    def __init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._began = self._now()
        self._attempts: list[_Attempt] = []
        self._events: list[tuple[float, Event]] = []
        self._unkept = ""
        self._left = MAX_LENGTH

    def take(self, events: Sequence[Event]) -> None:
        """Record events of the log. Text is not recorded: it follows from the chunks."""
        for event in events:
            if isinstance(event, TurnStart):
                self._began = self._now()
            elif isinstance(event, CALL_EVENTS) or (isinstance(event, Notice) and event.code == "repeated_call"):
                self._events.append((self._now(), event))
            elif isinstance(event, Notice) and event.code == "unkept":
                self._unkept = event.text

    async def open_stream(self, model: Model, number: int, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        """Stream a pass with this number, and record the request and the chunks."""
        now = self._now
        self._left -= sum(len(text) for message in request.messages for text in message.texts)
        messages = request.messages if self._left > 0 else ()
        attempt = _Attempt(number, model.name, messages, request.tools, now())
        self._attempts.append(attempt)
        async with aclosing(model.stream(replace(request, take=None))) as stream:  # each chunk has its time
            try:
                async for chunk in stream:
                    if self._left > 0:
                        self._left -= _length(chunk)
                        attempt.chunks.append((now(), chunk))
                    yield chunk
            except Exception as error:
                attempt.error = now(), error
                raise
            attempt.ended = now()

    def lines(self, setup: TurnSetup, exchange: Exchange, commands: Sequence[tuple[float, Command]]) -> Iterator[Line]:
        """Yield the recording of a turn that has ended, in the order of time.

        Args:
            commands: What clients asked for, with the times on the clock of the event loop.
        """
        request, history = setup.request, setup.history
        yield TurnLine(
            exchange.turn_id,
            history.id,
            request.user,
            exchange.wire,
            exchange.started,
            _request_fields(request),
            describe_setup(setup),
            files=tuple(
                RecordedFile(file.id, file.name, sniff(file.data, file.type), len(file.data))
                for file in request.attachments
            ),
            earlier=len(history.exchanges),
            trimmed=history.trimmed,
            after_idle=history.after_idle,
            recalled=history.recalled.sentence,
            relevant=tuple(item.text for item in history.recalled.relevant if item.kind == "fact"),
            fixed_text="" if history.task_news is None else history.task_news.fixed_text,
        )
        rest: list[PassLine | EventLine | ControlLine] = [*self._pass_lines(exchange, setup.attachments)]
        for seconds, event in self._events:
            rest.append(EventLine(self._ms(seconds), EVENT_NAMES[type(event)], event_data(event)))
        for seconds, command in commands:
            match command:
                case SteerTurn(message):
                    rest.append(ControlLine(self._ms(seconds), steer=message))
                case StopTurn(reason):
                    rest.append(ControlLine(self._ms(seconds), stop=reason))
                case CancelTurn():
                    rest.append(ControlLine(self._ms(seconds), stop="cancelled"))
                case Decide(call_id, approve):
                    rest.append(ControlLine(self._ms(seconds), call_id=call_id, approve=approve))
        yield from sorted(rest, key=lambda line: line.ms)
        yield EndLine(
            float(exchange.duration_ms),
            exchange.outcome,
            exchange.answer,
            exchange.total_usage,
            calls=tuple(exchange.calls),
            unkept=self._unkept,
            is_cut=self._left <= 0,
        )

    def _pass_lines(self, exchange: Exchange, files: Sequence[Attachment]) -> Iterator[PassLine]:
        roles = {one.n: one.role for one in exchange.rounds}
        records = {one.number: one for one in exchange.passes}
        attempts: Counter[int] = Counter()
        totals = Counter(attempt.turn_pass for attempt in self._attempts)
        for attempt in self._attempts:
            attempts[attempt.turn_pass] += 1
            found = records.get(attempt.turn_pass)
            is_last = attempts[attempt.turn_pass] == totals[attempt.turn_pass]
            yield PassLine(
                attempt.turn_pass,
                attempts[attempt.turn_pass],
                attempt.model,
                self._ms(attempt.began),
                tuple(_record_message(message, files) for message in attempt.messages),
                tuple(attempt.tools),
                [(self._ms(seconds), _record_chunk(chunk)) for seconds, chunk in attempt.chunks],
                None if attempt.ended is None else self._ms(attempt.ended),
                None if attempt.error is None else (self._ms(attempt.error[0]), _record_error(attempt.error[1])),
                None if found is None else roles.get(found.round),
                0 if found is None else found.round,
                found if is_last else None,
            )

    def _ms(self, seconds: float) -> float:
        return round((seconds - self._began) * 1000, 3)


def describe_setup(setup: TurnSetup) -> Setup:
    """Return what a turn can use."""

    def describe(models: Sequence[Model]) -> tuple[RecordedModel, ...]:
        return msgspec.convert(models, tuple[RecordedModel, ...], from_attributes=True)

    return Setup(
        describe(setup.models),
        {role: describe(models) for role, models in setup.role_models.items()},
        {one.name: tuple(sorted(one.activates_on)) for one in setup.usable},
        setup.timeouts.silence,
        setup.timeouts.first_token,
        setup.timeouts.approval,
        setup.assistance,
    )


def _request_fields(request: TurnRequest) -> dict[str, Any]:
    left_out = ("attachments", "reused_files", "replaces", "request_id", "barge_in", "user")
    values = {field.name: getattr(request, field.name) for field in fields(request) if field.name not in left_out}
    defaults = {field.name: field.default for field in fields(request)}
    changed = {name: value for name, value in values.items() if value != defaults[name]}
    return cast("dict[str, Any]", msgspec.to_builtins(changed))


def _record_message(message: Message, files: Sequence[Attachment]) -> dict[str, Any]:
    """Leave out images, and the content of files, which `templates.attachment_text` puts into messages."""
    content = message.content
    for file in files:
        start = content.find(f"(Content of attachment {file.id}:)")
        end = content.rfind(f"(End of attachment {file.id})")
        if 0 <= start < end:
            content = f"{content[:start]}(Content of attachment {file.id} is not recorded.)\n{content[end:]}"
        elif content.startswith(INFORMATION):
            content = _leave_out(content, file)
    recorded: dict[str, Any] = msgspec.to_builtins(replace(message, content=content, images=()))
    del recorded["images"]
    if message.images:
        recorded["images"] = [{"type": sniff(image, "image"), "size": len(image)} for image in message.images]
    if content is not message.content:
        recorded["size"] = utf8_size(message.content)
    return recorded


def _leave_out(content: str, file: Attachment) -> str:
    """Leave out the beginning of a file, which a message to an assisted model has without marks."""
    text = result_text(file.text or "").strip()
    start = content.find(text[:MIN_QUOTED], len(INFORMATION)) if text else -1
    if start < 0:
        return content
    pairs = enumerate(zip(content[start:], text, strict=False))
    length = next((at for at, (one, other) in pairs if one != other), min(len(text), len(content) - start))
    return f"{content[:start]}(Content of attachment {file.id} is not recorded.){content[start + length :]}"


def _length(chunk: Chunk) -> int:
    text = chunk if isinstance(chunk, str) else getattr(chunk, "text", "") or getattr(chunk, "arguments", "")
    return CHUNK_LENGTH + len(text)


def _record_chunk(chunk: Chunk) -> Any:
    return chunk if isinstance(chunk, str) else {type(chunk).__name__: asdict(chunk)}


def _record_error(error: Exception) -> RecordedError:
    if not isinstance(error, ModelError):
        return RecordedError()
    return RecordedError(
        error.code,
        error.message,
        error.recoverable,
        error.status,
        error.retry_after,
        isinstance(error, PrefillRefused),
        isinstance(error, ToolsRefused),
    )
