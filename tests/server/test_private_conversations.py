"""Private conversations on a real port: no model server that is remote receives any of them."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from brain_servers import Answer, Server, brain_served, client_of, post, problem
from limits import WAIT_SECONDS
from model_servers import Cut, OllamaServer, OpenAIServer, Pass, Raw, in_thread, models
from turn_helpers import registry_of

from brain import Context, specialist
from specialists.tasks import tasks

MARKER = 'SPECIALIST_REQUEST[%s:{"query":"tea"}]'
EXPERT = '{"expert": {"model": "remote"}}'
OLLAMA = {"GET /api/version": (200, {"version": "0.9.0"}), "POST /api/show": (200, {"capabilities": ["completion"]})}


@specialist(read_only=True, sends=("query",))
async def shop(query: str) -> str:
    """Searches a shop on the web."""
    return f"{query}: 3 EUR"


@specialist
async def note(query: str) -> str:
    """Writes a note, perhaps on another host."""
    return "Noted."


@specialist(read_only=True)
async def sneaky(query: str, *, context: Context) -> str:
    """Fetches a page, but does not declare what it sends."""
    return (await context.fetch(f"https://example.com/{query}")).text


@specialist(read_only=True)
async def similar(query: str, *, context: Context) -> str:
    """Compares texts by meaning."""
    return str(len(await context.model.embed([query])))


@dataclass
class Pair:
    """Brain with a remote and a local model."""

    brain: Server
    remote: OpenAIServer
    local: OllamaServer

    def send(self, message: str, **more: Any) -> Answer:
        return post(self.brain.url, json={"message": message, "conversation_id": "c1", **more})

    def model_of(self, message: str, **more: Any) -> str:
        """The model that answers a message."""
        events = self.send(message, **more).events
        assert events[-1].name == "done"
        return str(events[0].data["model"])


@contextmanager
def pair(*passes: Pass, model: str = "remote,local", **settings: str) -> Iterator[Pair]:
    """The remote model is a server of this machine in the row of a table that says so."""
    with (
        in_thread(OpenAIServer(*[Pass(["Far."])] * 9, answers=models("r", owned_by="test"))) as remote,
        in_thread(OllamaServer(*passes, *[Pass(["Near."])] * 9, answers=OLLAMA)) as local,
    ):
        rows = {
            "remote": {"is": "openai:r", "url": remote.url, "local": False},
            "local": {"is": "ollama:l", "url": local.url, "fallback": ["remote"]},
        }
        settings = {"MODELS": json.dumps(rows), "MODEL": model, "STORE": "memory:"} | settings
        with brain_served(registry_of(shop, note, sneaky, similar, tasks), **settings) as brain:
            assert isinstance(remote, OpenAIServer)
            assert isinstance(local, OllamaServer)
            yield Pair(brain, remote, local)


def test_only_local_models_answer() -> None:
    with pair() as one, client_of(one.brain) as client:
        assert one.model_of("Secret?", private=True) == "local"
        assert one.model_of("More?") == one.model_of("More?", private=False) == "local"
        for more in ({}, {"private": True}, {"private": False}):
            assert problem(one.send("Remote?", model="remote", **more)) == (400, "bad_request", "model")
        assert problem(one.send("?", private=True, model="remote", conversation_id="new")) == (
            400,
            "bad_request",
            "model",
        )
        listed = client.get("/v1/conversations").json()["conversations"]
        assert [(entry["id"], entry["messages"], entry["private"]) for entry in listed] == [("c1", 6, True)]
        assert client.get("/v1/conversations/c1").json()["private"] is True
        form = {"message": (None, "Secret?"), "private": (None, "true")}
        assert post(one.brain.url, files=form).events[0].data["model"] == "local"
        query = {"message": "Secret?", "private": "true"}
        assert '"model":"local"' in client.get("/v1/chat/stream", params=query).text
        assert one.remote.generated == []
        assert one.model_of("Hello?", conversation_id="c2") == "remote"


def test_a_conversation_becomes_private() -> None:
    with pair() as one, client_of(one.brain) as client:
        assert one.model_of("Hello?") == "remote"
        assert "private" not in client.get("/v1/conversations/c1").json()
        assert one.model_of("Secret?", private=True) == one.model_of("More?") == "local"
        assert "Secret" not in str(one.remote.generated)


def test_no_local_model() -> None:
    with pair(model="remote") as one:
        assert problem(one.send("Secret?", private=True)) == (400, "bad_request", "private")
        assert one.remote.generated == []


def test_no_remote_model_has_a_role() -> None:
    with pair(THINKER="remote", ACTOR="local") as one:
        assert one.send("Secret?", private=True, strategy="dual").events[-1].name in ("done", "error")
        assert one.remote.generated == []
        one.send("Hello?", strategy="dual", conversation_id="c2")
        assert one.remote.generated != []


def test_a_client_that_sends_its_history() -> None:
    body = {"id": "c1", "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "Secret?"}]}]}
    with pair() as one, client_of(one.brain) as client:
        assert "Near." in client.post("/ai-sdk/chat", json=body | {"private": True}).text
        assert "Near." in client.post("/ai-sdk/chat", json=body).text
        assert one.remote.generated == []


@pytest.mark.parametrize(
    ("profile", "private", "conversation", "status"),
    [
        ("standard", True, None, 201),
        ("expert", True, None, 400),
        ("expert", False, "c1", 400),  # which is private
        ("expert", False, "c2", 201),
        ("expert", False, None, 201),
    ],
)
def test_a_private_task_with_a_remote_model_is_refused_at_once(
    profile: str, private: bool, conversation: str | None, status: int
) -> None:
    with pair(TASK_PROFILES=EXPERT, TASKS_AT_ONCE="0") as one, client_of(one.brain) as client:
        one.send("Secret?", private=True)
        task = {"prompt": "Work", "profile": profile, "private": private, "conversation_id": conversation}
        answer = client.post("/v1/tasks", json=task)
        assert answer.status_code == status
        if status == 400:
            assert problem(answer) == (400, "bad_request", "profile")
            assert problem(client.post("/v1/tasks", json=task | {"dry_run": True, "private": True}))[0] == 400
            assert client.get("/v1/tasks").json()["tasks"] == []


def test_a_model_cannot_plan_a_private_task_for_a_remote_model() -> None:
    task = {"operation": "create", "prompt": "Work", "profile": "expert", "every": "every monday"}
    with pair(Pass([f"SPECIALIST_REQUEST[tasks:{json.dumps(task)}]"]), TASK_PROFILES=EXPERT) as one:
        errors = [event.data["code"] for event in one.send("Plan", private=True).events if "error" in event.name]
        assert errors == ["refused"]  # before anybody is asked


def test_no_remote_model_continues() -> None:
    with pair(Pass(["Ne", Cut()], finish=None), Pass(["Ne", Cut()], finish=None)) as one:
        assert one.send("Secret?", private=True).last["code"] == "model_failed"
        assert one.remote.generated == []
        assert one.send("Hello?", model="local", conversation_id="c2").last["text"] == "NeFar."


@pytest.mark.parametrize("name", ["shop", "note"])
def test_a_call_that_sends_or_changes_something_needs_approval(name: str) -> None:
    body = {"messages": [{"role": "user", "content": "Tea?"}], "brain": {"private": True}}
    call = Pass([MARKER % name])
    with pair(call, Pass(["Near."]), call) as one, client_of(one.brain) as client:
        run = client.post("/v1/turns", json={"message": "Tea?", "private": True}).json()
        with client.stream("GET", run["events"]) as stream:
            lines = stream.iter_lines()
            assert "event: approval_required" in lines
            text = json.loads(next(lines)[6:]).get("text")
            assert text == ('Sends to another server: {"query": "tea"}' if name == "shop" else None)
            assert client.post(f"/v1/turns/{run['turn_id']}/approvals/c1", json={"approve": True}).status_code == 200
            assert "event: specialist_result" in lines
            assert "event: done" in lines
        answer = httpx.post(
            f"{one.brain.url}/v1/chat/completions", json=body, timeout=WAIT_SECONDS, trust_env=False
        ).json()
        assert answer["choices"][0]["message"]["content"] == "Near."
        assert f"{name} failed - " in one.local.generated[-1]["messages"][-1]["content"]
        assert one.remote.generated == []


def test_a_specialist_that_declares_nothing_cannot_fetch() -> None:
    with pair(Pass([MARKER % "sneaky"])) as one:
        errors = [event.data["code"] for event in one.send("Tea?", private=True).events if "error" in event.name]
        assert errors == ["refused"]


def test_a_remote_server_makes_no_embeddings() -> None:
    with pair(Pass([MARKER % "similar"]), Pass(["Near."]), Pass([MARKER % "similar"]), EMBEDDINGS="remote") as one:
        for private, count in ((True, 0), (False, 1)):
            errors = one.send("Tea?", private=private, model="local", conversation_id=f"c{count}").names
            assert "specialist_error" in errors
            assert one.remote.lines.count("POST /v1/embeddings") == count


KEY, WORD = "sk-0123456789abcdef", "penicillin"
ECHO = f"cannot read {WORD} with Bearer {KEY}"


@specialist(approval="always")
async def fails(query: str) -> str:
    """Fails with the words that it was given, and a key."""
    raise RuntimeError(query) from ValueError(f"{query}, {KEY}")


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize(
    "passes",
    [
        *[[Pass(status=status, answer={"error": {"message": ECHO}})] for status in (400, 401, 404, 422, 429, 500)],
        *[
            [Pass(["Near", Raw(f"data: {json.dumps(event)}\n\n".encode())])]
            for event in ({"error": ECHO}, {"usage": ECHO})
        ],
        [Pass(["Near", Raw(f'data: {{"x": "{ECHO}\n\n'.encode()), "by."])],
        [Pass(["Near"], finish=ECHO)],
        [Pass(status=400, answer={"error": {"message": ECHO, "code": "content_filter"}})],
        [Pass(answer=ECHO, kind="text/plain")],
        [Pass([MARKER.replace("tea", WORD) % "fails"]), Pass(["Near."])],
    ],
)
def test_no_key_and_no_word_of_a_private_conversation_is_logged(
    passes: list[Pass], private: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "brain")
    with in_thread(OpenAIServer(*passes * 3, answers=models("l", owned_by="test"))) as local:
        rows = {"local": {"is": "openai:l", "url": local.url, "local": True, "key": KEY}}
        settings = {"MODELS": json.dumps(rows), "MODEL": "local", "STORE": "memory:"}
        with brain_served(registry_of(fails), **settings) as brain, client_of(brain) as client:
            run = client.post("/v1/turns", json={"message": f"Is {WORD} safe?", "private": private}).json()
            with client.stream("GET", run["events"]) as stream:
                for line in stream.iter_lines():
                    if line == "event: approval_required":
                        client.post(f"/v1/turns/{run['turn_id']}/approvals/c1", json={"approve": True})
    logged = [logging.Formatter().format(record) for record in caplog.records if record.name == "brain"]
    assert any(run["turn_id"] in line for line in logged)
    assert KEY not in "".join(logged)
    if private or passes[0].status != 200:
        assert (WORD in "".join(logged)) is not private


@pytest.mark.parametrize("private", ["yes", 1, "true"])
def test_private_is_true_or_false(private: Any) -> None:
    with pair() as one:
        assert problem(one.send("Secret?", private=private)) == (400, "bad_request", "private")
