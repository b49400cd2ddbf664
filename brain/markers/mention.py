"""`@name_specialist(key=value, …)`; values are JSON scalars, quoted text or bare words."""

import re

from brain.markers.arguments import read_arguments
from brain.markers.cursor import Cursor, ParsedMarker, Reader, Steps
from brain.text import NAME_LENGTH

OPENERS = ("@",)

_SUFFIX = "_specialist"
_VALUE_OR_END = re.compile(r"[=)]")


def read(cursor: Cursor, opener: str) -> Reader:
    """Read a marker after its `@`. The `@` is text unless `name_specialist(` follows."""
    word = yield from cursor.read_name(NAME_LENGTH + len(_SUFFIX))
    name = word.removesuffix(_SUFFIX)
    if not name or name == word or not (yield from cursor.read_literal("(")):
        return None
    start = cursor.offset
    if not (yield from move_past_closer(cursor)):
        return ParsedMarker(name, is_complete=False)
    arguments = read_arguments(cursor.raw(), start)
    return ParsedMarker(name, arguments.params, arguments.problem)


def move_past_closer(cursor: Cursor) -> Steps:
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
