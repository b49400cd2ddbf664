"""Turns that are begun with GET, or to run on, and joined again: on a real port, by the rules of EventSource."""

import asyncio
import json
import random
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from eventsource import EventSource, Message, read
from playing import words
from serving import Player, Server, brain_served, served, settings
from starlette.applications import Starlette

from brain import Registry, mount, specialist
from brain.server.routes import runs

SOON = 0.25
STRANGE_IDS = [
    "t0123456789abcdef",
    "t0123456789ABCDEF",
    "t",
    "x" * 5_000,
    "..",
    "%2e%2e",
    "%00",
    "%ff",
    "t0123456789abcdef.1",
    "'; DROP TABLE turns; --",
    "０１２３",
    "1e309",
    "-1",
]


@specialist(timeout=30)
async def nap(seconds: float) -> str:
    """Sleeps."""
    await asyncio.sleep(seconds)
    return "Rested."


@specialist(approval="always")
async def letter(to: str) -> str:
    """Sends a letter."""
    return f"Sent to {to}."


def everyone() -> Registry:
    registry = Registry()
    registry.add(nap)
    registry.add(letter)
    return registry


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with brain_served(everyone()) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    running.play(Player(["Hello."], name="builtin"))
    yield running
    assert running.left() == []


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=10, trust_env=False) as made:
        yield made


def plain(messages: list[Message]) -> list[tuple[str, dict[str, Any]]]:
    """Events without what differs each time."""
    found = []
    for message in messages:
        data = json.loads(message.data)
        for name in ("turn_id", "conversation_id", "message_id", "ms", "first_token_ms", "total_ms", "prompt_tokens"):
            data.pop(name, None)
        found.append((message.type, data))
    return found


def names(messages: list[Message]) -> list[str]:
    return [message.type for message in messages]


def begun(client: httpx.Client, **sent: Any) -> tuple[str, str]:
    """Begins a turn that runs on: its id and its address."""
    answer = client.post("/v1/turns", json={"message": "hi", **sent})
    assert answer.status_code == 201
    return answer.json()["turn_id"], answer.headers["location"]


def events(client: httpx.Client, place: str, last_id: str | None = None, **query: str) -> list[Message]:
    headers = {} if last_id is None else {"last-event-id": last_id}
    answer = client.get(f"{place}/events", headers=headers, params=query)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    return read(answer.content)


def refused(answer: httpx.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error.get("field")


@contextmanager
def reading(client: httpx.Client, method: str, address: str, until: bytes, **options: Any) -> Iterator[bytes]:
    """What came up to some bytes; behind the block the reader has left."""
    with client.stream(method, address, **options) as response:
        assert response.status_code == 200, response.read()
        found = b""
        pieces = response.iter_raw()
        for piece in pieces:
            found += piece
            if until in found and found.endswith(b"\n\n"):
                break
        assert until in found
        yield found


def test_a_turn_has_so_many_readers_and_no_more(
    server: Server, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "READERS_LIMIT", 2)
    server.play(Player(["One ", 30.0, "two."]))
    turn_id, place = begun(client, request_id="read-by-many")
    address = f"{place}/events"
    with reading(client, "GET", address, b"One"), reading(client, "GET", address, b"One"):
        attempts: list[tuple[str, str, Any]] = [
            ("GET", address, {}),
            ("GET", "/v1/chat/stream", {"headers": {"last-event-id": f"{turn_id}.1"}}),
            ("POST", "/v1/chat/stream", {"json": {"message": "hi", "request_id": "read-by-many"}}),
        ]
        for method, asked, more in attempts:
            answer = client.request(method, asked, **more)
            assert refused(answer) == (429, "rate_limited", None)
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["error"]["message"] == ("This turn has 2 readers, the limit; try again later.")
    time.sleep(SOON)
    with reading(client, "GET", address, b"One"):
        client.post(f"{place}/cancel")


def state(client: httpx.Client, place: str) -> str:
    told: str = client.get(place).raise_for_status().json()["state"]
    return told


def ended(client: httpx.Client, place: str) -> dict[str, Any]:
    """What happened, once the turn is over."""
    end = time.monotonic() + 5
    while (told := client.get(place).raise_for_status().json())["state"] in ("running", "waiting"):
        assert time.monotonic() < end
        time.sleep(0.01)
    found: dict[str, Any] = told
    return found


# GET


def test_a_turn_can_be_asked_for_with_get_and_tells_the_same(server: Server, client: httpx.Client) -> None:
    server.play(Player(["I ask. ", 'SPECIALIST_REQUEST[nap:{"seconds":0}]'], ["Grüße 😀"]))
    fields = {"message": "hi & how?", "conversation_id": "c1", "limits": '{"calls":2}', "specialists": "nap,letter"}
    got = client.get("/v1/chat/stream", params=fields)
    assert (got.status_code, got.headers["cache-control"]) == (200, "no-cache, no-transform")
    posted = client.post(
        "/v1/chat/stream",
        json={
            "message": "hi & how?",
            "conversation_id": "c2",
            "limits": {"calls": 2},
            "specialists": ["nap", "letter"],
        },
    )
    assert got.content.startswith(b"retry: 2000\nevent: turn_start\n")
    assert plain(read(got.content)) == plain(read(posted.content))
    assert names(read(got.content)) == [
        "turn_start",
        "token",
        "specialist_start",
        "specialist_result",
        "token",
        "usage",
        "done",
    ]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "message"),
        ("message=", "message"),
        ("message=a&prompt=b", "prompt"),
        ("message=a&message=b", "message"),
        ("message=a&mesage=b", "mesage"),
        ("message=a&request_id=a%20b", "request_id"),
        ("message=a&conversation_id=", "conversation_id"),
        ("message=a&limits=%7B", "limits"),
        ("message=a&limits={%22calls%22:99}", "limits.calls"),
        ("message=a&model=gpt", "model"),
        ("message=a&time_zone=Mars/Base", "time_zone"),
    ],
)
def test_what_get_asks_is_checked_like_a_body(client: httpx.Client, query: str, field: str) -> None:
    assert refused(client.get(f"/v1/chat/stream?{query}")) == (400, "bad_request", field)


def test_head_starts_nothing(server: Server, client: httpx.Client) -> None:
    player = Player(["never"])
    server.play(player)
    answer = client.head("/v1/chat/stream", params={"message": "hi"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
    assert player.asked == []


def test_who_comes_back_with_a_last_event_id_resumes_that_turn(server: Server, client: httpx.Client) -> None:
    player = Player(["a", 0.1, "b", 0.1, "c"])
    server.play(player)
    query = {"message": "hi"}
    with reading(client, "GET", "/v1/chat/stream", b'{"text":"a"}', params=query) as found:
        first = read(found)
    again = client.get("/v1/chat/stream", params=query, headers={"last-event-id": first[-1].last_event_id})
    joined = [*first, *read(again.content)]
    assert names(joined) == ["turn_start", "token", "token", "token", "usage", "done"]
    assert [message.last_event_id.rpartition(".")[2] for message in joined] == ["1", "2", "3", "4", "5", "6"]
    assert not again.content.startswith(b"retry:")
    last = client.get("/v1/chat/stream", params=query, headers={"last-event-id": joined[-1].last_event_id})
    assert (last.status_code, last.content, last.headers["cache-control"]) == (204, b"", "no-store")
    assert len(player.asked) == 1


def test_the_same_request_id_joins_the_turn_by_whichever_way(server: Server, client: httpx.Client) -> None:
    player = Player(["a", 0.2, "b"])
    server.play(player)
    asked = {"message": "hi", "request_id": "r1"}
    with reading(client, "GET", "/v1/chat/stream", b'"a"', params=asked):
        got = client.get("/v1/chat/stream", params=asked)
    posted = client.post("/v1/chat/stream", json={"message": "another", "request_id": "r1"})
    begun_again = client.post("/v1/turns", json=asked)
    assert begun_again.status_code == 201
    followed = events(client, begun_again.headers["location"])
    assert read(got.content) == read(posted.content) == followed
    assert names(followed) == ["turn_start", "token", "token", "usage", "done"]
    assert len(player.asked) == 1
    assert client.post("/v1/chat/stream", json={"message": "hi", "request_id": "r2"}).status_code == 200
    assert len(player.asked) == 2


def test_a_turn_of_a_post_can_be_joined_too_and_ends_with_its_own_reader(server: Server, client: httpx.Client) -> None:
    server.play(Player(["a", 60.0]))
    asked = {"message": "hi", "request_id": "r3"}
    with reading(client, "POST", "/v1/chat/stream", b'"a"', json=asked):
        joined: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: joined.append(client.post("/v1/chat/stream", json=asked)))
        thread.start()
        time.sleep(0.1)
        assert joined == []
    thread.join()
    told = read(joined[0].content)
    assert names(told) == ["turn_start", "token", "usage", "done"]
    assert json.loads(told[-1].data)["stop_reason"] == "cancelled"


@pytest.mark.alone
def test_get_lives_for_a_while_without_a_reader(
    server: Server, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.server.routes.chat.UNREAD_SECONDS", 0.3)
    player = Player(["a", 60.0])
    server.play(player)
    with reading(client, "GET", "/v1/chat/stream", b'"a"', params={"message": "hi"}) as found:
        at = read(found)[-1].last_event_id
    place = f"/v1/turns/{at.partition('.')[0]}"
    time.sleep(0.15)
    assert state(client, place) == "running"
    with reading(client, "GET", f"{place}/events", b'"a"'):  # any reader keeps it
        time.sleep(0.4)
    left = time.monotonic()
    assert state(client, place) == "running"
    told = ended(client, place)
    assert 0.25 < player.closed[0] - left < 0.3 + SOON
    assert (told["state"], told["stop_reason"]) == ("done", "cancelled")
    rest = client.get("/v1/chat/stream", params={"message": "hi"}, headers={"last-event-id": at})
    assert names(read(rest.content)) == ["usage", "done"]
    assert len(player.asked) == 1


# Turns that run on


def test_a_turn_that_is_begun_runs_on_without_a_reader(server: Server, client: httpx.Client) -> None:
    player = Player(["a", 0.1, 'SPECIALIST_REQUEST[nap:{"seconds":0.1}]'], ["b"])
    server.play(player)
    answer = client.post("/v1/turns", json={"message": "hi", "conversation_id": "on"})
    told = answer.json()
    assert answer.status_code == 201
    assert re.fullmatch(r"t[0-9a-f]{16}", told["turn_id"])
    assert answer.headers["location"] == f"/v1/turns/{told['turn_id']}"
    assert told == {
        "turn_id": told["turn_id"],
        "conversation_id": "on",
        "events": f"/v1/turns/{told['turn_id']}/events",
    }
    report = ended(client, answer.headers["location"])
    assert (report["state"], report["stop_reason"], report["wire"]) == ("done", "complete", "native")
    assert [(call["name"], call["outcome"]) for call in report["calls"]] == [("nap", "ok")]
    assert names(events(client, answer.headers["location"])) == [
        "turn_start",
        "token",
        "specialist_start",
        "specialist_result",
        "token",
        "usage",
        "done",
    ]
    client.post("/v1/chat/stream", json={"message": "more", "conversation_id": "on"})
    assert player.asked[2][-2].content.endswith("\n\nb")


def test_a_turn_that_is_begun_is_refused_like_any_other(server: Server, client: httpx.Client) -> None:
    server.play(Player(["a", 60.0]))
    _, place = begun(client, conversation_id="one")
    again = client.post("/v1/turns", json={"message": "hi", "conversation_id": "one"})
    assert refused(again) == (409, "busy", "conversation_id")
    assert client.post(f"{place}/cancel").status_code == 202
    assert ended(client, place)["stop_reason"] == "cancelled"
    assert refused(client.post("/v1/turns", json={"message": " "})) == (400, "bad_request", "message")
    assert refused(client.post("/v1/turns", content=b"hi")) == (415, "unsupported_media_type", "content-type")
    assert refused(client.get("/v1/turns")) == (405, "method_not_allowed", None)
    server.play(Player(["b"]))
    form = client.post("/v1/turns", data={"message": "hi"}, files={"file": ("a.txt", b"text")})
    assert form.status_code == 201
    ended(client, form.headers["location"])


def test_an_answer_can_be_asked_for_again_or_its_question_changed(server: Server, client: httpx.Client) -> None:
    player = Player(["One."])
    server.play(player)
    first = json.loads(events(client, begun(client, message="First?", conversation_id="edit")[1])[-1].data)
    second = json.loads(events(client, begun(client, message="Second?", conversation_id="edit")[1])[-1].data)
    _, place = begun(client, message="Changed?", conversation_id="edit", replace_from=second["message_id"])
    third = json.loads(events(client, place)[-1].data)
    ended(client, begun(client, message="Third?", conversation_id="edit")[1])
    spoken = [message.content.rpartition("\n\n")[2] for message in player.asked[-1] if message.role == "user"]
    assert spoken == ["First?", "Changed?", "Third?"]
    for gone in (second["message_id"], "m0123456789abcdef"):
        again = client.post("/v1/turns", json={"message": "hi", "conversation_id": "edit", "replace_from": gone})
        assert refused(again)[1:] in [("not_found", "replace_from"), ("busy", "conversation_id")]
    assert len({first["message_id"], second["message_id"], third["message_id"]}) == 3


def test_where_brain_is_mounted_its_turns_are_too() -> None:
    outer = Starlette()
    mount(outer, "/brain", settings(), everyone())
    with served(outer) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        answer = client.post("/brain/v1/turns", json={"message": "hi"})
        place = f"/brain/v1/turns/{answer.json()['turn_id']}"
        assert (answer.headers["location"], answer.json()["events"]) == (place, f"{place}/events")
        assert names(events(client, place))[-1] == "done"


# Events


@pytest.fixture(scope="module")
def over(running: Server) -> tuple[str, str, list[Message]]:
    """A turn that ended: its id, its address, what it told."""
    running.play(Player(["a", 0.01, "b", 0.01, "c"]))
    with httpx.Client(base_url=running.url, trust_env=False) as client:
        turn_id, place = begun(client)
        return turn_id, place, events(client, place)


@pytest.mark.parametrize("n", range(6))
def test_all_behind_an_event_is_told_again(client: httpx.Client, over: tuple[str, str, list[Message]], n: int) -> None:
    turn_id, place, told = over
    assert len(told) == 6
    assert events(client, place, f"{turn_id}.{n}") == told[n:]
    assert events(client, place, after=f"{turn_id}.{n}") == told[n:]
    assert events(client, place, after=str(n)) == told[n:]
    assert events(client, place, f"{turn_id}.{n}", after="0") == told[n:]


def test_there_is_nothing_behind_the_last_event_of_a_turn_that_ended(
    client: httpx.Client, over: tuple[str, str, list[Message]]
) -> None:
    turn_id, place, _ = over
    for address, headers in [
        (f"{place}/events", {"last-event-id": f"{turn_id}.6"}),
        (f"{place}/events?after=6", {}),
        ("/v1/chat/stream?message=hi", {"last-event-id": f"{turn_id}.6"}),
    ]:
        answer = client.get(address, headers=headers)
        assert (answer.status_code, answer.content) == (204, b"")
        assert "content-type" not in answer.headers
    posted = client.post("/v1/chat/stream", json={"message": "hi"}, headers={"last-event-id": f"{turn_id}.6"})
    assert (posted.status_code, posted.content) == (200, b"")
    assert posted.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_while_a_turn_runs_its_last_event_is_waited_behind(server: Server, client: httpx.Client) -> None:
    server.play(Player(["a", 0.2, "b"]))
    turn_id, place = begun(client)
    with reading(client, "GET", f"{place}/events", b'"a"'):
        pass
    assert names(events(client, place, f"{turn_id}.2")) == ["token", "usage", "done"]


@pytest.mark.parametrize("after", ["7", "999999999", "9999999999", "-1", "1.5", "one", "١", "t.1", "%00", "0x1", "1e3"])
def test_what_was_never_told_is_gone(client: httpx.Client, over: tuple[str, str, list[Message]], after: str) -> None:
    turn_id, place, _ = over
    assert refused(client.get(f"{place}/events", params={"after": after})) == (410, "gone", "last-event-id")
    header = f"{turn_id}.{after}".encode()
    assert refused(client.get(f"{place}/events", headers={b"last-event-id": header})) == (410, "gone", "last-event-id")
    for method in ("GET", "POST"):
        answer = client.request(
            method,
            "/v1/chat/stream",
            params={"message": "hi"} if method == "GET" else {},
            headers={b"last-event-id": header},
            json={"message": "hi"} if method == "POST" else None,
        )
        assert refused(answer) == (410, "gone", "last-event-id")


def test_another_turns_event_is_no_place_in_this_one(
    server: Server, client: httpx.Client, over: tuple[str, str, list[Message]]
) -> None:
    turn_id, _ = begun(client)
    answer = client.get(f"{over[1]}/events", headers={"last-event-id": f"{turn_id}.1"})
    assert refused(answer) == (400, "bad_request", "last-event-id")


def test_head_gets_no_events(server: Server, client: httpx.Client) -> None:
    server.play(Player(["a", 60.0]))
    _, place = begun(client)
    answer = client.head(f"{place}/events")
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    client.post(f"{place}/cancel")
    ended(client, place)


def test_a_post_with_a_last_event_id_starts_nothing(server: Server, client: httpx.Client) -> None:
    player = Player(["a", 0.02, 'bSPECIALIST_REQUEST[nap:{"seconds":60}]'])
    server.play(player)
    with reading(client, "POST", "/v1/chat/stream", b"specialist_start", json={"message": "hi"}) as found:
        told = read(found)
    server.left()
    for body in ({"message": "hi"}, {"nonsense": True}):
        again = client.post("/v1/chat/stream", json=body, headers={"last-event-id": told[1].last_event_id})
        rest = read(again.content)
        assert names(rest) == ["token", "specialist_start", "specialist_error", "usage", "done"]
        assert [json.loads(rest[2].data)[key] for key in ("call_id", "code")] == ["c1", "cancelled"]
        assert json.loads(rest[-1].data)["stop_reason"] == "cancelled"
        assert json.loads(rest[-1].data)["text"] == "ab"
    unknown = client.post("/v1/chat/stream", json={"message": "hi"}, headers={"last-event-id": "t0123456789abcdef.3"})
    assert refused(unknown) == (410, "gone", "last-event-id")
    assert len(player.asked) == 1


@pytest.mark.parametrize("seed", range(4))
def test_who_is_cut_off_again_and_again_while_it_runs_misses_nothing(
    server: Server, client: httpx.Client, seed: int
) -> None:
    words = [item for n in range(150) for item in (f"Wörd{n}😀 ", 0.002)]
    player = Player([*words, 'SPECIALIST_REQUEST[nap:{"seconds":0.05}]', " ", "SPECIALIST_REQUEST[nobody]"], words)
    server.play(player)
    if seed % 2:
        address, query = "/v1/chat/stream", {"message": "hi", "request_id": f"again{seed}"}
    else:
        address, query = f"{begun(client)[1]}/events", {}
    chance = random.Random(seed)
    source, cuts = EventSource(), 0
    heard: list[Message] = []
    while not heard or heard[-1].type != "done":
        headers = {"last-event-id": source.last_event_id} if source.last_event_id else {}
        left = chance.randrange(600 if cuts < 30 else 12_000)
        source.opened()
        with client.stream("GET", address, params=query, headers=headers) as response:
            assert response.status_code == 200
            for piece in response.iter_raw():
                heard += source.feed(piece[:left])
                left -= len(piece)
                if left <= 0:
                    break
        cuts += 1
    assert cuts > 30
    assert heard == events(client, f"/v1/turns/{source.last_event_id.partition('.')[0]}")
    assert len(player.asked) == 2


def test_turns_are_kept_for_a_while(server: Server, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.runs.KEPT_SECONDS", 0.3)
    monkeypatch.setattr("brain.runtime.runs.SWEEP_SECONDS", 0.02)
    server.on_loop(swept(server))
    player = Player(["a"])
    server.play(player)
    turn_id, place = begun(client, request_id="kept")
    told = events(client, place)
    assert events(client, place) == told
    assert begun(client, request_id="kept") == (turn_id, place)
    end = time.monotonic() + 3
    while client.get(place).status_code == 200:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert refused(client.get(f"{place}/events")) == (410, "gone", None)
    last = {"last-event-id": told[-1].last_event_id}
    assert refused(client.get(f"{place}/events", headers=last)) == (410, "gone", None)
    assert refused(client.get("/v1/chat/stream?message=hi", headers=last)) == (410, "gone", "last-event-id")
    assert refused(client.get(place)) == (404, "not_found", None)
    assert len(player.asked) == 1
    assert begun(client, request_id="kept")[0] != turn_id


async def swept(server: Server) -> None:
    server.engine.turns._sweep()


def test_what_is_too_long_to_be_kept_is_gone_from_its_beginning(
    server: Server, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.runtime.event_log.LOG_BYTES", 20_000)
    texts = [f"{word} " * 5 for word in words(1_000)]
    server.play(Player(texts))
    turn_id, place = begun(client)
    ended(client, place)
    gone = client.get(f"{place}/events")
    assert refused(gone) == (410, "gone", None)
    kept = re.search(r"\?after=(\d+) reads those that are", gone.text)
    assert kept is not None
    assert events(client, place, after=kept[1])[-1].type == "done"
    last = json.loads(events(client, place, f"{turn_id}.1002")[-1].data)
    assert last["text"] == "".join(texts)


# Whose turns they are


@pytest.fixture(scope="module")
def theirs() -> Iterator[Server]:
    with brain_served(everyone(), KEYS="a-key:ann,b-key:bob") as server:
        yield server


def of(server: Server, key: str | None) -> httpx.Client:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=10, trust_env=False)


def asked_about(client: httpx.Client, turn_id: str, n: int = 1) -> list[httpx.Response]:
    """Every route that names a turn."""
    place, last = f"/v1/turns/{turn_id}", {b"last-event-id": f"{turn_id}.{n}".encode()}
    return [
        client.get(place),
        client.get(f"{place}/events"),
        client.get(f"{place}/events", headers=last),
        client.get(f"{place}/events", params={"after": "1"}),
        client.head(f"{place}/events"),
        client.post(f"{place}/cancel"),
        client.post(f"{place}/steer", json={"message": "hi"}),
        client.post(f"{place}/approvals/c1", json={"approve": True}),
        client.get("/v1/chat/stream", params={"message": "hi"}, headers=last),
        client.post("/v1/chat/stream", json={"message": "hi"}, headers=last),
    ]


def test_another_users_turn_is_not_there(theirs: Server) -> None:
    player = Player(['SPECIALIST_REQUEST[letter:{"to":"ann"}]'], ["Sent."])
    theirs.play(player)
    with of(theirs, "a-key") as ann, of(theirs, "b-key") as bob, of(theirs, None) as nobody:
        turn_id, place = begun(ann, request_id="same", conversation_id="same")
        with reading(ann, "GET", f"{place}/events", b"approval_required"):
            pass
        for _ in range(2):  # while it waits, and when it is over
            assert [answer.status_code for answer in asked_about(bob, turn_id)] == [404] + [410] * 4 + [404] * 3 + [
                410
            ] * 2
            assert {answer.status_code for answer in asked_about(nobody, turn_id)} == {401}
            if state(ann, place) == "waiting":
                assert ann.post(f"{place}/approvals/c1", json={"approve": True}).status_code == 200
                assert ended(ann, place)["stop_reason"] == "complete"
        assert names(events(ann, place))[-3:] == ["token", "usage", "done"]
        theirs.play(Player(["His own."]))
        other, _ = begun(bob, request_id="same", conversation_id="same")
        assert other != turn_id


@pytest.mark.parametrize("turn_id", STRANGE_IDS)
def test_ids_that_are_none_are_not_there(client: httpx.Client, turn_id: str) -> None:
    for answer in asked_about(client, turn_id):
        assert answer.status_code in (404, 410)
        assert answer.request.method == "HEAD" or refused(answer)[1] in ("not_found", "gone")


@pytest.mark.parametrize("call_id", ["c2", "c0", "", "x" * 5_000, "%00", "c1/c1", "ä"])
def test_calls_that_nobody_was_asked_about_are_not_there(server: Server, client: httpx.Client, call_id: str) -> None:
    server.play(Player(['SPECIALIST_REQUEST[letter:{"to":"ann"}]'], ["Sent."]))
    _, place = begun(client)
    with reading(client, "GET", f"{place}/events", b"approval_required"):
        pass
    answer = client.post(f"{place}/approvals/{call_id}", json={"approve": True})
    assert (answer.status_code, refused(answer)[1]) == (404, "not_found")
    assert state(client, place) == "waiting"
    client.post(f"{place}/cancel")
    ended(client, place)


# Stop, steer, approve


def test_what_is_cancelled_says_so_at_once(server: Server, client: httpx.Client) -> None:
    server.play(Player(["a", 60.0]))
    _, place = begun(client)
    with reading(client, "GET", f"{place}/events", b'"a"'):
        pass
    answer = client.post(f"{place}/cancel")
    assert answer.status_code == 202
    assert ended(client, place)["stop_reason"] == "cancelled"
    again = client.post(f"{place}/cancel")
    assert (again.status_code, again.json()["stop_reason"]) == (202, "cancelled")
    assert names(events(client, place)) == ["turn_start", "token", "usage", "done"]


def test_a_turn_is_steered_at_the_next_safe_place(server: Server, client: httpx.Client) -> None:
    player = Player(["One. ", 0.3, "Two. ", 60.0], ["Three."])
    server.play(player)
    _, place = begun(client)
    with reading(client, "GET", f"{place}/events", b'"One. "'):
        pass
    assert client.post(f"{place}/steer", json={"message": "Be brief."}).status_code == 202
    told = events(client, place)
    assert ("notice", {"code": "steered", "text": "Be brief."}) in plain(told)
    assert names(told)[-1] == "done"
    assert "Be brief." in player.asked[-1][-1].content
    late = client.post(f"{place}/steer", json={"message": "Too late."})
    assert refused(late) == (410, "gone", None)


@pytest.mark.parametrize(("approve", "text"), [(True, "Sent to ann."), (False, None)])
def test_a_call_is_decided_once(server: Server, client: httpx.Client, text: str | None, *, approve: bool) -> None:
    server.play(Player(['SPECIALIST_REQUEST[letter:{"to":"ann"}]'], ["Well."]))
    _, place = begun(client)
    with reading(client, "GET", f"{place}/events", b"approval_required"):
        pass
    assert state(client, place) == "waiting"
    assert client.post(f"{place}/approvals/c1", json={"approve": approve}).status_code == 200
    told = plain(events(client, place))
    results = [data["text"] for name, data in told if name == "specialist_result"]
    assert results == ([] if text is None else [text])
    assert [data["code"] for name, data in told if name == "specialist_error"] == ([] if approve else ["declined"])
    late = client.post(f"{place}/approvals/c1", json={"approve": approve})
    assert refused(late) == (410, "gone", None)


@pytest.mark.parametrize(
    ("route", "sent", "field"),
    [
        ("steer", {}, "message"),
        ("steer", {"message": " "}, "message"),
        ("steer", {"message": 1}, "message"),
        ("steer", {"message": "a", "more": 1}, "more"),
        ("approvals/c1", {}, "approve"),
        ("approvals/c1", {"approve": "yes"}, "approve"),
        ("approvals/c1", {"approve": None}, "approve"),
    ],
)
def test_what_is_sent_to_a_turn_is_checked(
    server: Server, client: httpx.Client, route: str, sent: Mapping[str, object], field: str
) -> None:
    server.play(Player(["a", 60.0]))
    _, place = begun(client)
    assert refused(client.post(f"{place}/{route}", json=sent)) == (400, "bad_request", field)
    assert refused(client.post(f"{place}/{route}", content=b"{}")) == (415, "unsupported_media_type", "content-type")
    headers = {"content-type": "application/json"}
    assert refused(client.post(f"{place}/{route}", content=b"{", headers=headers)) == (400, "bad_request", None)
    client.post(f"{place}/cancel")
    ended(client, place)
