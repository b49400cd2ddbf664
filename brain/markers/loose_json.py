"""JSON as models write it: with comments, trailing commas, single quotes and raw payloads. Nothing else is repaired."""

import json
import re

from brain.markers.cursor import PARTNER, Cursor, Params, Steps
from brain.strict_json import decode_object

PAYLOAD_START, PAYLOAD_END = "__PAYLOAD_START__", "__PAYLOAD_END__"
"""Around a text without escapes, which a model may write in place of a string, with or without quotes around both."""

_STRUCTURE = re.compile(r"""["'{}\[\]</#_]""")
_LINE_END = re.compile(r"[\n<]")
"""A comment ends before `<` as well, so that it never hides a closing tag."""

_COMMENT = r"(?:(?://|\#)[^\n<]*+|/\*.*?\*/)"
_REPAIRS = re.compile(
    rf"""(?P<quote>["']?){PAYLOAD_START}(?>(?P<payload>.*?){PAYLOAD_END})(?P=quote)
      | "(?:[^"\\]|\\.)*+"
      | '(?P<single>(?:[^'\\]|\\.)*+)'
      | (?P<comment>{_COMMENT})
      | [{{\[](?:\s|{_COMMENT})*+,
      | (?P<comma>,(?=(?:\s|{_COMMENT})*+[}}\]]))""",
    re.VERBOSE | re.DOTALL,
)
_IN_SINGLE = re.compile(r"\\.|\"", re.DOTALL)


def move_past_value(cursor: Cursor) -> Steps:
    """Move past an array or object. Return False if its nesting is broken, or it never ends."""
    open_brackets: list[str] = []
    while (yield from cursor.move_past(_STRUCTURE)):
        character = cursor.text[cursor.at - 1]
        if character in "\"'":
            if not (yield from _move_past_string(cursor, character)):
                return False
        elif character == "_":
            is_payload = yield from cursor.read_literal(PAYLOAD_START[1:])
            if is_payload and not (yield from cursor.move_past_text(PAYLOAD_END)):
                return False
        elif character in "/#":
            if not (yield from _move_past_comment(cursor, character)):
                return False
        elif character == "<":  # a tag, before the value is closed
            cursor.at -= 1
            return False
        elif character in "{[":
            open_brackets.append(character)
        elif open_brackets.pop() != PARTNER[character]:
            return False
        elif not open_brackets:
            return True
    return False


def _move_past_string(cursor: Cursor, quote: str) -> Steps:
    if (yield from cursor.read_literal(PAYLOAD_START)) and not (yield from cursor.move_past_text(PAYLOAD_END)):
        return False
    return (yield from cursor.skip_string(quote))


def _move_past_comment(cursor: Cursor, opener: str) -> Steps:
    if opener == "/" and (yield from cursor.read_literal("*")):
        return (yield from cursor.move_past_text("*/"))
    if opener == "/" and not (yield from cursor.read_literal("/")):
        return True  # no comment; the value cannot be decoded
    if not (yield from cursor.move_past(_LINE_END)):
        return False
    cursor.at -= 1
    return True


def skip_to_value(cursor: Cursor) -> Steps:
    """Move past white space and comments to the next character. Return False if none will come."""
    while (yield from cursor.skip_whitespace()):
        character = cursor.text[cursor.at]
        if character not in "/#":
            return True
        cursor.at += 1
        if character == "/" and not ((yield from cursor.wait_for_character()) and cursor.text[cursor.at] in "/*"):
            return False
        if not (yield from _move_past_comment(cursor, character)):
            return False
    return False


def decode_loosely(body: str) -> tuple[Params | None, str]:
    """Decode one object that `move_past_value` has read; repair it only if it is not JSON, or has a payload."""
    value, problem = decode_object(body)
    if value is None or PAYLOAD_START in body:
        value, other = decode_object(_REPAIRS.sub(_repair, body))
        problem = problem or other
    return (None, problem) if value is None else (value, "")


def _repair(match: re.Match[str]) -> str:
    if match["payload"] is not None:
        return json.dumps(match["payload"])
    if match["single"] is not None:
        return '"' + _IN_SINGLE.sub(lambda one: {"\\'": "'", '"': '\\"'}.get(one[0], one[0]), match["single"]) + '"'
    if match["comment"]:
        return " "
    return "" if match["comma"] else match[0]
