"""Wing: the messages of a request, one by one: what one of them holds is never more than is read in a moment."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from brain.errors import BadRequest
from brain.messages import Spoken
from brain.wire.bodies import decoded

CALLS_MOST = 4096
"""In all messages together."""
COMMAS_MOST = 1_000_000
COMMAS_A_MESSAGE = 250_000
COMMAS_BESIDES = 100_000
"""At least one stands between two values: counting them takes no time, and reading many values does."""

T = TypeVar("T")


class _Messages(msgspec.Struct):
    messages: msgspec.Raw = msgspec.Raw(b"")


def check_besides(body: bytes) -> None:
    """Whether a body holds few values besides its messages.

    Raises:
        BadRequest: `too_large`, when it does not.
    """
    number = body.count(b",")
    if number > COMMAS_BESIDES and number - commas(decoded(body, _Messages).messages) > COMMAS_BESIDES:
        message = f"The body may hold {COMMAS_BESIDES:,} values besides its messages."
        raise BadRequest(message, code="too_large", status=413)


def sent_one_by_one(sent: msgspec.Raw, kind: type[T], most: int, too_many: str) -> Iterator[tuple[T, str]]:
    """Each of the messages, and its place.

    Args:
        most: how many there may be; `too_many` is said of more.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    if commas(sent) > COMMAS_MOST:
        raise _too_large(f"messages may hold {COMMAS_MOST:,} values; leave the oldest out.", "messages")
    listed = decoded(sent, list[msgspec.Raw], "messages")
    if len(listed) > most:
        raise _too_large(too_many, "messages")
    for n, one in enumerate(listed):
        place = f"messages[{n}]"
        if commas(one) > COMMAS_A_MESSAGE:
            raise _too_large(f"{place} may hold {COMMAS_A_MESSAGE:,} values.", place)
        yield decoded(one, kind, place), place


def with_few_calls(spoken: Iterable[Spoken]) -> list[Spoken]:
    """All messages.

    Raises:
        BadRequest: `too_large`, as soon as their calls are too many.
    """
    taken: list[Spoken] = []
    calls = 0
    for one in spoken:
        calls += len(one.calls)
        check_calls(calls)
        taken.append(one)
    return taken


def check_calls(number: int) -> None:
    """Whether all messages may hold so many calls.

    Raises:
        BadRequest: `too_large`, when they may not.
    """
    if number > CALLS_MOST:
        raise _too_large(f"messages: at most {CALLS_MOST:,} calls in all of them; leave the oldest out.", "messages")


def commas(raw: msgspec.Raw) -> int:
    """About how many values stand in it."""
    return bytes(raw).count(b",")


def _too_large(message: str, field: str) -> BadRequest:
    return BadRequest(message, field, code="too_large", status=413)
