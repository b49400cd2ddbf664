"""Ollama's protocol. What its clients ask (`request`), what they get (`answer`), and which models they find."""

from brain.protocols.ollama.encoder import Encoder, refusal
from brain.protocols.ollama.request import DEFAULT_NAME, RequestOptions, parse_chat, parse_generate, parse_show

__all__ = ["DEFAULT_NAME", "Encoder", "RequestOptions", "parse_chat", "parse_generate", "parse_show", "refusal"]
