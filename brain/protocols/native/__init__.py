"""Brain's own protocol: turns (`request`, `encoder`) and stored data (`queries`, `resources`)."""

from brain.protocols.client_messages import MESSAGE_LENGTH
from brain.protocols.native.encoder import (
    EVENT_NAMES,
    HEARTBEAT,
    FrameEncoder,
    decode_frames,
    event_data,
    text_of_tokens,
)
from brain.protocols.native.request import (
    MAX_FILE_ID,
    parse,
    parse_approval,
    parse_event_id,
    parse_form,
    parse_steering,
)
from brain.protocols.turn_options import ID

__all__ = [
    "EVENT_NAMES",
    "HEARTBEAT",
    "ID",
    "MAX_FILE_ID",
    "MESSAGE_LENGTH",
    "FrameEncoder",
    "decode_frames",
    "event_data",
    "parse",
    "parse_approval",
    "parse_event_id",
    "parse_form",
    "parse_steering",
    "text_of_tokens",
]
