"""Wing: Brain's own protocol. What is asked (`request`), of a turn that runs (`meanwhile`), and answered (`answer`)."""

from brain.wire.native.answer import EVENT_NAMES, HEARTBEAT, Encoder, plain
from brain.wire.native.meanwhile import approval, event_number, steering
from brain.wire.native.request import (
    FILE_ID_MOST,
    ID,
    MESSAGE_LENGTH,
    Sent,
    SentLimits,
    ask_without_message,
    parse,
    parse_form,
)

__all__ = [
    "EVENT_NAMES",
    "FILE_ID_MOST",
    "HEARTBEAT",
    "ID",
    "MESSAGE_LENGTH",
    "Encoder",
    "Sent",
    "SentLimits",
    "approval",
    "ask_without_message",
    "event_number",
    "parse",
    "parse_form",
    "plain",
    "steering",
]
