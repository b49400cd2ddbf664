"""Routes of the Ollama protocol: turns as lines of JSON, and models."""

import os
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version as version_of

from starlette.types import ASGIApp

from brain.protocols import ollama
from brain.protocols.ollama import models
from brain.protocols.ollama.models import ModelInfo
from brain.runtime.engine import Engine
from brain.runtime.run import RunOptions
from brain.server.responses import ApiResponse
from brain.server.routes import runs
from brain.server.routes.requests import Request, client_of, read_body

IMAGE_READERS = ("vision", "ocr")
"""Specialists that read images for a model that cannot."""


async def chat(request: Request) -> ASGIApp:
    """`POST /api/chat`: one turn of a conversation."""
    return await _complete(request, ollama.parse_chat)


async def generate(request: Request) -> ASGIApp:
    """`POST /api/generate`: one turn for a prompt."""
    return await _complete(request, ollama.parse_generate, generate=True)


async def _complete(request: Request, parse: Callable[..., ollama.Parsed], *, generate: bool = False) -> ASGIApp:
    parse = partial(parse, client=client_of(request), conversation_id=request.headers.get(runs.CONVERSATION_ID))
    turn_request, messages, options = await read_body(request, parse)
    if options.load is not None:
        encoder = ollama.Encoder(options.model, time.time_ns, lambda _: "", generate=generate)
        return ApiResponse(encoder.load_response(options.load))
    run = await runs.begin_run(request, turn_request, "ollama", RunOptions(replayable=False), messages)
    texts, headers = runs.inline_results(request, run), runs.conversation_header(request, run)
    encoder = ollama.Encoder(options.model, time.time_ns, texts, generate=generate, headers=headers)
    return await runs.complete(request, run, encoder, streams=options.stream)


async def tags(request: Request) -> ASGIApp:
    """`GET /api/tags`: the available models."""
    return ApiResponse(models.tags(_model_infos(request), _installed_at()))


async def ps(request: Request) -> ASGIApp:
    """`GET /api/ps`: the loaded models, which are all models."""
    return ApiResponse(models.ps(_model_infos(request)))


async def show(request: Request) -> ASGIApp:
    """`POST /api/show`: one model."""
    shown_name, name = await read_body(request, partial(ollama.parse_show, client=client_of(request)))
    return ApiResponse(models.show(_model_info(request.engine, shown_name, name), _installed_at()))


async def version(request: Request) -> ASGIApp:
    """`GET /api/version`: the versions of Ollama's API and of Brain."""
    return ApiResponse({"version": models.VERSION, "brain": version_of("brain-sse")})


def _model_infos(request: Request) -> list[ModelInfo]:
    """The default model with each strategy, and all models by name."""
    engine, client = request.engine, client_of(request)
    return [_model_info(engine, name, name if name in client.models else None) for name in client.model_names]


def _model_info(engine: Engine, shown_name: str, name: str | None) -> ModelInfo:
    model = engine.find_model(name)
    reads_images = any(specialist.name in IMAGE_READERS for specialist in engine.registry.usable())
    return ModelInfo(shown_name, model.sees_images or reads_images, model.context_tokens)


def _installed_at() -> int:
    """Installation time of Brain, in nanoseconds since 1970."""
    return os.stat(__file__).st_mtime_ns
