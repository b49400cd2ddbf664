"""Conversations on a real port: listed, shown, renamed, deleted, continued and replaced; and their files."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from brain_servers import Answer, Process, Server, brain_served, client_of, post, problem, script, streaming
from limits import WAIT_SECONDS
from turn_helpers import Player, registry_of

from brain import Citation, Result, specialist

PICTURE = b"\x89PNG\r\n\x1a\n and more"


@specialist
async def recipe(of: str) -> Result:
    """Finds a recipe."""
    return Result(f"{of}: boil water.", [Citation("1", "Cookbook")])


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with brain_served(registry_of(recipe)) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    running.play(Player(["Hello."]))
    yield running
    assert running.left() == []


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with client_of(server) as client:
        for one in client.get("/v1/conversations?limit=200").json()["conversations"]:
            client.delete(f"/v1/conversations/{one['id']}")
        yield client


def send(server: Server, message: str, conversation_id: str = "c1", **more: Any) -> Answer:
    return post(server.url, json={"message": message, "conversation_id": conversation_id, **more})


def show(client: httpx.Client, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/conversations/c1", params=query).raise_for_status().json()
    return found


def ids(client: httpx.Client, **query: Any) -> list[str]:
    found = client.get("/v1/conversations", params=query).raise_for_status().json()
    return [one["id"] for one in found["conversations"]]


def texts(conversation: Mapping[str, Any]) -> list[str]:
    """Each message's text, and its state unless it is complete."""
    found = []
    for message in conversation["messages"]:
        text = "".join(part["text"] for part in message["parts"] if part["type"] == "text")
        state = message.get("state", "complete")
        found.append(text if state == "complete" else f"{text}[{state}]")
    return found


def question_ids(client: httpx.Client) -> list[str]:
    return [message["id"] for message in show(client)["messages"] if message["role"] == "user"]


def test_a_conversation_has_calls_files_and_thoughts(server: Server, client: httpx.Client) -> None:
    calls = ["<think>A plan.</think>Hi. ", 'SPECIALIST_REQUEST[recipe:{"of":"Tea"}]']
    server.play(player := Player(calls, ["Boil water."], ["And?"]))
    events = send(server, "How?", attachments=[{"name": "a.txt", "text": "Earl Grey"}], source="voice").events
    found = show(client)
    question, answer = found["messages"]
    assert (found["title"], found["sources"], found["running"]) == ("How?", ["voice"], False)
    assert (question["parts"], question["files"]) == ([{"type": "text", "text": "How?"}], [1])
    assert answer["id"] == events[-1].data["message_id"]
    parts = [(part["type"], part.get("name") or part["text"]) for part in answer["parts"]]
    assert parts == [("thinking", "A plan."), ("text", "Hi. "), ("call", "recipe"), ("text", "Boil water.")]
    assert found["files"] == [{"id": 1, "name": "a.txt", "type": "text/plain", "size": 9}]
    assert [answer["usage"]] == [event.data for event in events if event.name == "usage"]
    send(server, "And?")
    assert "Boil water." in str(player.requests[-1])
    assert "A plan." not in str(player.requests), "no model reads thoughts"


def test_conversations_are_listed_newest_first_in_pages_and_by_words(server: Server, client: httpx.Client) -> None:
    for n in range(5):
        send(server, f"Question {n} about {'tea' if n % 2 else 'coffee'}", f"c{n}")
    send(server, "And more tea?", "c1")
    assert ids(client) == ["c1", "c4", "c3", "c2", "c0"]
    assert client.get("/v1/conversations?limit=2").json()["next"] == "c4"
    assert ids(client, limit=3, before="c4") == ["c3", "c2", "c0"]
    assert (ids(client, q="tea"), ids(client, q="nothing of this")) == (["c1", "c3"], [])
    assert client.get("/v1/conversations?q=coff").json()["conversations"][0]["found"].startswith("Question 4 about")
    send(server, "Third?", "c1")
    newest = show(client, limit=2)
    assert texts(newest) == ["And more tea?", "Hello.", "Third?", "Hello."]
    earlier = show(client, limit=2, before=newest["earlier"])
    assert (texts(earlier), earlier["earlier"]) == (["Question 1 about tea", "Hello."], None)
    for path in ("/v1/conversations?before=c9", "/v1/conversations/c1?before=m0123"):
        assert problem(client.get(path))[:2] == (400, "bad_request")


def test_a_conversation_is_renamed(server: Server, client: httpx.Client) -> None:
    send(server, "First question")
    answer = client.patch("/v1/conversations/c1", json={"title": "  Über Schach "})
    assert (answer.status_code, answer.json()["title"], answer.json()["id"]) == (200, "Über Schach", "c1")
    send(server, "Second question")
    assert (show(client)["title"], ids(client, q="uber schach")) == ("Über Schach", ["c1"])
    assert problem(client.patch("/v1/conversations/c1", json={"title": "x" * 65_536})) == (413, "too_large", None)


@pytest.mark.parametrize("place", ["c9", "..%2fc1", "%00", "%ff", "x" * 65, "'; DROP TABLE conversation; --"])
def test_unknown_conversations(client: httpx.Client, place: str) -> None:
    path = f"/v1/conversations/{place}"
    for answer in (client.get(path), client.patch(path, json={"title": "x"}), client.delete(path)):
        assert problem(answer)[:2] == (404, "not_found")


# Deleting


def test_a_deleted_conversation_is_nowhere(server: Server, client: httpx.Client) -> None:
    sent = {"message": "My zebra is called Hilda", "conversation_id": "c1", "request_id": "r1"}
    turn = client.post("/v1/turns", json=sent).json()
    client.get(turn["events"])
    send(server, "Another conversation", "c2")
    deleted = client.delete("/v1/conversations/c1")
    assert (deleted.status_code, deleted.content, deleted.headers["cache-control"]) == (204, b"", "no-store")
    paths = ("/v1/conversations/c1", turn["events"], f"/v1/turns/{turn['turn_id']}")
    assert [client.get(path).status_code for path in paths] == [404, 410, 404]
    assert (ids(client), ids(client, q="zebra")) == (["c2"], [])
    server.play(player := Player(["Hello again."]))
    again = client.post("/v1/turns", json=sent).json()
    assert again["turn_id"] != turn["turn_id"]
    assert client.get(again["events"]).status_code == 200
    assert "Hilda" not in str(player.requests[0][:-1])


def test_specialists_delete_what_they_store_of_a_conversation() -> None:
    stored = {("local", "d1"): "a file", ("local", "d2"): "a file"}
    broken = threading.Event()

    def forget(user: str, conversation_id: str | None) -> None:
        if broken.is_set():
            raise RuntimeError("the disk is full")
        stored.pop((user, conversation_id or ""), None)

    @specialist(forget=forget)
    def drawer() -> str:
        """Stores something."""
        return ""

    with brain_served(registry_of(drawer)) as other, client_of(other) as client:
        send(other, "Hi", "d1")
        send(other, "Hi", "d2")
        assert client.delete("/v1/conversations/d1").status_code == 204
        assert stored == {("local", "d2"): "a file"}
        broken.set()
        assert problem(client.delete("/v1/conversations/d2"))[:2] == (503, "unavailable")
        broken.clear()
        assert client.delete("/v1/conversations/d2").status_code == 404
        assert stored == {}


def test_deleting_stops_a_running_turn(server: Server, client: httpx.Client) -> None:
    server.play(player := Player(["Once upon ", asyncio.Event()]))
    with streaming(server.url, until="Once", json={"message": "Tell me a story", "conversation_id": "c1"}):
        found = show(client)
        assert (found["running"], found["messages"][1]["state"]) == (True, "running")
        turn = f"/v1/turns/{found['turn_id']}"
        with client.stream("GET", f"{turn}/events") as reader:
            with client_of(server) as other:
                assert other.delete("/v1/conversations/c1").status_code == 204
            assert '"stop_reason":"cancelled"' in reader.read().decode()
    assert player.closed.wait(WAIT_SECONDS)
    assert [client.get(path).status_code for path in ("/v1/conversations/c1", turn)] == [404, 404]


# Continuing


def test_a_message_or_an_answer_is_replaced(server: Server, client: httpx.Client) -> None:
    for n in range(3):
        send(server, f"Question {n}?")
    questions = question_ids(client)
    server.play(player := Player(["A better answer."]))
    assert send(server, "A better question?", replace_from=questions[1]).names[-1] == "done"
    assert texts(show(client)) == ["Question 0?", "Hello.", "A better question?", "A better answer."]
    assert "Question 1?" not in str(player.requests)
    send(server, "From the start?", replace_from=show(client)["messages"][1]["id"])
    assert texts(show(client)) == ["From the start?", "A better answer."]
    assert problem(send(server, "Hi", replace_from=questions[1])) == (404, "not_found", "replace_from")


def test_a_second_turn_is_rejected_unless_it_barges_in(server: Server, client: httpx.Client) -> None:
    server.play(Player(["Once upon a time", asyncio.Event()]))
    with client.stream("POST", "/v1/chat/stream", json={"message": "A story", "conversation_id": "c1"}) as story:
        pieces, found = story.iter_text(), ""
        while "Once upon" not in found:
            found += next(pieces)
        assert problem(send(server, "Stop")) == (409, "busy", "conversation_id")
        server.play(player := Player(["Yes?"]))
        answer = send(server, "Stop!", barge_in=True)
        assert '"stop_reason":"cancelled"' in found + "".join(pieces)
    assert answer.last["text"] == "Yes?"
    assert texts(show(client)) == ["A story", "Once upon a time[cancelled]", "Stop!", "Yes?"]
    assert player.requests[0][2].content == "Once upon a time", "the model knows what it had written"


def test_a_conversation_continues_over_protocols_and_restarts(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'brain.db'}"
    with brain_served(STORE=store) as server, client_of(server) as client:
        server.play(Player(["Hello Ada."]))
        send(server, "My name is Ada")
        server.play(Player(["You are Ada."]))
        history = [("user", "My name is Ada"), ("assistant", "Hello Ada."), ("user", "Who am I?")]
        body = {"model": "brain", "messages": [{"role": role, "content": text} for role, text in history]}
        client.post("/v1/chat/completions", json=body, headers={"x-conversation-id": "c1"}).raise_for_status()
    with brain_served(STORE=store) as server, client_of(server) as client:
        assert texts(show(client)) == ["My name is Ada", "Hello Ada.", "Who am I?", "You are Ada."]
        server.play(player := Player(["As I said: Ada."]))
        send(server, "Say it again", source="voice")
        assert [message.content for message in player.requests[0]][2:5:2] == ["Hello Ada.", "You are Ada."]
        assert show(client)["sources"] == ["chat", "voice", "api"]


def test_the_answer_of_a_killed_server_is_interrupted(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'brain.db'}"
    model = script(tmp_path, {"chunks": ["Once upon ", "a time"], "delay_ms": 500})
    with (
        Process("serve", env={"BRAIN_STORE": store, "BRAIN_MODEL": model, "BRAIN_PORT": "0"}) as dying,
        streaming(dying.url(), until="Once", json={"message": "A story", "conversation_id": "c1"}),
    ):
        dying.process.kill()
        dying.process.wait(WAIT_SECONDS)
    with brain_served(STORE=store) as server, client_of(server) as client:
        question, answer = texts(show(client))
        assert (question, answer.endswith("[interrupted]")) == ("A story", True)
        assert send(server, "Are you there?").names[-1] == "done", "nothing blocks the conversation"


def test_a_broken_store_is_unavailable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, path = tmp_path / "brain.db", "/v1/conversations/c1"
    with brain_served(STORE=f"sqlite:{store}") as server, client_of(server) as client:
        send(server, "Hi")
        with closing(sqlite3.connect(store)) as db:
            db.execute("ALTER TABLE conversation RENAME TO gone")
        for answer in (client.get("/v1/conversations"), client.patch(path, json={"title": "x"}), client.delete(path)):
            assert problem(answer)[:2] == (503, "unavailable")
        assert problem(send(server, "Hi"))[:2] == (503, "unavailable")
    assert str(store) not in caplog.text


# Files


def attach(client: httpx.Client, *files: tuple[str, bytes], **fields: str) -> None:
    parts = [("file", (name, data, "image/png")) for name, data in files]
    data = {"message": "Look", "conversation_id": "c1", **fields}
    assert "event: done" in client.post("/v1/chat/stream", data=data, files=parts).text


def files_of(client: httpx.Client) -> list[list[str]]:
    """The IDs and names of each message's files."""
    found = show(client)
    names = {one["id"]: f"{one['id']} {one['name']}" for one in found["files"]}
    return [[names[id_] for id_ in message["files"]] for message in found["messages"] if message["role"] == "user"]


def test_files_are_downloaded_as_sent_and_only_images_are_shown(client: httpx.Client) -> None:
    saved = "application/octet-stream"
    rows = [
        ("a.png", PICTURE, "image/png"),
        ("b.jpg", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("c.gif", b"GIF89a", "image/gif"),
        ("d.webp", b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        ("e.svg", b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", saved),
        ("f.html", b"<script>alert(1)</script>", saved),
        ("g.pdf", b"%PDF-1.7", saved),
    ]
    attach(client, *((name, data) for name, data, _ in rows))
    for number, (_, data, kind) in enumerate(rows, 1):
        path = f"/v1/conversations/c1/files/{number}"
        answer = client.get(path)
        assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, data, kind)
        disposition = answer.headers["content-disposition"].partition(";")[0]
        assert disposition == ("attachment" if kind == saved else "inline")
        assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert answer.headers["cache-control"] == "private, no-cache"
        again = client.get(path, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", answer.headers["etag"])
    other = client.get("/v1/conversations/c1/files/1", headers={"if-none-match": answer.headers["etag"]})
    assert (other.status_code, other.content) == (200, PICTURE)
    for place in (
        "c2/files/1",
        "a b/files/1",
        *(f"c1/files/{number}" for number in ("8", "0", "-1", "x", "１", "1" * 30)),
    ):
        answer = client.get(f"/v1/conversations/{place}")
        assert problem(answer)[:2] == (404, "not_found")


def test_a_file_has_its_name(client: httpx.Client, server: Server) -> None:
    names = {
        "a b;c.txt": "attachment; filename=\"a b_c.txt\"; filename*=UTF-8''a%20b%3Bc.txt",
        "tä😀.txt": "attachment; filename=\"t__.txt\"; filename*=UTF-8''t%C3%A4%F0%9F%98%80.txt",
        "\u202etxt.exe": "attachment; filename=\"txt.exe\"; filename*=UTF-8''txt.exe",
        'a"\r\nSet-Cookie: x': "attachment; filename=\"a_ Set-Cookie_ x\"; filename*=UTF-8''a%22%20Set-Cookie%3A%20x",
    }
    send(server, "Read", attachments=[{"name": name, "text": "Tea."} for name in names])
    for number, expected in enumerate(names.values(), 1):
        assert client.get(f"/v1/conversations/c1/files/{number}").headers["content-disposition"] == expected


def test_files_are_sent_along_when_their_message_is_replaced(client: httpx.Client, server: Server) -> None:
    server.play(player := Player(["I see."]))
    attach(client, ("a.png", PICTURE), ("b.txt", b"Tea."))
    attach(client, ("c.txt", b"Milk."))
    sent = [{"id": 2}, {"name": "d.txt", "text": "Sugar."}, {"id": 1}]
    assert send(server, "And now?", replace_from=question_ids(client)[0], attachments=sent).names[-1] == "done"
    assert files_of(client) == [["4 b.txt", "5 a.png", "6 d.txt"]]
    assert client.get("/v1/conversations/c1/files/5").content == PICTURE
    assert client.get("/v1/conversations/c1/files/1").status_code == 404
    prompt = player.requests[-1][-1].content
    assert [name in prompt for name in ("b.txt", "a.png", "d.txt", "c.txt")] == [True, True, True, False]
    attach(client, ("e.txt", b"Tea."), replace_from=question_ids(client)[0], attachments='[{"id": 5}]')
    assert files_of(client) == [["7 a.png", "8 e.txt"]]
    server.play(Player([RuntimeError("the model fails")]))
    failed = send(server, "Again?", replace_from=question_ids(client)[0], attachments=[{"id": 7}])
    assert failed.names[-1] == "error"
    assert files_of(client) == [["7 a.png", "8 e.txt"]], "a failed turn replaces nothing"


def test_wrong_file_ids_are_rejected(client: httpx.Client, server: Server) -> None:
    attach(client, ("a.png", PICTURE))
    attach(client, ("b.txt", b"Tea."))
    first, _ = question_ids(client)
    rows: list[tuple[list[dict[str, Any]], str]] = [
        ([{"id": 2}], "attachments[0].id"),
        ([{"name": "b.txt", "text": "x"}, {"id": 7}], "attachments[1].id"),
    ]
    for attachments, field in rows:
        answer = send(server, "Again?", replace_from=first, attachments=attachments)
        assert problem(answer)[::2] == (400, field)
    assert files_of(client) == [["1 a.png"], ["2 b.txt"]]
