"""Conversations on a real port and as JSON: listed, opened, renamed, deleted, continued, replaced; and their files."""

import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from playing import registry_of
from serving import Answer, Player, Process, Server, brain_served, client_of, post, problem, script, streaming

from brain import Citation, Context, Result, specialist
from brain.errors import BadRequest
from brain.events import Error, Usage
from brain.messages import (
    Annotation,
    Call,
    Conversation,
    ConversationPage,
    Exchange,
    File,
    Part,
    Steer,
    Text,
)
from brain.prompts.blocks import block_content
from brain.protocols.native import resources
from brain.protocols.native.queries import (
    ListQuery,
    parse_conversations_query,
    parse_memory_query,
    parse_messages_query,
    parse_title,
)

NOON = datetime(2026, 5, 3, 12, 0, tzinfo=UTC)
HEADING = Conversation("c1", "Tea", NOON, NOON, 4, ("chat", "voice"))


# As JSON


def opened(*exchanges: Exchange, earlier: str | None = None, turn_id: str | None = None) -> dict[str, Any]:
    found = ConversationPage(HEADING, exchanges, [File(1, "a.txt", "text/plain", 12)], earlier)
    answer: dict[str, Any] = json.loads(
        resources.encode_page(found, lambda exchange: exchange.tokens or 7, block_content, turn_id)
    )
    return answer


def exchange(number: int, *parts: Part, outcome: str = "complete", **more: Any) -> Exchange:
    return Exchange(
        f"(a note)\n\nQuestion {number}?",
        [*parts],
        question_id=f"q{number}",
        answer_id=f"a{number}",
        message=f"Question {number}?",
        started=NOON,
        ended=NOON,
        outcome=outcome,
        model="m",
        **more,
    )


def test_a_conversation_is_told_in_parts_and_in_the_users_own_words() -> None:
    block = "[SPECIALIST_RESULT: wiki]\nTea is a drink.\n[/SPECIALIST_RESULT]"
    unread = "[SPECIALIST_ERROR: ? failed - no name]"
    cited = (Citation("1", "Tea", "https://example.org/tea"), Citation("2", "A note"))
    answer = opened(
        exchange(
            1,
            Text("I look. ", 1),
            Call(
                "wiki",
                "SPECIALIST_REQUEST[wiki:…]",
                {"query": "tea"},
                id="c1",
                block=block,
                citations=cited,
                turn_pass=1,
                untrusted=True,
            ),
            Steer("And coffee?", 1),
            Call("?", "SPECIALIST_REQUEST[", id="c2", code="malformed", block=unread, turn_pass=2),
            Text("Tea is a drink.", 2),
            files=(1,),
            recalled_ids=("f3a9",),
            source="voice",
            tokens=120,
        )
    )
    citations = [{"id": "1", "title": "Tea", "url": "https://example.org/tea"}, {"id": "2", "title": "A note"}]
    assert answer == {
        "id": "c1",
        "title": "Tea",
        "created": "2026-05-03T12:00:00Z",
        "updated": "2026-05-03T12:00:00Z",
        "sources": ["chat", "voice"],
        "running": False,
        "messages": [
            {
                "id": "q1",
                "role": "user",
                "time": "2026-05-03T12:00:00Z",
                "source": "voice",
                "parts": [{"type": "text", "text": "Question 1?"}],
                "files": [1],
                "recalled": ["f3a9"],
            },
            {
                "id": "a1",
                "role": "assistant",
                "time": "2026-05-03T12:00:00Z",
                "parts": [
                    {"type": "text", "text": "I look. "},
                    {
                        "type": "call",
                        "call_id": "c1",
                        "name": "wiki",
                        "params": {"query": "tea"},
                        "outcome": None,
                        "block": block,
                        "text": "Tea is a drink.",
                        "citations": citations,
                        "cached": False,
                    },
                    {"type": "steered", "text": "And coffee?"},
                    {
                        "type": "call",
                        "call_id": "c2",
                        "name": "?",
                        "params": None,
                        "outcome": "malformed",
                        "block": "[SPECIALIST_ERROR: ? failed - no name]",
                        "reason": "no name",
                        "citations": [],
                        "cached": False,
                    },
                    {"type": "text", "text": "Tea is a drink."},
                ],
                "state": "complete",
                "stop_reason": "complete",
                "model": "m",
                "tokens": {"count": 120, "counted": "server"},
                "citations": citations,
            },
        ],
        "files": [{"id": 1, "name": "a.txt", "type": "text/plain", "size": 12}],
        "earlier": None,
    }


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        ("complete", {"state": "complete", "stop_reason": "complete"}),
        ("length", {"state": "complete", "stop_reason": "length"}),
        ("call_limit", {"state": "complete", "stop_reason": "call_limit"}),
        ("deadline", {"state": "complete", "stop_reason": "deadline"}),
        ("cancelled", {"state": "cancelled"}),
        ("interrupted", {"state": "interrupted"}),
        ("model_unreachable", {"state": "error", "error": "model_unreachable"}),
        ("shutdown", {"state": "error", "error": "shutdown"}),
    ],
)
def test_an_answer_says_how_it_ended_also_when_nothing_was_said(outcome: str, told: Mapping[str, str]) -> None:
    _, answer = opened(exchange(1, outcome=outcome))["messages"]
    assert answer["parts"] == []
    assert {name: answer[name] for name in ("state", "stop_reason", "error") if name in answer} == told
    assert answer["tokens"] == {"count": 7, "counted": "bytes/4"}


def test_an_answer_that_is_being_written_has_no_id_and_no_time_yet() -> None:
    running = Exchange("Hi", message="Hi", question_id="q1", started=NOON)
    answer = opened(running, turn_id="t1")
    assert answer["turn_id"] == "t1"
    assert answer["messages"][1] | {"model": "", "tokens": {}} == {
        "id": None,
        "role": "assistant",
        "time": None,
        "parts": [],
        "state": "running",
        "model": "",
        "tokens": {},
        "citations": [],
    }


def about(*asides: Annotation, parts: Sequence[Part] = (), outcome: str = "complete", **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = opened(exchange(1, *parts, outcome=outcome, annotations=asides, **more))["messages"][1]
    return answer


def test_what_stood_beside_the_text_is_told_in_its_place() -> None:
    call = Call("wiki", params={}, id="c1", turn_pass=1, cached=True, ms=12, approval="approved")
    answer = about(
        Annotation("Recalled 1 fact: tea", 0, code="recalled"),
        Annotation("Hm.", 0),
        Annotation("And then?", 0, 5),
        Annotation("Again.", 1, code="repeated_call"),
        Annotation("So.", 2),
        Annotation("Late.", 7, -3),
        parts=[Text("Well, tea.", 1), call, Text("Tea.", 2)],
    )
    assert [
        {name: part[name] for name in ("type", "text", "code", "cached", "ms", "approval") if name in part}
        for part in answer["parts"]
    ] == [
        {"type": "notice", "code": "recalled", "text": "Recalled 1 fact: tea"},
        {"type": "thinking", "text": "Hm."},
        {"type": "text", "text": "Well,"},
        {"type": "thinking", "text": "And then?"},
        {"type": "text", "text": " tea."},
        {"type": "notice", "code": "repeated_call", "text": "Again."},
        {"type": "call", "text": "", "cached": True, "ms": 12, "approval": "approved"},
        {"type": "thinking", "text": "So."},
        {"type": "text", "text": "Tea."},
        {"type": "thinking", "text": "Late."},
    ]


def test_what_an_answer_took_and_how_it_failed_is_told() -> None:
    took = {"usage": {"prompt_tokens": 3, "completion_tokens": 4, "estimated": True}, "first_token_ms": 5}
    failed = {"error": "model_failed", "message": "It broke.", "recoverable": False, "status": 500}
    usage, failure = Usage(3, 4, None, estimated=True), Error("model_failed", "It broke.", False, 500)
    answer = about(outcome="model_failed", usage=usage, first_token_ms=5, total_ms=6, error=failure)
    assert answer.items() >= {**took, **failed, "total_ms": 6, "state": "error"}.items()
    assert "code" not in answer


def test_what_no_utf_8_can_hold_is_replaced() -> None:
    _, answer = opened(exchange(1, Call("a", params={"x": "\ud800"}, id="c1", turn_pass=1)))["messages"]
    assert answer["parts"][0]["params"] == {"x": "\ufffd"}


# Queries


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "201"}, "limit"),
        ({"limit": "１"}, "limit"),
        ({"limit": "9" * 5_000}, "limit"),
        ({"limit": ""}, "limit"),
        ({"before": ""}, "before"),
        ({"before": "a b"}, "before"),
        ({"q": "x" * 1_001}, "q"),
        ({"page": "2"}, "page"),
    ],
)
def test_wrong_queries_are_rejected(query: Mapping[str, str], field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_conversations_query(query)
    assert caught.value.field == field


def test_each_path_has_its_own_fields() -> None:
    assert parse_conversations_query({"q": "tea", "before": "c1", "limit": "5"}) == ListQuery("tea", "c1", 5)
    assert parse_messages_query({"before": "m1"}) == ListQuery("", "m1", 50)
    assert parse_memory_query({"kind": "fact", "category": "general"}) == ListQuery(kind="fact", category="general")
    for query in ({"q": "tea"}, {"kind": "fact"}):
        with pytest.raises(BadRequest):
            parse_messages_query(query)


@pytest.mark.parametrize("text", ["", "  ", "a\nb", "a\u2028b", "a\x00b", "a\tb", "x" * 201])
def test_a_title_is_one_line(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_title(json.dumps({"title": text}).encode())
    assert parse_title(json.dumps({"title": f" {'ü' * 200} "}).encode()) == "ü" * 200


# On a real port


@specialist
async def recipe(of: str) -> Result:
    """Finds a recipe."""
    return Result(f"{of}: boil water.", [Citation("1", "Cookbook")])


@specialist(activates_on=["pdf"])
async def leaflet(*, context: Context) -> Result:
    """Reads leaflets."""
    return Result(f"Steep {context.attachments[0].name}.", [Citation("1", "Leaflet")])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:{tmp_path_factory.mktemp('store') / 'kept.db'}"


@pytest.fixture(scope="module")
def running(store: str) -> Iterator[Server]:
    with brain_served(registry_of(recipe, leaflet), ORIGINS="https://chat.example", STORE=store) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    running.play(Player(["Hello."]))
    yield running
    assert running.left() == []


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with client_of(server) as made:
        for one in made.get("/v1/conversations?limit=200").json()["conversations"]:
            made.delete(f"/v1/conversations/{one['id']}")
        yield made


def send(server: Server, message: str, conversation_id: str = "c1", **more: Any) -> Answer:
    return post(server.url, json={"message": message, "conversation_id": conversation_id, **more})


def shown(client: httpx.Client, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/conversations/c1", params=query).raise_for_status().json()
    return found


def listed(client: httpx.Client, **query: Any) -> list[str]:
    found = client.get("/v1/conversations", params=query).raise_for_status().json()
    return [one["id"] for one in found["conversations"]]


def texts(conversation: Mapping[str, Any]) -> list[str]:
    """Each message's text, and how it ended if not well."""
    found = []
    for message in conversation["messages"]:
        text = "".join(part["text"] for part in message["parts"] if part["type"] == "text")
        state = message.get("state", "complete")
        found.append(text if state == "complete" else f"{text}[{state}]")
    return found


def questions(conversation: Mapping[str, Any]) -> list[str]:
    return [message["id"] for message in conversation["messages"] if message["role"] == "user"]


def test_a_conversation_is_shown_with_calls_files_and_thoughts(server: Server, client: httpx.Client) -> None:
    player = Player(
        ["<think>A plan.</think>Hi. ", 'SPECIALIST_REQUEST[recipe:{"of":"Tea"}]'], ["Boil water."], ["And?"]
    )
    server.play(player)
    events = send(server, "How?", attachments=[{"name": "a.txt", "text": "Earl Grey"}], source="voice").events
    found = shown(client)
    asked, answer = found["messages"]
    assert (found["title"], found["sources"], found["running"]) == ("How?", ["voice"], False)
    assert "turn_id" not in found
    assert (asked["parts"], asked["files"]) == ([{"type": "text", "text": "How?"}], [1])
    done = events[-1].data
    assert answer["id"] == done["message_id"]
    parts = [(part["type"], part.get("name") or part["text"]) for part in answer["parts"]]
    assert parts == [("thinking", "A plan."), ("text", "Hi. "), ("call", "recipe"), ("text", "Boil water.")]
    assert answer["parts"][2]["block"] == "[SPECIALIST_RESULT: recipe]\nTea: boil water.\n[/SPECIALIST_RESULT]"
    assert answer["citations"] == [{"id": "1", "title": "Cookbook"}]
    assert found["files"] == [{"id": 1, "name": "a.txt", "type": "text/plain", "size": 9}]
    assert [answer["usage"]] == [event.data for event in events if event.name == "usage"]
    assert (answer["first_token_ms"], answer["total_ms"]) == (done["first_token_ms"], done["total_ms"])
    send(server, "And?")
    assert "Boil water." in str(player.asked[-1])
    assert "A plan." not in str(player.asked), "no model reads thoughts"


def test_results_of_attachments_are_shown_and_read_once(server: Server, client: httpx.Client) -> None:
    server.play(model := Player(["Hello."], ["Bye."]))
    send(server, "Read it", attachments=[{"name": "a.pdf", "type": "application/pdf", "data": "JVBERi0="}])
    answer = shown(client)["messages"][1]
    assert [(part["type"], part.get("name")) for part in answer["parts"]] == [("call", "leaflet"), ("text", None)]
    block = "[SPECIALIST_RESULT: leaflet]\nSteep a.pdf.\n[/SPECIALIST_RESULT]"
    assert (answer["parts"][0]["block"], answer["citations"]) == (block, [{"id": "1", "title": "Leaflet"}])
    send(server, "And now?")
    read = [(message.role, message.content.count(block)) for message in model.asked[1]]
    assert read == [("system", 0), ("user", 1), ("assistant", 0), ("user", 0)]


def test_conversations_are_listed_newest_first_in_pages_and_by_words(server: Server, client: httpx.Client) -> None:
    for n in range(5):
        send(server, f"Question {n} about {'tea' if n % 2 else 'coffee'}", f"c{n}")
    send(server, "And more tea?", "c1")
    assert listed(client) == ["c1", "c4", "c3", "c2", "c0"]
    first = client.get("/v1/conversations?limit=2").json()
    assert ([one["id"] for one in first["conversations"]], first["next"]) == (["c1", "c4"], "c4")
    second = client.get("/v1/conversations", params={"limit": 3, "before": "c4"}).json()
    assert ([one["id"] for one in second["conversations"]], second["next"]) == (["c3", "c2", "c0"], None)
    assert (listed(client, q="tea"), listed(client, q="nothing of this")) == (["c1", "c3"], [])
    found = client.get("/v1/conversations?q=coff").json()["conversations"][0]
    assert (found["id"], found["messages"], found["sources"]) == ("c4", 2, ["chat"])
    assert found["found"].startswith("Question 4 about coffee")
    assert problem(client.get("/v1/conversations?before=c9"))[:2] == (400, "bad_request")


def test_messages_are_shown_from_the_end(server: Server, client: httpx.Client) -> None:
    for n in range(3):
        server.play(Player([f"Answer {n}."]))
        send(server, f"Question {n}?")
    newest = shown(client, limit=2)
    assert texts(newest) == ["Question 1?", "Answer 1.", "Question 2?", "Answer 2."]
    first = shown(client, limit=2, before=newest["earlier"])
    assert (texts(first), first["earlier"]) == (["Question 0?", "Answer 0."], None)
    assert problem(client.get("/v1/conversations/c1?before=m0123"))[:2] == (400, "bad_request")


def test_a_failed_answer_is_shown_without_its_error_text(server: Server, client: httpx.Client) -> None:
    server.play(Player([RuntimeError("the password is swordfish")]))
    assert send(server, "Hi?").last["code"] == "internal"
    assert texts(shown(client)) == ["Hi?", "[error]"]
    assert "swordfish" not in client.get("/v1/conversations/c1").text


def test_a_conversation_is_renamed(server: Server, client: httpx.Client) -> None:
    send(server, "First question")
    answer = client.patch("/v1/conversations/c1", json={"title": "  Über Schach "})
    assert (answer.status_code, answer.json()["title"], answer.json()["id"]) == (200, "Über Schach", "c1")
    send(server, "Second question")
    assert (shown(client)["title"], listed(client, q="uber schach")) == ("Über Schach", ["c1"])
    assert problem(client.patch("/v1/conversations/c1", json={"title": "x", "id": "c2"})) == (400, "bad_request", "id")
    assert client.patch("/v1/conversations/c1", content=b'{"title":"x"}').status_code == 415
    assert problem(client.patch("/v1/conversations/c1", json={"title": "x" * 65_536})) == (413, "too_large", None)


@pytest.mark.parametrize("place", ["c9", "..%2fc1", "%00", "%ff", "c1%20", "x" * 65, "'; DROP TABLE conversation; --"])
def test_unknown_conversations(client: httpx.Client, place: str) -> None:
    path = f"/v1/conversations/{place}"
    for answer in (client.get(path), client.patch(path, json={"title": "x"}), client.delete(path)):
        assert problem(answer)[:2] == (404, "not_found")


def test_pages_of_listed_origins_may_change_conversations(server: Server, client: httpx.Client) -> None:
    send(server, "Hi")
    ours = {"origin": "https://chat.example"}
    for path in ("/v1/conversations", "/v1/conversations/c1", "/v1/memory"):
        headers = client.get(path, headers=ours).headers
        assert (headers["cache-control"], headers["access-control-allow-origin"]) == ("no-store", ours["origin"])
        assert client.head(path).status_code == 200
        for method in ("PATCH", "DELETE"):
            asking = {**ours, "access-control-request-method": method, "access-control-request-headers": "content-type"}
            assert client.options(path, headers=asking).status_code == 200
    assert client.delete("/v1/conversations/c1", headers={"origin": "https://evil.example"}).status_code == 403


# Deleting


def test_a_deleted_conversation_is_nowhere(server: Server, client: httpx.Client) -> None:
    sent = {"message": "My zebra is called Hilda", "conversation_id": "c1", "request_id": "r1"}
    turn = client.post("/v1/turns", json=sent).json()
    client.get(turn["events"])
    send(server, "Another conversation", "c2")
    deleted = client.delete("/v1/conversations/c1")
    assert (deleted.status_code, deleted.content, deleted.headers["cache-control"]) == (204, b"", "no-store")
    assert client.get("/v1/conversations/c1").status_code == client.delete("/v1/conversations/c1").status_code == 404
    assert (listed(client), listed(client, q="zebra")) == (["c2"], [])
    assert (client.get(turn["events"]).status_code, client.get(f"/v1/turns/{turn['turn_id']}").status_code) == (
        410,
        404,
    )
    server.play(player := Player(["Hello again."]))
    again = client.post("/v1/turns", json=sent).json()
    assert again["turn_id"] != turn["turn_id"]
    assert client.get(again["events"]).status_code == 200
    assert "Hilda" not in str(player.asked[0][:-1])


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
        other.play(Player(["Hello."]))
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
        found = shown(client)
        assert (found["running"], texts(found)[0]) == (True, "Tell me a story")
        with client.stream("GET", f"/v1/turns/{found['turn_id']}/events") as reader:
            assert reader.status_code == 200
            with client_of(server) as other:
                assert other.delete("/v1/conversations/c1").status_code == 204
            assert '"stop_reason":"cancelled"' in reader.read().decode()
    assert player.closed.wait(10)
    assert client.get("/v1/conversations/c1").status_code == 404
    assert client.get(f"/v1/turns/{found['turn_id']}").status_code == 404


# Continuing


def test_a_message_or_an_answer_is_replaced(server: Server, client: httpx.Client) -> None:
    for n in range(3):
        server.play(Player([f"Answer {n}."]))
        send(server, f"Question {n}?")
    ids = questions(shown(client))
    server.play(player := Player(["A better answer."]))
    assert send(server, "A better question?", replace_from=ids[1]).names[-1] == "done"
    assert texts(shown(client)) == ["Question 0?", "Answer 0.", "A better question?", "A better answer."]
    assert "Question 1?" not in str(player.asked)
    send(server, "From the start?", replace_from=shown(client)["messages"][1]["id"])
    assert texts(shown(client)) == ["From the start?", "A better answer."]
    assert problem(send(server, "Hi", replace_from=ids[1])) == (404, "not_found", "replace_from")


class Storyteller(Player):
    """Tells a story without an end at first, and is short then."""

    async def stream(self, *args: Any, **more: Any) -> Any:
        self.passes = (["Once upon a time", asyncio.Event()],) if not self.asked else (["Yes?"],)
        async for item in super().stream(*args, **more):
            yield item


def test_a_second_turn_is_rejected_unless_it_barges_in(server: Server, client: httpx.Client) -> None:
    server.play(player := Storyteller())
    with client.stream("POST", "/v1/chat/stream", json={"message": "A story", "conversation_id": "c1"}) as story:
        pieces, found = story.iter_text(), ""
        while "Once upon" not in found:
            found += next(pieces)
        assert problem(send(server, "Stop")) == (409, "busy", "conversation_id")
        answer = send(server, "Stop!", barge_in=True)
        assert '"stop_reason":"cancelled"' in found + "".join(pieces)
    assert answer.last["text"] == "Yes?"
    assert texts(shown(client)) == ["A story", "Once upon a time[cancelled]", "Stop!", "Yes?"]
    assert player.asked[1][2].content == "Once upon a time", "the model knows what it had written"
    assert send(server, "Hi", barge_in=True).last["text"] == "Yes?", "nothing runs"


def test_of_twenty_at_once_one_is_answered(server: Server, client: httpx.Client) -> None:
    gate = asyncio.Event()
    server.play(player := Player(["Once ", gate, "upon a time"]))
    with ThreadPoolExecutor(20) as clients:
        answers = [clients.submit(send, server, f"Question {n}?") for n in range(20)]
        rejected = 0
        while rejected < 19:
            rejected = sum(answer.done() for answer in answers)
        server.release(gate)
    assert sorted(answer.result().status for answer in answers) == [200, *[409] * 19]
    assert texts(shown(client))[1:] == ["Once upon a time"]
    assert len(player.asked) == 1


def test_of_twenty_that_barge_in_at_once_none_is_lost_or_mixed_up(server: Server, client: httpx.Client) -> None:
    server.play(Player([f"word{n} " for n in range(200)]))
    with ThreadPoolExecutor(20) as clients:
        answers = list(clients.map(lambda n: send(server, f"Question {n}?", barge_in=True), range(20)))
    assert [answer.status for answer in answers] == [200] * 20
    assert all(answer.names.count("done") == 1 == answer.names[::-1].index("done") + 1 for answer in answers)
    messages = shown(client)["messages"]
    assert len(messages) == 40
    expected = {answer.last["message_id"]: (f"Question {n}?", answer.last["text"]) for n, answer in enumerate(answers)}
    for asked, answered in zip(messages[::2], messages[1::2], strict=True):
        text = "".join(part["text"] for part in answered["parts"] if part["type"] == "text")
        assert expected.pop(answered["id"]) == (asked["parts"][0]["text"], text)
    times = [message["time"] for message in messages]
    assert times == sorted(times)


def test_a_conversation_continues_over_protocols_and_restarts(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'kept.db'}"
    with brain_served(STORE=store) as server, client_of(server) as client:
        server.play(Player(["Hello Ada."]))
        send(server, "My name is Ada")
        server.play(Player(["You are Ada."]))
        history = [("user", "My name is Ada"), ("assistant", "Hello Ada."), ("user", "Who am I?")]
        body = {"model": "brain", "messages": [{"role": role, "content": text} for role, text in history]}
        client.post("/v1/chat/completions", json=body, headers={"x-conversation-id": "c1"}).raise_for_status()
    with brain_served(STORE=store) as server, client_of(server) as client:
        found = shown(client)
        assert texts(found) == ["My name is Ada", "Hello Ada.", "Who am I?", "You are Ada."]
        assert [one["source"] for one in found["messages"] if one["role"] == "user"] == found["sources"]
        server.play(player := Player(["As I said: Ada."]))
        send(server, "Say it again", source="voice")
        assert [message.content for message in player.asked[0]][2:5:2] == ["Hello Ada.", "You are Ada."]
        assert shown(client)["sources"] == ["chat", "voice", "api"]


def test_a_killed_server_leaves_its_answer_interrupted(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'kept.db'}"
    model = script(tmp_path, {"chunks": ["Once upon ", "a time"], "delay_ms": 500})
    with (
        Process("serve", env={"BRAIN_STORE": store, "BRAIN_MODEL": model, "BRAIN_PORT": "0"}) as dying,
        streaming(dying.url(), until="Once", json={"message": "A story", "conversation_id": "c1"}),
    ):
        dying.process.kill()
        dying.process.wait(5)
    with brain_served(STORE=store) as server, client_of(server) as client:
        (question, answer) = texts(shown(client))
        assert (question, answer.endswith("[interrupted]")) == ("A story", True)
        server.play(Player(["Hello."]))
        assert send(server, "Are you there?").last["text"] == "Hello.", "nothing blocks the conversation"


def test_a_broken_store_is_unavailable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = tmp_path / "kept.db"
    with brain_served(STORE=f"sqlite:{store}") as server, client_of(server) as client:
        server.play(Player(["Hello."]))
        send(server, "Hi")
        with closing(sqlite3.connect(store)) as db:
            db.execute("ALTER TABLE conversation RENAME TO gone")
        path = "/v1/conversations/c1"
        answers = [client.get("/v1/conversations"), client.get(path), client.patch(path, json={"title": "x"})]
        for answer in (*answers, client.delete(path)):
            assert problem(answer)[:2] == (503, "unavailable")
        assert problem(send(server, "Hi"))[:2] == (503, "unavailable")
    assert str(store) not in caplog.text


# Files

PICTURE = b"\x89PNG\r\n\x1a\n and more"
TYPES = {
    "a.png": PICTURE,
    "b.jpg": b"\xff\xd8\xff\xe0",
    "c.gif": b"GIF89a",
    "d.webp": b"RIFF\0\0\0\0WEBPVP8 ",
    "e.svg": b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
    "f.html": b"<script>alert(1)</script>",
    "g.pdf": b"%PDF-1.7",
    "h.bmp": b"BM",
}


def attach(client: httpx.Client, *files: tuple[str, bytes], **fields: str) -> httpx.Response:
    parts = [("file", (name, data, "image/png")) for name, data in files]
    return client.post("/v1/chat/stream", data={"message": "Look", "conversation_id": "c1", **fields}, files=parts)


def files_of(client: httpx.Client) -> tuple[list[list[int]], list[str]]:
    """The IDs of each message's files, and the names of all files."""
    found = shown(client)
    ids = [message["files"] for message in found["messages"] if message["role"] == "user"]
    return ids, [f"{one['id']} {one['name']}" for one in found["files"]]


def test_files_are_downloaded_as_sent_and_only_images_are_shown(client: httpx.Client) -> None:
    assert "event: done" in attach(client, *TYPES.items()).text
    heads = []
    for number, data in enumerate(TYPES.values(), 1):
        answer = client.get(f"/v1/conversations/c1/files/{number}")
        assert (answer.status_code, answer.content) == (200, data)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert answer.headers["cache-control"] == "private, no-cache"
        heads.append((answer.headers["content-type"], answer.headers["content-disposition"].partition(";")[0]))
        etag = answer.headers["etag"]
        again = client.get(f"/v1/conversations/c1/files/{number}", headers={"if-none-match": etag})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    saved = ("application/octet-stream", "attachment")
    pictures = [(f"image/{kind}", "inline") for kind in ("png", "jpeg", "gif", "webp")]
    assert heads == [*pictures, saved, saved, saved, saved]
    other = client.get("/v1/conversations/c1/files/1", headers={"if-none-match": etag})
    assert (other.status_code, other.content) == (200, PICTURE)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tea.txt", "attachment; filename=\"tea.txt\"; filename*=UTF-8''tea.txt"),
        ("a b;c.txt", "attachment; filename=\"a b_c.txt\"; filename*=UTF-8''a%20b%3Bc.txt"),
        ("tä😀.txt", "attachment; filename=\"t__.txt\"; filename*=UTF-8''t%C3%A4%F0%9F%98%80.txt"),
        ("\u202etxt.exe", "attachment; filename=\"txt.exe\"; filename*=UTF-8''txt.exe"),
        (
            'a"\r\nSet-Cookie: x',
            "attachment; filename=\"a_ Set-Cookie_ x\"; filename*=UTF-8''a%22%20Set-Cookie%3A%20x",
        ),
    ],
)
def test_a_file_keeps_its_name(client: httpx.Client, server: Server, name: str, expected: str) -> None:
    send(server, "Read", attachments=[{"name": name, "text": "Tea."}])
    assert client.get("/v1/conversations/c1/files/1").headers["content-disposition"] == expected


def test_unknown_files(client: httpx.Client) -> None:
    attach(client, ("a.png", PICTURE))
    for number in ("2", "0", "-1", "x", "１", "1" * 30, "1.0"):
        for conversation in ("c1", "c2", "a b"):
            answer = client.get(f"/v1/conversations/{conversation}/files/{number}")
            assert problem(answer)[:2] == (404, "not_found")


def test_files_are_sent_along_when_their_message_is_replaced(client: httpx.Client, server: Server) -> None:
    server.play(player := Player(["I see."]))
    attach(client, ("a.png", PICTURE), ("b.txt", b"Tea."))
    attach(client, ("c.txt", b"Milk."))
    question = questions(shown(client))[0]
    sent = [{"id": 2}, {"name": "d.txt", "text": "Sugar."}, {"id": 1}]
    assert send(server, "And now?", replace_from=question, attachments=sent).names[-1] == "done"
    assert files_of(client) == ([[4, 5, 6]], ["4 b.txt", "5 a.png", "6 d.txt"])
    assert client.get("/v1/conversations/c1/files/5").content == PICTURE
    assert client.get("/v1/conversations/c1/files/1").status_code == 404
    told = player.asked[-1][-1].content
    assert [told.count(name) > 0 for name in ("b.txt", "a.png", "d.txt", "c.txt")] == [True, True, True, False]
    (question,) = questions(shown(client))
    again = attach(client, ("e.txt", b"Tea."), replace_from=question, attachments='[{"id": 5}]')
    assert "event: done" in again.text
    assert files_of(client) == ([[7, 8]], ["7 a.png", "8 e.txt"])
    (question,) = questions(shown(client))
    server.play(Player([RuntimeError("the model fails")]))
    assert send(server, "Again?", replace_from=question, attachments=[{"id": 7}]).names[-1] == "error"
    assert files_of(client) == ([[7, 8]], ["7 a.png", "8 e.txt"]), "a failed turn replaces nothing"


def test_wrong_ids_of_files_are_rejected(client: httpx.Client, server: Server) -> None:
    attach(client, ("a.png", PICTURE))
    attach(client, ("b.txt", b"Tea."))
    first, _ = questions(shown(client))
    rows: Sequence[tuple[list[dict[str, Any]], str]] = [
        ([{"id": 2}], "attachments[0].id"),
        ([{"name": "b.txt", "text": "x"}, {"id": 7}], "attachments[1].id"),
        ([{"id": 1}, {"id": 1}], "attachments[1].id"),
        ([{"id": 0}], "attachments[0].id"),
        ([{"id": -1}], "attachments[0].id"),
        ([{"id": 10**30}], "attachments[0].id"),
        ([{"id": "1"}], "attachments[0].id"),
        ([{"id": 1, "name": "a.png"}], "attachments[0].id"),
        ([{"id": None}], "attachments[0].name"),
        ([{"id": 1}] * 11, "attachments"),
        ([{"id": 1}] * 200, "attachments"),
    ]
    for attachments, field in rows:
        answer = send(server, "Again?", replace_from=first, attachments=attachments)
        assert problem(answer)[::2] == (413 if len(attachments) > 10 else 400, field)
    assert problem(send(server, "Again?", attachments=[{"id": 1}]))[::2] == (400, "attachments[0].id")
    assert files_of(client) == ([[1], [2]], ["1 a.png", "2 b.txt"])
