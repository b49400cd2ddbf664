"""API keys and sessions. Pure: the caller passes the time.

A session is a token that the client stores: its end, the ID of the key, and an HMAC of end and user under that key. So
the server stores nothing, all workers accept the session after a restart, and removing a key ends its sessions.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from brain.server.rate_limits import LoginRateLimit

SESSION_SECONDS = 30 * 24 * 3600

_TOKEN = re.compile(r"(?P<end>[0-9]{1,12})\.(?P<key_id>[A-Za-z0-9_-]{16})\.(?P<signature>[A-Za-z0-9_-]{43})", re.ASCII)


class Session(NamedTuple):
    """The fields of a token. `KeyStore.verify` checks the signature."""

    end: int
    key_id: str
    signature: str


class KeyStore:
    """The API keys and their users.

    A lookup compares digests under a secret of this process. So its duration reveals nothing about keys, and does not
    depend on their number.

    Attributes:
        is_empty: whether there are no keys, so that all clients are the local user.
    """

    def __init__(self, keys: Sequence[tuple[str, str]]) -> None:
        self.failures = LoginRateLimit()
        self.is_empty = not keys
        self._secret = secrets.token_bytes(32)
        self._users = {self._digest(form): user for key, user in keys for form in _encodings(key)}
        self._by_id = {_key_id(key.encode()): (key.encode(), user) for key, user in keys}

    def find_user(self, key: bytes) -> str | None:
        """Return the user of a key, or None."""
        return self._users.get(self._digest(key))

    def verify(self, session: Session) -> str | None:
        """Return the user of a session that one of the keys opened, or None."""
        key, user = self._by_id.get(session.key_id, (b"", None))
        if user is None or not hmac.compare_digest(_sign(key, user, session.end), session.signature):
            return None
        return user

    def open_session(self, key: bytes, now: float) -> tuple[str, str] | None:
        """Return the user of a key and the token of a new session, or None for an invalid key."""
        user = self.find_user(key)
        if user is None:
            return None
        end = int(now) + SESSION_SECONDS
        return user, f"{end}.{_key_id(key)}.{_sign(key, user, end)}"

    def _digest(self, key: bytes) -> bytes:
        return hashlib.blake2b(key, key=self._secret, digest_size=32).digest()


def parse_token(token: str, now: float) -> Session | None:
    """Return the session of a token; None if it is malformed or expired."""
    match = _TOKEN.fullmatch(token)
    if match is None or int(match["end"]) <= now:
        return None
    return Session(int(match["end"]), match["key_id"], match["signature"])


def _encodings(key: str) -> set[bytes]:
    """The bytes that clients send for a key: UTF-8, or Latin-1 from browsers."""
    return {key.encode()} | ({key.encode("latin-1")} if max(key) <= "\xff" else set())


def _key_id(key: bytes) -> str:
    return _base64(hmac.digest(key, b"brain key id", "sha256")[:12])


def _sign(key: bytes, user: str, end: int) -> str:
    return _base64(hmac.digest(key, f"brain session\n{end}\n{user}".encode(), "sha256"))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
