"""The routes of the AI SDK on a real port: whose turns they are, who decides, and reconnecting."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from playing import registry_of, words
from serving import Player, Server, brain_served

from brain import specialist

ANN = {"authorization": "Bearer anns"}
BOB = {"authorization": "Bearer bobs"}
WRITES = 'SPECIALIST_REQUEST[writes:{"to":"%s"}]'

written: list[str] = []


@specialist(approval="always")
async def writes(to: str) -> str:
    """Writes a letter."""
    written.append(to)
    return f"written to {to}"


@specialist
async def reads() -> str:
    """Reads a letter."""
    return "read"


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with brain_served(registry_of(writes, reads), KEYS="anns:ann,bobs:bob") as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    written.clear()
    yield running
    assert running.left() == []


def user(text: str = "Hi") -> dict[str, Any]:
    return {"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}


def chat(server: Server, *messages: dict[str, Any], headers: Any = ANN, **more: Any) -> httpx.Response:
    body = {"messages": messages or [user()], "sdk_version": 6, **more}
    return httpx.post(f"{server.url}/ai-sdk/chat", json=body, headers=headers, trust_env=False, timeout=30)


@contextmanager
def begun(server: Server, until: str, **more: Any) -> Iterator[str]:
    """What a chat has said up to this; behind the block, its reader leaves."""
    body = {"messages": [user()], "sdk_version": 6, **more}
    said = ""
    with (
        httpx.Client(trust_env=False, timeout=30) as client,
        client.stream("POST", f"{server.url}/ai-sdk/chat", json=body, headers=ANN) as response,
    ):
        pieces = response.iter_text()
        for piece in pieces:
            said += piece
            if until in said:
                break
        yield said


def again(server: Server, chat_id: str, headers: Any = ANN) -> httpx.Response:
    url = f"{server.url}/ai-sdk/chat/{chat_id}/stream"
    return httpx.get(url, headers=headers, trust_env=False, timeout=30)


def parts(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    frames = [frame for frame in response.text.split("\n\n") if frame.startswith("data: {")]
    assert response.text.endswith("data: [DONE]\n\n")
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def types(response: httpx.Response) -> list[str]:
    return [part["type"] for part in parts(response) if not part["type"].endswith(("-start", "-delta", "-end"))]


def asked(response: httpx.Response) -> list[str]:
    return [part["approvalId"] for part in parts(response) if part["type"] == "tool-approval-request"]


def answered(*approval_ids: str, approved: bool = True) -> dict[str, Any]:
    listed = [
        {
            "type": "dynamic-tool",
            "toolName": "writes",
            "toolCallId": approval_id,
            "state": "approval-responded",
            "input": {},
            "approval": {"id": approval_id, "approved": approved},
        }
        for approval_id in approval_ids
    ]
    return {"id": "a", "role": "assistant", "parts": listed}


def text_of(response: httpx.Response) -> str:
    return "".join(part["delta"] for part in parts(response) if part["type"] == "text-delta")


def outputs(response: httpx.Response) -> list[str]:
    return [part["output"] for part in parts(response) if part["type"] == "tool-output-available"]


def test_the_head_of_the_stream(server: Server) -> None:
    server.play(Player(["Hello."]))
    answer = chat(server)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert text_of(answer) == "Hello."


def test_errors_are_plain_text(server: Server) -> None:
    for answer, status in (
        (chat(server, headers=None), 401),
        (again(server, "x", headers=None), 401),
        (chat(server, model="gpt"), 400),
        (httpx.post(f"{server.url}/ai-sdk/chat", content="{}", headers=ANN, trust_env=False), 415),
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")


def test_the_turn_is_filed_under_the_id_of_the_chat(server: Server) -> None:
    server.play(Player(["Hello."]))
    start = parts(chat(server, id="filed"))[0]
    report = httpx.get(f"{server.url}/v1/turns/{start['messageMetadata']['turn_id']}", headers=ANN, trust_env=False)
    found = {name: report.json()[name] for name in ("conversation_id", "wire", "message_id")}
    assert found == {"conversation_id": "filed", "wire": "ai_sdk", "message_id": start["messageId"]}
    kept = server.on_loop(server.engine.store.conversation("ann", "filed"))
    assert kept is not None
    assert [(exchange.answer, exchange.outcome) for exchange in kept.exchanges] == [("Hello.", "complete")]


def test_one_turn_at_a_time_in_a_chat(server: Server) -> None:
    server.play(Player(["One ", asyncio.Event()]))
    with begun(server, "One", id="busy"):
        assert chat(server, id="busy").status_code == 409
    server.play(Player(["Two."]))
    assert text_of(chat(server, id="busy")) == "Two."


# Approvals


def test_only_who_was_asked_decides(server: Server) -> None:
    server.play(Player([WRITES % "Ann"], ["Done."]))
    [approval_id] = asked(chat(server, id="whose"))
    turn_id, _, call_id = approval_id.partition(".")
    for answer in (
        chat(server, answered(approval_id), headers=BOB),
        chat(server, answered(approval_id), headers=BOB, id="whose"),
        chat(server, answered(approval_id), id="another"),
        chat(server, answered("t0123456789abcdef.c1"), id="whose"),
    ):
        assert answer.status_code == 410
    assert chat(server, answered(approval_id, f"{turn_id}.c9"), id="whose").status_code == 404
    assert written == []
    assert text_of(chat(server, answered(approval_id), id="whose")) == "Done."
    assert written == ["Ann"]
    assert call_id == "c1"


def test_the_same_decision_again_tells_the_same_rest_and_runs_nothing_twice(server: Server) -> None:
    server.play(Player([WRITES % "Ann"], ["Do", "ne."]))
    [approval_id] = asked(chat(server, id="twice"))
    first, second = chat(server, answered(approval_id), id="twice"), chat(server, answered(approval_id), id="twice")
    changed = chat(server, answered(approval_id, approved=False), id="twice")
    assert types(first) == [
        "start", "tool-output-available", "start-step", "message-metadata", "finish-step", "finish",
    ]  # fmt: skip
    assert text_of(first) == text_of(second) == text_of(changed) == "Done."
    assert types(second) == types(changed) == types(first)
    assert written == ["Ann"]


def test_calls_that_run_beside_are_waited_for(server: Server) -> None:
    both = "SPECIALIST_REQUEST[reads]" + WRITES % "Ann"
    server.play(Player([both + WRITES % "Bob"], ["Done."]))
    first = chat(server)
    assert outputs(first) == ["read"]
    assert parts(first)[-1] == {"type": "finish", "finishReason": "tool-calls"}
    ann, bob = asked(first)
    second = chat(server, answered(ann))
    assert (outputs(second), asked(second)) == (["written to Ann"], [])
    assert parts(second)[-1] == {"type": "finish", "finishReason": "tool-calls"}
    third = chat(server, answered(bob, approved=False))
    assert "tool-output-denied" in types(third)
    assert text_of(third) == "Done."


def test_what_is_decided_elsewhere_is_told_to_who_asks(server: Server) -> None:
    server.play(Player([WRITES % "Ann"], ["Done."]))
    [approval_id] = asked(chat(server))
    turn_id, _, call_id = approval_id.partition(".")
    url = f"{server.url}/v1/turns/{turn_id}/approvals/{call_id}"
    assert httpx.post(url, json={"approve": True}, headers=ANN, trust_env=False).is_success
    assert outputs(chat(server, answered(approval_id))) == ["written to Ann"]


def test_an_expired_approval_tells_its_outcome() -> None:
    with brain_served(registry_of(writes), KEYS="anns:ann", APPROVAL_SECONDS=0.01) as server:
        server.play(Player([WRITES % "Ann"], ["Then not."]))
        [approval_id] = asked(chat(server))
        url = f"{server.url}/v1/turns/{approval_id.partition('.')[0]}/events"
        assert "event: done" in httpx.get(url, headers=ANN, trust_env=False).text
        late = chat(server, answered(approval_id))
    assert "tool-output-denied" in types(late)
    assert text_of(late) == "Then not."


def test_a_client_without_a_version_counts_as_the_oldest() -> None:
    with brain_served(registry_of(writes), KEYS="anns:ann", APPROVAL_SECONDS=0.01) as server:
        server.play(Player([WRITES % "Ann"], ["Then not."]))
        answer = chat(server, sdk_version=None)
    states = [part["data"]["state"] for part in parts(answer) if part["type"] == "data-approval"]
    assert states == ["asked", "declined"]
    assert text_of(answer) == "Then not."


# Reconnecting


def test_a_resumable_turn_continues_without_a_reader(server: Server) -> None:
    gate = asyncio.Event()
    server.play(player := Player(["One ", gate, "two."]))
    with begun(server, "One", id="resumed", resumable=True) as seen:
        pass
    assert not player.closed.is_set()
    looked = httpx.head(f"{server.url}/ai-sdk/chat/resumed/stream", headers=ANN, trust_env=False)
    assert (looked.status_code, looked.headers["allow"]) == (405, "GET"), "it would count as a reader"
    server.release(gate)
    whole = again(server, "resumed")
    assert whole.text.startswith(seen)
    assert text_of(whole) == "One two."
    assert again(server, "resumed").status_code == 204


def test_a_turn_that_waits_for_a_person_is_read_again(server: Server) -> None:
    server.play(Player(["I write. ", WRITES % "Ann"], ["Done."]))
    first = chat(server, id="page", resumable=True, sdk_version=7)
    reloaded = again(server, "page")
    assert reloaded.text == first.text
    assert text_of(chat(server, answered(*asked(reloaded)), id="page")) == "Done."


def test_a_turn_whose_call_was_decided_meanwhile_is_read_to_its_end(server: Server) -> None:
    gate = asyncio.Event()
    server.play(Player([WRITES % "Ann"], ["Do", gate, "ne."]))
    [approval_id] = asked(chat(server, id="meanwhile", resumable=True, sdk_version=7))
    turn_id, _, call_id = approval_id.partition(".")
    url = f"{server.url}/v1/turns/{turn_id}/approvals/{call_id}"
    assert httpx.post(url, json={"approve": True}, headers=ANN, trust_env=False).is_success
    server.release(gate)
    whole = again(server, "meanwhile")
    assert types(whole) == [
        "start", "start-step", "tool-input-available", "tool-approval-request", "tool-approval-response",
        "tool-output-available", "finish-step", "start-step", "message-metadata", "finish-step", "finish",
    ]  # fmt: skip
    assert text_of(whole) == "Done."


@pytest.mark.parametrize("resumable", [True, False])
def test_there_is_nothing_to_reconnect_to(server: Server, resumable: bool) -> None:
    gate = asyncio.Event()
    server.play(Player(["One ", gate, "two."]))
    with begun(server, "One", id="other", resumable=resumable):
        nothing = [again(server, "nothing"), again(server, "other", headers=BOB)]
        nothing += [] if resumable else [again(server, "other")]
        for answer in nothing:
            assert (answer.status_code, answer.content, answer.headers["cache-control"]) == (204, b"", "no-store")
        server.release(gate)
    body = {"message": "Hi", "conversation_id": "native"}
    assert httpx.post(f"{server.url}/v1/turns", json=body, headers=ANN, trust_env=False).status_code == 201
    assert again(server, "native").status_code == 204, "a turn of another protocol"


def test_a_turn_longer_than_the_replay_buffer_is_not_read_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.runtime.event_log.LOG_BYTES", 20_000)
    gate = asyncio.Event()
    server.play(Player(["One ", gate, *[f"{word} " * 5 for word in words(1_000)]]))
    with begun(server, "One", id="long", resumable=True):
        (run,) = server.engine.turns.running
    server.release(gate)
    server.on_loop(run.wait_ended())
    assert again(server, "long").status_code == 204


def test_a_chat_that_is_left_while_a_turn_waits_ends_it(server: Server) -> None:
    server.play(player := Player([WRITES % "Ann"], ["Never."]))
    [approval_id] = asked(chat(server, id="left"))
    server.play(Player(["Fine."]))
    assert text_of(chat(server, user("Write!"), user("Forget it."), id="left")) == "Fine."
    assert len(player.asked) == 1
    late = chat(server, answered(approval_id), id="left")
    assert types(late) == ["start", "tool-output-error", "message-metadata", "start-step", "finish-step", "abort"]
    assert written == []
