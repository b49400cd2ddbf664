"""Users never see each other's data: every route and every built-in specialist, requested by another user.

Ada leaves a secret wherever something is stored. Bob requests all of it, by the same IDs and words. Where an address
shows users their own data, Ada requests it too and must get hers, so each attempt could have shown it.
"""

import base64
import json
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from brain_servers import Server, brain_served, client_of, settings
from starlette.routing import Route
from turn_helpers import PNG, Player

from brain import Context, Registry, specialist
from brain.messages import Chunk, Finish
from brain.models.model import PassRequest
from specialists._knowledge.index import Index, path_for

SECRET = "hilda"
WORD = "quokka"
"""The word that Bob searches for; the secret is next to it."""
FACT = f"My {WORD} is called {SECRET.title()}"
CHAT = "shared"
"""A conversation ID that both have."""
NOBODY = "http://127.0.0.1:9"
"""Nobody listens there: what specialists would fetch is public, and no part of this."""
KEYS = {"ada": "key-of-ada-0123456", "bob": "key-of-bob-0123456"}
SETTINGS = {
    "KEYS": ",".join(f"{key}:{user}" for user, key in KEYS.items()),
    "TASKS_AT_ONCE": "0",
    "SPECIALIST_PUBMED_BASE": f"{NOBODY}/",
    "SPECIALIST_WEB_BACKEND": "searxng",
    "SPECIALIST_WEB_SEARXNG": NOBODY,
    "SPECIALIST_WIKI_DEFAULT": "shelf",
    "SPECIALIST_WIKI_WIKIS": f"shelf={NOBODY}/api.php",
}


class Parrot(Player):
    """A model that makes the given calls, and then repeats everything in its prompt but its instructions."""

    def __init__(self, calls: str = "") -> None:
        super().__init__(name="parrot")
        self.calls = calls

    async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        if request.turn_pass == 0 and self.calls:
            yield self.calls
        else:
            for message in request.messages[1:]:
                yield message.content.replace("[", "(")
        yield Finish("stop")


@specialist(read_only=True, cache_seconds=600)
async def diary(page: int, *, context: Context) -> str:
    """Reads the user's diary."""
    return context.message


@specialist(approval="always", requires_user=True)
async def letter(to: str) -> str:
    """Sends a letter."""
    return f"Sent to {to}."


def call(name: str, **params: Any) -> str:
    return f"SPECIALIST_REQUEST[{name}:{json.dumps(params)}]"


class User:
    """A user with a client of their own."""

    def __init__(self, server: Server, client: httpx.Client) -> None:
        self.server = server
        self.client = client

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.client.request(method, path, **options)

    def start(self, message: str, calls: str = "", **more: Any) -> dict[str, str]:
        """Start a turn."""
        self.server.play(Parrot(calls))
        answer = self.ask("POST", "/v1/turns", json={"message": message, "conversation_id": CHAT, **more})
        assert answer.status_code == 201, answer.text
        turn: dict[str, str] = answer.json()
        return turn

    def run(self, message: str, calls: str = "", **more: Any) -> str:
        """All events of a turn, whose calls are approved."""
        turn = self.start(message, calls, **more)
        for call_id in self.approvals(turn):
            self.ask("POST", f"/v1/turns/{turn['turn_id']}/approvals/{call_id}", json={"approve": True})
        return self.ask("GET", turn["events"]).text

    def approvals(self, turn: Mapping[str, str]) -> Iterator[str]:
        """The calls of a turn that wait for an approval, as they come."""
        with self.client.stream("GET", turn["events"]) as response:
            name = ""
            for line in response.iter_lines():
                if line.startswith("data: ") and name == "event: approval_required":
                    yield json.loads(line[6:])["call_id"]
                name = line if line.startswith("event: ") else ""


class Stored(NamedTuple):
    """The IDs of what Ada has."""

    turn: str
    waiting: str
    call: str
    chat_approval: str
    interrupt: str
    question: str
    answer: str
    fact: str
    task: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("users")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    (folder / "calendars").mkdir()
    folders = {"SPECIALIST_CALENDAR_FOLDER": folder / "calendars", "SPECIALIST_KNOWLEDGE_DATABASE": folder / "index"}
    values = {**SETTINGS, **folders, "STORE": f"sqlite:{folder / 'brain.db'}"}
    registry = Registry(settings(**values)).discover()
    assert registry.refused == []
    registry.add(diary)
    registry.add(letter)
    with brain_served(registry, **values) as server:
        yield server


@pytest.fixture(scope="module")
def ada(server: Server) -> Iterator[User]:
    with client_of(server, KEYS["ada"]) as client:
        yield User(server, client)


@pytest.fixture(scope="module")
def bob(server: Server) -> Iterator[User]:
    with client_of(server, KEYS["bob"]) as client:
        yield User(server, client)


@pytest.fixture(scope="module")
def stored(folder: Path, ada: User) -> Stored:
    """Store Ada's secret wherever something is stored."""
    (folder / "documents").mkdir()
    (folder / "documents" / "zoo.txt").write_text(f"{FACT}.")
    with closing(Index(path_for(folder / "index", "ada"))) as index:  # as `brain index --user ada` does
        index.add_root("folder", str(folder / "documents"))
    files = [
        {"name": "note.txt", "text": f"{FACT}."},
        {"name": f"{SECRET}.png", "type": "image/png", "data": base64.b64encode(PNG).decode()},
    ]
    turn = ada.start(FACT, call("knowledge", query=WORD), request_id="same", attachments=files)["turn_id"]
    assert SECRET in ada.ask("GET", f"/v1/turns/{turn}/events").text.lower()
    saved = ada.run(f"Remember: {FACT}", call("memory", operation="save_fact", text=FACT))
    planned = ada.run("Plan it", call("calendar", action="create", title=FACT, start="2030-01-01T10:00"))
    later = ada.run("Later", call("tasks", operation="create", prompt=FACT, when="2126-01-01T10:00"))
    assert all("specialist_result" in one for one in (saved, planned, later))
    assert SECRET in ada.run(FACT, call("diary", page=1), conversation_id="plain").lower()
    ada.ask("PATCH", f"/v1/conversations/{CHAT}", json={"title": FACT})
    waiting = ada.start(FACT, call("letter", to=FACT), conversation_id="waits")
    call_id = next(ada.approvals(waiting))
    ada.server.play(Parrot(call("letter", to=FACT)))
    chat = ada.ask("POST", "/ai-sdk/chat", json={**chat_body(FACT), "resumable": True}).text
    (chat_approval,) = (json.loads(line[6:])["approvalId"] for line in chat.splitlines() if "approvalId" in line)
    run = ada.ask("POST", "/ag-ui/run", json=run_body(FACT)).text
    interrupt = json.loads(run.strip().rpartition("data: ")[2])["outcome"]["interrupts"][0]["id"]
    shown = ada.ask("GET", f"/v1/conversations/{CHAT}").json()["messages"]
    question, answer = (next(m["id"] for m in shown if m["role"] == role) for role in ("user", "assistant"))
    (fact,) = (item["id"] for item in ada.ask("GET", "/v1/memory").json()["items"])
    task = ada.ask("POST", "/v1/tasks", json={"prompt": FACT, "conversation_id": "tasks"}).json()["id"]
    return Stored(turn, waiting["turn_id"], call_id, chat_approval, interrupt, question, answer, fact, task)


# Every route


def body(**more: Any) -> dict[str, Any]:
    return {"message": "What was said?", "conversation_id": CHAT, **more}


def completion(**more: Any) -> dict[str, Any]:
    return {"model": "brain", "messages": [{"role": "user", "content": f"Who is my {WORD}?"}], **more}


def chat_body(text: str, *parts: Mapping[str, Any]) -> dict[str, Any]:
    messages = [{"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}]
    messages += [{"id": "a", "role": "assistant", "parts": [*parts]}] if parts else []
    return {"id": "chat", "sdk_version": 6, "messages": messages}


def approval_body(approval_id: str) -> dict[str, Any]:
    approval = {"id": approval_id, "approved": True}
    part = {"type": "dynamic-tool", "toolName": "letter", "toolCallId": approval_id, "state": "approval-responded"}
    return chat_body("Hi", {**part, "input": {}, "approval": approval})


def run_body(text: str, interrupt: str | None = None) -> dict[str, Any]:
    resume = [{"interruptId": interrupt, "status": "resolved", "payload": {"approved": True}}] if interrupt else []
    messages = [{"id": "m", "role": "user", "content": text}]
    return {"threadId": "thread", "runId": "run", "messages": messages, "resume": resume}


class Attempt(NamedTuple):
    """A request; `shows` says that it shows users their own secret."""

    method: str
    path: str
    json: Any = None
    shows: bool = False
    headers: Mapping[str, str] = {}

    def by(self, user: User) -> httpx.Response:
        user.server.play(Parrot())
        return user.ask(self.method, self.path, json=self.json, headers=self.headers)


def attempts(of: Stored) -> dict[str, list[Attempt]]:
    """What Bob tries, by the route's own path. A route that is missing here fails the test: it may show something."""
    turn, waits, chat = f"/v1/turns/{of.turn}", f"/v1/turns/{of.waiting}", f"/v1/conversations/{CHAT}"
    task = f"/v1/tasks/{of.task}"
    last_id, named = {"last-event-id": f"{of.turn}.1"}, {"x-conversation-id": CHAT}
    plain = [
        "/healthz", "/readyz", "/metrics", "/page/start", "/v1/specialists", "/v1/strategies", "/v1/models",
        "/api/tags", "/api/version", "/api/ps", "/",
    ]  # fmt: skip
    return {path: [Attempt("GET", path)] for path in plain} | {
        "/page/{file:path}": [Attempt("GET", "/page/icon.svg")],
        "/v1/session": [
            Attempt("GET", "/v1/session"),
            Attempt("POST", "/v1/session", {"key": KEYS["bob"]}),
            Attempt("DELETE", "/v1/session"),
        ],
        "/v1/chat/stream": [
            Attempt("POST", "/v1/chat/stream", body(), shows=True),
            Attempt("POST", "/v1/chat/stream", body(replace_from=of.answer)),
            Attempt("POST", "/v1/chat/stream", body(request_id="same"), shows=True),
            Attempt("POST", "/v1/chat/stream", {}, shows=True, headers=last_id),
            Attempt("GET", f"/v1/chat/stream?message=Again&conversation_id={CHAT}", shows=True),
            Attempt("GET", "/v1/chat/stream?message=x&request_id=same", shows=True),
            Attempt("GET", "/v1/chat/stream?message=x", shows=True, headers=last_id),
        ],
        "/v1/turns": [
            Attempt("POST", "/v1/turns", body(replace_from=of.question)),
            Attempt("POST", "/v1/turns", body(replace_from=of.question, attachments=[{"id": 1}])),
            Attempt("POST", "/v1/turns", body(request_id="same")),
        ],
        "/v1/turns/{id}": [Attempt("GET", turn), Attempt("GET", waits)],
        "/v1/turns/{id}/events": [
            Attempt("GET", f"{turn}/events", shows=True),
            Attempt("GET", f"{turn}/events?after=1", shows=True),
            Attempt("GET", f"{turn}/events", shows=True, headers=last_id),
            Attempt("HEAD", f"{turn}/events"),
        ],
        "/v1/turns/{id}/cancel": [Attempt("POST", f"{waits}/cancel")],
        "/v1/turns/{id}/steer": [Attempt("POST", f"{waits}/steer", {"message": "x"})],
        "/v1/turns/{id}/approvals/{call_id}": [Attempt("POST", f"{waits}/approvals/{of.call}", {"approve": True})],
        "/v1/conversations": [
            Attempt("GET", "/v1/conversations", shows=True),
            Attempt("GET", f"/v1/conversations?q={WORD}", shows=True),
            Attempt("GET", "/v1/conversations?before=waits"),
        ],
        "/v1/conversations/{id}": [
            Attempt("GET", chat, shows=True),
            Attempt("GET", f"{chat}?before={of.question}"),
            Attempt("GET", "/v1/conversations/waits"),
            Attempt("GET", "/v1/conversations/chat", shows=True),
            Attempt("PATCH", "/v1/conversations/waits", {"title": "x"}),
            Attempt("DELETE", "/v1/conversations/waits"),
            Attempt("DELETE", "/v1/conversations/chat"),
        ],
        "/v1/conversations/{id}/files/{number}": [
            Attempt("GET", f"{chat}/files/1", shows=True),
            Attempt("GET", f"{chat}/files/2"),
            Attempt("HEAD", f"{chat}/files/1"),
        ],
        "/v1/memory": [
            Attempt("GET", "/v1/memory", shows=True),
            Attempt("GET", f"/v1/memory?q={WORD}", shows=True),
            Attempt("GET", f"/v1/memory?before={of.fact}"),
            Attempt("POST", "/v1/memory", {"text": f"My {WORD} is called Otto"}),
            Attempt("PATCH", "/v1/memory", {"recall": False}),
            Attempt("PATCH", "/v1/memory", {"recall": True}),
        ],
        "/v1/memory/{id}": [
            Attempt("GET", f"/v1/memory/{of.fact}", shows=True),
            Attempt("PATCH", f"/v1/memory/{of.fact}", {"text": "x"}),
            Attempt("DELETE", f"/v1/memory/{of.fact}"),
        ],
        "/v1/conversations/{id}/typing": [Attempt("POST", f"{chat}/typing")],
        "/v1/tasks": [
            Attempt("GET", "/v1/tasks", shows=True),
            Attempt("GET", f"/v1/tasks?before={of.task}"),
            Attempt("POST", "/v1/tasks", {"prompt": "What was said?", "conversation_id": CHAT}),
        ],
        "/v1/tasks/events": [Attempt("GET", "/v1/tasks/events?after=x")],  # the stream itself does not end
        "/v1/tasks/{id}": [
            Attempt("GET", task, shows=True),
            Attempt("PATCH", task, {"title": "x"}),
            Attempt("DELETE", task),
        ],
        "/v1/tasks/{id}/cancel": [Attempt("POST", f"{task}/cancel")],
        "/v1/tasks/{id}/run": [Attempt("POST", f"{task}/run")],
        "/v1/tasks/{id}/approvals/{call_id}": [Attempt("POST", f"{task}/approvals/c1", {"approve": True})],
        "/v1/chat/completions": [
            Attempt("POST", "/v1/chat/completions", completion(), shows=True, headers=named),
            Attempt("POST", "/v1/chat/completions", completion(stream=True), shows=True, headers=named),
        ],
        "/v1/models/{name:path}": [Attempt("GET", "/v1/models/brain")],
        "/api/chat": [Attempt("POST", "/api/chat", completion(stream=False), shows=True)],
        "/api/generate": [
            Attempt("POST", "/api/generate", {"model": "brain", "prompt": f"Who is my {WORD}?"}, shows=True)
        ],
        "/api/show": [Attempt("POST", "/api/show", {"model": "brain"})],
        "/ai-sdk/chat": [
            Attempt("POST", "/ai-sdk/chat", approval_body(of.chat_approval)),
            Attempt("POST", "/ai-sdk/chat", chat_body("What was said?")),
        ],
        "/ai-sdk/chat/{id}/stream": [Attempt("GET", "/ai-sdk/chat/chat/stream")],
        "/ag-ui/run": [
            Attempt("POST", "/ag-ui/run", run_body("x", of.interrupt)),
            Attempt("POST", "/ag-ui/run", run_body("What was said?")),
        ],
    }


def test_every_route_is_tried(server: Server, stored: Stored) -> None:
    routes = set()
    for route in server.app.routes:
        assert isinstance(route, Route)
        assert route.methods is not None
        routes |= {(method, route.path) for method in route.methods & {"GET", "POST", "PATCH", "PUT", "DELETE"}}
    tried = {(attempt.method, path) for path, tries in attempts(stored).items() for attempt in tries}
    assert routes - tried == set()
    assert {path for _, path in tried} == {path for _, path in routes}


def data_of(ada: User, of: Stored) -> list[Any]:
    """All data of Ada, without times."""
    places = [
        f"/v1/turns/{of.waiting}",
        f"/v1/turns/{of.turn}",
        "/v1/conversations?limit=200",
        "/v1/memory",
        "/v1/tasks",
    ]
    places += [f"/v1/conversations/{name}" for name in (CHAT, "waits", "chat", "thread")]
    return [without_times(ada.ask("GET", place).json()) for place in places]


def without_times(found: Any) -> Any:
    """The same without what passes by itself: times, and the messages of a conversation whose turn runs."""
    if isinstance(found, dict):
        passing = {"ms", "messages"} if found.get("running") else {"ms"}
        names = [name for name in found if name not in passing and not name.endswith("_ms")]
        return {name: without_times(found[name]) for name in names}
    return [without_times(one) for one in found] if isinstance(found, list) else found


def test_no_route_shows_or_changes_data_of_another_user(
    ada: User, bob: User, stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "brain")
    before = data_of(ada, stored)
    assert all(SECRET in json.dumps(one).lower() for one in before[2:])
    everything = [attempt for tries in attempts(stored).values() for attempt in tries]
    for attempt in everything:
        answer = attempt.by(bob)
        assert answer.status_code < 500, (attempt, answer.text)
        assert SECRET not in f"{answer.text}{answer.headers}".lower(), attempt
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("brain")]
    assert len(logged) >= 5
    assert SECRET not in " ".join(logged).lower(), "nor is a word of a user in the log"
    assert data_of(ada, stored) == before
    for attempt in everything:
        if attempt.shows:
            assert SECRET in attempt.by(ada).text.lower(), f"{attempt} shows nothing to anybody"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/turns/{turn}"),
        ("GET", "/v1/turns/{turn}/events"),
        ("POST", "/v1/turns/{turn}/cancel"),
        ("GET", "/v1/conversations/{conversation}"),
        ("GET", "/v1/conversations?before={conversation}"),
        ("DELETE", "/v1/conversations/{conversation}"),
        ("GET", "/v1/memory/{fact}"),
        ("GET", "/v1/memory?before={fact}"),
        ("DELETE", "/v1/memory/{fact}"),
        ("GET", "/v1/tasks/{task}"),
        ("GET", "/v1/tasks?before={task}"),
        ("DELETE", "/v1/tasks/{task}"),
        ("POST", "/v1/tasks/{task}/cancel"),
        ("GET", "/ai-sdk/chat/{conversation}/stream"),
    ],
)
def test_data_of_another_user_does_not_exist(bob: User, stored: Stored, method: str, path: str) -> None:
    present = bob.ask(method, path.format(turn=stored.turn, conversation="waits", fact=stored.fact, task=stored.task))
    absent = bob.ask(method, path.format(turn="t0123456789abcdef", conversation="none", fact="none", task="none"))
    assert (present.status_code, present.text) == (absent.status_code, absent.text)


# Every specialist

CALLS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "calendar": [{"action": "list", "start": "2030-01-01", "end": "2030-01-02"}, {"action": "list", "query": WORD}],
    "diary": [{"page": 1}],
    "docs": [{"query": WORD}],
    "knowledge": [{"query": WORD}, {"query": WORD, "source": "note.txt"}, {"query": WORD, "source": "uploads"}],
    "letter": [{"to": "nobody"}],
    "medical": [{"search": WORD}],
    "memory": [
        {"operation": "facts"},
        {"operation": "search", "text": WORD},
        {"operation": "short_memory"},
        {"operation": "long_memory"},
        {"operation": "update_fact", "text": f"My {WORD} is called Otto", "id": "{fact}"},
        {"operation": "forget", "id": "{fact}"},
        {"operation": "forget", "text": WORD},
        {"operation": "save_fact", "text": f"My {WORD} is called Otto"},
    ],
    "ocr": [{"image_id": 1}, {"image_id": 2}],
    "pubmed": [{"query": WORD}],
    "tasks": [{"operation": "list"}],
    "vision": [{"image_id": 1}, {"image_id": 2}],
    "web": [{"query": WORD}],
    "wiki": [{"query": WORD}],
}
PERSONAL = {"calendar", "diary", "knowledge", "memory", "tasks"}
"""Those that store or receive data of a user."""


def test_every_specialist_is_tried(server: Server) -> None:
    assert set(CALLS) == set(server.engine.registry)


@pytest.mark.parametrize("name", CALLS)
def test_no_specialist_returns_data_of_another_user(ada: User, bob: User, stored: Stored, name: str) -> None:
    before = data_of(ada, stored)
    for params in CALLS[name]:
        given = {key: stored.fact if value == "{fact}" else value for key, value in params.items()}
        events = bob.run(f"My {WORD} is called Otto", call(name, **given))
        assert "specialist_" in events, params
        assert SECRET not in events.lower(), params
    assert data_of(ada, stored) == before
    if name in PERSONAL:
        own = ada.run("Mine?", call(name, **CALLS[name][0]), conversation_id=f"own-{name}", memory=False)
        assert SECRET in own.lower()


def test_users_recall_their_own_facts(ada: User, bob: User, stored: Stored) -> None:
    question = f"How is my {WORD} called?"
    bob.ask("POST", "/v1/memory", json={"text": f"My {WORD} is called Otto"})
    for user, own, other in ((ada, "hilda", "otto"), (bob, "otto", "hilda")):
        events = user.run(question, conversation_id="new").lower()
        assert ('"code":"recalled"' in events, own in events, other in events) == (True, True, False)
    bob.ask("PATCH", "/v1/memory", json={"recall": False})
    assert '"code":"recalled"' in ada.run(question, conversation_id="newer")
    assert '"code":"recalled"' not in bob.run(question, conversation_id="newer")


def test_a_deletion_of_one_user_leaves_the_data_of_the_other(
    folder: Path, ada: User, bob: User, stored: Stored
) -> None:
    def uploads(user: str) -> list[str]:
        with closing(Index(path_for(folder / "index", user))) as index:
            return [root.place for root in index.roots("conversation") if index.files(root)]

    bob.run("Hi", call("knowledge", query=WORD), attachments=[{"name": "note.txt", "text": f"A {WORD}."}])
    before = data_of(ada, stored)
    assert uploads("ada") == uploads("bob") == [CHAT]
    assert bob.ask("DELETE", f"/v1/conversations/{CHAT}").status_code == 204
    assert (uploads("ada"), uploads("bob")) == ([CHAT], [])
    assert data_of(ada, stored) == before
    own = ada.run("Mine?", call("knowledge", query=WORD, source="note.txt"), memory=False)
    assert "specialist_result" in own


def test_at_last_the_user_still_decides_what_waited(ada: User, stored: Stored) -> None:
    place = f"/v1/turns/{stored.waiting}"
    assert ada.ask("POST", f"{place}/approvals/{stored.call}", json={"approve": True}).status_code == 200
    assert "Sent to" in ada.ask("GET", f"{place}/events").text
    assert "Sent to" in ada.ask("POST", "/ai-sdk/chat", json=approval_body(stored.chat_approval)).text
    assert "Sent to" in ada.ask("POST", "/ag-ui/run", json=run_body("x", stored.interrupt)).text
