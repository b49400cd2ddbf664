"""The openai client. Its stream is passed on as server-sent events, without a search for calls."""

import json
import os
from collections.abc import AsyncIterator
from typing import Any

import openai
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

client = openai.AsyncOpenAI(base_url=os.environ.get("UPSTREAM", "") + "/v1", api_key="-", max_retries=0)


async def events(message: str) -> AsyncIterator[bytes]:
    asked: Any = [{"role": "user", "content": message}]
    async for chunk in await client.chat.completions.create(model="fake", messages=asked, stream=True):
        if text := chunk.choices[0].delta.content:
            yield b"data: " + json.dumps({"text": text}).encode() + b"\n\n"


async def chat(request: Request) -> Response:
    message = (await request.json())["messages"][-1]["content"]
    return StreamingResponse(events(message), media_type="text/event-stream")


app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
