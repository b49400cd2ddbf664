"""Background tasks on a real port: added, changed and canceled by their user, and the events about them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from brain_servers import Server, brain_served, client_of, problem
from limits import WAIT_SECONDS
from sse_events import events as read_events
from turn_helpers import Player, registry_of

from brain import Context, specialist
from brain.store import tasks
from brain.store.rows import micros

DAILY = "FREQ=DAILY;BYHOUR=8;BYMINUTE=0"
MONDAYS = "FREQ=WEEKLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0"


@specialist
async def later(prompt: str, *, context: Context) -> str:
    """Adds a task."""
    assert context.tasks is not None
    return (await context.tasks.create(prompt)).id


@specialist(approval="always")
async def letter(to: str) -> str:
    """Sends a letter."""
    return f"Sent to {to}."


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with brain_served(registry_of(later), KEYS="a-key:ann,b-key:bob", TASKS_AT_ONCE=0, HEARTBEAT_SECONDS=1) as server:
        yield server
        assert (server.left(), server.state.task_readers) == ([], {})


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with client_of(server, "a-key") as client:
        for one in client.get("/v1/tasks?limit=200").json()["tasks"]:
            client.delete(f"/v1/tasks/{one['id']}")
        yield client


def add(client: httpx.Client, prompt: str, **more: Any) -> dict[str, Any]:
    answer = client.post("/v1/tasks", json={"prompt": prompt, "conversation_id": "c1", **more})
    assert answer.status_code == 201, answer.text
    task: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/v1/tasks/{task['id']}"
    return task


def titles(client: httpx.Client, **query: Any) -> list[str]:
    return [one["title"] for one in client.get("/v1/tasks", params=query).raise_for_status().json()["tasks"]]


def test_a_task_is_added_and_shown(client: httpx.Client) -> None:
    task = add(client, " Read the\npapers ", time_zone="Europe/Berlin")
    assert task | {"created": "", "changed": "", "next_run": ""} == {
        "id": task["id"],
        "title": "Read the papers",
        "prompt": "Read the\npapers",
        "profile": "standard",
        "state": "pending",
        "conversation_id": "c1",
        "work_id": task["id"].replace("task", "work"),
        "created": "",
        "changed": "",
        "time_zone": "Europe/Berlin",
        "run": 0,
        "tell": "always",
        "depth": 1,
        "next_run": "",
    }
    assert client.get(f"/v1/tasks/{task['id']}").json() == task
    assert client.get("/v1/tasks").json()["tasks"] == [task]
    duplicate = client.post("/v1/tasks", json={"prompt": "read the papers", "title": "READ the papers"})
    assert problem(duplicate) == (409, "duplicate", "prompt")
    assert duplicate.json()["error"]["task_id"] == task["id"]


def test_a_schedule_is_shown_before_it_is_added(client: httpx.Client) -> None:
    sent = {"when": "2126-03-30T08:00", "every": DAILY, "time_zone": "Europe/Berlin"}
    preview = client.post("/v1/tasks", json={**sent, "dry_run": True})
    assert (preview.status_code, titles(client)) == (200, [])
    times = ["2126-03-30T07:00:00Z", "2126-03-31T06:00:00Z", "2126-04-01T06:00:00Z"]  # the clocks change on 31 March
    assert preview.json()["next"] == times
    task = add(client, "Briefing", **sent, title="Morning", profile="expert", tell="never", private=True)
    assert (task["state"], task["next_run"], task["every"], task["start"]) == ("waiting", times[0], DAILY, times[0])
    assert (task["profile"], task["tell"], task["private"]) == ("expert", "never", True)
    assert task["schedule"] == preview.json()["schedule"] != ""
    later = {"when": "2126-04-03T09:00", "every": "every other monday", "time_zone": "UTC", "dry_run": True}
    times = ["2126-04-08T09:00:00Z", "2126-04-22T09:00:00Z", "2126-05-06T09:00:00Z"]  # from a Wednesday on
    assert client.post("/v1/tasks", json=later).json()["next"] == times
    assert client.post("/v1/tasks", json={"dry_run": True}).json() == {"schedule": "", "next": []}


def test_a_schedule_is_changed_paused_and_resumed(client: httpx.Client) -> None:
    url = f"/v1/tasks/{add(client, 'Briefing', every=DAILY)['id']}"

    def patch(**sent: Any) -> dict[str, Any]:
        changed: dict[str, Any] = client.patch(url, json=sent).raise_for_status().json()
        assert client.get(url).json() == changed
        return changed

    assert patch(title=" Morning\nbriefing ", tell="never") | {"tell": ""} == client.get(url).json() | {"tell": ""}
    assert titles(client) == ["Morning briefing"]
    assert patch(paused=True)["paused"] is True
    assert "paused" not in patch(paused=False, every=MONDAYS)
    moved = patch(when="2126-01-07T09:00Z")  # a Monday
    assert (moved["next_run"], moved["every"]) == ("2126-01-07T09:00:00Z", MONDAYS)
    assert patch(every=MONDAYS)["next_run"] < "2126"  # as its preview, without the earlier `when`
    patch(when="2126-01-07T09:00Z")
    assert "every" not in patch(every="")
    assert client.post(f"{url}/run").json()["state"] == "pending"
    assert problem(client.post(f"{url}/run"))[:2] == (409, "busy")
    client.post(f"{url}/cancel")
    assert problem(client.post(f"{url}/run"))[:2] == (409, "gone")
    assert client.get(url).json()["state"] == "canceled"


def test_nobody_writes_where_a_task_works(client: httpx.Client) -> None:
    place = {"conversation_id": add(client, "Read")["work_id"]}
    sent = client.post("/v1/turns", json={**place, "message": "hello"})
    for answer in (sent, client.post("/v1/tasks", json={**place, "prompt": "x"})):
        assert problem(answer) == (400, "bad_request", "conversation_id")
    assert client.get("/v1/conversations").json()["conversations"] == []


def test_cancelling_has_five_outcomes(server: Server, client: httpx.Client) -> None:
    task = add(client, "Read")
    url = f"/v1/tasks/{task['id']}"

    def cancel(url: str) -> tuple[int, str, str | None]:
        answer = client.post(f"{url}/cancel")
        body = answer.json()
        assert body.get("task") in (None, client.get(url).json())
        return answer.status_code, body["outcome"], body["task"]["state"] if "task" in body else body["error"]["code"]

    assert cancel(url) == (200, "canceled", "canceled")
    assert cancel(url) == (200, "already_canceled", "canceled")
    assert problem(client.patch(url, json={"every": DAILY}))[:2] == (409, "gone")
    same = add(client, "Read")
    again = client.post(f"{url}/run")
    assert (problem(again)[:2], again.json()["error"]["task_id"]) == ((409, "duplicate"), same["id"])
    client.delete(f"/v1/tasks/{same['id']}")
    assert client.post(f"{url}/run").json()["state"] == "pending"
    assert client.delete(url).status_code == 204
    assert cancel(url) == (404, "not_found", "not_found")
    assert cancel("/v1/tasks/no%20id") == (400, "invalid", "bad_request")


def test_tasks_are_listed_by_state_conversation_and_in_pages(client: httpx.Client) -> None:
    one, _, three = add(client, "one"), add(client, "two", every=DAILY), add(client, "three", conversation_id="c2")
    client.post(f"/v1/tasks/{three['id']}/cancel")
    assert titles(client) == ["three", "two", "one"]
    assert titles(client, state="pending,waiting") == ["two", "one"]
    assert titles(client, conversation_id="c2") == ["three"]
    page = client.get("/v1/tasks?limit=2").json()
    assert (titles(client, before=page["next"]), titles(client, before=one["id"])) == (["one"], [])


REJECTED: list[tuple[str, str, object, tuple[int, str, str | None]]] = [
    ("GET", "/v1/tasks?state=done", None, (400, "bad_request", "state")),
    ("GET", "/v1/tasks?conversation_id=a/b", None, (400, "bad_request", "conversation_id")),
    ("GET", "/v1/tasks?before=task0", None, (400, "bad_request", "before")),
    ("GET", "/v1/tasks?limit=0", None, (400, "bad_request", "limit")),
    ("GET", "/v1/tasks?q=a", None, (400, "bad_request", "q")),
    ("GET", "/v1/tasks/events?after=x", None, (400, "bad_request", "after")),
    ("POST", "/v1/tasks", {"prompt": " "}, (400, "bad_request", "prompt")),
    ("POST", "/v1/tasks", {"prompt": "x" * 8001}, (413, "too_large", "prompt")),
    ("POST", "/v1/tasks", {"prompt": "x", "title": "x" * 101}, (413, "too_large", "title")),
    ("POST", "/v1/tasks", {"prompt": "x", "profile": "big"}, (400, "bad_request", "profile")),
    ("POST", "/v1/tasks", {"prompt": "x", "tell": "once"}, (400, "bad_request", "tell")),
    ("POST", "/v1/tasks", {"prompt": "x", "time_zone": "Mars"}, (400, "bad_request", "time_zone")),
    ("POST", "/v1/tasks", {"prompt": "x", "conversation_id": "a b"}, (400, "bad_request", "conversation_id")),
    ("POST", "/v1/tasks", {"prompt": "x", "when": "2020-01-01T08:00"}, (400, "bad_request", "when")),
    ("POST", "/v1/tasks", {"prompt": "x", "every": "FREQ=SECONDLY"}, (400, "bad_request", "every")),
    ("POST", "/v1/tasks", {"prompt": "x", "user": "bob"}, (400, "bad_request", "user")),
    ("PATCH", "/v1/tasks/ID", {}, (400, "bad_request", "title")),
    ("PATCH", "/v1/tasks/ID", {"title": " "}, (400, "bad_request", "title")),
    ("PATCH", "/v1/tasks/ID", {"paused": True}, (400, "bad_request", "paused")),
    ("PATCH", "/v1/tasks/ID", {"state": "succeeded"}, (400, "bad_request", "state")),
    ("POST", "/v1/tasks/ID/approvals/c1", {"approve": True}, (404, "not_found", "call_id")),
    ("POST", "/v1/tasks/ID/approvals/c1", {"approve": 1}, (400, "bad_request", "approve")),
]


@pytest.mark.parametrize(("method", "path", "body", "expected"), REJECTED)
def test_what_is_rejected(
    client: httpx.Client, method: str, path: str, body: object, expected: tuple[int, str, str | None]
) -> None:
    url = path.replace("ID", add(client, "Read")["id"])
    assert problem(client.request(method, url, json=body)) == expected
    assert titles(client) == ["Read"]


def test_a_duplicate_key_is_rejected(client: httpx.Client) -> None:
    headers = {"content-type": "application/json"}
    answer = client.post("/v1/tasks", content=b'{"prompt":"a","prompt":"b"}', headers=headers)
    assert problem(answer) == (400, "bad_request", "prompt")


def test_users_see_only_their_own_tasks(server: Server, client: httpx.Client) -> None:
    task = add(client, "Read")
    url = f"/v1/tasks/{task['id']}"
    with client_of(server, "b-key") as bob:
        assert titles(bob) == []
        assert problem(bob.get("/v1/tasks", params={"before": task["id"]}))[:2] == (400, "bad_request")
        for place in (url, "/v1/tasks/%00", f"/v1/tasks/{'x' * 65}"):
            answers = [
                bob.get(place),
                bob.delete(place),
                bob.patch(place, json={"title": "x"}),
                bob.post(f"{place}/run"),
            ]
            answers.append(bob.post(f"{place}/approvals/c1", json={"approve": True}))
            assert {problem(answer)[:2] for answer in answers} == {(404, "not_found")}
        assert bob.post(f"{url}/cancel").json()["outcome"] == "not_found"
        with channel(bob, after=0) as events:
            mine = add(bob, "Read")
            assert next(events)["task_id"] == mine["id"]
    assert client.get(url).json() == task


MESSAGES = [{"role": "user", "content": "Read the papers."}]
UI_MESSAGES = [{"role": "user", "parts": [{"type": "text", "text": "Read the papers."}]}]
TURNS: list[tuple[str, dict[str, Any], dict[str, str], str | None]] = [
    ("/v1/chat/stream", {"message": "Read."}, {}, ""),
    ("/v1/chat/completions", {"messages": MESSAGES}, {}, None),
    ("/v1/chat/completions", {"messages": MESSAGES, "stream": True}, {"x-conversation-id": "openai"}, "openai"),
    ("/api/chat", {"model": "brain", "messages": MESSAGES}, {}, None),
    ("/api/chat", {"model": "brain", "messages": MESSAGES}, {"x-conversation-id": "ollama"}, "ollama"),
    ("/api/generate", {"model": "brain", "prompt": "Read.", "stream": False}, {"x-conversation-id": "o2"}, "o2"),
    ("/ai-sdk/chat", {"messages": UI_MESSAGES}, {}, None),
    ("/ai-sdk/chat", {"messages": UI_MESSAGES, "id": "chat"}, {}, "chat"),
    ("/ag-ui/run", {"threadId": "thread", "runId": "r", "messages": [{"id": "m", **MESSAGES[0]}]}, {}, "thread"),
]


@pytest.mark.parametrize(("path", "body", "headers", "place"), TURNS)
def test_a_model_adds_tasks_only_in_stored_conversations(
    server: Server, client: httpx.Client, path: str, body: dict[str, Any], headers: dict[str, str], place: str | None
) -> None:
    server.play(player := Player(['SPECIALIST_REQUEST[later:{"prompt":"Read"}]'], ["Done."]))
    answer = client.post(path, json=body, headers=headers)
    assert (answer.status_code, answer.headers.get("x-conversation-id")) == (200, headers.get("x-conversation-id"))
    tasks = client.get("/v1/tasks").json()["tasks"]
    assert [one["conversation_id"] for one in tasks] == (
        [] if place is None else [place or tasks[0]["conversation_id"]]
    )
    block = str(player.requests[1])
    assert ("X-Conversation-Id" in block) is (place is None)
    if path in ("/v1/chat/stream", "/ai-sdk/chat", "/ag-ui/run"):
        assert ('"state":"pending"' in answer.text) is (place is not None)


def test_an_invalid_conversation_id_is_rejected(client: httpx.Client) -> None:
    answer = client.post("/api/generate", json={"model": "brain", "prompt": "x"}, headers={"x-conversation-id": "a/b"})
    assert (answer.status_code, list(answer.json())) == (400, ["error"])


# events


@contextmanager
def channel(client: httpx.Client, **query: int) -> Iterator[Iterator[dict[str, Any]]]:
    """The data of the events about tasks, each with its name and ID."""

    def read() -> Iterator[dict[str, Any]]:
        for message in read_events(response):
            yield {"event": message.name, "id": int(message.id), **message.data}

    with client.stream("GET", "/v1/tasks/events", params=query) as response:
        assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        yield read()


def test_events_continue_after_every_cursor(server: Server, client: httpx.Client) -> None:
    start = client.get("/v1/tasks").json()["cursor"]
    with channel(client) as live, channel(client, after=start) as second:
        task = add(client, "Read")
        client.patch(f"/v1/tasks/{task['id']}", json={"title": "Read papers"})
        client.post(f"/v1/tasks/{task['id']}/cancel")
        server.on_loop(server.engine.store.write(tasks.append_report, "ann", "c1", "t1"))
        server.loop.call_soon_threadsafe(server.engine.tasks.notify)
        events = [next(live) for _ in range(4)]
        assert [next(second) for _ in range(4)] == events
    about = {"event": "task", "task_id": task["id"], "conversation_id": "c1", "kind": "state"}
    first = events[0]["id"]
    assert start < first
    assert events == [
        {**about, "id": first, "title": "Read", "state": "pending"},
        {**about, "id": first + 1, "title": "Read papers", "state": "pending"},
        {**about, "id": first + 2, "title": "Read papers", "state": "canceled"},
        {"event": "report", "id": first + 3, "conversation_id": "c1", "turn_id": "t1"},
    ]
    for n in range(5):
        with (
            client_of(server, "a-key", **{"last-event-id": str(first - 1 + n)}) as again,
            channel(again, after=0) as rest,
        ):
            add(client, f"Marker {n}", conversation_id="c2")
            expected = [*events[n:]]
            assert [next(rest) for _ in range(4 - n)] == expected
            assert next(rest)["conversation_id"] == "c2"


def test_a_stream_starts_with_its_cursor_and_sends_heartbeats(client: httpx.Client) -> None:
    cursor = client.get("/v1/tasks").json()["cursor"]
    text = ""
    with client.stream("GET", "/v1/tasks/events?after=999999999999999999") as response:
        pieces = response.iter_text()
        while "heartbeat" not in text:
            text += next(pieces)
    assert text == f"retry: 2000\nid: {cursor}\n\n: heartbeat\n\n"
    head = client.head("/v1/tasks/events")
    assert (head.status_code, head.content) == (200, b"")


def test_a_task_waits_for_an_approval_and_can_be_canceled() -> None:
    settings = {"KEYS": "a-key:ann", "TASK_QUIET_SECONDS": 600}
    with brain_served(registry_of(letter), **settings) as server, client_of(server, "a-key") as client:
        server.play(Player(['SPECIALIST_REQUEST[letter:{"to":"Bob"}]'], ["Sent it."]))
        with channel(client) as events:
            url = f"/v1/tasks/{add(client, 'Write to Bob')['id']}"
            seen = [next(event for event in events if event["kind"] == "approval")]
            approval = client.get(url).json()["approval"]
            assert (approval["name"], approval["params"], approval["text"]) == ("letter", {"to": "Bob"}, "")
            decide = f"{url}/approvals/{approval['call_id']}"
            assert problem(client.post(f"{url}/run"))[:2] == (409, "busy")
            assert client.post(decide, json={"approve": True}).json()["state"] == "pending"
            assert problem(client.post(decide, json={"approve": False}))[:2] == (409, "decided")
            seen.append(next(event for event in events if event["kind"] == "result"))
            assert [(one["state"], one["run"]) for one in seen] == [("waiting", 1), ("succeeded", 1)]
            assert (seen[1]["text"], client.get(url).json()["result"]) == ("Sent it.", "Sent it.")
            server.play(player := Player(["a", asyncio.Event()]))
            url = f"/v1/tasks/{add(client, 'Wait')['id']}"
            assert player.begun.wait(WAIT_SECONDS)
            assert client.post(f"{url}/cancel").json()["outcome"] == "canceled"
            assert player.closed.wait(WAIT_SECONDS)
        assert server.left() == []
        found = client.get("/metrics").text
        for line in (
            'brain_tasks_total{outcome="waiting",profile="standard"} 1.0',
            'brain_tasks_total{outcome="succeeded",profile="standard"} 1.0',
            'brain_tasks_total{outcome="canceled",profile="standard"} 1.0',
            'brain_tasks{state="succeeded"} 1.0',
            'brain_tasks{state="canceled"} 1.0',
        ):
            assert line in found


def test_a_report_is_a_turn_that_clients_can_join() -> None:
    with brain_served(KEYS="a-key:ann", TASK_QUIET_SECONDS=0.01) as server, client_of(server, "a-key") as client:
        server.play(Player(["Forty papers."]))
        with channel(client) as events:
            add(client, "Read papers")
            report = next(event for event in events if event["event"] == "report")
        assert "Forty papers." in client.get(f"/v1/turns/{report['turn_id']}/events").text
        page = client.get(f"/v1/conversations/{report['conversation_id']}").json()
        assert (page["title"], page["sources"]) == ("Read papers", ["report"])
        assert [(one["source"], len(one["parts"])) for one in page["messages"]] == [("report", 0), ("report", 1)]
        assert client.post("/v1/conversations/c1/typing").status_code == 204
        ((held_until,),) = server.on_loop(
            server.engine.store.read(lambda tx: list(tx.execute("SELECT held_until FROM channel_cursor")))
        )
        assert held_until > micros(server.engine.store.now())
        assert 'brain_turns_total{outcome="complete",wire="report"} 1.0' in client.get("/metrics").text


def test_a_user_can_have_64_streams(server: Server, client: httpx.Client) -> None:
    server.state.task_readers["ann"] = 64
    assert problem(client.get("/v1/tasks/events"))[:2] == (429, "rate_limited")
    del server.state.task_readers["ann"]
