"""`<function_call>{"name": …, "args": {…}}</function_call>`, and the same in `<tool_call>`."""

import re
from typing import Any

from brain.markers.cursor import UNNAMED, Cursor, Params, ParsedMarker, Reader, Steps
from brain.markers.loose_json import decode_loosely, move_past_value, skip_to_value
from brain.strict_json import decode_object
from brain.text import SPECIALIST_NAME

TOOL_CALL = "<tool_call>"
OPENERS = ("<function_call>", TOOL_CALL)

_ARGS = ("args", "arguments", "parameters")
_IGNORED_KEYS = ("name", "call_objective", "id", "type")
"""Keys without meaning that some models write next to the parameters."""
FENCE = "```"
_MAX_LANGUAGE = 16


def read(cursor: Cursor, opener: str) -> Reader:
    """Read a marker after its opener. The opener is text unless `{` follows, perhaps in a code fence."""
    closer = f"</{opener[1:]}"
    if not (yield from skip_to_value(cursor)):
        return None
    is_fenced = cursor.text[cursor.at] == FENCE[0]
    if is_fenced and not (yield from move_past_fence(cursor)):
        return None
    if cursor.text[cursor.at] != "{":
        return None
    start = cursor.offset
    is_whole = yield from move_past_value(cursor)
    body = cursor.raw()[start:]
    if is_whole and is_fenced:
        yield from skip_to_value(cursor)
        is_whole = yield from cursor.read_literal(FENCE)
    if is_whole:
        yield from skip_to_value(cursor)
    if is_whole and (yield from cursor.read_literal(closer)):
        return parse_call(body)
    if not (yield from cursor.move_past_text(closer)):
        return ParsedMarker(find_name(body), is_complete=False)
    return ParsedMarker(find_name(body), problem=f"the tag does not contain one JSON object and then {closer}")


def move_past_fence(cursor: Cursor) -> Steps:
    """Move past the line that opens a code fence, to the value."""
    if not (yield from cursor.read_literal(FENCE)):
        return False
    yield from cursor.read_name(longest=_MAX_LANGUAGE)
    return (yield from skip_to_value(cursor))


def parse_call(body: str) -> ParsedMarker:
    """Return the call in a JSON object with a name and the parameters."""
    call, problem = decode_loosely(body)
    return ParsedMarker(find_name(body), problem=problem) if call is None else make_call(call)


def make_call(call: Params) -> ParsedMarker:
    """Return the call that an object describes."""
    name = call.get("name")
    if not isinstance(name, str) or not SPECIALIST_NAME.fullmatch(name):
        return ParsedMarker(UNNAMED, problem='"name" is not the name of a specialist')
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


def find_name(body: str) -> str:
    """Return the name in a body that cannot be decoded, for the error."""
    match = re.search(rf"""["']name["']\s*:\s*["']({SPECIALIST_NAME.pattern})["']""", body)
    return match[1] if match else UNNAMED
