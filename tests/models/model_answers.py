"""What tests of models share: async tests, cutting bodies, merging chunks, and models of the servers in `servers`."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, ParamSpec

from model_servers import OllamaServer, Server

from brain.events import Thinking
from brain.messages import Chunk, Message
from brain.models.model import PassRequest
from brain.models.ollama import Ollama
from brain.models.openai import OpenAI
from brain.models.reply import Reply
from brain.settings import ModelRow

P = ParamSpec("P")

HELLO = [Message("system", "Be brief."), Message("user", "Hello?")]
STARTED = [*HELLO, Message("assistant", "I will look")]


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def row(kind: str, url: str, **fields: Any) -> ModelRow:
    return ModelRow(name=f"{kind}:m", kind=kind, model="m", url=url, **fields)


@asynccontextmanager
async def model_of(server: Server, *, identify: bool = False, **fields: Any) -> AsyncIterator[Ollama | OpenAI]:
    """A model of this server, identified on request; closed at the end."""
    is_ollama = isinstance(server, OllamaServer)
    model = Ollama(row("ollama", server.url, **fields)) if is_ollama else OpenAI(row("openai", server.url, **fields))
    try:
        if identify:
            await model.identify()
        yield model
    finally:
        await model.aclose()


async def collect(model: Any, messages: Sequence[Message] = HELLO, into: list[Chunk] | None = None) -> list[Chunk]:
    """The chunks of one pass, merged; `into` has them also when the pass fails."""
    chunks = [] if into is None else into
    async with aclosing(model.stream(PassRequest(messages))) as stream:
        async for chunk in stream:
            chunks.append(chunk)
    return merge(chunks)


def merge(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Neighbouring texts, and neighbouring thoughts, as one."""
    merged: list[Chunk] = []
    for chunk in chunks:
        last = merged[-1] if merged else None
        if isinstance(chunk, str) and isinstance(last, str):
            merged[-1] = last + chunk
        elif isinstance(chunk, Thinking) and isinstance(last, Thinking):
            merged[-1] = Thinking(last.text + chunk.text)
        else:
            merged.append(chunk)
    return merged


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """The whole, cut in two at every place with an empty read between, and byte by byte."""
    yield [data]
    for place in range(1, len(data)):
        yield [data[:place], b"", data[place:]]
    yield [data[place : place + 1] for place in range(len(data))]


def decode(build_reply: Callable[[], Reply], pieces: Sequence[bytes]) -> list[Chunk]:
    """The chunks of a body that comes in these pieces; an error as its code."""
    reply, chunks = build_reply(), list[Chunk]()
    for piece in pieces:
        chunks += reply.feed(piece)
    chunks += reply.close()
    return [*merge(chunks), f"<{reply.error.code}>"] if reply.error else merge(chunks)
