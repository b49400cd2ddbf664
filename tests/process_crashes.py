"""Kills, stops and freezes processes of `brain serve` on one store under clients that come back; prints what they saw.

`python tests/process_crashes.py SCENARIO ROUNDS` prints one JSON object; `wrong` lists all that must not happen. In
each round, `kill` kills a random worker, `term` stops one, `restart` kills all processes, `freeze` freezes one of
several servers for 10 s, and `stop` stops all. `idle` counts writes without turns.

With `--replicas N`, the processes are replicas as on several machines: each has its own address, port and folders, and
clients ask any of them. With `--store postgresql`, they use a PostgreSQL of Debian's package, which this script runs.
Then `database-restart`, `database-stop` (for a minute) and `database-kill` (kill -9 of all its processes) are possible,
and `--delay 0.02`, which makes each of its responses slower. `--skew 30` sets the clocks of the replicas apart.

The model counts: it continues an answer after the words and calls that it is given, so that each answer is known.
"""

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from brain_servers import Process
from model_servers import OpenAIServer, Pass, ReceivedRequest
from postgresql_servers import Cluster, run_cluster
from replicas import ADDRESSES, replica
from tcp_proxy import run_proxy

SPECIALISTS = '''\
"""Specialists that leave a line, before and after some time; one asks first."""

import asyncio
import os
from pathlib import Path

from brain import specialist

EFFECTS = Path(os.environ["EFFECTS"])


def _leave(key: str) -> None:
    with EFFECTS.open("a") as file:
        file.write(f"{key} {os.getpid()}\\n")


@specialist(read_only=False, approval="never", outside=False, timeout=30)
async def write(key: str) -> str:
    """Has an effect."""
    await asyncio.sleep(0.1)
    _leave(key)
    await asyncio.sleep(0.2)
    return f"wrote {key}"


@specialist(read_only=False, approval="always", outside=False, timeout=30)
async def letter(key: str) -> str:
    """Has an effect that needs an approval."""
    await asyncio.sleep(0.1)
    _leave(key)
    await asyncio.sleep(0.2)
    return f"sent {key}"


@specialist(read_only=True, outside=False, timeout=30)
async def look(key: str) -> str:
    """Has none."""
    await asyncio.sleep(0.3)
    return f"saw {key}"
'''
EVERY = 0.06
"""Seconds between two words."""
END_SECONDS = 60.0
"""A client that waits longer for its end counts as hanging."""
SILENCE_SECONDS = 30.0
"""The same for a stream without any byte, which should have heartbeats."""
RETRY_SECONDS = 0.2
UNAVAILABLE = frozenset((503,))
KINDS = ("detached", "get", "post", "approval", "openai", "lost")
"""Clients: of a turn that needs none, an EventSource, one that returns to its POST, one that decides; two that do not
return."""
CLIENTS = 10
KEY = "key-of-the-crashes"
CLOCK = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, now);
    if (!failed && id == CLOCK_REALTIME) now->tv_sec += atoi(getenv("CLOCK_SKEW"));
    return failed;
}
"""
"""Sets the date of a process, and no other clock: libfaketime 0.9.10 breaks `clock_nanosleep`."""
AWAY_SECONDS = 60.0
"""How long `database-stop` stops the database."""


def items_of(key: str, words: int, calls: str) -> list[str]:
    """Return the words and calls of an answer: a call after each third of the words."""
    items: list[str] = []
    names = calls.split("+") if calls else []
    places = {words * (number + 1) // (len(names) + 1): number for number in range(len(names))}
    for word in range(words):
        if word in places:
            number = places[word]
            items.append(f'SPECIALIST_REQUEST[{names[number]}:{{"key":"{key}c{number}"}}]')
        items.append(f"{key}w{word} ")
    return items


def question(key: str, words: int, calls: str) -> str:
    return f"Count {key} {words} {calls or 'none'} please."


QUESTION = re.compile(r"Count (k\d+) (\d+) (\S+) please")


class Counting(OpenAIServer):
    """A model that continues the answer to the last question after what the request already has of it."""

    def __init__(self) -> None:
        listed = {"object": "list", "data": [{"id": "counting", "object": "model", "owned_by": "someone"}]}
        super().__init__(answers={"GET /v1/models": (200, listed)})
        self.resumed: Counter[str] = Counter()

    async def answer(
        self, request: ReceivedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.requests.clear()
        self.generations.clear()
        if request.path in self.generating:
            self._passes = iter([self._plan(request.body["messages"])])
        await super().answer(request, reader, writer)

    def _plan(self, messages: Sequence[dict[str, Any]]) -> Pass:
        texts = [str(one.get("content") or "") for one in messages]
        asked = [
            (number, found)
            for number, one in enumerate(messages)
            if one["role"] == "user" and (found := QUESTION.search(texts[number]))
        ]
        if not asked or any("background task" in text and "run 1" in text for text in texts[asked[-1][0] + 1 :]):
            return Pass(("The tasks ", "are done."), every=EVERY)
        number, found = asked[-1]
        key, calls = found[1], "" if found[3] == "none" else found[3]
        items = items_of(key, int(found[2]), calls)
        given = "".join(texts[number + 1 :])
        next_one = 0
        for place, item in enumerate(items):
            (name,) = re.findall(rf"{key}[cw]\d+", item)
            if re.search(rf"{name}\b", given) is not None:
                next_one = place + 1
        if next_one:
            self.resumed[messages[-1]["role"]] += 1
        return Pass(tuple(items[next_one:]) or (" ",), every=EVERY)


@dataclass
class Turn:
    """What a client has of its turn.

    Attributes:
        pieces: numbers and texts of tokens since the last rewind, which begins with its text.
    """

    key: str
    kind: str
    words: int
    calls: str
    turn_id: str = ""
    conversation_id: str = ""
    last: str = ""
    pieces: list[tuple[int, str]] = field(default_factory=list)
    end: str = ""
    done: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)

    @property
    def number(self) -> int:
        return int(self.last.rpartition(".")[2] or 0)


class Judge:
    """Clients of a server, and what they saw.

    Attributes:
        wrong: all that must not happen.
        waits: seconds from a kill to the first new event of a turn that another process continues.
        patience: seconds for which a client repeats a request.
        is_lenient: whether the database was away: an answer is then stored after its end, and calls can fail.
    """

    def __init__(self, servers: "Servers", seed: int, kinds: Sequence[str]) -> None:
        self.servers = servers
        self.kinds = kinds
        self.folder = servers.folder
        self.random = random.Random(seed)
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.waits: list[float] = []
        self.kills: list[float] = []
        self.turns: list[Turn] = []
        self.tasks: dict[str, str] = {}
        self._deciding: set[asyncio.Task[None]] = set()
        self.urls: Sequence[str] = ()
        self.patience = END_SECONDS
        self.is_lenient = False
        self.is_over = False
        self.is_done = False
        self.is_calm = False
        self._next = 0
        timeout = httpx.Timeout(SILENCE_SECONDS, connect=SILENCE_SECONDS)
        limits = httpx.Limits(max_keepalive_connections=0)  # each request may reach another worker
        headers = {"authorization": f"Bearer {KEY}"}
        self.client = httpx.AsyncClient(timeout=timeout, limits=limits, headers=headers, trust_env=False)

    def url(self) -> str:
        return self.random.choice(self.urls)

    def say(self, turn: Turn | None, what: str) -> None:
        who = "" if turn is None else f"{turn.kind} {turn.key} {turn.turn_id}: "
        self.wrong.append(f"{who}{what}")
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} WRONG {who}{what}\n")

    def new_turn(self, kind: str) -> Turn:
        self._next += 1
        self.counts["turns begun"] += 1
        calls = {"approval": "letter+write", "lost": "write"}.get(kind) or self.random.choice(
            ["", "write", "look+write", "write+write+look"]
        )
        turn = Turn(f"k{self._next}", kind, self.random.randint(40, 90), calls)
        turn.conversation_id = f"chat-{turn.key}"
        self.turns.append(turn)
        return turn

    # Clients

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request again until the server answers it."""
        until = time.monotonic() + self.patience
        while True:
            try:
                answer = await self.client.request(method, self.url() + path, **options)
            except httpx.HTTPError:
                self.counts["requests again"] += 1
            else:
                if answer.status_code not in UNAVAILABLE:
                    return answer
                self.counts[f"{method} {answer.status_code}"] += 1
            if time.monotonic() > until:
                raise TimeoutError(f"{method} {path}")
            await asyncio.sleep(RETRY_SECONDS)

    async def run(self, kind: str) -> Turn:
        """One turn, from its question to its end."""
        turn = self.new_turn(kind)
        try:
            async with asyncio.timeout((3 if kind in ("openai", "lost") else 1) * self.patience + turn.words * EVERY):
                if kind in ("openai", "lost"):
                    await self._run_once(turn)
                else:
                    await self._read_to_end(turn)
        except TimeoutError:
            self.say(turn, f"hangs after {turn.last}, with {turn.text[-60:]!r}")
        except Exception as error:  # noqa: BLE001
            self.say(turn, repr(error))
        return turn

    async def _read_to_end(self, turn: Turn) -> None:
        body = {
            "message": question(turn.key, turn.words, turn.calls),
            "conversation_id": turn.conversation_id,
            "request_id": f"request-{turn.key}",
        }
        path, method = "/v1/chat/stream", "POST"
        options: dict[str, Any] = {"json": body}
        if turn.kind in ("detached", "approval"):
            begun = await self.ask("POST", "/v1/turns", json=body)
            if begun.status_code != 201:
                self.say(turn, f"{begun.status_code} {begun.text}")
                return
            turn.turn_id = begun.json()["turn_id"]
            path, method, options = f"/v1/turns/{turn.turn_id}/events", "GET", {}
        elif turn.kind == "get":
            method, options = "GET", {"params": body}
        while not turn.end:
            headers = {"last-event-id": turn.last} if turn.last else {}
            try:
                async with self.client.stream(method, self.url() + path, headers=headers, **options) as response:
                    if response.status_code in UNAVAILABLE:
                        self.counts[f"{turn.kind} {response.status_code}"] += 1
                    elif response.status_code == 410:  # its process died after it had stored the answer
                        await self._read_stored(turn)
                    elif response.status_code != 200:
                        text = (await response.aread()).decode()
                        self.say(turn, f"after {turn.last}: {response.status_code} {text}")
                        return
                    else:
                        async for name, data, event_id in _events(response):
                            self._take(turn, name, data, event_id)
                        if not turn.end:
                            self.counts["ends properly without an end"] += 1
                            self.say(turn, f"the stream ends properly after {turn.last}, without an end")
                            return
            except httpx.ReadTimeout:
                self.say(turn, f"silence after {turn.last}")
            except httpx.HTTPError:
                self.counts["broken streams"] += 1
            if not turn.end:
                await asyncio.sleep(RETRY_SECONDS)
        await self._check(turn)

    async def _read_stored(self, turn: Turn) -> None:
        """Take the answer from the conversation, as a client does without events."""
        shown = await self.ask("GET", f"/v1/conversations/{turn.conversation_id}")
        stored = _text(shown.json()["messages"][-1])
        turn.pieces, turn.end = [(turn.number, stored)], "done"
        turn.done = {"text": stored, "stop_reason": "complete"}
        self.counts["ended while its client was away"] += 1

    def _take(self, turn: Turn, name: str, data: Any, event_id: str) -> None:
        turn_id, _, number_text = event_id.rpartition(".")
        number = int(number_text)
        if name == "turn_start" or not turn.turn_id:
            turn.turn_id = turn.turn_id or turn_id
        if turn_id != turn.turn_id:
            self.say(turn, f"an event of another turn: {event_id}")
        if number != turn.number + 1 and name != "rewind" and not (name == "error" and data.get("code") == "shutdown"):
            self.say(turn, f"{name} {number} follows {turn.number}")
        if name == "rewind":
            kept = [(n, text) for n, text in turn.pieces if n <= data["to"]]
            known = "".join(text for _, text in kept)
            if turn.number >= data["to"] and known != data["text"]:
                self.say(turn, f"rewind to {data['to']} has {data['text'][-60:]!r}, not {known[-60:]!r}")
            turn.pieces = [(data["to"], data["text"])]
            self.counts["rewinds"] += 1
            if self.kills:
                self.waits.append(time.monotonic() - self.kills[-1])
        elif name == "token":
            turn.pieces.append((number, data["text"]))
        elif name == "approval_required":
            deciding = asyncio.create_task(self._decide(turn, data["call_id"]))
            self._deciding.add(deciding)
            deciding.add_done_callback(self._deciding.discard)
        elif name in ("done", "error"):
            turn.end, turn.done = name, data
        turn.last = event_id

    async def _decide(self, turn: Turn, call_id: str) -> None:
        await asyncio.sleep(self.random.uniform(0, 1))
        path = f"/v1/turns/{turn.turn_id}/approvals/{call_id}"
        with suppress(TimeoutError):
            answer = await self.ask("POST", path, json={"approve": True})
            self.counts[f"decided {answer.status_code}"] += 1
            if answer.status_code != 200 and not turn.end:
                self.counts[f"decided {answer.status_code} {answer.json()['error']['message']}"] += 1

    async def _run_once(self, turn: Turn) -> None:
        """A client that does not come back."""
        asked = question(turn.key, turn.words, turn.calls)
        text, is_broken, is_done = "", False, False
        headers = {"x-conversation-id": turn.conversation_id}
        path = "/v1/chat/completions"
        body: dict[str, Any] = {
            "model": "openai:counting",
            "stream": True,
            "messages": [{"role": "user", "content": asked}],
        }
        if turn.kind == "lost":
            path, body, headers = "/v1/chat/stream", {"message": asked, "conversation_id": turn.conversation_id}, {}
        while True:
            try:
                async with self.client.stream("POST", self.url() + path, json=body, headers=headers) as response:
                    if response.status_code == 200:
                        async for name, data, _ in _events(response):
                            if name == "token":
                                text += data["text"]
                            elif data == "[DONE]" or name == "done":
                                is_done = True
                            elif name == "message" and "error" in data:
                                self.counts[f"openai error {data['error'].get('code')}"] += 1
                            elif name == "message" and data["choices"]:
                                text += data["choices"][0]["delta"].get("content") or ""
                    else:
                        answer = (await response.aread()).decode()
                        if response.status_code not in (*UNAVAILABLE, 409):
                            self.say(turn, f"{response.status_code} {answer}")
                            return
                        self.counts[f"{turn.kind} {response.status_code}"] += 1
                        if response.status_code == 409 and is_broken:
                            break
                        await asyncio.sleep(RETRY_SECONDS)
                        continue
            except httpx.ReadTimeout:
                self.say(turn, "silence")
            except httpx.HTTPError:
                is_broken = True
                self.counts["broken streams"] += 1
                if not text:  # whether it began is not known
                    await asyncio.sleep(RETRY_SECONDS)
                    shown = await self.ask("GET", f"/v1/conversations/{turn.conversation_id}")
                    if shown.status_code == 404:
                        continue
            break
        if not is_broken and not is_done:
            self.say(turn, f"the stream ends properly without an end, after {text[-30:]!r}")
        stored: dict[str, Any] = {}
        while True:
            shown = await self.ask("GET", f"/v1/conversations/{turn.conversation_id}")
            if shown.status_code == 200 and not shown.json()["running"]:
                stored = shown.json()["messages"][-1] if shown.json()["messages"] else {}
                break
            await asyncio.sleep(1)
        answer = _text(stored)
        turn.end = stored.get("state", "nothing")
        self.counts[f"{turn.kind} {turn.end}"] += 1
        if is_done and (_squeeze(answer), turn.end) != (_squeeze(text), "complete"):
            self.say(turn, f"{turn.end} {answer[-60:]!r}, shown {text[-60:]!r}")
        if is_broken and turn.end not in ("interrupted", "complete", "cancelled", "nothing"):
            self.say(turn, f"is {turn.end} after the kill")

    async def _check(self, turn: Turn) -> None:
        """Check an answer that has ended: its events, its report, its messages, and what the model wrote."""
        if turn.end != "done":
            self.say(turn, f"ended with {turn.done}")
            return
        shown = await self.ask("GET", f"/v1/conversations/{turn.conversation_id}")
        until = time.monotonic() + self.patience
        while self.is_lenient and shown.json()["running"] and time.monotonic() < until:
            await asyncio.sleep(RETRY_SECONDS)
            shown = await self.ask("GET", f"/v1/conversations/{turn.conversation_id}")
        message = shown.json()["messages"][-1]
        stored = _text(message)
        if not turn.text == turn.done["text"] == stored:
            self.say(turn, f"shown {turn.text[-90:]!r}, done {turn.done['text'][-90:]!r}, stored {stored[-90:]!r}")
        written = "".join(item for item in items_of(turn.key, turn.words, turn.calls) if item.startswith(turn.key))
        if stored.split() != written.split():
            missing = [one for one in written.split() if one not in stored.split()]
            self.say(turn, f"the answer differs; missing {missing[:5]}, {len(stored.split())} of {turn.words} words")
        if (message["state"], turn.done["stop_reason"]) != ("complete", "complete"):
            self.say(turn, f"state {message['state']}, reason {turn.done['stop_reason']}")
        report = await self.ask("GET", f"/v1/turns/{turn.turn_id}")
        if report.status_code != 200 or report.json()["state"] != "done":
            self.say(turn, f"its report: {report.status_code} {report.text[:200]}")
        self.counts[f"{turn.kind} complete"] += 1

    async def keep_asking(self, kinds: Sequence[str]) -> None:
        while not self.is_over:
            if self.is_calm:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                await self.run(self.random.choice(kinds))

    async def keep_adding_tasks(self, conversations: int, left: int = 10_000) -> None:
        """Have two tasks to do at any time, until it is over."""
        while not self.is_over and left:
            left -= 1
            self._next += 1
            key = f"k{self._next}"
            prompt = question(key, self.random.randint(15, 40), self.random.choice(["write", "write+look+write"]))
            body = {"prompt": prompt, "title": key, "conversation_id": f"tasks-{self._next % conversations}"}
            try:
                answer = await self.ask("POST", "/v1/tasks", json=body)
                if answer.status_code not in (201, 409):
                    self.say(None, f"POST /v1/tasks: {answer.status_code} {answer.text}")
                found = answer.json()
                task_id = found["task_id"] if "task_id" in found else found.get("id") or found["error"]["task_id"]
                self.tasks[key] = task_id
                until = time.monotonic() + 2 * self.patience
                while time.monotonic() < until:
                    await asyncio.sleep(1)
                    shown = (await self.ask("GET", f"/v1/tasks/{task_id}")).json()
                    if shown["state"] in ("succeeded", "failed", "canceled"):
                        self.counts[f"task {shown['state']}"] += 1
                        if shown["state"] != "succeeded" and "the server stopped" not in shown.get("reason", ""):
                            self.say(None, f"task {key}: {shown}")
                        break
                else:
                    self.say(None, f"task {key} {task_id} does not end: {shown}")
            except Exception as error:  # noqa: BLE001
                self.say(None, f"task {key}: {error!r}")

    # The end

    async def finish(self, clients: Sequence["asyncio.Task[None]"]) -> None:
        """Let all clients come to their end, then check the store and the effects."""
        self.is_over = True
        await asyncio.gather(*clients)
        until = time.monotonic() + END_SECONDS
        while (left := await asyncio.to_thread(self._left)) and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        if left:
            self.say(None, f"left in the store: {left}")
        effects = (self.folder / "effects").read_text().split("\n")[:-1] if (self.folder / "effects").exists() else []
        ran = Counter(line.split()[0] for line in effects)
        for key, times in ran.items():
            if times > 1:
                self.say(None, f"call {key} ran {times} times: {[one for one in effects if one.startswith(key)]}")
        for turn in self.turns:
            if turn.conversation_id:
                await self._check_calls(turn, ran)
        self.counts["effects"] = len(effects)
        await self._check_tasks()
        self.is_done = True

    def _left(self) -> list[Any]:
        return [
            row
            for query in (
                "SELECT key, process, epoch FROM exchange WHERE outcome = ''",
                "SELECT id, state FROM task WHERE state IN ('running', 'pending')",
                "SELECT DISTINCT exchange FROM draft",
                "SELECT conversation, key FROM channel WHERE is_told = 0",
            )
            for row in self.servers.rows(query)
        ]

    async def _check_calls(self, turn: Turn, ran: Counter[str]) -> None:
        shown = await self.ask("GET", f"/v1/conversations/{turn.conversation_id}")
        if shown.status_code != 200:
            return
        for message in shown.json()["messages"]:
            for part in message["parts"]:
                if part["type"] != "call" or part["name"] == "look":
                    continue
                key, code = part["params"]["key"], (part.get("outcome") or part.get("code") or "")
                times = ran[key]
                if "wrote" in str(part.get("text")) or "sent" in str(part.get("text")):
                    if times != 1 and not code:
                        self.say(turn, f"call {key} has a result and ran {times} times")
                elif self.is_lenient and code == "failed" and not times:  # its start could not be stored
                    self.counts["calls that did not start"] += 1
                elif code == "interrupted":
                    self.counts[f"calls interrupted, ran {times} times"] += 1
                elif turn.kind not in ("openai", "lost"):
                    self.say(turn, f"call {key} ran {times} times: {part}")

    async def _check_tasks(self) -> None:
        packets = [json.loads(data) for (data,) in self.servers.rows("SELECT data FROM channel")]
        told = [data for (data,) in self.servers.rows("SELECT data FROM exchange WHERE source = 'report'")]
        notes = "".join(data if isinstance(data, str) else bytes(data).decode() for data in told)
        ends = Counter(one["task_id"] for one in packets if one.get("kind") in ("result", "failure"))
        for key, task_id in self.tasks.items():
            if ends[task_id] != 1:
                self.say(None, f"task {key} has {ends[task_id]} ends")
            reports = len(re.findall(rf'"{key}\\*", run 1', notes))
            if reports != 1:
                self.say(None, f"task {key} was reported {reports} times")

    def figures(self) -> dict[str, Any]:
        waits = sorted(self.waits)
        kinds = {"min": waits[0], "p50": waits[len(waits) // 2], "max": waits[-1]} if waits else {}
        return {
            "kills": len(self.kills),
            "turns": len(self.turns),
            "tasks": len(self.tasks),
            "seconds to the first new event": {name: round(value, 2) for name, value in kinds.items()},
            "counts": dict(sorted(self.counts.items())),
            "wrong": self.wrong,
        }


async def _events(response: httpx.Response) -> AsyncIterator[tuple[str, Any, str]]:
    """Yield name, data and ID of each event, also of one without a name."""
    name, data, event_id = "message", "", ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            data = line[6:]
        elif line.startswith("id: "):
            event_id = line[4:]
        elif not line and data:
            yield name, data if data == "[DONE]" else json.loads(data), event_id
            name, data = "message", ""


def _text(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message.get("parts", ()) if part["type"] == "text")


def _squeeze(text: str) -> list[str]:
    return re.findall(r"k\d+w\d+", text)


@dataclass(frozen=True)
class Options:
    """The arguments of the script."""

    scenario: str
    rounds: int
    seed: int
    resume: str
    kinds: Sequence[str]
    keep: Path | None
    store: str
    replicas: int
    skew: int
    delay: float


class Servers:
    """One or more `brain serve` on one store.

    Attributes:
        cluster: the database server, if this script runs it.
        urls: URLs of all servers, also of those that do not run now.
    """

    def __init__(self, folder: Path, model: str, stack: ExitStack, options: Options) -> None:
        (folder / "specialists").mkdir()
        (folder / "specialists" / "some.py").write_text(SPECIALISTS)
        self.folder = folder
        self.options = options
        self.cluster: Cluster | None = None
        self.urls: list[str] = []
        self.running: list[Process] = []
        self._stack = stack
        store = self._store = options.store or f"sqlite:{folder}/db"
        if store == "postgresql":
            self.cluster = stack.enter_context(run_cluster())
            store = self._store = self.cluster.create_database("crashes")
        if options.delay:
            proxy = stack.enter_context(run_proxy(store))
            proxy.response_delay = options.delay
            store = proxy.url
        if options.skew:
            command = ("gcc", "-shared", "-fPIC", "-o", str(folder / "clock.so"), "-x", "c", "-", "-ldl")
            subprocess.run(command, input=CLOCK, text=True, check=True)
        self._env = {
            "BRAIN_STORE": store,
            "BRAIN_KEYS": f"{KEY}:ann",
            "BRAIN_MODEL": "openai:counting",
            "BRAIN_MODEL_URL": model,
            "BRAIN_MODEL_RESUME": options.resume,
            "BRAIN_SPECIALISTS_FOLDER": str(folder / "specialists"),
            "BRAIN_TIME_ZONE": "UTC",
            "BRAIN_TURNS_A_MINUTE": "0",
            "BRAIN_TURNS_AT_ONCE": "0",
            "BRAIN_TASKS_PER_DAY": "0",
            "BRAIN_TASK_QUIET_SECONDS": "1",
            "BRAIN_TASK_WAIT_SECONDS": "2",
            "BRAIN_TASK_PAUSE_SECONDS": "1",
            "BRAIN_HEARTBEAT_SECONDS": "5",
            "BRAIN_CONNECTIONS_PER_ADDRESS": "10000",
            "EFFECTS": str(folder / "effects"),
        }

    async def start(self, judge: Judge, servers: int = 1, workers: int = 1) -> None:
        """Start this number of servers, each with workers, or all replicas; clients then ask any of them."""
        for number in range(self.options.replicas or servers):
            self.running.append(self._start(number, workers, 0))
        self._workers = workers
        self.urls = [await asyncio.to_thread(one.url) for one in self.running]
        judge.urls = self.urls

    def _start(self, number: int, workers: int, port: int) -> Process:
        if not self.options.replicas:
            arguments = ("serve", "--workers", str(workers), "--port", str(port))
            return self._stack.enter_context(Process(*arguments, env=self._env))
        clock: dict[str, str] = {}
        if self.options.skew:
            seconds = (0, self.options.skew, self.options.skew // 2)[number]
            clock = {"LD_PRELOAD": str(self.folder / "clock.so"), "CLOCK_SKEW": str(seconds)}
        return self._stack.enter_context(replica(self.folder, number, self._env | clock, port=port))

    def pids(self) -> list[int]:
        """Return the processes that serve and run."""
        if not self.options.replicas and self._workers > 1:
            return [pid for server in self.running for pid in workers_of(server)]
        return [one.process.pid for one in self.running if one.process.poll() is None]

    async def start_again(self, judge: Judge) -> None:
        """Start each server that has ended at its port, as a process manager does."""
        for number, one in enumerate(self.running):
            if one.process.poll() is not None:
                await self._read_log(judge, one)
                port = int(self.urls[number].rpartition(":")[2])
                self.running[number] = self._start(number, self._workers, port)

    async def stop(self, judge: Judge) -> None:
        """Stop all servers."""
        for one in self.running:
            one.process.send_signal(signal.SIGTERM)
        for one in self.running:
            await self._read_log(judge, one)
        self.running.clear()

    async def _read_log(self, judge: Judge, server: Process) -> None:
        try:
            _, _, err = await asyncio.to_thread(server.end)
        except subprocess.TimeoutExpired:
            judge.say(None, f"process {server.process.pid} does not end")
            server.process.send_signal(signal.SIGABRT)  # it writes its stacks
            _, _, err = await asyncio.to_thread(server.end)
        with (self.folder / "log").open("a") as file:
            file.write(f"{err}\n----\n")
        for line in err.splitlines() if "Brain is running" in err else ():  # else it was stopped before it served
            if "Traceback" in line or re.match(r"(ERROR|CRITICAL)", line):
                if judge.is_lenient and "Traceback" not in line:
                    judge.counts["errors in the log"] += 1
                else:
                    judge.say(None, line)
        judge.counts["considered dead"] += err.count("was considered dead")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return what a query finds in the database."""
        if self._store.startswith("sqlite:"):
            with closing(sqlite3.connect(self._store.removeprefix("sqlite:"))) as db:
                return db.execute(query).fetchall()
        import psycopg  # of an extra

        with psycopg.connect(self._store) as connection:
            found: list[tuple[Any, ...]] = connection.execute(query.encode()).fetchall()
            return found

    def processes(self) -> list[str]:
        return [name for (name,) in self.rows("SELECT id FROM process")]

    async def commits(self, seconds: float) -> int:
        """Count the commits of all processes to the SQLite file in some time."""
        db = sqlite3.connect(self._store.removeprefix("sqlite:"), isolation_level=None)
        last, commits = None, -1
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ((version,),) = db.execute("PRAGMA data_version")
            commits += version != last
            last = version
            await asyncio.sleep(0.01)
        db.close()
        return commits


def workers_of(server: Process) -> list[int]:
    """Return the process IDs of the workers of a server."""
    command = ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(server.process.pid)]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return [int(line.split()[0]) for line in lines if "spawn_main" in line]


async def under_clients(
    judge: Judge, servers: Servers, rounds: int, disturb: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Disturb the servers in each round, under all kinds of clients."""
    await servers.start(judge, workers=2)
    clients = [asyncio.create_task(judge.keep_asking(judge.kinds)) for _ in range(CLIENTS)]
    clients += [asyncio.create_task(judge.keep_adding_tasks(3)) for _ in range(4)]
    await asyncio.sleep(2)
    for number in range(rounds):
        judge.is_calm = number % 10 > 5  # tasks wait for the turns of people
        await asyncio.sleep(judge.random.uniform(3, 6.5))
        await disturb()
        if number % 10 == 9:
            sys.stderr.write(f"{number + 1} {json.dumps(judge.figures())[:1500]}\n")
    await judge.finish(clients)


async def kill(judge: Judge, servers: Servers, rounds: int, how: signal.Signals) -> None:
    """Kill or stop a random process per round."""

    async def keep_running() -> None:
        while not judge.is_done:
            await servers.start_again(judge)
            await asyncio.sleep(0.2)

    async def disturb() -> None:
        while not (pids := servers.pids()):  # all were killed, one after the other
            judge.counts["no process"] += 1
            await asyncio.sleep(0.1)
        with suppress(ProcessLookupError):
            os.kill(judge.random.choice(pids), how)
            judge.kills.append(time.monotonic())

    managing = asyncio.create_task(keep_running()) if servers.options.replicas else None  # as a supervisor does
    await under_clients(judge, servers, rounds, disturb)
    if managing is not None:
        await managing
    await servers.stop(judge)


async def disturb_database(judge: Judge, servers: Servers, rounds: int, how: str) -> None:
    """Restart the database in each round, stop it for a minute, or kill it."""
    cluster = servers.cluster
    if cluster is None:
        raise SystemExit("this scenario needs --store postgresql")
    judge.is_lenient = True
    judge.patience = END_SECONDS + AWAY_SECONDS

    async def disturb() -> None:
        judge.kills.append(time.monotonic())
        await asyncio.to_thread(cluster.kill if how == "kill" else cluster.stop)
        await asyncio.sleep({"restart": 0.0, "stop": AWAY_SECONDS, "kill": judge.random.uniform(0, 2)}[how])
        await asyncio.to_thread(cluster.start)

    await under_clients(judge, servers, rounds, disturb)
    await servers.stop(judge)


async def freeze(judge: Judge, servers: Servers, rounds: int) -> None:
    """Freeze one of several servers for 10 s, under clients of all."""
    await servers.start(judge, servers=2)
    urls = servers.urls
    await asyncio.sleep(2)
    for _ in range(rounds):
        clients = [asyncio.create_task(judge.keep_asking(("detached", "get", "approval"))) for _ in range(8)]
        clients += [asyncio.create_task(judge.keep_adding_tasks(3)) for _ in range(2)]
        await asyncio.sleep(4)
        frozen = judge.random.randrange(len(urls))
        before = servers.processes()
        servers.running[frozen].process.send_signal(signal.SIGSTOP)
        judge.kills.append(time.monotonic())
        judge.urls = [url for url in urls if url != urls[frozen]]  # a load balancer would notice
        await asyncio.sleep(10)
        servers.running[frozen].process.send_signal(signal.SIGCONT)
        await asyncio.sleep(4)
        after = servers.processes()
        if len(after) != len(urls) or len(set(before) & set(after)) != len(urls) - 1:
            judge.say(None, f"the processes were {before} and are {after}")
        for number in range(len(urls)):  # each finds a turn of another one
            judge.urls = [urls[number]]
            begun = (await judge.ask("POST", "/v1/turns", json={"message": question("k0", 30, "")})).json()
            judge.urls = [urls[number - 1]]
            at = time.monotonic()
            answer = await judge.client.get(judge.url() + begun["events"])
            if answer.status_code != 200 or "event: done" not in answer.text:
                judge.say(None, f"forwarded after a freeze: {answer.status_code} after {time.monotonic() - at:.1f} s")
        judge.urls = urls
        judge.is_over = True
        await asyncio.gather(*clients)
        judge.is_over = False
    await judge.finish([])
    await servers.stop(judge)


async def restart(judge: Judge, servers: Servers, rounds: int) -> None:
    """Kill all processes at once, and start them again on their ports."""
    await servers.start(judge)
    clients = [asyncio.create_task(judge.keep_asking(judge.kinds)) for _ in range(8)]
    clients += [asyncio.create_task(judge.keep_adding_tasks(3)) for _ in range(2)]
    for number in range(rounds):
        judge.is_calm = number % 4 == 3
        await asyncio.sleep(judge.random.uniform(3, 6))
        for one in servers.running:
            one.process.kill()
        judge.kills.append(time.monotonic())
        for one in servers.running:
            await asyncio.to_thread(one.process.wait)
        await servers.start_again(judge)
        for one in servers.running:
            await asyncio.to_thread(one.url)
    await judge.finish(clients)
    await servers.stop(judge)


async def stop(judge: Judge, servers: Servers, rounds: int) -> None:
    """Stop all servers and their workers, and start them again; each reader learns of it at once."""
    for _ in range(rounds):
        await servers.start(judge, workers=2)
        turns = [judge.new_turn("post") for _ in range(6)] + [judge.new_turn("detached") for _ in range(4)]

        async def read(turn: Turn) -> str:
            url = judge.url()
            body = {"message": question(turn.key, 400, ""), "conversation_id": turn.conversation_id}
            path, method = "/v1/chat/stream", "POST"
            more: dict[str, Any] = {"json": body}
            if turn.kind == "detached":
                begun = (await judge.ask("POST", "/v1/turns", json=body)).json()
                path, method, more = begun["events"], "GET", {}
            end = "broken"
            with suppress(httpx.HTTPError):
                async with judge.client.stream(method, url + path, **more) as response:
                    async for name, data, _ in _events(response):
                        end = data.get("code", name)
            return f"{turn.kind} ends with {end}"

        reading = [asyncio.create_task(read(turn)) for turn in turns]
        await asyncio.sleep(3)
        at = time.monotonic()
        await servers.stop(judge)
        judge.counts.update(await asyncio.gather(*reading))
        judge.waits.append(time.monotonic() - at)
        if time.monotonic() > at + 10:
            judge.say(None, f"the stop took {time.monotonic() - at:.1f} s")
        outcomes = servers.rows("SELECT outcome, count(*) FROM exchange GROUP BY outcome")
        judge.counts.update({f"stored as {outcome or 'running'}": number for outcome, number in outcomes})


async def idle(judge: Judge, servers: Servers, rounds: int) -> None:
    """Count commits of a process without turns: alone, with another one, and alone again."""
    await servers.start(judge)
    await asyncio.sleep(3)
    judge.counts["commits alone"] = await servers.commits(5)
    await servers.start(judge)
    await asyncio.sleep(3)
    judge.counts["commits of two"] = await servers.commits(5)
    servers.running[1].process.kill()
    await asyncio.sleep(5)
    judge.counts["commits alone again"] = await servers.commits(5)
    if judge.counts["commits alone"] or judge.counts["commits alone again"]:
        judge.say(None, "a process without others writes while it does nothing")
    if not 8 <= judge.counts["commits of two"] <= 12:
        judge.say(None, "two processes renew their leases once a second")


Scenario = Callable[[Judge, Servers, int], Coroutine[Any, Any, None]]
SCENARIOS: dict[str, Scenario] = {
    "kill": lambda judge, servers, rounds: kill(judge, servers, rounds, signal.SIGKILL),
    "term": lambda judge, servers, rounds: kill(judge, servers, rounds, signal.SIGTERM),
    "freeze": freeze,
    "restart": restart,
    "stop": stop,
    "idle": idle,
    "database-restart": lambda judge, servers, rounds: disturb_database(judge, servers, rounds, "restart"),
    "database-stop": lambda judge, servers, rounds: disturb_database(judge, servers, rounds, "stop"),
    "database-kill": lambda judge, servers, rounds: disturb_database(judge, servers, rounds, "kill"),
}


async def play(options: Options) -> dict[str, Any]:
    """Play a scenario; return what was seen."""
    with tempfile.TemporaryDirectory(prefix="crashes-") as name, ExitStack() as stack:
        folder = Path(name)
        async with Counting() as model:
            servers = Servers(folder, model.url, stack, options)
            judge = Judge(servers, options.seed, options.kinds)
            try:
                await SCENARIOS[options.scenario](judge, servers, options.rounds)
            except TimeoutError as error:
                judge.say(None, repr(error))
            finally:
                await servers.stop(judge)
                await judge.client.aclose()
                if judge.wrong and options.keep is not None:
                    shutil.copytree(folder, options.keep, dirs_exist_ok=True)
        arguments = {name: str(value) for name, value in vars(options).items() if value}
        return {**arguments, "resumed": dict(model.resumed), **judge.figures()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("rounds", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", choices=("message", "prefill"), default="message")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--keep", type=Path, help="where to copy the folders and the log if something was wrong")
    parser.add_argument("--store", default="", help="`postgresql`, or the setting STORE (default: a SQLite file)")
    parser.add_argument("--replicas", type=int, default=0, choices=range(len(ADDRESSES) + 1))
    parser.add_argument("--skew", type=int, default=0, help="seconds between the clocks of two replicas")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds added to each response of the database")
    found = asyncio.run(play(Options(**vars(parser.parse_args()))))
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
