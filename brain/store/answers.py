"""Recognizes the answers that Brain gave to clients which keep the conversation themselves.

Such a client sends answers back as text. The store keeps a keyed hash of each, with the marks of its turn, so that a
chat inherits what its answers contain, and a chat without private data is not asked for approvals.
"""

import hmac
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from brain.messages import Exchange, Marks, Part, Text
from brain.store import users
from brain.store.rows import SECOND
from brain.store.schema import ANSWER_KEY
from brain.store.tx import Tx

MAX_AGE = 30 * 86_400 * SECOND
"""How long an answer is recognized, in microseconds."""
MAX_PIECES = 50
"""Pieces of one answer that are recognized alone."""
DIGEST_BYTES = 16

_ADDED = (
    (re.compile(r"<details\b"), "</details>"),
    (re.compile(r"<think>"), "</think>"),
    (re.compile(r"\[SPECIALIST_RESULT: "), "[/SPECIALIST_RESULT]"),
    (re.compile(r"\[SPECIALIST_ERROR: "), "]"),
    (re.compile(r"(?:Preview of [\w-]{1,64}: |The call of [\w-]{1,64} with )"), "to decline it, send false."),
)

"""Beginnings and ends of what Brain or a client shows in an answer beside its text."""
_NO_LETTERS = {code: None for code in range(128) if not chr(code).isalnum()}


def normalize(text: str) -> str:
    """Return what clients leave of an answer: its letters and digits, without case, and without what was added."""
    for begin, end in _ADDED:
        if end in text:
            text = _remove(text, begin, end)
    plain = unicodedata.normalize("NFKC", text).casefold()
    letters = plain.translate(_NO_LETTERS) if plain.isascii() else "".join(filter(str.isalnum, plain))
    return letters or "".join(plain.split())


def _remove(text: str, begin: re.Pattern[str], end: str) -> str:
    """Return a text without its passages between these, in linear time."""
    kept, place = [], 0
    while (opener := begin.search(text, place)) and (closer := text.find(end, opener.end())) >= 0:
        kept.append(text[place : opener.start()])
        place = closer + len(end)
    return "".join([*kept, text[place:]])


def pieces(parts: Sequence[Part]) -> list[str]:
    """Return the normalized texts by which an answer is recognized: the whole, and each text between calls.

    Some clients make one message of an answer, others one per piece.
    """
    texts = list(_texts(parts))
    return list(dict.fromkeys(filter(None, map(normalize, ["".join(texts), *texts[:MAX_PIECES]]))))


def _texts(parts: Iterable[Part]) -> Iterator[str]:
    text = ""
    for part in parts:
        if isinstance(part, Text):
            text += part.text
        elif text:
            yield text
            text = ""
    yield text


def remember(tx: Tx, user: str, exchange: Exchange, texts: Sequence[str]) -> None:
    """Store by which texts an answer is recognized. Equal answers of several turns have the marks of all of them."""
    number, marks = users.add(tx, user), exchange.untrusted | exchange.private_data << 1
    if exchange.private_data:
        users.mark_private_data(tx, number)
    tx.execute("DELETE FROM answer WHERE at < ?", (tx.now - MAX_AGE,))
    tx.executemany(
        "INSERT INTO answer (account, digest, marks, at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (account, digest) DO UPDATE SET marks = answer.marks | excluded.marks, at = excluded.at",
        [(number, digest, marks, tx.now) for digest in _digests(tx, texts)],
    )


def find_marks(tx: Tx, user: str, texts: Sequence[str]) -> Marks:
    """Return the marks of answers that a client sends.

    An answer that Brain does not recognize is untrusted. It may contain private data if a turn of the user has read
    some, or the user's memory has some.

    Args:
        texts: the normalized answers.
    """
    number, found, is_unknown = users.find(tx, user), 0, False
    query = "SELECT marks FROM answer WHERE account = ? AND digest = ? AND at >= ?"
    for digest in _digests(tx, texts):
        row = tx.execute(query, (number, digest, tx.now - MAX_AGE)).fetchone()
        is_unknown = is_unknown or row is None
        found |= 0 if row is None else row[0]
    has_private_data = bool(found & 2) or (is_unknown and users.has_private_data(tx, number))
    return Marks(bool(found & 1) or is_unknown, has_private_data)


def _digests(tx: Tx, texts: Iterable[str]) -> Iterator[bytes]:
    ((key,),) = tx.execute("SELECT value FROM server_value WHERE name = ?", (ANSWER_KEY,))
    for text in texts:
        yield hmac.digest(bytes.fromhex(key), text.encode(errors="replace"), "sha256")[:DIGEST_BYTES]
