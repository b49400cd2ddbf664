"""Ground: builds the HTTP client, so that another client is a change of one file."""

import httpx


def client(base_url: str, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
    """A client for one server; silence is the turn's to judge, so reading has no time limit here."""
    return httpx.AsyncClient(
        base_url=base_url,
        headers=headers,
        timeout=httpx.Timeout(None, connect=5.0, write=30.0),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=5.0),
    )
