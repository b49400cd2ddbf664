"""`<|python_tag|>{"name": …, "parameters": {…}}` of Llama 3, and `<|python_start|>[name(key=value)]` of Llama 4."""

import re

from brain.markers.arguments import PROBLEM, read_arguments
from brain.markers.cursor import UNNAMED, Cursor, ParsedMarker, Reader
from brain.markers.function_call import find_name, parse_call
from brain.markers.loose_json import move_past_value
from brain.markers.mention import move_past_closer
from brain.text import NAME_LENGTH, SPECIALIST_NAME

OPENERS = TEMPLATE_WORDS = ("<|python_tag|>", "<|python_start|>")

_CALL = re.compile(rf"\s*({SPECIALIST_NAME.pattern})\(")
_SEPARATOR = re.compile(r"\s*(,|\]$)")


def read(cursor: Cursor, opener: str) -> Reader:
    """Read a marker after its opener. The opener is text if code follows."""
    if not (yield from cursor.skip_whitespace()):
        return None
    if cursor.text[cursor.at] not in "[{":
        name = yield from cursor.read_name(NAME_LENGTH)
        if not name or not (yield from cursor.read_literal(".call(")):
            return None
        start = cursor.offset
        if not (yield from move_past_closer(cursor)):
            return ParsedMarker(name, is_complete=False)
        return _parse_arguments(name, cursor.raw(), start)[0]
    start = cursor.offset
    is_whole = yield from move_past_value(cursor)
    body = cursor.raw()[start:]
    if not is_whole:
        is_complete = yield from cursor.wait_for_character()
        return ParsedMarker(find_name(body), problem=PROBLEM, is_complete=is_complete)
    return parse_call(body) if body[0] == "{" else _parse_list(body)


def _parse_list(body: str) -> ParsedMarker:
    calls: list[ParsedMarker] = []
    at = 1
    while at < len(body):
        call = _CALL.match(body, at)
        if call is None:
            return ParsedMarker(calls[0].name if calls else UNNAMED, problem=PROBLEM)
        marker, at = _parse_arguments(call[1], body, call.end())
        separator = _SEPARATOR.match(body, at)
        if separator is None:
            return ParsedMarker(call[1], problem=PROBLEM)
        calls.append(marker)
        at = separator.end()
    return calls[0]._replace(more=tuple(calls[1:])) if calls else ParsedMarker(UNNAMED, problem=PROBLEM)


def _parse_arguments(name: str, text: str, at: int) -> tuple[ParsedMarker, int]:
    """Return the call, and where the text after its parentheses begins."""
    arguments = read_arguments(text, at, like_python=True)
    if arguments.values:
        return ParsedMarker(name, problem=PROBLEM), arguments.end
    return ParsedMarker(name, arguments.params, arguments.problem), arguments.end
