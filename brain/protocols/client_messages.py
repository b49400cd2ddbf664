"""Histories that clients send: limits, and what the protocols read in the same way."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from brain.errors import BadRequest
from brain.messages import ClientMessage
from brain.protocols.bodies import check_limit, decode, decode_any, too_large

MESSAGE_LENGTH = 200_000
"""Characters of one message."""
MAX_MESSAGES = 4096
MAX_FILES = 100
"""Files in all messages together."""
MAX_CALLS = 4096
"""Calls in all messages together."""
MAX_VALUES = 1_000_000
"""JSON values in all messages together. One comma at least stands between two, and commas are counted in no time."""
MAX_VALUES_PER_MESSAGE = 250_000
MAX_OTHER_VALUES = 100_000
"""JSON values of the body that are not in its messages."""

LEAVE_OUT = "leave the oldest messages out"

T = TypeVar("T")


class _Messages(msgspec.Struct):
    messages: msgspec.Raw = msgspec.Raw(b"")


def check_value_count(data: bytes) -> None:
    """Check that a body has few values besides its messages."""
    count = data.count(b",")
    if count > MAX_OTHER_VALUES and count - _count_commas(decode(data, _Messages).messages) > MAX_OTHER_VALUES:
        raise too_large(f"The body may hold {MAX_OTHER_VALUES:,} values besides its messages.")


def decode_messages(data: msgspec.Raw, kind: type[T], limit: int = MAX_MESSAGES) -> Iterator[tuple[T, str]]:
    """Decode messages one by one; yield each with its place in the body."""
    check_limit("messages", _count_commas(data), MAX_VALUES, "values", LEAVE_OUT)
    messages = decode(data, list[msgspec.Raw], "messages")
    check_limit("messages", len(messages), limit, "entries", LEAVE_OUT)
    for n, message in enumerate(messages):
        place = f"messages[{n}]"
        check_limit(place, _count_commas(message), MAX_VALUES_PER_MESSAGE, "values")
        yield decode(message, kind, place), place


def collect_messages(messages: Iterable[ClientMessage], max_files: int = MAX_FILES) -> list[ClientMessage]:
    """Return all messages; stop as soon as they have too many calls or files."""
    collected: list[ClientMessage] = []
    calls = files = 0
    for message in messages:
        calls += len(message.calls)
        files += len(message.attachments)
        check_limit("messages", calls, MAX_CALLS, "calls", LEAVE_OUT)
        check_limit("messages", files, max_files, "files", LEAVE_OUT)
        collected.append(message)
    return collected


def _count_commas(data: msgspec.Raw) -> int:
    return bytes(data).count(b",")


def newest_question(messages: Sequence[ClientMessage]) -> str:
    """Return the text of the newest message of the user, or an empty string."""
    return next((message.text for message in reversed(messages) if message.role == "user"), "")


def check_length(text: str | None, field: str, limit: int = MESSAGE_LENGTH) -> str:
    """Return the text, an empty one for None, after checking its length."""
    check_limit(field, len(text or ""), limit, "characters")
    return text or ""


def check_count(values: Sequence[object] | None, limit: int, field: str) -> None:
    """Check the length of a list."""
    check_limit(field, len(values or ()), limit, "entries")


def parse_arguments(text: str, max_bytes: int) -> Mapping[str, Any]:
    """Return the arguments of a client's call. What is no JSON object stays readable: its client cannot correct it."""
    try:
        value = decode_any(text.encode(errors="replace"), max_bytes, "arguments") if text.strip() else {}
    except BadRequest:
        value = text
    return value if isinstance(value, dict) else {"arguments": value}
