"""Calls between control tokens, the formats of Kimi K2 and DeepSeek.

<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>
<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>
<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME, and a JSON object in a code fence
"""

import re
from typing import NamedTuple

from brain.markers.cursor import UNNAMED, Cursor, ParsedMarker, Reader
from brain.markers.function_call import FENCE, move_past_fence
from brain.markers.loose_json import decode_loosely, move_past_value
from brain.text import NAME_LENGTH, SPECIALIST_NAME


class _Tokens(NamedTuple):
    """The tokens of a format, in the order in which they stand."""

    section: str
    begin: str
    separator: str
    end: str


_KIMI = ("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>")
_DEEPSEEK = ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>")
_SECTIONS = {  # in all spellings of models
    "<|tool_calls_section_begin|>": _KIMI,
    "<|tool_call_section_begin|>": _KIMI,
    "<｜tool▁calls▁begin｜>": _DEEPSEEK,
    "<｜tool_calls_begin｜>": _DEEPSEEK,
    "<｜tool calls begin｜>": _DEEPSEEK,
    r"<｜tool\_calls\_begin｜>": _DEEPSEEK,
    "<｜tool▁calls｜>": _DEEPSEEK,
}
_FORMATS = [
    _Tokens(*(token.replace("｜", bar) for token in (section, *tokens)))
    for section, tokens in _SECTIONS.items()
    for bar in "｜|"
]
_TOKENS = {opener: one for one in _FORMATS for opener in (one.section, one.begin)}
OPENERS = tuple(_TOKENS)
SECTION_ENDS = {one.section: one.section.replace("begin", "end") for one in _FORMATS if "begin" in one.section}
TEMPLATE_WORDS = (*(one.begin for one in _FORMATS), "<|im_middle|>", "<｜Assistant｜>")
"""Also of templates of these models that leave the calls out."""
_MAX_HEADER = 256
_NAME = re.compile(rf"\s*(?:functions?\.)?({SPECIALIST_NAME.pattern})(?::\d+)?\s*")
_PROBLEM = "the call is not a name and one JSON object"


def read(cursor: Cursor, opener: str) -> Reader:
    """Read a marker after its opener. The opener is text if no header follows."""
    tokens = _TOKENS[opener]
    if opener == tokens.section:
        yield from cursor.skip_whitespace()
        if not (yield from cursor.read_literal(tokens.begin)):
            return None
    start = cursor.offset
    if not (yield from cursor.move_past_text(tokens.separator, longest=_MAX_HEADER)):
        return None if (yield from cursor.wait_for_character()) else ParsedMarker(UNNAMED, is_complete=False)
    header = cursor.raw()[start : -len(tokens.separator)]
    yield from cursor.skip_whitespace()
    if header.strip() == "function" and (name := (yield from cursor.read_name(NAME_LENGTH))):
        header = name
    found = _NAME.fullmatch(header)
    name = found[1] if found is not None else UNNAMED
    if not (yield from cursor.skip_whitespace()):
        return ParsedMarker(name, is_complete=False)
    is_fenced = cursor.text[cursor.at] == FENCE[0] and (yield from move_past_fence(cursor))
    start = cursor.offset
    is_whole = cursor.text[cursor.at] == "{" and (yield from move_past_value(cursor))
    body, end = cursor.raw()[start:], cursor.offset
    if is_whole and is_fenced:
        yield from cursor.skip_whitespace()
        is_whole = yield from cursor.read_literal(FENCE)
    yield from cursor.skip_whitespace()
    if is_whole and (yield from cursor.read_literal(tokens.end)):
        return ParsedMarker(name, *decode_loosely(body))
    is_complete = yield from cursor.move_past_text(tokens.end, end)
    return ParsedMarker(name, problem=_PROBLEM, is_complete=is_complete)
