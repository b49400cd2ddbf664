"""Limits of large bodies: values and calls are counted before they are decoded."""

import json
import sys
from typing import Any

import pytest

from brain.errors import BadRequest
from brain.protocols import ai_sdk, native
from brain.protocols.ag_ui import parse as parse_ag_ui
from brain.protocols.common import Client
from brain.protocols.ollama import parse_chat
from brain.protocols.openai import parse as parse_openai
from brain.settings import read

CLIENT = Client(None, read({}))
QUESTIONS = {
    "openai": '{"role":"user","content":"Hi"}',
    "ollama": '{"role":"user","content":"Hi"}',
    "ai_sdk": '{"role":"user","parts":[{"type":"text","text":"Hi"}]}',
    "ag_ui": '{"id":"1","role":"user","content":"Hi"}',
}
EVERY_PROTOCOL = pytest.mark.parametrize("protocol", QUESTIONS)


def parse(protocol: str, messages: str, more: str = "") -> Any:
    body = f'{{"messages":[{messages},{QUESTIONS[protocol]}],"model":"brain"{more}}}'
    if protocol == "openai":
        return parse_openai(body.encode(), CLIENT)
    if protocol == "ollama":
        return parse_chat(body.encode(), CLIENT)
    if protocol == "ai_sdk":
        return ai_sdk.parse(body.replace(',"model":"brain"', "").encode(), CLIENT)
    return parse_ag_ui(body.replace('"model":"brain"', '"threadId":"t","runId":"r"').encode(), CLIENT)


def reject(protocol: str, messages: str, more: str = "") -> tuple[int, str | None, int]:
    """Status and field of the error, and how many functions were called for it."""
    count = 0

    def on_event(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event.endswith("call")

    sys.setprofile(on_event)
    try:
        with pytest.raises(BadRequest) as caught:
            parse(protocol, messages, more)
    finally:
        sys.setprofile(None)
    return caught.value.status, caught.value.field, count


def calls(protocol: str, number: int) -> str:
    """A message with this number of calls."""
    if protocol == "ai_sdk":
        part = '{"type":"tool-a","state":"output-error"}'
        return f'{{"role":"assistant","parts":[{",".join([part] * number)}]}}'
    name = "toolCalls" if protocol == "ag_ui" else "tool_calls"
    call = '{"id":"c","function":{"name":"f","arguments":{}}}'.replace("{}", '""' if protocol == "ag_ui" else "{}")
    return f'{{"id":"2","role":"assistant","{name}":[{",".join([call] * number)}]}}'


@EVERY_PROTOCOL
def test_all_messages_together_have_a_limit_of_calls(protocol: str) -> None:
    status, field, count = reject(protocol, ",".join([calls(protocol, 128)] * 3_000))
    assert (status, field, count < 200_000) == (413, "messages", True)  # all of them would take twelve million


@EVERY_PROTOCOL
def test_a_body_has_a_limit_of_values(protocol: str) -> None:
    question = QUESTIONS[protocol]
    inside = question.replace('"role"', '"x":[' + "1," * 250_000 + '1],"role"')
    assert reject(protocol, inside)[:2] == (413, "messages[0]")
    assert reject(protocol, ",".join(["{}"] * 1_000_001))[:2] == (413, "messages")


def test_a_completion_has_a_limit_of_unknown_fields() -> None:
    more = "".join(f',"x{n}":1' for n in range(1_000))
    assert len(parse("openai", QUESTIONS["openai"], more)[0].sampling.more) == 1_000
    assert reject("openai", QUESTIONS["openai"], more + ',"y":1')[0] == 413


def test_the_native_body_has_a_limit_of_values_and_none_of_text() -> None:
    for body in (
        '{"message":"Hi","syntax":[' + '"bracket",' * 500_000 + '"bracket"]}',
        '{"message":"Hi","attachments":[' + '{"name":"a","text":"b"},' * 101 + "{}]}",
    ):
        with pytest.raises(BadRequest) as caught:
            native.parse(body.encode(), CLIENT)
        assert caught.value.status == 413
    attached = {"message": "Hi", "attachments": [{"name": "a.csv", "text": '"name",1\n' * 600_000}]}
    parsed = native.parse(json.dumps(attached).encode(), CLIENT)
    assert len(parsed.attachments[0].data) == 5_400_000
