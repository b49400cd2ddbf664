"""AG-UI's own client for TypeScript, whose verifier is strict, and whatever else posts a run, against a real port."""

import asyncio
import itertools
import json
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from ag_ui_stream import verify
from nodes import Clients, Script
from serving import Player, Server, brain_served

from brain import Citation, Registry, Result, specialist
from brain.errors import ModelError

WEATHER = 'SPECIALIST_REQUEST[weather:{"city":"Bern"}]'
SENDS = 'SPECIALIST_REQUEST[sends:{"to":"Ada"}]'
PAINT = {"name": "paint", "description": "Paints.", "parameters": {"type": "object"}}
PNG = "iVBORw0KGgo="


_ids = itertools.count()


@specialist
async def weather(city: str) -> Result:
    """Weather for a city."""
    return Result(f"Sunny in {city}.", [Citation("1", "Weather", "https://example.org/weather")])


@specialist
async def breaks() -> str:
    """Fails."""
    raise RuntimeError("the password is swordfish")


@specialist(timeout=20)
async def nap(seconds: float) -> str:
    """Sleeps."""
    await asyncio.sleep(seconds)
    return "Rested."


SENT: list[str] = []


@specialist(approval="always")
async def sends(to: str) -> str:
    """Sends a letter."""
    SENT.append(to)
    return f"sent to {to}"


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    registry = Registry()
    for one in (weather, breaks, nap, sends):
        registry.add(one)
    with brain_served(registry, HEARTBEAT_SECONDS=0.2, APPROVAL_SECONDS=20) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    SENT.clear()
    yield running
    assert running.left(2) == []


# The client for TypeScript


class Ended:
    """What one run brought: its events, and how the client saw it end."""

    def __init__(self, lines: Sequence[Mapping[str, Any]]) -> None:
        assert [line["warning"] for line in lines if "warning" in line] == []
        *events, last = lines
        self.events = events
        self.end: dict[str, Any] = last["end"]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def text(self) -> str:
        return "".join(event["delta"] for event in self.events if event["type"] == "TEXT_MESSAGE_CONTENT")

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    @property
    def roles(self) -> list[str]:
        return [message["role"] for message in self.end["messages"]]


class Agent:
    """A client that goes on with its thread, run by run."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def run(self, *said: str | Mapping[str, Any], **parameters: Any) -> Ended:
        messages = [one if isinstance(one, Mapping) else user(one) for one in said]
        self._script.say(json.dumps({"messages": messages, **parameters}))
        lines = [json.loads(self._script.line())]
        while "end" not in lines[-1]:
            lines.append(json.loads(self._script.line()))
        return Ended(lines)


def user(text: str) -> dict[str, str]:
    return {"id": f"user-{next(_ids)}", "role": "user", "content": text}


@contextmanager
def agent_of(clients: Clients, server: Server, thread: str) -> Iterator[Agent]:
    with clients.running("ag_ui.mjs", f"{server.url}/ag-ui/run", thread) as script:
        yield Agent(script)


@pytest.mark.node
def test_a_conversation_with_two_calls_and_what_the_client_keeps_of_it(clients: Clients, server: Server) -> None:
    player = Player(["I ask both. ", WEATHER, "SPECIALIST_REQUEST[breaks]"], ["It is ", 0.05, "sunny."])
    server.play(player)
    with agent_of(clients, server, "two-calls") as agent:
        first = agent.run("Weather?")
        assert first.text == "I ask both. It is sunny."
        assert first.types.count("TOOL_CALL_START") == first.types.count("TOOL_CALL_RESULT") == 2
        assert first.roles == ["user", "assistant", "tool", "tool", "assistant"]
        calls = first.end["messages"][1]["toolCalls"]
        assert [(call["function"]["name"], call["function"]["arguments"]) for call in calls] == [
            ("weather", '{"city":"Bern"}'),
            ("breaks", "{}"),
        ]
        contents = {message["toolCallId"]: message["content"] for message in first.end["newMessages"][1:3]}
        assert contents[calls[0]["id"]] == "Sunny in Bern."
        assert contents[calls[1]["id"]].startswith("breaks failed - ")
        assert "swordfish" not in json.dumps(first.events)
        [sources] = [event["value"] for event in first.of("CUSTOM") if event["name"] == "sources"]
        assert sources == {
            "toolCallId": calls[0]["id"],
            "sources": [{"id": "1", "title": "Weather", "url": "https://example.org/weather"}],
        }
        assert (first.end["outcome"], first.end["pendingToolCallIds"]) == ("success", [])
        assert first.end["result"]["calls"] == 2
        second = agent.run("Thanks.")
    assert second.text == "I ask both. It is sunny."
    asked = "\n".join(message.content for message in player.asked[2])
    assert "Sunny in Bern." in asked
    assert (
        asked.index("Weather?") < asked.index("Sunny in Bern.") < asked.index("It is sunny.") < asked.index("Thanks.")
    )


@pytest.mark.node
def test_text_comes_as_it_is_written(clients: Clients, server: Server) -> None:
    server.play(Player(["One ", 0.5, "two."]))
    with clients.running("ag_ui.mjs", f"{server.url}/ag-ui/run", "as-written") as script:
        script.say(json.dumps({"messages": [user("Count.")]}))
        came = {}
        while "end" not in (line := json.loads(script.line())):
            came[line.get("delta")] = script.at
    assert came["two."] - came["One "] > 0.3


@pytest.mark.node
def test_a_model_that_fails_is_an_error_of_the_run(clients: Clients, server: Server) -> None:
    server.play(Player(["Half an ", ModelError("model_failed", "The model failed.")]))
    with agent_of(clients, server, "fails") as agent:
        ended = agent.run("Hi")
        assert ended.types[-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
        assert (ended.events[-1]["message"], ended.events[-1]["code"]) == ("The model failed.", "model_failed")
        assert "failed" not in ended.end
        server.play(Player(["Better."]))
        assert agent.run("Again").text == "Better."


@pytest.mark.node
@pytest.mark.parametrize("at", ["TEXT_MESSAGE_CONTENT", "TOOL_CALL_END"])
def test_stop_reaches_the_model_and_the_thread_goes_on(clients: Clients, server: Server, at: str) -> None:
    opening = "I wait. " if at == "TEXT_MESSAGE_CONTENT" else 'SPECIALIST_REQUEST[nap:{"seconds":20}]'
    player = Player([opening, 20.0])
    server.play(player)
    with agent_of(clients, server, f"stops-{at}") as agent:
        stopped = agent.run("Wait.", abortAt=at)
        assert at in stopped.types
        assert "RUN_FINISHED" not in stopped.types
        assert player.closed.wait(10)


@pytest.mark.node
def test_a_turn_that_is_cancelled_elsewhere_is_a_run_that_was_cancelled(clients: Clients, server: Server) -> None:
    server.play(Player(["I wait.", 20.0]))
    with clients.running("ag_ui.mjs", f"{server.url}/ag-ui/run", "cancelled") as script:
        script.say(json.dumps({"messages": [user("Wait.")]}))
        lines = [json.loads(script.line())]
        while lines[-1].get("type") != "TEXT_MESSAGE_CONTENT":
            lines.append(json.loads(script.line()))
        turn_id = next(line["value"]["turnId"] for line in lines if line.get("name") == "turn")
        assert httpx.post(f"{server.url}/v1/turns/{turn_id}/cancel").status_code == 202
        while "end" not in lines[-1]:
            lines.append(json.loads(script.line()))
    ended = Ended(lines)
    assert ended.types[-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert (ended.end["outcome"], ended.end.get("result")) == ("cancelled", None)


@pytest.mark.node
def test_the_clients_own_tools(clients: Clients, server: Server) -> None:
    player = Player(['I paint. SPECIALIST_REQUEST[paint:{"color":"red"}]', 20.0])
    server.play(player)
    with agent_of(clients, server, "own-tools") as agent:
        first = agent.run("Paint it.", tools=[PAINT])
        [call] = first.end["newMessages"][0]["toolCalls"]
        assert call["function"] == {"name": "paint", "arguments": '{"color":"red"}'}
        assert "TOOL_CALL_RESULT" not in first.types
        assert (first.end["outcome"], first.end["pendingToolCallIds"]) == ("success", [call["id"]])
        done = Player(["It is red."])
        server.play(done)
        second = agent.run(
            {"id": "answer", "role": "tool", "toolCallId": call["id"], "content": "Painted."}, tools=[PAINT]
        )
        assert second.text == "It is red."
        assert second.roles == ["user", "assistant", "tool", "assistant"]
    assert "[SPECIALIST_RESULT: paint]\nPainted.\n[/SPECIALIST_RESULT]" in done.asked[0][-1].content


@pytest.mark.node
@pytest.mark.parametrize(("approved", "sent"), [(True, ["Ada"]), (False, [])])
def test_a_person_is_asked(clients: Clients, server: Server, approved: bool, sent: list[str]) -> None:
    player = Player(["I send it. ", SENDS], ["That was it."])
    server.play(player)
    with agent_of(clients, server, f"approval-{approved}") as agent:
        first = agent.run("Send it.")
        [interrupt] = first.end["pendingInterrupts"]
        assert (first.end["outcome"], interrupt["reason"]) == ("interrupt", "tool_call")
        assert interrupt["toolCallId"] == first.end["newMessages"][0]["toolCalls"][0]["id"]
        assert interrupt["message"] == 'May sends be called with {"to":"Ada"}?'
        assert SENT == []
        second = agent.run(resume=[answer(interrupt["id"], approved=approved)])
    assert sent == SENT
    assert second.text == "That was it."
    assert second.roles == ["user", "assistant", "tool", "assistant"]
    assert second.end["messages"][1]["toolCalls"][0]["function"]["arguments"] == '{"to":"Ada"}'
    assert "TOOL_CALL_START" not in second.types
    assert second.end["pendingInterrupts"] == []
    [result] = second.of("TOOL_CALL_RESULT")
    assert result["metadata"]["outcome"] == ("ok" if approved else "declined")


@pytest.mark.node
def test_what_the_user_says_in_place_of_an_approval_is_heard(clients: Clients, server: Server) -> None:
    player = Player(["I send it. ", SENDS], ["To Bob, then."])
    server.play(player)
    with agent_of(clients, server, "instead") as agent:
        [interrupt] = agent.run("Send it.").end["pendingInterrupts"]
        second = agent.run("No, to Bob.", resume=[{"interruptId": interrupt["id"], "status": "cancelled"}])
    assert (second.text, SENT) == ("To Bob, then.", [])
    assert "No, to Bob." in "\n".join(message.content for message in player.asked[-1])
    assert [event["value"] for event in second.of("CUSTOM") if event["name"] == "notice"] == [
        {"code": "steered", "text": "No, to Bob."}
    ]


@pytest.mark.node
def test_a_run_that_is_refused_says_why(clients: Clients, server: Server) -> None:
    with agent_of(clients, server, "refused") as agent:
        ended = agent.run("Hi", forwardedProps={"model": "gpt-9"})
    assert (ended.events, ended.end["status"]) == ([], 400)
    assert "forwardedProps.model must be one of: " in ended.end["failed"]


@pytest.mark.node
def test_a_client_that_was_cut_off_goes_on_with_its_thread(clients: Clients, server: Server) -> None:
    """It does not reconnect: its run has failed, and the next one tells what it has of it."""
    server.play(Player([WEATHER, 20.0], ["Half of ", 20.0]))
    with (
        relayed(server.port, cut_behind=b"Half of ") as port,
        clients.running("ag_ui.mjs", f"http://127.0.0.1:{port}/ag-ui/run", "cut-off") as script,
    ):
        agent = Agent(script)
        first = agent.run("Tell me.")
        assert "failed" in first.end
        assert first.roles == ["user", "assistant", "tool", "assistant"]
        again = Player(["All of it."])
        server.play(again)
        second = agent.run("Go on.")
    assert second.text == "All of it."
    asked = "\n".join(message.content for message in again.asked[0])
    assert asked.index("Sunny in Bern.") < asked.index("Half of ") < asked.index("Go on.")


@contextmanager
def relayed(port: int, cut_behind: bytes) -> Iterator[int]:
    """A port that hands all bytes on to another, and cuts its first connection behind certain ones that come back."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        relay = threading.Thread(target=_relay, args=(listening, port, cut_behind, over))
        relay.start()
        try:
            yield listening.getsockname()[1]
        finally:
            over.set()
            relay.join(5)


def _relay(listening: socket.socket, port: int, cut_behind: bytes, over: threading.Event) -> None:
    listening.settimeout(0.05)
    uncut = True
    while not over.is_set():
        with suppress(TimeoutError):
            near, _ = listening.accept()
            with near, socket.create_connection(("127.0.0.1", port)) as far:
                uncut = _handed_on(near, far, cut_behind if uncut else b"\0", over) and uncut


def _handed_on(near: socket.socket, far: socket.socket, cut_behind: bytes, over: threading.Event) -> bool:
    """Hands bytes on until either end hangs up; false when it was cut."""
    while not over.is_set():
        for one in select.select([near, far], [], [], 0.05)[0]:
            data = one.recv(65536)
            if not data:
                return True
            (far if one is near else near).sendall(data)
            if one is far and cut_behind in data:
                time.sleep(0.1)  # so that it is read before the end is
                return False
    return True


# Whatever posts a run


def answer(interrupt_id: str, *, approved: bool) -> dict[str, Any]:
    return {"interruptId": interrupt_id, "status": "resolved", "payload": {"approved": approved}}


def given_up(interrupt_id: str) -> dict[str, Any]:
    return {"interruptId": interrupt_id, "status": "cancelled"}


def post(server: Server, thread: str, headers: Mapping[str, str] | None = None, **body: Any) -> httpx.Response:
    usual = {"threadId": thread, "runId": "run", "messages": [{"id": "1", "role": "user", "content": "Hi"}]}
    return httpx.post(f"{server.url}/ag-ui/run", json={**usual, **body}, headers=headers, timeout=20)


def run(server: Server, thread: str, headers: Mapping[str, str] | None = None, **body: Any) -> list[dict[str, Any]]:
    """The events of a run, each verified; comments are left out."""
    response = post(server, thread, headers, **body)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert "\r" not in response.text
    return verify(response.text.replace(": heartbeat\n\n", ""))


def interrupts(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return [one["id"] for one in events[-1]["outcome"]["interrupts"]]


def trouble(events: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    started, error = events
    assert (started["type"], error["type"]) == ("RUN_STARTED", "RUN_ERROR")
    return error["code"], error["message"]


def test_headers_and_heartbeats(server: Server) -> None:
    server.play(Player([0.5, "Hello."]))
    response = post(server, "beats")
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.text.count(": heartbeat\n\n") >= 2


def test_files_and_context_and_options_reach_the_turn(server: Server) -> None:
    player = Player(["I see."])
    server.play(player)
    image = {"type": "image", "source": {"type": "data", "value": PNG, "mimeType": "image/png"}}
    run(
        server,
        "files",
        messages=[{"id": "1", "role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}],
        context=[{"description": "The page", "value": "Cart"}],
        forwardedProps={"specialists": ["weather"], "system": "Be brief.", "somebody": "else's"},
    )
    system, *_, newest = player.asked[0]
    assert "Be brief." in system.content
    assert "weather" in system.content
    assert "sends" not in system.content
    assert "The page: Cart" in "\n".join(message.content for message in player.asked[0])
    assert 'image_id: 1: "image" (image/png)' in newest.content
    assert "What is it?" in newest.content


def test_the_turn_is_filed_under_its_thread(server: Server) -> None:
    server.play(Player(["Hello."]))
    first, turn, *_ = run(server, "a thread / with signs")
    assert first["threadId"] == "a thread / with signs"
    report = httpx.get(f"{server.url}/v1/turns/{turn['value']['turnId']}").json()
    assert report["conversation_id"] == turn["value"]["conversationId"]
    assert report["wire"] == "ag_ui"
    assert report["state"] == "done"


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (b"{", {"content-type": "application/json"}, 400, "bad_request"),
        (b"{}", {"content-type": "text/plain"}, 415, "unsupported_media_type"),
        (b"{}", {}, 415, "unsupported_media_type"),
    ],
)
def test_refusals_are_in_the_words_of_the_protocol(
    server: Server, content: bytes, headers: Mapping[str, str], status: int, code: str
) -> None:
    response = httpx.post(f"{server.url}/ag-ui/run", content=content, headers=headers)
    error = response.json()
    assert (response.status_code, error["type"], error["code"]) == (status, "RUN_ERROR", code)
    assert set(error) == {"type", "message", "code"}


def test_a_thread_has_one_run_at_a_time(server: Server) -> None:
    player = Player(["Hello.", 5.0])
    server.play(player)
    body = {"threadId": "busy", "runId": "1", "messages": [{"id": "1", "role": "user", "content": "Hi"}]}
    with httpx.stream("POST", f"{server.url}/ag-ui/run", json=body, timeout=20):
        assert player.open.wait(5)
        response = post(server, "busy")
    assert (response.status_code, response.json()["code"]) == (409, "busy")


# Approvals


def test_a_thread_that_waits_takes_no_other_run(server: Server) -> None:
    server.play(Player([SENDS], ["Done."]))
    [interrupt] = interrupts(run(server, "waits"))
    code, message = trouble(run(server, "waits"))
    assert code == "interrupted"
    assert message.endswith(f"{interrupt}.")
    assert trouble(run(server, "waits", resume=[answer("t1.c1.3", approved=True)]))[0] == "interrupted"
    assert trouble(run(server, "waits", resume=[]))[0] == "interrupted"
    assert SENT == []
    assert run(server, "waits", resume=[given_up(interrupt)])[-1]["outcome"] == {"type": "success"}
    assert SENT == []


def test_approvals_asked_for_together_are_answered_together(server: Server) -> None:
    two = SENDS + SENDS.replace("Ada", "Bob")
    server.play(Player([two], ["Done."]))
    first, second = interrupts(run(server, "together"))
    for partly in ([answer(first, approved=True)], [answer(second, approved=True)]):
        code, message = trouble(run(server, "together", resume=partly))
        assert code == "interrupted"
        assert "missing: " in message
    assert SENT == []
    events = run(server, "together", resume=[answer(second, approved=True), answer(first, approved=False)])
    assert SENT == ["Bob"]
    outcomes = {one["toolCallId"]: one["metadata"]["outcome"] for one in events if one["type"] == "TOOL_CALL_RESULT"}
    assert sorted(outcomes.values()) == ["declined", "ok"]


def test_approvals_of_one_pass_are_asked_for_together(server: Server) -> None:
    server.play(Player([SENDS, 0.1, SENDS.replace("Ada", "Bob")], ["Done."]))
    both = interrupts(run(server, "together"))
    last = run(server, "together", resume=[answer(one, approved=True) for one in both])
    assert (len(both), sorted(SENT), last[-1]["outcome"]) == (2, ["Ada", "Bob"], {"type": "success"})


def test_an_approval_that_comes_later_is_asked_for_in_a_run_of_its_own(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.turn.approvals.GATHERING_SECONDS", 0.02)
    server.play(Player([SENDS, 0.3, SENDS.replace("Ada", "Bob")], ["Done."]))
    [first] = interrupts(run(server, "later"))
    time.sleep(0.5)
    middle = run(server, "later", resume=[answer(first, approved=True)])
    [second] = interrupts(middle)
    last = run(server, "later", resume=[answer(second, approved=True)])
    assert sorted(SENT) == ["Ada", "Bob"]
    results = [event["toolCallId"] for event in [*middle, *last] if event["type"] == "TOOL_CALL_RESULT"]
    assert len(results) == len(set(results)) == 2
    assert last[-1]["outcome"] == {"type": "success"}


def test_what_runs_beside_an_approval_is_told_of_in_the_next_run(server: Server) -> None:
    server.play(Player(['SPECIALIST_REQUEST[nap:{"seconds":0.3}]', SENDS], ["Done."]))
    events = run(server, "beside")
    [interrupt] = interrupts(events)
    assert [event["toolCallName"] for event in events if event["type"] == "TOOL_CALL_START"] == ["nap", "sends"]
    time.sleep(0.5)
    rest = run(server, "beside", resume=[answer(interrupt, approved=True)])
    assert [event["content"] for event in rest if event["type"] == "TOOL_CALL_RESULT"] == ["Rested.", "sent to Ada"]
    assert "TOOL_CALL_START" not in [event["type"] for event in rest]


def test_the_same_answer_may_come_again_and_another_may_not(server: Server) -> None:
    server.play(Player([SENDS], ["Done."]))
    [interrupt] = interrupts(run(server, "again"))
    first = run(server, "again", resume=[answer(interrupt, approved=True)])
    assert run(server, "again", resume=[answer(interrupt, approved=True)]) == first
    assert trouble(run(server, "again", resume=[answer(interrupt, approved=False)]))[0] == "decided"
    assert trouble(run(server, "again", resume=[given_up(interrupt)]))[0] == "decided"
    assert SENT == ["Ada"]


def test_what_is_said_with_an_answer_is_no_longer_than_a_message(server: Server) -> None:
    server.play(Player([SENDS], ["Done."]))
    [interrupt] = interrupts(run(server, "long"))
    call = {"id": interrupt.rpartition(".")[0], "function": {"name": "sends"}}
    messages = [{"id": "2", "role": "assistant", "toolCalls": [call]}]
    messages += [{"id": str(n), "role": "user", "content": "x" * 100_000} for n in (3, 4)]
    events = run(server, "long", messages=messages, resume=[answer(interrupt, approved=True)])
    assert trouble(events)[0] == "too_large"
    assert SENT == []
    run(server, "long", messages=messages[:2], resume=[answer(interrupt, approved=True)])
    assert SENT == ["Ada"]


def test_nobody_can_approve_what_was_not_asked(server: Server) -> None:
    server.play(Player([SENDS], ["Done."]))
    [interrupt] = interrupts(run(server, "mine"))
    turn_id, call_id, number = interrupt.split(".")
    for forged in (f"{turn_id}.c2.{number}", f"{turn_id}.{call_id}.1", f"{turn_id}.{call_id}.999999999", "x"):
        assert trouble(run(server, "mine", resume=[answer(forged, approved=True)]))[0] in (
            "not_found",
            "interrupted",
            "gone",
        )
    assert trouble(run(server, "yours", resume=[answer(interrupt, approved=True)]))[0] == "not_found"
    two = [answer(interrupt, approved=True), answer("t0.c1.2", approved=True)]
    assert trouble(run(server, "mine", resume=two))[0] == "not_found"
    wrong = {"interruptId": interrupt, "status": "resolved", "payload": {"approved": "yes"}}
    assert trouble(run(server, "mine", resume=[wrong]))[0] == "bad_request"
    assert SENT == []
    run(server, "mine", resume=[answer(interrupt, approved=False)])
    assert SENT == []


def test_nobody_can_approve_for_another_user() -> None:
    SENT.clear()
    registry = Registry()
    registry.add(sends)
    with brain_served(registry, KEYS="key-of-ada:ada,key-of-bob:bob") as server:
        server.play(Player([SENDS], ["Done."]))
        ada, bob = ({"authorization": f"Bearer key-of-{name}"} for name in ("ada", "bob"))
        [interrupt] = interrupts(run(server, "theirs", headers=ada))
        assert trouble(run(server, "theirs", headers=bob, resume=[answer(interrupt, approved=True)]))[0] == "not_found"
        assert SENT == []
        run(server, "theirs", headers=ada, resume=[answer(interrupt, approved=True)])
        assert SENT == ["Ada"]


def test_what_is_given_up_and_no_longer_kept_begins_a_new_turn(server: Server) -> None:
    server.play(Player(["Hello."]))
    events = run(server, "forgotten", resume=[given_up("t0123456789abcdef.c1.3")])
    assert events[-1]["outcome"] == {"type": "success"}
    assert trouble(run(server, "forgotten", resume=[answer("t0123456789abcdef.c1.3", approved=True)]))[0] == "not_found"


def test_an_approval_that_expired_can_only_be_given_up(running: Server) -> None:
    registry = Registry()
    registry.add(sends)
    SENT.clear()
    with brain_served(registry, APPROVAL_SECONDS=0.2) as server:
        server.play(Player([SENDS], ["Nobody answered."]))
        [interrupt] = interrupts(run(server, "expires"))
        time.sleep(0.5)
        code, message = trouble(run(server, "expires", resume=[answer(interrupt, approved=True)]))
        assert code == "gone"
        assert "cancelled" in message
        rest = run(server, "expires", resume=[given_up(interrupt)])
    assert [event["delta"] for event in rest if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["Nobody answered."]
    assert SENT == []


def test_a_reader_that_leaves_the_rest_of_a_turn_stops_it(server: Server) -> None:
    player = Player([SENDS], ["I go on.", 20.0])
    server.play(player)
    [interrupt] = interrupts(run(server, "leaves"))
    body = {"threadId": "leaves", "runId": "2", "messages": [], "resume": [answer(interrupt, approved=True)]}
    with httpx.stream("POST", f"{server.url}/ag-ui/run", json=body, timeout=20) as response:
        for data in response.iter_text():
            if "I go on." in data:
                break
    assert player.closed.wait(10)
    assert SENT == ["Ada"]
