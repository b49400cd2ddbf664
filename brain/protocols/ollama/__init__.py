"""Ollama's protocol: chats, completions and models."""

from brain.protocols.ollama.encoder import Encoder, encode_rejection
from brain.protocols.ollama.request import Parsed, RequestOptions, parse_chat, parse_generate, parse_show

__all__ = [
    "Encoder",
    "Parsed",
    "RequestOptions",
    "encode_rejection",
    "parse_chat",
    "parse_generate",
    "parse_show",
]
