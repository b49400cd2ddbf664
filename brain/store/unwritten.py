"""Writes answers later that could not be written at the end of their turns, such as on a full disk."""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from brain.errors import StoreError
from brain.messages import Exchange, History
from brain.store import rows
from brain.store.database import Database
from brain.store.rows import MIB
from brain.store.tx import Tx

MAX_UNWRITTEN_BYTES = 64 * MIB
"""Size limit of the answers that wait to be written. Over it, the oldest are lost."""

log = logging.getLogger("brain")


class _Unwritten(NamedTuple):
    """The end of a turn that could not be written."""

    history: History
    write: Callable[[Tx], None]
    size: int
    is_over: asyncio.Event


class UnwrittenAnswers:
    """The answers of this process that wait to be written."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._unwritten: dict[int | str, _Unwritten] = {}  # by the key of the exchange, or the ID of its question

    async def write(self, history: History, write: Callable[[Tx], None], answer: Exchange | None = None) -> None:
        """End an exchange with a write that may be repeated. If it fails for now, it is done later.

        Args:
            answer: what the write holds in memory.

        Raises:
            StoreError: it failed.
        """
        key = _key(history)
        try:
            await asyncio.shield(self._database.submit(write, history.user))
        except StoreError as error:
            if error.may_pass:
                size = len(rows.encode(answer))
                self._unwritten[key] = _Unwritten(history, write, size, asyncio.Event())
                self._limit_unwritten()
            raise
        self._forget(key)

    async def write_again(self, conversation: tuple[str, str] | None = None) -> None:
        """Write what could not be written, of all conversations or of one, by its user and ID.

        Raises:
            StoreError: it still fails.
        """
        for key, one in tuple(self._unwritten.items()):
            if conversation not in (None, (one.history.user, one.history.id)):
                continue
            try:
                await asyncio.shield(self._database.submit(one.write, one.history.user))
            except StoreError as error:
                if error.may_pass:
                    raise
                log.error("conversation %s: an answer is lost: %s", one.history.id, error)  # noqa: TRY400
            else:
                log.info("conversation %s: an answer is stored after all", one.history.id)
            self._forget(key)

    async def wait_written(self, history: History) -> None:
        """Wait until the end of an exchange is written, or lost."""
        if (one := self._unwritten.get(_key(history))) is not None:
            await one.is_over.wait()

    async def close(self) -> None:
        """Write the rest for the last time."""
        try:
            await self.write_again()
        except StoreError as error:
            log.error("%d answers are lost: %s", len(self._unwritten), error)  # noqa: TRY400
        for key in tuple(self._unwritten):
            self._forget(key)

    def _limit_unwritten(self) -> None:
        while sum(one.size for one in self._unwritten.values()) > MAX_UNWRITTEN_BYTES:
            key, oldest = next(iter(self._unwritten.items()))
            log.error("conversation %s: an answer is lost, because too many wait to be stored", oldest.history.id)
            self._forget(key)

    def _forget(self, key: int | str) -> None:
        if (one := self._unwritten.pop(key, None)) is not None:
            one.is_over.set()


def _key(history: History) -> int | str:
    return history.key or (history.question.question_id if history.question is not None else "")
