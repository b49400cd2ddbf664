"""JSON as strangers send it and as they get it, alike in all protocols."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, TypeVar

import msgspec

from brain.errors import BadRequest
from brain.messages import ClientMessage
from brain.text import replace_surrogates

BODY_BYTES = 20 * 1024 * 1024
MAX_DEPTH = 64

_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")

T = TypeVar("T")


def decode(data: bytes | msgspec.Raw, kind: type[T], place: str = "") -> T:
    """A body, or what stands in it at this place.

    Raises:
        BadRequest: naming the field and what is wrong with it. A key that an object has twice is wrong, too: the reader
            of a proxy or a log may have seen the other value. Where parts are decoded later, who reads a body checks it
            with `check_keys` when all of it is bounded.
    """
    try:
        found = msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise as_bad_request(error, place) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(
            f"{place or 'The body'} is not valid JSON: {describe_decode_error(error)}.", place or None
        ) from None
    if isinstance(found, msgspec.Struct) and not _holds_raw(type(found)):
        check_keys(bytes(data), place)
    return found


def decode_any(data: bytes | msgspec.Raw, most: int, place: str, depth: int = MAX_DEPTH) -> Any:
    """What may be any JSON, but no more than `most` bytes of it, and not nested deeper than so many levels.

    Raises:
        BadRequest: when it is.
    """
    if len(memoryview(data)) > most:
        raise BadRequest(f"{place} may be {most:,} bytes long.", place, code="too_large", status=413)
    value = decode(data, object, place)
    if _is_deeper(value, depth):
        raise BadRequest(f"{place} may be nested {depth} levels deep.", place)
    return value


@cache
def _holds_raw(kind: type[msgspec.Struct]) -> bool:
    return any(field.type is msgspec.Raw for field in msgspec.structs.fields(kind))


class _TwiceError(ValueError):
    """A key that an object has twice."""


def check_keys(data: bytes, place: str) -> None:
    """Looks whether a key stands twice in an object of this JSON, which is known to be valid.

    Raises:
        BadRequest: naming the key.
    """
    try:
        _KEYS.decode(data.decode(errors="replace"))
    except _TwiceError as error:
        name = f"{place}.{error}" if place else str(error)
        raise BadRequest(f"{name[:200]}: This key stands here more than once.", name[:200]) from None


def _check_pairs(pairs: list[tuple[str, None]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise _TwiceError(Counter(key for key, _ in pairs).most_common(1)[0][0])


def _unread(number: str) -> None:
    """A number may have any length; nobody wants its value here."""


_KEYS = json.JSONDecoder(object_pairs_hook=_check_pairs, parse_int=_unread, parse_float=_unread, strict=False)


def _is_deeper(value: Any, levels: int) -> bool:
    inner: Iterable[Any] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _is_deeper(one, levels - 1) for one in inner if isinstance(one, dict | list))


def encode(value: Any) -> bytes:
    """JSON on one line. What no UTF-8 can hold, halves of characters that were escaped, becomes U+FFFD."""
    try:
        return _encode_json(value)
    except UnicodeEncodeError:
        return replace_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


_encode_json = msgspec.json.Encoder().encode


def as_bad_request(error: msgspec.ValidationError, within: str = "") -> BadRequest:
    """The same error in a sentence that names the field."""
    text = str(error)
    found = _PLACE.search(text)
    inner = found["path"] if found else ""
    sentence = text[: found.start()] if found else text
    if missing := re.search(r"missing required field `([^`]*)`", sentence):
        inner, sentence = f"{inner}.{missing[1]}", "This field is missing"
    elif unknown := re.search(r"unknown field `([^`]*)`", sentence):
        inner, sentence = f"{inner}.{unknown[1]}", "This field does not exist"
    elif sentence.startswith("Expected `array"):
        sentence = "This must be a list"
    place = f"{within}.{inner}".replace("[...]", "[]").replace("..", ".").replace(".[", "[").strip(".")
    return BadRequest(f"{place}: {sentence}." if place else f"{sentence}.", place or None)


def describe_decode_error(error: Exception) -> str:
    """Why something is no JSON, in a few words."""
    if isinstance(error, UnicodeError):
        return "it is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "truncated" in str(error):
        return "it ends too early, or in the middle of a character"
    return str(error).removeprefix("JSON is malformed: ")


MAX_CALLS = 4096
"""In all messages together."""
MAX_COMMAS = 1_000_000
COMMAS_A_MESSAGE = 250_000
COMMAS_BESIDES = 100_000
"""At least one stands between two values: counting them takes no time, and reading many values does."""


class _Messages(msgspec.Struct):
    messages: msgspec.Raw = msgspec.Raw(b"")


def check_value_count(body: bytes) -> None:
    """Whether a body holds few values besides its messages.

    Raises:
        BadRequest: `too_large`, when it does not.
    """
    number = body.count(b",")
    if number > COMMAS_BESIDES and number - commas(decode(body, _Messages).messages) > COMMAS_BESIDES:
        message = f"The body may hold {COMMAS_BESIDES:,} values besides its messages."
        raise BadRequest(message, code="too_large", status=413)


def decode_messages(sent: msgspec.Raw, kind: type[T], most: int, too_many: str) -> Iterator[tuple[T, str]]:
    """Each of the messages, and its place.

    Args:
        most: how many there may be; `too_many` is said of more.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    if commas(sent) > MAX_COMMAS:
        raise _too_large(f"messages may hold {MAX_COMMAS:,} values; leave the oldest out.", "messages")
    listed = decode(sent, list[msgspec.Raw], "messages")
    if len(listed) > most:
        raise _too_large(too_many, "messages")
    for n, one in enumerate(listed):
        place = f"messages[{n}]"
        if commas(one) > COMMAS_A_MESSAGE:
            raise _too_large(f"{place} may hold {COMMAS_A_MESSAGE:,} values.", place)
        yield decode(one, kind, place), place


def collect_messages(spoken: Iterable[ClientMessage]) -> list[ClientMessage]:
    """All messages.

    Raises:
        BadRequest: `too_large`, as soon as their calls are too many.
    """
    taken: list[ClientMessage] = []
    calls = 0
    for one in spoken:
        calls += len(one.calls)
        check_call_count(calls)
        taken.append(one)
    return taken


def check_call_count(number: int) -> None:
    """Whether all messages may hold so many calls.

    Raises:
        BadRequest: `too_large`, when they may not.
    """
    if number > MAX_CALLS:
        raise _too_large(f"messages: at most {MAX_CALLS:,} calls in all of them; leave the oldest out.", "messages")


def commas(raw: msgspec.Raw) -> int:
    """About how many values stand in it."""
    return bytes(raw).count(b",")


def _too_large(message: str, field: str) -> BadRequest:
    return BadRequest(message, field, code="too_large", status=413)
