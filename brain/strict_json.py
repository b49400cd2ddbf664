"""Strict JSON (RFC 8259): the one reader of JSON whose meaning must not depend on who reads it.

Models write it in calls, clients in bodies, operators in environment variables. A value that a proxy, a log or another
parser may read differently is refused. Answers of model servers and of other services are read as they come.
"""

import json
import re
from collections import Counter
from math import isinf
from typing import Any, NoReturn

from brain.text import replace_surrogates

MAX_DEPTH = 64
"""Levels of nested values, where any JSON is accepted."""
TOO_DEEP = f"the JSON nests deeper than {MAX_DEPTH} levels"
MAX_DIGITS = 309
"""Length of an integer, as of the largest float; the time to convert one grows with its square."""
TOO_LARGE = "the JSON contains a number that is too large"

_SPACE = " \t\n\r"


class InvalidJSON(ValueError):
    """JSON that is refused, and why.

    Attributes:
        key: The key that an object repeats, if that is the problem.
    """

    def __init__(self, problem: str, key: str = "") -> None:
        super().__init__(problem)
        self.key = key


def decode(text: str) -> Any:
    """Decode a whole text.

    Raises:
        InvalidJSON: It is refused.
    """
    text = replace_surrogates(text)
    value, end = decode_at(text, len(text) - len(text.lstrip(_SPACE)))
    if rest := text[end:].lstrip(_SPACE):
        _refuse_at(len(text) - len(rest))
    return value


def decode_at(text: str, at: int) -> tuple[Any, int]:
    """Decode the value at a position. Return it and where it ends. Errors as in `decode`."""
    value, end = _decode(text, at)
    written = text[at:end]
    if "\\ud" in written or "\\uD" in written:  # UTF-8 cannot encode half a character
        value, _ = _decode(replace_json_surrogates(written.encode("utf-8", "surrogatepass")).decode(), 0)
    if is_deeper(value, MAX_DEPTH):
        raise InvalidJSON(TOO_DEEP)
    return value, end


def decode_object(text: str) -> tuple[dict[str, Any] | None, str]:
    """Decode one object. Return it and an empty string, or None and the problem."""
    try:
        value = decode(text)
    except InvalidJSON as error:
        return None, str(error)
    return (value, "") if isinstance(value, dict) else (None, "the JSON is not one object in braces")


def check(data: bytes) -> None:
    """Check what msgspec leaves unchecked: repeated keys, of which it takes the last, and all that it skips.

    Fields limit their depth themselves.

    Args:
        data: JSON that msgspec has decoded, and whose size the caller has checked.

    Raises:
        InvalidJSON: It is refused.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        try:
            text = replace_json_surrogates(data).decode()
        except UnicodeDecodeError:
            raise InvalidJSON("the JSON is not UTF-8") from None
    _decode(text, len(text) - len(text.lstrip(_SPACE)))


def is_deeper(value: Any, levels: int) -> bool:
    """Whether a value has more levels of arrays and objects."""
    level = [value]
    for _ in range(levels + 1):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return False
        level = [child for one in level for child in (one.values() if isinstance(one, dict) else one)]
    return True


_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
    rb"|(?P<encoded>(?:\xed[\xa0-\xbf][\x80-\xbf])+)",
    re.DOTALL,
)


def replace_json_surrogates(data: bytes) -> bytes:
    """Return JSON with U+FFFD in place of lone surrogates, whether they are escapes or bytes."""

    def replace(found: re.Match[bytes]) -> bytes:
        if found["encoded"]:
            return replace_surrogates(found[0].decode("utf-8", "surrogatepass")).encode()
        return rb"\ufffd" if found["lone"] else found[0]

    return _ESCAPE.sub(replace, data)


def _decode(text: str, at: int) -> tuple[Any, int]:
    try:
        return _decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        _refuse_at(error.pos)
    except RecursionError:
        raise InvalidJSON(TOO_DEEP) from None


def _refuse_at(position: int) -> NoReturn:
    raise InvalidJSON(f"the JSON is not valid at character {position + 1}") from None


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise InvalidJSON("the JSON repeats a key in one object", key)
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidJSON(f"{name} is not JSON")


def _parse_float(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise InvalidJSON(TOO_LARGE)
    return number


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise InvalidJSON(TOO_LARGE)
    return int(digits)


_decoder = json.JSONDecoder(
    object_pairs_hook=_make_object, parse_constant=_refuse_constant, parse_float=_parse_float, parse_int=_parse_int
)
