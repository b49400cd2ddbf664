"""Roof: what Brain says of itself: its page, its specialists, its health."""

import base64
import hashlib
import re
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from brain.door import SAFE_HEADERS, Answer
from brain.models import trouble_of
from brain.routes.incoming import house_of


async def specialists(request: Request) -> Response:
    """`GET /v1/specialists`: what the user may call, and what cannot be called and why."""
    house = house_of(request)
    own = house.settings.rights(request.scope["brain.user"]).specialists
    allowed = [
        entry.described()
        for name, entry in house.registry.items()
        if house.registry.allowed(name) and (own is None or name in own)
    ]
    return Answer({"specialists": allowed})


async def page(request: Request) -> Response:
    """`GET /`: the chat page, which may load nothing and talk to nobody else."""
    html = files("brain").joinpath("page.html").read_text("utf-8")
    return HTMLResponse(html, headers={**SAFE_HEADERS, "Content-Security-Policy": _policy(html)})


def _policy(html: str) -> str:
    def digest(tag: str) -> str:
        bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(b.encode()).digest()).decode()}'" for b in bodies)

    return (
        f"default-src 'none'; script-src {digest('script')}; style-src {digest('style')}; connect-src 'self'; "
        "img-src blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


async def healthz(request: Request) -> Response:
    """`GET /healthz`: the process answers."""
    return Answer({"status": "ok"})


async def readyz(request: Request) -> Response:
    """`GET /readyz`: the default model can be reached, the store is there, and specialists are loaded."""
    house = house_of(request)
    model = house.model(None)
    trouble = house.store.trouble or await trouble_of(model)
    status = {
        "status": "unavailable" if trouble else "ok",
        "model": model.name,
        "specialists": len(house.registry.usable()),
        **({"reason": trouble} if trouble else {}),
    }
    return Answer(status, 503 if trouble else 200)
