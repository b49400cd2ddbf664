"""Servers with one store: a request about a turn of another one has the same response as at the right one.

Each scenario runs twice, with its requests at the process of the turn, and at another one or at nginx, which sends them
to any replica. All that the client gets must be equal: status, headers, and bodies, except for IDs and times.
"""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from brain_servers import Server, brain_served, client_at, client_of, plain
from limits import WAIT_SECONDS
from model_servers import OpenAIServer, Pass, ReceivedRequest, Wait, in_thread, models
from nginx_proxy import NEEDS_NGINX, proxied
from replicas import replicas
from sse_events import Event
from sse_events import events as read_events
from sse_events import read as read_all
from turn_helpers import Item, Player, registry_of

from brain import specialist
from brain.messages import new_turn_id
from brain.runtime.processes import Processes
from brain.server.routes import requests

ZOE = "b-key"
"""The key of the user of all turns, whose name needs an encoding."""
ANN = "a-key"
KEYS = f"{ANN}:ann,{ZOE}:Zoë ☃;/%"
LETTER = 'SPECIALIST_REQUEST[letter:{"to":"Ann"}]'
ASKS: Sequence[str] = [f"One. {LETTER}"]
CONNECTION = ("connection", "date", "server", "x-accel-buffering")
"""Headers of the connection, those that each server adds itself, and that which nginx takes."""
DEPLOYED = Path(__file__).parent.parent.parent / "deploy" / "several-machines" / "nginx.conf"
Json = dict[str, Any]


@specialist(approval="always")
async def letter(to: str) -> str:
    """Sends a letter."""
    return f"Sent to {to}."


LETTER_FILE = '''\
"""The same, for other processes."""

from brain import specialist


@specialist(approval="always")
async def letter(to: str) -> str:
    """Sends a letter."""
    return f"Sent to {to}."
'''


def processes_of(server: Server) -> Processes:
    found = server.engine.runs.processes
    assert found is not None
    return found


@contextmanager
def two_served(store: str, **values: object) -> Iterator[tuple[Server, Server]]:
    """Serve two processes of a store that know of each other. Only the first one runs tasks."""
    given = {
        "STORE": store,
        "KEYS": f"{ANN}:ann,{ZOE}:Zoë ☃;/%",
        "TURNS_A_MINUTE": 0,
        "ORIGINS": "https://page.example",
    } | values
    with (
        brain_served(registry_of(letter), **given) as owner,
        brain_served(registry_of(letter), **given, TASKS_AT_ONCE=0) as other,
    ):
        for server in (owner, other):
            server.on_loop(processes_of(server).listen_at(server.url))
        for server in (owner, other):
            server.on_loop(processes_of(server).look())
        yield owner, other


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    with two_served(f"sqlite:{tmp_path_factory.mktemp('two') / 'brain.db'}") as servers:
        yield servers


Passes = Sequence[Sequence[Item] | str]


@dataclass(frozen=True)
class Cluster:
    """Servers of one store.

    Attributes:
        owner: The URL of the server that begins turns, or of nginx.
        right: The URL at which a scenario is right.
        other: The URL that must be as right.
        play: Lets the model of all servers play these passes from now on.
        left: Names of tasks of turns and requests that do not end, as far as they are known.
    """

    owner: str
    right: str
    other: str
    play: Callable[[Passes], None]
    left: Callable[[], list[str]]


class Scripted(OpenAIServer):
    """A model that plays the first pass for a message, and the second one after a result."""

    def __init__(self) -> None:
        super().__init__(answers=models("m", owned_by="anybody"))
        self.scripted: Passes = ()

    async def answer(
        self, request: ReceivedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if request.path in self.generating:
            last = str(request.body["messages"][-1]["content"])
            number = int("[SPECIALIST_" in last)
            items = self.scripted[number] if number < len(self.scripted) else ()
            texts = [items] if isinstance(items, str) else [one for one in items if isinstance(one, str)]
            waits = [Wait(10 * WAIT_SECONDS)] if len(texts) < len(items) and not isinstance(items, str) else []
            self._passes = iter([Pass(("".join(texts), *waits))])  # one piece, since a read may have several
        await super().answer(request, reader, writer)


@contextmanager
def three_replicas(folder: Path, store: str) -> Iterator[tuple[list[str], Scripted]]:
    """Serve three replicas that know of each other; yield their URLs and their model. Only the first one runs tasks."""
    (folder / "specialists").mkdir()
    (folder / "specialists" / "letter.py").write_text(LETTER_FILE, "utf-8")
    with in_thread(model := Scripted()):
        env = {
            "BRAIN_STORE": store,
            "BRAIN_KEYS": KEYS,
            "BRAIN_MODEL": "openai:m",
            "BRAIN_MODEL_URL": model.url,
            "BRAIN_SPECIALISTS_FOLDER": str(folder / "specialists"),
            "BRAIN_ALLOWED_SPECIALISTS": "letter",
            "BRAIN_TURNS_A_MINUTE": "0",
            "BRAIN_ORIGINS": "https://page.example",
        }
        idle = env | {"BRAIN_TASKS_AT_ONCE": "0"}
        with replicas(folder, [env, idle, idle]) as urls:
            model.scripted = [["One. ", asyncio.Event()]]
            for number, url in enumerate(urls):
                _wait_known(url, [one for one in urls if one != url], f"known-{number}")
            yield urls, model


def _wait_known(url: str, others: Sequence[str], chat: str) -> None:
    """Wait until other servers find the newest turn of a conversation at this one."""
    with ExitStack() as stack:
        client = stack.enter_context(client_at(url, ZOE))
        with client.stream("POST", "/ai-sdk/chat", json=chat_body(chat, resumable=True)) as response:
            pieces, text = response.iter_text(), ""
            while "One." not in text:
                text += next(pieces)
        for other in others:
            asked = stack.enter_context(client_at(other, ZOE))
            status = 204
            while status == 204:
                with asked.stream("GET", f"/ai-sdk/chat/{chat}/stream") as response:
                    status = response.status_code
            assert status == 200
        turn = client.get(f"/v1/conversations/{chat}").json()["turn_id"]
        assert client.post(f"/v1/turns/{turn}/cancel").status_code == 202


KINDS = (
    "one process",
    "replicas",
    pytest.param("nginx", marks=NEEDS_NGINX),
    pytest.param("postgresql", marks=pytest.mark.postgresql),
)


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if request.param == "one process":
        owner, other = pair = request.getfixturevalue("pair")

        def play(passes: Passes) -> None:
            for server in pair:
                server.play(Player(*passes, name="builtin"))

        yield Cluster(owner.url, owner.url, other.url, play, lambda: [*owner.left(), *other.left()])
        return
    folder = tmp_path_factory.mktemp("replicas")
    with ExitStack() as stack:
        store = f"sqlite:{folder / 'brain.db'}"
        if request.param == "postgresql":
            databases = request.getfixturevalue("shared_cluster")
            store = databases.create_database("wrong_process")
            stack.callback(databases.drop_database, "wrong_process")
        urls, model = stack.enter_context(three_replicas(folder, store))
        owner, other = urls[0], urls[2]
        if request.param == "nginx":
            replaced = {f"replica{number}:8000": url.removeprefix("http://") for number, url in enumerate(urls, 1)}
            config = DEPLOYED.read_text("utf-8")
            address = stack.enter_context(proxied(folder, config, replaced, listens="80"))
            owner = other = f"http://{address}"
        yield Cluster(owner, urls[0], other, partial(setattr, model, "scripted"), list)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each request find its process at the first look, or fail."""
    monkeypatch.setattr(requests, "OWNER_SECONDS", 0.0)


class Case:
    """One run of a scenario.

    Attributes:
        owner: A client of the process that runs the turns.
        chat: The ID of a new conversation.
        seen: What the client of the asked process got.
    """

    def __init__(self, owner: httpx.Client, asked: httpx.Client, chat: str) -> None:
        self.owner = owner
        self.chat = chat
        self.seen: list[str] = []
        self._asked = asked

    # At the process of the turn

    def begin(self, **body: object) -> str:
        """Begin a turn that runs without a client; return its ID."""
        sent = {"message": "Hi", "conversation_id": self.chat, **body}
        response = self.owner.post("/v1/turns", json=sent)
        assert response.status_code == 201, response.text
        turn_id: str = response.json()["turn_id"]
        return turn_id

    def begin_waiting(self, **body: object) -> str:
        """Begin a turn that waits for an approval."""
        turn_id = self.begin(**body)
        with self.owner.stream("GET", f"/v1/turns/{turn_id}/events") as response:
            assert any(event.name == "approval_required" for event in read_events(response))
        return turn_id

    def begin_ended(self, **body: object) -> str:
        turn_id = self.begin(**body)
        self.events(turn_id)
        return turn_id

    def events(self, turn_id: str) -> list[Event]:
        """All events of a turn, until its end."""
        return read_all(self.owner.get(f"/v1/turns/{turn_id}/events").content)

    def approve(self, turn_id: str) -> None:
        self.owner.post(f"/v1/turns/{turn_id}/approvals/c1", json={"approve": True})

    # At the asked process

    def ask(self, method: str, path: str, *, is_moving: bool = False, **options: Any) -> httpx.Response:
        """Send a request; `is_moving`: what it shows changes, such as by a checkpoint."""
        response = self._asked.request(method, path, **options)
        moves = is_moving and response.is_success
        self._note(response, b"" if moves else response.content)
        return response

    @contextmanager
    def stream(self, method: str, path: str, until: str, **options: Any) -> Iterator[str]:
        """A response up to this text; after the block, to its end."""
        with self._asked.stream(method, path, **options) as response:
            found, pieces = "", response.iter_text()
            for piece in pieces:
                found += piece
                if until in found:
                    break
            assert until in found, found
            yield found
            found += "".join(pieces)
        self._note(response, found.encode())

    def _note(self, response: httpx.Response, body: bytes) -> None:
        headers = [f"{name}: {value}" for name, value in response.headers.multi_items() if name not in CONNECTION]
        request = f"{response.request.method} {response.request.url.raw_path.decode()}"
        lines = [request, str(response.status_code), *sorted(headers), body.decode()]
        self.seen.append(normal("\n".join(lines).replace(self.chat, "CHAT")))


def normal(text: str) -> str:
    """A response without IDs, ports and times."""
    text = re.sub(r"127\.0\.0\.[0-9]:[0-9]+", "HOST", plain(text.encode()))
    text = re.sub(r"\b(task|work|chatcmpl-)-?[0-9a-f]{12,32}\b", "ID", text)
    text = re.sub(r"(?m)^content-length: .*", "content-length", text)
    text = re.sub(
        r'"(\w+_ms|totalMs|ms|seconds|created|created_at|total_duration|eval_duration)":[0-9.]+', r'"\1":0', text
    )
    return re.sub(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|\+00:00)?", "TIME", text)


Scenario = Callable[[Case], None]
SCENARIOS: dict[str, tuple[Scenario, Sequence[Sequence[Item] | str]]] = {}


def scenario(*passes: Sequence[Item] | str) -> Callable[[Scenario], Scenario]:
    def add(run: Scenario) -> Scenario:
        SCENARIOS[run.__name__] = run, passes
        return run

    return add


# Events


@scenario(["One, ", "☃ two."])
def read_ended_turn(case: Case) -> None:
    turn = case.begin_ended(request_id=f"r-{case.chat}")
    url = f"/v1/turns/{turn}"
    same = {"message": "Hi", "conversation_id": case.chat, "request_id": f"r-{case.chat}"}
    case.ask("GET", f"{url}/events")
    case.ask("HEAD", f"{url}/events")
    case.ask("GET", f"{url}/events?after=2")
    case.ask("GET", f"{url}/events?after=99")
    case.ask("GET", f"{url}/events?after=x")
    case.ask("GET", f"{url}/events", headers={"last-event-id": f"{turn}.3"})
    last = read_all(case.owner.get(f"{url}/events").content)[-1].id
    case.ask("GET", f"{url}/events", headers={"last-event-id": last})
    case.ask("GET", f"{url}/events", headers={"last-event-id": "t0123.1"})
    case.ask("GET", "/v1/chat/stream", headers={"last-event-id": f"{turn}.3"})
    case.ask("POST", "/v1/chat/stream", headers={"last-event-id": f"{turn}.3"}, json={})
    case.ask("GET", "/v1/chat/stream", headers={"last-event-id": last})
    case.ask("GET", url)
    case.ask("HEAD", url)
    case.ask("POST", f"{url}/cancel")
    case.ask("POST", f"{url}/steer", json={"message": "more"})
    case.ask("POST", f"{url}/steer", content=b"{", headers={"content-type": "application/json"})
    case.ask("POST", f"{url}/approvals/c1", json={"approve": True})
    case.ask("POST", "/v1/turns", json=same)
    case.ask("POST", "/v1/chat/stream", json=same)
    case.ask("POST", "/v1/chat/stream", data=same, files={"other": b"x"})
    case.ask("POST", "/v1/chat/stream", data=same, files={"file": ("a.txt", b"text", "text/plain")})
    case.ask("GET", "/v1/chat/stream", params=same)
    case.ask("GET", f"/v1/conversations/{case.chat}")


@scenario(ASKS, ["Done."])
def read_running_turn(case: Case) -> None:
    turn = case.begin_waiting(request_id=f"r-{case.chat}")
    same = {"message": "Hi", "conversation_id": case.chat, "request_id": f"r-{case.chat}"}
    with (
        case.stream("GET", f"/v1/turns/{turn}/events", "approval_required"),
        case.stream("POST", "/v1/chat/stream", "approval_required", json=same),
        case.stream("GET", "/v1/chat/stream", "approval_required", params=same),
        case.stream("GET", "/v1/chat/stream", "approval_required", headers={"last-event-id": f"{turn}.2"}),
    ):
        case.ask("GET", f"/v1/turns/{turn}")
        case.ask("GET", f"/v1/conversations/{case.chat}", is_moving=True)
        case.approve(turn)
    case.ask("GET", f"/v1/turns/{turn}")


@scenario(["One. ", asyncio.Event()])
def stop_streamed_turn(case: Case) -> None:
    """The turns of the foreign protocols cannot be read again, but be shown and stopped."""
    foreign: Mapping[str, tuple[str, Json]] = {
        "native": ("/v1/chat/stream", {"message": "Hi", "conversation_id": case.chat}),
        "openai": ("/v1/chat/completions", {"model": "brain", "stream": True, "messages": [USER]}),
        "ollama": ("/api/chat", {"model": "brain", "messages": [USER]}),
        "generate": ("/api/generate", {"model": "brain", "prompt": "Hi"}),
        "ai_sdk": ("/ai-sdk/chat", chat_body(case.chat)),
        "ag_ui": ("/ag-ui/run", run_body(case.chat)),
    }
    for path, body in foreign.values():
        headers = {"x-conversation-id": case.chat}
        with case.owner.stream("POST", path, json=body, headers=headers) as response:
            pieces, text = response.iter_text(), ""
            while "One." not in text:
                text += next(pieces)
            turn = case.owner.get(f"/v1/conversations/{case.chat}").json()["messages"][-1]["id"].replace("m", "t", 1)
            case.ask("GET", f"/v1/turns/{turn}")
            case.ask("GET", f"/v1/conversations/{case.chat}", is_moving=True)
            busy_everywhere(case)
            case.ask("POST", f"/v1/turns/{turn}/cancel", is_moving=True)
            text += "".join(pieces)
        case.ask("GET", f"/v1/turns/{turn}")
        case.ask("GET", f"/v1/turns/{turn}/events")


USER = {"role": "user", "content": "Hi"}


def chat_body(chat: str, *decisions: tuple[str, bool], version: int = 6, **more: object) -> Json:
    part = {"type": "dynamic-tool", "toolName": "letter", "state": "approval-responded", "input": {}}
    decided = [
        {**part, "toolCallId": one, "approval": {"id": one, "approved": approved}} for one, approved in decisions
    ]
    message = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
    messages = [message, *([{"id": "a", "role": "assistant", "parts": decided}] if decided else [])]
    return {"id": chat, "messages": messages, "sdk_version": version, **more}


def run_body(chat: str, *answers: Json, message: str = "Hi") -> Json:
    messages = [{"id": "m", "role": "user", "content": message}]
    return {"threadId": chat, "runId": "run", "messages": messages, "resume": [*answers]}


def busy_everywhere(case: Case) -> None:
    """Send the second message of a conversation on each wire."""
    headers = {"x-conversation-id": case.chat}
    native = {"message": "Again", "conversation_id": case.chat}
    case.ask("POST", "/v1/turns", json=native)
    case.ask("POST", "/v1/chat/stream", json=native)
    case.ask("GET", "/v1/chat/stream", params=native)
    case.ask("POST", "/v1/chat/completions", json={"model": "brain", "messages": [USER]}, headers=headers)
    case.ask("POST", "/api/chat", json={"model": "brain", "messages": [USER]}, headers=headers)
    case.ask("POST", "/api/generate", json={"model": "brain", "prompt": "Hi"}, headers=headers)


# Commands


@scenario(["One. ", asyncio.Event()])
def cancel(case: Case) -> None:
    turn = case.begin()
    with case.stream("GET", f"/v1/turns/{turn}/events", "One."):
        case.ask("POST", f"/v1/turns/{turn}/cancel", is_moving=True)
    case.ask("POST", f"/v1/turns/{turn}/cancel")
    case.ask("GET", f"/v1/conversations/{case.chat}")


@scenario(ASKS, ["Done."])
def steer(case: Case) -> None:
    turn = case.begin_waiting()
    case.ask("POST", f"/v1/turns/{turn}/steer", json={"message": "☃" * 20_000})
    case.ask("POST", f"/v1/turns/{turn}/steer", json={"message": "☃" * 300_000})
    case.ask("POST", f"/v1/turns/{turn}/steer", json={})
    case.ask("POST", f"/v1/turns/{turn}/steer", content=b"x")
    case.approve(turn)
    case.seen += [event.name for event in case.events(turn)]


@scenario([f"{LETTER} and {LETTER}"], ["Done.", asyncio.Event()])
def approve_and_decline(case: Case) -> None:
    turn = case.begin_waiting()
    with case.stream("GET", f"/v1/turns/{turn}/events", "approval_required"):
        for call in ("c9", "c1", "c1", "c2", "x" * 200, "%E2%98%83"):
            case.ask("POST", f"/v1/turns/{turn}/approvals/{call}", is_moving=True, json={"approve": call != "c2"})
        case.ask("POST", f"/v1/turns/{turn}/approvals/c2", json={"approve": "yes"})
        with case.owner.stream("GET", f"/v1/turns/{turn}/events") as response:
            assert any("Done." in event.text for event in read_events(response))
        case.owner.delete(f"/v1/conversations/{case.chat}")


@scenario(ASKS, ["Done."])
def second_message(case: Case) -> None:
    turn = case.begin_waiting()
    busy_everywhere(case)
    case.ask("POST", "/v1/turns", json={"message": "Again", "conversation_id": case.chat, "request_id": "r"})
    case.approve(turn)
    case.events(turn)
    answer = {"model": "brain", "messages": [USER]}
    case.ask("POST", "/v1/chat/completions", json=answer, headers={"x-conversation-id": case.chat})


@scenario(ASKS, ["Done."])
def barge_in(case: Case) -> None:
    for path in ("/v1/turns", "/v1/chat/stream"):
        turn = case.begin_waiting()
        body = {"message": "Again", "conversation_id": case.chat, "barge_in": True, "specialists": []}
        with case.owner.stream("GET", f"/v1/turns/{turn}/events") as response:
            begun = case.ask("POST", path, json=body)
            assert '"cancelled"' in [*read_events(response)][-1].text
        case.ask("GET", f"/v1/turns/{turn}")
        if path == "/v1/turns":
            case.events(begun.json()["turn_id"])


# The foreign protocols


@scenario(ASKS, ["Done."])
def ai_sdk_approval(case: Case) -> None:
    for approved in (True, False):
        text = case.owner.post("/ai-sdk/chat", json=chat_body(case.chat, resumable=True)).text
        (approval,) = re.findall(r'"approvalId":"([^"]+)"', text)
        case.ask("GET", f"/ai-sdk/chat/{case.chat}/stream")
        case.ask("HEAD", f"/ai-sdk/chat/{case.chat}/stream")
        case.ask("POST", "/ai-sdk/chat", json=chat_body(case.chat, (f"{approval}9", True)))
        case.ask("POST", "/ai-sdk/chat", json=chat_body("another", (approval, True)))
        case.ask("POST", "/ai-sdk/chat", json=chat_body(case.chat, (approval, approved)))
        case.ask("POST", "/ai-sdk/chat", json=chat_body(case.chat, (approval, approved)))
        case.ask("GET", f"/ai-sdk/chat/{case.chat}/stream")


@scenario(["One. ", asyncio.Event()])
def ai_sdk_reconnect(case: Case) -> None:
    for version in (5, 6):
        body = chat_body(case.chat, resumable=True, version=version)
        with case.owner.stream("POST", "/ai-sdk/chat", json=body) as response:
            pieces, text = response.iter_text(), ""
            while "One." not in text:
                text += next(pieces)
        with case.stream("GET", f"/ai-sdk/chat/{case.chat}/stream", "One."):
            case.ask("POST", "/ai-sdk/chat", json=chat_body(case.chat, version=version))
            turn = case.owner.get(f"/v1/conversations/{case.chat}").json()["turn_id"]
            case.ask("POST", f"/v1/turns/{turn}/cancel", is_moving=True)
        case.ask("GET", f"/ai-sdk/chat/{case.chat}/stream")


@scenario(ASKS, ["Done."])
def ai_sdk_goes_on_without_approval(case: Case) -> None:
    case.owner.post("/ai-sdk/chat", json=chat_body(case.chat, resumable=True))
    case.ask("POST", "/ai-sdk/chat", json=chat_body(case.chat, resumable=True, specialists=[]))


@scenario(ASKS, ["Done."])
def ag_ui_interrupts(case: Case) -> None:
    for approved in (True, False):
        run = case.owner.post("/ag-ui/run", json=run_body(case.chat)).text
        interrupt = json.loads(run.strip().rpartition("data: ")[2])["outcome"]["interrupts"][0]["id"]
        answer = {"interruptId": interrupt, "status": "resolved", "payload": {"approved": approved}}
        case.ask("POST", "/ag-ui/run", json=run_body(case.chat))
        case.ask("POST", "/ag-ui/run", json=run_body(case.chat, answer | {"interruptId": "t0123456789abcdef.c1.4"}))
        case.ask("POST", "/ag-ui/run", json=run_body(case.chat, answer | {"interruptId": f"{interrupt}1"}))
        case.ask("POST", "/ag-ui/run", json=run_body(case.chat, answer))
        case.ask("POST", "/ag-ui/run", json=run_body(case.chat, answer))
        case.ask("POST", "/ag-ui/run", json=run_body(case.chat, answer | {"payload": {"approved": not approved}}))


# Tasks


def begin_task(case: Case) -> Json:
    """Begin a task, and wait until its turn runs or waits for an approval."""
    added = case.owner.post("/v1/tasks", json={"prompt": "Write", "conversation_id": case.chat})
    assert added.status_code == 201, added.text
    task: Json = added.json()
    while task["state"] == "pending" or "turn_id" not in task:
        task = case.owner.get(f"/v1/tasks/{task['id']}").json()
    return task


@scenario(["One. ", asyncio.Event()])
def stop_task(case: Case) -> None:
    task = begin_task(case)
    url, work = f"/v1/tasks/{task['id']}", f"/v1/conversations/{task['work_id']}"
    case.ask("GET", url)
    case.ask("POST", f"{url}/run")
    case.ask("PATCH", url, json={"title": "Letters"})
    case.ask("POST", f"{url}/cancel", is_moving=True)
    case.ask("POST", f"{url}/cancel", is_moving=True)
    case.ask("DELETE", url)
    case.ask("GET", work)
    case.ask("DELETE", f"/v1/tasks/{begin_task(case)['id']}")
    task = begin_task(case)
    case.ask("DELETE", f"/v1/conversations/{case.chat}")
    case.ask("GET", f"/v1/tasks/{task['id']}")
    case.ask("GET", f"/v1/conversations/{task['work_id']}")


@scenario(ASKS, ["Done."])
def approve_task(case: Case) -> None:
    for approve in (True, False):
        task = begin_task(case)
        url = f"/v1/tasks/{task['id']}"
        while task["state"] == "running":
            task = case.owner.get(url).json()
        case.ask("GET", url)
        case.ask("POST", f"{url}/approvals/c9", json={"approve": approve})
        case.ask("POST", f"{url}/approvals/c1", is_moving=True, json={"approve": approve})
        case.owner.delete(url)


# Conversations, and turns that are not there


@scenario(ASKS, ["Done."])
def conversation_of_running_turn(case: Case) -> None:
    turn = case.begin_waiting(attachments=[{"name": "a.txt", "text": "text"}])
    url = f"/v1/conversations/{case.chat}"
    case.ask("GET", url, is_moving=True)
    case.ask("GET", f"{url}/files/1")
    case.ask("PATCH", url, json={"title": "Letters"})
    case.ask("POST", f"{url}/typing")
    case.ask("GET", "/page/start")
    with case.owner.stream("GET", f"/v1/turns/{turn}/events") as response:
        case.ask("DELETE", url)
        assert '"cancelled"' in [*read_events(response)][-1].text
    case.ask("DELETE", url)
    case.ask("GET", url)
    case.ask("GET", f"/v1/turns/{turn}")
    case.ask("GET", f"/v1/turns/{turn}/events")
    case.ask("POST", f"/v1/turns/{turn}/cancel")


@scenario(["One. ", asyncio.Event()])
def large_bodies(case: Case) -> None:
    """Bodies of 17 and 26 MB, which the other process reads before it finds the turn, or not at all."""
    text = base64.b64encode(bytes(6_500_000)).decode()
    files = [{"name": f"{number}.bin", "data": text} for number in range(2)]
    turn = case.begin()
    message = {"message": "Again", "conversation_id": case.chat, "request_id": f"r-{case.chat}"}
    form = [("file", (f"{number}.bin", bytes(6_500_000))) for number in range(2)]
    case.ask("POST", "/v1/turns", json={**message, "attachments": files})
    case.ask("POST", "/v1/turns", data=message, files=form)
    case.ask("POST", f"/v1/turns/{turn}/steer", json={"message": text * 3})
    begun = case.ask("POST", "/v1/turns", json={**message, "attachments": files, "barge_in": True})
    case.ask("POST", "/v1/turns", data=message, files=form)  # finds the turn that began
    assert begun.status_code == 201
    case.seen.append(str(case.owner.get(f"/v1/conversations/{case.chat}").json()["messages"][-2]["files"]))
    case.owner.delete(f"/v1/conversations/{case.chat}")


@scenario(["One. ", asyncio.Event()])
def pages_of_other_origins(case: Case) -> None:
    turn = case.begin()
    for origin in ("https://page.example", "https://evil.example"):
        headers = {"origin": origin}
        case.ask("POST", f"/v1/turns/{turn}/steer", json={"message": "more"}, headers=headers, is_moving=True)
        case.ask("POST", f"/v1/turns/{turn}/steer", json={}, headers=headers)
        case.ask("HEAD", f"/v1/turns/{turn}/events", headers=headers)
        preflight = {**headers, "access-control-request-method": "POST"}
        case.ask("OPTIONS", f"/v1/turns/{turn}/steer", headers=preflight)
    case.ask("GET", f"/v1/turns/{turn}", headers={"host": "evil.example"})
    case.owner.delete(f"/v1/conversations/{case.chat}")


def everything_about(case: Case, turn: str, chat: str, headers: Mapping[str, str]) -> None:
    """Send each request about a turn."""
    interrupt = {"interruptId": f"{turn}.c1.4", "status": "resolved", "payload": {"approved": True}}
    for method, path, body in (
        ("GET", f"/v1/turns/{turn}", None),
        ("GET", f"/v1/turns/{turn}/events", None),
        ("HEAD", f"/v1/turns/{turn}/events", None),
        ("POST", f"/v1/turns/{turn}/cancel", {}),
        ("POST", f"/v1/turns/{turn}/steer", {"message": "x"}),
        ("POST", f"/v1/turns/{turn}/approvals/c1", {"approve": True}),
        ("GET", f"/ai-sdk/chat/{chat}/stream", None),
        ("POST", "/ai-sdk/chat", chat_body(chat, (f"{turn}.c1", True))),
        ("POST", "/ag-ui/run", run_body(chat, interrupt)),
        ("GET", f"/v1/conversations/{chat}", None),
        ("PATCH", f"/v1/conversations/{chat}", {"title": "x"}),
        ("DELETE", f"/v1/conversations/{chat}", None),
    ):
        case.ask(method, path, json=body, headers=headers)
    case.ask("GET", "/v1/chat/stream", headers={"last-event-id": f"{turn}.1", **headers})
    case.ask("POST", "/v1/chat/stream", headers={"last-event-id": f"{turn}.1", **headers}, json={})


@scenario(ASKS, ["Done."])
def another_user(case: Case) -> None:
    turn = case.begin_waiting(request_id=f"r-{case.chat}")
    everything_about(case, turn, case.chat, {"authorization": f"Bearer {ANN}"})
    everything_about(case, turn, case.chat, {"authorization": "Bearer wrong"})
    assert case.owner.get(f"/v1/turns/{turn}").json()["state"] == "waiting"
    case.approve(turn)


@scenario()
def unknown_turns(case: Case) -> None:
    for turn in ("t0123456789abcdef", "t" + "0" * 24, "x", "%E2%98%83", "t1.2"):
        everything_about(case, turn, case.chat, {})


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_wrong_process_gives_the_answer_of_the_right_one(cluster: Cluster, name: str) -> None:
    run, passes = SCENARIOS[name]
    seen = []
    for owner, asked, place in ((cluster.right, cluster.right, "owner"), (cluster.owner, cluster.other, "other")):
        cluster.play(passes)
        with client_at(owner, ZOE) as at_owner, client_at(asked, ZOE) as client:
            case = Case(at_owner, client, f"chat-{name}-{place}")
            run(case)
        seen.append(case.seen)
    expected, found = seen
    for response, right in zip(found, expected, strict=True):
        assert response.splitlines() == right.splitlines()
        assert "\n503\n" not in response
    assert cluster.left() == []


def test_nginx_sends_turns_to_all_replicas(request: pytest.FixtureRequest, cluster: Cluster) -> None:
    cluster.play(["One."])
    with client_at(cluster.owner, ZOE) as client:
        turns = [client.post("/v1/turns", json={"message": "Hi"}).json()["turn_id"] for _ in range(12)]
    processes = {turn[1:9] for turn in turns}
    assert len(processes) == (3 if "nginx" in request.node.callspec.id else 1)


def test_expired_turns_of_both_processes_are_gone_at_once(pair: tuple[Server, Server]) -> None:
    for server in pair:
        process = processes_of(server).process
        with client_of(pair[1], ZOE) as client:
            turn = new_turn_id(process)
            assert client.get(f"/v1/turns/{turn}/events").status_code == 410
            assert client.get(f"/v1/turns/{turn}").status_code == 404
            assert client.post(f"/v1/turns/{turn}/cancel").status_code == 404


def test_a_forwarded_turn_ends_when_its_client_disconnects(pair: tuple[Server, Server]) -> None:
    owner, other = pair
    for server in pair:
        server.play(player := Player(["One. ", asyncio.Event()], name="builtin"))
    with client_of(owner, ZOE) as at_owner, client_of(other, ZOE) as client:
        case = Case(at_owner, client, "leaves")
        case.begin()
        owner.play(player := Player(["Two. ", asyncio.Event()], name="builtin"))
        body = {"message": "Hi", "conversation_id": case.chat, "barge_in": True}
        with client.stream("POST", "/v1/chat/stream", json=body) as response:
            assert any(event.name == "token" for event in read_events(response))
        assert player.closed.wait(WAIT_SECONDS)
    for server in pair:
        assert server.left() == []


def test_a_session_is_valid_in_both_processes(pair: tuple[Server, Server]) -> None:
    owner, other = pair
    owner.play(Player(["One. ", asyncio.Event()], name="builtin"))
    with client_of(owner) as at_owner, client_of(other) as client:
        at_owner.post("/v1/session", json={"key": ZOE})
        client.cookies.set("brain_session", at_owner.cookies["brain_session"])
        turn = Case(at_owner, client, "cookie").begin()
        assert client.get(f"/v1/turns/{turn}").json()["user"] == "Zoë ☃;/%"
        assert client.post(f"/v1/turns/{turn}/cancel").status_code == 202


def test_a_turn_is_counted_once(tmp_path: Path) -> None:
    with two_served(f"sqlite:{tmp_path / 'brain.db'}", TURNS_A_MINUTE=3, TURNS_AT_ONCE=2) as (owner, other):
        owner.play(Player(["One. ", asyncio.Event()], name="builtin"))
        with client_of(owner, ZOE) as at_owner, client_of(other, ZOE) as client:
            case = Case(at_owner, client, "limited")
            case.begin()
            for status in (201, 201, 429):
                body = {"message": "Hi", "conversation_id": case.chat, "barge_in": True}
                assert client.post("/v1/turns", json=body).status_code == status
            other.play(Player(["Two."], name="builtin"))
            for status in (200, 200, 200, 429):
                assert client.post("/v1/chat/stream", json={"message": "Hi"}).status_code == status
