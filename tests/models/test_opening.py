"""Opening models: each with its own server and key, `auto`, embeddings, and servers that are away."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from brain_servers import Process
from limits import WAIT_SECONDS
from model_servers import OllamaServer, OpenAIServer, Pass, Server, in_thread, models

from brain.models import connect_models
from brain.settings import read

LLAMA_CPP = models("m", owned_by="llamacpp") | {"GET /props": (200, {"default_generation_settings": {"n_ctx": 2048}})}
SHOWN = {"POST /api/show": (200, {"capabilities": ["completion"], "model_info": {"llama.context_length": 4096}})}


def vectors(path: str, texts: int) -> dict[str, tuple[int, Any]]:
    """An answer with `count` embeddings."""
    return {f"POST {path}": (200, {"data": [{"embedding": [1.0, 0.5]}] * texts, "embeddings": [[1.0, 0.5]] * texts})}


@pytest.fixture
def servers() -> Iterator[dict[str, Server]]:
    """Servers of several owners; of the first two no requests for embeddings are expected."""
    with ExitStack() as stack:
        many = [Pass(["Hello."]) for _ in range(4)]
        by_name: dict[str, Server] = {
            "small": OllamaServer(*many, answers=SHOWN),
            "big": OpenAIServer(*many, answers=LLAMA_CPP),
            "open": OpenAIServer(*many, answers=models("m", owned_by="vllm")),
            "vec": OllamaServer(answers=SHOWN | vectors("/api/embed", 1)),
        }
        yield {name: stack.enter_context(in_thread(server)) for name, server in by_name.items()}


@pytest.fixture
def table(servers: dict[str, Server]) -> dict[str, Any]:
    """A row for each server."""
    return {
        "small": {"is": "ollama:m", "url": servers["small"].url},
        "big": {"is": "openai:m", "url": servers["big"].url, "key": "sk-big", "context": 1024, "sees_images": True},
        "open": {"is": "openai:m", "url": servers["open"].url, "key_env": "OPEN_KEY"},
        "vec": {"is": "ollama:m", "url": servers["vec"].url, "key": "sk-vec"},
    }


KEYS_OF = {"small": None, "big": "Bearer sk-big", "open": "Bearer sk-open", "vec": "Bearer sk-vec"}


def assert_each_has_its_own_key(servers: Mapping[str, Server], expected: Mapping[str, str | None] = KEYS_OF) -> None:
    """No request to a server has any key but its own, wherever in the request."""
    for name, server in servers.items():
        assert server.requests
        assert {request.headers.get("authorization") for request in server.requests} == {expected[name]}, name
        content = json.dumps([[request.path, dict(request.headers), request.body] for request in server.requests])
        assert content.count("sk-") == sum(expected[name] is not None for _ in server.requests)


def test_a_key_reaches_its_own_server_only(
    servers: dict[str, Server], table: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environ = {
        "OPEN_KEY": "sk-open",
        "OPENAI_API_KEY": "sk-of-openai",
        "OLLAMA_API_KEY": "sk-of-ollama",
        "BRAIN_MODEL_KEY": "sk-of-none",
        "BRAIN_MODELS": json.dumps(table),
        "BRAIN_EMBEDDINGS": "vec",
        "BRAIN_STORE": "memory:",
    }
    with Process("serve", "--port", "0", env=environ) as process:
        url = process.url()
        with httpx.Client(base_url=url, trust_env=False, timeout=WAIT_SECONDS) as client:
            for name in ("small", "big", "open", "brain"):
                body = {"model": name, "messages": [{"role": "user", "content": "Hello?"}]}
                answer = client.post("/v1/chat/completions", json=body).json()
                assert (answer["model"], answer["choices"][0]["message"]["content"]) == (name, "Hello.")
            assert client.get("/readyz").json()["model"] == "small"
            listed = client.get("/v1/models").json()["data"]
            strategies = ["brain:reason", "brain:dual", "brain:step"]
            assert [one["id"] for one in listed] == ["brain", *strategies, "big", "open", "small"]
            tags = client.get("/api/tags").json()["models"]
            configured = ["big:latest", "open:latest", "small:latest"]
            assert [one["name"] for one in tags] == ["brain:latest", *strategies, *configured]
            shown = client.post("/api/show", json={"model": "big"}).json()
            assert shown["model_info"]["brain.context_length"] == 1024
            assert "vision" in shown["capabilities"]
        process.process.terminate()
        everything = process.end()
    with Process("check", env=environ) as process:
        _, out, err = process.end(WAIT_SECONDS)
    assert "/api/embed" in {request.path for request in servers["vec"].requests}
    assert not [line for server in servers.values() for line in server.lines if "embeddings" in line]
    assert "sk-" not in f"{everything} {out} {err}"
    assert_each_has_its_own_key(servers)


async def opened(environ: Mapping[str, str]) -> list[tuple[str, str, str | None, str | None]]:
    """Name, reason and problem of the offered models, and the result of a probe."""
    async with connect_models(read(environ), ()) as models:
        return [(one.name, one.reason, one.problem, await one.find_problem()) for one in models.offered]


def test_auto_uses_ollama_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.models.AUTO_SECONDS", 30.0)
    listed = (200, {"models": [{"model": "m"}]})
    answers = SHOWN | {"GET /api/version": (200, {}), "GET /api/ps": listed, "GET /api/tags": listed}
    with in_thread(OllamaServer(answers=answers)) as server:
        ((name, reason, *problems),) = asyncio.run(opened({"BRAIN_MODEL": "auto", "OLLAMA_HOST": server.url}))
        assert (name, problems) == ("ollama:m", [None, None])
        assert "OLLAMA_HOST" in reason


@pytest.mark.parametrize(
    ("named", "name"),
    [({"OPENAI_MODEL": "m"}, "openai:m"), ({"BRAIN_MODELS": '{"mine": {"is": "openai:m"}}'}, "mine"), ({}, "builtin")],
)
def test_auto_without_ollama_uses_the_openai_api(servers: dict[str, Server], named: dict[str, str], name: str) -> None:
    environ = {"OPENAI_API_KEY": "sk-open", "OPENAI_BASE_URL": servers["open"].url, "OLLAMA_HOST": "127.0.0.1:1"}
    ((found, reason, *_),) = asyncio.run(opened({"BRAIN_MODEL": "auto", **environ, **named}))
    assert found == name
    assert "http://127.0.0.1:1" in reason
    assert "OPENAI_API_KEY" in reason
    assert "sk-open" not in reason
    assert bool(servers["open"].requests) == bool(named)


def test_servers_that_are_away_are_a_problem_and_no_error() -> None:
    url = "http://127.0.0.1:1"
    environ = {"BRAIN_MODEL": "ollama:m,builtin,openai:m", "OLLAMA_HOST": url, "OPENAI_BASE_URL": url}
    found = {name: (problem or "", probed) for name, _, problem, probed in asyncio.run(opened(environ))}
    assert [name for name, (problem, probed) in found.items() if url in problem and probed] == ["ollama:m", "openai:m"]
    assert found["builtin"] == ("", None)
    assert {text[-1] for pair in found.values() for text in pair if text} == {"."}


@pytest.mark.parametrize(
    ("name", "shown", "row", "local"),
    [
        ("m", {}, {}, True),
        ("m", {"remote_host": "https://ollama.com"}, {}, False),
        ("m", {"remote_host": "https://ollama.com"}, {"local": True}, True),
        ("m:cloud", None, {}, False),
        ("gpt-oss:120b-cloud", None, {}, False),
        ("cloud", {}, {}, True),
    ],
)
def test_models_that_ollama_passes_on_are_not_local(name: str, shown: Any, row: dict[str, Any], local: bool) -> None:
    answers = {"POST /api/show": (404 if shown is None else 200, shown or {})}
    with in_thread(OllamaServer(answers=answers)) as server:
        rows = {"m": {"is": f"ollama:{name}", "url": server.url, **row}}
        settings = read({"BRAIN_MODELS": json.dumps(rows)})

        async def is_local() -> bool:
            async with connect_models(settings, ()) as models:
                return models.offered[0].is_local

        assert asyncio.run(is_local()) is local


@pytest.mark.parametrize(
    ("model", "embeddings", "expected"),
    [(("big", "builtin"), "vec", [[[1.0, 0.5]]] * 2), (("vec", "builtin"), "vec", [[[1.0, 0.5]]] * 2),
     (("big", "builtin"), None, ["Refused"] * 2)],
)  # fmt: skip
def test_embeddings_come_from_their_own_server(
    servers: dict[str, Server], table: dict[str, Any], model: tuple[str, ...], embeddings: str | None, expected: Any
) -> None:
    settings = read({"BRAIN_MODELS": json.dumps(table), "OPEN_KEY": "x"})

    async def embed() -> list[Any]:
        async with connect_models(replace(settings, model=model, embeddings=embeddings), ()) as models:
            requests = (model.embed(["a"]) for model in models.offered)
            found = await asyncio.gather(*requests, return_exceptions=True)
            return [type(one).__name__ if isinstance(one, BaseException) else one for one in found]

    assert asyncio.run(embed()) == expected
    assert ("POST /v1/embeddings" in servers["big"].lines) == (embeddings is None)
