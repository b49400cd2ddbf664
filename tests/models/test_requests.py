"""Requests in the dialect of each server: sampling, effort, format, continuing; hosted servers by their addresses."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from typing import Any

import httpx
import pytest
import respx
from model_answers import collect, row

from brain.messages import Finish, Message
from brain.models.model import PassRequest
from brain.models.ollama import Ollama
from brain.models.openai import OpenAI
from brain.net.transport import Origin
from brain.turn_request import DEFAULT_DECODING, DEFAULT_SAMPLING, Decoding, Sampling

HELLO = [Message("user", "Hi")]
STARTED = [*HELLO, Message("assistant", "Go")]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
COMMON: dict[str, Any] = {"temperature": 0.0, "top_p": 0.9, "frequency_penalty": 0.5, "presence_penalty": -0.5}
ALL = Sampling(max_tokens=100, top_k=40, min_p=0.05, seed=7, **COMMON)
LOCAL = {**COMMON, "max_tokens": 100, "top_k": 40, "min_p": 0.05, "seed": 7}
LOCAL_URL = "http://127.0.0.1:1"
UNKNOWN = f"{LOCAL_URL}/v1", ""
VLLM = f"{LOCAL_URL}/v1", "vllm"
LLAMA_CPP = f"{LOCAL_URL}/v1", "llamacpp"
OPENAI = "https://api.openai.com/v1", ""
MISTRAL = "https://api.mistral.ai/v1", ""
"""Servers: the URL, and the owner of their models."""
ANSWER = (
    b'data: {"choices":[{"delta":{"content":" on."},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


class Transport(httpx.MockTransport):
    async def send(self, request: httpx.Request, origin: Origin, message: bytes) -> httpx.Response:
        body = message.partition(b"\r\n\r\n")[2]
        return await self.handle_async_request(
            httpx.Request(request.method, request.url, headers=request.headers, content=body)
        )


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> Iterator[respx.MockRouter]:
    """Takes every request of a model's client."""
    with respx.MockRouter(assert_all_called=False) as found:
        monkeypatch.setattr("brain.net.client.getproxies", dict)
        monkeypatch.setattr("brain.net.client.Transport", lambda: Transport(found.async_handler))
        yield found


def body(model: OpenAI | Ollama, route: respx.Route, request: PassRequest) -> dict[str, Any]:
    """The fields of a request besides those that every request has."""

    async def main() -> None:
        await model.identify()
        async with aclosing(model.stream(request)) as chunks:
            assert Finish("stop") in [chunk async for chunk in chunks]
        await model.aclose()

    asyncio.run(main())
    found: dict[str, Any] = json.loads(route.calls.last.request.content)
    assert (found.pop("model"), found.pop("stream")) == ("m", True)
    assert found.pop("messages")[0] == {"role": "user", "content": "Hi"}
    return found


def to_openai(
    router: respx.MockRouter,
    sampling: Sampling,
    server: tuple[str, str] = UNKNOWN,
    decoding: Decoding = DEFAULT_DECODING,
) -> dict[str, Any]:
    url, owner = server
    router.get(f"{url}/models").respond(json={"data": [{"id": "m", "owned_by": owner}]})
    router.get(url__startswith=LOCAL_URL).respond(404)
    route = router.post(f"{url}/chat/completions").respond(content=ANSWER, content_type="text/event-stream")
    request = PassRequest(HELLO, sampling=sampling, decoding=decoding)
    found = body(OpenAI(row("openai", url)), route, request)
    assert found.pop("stream_options") == {"include_usage": True}
    assert found.pop("return_progress", None) == (True if server == LLAMA_CPP else None)
    return found


def to_ollama(
    router: respx.MockRouter, sampling: Sampling, *, can_think: bool = True, decoding: Decoding = DEFAULT_DECODING
) -> dict[str, Any]:
    capabilities = ["completion", *(["thinking"] if can_think else [])]
    router.post(f"{LOCAL_URL}/api/show").respond(json={"capabilities": capabilities})
    route = router.post(f"{LOCAL_URL}/api/chat").respond(
        json={"message": {"role": "assistant", "content": "on."}, "done": True, "done_reason": "stop"}
    )
    router.route(url__startswith=LOCAL_URL).respond(404)
    request = PassRequest(HELLO, sampling=sampling, decoding=decoding)
    found = body(Ollama(row("ollama", LOCAL_URL)), route, request)
    assert found.pop("truncate") is False
    return found


JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
THINK: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": True}}
NO_THINK: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
OWN_FORMAT = {"response_format": {"type": "json_object"}, "logit_bias": {"7": -100}}


@pytest.mark.parametrize(
    ("sampling", "server", "expected"),
    [
        (DEFAULT_SAMPLING, UNKNOWN, {}),
        (ALL, UNKNOWN, LOCAL),
        (ALL, OPENAI, {**COMMON, "max_completion_tokens": 100, "seed": 7}),
        (ALL, MISTRAL, {**COMMON, "max_tokens": 100, "random_seed": 7}),
        (Sampling(effort="low"), UNKNOWN, {"reasoning_effort": "low"}),
        (Sampling(effort="none"), OPENAI, {"reasoning_effort": "none"}),
        (Sampling(effort=False), OPENAI, {}),
        (Sampling(effort=False), VLLM, NO_THINK),
        (Sampling(effort=True), LLAMA_CPP, THINK),
        (Sampling(format="json"), UNKNOWN, {"response_format": {"type": "json_object"}}),
        (Sampling(format=SCHEMA), UNKNOWN, {"response_format": JSON_SCHEMA}),
        (Sampling(format=SCHEMA, dialect="openai", more=OWN_FORMAT), UNKNOWN, OWN_FORMAT),
        (Sampling(seed=7, dialect="ollama", more={"num_batch": 8}), UNKNOWN, {"seed": 7}),
        (Sampling(dialect="openai", more={"model": "x", "messages": [], "stream": False, "stream_options": {}}),
         UNKNOWN, {}),
    ],
)  # fmt: skip
def test_fields_for_openai_servers(
    router: respx.MockRouter, sampling: Sampling, server: tuple[str, str], expected: Mapping[str, Any]
) -> None:
    assert to_openai(router, sampling, server) == expected


NUM_CTX = {"num_ctx": 4096}


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (DEFAULT_SAMPLING, {"options": NUM_CTX}),
        (ALL, {"options": {**COMMON, "num_predict": 100, "top_k": 40, "min_p": 0.05, "seed": 7, **NUM_CTX}}),
        (Sampling(keep_alive="10m"), {"keep_alive": "10m", "options": NUM_CTX}),
        (Sampling(keep_alive=0), {"keep_alive": 0, "options": NUM_CTX}),
        *[(Sampling(effort=effort), {"think": think, "options": NUM_CTX}) for effort, think in (
            (True, True), (False, False), ("none", False), ("minimal", "low"), ("high", "high"), ("xhigh", "max"))],
        (Sampling(format="json"), {"format": "json", "options": NUM_CTX}),
        (Sampling(format=SCHEMA, dialect="openai", more={"logit_bias": {}}), {"format": SCHEMA, "options": NUM_CTX}),
        (Sampling(seed=7, dialect="ollama", more={"num_batch": 8, "num_ctx": 9}),
         {"options": {"seed": 7, "num_batch": 8, **NUM_CTX}}),
    ],
)  # fmt: skip
def test_fields_for_ollama(router: respx.MockRouter, sampling: Sampling, expected: Mapping[str, Any]) -> None:
    assert to_ollama(router, sampling) == expected
    assert "think" not in to_ollama(router, sampling, can_think=False)


def test_stop_sequences(router: respx.MockRouter) -> None:
    stop = Decoding(stop=("\n\n", "Question:"))
    assert to_openai(router, DEFAULT_SAMPLING, decoding=stop)["stop"] == ["\n\n", "Question:"]
    assert to_ollama(router, DEFAULT_SAMPLING, decoding=stop)["options"] == {"stop": ["\n\n", "Question:"], **NUM_CTX}


# hosted servers, which no test can reach


@pytest.mark.parametrize(
    ("url", "name", "resume", "fields"),
    [
        ("https://api.mistral.ai/v1", "Mistral", "prefill", {"prefix": True}),
        ("https://api.deepseek.com/beta", "DeepSeek", "prefill", {"prefix": True}),
        ("https://api.deepseek.com/v1", "unknown", "message", {}),
        ("https://openrouter.ai/api/v1", "OpenRouter", "prefill", {}),
        ("https://api.openai.com/v1", "OpenAI", "message", {}),
        ("https://api.mistral.ai.example/v1", "unknown", "message", {}),
    ],
)
def test_a_hosted_server(router: respx.MockRouter, url: str, name: str, resume: str, fields: dict[str, Any]) -> None:
    router.get(f"{url}/models").respond(json={"data": [{"id": "m"}]})
    route = router.post(f"{url}/chat/completions").respond(content=ANSWER, content_type="text/event-stream")

    async def main() -> None:
        model = OpenAI(row("openai", url, key="secret"))
        assert (await model.identify(), model.resume) == (f"{name} server", resume)
        assert await collect(model, STARTED) == [" on.", Finish("stop")]
        await model.aclose()

    asyncio.run(main())
    request = route.calls.last.request
    assert request.headers["authorization"] == "Bearer secret"
    assert json.loads(request.content)["messages"][-1] == {"role": "assistant", "content": "Go", **fields}
