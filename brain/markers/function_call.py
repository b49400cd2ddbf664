"""`<function_call>{"name": …, "args": {…}}</function_call>`, and the same in `<tool_call>`."""

import re
from typing import Any

from brain.markers.cursor import Cursor, Params, ParsedMarker, Reader, Steps, decode_object

OPENERS = ("<function_call>", "<tool_call>")

_STRUCTURE = re.compile(r'["{}\[\]<]')
_TAG = re.compile("<")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
UNREADABLE = "?"
_ARGS = ("args", "arguments", "parameters")
_ASIDE = ("name", "call_objective", "id", "type")
"""Keys that some models write next to the parameters; nothing is lost with them."""


def read(source: Cursor, opener: str) -> Reader:
    """Reads behind the opener; it is a marker only when `{` follows."""
    closer = "/" + opener[1:]
    if not (yield from source.skip_white()) or source.text[source.at] != "{":
        return None
    start = source.offset
    ended = yield from _to_object_end(source)
    body = source.raw()[start:]
    yield from source.skip_white()
    whole = ended and (yield from source.literal("<" + closer))
    while not whole:
        if not (yield from source.to(_TAG)):
            return ParsedMarker(_name_in(body), ended=False)
        if (yield from source.literal(closer)):
            return ParsedMarker(
                _name_in(body), problem=f"between the tags must stand one JSON object and then <{closer}"
            )
    return _reading(body)


def _to_object_end(source: Cursor) -> Steps:
    """Moves behind the brace that closes the object; false where the nesting makes no sense or never ends."""
    open_brackets: list[str] = []
    while (yield from source.to(_STRUCTURE)):
        character = source.text[source.at - 1]
        if character == '"':
            if not (yield from source.skip_string()):
                return False
        elif character in "{[":
            open_brackets.append(character)
        elif character == "<":  # a tag, before the object is closed
            source.at -= 1
            return False
        elif open_brackets.pop() != ("{" if character == "}" else "["):
            return False
        elif not open_brackets:
            return True
    return False


def _reading(body: str) -> ParsedMarker:
    call, problem = decode_object(body)
    if call is None:
        return ParsedMarker(_name_in(body), problem=problem)
    name = call.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return ParsedMarker(UNREADABLE, problem='"name" must be the name of a specialist')
    given = [key for key in _ARGS if key in call]
    if len(given) > 1:
        return ParsedMarker(name, problem=f'give either "{given[0]}" or "{given[1]}"')
    astray = [key for key in call if key not in _ASIDE]
    if not given and astray:
        return ParsedMarker(name, problem=f'put the parameters into "args"; {astray[0]:.40} stands outside')
    params, problem = _params(call[given[0]]) if given else ({}, "")
    return ParsedMarker(name, params, problem)


def _params(args: Any) -> tuple[Params | None, str]:
    if isinstance(args, str):  # as OpenAI's wire has it: JSON in a string
        return decode_object(args)
    return (args, "") if isinstance(args, dict) else (None, '"args" must be one JSON object')


def _name_in(body: str) -> str:
    """The name in a body that cannot be decoded, for the error's sake."""
    match = re.search(r'"name"\s*:\s*"([A-Za-z][A-Za-z0-9_-]{0,63})"', body)
    return match[1] if match else UNREADABLE
