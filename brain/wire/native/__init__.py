"""Wing: Brain's own protocol. What is asked (`request`), and what is answered (`answer`)."""

from brain.wire.native.answer import EVENT_NAMES, HEARTBEAT, Encoder, plain
from brain.wire.native.request import (
    FILE_ID_MOST,
    ID,
    MESSAGE_LENGTH,
    Sent,
    SentLimits,
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
