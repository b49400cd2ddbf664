"""OpenAI's protocol: chat completions and models."""

from brain.protocols.openai.encoder import Encoder, describe_model, encode_rejection, list_models
from brain.protocols.openai.request import RequestOptions, find_model, parse

__all__ = [
    "Encoder",
    "RequestOptions",
    "describe_model",
    "encode_rejection",
    "find_model",
    "list_models",
    "parse",
]
