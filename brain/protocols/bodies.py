"""JSON in request and response bodies, alike in all protocols."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from brain.errors import BadRequest
from brain.events import Error, ErrorCode
from brain.text import replace_surrogates

BODY_BYTES = 20 * 1024 * 1024
"""Size limit of a request body."""
MAX_DEPTH = 64
"""Levels of nested values in a field that may hold any JSON."""
ABSENT = msgspec.Raw(b"")
"""Default of a field that is decoded later."""

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
T = TypeVar("T")

_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


def decode(data: bytes | msgspec.Raw, kind: type[T], place: str = "") -> T:
    """Decode a body, or the part of it at `place`.

    Duplicate keys are checked here only for structs that decode completely. A caller that decodes parts later calls
    `check_keys` once, when all limits are checked.
    """
    try:
        value = msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise as_bad_request(error, place) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{place or 'The body'} is not valid JSON: {describe_decode_error(error)}."
        raise BadRequest(message, place or None) from None
    if isinstance(value, msgspec.Struct) and not _has_raw_fields(type(value)):
        check_keys(bytes(data), place)
    return value


@cache
def _has_raw_fields(kind: type[msgspec.Struct]) -> bool:
    return any(field.type is msgspec.Raw for field in msgspec.structs.fields(kind))


def decode_any(data: bytes | msgspec.Raw, max_bytes: int, place: str, max_depth: int = MAX_DEPTH) -> Any:
    """Decode a field that may hold any JSON within these limits."""
    if len(memoryview(data)) > max_bytes:
        raise too_large(f"{place} may be {max_bytes:,} bytes long.", place)
    value = decode(data, object, place)
    if _is_deeper(value, max_depth):
        raise invalid(place, f"may be nested {max_depth} levels deep")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    inner: Iterable[Any] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _is_deeper(one, levels - 1) for one in inner if isinstance(one, dict | list))


def decode_object(data: msgspec.Raw, max_bytes: int, place: str) -> dict[str, Any]:
    """Decode a field that may hold any JSON object; one that is absent or null is empty."""
    value = decode_any(data, max_bytes, place) if is_present(data) else {}
    if not isinstance(value, dict):
        raise invalid(place, "must be an object")
    return value


def is_present(data: msgspec.Raw) -> bool:
    """Whether a field is present and not null."""
    return bytes(data) not in (b"", b"null")


def check_keys(data: bytes, place: str) -> None:
    """Check that no object has a key twice: a proxy or a log may have read the other value.

    Args:
        data: valid JSON.
    """
    try:
        _KEY_DECODER.decode(data.decode(errors="replace"))
    except _DuplicateKeyError as error:
        name = (f"{place}.{error}" if place else str(error))[:200]
        raise BadRequest(f"{name}: This key stands here more than once.", name) from None


class _DuplicateKeyError(ValueError):
    """The key that an object has twice."""


def _check_pairs(pairs: list[tuple[str, None]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise _DuplicateKeyError(Counter(key for key, _ in pairs).most_common(1)[0][0])


def _ignore(number: str) -> None:
    """Skip a number, which may have any length."""


_KEY_DECODER = json.JSONDecoder(object_pairs_hook=_check_pairs, parse_int=_ignore, parse_float=_ignore, strict=False)


def as_bad_request(error: msgspec.ValidationError, place: str = "") -> BadRequest:
    """Return the same error in a sentence that names the field within `place`."""
    sentence, inner = str(error), ""
    if match := _PATH.search(sentence):
        sentence, inner = sentence[: match.start()], match["path"]
    if missing := re.search(r"missing required field `([^`]*)`", sentence):
        inner, sentence = f"{inner}.{missing[1]}", "This field is missing"
    elif unknown := re.search(r"unknown field `([^`]*)`", sentence):
        inner, sentence = f"{inner}.{unknown[1]}", "This field does not exist"
    elif sentence.startswith("Expected `array"):
        sentence = "This must be a list"
    field = f"{place}.{inner}".replace("[...]", "[]").replace("..", ".").replace(".[", "[").strip(".")
    return BadRequest(f"{field}: {sentence}." if field else f"{sentence}.", field or None)


def describe_decode_error(error: Exception) -> str:
    """Return in a few words why something is not valid JSON."""
    if isinstance(error, UnicodeError):
        return "it is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "truncated" in str(error):
        return "it ends too early, or in the middle of a character"
    return str(error).removeprefix("JSON is malformed: ")


def invalid(field: str, problem: str) -> BadRequest:
    """Return the error for a field, in a sentence of its name and the problem."""
    return BadRequest(f"{field} {problem}.", field)


def check_limit(field: str, count: int, limit: int, unit: str, remedy: str = "") -> None:
    """Raise `too_large` when a field has more of something, such as characters, than it may."""
    if count > limit:
        advice = f"; {remedy}" if remedy else ""
        raise too_large(f"{field} has {count:,} {unit}; the limit is {limit:,}{advice}.", field)


def too_large(message: str, field: str | None = None) -> BadRequest:
    """Return the error for something that exceeds a limit."""
    return BadRequest(message, field, code="too_large", status=413)


def encode(value: Any) -> bytes:
    """Encode JSON on one line. Surrogates, which UTF-8 cannot hold, become U+FFFD."""
    try:
        return _encode_json(value)
    except UnicodeEncodeError:
        return replace_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


_encode_json = msgspec.json.Encoder().encode


_STATUS: Mapping[ErrorCode, int] = {
    "model_unreachable": 502,
    "model_failed": 502,
    "model_context": 400,
    "shutdown": 503,
    "internal": 500,
}


def error_status(error: Error) -> int:
    """Return the HTTP status for a turn that failed before it streamed: the model server's, when it rejected."""
    return error.status if error.status is not None and 400 <= error.status < 500 else _STATUS[error.code]
