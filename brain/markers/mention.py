"""`@name_specialist(key=value, …)`; values are JSON scalars, quoted text or bare words."""

import json
import re
from typing import Any

from brain.markers.cursor import Cursor, Params, ParsedMarker, Reader, Steps
from brain.text import replace_surrogates

OPENERS = ("@",)

_SUFFIX = "_specialist"
_VALUE_OR_END = re.compile(r"[=)]")
_ITEM = re.compile(
    r"""\s* ([A-Za-z_][A-Za-z0-9_-]*) \s* = \s*
        (?: "((?:[^"\\]|\\.)*)" | '((?:[^'\\]|\\.)*)' | ([^\s,"'][^,]*) )
        \s* (?: , | \Z )""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def read(cursor: Cursor, opener: str) -> Reader:
    """Read a marker after its `@`. The `@` is text unless `name_specialist(` follows."""
    word = yield from cursor.read_name(longest=64 + len(_SUFFIX))
    name = word.removesuffix(_SUFFIX)
    if not name or name == word or not (yield from cursor.read_literal("(")):
        return None
    start = cursor.offset
    if not (yield from _move_past_closer(cursor)):
        return ParsedMarker(name, is_complete=False)
    return ParsedMarker(name, *_parse_params(cursor.raw()[start:-1]))


def _move_past_closer(cursor: Cursor) -> Steps:
    """Move past the `)` that is not in a quoted value. A quote elsewhere is an apostrophe."""
    while (yield from cursor.move_past(_VALUE_OR_END)):
        if cursor.text[cursor.at - 1] == ")":
            return True
        if not (yield from cursor.skip_whitespace()):
            return False
        quote = cursor.text[cursor.at]
        if quote in "\"'":
            cursor.at += 1
            if not (yield from cursor.skip_string(quote)):
                return False
    return False


def _parse_params(body: str) -> tuple[Params | None, str]:
    params: Params = {}
    at = 0
    if body and not body.strip():
        return params, ""
    while at < len(body):
        item = _ITEM.match(body, at)
        if item is None or (item.end() == len(body) and body.endswith(",")):
            return None, "the parentheses do not contain key=value pairs, separated by commas"
        key, double, single, bare = item.groups()
        if key in params:
            return None, f"{key} appears twice"
        quoted = double if double is not None else single
        params[key] = (
            replace_surrogates(_ESCAPE.sub(_unescape, quoted)) if quoted is not None else _parse_scalar(bare.rstrip())
        )
        at = item.end()
    return params, ""


def _unescape(match: re.Match[str]) -> str:
    code, character = match.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(character, character)


def _parse_scalar(word: str) -> Any:
    if word in ("true", "false", "null") or (_NUMBER.fullmatch(word) and len(word) <= 300):
        number = json.loads(word)
        return word if number in (float("inf"), float("-inf")) else number
    return word
