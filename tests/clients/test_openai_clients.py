"""OpenAI's clients, with nothing changed but the base URL: for Python, for JavaScript, LangChain, the command llm."""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest
from brain_servers import Server, post
from client_specialists import BREAKS, LETTER, NAP, PNG_BASE64, WEATHER, prompt, serve
from langchain_openai import ChatOpenAI
from limits import WAIT_SECONDS
from model_servers import OpenAIServer, Pass, Reasoning, in_thread, models
from node_clients import Clients, Script
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI
from pydantic import BaseModel
from turn_helpers import Player

from brain.errors import ModelError

HI: list[Any] = [{"role": "user", "content": "Hi"}]
ADD: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}
ADD_MARKER = 'SPECIALIST_REQUEST[add:{"a":1,"b":2}]'


class Outcome(NamedTuple):
    """What a client got: text, why it ended, calls of its own tools, and status and code of an error."""

    text: str = ""
    finish: str | None = None
    calls: tuple[tuple[str, Any], ...] = ()
    error: tuple[int | None, str] | None = None


def join(choices: Iterable[Any]) -> Outcome:
    """What choices, of chunks or of a whole answer, say together."""
    text, finish, calls = "", None, []
    for choice in choices:
        message = choice["delta"] if "delta" in choice else choice["message"]
        text += message.get("content") or ""
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        calls += [(function["name"], json.loads(function["arguments"])) for function in functions]
        finish = choice["finish_reason"] or finish
    return Outcome(text, finish, tuple(calls))


def ask_python(url: str, request: Any, choices: list[Any]) -> None:
    with connect(url) as client:
        answer = client.chat.completions.create(**request)
        for chunk in answer if request["stream"] else [answer]:
            choices += chunk.model_dump()["choices"]


def ask_async_python(url: str, request: Any, choices: list[Any]) -> None:
    async def ask() -> None:
        http = DefaultAsyncHttpxClient(trust_env=False)
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=http) as client:
            answer = await client.chat.completions.create(**request)
            async for chunk in answer if request["stream"] else aiterate(answer):
                choices.extend(chunk.model_dump()["choices"])

    asyncio.run(ask())


async def aiterate(one: Any) -> AsyncIterator[Any]:
    yield one


def ask_langchain(url: str, request: Any, choices: list[Any]) -> None:
    with DefaultHttpxClient(trust_env=False) as http:
        options: dict[str, Any] = {"api_key": "none", "http_client": http, "max_retries": 0}
        model: Any = ChatOpenAI(model=request["model"], base_url=f"{url}/v1", **options)
        model = model.bind_tools([tool["function"] for tool in request.get("tools", ())])
        found: Any = None
        for chunk in model.stream("Hi") if request["stream"] else [model.invoke("Hi")]:
            found = chunk if found is None else found + chunk
            choices.append({"message": {"content": chunk.content}, "finish_reason": None})
    calls = [{"function": {"name": call["name"], "arguments": json.dumps(call["args"])}} for call in found.tool_calls]
    choices.append({"message": {"tool_calls": calls}, "finish_reason": found.response_metadata["finish_reason"]})


ASKS = {"Python": ask_python, "async Python": ask_async_python, "LangChain": ask_langchain}


def ask_script(script: Script, request: Any, until: str = "") -> tuple[list[Any], Any]:
    """The choices that the script for JavaScript got, and how it ended: "end", or an error."""
    script.say(json.dumps({"request": {"model": "brain", "messages": HI, **request}, "until": until}))
    choices: list[Any] = []
    while "choices" in (line := json.loads(script.line())):
        choices += line["choices"]
        if line["object"] == "chat.completion":
            return choices, "end"
    return choices, line


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
    with clients.running("openai.mjs", running.url) as script:
        yield script


@contextmanager
def connect(url: str, key: str = "none", **options: Any) -> Iterator[OpenAI]:
    http = DefaultHttpxClient(trust_env=False)
    with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=http, **options) as client:
        yield client


@pytest.fixture
def client(brain: Server) -> Iterator[OpenAI]:
    with connect(brain.url) as made:
        yield made


def streamed(client: OpenAI, messages: Any = HI, **options: Any) -> Any:
    return client.chat.completions.create(model="brain", messages=messages, stream=True, **options)


def whole(client: OpenAI, messages: Any = HI, **options: Any) -> Any:
    return client.chat.completions.create(model="brain", messages=messages, **options)


def text_of(chunks: Iterable[Any]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


FAILS = ModelError("model_failed", "The model failed in the middle of its answer.")
LOOKED = "Let me look. Sun\u2028ny."
TALKS: dict[str, Any] = {
    "text": ([["Good ", "mor", "ning."]], {}, *[Outcome("Good morning.", "stop")] * 2),
    "calls": ([["Let me look. ", WEATHER, BREAKS], ["Sun\u2028", "ny."]], {}, *[Outcome(LOOKED, "stop")] * 2),
    "its own tool": (
        [["Look. ", WEATHER], ["Sum: ", ADD_MARKER]],
        {"tools": [ADD]},
        *[Outcome("Look. Sum: ", "tool_calls", (("add", {"a": 1, "b": 2}),))] * 2,
    ),
    "a failure": (
        [["And ", FAILS]],
        {},
        Outcome("And ", error=(None, "model_failed")),
        Outcome(error=(502, "model_failed")),
    ),
    "no such model": ([], {"model": "gpt-5"}, *[Outcome(error=(404, "model_not_found"))] * 2),
}
"""The passes of the model, the request, and the expected outcome with and without streaming."""


@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", [*ASKS, pytest.param("JavaScript", marks=pytest.mark.node)])
def test_every_client_gets_the_same(
    brain: Server, request: pytest.FixtureRequest, name: str, stream: bool, talk: str
) -> None:
    passes, options, of_stream, of_whole = TALKS[talk]
    brain.play(Player(*passes))
    body = {"model": "brain", "messages": HI, "stream": stream, **options}
    choices: list[Any] = []
    error = None
    try:
        if name == "JavaScript":
            choices, end = ask_script(request.getfixturevalue("javascript"), body)
            error = None if end == "end" else (end.get("status"), end["code"])
        else:
            ASKS[name](brain.url, body, choices)
    except openai.APIError as raised:
        error = getattr(raised, "status_code", None), str(raised.code)
    assert join(choices)._replace(error=error) == (of_stream if stream else of_whole)


def test_headers(brain: Server, client: OpenAI) -> None:
    create, header = client.chat.completions, {"X-Conversation-Id": "stored"}
    with create.with_streaming_response.create(model="brain", messages=HI, stream=True) as stream:
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-cache, no-transform"
        assert "x-conversation-id" not in stream.headers
        assert list(stream.iter_lines())[-2:] == ["data: [DONE]", ""]
    raw = create.with_raw_response.create(model="brain", messages=HI, extra_headers=header)
    assert (raw.headers["content-type"], raw.headers["x-conversation-id"]) == ("application/json", "stored")
    brain.play(player := Player(["You said Hi."]))
    assert post(brain.url, json={"message": "What?", "conversation_id": "stored"}).last["text"] == "You said Hi."
    assert [message.content.splitlines()[-1] for message in player.requests[0][1:3]] == ["Hi", "Hello."]


def test_the_client_assembles_streams_and_parses_answers(brain: Server, client: OpenAI) -> None:
    class City(BaseModel):
        name: str
        people: int

    brain.play(Player(["Let me see. ", ADD_MARKER]))
    with client.chat.completions.stream(model="brain", messages=HI, tools=[ADD]) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_completion().choices[0].message
    assert (kinds.count("tool_calls.function.arguments.done"), kinds.count("content.done")) == (1, 1)
    assert (message.content, len(message.tool_calls or ())) == ("Let me see. ", 1)
    brain.play(player := Player(['{"name":"Rome",', '"people":2800000}']))
    answer = client.chat.completions.parse(model="brain", messages=HI, response_format=City)
    assert answer.choices[0].message.parsed == City(name="Rome", people=2_800_000)
    assert isinstance(player.samplings[0].format, dict)


def test_the_models(brain: Server, client: OpenAI) -> None:
    brain.play(Player(["Hi"], name="ollama:tiny/m"))
    assert [model.id for model in client.models.list()] == [
        "brain", "brain:reason", "brain:dual", "brain:step", "builtin", "ollama:tiny/m",
    ]  # fmt: skip
    found = client.models.retrieve("ollama:tiny/m")
    assert (found.id, found.object, found.owned_by) == ("ollama:tiny/m", "model", "brain")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-5")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("item", ["", NAP])
def test_who_does_not_wait_for_the_model_ends_the_turn(brain: Server, stream: bool, item: str) -> None:
    brain.play(player := Player([item, asyncio.Event()]))
    with connect(brain.url, timeout=0.1) as client, pytest.raises(openai.APITimeoutError):
        for _ in client.chat.completions.create(model="brain", messages=HI, stream=stream):
            pass
    assert player.begun.wait(WAIT_SECONDS)


def test_who_leaves_ends_the_turn(brain: Server, client: OpenAI) -> None:
    async def leave() -> None:
        http = DefaultAsyncHttpxClient(trust_env=False)
        async with AsyncOpenAI(base_url=f"{brain.url}/v1", api_key="none", http_client=http) as client:
            stream = await client.chat.completions.create(model="brain", messages=HI, stream=True)
            await anext(aiter(stream))
            await stream.close()

    brain.play(Player(["Once ", asyncio.Event()]))
    stream = streamed(client)
    next(stream)
    stream.close()
    assert brain.left() == []
    asyncio.run(leave())


@pytest.mark.node
def test_who_leaves_in_javascript_ends_the_turn(brain: Server, javascript: Script) -> None:
    brain.play(Player(["Once ", "upon ", asyncio.Event()]))
    choices, end = ask_script(javascript, {"stream": True}, "upon")
    assert (join(choices).text, end) == ("Once upon ", "end")
    assert brain.left() == []


def test_the_client_keeps_the_conversation(brain: Server, client: OpenAI) -> None:
    brain.play(Player(["Once upon ", "a time ", asyncio.Event()]))
    stream = streamed(client)
    begun = text_of(next(stream) for _ in range(3))
    stream.close()
    assert brain.left() == []
    brain.play(player := Player(["I add. ", ADD_MARKER, ADD_MARKER.replace("1", "3")]))
    history = [*HI, {"role": "assistant", "content": begun}, {"role": "user", "content": "Go on."}]
    message = whole(client, history, tools=[ADD]).choices[0].message
    assert "\n- add (run by the user's program): Adds two numbers. {" in player.requests[0][0].content
    history.append(message)
    for call in message.tool_calls:
        result = str(sum(json.loads(call.function.arguments).values()))
        history.append({"role": "tool", "tool_call_id": call.id, "content": result})
    brain.play(player := Player(["They are 3 and 5."]))
    assert whole(client, history, tools=[ADD]).choices[0].message.content == "They are 3 and 5."
    assert [(message.role, message.content[:16]) for message in player.requests[0][1:3]] == [
        ("user", "Hi"), ("assistant", "Once upon a time"),
    ]  # fmt: skip
    for result in "35":
        assert f"[SPECIALIST_RESULT: add]\n{result}\n[/SPECIALIST_RESULT]" in prompt(player)
    whole(client, tools=[ADD], tool_choice="none")
    assert "- add (" not in player.requests[-1][0].content


def test_pictures_and_options_reach_the_model(brain: Server, client: OpenAI) -> None:
    brain.play(player := Player(["one END two"]))
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG_BASE64}"}}
    messages: list[Any] = [{"role": "user", "content": [picture, {"type": "text", "text": "What is it?"}]}]
    answer = whole(client, messages, temperature=0.5, stop=["END"], extra_body={"top_k": 40})
    assert (answer.choices[0].message.content, answer.usage.total_tokens > 100) == ("one ", True)
    assert (player.samplings[0].temperature, player.samplings[0].top_k) == (0.5, 40)
    assert "[SPECIALIST_RESULT: vision]\n1 image.png image/png 28\n[/SPECIALIST_RESULT]" in prompt(player)
    usage = list(streamed(client, stream_options={"include_usage": True}))[-1].usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 100


def test_keys_and_limits() -> None:
    with serve(KEYS="a-secret-of-ada-1:ada", TURNS_A_MINUTE=1) as server:
        server.play(Player(["Hello."]))
        with connect(server.url, "wrong") as client, pytest.raises(openai.AuthenticationError) as raised:
            streamed(client)
        assert raised.value.code == "invalid_api_key"
        with connect(server.url, "a-secret-of-ada-1") as client:
            assert whole(client).choices[0].message.content == "Hello."
            with pytest.raises(openai.RateLimitError) as limited:
                streamed(client)
        assert limited.value.code == "rate_limit_exceeded"
        assert int(limited.value.response.headers["retry-after"]) > 0


# The server of the model


@contextmanager
def upstream(*passes: Pass) -> Iterator[tuple[OpenAIServer, OpenAI]]:
    """Brain before a server of the same API that answers with these passes."""
    server = OpenAIServer(*passes, answers=models("m", owned_by="vllm"))
    with in_thread(server), serve(MODEL="openai:m", MODEL_URL=server.url) as brain, connect(brain.url) as client:
        yield server, client


@pytest.mark.parametrize(("status", "passed_on"), [(429, 429), (500, 502)])
def test_the_status_of_the_models_server_is_passed_on(status: int, passed_on: int) -> None:
    failure = Pass(status=status, answer={"error": {"message": "sk-secret"}})
    with upstream(failure, failure) as (_, client):
        for asks in (streamed, whole):
            with pytest.raises(openai.APIStatusError) as raised:
                asks(client)
            assert (raised.value.status_code, "sk-secret" in str(raised.value)) == (passed_on, False)


def test_thoughts_counts_and_unknown_options_pass_through() -> None:
    with upstream(Pass([Reasoning("hm"), "Hello"], usage=(10, 3, 8))) as (server, client):
        options = {"stream_options": {"include_usage": True}, "extra_body": {"guided_choice": ["Hello"]}}
        *_, usage = chunks = list(streamed(client, seed=1, **options))
        thoughts = [choice.delta.model_extra.get("reasoning_content") for chunk in chunks for choice in chunk.choices]
        assert (text_of(chunks), thoughts) == ("Hello", [None, "hm", None, None])
        assert usage.usage.prompt_tokens_details.cached_tokens == 8
        assert [(body["seed"], body["guided_choice"]) for body in server.generated] == [(1, ["Hello"])]


# Results, and approvals


@pytest.mark.curl
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(("approve", "block"), [("true", "Sent to Ada."), ("false", "letter failed - ")])
def test_a_call_is_approved_as_the_answer_says(brain: Server, client: OpenAI, approve: str, block: str) -> None:
    brain.play(player := Player([LETTER], ["Done."]))
    stream = streamed(client)
    text = ""
    while (command := re.search(r"`(curl [^`]+)`", text)) is None:
        text += text_of([next(stream)])
    arguments = shlex.split(command[1].replace("true", approve))
    subprocess.run([*arguments, "--silent", "--noproxy", "*", "--fail"], capture_output=True, check=True)
    assert text_of(stream) == "Done."
    assert block in prompt(player)


def test_the_command_llm(brain: Server, tmp_path: Path) -> None:
    def llm(*arguments: str) -> str:
        environ = {**os.environ, "LLM_USER_PATH": str(tmp_path), "NO_PROXY": "127.0.0.1", "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, "-m", "llm", *arguments, "-m", "brain", "--key", "none", "--system", "Be kind."]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout

    address = f'- model_id: brain\n  model_name: brain\n  api_base: "{brain.url}/v1"\n  supports_tools: true\n'
    (tmp_path / "extra-openai-models.yaml").write_text(address, "utf-8")
    brain.play(Player(["Let me look. ", WEATHER], ["Sunny."]))
    assert llm("Weather?") == "Let me look. Sunny.\n"
    brain.play(player := Player(["It was sunny."]))
    assert llm("What was it?", "--continue", "--no-stream") == "It was sunny.\n"
    assert "assistant: Let me look. Sunny." in prompt(player)
    assert player.requests[0][0].content.endswith("Be kind.")
