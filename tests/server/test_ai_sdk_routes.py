"""The addresses of the AI SDK's chat on a real port: whose turns they are, who decides, what is come back to."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from playing import words
from serving import Player, Server, brain_served

from brain import Registry, specialist
from brain.runtime.commands import Show

ANN = {"authorization": "Bearer anns"}
BOB = {"authorization": "Bearer bobs"}
LONG = 20.0
WRITES = 'SPECIALIST_REQUEST[writes:{"to":"%s"}]'

written: list[str] = []


@specialist(approval="always")
async def writes(to: str) -> str:
    """Writes a letter."""
    written.append(to)
    return f"written to {to}"


@specialist(timeout=LONG)
async def waits(seconds: float) -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return "waited"


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    registry = Registry()
    registry.add(writes)
    registry.add(waits)
    with brain_served(registry, KEYS="anns:ann,bobs:bob", APPROVAL_SECONDS=1, HEARTBEAT_SECONDS=0.1) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    written.clear()
    yield running
    assert running.left(3) == []


def user(text: str = "Hi") -> dict[str, Any]:
    return {"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}


def chat(server: Server, *messages: dict[str, Any], headers: Any = ANN, **more: Any) -> httpx.Response:
    body = {"messages": messages or [user()], "sdk_version": 6, **more}
    return httpx.post(f"{server.url}/ai-sdk/chat", json=body, headers=headers, trust_env=False, timeout=LONG)


@contextmanager
def begun(server: Server, until: str, **more: Any) -> Iterator[str]:
    """What a chat has said up to this; behind the block, its reader leaves."""
    body = {"messages": [user()], "sdk_version": 6, **more}
    said = ""
    with (
        httpx.Client(trust_env=False, timeout=LONG) as client,
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
    return httpx.get(url, headers=headers, trust_env=False, timeout=LONG)


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


def test_heartbeats_are_comments(server: Server) -> None:
    server.play(Player(["One ", 0.35, "two."]))
    assert ": heartbeat\n\n" in chat(server).text


def test_refusals_are_plain_text(server: Server) -> None:
    for answer, status, text in (
        (chat(server, headers=None), 401, "Send your key: Authorization: Bearer KEY."),
        (again(server, "x", headers=None), 401, "Send your key: Authorization: Bearer KEY."),
        (chat(server, model="gpt"), 400, "model must be one of: builtin, player."),
        (
            httpx.post(f"{server.url}/ai-sdk/chat", content="{}", headers=ANN, trust_env=False),
            415,
            "Send application/json (curl: -H 'content-type: application/json').",
        ),
    ):
        assert (answer.status_code, answer.text) == (status, text)
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"


def test_the_turn_is_filed_under_the_id_of_the_chat(server: Server) -> None:
    server.play(Player(["Hello."]))
    start = parts(chat(server, id="filed"))[0]
    run = server.on_loop(server.engine.turns.find(start["messageMetadata"]["turn_id"], "ann"))
    assert run is not None
    report = server.on_loop(run.control(Show()))
    assert (report.conversation_id, report.wire, report.message_id) == ("filed", "ai_sdk", start["messageId"])
    kept = server.on_loop(server.engine.store.conversation("ann", "filed"))
    assert kept is not None
    assert [(exchange.answer, exchange.outcome) for exchange in kept.exchanges] == [("Hello.", "complete")]


def test_one_turn_at_a_time_in_a_chat(server: Server) -> None:
    server.play(Player(["One ", LONG]))
    with begun(server, "One", id="busy"):
        assert chat(server, id="busy").status_code == 409
    server.play(Player(["Two."]))
    assert text_of(chat(server, id="busy")) == "Two."


# Approvals


def test_only_who_was_asked_decides(server: Server) -> None:
    server.play(Player([WRITES % "Ann"], ["Done."]))
    [approval_id] = asked(chat(server, id="whose"))
    turn_id, _, call_id = approval_id.partition(".")
    gone = (410, "Nothing waits for this approval any more; send the message again.")
    for answer in (
        chat(server, answered(approval_id), headers=BOB),
        chat(server, answered(approval_id), headers=BOB, id="whose"),
        chat(server, answered(approval_id), id="another"),
        chat(server, answered("t0123456789abcdef.c1"), id="whose"),
    ):
        assert (answer.status_code, answer.text) == gone
    unasked = chat(server, answered(approval_id, f"{turn_id}.c9"), id="whose")
    assert (unasked.status_code, unasked.text) == (404, "This turn asked for no approval of this call.")
    assert written == []
    assert text_of(chat(server, answered(approval_id), id="whose")) == "Done."
    assert written == ["Ann"]
    assert call_id == "c1"


def test_a_call_that_asked_nobody_cannot_be_approved(server: Server) -> None:
    server.play(Player([(WRITES % "Ann") + 'SPECIALIST_REQUEST[waits:{"seconds":0}]'], ["Done."]))
    [approval_id] = asked(chat(server))
    other = approval_id.partition(".")[0] + (".c1" if approval_id.endswith(".c2") else ".c2")
    assert chat(server, answered(other)).status_code == 404
    assert text_of(chat(server, answered(approval_id, approved=False))) == "Done."
    assert written == []


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
    both = 'SPECIALIST_REQUEST[waits:{"seconds":0.3}]' + WRITES % "Ann"
    server.play(Player([both + WRITES % "Bob"], ["Done."]))
    first = chat(server)
    assert outputs(first) == ["waited"]
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


def test_an_approval_that_comes_too_late_is_told_what_came_of_it(server: Server) -> None:
    server.play(Player([WRITES % "Ann"], ["Then not."]))
    [approval_id] = asked(chat(server))
    time.sleep(1.3)
    late = chat(server, answered(approval_id))
    assert "tool-output-denied" in types(late)
    assert text_of(late) == "Then not."
    assert written == []


def test_who_does_not_say_its_version_is_asked_as_the_oldest(server: Server) -> None:
    server.play(Player([WRITES % "Ann"], ["Then not."]))
    answer = chat(server, sdk_version=None)
    states = [part["data"]["state"] for part in parts(answer) if part["type"] == "data-approval"]
    assert states == ["asked", "declined"]
    assert text_of(answer) == "Then not."


# Coming back


def test_a_resumable_turn_goes_on_without_a_reader(server: Server) -> None:
    server.play(player := Player(["One ", 0.3, "two."]))
    with begun(server, "One", id="resumed", resumable=True) as said:
        pass
    assert player.closed == []
    whole = again(server, "resumed")
    assert whole.text.startswith(said)
    assert text_of(whole) == "One two."
    assert again(server, "resumed").status_code == 204


def test_several_read_one_turn(server: Server) -> None:
    go = asyncio.Event()
    server.play(Player(["One ", go, "two."]))

    async def all_read() -> None:
        (run,) = server.engine.turns.running
        while run.readers < 6:  # noqa: ASYNC110 - readers come without an event
            await asyncio.sleep(0)
        go.set()

    with begun(server, "One", id="many", resumable=True), ThreadPoolExecutor(5) as pool:
        answers = [pool.submit(again, server, "many") for _ in range(5)]
        asyncio.run_coroutine_threadsafe(all_read(), server.loop).result(30)
        assert [text_of(answer.result()) for answer in answers] == ["One two."] * 5


def test_a_turn_that_waits_for_a_person_is_come_back_to(server: Server) -> None:
    server.play(Player(["I write. ", WRITES % "Ann"], ["Done."]))
    first = chat(server, id="page", resumable=True)
    reloaded = again(server, "page")
    assert reloaded.text == first.text
    assert text_of(chat(server, answered(*asked(reloaded)), id="page")) == "Done."


def test_what_was_decided_meanwhile_does_not_end_the_stream(server: Server) -> None:
    server.play(Player([WRITES % "Ann"], ["Do", 0.3, "ne."]))
    [approval_id] = asked(chat(server, id="meanwhile", resumable=True, sdk_version=7))
    deciding = threading.Thread(target=chat, args=(server, answered(approval_id)), kwargs={"id": "meanwhile"})
    deciding.start()
    while not written:
        time.sleep(0.01)
    whole = again(server, "meanwhile")
    deciding.join()
    assert types(whole) == [
        "start", "start-step", "tool-input-available", "tool-approval-request", "tool-approval-response",
        "tool-output-available", "finish-step", "start-step", "message-metadata", "finish-step", "finish",
    ]  # fmt: skip
    assert text_of(whole) == "Done."


@pytest.mark.parametrize("resumable", [True, False])
def test_there_is_nothing_to_come_back_to(server: Server, resumable: bool) -> None:
    server.play(Player(["One ", 0.2, "two."]))
    with begun(server, "One", id="other", resumable=resumable):
        assert again(server, "nothing").status_code == 204
        assert again(server, "other", headers=BOB).status_code == 204
        if not resumable:
            gone = again(server, "other")
            assert (gone.status_code, gone.content) == (204, b"")
            assert gone.headers["cache-control"] == "no-store"


def test_who_only_looks_for_a_stream_has_not_read_it(server: Server) -> None:
    server.play(Player(["One ", 0.2, "two."]))
    with begun(server, "One", id="looked-for", resumable=True):
        pass
    looked = httpx.head(f"{server.url}/ai-sdk/chat/looked-for/stream", headers=ANN, trust_env=False)
    assert (looked.status_code, looked.headers["allow"]) == (405, "GET")
    assert text_of(again(server, "looked-for")) == "One two."


def test_a_turn_of_another_protocol_is_not_come_back_to(server: Server) -> None:
    server.play(Player(["One ", 0.3, "two."]))
    url = f"{server.url}/v1/turns"
    body = {"message": "Hi", "conversation_id": "native"}
    assert httpx.post(url, json=body, headers=ANN, trust_env=False).status_code == 201
    assert again(server, "native").status_code == 204


def test_a_turn_that_told_more_than_is_kept_is_not_come_back_to(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.runtime.event_log.LOG_BYTES", 20_000)
    server.play(Player([0.1, *[f"{word} " * 5 for word in words(1_000)]]))
    with begun(server, "worda", id="long", resumable=True):
        pass
    while server.engine.turns.running:
        time.sleep(0.01)
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
