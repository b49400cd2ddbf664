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
_IGNORED_KEYS = ("name", "call_objective", "id", "type")
"""Keys without meaning that some models write next to the parameters."""


def read(cursor: Cursor, opener: str) -> Reader:
    """Read a marker after its opener. The opener is text unless `{` follows."""
    closer = "/" + opener[1:]
    if not (yield from cursor.skip_whitespace()) or cursor.text[cursor.at] != "{":
        return None
    start = cursor.offset
    is_complete = yield from _move_past_object(cursor)
    body = cursor.raw()[start:]
    yield from cursor.skip_whitespace()
    whole = is_complete and (yield from cursor.read_literal("<" + closer))
    while not whole:
        if not (yield from cursor.move_past(_TAG)):
            return ParsedMarker(_find_name(body), is_complete=False)
        if (yield from cursor.read_literal(closer)):
            problem = f"the tag does not contain one JSON object and then <{closer}"
            return ParsedMarker(_find_name(body), problem=problem)
    return _parse_call(body)


def _move_past_object(cursor: Cursor) -> Steps:
    """Move past the brace that closes the object. Return False if the nesting is broken or never ends."""
    open_brackets: list[str] = []
    while (yield from cursor.move_past(_STRUCTURE)):
        character = cursor.text[cursor.at - 1]
        if character == '"':
            if not (yield from cursor.skip_string()):
                return False
        elif character in "{[":
            open_brackets.append(character)
        elif character == "<":  # a tag, before the object is closed
            cursor.at -= 1
            return False
        elif open_brackets.pop() != ("{" if character == "}" else "["):
            return False
        elif not open_brackets:
            return True
    return False


def _parse_call(body: str) -> ParsedMarker:
    call, problem = decode_object(body)
    if call is None:
        return ParsedMarker(_find_name(body), problem=problem)
    name = call.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return ParsedMarker(UNREADABLE, problem='"name" is not the name of a specialist')
    present = [key for key in _ARGS if key in call]
    if len(present) > 1:
        return ParsedMarker(name, problem=f'it has both "{present[0]}" and "{present[1]}"')
    misplaced = [key for key in call if key not in _IGNORED_KEYS]
    if not present and misplaced:
        return ParsedMarker(name, problem=f'the parameter {misplaced[0]:.40} is outside "args"')
    params, problem = _parse_params(call[present[0]]) if present else ({}, "")
    return ParsedMarker(name, params, problem)


def _parse_params(args: Any) -> tuple[Params | None, str]:
    if isinstance(args, str):  # as in OpenAI's protocol: JSON in a string
        return decode_object(args)
    return (args, "") if isinstance(args, dict) else (None, '"args" is not one JSON object')


def _find_name(body: str) -> str:
    """Return the name in a body that cannot be decoded, for the error."""
    match = re.search(r'"name"\s*:\s*"([A-Za-z][A-Za-z0-9_-]{0,63})"', body)
    return match[1] if match else UNREADABLE
