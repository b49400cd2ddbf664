"""Ends a turn's waits at its deadline, when the model is too slow or falls silent, or when told to.

An asynchronous generator must not be cancelled while it stands at a `yield`: the cancellation would hit whoever sends
what it gave. So the alarm ends only the waits that stand in `with alarm:`; what rings in between is raised at the next.
One timer a turn, re-armed when it finds that it is not time yet; nothing is scheduled per read.
"""

import asyncio
from types import TracebackType

from brain.errors import Interrupted, Interruption


class Deadline:
    """One turn's alarm; made in the task, or a task of the loop, that waits.

    Args:
        deadline: seconds until the turn is over.
        silence: seconds that one guarded wait may take.
        first_token: seconds from `await_first_token` until `end_first_wait`, however many waits there are in between;
            `silence` does not count meanwhile.
    """

    __slots__ = (
        "_cancelling", "_deadline", "_first_token", "_first_until", "_held", "_loop", "_nudged", "_reason", "_silence",
        "_since", "_task", "_timer", "patient",
    )  # fmt: skip

    def __init__(self, deadline: float, silence: float, first_token: float | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._reason: Interruption | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._silence = silence
        self._first_token = silence if first_token is None else first_token
        self._first_until: float | None = None
        self.patient = False  # whether silence is what we expect
        self._since = self._loop.time()
        self._deadline = self._since + deadline
        self._held: float | None = None  # since when the clock stands still
        self._nudged = False
        self._timer = self._loop.call_later(min(deadline, silence, self._first_token), self._check)

    def ring(self, reason: Interruption) -> None:
        """Ends the guarded wait, now or as soon as there is one; the first reason counts."""
        if self._reason is None:
            self._reason = reason
            if self._task is not None and not self._nudged:
                self._task.cancel()

    def nudge(self) -> None:
        """Ends the guarded wait that is under way, if there is one, without an error: its block is just left."""
        if self._task is not None and self._reason is None and not self._nudged:
            self._nudged = True
            self._task.cancel()

    def await_first_token(self) -> None:
        """Gives the model its time for the first token, from now on."""
        self._first_until = self._loop.time() + self._first_token

    def end_first_wait(self) -> None:
        """From now on, a model that sends nothing is silent."""
        self._first_until = None

    def hold(self) -> None:
        """Lets the clock stand still: a person is waited for."""
        self._held = self._loop.time()

    def go_on(self) -> None:
        """Lets the clock go on."""
        assert self._held is not None
        self._deadline += self._loop.time() - self._held
        self._held = None

    def close(self) -> None:
        """Stops the timer."""
        self._timer.cancel()

    def __enter__(self) -> None:
        if self._reason is not None:
            raise Interrupted(self._reason)
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._cancelling = task.cancelling()
        self._task = task
        self._since = self._loop.time()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        task, self._task = self._task, None
        if task is None or (self._reason is None and not self._nudged):
            return False
        self._nudged = False
        ours_alone = task.uncancel() <= self._cancelling and (kind is None or kind is asyncio.CancelledError)
        if ours_alone and self._reason is not None:
            raise Interrupted(self._reason) from None
        return ours_alone

    def _check(self) -> None:
        now = self._loop.time()
        if self._task is None or self.patient:
            silent = now + self._silence
        else:
            silent = self._first_until or self._since + self._silence
        deadline = self._deadline if self._held is None else self._deadline + now - self._held
        left = min(deadline, silent) - now
        if left > 0:  # what the model is waited for may change before that, so that the limit is a shorter one
            self._timer = self._loop.call_later(min(left, self._silence, self._first_token), self._check)
        else:
            self.ring("deadline" if now >= deadline else "silent")
