"""Routes of the Ollama protocol: turns as lines of JSON, and models."""

import os
import time
from dataclasses import replace
from importlib.metadata import version as version_of

from starlette.requests import Request
from starlette.types import ASGIApp

from brain.messages import ClientMessage
from brain.protocols import ollama
from brain.protocols.ollama import models
from brain.protocols.ollama.models import ModelInfo
from brain.protocols.ollama.request import RequestOptions, parse_chat, parse_generate, parse_show
from brain.protocols.turn_options import check_id, list_names
from brain.runtime.engine import Engine
from brain.runtime.run import RunOptions
from brain.server.responses import ApiResponse
from brain.server.routes.openai import CONVERSATION_ID
from brain.server.routes.requests import Parse, engine_of, limit_body, parse_json
from brain.server.routes.runs import (
    any_error,
    begin_run,
    collect_events,
    inline_results,
    prepare_history,
    start_and_stream,
)
from brain.turn_request import TurnRequest

IMAGE_READERS = ("vision", "ocr")
"""Specialists that read images for a model that cannot."""


async def chat(request: Request) -> ASGIApp:
    """`POST /api/chat`: one turn of a conversation."""
    return await _answer(request, parse_chat)


async def generate(request: Request) -> ASGIApp:
    """`POST /api/generate`: one turn for a prompt."""
    return await _answer(request, parse_generate, generate=True)


async def _answer(
    request: Request, parse: Parse[tuple[TurnRequest, list[ClientMessage], RequestOptions]], *, generate: bool = False
) -> ASGIApp:
    body = await limit_body(request).body()
    turn_request, messages, options = await parse_json(request, body, parse)
    if options.load is not None:
        encoder = ollama.Encoder(options.model, clock=time.time_ns, generate=generate, inline_text=lambda _: "")
        return ApiResponse(encoder.load_response(options.load))
    conversation_id = check_id(request.headers.get(CONVERSATION_ID), CONVERSATION_ID)
    turn_request = replace(turn_request, conversation_id=conversation_id)
    turn_request, history = await prepare_history(request, turn_request, messages, len(body))
    run = await begin_run(request, turn_request, "ollama", RunOptions(replayable=False), history)
    results = inline_results(request, run)
    headers = [(CONVERSATION_ID.encode(), conversation_id.encode())] if conversation_id else []
    encoder = ollama.Encoder(options.model, clock=time.time_ns, generate=generate, inline_text=results, headers=headers)
    if options.stream:
        return start_and_stream(request, run, encoder, owns_run=True, rejects=any_error)
    answer = encoder.encode_response(await collect_events(request, run))
    return ApiResponse(answer, headers={name.decode(): value.decode() for name, value in headers})


async def tags(request: Request) -> ASGIApp:
    """`GET /api/tags`: the available models."""
    return ApiResponse(models.tags(_model_infos(engine_of(request)), _installed_at()))


async def ps(request: Request) -> ASGIApp:
    """`GET /api/ps`: the loaded models, which are all models."""
    return ApiResponse(models.ps(_model_infos(engine_of(request))))


async def show(request: Request) -> ASGIApp:
    """`POST /api/show`: one model."""
    engine = engine_of(request)
    shown_name, name = parse_show(await limit_body(request).body(), engine.model_names(), engine.settings)
    return ApiResponse(models.show(_model_info(engine, shown_name, name), _installed_at()))


async def version(request: Request) -> ASGIApp:
    """`GET /api/version`: the versions of Ollama's API and of Brain."""
    return ApiResponse({"version": models.VERSION, "brain": version_of("brain-sse")})


def _model_infos(engine: Engine) -> list[ModelInfo]:
    """The default model with each strategy, and all models by name."""
    configured = engine.model_names()
    names = list_names(engine.settings, configured)
    return [_model_info(engine, name, name if name in configured else None) for name in names]


def _model_info(engine: Engine, shown_name: str, name: str | None) -> ModelInfo:
    model = engine.find_model(name)
    reads_images = any(specialist.name in IMAGE_READERS for specialist in engine.registry.usable())
    return ModelInfo(shown_name, model.sees_images or reads_images, model.context_tokens)


def _installed_at() -> int:
    """Installation time of Brain, in nanoseconds since 1970."""
    return os.stat(__file__).st_mtime_ns
