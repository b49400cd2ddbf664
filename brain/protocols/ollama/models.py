"""Describes the available models for `/api/tags`, `/api/show` and `/api/ps`."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from brain.protocols.ollama.encoder import timestamp
from brain.protocols.ollama.request import LATEST

VERSION = "0.33.0"
"""The version of Ollama's API. Clients decide by it which features they use."""
DEFAULT_CONTEXT = 131_072
"""Reported context of a model whose context is unknown: large enough that no client cuts its history."""

_NEVER = "2318-01-01T00:00:00.000000000Z"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model, with the name that clients use.

    Attributes:
        sees_images: whether the model or a specialist understands images.
    """

    name: str
    sees_images: bool
    context_tokens: int | None

    @property
    def context_length(self) -> int:
        """Context in tokens, as reported to clients."""
        return self.context_tokens or DEFAULT_CONTEXT

    def details(self) -> dict[str, Any]:
        """Return the `details` of the model. Clients read from `families` which models accept images."""
        return {
            "parent_model": "",
            "format": "brain",
            "family": "brain",
            "families": ["brain", "clip"] if self.sees_images else ["brain"],
            "parameter_size": "",
            "quantization_level": "",
        }

    def entry(self) -> dict[str, Any]:
        """Return the model as a list entry. The digest is unique; clients show a part of it."""
        name = self.name if ":" in self.name else self.name + LATEST
        digest = hashlib.sha256(name.encode()).hexdigest()
        return {"name": name, "model": name, "size": 0, "digest": digest, "details": self.details()}


def tags(models: Sequence[ModelInfo], since: int) -> dict[str, Any]:
    """Return the body of `GET /api/tags`.

    Args:
        since: when the models were added, in nanoseconds since 1970.
    """
    return {"models": [{**model.entry(), "modified_at": timestamp(since)} for model in models]}


def ps(models: Sequence[ModelInfo]) -> dict[str, Any]:
    """Return the body of `GET /api/ps`: all models are loaded permanently."""
    more = {"expires_at": _NEVER, "size_vram": 0}
    return {"models": [{**model.entry(), **more, "context_length": model.context_length} for model in models]}


def show(model: ModelInfo, since: int) -> dict[str, Any]:
    """Return the body of `POST /api/show`; `since` as for `tags`."""
    return {
        "license": "",
        "modelfile": f"# {model.name} is Brain: a model and its specialists.\nFROM {model.name}\n",
        "parameters": "",
        "template": "{{ .Prompt }}",
        "details": model.details(),
        "model_info": {
            "general.architecture": "brain",
            "general.basename": model.name,
            "brain.context_length": model.context_length,
        },
        "capabilities": ["completion", "tools", *(["vision"] if model.sees_images else [])],
        "modified_at": timestamp(since),
    }
