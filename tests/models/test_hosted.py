"""Hosted servers, which no machine of ours reaches: known by their addresses, asked in their dialects."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest
import respx

from brain.errors import ModelError
from brain.messages import Chunk, Finish, Message
from brain.models.openai import OpenAI

ANSWER = (
    b'data: {"choices":[{"delta":{"content":" on."},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
STARTED = [Message("user", "Hi"), Message("assistant", "Go")]


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> Iterator[respx.MockRouter]:
    """Every request of a model's client goes here."""
    with respx.MockRouter() as found:
        monkeypatch.setattr("brain.net.client._proxied", lambda url: False)
        monkeypatch.setattr("brain.net.client.Transport", lambda: httpx.MockTransport(found.async_handler))
        yield found


async def gone_on(url: str) -> tuple[str, list[Chunk]]:
    """How a server says it resumes, and what it answers to a started answer."""
    model = OpenAI("m", url, "secret")
    try:
        await model.identify()
        async with aclosing(model.stream(STARTED)) as stream:
            return model.resume, [chunk async for chunk in stream]
    finally:
        await model.aclose()


@pytest.mark.parametrize(
    ("url", "resume", "last"),
    [
        ("https://api.mistral.ai/v1", "prefill", {"role": "assistant", "content": "Go", "prefix": True}),
        ("https://api.deepseek.com/beta", "prefill", {"role": "assistant", "content": "Go", "prefix": True}),
        ("https://openrouter.ai/api/v1", "prefill", {"role": "assistant", "content": "Go"}),
        ("https://api.openai.com/v1", "message", {"role": "assistant", "content": "Go"}),
    ],
)
def test_a_hosted_server_is_known_by_its_address(
    router: respx.MockRouter, url: str, resume: str, last: dict[str, Any]
) -> None:
    models = router.get(f"{url}/models").respond(json={"data": [{"id": "m"}]})
    asked = router.post(f"{url}/chat/completions").respond(content=ANSWER, content_type="text/event-stream")
    assert asyncio.run(gone_on(url)) == (resume, [" on.", Finish("stop")])
    assert (models.call_count, asked.call_count) == (1, 1)
    request = asked.calls.last.request
    assert request.headers["authorization"] == "Bearer secret"
    assert json.loads(request.content)["messages"] == [{"role": "user", "content": "Hi"}, last]


def test_a_login_in_the_address_is_sent_with_every_request(router: respx.MockRouter) -> None:
    models = router.get("https://api.mistral.ai/v1/models").respond(json={"data": [{"id": "m"}]})
    asked = router.post("https://api.mistral.ai/v1/chat/completions").respond(
        content=ANSWER, content_type="text/event-stream"
    )
    asyncio.run(gone_on("https://user:word@api.mistral.ai/v1"))
    sent = [route.calls.last.request.headers["Authorization"] for route in (models, asked)]
    assert sent == ["Basic dXNlcjp3b3Jk"] * 2


def test_an_answer_that_is_no_stream_is_closed(router: respx.MockRouter) -> None:
    closed: list[bool] = []

    class Page(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"<html>"

        async def aclose(self) -> None:
            closed.append(True)

    router.get("https://api.mistral.ai/v1/models").respond(json={"data": [{"id": "m"}]})
    page = httpx.Response(200, headers={"Content-Type": "text/html"}, stream=Page())
    router.post("https://api.mistral.ai/v1/chat/completions").mock(return_value=page)
    with pytest.raises(ModelError, match="did not answer with a stream"):
        asyncio.run(gone_on("https://api.mistral.ai/v1"))
    assert closed
