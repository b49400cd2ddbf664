"""Wing: what model servers answer, and what they say when they do not; read and translated once for all of them."""

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Protocol, TypeVar, cast

import httpx
import msgspec

from brain.errors import ModelError, PrefillRefused
from brain.events import Thinking
from brain.messages import Chunk, Finish, PassUsage
from brain.unicode import joined

T = TypeVar("T")

REFUSAL_BYTES = 4096
"""How much of an error's body is read: enough to know it by, however long it is."""
_CONTEXT = re.compile(
    r"context[ _](?:length|size|window)|maximum (?:context|model length)|exceeds? the (?:available )?context"
    r"|too many tokens|exceeds the maximum number of tokens|prompt is too long|reduce the length of the messages",
    re.IGNORECASE,
)
_CONTEXT_STATUS = frozenset({400, 413, 422, 500})
_PREFILL_STATUS = frozenset({400, 422})


class Over:
    """What a server says behind all the rest: nothing more will come."""


Part = Chunk | Over


class Splitter(Protocol):
    """Finds the items (lines, events) in a stream of bytes."""

    def feed(self, data: bytes, /) -> Iterable[bytes]: ...
    def close(self) -> Iterable[bytes]: ...


class Reply:
    """The body of one answer, without I/O: bytes in, chunks out, neighbouring texts of one read joined.

    Args:
        splitter: finds the items in the bytes.
        parts: what one item says.

    Attributes:
        heard: whether there was any item.
        ended: whether the server said why the model stopped; what fails later does no harm.
        over: whether nothing more will come.
    """

    def __init__(self, splitter: Splitter, parts: Callable[[bytes], Sequence[Part]]) -> None:
        self.heard = False
        self.ended = False
        self.over = False
        self._splitter = splitter
        self._parts = parts
        self._half = ""

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """Takes what one read brought. What was said before an error comes before the error.

        Raises:
            ModelError: when the server says that it failed, or nothing that can be read.
        """
        return self._chunks(self._splitter.feed(data))

    def close(self) -> Iterator[Chunk]:
        """Says that the body ended."""
        return self._chunks(self._splitter.close())

    def _chunks(self, items: Iterable[bytes]) -> Iterator[Chunk]:
        run: list[Any] = []  # neighbouring texts, or neighbouring thoughts
        kind: type = str
        usage = None
        for item in items:
            if self.over:
                break
            self.heard = True
            said: Sequence[Part | ModelError]
            try:
                said = self._parts(item)
            except ModelError as error:
                said = (error,)  # what was said before it is told first
            for part in said:
                if type(part) is kind:
                    run.append(part)
                elif isinstance(part, PassUsage):
                    usage = part
                else:
                    if run and (chunk := self._joined(run)):
                        yield chunk
                    if isinstance(part, (str, Thinking)):
                        run, kind = [part], type(part)
                    else:
                        run = []
                        yield from self._end(part)
        if run and (chunk := self._joined(run)):
            yield chunk
        if usage is not None:
            yield usage

    def _joined(self, run: Sequence[Any]) -> str | Thinking | None:
        """The run as one, if it is not empty; halves of characters wait for the other half, or become U+FFFD."""
        thoughts = isinstance(run[0], Thinking)
        text = "".join([thought.text for thought in run] if thoughts else run)
        whole, self._half = joined(self._half + text)
        return Thinking(whole) if thoughts and whole else whole

    def _end(self, part: Finish | Over | ModelError) -> Iterator[Chunk]:
        if isinstance(part, ModelError):
            raise part
        self.ended = True
        self.over = isinstance(part, Over)
        if self._half:
            self._half = ""
            yield "\ufffd"
        if isinstance(part, Finish):
            yield part


async def chunks(
    client: httpx.AsyncClient, path: str, body: bytes, reply: Reply, *, resumed: bool
) -> AsyncGenerator[Chunk, None]:
    """One pass: posts `body`, gives what the answer says. Closing the generator closes the connection.

    Raises:
        ModelError: when there is no answer, or only a part of one.
        PrefillRefused: when the server does not go on with a started answer.
    """
    headers = {"Content-Type": "application/json"}
    try:
        with failing():
            async with client.stream("POST", path, content=body, headers=headers) as response:
                if response.status_code != 200:
                    raise await _refusal(response, resumed=resumed)
                kind = response.headers.get("Content-Type", "")
                if kind.startswith("text/html"):
                    raise _no_stream(kind)
                async with aclosing(cast(AsyncGenerator[bytes, None], response.aiter_bytes())) as reads:
                    async for data in reads:
                        for chunk in reply.feed(data):
                            yield chunk
                        if reply.over:
                            return
            for chunk in reply.close():
                yield chunk
    except ModelError:
        if not reply.ended:
            raise
    if not reply.heard and not kind.startswith("text/event-stream"):
        raise _no_stream(kind)
    if not reply.ended:
        raise ModelError("model_failed", "The model server broke off in the middle of its answer.", "no end was sent")


def read(data: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """One item, decoded; broken characters in it, which servers send that cut them in two, are let pass.

    Raises:
        ModelError: when it is no JSON, or not of the expected form.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            return msgspec.convert(json.loads(data.decode(errors="replace")), decoder.type)
        except (ValueError, RecursionError):
            detail = f"{error}: {data[:200]!r}"
            raise ModelError("model_failed", "The model server sent something unreadable.", detail) from None


def failure(said: Any) -> ModelError:
    """The error for what a server says in the middle of an answer."""
    text = str(said)[:2000]
    if _CONTEXT.search(text):
        return _too_long(text)
    return ModelError("model_failed", "The model failed in the middle of its answer.", text)


@contextmanager
def failing() -> Iterator[None]:
    """Translates the HTTP client's errors."""
    try:
        yield
    except httpx.ConnectError as error:
        raise ModelError("model_unreachable", "The model server cannot be reached.", repr(error)) from error
    except httpx.TimeoutException as error:
        raise ModelError("model_unreachable", "The model server does not answer.", repr(error)) from error
    except httpx.HTTPError as error:
        message = "The connection to the model server broke in the middle of its answer."
        raise ModelError("model_failed", message, repr(error)) from error


def explained(status: int, text: str) -> ModelError:
    """The error for an HTTP status that is not 200, and the text that came with it."""
    detail = f"HTTP {status}: {text}"
    if status in _CONTEXT_STATUS and _CONTEXT.search(text):
        return _too_long(detail)
    if status in (401, 403):
        return ModelError("model_failed", "The model server refused Brain's key.", detail, recoverable=False)
    if status == 404:
        return ModelError("model_failed", "The model server does not have this model.", detail, recoverable=False)
    if status == 429:
        return ModelError("model_failed", "The model server takes no more requests at the moment.", detail)
    return ModelError("model_failed", "The model server could not answer.", detail)


def _no_stream(kind: str) -> ModelError:
    message = "The model server did not answer with a stream; check MODEL_URL."
    return ModelError("model_failed", message, f"Content-Type: {kind[:200]}", recoverable=False)


def _too_long(detail: str) -> ModelError:
    message = "The conversation is too long for the model; begin a new one, or ask for less."
    return ModelError("model_context", message, detail)


async def _refusal(response: httpx.Response, *, resumed: bool) -> ModelError:
    body = b""
    async with aclosing(cast(AsyncGenerator[bytes, None], response.aiter_bytes())) as reads:
        async for data in reads:
            body += data
            if len(body) >= REFUSAL_BYTES:
                break
    text = body[:REFUSAL_BYTES].decode(errors="replace")
    error = explained(response.status_code, text)
    if resumed and response.status_code in _PREFILL_STATUS and error.code != "model_context":
        return PrefillRefused(error.args[0])
    return error
