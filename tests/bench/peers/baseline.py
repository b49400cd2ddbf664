"""A common way to find markers in a stream: search the text so far with one regex at every token."""

import json
import os
import re
from collections.abc import AsyncIterator

import httpx
import ollama
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

MARKER = re.compile(r"SPECIALIST_REQUEST\[(\w+):(.*?)\]", re.DOTALL)
limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
client = ollama.AsyncClient(host=os.environ.get("UPSTREAM"), limits=limits, trust_env=False)


async def events(message: str) -> AsyncIterator[dict[str, str]]:
    said = ""
    asked = [{"role": "user", "content": message}]
    async for part in await client.chat(model="fake", messages=asked, stream=True):
        text = part.message.content or ""
        said += text
        if found := MARKER.search(said):
            yield {"event": "call", "data": json.dumps({"name": found[1], "params": found[2]})}
            said = ""
        if text:
            yield {"event": "token", "data": json.dumps({"text": text})}


async def chat(request: Request) -> Response:
    message = (await request.json())["messages"][-1]["content"]
    return EventSourceResponse(events(message))


app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
