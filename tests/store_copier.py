"""Copies a store in processes that are killed in their first, second, third … write, until one of them ends.

`python tests/store_copier.py FROM TO` prints the number of processes.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

from brain.store import copying, database_of
from brain.store.database import Database, Work
from brain.store.tx import Tx

ROWS = 3
"""Limit of one write, so that there are many."""


def break_in_write(databases: Sequence[Database], number: int, end: Callable[[], None]) -> None:
    """Call a function before the commit of a write; the databases count together."""
    numbers = count(1)

    def break_submit(submit: Any) -> Any:
        def work_and_end(work: Work[Any], tx: Tx) -> None:
            work(tx)
            end()

        def submit_and_end(work: Work[Any], *args: Any, **kwargs: Any) -> "asyncio.Future[Any]":
            is_last = next(numbers) == number
            writing: asyncio.Future[Any] = submit(partial(work_and_end, work) if is_last else work, *args, **kwargs)
            return writing

        return submit_and_end

    for one in databases:
        vars(one)["submit"] = break_submit(one.submit)


async def copy(source: str, target: str, number: int, end: Callable[[], None]) -> None:
    """Copy a store in small writes, and call a function in one of them."""
    databases = database_of(source), database_of(target)
    break_in_write(databases, number, end)
    rows, copying.MAX_ROWS = copying.MAX_ROWS, ROWS
    try:
        await copying.copy(*databases, copying.Progress())
    finally:
        copying.MAX_ROWS = rows


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(source: str, target: str) -> None:
    for number in count(1):
        child = os.fork()
        if not child:
            asyncio.run(copy(source, target, number, kill))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            os.write(1, str(number).encode())
            return
        assert os.WTERMSIG(status) == signal.SIGKILL


if __name__ == "__main__":
    main(*sys.argv[1:])
