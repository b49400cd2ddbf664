"""What all protocols have in common: Brain's options, limits of histories, and encoders that no batching changes."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from brain import events as ev
from brain.errors import BadRequest
from brain.protocols import ag_ui, ai_sdk, native, ollama, openai
from brain.protocols.ag_ui.request import PropsBody, RunBody, RunMessage
from brain.protocols.ai_sdk.request import ChatBody as SdkChatBody
from brain.protocols.ai_sdk.request import UIMessage
from brain.protocols.common import Client, ContextBody, TurnOptions
from brain.protocols.native.queries import ChangeBody, FactBody, TaskBody
from brain.protocols.native.request import TurnBody as NativeBody
from brain.protocols.ollama.request import ChatBody as OllamaChatBody
from brain.protocols.ollama.request import GenerateBody, OllamaMessage, ShowBody
from brain.protocols.ollama.request import OptionsBody as OllamaOptions
from brain.protocols.openai.request import ChoiceBody, CompletionBody, FormatBody, OpenAIMessage
from brain.runtime.client_tasks import is_for_client
from brain.settings import read as read_settings
from brain.task import TaskEdit
from brain.turn_request import TurnRequest

SETTINGS = read_settings({"BRAIN_TIME_ZONE": "UTC", "BRAIN_CALLS": "7"})
CLIENT = Client("me", SETTINGS, frozenset({"builtin"}), frozenset({"ocr", "web"}))
PARSERS: Mapping[str, Callable[[bytes], Any]] = {
    "native": lambda data: (native.parse(data, CLIENT), []),
    "openai": lambda data: openai.parse(data, CLIENT),
    "ollama": lambda data: ollama.parse_chat(data, CLIENT),
    "generate": lambda data: ollama.parse_generate(data, CLIENT),
    "ag_ui": lambda data: ag_ui.parse(data, CLIENT),
    "ai_sdk": lambda data: ai_sdk.parse(data, CLIENT),
}
LONG = "x" * 200_001
NULLABLE = (msgspec.inspect.NoneType, msgspec.inspect.RawType, msgspec.inspect.AnyType)


def text_message(protocol: str, text: str, role: str = "user") -> dict[str, Any]:
    if protocol == "ai_sdk":
        return {"role": role, "parts": [{"type": "text", "text": text}]}
    return {"role": role, "content": text}


def body_of(protocol: str, *messages: Any, **options: Any) -> dict[str, Any]:
    """A body with these messages, or with one, and with Brain's options where the protocol has them."""
    entries = list(messages) or [text_message(protocol, "Hi")]
    return {
        "native": {"message": "Hi", **options},
        "openai": {"messages": entries, "brain": options},
        "ollama": {"model": "brain", "messages": entries},
        "generate": {"model": "brain", "prompt": "Hi"},
        "ag_ui": {"threadId": "t", "runId": "r", "messages": entries, "forwardedProps": options},
        "ai_sdk": {"messages": entries, **options},
    }[protocol]


def parse(protocol: str, body: Any) -> tuple[TurnRequest, Sequence[Any]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return PARSERS[protocol](data)[:2]  # type: ignore[no-any-return]


def rejection(protocol: str, body: Any) -> tuple[int, str | None]:
    with pytest.raises(BadRequest) as raised:
        parse(protocol, body)
    assert raised.value.code == ("too_large" if raised.value.status == 413 else "bad_request")
    return raised.value.status, raised.value.field


# Brain's options

PLACES = {"native": "", "openai": "brain.", "ag_ui": "forwardedProps.", "ai_sdk": ""}


@pytest.mark.parametrize("protocol", PLACES)
def test_options(protocol: str) -> None:
    limits = {"calls": 2, "calls_per_specialist": 1, "turn_seconds": 30, "call_seconds": 0.5}
    request, _ = parse(
        protocol,
        body_of(
            protocol,
            specialists=["ocr", "web"],
            limits=limits,
            time_zone="Asia/Kolkata",
            source="voice",
            memory=False,
            private=True,
        ),
    )
    assert request.limits == ev.Limits(2, 1, 30.0, 0.5)
    assert (request.specialists, request.time_zone) == (frozenset({"ocr", "web"}), "Asia/Kolkata")
    assert (request.source, request.memory, request.call_seconds) == ("voice", False, 0.5)
    assert request.private
    assert request.now is not None
    assert request.now.strftime("%z") == "+0530"
    assert parse(protocol, body_of(protocol, specialists=[]))[0].specialists == frozenset()
    for absent in ({}, {"limits": {"calls": None}}, {"specialists": None, "limits": None, "time_zone": None}):
        request, _ = parse(protocol, body_of(protocol, **absent))
        assert (request.limits, request.specialists, request.time_zone) == (ev.Limits(calls=7), None, "UTC")
        assert (request.source, request.memory) == ("api" if protocol == "openai" else "chat", True)
        assert not request.private


@pytest.mark.parametrize("protocol", PLACES)
@pytest.mark.parametrize(
    ("options", "field"),
    [
        *[({"limits": {"calls": calls}}, "limits.calls") for calls in (8, -1, 1.5, "1", True)],
        ({"limits": {"calls_per_specialist": 4}}, "limits.calls_per_specialist"),
        ({"limits": {"turn_seconds": 601}}, "limits.turn_seconds"),
        ({"limits": {"call_seconds": 0}}, "limits.call_seconds"),
        ({"limits": {"passes": 1}}, "limits.passes"),
        ({"limits": []}, "limits"),
        *[({"time_zone": zone}, "time_zone") for zone in ("Mars/Olympus", "", "../../etc/passwd", "Europe", "a\x00")],
        ({"source": "fax"}, "source"),
        ({"memory": "no"}, "memory"),
        ({"specialists": "web"}, "specialists"),
        ({"specialists": ["a", 1]}, "specialists[1]"),
    ],
)
def test_a_rejected_option_is_named_with_its_place(protocol: str, options: dict[str, Any], field: str) -> None:
    assert rejection(protocol, body_of(protocol, **options)) == (400, PLACES[protocol] + field)


@pytest.mark.parametrize("protocol", ["native", "ag_ui", "ai_sdk"])
@pytest.mark.parametrize(
    ("options", "status", "field"),
    [({"model": "gpt"}, 400, "model"), ({"system": 1}, 400, "system"), ({"system": LONG}, 413, "system")],
)
def test_model_and_system_are_options(protocol: str, options: dict[str, Any], status: int, field: str) -> None:
    request, _ = parse(protocol, body_of(protocol, model="builtin", system="Be kind."))
    assert (request.model, request.system) == ("builtin", "Be kind.")
    assert rejection(protocol, body_of(protocol, **options)) == (status, PLACES[protocol] + field)


# Bodies


BODIES: Mapping[str, type[msgspec.Struct]] = {
    "native": NativeBody,
    "openai": CompletionBody,
    "ollama": OllamaChatBody,
    "generate": GenerateBody,
    "ag_ui": RunBody,
    "ai_sdk": SdkChatBody,
}
PARTS: Sequence[type[msgspec.Struct]] = (
    *(
        ContextBody,
        OpenAIMessage,
        ChoiceBody,
        FormatBody,
        OllamaMessage,
        OllamaOptions,
        ShowBody,
        RunMessage,
        PropsBody,
    ),
    *(UIMessage, TaskBody, TaskEdit, FactBody, ChangeBody),
)


@pytest.mark.parametrize("protocol", BODIES)
def test_null_is_the_same_as_no_field(protocol: str) -> None:
    body = body_of(protocol)
    for options in (body.get("brain"), body.get("forwardedProps")):
        if options is not None:
            options.update(dict.fromkeys(TurnOptions.__struct_fields__))
    nulls = {one.encode_name: None for one in msgspec.structs.fields(BODIES[protocol]) if not one.required}
    assert parse(protocol, {**nulls, **body}) == parse(protocol, body_of(protocol))


@pytest.mark.parametrize("kind", [*BODIES.values(), *PARTS], ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_each_field_that_can_be_left_out_can_be_null(kind: type[msgspec.Struct]) -> None:
    types = [msgspec.inspect.type_info(kind)]
    for found in types:  # it grows
        if isinstance(found, msgspec.inspect.StructType):
            for one in found.fields:
                inner = one.type.types if isinstance(one.type, msgspec.inspect.UnionType) else (one.type,)
                can_be_null = any(isinstance(each, NULLABLE) for each in inner)
                assert one.required or can_be_null, (found.cls, one.name)
                types += [each for each in inner if each not in types]
        elif isinstance(found, msgspec.inspect.ListType):
            types.append(found.item_type)


@pytest.mark.parametrize("protocol", PARSERS)
def test_half_a_character_is_replaced_anywhere(protocol: str) -> None:
    body = json.dumps(body_of(protocol) | {"user": 1}).replace('"Hi"', '"a\\ud800b\\udfff \\ud83d\\ude00"')
    body = body.replace('"user": 1', '"model": "brain"' if protocol in ("ollama", "generate") else '"model": null')
    for data in (body.encode(), json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8", "surrogatepass")):
        assert parse(protocol, data)[0].message == "a\ufffdb\ufffd 😀"


@pytest.mark.parametrize("protocol", PARSERS)
def test_what_a_client_asks_for_itself_is_recognized(protocol: str) -> None:
    title = "### Task:\nGenerate a concise title.\n### Chat History:\n<chat_history>\nUSER: Hi\n</chat_history>"
    for text in (title, "Give me a title."):
        body = body_of(protocol, text_message(protocol, text))
        body |= {key: text for key in ("message", "prompt") if key in body}
        assert is_for_client(parse(protocol, body)[0]) == (text == title)
