"""What Ollama's clients are told of the models on offer: `/api/tags`, `/api/show` and `/api/ps`."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from brain.protocols.ollama.encoder import timestamp
from brain.protocols.ollama.request import LATEST

VERSION = "0.33.0"
"""The version of Ollama whose API this is; clients look for what they need in it."""

CONTEXT_UNKNOWN = 131_072
"""Told of a model that does not tell itself: so much that no client cuts its history, which the model server may do."""

_NEVER = "2318-01-01T00:00:00.000000000Z"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model on offer, by the name that clients call it.

    Attributes:
        sees: whether pictures are understood, by the model or by a specialist.
    """

    name: str
    sees: bool
    context_tokens: int | None


def tags(models: Sequence[ModelInfo], since: int) -> dict[str, Any]:
    """The answer to `GET /api/tags`; `since` is when the models came to be here, in nanoseconds since 1970."""
    return {"models": [{**_listed(model), "modified_at": timestamp(since)} for model in models]}


def ps(models: Sequence[ModelInfo]) -> dict[str, Any]:
    """The answer to `GET /api/ps`: to Brain all models are loaded, and stay so."""
    more = {"expires_at": _NEVER, "size_vram": 0}
    return {"models": [{**_listed(model), **more, "context_length": _context(model)} for model in models]}


def show(model: ModelInfo, since: int) -> dict[str, Any]:
    """The answer to `POST /api/show`."""
    return {
        "license": "",
        "modelfile": f"# {model.name} is Brain: a model, and the specialists that it asks.\nFROM {model.name}\n",
        "parameters": "",
        "template": "{{ .Prompt }}",
        "details": _details(model),
        "model_info": {
            "general.architecture": "brain",
            "general.basename": model.name,
            "brain.context_length": _context(model),
        },
        "capabilities": ["completion", "tools", *(["vision"] if model.sees else [])],
        "modified_at": timestamp(since),
    }


def _listed(model: ModelInfo) -> dict[str, Any]:
    name = model.name if ":" in model.name else model.name + LATEST
    digest = hashlib.sha256(name.encode()).hexdigest()  # of nothing more: clients want one, and cut it short
    return {"name": name, "model": name, "size": 0, "digest": digest, "details": _details(model)}


def _details(model: ModelInfo) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "brain",
        "family": "brain",
        "families": [
            "brain",
            *(["clip"] if model.sees else []),
        ],  # by which clients know who sees where nothing else says
        "parameter_size": "",
        "quantization_level": "",
    }


def _context(model: ModelInfo) -> int:
    return model.context_tokens or CONTEXT_UNKNOWN
