"""Turns from GET, and turns without a client: reconnecting, subscribing and controlling."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from brain_servers import Server, brain_served, client_of, problem
from sse_events import Event, read
from turn_helpers import Player, registry_of, words

from brain import specialist

CALL = 'SPECIALIST_REQUEST[letter:{"to":"ann"}]'
UNKNOWN = "t0123456789abcdef"


@specialist
async def nap() -> str:
    """Sleeps."""
    return "Rested."


@specialist(approval="always")
async def letter(to: str) -> str:
    """Sends a letter."""
    return f"Sent to {to}."


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with brain_served(registry_of(nap, letter), KEYS="a-key:ann") as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    running.play(Player(["Hello."], name="builtin"))
    yield running
    assert running.left() == []


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with client_of(server, "a-key") as client:
        yield client


def start(client: httpx.Client, **sent: Any) -> tuple[str, str]:
    """Start a turn that runs without a reader; its ID and its URL."""
    answer = client.post("/v1/turns", json={"message": "hi", **sent})
    assert answer.status_code == 201
    return answer.json()["turn_id"], answer.headers["location"]


def events(client: httpx.Client, url: str, last_id: str | None = None, **query: str) -> list[Event]:
    """The events of a turn, once it has ended."""
    headers = {} if last_id is None else {"last-event-id": last_id}
    return read(client.get(f"{url}/events", headers=headers, params=query).raise_for_status().content)


def names(messages: list[Event]) -> list[str]:
    return [message.name for message in messages]


@contextmanager
def reading(client: httpx.Client, method: str, url: str, until: bytes, **options: Any) -> Iterator[list[Event]]:
    """The events up to one that contains `until`; after the block the reader has left."""
    with client.stream(method, url, **options) as response:
        assert response.status_code == 200, response.read()
        found, pieces = b"", response.iter_raw()
        while until not in found or not found.endswith(b"\n\n"):
            found += next(pieces)
        yield read(found)


# GET, and joining by request_id


def test_a_query_is_checked_like_a_body(client: httpx.Client) -> None:
    answer = client.get("/v1/chat/stream?message=a&limits={%22calls%22:99}")
    assert problem(answer) == (400, "bad_request", "limits.calls")


def test_an_event_source_reconnects_to_its_turn(server: Server, client: httpx.Client) -> None:
    gate, query = asyncio.Event(), {"message": "hi"}
    server.play(player := Player(["a", gate, "b"]))
    with reading(client, "GET", "/v1/chat/stream", b'"a"', params=query) as first:
        pass
    server.release(gate)
    again = client.get("/v1/chat/stream", params=query, headers={"last-event-id": first[-1].id})
    joined = [*first, *read(again.content)]
    assert names(joined) == ["turn_start", "token", "token", "usage", "done"]
    assert [message.id.rpartition(".")[2] for message in joined] == ["1", "2", "3", "4", "5"]
    end = client.get("/v1/chat/stream", params=query, headers={"last-event-id": joined[-1].id})
    assert (end.status_code, end.content, end.headers["cache-control"]) == (204, b"", "no-store")
    assert len(player.requests) == 1


def test_a_post_with_a_last_event_id_starts_nothing(server: Server, client: httpx.Client) -> None:
    server.play(player := Player(["a", CALL]))
    with reading(client, "POST", "/v1/chat/stream", b"approval_required", json={"message": "hi"}) as first:
        pass
    for body in ({"message": "hi"}, {"nonsense": True}):
        again = client.post("/v1/chat/stream", json=body, headers={"last-event-id": first[1].id})
        rest = read(again.content)
        assert names(rest) == ["approval_required", "specialist_error", "usage", "done"]
        assert (rest[1].data["code"], rest[-1].data["stop_reason"]) == ("cancelled", "cancelled")
    end = client.post("/v1/chat/stream", json={"message": "hi"}, headers={"last-event-id": rest[-1].id})
    assert (end.status_code, end.content) == (200, b"")
    assert len(player.requests) == 1


def test_the_same_request_id_joins_the_turn(server: Server, client: httpx.Client) -> None:
    gate, sent = asyncio.Event(), {"message": "hi", "request_id": "r1"}
    server.play(player := Player(["a", gate, "b"]))
    with reading(client, "GET", "/v1/chat/stream", b'"a"', params=sent):
        _, url = start(client, request_id="r1")
        with reading(client, "POST", "/v1/chat/stream", b'"a"', json={"message": "another", "request_id": "r1"}):
            server.release(gate)
            followed = events(client, url)
    assert names(followed) == ["turn_start", "token", "token", "usage", "done"]
    assert read(client.post("/v1/chat/stream", json=sent).content) == followed
    assert len(player.requests) == 1


def test_a_turn_of_a_post_ends_with_its_own_reader(server: Server, client: httpx.Client) -> None:
    server.play(Player(["a", asyncio.Event()]))
    sent = {"message": "hi", "request_id": "r3"}
    with client_of(server, "a-key") as other, other.stream("POST", "/v1/chat/stream", json=sent) as response:
        pieces, found = response.iter_raw(), b""
        while b'"a"' not in found:
            found += next(pieces)
        with client.stream("POST", "/v1/chat/stream", json=sent) as joined:
            response.close()
            messages = read(joined.read())
    assert names(messages) == ["turn_start", "token", "usage", "done"]
    assert messages[-1].data["stop_reason"] == "cancelled"


def test_a_turn_of_a_get_is_stopped_when_nobody_reads_it_any_more(
    server: Server, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.server.routes.turns.UNREAD_SECONDS", 0.0)
    server.play(Player(["a", asyncio.Event()]))
    with reading(client, "GET", "/v1/chat/stream", b'"a"', params={"message": "hi"}):
        (run,) = server.engine.runs.running
    server.on_loop(run.wait_ended())
    assert client.get(f"/v1/turns/{run.id}").json()["stop_reason"] == "cancelled"


def test_a_turn_has_a_limit_of_readers(server: Server, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.server.routes.runs.READERS_LIMIT", 2)
    server.play(Player(["One ", asyncio.Event(), "two."]))
    turn_id, url = start(client, request_id="read-by-many")
    with reading(client, "GET", f"{url}/events", b"One"), reading(client, "GET", f"{url}/events", b"One"):
        for answer in (
            client.get(f"{url}/events"),
            client.get("/v1/chat/stream", headers={"last-event-id": f"{turn_id}.1"}),
            client.post("/v1/chat/stream", json={"message": "hi", "request_id": "read-by-many"}),
        ):
            assert (problem(answer), answer.headers["retry-after"]) == ((429, "rate_limited", None), "1")
    client.post(f"{url}/cancel")


# Turns without a reader


def test_a_turn_runs_without_a_reader(server: Server, client: httpx.Client) -> None:
    server.play(Player(["a", "SPECIALIST_REQUEST[nap]"], ["b"]))
    answer = client.post("/v1/turns", json={"message": "hi", "conversation_id": "on"})
    turn_id, url = answer.json()["turn_id"], answer.headers["location"]
    assert re.fullmatch(r"t[0-9a-f]{24}", turn_id)
    assert url == f"/v1/turns/{turn_id}"
    assert answer.json() == {"turn_id": turn_id, "conversation_id": "on", "events": f"{url}/events"}
    kinds = ["turn_start", "token", "specialist_start", "specialist_result", "token", "usage", "done"]
    assert names(events(client, url)) == kinds
    report = client.get(url).json()
    assert (report["state"], report["stop_reason"], report["wire"]) == ("done", "complete", "native")
    assert [(call["name"], call["outcome"]) for call in report["calls"]] == [("nap", "ok")]


def test_the_report_of_steps_has_their_results_errors_and_times(server: Server, client: httpx.Client) -> None:
    server.play(Player("nap()", "nobody(x=1)", "ready()", "Rested."))
    turn_id, url = start(client, strategy="step")
    events(client, url)
    for report in (client.get(url).json(), client.get(f"/v1/turns/m{turn_id[1:]}").json()):
        steps = [(one["n"], one["role"], one["began_ms"] >= 0, one["ms"] >= 0) for one in report["rounds"]]
        roles = ("planner", "planner", "planner", "writer")
        assert steps == [(n, role, True, True) for n, role in enumerate(roles, 1)]
        calls = [(one["round"], one["outcome"], one.get("result"), "reason" in one) for one in report["calls"]]
        assert calls == [(1, "ok", "Rested.", False), (2, "unknown", None, True)]
        assert all(one["ms"] >= 0 for one in report["calls"])
        assert (report["calls_by_name"], report["stop_reason"]) == ({"nap": 1, "nobody": 1}, "ready")


@pytest.fixture(scope="module")
def over(running: Server) -> tuple[str, str, list[Event]]:
    """A turn that has ended: its ID, its URL, its events."""
    running.play(Player(["a", asyncio.Event(), "b"]))
    with client_of(running, "a-key") as client:
        turn_id, url = start(client)
        with reading(client, "GET", f"{url}/events", b'"a"'):
            assert client.post(f"{url}/cancel").status_code == 202
        return turn_id, url, events(client, url)


def test_events_after_an_event_are_replayed(client: httpx.Client, over: tuple[str, str, list[Event]]) -> None:
    turn_id, url, all_events = over
    assert names(all_events) == ["turn_start", "token", "usage", "done"]
    for n in range(4):
        assert events(client, url, f"{turn_id}.{n}", after="0") == all_events[n:]
        assert events(client, url, after=f"{turn_id}.{n}") == events(client, url, after=str(n)) == all_events[n:]
    for query, headers in (("", {"last-event-id": f"{turn_id}.4"}), ("?after=4", {})):
        answer = client.get(f"{url}/events{query}", headers=headers)
        assert (answer.status_code, answer.content, "content-type" in answer.headers) == (204, b"", False)
    head = client.head(f"{url}/events")
    assert (head.status_code, head.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    other, other_url = start(client)
    events(client, other_url)
    answer = client.get(f"{url}/events", headers={"last-event-id": f"{other}.1"})
    assert problem(answer) == (400, "bad_request", "last-event-id")


@pytest.mark.parametrize("after", ["5", "9999999999", "-1", "1.5", "one", "١", "t.1", "%00", "0x1"])
def test_unknown_events_are_gone(client: httpx.Client, over: tuple[str, str, list[Event]], after: str) -> None:
    turn_id, url, _ = over
    headers = {b"last-event-id": f"{turn_id}.{after}".encode()}
    for answer in (
        client.get(f"{url}/events", params={"after": after}),
        client.get(f"{url}/events", headers=headers),
        client.get("/v1/chat/stream?message=hi", headers=headers),
        client.post("/v1/chat/stream", json={"message": "hi"}, headers=headers),
    ):
        assert problem(answer) == (410, "gone", "last-event-id")


def test_the_beginning_of_a_very_long_turn_is_gone(
    server: Server, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.runtime.event_log.LOG_BYTES", 20_000)
    texts, gate = [f"{word} " * 5 for word in words(1_000)], asyncio.Event()
    server.play(Player([gate, *texts]))
    _, url = start(client)
    (run,) = server.engine.runs.running
    server.release(gate)
    server.on_loop(run.wait_ended())
    gone = client.get(f"{url}/events")
    assert problem(gone) == (410, "gone", None)
    first = re.search(r"\?after=(\d+)", gone.text)
    assert first is not None
    assert events(client, url, after=first[1])[-1].data["text"] == "".join(texts)


# Control


def every_route(client: httpx.Client, turn_id: str) -> list[httpx.Response]:
    """The answers of every route that names a turn."""
    url, last = f"/v1/turns/{turn_id}", {b"last-event-id": f"{turn_id}.1".encode()}
    return [
        client.get(url),
        client.post(f"{url}/cancel"),
        client.post(f"{url}/steer", json={"message": "hi"}),
        client.post(f"{url}/approvals/c1", json={"approve": True}),
        client.get(f"{url}/events"),
        client.head(f"{url}/events"),
        client.get("/v1/chat/stream", params={"message": "hi"}, headers=last),
        client.post("/v1/chat/stream", json={"message": "hi"}, headers=last),
    ]


@pytest.mark.parametrize(
    "turn_id", [UNKNOWN, "t", "x" * 5_000, "..", "%2e%2e", "%00", "%ff", f"{UNKNOWN}.1", "０１２３"]
)
def test_strange_ids_do_not_exist(client: httpx.Client, turn_id: str) -> None:
    for answer in every_route(client, turn_id):
        assert answer.status_code in (404, 410)
        assert answer.request.method == "HEAD" or problem(answer)[1] in ("not_found", "gone")


def test_a_stored_answer_has_the_report_of_its_turn(server: Server, client: httpx.Client) -> None:
    server.play(Player([CALL], ["Well."]))
    turn_id, url = start(client, specialists=[])
    last = events(client, url)[-1].data
    report, stored = client.get(url).json(), client.get(f"/v1/turns/{last['message_id']}").json()
    assert (report["wire"], stored) == ("native", report)
    assert (stored["turn_id"], stored["stop_reason"], len(stored["passes"])) == (turn_id, "complete", 2)


@pytest.mark.parametrize(("approve", "result"), [(True, ["Sent to ann."]), (False, [])])
def test_a_call_is_decided_once(server: Server, client: httpx.Client, result: list[str], *, approve: bool) -> None:
    server.play(Player([CALL], ["Well."]))
    _, url = start(client)
    with reading(client, "GET", f"{url}/events", b"approval_required"):
        pass
    for call_id in ("c2", "x" * 5_000, "%00", "c1/c1", "ä"):
        other = client.post(f"{url}/approvals/{call_id}", json={"approve": True})
        assert problem(other)[:2] == (404, "not_found")
    assert client.get(url).json()["state"] == "waiting"
    assert client.post(f"{url}/approvals/c1", json={"approve": approve}).status_code == 200
    found = events(client, url)
    assert [one.data["text"] for one in found if one.name == "specialist_result"] == result
    errors = [one.data["code"] for one in found if one.name == "specialist_error"]
    assert errors == ([] if approve else ["declined"])
    assert problem(client.post(f"{url}/approvals/c1", json={"approve": approve})) == (410, "gone", None)


def test_a_turn_is_steered_and_cancelled(server: Server, client: httpx.Client) -> None:
    gate = asyncio.Event()
    server.play(player := Player(["One. ", gate, "Two. ", asyncio.Event()], ["Three. ", asyncio.Event()]))
    _, url = start(client)
    with reading(client, "GET", f"{url}/events", b'"One. "'):
        assert client.post(f"{url}/steer", json={"message": "Be brief."}).status_code == 202
        server.release(gate)
        with reading(client, "GET", f"{url}/events", b'"Three. "') as found:
            assert {"code": "steered", "text": "Be brief."} in [one.data for one in found if one.name == "notice"]
        assert "Be brief." in player.requests[-1][-1].content
        assert client.post(f"{url}/cancel").status_code == 202
    assert events(client, url)[-1].data["stop_reason"] == "cancelled"
    again = client.post(f"{url}/cancel")
    assert (again.status_code, again.json()["stop_reason"]) == (202, "cancelled")
    assert problem(client.post(f"{url}/steer", json={"message": "Too late."})) == (410, "gone", None)


@pytest.mark.parametrize(
    ("route", "sent", "field"),
    [
        ("steer", {"message": " "}, "message"),
        ("steer", {"message": "a", "more": 1}, "more"),
        ("approvals/c1", {}, "approve"),
        ("approvals/c1", {"approve": "yes"}, "approve"),
    ],
)
def test_bodies_of_controls_are_checked(client: httpx.Client, route: str, sent: Any, field: str) -> None:
    url = f"{start(client)[1]}/{route}"
    assert problem(client.post(url, json=sent)) == (400, "bad_request", field)
    assert problem(client.post(url, content=b"{}")) == (415, "unsupported_media_type", "content-type")
