"""Language models. Each module is one kind; this one opens what the settings name."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from brain.errors import ModelError
from brain.models import ollama, script
from brain.models.builtin import Builtin, Known
from brain.models.ollama import Ollama
from brain.models.openai import OpenAI
from brain.models.remote import Remote
from brain.models.script import Script
from brain.settings import ModelRow, Settings, redact_url

AUTO_SECONDS = 0.25

AnyModel = Builtin | Ollama | OpenAI | Script


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that was opened: why this one, what is wrong with its server, if anything, and what it was made of."""

    model: AnyModel
    reason: str
    problem: str | None = None
    row: ModelRow | None = None


@dataclass(frozen=True, slots=True)
class Models:
    """All models of a process.

    Attributes:
        offered: those that requests can name, the default first.
        embedder: what all embeddings are asked of; None to ask the model that answers.
    """

    offered: list[ModelEntry]
    embedder: ModelEntry | None


@asynccontextmanager
async def connect_models(settings: Settings, specialists: Sequence[Known]) -> AsyncIterator[Models]:
    """Opens the models on offer and the one for embeddings, and closes them at the end of the block."""
    async with AsyncExitStack() as stack:
        offered = await open_models(settings, specialists)
        for one in offered:
            stack.push_async_callback(one.model.aclose)
        embedder = next((one for one in offered if one.model.name == settings.embeddings), None)
        if embedder is None and settings.embeddings is not None:
            embedder = await _opened(settings.row(settings.embeddings), settings, specialists)
            stack.push_async_callback(embedder.model.aclose)
        for one in offered:
            one.model.embedder = embedder.model if embedder is not None and embedder is not one else None
        yield Models(offered, embedder)


async def open_models(settings: Settings, specialists: Sequence[Known]) -> list[ModelEntry]:
    """Opens the models on offer, the default first. A server that does not answer yet may do so later."""
    rows = [settings.row(name) for name in settings.model]
    return await asyncio.gather(*(_opened(row, settings, specialists) for row in rows))


async def _opened(row: ModelRow, settings: Settings, specialists: Sequence[Known]) -> ModelEntry:
    if row.kind == "auto":
        return await _auto(row, settings, specialists)
    if row.kind == "builtin":
        return ModelEntry(Builtin(specialists, row.name), row.description, row=row)
    if row.kind == "script":
        played = Script(row.name, script.read(Path(row.model)), row.resume or "prefill")
        return ModelEntry(played, row.description, row=row)
    return await _identified(row, row.description)


async def _identified(row: ModelRow, why: str) -> ModelEntry:
    model = Ollama.of(row) if row.kind == "ollama" else OpenAI.of(row)
    try:
        return ModelEntry(model, f"{why}; {await model.identify()}", model.warning, row)
    except ModelError as error:
        return ModelEntry(model, why, error.message, row)


async def _auto(row: ModelRow, settings: Settings, specialists: Sequence[Known]) -> ModelEntry:
    """Ollama, else the OpenAI API, else the stand-in."""
    url = row.url or ollama.DEFAULT_URL
    place = redact_url(url)
    try:
        name = await ollama.installed(url, AUTO_SECONDS, row.key)
        why = f"Ollama at {place} has no model that can complete"
    except ModelError as error:
        name, why = None, f"no Ollama answered at {place} within {AUTO_SECONDS * 1000:.0f} ms"
        if error.code != "model_unreachable":
            why = f"what answers at {place} is no Ollama that can be used: {error.message}"
    if name is not None:
        found = msgspec.structs.replace(row, name=f"ollama:{name}", kind="ollama", model=name)
        return await _identified(found, "; ".join((f"found on Ollama at {place}", *row.notes)))
    why = "; ".join((why, *row.notes))
    hosted = settings.hosted_row
    if hosted is not None:
        return await _identified(hosted, "; ".join((why, *hosted.notes)))
    if "OPENAI_API_KEY" in settings.standard:
        why += "; OPENAI_API_KEY is not used, as no model is named for it: set OPENAI_MODEL, or MODEL=openai:NAME"
    row = msgspec.structs.replace(row, name="builtin", kind="builtin", url=None, key=None)
    return ModelEntry(Builtin(specialists), why, row=row)


async def check_model(model: AnyModel) -> str | None:
    """What is wrong with a model's server; None when it answers, or there is none."""
    return await model.find_problem() if isinstance(model, Remote) else None
