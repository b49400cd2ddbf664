"""Who has which key, and the sessions that keys open. Pure: the clock is given.

A session is a text that its bearer keeps: when it ends, which key opened it, and an HMAC of the end and the user, made
with the key itself. So the server keeps nothing, restarts and other workers know it, and a key that is taken away ends
its sessions. However many keys there are, finding one is a single look into a dictionary.
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

_TOKEN = re.compile(r"(?P<ends>[0-9]{1,12})\.(?P<key_id>[A-Za-z0-9_-]{16})\.(?P<seal>[A-Za-z0-9_-]{43})", re.ASCII)


class Session(NamedTuple):
    """What a token says; whether it is true, `KeyStore` knows."""

    ends: int
    key_id: str
    seal: str


class KeyStore:
    """The keys, as pairs of key and user.

    What is looked up is never a key but its digest under a secret of this process, or the digest of a session's key,
    which is no secret: the time that a search takes tells nothing about keys.

    Attributes:
        failures: how often which address gave a wrong one.
    """

    def __init__(self, keys: Sequence[tuple[str, str]]) -> None:
        self.failures = LoginRateLimit()
        self._secret = secrets.token_bytes(32)
        self._users = {self._digest(form): user for key, user in keys for form in _forms(key)}
        self._by_id = {_key_id(key.encode()): (key.encode(), user) for key, user in keys}

    def __bool__(self) -> bool:
        """Whether there are keys at all."""
        return bool(self._by_id)

    def user_of(self, key: bytes) -> str | None:
        """Whose key this is."""
        return self._users.get(self._digest(key))

    def user_in(self, session: Session) -> str | None:
        """Whose session this is, if one of the keys opened it."""
        found = self._by_id.get(session.key_id)
        if found is None or not hmac.compare_digest(_seal(*found, session.ends), session.seal.encode()):
            return None
        return found[1]

    def open_session(self, key: bytes, now: float) -> tuple[str, str] | None:
        """The user of a key, and the token of a session that begins now."""
        user = self.user_of(key)
        if user is None:
            return None
        ends = int(now) + SESSION_SECONDS
        return user, f"{ends}.{_key_id(key)}.{_seal(key, user, ends).decode()}"

    def _digest(self, key: bytes) -> bytes:
        return hashlib.blake2b(key, key=self._secret, digest_size=32).digest()


def read(token: str, now: float) -> Session | None:
    """What a token says; nothing when it is none, or its time is over."""
    found = _TOKEN.fullmatch(token)
    if found is None or int(found["ends"]) <= now:
        return None
    return Session(int(found["ends"]), found["key_id"], found["seal"])


def _forms(key: str) -> set[bytes]:
    """The bytes that clients send for a key: UTF-8, or Latin-1, as browsers do."""
    return {key.encode()} | ({key.encode("latin-1")} if max(key) <= "\xff" else set())


def _key_id(key: bytes) -> str:
    """By which a session names the key that opened it."""
    return _base64(hmac.digest(key, b"brain key id", "sha256")[:12])


def _seal(key: bytes, user: str, ends: int) -> bytes:
    return _base64(hmac.digest(key, f"brain session\n{ends}\n{user}".encode(), "sha256")).encode()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
