"""Write a database, an export and what the API shows of them, with the Brain of a checkout.

Usage: `python record.py CHECKOUT FOLDER`. The files beside this one were written by commit b9fc824 (version 0.1.0),
and `brain-0.2.0.db.gz` by commit 3ef18029.

The server of that checkout runs with scripted models. Two users have turns with calls, errors, approvals, citations,
files, steering, notices, thoughts and facts. From 0.2.0 on, a person and a model add a task each. At the end the
server is killed while a turn runs.
"""

import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

URL = "http://127.0.0.1:8765"
SPECIALISTS = '''
from brain import Citation, Refused, Result, specialist

@specialist(read_only=True)
def lookup(query: str) -> Result:
    """Looks something up."""
    if query == "nothing":
        raise Refused("there is nothing of that")
    if query == "crash":
        raise ValueError(query)
    return Result(f"All about {query}.", citations=[Citation("1", query.title(), f"https://example.org/{query}")])

@specialist(approval="always", preview=lambda which: f"It would tidy {which}.")
def tidy(which: str) -> str:
    """Tidies something up."""
    return f"{which} is tidy."

@specialist(activates_on=["text"], read_only=True)
def count() -> str:
    """Counts the files."""
    return "One file."
'''


def call(name: str, **params: Any) -> str:
    return f"SPECIALIST_REQUEST[{name}:{json.dumps(params)}]"


SCRIPTS: dict[str, list[Any]] = {
    "plain": [["Boil ", "water."]],
    "calls": [
        ["Let me see. ", call("lookup", query="tea"), call("lookup", query="nothing")],
        [call("lookup", query="crash"), call("missing"), "SPECIALIST_REQUEST[lookup:{broken]"],
        ["Tea is a drink [1]."],
    ],
    "approval": [["I tidy. ", call("tidy", which="the kitchen")], ["Done with it."]],
    "again": [["Once ", call("lookup", query="milk"), "twice."], [call("lookup", query="milk")], ["Milk is white."]],
    "save": [
        [call("memory", operation="save_fact", text="I am allergic to penicillin", immutable=True)],
        [call("memory", operation="save_fact", text="My name is Ada")],
        ["Noted."],
    ],
    "correct": [[call("memory", operation="save_fact", text="My name is Ada Byron")], ["Changed."]],
    "schedule": [
        [call("tasks", operation="create", prompt="Search for tea news", every="every monday at 8")],
        ["Planned."],
    ],
    "broken": [{"chunks": ["This breaks "], "error": "it broke"}],
    "slow": [{"chunks": ["One. ", "Two. ", "Three. ", *["More. "] * 400], "delay_ms": 100}, ["As you say."]],
}

VIEWS = {
    "ada": [
        "/v1/conversations",
        "/v1/conversations?q=penicillin",
        *(f"/v1/conversations/{name}" for name in ("tea", "milk", "me", "cold", "story")),
        "/v1/memory",
        "/v1/memory?q=name",
    ],
    "bob": ["/v1/conversations", "/v1/conversations/killed", "/v1/conversations/tea", "/v1/memory"],
}
"""What is asked of the server when it was started again."""


def main(checkout: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        server = start(checkout, Path(place), folder / "brain.db")
        with httpx.Client(base_url=URL, timeout=30) as client:
            converse(client)
            environment = os.environ | {"BRAIN_STORE": f"sqlite:{folder / 'brain.db'}", "PYTHONPATH": checkout}
            export = [sys.executable, "-m", "brain", "export", "--user", "ada"]
            with (folder / "ada.jsonl").open("wb") as file:
                subprocess.run(export, env=environment, cwd=place, check=True, stdout=file)
            events = stream(client, "bob", "slow", message="Tell me a long story", conversation_id="killed")
            list(zip(range(60), events, strict=False))
        server.send_signal(signal.SIGKILL)
        server.wait()
    with closing(sqlite3.connect(folder / "brain.db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (folder / "brain.db.gz").write_bytes(gzip.compress((folder / "brain.db").read_bytes(), mtime=0))
    with tempfile.TemporaryDirectory() as place:
        server = start(checkout, Path(place), folder / "brain.db")
        with httpx.Client(base_url=URL, timeout=30) as client:
            views = {user: {path: look(client, user, path) for path in paths} for user, paths in VIEWS.items()}
        server.terminate()
        server.wait()
    (folder / "views.json").write_text(json.dumps(views, indent=1, ensure_ascii=False))
    for left in folder.glob("brain.db*[!z]"):
        left.unlink()


def start(checkout: str, place: Path, database: Path) -> "subprocess.Popen[bytes]":
    (place / "folder").mkdir()
    (place / "folder" / "useful.py").write_text(SPECIALISTS)
    for name, lines in SCRIPTS.items():
        (place / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    environment = os.environ | {
        "PYTHONPATH": checkout,
        "BRAIN_MODEL": ",".join(f"script:{name}.jsonl" for name in SCRIPTS),
        "BRAIN_KEYS": "key-ada:ada,key-bob:bob",
        "BRAIN_STORE": f"sqlite:{database}",
        "BRAIN_SPECIALISTS_FOLDER": str(place / "folder"),
        "BRAIN_PORT": "8765",
        "BRAIN_REST_SECONDS": "600" if database.exists() else "1",
    }
    server = subprocess.Popen([sys.executable, "-m", "brain", "serve"], env=environment, cwd=place)
    for _ in range(100):
        time.sleep(0.2)
        try:
            if any(httpx.get(f"{URL}{path}").is_success for path in ("/healthz", "/health")):
                break
        except httpx.TransportError:
            continue
    return server


def converse(client: httpx.Client) -> None:
    files = [{"name": "note.txt", "type": "text/plain", "text": "Buy milk."}]
    turn(client, "ada", "plain", message="How do I make tea?", conversation_id="tea", source="voice")
    turn(client, "ada", "calls", message="What is tea?", conversation_id="tea")
    turn(client, "ada", "approval", message="Tidy the kitchen, please", conversation_id="tea", attachments=files)
    turn(client, "ada", "again", message="And milk?", conversation_id="milk")
    turn(client, "ada", "broken", message="Break, please", conversation_id="milk")
    turn(client, "ada", "save", message="I am allergic to penicillin. My name is Ada.", conversation_id="me")
    turn(client, "ada", "correct", message="My name is Ada Byron.", conversation_id="me")
    turn(client, "ada", "plain", message="What may I not take for a cold? No penicillin!", conversation_id="cold")
    turn(client, "ada", "slow", message="Tell me a story", conversation_id="story", steer="Only three words!")
    turn(client, "bob", "plain", message="Bob asks about coffee", conversation_id="tea")
    as_ada = {"Authorization": "Bearer key-ada"}
    client.patch("/v1/conversations/milk", json={"title": "All of milk"}, headers=as_ada).raise_for_status()
    fact = {"text": "I like green tea", "category": "preferences"}
    client.post("/v1/memory", json=fact, headers=as_ada).raise_for_status()
    task = {"prompt": "Search for milk news", "every": "every monday at 9"}
    if client.post("/v1/tasks", json=task, headers=as_ada).is_success:
        turn(client, "ada", "schedule", message="Search for tea news each Monday", conversation_id="planned")
    for _ in range(100):  # until the conversations that are idle have their memories
        found = client.get("/v1/memory?kind=memory", headers=as_ada).json()
        if len(found["items"]) >= 4:
            break
        time.sleep(0.5)


def look(client: httpx.Client, user: str, path: str) -> Any:
    return client.get(path, headers={"Authorization": f"Bearer key-{user}"}).raise_for_status().json()


def turn(client: httpx.Client, user: str, model: str, steer: str = "", **body: Any) -> None:
    turn_id, steered = "", False
    for kind, data in stream(client, user, model, **body):
        headers = {"Authorization": f"Bearer key-{user}"}
        turn_id = data.get("turn_id", turn_id)
        if kind == "approval_required":
            url = f"/v1/turns/{turn_id}/approvals/{data['call_id']}"
            client.post(url, json={"approve": True}, headers=headers).raise_for_status()
        if kind == "token" and steer and not steered:
            steered = True
            client.post(f"/v1/turns/{turn_id}/steer", json={"message": steer}, headers=headers).raise_for_status()


def stream(client: httpx.Client, user: str, model: str, **body: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    headers = {"Authorization": f"Bearer key-{user}"}
    body |= {"model": f"script:{model}.jsonl"}
    with client.stream("POST", "/v1/chat/stream", json=body, headers=headers) as answer:
        if answer.is_error:
            raise SystemExit(answer.read().decode())
        kind = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            if line.startswith("data: "):
                yield kind, json.loads(line[6:])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
