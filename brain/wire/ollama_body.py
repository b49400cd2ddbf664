"""Wing: the bodies that Ollama's clients send, as they stand in the JSON.

As Ollama does, fields that are not known are passed over.
"""

import re
from typing import Annotated, Any, TypeVar

import msgspec

from brain.errors import BadRequest

T = TypeVar("T")
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


class SentFunction(msgspec.Struct):
    """What is called, in a call of the assistant's."""

    name: str
    arguments: dict[str, Any] | None = None


class SentCall(msgspec.Struct):
    """One call of the assistant's; the Python client leaves its id out."""

    function: SentFunction
    id: str | None = None


class SentMessage(msgspec.Struct):
    """One message of a chat."""

    role: str
    content: str | None = None
    images: list[str] | None = None
    tool_calls: list[SentCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class SentSignature(msgspec.Struct):
    """What a tool is called, does, and takes."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class SentTool(msgspec.Struct):
    """A tool of the client's own."""

    function: SentSignature


class SentOptions(msgspec.Struct):
    """The options that Brain knows; the others go to the model as they are."""

    num_predict: Int64 | None = None
    temperature: float | None = None
    top_k: Int64 | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: Int64 | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: list[str] | None = None


class Sent(msgspec.Struct):
    """What both kinds of bodies hold."""

    model: str = ""
    stream: bool | None = None
    format: str | dict[str, Any] | None = None
    keep_alive: int | float | str | None = None
    options: dict[str, Any] | None = None
    think: bool | str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    debug: bool | None = msgspec.field(default=None, name="_debug_render_only")


class SentChat(Sent):
    """The body of `POST /api/chat`."""

    messages: list[SentMessage] | None = None
    tools: list[SentTool] | None = None


class SentGenerate(Sent):
    """The body of `POST /api/generate`."""

    prompt: str | None = None
    system: str | None = None
    images: list[str] | None = None
    suffix: str | None = None
    template: str | None = None
    context: list[int] | None = None
    raw: bool | None = None


class SentShow(msgspec.Struct):
    """The body of `POST /api/show`; old clients say `name`."""

    model: str = ""
    name: str = ""


def decoded(body: bytes, kind: type[T]) -> T:
    """The body as its struct.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _bad(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest("missing request body" if not body else "The body is not valid JSON.") from None


def converted(value: Any, kind: type[T], place: str) -> T:
    """A part of it that was read as JSON, at this place.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _bad(error, place) from None


def _bad(error: msgspec.ValidationError, within: str = "") -> BadRequest:
    """The same error in a sentence that names the field."""
    text = str(error)
    found = _PLACE.search(text)
    inner = found["path"] if found else ""
    sentence = text[: found.start()] if found else text
    if missing := re.search(r"missing required field `([^`]*)`", sentence):
        inner, sentence = f"{inner}.{missing[1]}", "This field is missing"
    place = f"{within}.{inner}".strip(".").replace("[...]", "[]")
    return BadRequest(f"{place}: {sentence}." if place else f"{sentence}.", place or None)
