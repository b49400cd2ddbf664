"""What model servers answer, and what they say when they do not; read and translated once for all of them."""

import asyncio
import json
import logging
import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import httpx
import msgspec

from brain.errors import ModelError, PrefillRefused
from brain.events import Thinking
from brain.messages import Chunk, Finish, NativeCall, PassUsage, PromptProgress
from brain.models.frames import Frame
from brain.models.lines import Splitter
from brain.net.client import Reads, reads
from brain.text import join_surrogates

T = TypeVar("T")

log = logging.getLogger("brain")

STEP_BYTES = 16 * 1024
STEP_LENGTH = 8 * 1024
"""Bytes that are read, and characters that are scanned, before other tasks run: a few milliseconds at worst."""
REPAIR_BYTES = 16 * 1024
"""An item that is larger is not repaired when it is broken, which takes a hundred times as long as to decode it."""
COUNT_MOST = 10**9
"""More tokens than any prompt, answer or context has."""
INTEGER_DIGITS = 20
TOOL_CALLS_MOST = 64
ARGUMENTS_LENGTH = 65_536
"""Characters of a tool call's arguments; longer than any marker may be."""
REFUSAL_BYTES = 4096
"""How much of an error's body is read: enough to know it by, however long it is."""
_CONTEXT = re.compile(
    r"context[ _](?:length|size|window)|maximum (?:context|model length)|exceeds? the (?:available )?context"
    r"|too many tokens|exceeds the maximum number of tokens|prompt is too long|reduce the length of the messages",
    re.IGNORECASE,
)
_CONTEXT_STATUS = frozenset({400, 413, 422, 500})
_PREFILL_STATUS = frozenset({400, 422})
_SECONDS = re.compile(r"[1-9][0-9]{0,4}")
_REFUSALS = {
    401: ("The model server refused Brain's key.", False),
    403: ("The model server refused Brain's key.", False),
    404: ("The model server does not have this model.", False),
    429: ("The model server takes no more requests at the moment.", True),
}
"""What is said of an answer with such a status, and whether asking again may help."""


class Over:
    """What a server says behind all the rest: nothing more will come."""


@dataclass(frozen=True, slots=True)
class ToolDelta:
    """A piece of a tool call; `index` and `id` tell which, as far as the server says."""

    index: int
    id: str
    name: str
    arguments: str


Part = Chunk | ToolDelta | Over


class Checks:
    """Checks what a server reports beside its text; of one answer, the first bad value is logged."""

    def __init__(self) -> None:
        self._logged = False

    def count(self, name: str, value: Any) -> int | None:
        """Returns a number of tokens, or None for a missing or bad one."""
        if value is None or (type(value) is int and 0 <= value <= COUNT_MOST):  # a bool is no number
            return value
        self.reject(name, value)
        return None

    def word(self, name: str, value: Any) -> str | None:
        """Returns a text, or None for a missing or bad one."""
        if value is None or isinstance(value, str):
            return value
        self.reject(name, value)
        return None

    def reject(self, name: str, value: Any) -> None:
        """Logs a bad value, which the caller ignores."""
        if not self._logged:
            self._logged = True
            log.warning("the model server sent a bad %s, which is ignored: %.100r", name, value)


class _ToolCalls:
    """The tool calls of one answer, put together from their pieces."""

    def __init__(self) -> None:
        self._deltas: list[ToolDelta] = []  # the pieces of each call so far, as one

    def add(self, delta: ToolDelta) -> None:
        for place in range(len(self._deltas) - 1, -1, -1):
            call = self._deltas[place]
            if call.index == delta.index and (not delta.id or delta.id == call.id):  # some servers count no index
                arguments = (call.arguments + delta.arguments)[:ARGUMENTS_LENGTH]
                self._deltas[place] = ToolDelta(call.index, call.id, call.name or delta.name, arguments)
                return
        if len(self._deltas) < TOOL_CALLS_MOST:
            self._deltas.append(delta)

    def take(self) -> list[NativeCall]:
        """Returns the calls, once the answer has ended."""
        deltas, self._deltas = self._deltas, []
        return [NativeCall(call.name, call.arguments) for call in deltas if call.name]


Answer = tuple[Reads, str]
"""The body of an answer, and its content type."""


class Reply:
    """The body of one answer, without I/O: bytes in, chunks out, neighbouring texts of one read joined.

    Args:
        splitter: finds the items in the bytes.
        parts: what one item says.
        frame: what items have in common that say a text only, if they have.

    Attributes:
        heard: whether there was any item.
        ended: whether the server said why the model stopped; what fails later does no harm.
        over: whether nothing more will come.
        error: what the server says that failed, or that it said nothing that can be read; it is over then.
    """

    __slots__ = ("_frame", "_half", "_parts", "_splitter", "_tools", "ended", "error", "heard", "over")

    def __init__(
        self, splitter: Splitter, parts: Callable[[bytes], Sequence[Part]], frame: Frame | None = None
    ) -> None:
        self.heard = False
        self.ended = False
        self.over = False
        self.error: ModelError | None = None
        self._splitter = splitter
        self._parts = parts
        self._frame = frame
        self._half = ""
        self._tools = _ToolCalls()

    def feed(self, data: bytes) -> list[Chunk]:
        """Takes what one read brought; what was said before an error is said."""
        try:
            alike = self._alike(data) if self._splitter.between else None
            return self._chunks(self._splitter.feed(data)) if alike is None else alike
        except ModelError as error:
            self._fail(error)
            return []

    def close(self) -> list[Chunk]:
        """Says that the body ended."""
        return self._chunks(self._splitter.close())

    def _alike(self, whole: bytes) -> list[Chunk] | None:
        """What items say that all have the frame; None when they are to be read one by one."""
        texts = None if self._frame is None or self._half or self.over else self._frame.texts(whole)
        if texts is None:
            return None
        text = texts[0] if len(texts) == 1 else "".join(texts)
        return [text] if text else []

    def _chunks(self, whole: bytes) -> list[Chunk]:
        """What any items say."""
        if (said := self._alike(whole)) is not None:
            return said
        found: list[Chunk] = []
        texts: list[str] = []
        for item in filter(None, self._splitter.items(whole)):
            if self.over:
                break
            if (data := self._splitter.data(item)) is None:
                continue
            if self._frame is not None and (alike := self._frame.texts(item + self._splitter.END)) is not None:
                texts += alike
            else:
                self._read(item, data, texts, found)
        self._say(texts, found)
        if len(found) > 1:
            found.sort(key=_is_usage)  # a turn wants to know why it ended before what it took
        return found

    def _read(self, item: bytes, data: bytes, texts: list[str], found: list[Chunk]) -> None:
        """Reads an item that may say anything."""
        self.heard = True
        try:
            said = self._parts(data)
        except ModelError as error:
            self._fail(error)
            return
        for part in said:
            if isinstance(part, str):
                texts.append(part)
            else:
                self._say(texts, found)
                self._tell(part, found)
        if self._frame is not None and len(said) == 1 and isinstance(said[0], str):
            self._frame.learn(item, said[0])

    def _say(self, texts: list[str], found: list[Chunk]) -> None:
        """Adds the texts as one; halves of characters wait for the other half, or become U+FFFD."""
        if texts:
            text, self._half = join_surrogates(self._half + "".join(texts))
            texts.clear()
            if text:
                found.append(text)

    def _tell(
        self, part: Thinking | PassUsage | PromptProgress | NativeCall | ToolDelta | Finish | Over, found: list[Chunk]
    ) -> None:
        if isinstance(part, PassUsage | PromptProgress | NativeCall):
            found.append(part)
        elif isinstance(part, ToolDelta):
            self._tools.add(part)
        elif isinstance(part, Thinking):
            text, self._half = join_surrogates(self._half + part.text)
            if found and isinstance(last := found[-1], Thinking):
                text = last.text + text
                found.pop()
            if text:
                found.append(Thinking(text))
        else:
            self.ended = True
            self.over = isinstance(part, Over)
            if self._half:
                self._half = ""
                found.append("\ufffd")
            found += self._tools.take()
            if isinstance(part, Finish):
                found.append(part)

    def _fail(self, error: ModelError) -> None:
        self.over, self.error = True, error


def _is_usage(chunk: Chunk) -> bool:
    return isinstance(chunk, PassUsage)


async def chunks(answer: Callable[[], Awaitable[Answer]], reply: Reply) -> AsyncGenerator[Chunk, None]:
    """One pass: asks for an answer, gives what it says. Closing the generator closes the connection.

    Raises:
        ModelError: when there is no answer, or only a part of one.
    """
    with failing():
        reads, kind = await answer()
        del answer  # with all that was asked
        async with aclosing(reads):
            try:
                async for data in reads:
                    while data and not reply.over:
                        part, data = data[:STEP_BYTES], data[STEP_BYTES:]
                        said = _in_steps(reply.feed(part))
                        del part  # neither it nor what it says is kept while the next is waited for
                        while said:
                            yield said.pop(0)
                            if said:
                                await asyncio.sleep(0)
                        if data:
                            await asyncio.sleep(0)
                    if reply.over:
                        break
            except httpx.HTTPError:
                if not reply.ended:
                    raise
    said = _in_steps(reply.close())
    while said:
        yield said.pop(0)
        if said:
            await asyncio.sleep(0)
    if reply.ended:
        return
    if reply.error is not None:
        raise reply.error
    if not reply.heard and not kind.startswith("text/event-stream"):
        raise _no_stream(kind)
    raise ModelError("model_failed", "The model server broke off in the middle of its answer.", "no end was sent")


def _in_steps(said: list[Chunk]) -> list[Chunk]:
    """The same chunks, with long texts cut into steps."""
    if not any(isinstance(chunk, str | Thinking) and len(_text(chunk)) > STEP_LENGTH for chunk in said):
        return said
    steps: list[Chunk] = []
    for chunk in said:
        if isinstance(chunk, str | Thinking):
            text = _text(chunk)
            texts = [text[at : at + STEP_LENGTH] for at in range(0, len(text), STEP_LENGTH)]
            steps += texts if isinstance(chunk, str) else map(Thinking, texts)
        else:
            steps.append(chunk)
    return steps


def _text(chunk: str | Thinking) -> str:
    return chunk if isinstance(chunk, str) else chunk.text


async def answered(response: httpx.Response, *, resumed: bool) -> Answer:
    """What is to be read of a streamed response, and of which type it is.

    Raises:
        ModelError: when it is no answer; it is closed then.
        PrefillRefused: when the server does not go on with a started answer.
    """
    body = reads(response)
    kind = response.headers.get("Content-Type", "")
    if response.status_code == 200 and not kind.startswith("text/html"):
        return body, kind
    async with aclosing(response), aclosing(body):  # closing a body that nobody began to read closes nothing
        raise _no_stream(kind) if response.status_code == 200 else await _refusal(response, body, resumed)


def read(data: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """One item, decoded; broken characters in it, which servers send that cut them in two, are let pass.

    Raises:
        ModelError: when it is no JSON, or not of the expected form.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if len(data) <= REPAIR_BYTES:
            with suppress(ValueError, RecursionError):
                return msgspec.convert(json.loads(data.decode(errors="replace"), parse_int=_integer), decoder.type)
        detail = f"{error}: {data[:200]!r}"
        raise ModelError("model_failed", "The model server sent something unreadable.", detail) from None


def _integer(digits: str) -> float:
    """Returns NaN for an integer that is longer than any count, which Python would take long to read or refuse."""
    return int(digits) if len(digits) <= INTEGER_DIGITS else math.nan


def arguments_text(arguments: Any) -> str:
    """Returns the arguments of a tool call as JSON: servers send that, an object, or nothing."""
    if arguments is None or isinstance(arguments, str):
        return (arguments or "")[:ARGUMENTS_LENGTH]
    return msgspec.json.encode(arguments).decode()[:ARGUMENTS_LENGTH]


def failure(said: Any) -> ModelError:
    """The error for what a server says in the middle of an answer."""
    text = str(said)[:2000]
    if _CONTEXT.search(text):
        return _too_long(text)
    return ModelError("model_failed", "The model failed in the middle of its answer.", text)


class failing:
    """Translates the HTTP client's errors."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, httpx.ConnectError):
            raise ModelError("model_unreachable", "The model server cannot be reached.", repr(error)) from error
        if isinstance(error, httpx.TimeoutException):
            raise ModelError("model_unreachable", "The model server does not answer.", repr(error)) from error
        if isinstance(error, httpx.HTTPError):
            message = "The connection to the model server broke in the middle of its answer."
            raise ModelError("model_failed", message, repr(error)) from error


def explained(status: int, text: str, wait: str = "") -> ModelError:
    """The error for an HTTP status that is not 200, the text that came with it, and its `Retry-After`."""
    detail = f"HTTP {status}: {text}"
    if status in _CONTEXT_STATUS and _CONTEXT.search(text):
        return _too_long(detail, status)
    message, recoverable = _REFUSALS.get(status, ("The model server could not answer.", True))
    if recoverable and _SECONDS.fullmatch(wait):
        message += f" It asks to wait {wait} s."
    return ModelError("model_failed", message, detail, recoverable=recoverable, status=status)


def _no_stream(kind: str) -> ModelError:
    message = "The model server did not answer with a stream; check its URL in the settings."
    return ModelError("model_failed", message, f"Content-Type: {kind[:200]}", recoverable=False)


def _too_long(detail: str, status: int | None = None) -> ModelError:
    message = "The conversation is too long for the model; begin a new one, or ask for less."
    return ModelError("model_context", message, detail, status=status)


async def _refusal(response: httpx.Response, reads: Reads, resumed: bool) -> ModelError:
    status, body = response.status_code, b""
    async for data in reads:
        body += data
        if len(body) >= REFUSAL_BYTES:
            break
    wait = response.headers.get("Retry-After", "")
    error = explained(status, body[:REFUSAL_BYTES].decode(errors="replace"), wait)
    if resumed and status in _PREFILL_STATUS and error.code != "model_context":
        return PrefillRefused(error.args[0])
    return error
