"""Wing: Ollama's protocol. What its clients ask (`request`), what they get (`answer`), and which models they find."""

from brain.wire.ollama.answer import Encoder, refusal
from brain.wire.ollama.request import DEFAULT_NAME, Wanted, parse_chat, parse_generate, parse_show

__all__ = ["DEFAULT_NAME", "Encoder", "Wanted", "parse_chat", "parse_generate", "parse_show", "refusal"]
