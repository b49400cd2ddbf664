"""The AG-UI protocol: runs, and the answers of users to interrupts."""

from brain.protocols.ag_ui.encoder import Encoder, encode_failed_run, encode_rejection
from brain.protocols.ag_ui.request import InterruptAnswer, RequestOptions, messages_since, parse, parse_resume

__all__ = [
    "Encoder",
    "InterruptAnswer",
    "RequestOptions",
    "encode_failed_run",
    "encode_rejection",
    "messages_since",
    "parse",
    "parse_resume",
]
