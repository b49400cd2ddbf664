"""The messages of Harmony, the format of GPT-OSS: reasoning, calls and the answer in channels.

<|channel|>analysis<|message|>reasoning<|end|>
<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>
<|start|>assistant<|channel|>final<|message|>answer<|return|>
"""

import re

from brain.markers.cursor import UNNAMED, Channel, Cursor, ParsedMarker, Reader
from brain.markers.loose_json import decode_loosely, move_past_value
from brain.text import SPECIALIST_NAME

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
OPENERS = (START, CHANNEL)
ROLE = "assistant"
BEGINNINGS = (START + ROLE, CHANNEL)
"""What an answer begins with."""
MESSAGE_END = "<|end|>"
ENDS = ("<|return|>", "<|call|>")
TOKENS = (*OPENERS, *ENDS)
TEMPLATE = "".join((*TOKENS, MESSAGE_END))
"""What the chat template of such a model contains."""
_MAX_HEADER = 256
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
_PROBLEM = "the message to a function is not one JSON object"


def read(cursor: Cursor, opener: str) -> Reader:
    """Read a header, and the call if it has a recipient. The opener is text if no header follows."""
    start = cursor.offset
    if opener == START and not (yield from cursor.read_literal(ROLE)):
        return Channel("other")
    if not (yield from cursor.move_past_text(MESSAGE, longest=_MAX_HEADER)):
        return None if (yield from cursor.wait_for_character()) else Channel("other")
    header = cursor.raw()[start : -len(MESSAGE)]
    recipient = _RECIPIENT.search(header)
    if recipient is None:
        return Channel("thinking" if "analysis" in header else "answer")
    name = recipient[1] if SPECIALIST_NAME.fullmatch(recipient[1]) else UNNAMED
    if not (yield from cursor.skip_whitespace()):
        return ParsedMarker(name, is_complete=False)
    start = cursor.offset
    if cursor.text[cursor.at] == "{" and (yield from move_past_value(cursor)):
        return ParsedMarker(name, *decode_loosely(cursor.raw()[start:]))
    is_complete = yield from cursor.move_past_text(ENDS[1], start)
    return ParsedMarker(name, problem=_PROBLEM, is_complete=is_complete)
