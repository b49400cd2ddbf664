"""Wing: what comes to be taken in, written down first, so that no transaction waits for who sends it."""

import asyncio
from collections.abc import AsyncIterable, Iterable
from contextlib import aclosing
from typing import IO, Any

import msgspec

from brain.errors import BadRequest
from brain.iterating import iterated
from brain.store.copies import TOGETHER
from brain.store.room import MIB

IN_MEMORY_MOST = 16 * MIB
SPOOLED_MOST = 2 * 1024 * MIB
LINE_MOST = 24 * MIB
"""Longer than any record: a file of a conversation has 16 MiB, in base64."""

_encode = msgspec.json.Encoder().encode


async def spool(records: AsyncIterable[Any] | Iterable[Any], file: IO[bytes]) -> None:
    """Writes records down, one a line.

    Raises:
        BadRequest: for a record that is no JSON, or when there are too many.
    """
    number = 0
    async with aclosing(iterated(records)) as found:
        async for record in found:
            number += 1
            if number % TOGETHER == 0:
                await asyncio.sleep(0)
            line = _line(number, record)
            if file.tell() + len(line) > SPOOLED_MOST:
                raise _too_large(number, f"no more than {SPOOLED_MOST // MIB} MiB can be taken in at once")
            file.write(line + b"\n")


def _line(number: int, record: Any) -> bytes:
    try:
        line = _encode(record)
    except (UnicodeEncodeError, RecursionError) as error:
        raise problem(number, "", "holds text that UTF-8 cannot carry, or is nested too deeply") from error
    if len(line) > LINE_MOST:
        raise _too_large(number, f"a record may have {LINE_MOST // MIB} MiB")
    return line


def _too_large(number: int, reason: str) -> BadRequest:
    return BadRequest(f"Record {number}: {reason}.", f"records[{number - 1}]", code="too_large", status=413)


def problem(number: int, where: str, reason: str) -> BadRequest:
    """What is wrong with a record, and where in it."""
    place = f"Record {number}, {where}" if where else f"Record {number}"
    return BadRequest(f"{place}: {reason}.", f"records[{number - 1}]" + (f".{where}" if where else ""))
