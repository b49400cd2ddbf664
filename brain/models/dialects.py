"""The differences between servers of the OpenAI API: fields that they need or reject in a request."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from brain.events import Resume
from brain.turn_request import Sampling


class Dialect(msgspec.Struct, frozen=True):
    """The differences of one server.

    Attributes:
        always: Fields of every request.
        resume_request: Further fields of a request that continues the assistant's message.
        resume_message: Fields of that message.
        is_strict: True if it rejects a model that it does not list; SGLang and llama.cpp accept any name.
        names: Its names for fields of `Sampling`; None for a field that it rejects.
        has_template_arguments: True if it accepts arguments for the chat template, such as `enable_thinking`.
    """

    name: str
    resume: Resume
    always: Mapping[str, Any] = {}
    resume_request: Mapping[str, Any] = {}
    resume_message: Mapping[str, Any] = {}
    is_strict: bool = False
    names: Mapping[str, str | None] = {}
    has_template_arguments: bool = False


UNKNOWN = Dialect("unknown", "message")
LLAMA_CPP = Dialect(
    "llama.cpp",
    "prefill",
    always={"return_progress": True},
    resume_request={"chat_template_kwargs": {"enable_thinking": False}},
    has_template_arguments=True,
)
_VLLM_FIELDS = {"continue_final_message": True, "add_generation_prompt": False}
_BY_OWNER = {
    "llamacpp": LLAMA_CPP,
    "vllm": Dialect("vLLM", "prefill", resume_request=_VLLM_FIELDS, is_strict=True, has_template_arguments=True),
    "sglang": Dialect("SGLang", "prefill", resume_request=_VLLM_FIELDS, has_template_arguments=True),
}
_NO_LOCAL_FIELDS = {"top_k": None, "min_p": None}
_BY_ADDRESS = {
    "api.openai.com/": Dialect(
        "OpenAI", "message", is_strict=True, names={"max_tokens": "max_completion_tokens", **_NO_LOCAL_FIELDS}
    ),
    "api.mistral.ai/": Dialect(
        "Mistral",
        "prefill",
        resume_message={"prefix": True},
        is_strict=True,
        names={"seed": "random_seed", **_NO_LOCAL_FIELDS},
    ),
    "api.deepseek.com/beta/": Dialect("DeepSeek", "prefill", resume_message={"prefix": True}),
    "openrouter.ai/": Dialect("OpenRouter", "prefill"),
}
_FIELDS = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty")


def find_dialect(url: str, owner: str) -> Dialect:
    """Return the dialect for a URL and the `owned_by` of the listed models."""
    parts = urlsplit(url)
    address = f"{parts.hostname}{parts.path}/"
    hosted = next((dialect for prefix, dialect in _BY_ADDRESS.items() if address.startswith(prefix)), None)
    return hosted or _BY_OWNER.get(owner, UNKNOWN)


def sampling_fields(sampling: Sampling, dialect: Dialect) -> dict[str, Any]:
    """Return the fields of a request for sampling, reasoning effort and format."""
    fields: dict[str, Any] = {}
    for field in _FIELDS:
        name, value = dialect.names.get(field, field), getattr(sampling, field)
        if name is not None and value is not None:
            fields[name] = value
    if isinstance(sampling.effort, str):
        fields["reasoning_effort"] = sampling.effort
    elif sampling.effort is not None and dialect.has_template_arguments:
        fields["chat_template_kwargs"] = {"enable_thinking": sampling.effort}
    if sampling.format == "json":
        fields["response_format"] = {"type": "json_object"}
    elif sampling.format is not None:
        schema = {"name": "answer", "schema": sampling.format}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    return {**fields, **sampling.more} if sampling.dialect == "openai" else fields


def resume_fields(request: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return the request with the fields that make the server continue the assistant's message."""
    fields = dict(request)
    for name, value in dialect.resume_request.items():
        existing = fields.get(name)
        fields[name] = {**existing, **value} if isinstance(existing, dict) and isinstance(value, Mapping) else value
    return fields
