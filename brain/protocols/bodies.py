"""JSON in request and response bodies, and the errors for invalid input; shared by all protocols."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from brain.errors import BadRequest
from brain.events import Error, ErrorCode
from brain.text import replace_json_surrogates, replace_surrogates
from brain.validation import describe_mismatch, quote_value

BODY_BYTES = 20 * 1024 * 1024
"""Size limit of a request body."""
MAX_DEPTH = 64
"""Levels of nested values in a field that accepts any JSON."""
ABSENT = msgspec.Raw(b"")
"""Default of a field that is decoded later."""

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
T = TypeVar("T")
S = TypeVar("S", bound=str)


def decode(data: bytes | msgspec.Raw, kind: type[T], place: str = "") -> T:
    """Decode a body, or the part of it at `place`. Lone surrogates become U+FFFD.

    Duplicate keys are rejected here only for structs without raw fields. A caller that decodes parts later calls
    `check_keys` once, after it has checked all limits.
    """
    try:
        value = msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise as_bad_request(error, kind, place) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if (whole := replace_json_surrogates(bytes(data))) != data:
            return decode(whole, kind, place)
        message = f"{quote_field(place) if place else 'The body'} is not valid JSON: {describe_decode_error(error)}."
        raise BadRequest(message, place or None) from None
    if isinstance(value, msgspec.Struct) and not _has_raw_fields(type(value)):
        check_keys(bytes(data), place)
    return value


@cache
def _has_raw_fields(kind: type[msgspec.Struct]) -> bool:
    return any(field.type is msgspec.Raw for field in msgspec.structs.fields(kind))


def decode_any(data: bytes | msgspec.Raw, max_bytes: int, place: str, max_depth: int = MAX_DEPTH) -> Any:
    """Decode a field that accepts any JSON within these limits."""
    check_limit(place, len(memoryview(data)), max_bytes, "bytes")
    value = decode(data, object, place)
    if _is_deeper(value, max_depth):
        raise invalid(place, f"is nested deeper than the limit of {max_depth} levels")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    inner: Iterable[Any] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _is_deeper(one, levels - 1) for one in inner if isinstance(one, dict | list))


def decode_object(data: msgspec.Raw, max_bytes: int, place: str) -> dict[str, Any]:
    """Decode a field that accepts any JSON object; return an empty one if it is absent or null."""
    value = decode_any(data, max_bytes, place) if is_present(data) else {}
    if not isinstance(value, dict):
        raise invalid(place, "must be an object")
    return value


def is_present(data: msgspec.Raw) -> bool:
    """Whether a field is present and not null."""
    return bytes(data) not in (b"", b"null")


def check_keys(data: bytes, place: str) -> None:
    """Check that no object has a duplicate key: a proxy or a log may have read the other value.

    Args:
        data: valid JSON.
    """
    try:
        _KEY_DECODER.decode(data.decode(errors="replace"))
    except _DuplicateKeyError as error:
        field = (f"{place}.{error}" if place else str(error))[:200]
        raise invalid(field, "appears more than once in the same object; send it once") from None


class _DuplicateKeyError(ValueError):
    """A key that appears twice in one object."""


def _check_pairs(pairs: list[tuple[str, None]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise _DuplicateKeyError(Counter(key for key, _ in pairs).most_common(1)[0][0])


def _ignore(number: str) -> None:
    """Skip a number, whose length is not limited."""


_KEY_DECODER = json.JSONDecoder(object_pairs_hook=_check_pairs, parse_int=_ignore, parse_float=_ignore, strict=False)


def as_bad_request(error: msgspec.ValidationError, kind: Any, place: str = "") -> BadRequest:
    """Return the error for a value that is not of a type, at this place of a body."""
    path, problem = describe_mismatch(error, kind)
    field = f"{place}.{path}".replace("[...]", "[]").replace("..", ".").replace(".[", "[").strip(".")
    return invalid(field, problem) if field else BadRequest(f"The body {problem}.")


def describe_decode_error(error: Exception) -> str:
    """Return in a few words why something is not valid JSON."""
    if isinstance(error, UnicodeError):
        return "it is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "truncated" in str(error):
        return "it is incomplete"
    return str(error).removeprefix("JSON is malformed: ")


def quote_field(field: str) -> str:
    """Return a field for an error message, in backticks; a label with spaces, such as a line of a file, without."""
    return field if " " in field else f"`{field}`"


def invalid(field: str, problem: str) -> BadRequest:
    """Return the error for a field: its name and the problem in one sentence."""
    return BadRequest(f"{quote_field(field)} {problem}{'' if problem.endswith('?') else '.'}", field)


def choose(value: str, allowed: Sequence[S], field: str) -> S:
    """Return the allowed value that equals `value`.

    Raises:
        BadRequest: no allowed value does.
    """
    for one in allowed:
        if one == value:
            return one
    raise invalid(field, f"is {quote_value(value)}; use one of: {', '.join(allowed)}")


def check_limit(field: str, count: int, limit: int, unit: str, remedy: str = "") -> None:
    """Raise `too_large` when a field exceeds a limit, such as one for characters."""
    if count > limit:
        raise too_large(
            f"{quote_field(field)} has {count:,} {unit}; the limit is {limit:,}.{remedy and f' {remedy}'}", field
        )


def too_large(message: str, field: str | None = None) -> BadRequest:
    """Return the error for a request that exceeds a limit."""
    return BadRequest(message, field, code="too_large", status=413)


def encode(value: Any) -> bytes:
    """Encode JSON on one line. Surrogates, which UTF-8 cannot encode, become U+FFFD.

    The other characters at which some clients end a line (Python's `splitlines`, JavaScript before 2019) are escaped.
    """
    try:
        data = _encode_json(value)
    except UnicodeEncodeError:
        data = replace_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
    if data.isascii() or (
        type(value) is str and "\u2028" not in value and "\u2029" not in value and "\x85" not in value
    ):
        return data
    for end, escaped in _LINE_ENDS.items():
        data = data.replace(end, escaped)
    return data


_encode_json = msgspec.json.Encoder().encode
_LINE_ENDS = {"\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029", "\x85".encode(): b"\\u0085"}


_STATUS: Mapping[ErrorCode, int] = {
    "model_unreachable": 502,
    "model_failed": 502,
    "model_context": 400,
    "shutdown": 503,
    "internal": 500,
}


def as_rejection(error: Error) -> BadRequest:
    """Return the error of a turn that failed before its first text. Its status is the model server's, if that has one.

    Other statuses of 500 and more are the model server's own problem, and not Brain's.
    """
    status = error.status or 0
    if not (400 <= status < 500 or status == 503):
        status = _STATUS[error.code]
    return BadRequest(error.message, code=error.code, status=status, retry_after=error.retry_after)
