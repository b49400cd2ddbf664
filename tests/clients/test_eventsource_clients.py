"""Clients that read Brain's own stream, unchanged: EventSource in Node and in Chromium, fetch-event-source, curl.

Between them and Brain stands a proxy that cuts connections, as a bad network does.
"""

import asyncio
import itertools
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

import httpx
import pytest
from brain_servers import Server
from chromium import CHROMIUM, CHROMIUM_ARGS, NEEDS_CHROMIUM
from client_specialists import BREAKS, WEATHER, serve
from cutting_proxy import Cut, Cutter, cutting
from limits import WAIT_SECONDS
from node_clients import Clients
from playwright.sync_api import sync_playwright
from sse_events import Event, read
from turn_helpers import Player

from brain.errors import ModelError
from brain.messages import Chunk
from brain.models.model import PassRequest

CURL = shutil.which("curl")
END = b"0\r\n\r\n"
"""The end of a response, after the last event."""
TALKS: Mapping[str, Sequence[Sequence[Any]]] = {
    "calls": (["I ask. ", WEATHER, BREAKS], ["Grüße ", "😀 ", "from ", "Rome."]),
    "error": (["Half ", ModelError("model_failed", "The model failed.")],),
    "waits": (["I ask. ", WEATHER, BREAKS], ["Grüße ", asyncio.Event]),
    "cancel": (["One ", asyncio.Event],),
    "abort": (["One ", asyncio.Event],),
}
"""What the model plays for a message; at `asyncio.Event` it waits for ever."""


class Talker(Player):
    """Plays what the newest message asks for, and counts how often each was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: Counter[str] = Counter()
        self.players: list[Player] = []

    async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        question = next(message.content for message in reversed(request.messages) if message.role == "user")
        word = question.rpartition("\n")[2]
        talk = TALKS[word.rstrip("0123456789")]
        player = Player(*([item() if item is asyncio.Event else item for item in one] for one in talk))
        self.players.append(player)
        if not request.turn_pass:
            self.turns[word] += 1
        async with aclosing(player.stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk


class Stage:
    """Brain, its model, and the proxy in front of it."""

    def __init__(self, brain: Server, model: Talker, cutter: Cutter) -> None:
        self.brain = brain
        self.model = model
        self.cutter = cutter

    def events_of(self, turn_id: str) -> list[Event]:
        """The events of a turn, for a client without a cut."""
        return read(
            httpx.get(f"{self.brain.url}/v1/turns/{turn_id}/events", trust_env=False, timeout=WAIT_SECONDS)
            .raise_for_status()
            .content
        )

    def requests(self, text: str) -> int:
        return sum(text in head for head in self.cutter.heads)


@contextmanager
def staged(cuts: Mapping[str, Sequence[Cut]]) -> Iterator[Stage]:
    with serve() as brain:
        model = Talker()
        brain.play(model)
        with cutting(brain.port, cuts) as cutter:
            yield Stage(brain, model, cutter)


class Received:
    """What a client reported that it received."""

    def __init__(self, lines: Sequence[Mapping[str, Any]]) -> None:
        self._lines = lines

    def of(self, turn: str) -> list[Event]:
        found = [line for line in self._lines if line["turn"] == turn and "type" in line]
        return [Event(line["type"], line["data"], line["id"]) for line in found]

    def closed(self, turn: str) -> list[int]:
        return [line["closed"] for line in self._lines if line["turn"] == turn and "closed" in line]


IN_QUERY, IN_HEADER = "request_id=turn-{}&", "x-turn: turn-{}."
"""How a request names its turn."""


def judge(stage: Stage, received: Received, turns: Iterable[str]) -> None:
    """Check that each turn was received completely, without duplicates, and started once."""
    for turn in turns:
        events = received.of(turn)
        turn_id = events[0].id.partition(".")[0]
        assert events == stage.events_of(turn_id)
        assert [event.id for event in events] == [f"{turn_id}.{n}" for n in range(1, len(events) + 1)]
        assert stage.model.turns[turn] == 1


def data_of(events: Sequence[Event], name: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.name == name]


def ends_well(events: Sequence[Event]) -> bool:
    """Check the events of a turn with two calls."""
    (result,) = data_of(events, "specialist_result")
    (error,) = data_of(events, "specialist_error")
    (done,) = data_of(events, "done")
    assert result["text"] == "Sunny in Rome."
    assert error["code"] == "failed"
    assert done["stop_reason"] == "complete"
    assert done["text"] == "I ask. Grüße 😀 from Rome."
    assert "".join(one["text"] for one in data_of(events, "token")) == done["text"]
    return True


def count_requests(turn: str) -> int:
    """Number of requests of an EventSource: the first, one after each cut, and a last one with status 204."""
    cuts = PLACES.get(turn, [])
    return 2 + len(cuts) - (END in cuts)


def reason(events: Sequence[Event]) -> str:
    """The stop reason or error code of a turn."""
    last = events[-1].data
    return str(last.get("stop_reason") or last["code"])


def query(turn: str) -> dict[str, str]:
    return {"request_id": f"turn-{turn}", "message": turn}


# EventSource, in Node and in Chromium

PLACES: dict[str, list[Cut]] = {
    "calls1": [0],
    "calls2": [20, 500],
    "calls3": [190, 333],
    "calls4": [410, 1],
    "calls5": [END],
    "calls6": [700],
    "error1": [430],
    "cancel1": [END],
}


@pytest.mark.node
def test_eventsource_in_node(clients: Clients) -> None:
    turns = ["calls", *PLACES, "error", "cancel"]
    with staged({IN_QUERY.format(turn): cuts for turn, cuts in PLACES.items()}) as stage:
        asked = json.dumps({turn: query(turn) for turn in turns})
        received = Received([json.loads(line) for line in clients.run("eventsource.mjs", stage.cutter.url, asked)])
        judge(stage, received, turns)
        assert [stage.requests(IN_QUERY.format(turn)) for turn in turns] == [*map(count_requests, turns)]
        assert {turn: received.closed(turn) for turn in turns} == {turn: [204] for turn in turns}
        assert all(ends_well(received.of(turn)) for turn in turns if turn.startswith("calls"))
        assert [reason(received.of(turn)) for turn in ("error", "error1")] == ["model_failed"] * 2
        assert [reason(received.of(turn)) for turn in ("cancel", "cancel1")] == ["cancelled"] * 2


IN_PAGE = """
async ([turns, names]) => {
  const heard = [];
  const open = Object.entries(turns).map(([turn, query]) => new Promise((over) => {
    const source = new EventSource(`/v1/chat/stream?${new URLSearchParams(query)}`);
    for (const type of names) source.addEventListener(type, (event) => {
      if (event.data === undefined) return;
      heard.push({ turn, type, data: event.data, id: event.lastEventId });
      const stop = turn.startsWith("cancel") && type === "token";
      if (stop) fetch(`/v1/turns/${event.lastEventId.split(".")[0]}/cancel`, { method: "POST" });
    });
    source.addEventListener("error", (event) => {
      if (event.data !== undefined || source.readyState !== EventSource.CLOSED) return;
      heard.push({ turn, closed: 204 });
      over();
    });
  }));
  await Promise.all(open);
  return heard;
}
"""


@pytest.mark.chromium
@NEEDS_CHROMIUM
def test_eventsource_in_chromium() -> None:
    turns = ["calls", "calls2", "calls3", "error", "cancel1"]  # no more than a browser has connections to a server
    names = sorted(
        {
            "error",
            "usage",
            "done",
            "token",
            "turn_start",
            *(f"specialist_{what}" for what in ("start", "result", "error")),
        }
    )
    with (
        staged({IN_QUERY.format(turn): PLACES.get(turn, []) for turn in turns}) as stage,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        try:
            page = browser.new_page()
            page.goto(stage.cutter.url)
            received = Received(page.evaluate(IN_PAGE, [{turn: query(turn) for turn in turns}, names]))
        finally:
            browser.close()
        judge(stage, received, turns)  # a browser may drop the end of a cut answer, and ask once more
        assert {turn: received.closed(turn) for turn in turns} == {turn: [204] for turn in turns}
        assert all(ends_well(received.of(turn)) for turn in turns if turn.startswith("calls"))
        assert [reason(received.of(turn)) for turn in ("error", "cancel1")] == ["model_failed", "cancelled"]


# fetch-event-source, which posts, and comes back by itself

POSTED: dict[str, list[Cut]] = {
    "waits1": [0],
    "waits2": [250, 200],
    "waits3": [420],
    "waits4": [560],
    "calls5": [END],
    "abort": [],
}


@pytest.mark.node
def test_fetch_event_source(clients: Clients) -> None:
    turns = [*POSTED, "calls", "error", "cancel"]
    with staged({IN_HEADER.format(turn): cuts for turn, cuts in POSTED.items()}) as stage:
        asked = json.dumps({turn: {"message": turn, "request_id": f"turn-{turn}"} for turn in turns})
        lines = clients.run("fetch_event_source.mjs", stage.cutter.url, asked)
        received = Received([json.loads(line) for line in lines])
        assert {turn: received.closed(turn) for turn in turns} == {turn: [0] for turn in turns}
        complete = [turn for turn in turns if turn != "abort"]
        judge(stage, received, complete)
        requests = [stage.requests(IN_HEADER.format(turn)) for turn in complete]
        assert requests == [1 + len(POSTED.get(turn, [])) for turn in complete]
        cut = ["waits1", "waits2", "waits3", "waits4"]
        assert [reason(received.of(turn)) for turn in cut] == ["cancelled"] * 4  # their readers had left
        assert all(ends_well(received.of(turn)) for turn in ("calls", "calls5"))
        assert [reason(received.of(turn)) for turn in ("error", "cancel")] == ["model_failed", "cancelled"]
        abandoned = received.of("abort")
        assert [event.name for event in abandoned] == ["turn_start", "token"]
        assert reason(stage.events_of(abandoned[0].id.partition(".")[0])) == "cancelled"
        assert all(player.closed for player in stage.model.players)


# curl


def curl(*arguments: str) -> "tuple[int, bytes]":
    assert CURL is not None
    done = subprocess.run([CURL, "-sN", "--max-time", "10", *arguments], capture_output=True, check=False)
    return done.returncode, done.stdout


JSON = ("-H", "content-type: application/json", "-d")


@pytest.mark.curl
@pytest.mark.skipif(CURL is None, reason="curl is not installed")
def test_curl() -> None:
    cuts: dict[str, list[Cut]] = {"x-turn: calls1": [400, 100]}
    with staged(cuts) as stage:
        chat, turns = f"{stage.cutter.url}/v1/chat/stream", f"{stage.cutter.url}/v1/turns"
        code, body = curl(*JSON, '{"message": "calls"}', chat)
        assert (code, ends_well(read(body))) == (0, True)
        code, body = curl(*JSON, '{"message": "error"}', chat)
        assert (code, reason(read(body))) == (0, "model_failed")

        code, body = curl("-G", "-H", "x-turn: calls1", "--data-urlencode", "message=calls1", chat)
        assert code == 18  # cut off
        received = read(body)
        for expected in (18, 0):
            code, body = curl("-G", "-H", "x-turn: calls1", "-H", f"last-event-id: {received[-1].id}", chat)
            assert code == expected
            received += read(body)
        assert (received, ends_well(received)) == (stage.events_of(received[0].id.partition(".")[0]), True)
        last = curl("-G", "-w", "%{http_code}", "-H", f"last-event-id: {received[-1].id}", chat)
        assert last == (0, b"204")

        code, body = curl(*JSON, '{"message": "cancel"}', turns)
        turn = json.loads(body)
        assert curl("-X", "POST", f"{turns}/{turn['turn_id']}/cancel")[0] == 0
        code, body = curl(f"{stage.cutter.url}{turn['events']}?after=1")
        assert (code, reason(read(body))) == (0, "cancelled")


@pytest.mark.curl
@pytest.mark.skipif(CURL is None, reason="curl is not installed")
def test_curl_that_is_interrupted_stops_its_turn() -> None:
    with staged({}) as stage:
        command = ["curl", "-sN", *JSON, '{"message": "cancel"}', f"{stage.brain.url}/v1/chat/stream"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            lines = list(itertools.islice(process.stdout, 8))
            assert b"event: token\n" in lines
            process.kill()
        assert stage.brain.left() == []
        assert stage.model.players[0].closed.is_set()
