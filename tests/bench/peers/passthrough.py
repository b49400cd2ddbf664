"""Starlette and httpx, which pass the model's bytes on unread."""

import os
from collections.abc import AsyncIterator

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

client = httpx.AsyncClient(
    base_url=os.environ.get("UPSTREAM", ""),
    timeout=None,
    limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
    trust_env=False,
)


async def chat(request: Request) -> Response:
    asked = client.build_request("POST", "/v1/chat/completions", content=await request.body())
    response = await client.send(asked, stream=True)

    async def passed_on() -> AsyncIterator[bytes]:
        try:
            async for data in response.aiter_bytes():
                yield data
        finally:
            await response.aclose()

    return StreamingResponse(passed_on(), media_type="text/event-stream")


app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
