"""Completions of llama.cpp: a base model continues plain text, and a grammar completes the calls of a chat model."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from brain.markers.bracket import OPENERS
from brain.messages import Finish, Message, PassUsage
from brain.models.dialects import LLAMA_CPP, sampling_fields
from brain.models.lines import ServerSentEvents
from brain.models.reply import EndOfReply, Reply, ReplyPart, ReportedValues, decode_item, decode_progress, find_failure
from brain.turn_request import Decoding, Sampling

_DIALECT = msgspec.structs.replace(LLAMA_CPP, names={"max_tokens": "n_predict"})
_TRIGGER = {"type": 1, "value": OPENERS[0].removesuffix("[")}
"""Text after which a grammar applies (1: a word). llama.cpp may join `[` with the next characters in one token, and
that token must match the grammar. So the trigger ends before `[`."""
_LAST_FIELDS = ("content", "stop", "stop_type", "tokens_evaluated", "tokens_predicted", "timings/cache_n")
"""The fields of the last event. By default, it also repeats the prompt. An older version sends all its fields."""


class CompletionRefused(Exception):
    """The server has no completion for these messages.

    Args:
        may_lack_grammars: Whether it may be the grammar that the server rejects.
    """

    def __init__(self, *, may_lack_grammars: bool = False) -> None:
        super().__init__()
        self.may_lack_grammars = may_lack_grammars


class Prompt(msgspec.Struct):
    """The answer to `/apply-template`."""

    prompt: str


class _Event(msgspec.Struct, gc=False):
    content: str | None = None
    stop: Any = None
    stop_type: Any = None
    tokens_evaluated: Any = None
    tokens_predicted: Any = None
    timings: Any = None
    cache_n: Any = msgspec.field(name="timings/cache_n", default=None)
    prompt_progress: Any = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Event)


def join_texts(messages: Sequence[Message]) -> str:
    """Return the messages as a plain text, which the model continues."""
    return "\n\n".join(message.content for message in messages)


def build_body(model: str, prompt: str, sampling: Sampling, decoding: Decoding) -> bytes:
    """Encode the request for the completion of a prompt."""
    request = {
        **sampling_fields(replace(sampling, effort=None, format=None), _DIALECT),
        **_DIALECT.always,
        "model": model,
        "prompt": prompt,
        "stream": True,
        "cache_prompt": True,
        "response_fields": _LAST_FIELDS,
    }
    if sampling.format is not None:
        request["json_schema"] = {} if sampling.format == "json" else sampling.format  # {}: any object
    elif decoding.call_grammar and not decoding.is_plain:
        request |= {"grammar": decoding.call_grammar, "grammar_lazy": True, "grammar_triggers": [_TRIGGER]}
    if decoding.stop:
        request["stop"] = decoding.stop
    return msgspec.json.encode(request)


def build_reply() -> Reply:
    """Return the decoder of one completion. Its events count tokens, so they have no template."""
    return Reply(ServerSentEvents(), partial(decode_event, ReportedValues()))


def decode_event(checks: ReportedValues, data: bytes) -> Sequence[ReplyPart]:
    """Decode one event.

    Raises:
        ModelError: The event cannot be read.
    """
    event = decode_item(data, _decoder, checks)
    if event is None:
        return ()
    if (event.error or event.content is None) and (failure := find_failure(data, event.error, checks)):
        return failure
    parts: list[ReplyPart] = []
    if (progress := decode_progress(event.prompt_progress, checks)) is not None:
        parts.append(progress)
    if event.content:
        parts.append(event.content)
    if event.stop is True:
        parts += checks.end(event.stop_type) or (Finish("stop"),)
        prompt = checks.count("tokens_evaluated", event.tokens_evaluated)
        written = checks.count("tokens_predicted", event.tokens_predicted)
        cached = event.timings.get("cache_n") if isinstance(event.timings, dict) else event.cache_n
        reused = checks.count("cache_n", cached)
        if prompt is not None and written is not None:
            parts.append(PassUsage(prompt, written, reused))
        parts.append(EndOfReply())
    return parts
