"""Message histories that clients send: limits, and helpers for the parsers of all protocols."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from brain.errors import BadRequest
from brain.messages import ClientMessage
from brain.protocols.bodies import check_limit, decode, decode_any, invalid, too_large

MESSAGE_LENGTH = 200_000
"""Characters of one message."""
MAX_MESSAGES = 4096
MAX_FILES = 100
"""Files in all messages together."""
MAX_CALLS = 4096
"""Calls in all messages together."""
MAX_VALUES = 1_000_000
"""JSON values in all messages together, counted by the commas between them, which is fast."""
MAX_VALUES_PER_MESSAGE = 250_000
MAX_OTHER_VALUES = 100_000
"""JSON values of a body outside its messages."""

STOP_LENGTH = 256
"""Characters of one stop sequence."""

LEAVE_OUT = "Leave out the oldest messages."

T = TypeVar("T")


class _Messages(msgspec.Struct):
    messages: msgspec.Raw = msgspec.Raw(b"")


def check_value_count(data: bytes) -> None:
    """Check the number of values outside the messages of a body."""
    if (count := data.count(b",")) > MAX_OTHER_VALUES:
        count -= _count_commas(decode(data, _Messages).messages)
    if count > MAX_OTHER_VALUES:
        raise too_large(f"The body has {count:,} values outside `messages`; the limit is {MAX_OTHER_VALUES:,}.")


def decode_messages(data: msgspec.Raw, kind: type[T], limit: int = MAX_MESSAGES) -> Iterator[tuple[T, str]]:
    """Decode messages one at a time; yield each with its place in the body."""
    check_limit("messages", _count_commas(data), MAX_VALUES, "values", LEAVE_OUT)
    messages = decode(data, list[msgspec.Raw], "messages")
    check_limit("messages", len(messages), limit, "entries", LEAVE_OUT)
    for n, message in enumerate(messages):
        place = f"messages[{n}]"
        check_limit(place, _count_commas(message), MAX_VALUES_PER_MESSAGE, "values")
        yield decode(message, kind, place), place


def collect_messages(messages: Iterable[ClientMessage], max_files: int = MAX_FILES) -> list[ClientMessage]:
    """Return all messages, whose calls and files are limited in total."""
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
    """Return the text, or an empty string for None, after checking its length."""
    check_limit(field, len(text or ""), limit, "characters")
    return text or ""


def check_count(values: Sequence[object] | None, limit: int, field: str) -> None:
    """Check the length of a list."""
    check_limit(field, len(values or ()), limit, "entries")


def parse_stop(stop: Sequence[str] | None, limit: int, field: str) -> tuple[str, ...]:
    """Return the stop sequences of a request, without empty ones."""
    if stop and len(stop) > limit:
        raise invalid(field, f"has {len(stop)} entries; the limit is {limit}")
    if (longest := max(map(len, stop or ()), default=0)) > STOP_LENGTH:
        raise invalid(field, f"has an entry with {longest:,} characters; the limit is {STOP_LENGTH}")
    return tuple(filter(None, stop or ()))


def parse_arguments(text: str, max_bytes: int) -> Mapping[str, Any]:
    """Return the arguments of a client's call.

    The call is history, which the client cannot correct. So invalid JSON is returned as text in `arguments`.
    """
    try:
        value = decode_any(text.encode(errors="replace"), max_bytes, "arguments") if text.strip() else {}
    except BadRequest:
        value = text
    return value if isinstance(value, dict) else {"arguments": value}
