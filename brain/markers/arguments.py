"""Reads `key=value, …` in parentheses: JSON, quoted text or bare words. Nothing is evaluated."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brain.markers.cursor import Params
from brain.strict_json import InvalidJSON, decode, decode_at
from brain.text import replace_surrogates

_KEY = {"=": re.compile(r"\s*([A-Za-z_][A-Za-z0-9_-]*)\s*=\s*"), ":": re.compile(r"\s*([A-Za-z_]\w*)\s*[=:]\s*")}
_SPACE = re.compile(r"\s*")
_NEXT = re.compile(r"\s*([,)])")
_QUOTED = re.compile(r""""((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'""", re.DOTALL)
_BARE = re.compile(r"""[^\s,"'()\[\]{}](?:[^,"'()\[\]{}\n]|(?<=\w)'(?=\w))*""")
"""Words without quotes. A bracket in them may be a value that never ends, so it needs quotes."""
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_MAX_NUMBER = 300
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
PYTHON_WORDS: Mapping[str, Any] = {**_WORDS, "True": True, "False": False, "None": None}
PROBLEM = "the parentheses do not contain key=value pairs, separated by commas"


@dataclass(frozen=True, slots=True)
class Arguments:
    """The values in parentheses, with and without a key. Without `params`, they could not be read.

    Attributes:
        end: Where the text after the closing parenthesis begins.
    """

    params: Params | None
    values: tuple[Any, ...] = ()
    problem: str = ""
    end: int = 0


def read_arguments(text: str, at: int = 0, *, like_python: bool = False) -> Arguments:
    """Read the values up to the closing parenthesis.

    Args:
        like_python: Whether values may have no key, `:` may follow a key, and a value may be an array, an object or
            one of Python's words.
    """
    params: Params = {}
    values: list[Any] = []
    following = _NEXT.match(text, at)
    if following is not None and following[1] == ")":
        return Arguments(params, end=following.end())
    while True:
        key = _KEY[":" if like_python else "="].match(text, at)
        read = _read_value(text, _SPACE.match(text, key.end() if key else at).end(), like_python)  # type: ignore[union-attr]
        following = None if read is None else _NEXT.match(text, read[1])
        if read is None or following is None or (key is None and not like_python):
            return Arguments(None, problem=PROBLEM)
        if key is None:
            values.append(read[0])
        elif key[1] in params:
            return Arguments(None, problem=f"{key[1]} appears twice")
        else:
            params[key[1]] = read[0]
        at = following.end()
        if following[1] == ")":
            return Arguments(params, tuple(values), end=at)


def _read_value(text: str, at: int, like_python: bool) -> tuple[Any, int] | None:
    """Return a value and where it ends."""
    if quoted := _QUOTED.match(text, at):
        inner = quoted[1] if quoted[1] is not None else quoted[2]
        return replace_surrogates(_ESCAPE.sub(_unescape, inner)), quoted.end()
    if like_python and text[at : at + 1] in ("[", "{"):
        try:
            return decode_at(text, at)
        except InvalidJSON:
            return None
    bare = _BARE.match(text, at)
    if bare is None:
        return None
    word, words = bare[0].rstrip(), PYTHON_WORDS if like_python else _WORDS
    if word in words:
        return words[word], bare.end()
    if _NUMBER.fullmatch(word) and len(word) <= _MAX_NUMBER:
        try:
            return decode(word), bare.end()
        except InvalidJSON:  # it is too large
            return None if like_python else (word, bare.end())
    return word, bare.end()


def _unescape(match: re.Match[str]) -> str:
    code, character = match.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(character, character)
