"""Requests as large as they may be: little of them is read before they are refused, and nobody waits for them."""

import json
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from serving import Player, Server, brain_served, client_of

from brain.errors import BadRequest
from brain.plugins.registry import Registry
from brain.protocols import ai_sdk, bodies, native
from brain.protocols.ag_ui import parse as parse_ag_ui
from brain.protocols.ollama.request import parse_chat
from brain.protocols.openai.request import parse as parse_openai
from brain.settings import read

SETTINGS = read({})
NONE: frozenset[str] = frozenset()
ASKED = {
    "openai": '{"role":"user","content":"Hi"}',
    "ollama": '{"role":"user","content":"Hi"}',
    "ai_sdk": '{"role":"user","parts":[{"type":"text","text":"Hi"}]}',
    "ag_ui": '{"id":"1","role":"user","content":"Hi"}',
}


def parsed(wire: str, messages: str, more: str = "") -> Any:
    body = f'{{"messages":[{messages},{ASKED[wire]}],"model":"brain"{more}}}'
    if wire == "openai":
        return parse_openai(body.encode(), None, SETTINGS, NONE)
    if wire == "ollama":
        return parse_chat(body.encode(), None, SETTINGS, NONE)
    if wire == "ai_sdk":
        return ai_sdk.parse(body.replace(',"model":"brain"', "").encode(), None, SETTINGS, NONE)
    return parse_ag_ui(body.replace('"model":"brain"', '"threadId":"t","runId":"r"').encode(), None, SETTINGS, NONE)


def refused(wire: str, messages: str, more: str = "") -> tuple[int, str, str | None, int]:
    """Status, sentence and field; and how many functions were called for it."""
    called = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal called
        called += event.endswith("call")

    sys.setprofile(count)
    try:
        with pytest.raises(BadRequest) as caught:
            parsed(wire, messages, more)
    finally:
        sys.setprofile(None)
    return caught.value.status, caught.value.message, caught.value.field, called


def calls(wire: str, number: int) -> str:
    """A message with so many calls."""
    if wire == "ai_sdk":
        part = '{"type":"tool-a","state":"output-error"}'
        return f'{{"role":"assistant","parts":[{",".join([part] * number)}]}}'
    name = "toolCalls" if wire == "ag_ui" else "tool_calls"
    call = '{"id":"c","function":{"name":"f","arguments":{}}}'.replace("{}", '""' if wire == "ag_ui" else "{}")
    return f'{{"id":"2","role":"assistant","{name}":[{",".join([call] * number)}]}}'


@pytest.mark.parametrize("wire", ASKED)
def test_calls_are_few_in_all_messages_together(wire: str) -> None:
    few = ",".join([calls(wire, 128)] * 32)
    assert sum(len(one.calls) for one in parsed(wire, few)[1]) == 4096
    status, message, field, _ = refused(wire, f"{few},{calls(wire, 1)}")
    assert (status, field) == (413, "messages")
    assert message == "messages: at most 4,096 calls in all of them; leave the oldest out."


@pytest.mark.parametrize("wire", ASKED)
def test_many_messages_with_many_calls_are_refused_before_they_are_read(wire: str) -> None:
    status, _, _, called = refused(wire, ",".join([calls(wire, 128)] * 3_000))
    assert (status, called < 200_000) == (413, True)  # all of them would take twelve million


@pytest.mark.parametrize("wire", ASKED)
def test_a_body_holds_few_values(wire: str) -> None:
    besides = ',"x":[' + "1," * 100_000 + "1]"
    assert refused(wire, ASKED[wire], besides)[:2] == (413, "The body may hold 100,000 values besides its messages.")
    inside = ASKED[wire].replace('"role"', '"x":[' + "1," * 250_000 + '1],"role"')
    assert refused(wire, inside)[:3] == (413, "messages[0] may hold 250,000 values.", "messages[0]")
    all_ = ",".join(["{}"] * 1_000_001)
    assert refused(wire, all_)[:3] == (413, "messages may hold 1,000,000 values; leave the oldest out.", "messages")


def test_unknown_fields_are_few() -> None:
    more = "".join(f',"x{n}":1' for n in range(1_000))
    assert len(parsed("openai", ASKED["openai"], more)[0].sampling.more) == 1_000
    status, message, *_ = refused("openai", ASKED["openai"], more + ',"y":1')
    assert (status, message) == (413, "At most 1,000 fields that are not known here.")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"message":"Hi","syntax":[' + '"bracket",' * 500_000 + '"bracket"]}', "The body may hold 500,000 values"),
        ('{"message":"Hi","attachments":[' + '{"name":"a","text":"b"},' * 101 + "{}]}", "At most 10 attachments"),
    ],
)
def test_the_native_body_holds_few_values(body: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message) as caught:
        native.parse(body.encode(), None, SETTINGS, NONE)
    assert caught.value.status == 413


def test_an_attached_text_may_hold_any_number() -> None:
    body = {"message": "Hi", "attachments": [{"name": "a.csv", "text": '"name",1\n' * 600_000}]}
    assert len(native.parse(json.dumps(body).encode(), None, SETTINGS, NONE).attachments[0].data) == 5_400_000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with brain_served(Registry()) as server:
        server.play(Player(*[["Hello."]] * 100))
        yield server


LARGE: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "[ [ [ " * 33_000}] * 90}),
    (
        "/ag-ui/run",
        {
            "threadId": "t",
            "runId": "r",
            "messages": [{"id": "1", "role": "user", "content": "Hi"}]
            + [{"id": "2", "role": "tool", "toolCallId": "x", "content": "ab. [x" * 330}] * 9_000,
        },
    ),
]


@pytest.mark.parametrize(("path", "body"), LARGE)
def test_a_large_request_is_read_in_a_thread(
    server: Server, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    check_keys = bodies.check_keys

    def check(*args: Any) -> None:
        threads.add(threading.current_thread().name)
        check_keys(*args)

    monkeypatch.setattr("brain.server.routes.requests.check_keys", check)
    with client_of(server) as client:
        answer = client.post(path, content=json.dumps(body), headers={"content-type": "application/json"}, timeout=55)
    assert answer.status_code == 200
    assert {name.partition("_")[0] for name in threads} == {"large bodies"}


def test_all_that_is_filed_counts(server: Server) -> None:
    system = [{"role": "system", "content": f"{n} " + "s" * 199_000} for n in range(95)]
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    body = {"messages": [*history, *system, {"role": "user", "content": "c"}]}
    headers = {"X-Conversation-Id": "full"}
    answers = [httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=headers, timeout=20) for _ in "1234"]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 413]
    assert answers[-1].json()["error"]["code"] == "too_large"
