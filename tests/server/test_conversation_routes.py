"""Conversations as their user sees them: as JSON, and on a real port, listed, opened, named, deleted, gone on with."""

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Answer, Player, Process, Server, brain_served, post, script, streaming

from brain import Citation, Context, Registry, Result, specialist
from brain.errors import BadRequest
from brain.events import Error, Usage
from brain.messages import (
    Annotation,
    Call,
    Chunk,
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
WAIT = 20.0


# as JSON


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


def questions(answer: Mapping[str, Any]) -> list[str]:
    return [message["id"] for message in answer["messages"] if message["role"] == "user"]


def test_what_no_utf_8_can_hold_is_replaced() -> None:
    _, answer = opened(exchange(1, Call("a", params={"x": "\ud800"}, id="c1", turn_pass=1)))["messages"]
    assert answer["parts"][0]["params"] == {"x": "\ufffd"}


# what is asked


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ({"limit": "0"}, "limit", "limit must be a whole number from 1 to 200."),
        ({"limit": "201"}, "limit", "limit must be a whole number from 1 to 200."),
        ({"limit": "１"}, "limit", "limit must be a whole number from 1 to 200."),
        ({"limit": "9" * 5_000}, "limit", "limit must be a whole number from 1 to 200."),
        ({"limit": ""}, "limit", "limit must be a whole number from 1 to 200."),
        ({"before": ""}, "before", "before must be the id of the last entry of the part before."),
        ({"before": "a b"}, "before", "before must be the id of the last entry of the part before."),
        ({"q": "x" * 1_001}, "q", "q may be 1,000 characters long."),
        ({"page": "2"}, "page", "page: This field does not exist; there are: q, before, limit."),
    ],
)
def test_what_is_wrong_with_a_query_is_named(query: Mapping[str, str], field: str, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_conversations_query(query)
    assert (caught.value.field, caught.value.message) == (field, message)


def test_each_address_has_its_own_fields() -> None:
    assert parse_conversations_query({"q": "tea", "before": "c1", "limit": "5"}) == ListQuery("tea", "c1", 5)
    assert parse_messages_query({"before": "m1"}) == ListQuery("", "m1", 50)
    assert parse_memory_query({"kind": "fact", "category": "general"}) == ListQuery(kind="fact", category="general")
    for query in ({"q": "tea"}, {"kind": "fact"}):
        with pytest.raises(BadRequest, match="This field does not exist; there are: before, limit"):
            parse_messages_query(query)


@pytest.mark.parametrize("text", ["", "  ", "a\nb", "a\u2028b", "a\x00b", "a\tb", "x" * 201])
def test_a_title_is_one_line(text: str) -> None:
    with pytest.raises(BadRequest, match="title must be one line of 1 to 200 characters"):
        parse_title(json.dumps({"title": text}).encode())
    assert parse_title(json.dumps({"title": f" {'ü' * 200} "}).encode()) == "ü" * 200


# on a real port


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
    registry = Registry()
    registry.add(recipe)
    registry.add(leaflet)
    with brain_served(registry, ORIGINS="https://chat.example", STORE=store) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    running.play(Player(["Hello."]))
    yield running
    assert running.left() == []


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=10, trust_env=False) as made:
        for one in made.get("/v1/conversations?limit=200").json()["conversations"]:
            made.delete(f"/v1/conversations/{one['id']}")
        yield made


def says(server: Server, message: str, conversation_id: str = "c1", **more: Any) -> Answer:
    return post(server.url, json={"message": message, "conversation_id": conversation_id, **more})


def shown(client: httpx.Client, conversation_id: str = "c1", **query: Any) -> dict[str, Any]:
    answer = client.get(f"/v1/conversations/{conversation_id}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def listed(client: httpx.Client, **query: Any) -> list[str]:
    answer = client.get("/v1/conversations", params=query)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["conversations"]]


def texts(conversation: Mapping[str, Any]) -> list[str]:
    """The messages of a conversation in short: what was said, and how it ended if not well."""
    found = []
    for message in conversation["messages"]:
        text = "".join(part["text"] for part in message["parts"] if part["type"] == "text")
        state = message.get("state", "complete")
        found.append(text if state == "complete" else f"{text}[{state}]")
    return found


def refused(answer: httpx.Response) -> tuple[int, str, str]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["message"]


NOT_THERE = (404, "not_found", "This conversation does not exist.")


def test_what_was_said_is_there_with_calls_and_files(server: Server, client: httpx.Client) -> None:
    server.play(Player(['SPECIALIST_REQUEST[recipe:{"of":"Tea"}]'], ["Boil water."]))
    attached = [{"name": "a.txt", "text": "Earl Grey"}]
    done = says(server, "How do I make tea?", attachments=attached, source="voice").last
    found = shown(client)
    asked, answer = found["messages"]
    assert (found["title"], found["sources"], found["running"]) == ("How do I make tea?", ["voice"], False)
    assert "turn_id" not in found
    assert (asked["parts"], asked["files"], asked["source"]) == (
        [{"type": "text", "text": "How do I make tea?"}],
        [1],
        "voice",
    )
    assert answer["id"] == done["message_id"]
    assert [(part["type"], part.get("name")) for part in answer["parts"]] == [("call", "recipe"), ("text", None)]
    assert answer["parts"][0]["block"] == "[SPECIALIST_RESULT: recipe]\nTea: boil water.\n[/SPECIALIST_RESULT]"
    assert answer["citations"] == [{"id": "1", "title": "Cookbook"}]
    assert found["files"] == [{"id": 1, "name": "a.txt", "type": "text/plain", "size": 9}]
    times = [datetime.fromisoformat(message["time"]) for message in found["messages"]]
    assert times == sorted(times)
    assert abs(datetime.now(UTC) - times[0]).total_seconds() < 60


def test_what_was_told_beside_an_answer_is_there_and_no_model_reads_it(server: Server, client: httpx.Client) -> None:
    player = Player(["<think>A plan. ", "Yes.</think>Hi. ", "There."])
    server.play(player)
    told = says(server, "Hello?").events
    _, answer = shown(client)["messages"]
    assert [(part["type"], part["text"]) for part in answer["parts"]] == [
        ("thinking", "A plan. Yes."),
        ("text", "Hi. There."),
    ]
    (usage,) = (event.data for event in told if event.name == "usage")
    assert answer["usage"] == usage
    done = told[-1].data
    assert (answer["first_token_ms"], answer["total_ms"]) == (done["first_token_ms"], done["total_ms"])
    says(server, "And?")
    assert "Hi. There." in str(player.asked[-1])
    assert "plan" not in str(player.asked)


def test_what_files_asked_for_is_there_and_models_read_it_once(server: Server, client: httpx.Client) -> None:
    model = Player(["Hello."], ["Bye."])
    server.play(model)
    says(server, "Read it", attachments=[{"name": "a.pdf", "type": "application/pdf", "data": "JVBERi0="}])
    answer = shown(client)["messages"][1]
    assert [(part["type"], part.get("name")) for part in answer["parts"]] == [("call", "leaflet"), ("text", None)]
    block = "[SPECIALIST_RESULT: leaflet]\nSteep a.pdf.\n[/SPECIALIST_RESULT]"
    assert (answer["parts"][0]["block"], answer["parts"][0]["outcome"]) == (block, None)
    assert answer["citations"] == [{"id": "1", "title": "Leaflet"}]
    says(server, "And now?")
    read = [(message.role, message.content.count(block)) for message in model.asked[1]]
    assert read == [("system", 0), ("user", 1), ("assistant", 0), ("user", 0)]


def test_the_list_is_the_newest_first_in_parts_and_by_words(server: Server, client: httpx.Client) -> None:
    for n in range(5):
        says(server, f"Question {n} about {'tea' if n % 2 else 'coffee'}", f"c{n}")
    says(server, "And more tea?", "c1")
    assert listed(client) == ["c1", "c4", "c3", "c2", "c0"]
    first = client.get("/v1/conversations?limit=2").json()
    assert ([one["id"] for one in first["conversations"]], first["next"]) == (["c1", "c4"], "c4")
    second = client.get("/v1/conversations", params={"limit": 3, "before": first["next"]}).json()
    assert ([one["id"] for one in second["conversations"]], second["next"]) == (["c3", "c2", "c0"], None)
    assert listed(client, q="tea") == ["c1", "c3"]
    assert listed(client, q="nothing of this") == []
    found = client.get("/v1/conversations?q=coff").json()["conversations"][0]
    assert (found["id"], found["messages"], found["sources"]) == ("c4", 2, ["chat"])
    assert found["found"].startswith("Question 4 about coffee")
    before = client.get("/v1/conversations?before=c9")
    assert refused(before)[:2] == (400, "bad_request")


def test_a_conversation_is_opened_from_its_end(server: Server, client: httpx.Client) -> None:
    for n in range(5):
        server.play(Player([f"Answer {n}."]))
        says(server, f"Question {n}?")
    newest = shown(client, limit=2)
    assert texts(newest) == ["Question 3?", "Answer 3.", "Question 4?", "Answer 4."]
    earlier = shown(client, limit=2, before=newest["earlier"])
    assert texts(earlier) == ["Question 1?", "Answer 1.", "Question 2?", "Answer 2."]
    first = shown(client, limit=2, before=earlier["earlier"])
    assert (texts(first), first["earlier"]) == (["Question 0?", "Answer 0."], None)
    answer = client.get("/v1/conversations/c1?before=m0123")
    assert refused(answer) == (400, "bad_request", "before must be the id of a question of this conversation.")


def test_a_question_that_failed_is_there(server: Server, client: httpx.Client) -> None:
    server.play(Player([RuntimeError("the password is swordfish")]))
    assert says(server, "Hi?").last["code"] == "internal"
    assert texts(shown(client)) == ["Hi?", "[error]"]
    assert "swordfish" not in client.get("/v1/conversations/c1").text


def test_a_title_is_given_found_and_kept(server: Server, client: httpx.Client) -> None:
    says(server, "First question")
    answer = client.patch("/v1/conversations/c1", json={"title": "  Über Schach "})
    assert (answer.status_code, answer.json()["title"], answer.json()["id"]) == (200, "Über Schach", "c1")
    says(server, "Second question")
    assert shown(client)["title"] == "Über Schach"
    assert listed(client, q="uber schach") == ["c1"]
    wrong = client.patch("/v1/conversations/c1", json={"title": "x", "id": "c2"})
    assert refused(wrong) == (400, "bad_request", "id: This field does not exist.")
    assert client.patch("/v1/conversations/c1", content=b'{"title":"x"}').status_code == 415
    large = client.patch("/v1/conversations/c1", json={"title": "x" * 65_536})
    assert refused(large) == (413, "too_large", "The body may be 64 KiB large.")


@pytest.mark.parametrize("place", ["c9", "..%2fc1", "%00", "%ff", "c1%20", "x" * 65, "'; DROP TABLE conversation; --"])
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_what_is_not_there(client: httpx.Client, method: str, place: str) -> None:
    body = {"json": {"title": "x"}} if method == "PATCH" else {}
    answer = client.request(method, f"/v1/conversations/{place}", **body)  # type: ignore[arg-type]
    assert refused(answer)[:2] == (404, "not_found")


def test_no_cache_keeps_it_and_pages_of_known_origins_may_change_it(server: Server, client: httpx.Client) -> None:
    says(server, "Hi")
    ours = {"origin": "https://chat.example"}
    for path in ("/v1/conversations", "/v1/conversations/c1", "/v1/memory"):
        answer = client.get(path, headers=ours)
        assert (answer.headers["cache-control"], answer.headers["access-control-allow-origin"]) == (
            "no-store",
            "https://chat.example",
        )
        assert client.head(path).status_code == 200
        for method in ("PATCH", "DELETE"):
            asking = {**ours, "access-control-request-method": method, "access-control-request-headers": "content-type"}
            assert client.options(path, headers=asking).status_code == 200
    assert client.delete("/v1/conversations/c1", headers={"origin": "https://evil.example"}).status_code == 403
    assert client.put("/v1/conversations/c1").headers["allow"].count("DELETE") == 1


# deleting


def lately(server: Server) -> list[str]:
    """The conversations of what the memory holds as said last."""
    view = server.engine.memory.view("local", "", lambda: ())
    return [one.conversation_id for one in server.on_loop(view.recent(20))]


def test_what_is_deleted_is_nowhere(server: Server, client: httpx.Client) -> None:
    asked = {"message": "My zebra is called Hilda", "conversation_id": "c1", "request_id": "r1"}
    turn = client.post("/v1/turns", json=asked).json()
    client.get(turn["events"])
    says(server, "Another conversation", "c2")
    assert lately(server) == ["c2", "c1"]
    deleted = client.delete("/v1/conversations/c1")
    assert (deleted.status_code, deleted.content, deleted.headers["cache-control"]) == (204, b"", "no-store")
    assert refused(client.get("/v1/conversations/c1")) == NOT_THERE
    assert refused(client.delete("/v1/conversations/c1")) == NOT_THERE
    assert listed(client) == ["c2"]
    assert listed(client, q="zebra") == []
    assert lately(server) == ["c2"]
    assert client.get(turn["events"]).status_code == 410
    assert client.get(f"/v1/turns/{turn['turn_id']}").status_code == 404
    server.play(player := Player(["Hello again."]))
    assert client.post("/v1/turns", json=asked).json()["turn_id"] != turn["turn_id"]
    assert client.get(client.post("/v1/turns", json=asked).json()["events"]).status_code == 200
    assert "Hilda" not in str(player.asked[0][:-1]), "it begins anew"


def test_specialists_forget_what_they_keep_of_it(client: httpx.Client, server: Server) -> None:
    kept_by: dict[tuple[str, str], str] = {}
    broken = threading.Event()

    def forget(user: str, conversation_id: str | None) -> None:
        if broken.is_set():
            raise RuntimeError("the disk is full")
        kept_by.pop((user, conversation_id or ""), None)

    @specialist(forget=forget)
    def drawer() -> str:
        """Keeps something."""
        return ""

    registry = Registry()
    registry.add(drawer)
    with brain_served(registry) as other:
        other.play(Player(["Hello."]))
        for name in ("d1", "d2"):
            says(other, "Hi", name)
            kept_by["local", name] = "a file"
        assert httpx.delete(f"{other.url}/v1/conversations/d1", trust_env=False).status_code == 204
        assert kept_by == {("local", "d2"): "a file"}
        broken.set()
        answer = httpx.delete(f"{other.url}/v1/conversations/d2", trust_env=False)
        assert refused(answer) == (
            503,
            "unavailable",
            "The conversation is deleted, but what drawer kept of it is not; delete it again later.",
        )
        broken.clear()
        assert httpx.delete(f"{other.url}/v1/conversations/d2", trust_env=False).status_code == 404
        assert kept_by == {}


def test_a_turn_that_runs_is_stopped_and_deleted(server: Server, client: httpx.Client) -> None:
    server.play(player := Player(["Once upon ", WAIT]))
    with streaming(server.url, until="Once", json={"message": "Tell me a story", "conversation_id": "c1"}):
        found = shown(client)
        assert (found["running"], texts(found)) == (True, ["Tell me a story", "[running]"])
        turn_id = found["turn_id"]
        with ThreadPoolExecutor(1) as readers:
            read = readers.submit(client.get, f"/v1/turns/{turn_id}/events")
            while server.engine.turns.running[0].readers == 0:
                time.sleep(0.01)
            began = time.monotonic()
            assert client.delete("/v1/conversations/c1").status_code == 204
            assert time.monotonic() - began < 2
            assert '"stop_reason":"cancelled"' in read.result(5).text, "who reads it is told"
    assert len(player.closed) == 1
    assert refused(client.get("/v1/conversations/c1")) == NOT_THERE
    assert client.get(f"/v1/turns/{turn_id}").status_code == 404


def test_what_another_process_answers_can_be_read_stopped_and_deleted(
    store: str, server: Server, client: httpx.Client
) -> None:
    with brain_served(STORE=store) as other:
        for ends in ("barge in", "delete"):
            other.play(Player(["Once upon ", asyncio.Event()]))
            body = {"message": "Tell me a story", "conversation_id": "c1"}
            with streaming(other.url, until="Once", json=body) as answer:
                turn_id = shown(client)["turn_id"]
                assert turn_id == answer.events[0].data["turn_id"]
                if ends == "delete":
                    assert client.delete("/v1/conversations/c1").status_code == 204
                else:
                    server.play(Player(["Yes?"]))
                    assert says(server, "Stop", barge_in=True).last["text"] == "Yes?"
                events = client.get(f"/v1/turns/{turn_id}/events")
                assert (events.status_code, '"cancelled"' in events.text) == (
                    (410, False) if ends == "delete" else (200, True)
                )
    assert client.get("/v1/conversations/c1").status_code == 404


def until_over(client: httpx.Client, conversation_id: str = "c1") -> None:
    end = time.monotonic() + 5
    while shown(client, conversation_id)["running"]:
        assert time.monotonic() < end
        time.sleep(0.02)


# going on


def test_a_question_or_an_answer_can_be_replaced(server: Server, client: httpx.Client) -> None:
    for n in range(3):
        server.play(Player([f"Answer {n}."]))
        says(server, f"Question {n}?")
    ids = questions(shown(client))
    server.play(player := Player(["A better answer."]))
    assert says(server, "A better question?", replace_from=ids[1]).names[-1] == "done"
    assert texts(shown(client)) == ["Question 0?", "Answer 0.", "A better question?", "A better answer."]
    assert "Question 1?" not in str(player.asked)
    answer_id = shown(client)["messages"][1]["id"]
    says(server, "From the start?", replace_from=answer_id)
    assert texts(shown(client)) == ["From the start?", "A better answer."]
    gone = post(server.url, json={"message": "Hi", "conversation_id": "c1", "replace_from": ids[1]})
    assert (gone.status, gone.error["code"], gone.error["field"]) == (404, "not_found", "replace_from")


def test_a_second_turn_is_refused_at_once(server: Server, client: httpx.Client) -> None:
    server.play(Player(["Once upon ", WAIT]))
    with streaming(server.url, until="Once", json={"message": "A story", "conversation_id": "c1"}):
        began = time.monotonic()
        answer = says(server, "Stop")
        assert (answer.status, answer.error) == (
            409,
            {
                "code": "busy",
                "message": "A turn of this conversation is running; wait for its end, stop it, or send barge_in.",
                "field": "conversation_id",
            },
        )
        assert time.monotonic() - began < 1
    until_over(client)


class Storyteller(Player):
    """Tells a story without an end, as often as is said, and is short then."""

    def __init__(self, stories: int = 1) -> None:
        super().__init__()
        self.stories = stories

    async def stream(self, *args: Any, **more: Any) -> AsyncGenerator[Chunk, None]:
        self.passes = (["Once upon a time", WAIT],) if len(self.asked) < self.stories else (["Yes?"],)
        async for item in super().stream(*args, **more):
            yield item


def test_who_barges_in_is_answered_and_the_first_is_kept_as_cancelled(server: Server, client: httpx.Client) -> None:
    server.play(player := Storyteller())
    with ThreadPoolExecutor(1) as first:
        story = first.submit(says, server, "A story")
        assert player.open.wait(5)
        while texts(shown(client)) != ["A story", "[running]"]:
            time.sleep(0.01)
        began = time.monotonic()
        answer = says(server, "Stop!", barge_in=True)
        assert (answer.names[-1], answer.last["text"]) == ("done", "Yes?")
        assert player.closed[0] - began < 1, "the model's server is let go"
        assert (story.result(5).last["stop_reason"], story.result().last["text"]) == ("cancelled", "Once upon a time")
    assert texts(shown(client)) == ["A story", "Once upon a time[cancelled]", "Stop!", "Yes?"]
    assert [message.role for message in player.asked[1]] == ["system", "user", "assistant", "user"]
    assert player.asked[1][2].content == "Once upon a time", "the model knows what it had said"


def test_barging_in_where_nothing_runs_is_a_turn_like_others(server: Server, client: httpx.Client) -> None:
    assert says(server, "Hi", barge_in=True).last["text"] == "Hello."
    assert says(server, "Hi", barge_in=True).last["text"] == "Hello."
    assert texts(shown(client)) == ["Hi", "Hello.", "Hi", "Hello."]


def test_of_twenty_at_once_one_is_answered(server: Server, client: httpx.Client) -> None:
    server.play(player := Player(["Once ", 0.5, "upon a time"]))
    with ThreadPoolExecutor(20) as clients:
        answers = list(clients.map(lambda n: says(server, f"Question {n}?"), range(20)))
    assert sorted(answer.status for answer in answers) == [200, *[409] * 19]
    (number,) = (n for n, answer in enumerate(answers) if answer.status == 200)
    assert texts(shown(client)) == [f"Question {number}?", "Once upon a time"]
    assert len(player.asked) == 1


def test_of_twenty_who_barge_in_at_once_none_is_refused_mixed_or_lost(server: Server, client: httpx.Client) -> None:
    server.play(Player(["Once ", 0.5, "upon a time"]))
    with ThreadPoolExecutor(20) as clients:
        answers = list(clients.map(lambda n: says(server, f"Question {n}?", barge_in=True), range(20)))
    assert [answer.status for answer in answers] == [200] * 20
    assert all(answer.names.count("done") == 1 == answer.names[::-1].index("done") + 1 for answer in answers)
    reasons = [answer.last["stop_reason"] for answer in answers]
    assert sorted(reasons) == [*["cancelled"] * 19, "complete"]
    messages = shown(client)["messages"]
    assert len(messages) == 40
    of_answers = {
        answer.last["message_id"]: (f"Question {n}?", answer.last["text"]) for n, answer in enumerate(answers)
    }
    for asked, answered in zip(messages[::2], messages[1::2], strict=True):
        assert (asked["role"], answered["role"]) == ("user", "assistant")
        text = "".join(part["text"] for part in answered["parts"] if part["type"] == "text")
        assert of_answers.pop(answered["id"]) == (asked["parts"][0]["text"], text)
    assert texts(shown(client))[-1] == "Once upon a time"
    times = [message["time"] for message in messages]
    assert times == sorted(times)


# one conversation over protocols and restarts


def completed(url: str, conversation_id: str, *messages: Mapping[str, str]) -> str:
    headers = {"x-conversation-id": conversation_id}
    body = {"model": "brain", "messages": messages}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=10, trust_env=False)
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def test_a_conversation_goes_on_over_protocols_and_restarts(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'kept.db'}"
    with brain_served(STORE=store) as server:
        server.play(Player(["Hello Ada."]))
        says(server, "My name is Ada")
        server.play(Player(["You are Ada."]))
        history = [
            {"role": "user", "content": "My name is Ada"},
            {"role": "assistant", "content": "Hello Ada."},
            {"role": "user", "content": "Who am I?"},
        ]
        assert completed(server.url, "c1", *history) == "You are Ada."
    with brain_served(STORE=store) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        found = shown(client)
        assert texts(found) == ["My name is Ada", "Hello Ada.", "Who am I?", "You are Ada."]
        assert [m["source"] for m in found["messages"] if m["role"] == "user"] == ["chat", "api"]
        assert found["sources"] == ["chat", "api"]
        server.play(player := Player(["As I said: Ada."]))
        says(server, "Say it again", source="voice")
        told = [message.content for message in player.asked[0]]
        assert told[2] == "Hello Ada."
        assert told[4] == "You are Ada."
        assert shown(client)["sources"] == ["chat", "voice", "api"]


def test_a_server_that_died_leaves_its_answer_interrupted(tmp_path: Path) -> None:
    store = tmp_path / "kept.db"
    played = script(tmp_path, {"chunks": ["Once upon ", "a time"], "delay_ms": 500})
    env = {"BRAIN_STORE": f"sqlite:{store}", "BRAIN_MODEL": played, "BRAIN_PORT": "0"}
    with (
        Process("serve", env=env) as dying,
        streaming(dying.url(), until="Once", json={"message": "A story", "conversation_id": "c1"}),
    ):
        dying.process.kill()
        dying.process.wait(5)
    with brain_served(STORE=f"sqlite:{store}") as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        assert texts(shown(client)) == ["A story", "[interrupted]"]
        server.play(Player(["Hello."]))
        assert says(server, "Are you there?").last["text"] == "Hello.", "nobody holds it any more"


# what cannot be kept


def test_a_store_that_fails_is_said_to_be_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = tmp_path / "kept.db"
    with brain_served(STORE=f"sqlite:{store}") as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        server.play(Player(["Hello."]))
        says(server, "Hi")
        with closing(sqlite3.connect(store)) as db:
            db.execute("ALTER TABLE conversation RENAME TO gone")
        for method, path, body in (
            ("GET", "/v1/conversations", None),
            ("GET", "/v1/conversations/c1", None),
            ("PATCH", "/v1/conversations/c1", {"title": "x"}),
            ("DELETE", "/v1/conversations/c1", None),
        ):
            answer = client.request(method, path, json=body)
            assert refused(answer) == (503, "unavailable", "What is kept cannot be used.")
        assert says(server, "Hi").error["code"] == "unavailable"
    assert str(store) not in caplog.text


# files


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


def test_files_come_back_as_they_were_and_only_pictures_are_shown(client: httpx.Client) -> None:
    assert "event: done" in attach(client, *TYPES.items()).text
    heads = []
    for number, data in enumerate(TYPES.values(), 1):
        answer = client.get(f"/v1/conversations/c1/files/{number}")
        assert (answer.status_code, answer.content) == (200, data)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert answer.headers["cache-control"] == "private, no-cache"
        heads.append((answer.headers["content-type"], answer.headers["content-disposition"].partition(";")[0]))
    saved = ("application/octet-stream", "attachment")
    pictures = [(f"image/{kind}", "inline") for kind in ("png", "jpeg", "gif", "webp")]
    assert heads == [*pictures, saved, saved, saved, saved]


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
    says(server, "Read", attachments=[{"name": name, "text": "Tea."}])
    assert client.get("/v1/conversations/c1/files/1").headers["content-disposition"] == expected


def test_a_browser_asks_again_whether_it_still_is_the_same_file(client: httpx.Client) -> None:
    attach(client, ("a.png", PICTURE))
    first = client.get("/v1/conversations/c1/files/1")
    again = client.get("/v1/conversations/c1/files/1", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    client.delete("/v1/conversations/c1")
    attach(client, ("a.png", PICTURE + b"!"))
    other = client.get("/v1/conversations/c1/files/1", headers={"if-none-match": first.headers["etag"]})
    assert (other.status_code, other.content) == (200, PICTURE + b"!")


@pytest.mark.parametrize("number", ["2", "0", "-1", "x", "１", "1" * 30, "1.0"])
@pytest.mark.parametrize("conversation", ["c1", "c2", "a b"])
def test_what_is_no_file_does_not_exist(client: httpx.Client, number: str, conversation: str) -> None:
    attach(client, ("a.png", PICTURE))
    answer = client.get(f"/v1/conversations/{conversation}/files/{number}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def files_of(client: httpx.Client) -> tuple[list[list[int]], list[str]]:
    """The ids of the files of each question, and the names of all files."""
    found = shown(client)
    ids = [message["files"] for message in found["messages"] if message["role"] == "user"]
    return ids, [f"{one['id']} {one['name']}" for one in found["files"]]


def test_a_file_goes_along_when_its_question_is_asked_again(client: httpx.Client, server: Server) -> None:
    player = Player(["I see."])
    server.play(player)
    attach(client, ("a.png", PICTURE), ("b.txt", b"Tea."))
    attach(client, ("c.txt", b"Milk."))
    question = questions(shown(client))[0]
    sent = [{"id": 2}, {"name": "d.txt", "text": "Sugar."}, {"id": 1}]
    assert says(server, "And now?", replace_from=question, attachments=sent).names[-1] == "done"
    assert files_of(client) == ([[4, 5, 6]], ["4 b.txt", "5 a.png", "6 d.txt"])
    assert client.get("/v1/conversations/c1/files/5").content == PICTURE
    assert client.get("/v1/conversations/c1/files/1").status_code == 404
    told = player.asked[-1][-1].content
    assert [told.count(name) > 0 for name in ("b.txt", "a.png", "d.txt", "c.txt")] == [True, True, True, False]
    assert "Milk" not in told


def test_a_form_takes_files_along_as_well(client: httpx.Client) -> None:
    attach(client, ("a.png", PICTURE))
    (question,) = questions(shown(client))
    again = attach(client, ("b.txt", b"Tea."), replace_from=question, attachments='[{"id": 1}]')
    assert "event: done" in again.text
    assert files_of(client) == ([[2, 3]], ["2 a.png", "3 b.txt"])


def test_a_file_stays_with_its_question_when_that_is_not_replaced(client: httpx.Client, server: Server) -> None:
    attach(client, ("a.png", PICTURE))
    (question,) = questions(shown(client))
    server.play(Player([RuntimeError("the model fails")]))
    failed = says(server, "Again?", replace_from=question, attachments=[{"id": 1}])
    assert failed.names[-1] == "error"
    assert files_of(client) == ([[1]], ["1 a.png"])


@pytest.mark.parametrize(
    ("attachments", "field"),
    [
        ([{"id": 2}], "attachments[0].id"),
        ([{"name": "b.txt", "text": "x"}, {"id": 7}], "attachments[1].id"),
        ([{"id": 1}, {"id": 1}], "attachments[1].id"),
        ([{"id": 0}], "attachments[0].id"),
        ([{"id": -1}], "attachments[0].id"),
        ([{"id": 10**30}], "attachments[0].id"),
        ([{"id": "1"}], "attachments[0].id"),
        ([{"id": 1, "name": "a.png"}], "attachments[0].id"),
        ([{"id": 1, "text": "x"}], "attachments[0].id"),
        ([{"id": None}], "attachments[0].name"),
        ([{"id": 1}] * 11, "attachments"),
        ([{"id": 1}] * 200, "attachments"),
    ],
)
def test_what_is_no_file_of_the_question_is_named(
    client: httpx.Client, server: Server, attachments: list[dict[str, Any]], field: str
) -> None:
    attach(client, ("a.png", PICTURE))
    attach(client, ("b.txt", b"Tea."))
    first, _ = questions(shown(client))
    refused = says(server, "Again?", replace_from=first, attachments=attachments)
    assert (refused.status, refused.error["field"]) == (413 if len(attachments) > 10 else 400, field)
    assert files_of(client) == ([[1], [2]], ["1 a.png", "2 b.txt"])


def test_a_file_goes_along_only_where_its_question_is_replaced(client: httpx.Client, server: Server) -> None:
    attach(client, ("a.png", PICTURE))
    refused = says(server, "Again?", attachments=[{"id": 1}])
    assert (refused.status, refused.error["field"]) == (400, "attachments[0].id")
    assert "send replace_from, or the data" in refused.error["message"]
