"""Brain's own protocol: turns (`request`, `encoder`) and stored data (`queries`, `resources`)."""

from brain.protocols.native.encoder import EVENT_NAMES, FrameEncoder, decode_frames, event_data, text_of_tokens
from brain.protocols.native.request import (
    MAX_FILE_ID,
    ApprovalBody,
    parse,
    parse_event_id,
    parse_form,
    parse_steering,
)

__all__ = [
    "EVENT_NAMES",
    "MAX_FILE_ID",
    "ApprovalBody",
    "FrameEncoder",
    "decode_frames",
    "event_data",
    "parse",
    "parse_event_id",
    "parse_form",
    "parse_steering",
    "text_of_tokens",
]
