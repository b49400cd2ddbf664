"""`SPECIALIST_REQUEST[name:{"key": "value"}]`; the body may be missing."""

import re

from brain.markers.cursor import Cursor, ParsedMarker, Reader, Steps, decode_object

OPENERS = ("SPECIALIST_REQUEST[",)

_STRUCTURE = re.compile(r'["{}\[\]]')
_CLOSER = re.compile(r"\]")
_PARTNER = {"}": "{", "]": "["}
_NO_COLON = "{(="
"""What stands behind the name where the colon was forgotten; behind anything else it is no request."""


def read(source: Cursor, opener: str) -> Reader:
    """Reads behind the opener; what is no name there is text."""
    yield from source.skip_white()
    name = yield from source.name(longest=64)
    if not name:
        return None
    if not (yield from source.skip_white()):
        return ParsedMarker(name, ended=False)
    behind = source.text[source.at]
    if behind in _NO_COLON:
        if not (yield from _to_closer(source)):
            return ParsedMarker(name, ended=False)
        return ParsedMarker(name, problem="write a colon between the name and the body, as in name:{}")
    if behind not in ":]":
        return None
    source.at += 1
    if behind == "]":
        return ParsedMarker(name, {})
    start = source.offset
    if not (yield from _to_closer(source)):
        return ParsedMarker(name, ended=False)
    body = source.raw()[start:-1].strip()
    return ParsedMarker(name, *(decode_object(body) if body else ({}, "")))


def _to_closer(source: Cursor) -> Steps:
    """Moves behind the `]` that belongs to the opener: not one of an array, not one in a string.

    Where the nesting makes no sense, the next `]` is taken for it.
    """
    open_brackets: list[str] = []
    while (yield from source.to(_STRUCTURE)):
        character = source.text[source.at - 1]
        if character == '"':
            if not (yield from source.skip_string()):
                return False
        elif character in "{[":
            open_brackets.append(character)
        elif character == "]" and not open_brackets:
            return True
        elif not open_brackets or open_brackets.pop() != _PARTNER[character]:
            return character == "]" or (yield from source.to(_CLOSER))
    return False
