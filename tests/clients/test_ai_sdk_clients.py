"""useChat's transport and state, in five versions of the Vercel AI SDK, against a real port.

The oldest of 5 and 6 check every frame strictly: an error of the schema ends their stream, and so the test.
"""

import asyncio
import itertools
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from nodes import Clients, Script
from playing import breaks, counts, echo, waits
from serving import Player, Server, brain_served

from brain import Registry, specialist
from brain.errors import ModelError

pytestmark = pytest.mark.node

NEWER = pytest.mark.parametrize("sdk", ["ai6.0.0", "ai6", "ai7"], indirect=True)
VERSIONS = {"ai5.0.0": 5, "ai5.0.80": 5, "ai5": 5, "ai6.0.0": 6, "ai6": 6, "ai7": 7}
CALLS = 'SPECIALIST_REQUEST[echo:{"text":"ho"}]SPECIALIST_REQUEST[breaks]'
WRITES = 'SPECIALIST_REQUEST[writes:{"to":"Ann"}]'


_ids = itertools.count()


@specialist(approval="always", preview=lambda params: f"Write to {params['to']}.")
async def writes(to: str) -> str:
    """Writes a letter."""
    return f"written to {to}"


class Sdk:
    """A client of one version, with a chat of its own for each test."""

    def __init__(self, script: Script, package: str) -> None:
        self._script = script
        self.version = VERSIONS[package]
        self._chat: dict[str, Any] = {}
        self.said: list[dict[str, Any]] = []

    def new(self, chat: str, **body: Any) -> None:
        """A chat with Brain's own fields in the body of its requests."""
        self._chat = {"id": f"{chat}-{next(_ids)}", "body": {"sdk_version": self.version, **body}}
        self.new_page([])

    def new_page(self, messages: list[dict[str, Any]]) -> None:
        """The same chat on another page, which has these messages."""
        self.do("new", **self._chat, messages=messages)
        self.said.clear()

    def start(self, to: str, **options: Any) -> float:
        """Tells the client to do something, and when it began to."""
        self._script.say(json.dumps({"to": to, **options}))
        self.until("doing")
        return self._script.at

    def until(self, key: str) -> Any:
        """What it says under this key; what it says before that is kept."""
        while True:
            self.said.append(json.loads(self._script.line()))
            if key in self.said[-1]:
                return self.said[-1][key]

    def do(self, to: str, **options: Any) -> dict[str, Any]:
        self.start(to, **options)
        return self.result(to)

    def result(self, to: str) -> dict[str, Any]:
        while self.until("did") != to:
            pass
        return self.said[-1]

    def send(self, text: str) -> dict[str, Any]:
        return self.do("send", message={"text": text})

    def all(self, key: str) -> list[Any]:
        """What it said under this key, but for what it says at the end."""
        return [line[key] for line in self.said if key in line and "did" not in line]


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    registry = Registry()
    for one in (echo, breaks, counts, waits, writes):
        registry.add(one)
    with brain_served(registry, HEARTBEAT_SECONDS=0.2) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    yield running
    assert running.left(2) == []


@pytest.fixture(scope="module", params=VERSIONS)
def sdk(request: pytest.FixtureRequest, clients: Clients, running: Server) -> Iterator[Sdk]:
    with clients.running("ai_sdk.mjs", request.param, f"{running.url}/ai-sdk/chat") as script:
        yield Sdk(script, request.param)


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what differs each time, and without what old versions do not keep."""
    text = re.sub(r"\b(t|m)[0-9a-f]{16}\b", r"\1", json.dumps(message))
    text = text.replace(', "providerExecuted": true', "")
    text = re.sub(r'"(inputTokens|totalTokens)": \d+', r'"\1": 0', text)
    found: dict[str, Any] = json.loads(text)
    return found


def text_of(message: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in message["parts"] if part["type"] == "text")


def tools_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in message["parts"] if part["type"] == "dynamic-tool"]


def test_a_conversation_with_two_calls(sdk: Sdk, server: Server) -> None:
    player = Player(["I ask. ", CALLS], ["It echoes: ", "ho."])
    server.play(player)
    sdk.new("two")
    ended = sdk.send("Ask!")
    assert (ended["status"], ended.get("error")) == ("ready", None)
    question, answer = ended["messages"]
    assert question["parts"] == [{"type": "text", "text": "Ask!"}]
    assert plain(answer)["parts"] == [
        {"type": "step-start"},
        {"type": "text", "text": "I ask. ", "state": "done"},
        {
            "type": "dynamic-tool",
            "toolName": "echo",
            "toolCallId": "t.c1",
            "state": "output-available",
            "input": {"text": "ho"},
            "output": "ho",
        },
        {
            "type": "dynamic-tool",
            "toolName": "breaks",
            "toolCallId": "t.c2",
            "state": "output-error",
            "input": {},
            "errorText": "it ran into an error of its own; go on without it, or try other parameters",
        },
        {"type": "source-url", "sourceId": "t.c1.1", "url": "https://example.org/text", "title": "The text"},
        {"type": "step-start"},
        {"type": "text", "text": "It echoes: ho.", "state": "done"},
    ]
    assert sdk.all("toolCall") == []
    assert sdk.all("request") == ["POST"]
    assert sdk.all("status") == ["submitted", "streaming", "ready"]
    again = sdk.send("And again?")
    assert [message["role"] for message in again["messages"]] == ["user", "assistant", "user", "assistant"]
    assert again["messages"][1]["id"] != again["messages"][3]["id"]
    asked = "\n".join(message.content for message in player.asked[2])
    assert asked.index("Ask!") < asked.index("I ask. ") < asked.index("It echoes: ho.") < asked.index("And again?")


def test_what_is_thought_and_what_passes(sdk: Sdk, server: Server) -> None:
    server.play(Player(["<think>Hm.</think>", "Counting. ", 'SPECIALIST_REQUEST[counts:{"to":3}]'], ["Three."]))
    sdk.new("thinks")
    ended = sdk.send("Count!")
    answer = plain(ended["messages"][1])
    reasoning = answer["parts"][1]
    assert (reasoning["type"], reasoning["text"], reasoning["state"]) == ("reasoning", "Hm.", "done")
    assert [part["type"] for part in answer["parts"]] == [
        *("step-start", "reasoning", "text", "dynamic-tool", "step-start", "text"),
    ]
    call_id = tools_of(ended["messages"][1])[0]["toolCallId"]
    assert sdk.all("data") == [
        {
            "type": "data-progress",
            "data": {"toolCallId": call_id, "text": "counting", "fraction": 0.5},
            "transient": True,
        }
    ]
    assert answer["metadata"] == {
        "turn_id": "t",
        "conversation_id": answer["metadata"]["conversation_id"],
        "usage": {"inputTokens": 0, "outputTokens": 18, "totalTokens": 0, "estimated": True},
        "stop_reason": "complete",
    }
    assert answer["metadata"]["conversation_id"].startswith("thinks-")
    assert sdk.all("finish")[0].get("finishReason") == ("stop" if sdk.version > 5 else None)


def test_a_client_does_not_ask_again_when_the_model_says_nothing_behind_its_calls(sdk: Sdk, server: Server) -> None:
    server.play(Player([CALLS], []))
    sdk.new("silent")
    answer = sdk.send("Ask!")["messages"][1]
    assert [tool["state"] for tool in tools_of(answer)] == ["output-available", "output-error"]
    assert sdk.all("request") == ["POST"]


def test_text_comes_as_it_is_written(sdk: Sdk, server: Server) -> None:
    goes_on = asyncio.Event()
    server.play(Player(["One ", goes_on, "two."]))
    sdk.new("written")
    sdk.start("send", message={"text": "Count!"})
    assert sdk.until("text") == "One "
    server.loop.call_soon_threadsafe(goes_on.set)
    assert sdk.until("text") == "One two."
    sdk.result("send")


def test_a_model_that_fails(sdk: Sdk, server: Server) -> None:
    server.play(Player(["Half an ", ModelError("model_failed", "The model failed.", "at 10.0.0.1")]))
    sdk.new("fails")
    ended = sdk.send("Hi")
    assert (ended["status"], ended["error"]) == ("error", "The model failed.")
    assert text_of(ended["messages"][1]) == "Half an "
    server.play(Player(["Better."]))
    assert text_of(sdk.send("Again")["messages"][-1]) == "Better."


def test_what_is_refused_is_said_in_its_words(sdk: Sdk, server: Server) -> None:
    server.play(Player(["Hello."]))
    sdk.new("refused", model="gpt")
    ended = sdk.send("Hi")
    assert (ended["status"], ended["error"]) == ("error", "model must be one of: builtin, player.")
    assert sdk.all("response") == [400]


@pytest.mark.parametrize("opening", ["I wait. ", 'I wait. SPECIALIST_REQUEST[waits:{"seconds":20}]'])
def test_stop_reaches_the_model(sdk: Sdk, server: Server, opening: str) -> None:
    player = Player([opening, 20.0])
    server.play(player)
    sdk.new("stops")
    sdk.start("send", message={"text": "Wait!"})
    sdk.until("text")
    sdk.start("stop")
    assert sdk.result("send")["status"] == "ready"
    assert player.closed.wait(10)
    server.play(Player(["Here again."]))
    assert text_of(sdk.send("And now?")["messages"][-1]) == "Here again."
    assert sdk.all("response") == [200, 200]


def test_a_turn_that_is_stopped_elsewhere_is_an_abort(sdk: Sdk, server: Server) -> None:
    server.play(Player(["I wait. ", 20.0]))
    sdk.new("stopped")
    sdk.start("send", message={"text": "Wait!"})
    sdk.until("text")
    run = server.engine.turns.running[0]
    assert httpx.post(f"{server.url}/v1/turns/{run.id}/cancel", trust_env=False).is_success
    ended = sdk.result("send")
    assert (ended["status"], text_of(ended["messages"][1])) == ("ready", "I wait. ")
    assert sdk.all("request") == ["POST"]


def test_regenerate_asks_the_same_again(sdk: Sdk, server: Server) -> None:
    player = Player(["Four."])
    server.play(player)
    sdk.new("again")
    first = sdk.send("2 + 2?")["messages"]
    server.play(other := Player(["4."]))
    second = sdk.do("regenerate")["messages"]
    assert [text_of(message) for message in second] == ["2 + 2?", "4."]
    assert first[1]["id"] != second[1]["id"]
    assert other.asked[0][-1].content.endswith("2 + 2?")
    assert "Four." not in str(other.asked)


# Approvals


@NEWER
def test_newer_clients_approve_in_the_next_request(sdk: Sdk, server: Server) -> None:
    player = Player(["I write. ", WRITES + 'SPECIALIST_REQUEST[echo:{"text":"ho"}]'], ["Written."])
    server.play(player)
    sdk.new("approves")
    asked = sdk.send("Write!")
    assert (asked["status"], sdk.all("finish")[0]["finishReason"]) == ("ready", "tool-calls")
    echoed, letter = tools_of(asked["messages"][1])
    assert (letter["state"], letter["input"], "providerExecuted" in letter) == (
        "approval-requested",
        {"to": "Ann"},
        False,
    )
    previews = [part for part in asked["messages"][1]["parts"] if part["type"] == "data-preview"]
    assert [part["data"] for part in previews] == [{"toolCallId": letter["toolCallId"], "text": "Write to Ann."}]
    assert echoed["state"] == "output-available"
    assert len(player.asked) == 1
    ended = sdk.do("approve", id=letter["approval"]["id"], approved=True)
    assert ended["status"] == "ready"
    assert [message["role"] for message in ended["messages"]] == ["user", "assistant"]
    answer = ended["messages"][1]
    assert answer["id"] == asked["messages"][1]["id"]
    assert [(tool["state"], tool["output"]) for tool in tools_of(answer)] == [
        ("output-available", "ho"),
        ("output-available", "written to Ann"),
    ]
    assert tools_of(answer)[1]["approval"]["approved"] is True
    assert text_of(answer) == "I write. Written."
    assert sdk.all("request") == ["POST", "POST"]
    assert len(player.asked) == 2


@NEWER
def test_newer_clients_decline(sdk: Sdk, server: Server) -> None:
    player = Player([WRITES], ["Then not."])
    server.play(player)
    sdk.new("declines")
    asked = tools_of(sdk.send("Write!")["messages"][1])[0]
    ended = sdk.do("approve", id=asked["approval"]["id"], approved=False)
    answer = ended["messages"][1]
    assert (tools_of(answer)[0]["state"], text_of(answer)) == ("output-denied", "Then not.")
    assert sdk.all("request") == ["POST", "POST"]
    assert "a person was asked to approve it and did not" in player.asked[1][-1].content
    server.play(later := Player(["Yes."]))
    assert text_of(sdk.send("Did you?")["messages"][-1]) == "Yes."
    assert "A person did not allow this call." in "\n".join(message.content for message in later.asked[0])


@NEWER
def test_one_question_behind_the_other(sdk: Sdk, server: Server) -> None:
    server.play(Player([WRITES], ["Bob, then. ", WRITES.replace("Ann", "Bob")], ["Done."]))
    sdk.new("twice")
    asked = tools_of(sdk.send("Write!")["messages"][1])[0]
    asked = tools_of(sdk.do("approve", id=asked["approval"]["id"], approved=False)["messages"][1])[-1]
    assert asked["state"] == "approval-requested"
    ended = sdk.do("approve", id=asked["approval"]["id"], approved=True)
    assert [tool["state"] for tool in tools_of(ended["messages"][1])] == ["output-denied", "output-available"]
    assert text_of(ended["messages"][1]) == "Bob, then. Done."
    assert sdk.all("request") == ["POST", "POST", "POST"]


@NEWER
def test_a_chat_that_goes_on_leaves_what_waits_behind(sdk: Sdk, server: Server) -> None:
    server.play(Player([WRITES], ["Never."]))
    sdk.new("leaves")
    asked = tools_of(sdk.send("Write!")["messages"][1])[0]
    server.play(player := Player(["Fine."]))
    assert text_of(sdk.send("Forget it.")["messages"][-1]) == "Fine."
    assert server.engine.turns.running == []
    assert [message.role for message in player.asked[0]] == ["system", "user"]
    assert player.asked[0][1].content.endswith("Forget it.")
    approved = asked | {"state": "approval-responded", "approval": asked["approval"] | {"approved": True}}
    messages = [{"role": "assistant", "parts": [approved]}]
    late = httpx.post(f"{server.url}/ai-sdk/chat", json={"messages": messages}, trust_env=False)
    assert late.text.endswith("data: [DONE]\n\n")
    assert "output-available" not in late.text


def test_version_5_approves_at_the_turns_own_address(sdk: Sdk, server: Server) -> None:
    server.play(Player(["I write. ", WRITES], ["Written."]))
    sdk.new("native", sdk_version=5)  # as who does not say which version it is
    sdk.start("send", message={"text": "Write!"})
    question = sdk.until("data")
    turn_id, call_id = question["data"]["turnId"], question["data"]["callId"]
    assert (question["type"], question["data"]["state"]) == ("data-approval", "asked")
    assert question["data"]["text"] == "Write to Ann."
    url = f"{server.url}/v1/turns/{turn_id}/approvals/{call_id}"
    assert httpx.post(url, json={"approve": True}, trust_env=False).is_success
    answer = sdk.result("send")["messages"][1]
    assert [part["data"]["state"] for part in answer["parts"] if part["type"] == "data-approval"] == ["approved"]
    assert (tools_of(answer)[0]["output"], text_of(answer)) == ("written to Ann", "I write. Written.")
    assert sdk.all("request") == ["POST"]


# Coming back


def test_a_resumable_turn_is_come_back_to(sdk: Sdk, server: Server) -> None:
    player = Player(["One ", 'SPECIALIST_REQUEST[echo:{"text":"ho"}]'], ["two ", 0.5, "three."])
    server.play(player)
    sdk.new("whole", resumable=True)
    whole = sdk.send("Count!")["messages"][1]
    sdk.new("parts", resumable=True)
    sdk.start("send", message={"text": "Count!"})
    while "two" not in sdk.until("text"):
        pass
    sdk.do("stop")
    question = sdk.said[-1]["messages"][:1]
    sdk.new_page(question)
    ended = sdk.do("resume")
    assert ended["status"] == "ready"
    resumed = ended["messages"][1]
    assert plain(resumed) == plain(whole) | {"metadata": plain(resumed)["metadata"]}
    assert len(player.asked) == 4
    sdk.new_page(ended["messages"])
    assert sdk.do("resume")["messages"] == ended["messages"]
    assert sdk.all("response") == [204]


def test_a_turn_that_ended_meanwhile_is_come_back_to(sdk: Sdk, server: Server) -> None:
    server.play(Player(["One ", 0.2, "two."]))
    sdk.new("ended", resumable=True)
    sdk.start("send", message={"text": "Count!"})
    sdk.until("text")
    sdk.do("stop")
    question = sdk.said[-1]["messages"][:1]
    while server.engine.turns.running:
        time.sleep(0.01)
    sdk.new_page(question)
    assert text_of(sdk.do("resume")["messages"][1]) == "One two."


def test_a_turn_that_is_not_resumable_is_gone(sdk: Sdk, server: Server) -> None:
    server.play(Player(["One ", 20.0, "two."]))
    sdk.new("gone")
    sdk.start("send", message={"text": "Count!"})
    sdk.until("text")
    sdk.do("stop")
    messages = sdk.said[-1]["messages"]
    sdk.new_page(messages)
    ended = sdk.do("resume")
    assert (ended["messages"], sdk.all("response")) == (messages, [204])
