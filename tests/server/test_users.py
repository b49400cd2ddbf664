"""Users never see each other's data: every route and every built-in specialist, asked by another user for the same.

Ada leaves a secret wherever something is kept. Bob then asks for all of it, by the same ids and words. Where an address
gives a user their own data, Ada is asked as well, and must get hers: so each of them could show it.
"""

import base64
import inspect
import json
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from playing import PNG
from serving import Player, Server, brain_served, settings
from starlette.routing import Route

from brain import Context, Registry, specialist
from brain.messages import Chunk, Finish, Message
from brain.turn_request import UNSAID, Sampling
from specialists._knowledge.index import Index, path_for

SECRET = "hilda"
WORD = "quokka"
"""What Bob asks for; the secret is what stands beside it."""
SAID = f"My {WORD} is called {SECRET.title()}"
CONVERSATION = "shared"
ADA = {"authorization": "Bearer key-of-ada-0123456"}
BOB = {"authorization": "Bearer key-of-bob-0123456"}
NOBODY = "http://127.0.0.1:9"
"""Where nobody listens: what specialists would fetch is public, and no part of this."""

SETTINGS = {
    "KEYS": "key-of-ada-0123456:ada,key-of-bob-0123456:bob",
    "SPECIALIST_PUBMED_BASE": f"{NOBODY}/",
    "SPECIALIST_WEB_BACKEND": "searxng",
    "SPECIALIST_WEB_SEARXNG": NOBODY,
    "SPECIALIST_WIKI_DEFAULT": "shelf",
    "SPECIALIST_WIKI_WIKIS": f"shelf={NOBODY}/api.php",
}


class Parrot(Player):
    """A model that makes the calls it is to make, and then repeats all that it was told but for its instructions."""

    def __init__(self, calls: str = "") -> None:
        super().__init__(name="parrot")
        self.calls = calls

    async def stream(
        self, messages: Sequence[Message], turn_pass: int = 0, sampling: Sampling = UNSAID
    ) -> AsyncGenerator[Chunk, None]:
        if turn_pass == 0 and self.calls:
            yield self.calls
        else:
            for message in messages[1:]:
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


def marker(name: str, **params: Any) -> str:
    return f"SPECIALIST_REQUEST[{name}:{json.dumps(params)}]"


@dataclass
class Asker:
    """A user with a client of their own."""

    server: Server
    headers: Mapping[str, str]
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = httpx.Client(base_url=self.server.url, headers=self.headers, timeout=20, trust_env=False)

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.client.request(method, path, **options)

    def begun(self, message: str, calls: str = "", **more: Any) -> dict[str, str]:
        """A turn that runs on."""
        self.server.play(Parrot(calls))
        answer = self.ask("POST", "/v1/turns", json={"message": message, "conversation_id": CONVERSATION, **more})
        assert answer.status_code == 201, answer.text
        turn: dict[str, str] = answer.json()
        return turn

    def waiting(self, message: str, calls: str, **more: Any) -> tuple[str, str]:
        """A turn that waits for an approval: its ID, and that of the call."""
        turn = self.begun(message, calls, **more)
        return turn["turn_id"], next(self._approvals(turn))

    def told(self, message: str, calls: str = "", **more: Any) -> str:
        """All events of a turn, whose calls are approved."""
        turn = self.begun(message, calls, **more)
        for call_id in self._approvals(turn):
            self.ask("POST", f"/v1/turns/{turn['turn_id']}/approvals/{call_id}", json={"approve": True})
        return self.ask("GET", turn["events"]).text

    def _approvals(self, turn: Mapping[str, str]) -> Iterator[str]:
        """The calls of a turn that wait for an approval, as they come."""
        with self.client.stream("GET", turn["events"]) as response:
            name = ""
            for line in response.iter_lines():
                if line.startswith("data: ") and name == "event: approval_required":
                    yield json.loads(line[6:])["call_id"]
                name = line if line.startswith("event: ") else ""


@dataclass(frozen=True)
class Hers:
    """What Ada has, by its ids."""

    turn: str
    waiting: str
    call: str
    chat_approval: str
    interrupt: str
    question: str
    answer: str
    fact: str


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("users")


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Server]:
    folders = {"SPECIALIST_CALENDAR_FOLDER": data / "calendars", "SPECIALIST_KNOWLEDGE_DATABASE": data / "knowledge"}
    values = {**SETTINGS, **folders, "STORE": f"sqlite:{data / 'kept.db'}"}
    registry = Registry(settings(**values)).discover()
    assert registry.refused == []
    registry.add(diary)
    registry.add(letter)
    with brain_served(registry, **values) as running:
        yield running


@pytest.fixture(scope="module")
def ada(server: Server) -> Iterator[Asker]:
    asker = Asker(server, ADA)
    yield asker
    asker.client.close()


@pytest.fixture(scope="module")
def bob(server: Server) -> Iterator[Asker]:
    asker = Asker(server, BOB)
    yield asker
    asker.client.close()


@pytest.fixture(scope="module")
def hers(data: Path, ada: Asker) -> Hers:
    """Ada's secret is wherever something is kept."""
    (data / "documents").mkdir()
    (data / "documents" / "zoo.txt").write_text(f"{SAID}.")
    with closing(Index(path_for(data / "knowledge", "ada"))) as index:  # as `brain index --user ada` does
        index.add_root("folder", str(data / "documents"))
    note = [
        {"name": "note.txt", "text": f"{SAID}."},
        {"name": f"{SECRET}.png", "type": "image/png", "data": base64.b64encode(PNG).decode()},
    ]
    turn = ada.begun(SAID, marker("knowledge", query=WORD), request_id="same", attachments=note)["turn_id"]
    assert SECRET in ada.ask("GET", f"/v1/turns/{turn}/events").text.lower()
    saved = ada.told(f"Remember: {SAID}", marker("memory", operation="save_fact", text=SAID))
    assert "specialist_result" in saved
    made = ada.told("Plan it", marker("calendar", action="create", title=SAID, start="2030-01-01T10:00"))
    assert "specialist_result" in made
    assert SECRET in ada.told(SAID, marker("diary", page=1), conversation_id="plain").lower()
    ada.ask("PATCH", f"/v1/conversations/{CONVERSATION}", json={"title": SAID})
    waiting, call = ada.waiting(SAID, marker("letter", to=SAID), conversation_id="waits")
    shown = ada.ask("GET", f"/v1/conversations/{CONVERSATION}").json()["messages"]
    (fact,) = (item["id"] for item in ada.ask("GET", "/v1/memory").json()["items"])
    return Hers(
        turn,
        waiting,
        call,
        _chat_approval(ada),
        _interrupt(ada),
        next(message["id"] for message in shown if message["role"] == "user"),
        next(message["id"] for message in shown if message["role"] == "assistant"),
        fact,
    )


def _chat_approval(ada: Asker) -> str:
    ada.server.play(Parrot(marker("letter", to=SAID)))
    answer = ada.ask("POST", "/ai-sdk/chat", json={**chatted(SAID), "resumable": True})
    (found,) = (json.loads(line[6:])["approvalId"] for line in answer.text.splitlines() if "approvalId" in line)
    return str(found)


def _interrupt(ada: Asker) -> str:
    ada.server.play(Parrot(marker("letter", to=SAID)))
    answer = ada.ask("POST", "/ag-ui/run", json=run(SAID))
    last = json.loads(answer.text.strip().rpartition("data: ")[2])
    return str(last["outcome"]["interrupts"][0]["id"])


def chatted(text: str, **more: Any) -> dict[str, Any]:
    message = {"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": "chat", "sdk_version": 6, "messages": [message], **more}


def run(text: str, **more: Any) -> dict[str, Any]:
    return {"threadId": "thread", "runId": "run", "messages": [{"id": "m", "role": "user", "content": text}], **more}


# every route


@dataclass(frozen=True)
class Attempt:
    """One request, by method and path; `shows` says that it gives who asks their own secret."""

    method: str
    path: str
    shows: bool = False
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def by(self, asker: Asker) -> httpx.Response:
        asker.server.play(Parrot())
        return asker.ask(self.method, self.path, json=self.json, headers=self.headers)


def native(**more: Any) -> dict[str, Any]:
    return {"message": "What was said?", "conversation_id": CONVERSATION, **more}


def completion(**more: Any) -> dict[str, Any]:
    return {"model": "brain", "messages": [{"role": "user", "content": f"Who is my {WORD}?"}], **more}


def decided(approval_id: str) -> dict[str, Any]:
    part = {
        "type": "dynamic-tool",
        "toolName": "letter",
        "toolCallId": approval_id,
        "state": "approval-responded",
        "input": {},
        "approval": {"id": approval_id, "approved": True},
    }
    user = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
    return {"id": "chat", "sdk_version": 6, "messages": [user, {"id": "a", "role": "assistant", "parts": [part]}]}


def attempts(hers: Hers) -> dict[str, list[Attempt]]:
    """What Bob tries, by the route's own path. A route that is not here fails the test: think what it could show."""
    of_turn, waits = f"/v1/turns/{hers.turn}", f"/v1/turns/{hers.waiting}"
    last_id = {"last-event-id": f"{hers.turn}.1"}
    named = {"x-conversation-id": CONVERSATION}
    resumed = [{"interruptId": hers.interrupt, "status": "resolved", "payload": {"approved": True}}]
    return {
        "/": [Attempt("GET", "/")],
        "/page/{file:path}": [Attempt("GET", "/page/icon.svg")],
        "/page/start": [Attempt("GET", "/page/start")],
        "/healthz": [Attempt("GET", "/healthz")],
        "/readyz": [Attempt("GET", "/readyz")],
        "/metrics": [Attempt("GET", "/metrics")],
        "/v1/session": [
            Attempt("GET", "/v1/session"),
            Attempt("POST", "/v1/session", json={"key": "key-of-bob-0123456"}),
            Attempt("DELETE", "/v1/session"),
        ],
        "/v1/specialists": [Attempt("GET", "/v1/specialists")],
        "/v1/chat/stream": [
            Attempt("POST", "/v1/chat/stream", shows=True, json=native()),
            Attempt("POST", "/v1/chat/stream", json=native(replace_from=hers.answer)),
            Attempt("POST", "/v1/chat/stream", shows=True, json=native(request_id="same")),
            Attempt("POST", "/v1/chat/stream", shows=True, json={}, headers=last_id),
            Attempt("GET", f"/v1/chat/stream?message=Again&conversation_id={CONVERSATION}", shows=True),
            Attempt("GET", "/v1/chat/stream?message=x&request_id=same", shows=True),
            Attempt("GET", "/v1/chat/stream?message=x", shows=True, headers=last_id),
        ],
        "/v1/turns": [
            Attempt("POST", "/v1/turns", json=native(replace_from=hers.question)),
            Attempt("POST", "/v1/turns", json=native(replace_from=hers.question, attachments=[{"id": 1}])),
            Attempt("POST", "/v1/turns", json=native(request_id="same")),
        ],
        "/v1/turns/{id}": [Attempt("GET", of_turn), Attempt("GET", waits)],
        "/v1/turns/{id}/events": [
            Attempt("GET", f"{of_turn}/events", shows=True),
            Attempt("GET", f"{of_turn}/events?after=1", shows=True),
            Attempt("GET", f"{of_turn}/events", shows=True, headers=last_id),
            Attempt("HEAD", f"{of_turn}/events"),
        ],
        "/v1/turns/{id}/cancel": [Attempt("POST", f"{waits}/cancel")],
        "/v1/turns/{id}/steer": [Attempt("POST", f"{waits}/steer", json={"message": "x"})],
        "/v1/turns/{id}/approvals/{call_id}": [
            Attempt("POST", f"{waits}/approvals/{hers.call}", json={"approve": True})
        ],
        "/v1/conversations": [
            Attempt("GET", "/v1/conversations", shows=True),
            Attempt("GET", f"/v1/conversations?q={WORD}", shows=True),
            Attempt("GET", "/v1/conversations?before=waits"),
        ],
        "/v1/conversations/{id}": [
            Attempt("GET", f"/v1/conversations/{CONVERSATION}", shows=True),
            Attempt("GET", f"/v1/conversations/{CONVERSATION}?before={hers.question}"),
            Attempt("GET", "/v1/conversations/waits"),
            Attempt("GET", "/v1/conversations/chat", shows=True),
            Attempt("PATCH", "/v1/conversations/waits", json={"title": "x"}),
            Attempt("DELETE", "/v1/conversations/waits"),
            Attempt("DELETE", "/v1/conversations/chat"),
        ],
        "/v1/conversations/{id}/files/{number}": [
            Attempt("GET", f"/v1/conversations/{CONVERSATION}/files/1", shows=True),
            Attempt("GET", f"/v1/conversations/{CONVERSATION}/files/2"),
            Attempt("HEAD", f"/v1/conversations/{CONVERSATION}/files/1"),
        ],
        "/v1/memory": [
            Attempt("GET", "/v1/memory", shows=True),
            Attempt("GET", f"/v1/memory?q={WORD}", shows=True),
            Attempt("GET", f"/v1/memory?before={hers.fact}"),
            Attempt("POST", "/v1/memory", json={"text": f"My {WORD} is called Otto"}),
            Attempt("PATCH", "/v1/memory", json={"recall": False}),
            Attempt("PATCH", "/v1/memory", json={"recall": True}),
        ],
        "/v1/memory/{id}": [
            Attempt("GET", f"/v1/memory/{hers.fact}", shows=True),
            Attempt("PATCH", f"/v1/memory/{hers.fact}", json={"text": "x"}),
            Attempt("DELETE", f"/v1/memory/{hers.fact}"),
        ],
        "/v1/chat/completions": [
            Attempt("POST", "/v1/chat/completions", shows=True, json=completion(), headers=named),
            Attempt("POST", "/v1/chat/completions", shows=True, json=completion(stream=True), headers=named),
        ],
        "/v1/models": [Attempt("GET", "/v1/models")],
        "/v1/models/{name:path}": [Attempt("GET", "/v1/models/brain")],
        "/api/chat": [Attempt("POST", "/api/chat", shows=True, json=completion(stream=False))],
        "/api/generate": [
            Attempt("POST", "/api/generate", shows=True, json={"model": "brain", "prompt": f"Who is my {WORD}?"})
        ],
        "/api/tags": [Attempt("GET", "/api/tags")],
        "/api/show": [Attempt("POST", "/api/show", json={"model": "brain"})],
        "/api/version": [Attempt("GET", "/api/version")],
        "/api/ps": [Attempt("GET", "/api/ps")],
        "/ai-sdk/chat": [
            Attempt("POST", "/ai-sdk/chat", json=decided(hers.chat_approval)),
            Attempt("POST", "/ai-sdk/chat", json=chatted("What was said?")),
        ],
        "/ai-sdk/chat/{id}/stream": [Attempt("GET", "/ai-sdk/chat/chat/stream")],
        "/ag-ui/run": [
            Attempt("POST", "/ag-ui/run", json=run("x", resume=resumed)),
            Attempt("POST", "/ag-ui/run", json=run("What was said?")),
        ],
    }


def addresses(server: Server) -> set[tuple[str, str]]:
    """Methods and paths of all routes."""
    found = set()
    for route in server.app.routes:
        assert isinstance(route, Route)
        methods = route.methods or {name.upper() for name, _ in inspect.getmembers(route.endpoint, inspect.isfunction)}
        found |= {(method, route.path) for method in methods & {"GET", "POST", "PATCH", "PUT", "DELETE"}}
    return found


def test_every_route_is_tried(server: Server, hers: Hers) -> None:
    tried = {(attempt.method, path) for path, tries in attempts(hers).items() for attempt in tries}
    assert addresses(server) - tried == set()
    assert {path for _, path in tried} == {path for _, path in addresses(server)}


def state(ada: Asker, hers: Hers) -> list[Any]:
    """All that is Ada's, but for the times at which it was used."""
    places = [f"/v1/turns/{hers.waiting}", f"/v1/turns/{hers.turn}", "/v1/conversations?limit=200", "/v1/memory"]
    places += [f"/v1/conversations/{name}" for name in (CONVERSATION, "waits", "chat", "thread")]
    return [ada.ask("GET", place).json() for place in places]


def test_no_route_shows_or_changes_what_is_anothers(
    ada: Asker, bob: Asker, hers: Hers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "brain")
    before = state(ada, hers)
    assert all(SECRET in json.dumps(one).lower() for one in before[2:])
    for tries in attempts(hers).values():
        for attempt in tries:
            answer = attempt.by(bob)
            assert answer.status_code < 500, (attempt, answer.text)
            assert SECRET not in f"{answer.text}{answer.headers}".lower(), attempt
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("brain")]
    assert len(logged) >= 5
    assert SECRET not in " ".join(logged).lower(), "nor is a word of a user in the log"
    after = state(ada, hers)
    for was, is_now in zip(before, after, strict=True):
        assert still(is_now) == still(was)
    for tries in attempts(hers).values():
        for attempt in tries:
            if attempt.shows:
                assert SECRET in attempt.by(ada).text.lower(), f"{attempt} shows nothing to anybody"


def still(told: Any) -> Any:
    """The same without what passes by itself: times, and what a running turn has written."""
    if isinstance(told, dict) and told.get("state") == "running":
        return None
    if isinstance(told, dict):
        return {key: still(value) for key, value in told.items() if not key.endswith("ms")}
    return [still(one) for one in told] if isinstance(told, list) else told


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
        ("GET", "/ai-sdk/chat/{conversation}/stream"),
    ],
)
def test_what_is_anothers_does_not_exist(bob: Asker, hers: Hers, method: str, path: str) -> None:
    there = bob.ask(method, path.format(turn=hers.turn, conversation="waits", fact=hers.fact))
    nowhere = bob.ask(method, path.format(turn="t0123456789abcdef", conversation="none", fact="none"))
    assert (there.status_code, there.text) == (nowhere.status_code, nowhere.text)


# every specialist

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
    "vision": [{"image_id": 1}, {"image_id": 2}],
    "web": [{"query": WORD}],
    "wiki": [{"query": WORD}],
}
HOLDING = {"calendar", "diary", "knowledge", "memory"}
"""Those that keep something of a user, or are given it."""


def test_every_specialist_is_tried(server: Server) -> None:
    assert set(CALLS) == set(server.engine.registry)


@pytest.mark.parametrize("name", CALLS)
def test_no_specialist_tells_what_is_anothers(ada: Asker, bob: Asker, hers: Hers, name: str) -> None:
    before = state(ada, hers)
    for params in CALLS[name]:
        filled = {key: hers.fact if value == "{fact}" else value for key, value in params.items()}
        told = bob.told(f"My {WORD} is called Otto", marker(name, **filled))
        assert "specialist_" in told, params
        assert SECRET not in told.lower(), params
    assert [still(one) for one in state(ada, hers)] == [still(one) for one in before]
    if name in HOLDING:
        mine = ada.told("Mine?", marker(name, **CALLS[name][0]), conversation_id=f"mine-{name}", memory=False)
        assert SECRET in mine.lower()


def test_what_is_recalled_is_the_users_own(ada: Asker, bob: Asker, hers: Hers) -> None:
    question = f"How is my {WORD} called?"
    bob.ask("POST", "/v1/memory", json={"text": f"My {WORD} is called Otto"})
    for asker, own, other in ((ada, "hilda", "otto"), (bob, "otto", "hilda")):
        told = asker.told(question, conversation_id="new").lower()
        assert '"code":"recalled"' in told
        assert own in told
        assert other not in told
    bob.ask("PATCH", "/v1/memory", json={"recall": False})
    assert '"code":"recalled"' in ada.told(question, conversation_id="newer")
    assert '"code":"recalled"' not in bob.told(question, conversation_id="newer")


def uploads(data: Path, user: str) -> list[str]:
    with closing(Index(path_for(data / "knowledge", user))) as index:
        return [root.place for root in index.roots("conversation") if index.files(root)]


def test_what_one_deletes_the_other_keeps(data: Path, ada: Asker, bob: Asker, hers: Hers) -> None:
    bob.told("Hi", marker("knowledge", query=WORD), attachments=[{"name": "note.txt", "text": f"A {WORD}."}])
    before = state(ada, hers)
    assert uploads(data, "ada") == uploads(data, "bob") == [CONVERSATION]
    assert bob.ask("DELETE", f"/v1/conversations/{CONVERSATION}").status_code == 204
    assert (uploads(data, "ada"), uploads(data, "bob")) == ([CONVERSATION], [])
    assert [still(one) for one in state(ada, hers)] == [still(one) for one in before]
    mine = ada.told("Mine?", marker("knowledge", query=WORD, source="note.txt"), memory=False)
    assert "specialist_result" in mine


def test_at_last_ada_still_decides_what_waited_for_her(ada: Asker, hers: Hers) -> None:
    place = f"/v1/turns/{hers.waiting}"
    assert ada.ask("POST", f"{place}/approvals/{hers.call}", json={"approve": True}).status_code == 200
    assert "Sent to" in ada.ask("GET", f"{place}/events").text
    answered = ada.ask("POST", "/ai-sdk/chat", json=decided(hers.chat_approval))
    assert (answered.status_code, "Sent to" in answered.text) == (200, True)
    resumed = [{"interruptId": hers.interrupt, "status": "resolved", "payload": {"approved": True}}]
    assert "Sent to" in ada.ask("POST", "/ag-ui/run", json=run("x", resume=resumed)).text
