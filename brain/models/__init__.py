"""Wing: language models. Each module is one kind; this one opens what the settings name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from brain.errors import ModelError
from brain.messages import Resume
from brain.models import ollama, script
from brain.models.builtin import Builtin, Known
from brain.models.ollama import Ollama
from brain.models.openai import OpenAI
from brain.models.remote import Remote
from brain.models.script import Script
from brain.settings import Settings

AUTO_SECONDS = 0.25

AnyModel = Builtin | Ollama | OpenAI | Script


@dataclass(frozen=True, slots=True)
class Opened:
    """A model that was opened: why this one, and what is wrong with its server, if anything."""

    model: AnyModel
    why: str
    trouble: str | None = None


async def open_models(settings: Settings, specialists: Sequence[Known]) -> list[Opened]:
    """Opens the models on offer, the default first. A server that does not answer yet may do so later."""
    return [await _opened(name, settings, specialists) for name in settings.model]


async def _opened(name: str, settings: Settings, specialists: Sequence[Known]) -> Opened:
    kind, _, rest = name.partition(":")
    resume = cast(Resume | None, settings.model_resume)
    if kind == "builtin":
        return Opened(Builtin(specialists), "it was asked for")
    if kind == "script":
        return Opened(Script(name, script.read(Path(rest)), resume or "prefill"), "it was asked for")
    if kind == "auto":
        return await _auto(settings, specialists)
    sees, vectors = settings.model_sees_images, settings.model_embeddings
    server = Ollama if kind == "ollama" else OpenAI
    model = server(rest, settings.model_url, settings.model_key, resume, sees, vectors)
    return await _identified(model, "it was asked for")


async def _identified(model: Ollama | OpenAI, why: str) -> Opened:
    try:
        return Opened(model, f"{why}; {await model.identify()}", model.warning)
    except ModelError as error:
        return Opened(model, why, error.message)


async def _auto(settings: Settings, specialists: Sequence[Known]) -> Opened:
    url, key = settings.model_url or ollama.DEFAULT_URL, settings.model_key
    try:
        name = await ollama.installed(url, AUTO_SECONDS, {"Authorization": f"Bearer {key}"} if key else None)
    except ModelError as error:
        why = f"no Ollama answered at {url} within {AUTO_SECONDS * 1000:.0f} ms"
        if error.code != "model_unreachable":
            why = f"what answers at {url} is no Ollama that can be used: {error.message}"
        return Opened(Builtin(specialists), why)
    if name is None:
        return Opened(Builtin(specialists), f"Ollama at {url} has no model that can complete")
    resume = cast(Resume | None, settings.model_resume)
    model = Ollama(name, url, key, resume, settings.model_sees_images, settings.model_embeddings)
    return await _identified(model, f"found on Ollama at {url}")


async def trouble_of(model: AnyModel) -> str | None:
    """What is wrong with a model's server; None when it answers, or there is none."""
    return await model.trouble() if isinstance(model, Remote) else None
