"""Ground: builds the HTTP client, so that another client is a change of one file."""

from collections.abc import Mapping
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx

from brain.errors import SettingsError
from brain.settings import LOOPBACK
from brain.transport import Transport


def client(base_url: str, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    """A client for one server; silence is the turn's to judge, so reading has no time limit here.

    It goes over our own short `Transport`, or over httpx's where the machine has a proxy for the world, which a server
    on this machine does not need.

    Raises:
        SettingsError: when the address or a header cannot be sent at all.
    """
    try:
        return httpx.AsyncClient(
            base_url=base_url,
            headers={"Accept-Encoding": "identity", **(headers or {})},
            timeout=httpx.Timeout(None, connect=5.0, write=30.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            transport=None if _proxied(base_url) else Transport(),
        )
    except (httpx.InvalidURL, ValueError):
        raise SettingsError(f"MODEL_URL={base_url}, or MODEL_KEY, cannot be used for requests.") from None


def _proxied(base_url: str) -> bool:
    return urlsplit(base_url).hostname not in LOOPBACK and bool(getproxies())
