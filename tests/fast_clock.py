"""An event loop whose clock jumps: a wait takes no time, and any number of seconds pass on `loop.time()`."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for sockets, lets the time pass that the loop would wait."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout is not None:
            self.now += max(timeout, 0.0)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _Selector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def run_jumping(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that needs no threads and no sockets."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)


def now() -> float:
    """Seconds that have passed on the clock that jumps."""
    return asyncio.get_running_loop().time()


def advance(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Lets time pass in which the loop does nothing, as when something holds it up."""
    assert isinstance(loop, _Loop)
    loop.clock.now += seconds
