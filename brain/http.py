"""Ground: builds the HTTP client, so that another client is a change of one file."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from brain.errors import SettingsError
from brain.settings import LOOPBACK


def client(base_url: str, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    """A client for one server; silence is the turn's to judge, so reading has no time limit here.

    Connections are not kept: servers close them behind a stream, and a request that is sent into a closing one is lost.
    The machine's proxy is for the world, not for a server on this machine.

    Raises:
        SettingsError: when the address or a header cannot be sent at all.
    """
    try:
        return httpx.AsyncClient(
            base_url=base_url,
            headers={"Accept-Encoding": "identity", **(headers or {})},
            timeout=httpx.Timeout(None, connect=5.0, write=30.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=urlsplit(base_url).hostname not in LOOPBACK,
        )
    except (httpx.InvalidURL, ValueError):
        raise SettingsError(f"MODEL_URL={base_url}, or MODEL_KEY, cannot be used for requests.") from None
