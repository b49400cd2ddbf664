"""AG-UI's own client for TypeScript, whose verifier is strict, and whatever else posts a run, against a real port."""

import asyncio
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from ag_ui_stream import verify
from brain_servers import Server
from client_specialists import BREAKS, LETTER, NAP, PNG_BASE64, SENT, WEATHER, serve
from cutting_proxy import cutting
from limits import WAIT_SECONDS
from node_clients import Clients, Script
from turn_helpers import Player

from brain import specialist
from brain.errors import ModelError
from brain.events import ApprovalRequired, Event, SpecialistError, SpecialistResult

PAINT = {"name": "paint", "description": "Paints.", "parameters": {"type": "object"}}
TO_BOB = LETTER.replace("Ada", "Bob")
GIVEN_UP = {"status": "cancelled"}

_numbers = itertools.count()
_pauses: list[asyncio.Event] = []


@specialist(timeout=1000)
async def pause() -> str:
    """Waits for the test."""
    await _pauses[-1].wait()
    return "Paused."


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with serve(pause) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    SENT.clear()
    yield running
    assert running.left() == []


def wait_for(server: Server, kind: type[Event], count: int = 1) -> None:
    """Wait until the one turn that runs has this number of events of a kind."""
    (run,) = server.engine.runs.running

    async def wait() -> None:
        arrived = asyncio.Event()

        def look(*_: object) -> None:
            if sum(isinstance(event, kind) for event in run.log.events()) >= count:
                arrived.set()

        unsubscribe = run.log.subscribe(look)
        look()
        await arrived.wait()
        unsubscribe()

    server.on_loop(wait())


# The client for TypeScript


class Ended:
    """What one run brought: its events, and how the client saw it end."""

    def __init__(self, lines: Sequence[Mapping[str, Any]]) -> None:
        assert [line["warning"] for line in lines if "warning" in line] == []
        *self.events, last = lines
        self.end: dict[str, Any] = last["end"]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def text(self) -> str:
        return "".join(event["delta"] for event in self.events if event["type"] == "TEXT_MESSAGE_CONTENT")

    @property
    def roles(self) -> list[str]:
        return [message["role"] for message in self.end["messages"]]

    def custom(self, name: str) -> list[Any]:
        return [event["value"] for event in self.events if event["type"] == "CUSTOM" and event["name"] == name]


class Agent:
    """A client that continues its thread, run by run."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._lines: list[Any] = []

    def start(self, *messages_or_texts: str | Mapping[str, Any], **parameters: Any) -> None:
        messages = [one if isinstance(one, Mapping) else user(one) for one in messages_or_texts]
        self._lines = []
        self._script.say(json.dumps({"messages": messages, **parameters}))

    def until(self, key: str, value: object = None) -> Any:
        """The next line that has this key, with this value."""
        while True:
            self._lines.append(json.loads(self._script.line()))
            if key in self._lines[-1] and value in (None, self._lines[-1][key]):
                return self._lines[-1]

    def result(self) -> Ended:
        self.until("end")
        return Ended(self._lines)

    def run(self, *messages_or_texts: str | Mapping[str, Any], **parameters: Any) -> Ended:
        self.start(*messages_or_texts, **parameters)
        return self.result()


def user(text: str) -> dict[str, str]:
    return {"id": f"user-{next(_numbers)}", "role": "user", "content": text}


@contextmanager
def connect(clients: Clients, url: str) -> Iterator[Agent]:
    with clients.running("ag_ui.mjs", f"{url}/ag-ui/run", f"thread-{next(_numbers)}") as script:
        yield Agent(script)


@pytest.fixture
def agent(clients: Clients, server: Server) -> Iterator[Agent]:
    with connect(clients, server.url) as made:
        yield made


@pytest.mark.node
def test_a_conversation_with_calls(agent: Agent, server: Server) -> None:
    server.play(player := Player(["I ask both. ", WEATHER, BREAKS], ["It is ", "sunny."]))
    first = agent.run("Weather?")
    assert (first.text, first.roles) == ("I ask both. It is sunny.", ["user", "assistant", "tool", "tool", "assistant"])
    assert first.types.count("TOOL_CALL_START") == first.types.count("TOOL_CALL_RESULT") == 2
    calls = first.end["messages"][1]["toolCalls"]
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in calls] == [
        ("weather", '{"city":"Rome"}'), ("breaks", "{}"),
    ]  # fmt: skip
    contents = {message["toolCallId"]: message["content"] for message in first.end["newMessages"][1:3]}
    assert contents[calls[0]["id"]] == "Sunny in Rome."
    assert contents[calls[1]["id"]].startswith("breaks failed - ")
    assert "swordfish" not in json.dumps(first.events)
    source = {"id": "1", "title": "Forecast", "url": "https://weather.example/rome"}
    assert first.custom("sources") == [{"toolCallId": calls[0]["id"], "sources": [source]}]
    assert (first.end["outcome"], first.end["pendingToolCallIds"], first.end["result"]["calls"]) == ("success", [], 2)
    agent.run("Thanks.")
    prompt = "\n".join(message.content for message in player.requests[2])
    places = [prompt.index(text) for text in ("Weather?", "Sunny in Rome.", "It is sunny.", "Thanks.")]
    assert places == sorted(places)


@pytest.mark.node
def test_text_comes_as_it_is_written(agent: Agent, server: Server) -> None:
    goes_on = asyncio.Event()
    server.play(Player(["One ", goes_on, "two."]))
    agent.start("Count.")
    agent.until("delta", "One ")
    server.release(goes_on)
    agent.until("delta", "two.")
    assert agent.result().text == "One two."


@pytest.mark.node
def test_failures_and_bad_requests(agent: Agent, server: Server) -> None:
    server.play(Player(["Half an ", ModelError("model_failed", "The model failed.")]))
    failed = agent.run("Hi")
    assert failed.types[-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    assert (failed.events[-1]["message"], failed.events[-1]["code"]) == ("The model failed.", "model_failed")
    server.play(Player(["Better."]))
    assert agent.run("Again").text == "Better."
    rejected = agent.run("Hi", forwardedProps={"model": "gpt-9"})
    assert (rejected.events, rejected.end["status"]) == ([], 400)
    assert "forwardedProps.model" in rejected.end["failed"]


@pytest.mark.node
@pytest.mark.parametrize(("item", "at"), [("", "TEXT_MESSAGE_CONTENT"), (NAP, "TOOL_CALL_END")])
def test_stop_reaches_the_model(agent: Agent, server: Server, item: str, at: str) -> None:
    server.play(player := Player(["I wait. ", item, asyncio.Event()]))
    stopped = agent.run("Wait.", abortAt=at)
    assert (at in stopped.types, "RUN_FINISHED" in stopped.types) == (True, False)
    assert player.closed.wait(WAIT_SECONDS)


@pytest.mark.node
def test_a_turn_that_is_cancelled_elsewhere_is_a_cancelled_run(agent: Agent, server: Server) -> None:
    server.play(Player(["I wait.", asyncio.Event()]))
    agent.start("Wait.")
    turn_id = agent.until("name", "turn")["value"]["turnId"]
    agent.until("type", "TEXT_MESSAGE_CONTENT")
    assert (
        httpx.post(f"{server.url}/v1/turns/{turn_id}/cancel", trust_env=False, timeout=WAIT_SECONDS).status_code == 202
    )
    ended = agent.result()
    assert ended.types[-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert (ended.end["outcome"], ended.end.get("result")) == ("cancelled", None)


@pytest.mark.node
def test_the_clients_own_tools(agent: Agent, server: Server) -> None:
    server.play(Player(['I paint. SPECIALIST_REQUEST[paint:{"color":"red"}]', asyncio.Event()]))
    first = agent.run("Paint it.", tools=[PAINT])
    (call,) = first.end["newMessages"][0]["toolCalls"]
    assert call["function"] == {"name": "paint", "arguments": '{"color":"red"}'}
    assert "TOOL_CALL_RESULT" not in first.types
    assert (first.end["outcome"], first.end["pendingToolCallIds"]) == ("success", [call["id"]])
    server.play(player := Player(["It is red."]))
    result = {"id": "answer", "role": "tool", "toolCallId": call["id"], "content": "Painted."}
    second = agent.run(result, tools=[PAINT])
    assert (second.text, second.roles) == ("It is red.", ["user", "assistant", "tool", "assistant"])
    assert "[SPECIALIST_RESULT: paint]\nPainted.\n[/SPECIALIST_RESULT]" in player.requests[0][-1].content


@pytest.mark.node
@pytest.mark.parametrize(("approved", "outcome", "sent"), [(True, "ok", ["Ada"]), (False, "declined", [])])
def test_an_approval(agent: Agent, server: Server, approved: bool, outcome: str, sent: list[str]) -> None:
    server.play(Player(["I send it. ", LETTER], ["That was it."]))
    first = agent.run("Send it.")
    (interrupt,) = first.end["pendingInterrupts"]
    assert (first.end["outcome"], interrupt["reason"], SENT) == ("interrupt", "tool_call", [])
    assert interrupt["toolCallId"] == first.end["newMessages"][0]["toolCalls"][0]["id"]
    assert interrupt["message"] == 'Write to Ada.\n\nAllow letter with {"to":"Ada"}?'
    second = agent.run(resume=[decide(interrupt["id"], approved)])
    assert (second.text, second.roles) == ("That was it.", ["user", "assistant", "tool", "assistant"])
    assert second.end["messages"][1]["toolCalls"][0]["function"]["arguments"] == '{"to":"Ada"}'
    assert ("TOOL_CALL_START" in second.types, second.end["pendingInterrupts"], SENT) == (False, [], sent)
    results = [event["metadata"]["outcome"] for event in second.events if event["type"] == "TOOL_CALL_RESULT"]
    assert results == [outcome]


@pytest.mark.node
def test_rounds_are_steps(agent: Agent, server: Server) -> None:
    thinks = ["<deep_thinking>Hm.</deep_thinking><action>", LETTER]
    server.play(Player(thinks, ["</action><final_output>That ", "was it.</final_output>"]))
    strategy = {"forwardedProps": {"strategy": "reason"}}
    first = agent.run("Send it.", **strategy)
    (interrupt,) = first.end["pendingInterrupts"]
    second = agent.run(resume=[decide(interrupt["id"], True)], **strategy)
    steps = [[event["stepName"] for event in run.events if "stepName" in event] for run in (first, second)]
    assert steps == [["Round 1 of 20, thinker"] * 2, ["Round 1 of 20, thinker"] * 2 + ["Round 2 of 20, thinker"] * 2]
    assert (second.text, SENT) == ("That was it.", ["Ada"])


@pytest.mark.node
def test_a_message_instead_of_an_approval_steers_the_turn(agent: Agent, server: Server) -> None:
    server.play(player := Player(["I send it. ", LETTER], ["To Bob, then."]))
    (interrupt,) = agent.run("Send it.").end["pendingInterrupts"]
    second = agent.run("No, to Bob.", resume=[{"interruptId": interrupt["id"], **GIVEN_UP}])
    assert (second.text, SENT) == ("To Bob, then.", [])
    assert "No, to Bob." in "\n".join(message.content for message in player.requests[-1])
    assert second.custom("notice") == [{"code": "steered", "text": "No, to Bob."}]


@pytest.mark.node
def test_a_client_that_is_cut_off_continues_its_thread(clients: Clients, server: Server) -> None:
    """It does not reconnect: its run has failed, and the next run sends what it received."""
    server.play(Player([WEATHER], ["Half of ", "it CUT", asyncio.Event()]))
    with cutting(server.port, {"POST /ag-ui/run": [b"it CUT"]}) as proxy, connect(clients, proxy.url) as agent:
        first = agent.run("Tell me.")
        assert ("failed" in first.end, first.roles) == (True, ["user", "assistant", "tool", "assistant"])
        server.play(player := Player(["All of it."]))
        assert agent.run("Go on.").text == "All of it."
    prompt = "\n".join(message.content for message in player.requests[0])
    assert prompt.index("Sunny in Rome.") < prompt.index("Half of ") < prompt.index("Go on.")


# Whatever posts a run


def decide(interrupt_id: str, approved: object) -> dict[str, Any]:
    return {"interruptId": interrupt_id, "status": "resolved", "payload": {"approved": approved}}


def give_up(interrupt_id: str) -> dict[str, Any]:
    return {"interruptId": interrupt_id, **GIVEN_UP}


def body_of(thread: str, **body: Any) -> dict[str, Any]:
    return {"threadId": thread, "runId": "run", "messages": [user("Hi")], **body}


def run(server: Server, thread: str, headers: Mapping[str, str] | None = None, **body: Any) -> list[dict[str, Any]]:
    """The events of a run, each verified."""
    url = f"{server.url}/ag-ui/run"
    response = httpx.post(url, json=body_of(thread, **body), headers=headers, timeout=WAIT_SECONDS, trust_env=False)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert "\r" not in response.text
    return verify(response.text)


def interrupts(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return [one["id"] for one in events[-1]["outcome"]["interrupts"]]


def error_of(events: Sequence[Mapping[str, Any]]) -> str:
    started, error = events
    assert (started["type"], error["type"]) == ("RUN_STARTED", "RUN_ERROR")
    return str(error["code"])


def test_files_context_and_options_reach_the_turn_of_a_thread(server: Server) -> None:
    server.play(player := Player(["I see."]))
    image = {"type": "image", "source": {"type": "data", "value": PNG_BASE64, "mimeType": "image/png"}}
    started, turn, *_ = run(
        server,
        "a thread / with signs",
        messages=[{"id": "1", "role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}],
        context=[{"description": "The page", "value": "Cart"}],
        forwardedProps={"specialists": ["weather"], "system": "Be brief.", "somebody": "else's"},
    )
    system, *_, newest = player.requests[0]
    assert [text in system.content for text in ("Be brief.", "weather", "letter")] == [True, True, False]
    assert "The page: Cart" in "\n".join(message.content for message in player.requests[0])
    assert 'image_id: 1: "image" (image/png)' in newest.content
    assert "What is it?" in newest.content
    report = httpx.get(f"{server.url}/v1/turns/{turn['value']['turnId']}", trust_env=False, timeout=WAIT_SECONDS).json()
    assert started["threadId"] == "a thread / with signs"
    assert (report["conversation_id"], report["wire"], report["state"]) == (
        turn["value"]["conversationId"], "ag_ui", "done",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "content_type", "status", "code"),
    [
        (b"{}", "", 415, "unsupported_media_type"),
        (json.dumps(body_of("busy")).encode(), "application/json", 409, "busy"),
    ],
)
def test_errors_have_the_form_of_the_protocol(
    server: Server, content: bytes, content_type: str, status: int, code: str
) -> None:
    server.play(player := Player(["Hello.", asyncio.Event()]))
    url, headers = f"{server.url}/ag-ui/run", {"content-type": content_type} if content_type else {}
    with httpx.stream("POST", url, json=body_of("busy"), timeout=WAIT_SECONDS, trust_env=False):
        assert player.begun.wait(WAIT_SECONDS)
        response = httpx.post(url, content=content, headers=headers, timeout=WAIT_SECONDS, trust_env=False)
    error = response.json()
    assert (response.status_code, error["type"], error["code"]) == (status, "RUN_ERROR", code)
    assert set(error) == {"type", "message", "code"}


# Approvals


def test_only_the_right_answer_resumes_a_thread(server: Server) -> None:
    server.play(Player([LETTER], ["Done."]))
    (interrupt,) = interrupts(run(server, "waits"))
    turn_id, call_id, number = interrupt.split(".")
    approve = decide(interrupt, True)
    rows: list[tuple[str, Any, str]] = [
        ("waits", None, "interrupted"),
        ("waits", [], "interrupted"),
        ("waits", [decide("t1.c1.3", True)], "interrupted"),
        ("waits", [decide(f"{turn_id}.c2.{number}", True)], "not_found"),
        ("waits", [decide(f"{turn_id}.{call_id}.1", True)], "not_found"),
        ("waits", [decide(f"{turn_id}.{call_id}.999999999", True)], "gone"),
        ("waits", [decide("x", True)], "interrupted"),
        ("waits", [decide(interrupt, "yes")], "bad_request"),
        ("waits", [approve, decide("t0.c1.2", True)], "not_found"),
        ("another", [approve], "not_found"),
    ]
    found = [error_of(run(server, thread, **({} if sent is None else {"resume": sent}))) for thread, sent, _ in rows]
    assert found == [code for *_, code in rows]
    call = {"id": f"{turn_id}.{call_id}", "function": {"name": "letter"}}
    long = [{"id": "2", "role": "assistant", "toolCalls": [call]}, user("x" * 100_000), user("x" * 100_000)]
    assert error_of(run(server, "waits", messages=long, resume=[approve])) == "too_large"
    assert SENT == []
    first = run(server, "waits", messages=long[:2], resume=[approve])
    assert first[-1]["outcome"] == {"type": "success"}
    assert run(server, "waits", messages=long[:2], resume=[approve]) == first
    assert error_of(run(server, "waits", resume=[decide(interrupt, False)])) == "decided"
    assert error_of(run(server, "waits", resume=[give_up(interrupt)])) == "decided"
    assert SENT == ["Ada"]


def test_an_interrupt_that_is_given_up_declines_the_call(server: Server) -> None:
    server.play(Player([LETTER], ["Done."]))
    (interrupt,) = interrupts(run(server, "given up"))
    assert run(server, "given up", resume=[give_up(interrupt)])[-1]["outcome"] == {"type": "success"}
    unknown = "t0123456789abcdef.c1.3"
    server.play(Player(["Hello."]))
    assert run(server, "unknown", resume=[give_up(unknown)])[-1]["outcome"] == {"type": "success"}
    assert error_of(run(server, "unknown", resume=[decide(unknown, True)])) == "not_found"
    assert SENT == []


def test_approvals_of_one_pass_are_answered_together(server: Server) -> None:
    server.play(Player([LETTER, TO_BOB], ["Done."]))
    first, second = interrupts(run(server, "together"))
    for one in (first, second):
        assert error_of(run(server, "together", resume=[decide(one, True)])) == "interrupted"
    assert SENT == []
    events = run(server, "together", resume=[decide(second, True), decide(first, False)])
    outcomes = [one["metadata"]["outcome"] for one in events if one["type"] == "TOOL_CALL_RESULT"]
    assert (sorted(outcomes), SENT) == (["declined", "ok"], ["Bob"])


def test_an_approval_that_comes_later_is_asked_for_in_a_run_of_its_own(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.turn.call_group.APPROVAL_BATCH_SECONDS", 0.0)
    later = asyncio.Event()
    server.play(Player([LETTER, later, TO_BOB], ["Done."]))
    (first,) = interrupts(run(server, "later"))
    server.release(later)
    wait_for(server, ApprovalRequired, 2)
    middle = run(server, "later", resume=[decide(first, True)])
    (second,) = interrupts(middle)
    last = run(server, "later", resume=[decide(second, True)])
    results = [event["toolCallId"] for event in [*middle, *last] if event["type"] == "TOOL_CALL_RESULT"]
    assert (sorted(SENT), len(results), len(set(results))) == (["Ada", "Bob"], 2, 2)
    assert last[-1]["outcome"] == {"type": "success"}


def test_a_call_beside_an_approval_ends_in_the_next_run(server: Server) -> None:
    _pauses.append(asyncio.Event())
    server.play(Player(["SPECIALIST_REQUEST[pause]", LETTER], ["Done."]))
    events = run(server, "beside")
    (interrupt,) = interrupts(events)
    assert [event["toolCallName"] for event in events if event["type"] == "TOOL_CALL_START"] == ["pause", "letter"]
    server.release(_pauses[-1])
    wait_for(server, SpecialistResult)
    rest = run(server, "beside", resume=[decide(interrupt, True)])
    assert [event["content"] for event in rest if event["type"] == "TOOL_CALL_RESULT"] == ["Paused.", "Sent to Ada."]
    assert "TOOL_CALL_START" not in [event["type"] for event in rest]


def test_an_approval_that_expired_can_only_be_given_up() -> None:
    with serve(APPROVAL_SECONDS=0.05) as server:
        goes_on = asyncio.Event()
        server.play(Player([LETTER], [goes_on, "Nobody answered."]))
        (interrupt,) = interrupts(run(server, "expires"))
        wait_for(server, SpecialistError)
        assert error_of(run(server, "expires", resume=[decide(interrupt, True)])) == "gone"
        server.release(goes_on)
        rest = run(server, "expires", resume=[give_up(interrupt)])
    assert [event["delta"] for event in rest if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["Nobody answered."]
    assert SENT == []


def test_a_client_that_leaves_the_rest_of_a_turn_stops_it(server: Server) -> None:
    server.play(player := Player([LETTER], ["I go on.", asyncio.Event()]))
    (interrupt,) = interrupts(run(server, "leaves"))
    body = body_of("leaves", messages=[], resume=[decide(interrupt, True)])
    with httpx.stream("POST", f"{server.url}/ag-ui/run", json=body, timeout=WAIT_SECONDS, trust_env=False) as response:
        assert any("I go on." in data for data in response.iter_text())
    assert player.closed.wait(WAIT_SECONDS)
    assert SENT == ["Ada"]
