"""Servers of two kinds in one turn: the first one fails in every way, at every chunk, and the second one continues."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from brain_servers import brain_served
from limits import WAIT_SECONDS
from model_servers import Cut, OllamaServer, OpenAIServer, Pass, Raw, in_thread, models
from turn_helpers import read, short, turn_of

from brain import settings
from brain.models import ModelEntry, connect_models

pytestmark = pytest.mark.anyio

CHUNKS = ["The ", "ans", "wer ", "is "]
MODELS = models("first", owned_by="test")
OLLAMA = {"GET /api/version": (200, {"version": "0.9.0"}), "POST /api/show": (200, {"capabilities": ["completion"]})}


@dataclass
class Pair:
    first: OpenAIServer
    second: OllamaServer
    entry: ModelEntry


@asynccontextmanager
async def pair(*passes: Pass, **environ: str) -> AsyncIterator[Pair]:
    """The model `small` of an OpenAI server, which falls back to `large` of an Ollama server."""
    async with OpenAIServer(*passes, answers=MODELS) as first, OllamaServer(Pass(["42."]), answers=OLLAMA) as second:
        rows = {
            "small": {"is": "openai:first", "url": first.url, "resume": "prefill"},
            "large": {"is": "ollama:second", "url": second.url},
        }
        read_settings = settings.read(environ, None, {"MODELS": rows, "MODEL": "small", "FALLBACK_MODEL": "large"})
        async with connect_models(read_settings, ()) as connected:
            yield Pair(first, second, connected.offered[0])


async def answer_of(entry: ModelEntry) -> str:
    events = short(await read(turn_of(entry.model, fallbacks=entry.fallbacks)))
    assert "done" in events[-1]
    return "".join(event for event in events if isinstance(event, str))


@pytest.mark.parametrize("at", range(len(CHUNKS) + 1))
@pytest.mark.parametrize("end", [Cut(), Cut(reset=True), Raw(b"data: {broken\n\n"), Raw(b'data: {"error": "x"}\n\n')])
async def test_a_stream_that_fails_at_any_chunk(at: int, end: Cut | Raw) -> None:
    async with pair(Pass([*CHUNKS[:at], end], finish=None, done=False)) as one:
        text = "".join(CHUNKS[:at])
        assert await answer_of(one.entry) == f"{text}42."
        (body,) = one.second.generated
        assert body["messages"][-1]["content"] == text if at else body["messages"][-1]["role"] == "user"


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
async def test_a_status_that_another_server_may_not_return(status: int) -> None:
    async with pair(Pass(status=status, answer={"error": {"message": "x"}})) as one:
        assert await answer_of(one.entry) == "42."


async def test_a_bad_request_ends_the_turn() -> None:
    async with pair(Pass(status=400, answer={"error": {"message": "x"}})) as one:
        events = short(await read(turn_of(one.entry.model, fallbacks=one.entry.fallbacks)))
        assert events[-1] == {"failed": "model_failed"}
        assert one.second.generated == []


async def test_a_server_that_is_gone() -> None:
    async with pair() as one:
        one.first._server.close()
        assert await answer_of(one.entry) == "42."


USER = [{"role": "user", "content": "What?"}]
AI_SDK = [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "What?"}]}]
AG_UI = {"threadId": "t", "runId": "r", "messages": [{"id": "1", **USER[0]}]}
STREAMED = {"model": "brain", "messages": USER, "stream": True}
BEGINS = {"native": "turn_start", "openai": '"role":"assistant"', "ai_sdk": "text-start", "ag_ui": "TEXT_MESSAGE_START"}


@pytest.mark.parametrize(
    ("protocol", "path", "body", "text"),
    [
        ("native", "/v1/chat/stream", {"message": "What?"}, r'event: token\n.*?"text":("[^"]*")'),
        ("openai", "/v1/chat/completions", STREAMED, r'"content":("[^"]+")'),
        ("ollama", "/api/chat", {"model": "brain", "messages": USER}, r'"content":("[^"]*")'),
        ("ai_sdk", "/ai-sdk/chat", {"messages": AI_SDK}, r'"text-delta".*?"delta":("[^"]*")'),
        ("ag_ui", "/ag-ui/run", AG_UI, r'"TEXT_MESSAGE_CONTENT".*?"delta":("[^"]*")'),
    ],
)  # fmt: skip
def test_a_client_gets_one_message(protocol: str, path: str, body: dict[str, Any], text: str) -> None:
    cut = Pass([*CHUNKS, Cut()], finish=None, done=False)
    with (
        in_thread(OpenAIServer(cut, answers=MODELS)) as first,
        in_thread(OllamaServer(Pass(["42."]), answers=OLLAMA)) as second,
    ):
        rows = {
            "small": {"is": "openai:first", "url": first.url, "fallback": ["large"]},
            "large": {"is": "ollama:second", "url": second.url},
        }
        with brain_served(MODELS=json.dumps(rows), MODEL="small", STORE="memory:") as server:
            answer = httpx.post(f"{server.url}{path}", json=body, timeout=WAIT_SECONDS, trust_env=False).text
    assert "".join(json.loads(one) for one in re.findall(text, answer)) == "The answer is 42."
    assert protocol == "ollama" or answer.count(BEGINS[protocol]) == 1
    assert (answer.count('"fallback"') == 1) == (protocol not in ("openai", "ollama"))


def test_servers_of_two_kinds_play_two_roles() -> None:
    plan = [Pass(["<instruction>", "Look.</instruction>"]), Pass(["TASK_", "DONE"])]
    work = [Pass(["<action>It is ", "42.</action>"]), Pass(["<deliverable><final_", "output>42.", "</final_output>"])]
    with (
        in_thread(OpenAIServer(*plan, answers=MODELS)) as thinker,
        in_thread(OllamaServer(*work, answers=OLLAMA)) as actor,
    ):
        rows = {
            "big": {"is": "openai:first", "url": thinker.url, "context": 4096},
            "small": {"is": "ollama:second", "url": actor.url, "context": 2048},
        }
        with brain_served(MODELS=json.dumps(rows), THINKER="big", ACTOR="small", STORE="memory:") as server:
            body = {"message": "What?", "strategy": "dual"}
            frames = httpx.post(f"{server.url}/v1/chat/stream", json=body, timeout=WAIT_SECONDS, trust_env=False).text
    rounds = [json.loads(data) for data in re.findall(r"event: round\ndata: (.*)", frames)]
    assert [(one["role"], one["model"]) for one in rounds] == [
        ("thinker", "big"), ("actor", "small"), ("thinker", "big"), ("writer", "small"),
    ]  # fmt: skip
    (done,) = (json.loads(data) for data in re.findall(r"event: done\ndata: (.*)", frames))
    assert (done["stop_reason"], done["text"]) == ("deliverable", "42.")
    (usage,) = (json.loads(data) for data in re.findall(r"event: usage\ndata: (.*)", frames))
    assert set(usage["models"]) == {"big", "small"}
    assert "It is 42." in thinker.generated[1]["messages"][-1]["content"]
