"""Decode answers of model servers: each read of bytes becomes one chunk."""

import asyncio
import json
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import msgspec

from brain.errors import ModelError
from brain.events import Thinking
from brain.messages import Chunk, Finish, NativeCall, PassUsage, PromptProgress
from brain.models import failures
from brain.models.event_template import EventTemplate
from brain.models.lines import Splitter
from brain.net.client import BodyStream, stream_body
from brain.text import join_surrogates

T = TypeVar("T")

log = logging.getLogger("brain")

STEP_BYTES = 16 * 1024
STEP_LENGTH = 8 * 1024
"""Bytes decoded, and characters yielded, before other tasks run: up to a few milliseconds."""
MAX_REPAIR_BYTES = 16 * 1024
"""Maximum size of a broken item to repair; a repair takes a hundred times as long as decoding."""
MAX_COUNT = 10**9
"""More tokens than any prompt, answer or context has."""
MAX_PARAMETERS = 10**15
"""More parameters than any model has."""
MAX_INTEGER_DIGITS = 20
MAX_TOOL_CALLS = 64
MAX_ARGUMENTS = 65_536
"""Maximum length of a tool call's arguments, in characters; above the limit of a call."""


class EndOfReply:
    """The server reported the end."""


@dataclass(frozen=True, slots=True)
class ToolDelta:
    """A piece of a tool call; `index` and `id` identify the call if the server sends them."""

    index: int
    id: str
    name: str
    arguments: str


BROKEN_CALL = (NativeCall("", ""), Finish("stop"), EndOfReply())
"""A tool call that the server could not read."""
Part = Chunk | ToolDelta | EndOfReply


class ReportedValues:
    """Checks the values that a server reports next to its text; logs the first bad one of an answer."""

    def __init__(self) -> None:
        self._has_logged = False

    def count(self, name: str, value: Any) -> int | None:
        """Return a number of tokens, or None for a missing or bad one."""
        if value is None or (type(value) is int and 0 <= value <= MAX_COUNT):  # not a bool
            return value
        self.reject(name, value)
        return None

    def size(self, name: str, value: Any) -> int | None:
        """Return a number of parameters, or None for a missing or bad one."""
        if value is None or (type(value) is int and 0 < value <= MAX_PARAMETERS):
            return value
        self.reject(name, value)
        return None

    def text(self, name: str, value: Any) -> str | None:
        """Return a text, or None for a missing or bad one."""
        if value is None or isinstance(value, str):
            return value
        self.reject(name, value)
        return None

    def reject(self, name: str, value: Any) -> None:
        """Log a bad value, which the caller ignores."""
        if not self._has_logged:
            self._has_logged = True
            log.warning("ignoring a bad %s from the model server: %.100r", name, value)


class Reply:
    """The body of one answer, without I/O.

    Args:
        splitter: Finds the items in the bytes.
        decode: Returns the parts of one item.
        template: Learns the common structure of items that contain only a text.

    Attributes:
        has_items: True after the first item.
        has_ended: True once the server has reported why the model stopped; later failures do not matter.
        is_over: True if nothing more will come.
        error: Error reported by the server, or raised by the decoder; the reply is over then.
    """

    __slots__ = (
        "_decode", "_pending_surrogate", "_splitter", "_template", "_tools",
        "error", "has_ended", "has_items", "is_over",
    )  # fmt: skip

    def __init__(
        self, splitter: Splitter, decode: Callable[[bytes], Sequence[Part]], template: EventTemplate | None = None
    ) -> None:
        self.has_items = False
        self.has_ended = False
        self.is_over = False
        self.error: ModelError | None = None
        self._splitter = splitter
        self._decode = decode
        self._template = template
        self._pending_surrogate = ""  # of a character, until its other half comes
        self._tools: list[ToolDelta] = []  # each call so far as one delta

    def feed(self, data: bytes) -> list[Chunk]:
        """Decode the bytes of one read; store an error and return the chunks before it."""
        try:
            chunks = self._decode_with_template(data) if self._splitter.is_between else None
            return self._read(self._splitter.feed(data)) if chunks is None else chunks
        except ModelError as error:
            self._fail(error)
            return []

    def close(self) -> list[Chunk]:
        """Decode the rest at the end of the body."""
        return self._read(self._splitter.close())

    def _decode_with_template(self, items: bytes) -> list[Chunk] | None:
        """Return the text of items that all match the template; None if they must be decoded one by one."""
        if self._template is None or self._pending_surrogate or self.is_over:
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
            if (data := self._splitter.data(item)) is None:
                continue
            if self._template is not None and (same := self._template.texts(item + self._splitter.END)) is not None:
                texts += same
                continue
            self.has_items = True
            try:
                parts = self._decode(data)
            except ModelError as error:
                self._fail(error)
                continue
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

    def _add_texts(self, texts: list[str], chunks: list[Chunk]) -> None:
        """Move the texts to the chunks, as one."""
        if texts:
            text, self._pending_surrogate = join_surrogates(self._pending_surrogate + "".join(texts))
            texts.clear()
            if text:
                chunks.append(text)

    def _add_part(
        self,
        part: Thinking | PassUsage | PromptProgress | NativeCall | ToolDelta | Finish | EndOfReply,
        chunks: list[Chunk],
    ) -> None:
        if isinstance(part, PassUsage | PromptProgress | NativeCall):
            chunks.append(part)
        elif isinstance(part, ToolDelta):
            chunks += self._add_tool_delta(part)
        elif isinstance(part, Thinking):
            text, self._pending_surrogate = join_surrogates(self._pending_surrogate + part.text)
            if chunks and isinstance(last := chunks[-1], Thinking):
                text = last.text + text
                chunks.pop()
            if text:
                chunks.append(Thinking(text))
        else:
            self.has_ended = True
            self.is_over = isinstance(part, EndOfReply)
            if self._pending_surrogate:
                self._pending_surrogate = ""
                chunks.append("\ufffd")
            chunks += [NativeCall(call.name, call.arguments) for call in self._tools if call.name]
            self._tools.clear()
            if isinstance(part, Finish):
                chunks.append(part)

    def _add_tool_delta(self, delta: ToolDelta) -> Sequence[NativeCall]:
        """Add a piece of a call. Return the calls before it if it begins a call and they are whole."""
        for position in range(len(self._tools) - 1, -1, -1):
            call = self._tools[position]
            if call.index == delta.index and (not delta.id or delta.id == call.id):  # some servers send no index
                arguments = (call.arguments + delta.arguments)[:MAX_ARGUMENTS]
                self._tools[position] = ToolDelta(call.index, call.id, call.name or delta.name, arguments)
                return ()
        calls: list[NativeCall] = []
        while self._tools and _is_object(self._tools[0].arguments):
            call = self._tools.pop(0)
            calls += [NativeCall(call.name, call.arguments)] if call.name else []
        if len(self._tools) < MAX_TOOL_CALLS:
            self._tools.append(delta)
        return calls

    def _fail(self, error: ModelError) -> None:
        self.is_over, self.error = True, error


Answer = tuple[BodyStream, str]
"""The body of a response, and its content type."""


async def stream_chunks(
    request: Callable[[], Awaitable[Answer]], reply: Reply, url: str = ""
) -> AsyncGenerator[Chunk, None]:
    """Send one request and yield its chunks. Closing the generator closes the connection.

    Raises:
        ModelError: There is no answer, or only a part of one.
    """
    with failures.translate_errors(url):
        body, content_type = await request()
        del request  # with the whole prompt
        async with aclosing(body):
            try:
                async for data in body:
                    while data and not reply.is_over:
                        part, data = data[:STEP_BYTES], data[STEP_BYTES:]
                        steps = _split_long_texts(reply.feed(part))
                        del part  # free it while the next read is awaited
                        while steps:
                            yield steps.pop(0)
                            if steps:
                                await asyncio.sleep(0)
                        if data:
                            await asyncio.sleep(0)
                    if reply.is_over:
                        break
            except httpx.HTTPError:
                if not reply.has_ended:
                    raise
    steps = _split_long_texts(reply.close())
    while steps:
        yield steps.pop(0)
        if steps:
            await asyncio.sleep(0)
    if reply.has_ended:
        return
    if reply.error is not None:
        raise reply.error
    if not reply.has_items and not content_type.startswith("text/event-stream"):
        raise failures.no_stream(content_type)
    raise ModelError("model_failed", "The model server ended the answer early.", "the stream had no end event")


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


def decode_item(data: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """Decode one item; broken characters, from servers that cut them in two, become U+FFFD.

    Raises:
        ModelError: It is not JSON, or has another structure.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if len(data) <= MAX_REPAIR_BYTES:
            with suppress(ValueError, RecursionError):
                return msgspec.convert(json.loads(data.decode(errors="replace"), parse_int=_parse_int), decoder.type)
        raise failures.unreadable(f"{error}: {data[:200]!r}") from None


def decode_progress(progress: Any, checks: ReportedValues) -> PromptProgress | None:
    """Return how much of the prompt llama.cpp has read; None without possible numbers."""
    fields = progress if isinstance(progress, dict) else {}
    cache, processed, total = (checks.count(name, fields.get(name)) for name in ("cache", "processed", "total"))
    if cache is None or processed is None or total is None or not cache <= processed <= total:
        return None
    return PromptProgress(processed - cache, total - cache, cache)


def _is_object(arguments: str) -> bool:
    """Return whether the arguments of a call are whole."""
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False
    return True


def _parse_int(digits: str) -> float:
    """Parse an integer; return NaN for one longer than any count, which Python parses slowly or rejects."""
    return int(digits) if len(digits) <= MAX_INTEGER_DIGITS else math.nan


def arguments_text(arguments: Any) -> str:
    """Return the arguments of a tool call as JSON: servers send JSON, an object, or nothing."""
    if arguments is None or isinstance(arguments, str):
        return (arguments or "")[:MAX_ARGUMENTS]
    return msgspec.json.encode(arguments).decode()[:MAX_ARGUMENTS]
