"""Decode answers of model servers: each read of bytes becomes one chunk."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeGuard, TypeVar, cast, get_args, get_origin

import httpx
import msgspec

from brain.errors import ContentFiltered, ModelError, UnreadableData, for_log
from brain.events import Thinking
from brain.messages import Chunk, Finish, PassUsage, PromptProgress
from brain.models import failures
from brain.models.event_template import EventTemplate
from brain.models.finish_reasons import find_ending
from brain.models.lines import Splitter
from brain.models.model import Take
from brain.models.native_calls import MAX_NAME, UNREADABLE, CallAssembler, CallDelta
from brain.net.client import BodyStream, stream_body
from brain.net.transport import DIRECT_BYTES, Body
from brain.text import join_surrogates

T = TypeVar("T")

log = logging.getLogger("brain")

STEP_BYTES = DIRECT_BYTES
STEP_LENGTH = 8 * 1024
"""Bytes decoded, and characters yielded, before other tasks run: up to a few milliseconds."""
PAUSE_BYTES = 1024
"""Bytes of a read that is so short that other tasks need not run before its end."""
MAX_REPAIR_BYTES = 16 * 1024
"""Maximum size of a broken item to repair; a repair takes a hundred times as long as decoding."""
MAX_COUNT = 10**9
"""More tokens than any prompt, answer or context has."""
MAX_PARAMETERS = 10**15
"""More parameters than any model has."""
MAX_INTEGER_DIGITS = 20
MAX_LOGGED = 100
"""Unknown finish reasons that are remembered, so that each is logged once."""


class EndOfReply:
    """The server reported the end."""


class BrokenCall:
    """The server could not read a call of the model."""


@dataclass(frozen=True, slots=True)
class UnknownFinish:
    """The server reported the end with a reason that Brain does not know. Without a text, it is a failure."""

    reason: str


ReplyPart = Chunk | CallDelta | BrokenCall | UnknownFinish | EndOfReply | ModelError
"""What an item means. An error ends the reply."""


class ReportedValues:
    """Reads the values that a server reports; logs the first bad one of an answer."""

    def __init__(self) -> None:
        self._has_logged = False

    def count(self, name: str, value: Any, most: int = MAX_COUNT) -> int | None:
        """Return a number of tokens, or None for a missing or bad one."""
        if value is None or (type(value) is int and 0 <= value <= most):  # not a bool
            return value
        if isinstance(value, str) and value.isdecimal() and len(value) <= MAX_INTEGER_DIGITS:
            return self.count(name, int(value), most)
        if isinstance(value, float) and value.is_integer():
            return self.count(name, int(value), most)
        self.reject(name, value)
        return None

    def parameters(self, name: str, value: Any) -> int | None:
        """Return a number of a model's parameters, or None for a missing or bad one."""
        return self.count(name, value, MAX_PARAMETERS) or None

    def text(self, name: str, value: Any) -> str | None:
        """Return a text, or None for a missing or bad one."""
        if value is None or isinstance(value, str):
            return value
        self.reject(name, value)
        return None

    def end(self, reason: Any) -> Sequence[ReplyPart]:
        """Return what a finish reason means; nothing for one that has no meaning."""
        if not reason or reason in ("null", "none"):
            return ()
        match find_ending(str(reason)):
            case "failure":
                return (failures.from_event(f"finish reason {reason!s:.100}"),)
            case "broken_call":
                return BrokenCall(), Finish("stop")
            case None:
                _log_unknown(str(reason)[:100])
                return (UnknownFinish(str(reason)[:100]),)
            case ending:
                return (Finish(ending),)

    def reject(self, name: str, value: Any) -> None:
        """Log a bad value, which the caller ignores."""
        if not self._has_logged:
            self._has_logged = True
            log.warning("ignoring a bad %s from the model server: %s", name, for_log(f"{value!r:.100}"))


@lru_cache(maxsize=MAX_LOGGED)
def _log_unknown(reason: str) -> None:
    """Log an unknown finish reason, the first time that it comes."""
    log.warning("unknown finish reason from the model server: %s", for_log(repr(reason)))


class Reply:
    """The body of one answer, without I/O.

    Args:
        splitter: Finds the items in the bytes.
        decode: Returns the parts of one item.
        template: Learns the common structure of items that contain only a text.
        offered: The names of the tools in the request.

    Attributes:
        has_items: True after the first item.
        has_ended: True once the server has reported why the model stopped; later failures do not matter.
        is_over: True if nothing more will come.
        error: Error reported by the server, or raised by the decoder; the reply is over then.
    """

    __slots__ = (
        "_calls", "_decode", "_has_text", "_pending_surrogate", "_splitter", "_template", "_unreadable",
        "error", "has_ended", "has_items", "is_over",
    )  # fmt: skip

    def __init__(
        self,
        splitter: Splitter,
        decode: Callable[[bytes], Sequence[ReplyPart]],
        template: EventTemplate | None = None,
        offered: Collection[str] = (),
    ) -> None:
        self.has_items = False
        self.has_ended = False
        self.is_over = False
        self.error: ModelError | None = None
        self._splitter = splitter
        self._decode = decode
        self._template = template
        self._pending_surrogate = ""  # of a character, until its other half comes
        self._calls = CallAssembler(offered)
        self._has_text = False
        self._unreadable: UnreadableData | None = None  # the first item that was ignored

    def feed(self, data: bytes) -> list[Chunk]:
        """Decode the bytes of one read; store an error and return the chunks before it."""
        chunks = self._decode_with_template(data) if self._splitter.is_between else None
        if chunks is not None:
            return chunks
        try:
            whole = self._splitter.feed(data)
        except ModelError as error:
            self._fail(error)
            return []
        return self._read(whole)

    def close(self) -> list[Chunk]:
        """Decode the rest at the end of the body."""
        chunks = self._read(self._splitter.close())
        if not self.has_ended:
            self.error = self.error or self._unreadable
        return chunks

    def cut(self) -> Sequence[Chunk]:
        """Return the calls that wait for an end that does not come, if others run already."""
        return self._calls.finish(is_cut=True) if self._calls.has_started else ()

    def _decode_with_template(self, items: bytes) -> list[Chunk] | None:
        """Return the text of items that all match the template; None if they must be decoded one by one."""
        if self._template is None or self._pending_surrogate or self.is_over or self._calls.calls:
            return None
        texts = self._template.texts(items)
        if texts is None:
            return None
        text = texts[0] if len(texts) == 1 else "".join(texts)
        return [text] if text else []

    def _read(self, items: bytes) -> list[Chunk]:
        if (decoded := self._decode_with_template(items)) is not None:
            return decoded
        chunks: list[Chunk] = []
        texts: list[str] = []
        for item in filter(None, self._splitter.items(items)):
            if self.is_over:
                break
            if self._template is not None and (same := self._template.texts(item + self._splitter.END)) is not None:
                texts += same
                continue
            parts: Sequence[ReplyPart] = ()
            try:
                if (data := self._splitter.data(item)) is not None:
                    self.has_items = True
                    parts = self._decode(data)
            except UnreadableData as error:
                parts = self._ignore(error)
            except ModelError as error:
                parts = (error,)
            if self._calls.has_started:  # text beside a call must not end the pass before it
                parts = sorted(parts, key=lambda part: not isinstance(part, CallDelta))
            for part in parts:
                if isinstance(part, str):
                    texts.append(part)
                else:
                    self._add_texts(texts, chunks)
                    self._add_part(part, chunks)
            if self._template is not None and len(parts) == 1 and isinstance(parts[0], str):
                self._template.learn(item, parts[0])
        self._add_texts(texts, chunks)
        if len(chunks) > 1:
            chunks.sort(key=lambda chunk: isinstance(chunk, PassUsage))  # a turn needs the finish before the usage
        return chunks

    def _ignore(self, error: UnreadableData) -> Sequence[ReplyPart]:
        """Ignore an item that cannot be read, unless a part of a call may be lost with it."""
        if self._calls.is_waiting:
            return (error,)
        if self._unreadable is None:
            self._unreadable = error
            log.warning("ignoring a part of an answer: %s", error)
        return ()

    def _add_texts(self, texts: list[str], chunks: list[Chunk]) -> None:
        """Move the texts to the chunks, as one."""
        if texts:
            text, self._pending_surrogate = join_surrogates(self._pending_surrogate + "".join(texts))
            texts.clear()
            self._has_text = True
            if text:
                self._add_text(text, chunks)

    def _add_text(self, text: str | Thinking, chunks: list[Chunk]) -> None:
        """Add a text. After a started call, it ends the pass, so it is left out while other calls may still come."""
        if (isinstance(text, Thinking) or text.strip()) and self._calls.has_started:
            chunks += self._calls.end_by_text()
            if self._calls.is_waiting:
                text = ""  # the server is not silent
        chunks.append(text)

    def _add_part(self, part: ReplyPart, chunks: list[Chunk]) -> None:
        match part:
            case Thinking():
                text, self._pending_surrogate = join_surrogates(self._pending_surrogate + part.text)
                if chunks and isinstance(last := chunks[-1], Thinking):
                    text = last.text + text
                    chunks.pop()
                if text:
                    self._add_text(Thinking(text), chunks)
            case CallDelta():
                chunks += self._calls.add(part)
            case BrokenCall():
                self._calls.lose(UNREADABLE)
            case ContentFiltered():
                log.info("the model server filtered the answer: %s", for_log(part.detail))
                self._end(Finish("content_filter"), chunks)
                self.is_over = True
            case ModelError():
                self._fail(part)
            case UnknownFinish() if not self._has_content:
                self._fail(failures.from_event(f"finish reason {part.reason}, without a text"))
            case Finish() | UnknownFinish() | EndOfReply() if self._unreadable and not self._has_content:
                self._fail(self._unreadable)
            case Finish() | UnknownFinish() | EndOfReply():
                self._end(part, chunks)
            case _:
                chunks.append(part)

    @property
    def _has_content(self) -> bool:
        return self._has_text or bool(self._calls.calls)

    def _end(self, part: Finish | UnknownFinish | EndOfReply, chunks: list[Chunk]) -> None:
        has_finished = self.has_ended or part == Finish("stop")
        self.has_ended = True
        self.is_over = isinstance(part, EndOfReply)
        if self._pending_surrogate:
            self._pending_surrogate = ""
            chunks.append("\ufffd")
        chunks += self._calls.finish(is_cut=not has_finished)
        if not isinstance(part, EndOfReply):
            chunks.append(part if isinstance(part, Finish) else Finish("stop"))

    def _fail(self, error: ModelError) -> None:
        self.is_over, self.error = True, error


Answer = tuple[BodyStream, str]
"""The body of a response, and its content type."""


async def stream_chunks(
    request: Callable[[], Awaitable[Answer]], reply: Reply, url: str = "", take: Take | None = None
) -> AsyncGenerator[Chunk, None]:
    """Send one request and yield its chunks. Closing the generator closes the connection.

    Args:
        take: Gets a text that arrives while the generator waits, instead of the generator, unless it returns False.

    Raises:
        ModelError: There is no answer, or only a part of one.
    """
    steps: list[Chunk] = []

    def take_read(data: bytes) -> bool:
        """Decode a read. Return False if the generator must continue."""
        steps.extend(reply.feed(data))
        if len(steps) == 1 and not reply.is_over and _is_short(steps[0]) and take is not None and take(steps[0]):
            steps.clear()
        return not steps and not reply.is_over

    with failures.translate_errors(url):
        try:
            body, content_type = await request()
        except ContentFiltered as error:
            log.info("the model server filtered the request: %s", for_log(error.detail))
            yield Finish("content_filter")
            return
        del request  # with the whole prompt
        async with aclosing(body):
            if take is not None and isinstance(body, Body):
                body.set_callback(take_read)
            try:
                async for data in body:
                    is_long = bool(steps) or len(data) > PAUSE_BYTES
                    while steps or (data and not reply.is_over):
                        if not steps:
                            part, data = data[:STEP_BYTES], data[STEP_BYTES:]
                            steps += reply.feed(part)
                            del part  # free it while the next read is awaited
                        steps[:] = _split_long_texts(steps)
                        while steps:
                            yield steps.pop(0)
                            if steps and is_long:
                                await asyncio.sleep(0)
                        if data:
                            await asyncio.sleep(0)
                    if reply.is_over:
                        break
            except httpx.HTTPError:
                if not reply.has_ended:
                    for call in reply.cut():
                        yield call
                    raise
    steps += _split_long_texts(reply.close())
    while steps:
        yield steps.pop(0)
        if steps:
            await asyncio.sleep(0)
    if reply.has_ended:
        return
    for call in reply.cut():
        yield call
    if reply.error is not None:
        raise reply.error
    if not reply.has_items and not content_type.startswith("text/event-stream"):
        raise failures.no_stream(content_type)
    raise ModelError("model_failed", "The model server ended the answer early.", "the stream had no end event")


def _is_short(chunk: Chunk) -> TypeGuard[str | Thinking]:
    """Whether a chunk is a text of one step."""
    text = chunk.text if isinstance(chunk, Thinking) else chunk
    return isinstance(text, str) and len(text) <= STEP_LENGTH


def _split_long_texts(chunks: list[Chunk]) -> list[Chunk]:
    """Return the same chunks with long texts cut into steps."""
    steps: list[Chunk] = []
    for chunk in chunks:
        text = chunk.text if isinstance(chunk, Thinking) else chunk
        if not isinstance(text, str) or len(text) <= STEP_LENGTH:
            steps.append(chunk)
            continue
        cuts = (text[start : start + STEP_LENGTH] for start in range(0, len(text), STEP_LENGTH))
        steps += map(Thinking, cuts) if isinstance(chunk, Thinking) else cuts
    return steps


async def open_answer(response: httpx.Response, *, is_resumed: bool, has_tools: bool = False) -> Answer:
    """Return the body of a streamed response and its content type.

    Raises:
        ModelError: The response is not a stream; it is closed.
        PrefillRefused: The server does not continue a started answer.
        ToolsRefused: The server rejects the tools.
    """
    body = stream_body(response)
    content_type = response.headers.get("Content-Type", "")
    if response.status_code == 200 and not content_type.startswith("text/html"):
        return body, content_type
    async with aclosing(response), aclosing(body):  # closing an unread body does not close the response
        if response.status_code == 200:
            raise failures.no_stream(content_type)
        raise await failures.from_response(response, body, is_resumed=is_resumed, has_tools=has_tools)


def decode_item(data: bytes, decoder: "msgspec.json.Decoder[T]", checks: ReportedValues) -> T | None:
    """Decode one item, without fields that have unexpected types; None for anything that is no object, such as `ping`.

    Broken characters, from servers that cut them in two, become U+FFFD.

    Raises:
        ModelError: The item reports a failure.
        UnreadableData: It cannot be read.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = error
        if len(data) <= MAX_REPAIR_BYTES:
            with suppress(ValueError, RecursionError):
                value = json.loads(data.decode(errors="replace"))
                if isinstance(value, dict):
                    return cast("T", _convert(value, decoder.type, "event", checks))
    if failures.is_failure_text(data):
        raise failures.from_event(data[:2000].decode(errors="replace"))
    if data.lstrip().startswith(b"{"):
        raise UnreadableData(f"{problem}: {data[:200]!r}")
    if data.strip():
        checks.reject("event", data)
    return None


def _convert(value: Any, kind: Any, name: str, checks: ReportedValues) -> Any:
    """Convert a JSON value to a type. What does not fit becomes None, and is left out of lists."""
    with suppress(msgspec.ValidationError):
        return msgspec.convert(value, kind)
    for one in get_args(kind) or (kind,):
        if get_origin(one) is list and isinstance(value, list | dict):
            items = value if isinstance(value, list) else [value]
            found = [_convert(item, get_args(one)[0], name, checks) for item in items]
            return [item for item in found if item is not None]
        if isinstance(value, dict) and isinstance(one, type) and issubclass(one, msgspec.Struct):
            fields = [field for field in msgspec.structs.fields(one) if field.encode_name in value]
            values = {f.name: _convert(value[f.encode_name], f.type, f.encode_name, checks) for f in fields}
            return one(**values)
    checks.reject(name, value)
    return None


def find_failure(data: bytes, error: Any, checks: ReportedValues) -> Sequence[ReplyPart]:
    """Return the failure that an item without an answer reports; nothing without one."""
    if not error:
        item = decode_item(data, _object_decoder, checks)
        error = None if item is None else failures.find_error(item)
    return report_error(error) if error else ()


_object_decoder: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


def report_error(error: Any) -> Sequence[ReplyPart]:
    """Return what an error in the stream means: a call that the server cannot read, or a failure."""
    if failures.is_broken_call(error):
        return BrokenCall(), Finish("stop"), EndOfReply()
    return (failures.from_event(error),)


def read_calls(value: Any, checks: ReportedValues) -> Iterator[CallDelta]:
    """Yield the pieces of calls in the `tool_calls` of a message."""
    for call in [value] if isinstance(value, dict) else value if isinstance(value, list) else ():
        if not isinstance(call, dict):
            continue
        function = call.get("function")
        fields = {**call, **function} if isinstance(function, dict) else call  # some servers send no `function`
        call_id = str(call["id"]) if type(call.get("id")) is int else call.get("id")
        yield CallDelta(
            checks.count("tool_calls[].index", fields.get("index")),
            (checks.text("tool_calls[].id", call_id) or "").strip()[:MAX_NAME],
            (checks.text("tool_calls[].function.name", fields.get("name")) or "")[:MAX_NAME],
            max((fields.get(name) for name in _ARGUMENTS), key=lambda value: (bool(value), value is not None)),
        )


_ARGUMENTS = ("arguments", "parameters", "args", "input")


def decode_progress(progress: Any, checks: ReportedValues) -> PromptProgress | None:
    """Return how much of the prompt llama.cpp has read; None without possible numbers."""
    fields = progress if isinstance(progress, dict) else {}
    cache, processed, total = (checks.count(name, fields.get(name)) for name in ("cache", "processed", "total"))
    if cache is None or processed is None or total is None or not cache <= processed <= total:
        return None
    return PromptProgress(processed - cache, total - cache, cache)
