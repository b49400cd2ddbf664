"""Large answers are read in steps, between which other tasks run."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import pytest

from brain.events import Thinking
from brain.messages import Chunk
from brain.models import ollama, openai
from brain.models.reply import STEP_BYTES, STEP_LENGTH, Answer, Reply, stream_chunks

LENGTH = 1_000_000


def event(**delta: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


def line(**message: str) -> bytes:
    return json.dumps({"message": message, "done": False}).encode() + b"\n"


DONE = b"data: [DONE]\n\n"
TEXT = "word " * (LENGTH // 5)
BODIES = {
    "one delta": (openai.build_reply, event(content=TEXT) + DONE, TEXT),
    "many deltas": (openai.build_reply, event(content="word ") * 10_000 + DONE, "word " * 10_000),
    "thoughts and texts": (openai.build_reply, (event(thinking="a") + event(content="b")) * 5_000 + DONE, "ab" * 5_000),
    "nothing but comments": (openai.build_reply, b": x\n\n" * (LENGTH // 5) + event(content="a") + DONE, "a"),
    "one line": (ollama.build_reply, line(content=TEXT) + b'{"done":true}\n', TEXT),
    "one line without an end": (ollama.build_reply, line(content=TEXT)[:-1].replace(b"false", b"true"), TEXT),
    "many lines": (ollama.build_reply, line(content="word ") * 10_000 + b'{"done":true}\n', "word " * 10_000),
}


@pytest.mark.parametrize(("reply", "body", "expected"), BODIES.values(), ids=BODIES)
def test_other_tasks_run_while_a_large_answer_is_read(reply: Callable[[], Reply], body: bytes, expected: str) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def reads() -> AsyncGenerator[bytes, None]:
        yield body

    async def answer() -> Answer:
        return reads(), "text/event-stream"

    async def main() -> list[Chunk]:
        task = asyncio.create_task(other())
        found: list[Chunk] = []
        last = -1
        async with aclosing(stream_chunks(answer, reply())) as pieces:
            async for chunk in pieces:
                assert turns > last or turns == 0, "nobody else ran since the last chunk"
                last = turns
                found.append(chunk)
        task.cancel()
        return found

    pieces = [chunk.text if isinstance(chunk, Thinking) else chunk for chunk in asyncio.run(main())]
    texts = [text for text in pieces if isinstance(text, str)]
    assert "".join(texts) == expected
    assert max(map(len, texts)) <= max(STEP_LENGTH, STEP_BYTES)
    assert turns >= len(body) // STEP_BYTES - 1
