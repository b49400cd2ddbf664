"""Ollama's own clients, with nothing changed but the address: the one for Python, the one for JavaScript, and curl."""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing, closing, contextmanager
from typing import Any, NamedTuple

import httpx
import pytest
from brain_servers import Server
from client_specialists import BREAKS, LETTER, NAP, PNG, PNG_BASE64, WEATHER, prompt, serve
from limits import WAIT_SECONDS
from model_servers import OllamaServer, Pass, Reasoning, in_thread
from node_clients import Clients, Script
from ollama import AsyncClient, Client, ResponseError
from turn_helpers import Player

from brain.errors import ModelError

HI = [{"role": "user", "content": "Hi"}]
CUBE: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "cube",
        "description": "The cube of a number.",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    },
}
HAS_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


class Outcome(NamedTuple):
    """What a client got: text, why it ended, calls of its own tools, and status and text of an error."""

    text: str = ""
    done_reason: str | None = None
    calls: tuple[tuple[str, Any], ...] = ()
    error: tuple[int | None, str] | None = None


def join(parts: Iterable[Any]) -> Outcome:
    """What the parts of a stream, or a whole answer, say together."""
    text, reason, calls = "", None, []
    for part in parts:
        message = part.get("message") or {"content": part.get("response")}
        text += message.get("content") or ""
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        calls += [(function["name"], function["arguments"]) for function in functions]
        reason = part.get("done_reason") or reason
    return Outcome(text, reason, tuple(calls))


def ask_python(url: str, method: str, request: Any, parts: list[Any]) -> None:
    with connect(url) as client:
        answer = getattr(client, method)(**request)
        for part in answer if request["stream"] else [answer]:
            parts.append(part.model_dump())


def ask_async_python(url: str, method: str, request: Any, parts: list[Any]) -> None:
    async def ask() -> None:
        client: Any = AsyncClient(url, timeout=WAIT_SECONDS, trust_env=False)
        try:
            answer = await getattr(client, method)(**request)
            async for part in answer if request["stream"] else aiterate(answer):
                parts.append(part.model_dump())
        finally:
            await client.close()

    asyncio.run(ask())


async def aiterate(one: Any) -> AsyncIterator[Any]:
    yield one


ASKS = {"Python": ask_python, "async Python": ask_async_python}


def ask_script(script: Script, method: str, request: Any, until: str = "") -> tuple[list[Any], Any]:
    """The parts that the script for JavaScript got, and how it ended: "end", or an error."""
    script.say(json.dumps({"method": method, "request": request, "until": until}))
    parts: list[Any] = []
    while "name" not in (line := json.loads(script.line())) and line != "end":
        parts.append(line)
        if not request.get("stream"):
            return parts, "end"
    return parts, line


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with serve() as server:
        yield server


@pytest.fixture
def brain(running: Server) -> Iterator[Server]:
    running.play(Player(["Hello."], name="builtin"))
    yield running
    assert running.left() == []


@pytest.fixture
def javascript(clients: Clients, running: Server) -> Iterator[Script]:
    with clients.running("ollama.mjs", running.url) as script:
        yield script


@contextmanager
def connect(url: str, **options: Any) -> Iterator[Client]:
    with closing(Client(url, timeout=WAIT_SECONDS, trust_env=False, **options)) as client:
        yield client


@pytest.fixture
def client(brain: Server) -> Iterator[Client]:
    with connect(brain.url) as made:
        yield made


FAILS = ModelError("model_failed", "The model failed.")
LOOKED = Outcome("Let me look. Sun\u2028ny.", "stop")
LOOKS = [["Let me look. ", WEATHER, BREAKS], ["Sun\u2028", "ny."]]
TALKS: dict[str, Any] = {
    "chat": ("chat", LOOKS, {"messages": HI}, LOOKED, LOOKED),
    "generate": ("generate", LOOKS, {"prompt": "Hi"}, LOOKED, LOOKED),
    "its own tool": (
        "chat",
        [["Look. ", WEATHER], ["Cubed: ", 'SPECIALIST_REQUEST[cube:{"n":3}]']],
        {"messages": HI, "tools": [CUBE]},
        *[Outcome("Look. Cubed: ", "stop", (("cube", {"n": 3}),))] * 2,
    ),
    "a stop text": (
        "chat",
        [["One, two", ", EN", "D three"]],
        {"messages": HI, "options": {"stop": ["END"]}},
        *[Outcome("One, two, ", "stop")] * 2,
    ),
    "a failure": (
        "chat",
        [["Once ", FAILS]],
        {"messages": HI},
        Outcome("Once ", error=(None, "The model failed.")),
        Outcome(error=(502, "The model failed.")),
    ),
    "no such model": (
        "chat",
        [],
        {"messages": HI, "model": "nobody"},
        *[Outcome(error=(404, "model 'nobody' not found"))] * 2,
    ),
    "loading": ("chat", [], {"messages": []}, *[Outcome(done_reason="load")] * 2),
    "unloading": ("generate", [], {"prompt": "", "keep_alive": 0}, *[Outcome(done_reason="unload")] * 2),
}
"""The client's method, the passes of the model, the request, and the expected outcome with and without streaming."""


@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", [*ASKS, pytest.param("JavaScript", marks=pytest.mark.node)])
def test_every_client_gets_the_same(
    brain: Server, request: pytest.FixtureRequest, name: str, stream: bool, talk: str
) -> None:
    method, passes, options, of_stream, of_whole = TALKS[talk]
    brain.play(Player(*passes))
    body = {"model": "brain", "stream": stream, **options}
    parts: list[Any] = []
    error = None
    try:
        if name == "JavaScript":
            parts, end = ask_script(request.getfixturevalue("javascript"), method, body)
            error = None if end == "end" else (end.get("status"), end["message"])
        else:
            ASKS[name](brain.url, method, body, parts)
    except ResponseError as raised:
        error = None if raised.status_code == -1 else raised.status_code, raised.error
    assert join(parts)._replace(error=error) == (of_stream if stream else of_whole)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("item", ["", NAP])
def test_who_does_not_wait_for_the_model_ends_the_turn(brain: Server, stream: bool, item: str) -> None:
    brain.play(player := Player([item, asyncio.Event()]))
    body = {"model": "brain", "messages": HI, "stream": stream}
    with httpx.Client(trust_env=False, timeout=0.1) as http, pytest.raises(httpx.ReadTimeout):
        http.post(f"{brain.url}/api/chat", json=body)
    assert player.begun.wait(WAIT_SECONDS)


def test_who_leaves_ends_the_turn(brain: Server, client: Client) -> None:
    async def leave() -> None:
        client: Any = AsyncClient(brain.url, timeout=WAIT_SECONDS, trust_env=False)
        async with aclosing(await client.chat("brain", HI, stream=True)) as parts:
            await anext(parts)
        await client.close()

    brain.play(Player(["Once ", asyncio.Event()]))
    stream: Any = client.chat("brain", HI, stream=True)
    next(stream)
    stream.close()
    assert brain.left() == []
    asyncio.run(leave())


@pytest.mark.node
def test_who_leaves_in_javascript_ends_the_turn(brain: Server, javascript: Script) -> None:
    brain.play(Player(["Once ", "upon ", asyncio.Event()]))
    parts, end = ask_script(javascript, "chat", {"model": "brain", "messages": HI, "stream": True}, "upon")
    assert (join(parts).text, end["name"]) == ("Once upon ", "AbortError")
    assert brain.left() == []


def test_the_client_keeps_the_conversation(brain: Server, client: Client) -> None:
    brain.play(Player(["Once upon ", "a time ", asyncio.Event()]))
    stream: Any = client.chat("brain", HI, stream=True)
    begun = "".join(next(stream).message.content for _ in range(2))
    stream.close()
    assert brain.left() == []
    brain.play(player := Player(['SPECIALIST_REQUEST[cube:{"n":3}]']))
    history: list[Any] = [*HI, {"role": "assistant", "content": begun}, {"role": "user", "content": "3 cubed?"}]
    history += [client.chat("brain", history, tools=[CUBE]).message]
    assert "The cube of a number." in player.requests[0][0].content
    history += [{"role": "tool", "content": "27", "tool_name": "cube"}]
    brain.play(player := Player(["It is 27."]))
    assert client.chat("brain", history, tools=[CUBE]).message.content == "It is 27."
    assert [(message.role, message.content[:16]) for message in player.requests[0][1:3]] == [
        ("user", "Hi"), ("assistant", "Once upon a time"),
    ]  # fmt: skip
    assert 'SPECIALIST_REQUEST[cube:{"n":3}]\n\n[SPECIALIST_RESULT: cube]\n27\n[/SPECIALIST_RESULT]' in prompt(player)
    client.generate("brain", "Hi", system="Be kind.")
    assert "Be kind." in player.requests[-1][0].content


@pytest.mark.parametrize("way", ["chat", "generate", pytest.param("JavaScript", marks=pytest.mark.node)])
def test_pictures(brain: Server, client: Client, request: pytest.FixtureRequest, way: str) -> None:
    brain.play(player := Player(["I see."]))
    if way == "generate":
        client.generate("brain", "What is it?", images=[PNG])
    else:
        picture: Any = PNG if way == "chat" else PNG_BASE64
        first: Any = {"role": "user", "content": "What is it?", "images": [picture]}
        history: list[Any] = [first, {"role": "assistant", "content": "A line."}, {**first, "content": "And this?"}]
        if way == "chat":
            client.chat("brain", history)
        else:
            ask_script(request.getfixturevalue("javascript"), "chat", {"model": "brain", "messages": history})
    assert f"{1 if way == 'generate' else 2} image image/png 28" in prompt(player)


def test_heartbeats_are_empty_parts() -> None:
    with serve(HEARTBEAT_SECONDS=0.02) as server, connect(server.url) as client:
        answers = asyncio.Event()
        server.play(Player([answers, ModelError("model_failed", "The model server answered 429.", status=429)]))
        stream: Any = client.chat("brain", HI, stream=True)
        assert [next(stream).message.content for _ in range(2)] == ["", ""]
        server.release(answers)
        with pytest.raises(ResponseError) as raised:  # which can have no status any more
            list(stream)
    assert (raised.value.status_code, raised.value.error) == (-1, "The model server answered 429.")


# The server of the model


@contextmanager
def upstream(*passes: Pass) -> Iterator[tuple[OllamaServer, Server, Client]]:
    """Brain before an Ollama server that answers with these passes."""
    shown = {"capabilities": ["completion", "thinking"], "model_info": {"x.context_length": 8192}}
    ollama = OllamaServer(*passes, answers={"POST /api/show": (200, shown)})
    with in_thread(ollama), serve(MODEL="ollama:m", MODEL_URL=ollama.url) as server, connect(server.url) as client:
        yield ollama, server, client


@pytest.mark.parametrize(("status", "passed_on"), [(429, 429), (500, 502)])
def test_the_status_of_the_models_server_is_passed_on(status: int, passed_on: int) -> None:
    failure = Pass(status=status, answer={"error": "the key is swordfish"})
    with upstream(failure, failure) as (_, _, client):
        for stream in (True, False):
            with pytest.raises(ResponseError) as raised:
                list(client.chat("brain", HI, stream=stream))
            assert (raised.value.status_code, "swordfish" in raised.value.error) == (passed_on, False)


def test_options_thoughts_and_counts_pass_through() -> None:
    answers = [Pass([Reasoning("Hm, "), Reasoning("well."), "{}"], usage=(41, 9, None), finish="length")] * 2
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    options = {"temperature": 0.5, "num_predict": 9, "seed": 7, "repeat_penalty": 1.25}
    with upstream(*answers) as (ollama, _, client):
        for stream in (True, False):
            found: Any = client.chat(
                "brain", HI, options=options, format=schema, think=True, keep_alive="10m", stream=stream
            )
            parts = list(found) if stream else [found]
            assert "".join(part.message.thinking or "" for part in parts) == "Hm, well."
            assert "".join(part.message.content or "" for part in parts) == "{}"
            last = parts[-1]
            assert (last.done_reason, last.prompt_eval_count, last.eval_count) == ("length", 41, 9)
    for request in ollama.generated:
        del request["messages"]
        assert request == {
            "model": "m", "stream": True, "truncate": False, "think": True, "format": schema, "keep_alive": "10m",
            "options": {**options, "num_ctx": 8192},
        }  # fmt: skip


# Bad requests


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        *(("POST", path, body, 400) for path in ("chat", "generate", "show") for body in (b"{", b"\xff")),
        ("GET", "chat", b"", 405),
        ("POST", "tags", b"", 405),
        ("POST", "pull", b"", 404),
        ("DELETE", "delete", b"", 404),
    ],
)
def test_errors_have_ollamas_form(brain: Server, method: str, path: str, content: bytes, status: int) -> None:
    answer = httpx.request(method, f"{brain.url}/api/{path}", content=content, trust_env=False)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])


# Approvals, models, curl


@pytest.mark.curl
@HAS_CURL
def test_a_call_is_approved_as_the_answer_says(brain: Server, client: Client) -> None:
    brain.play(player := Player(["I write. ", LETTER], ["Done."]))
    texts = []
    for part in client.chat("brain", HI, stream=True):
        texts.append(part.message.content or "")
        if command := re.search(r"`(curl -X POST http:.*)`;", texts[-1]):
            subprocess.run(shlex.split(command[1]), capture_output=True, check=True)
    assert (texts[0], texts[2]) == ("I write. ", "Done.")
    assert "Sent to Ada." in prompt(player)
    assert client.chat("brain", HI).message.content == "I write. Done."  # approvals need a stream
    assert "[SPECIALIST_ERROR: letter failed" in prompt(player)


def test_the_models(brain: Server, client: Client) -> None:
    names = ["brain:latest", "brain:reason", "brain:dual", "brain:step", "builtin:latest"]
    assert [model.model for model in client.list().models] == [model.name for model in client.ps().models] == names
    for name in (names[0], names[-1]):
        shown = client.show(name)
        assert (shown.capabilities, shown.modelinfo and shown.modelinfo["brain.context_length"]) == (
            ["completion", "tools", "vision"], 131_072,
        )  # fmt: skip
        assert client.chat(name, HI).message.content == "Hello."
    with pytest.raises(ResponseError):
        client.show("x")
    version = httpx.get(f"{brain.url}/api/version", trust_env=False, timeout=WAIT_SECONDS).json()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version["version"])
    for path in ("/", "/api/version", "/api/tags"):  # what Ollama's command asks first
        assert httpx.head(brain.url + path, trust_env=False).status_code == 200


@pytest.mark.curl
@HAS_CURL
def test_curl(brain: Server) -> None:
    brain.play(Player(*LOOKS))
    body = json.dumps({"model": "brain", "messages": HI})
    command = ["curl", "-sN", "--max-time", "60", f"{brain.url}/api/chat", "-d", body]  # no type, as in Ollama's docs
    lines = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\n")
    assert join(json.loads(line) for line in lines if line) == LOOKED
