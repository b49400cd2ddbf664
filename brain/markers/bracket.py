"""`SPECIALIST_REQUEST[name:{"key": "value"}]`; the body may be missing."""

import re

from brain.markers.cursor import PARTNER, Cursor, ParsedMarker, Reader, Steps
from brain.strict_json import decode_object
from brain.text import NAME_LENGTH

OPENERS = ("SPECIALIST_REQUEST[",)

_STRUCTURE = re.compile(r'["{}\[\]]')
_CLOSER = re.compile(r"\]")
_INSTEAD_OF_COLON = "{(="
"""Characters after a name that mean a forgotten colon. Before any other character, the opener is text."""


def read(cursor: Cursor, opener: str) -> Reader:
    """Read a marker after its opener. The opener is text if no name follows."""
    yield from cursor.skip_whitespace()
    name = yield from cursor.read_name(NAME_LENGTH)
    if not name:
        return None
    if not (yield from cursor.skip_whitespace()):
        return ParsedMarker(name, is_complete=False)
    following = cursor.text[cursor.at]
    if following in _INSTEAD_OF_COLON:
        if not (yield from _move_past_closer(cursor)):
            return ParsedMarker(name, is_complete=False)
        return ParsedMarker(name, problem="the colon between name and body is missing, as in name:{}")
    if following not in ":]":
        return None
    cursor.at += 1
    if following == "]":
        return ParsedMarker(name, {})
    start = cursor.offset
    if not (yield from _move_past_closer(cursor)):
        return ParsedMarker(name, is_complete=False)
    body = cursor.raw()[start:-1].strip()
    return ParsedMarker(name, *(decode_object(body) if body else ({}, "")))


def _move_past_closer(cursor: Cursor) -> Steps:
    """Move past the `]` that closes the opener, and not an array or a string.

    If the nesting is broken, the next `]` counts.
    """
    open_brackets: list[str] = []
    while (yield from cursor.move_past(_STRUCTURE)):
        character = cursor.text[cursor.at - 1]
        if character == '"':
            if not (yield from cursor.skip_string()):
                return False
        elif character in "{[":
            open_brackets.append(character)
        elif character == "]" and not open_brackets:
            return True
        elif not open_brackets or open_brackets.pop() != PARTNER[character]:
            return character == "]" or (yield from cursor.move_past(_CLOSER))
    return False
