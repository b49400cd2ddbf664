"""Language models. This module opens the models in the settings; the others each implement one kind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from brain.errors import ModelError
from brain.models.builtin import Builtin
from brain.models.model import Model
from brain.models.script import Script, read_script
from brain.plugins.specialist import Specialist
from brain.settings import ModelRow, Settings, redact_url
from brain.store.store import Store
from brain.text import suggest

AUTO_SECONDS = 0.25
"""Time limit of `auto` for Ollama's answer."""

OpenDemo = Callable[[str], Model]


@dataclass(frozen=True, slots=True)
class Models:
    """The models of a process.

    Attributes:
        offered: Models that requests can name, the default first.
        embedder: Model for all embeddings; None to use the answering model.
        by_name: All models except the embedder, by their names in the settings: those offered, those that take over
            when one fails, and those of THINKER and ACTOR.
    """

    offered: list[Model]
    embedder: Model | None
    by_name: Mapping[str, Model]


@asynccontextmanager
async def connect_models(
    settings: Settings, specialists: Sequence[Specialist[..., Any]], store: Store | None = None
) -> AsyncIterator[Models]:
    """Open the models of all settings; close them at the end of the block.

    Args:
        store: Stores what the demo model learned of the specialists.
    """
    open_demo = partial(Builtin, specialists, store)
    async with AsyncExitStack() as stack:
        by_name: dict[str, Model] = {}

        async def open_new(names: Iterable[str]) -> None:
            new = [name for name in dict.fromkeys(names) if name not in by_name]
            opened = await asyncio.gather(*(_open(settings.row(name), settings, open_demo) for name in new))
            by_name.update(zip(new, opened, strict=True))
            for model in opened:
                stack.push_async_callback(model.aclose)

        await open_new((*settings.model, *filter(None, (settings.thinker, settings.actor))))
        fallbacks = {name: settings.fallbacks(model.row) for name, model in by_name.items() if model.row is not None}
        await open_new(chain.from_iterable(fallbacks.values()))
        for name, others in fallbacks.items():
            by_name[name].fallbacks = [by_name[other] for other in others]
        offered = [by_name[name] for name in settings.model]
        embedder = next((model for model in offered if model.name == settings.embeddings), None)
        if embedder is None and settings.embeddings is not None:
            embedder = await _open(settings.row(settings.embeddings), settings, open_demo)
            stack.push_async_callback(embedder.aclose)
        for model in by_name.values():
            model.embedder = None if model is embedder else embedder
        yield Models(offered, embedder, by_name)


async def _open(row: ModelRow, settings: Settings, open_demo: OpenDemo) -> Model:
    if row.kind == "auto":
        return await _open_auto(row, settings, open_demo)
    if row.kind not in ("builtin", "script"):
        return await _open_remote(row, row.description)
    model: Model
    if row.kind == "builtin":
        model = open_demo(row.name)
    else:
        model = Script(row.name, read_script(Path(row.model)), row.resume or "prefill")
    model.is_local, model.row, model.reason = row.is_local, row, row.description
    return model


async def _open_remote(row: ModelRow, reason: str) -> Model:
    from brain.models import failures  # these import httpx, which the demo model does not need
    from brain.models.ollama import Ollama
    from brain.models.openai import OpenAI

    model = Ollama(row) if row.kind == "ollama" else OpenAI(row)
    model.reason = reason
    url = redact_url(row.url or "")
    try:
        model.reason += f"; {await model.identify()}"
    except ModelError as error:
        detail = error.detail if error.code == "model_unreachable" else url
        model.problem = failures.add_detail(error.message, detail)
        if error.status == 404 and isinstance(model, Ollama):
            with suppress(ModelError):
                near = suggest(row.model, await model.list_names())
                model.problem = f"Ollama at {url} has no model '{row.model}'.{near}"
                model.remedy = f"ollama pull {row.model}"
    if model.offers:
        near = suggest(row.model, model.offers)
        model.problem = f"The model server at {url} has no model '{row.model}'.{near}"
        model.remedy = f"brain check --model openai:{model.offers[0]}"
    return model


async def _open_auto(row: ModelRow, settings: Settings, open_demo: OpenDemo) -> Model:
    """Open an Ollama model, else one of the OpenAI API, else the demo model."""
    from brain.models import ollama

    assert row.url is not None
    url = redact_url(row.url)
    try:
        name = await ollama.find_model(row.url, AUTO_SECONDS, row.key)
        reason = f"Ollama at {url} has no chat model"
    except ModelError as error:
        name, reason = None, f"no Ollama server at {url}"
        if error.code != "model_unreachable":
            reason = f"the server at {url} is no usable Ollama server: {error.message.removesuffix('.')}"
    if name is not None:
        ollama_row = msgspec.structs.replace(row, name=f"ollama:{name}", kind="ollama", model=name)
        return await _open_remote(ollama_row, "; ".join((f"found on Ollama at {url}", *row.notes)))
    reason = "; ".join((reason, *row.notes))
    hosted = settings.hosted_row
    if hosted is not None:
        return await _open_remote(hosted, "; ".join((reason, *hosted.notes)))
    if "OPENAI_API_KEY" in settings.standard:
        reason += "; OPENAI_API_KEY is set, but no model: set OPENAI_MODEL or BRAIN_MODEL=openai:NAME"
    row = msgspec.structs.replace(row, name="builtin", kind="builtin", url=None, key=None)
    model = open_demo(row.name)
    model.row, model.reason = row, reason
    return model
