"""OpenAI's clients, with nothing changed but the base URL: for Python, for JavaScript, LangChain, the command llm."""

import asyncio
import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from answering import Cut, Pass, ThinkerRun, Wait, in_thread
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from nodes import Clients, Script
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI
from pydantic import BaseModel
from servers import OpenAIServer, models
from serving import Player, Server, brain_served, post

from brain import Citation, Context, Registry, Result, specialist
from brain.errors import ModelError

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
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
WEATHER = 'SPECIALIST_REQUEST[weather:{"city":"Rome"}]'


@specialist
async def weather(city: str) -> Result:
    """Weather for a city."""
    return Result(f"Sunny in {city}.", [Citation("1", "Forecast", "https://weather.example/rome")])


@specialist
async def breaks() -> str:
    """Fails."""
    raise RuntimeError("the password is swordfish")


@specialist(timeout=30)
async def nap(seconds: float) -> str:
    """Sleeps."""
    await asyncio.sleep(seconds)
    return "Rested."


@specialist(approval="always")
async def letter(to: str) -> str:
    """Sends a letter."""
    return f"Sent to {to}."


@specialist(activates_on=["image"])
async def vision(*, context: Context) -> str:
    """Looks at pictures."""
    return ", ".join(f"{a.id} {a.name} {a.type} {len(a.data)}" for a in context.attachments)


def everyone() -> Registry:
    registry = Registry()
    for one in (weather, breaks, nap, letter, vision):
        registry.add(one)
    return registry


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with brain_served(everyone()) as server:
        yield server


@pytest.fixture
def brain(running: Server) -> Server:
    running.play(Player(["Hello."], name="builtin"))
    return running


@contextmanager
def of(server: Server, key: str = "none", **options: Any) -> Iterator[OpenAI]:
    http = DefaultHttpxClient(trust_env=False)
    with OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, http_client=http, **options) as client:
        yield client


@pytest.fixture
def client(brain: Server) -> Iterator[OpenAI]:
    with of(brain) as made:
        yield made


def streamed(client: OpenAI, messages: Any = HI, **options: Any) -> Any:
    return client.chat.completions.create(model="brain", messages=messages, stream=True, **options)


def whole(client: OpenAI, messages: Any = HI, **options: Any) -> Any:
    return client.chat.completions.create(model="brain", messages=messages, **options)


def said(chunks: Iterable[Any]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def asked(player: Player, turn_pass: int = -1) -> str:
    """The conversation as the model got it."""
    return "\n".join(f"{message.role}: {message.content}" for message in player.asked[turn_pass][1:])


# The client for Python


def test_a_stream_as_it_comes(brain: Server, client: OpenAI) -> None:
    brain.play(Player(["Good ", "mor", "ning."]))
    chunks = streamed(client, stream_options={"include_usage": True})
    *answer, finish, usage = chunks = list(chunks)
    assert [chunk.choices[0].delta.content for chunk in answer] == ["", "Good ", "mor", "ning."]
    assert [chunk.choices[0].delta.role for chunk in answer] == ["assistant", None, None, None]
    assert (finish.choices[0].finish_reason, finish.choices[0].delta.content) == ("stop", None)
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert (finish.object, finish.model) == ("chat.completion.chunk", "brain")
    assert re.fullmatch(r"chatcmpl-t[0-9a-f]{16}", finish.id)
    assert usage.choices == []
    assert usage.usage.total_tokens == usage.usage.prompt_tokens + usage.usage.completion_tokens
    assert usage.usage.completion_tokens == 4


def test_an_answer_in_one_piece(brain: Server, client: OpenAI) -> None:
    brain.play(Player(["Let me look. ", WEATHER], ["Sunny."]))
    answer = whole(client)
    assert (answer.object, answer.model, len(answer.choices)) == ("chat.completion", "brain", 1)
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.choices[0].message.role, answer.choices[0].message.content) == ("assistant", "Let me look. Sunny.")
    assert answer.choices[0].message.tool_calls is None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 100


def test_the_raw_response(brain: Server, client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="brain", messages=HI, extra_headers={"X-Conversation-Id": "chat-1"}
    )
    assert raw.headers["content-type"] == "application/json"
    assert raw.headers["x-conversation-id"] == "chat-1"
    assert raw.parse().choices[0].message.content == "Hello."
    with client.chat.completions.with_streaming_response.create(model="brain", messages=HI, stream=True) as stream:
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-cache, no-transform"
        assert "x-conversation-id" not in stream.headers
        assert list(stream.iter_lines())[-2:] == ["data: [DONE]", ""]


def test_the_clients_own_way_to_put_a_stream_together(brain: Server, client: OpenAI) -> None:
    """It checks what each chunk adds, and parses what comes of it."""
    brain.play(Player(["Let me see. ", ADD_MARKER]))
    with client.chat.completions.stream(
        model="brain", messages=HI, tools=[ADD], stream_options={"include_usage": True}
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert kinds.count("tool_calls.function.arguments.done") == 1
    assert kinds.count("content.done") == 1
    assert final.choices[0].message.content == "Let me see. "
    calls = final.choices[0].message.tool_calls or []
    assert [call.function.name for call in calls] == ["add"]
    assert json.loads(calls[0].function.arguments) == {"a": 1, "b": 2}
    assert final.usage is not None


def test_the_models(brain: Server, client: OpenAI) -> None:
    brain.play(Player(["Hi"], name="ollama:tiny/m"))
    assert [model.id for model in client.models.list()] == ["brain", "builtin", "ollama:tiny/m"]
    found = client.models.retrieve("ollama:tiny/m")
    assert (found.id, found.object, found.owned_by) == ("ollama:tiny/m", "model", "brain")
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve("gpt-5")
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")


def test_the_asynchronous_client(brain: Server) -> None:
    brain.play(Player(["Let me look. ", WEATHER], ["Sun", "ny."]))

    async def conversation() -> None:
        http = DefaultAsyncHttpxClient(trust_env=False)
        async with AsyncOpenAI(base_url=f"{brain.url}/v1", api_key="none", max_retries=0, http_client=http) as client:
            stream = await client.chat.completions.create(model="brain", messages=HI, stream=True)
            assert said([chunk async for chunk in stream]) == "Let me look. Sunny."
            answer = await client.chat.completions.create(model="brain", messages=HI)
            assert answer.choices[0].message.content == "Let me look. Sunny."
            assert [model.id async for model in client.models.list()] == ["brain", "builtin", "player"]
            with pytest.raises(openai.NotFoundError):
                await client.chat.completions.create(model="x", messages=HI)

    asyncio.run(conversation())


def test_a_conversation_with_calls_an_error_a_cancel_and_a_new_beginning(brain: Server, client: OpenAI) -> None:
    first = Player(["Let me look. ", WEATHER, "SPECIALIST_REQUEST[breaks]"], ["Sunny, ", "but one failed."])
    brain.play(first)
    history: list[Any] = [{"role": "user", "content": "Weather?"}]
    answer = said(streamed(client, history))
    assert answer == "Let me look. Sunny, but one failed."
    assert "[SPECIALIST_RESULT: weather]\nSunny in Rome.\n[/SPECIALIST_RESULT]" in asked(first)
    assert "[SPECIALIST_ERROR: breaks failed" in asked(first)

    second = Player(["Once upon ", "a time ", 30.0, "never"])
    brain.play(second)
    history += [{"role": "assistant", "content": answer}, {"role": "user", "content": "A story!"}]
    stream = streamed(client, history)
    begun = [next(stream) for _ in range(3)]
    stream.close()
    assert brain.left() == []

    brain.play(Player(["And ", ModelError("model_failed", "The model failed in the middle of its answer.")]))
    with pytest.raises(openai.APIError, match="The model failed in the middle of its answer") as raised:
        said(streamed(client, history))
    assert not isinstance(raised.value, openai.APIStatusError)
    assert (raised.value.type, raised.value.code) == ("server_error", "model_failed")

    third = Player(["there was a king."])
    brain.play(third)
    history += [{"role": "assistant", "content": said(begun)}, {"role": "user", "content": "Go on."}]
    assert said(streamed(client, history)) == "there was a king."
    assert [(message.role, message.content) for message in third.asked[0][1:-1]] == [
        ("user", "Weather?"),
        ("assistant", "Let me look. Sunny, but one failed."),
        ("user", "A story!"),
        ("assistant", "Once upon a time "),
    ]
    assert asked(third).endswith("Go on.")


@pytest.mark.parametrize("stream", [True, False])
def test_who_leaves_ends_the_models_stream(brain: Server, stream: bool) -> None:
    """Before the first word, too."""
    player = Player([30.0, "never"])
    brain.play(player)
    with of(brain, timeout=0.3) as client, pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(model="brain", messages=HI, stream=stream)
    assert brain.left() == []


def test_the_asynchronous_client_that_leaves(brain: Server) -> None:
    player = Player(["Once ", 30.0])
    brain.play(player)

    async def leaves() -> None:
        http = DefaultAsyncHttpxClient(trust_env=False)
        async with AsyncOpenAI(base_url=f"{brain.url}/v1", api_key="none", http_client=http) as client:
            stream = await client.chat.completions.create(model="brain", messages=HI, stream=True)
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
            await stream.close()

    asyncio.run(leaves())
    assert brain.left() == []


def test_who_leaves_while_a_specialist_runs_ends_it(brain: Server, client: OpenAI) -> None:
    brain.play(Player(["Wait. ", 'SPECIALIST_REQUEST[nap:{"seconds":30}]'], ["never"]))
    stream = streamed(client)
    next(stream)
    next(stream)
    stream.close()
    assert brain.left() == []


# The client's own tools


def test_a_loop_of_the_clients_own_tools(brain: Server, client: OpenAI) -> None:
    player = Player(["Let me add. ", ADD_MARKER, 'SPECIALIST_REQUEST[add:{"a":3,"b":4}]'])
    brain.play(player)
    messages: list[Any] = [{"role": "user", "content": "1 + 2?"}]
    answer = whole(client, messages, tools=[ADD])
    assert answer.choices[0].finish_reason == "tool_calls"
    message = answer.choices[0].message
    assert message.content == "Let me add. "
    assert [(call.type, call.function.name) for call in message.tool_calls] == [("function", "add")] * 2
    assert [json.loads(call.function.arguments) for call in message.tool_calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert "\n- add (run by the user's program): Adds two numbers. {" in player.asked[0][0].content

    second = Player(["They are 3 and 7."])
    brain.play(second)
    messages.append(message)
    for call in message.tool_calls:
        arguments = json.loads(call.function.arguments)
        result = str(arguments["a"] + arguments["b"])
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    assert whole(client, messages, tools=[ADD]).choices[0].message.content == "They are 3 and 7."
    assert "[SPECIALIST_RESULT: add]\n3\n[/SPECIALIST_RESULT]" in asked(second)
    assert "[SPECIALIST_RESULT: add]\n7\n[/SPECIALIST_RESULT]" in asked(second)
    assert asked(second).count("SPECIALIST_REQUEST[add:") == 2


def test_specialists_and_the_clients_tools_in_one_stream(brain: Server, client: OpenAI) -> None:
    brain.play(Player(["Look. ", WEATHER], ["Sunny. ", ADD_MARKER]))
    *chunks, finish = streamed(client, tools=[ADD])
    assert said(chunks) == "Look. Sunny. "
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert [(call.index, call.function.name, call.function.arguments) for call in calls] == [
        (0, "add", '{"a":1,"b":2}')
    ]
    assert finish.choices[0].finish_reason == "tool_calls"


def test_tools_that_are_not_to_be_called_are_not_told_of(brain: Server, client: OpenAI) -> None:
    player = Player(["No tools."])
    brain.play(player)
    assert whole(client, tools=[ADD], tool_choice="none").choices[0].finish_reason == "stop"
    assert "add" not in player.asked[0][0].content


# What is asked for


def test_what_is_said_of_the_models_writing_reaches_it(brain: Server, client: OpenAI) -> None:
    player = Player(["one END two"])
    brain.play(player)
    answer = whole(
        client,
        stop=["END"],
        temperature=0.5,
        max_completion_tokens=99,
        seed=7,
        logit_bias={"7": -1},
        extra_body={"top_k": 40, "repetition_penalty": 1.1},
    )
    assert answer.choices[0].message.content == "one "
    assert answer.choices[0].finish_reason == "stop"
    (sampling,) = player.sampled
    assert (sampling.temperature, sampling.max_tokens, sampling.seed, sampling.top_k) == (0.5, 99, 7, 40)
    assert sampling.more == {"logit_bias": {"7": -1}, "repetition_penalty": 1.1}


class City(BaseModel):
    """What is to be found out."""

    name: str
    people: int


def test_an_answer_of_a_form(brain: Server, client: OpenAI) -> None:
    player = Player(['{"name":"Rome",', '"people":2800000}'])
    brain.play(player)
    answer = client.chat.completions.parse(model="brain", messages=HI, response_format=City)
    assert answer.choices[0].message.parsed == City(name="Rome", people=2_800_000)
    wanted = player.sampled[0].format
    assert isinstance(wanted, dict)
    assert wanted["required"] == ["name", "people"]


def test_pictures_are_attachments_of_the_conversation(brain: Server, client: OpenAI) -> None:
    player = Player(["Two pictures."])
    brain.play(player)
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    picture = {"type": "image_url", "image_url": {"url": url}}
    messages: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "First?"}, picture]},
        {"role": "assistant", "content": "A picture."},
        {"role": "user", "content": [picture, {"type": "text", "text": "Second?"}]},
    ]
    assert whole(client, messages).choices[0].message.content == "Two pictures."
    newest = player.asked[0][-1].content
    assert '(Attached, by image_id: 2: "image.png" (image/png))' in newest
    assert "[SPECIALIST_RESULT: vision]\n2 image.png image/png 28\n[/SPECIALIST_RESULT]" in newest


def test_instructions_stay_in_order(brain: Server, client: OpenAI) -> None:
    player = Player(["Hello."])
    brain.play(player)
    roles = ("developer", "system", "user", "system", "user")
    whole(client, [{"role": role, "content": f"{n}."} for n, role in enumerate(roles)])
    system, *others = player.asked[0]
    assert system.content.endswith("0.\n\n1.")
    assert [(message.role, message.content[:2]) for message in others[:2]] == [("user", "2."), ("system", "3.")]
    assert others[2].content.endswith("4.")


def test_a_header_files_the_turn(brain: Server, client: OpenAI) -> None:
    brain.play(Player(["Noted."]))
    header = {"X-Conversation-Id": "filed"}
    with client.chat.completions.with_streaming_response.create(
        model="brain", messages=HI, stream=True, extra_headers=header
    ) as stream:
        assert stream.headers["x-conversation-id"] == "filed"
        assert said(stream.parse()) == "Noted."
    player = Player(["You said Hi."])
    brain.play(player)
    assert post(brain.url, json={"message": "What?", "conversation_id": "filed"}).last["text"] == "You said Hi."
    assert [message.content.splitlines()[-1] for message in player.asked[0][1:3]] == ["Hi", "Noted."]


# What goes wrong


@pytest.mark.parametrize(
    ("options", "kind", "param"),
    [
        ({"n": 2}, openai.BadRequestError, "n"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"model": "gpt-5"}, openai.NotFoundError, "model"),
        ({"extra_headers": {"X-Conversation-Id": "../x"}}, openai.BadRequestError, "X-Conversation-Id"),
        ({"extra_headers": {"Content-Type": "text/plain"}}, openai.APIStatusError, "content-type"),
        ({"messages": [{"role": "user", "content": "x" * 200_001}]}, openai.APIStatusError, "messages[0].content"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_refusal_is_raised(brain: Server, client: OpenAI, options: Any, kind: Any, param: str, stream: bool) -> None:
    request: dict[str, Any] = {"model": "brain", "messages": HI, "stream": stream, **options}
    with pytest.raises(kind) as raised:
        client.chat.completions.create(**request)
    assert raised.value.param == param
    assert raised.value.type == "invalid_request_error"


def test_a_key_is_wanted(brain: Server) -> None:
    with brain_served(Registry(), KEYS="a-secret-of-ada-1:ada") as server:
        server.play(Player(["Hello, Ada."]))
        with of(server, "a-secret-of-ada-1") as client:
            assert whole(client).choices[0].message.content == "Hello, Ada."
        with of(server, "wrong") as client, pytest.raises(openai.AuthenticationError) as raised:
            streamed(client)
        assert raised.value.code == "invalid_api_key"


def test_who_asks_too_often_is_told_when_to_come_again() -> None:
    with brain_served(Registry(), TURNS_A_MINUTE=1) as server, of(server) as client:
        server.play(Player(["Hello."]), Player([]))
        assert whole(client).choices[0].message.content == "Hello."
        with pytest.raises(openai.RateLimitError) as raised:
            streamed(client)
        assert raised.value.code == "rate_limit_exceeded"
        assert 50 <= int(raised.value.response.headers["retry-after"]) <= 60


@contextmanager
def upstream(*passes: Pass, heartbeat: float = 15) -> Iterator[tuple[OpenAIServer, OpenAI]]:
    """Brain before a server of the same API that answers with these passes."""
    server = OpenAIServer(*passes, answers=models("m", owned_by="vllm"))
    with (
        in_thread(server),
        brain_served(MODEL="openai:m", MODEL_URL=server.url, HEARTBEAT_SECONDS=heartbeat) as brain,
        of(brain) as client,
    ):
        yield server, client


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
def test_what_the_models_server_refuses_with_is_passed_on(status: int, kind: type[openai.APIStatusError]) -> None:
    refusal = Pass(status=status, answer={"error": {"message": "sk-secret"}})
    with upstream(refusal, refusal) as (_, client):
        for ask in (streamed, whole):
            with pytest.raises(kind) as raised:
                ask(client)
            assert raised.value.status_code == (status if status < 500 else 502)
            assert "sk-secret" not in str(raised.value)


def test_all_that_is_said_goes_the_whole_way() -> None:
    with upstream(Pass([ThinkerRun("hm"), "Hello"], usage=(10, 3, 8))) as (server, client):
        *_, usage = chunks = list(
            streamed(client, stream_options={"include_usage": True}, extra_body={"guided_choice": ["Hello"]}, seed=1)
        )
        assert said(chunks) == "Hello"
        thoughts = [choice.delta.model_extra.get("reasoning_content") for chunk in chunks for choice in chunk.choices]
        assert thoughts == [None, "hm", None, None]
        assert usage.usage.prompt_tokens_details.cached_tokens == 8
        (body,) = server.generated
        assert (body["seed"], body["guided_choice"]) == (1, ["Hello"])


def test_the_head_comes_with_a_heartbeat_at_the_latest() -> None:
    """And then what the model's server says can only be said inside."""
    with (
        upstream(Pass([Wait(0.5), "Hello", Cut()]), heartbeat=0.1) as (_, client),
        client.chat.completions.with_streaming_response.create(model="brain", messages=HI, stream=True) as response,
    ):
        lines = list(response.iter_lines())
    assert lines[1:5] == ["", ": heartbeat", "", ": heartbeat"]
    role, hello, error, end = [line for line in lines if line.startswith("data: ")]
    assert '"delta":{"role":"assistant"' in role
    assert '"delta":{"content":"Hello"}' in hello
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "model_failed"
    assert end == "data: [DONE]"


def test_heartbeats_are_no_chunks() -> None:
    with brain_served(everyone(), HEARTBEAT_SECONDS=0.05) as server, of(server) as client:
        server.play(Player([0.2, "Once ", 0.2, "upon"]))
        assert [chunk.choices[0].delta.content for chunk in streamed(client)] == ["", "Once ", "upon", None]


# Results, and approvals


def test_results_as_the_operator_wants_them(brain: Server) -> None:
    shown = {
        "hidden": "Look. Sunny.",
        "block": "Look. \n\n[SPECIALIST_RESULT: weather]\nSunny in Rome.\n[/SPECIALIST_RESULT]\n\nSunny.",
        "details": "Look. \n\n<details>\n<summary>weather</summary>\n\n```text\nSunny in Rome.\n```\n\n"
        "- [Forecast](https://weather.example/rome)\n\n</details>\n\nSunny.",
    }
    for show, expected in shown.items():
        with brain_served(everyone(), SHOW_RESULTS=show) as server, of(server) as client:
            server.play(Player(["Look. ", WEATHER], ["Sunny."]))
            assert said(streamed(client)) == expected
            assert whole(client).choices[0].message.content == expected


def approval_command(stream: Iterator[Any]) -> str:
    """What the answer says must be run, as soon as it says it."""
    text = ""
    for chunk in stream:
        text += said([chunk])
        if found := re.search(r"`(curl [^`]+)`", text):
            assert text.startswith('\n\nletter would be called with `{"to":"Ada"}` and waits for your approval until ')
            return found[1]
    raise AssertionError(text)


@pytest.mark.curl
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(("approve", "block"), [("true", "Sent to Ada."), ("false", "letter failed - ")])
def test_a_call_is_approved_as_the_answer_says(brain: Server, client: OpenAI, approve: str, block: str) -> None:
    player = Player(['SPECIALIST_REQUEST[letter:{"to":"Ada"}]'], ["Done."])
    brain.play(player)
    stream = streamed(client)
    command = approval_command(stream).replace("true", approve)
    decided = subprocess.run([*shlex.split(command), "--silent", "--noproxy", "*", "--fail"], capture_output=True)
    assert decided.returncode == 0, decided
    assert said(stream) == "Done."
    assert block in asked(player)


def test_nobody_is_asked_for_an_answer_in_one_piece(brain: Server, client: OpenAI) -> None:
    player = Player(['SPECIALIST_REQUEST[letter:{"to":"Ada"}]'], ["It was not sent."])
    brain.play(player)
    assert whole(client).choices[0].message.content == "It was not sent."
    assert "[SPECIALIST_ERROR: letter failed" in asked(player)


# LangChain


@pytest.fixture
def langchain(brain: Server) -> Iterator[ChatOpenAI]:
    with DefaultHttpxClient(trust_env=False) as http:
        options: dict[str, Any] = {"api_key": "none", "http_client": http}
        yield ChatOpenAI(model="brain", base_url=f"{brain.url}/v1", max_retries=0, stream_usage=True, **options)


def test_langchain_invokes_and_streams(brain: Server, langchain: ChatOpenAI) -> None:
    brain.play(Player(["Let me look. ", WEATHER], ["Sun", "ny."]))
    answer = langchain.invoke([HumanMessage("Weather?")])
    assert answer.content == "Let me look. Sunny."
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["total_tokens"] > 100
    chunks = list(langchain.stream("Weather?"))
    assert "".join(str(chunk.content) for chunk in chunks) == "Let me look. Sunny."
    assert sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata) > 1


def test_langchain_calls_its_own_tools(brain: Server, langchain: ChatOpenAI) -> None:
    brain.play(Player([ADD_MARKER]))
    bound = langchain.bind_tools([ADD["function"]])
    question = HumanMessage("1 + 2?")
    answer = bound.invoke([question])
    assert isinstance(answer, AIMessage)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("add", {"a": 1, "b": 2})
    streamed: Any = None
    for chunk in bound.stream([question]):
        streamed = chunk if streamed is None else streamed + chunk
    assert [(call["name"], call["args"]) for call in streamed.tool_calls] == [("add", {"a": 1, "b": 2})]
    player = Player(["It is 3."])
    brain.play(player)
    assert bound.invoke([question, answer, ToolMessage("3", tool_call_id=call["id"])]).content == "It is 3."
    assert "[SPECIALIST_RESULT: add]\n3\n[/SPECIALIST_RESULT]" in asked(player)


# The command llm


def llm(folder: Path, *arguments: str) -> str:
    environ = {**os.environ, "LLM_USER_PATH": str(folder), "NO_PROXY": "127.0.0.1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-m", "llm", *arguments], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_llm(brain: Server, tmp_path: Path) -> None:
    address = f'- model_id: brain\n  model_name: brain\n  api_base: "{brain.url}/v1"\n  supports_tools: true\n'
    (tmp_path / "extra-openai-models.yaml").write_text(address, "utf-8")
    brain.play(Player(["Let me look. ", WEATHER], ["Sunny."]))
    options = ["-m", "brain", "--key", "none", "--system", "Be kind."]
    assert llm(tmp_path, "Weather?", *options) == "Let me look. Sunny.\n"
    player = Player(["It was sunny."])
    brain.play(player)
    assert llm(tmp_path, "What was it?", *options, "--continue", "--no-stream") == "It was sunny.\n"
    assert "assistant: Let me look. Sunny." in asked(player)
    assert player.asked[0][0].content.endswith("Be kind.")


# The client for JavaScript


@pytest.fixture
def javascript(brain: Server, clients: Clients) -> Iterator[Script]:
    with clients.running("openai.mjs", brain.url) as script:
        yield script


def asks(script: Script, until: str = "", **request: Any) -> list[Any]:
    """What the script says of a request, up to its end."""
    script.say(json.dumps({"request": {"model": "brain", "messages": HI, **request}, "until": until}))
    found = [json.loads(script.line())]
    while found[-1] != "end" and found[-1].get("object") == "chat.completion.chunk":
        found.append(json.loads(script.line()))
    return found


def contents(chunks: Sequence[Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


@pytest.mark.node
def test_the_client_for_javascript(brain: Server, javascript: Script) -> None:
    brain.play(Player(["Let me look. ", WEATHER, "SPECIALIST_REQUEST[breaks]"], ["Sun", "ny."]))
    *chunks, end = asks(javascript, stream=True, stream_options={"include_usage": True})
    assert (contents(chunks), end) == ("Let me look. Sunny.", "end")
    assert chunks[-1]["usage"]["total_tokens"] > 100
    (answer,) = asks(javascript)
    assert answer["choices"][0]["message"]["content"] == "Let me look. Sunny."

    brain.play(Player([ADD_MARKER]))
    (answer,) = asks(javascript, tools=[ADD])
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"a": 1, "b": 2}
    player = Player(["It is 3."])
    brain.play(player)
    result = {"role": "tool", "tool_call_id": call["id"], "content": "3"}
    (answer,) = asks(javascript, messages=[*HI, answer["choices"][0]["message"], result], tools=[ADD])
    assert answer["choices"][0]["message"]["content"] == "It is 3."
    assert "[SPECIALIST_RESULT: add]\n3\n[/SPECIALIST_RESULT]" in asked(player)


@pytest.mark.node
def test_the_client_for_javascript_hears_of_errors_and_leaves(brain: Server, javascript: Script) -> None:
    (error,) = asks(javascript, model="gpt-5", stream=True)
    assert (error["name"], error["status"], error["code"]) == ("NotFoundError", 404, "model_not_found")
    brain.play(Player(["And ", ModelError("model_failed", "The model failed in the middle of its answer.")]))
    *chunks, error = asks(javascript, stream=True)
    assert (contents(chunks), error["name"], error["code"]) == ("And ", "APIError", "model_failed")
    player = Player(["Once ", "upon ", 30.0, "never"])
    brain.play(player)
    *chunks, end = asks(javascript, "upon", stream=True)
    assert (contents(chunks), end) == ("Once upon ", "end")
    assert brain.left() == []
