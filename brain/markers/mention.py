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


def read(source: Cursor, opener: str) -> Reader:
    """Reads behind the `@`; it is a marker only when `name_specialist(` follows."""
    word = yield from source.name(longest=64 + len(_SUFFIX))
    name = word.removesuffix(_SUFFIX)
    if not name or name == word or not (yield from source.literal("(")):
        return None
    start = source.offset
    if not (yield from _to_closer(source)):
        return ParsedMarker(name, ended=False)
    return ParsedMarker(name, *_params(source.raw()[start:-1]))


def _to_closer(source: Cursor) -> Steps:
    """Moves behind the `)` that is not in a quoted value; a quote elsewhere is an apostrophe."""
    while (yield from source.to(_VALUE_OR_END)):
        if source.text[source.at - 1] == ")":
            return True
        if not (yield from source.skip_white()):
            return False
        quote = source.text[source.at]
        if quote in "\"'":
            source.at += 1
            if not (yield from source.skip_string(quote)):
                return False
    return False


def _params(body: str) -> tuple[Params | None, str]:
    params: Params = {}
    at = 0
    if body and not body.strip():
        return params, ""
    while at < len(body):
        item = _ITEM.match(body, at)
        if item is None or (item.end() == len(body) and body.endswith(",")):
            return None, "between the parentheses must stand key=value pairs with commas between them"
        key, double, single, bare = item.groups()
        if key in params:
            return None, f"{key} is given twice"
        quoted = double if double is not None else single
        params[key] = (
            replace_surrogates(_ESCAPE.sub(_unescaped, quoted)) if quoted is not None else _scalar(bare.rstrip())
        )
        at = item.end()
    return params, ""


def _unescaped(match: re.Match[str]) -> str:
    code, character = match.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(character, character)


def _scalar(word: str) -> Any:
    if word in ("true", "false", "null") or (_NUMBER.fullmatch(word) and len(word) <= 300):
        number = json.loads(word)
        return word if number in (float("inf"), float("-inf")) else number
    return word
