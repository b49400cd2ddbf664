"""Real processes with a shared store: requests to any of two workers, and the traces of a killed process."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from brain_servers import Process, brain_served, script, streaming
from limits import WAIT_SECONDS
from sse_events import Event
from sse_events import read as read_events

TIMES = 4
"""Requests of each kind, each on a connection of its own, which the system gives to any of the workers."""
SPECIALIST = '''\
"""A specialist that needs an approval."""

from brain import specialist


@specialist(approval="always")
async def sends() -> str:
    """Sends a letter."""
    return "sent"
'''


class Client:
    """A client that makes a new connection for each request.

    Its turns wait for an approval: two models play `Done.` after it, or at once.
    """

    def __init__(self, url: str, waits: str, answers: str) -> None:
        self.url = url
        self.waits = waits
        self.answers = answers

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        with httpx.Client(base_url=self.url, timeout=WAIT_SECONDS, trust_env=False) as client:
            return client.request(method, path, **options)

    def begin(self, **body: Any) -> str:
        response = self.send("POST", "/v1/turns", json={"message": "Hi", "model": self.waits, **body})
        assert response.status_code == 201, response.text
        turn_id: str = response.json()["turn_id"]
        return turn_id

    def waiting(self, **body: Any) -> str:
        """Begin a turn that waits for approval. Return its ID."""
        turn_id = self.begin(**body)
        with (
            httpx.Client(base_url=self.url, timeout=WAIT_SECONDS, trust_env=False) as client,
            client.stream("GET", f"/v1/turns/{turn_id}/events") as response,
        ):
            assert any("approval_required" in line for line in response.iter_lines())
        return turn_id

    def approve(self, turn_id: str) -> httpx.Response:
        return self.send("POST", f"/v1/turns/{turn_id}/approvals/c1", json={"approve": True})

    def cancel(self, turn_id: str) -> int:
        return self.send("POST", f"/v1/turns/{turn_id}/cancel").status_code

    def events(self, turn_id: str) -> str:
        return self.send("GET", f"/v1/turns/{turn_id}/events").text


def show(client: Client) -> Any:
    turn_id = client.waiting()
    state = client.send("GET", f"/v1/turns/{turn_id}").json()["state"]
    return state, client.cancel(turn_id)


def read(client: Client) -> Any:
    text = client.events(client.begin(model=client.answers))
    return "Done." in text, text.count("event: done")


def resume(client: Client) -> Any:
    turn_id = client.waiting()
    client.approve(turn_id)
    headers = {"Last-Event-ID": f"{turn_id}.2"}
    text = client.send("POST", "/v1/chat/stream", headers=headers, json={}).text
    return f"id: {turn_id}.2\n" in text, f"id: {turn_id}.3\n" in text, text.count("event: done")


def cancel(client: Client) -> Any:
    turn_id = client.waiting()
    return client.cancel(turn_id), '"stop_reason":"cancelled"' in client.events(turn_id)


def approve(client: Client) -> Any:
    turn_id = client.waiting()
    return client.approve(turn_id).status_code, '"text":"sent"' in client.events(turn_id)


def steer(client: Client) -> Any:
    turn_id = client.waiting()
    status = client.send("POST", f"/v1/turns/{turn_id}/steer", json={"message": "hurry"}).status_code
    client.approve(turn_id)
    return status, '"hurry"' in client.events(turn_id)


def join(client: Client) -> Any:
    number = client.begin(model=client.answers)  # which no other request has
    with ThreadPoolExecutor(4) as pool:
        ids = set(pool.map(lambda _: client.begin(request_id=number, conversation_id=number), range(4)))
    return len(ids), client.cancel(ids.pop())


def come_late(client: Client) -> Any:
    turn_id = client.begin(model=client.answers)
    client.events(turn_id)
    steer = client.send("POST", f"/v1/turns/{turn_id}/steer", json={"message": "more"})
    return steer.status_code, client.approve(turn_id).status_code, client.cancel(turn_id), client.cancel("t0")


def begin_second(client: Client) -> Any:
    conversation = client.begin(model=client.answers)
    turn_id = client.waiting(conversation_id=conversation)
    body = {"message": "Hi", "model": client.answers, "conversation_id": conversation}
    busy = client.send("POST", "/v1/turns", json=body).status_code
    barges = client.send("POST", "/v1/turns", json={**body, "barge_in": True}).status_code
    return busy, barges, '"stop_reason":"cancelled"' in client.events(turn_id)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("workers")
    (folder / "some.py").write_text(SPECIALIST)
    waits = script(folder, ["SPECIALIST_REQUEST[sends]"], ["Done."], name="waits.jsonl")
    answers = script(folder, ["Done."], name="answers.jsonl")
    env = {"BRAIN_STORE": f"sqlite:{folder}/brain.db", "BRAIN_SPECIALISTS_FOLDER": str(folder)}
    with Process("serve", "--workers", "2", "--port", "0", "--model", f"{waits},{answers}", env=env) as brain:
        yield Client(brain.url(), waits, answers)


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (show, ("waiting", 202)),
        (read, (True, 1)),
        (resume, (False, True, 1)),
        (cancel, (202, True)),
        (approve, (200, True)),
        (steer, (202, True)),
        (join, (1, 202)),
        (come_late, (410, 410, 202, 404)),
        (begin_second, (409, 201, True)),
    ],
)
def test_any_worker_takes_any_request(client: Client, act: Callable[[Client], Any], expected: Any) -> None:
    assert [act(client) for _ in range(TIMES)] == [expected] * TIMES


def test_a_killed_process_leaves_all_that_others_have_read(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path}/brain.db"
    played = script(tmp_path, {"chunks": ["Once ", "upon ", *["a time "] * 10_000], "delay_ms": 20})
    env = {"BRAIN_STORE": store, "BRAIN_MODEL": played, "BRAIN_PORT": "0"}
    body = {"message": "A story", "conversation_id": "c1"}
    with Process("serve", env=env) as dying, streaming(dying.url(), until="Once", json=body) as answer:
        turn_id = answer.events[0].data["turn_id"]
        with (
            brain_served(STORE=store) as other,
            httpx.stream(
                "GET", f"{other.url}/v1/turns/{turn_id}/events", trust_env=False, timeout=WAIT_SECONDS
            ) as response,
        ):
            lines = response.iter_lines()
            text = ""
            while text.count("a time") < 3:
                line = next(lines)
                if line.startswith("data: ") and '"text"' in line:
                    text += json.loads(line[6:])["text"]
            dying.process.kill()
            dying.process.wait(WAIT_SECONDS)
    with brain_served(STORE=store) as server:
        found = httpx.get(f"{server.url}/v1/conversations/c1", trust_env=False, timeout=WAIT_SECONDS).json()[
            "messages"
        ][-1]
    stored = "".join(part["text"] for part in found["parts"])
    assert (found["state"], stored[: len(text)]) == ("interrupted", text)


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_reader_of_a_killed_process_learns_that_the_answer_broke(tmp_path: Path, is_alone: bool) -> None:
    store = f"sqlite:{tmp_path}/brain.db"
    played = script(tmp_path, {"chunks": ["Once ", "upon ", *["a time "] * 10_000], "delay_ms": 20})
    env = {"BRAIN_STORE": store, "BRAIN_MODEL": played, "BRAIN_PORT": "0"}
    with ExitStack() as stack:
        dying = stack.enter_context(Process("serve", env=env))
        url = dying.url()
        other = None if is_alone else stack.enter_context(brain_served(STORE=store))
        answer = stack.enter_context(streaming(url, until="a time a time", json={"message": "A story"}))
        dying.process.kill()
        dying.process.wait(WAIT_SECONDS)
        other = other or stack.enter_context(brain_served(STORE=store))  # the process starts again
        turn_id = answer.events[0].data["turn_id"]

        def read(after: int) -> list[Event]:
            headers = {"Last-Event-ID": f"{turn_id}.{after}"}
            response = httpx.get(
                f"{other.url}/v1/turns/{turn_id}/events", headers=headers, timeout=WAIT_SECONDS, trust_env=False
            )
            assert response.status_code == 200, response.text
            return read_events(response.content)

        clock, other.engine.store.clock = other.engine.store.clock, lambda: clock() + 16  # its lease is over
        (ending,) = read(after=len(answer.events) + 1_000)  # beyond all that is stored
        assert (ending.name, ending.data["code"], ending.data["recoverable"]) == ("error", "shutdown", True)
        sent, stored = {one.id: one.data for one in answer.events}, read(after=0)
        assert stored[-1] == ending
        assert ending.id not in sent
        assert {one.id: one.data for one in stored if one.id in sent}.items() <= sent.items()
        state = httpx.get(f"{other.url}/v1/turns/{turn_id}", trust_env=False).json()
        assert (state["state"], state["error"]) == ("error", "shutdown")
        last = {"Last-Event-ID": ending.id}
        assert httpx.get(f"{other.url}/v1/turns/{turn_id}/events", headers=last, trust_env=False).status_code == 204
