"""Brain's own protocol. What is asked (`request`), of a turn that runs (`meanwhile`), and answered (`answer`)."""

from brain.protocols.native.encoder import EVENT_NAMES, HEARTBEAT, FrameEncoder, decode_frames, plain
from brain.protocols.native.request import (
    FILE_ID_MOST,
    ID,
    MESSAGE_LENGTH,
    LimitsBody,
    Sent,
    approval,
    ask_without_message,
    event_number,
    parse,
    parse_form,
    steering,
)

__all__ = [
    "EVENT_NAMES",
    "FILE_ID_MOST",
    "HEARTBEAT",
    "ID",
    "MESSAGE_LENGTH",
    "FrameEncoder",
    "LimitsBody",
    "Sent",
    "approval",
    "ask_without_message",
    "decode_frames",
    "event_number",
    "parse",
    "parse_form",
    "plain",
    "steering",
]
