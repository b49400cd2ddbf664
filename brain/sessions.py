"""Core: who has which key, and the sessions that keys open. Pure: the clock is given.

A session is a text that its bearer keeps: when it ends, and an HMAC of that and of the user, made with the key itself.
So the server keeps nothing, restarts and other workers know it, and a key that is taken away ends its sessions.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import NamedTuple

from brain.rates import Failures

SESSION_SECONDS = 30 * 24 * 3600

_TOKEN = re.compile(r"(?P<ends>[0-9]{1,12})\.(?P<seal>[A-Za-z0-9_-]{43})", re.ASCII)


class Session(NamedTuple):
    """What a token says; whether it is true, `Keyring` knows."""

    ends: int
    seal: str


class Keyring:
    """The keys, as pairs of key and user. Every search compares all of them, so that its time tells nothing.

    Attributes:
        failures: how often which address gave a wrong one.
    """

    def __init__(self, keys: Sequence[tuple[str, str]]) -> None:
        self.failures = Failures()
        self._keys = [(key.encode(), user) for key, user in keys]
        self._digests = [(_digest(form), user) for key, user in keys for form in _forms(key)]

    def __bool__(self) -> bool:
        """Whether there are keys at all."""
        return bool(self._keys)

    def user_of(self, key: bytes) -> str | None:
        """Whose key this is."""
        given = _digest(key)
        found = None
        for digest, user in self._digests:
            if hmac.compare_digest(digest, given):
                found = user
        return found

    def user_in(self, session: Session) -> str | None:
        """Whose session this is, if one of the keys opened it."""
        seal = session.seal.encode()
        found = None
        for key, user in self._keys:
            if hmac.compare_digest(_seal(key, user, session.ends), seal):
                found = user
        return found

    def open_session(self, key: bytes, now: float) -> tuple[str, str] | None:
        """The user of a key, and the token of a session that begins now."""
        user = self.user_of(key)
        if user is None:
            return None
        ends = int(now) + SESSION_SECONDS
        return user, f"{ends}.{_seal(key, user, ends).decode()}"


def read(token: str, now: float) -> Session | None:
    """What a token says; nothing when it is none, or its time is over."""
    found = _TOKEN.fullmatch(token)
    if found is None or int(found["ends"]) <= now:
        return None
    return Session(int(found["ends"]), found["seal"])


def _forms(key: str) -> set[bytes]:
    """The bytes that clients send for a key: UTF-8, or Latin-1, as browsers do."""
    return {key.encode()} | ({key.encode("latin-1")} if max(key) <= "\xff" else set())


def _digest(key: bytes) -> bytes:
    """Of one length for all keys, so that comparing does not tell it."""
    return hashlib.sha256(key).digest()


def _seal(key: bytes, user: str, ends: int) -> bytes:
    sealed = hmac.digest(key, f"brain session\n{ends}\n{user}".encode(), "sha256")
    return base64.urlsafe_b64encode(sealed).rstrip(b"=")
