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
from model_servers import Cut, OllamaServer, OpenAIServer, Pass, Raw, Reasoning, in_thread, models
from turn_helpers import read, short, turn_of

from brain import settings
from brain.models import connect_models
from brain.models.model import Model

pytestmark = pytest.mark.anyio

CHUNKS = ["The ", "ans", "wer ", "is "]
MODELS = models("first", owned_by="test")
OLLAMA = {"GET /api/version": (200, {"version": "0.9.0"}), "POST /api/show": (200, {"capabilities": ["completion"]})}


@dataclass
class Pair:
    first: OpenAIServer
    second: OllamaServer
    model: Model


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


async def answer_of(model: Model) -> str:
    events = short(await read(turn_of(model, fallbacks=model.fallbacks)))
    assert "done" in events[-1]
    return "".join(event for event in events if isinstance(event, str))


@pytest.mark.parametrize("at", range(len(CHUNKS) + 1))
@pytest.mark.parametrize(
    "end",
    [
        Cut(),
        Cut(reset=True),
        Raw(b"data: {broken\n\n"),
        Raw(b'data: {"error": "x"}\n\ndata: [DONE]\n\n'),
        Raw(b'data: {"object": "error", "message": "x", "code": 500}\n\ndata: [DONE]\n\n'),
        Raw(b"event: error\ndata: x\n\ndata: [DONE]\n\n"),
        Raw(b'data: {"choices": [{"delta": {}, "finish_reason": "network_error"}]}\n\ndata: [DONE]\n\n'),
    ],
)
async def test_a_stream_that_fails_at_any_chunk(at: int, end: Cut | Raw) -> None:
    async with pair(Pass([*CHUNKS[:at], end], finish=None, done=False)) as one:
        text = "".join(CHUNKS[:at])
        assert await answer_of(one.model) == f"{text}42."
        (body,) = one.second.generated
        assert body["messages"][-1]["content"] == text if at else body["messages"][-1]["role"] == "user"


async def test_an_unknown_reason_without_a_text_is_a_failure() -> None:
    async with pair(Pass([Reasoning("Hm.")], finish="because")) as one:
        events = short(await read(turn_of(one.model, fallbacks=one.model.fallbacks)))
        assert (events[-1]["done"], events[-1]["text"]) == ("complete", "42.")


FILTERED = Pass(status=400, answer={"error": {"code": "content_filter", "message": "The prompt was filtered."}})


@pytest.mark.parametrize("filtered", [Pass(finish="content_filter"), Pass(["The "], finish="sensitive"), FILTERED])
async def test_a_filter_ends_the_answer(filtered: Pass) -> None:
    async with pair(filtered, filtered) as one:
        events = short(await read(turn_of(one.model, fallbacks=one.model.fallbacks)))
        assert events[-1]["done"] == "content_filter"
        assert (one.second.generated, one.model.resume) == ([], "prefill")


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
async def test_a_status_that_another_server_may_not_return(status: int) -> None:
    async with pair(Pass(status=status, answer={"error": {"message": "x"}})) as one:
        assert await answer_of(one.model) == "42."


async def test_a_bad_request_ends_the_turn() -> None:
    async with pair(Pass(status=400, answer={"error": {"message": "x"}})) as one:
        events = short(await read(turn_of(one.model, fallbacks=one.model.fallbacks)))
        assert events[-1] == {"failed": "model_failed"}
        assert one.second.generated == []


async def test_a_server_that_is_gone() -> None:
    async with pair() as one:
        one.first.close()
        assert await answer_of(one.model) == "42."


USER = [{"role": "user", "content": "What?"}]
AI_SDK = [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "What?"}]}]
AG_UI = {"threadId": "t", "runId": "r", "messages": [{"id": "1", **USER[0]}]}
STREAMED = {"model": "brain", "messages": USER, "stream": True}
BEGINS = {"native": "turn_start", "openai": '"role":"assistant"', "ai_sdk": "text-start", "ag_ui": "TEXT_MESSAGE_START"}


WIRES: dict[str, tuple[str, Any, str]] = {
    "native": ("/v1/chat/stream", {"message": "What?"}, r'event: token\n.*?"text":("[^"]*")'),
    "openai": ("/v1/chat/completions", STREAMED, r'"content":("[^"]+")'),
    "ollama": ("/api/chat", {"model": "brain", "messages": USER}, r'"content":("[^"]*")'),
    "ai_sdk": ("/ai-sdk/chat", {"messages": AI_SDK, "sdk_version": 6}, r'"text-delta".*?"delta":("[^"]*")'),
    "ag_ui": ("/ag-ui/run", AG_UI, r'"TEXT_MESSAGE_CONTENT".*?"delta":("[^"]*")'),
}
"""By protocol: path, body, and a pattern for the texts of the answer."""


@pytest.mark.parametrize("protocol", WIRES)
def test_a_client_gets_one_message(protocol: str) -> None:
    path, body, text = WIRES[protocol]
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


def busy(status: int, retry_after: str) -> Pass:
    return Pass(status=status, answer={}, kind=f"application/json\r\nretry-after: {retry_after}")


FAR = "Fri, 31 Dec 2100 23:59:59 GMT"
PAST = "Sun, 06 Nov 1994 08:49:37 GMT"


def test_the_time_after_which_a_busy_model_server_may_answer_reaches_every_client() -> None:
    not_streamed = {**WIRES, "openai, whole": (WIRES["openai"][0], {**STREAMED, "stream": False}, "")}
    not_streamed["ollama, whole"] = (WIRES["ollama"][0], {**WIRES["ollama"][1], "stream": False}, "")
    cases = [(503, "20", "20"), (503, "7.2", "8"), (503, PAST, "1"), (503, FAR, None), (503, "soon", None)]
    cases += [(429, "20", "20")]
    passes = [busy(status, text) for status, text, _ in cases for _ in not_streamed]
    with in_thread(OpenAIServer(*passes, answers=MODELS)) as first:
        rows = {"small": {"is": "openai:first", "url": first.url}}
        with brain_served(MODELS=json.dumps(rows), MODEL="small", STORE="memory:") as server:
            for status, _, expected in cases:
                for protocol, (path, body, _) in not_streamed.items():
                    answer = httpx.post(f"{server.url}{path}", json=body, timeout=WAIT_SECONDS, trust_env=False)
                    if protocol == "native":
                        assert answer.status_code == 200
                        (data,) = re.findall(r"event: error\ndata: (.*)", answer.text)
                        found = json.loads(data)
                        assert (found["status"], found.get("retry_after")) == (status, expected and int(expected))
                    else:
                        assert (protocol, answer.status_code) == (protocol, status)
                        assert answer.headers.get("retry-after") == expected


def test_a_filter_reaches_every_client_in_the_words_of_its_protocol() -> None:
    words = {
        "native": '"stop_reason":"content_filter"',
        "openai": '"finish_reason":"content_filter"',
        "ollama": '"done_reason":"content_filter"',
        "ai_sdk": '"finishReason":"content-filter"',
        "ag_ui": '"stopReason":"content_filter"',
    }
    passes = [one for _ in WIRES for one in (Pass(["The "], finish="content_filter"), FILTERED)]
    with in_thread(OpenAIServer(*passes, answers=MODELS)) as first:
        rows = {"small": {"is": "openai:first", "url": first.url}}
        with brain_served(MODELS=json.dumps(rows), MODEL="small", STORE="memory:") as server:
            for protocol, (path, body, text) in WIRES.items():
                for expected in ("The ", ""):
                    answer = httpx.post(f"{server.url}{path}", json=body, timeout=WAIT_SECONDS, trust_env=False)
                    assert (answer.status_code, answer.text.count(words[protocol])) == (200, 1)
                    assert "".join(json.loads(one) for one in re.findall(text, answer.text)) == expected


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
