"""The protocol of the Vercel AI SDK: chats, and the decisions of users on calls."""

from brain.protocols.ai_sdk.encoder import Encoder, encode_rejection
from brain.protocols.ai_sdk.request import Decision, RequestOptions, SdkVersion, parse

__all__ = [
    "Decision",
    "Encoder",
    "RequestOptions",
    "SdkVersion",
    "encode_rejection",
    "parse",
]
