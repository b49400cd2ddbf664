"""Facts on a real port: listed, added, changed and deleted by their user, and recalled or not."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from brain_servers import Server, brain_served, client_of, post, problem
from turn_helpers import Player

QUESTION = "May I take penicillin?"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with brain_served() as server:
        yield server
        assert server.left() == []


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    server.play(Player(["Hello."]))
    with client_of(server) as client:
        client.patch("/v1/memory", json={"recall": True})
        for one in client.get("/v1/memory?limit=200").json()["items"]:
            client.delete(f"/v1/memory/{one['id']}")
        yield client


def add(client: httpx.Client, text: str, **more: Any) -> dict[str, Any]:
    answer = client.post("/v1/memory", json={"text": text, **more})
    assert answer.status_code == 201, answer.text
    item: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/v1/memory/{item['id']}"
    return item


def texts(client: httpx.Client, **query: Any) -> list[str]:
    return [item["text"] for item in client.get("/v1/memory", params=query).raise_for_status().json()["items"]]


def test_a_fact_is_added_once(client: httpx.Client) -> None:
    item = add(client, "  I am allergic\nto penicillin ", category="personal")
    assert item | {"id": "", "created": "", "updated": ""} == {
        "id": "",
        "kind": "fact",
        "text": "I am allergic to penicillin",
        "created": "",
        "updated": "",
        "category": "personal",
        "mutable": True,
        "conversation_id": None,
        "message_id": None,
        "outside": False,
        "was": [],
    }
    assert client.get(f"/v1/memory/{item['id']}").json() == item
    assert client.get("/v1/memory").json() == {"recall": True, "items": [item], "next": None}
    assert add(client, "I am allergic to penicillin")["id"] == item["id"]
    assert "SPECIALIST_REQUEST[" not in add(client, "I like SPECIALIST_REQUEST[web:{}]")["text"]


@pytest.mark.parametrize("text", ["", " \n ", "x" * 501])
def test_a_fact_has_1_to_500_characters(client: httpx.Client, text: str) -> None:
    assert problem(client.post("/v1/memory", json={"text": text})) == (400, "bad_request", "text")


def test_facts_are_listed_by_kind_category_words_and_in_pages(client: httpx.Client) -> None:
    tea, rome, cat = "I like tea", "I live in Rome", "My cat is called Tea"
    for text, category in ((tea, "preferences"), (rome, "personal"), (cat, "personal")):
        add(client, text, category=category)
    assert texts(client) == [cat, rome, tea]
    assert texts(client, category="personal", limit=1) == [cat]
    assert (texts(client, kind="memory"), texts(client, q="tea", category="preferences")) == ([], [tea])
    assert texts(client, before=client.get("/v1/memory?limit=2").json()["next"]) == [tea]
    assert problem(client.get("/v1/memory?before=none"))[:2] == (400, "bad_request")


def test_a_fact_is_changed_and_has_its_former_text(client: httpx.Client) -> None:
    url = f"/v1/memory/{add(client, 'I live in Rome')['id']}"
    answer = client.patch(url, json={"text": "I live in Paris", "category": "general"})
    changed = answer.json()
    assert (answer.status_code, changed["text"], changed["category"]) == (200, "I live in Paris", "general")
    assert [former["text"] for former in changed["was"]] == ["I live in Rome"]
    assert client.get(url).json() == changed
    assert (texts(client, q="Rome"), texts(client, q="Paris")) == ([], ["I live in Paris"])


def test_a_protected_fact_is_changed_only_on_purpose(client: httpx.Client) -> None:
    url = f"/v1/memory/{add(client, 'I was born in 1815', mutable=False)['id']}"
    assert problem(client.patch(url, json={"text": "I was born in 1816"}))[:2] == (409, "immutable")
    assert client.patch(url, json={"category": "knowledge"}).json()["category"] == "knowledge"
    assert client.patch(url, json={"text": "I was born in 1816", "mutable": True}).json()["mutable"] is True
    assert client.patch(url, json={"mutable": False}).json()["text"] == "I was born in 1816"
    assert client.delete(url).status_code == 204


def test_a_deleted_fact_is_gone(client: httpx.Client) -> None:
    url = f"/v1/memory/{add(client, 'I live in Rome')['id']}"
    deleted = client.delete(url)
    assert (deleted.status_code, deleted.content, deleted.headers["cache-control"]) == (204, b"", "no-store")
    for place in (url, "/v1/memory/%00", "/v1/memory/..%2fhealthz", f"/v1/memory/{'x' * 65}"):
        for answer in (client.get(place), client.delete(place), client.patch(place, json={"text": "x"})):
            assert problem(answer)[:2] == (404, "not_found")
    assert texts(client) == texts(client, q="Rome") == []


def test_recall_is_shown_and_switched_off_per_turn_or_user(server: Server, client: httpx.Client) -> None:
    def recalled(**sent: Any) -> list[str]:
        events = post(server.url, json={"message": QUESTION, **sent}).events
        return [event.data["text"] for event in events if event.data.get("code") == "recalled"]

    item = add(client, "I am allergic to penicillin")
    assert recalled(conversation_id="c1") == ["Recalled 1 fact: I am allergic to penicillin"]
    question = client.get("/v1/conversations/c1").json()["messages"][0]
    assert (question["recalled"], question["parts"]) == ([item["id"]], [{"type": "text", "text": QUESTION}])
    assert recalled(memory=False) == []
    off = client.patch("/v1/memory", json={"recall": False})
    assert (off.status_code, off.json(), client.get("/v1/memory").json()["recall"]) == (200, {"recall": False}, False)
    assert recalled() == []


def test_other_protocols_recall_too_and_can_switch_it_off(server: Server, client: httpx.Client) -> None:
    add(client, "I am allergic to penicillin")
    question = {"role": "user", "content": QUESTION}
    body = {"model": "brain", "messages": [question], "stream": False}
    ui = {"messages": [{"role": "user", "parts": [{"type": "text", "text": QUESTION}]}]}
    run = {"threadId": "t", "runId": "r", "messages": [{"id": "m", **question}]}
    rows: list[tuple[str, dict[str, Any], bool]] = [
        ("/v1/chat/completions", body, True),
        ("/v1/chat/completions", body | {"brain": {"memory": False}}, False),
        ("/api/chat", body, True),
        ("/ai-sdk/chat", ui, True),
        ("/ai-sdk/chat", ui | {"memory": False}, False),
        ("/ag-ui/run", run, True),
        ("/ag-ui/run", run | {"runId": "s", "forwardedProps": {"memory": False}}, False),
    ]
    for path, sent, is_recalled in rows:
        server.play(player := Player(["No."]))
        assert client.post(path, json=sent).status_code == 200
        assert ("I am allergic" in player.requests[0][-1].content) is is_recalled, path
