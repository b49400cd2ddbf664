"""OpenAI's protocol. What its clients ask (`request`), and what they get (`answer`)."""

from brain.protocols.openai.encoder import Encoder, failed, listed, model, refusal
from brain.protocols.openai.request import Wanted, model_named, parse

__all__ = ["Encoder", "Wanted", "failed", "listed", "model", "model_named", "parse", "refusal"]
