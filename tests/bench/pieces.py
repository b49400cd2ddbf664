"""The steps of a token, each by itself in this process, next to common alternatives."""

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from importlib.util import find_spec
from itertools import cycle, islice
from time import process_time_ns
from typing import Any, TypeVar

import httpx
import ollama
import scanner as scanning
from sse_starlette import ServerSentEvent
from tables import Table
from targets import TARGET_CORE
from upstream import TOKENS, ollama_line, openai_event
from whole import Run, say

from brain.events import Event, Limits, Token
from brain.messages import Chunk, Finish, History
from brain.models.model import Model, PassRequest
from brain.models.openai import build_reply
from brain.plugins.registry import Registry
from brain.protocols.native import FrameEncoder
from brain.strategies.mono import Mono
from brain.turn.setup import TurnSetup
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest

T = TypeVar("T")
ONE, SIXTEEN = "1 token per read", "16 tokens per read"
READS = {ONE: 1, SIXTEEN: 16}
MARKER = re.compile(r"SPECIALIST_REQUEST\[(\w+):(.*?)\]", re.DOTALL)
SHORT = 2_000
"""Tokens of an answer, for alternatives that are slow or whose cost grows with its length."""


def words(count: int) -> list[str]:
    return list(islice(cycle(TOKENS), count))


def joined(items: Sequence[str], size: int) -> list[str]:
    """Join the texts that arrive in one read."""
    return ["".join(items[at : at + size]) for at in range(0, len(items), size)]


def on_core() -> None:
    os.sched_setaffinity(0, {TARGET_CORE})


def nanoseconds(work: Callable[[T], object], given: T, tokens: int) -> float:
    """Return nanoseconds per token of a second call, after all lazy loading."""
    work(given)
    began = process_time_ns()
    work(given)
    return (process_time_ns() - began) / tokens


def nanoseconds_of(work: Callable[[T], Coroutine[Any, Any, None]], given: T, tokens: int) -> float:
    """Do the same for a coroutine."""

    async def twice() -> float:
        await work(given)
        began = process_time_ns()
        await work(given)
        return (process_time_ns() - began) / tokens

    return asyncio.run(twice())


def scanner(run: Run) -> None:
    """Print the table of `scanner.py`."""
    on_core()
    scanning.main()


# decode


def decode(run: Run) -> Table:
    """Measure the way from the model's bytes to text."""
    on_core()
    table = Table("Decoding, ns per token", list(READS), "reader")
    for _ in range(run.rounds):
        for column, size in READS.items():
            say(f"decode: {column}")
            openai_reads = _reads([openai_event(word) for word in words(SHORT)], size)
            ollama_reads = _reads([ollama_line(word) for word in words(SHORT)], size)
            table.add("brain", column, nanoseconds(_heard, openai_reads, SHORT))
            table.add("json.loads", column, nanoseconds(_loaded, openai_reads, SHORT))
            table.add("ollama client", column, nanoseconds_of(_ollama_client, ollama_reads, SHORT))
            if find_spec("openai"):
                whole = [*openai_reads, b"data: [DONE]\n\n"]
                table.add("openai client", column, nanoseconds_of(_openai_client, whole, SHORT))
    return table


def _reads(items: Sequence[str], size: int) -> list[bytes]:
    return [text.encode() for text in joined(items, size)]


def _heard(reads: Sequence[bytes]) -> None:
    answer = build_reply()
    for data in reads:
        for _ in answer.feed(data):
            pass


def _loaded(reads: Sequence[bytes]) -> None:
    for data in reads:
        for event in data.split(b"\n\n"):
            if event:
                json.loads(event[6:])["choices"][0]["delta"]["content"]


async def _body(reads: Sequence[bytes]) -> AsyncIterator[bytes]:
    for data in reads:
        yield data


def _answering(library: Any, reads: Sequence[bytes], media_type: str) -> Any:
    """Return a transport of `httpx` or `httpx2` whose response consists of these reads."""
    headers = {"Content-Type": media_type}
    return library.MockTransport(lambda request: library.Response(200, headers=headers, content=_body(reads)))


async def _ollama_client(reads: Sequence[bytes]) -> None:
    client = ollama.AsyncClient(transport=_answering(httpx, reads, "application/x-ndjson"))
    async for part in await client.chat(model="fake", messages=[{"role": "user", "content": "hi"}], stream=True):
        part.message.content  # noqa: B018 - a client reads this


async def _openai_client(reads: Sequence[bytes]) -> None:
    import httpx2
    import openai

    http = httpx2.AsyncClient(transport=_answering(httpx2, reads, "text/event-stream"))
    client = openai.AsyncOpenAI(api_key="-", base_url="http://fake/v1", http_client=http)
    asked: Any = [{"role": "user", "content": "hi"}]
    async for chunk in await client.chat.completions.create(model="fake", messages=asked, stream=True):
        chunk.choices[0].delta.content  # noqa: B018 - a client reads this


# encode


def encode(run: Run) -> Table:
    """Measure the way from text to the bytes of an event."""
    on_core()
    table = Table("Encoding, ns per token", list(READS), "writer")
    ways: dict[str, Callable[[str], object]] = {
        "json.dumps": lambda text: f"event: token\nid: t.1\ndata: {json.dumps({'text': text})}\n\n".encode(),
        "sse-starlette": lambda text: ServerSentEvent(json.dumps({"text": text}), event="token", id="t.1").encode(),
    }
    count = run.less(50_000, 2_000)
    for _ in range(run.rounds):
        for column, size in READS.items():
            texts = joined(words(count), size)
            events = [(Token(text),) for text in texts]
            encoder = FrameEncoder("t0123456789abcdef")
            table.add("brain", column, nanoseconds(_each(encoder.encode), events, count))
            for name, way in ways.items():
                table.add(name, column, nanoseconds(_each(way), texts, count))
    return table


def _each(way: Callable[[T], object]) -> Callable[[Sequence[T]], object]:
    return lambda items: [way(item) for item in items]


# turn


def turn(run: Run) -> Table:
    """Measure a turn, from the model's texts to encoded events, next to a loop that searches the full text."""
    on_core()
    columns = (*READS, "one-token turn, µs")
    table = Table(f"Turn and encoding, ns per token of an answer with {SHORT:,} tokens", columns, "loop")
    for _ in range(run.rounds):
        for column, size in READS.items():
            say(f"turn: {column}")
            texts = joined(words(SHORT), size)
            table.add("brain", column, nanoseconds_of(_turn, texts, SHORT))
            table.add("baseline", column, nanoseconds_of(_baseline, texts, SHORT))
        table.add("brain", columns[-1], nanoseconds_of(_turns, 100, 100) / 1000)
    return table


class Player(Model):
    """A model that writes these texts."""

    resume = "message"

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__("player")
        self._texts = texts

    async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        for text in self._texts:
            yield text
        yield Finish("stop")


async def _turn(texts: Sequence[str]) -> None:
    asked = TurnRequest("hi", None, Limits(), ("bracket", "function_call"), "UTC")
    setup = TurnSetup(request=asked, history=History("c"), models=[Player(texts)], registry=Registry())
    one = Turn(setup, Mono)
    encoder = FrameEncoder(setup.turn_id)

    def emit(events: Sequence[Event]) -> None:
        encoder.encode(events)

    await one.run(emit)


def a_turn(tokens: int) -> float:
    """Return nanoseconds per token of a turn with one token per read."""
    return nanoseconds_of(_turn, words(tokens), tokens)


async def _turns(count: int) -> None:
    for _ in range(count):
        await _turn(["hi"])


async def _baseline(texts: Sequence[str]) -> None:
    said = ""
    for text in texts:
        said += text
        if MARKER.search(said) is None:
            ServerSentEvent(json.dumps({"text": text}), event="token").encode()
