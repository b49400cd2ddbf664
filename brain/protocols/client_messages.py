"""Histories that clients send: limits, and what the protocols read in the same way."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from brain.errors import BadRequest
from brain.messages import ClientMessage
from brain.protocols.bodies import decode, decode_any, too_large

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

T = TypeVar("T")


class _Messages(msgspec.Struct):
    messages: msgspec.Raw = msgspec.Raw(b"")


def check_value_count(data: bytes) -> None:
    """Check that a body has few values besides its messages.

    Raises:
        BadRequest: `too_large`.
    """
    count = data.count(b",")
    if count > MAX_OTHER_VALUES and count - _count_commas(decode(data, _Messages).messages) > MAX_OTHER_VALUES:
        raise too_large(f"The body may hold {MAX_OTHER_VALUES:,} values besides its messages.")


def decode_messages(data: msgspec.Raw, kind: type[T], limit: int = MAX_MESSAGES) -> Iterator[tuple[T, str]]:
    """Decode messages one by one; yield each with its place in the body."""
    if _count_commas(data) > MAX_VALUES:
        raise too_large(f"messages may hold {MAX_VALUES:,} values; leave the oldest out.", "messages")
    messages = decode(data, list[msgspec.Raw], "messages")
    if len(messages) > limit:
        raise too_large(f"messages: at most {limit:,}; leave the oldest out.", "messages")
    for n, message in enumerate(messages):
        place = f"messages[{n}]"
        if _count_commas(message) > MAX_VALUES_PER_MESSAGE:
            raise too_large(f"{place} may hold {MAX_VALUES_PER_MESSAGE:,} values.", place)
        yield decode(message, kind, place), place


def collect_messages(messages: Iterable[ClientMessage], max_files: int = MAX_FILES) -> list[ClientMessage]:
    """Return all messages.

    Raises:
        BadRequest: `too_large`, as soon as they have too many calls or files.
    """
    collected: list[ClientMessage] = []
    calls = files = 0
    for message in messages:
        calls += len(message.calls)
        files += len(message.attachments)
        check_call_count(calls)
        if files > max_files:
            raise too_large(f"messages: at most {max_files} files in all of them; leave the oldest out.", "messages")
        collected.append(message)
    return collected


def check_call_count(count: int) -> None:
    """Check the number of calls in all messages.

    Raises:
        BadRequest: `too_large`.
    """
    if count > MAX_CALLS:
        raise too_large(f"messages: at most {MAX_CALLS:,} calls in all of them; leave the oldest out.", "messages")


def _count_commas(data: msgspec.Raw) -> int:
    return bytes(data).count(b",")


def newest_question(messages: Sequence[ClientMessage]) -> str:
    """Return the text of the newest message of the user, or an empty string."""
    return next((message.text for message in reversed(messages) if message.role == "user"), "")


def check_length(text: str | None, field: str, limit: int = MESSAGE_LENGTH) -> str:
    """Return the text; an empty one for None.

    Raises:
        BadRequest: `too_large`, when it has more than `limit` characters.
    """
    if text is not None and len(text) > limit:
        raise too_large(f"{field} may be {limit:,} characters long.", field)
    return text or ""


def check_count(values: Sequence[object] | None, limit: int, field: str) -> None:
    """Check the length of a list.

    Raises:
        BadRequest: `too_large`.
    """
    if values is not None and len(values) > limit:
        raise too_large(f"{field}: at most {limit:,}.", field)


def parse_arguments(text: str, max_bytes: int) -> Mapping[str, Any]:
    """Return the arguments of a client's call. What is no JSON object stays readable: its client cannot correct it."""
    try:
        value = decode_any(text.encode(errors="replace"), max_bytes, "arguments") if text.strip() else {}
    except BadRequest:
        value = text
    return value if isinstance(value, dict) else {"arguments": value}
