"""Calls with a tag per parameter, and Llama's `<function=…>{…}</function>`: formats of Qwen, GLM, MiniMax and DeepSeek.

    <function=NAME><parameter=KEY>VALUE</parameter></function>
    NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>
    <invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>

The first two stand in `<tool_call>`, the third one in `<minimax:tool_call>` or a similar tag. Models at times omit it.
DeepSeek writes the third one with `｜DSML｜` in each tag. A value is raw text up to its closing tag.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from brain.markers import function_call
from brain.markers.arguments import PYTHON_WORDS
from brain.markers.cursor import Cursor, Params, ParsedMarker, Reader, Steps
from brain.markers.loose_json import decode_loosely, move_past_value
from brain.strict_json import InvalidJSON, decode
from brain.text import NAME_LENGTH

_FUNCTION, _INVOKE, _DSML = "<function=", '<invoke name="', '<｜DSML｜invoke name="'
_SECTIONS = {"<minimax:tool_call>": _INVOKE, "<function_calls>": _INVOKE, "<｜DSML｜function_calls>": _DSML}
SECTION_ENDS = {opener: f"</{opener[1:]}" for opener in _SECTIONS}
OPENERS = (_FUNCTION, _INVOKE, _DSML, *_SECTIONS, function_call.TOOL_CALL)
TEMPLATE_WORDS = (_FUNCTION, _INVOKE, _DSML, "<arg_key>")

_MAX_KEY = 64
_PROBLEM = "the tags of the call are incomplete"


class _Tags(NamedTuple):
    """The tags of one parameter. The first one follows `<`."""

    key_opener: str
    key_closer: str
    value_opener: str
    value_closer: str


class _Form(NamedTuple):
    """How a call begins and ends."""

    name_closer: str
    tags: _Tags
    closer: str


_ARG_KEY = _Tags("arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_FORMS = {
    _FUNCTION: _Form(">", _Tags("parameter=", ">", "", "</parameter>"), "</function>"),
    _INVOKE: _Form('">', _Tags('parameter name="', ">", "", "</parameter>"), "</invoke>"),
    _DSML: _Form('">', _Tags('｜DSML｜parameter name="', ">", "", "</｜DSML｜parameter>"), "</｜DSML｜invoke>"),
}


def read(cursor: Cursor, opener: str) -> Reader:
    """Read a marker after its opener. `<tool_call>` and its like are text unless JSON or one of the forms follows."""
    if opener in _FORMS:
        return (yield from _read_function(cursor, _FORMS[opener]))
    if not (yield from cursor.skip_whitespace()):
        return None
    if opener in _SECTIONS:
        if not (yield from cursor.read_literal(_SECTIONS[opener])):
            return None
        return (yield from _read_function(cursor, _FORMS[_SECTIONS[opener]]))
    closer = f"</{opener[1:]}"
    if cursor.text[cursor.at] == "<":
        if not (yield from cursor.read_literal(_FUNCTION)):
            return None
        return (yield from _read_function(cursor, _FORMS[_FUNCTION], closer))
    if not cursor.text[cursor.at].isalpha():
        return (yield from function_call.read(cursor, opener))
    name = yield from cursor.read_name(NAME_LENGTH)
    if not name or not (yield from cursor.skip_whitespace()) or cursor.text[cursor.at] != "<":
        return None
    return (yield from _read_params(cursor, name, _ARG_KEY, (closer,)))


def _read_function(cursor: Cursor, form: _Form, *section_closer: str) -> Reader:
    """Read a name, the end of its tag, and parameters or one JSON object, up to the closers."""
    closers = (form.closer, *section_closer)
    name = yield from cursor.read_name(NAME_LENGTH)
    if not name:
        return None
    if not (yield from cursor.wait_for_character()):
        return ParsedMarker(name, is_complete=False)
    if not (yield from cursor.read_literal(form.name_closer)):
        return None
    if not (yield from cursor.skip_whitespace()):
        return ParsedMarker(name, is_complete=False)
    if cursor.text[cursor.at] == "<":
        return (yield from _read_params(cursor, name, form.tags, closers))
    if cursor.text[cursor.at] != "{":
        return None
    start = cursor.offset
    is_whole = yield from move_past_value(cursor)
    body, end = cursor.raw()[start:], cursor.offset
    if is_whole and (yield from _read_closers(cursor, closers)):
        return ParsedMarker(name, *decode_loosely(body))
    return (yield from _fail(cursor, name, closers, end))


def _read_params(cursor: Cursor, name: str, tags: _Tags, closers: Sequence[str]) -> Reader:
    """Read parameters from the first `<` on. The value of a parameter is a text, whatever its type."""
    places: list[tuple[int, int, int, int]] = []
    while (yield from cursor.skip_whitespace()):
        end = cursor.offset
        if not (yield from cursor.read_literal("<")) or not (yield from cursor.wait_for_character()):
            break
        if cursor.text[cursor.at] == "/":
            if (yield from _read_closers(cursor, (closers[0][1:], *closers[1:]))):
                return _parse(name, cursor.raw(), places)
            break
        if not (yield from cursor.read_literal(tags.key_opener)):
            if not places and tags is _ARG_KEY:
                return None
            break
        key = cursor.offset
        if not (yield from cursor.move_past_text(tags.key_closer)):
            break
        key_end = cursor.offset - len(tags.key_closer)
        if tags.value_opener:
            yield from cursor.skip_whitespace()
            if not (yield from cursor.read_literal(tags.value_opener)):
                break
        value = cursor.offset
        if not (yield from cursor.move_past_text(tags.value_closer)):
            break
        places.append((key, key_end, value, cursor.offset - len(tags.value_closer)))
    else:
        end = cursor.offset
    return (yield from _fail(cursor, name, closers, end))


def _read_closers(cursor: Cursor, closers: Sequence[str]) -> Steps:
    for closer in closers:
        yield from cursor.skip_whitespace()
        if not (yield from cursor.read_literal(closer)):
            return False
    return True


def _fail(cursor: Cursor, name: str, closers: Sequence[str], since: int) -> Reader:
    """Read to the last closer after the offset `since`, where the call could not be read."""
    is_complete = yield from cursor.move_past_text(closers[-1], since)
    return ParsedMarker(name, problem=_PROBLEM, is_complete=is_complete)


def _parse(name: str, raw: str, places: Sequence[tuple[int, int, int, int]]) -> ParsedMarker:
    params: Params = {}
    for key_start, key_end, start, end in places:
        key = raw[key_start:key_end].strip().partition('"')[0]  # more attributes may follow
        if not key or len(key) > _MAX_KEY or "<" in key:
            return ParsedMarker(name, problem=_PROBLEM)
        if key in params:
            return ParsedMarker(name, problem=f"{key} appears twice")
        params[key] = raw[start:end].removeprefix("\n").removesuffix("\n")
    return ParsedMarker(name, params, is_text=True)


def convert_texts(params: Mapping[str, Any], schema: Mapping[str, Any]) -> Params:
    """Return texts as the values that a JSON Schema expects; a text stays where it fits, or is no such value."""
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    return {key: text if _may_be_text(properties.get(key), schema) else _convert(text) for key, text in params.items()}


def _convert(text: str) -> Any:
    word = text.strip()
    with suppress(InvalidJSON):
        return PYTHON_WORDS[word] if word in PYTHON_WORDS else decode(word)
    return text


def _may_be_text(schema: Any, root: Mapping[str, Any]) -> bool:
    """Return whether a schema allows a text, or does not name any type. A client may have sent the schema."""
    definitions, types, schemas = root.get("$defs"), set[str](), [schema]
    targets = dict(definitions) if isinstance(definitions, Mapping) else {}
    while schemas:
        if not isinstance(one := schemas.pop(), Mapping):
            continue
        reference, kind = one.get("$ref"), one.get("type")
        if isinstance(reference, str):  # each is followed once
            schemas.append(targets.pop(reference.removeprefix("#/$defs/"), None))
            continue
        schemas += [*_list_of(one.get("anyOf")), *_list_of(one.get("oneOf"))]
        kinds = [kind] if isinstance(kind, str) else _list_of(kind)
        values = [*_list_of(one.get("enum")), *([one["const"]] if "const" in one else ())]
        types |= set(map(str, kinds)) or {"string" if isinstance(value, str) else "other" for value in values}
    return not types or "string" in types


def _list_of(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
