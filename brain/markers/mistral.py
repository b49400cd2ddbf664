"""`[TOOL_CALLS][{"name": …, "arguments": {…}}]` and `[TOOL_CALLS]name[ARGS]{…}`, the formats of Mistral."""

import re

from brain.markers.cursor import UNNAMED, Cursor, ParsedMarker, Reader
from brain.markers.function_call import find_name, make_call, parse_call
from brain.markers.loose_json import decode_loosely, move_past_value
from brain.text import NAME_LENGTH

OPENERS = TEMPLATE_WORDS = ("[TOOL_CALLS]",)

_BRACKET = re.compile(r"\[")
_PROBLEM = "the call is not a list of calls, or a name and one JSON object"


def read(cursor: Cursor, opener: str) -> Reader:
    """Read a marker after its opener. The opener is text unless a list, an object or a name with an object follows."""
    if not (yield from cursor.skip_whitespace()):
        return None
    name = ""
    if cursor.text[cursor.at] not in "[{":
        name = yield from cursor.read_name(NAME_LENGTH)
        if not name:
            return None
        if not (yield from cursor.skip_whitespace()):
            return ParsedMarker(name, is_complete=False)
        if (yield from cursor.read_literal("[")):
            if (yield from cursor.read_literal("CALL_ID]")) and not (yield from cursor.move_past(_BRACKET)):
                return ParsedMarker(name, is_complete=False)
            if not (yield from cursor.read_literal("ARGS]")):
                return None
            if not (yield from cursor.skip_whitespace()):
                return ParsedMarker(name, is_complete=False)
        if cursor.text[cursor.at] != "{":
            return None
    start = cursor.offset
    is_whole = yield from move_past_value(cursor)
    body = cursor.raw()[start:]
    if not is_whole:
        is_complete = yield from cursor.wait_for_character()
        return ParsedMarker(name or find_name(body), problem=_PROBLEM, is_complete=is_complete)
    if name:
        return ParsedMarker(name, *decode_loosely(body))
    return _parse_list(body) if body[0] == "[" else parse_call(body)


def _parse_list(body: str) -> ParsedMarker:
    decoded, problem = decode_loosely(f'{{"calls":{body}}}')
    if decoded is None:
        return ParsedMarker(find_name(body), problem=problem)
    calls = [make_call(one if isinstance(one, dict) else {}) for one in decoded["calls"]]
    if not calls:
        return ParsedMarker(UNNAMED, problem=_PROBLEM)
    return calls[0]._replace(more=tuple(calls[1:]))
