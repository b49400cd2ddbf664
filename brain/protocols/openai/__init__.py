"""OpenAI's protocol. What its clients ask (`request`), and what they get (`answer`)."""

from brain.protocols.openai.encoder import Encoder, failed, listed, model, refusal
from brain.protocols.openai.request import RequestOptions, model_named, parse

__all__ = ["Encoder", "RequestOptions", "failed", "listed", "model", "model_named", "parse", "refusal"]
