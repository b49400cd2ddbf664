"""How servers of one API differ in what they want to be asked, and what they would refuse."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from brain.events import Resume
from brain.turn_request import Sampling


class Dialect(msgspec.Struct, frozen=True):
    """How a server wants to be asked.

    Attributes:
        always: what every request says besides.
        request: what a request says besides that goes on with the assistant's own message; `message`, that message.
        strict: whether it refuses a model that it does not list; SGLang and llama.cpp take any name.
        words: its own names for fields of `Sampling`; None for one that it would refuse.
        templates: whether it takes arguments for the model's template, such as whether to think.
    """

    name: str
    resume: Resume
    always: Mapping[str, Any] = {}
    request: Mapping[str, Any] = {}
    message: Mapping[str, Any] = {}
    strict: bool = False
    words: Mapping[str, str | None] = {}
    templates: bool = False


UNKNOWN = Dialect("unknown", "message")
LLAMA_CPP = Dialect(
    "llama.cpp",
    "prefill",
    always={"return_progress": True},
    request={"chat_template_kwargs": {"enable_thinking": False}},
    templates=True,
)
_VLLM_FIELDS = {"continue_final_message": True, "add_generation_prompt": False}
_BY_OWNER = {
    "llamacpp": LLAMA_CPP,
    "vllm": Dialect("vLLM", "prefill", request=_VLLM_FIELDS, strict=True, templates=True),
    "sglang": Dialect("SGLang", "prefill", request=_VLLM_FIELDS, templates=True),
}
_NO_LOCAL_FIELDS = {"top_k": None, "min_p": None}
_BY_ADDRESS = {
    "api.openai.com/": Dialect(
        "OpenAI", "message", strict=True, words={"max_tokens": "max_completion_tokens", **_NO_LOCAL_FIELDS}
    ),
    "api.mistral.ai/": Dialect(
        "Mistral", "prefill", message={"prefix": True}, strict=True, words={"seed": "random_seed", **_NO_LOCAL_FIELDS}
    ),
    "api.deepseek.com/beta/": Dialect("DeepSeek", "prefill", message={"prefix": True}),
    "openrouter.ai/": Dialect("OpenRouter", "prefill"),
}
_FIELDS = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty")


def of(url: str, owner: str) -> Dialect:
    """That of the server at this address, whose list says that this owner has the model."""
    parts = urlsplit(url)
    address = f"{parts.hostname}{parts.path}/"
    hosted = next((dialect for start, dialect in _BY_ADDRESS.items() if address.startswith(start)), None)
    return hosted or _BY_OWNER.get(owner, UNKNOWN)


def said(sampling: Sampling, dialect: Dialect) -> dict[str, Any]:
    """The fields of a request that say how the model is to write."""
    values = {name: getattr(sampling, name) for name in _FIELDS}
    named = {dialect.words.get(name, name): value for name, value in values.items() if value is not None}
    found = {name: value for name, value in named.items() if name is not None}
    if isinstance(sampling.effort, str):
        found["reasoning_effort"] = sampling.effort
    elif sampling.effort is not None and dialect.templates:
        found["chat_template_kwargs"] = {"enable_thinking": sampling.effort}
    if sampling.format == "json":
        found["response_format"] = {"type": "json_object"}
    elif sampling.format is not None:
        schema = {"name": "answer", "schema": sampling.format}
        found["response_format"] = {"type": "json_schema", "json_schema": schema}
    return {**found, **sampling.more} if sampling.dialect == "openai" else found


def gone_on(request: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """The same request for a server that is to go on with the assistant's message."""
    found = dict(request)
    for name, value in dialect.request.items():
        there = found.get(name)
        found[name] = {**there, **value} if isinstance(there, dict) and isinstance(value, Mapping) else value
    return found
