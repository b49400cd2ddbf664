"""The routes of the AI SDK on a real port: who decides about calls, and reconnecting."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from brain_servers import Server, brain_served, client_of
from turn_helpers import Player, registry_of, words

from brain import specialist
from brain.store import conversations

ANN = {"authorization": "Bearer anns"}
BOB = {"authorization": "Bearer bobs"}
WRITES = 'SPECIALIST_REQUEST[writes:{"to":"%s"}]'

written: list[str] = []


@specialist(approval="always")
async def writes(to: str) -> str:
    """Writes a letter."""
    written.append(to)
    return f"written to {to}"


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with brain_served(registry_of(writes), KEYS="anns:ann,bobs:bob") as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    written.clear()
    yield running
    assert running.left() == []


def user(text: str = "Hi") -> dict[str, Any]:
    return {"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}


def request(server: Server, method: str, path: str, headers: Any = ANN, **options: Any) -> httpx.Response:
    with client_of(server) as client:
        return client.request(method, path, headers=headers, **options)


def chat(server: Server, *messages: dict[str, Any], headers: Any = ANN, **more: Any) -> httpx.Response:
    body = {"messages": messages or [user()], "sdk_version": 6, **more}
    return request(server, "POST", "/ai-sdk/chat", headers, json=body)


def reconnect(server: Server, chat_id: str, headers: Any = ANN) -> httpx.Response:
    return request(server, "GET", f"/ai-sdk/chat/{chat_id}/stream", headers)


@contextmanager
def reading(server: Server, until: str, **more: Any) -> Iterator[str]:
    """The stream of a chat up to this text; after the block, its reader has left."""
    body = {"messages": [user()], "sdk_version": 6, **more}
    with client_of(server) as client, client.stream("POST", "/ai-sdk/chat", json=body, headers=ANN) as response:
        found, pieces = "", response.iter_text()
        while until not in found:
            found += next(pieces)
        yield found


def parts(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    frames = [frame for frame in response.text.split("\n\n") if frame.startswith("data: {")]
    assert response.text.endswith("data: [DONE]\n\n")
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def types(response: httpx.Response) -> list[str]:
    return [part["type"] for part in parts(response) if not part["type"].endswith(("-start", "-delta", "-end"))]


def approval_ids(response: httpx.Response) -> list[str]:
    return [part["approvalId"] for part in parts(response) if part["type"] == "tool-approval-request"]


def decision(*ids: str, approved: bool = True) -> dict[str, Any]:
    """The message of a client whose user has decided about these calls."""
    part = {"type": "dynamic-tool", "toolName": "writes", "state": "approval-responded", "input": {}}
    found = [{**part, "toolCallId": one, "approval": {"id": one, "approved": approved}} for one in ids]
    return {"id": "a", "role": "assistant", "parts": found}


def text_of(response: httpx.Response) -> str:
    return "".join(part["delta"] for part in parts(response) if part["type"] == "text-delta")


def test_a_turn_has_the_id_of_the_chat(server: Server) -> None:
    server.play(Player(["Hello."]))
    answer = chat(server, id="chat")
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert text_of(answer) == "Hello."
    first = parts(answer)[0]
    report = request(server, "GET", f"/v1/turns/{first['messageMetadata']['turn_id']}").json()
    found = {name: report[name] for name in ("conversation_id", "wire", "message_id")}
    assert found == {"conversation_id": "chat", "wire": "ai_sdk", "message_id": first["messageId"]}
    stored = server.on_loop(server.engine.store.read(conversations.read_page, "ann", "chat"))
    assert stored is not None
    assert [(exchange.answer, exchange.outcome) for exchange in stored.exchanges] == [("Hello.", "complete")]


def test_errors_are_plain_text(server: Server) -> None:
    for answer, status in (
        (chat(server, headers=None), 401),
        (reconnect(server, "x", headers=None), 401),
        (chat(server, model="gpt"), 400),
        (request(server, "POST", "/ai-sdk/chat", content="{}"), 415),
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")


def test_a_chat_has_one_turn_at_a_time(server: Server) -> None:
    server.play(Player(["One ", asyncio.Event()]))
    with reading(server, "One", id="busy"):
        assert chat(server, id="busy").status_code == 409


# Approvals


def test_only_the_user_of_the_turn_decides(server: Server) -> None:
    server.play(Player([WRITES % "Ann"], ["Done."]))
    (approval_id,) = approval_ids(chat(server, id="whose"))
    for answer in (
        chat(server, decision(approval_id), headers=BOB),
        chat(server, decision(approval_id), headers=BOB, id="whose"),
        chat(server, decision(approval_id), id="another"),
        chat(server, decision("t0123456789abcdef.c1"), id="whose"),
    ):
        assert answer.status_code == 410
    unknown = f"{approval_id.partition('.')[0]}.c9"
    assert chat(server, decision(approval_id, unknown), id="whose").status_code == 404
    assert written == []
    assert text_of(chat(server, decision(approval_id), id="whose")) == "Done."
    assert written == ["Ann"]


def test_the_same_decision_again_streams_the_same_and_runs_nothing_twice(server: Server) -> None:
    server.play(Player([WRITES % "Ann"], ["Do", "ne."]))
    (approval_id,) = approval_ids(chat(server, id="twice"))
    decisions = (decision(approval_id), decision(approval_id), decision(approval_id, approved=False))
    for answer in [chat(server, one, id="twice") for one in decisions]:
        assert types(answer) == [
            "start", "tool-output-available", "start-step", "message-metadata", "finish-step", "finish",
        ]  # fmt: skip
        assert text_of(answer) == "Done."
    assert written == ["Ann"]


def test_expired_approvals() -> None:
    # longer than a client takes to leave: a turn without a client ends if it waits for nobody
    with brain_served(registry_of(writes), KEYS="anns:ann", APPROVAL_SECONDS=1) as server:
        server.play(Player([WRITES % "Ann"], ["Then not."]))
        (approval_id,) = approval_ids(chat(server))
        events = f"/v1/turns/{approval_id.partition('.')[0]}/events"
        assert "event: done" in request(server, "GET", events).text
        late = chat(server, decision(approval_id))
        assert "tool-output-denied" in types(late)
        oldest = chat(server, sdk_version=None)
        states = [part["data"]["state"] for part in parts(oldest) if part["type"] == "data-approval"]
        assert states == ["asked", "declined"]
        assert text_of(late) == text_of(oldest) == "Then not."


def test_a_chat_that_continues_without_the_approval_ends_the_turn(server: Server) -> None:
    server.play(player := Player([WRITES % "Ann"], ["Never."]))
    (approval_id,) = approval_ids(chat(server, id="left"))
    server.play(Player(["Fine."]))
    assert text_of(chat(server, user("Write!"), user("Forget it."), id="left")) == "Fine."
    assert len(player.requests) == 1
    late = chat(server, decision(approval_id), id="left")
    assert types(late) == [
        "start",
        "tool-output-error",
        "message-metadata",
        "start-step",
        "finish-step",
        "message-metadata",
        "abort",
    ]
    assert written == []


# Reconnecting


def test_a_resumable_turn_continues_without_a_reader(server: Server) -> None:
    gate = asyncio.Event()
    server.play(player := Player(["One ", gate, "two."]))
    with reading(server, "One", id="resumed", resumable=True) as beginning:
        pass
    assert not player.closed.is_set()
    head = request(server, "HEAD", "/ai-sdk/chat/resumed/stream")
    assert (head.status_code, head.headers["allow"]) == (405, "GET"), "it would count as a reader"
    server.release(gate)
    whole = reconnect(server, "resumed")
    assert whole.text.startswith(beginning)
    assert text_of(whole) == "One two."
    assert reconnect(server, "resumed").status_code == 204


def test_a_turn_that_waits_for_an_approval_is_read_again(server: Server) -> None:
    server.play(Player(["I write. ", WRITES % "Ann"], ["Done."]))
    first = chat(server, id="page", resumable=True, sdk_version=7)
    reloaded = reconnect(server, "page")
    assert reloaded.text == first.text
    assert text_of(chat(server, decision(*approval_ids(reloaded)), id="page")) == "Done."


def test_nothing_to_reconnect_to(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.event_log.LOG_BYTES", 20_000)
    for resumable in (True, False):
        gate = asyncio.Event()
        server.play(Player(["One ", gate, *[f"{word} " * 5 for word in words(1_000)]]))
        with reading(server, "One", id="other", resumable=resumable):
            nothing = [reconnect(server, "nothing"), reconnect(server, "other", headers=BOB)]
            nothing += [] if resumable else [reconnect(server, "other")]
            for answer in nothing:
                assert (answer.status_code, answer.content, answer.headers["cache-control"]) == (204, b"", "no-store")
            (run,) = server.engine.runs.running
        server.release(gate)
        server.on_loop(run.wait_ended())
        assert reconnect(server, "other").status_code == 204, "longer than its log"
    body = {"message": "Hi", "conversation_id": "native"}
    assert request(server, "POST", "/v1/turns", json=body).status_code == 201
    assert reconnect(server, "native").status_code == 204, "a turn of another protocol"
