"""A clock for tests: time passes only while everything waits, and then at once."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        selector: Any = getattr(self, "_selector")  # noqa: B009 - the one place where an event loop waits
        select = selector.select

        def pass_time(timeout: float | None) -> Any:
            if timeout:
                self._now += timeout
                timeout = 0
            return select(timeout)

        selector.select = pass_time

    def time(self) -> float:
        return self._now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine without threads or sockets. Its sleeps and timeouts take no time and end in their order."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)
