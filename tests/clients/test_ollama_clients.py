"""Ollama's own clients, with nothing changed but the address: the one for Python, the one for JavaScript, and curl."""

import asyncio
import base64
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager
from typing import Any

import httpx
import pytest
from answering import Cut, Pass, ThinkerRun, in_thread
from nodes import Clients, Script
from ollama import AsyncClient, ChatResponse, Client, ResponseError
from servers import OllamaServer
from serving import Player, Server, brain_served

from brain import Context, Registry, Result, specialist
from brain.errors import ModelError

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
HI = [{"role": "user", "content": "Hi"}]
SHOWN = {
    "POST /api/show": (200, {"capabilities": ["completion", "thinking"], "model_info": {"x.context_length": 8192}})
}
CUBE: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "cube",
        "description": "The cube of a number.",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    },
}


HAS_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@specialist
async def weather(city: str) -> str:
    """Weather for a city."""
    return f"Sunny in {city}."


@specialist
async def breaks() -> str:
    """Fails."""
    raise RuntimeError("the password is swordfish")


@specialist(timeout=5)
async def nap(seconds: float) -> str:
    """Sleeps."""
    await asyncio.sleep(seconds)
    return "Rested."


@specialist(approval="always")
async def letter(to: str) -> str:
    """Sends a letter."""
    return f"Sent to {to}."


@specialist(read_only=True, activates_on=["image"])
async def vision(*, context: Context) -> Result:
    """Looks at pictures."""
    return Result(", ".join(f"{a.id} {a.name} {a.type} {len(a.data)}" for a in context.attachments))


def everyone() -> Registry:
    registry = Registry()
    for one in (weather, breaks, nap, letter):
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
def of(server: Server) -> Iterator[Client]:
    with closing(Client(server.url, timeout=20, trust_env=False)) as client:
        yield client


@pytest.fixture
def client(brain: Server) -> Iterator[Client]:
    with of(brain) as made:
        yield made


@contextmanager
def upstream(*passes: Pass) -> Iterator[tuple[OllamaServer, Server, Client]]:
    """Brain before an Ollama server that answers with these passes."""
    ollama = OllamaServer(*passes, answers=SHOWN)
    with in_thread(ollama), brain_served(MODEL="ollama:m", MODEL_URL=ollama.url) as server, of(server) as client:
        yield ollama, server, client


def said(parts: Iterable[ChatResponse]) -> str:
    return "".join(part.message.content or "" for part in parts)


def asked(player: Player, turn_pass: int = -1) -> str:
    """The conversation as the model got it."""
    return "\n".join(f"{message.role}: {message.content}" for message in player.asked[turn_pass][1:])


# Chats and prompts


def test_a_chat_is_streamed_as_it_comes(brain: Server, client: Client) -> None:
    brain.play(Player(["Good ", "mor", "ning."]))
    parts = list(client.chat("brain", HI, stream=True))
    assert [part.message.content for part in parts] == ["Good ", "mor", "ning.", ""]
    assert all((part.model, part.message.role) == ("brain", "assistant") for part in parts)
    assert [part.done for part in parts] == [False, False, False, True]
    last = parts[-1]
    assert (last.done_reason, last.eval_count) == ("stop", 4)
    assert last.prompt_eval_count is not None
    assert last.prompt_eval_count > 100
    assert None not in (last.total_duration, last.prompt_eval_duration, last.eval_duration)
    assert (last.prompt_eval_duration or 0) + (last.eval_duration or 0) == last.total_duration


def test_a_chat_in_one_piece(brain: Server, client: Client) -> None:
    brain.play(Player(["Let me look. ", 'SPECIALIST_REQUEST[weather:{"city":"Rome"}]'], ["Sun", "ny."]))
    answer = client.chat("brain:latest", HI)
    assert answer.message.model_dump(exclude_none=True) == {"role": "assistant", "content": "Let me look. Sunny."}
    assert (answer.model, answer.done, answer.done_reason) == ("brain:latest", True, "stop")


def test_a_prompt(brain: Server, client: Client) -> None:
    player = Player(["Good ", "morning."])
    brain.play(player)
    parts = list(client.generate("brain", "Hi", system="Be kind.", stream=True))
    assert [part.response for part in parts] == ["Good ", "morning.", ""]
    assert (parts[-1].done, parts[-1].done_reason) == (True, "stop")
    assert "Be kind." in player.asked[0][0].content
    assert client.generate("brain", "Hi").response == "Good morning."


def test_the_asynchronous_client(brain: Server) -> None:
    brain.play(Player(["Let me look. ", 'SPECIALIST_REQUEST[weather:{"city":"Rome"}]'], ["Sun", "ny."]))

    async def conversation() -> None:
        client: Any = AsyncClient(brain.url, timeout=20, trust_env=False)
        assert [part.message.content async for part in await client.chat("brain", HI, stream=True)] == [
            "Let me look. ", "Sun", "ny.", "",
        ]  # fmt: skip
        assert (await client.chat("brain", HI)).message.content == "Let me look. Sunny."
        assert (await client.generate("brain", "Hi")).response == "Let me look. Sunny."
        with pytest.raises(ResponseError, match="model 'x' not found"):
            await client.chat("x", HI)
        await client.close()

    asyncio.run(conversation())


def test_a_conversation_with_calls_an_error_a_cancel_and_a_new_beginning(brain: Server, client: Client) -> None:
    calls = ['SPECIALIST_REQUEST[weather:{"city":"Rome"}]', "SPECIALIST_REQUEST[breaks]"]
    first = Player(["Let me look. ", *calls], ["Sunny, ", "but one failed."])
    brain.play(first)
    history: list[dict[str, Any]] = [{"role": "user", "content": "Weather?"}]
    answer = said(client.chat("brain", history, stream=True))
    assert answer == "Let me look. Sunny, but one failed."
    assert "[SPECIALIST_RESULT: weather]\nSunny in Rome.\n[/SPECIALIST_RESULT]" in asked(first)
    assert "[SPECIALIST_ERROR: breaks failed" in asked(first)

    second = Player(["Once upon ", "a time ", 30.0, "never"])
    brain.play(second)
    history += [{"role": "assistant", "content": answer}, {"role": "user", "content": "A story!"}]
    stream: Any = client.chat("brain", history, stream=True)
    begun = [next(stream), next(stream)]
    stream.close()
    assert brain.left() == []

    with pytest.raises(ResponseError) as raised:
        client.chat("nobody", history)
    assert (raised.value.status_code, raised.value.error) == (404, "model 'nobody' not found")

    third = Player(["there was a king."])
    brain.play(third)
    history += [{"role": "assistant", "content": said(begun)}, {"role": "user", "content": "Go on."}]
    assert said(client.chat("brain", history, stream=True)) == "there was a king."
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
    with httpx.Client(trust_env=False) as client, pytest.raises(httpx.ReadTimeout):
        client.post(f"{brain.url}/api/chat", json={"model": "brain", "messages": HI, "stream": stream}, timeout=0.3)
    assert brain.left() == []


def test_the_asynchronous_client_that_leaves(brain: Server) -> None:
    player = Player(["Once ", 30.0])
    brain.play(player)

    async def leaves() -> None:
        client: Any = AsyncClient(brain.url, timeout=20, trust_env=False)
        parts = await client.chat("brain", HI, stream=True)
        async with aclosing(parts):
            async for _ in parts:
                break
        await client.close()

    asyncio.run(leaves())
    assert brain.left() == []


def test_an_end_of_a_line_for_python_is_none_of_ours(brain: Server, client: Client) -> None:
    text = "one\u2028two\u2029three\x85four\x1cfive\x0b😀"
    brain.play(Player([text]))
    assert said(client.chat("brain", HI, stream=True)) == text
    assert client.chat("brain", HI).message.content == text


def test_heartbeats_are_not_seen() -> None:
    with brain_served(everyone(), HEARTBEAT_SECONDS=0.1) as server, of(server) as client:
        server.play(Player([0.35, "Wait. ", 'SPECIALIST_REQUEST[nap:{"seconds":0.35}]'], ["Rested."]))
        parts = list(client.chat("brain", HI, stream=True))
        assert said(parts) == "Wait. Rested."
        assert len(parts) - 3 >= 4, "besides two texts and the end"
        assert all(part.model == "brain" and part.message.role == "assistant" for part in parts)
        generated = list(client.generate("brain", "Hi", stream=True))
        assert "".join(part.response or "" for part in generated) == "Wait. Rested."


# What the client brings


def test_a_tool_of_the_client(brain: Server, client: Client) -> None:
    player = Player(["I count. ", 'SPECIALIST_REQUEST[cube:{"n":3}]'], ["never"])
    brain.play(player)
    history: list[Any] = [{"role": "user", "content": "3 cubed?"}]
    parts = list(client.chat("brain", history, tools=[CUBE], stream=True))
    assert said(parts) == "I count. "
    called = next(part.message for part in parts if part.message.tool_calls)
    assert [call.function.model_dump() for call in called.tool_calls or ()] == [{"name": "cube", "arguments": {"n": 3}}]
    assert (parts[-1].done, parts[-1].done_reason, parts[-1].message.tool_calls) == (True, "stop", None)
    assert not next(part for part in parts if part.message.tool_calls).done

    answer = client.chat("brain", history, tools=[CUBE])
    assert answer.message.content == "I count. "
    history += [answer.message, {"role": "tool", "content": "27", "tool_name": "cube"}]
    player.passes = (["It is 27."],)
    assert client.chat("brain", history, tools=[CUBE]).message.content == "It is 27."
    assert 'SPECIALIST_REQUEST[cube:{"n":3}]\n\n[SPECIALIST_RESULT: cube]\n27\n[/SPECIALIST_RESULT]' in asked(player)
    assert "The cube of a number." in player.asked[-1][0].content


def test_pictures() -> None:
    registry = Registry()
    registry.add(vision)
    with brain_served(registry) as server, of(server) as client:
        player = Player(["I see."])
        server.play(player)
        client.chat("brain", [{"role": "user", "content": "What is it?", "images": [PNG]}])
        assert "1 image image/png 28" in asked(player)
        history: list[dict[str, Any]] = [
            {"role": "user", "content": "What is it?", "images": [PNG]},
            {"role": "assistant", "content": "A line."},
            {"role": "user", "content": "And this?", "images": [base64.b64encode(PNG + b"\0").decode()]},
        ]
        client.chat("brain", history)
        assert "2 image image/png 29" in asked(player)
        client.generate("brain", "What is it?", images=[PNG])
        assert "1 image image/png 28" in asked(player)
        assert client.show("brain").capabilities == ["completion", "tools", "vision"]


def test_what_is_said_of_writing_reaches_an_ollama_server() -> None:
    with upstream(Pass(["{}"])) as (ollama, _, client):
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        options = {"temperature": 0.5, "num_predict": 9, "seed": 7, "repeat_penalty": 1.25, "stop": ["END"]}
        answer = client.chat("brain", HI, options=options, format=schema, think=True, keep_alive="10m")
        assert answer.message.content == "{}"
        (request,) = ollama.generated
        del request["messages"]
        assert request == {
            "model": "m",
            "stream": True,
            "truncate": False,
            "think": True,
            "format": schema,
            "keep_alive": "10m",
            "options": {
                "temperature": 0.5,
                "num_predict": 9,
                "seed": 7,
                "repeat_penalty": 1.25,
                "num_ctx": 8192,
            },
        }


@pytest.mark.parametrize("stream", [True, False])
def test_thoughts_and_counts(stream: bool) -> None:
    told = Pass([ThinkerRun("Hm, "), ThinkerRun("well."), "Yes."], usage=(41, 9, None), finish="length")
    with upstream(told) as (_, _, client):
        found: Any = client.chat("brain", HI, think="high", stream=True) if stream else client.chat("brain", HI)
        parts = list(found) if stream else [found]
        assert "".join(part.message.thinking or "" for part in parts) == "Hm, well."
        assert said(parts) == "Yes."
        assert (parts[-1].done_reason, parts[-1].prompt_eval_count, parts[-1].eval_count) == ("length", 41, 9)


def test_a_stop_text(brain: Server, client: Client) -> None:
    brain.play(Player(["One, two", ", EN", "D three"]))
    assert said(client.chat("brain", HI, options={"stop": ["END"]}, stream=True)) == "One, two, "


# Errors


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("status", "said"), [(401, 401), (404, 404), (429, 429), (500, 502)])
def test_what_the_model_server_refuses_is_passed_on(status: int, said: int, stream: bool) -> None:
    with upstream(Pass(status=status, answer={"error": "the key is swordfish"})) as (_, _, client):
        with pytest.raises(ResponseError) as raised:
            list(client.chat("brain", HI, stream=True)) if stream else client.chat("brain", HI)
        assert raised.value.status_code == said
        assert "swordfish" not in raised.value.error
        assert raised.value.error.endswith(".")


def test_an_error_in_the_middle_is_a_line_and_the_last() -> None:
    with upstream(Pass(["Once ", Cut()]), Pass(["Once ", Cut()])) as (_, server, client):
        body = {"model": "brain", "messages": HI}
        answer = httpx.post(f"{server.url}/api/chat", json=body, trust_env=False)
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
        assert lines[0]["message"]["content"] == "Once "
        assert lines[1:] == [{"error": "The connection to the model server broke in the middle of its answer."}]
        with pytest.raises(ResponseError, match="broke in the middle"):
            list(client.chat("brain", HI, stream=True))


def test_an_error_behind_a_heartbeat_can_have_no_status() -> None:
    with brain_served(HEARTBEAT_SECONDS=0.1) as server, of(server) as client:
        error = ModelError("model_failed", "The model server answered 429.", status=429)
        server.play(Player([0.25, error]))
        with pytest.raises(ResponseError) as raised:
            list(client.chat("brain", HI, stream=True))
        assert (raised.value.status_code, raised.value.error) == (-1, "The model server answered 429.")
        server.play(Player([error]))
        with pytest.raises(ResponseError) as raised:
            list(client.chat("brain", HI, stream=True))
        assert (raised.value.status_code, raised.value.error) == (429, "The model server answered 429.")


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"messages": [{"role": "boss"}]}, "messages[0].role must be system, user, assistant or tool."),
        ({"think": "hardest"}, "think must be true, false, low, medium, high or max."),
        ({"keep_alive": "soon"}, "keep_alive must be a number of seconds, or a duration such as 5m."),
        ({"options": {"temperature": "hot"}}, "options.temperature: Expected `float | null`, got `str`."),
    ],
)
def test_what_cannot_be_followed(client: Client, more: dict[str, Any], error: str) -> None:
    with pytest.raises(ResponseError) as raised:
        client.chat("brain", **{"messages": HI, **more})
    assert (raised.value.status_code, raised.value.error) == (400, error)


@pytest.mark.parametrize("path", ["chat", "generate", "show"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"model": 1}', b'{"messages": [{}]}'])
def test_what_cannot_be_read(brain: Server, path: str, body: bytes) -> None:
    answer = httpx.post(f"{brain.url}/api/{path}", content=body, trust_env=False)
    assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert isinstance(answer.json()["error"], str)


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "chat", 405, "Method Not Allowed"),
        ("POST", "tags", 405, "Method Not Allowed"),
        ("POST", "pull", 404, "Not Found"),
        ("POST", "embed", 404, "Not Found"),
        ("DELETE", "delete", 404, "Not Found"),
    ],
)
def test_what_is_not_there_says_so_in_ollamas_form(
    brain: Server, method: str, path: str, status: int, error: str
) -> None:
    answer = httpx.request(method, f"{brain.url}/api/{path}", trust_env=False)
    assert (answer.status_code, answer.json()) == (status, {"error": error})


def test_a_key_is_asked_for_in_ollamas_form() -> None:
    with brain_served(KEYS="swordfish:ann") as server:
        server.play(Player(["Hello."]))
        with of(server) as client, pytest.raises(ResponseError) as raised:
            client.chat("brain", HI)
        assert (raised.value.status_code, raised.value.error) == (401, "Send your key: Authorization: Bearer KEY.")
        headers = {"Authorization": "Bearer swordfish"}
        with closing(Client(server.url, headers=headers, timeout=20, trust_env=False)) as client:
            assert client.chat("brain", HI).message.content == "Hello."


def test_a_body_that_is_too_large(client: Client) -> None:
    picture = base64.b64encode(bytes(16 * 1024 * 1024)).decode()
    with pytest.raises(ResponseError) as raised:
        client.chat("brain", [{"role": "user", "content": "Look", "images": [picture]}])
    assert (raised.value.status_code, raised.value.error) == (413, "The body may be 20 MiB large.")


# Approvals


@pytest.mark.curl
@HAS_CURL
def test_a_call_that_a_person_must_approve(brain: Server, client: Client) -> None:
    brain.play(Player(["I write. ", 'SPECIALIST_REQUEST[letter:{"to":"Ann"}]'], ["Done."]))
    parts = []
    for part in client.chat("brain", HI, stream=True):
        parts.append(part)
        if command := re.search(r"`(curl -X POST http:.*)`;", part.message.content or ""):
            told = subprocess.run(shlex.split(command[1]), capture_output=True, text=True, check=True).stdout
            assert json.loads(told)["calls"][0]["name"] == "letter"
    assert [part.message.content for part in parts][::2] == ["I write. ", "Done."]
    assert (parts[1].message.content or "").startswith('\n\nletter would be called with `{"to":"Ann"}` and waits')


def test_nobody_is_asked_where_nothing_can_be_shown(brain: Server, client: Client) -> None:
    player = Player(['SPECIALIST_REQUEST[letter:{"to":"Ann"}]'], ["I could not."])
    brain.play(player)
    assert client.chat("brain", HI).message.content == "I could not."
    assert "[SPECIALIST_ERROR: letter failed" in asked(player)


# The models


def test_models_are_listed_and_shown(brain: Server, client: Client) -> None:
    assert [model.model for model in client.list().models] == ["brain:latest", "builtin:latest"]
    assert [model.name for model in client.ps().models] == ["brain:latest", "builtin:latest"]
    for name in [model.model or "" for model in client.list().models]:
        shown = client.show(name)
        assert shown.capabilities == ["completion", "tools"]
        assert shown.modelinfo is not None
        assert shown.modelinfo["brain.context_length"] == 131_072
        assert client.chat(name, HI).message.content == "Hello."
    with pytest.raises(ResponseError, match="model 'x' not found"):
        client.show("x")


def test_models_are_loaded_already(brain: Server, client: Client) -> None:
    player = Player(["never"])
    brain.play(player)
    assert client.chat("brain").done_reason == "load"
    assert [part.done_reason for part in client.chat("brain", stream=True)] == ["load"]
    assert client.chat("brain", keep_alive=0).done_reason == "unload"
    assert client.generate("brain").done_reason == "load"
    assert client.generate("brain", keep_alive="0s").done_reason == "unload"
    assert player.asked == []


def test_what_ollamas_command_asks_first(client: Client) -> None:
    assert client._client.head("/").status_code == 200
    version = client._client.get("/api/version").json()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version["version"])
    assert set(version) == {"version", "brain"}
    for path in ("/api/version", "/api/tags"):
        assert client._client.head(path).status_code == 200


# The other clients


class Scripted:
    """The client for JavaScript."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def call(self, method: str, **request: Any) -> Any:
        self.script.say(json.dumps({"method": method, "request": request}))
        return json.loads(self.script.line())

    def stream(self, method: str, until: str = "", **request: Any) -> list[Any]:
        """All parts, and last "end", or the error."""
        self.script.say(json.dumps({"method": method, "request": {**request, "stream": True}, "until": until}))
        found: list[Any] = []
        while not found or (found[-1] != "end" and "name" not in found[-1]):
            found.append(json.loads(self.script.line()))
        return found


@pytest.fixture
def javascript(clients: Clients, brain: Server) -> Iterator[Scripted]:
    with clients.running("ollama.mjs", brain.url) as script:
        yield Scripted(script)


def texts(parts: Sequence[Any]) -> list[str]:
    return [part["message"]["content"] for part in parts]


@pytest.mark.node
def test_the_client_for_javascript(brain: Server, javascript: Scripted) -> None:
    brain.play(Player(["Let me look. ", 'SPECIALIST_REQUEST[weather:{"city":"Rome"}]'], ["Sun\u2028", "ny."]))
    *parts, end = javascript.stream("chat", model="brain", messages=HI)
    assert (texts(parts), end) == (["Let me look. ", "Sun\u2028", "ny.", ""], "end")
    assert (parts[-1]["done"], parts[-1]["done_reason"]) == (True, "stop")
    answer = javascript.call("chat", model="brain", messages=HI)
    assert answer["message"] == {"role": "assistant", "content": "Let me look. Sun\u2028ny."}
    *parts, end = javascript.stream("generate", model="brain", prompt="Hi")
    assert [part["response"] for part in parts] == ["Let me look. ", "Sun\u2028", "ny.", ""]
    assert javascript.call("generate", model="brain", prompt="Hi")["response"] == "Let me look. Sun\u2028ny."


@pytest.mark.node
def test_a_conversation_in_javascript(brain: Server, javascript: Scripted) -> None:
    calls = ['SPECIALIST_REQUEST[weather:{"city":"Rome"}]', "SPECIALIST_REQUEST[breaks]"]
    brain.play(Player(["Let me look. ", *calls], ["Sunny, ", "but one failed."]))
    *parts, end = javascript.stream("chat", model="brain", messages=HI)
    assert ("".join(texts(parts)), end) == ("Let me look. Sunny, but one failed.", "end")

    player = Player(["Once upon ", "a time ", 30.0, "never"])
    brain.play(player)
    *parts, end = javascript.stream("chat", "a time", model="brain", messages=HI)
    assert (texts(parts), end["name"]) == (["Once upon ", "a time "], "AbortError")
    assert brain.left() == []

    error = {"name": "ResponseError", "message": "model 'nobody' not found", "status": 404}
    assert javascript.call("chat", model="nobody", messages=HI) == error
    assert javascript.stream("chat", model="nobody", messages=HI) == [error]

    brain.play(Player(["there was a king."]))
    history = [*HI, {"role": "assistant", "content": "Once upon a time "}, {"role": "user", "content": "Go on."}]
    *parts, end = javascript.stream("chat", model="brain", messages=history)
    assert (texts(parts), end) == (["there was a king.", ""], "end")

    brain.play(Player(["Once ", ModelError("model_failed", "The model failed.")]))
    *parts, end = javascript.stream("chat", model="brain", messages=HI)
    assert texts(parts) == ["Once "]
    assert end == {"name": "Error", "message": "The model failed."}


@pytest.mark.node
def test_a_tool_and_a_picture_in_javascript(brain: Server, javascript: Scripted) -> None:
    player = Player(['SPECIALIST_REQUEST[cube:{"n":3}]'], ["never"])
    brain.play(player)
    *parts, end = javascript.stream("chat", model="brain", messages=HI, tools=[CUBE])
    (called,) = [part["message"] for part in parts if "tool_calls" in part["message"]]
    (call,) = called["tool_calls"]
    assert (end, call["function"]) == ("end", {"index": 0, "name": "cube", "arguments": {"n": 3}})
    player.passes = (["It is 27."],)
    history = [*HI, called, {"role": "tool", "content": "27", "tool_name": "cube"}]
    assert javascript.call("chat", model="brain", messages=history, tools=[CUBE])["message"]["content"] == "It is 27."
    assert "[SPECIALIST_RESULT: cube]\n27\n[/SPECIALIST_RESULT]" in asked(player)
    seen = [{"role": "user", "content": "What is it?", "images": [base64.b64encode(PNG).decode()]}]
    assert javascript.call("chat", model="brain", messages=seen)["message"]["content"] == "It is 27."
    assert "image/png" in asked(player)


@pytest.mark.node
def test_the_models_in_javascript(javascript: Scripted) -> None:
    assert [model["name"] for model in javascript.call("list")["models"]] == ["brain:latest", "builtin:latest"]
    assert [model["name"] for model in javascript.call("ps")["models"]] == ["brain:latest", "builtin:latest"]
    assert javascript.call("show", model="brain")["model_info"]["general.architecture"] == "brain"
    assert javascript.call("chat", model="brain")["done_reason"] == "load"
    assert re.fullmatch(r"\d+\.\d+\.\d+", javascript.call("version")["version"])


@pytest.mark.curl
@HAS_CURL
def test_curl(brain: Server) -> None:
    brain.play(Player(["Let me look. ", 'SPECIALIST_REQUEST[weather:{"city":"Rome"}]'], ["Sunny."]))
    body = json.dumps({"model": "brain", "messages": HI})
    command = ["curl", "-sN", "--max-time", "10", f"{brain.url}/api/chat", "-d", body]  # no type, as in Ollama's docs
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert texts([json.loads(line) for line in lines]) == ["Let me look. ", "Sunny.", ""]
