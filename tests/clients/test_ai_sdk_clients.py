"""useChat's transport and state, in six versions of the Vercel AI SDK, against a real port.

The oldest of 5 and 6 check every frame strictly: an error of the schema ends their stream, and so the test.
"""

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from brain_servers import Server
from client_specialists import BREAKS, LETTER, NAP, SENT, WEATHER, serve
from limits import WAIT_SECONDS
from node_clients import Clients, Script
from turn_helpers import Player

from brain.errors import ModelError

pytestmark = pytest.mark.node

NEWER = pytest.mark.parametrize("sdk", ["ai6.0.0", "ai6", "ai7"], indirect=True)
VERSIONS = {"ai5.0.0": 5, "ai5.0.80": 5, "ai5": 5, "ai6.0.0": 6, "ai6": 6, "ai7": 7}

_numbers = itertools.count()


class Sdk:
    """A client of one version, with a chat of its own for each test."""

    def __init__(self, script: Script, package: str) -> None:
        self._script = script
        self.version = VERSIONS[package]
        self._chat: dict[str, Any] = {}
        self.lines: list[dict[str, Any]] = []

    def new(self, **body: Any) -> None:
        """A chat with Brain's own fields in the body of its requests."""
        self._chat = {"id": f"chat-{next(_numbers)}", "body": {"sdk_version": self.version, **body}}
        self.new_page([])

    def new_page(self, messages: list[dict[str, Any]]) -> None:
        """The same chat on another page, which has these messages."""
        self.do("new", **self._chat, messages=messages)
        self.lines.clear()

    def start(self, to: str, **options: Any) -> None:
        self._script.say(json.dumps({"to": to, **options}))
        self.until("doing")

    def until(self, key: str, part: str = "") -> Any:
        """What the client reports under this key, once it contains `part`; earlier lines are stored."""
        while True:
            self.lines.append(json.loads(self._script.line()))
            if key in self.lines[-1] and part in str(self.lines[-1][key]):
                return self.lines[-1][key]

    def do(self, to: str, **options: Any) -> dict[str, Any]:
        self.start(to, **options)
        return self.result(to)

    def result(self, to: str) -> dict[str, Any]:
        while self.until("did") != to:
            pass
        return self.lines[-1]

    def send(self, text: str = "Hi") -> dict[str, Any]:
        return self.do("send", message={"text": text})

    def answer(self, text: str = "Hi") -> Any:
        return self.send(text)["messages"][-1]

    def all(self, key: str) -> list[Any]:
        """What the client reported under this key, except at the end."""
        return [line[key] for line in self.lines if key in line and "did" not in line]


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with serve(HEARTBEAT_SECONDS=0.2) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    SENT.clear()
    yield running
    assert running.left() == []


@pytest.fixture(scope="module", params=VERSIONS)
def sdk(request: pytest.FixtureRequest, clients: Clients, running: Server) -> Iterator[Sdk]:
    with clients.running("ai_sdk.mjs", request.param, f"{running.url}/ai-sdk/chat") as script:
        yield Sdk(script, request.param)


def plain(message: dict[str, Any]) -> Any:
    """A message without what differs each time, and without what old versions leave out."""
    text = re.sub(r"\b(t|m)[0-9a-f]{16,24}\b", r"\1", json.dumps(message)).replace(', "providerExecuted": true', "")
    return json.loads(re.sub(r'"(inputTokens|totalTokens)": \d+', r'"\1": 0', text))


def text_of(message: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in message["parts"] if part["type"] == "text")


def tools_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in message["parts"] if part["type"] == "dynamic-tool"]


def test_a_conversation_with_calls(sdk: Sdk, server: Server) -> None:
    server.play(player := Player(["I ask. ", WEATHER + BREAKS], ["It is ", "sunny."]))
    sdk.new()
    ended = sdk.send("Weather?")
    assert (ended["status"], ended.get("error")) == ("ready", None)
    question, answer = ended["messages"]
    assert question["parts"] == [{"type": "text", "text": "Weather?"}]
    tool = {"type": "dynamic-tool", "toolName": "weather", "toolCallId": "t.c1", "state": "output-available"}
    failed = {"type": "dynamic-tool", "toolName": "breaks", "toolCallId": "t.c2", "state": "output-error", "input": {}}
    parts = plain(answer)["parts"]
    assert parts[3].pop("errorText")
    assert parts == [
        {"type": "step-start"},
        {"type": "text", "text": "I ask. ", "state": "done"},
        {**tool, "input": {"city": "Rome"}, "output": "Sunny in Rome."},
        failed,
        {"type": "source-url", "sourceId": "t.c1.1", "url": "https://weather.example/rome", "title": "Forecast"},
        {"type": "step-start"},
        {"type": "text", "text": "It is sunny.", "state": "done"},
    ]
    assert (sdk.all("toolCall"), sdk.all("request")) == ([], ["POST"])
    assert sdk.all("status") == ["submitted", "streaming", "ready"]
    again = sdk.send("And now?")["messages"]
    assert [message["role"] for message in again] == ["user", "assistant", "user", "assistant"]
    assert again[1]["id"] != again[3]["id"]
    prompt = "\n".join(message.content for message in player.requests[2])
    assert prompt.index("Weather?") < prompt.index("I ask. ") < prompt.index("It is sunny.") < prompt.index("And now?")


def test_thoughts_progress_and_metadata(sdk: Sdk, server: Server) -> None:
    server.play(Player(["<think>Hm.</think>", "I nap. ", NAP]))
    sdk.new()
    sdk.start("send", message={"text": "Nap!"})
    progress = sdk.until("data")
    assert (progress["type"], progress["transient"]) == ("data-progress", True)
    assert (progress["data"]["text"], progress["data"]["fraction"]) == ("falls asleep", 0.5)
    run = server.engine.runs.running[0]
    assert httpx.post(f"{server.url}/v1/turns/{run.id}/cancel", trust_env=False, timeout=WAIT_SECONDS).is_success
    ended = sdk.result("send")  # a turn that is stopped elsewhere
    answer = plain(ended["messages"][1])
    assert (ended["status"], sdk.all("request")) == ("ready", ["POST"])
    assert [(part["type"], part.get("text")) for part in answer["parts"]][1:3] == [
        ("reasoning", "Hm."), ("text", "I nap. "),
    ]  # fmt: skip
    server.play(Player(["Fine."]))
    metadata = plain(sdk.answer())["metadata"]
    assert metadata.pop("conversation_id").startswith("chat-")
    usage = {"inputTokens": 0, "outputTokens": 2, "totalTokens": 0, "estimated": True}
    assert metadata == {"turn_id": "t", "usage": usage, "stop_reason": "complete"}
    assert sdk.all("finish")[-1].get("finishReason") == ("stop" if sdk.version > 5 else None)


def test_the_client_does_not_continue_when_the_model_is_silent_after_its_calls(sdk: Sdk, server: Server) -> None:
    server.play(Player([WEATHER + BREAKS], []))
    sdk.new()
    assert [tool["state"] for tool in tools_of(sdk.answer())] == ["output-available", "output-error"]
    assert sdk.all("request") == ["POST"]


def test_text_comes_as_it_is_written(sdk: Sdk, server: Server) -> None:
    goes_on = asyncio.Event()
    server.play(Player(["One ", goes_on, "two."]))
    sdk.new()
    sdk.start("send", message={"text": "Count!"})
    assert sdk.until("text") == "One "
    server.release(goes_on)
    assert sdk.until("text") == "One two."
    sdk.result("send")


def test_failures_and_bad_requests(sdk: Sdk, server: Server) -> None:
    server.play(Player(["Half an ", ModelError("model_failed", "The model failed.", "at 10.0.0.1")]))
    sdk.new()
    ended = sdk.send()
    assert (ended["status"], ended["error"]) == ("error", "The model failed.")
    assert text_of(ended["messages"][1]) == "Half an "
    server.play(Player(["Better."]))
    assert text_of(sdk.answer("Again")) == "Better."
    sdk.new(model="gpt")
    ended = sdk.send()
    assert (ended["status"], "`model`" in ended["error"], sdk.all("response")) == ("error", True, [400])


@pytest.mark.parametrize("item", ["", NAP])
def test_stop_reaches_the_model_and_the_chat_continues(sdk: Sdk, server: Server, item: str) -> None:
    server.play(player := Player(["I wait. ", item, asyncio.Event()]))
    sdk.new()
    sdk.start("send", message={"text": "Wait!"})
    sdk.until("text")
    sdk.start("stop")
    assert sdk.result("send")["status"] == "ready"
    assert player.closed.wait(WAIT_SECONDS)
    server.play(Player(["Here again."]))
    assert text_of(sdk.answer("And now?")) == "Here again."
    assert sdk.all("response") == [200, 200]


def test_regenerate_asks_the_same_again(sdk: Sdk, server: Server) -> None:
    server.play(Player(["Four."]))
    sdk.new()
    first = sdk.send("2 + 2?")["messages"]
    server.play(player := Player(["4."]))
    second = sdk.do("regenerate")["messages"]
    assert [text_of(message) for message in second] == ["2 + 2?", "4."]
    assert first[1]["id"] != second[1]["id"]
    assert player.requests[0][-1].content.endswith("2 + 2?")
    assert "Four." not in str(player.requests)


# Approvals


@NEWER
@pytest.mark.parametrize(
    ("approved", "state", "sent"), [(True, "output-available", ["Ada"]), (False, "output-denied", [])]
)
def test_newer_clients_approve_in_the_next_request(
    sdk: Sdk, server: Server, approved: bool, state: str, sent: list[str]
) -> None:
    server.play(player := Player(["I write. ", LETTER + WEATHER], ["Well."]))
    sdk.new()
    asked = sdk.send("Write!")
    assert (asked["status"], sdk.all("finish")[0]["finishReason"]) == ("ready", "tool-calls")
    answer = asked["messages"][1]
    tools = {tool["toolName"]: tool for tool in tools_of(answer)}
    call = tools["letter"]
    assert (call["state"], call["input"], "providerExecuted" in call) == ("approval-requested", {"to": "Ada"}, False)
    previews = [part["data"] for part in answer["parts"] if part["type"] == "data-preview"]
    assert previews == [{"toolCallId": call["toolCallId"], "text": "Write to Ada."}]
    assert (tools["weather"]["state"], len(player.requests), SENT) == ("output-available", 1, [])
    ended = sdk.do("approve", id=call["approval"]["id"], approved=approved)
    assert [message["role"] for message in ended["messages"]] == ["user", "assistant"]
    found = ended["messages"][1]
    tools = {tool["toolName"]: tool for tool in tools_of(found)}
    assert (found["id"], text_of(found)) == (answer["id"], "I write. Well.")
    assert (tools["letter"]["state"], tools["letter"]["approval"]["approved"], SENT) == (state, approved, sent)
    assert tools["weather"]["state"] == "output-available"
    assert (sdk.all("request"), len(player.requests)) == (["POST", "POST"], 2)
    server.play(later := Player(["Yes."]))
    assert text_of(sdk.answer("Did you?")) == "Yes."
    result = "\n".join(message.content for message in later.requests[0])
    assert ("Sent to Ada." in result, "declined this call" in result) == (approved, not approved)


ROUNDS = (
    ["<deep_thinking>First, ", "the letter.</deep_thinking><action>", LETTER],
    ["Sent.</action>", WEATHER],
    ["<final_output>It is ", "sunny.</final_output>"],
)


def test_rounds_are_parts_of_the_message(sdk: Sdk, server: Server) -> None:
    server.play(Player(*ROUNDS))
    sdk.new(strategy="reason")
    sdk.start("send", message={"text": "Write!"})
    if sdk.version == 5:
        asked = sdk.until("data", "asked")["data"]
        url = f"{server.url}/v1/turns/{asked['turnId']}/approvals/{asked['callId']}"
        assert httpx.post(url, json={"approve": True}, trust_env=False, timeout=WAIT_SECONDS).is_success
        answer = sdk.result("send")["messages"][-1]
    else:
        (call,) = tools_of(sdk.result("send")["messages"][-1])
        answer = sdk.do("approve", id=call["approval"]["id"], approved=True)["messages"][-1]
    rounds = [part["data"] for part in answer["parts"] if part["type"] == "data-round"]
    assert rounds == [{"n": n, "of": 20, "role": "thinker", "model": "player"} for n in (1, 2, 3)]
    kinds = [part["type"] for part in answer["parts"] if part["type"] in ("data-round", "dynamic-tool", "text")]
    assert kinds == ["data-round", "dynamic-tool", "data-round", "dynamic-tool", "data-round", "text"]
    assert (text_of(answer), SENT) == ("It is sunny.", ["Ada"])
    server.play(Player(["Yes."]))
    assert text_of(sdk.answer("Did you?")) == "Yes."


@NEWER
def test_one_approval_after_the_other(sdk: Sdk, server: Server) -> None:
    server.play(Player([LETTER], ["Bob, then. ", LETTER.replace("Ada", "Bob")], ["Done."]))
    sdk.new()
    call = tools_of(sdk.answer("Write!"))[0]
    call = tools_of(sdk.do("approve", id=call["approval"]["id"], approved=False)["messages"][1])[-1]
    ended = sdk.do("approve", id=call["approval"]["id"], approved=True)["messages"][1]
    assert [tool["state"] for tool in tools_of(ended)] == ["output-denied", "output-available"]
    assert (text_of(ended), sdk.all("request"), SENT) == ("Bob, then. Done.", ["POST"] * 3, ["Bob"])


@NEWER
def test_a_new_message_gives_up_what_waits(sdk: Sdk, server: Server) -> None:
    server.play(Player([LETTER], ["Never."]))
    sdk.new()
    call = tools_of(sdk.answer("Write!"))[0]
    server.play(player := Player(["Fine."]))
    assert text_of(sdk.answer("Forget it.")) == "Fine."
    assert server.engine.runs.running == []
    assert [message.role for message in player.requests[0]] == ["system", "user"]
    approved = call | {"state": "approval-responded", "approval": call["approval"] | {"approved": True}}
    body = {"messages": [{"role": "assistant", "parts": [approved]}]}
    late = httpx.post(f"{server.url}/ai-sdk/chat", json=body, trust_env=False, timeout=WAIT_SECONDS)
    assert (late.text.endswith("data: [DONE]\n\n"), "output-available" in late.text, SENT) == (True, False, [])


def test_version_5_approves_at_the_turns_own_url(sdk: Sdk, server: Server) -> None:
    server.play(Player(["I write. ", LETTER], ["Written."]))
    sdk.new(sdk_version=5)  # as clients that do not name their version
    sdk.start("send", message={"text": "Write!"})
    question = sdk.until("data")
    data = question["data"]
    assert (question["type"], data["state"], data["text"]) == ("data-approval", "asked", "Write to Ada.")
    url = f"{server.url}/v1/turns/{data['turnId']}/approvals/{data['callId']}"
    assert httpx.post(url, json={"approve": True}, trust_env=False, timeout=WAIT_SECONDS).is_success
    answer = sdk.result("send")["messages"][1]
    assert [part["data"]["state"] for part in answer["parts"] if part["type"] == "data-approval"] == ["approved"]
    assert (tools_of(answer)[0]["output"], text_of(answer)) == ("Sent to Ada.", "I write. Written.")
    assert sdk.all("request") == ["POST"]


# Reconnecting


@pytest.mark.parametrize("ended_meanwhile", [False, True])
def test_a_client_reconnects_to_a_resumable_turn(sdk: Sdk, server: Server, ended_meanwhile: bool) -> None:
    server.play(Player(["One ", WEATHER], ["two ", "three."]))
    sdk.new(resumable=True)
    whole = plain(sdk.answer("Count!"))
    goes_on = asyncio.Event()
    server.play(player := Player(["One ", WEATHER], ["two ", goes_on, "three."]))
    sdk.new(resumable=True)
    sdk.start("send", message={"text": "Count!"})
    sdk.until("text", "two")
    sdk.do("stop")
    sdk.new_page(sdk.lines[-1]["messages"][:1])
    (run,) = server.engine.runs.running
    if ended_meanwhile:
        server.release(goes_on)
        server.on_loop(run.wait_ended())
        ended = sdk.do("resume")
    else:
        sdk.start("resume")
        sdk.until("text", "two")
        server.release(goes_on)
        ended = sdk.result("resume")
    found = plain(ended["messages"][1])
    assert (ended["status"], found) == ("ready", whole | {"metadata": found["metadata"]})
    assert len(player.requests) == 2
    sdk.new_page(ended["messages"])
    assert sdk.do("resume")["messages"] == ended["messages"]
    assert sdk.all("response") == [204]


def test_a_turn_that_is_not_resumable_is_gone(sdk: Sdk, server: Server) -> None:
    server.play(Player(["One ", asyncio.Event()]))
    sdk.new()
    sdk.start("send", message={"text": "Count!"})
    sdk.until("text")
    messages = sdk.do("stop")["messages"]
    sdk.new_page(messages)
    assert (sdk.do("resume")["messages"], sdk.all("response")) == (messages, [204])
