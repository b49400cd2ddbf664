"""The tasks of all users in a database, for all processes that share it."""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from brain.errors import BadRequest
from brain.messages import Exchange
from brain.store import tasks, users
from brain.store.database import Database
from brain.store.rows import SECOND
from brain.store.tasks import Claimer, DayLimits, NextRun, ReportEnd, RunEnd, Untold
from brain.task import CancelOutcome, NewTask, Packet, Task, TaskState

T = TypeVar("T")


class TaskStore:
    """Background tasks and their channel; see `brain.store.tasks`. All methods raise `StoreError`.

    Args:
        owner: a unique name of this process.
        now: returns microseconds since 1970.
    """

    def __init__(self, database: Database, owner: str, now: Callable[[], int]) -> None:
        self._database = database
        self._owner = owner
        self._now = now

    def now(self) -> int:
        """Return the time in microseconds since 1970, as in `Untold`."""
        return self._now()

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._database.write(work)

    async def _read(self, work: Callable[[sqlite3.Connection], T], user: str) -> T:
        return await self._database.read(work, user=user)

    def defer(self) -> "DeferredTaskStore":
        """Return a store that collects changes for `ReportEnd`."""
        return DeferredTaskStore(self._database, self._owner, self._now)

    async def create(self, user: str, new: NewTask, limits: DayLimits) -> Task:
        """Add a task.

        Raises:
            Duplicate: an active task is the same.
            BadRequest: `rate_limited`.
        """
        work = partial(tasks.create, user=user, new=new, limits=limits, now=self._now())
        return await self._write(work)

    async def is_private(self, user: str, conversation_id: str) -> bool:
        """Return whether only local models may read a conversation."""
        return await self._read(lambda db: tasks.is_private(db, users.find(db, user), conversation_id), user)

    async def find(self, user: str, task_id: str) -> Task | None:
        """Return a task of a user."""
        return await self._read(lambda db: tasks.find(db, user, task_id), user)

    async def list_tasks(
        self,
        user: str,
        states: Sequence[TaskState] = (),
        *,
        before: str | None = None,
        limit: int = 50,
        conversation_id: str | None = None,
    ) -> list[Task]:
        """List the tasks of a user, newest first; see `tasks.list_tasks`."""
        work = partial(
            tasks.list_tasks, user=user, states=states, before=before, limit=limit, conversation_id=conversation_id
        )
        return await self._read(work, user)

    async def count_states(self) -> dict[str, int]:
        """Return the number of tasks of all users by state."""
        return await self._database.read(tasks.count_states)

    async def count_unreadable(self) -> int:
        """Return the number of damaged rows."""
        return await self._database.read(tasks.count_unreadable)

    async def change(self, user: str, task_id: str, edit: Callable[[Task], Task]) -> Task | None:
        """Change a task; None if it does not exist."""
        now = self._now()
        return await self._write(lambda db: tasks.change(db, user, task_id, edit, now))

    async def cancel(self, user: str, task_id: str) -> tuple[CancelOutcome, Task | None]:
        """Cancel a task."""
        now = self._now()
        return await self._write(lambda db: tasks.cancel(db, user, task_id, now))

    async def cancel_all(self, user: str, conversation_id: str | None) -> list[str]:
        """Cancel the active tasks of a conversation; see `tasks.cancel_all`."""
        now = self._now()
        return await self._write(lambda db: tasks.cancel_all(db, user, conversation_id, now))

    async def remove(self, user: str, task_id: str) -> bool:
        """Delete a task that has ended; return whether it existed."""
        return await self._write(lambda db: tasks.remove(db, user, task_id))

    async def decide(self, user: str, task_id: str, call_id: str, approve: bool) -> Task:
        """Approve or decline a call that a task waits for; see `tasks.decide`."""
        now = self._now()
        return await self._write(lambda db: tasks.decide(db, user, task_id, call_id, approve, now))

    # running

    async def claim(
        self, at_once: int, per_user: int, limits: Callable[[str], DayLimits], next_run: NextRun
    ) -> tuple[list[Task], float | None]:
        """Claim due tasks for this process; return them, and the seconds until another one becomes due."""
        claimer = Claimer(self._owner, self._now())
        due = await self._database.read(tasks.next_due)
        claimed = []
        if due is not None and due <= claimer.now:
            claimed = await self._write(lambda db: tasks.claim(db, claimer, at_once, per_user, limits, next_run))
            due = await self._database.read(lambda db: tasks.next_due(db, claimer.now))
        return claimed, None if due is None else (due - claimer.now) / SECOND

    async def own(self) -> set[str]:
        """Return the IDs of the tasks that this process runs."""
        return await self._database.read(lambda db: tasks.own(db, self._owner))

    async def renew(self, running: Collection[str]) -> bool:
        """Renew the leases of running tasks, and free those whose lease expired; return whether there are any."""
        claimer = Claimer(self._owner, self._now())
        if not await self._database.read(lambda db: tasks.needs_renewal(db, claimer.now)):
            return False
        return await self._database.write(lambda db: tasks.renew(db, claimer, running), durable=False)

    async def correct_times(self, next_run: NextRun) -> bool:
        """Correct times of schedules that a wrong clock set, see `tasks.find_late`; return whether there were any."""
        now = self._now()
        if not await self._database.read(lambda db: tasks.find_late(db, next_run, now), is_search=True):
            return False
        await self._write(lambda db: tasks.correct_times(db, next_run, now))
        return True

    async def current_exchange(self, task: Task) -> Exchange | None:
        """Return what the current run of a task has stored so far."""
        found = await self._database.read(lambda db: tasks.newest_exchange(db, task))
        return None if found is None else found[1]

    async def end_run(self, end: RunEnd) -> Task | None:
        """End a run that has no answer; see `tasks.end_run`."""
        now = self._now()
        return await self._write(lambda db: tasks.end_run(db, end, self._owner, now))

    async def set_turn(self, task_id: str, turn_id: str, activity: str) -> bool:
        """Record what a running task does; return whether this process still owns it."""
        now = self._now()
        work = partial(tasks.set_turn, task_id=task_id, owner=self._owner, turn_id=turn_id, activity=activity, now=now)
        return await self._database.write(work, durable=False)

    # the channel

    async def last_packet(self) -> int:
        """Return the key of the newest packet."""
        return await self._database.read(tasks.last_packet)

    async def newest_packet(self, user: str) -> int:
        """Return the key of the newest packet of a user; 0 if there is none."""
        return await self._database.read(lambda db: tasks.newest_packet(db, user), user=user)

    async def read_channel(self, user: str, after: int) -> list[Packet]:
        """Return the packets of a user after a cursor, oldest first, up to `tasks.MAX_READ`."""
        return await self._database.read(lambda db: tasks.read_channel(db, user, after), user=user)

    async def read_untold(self, user: str, conversation_id: str) -> list[Packet]:
        """Return the packets of a conversation that nobody has reported, oldest first."""
        return await self._database.read(lambda db: tasks.read_untold(db, user, conversation_id))

    async def list_untold(self) -> list[Untold]:
        """Return the conversations with packets to report."""
        return await self._database.read(tasks.list_untold)

    async def end_report(self, end: ReportEnd) -> None:
        """Move the cursor of a conversation without a report, because nothing is left to tell."""
        now = self._now()
        await self._write(lambda db: tasks.end_report(db, end, now))

    async def hold_reports(self, user: str, conversation_id: str, seconds: float) -> None:
        """Let reports of a conversation wait from now on."""
        until = self._now() + round(seconds * SECOND)
        work = partial(tasks.hold_reports, user=user, conversation_id=conversation_id, until=until)
        await self._database.write(work, durable=False)

    async def append_report(self, user: str, conversation_id: str, turn_id: str) -> None:
        """Append that a turn reports in a conversation."""
        now = self._now()
        await self._write(lambda db: tasks.append_report(db, user, conversation_id, turn_id, now))

    async def set_aside_damaged(self) -> None:
        """Set damaged packets aside."""
        await self._write(tasks.set_aside_damaged)


class DeferredTaskStore(TaskStore):
    """Collects changes of one user's tasks. They are checked at once, together with the changes before them.

    Reads see the changes. Nothing is stored until `ReportEnd` applies `actions`.
    """

    def __init__(self, database: Database, owner: str, now: Callable[[], int]) -> None:
        super().__init__(database, owner, now)
        self.actions: list[Callable[[sqlite3.Connection], Any]] = []

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        result = await self._preview(work)
        self.actions.append(work)
        return result

    async def _read(self, work: Callable[[sqlite3.Connection], T], user: str) -> T:
        return await self._preview(work) if self.actions else await super()._read(work, user)

    async def _preview(self, work: Callable[[sqlite3.Connection], T]) -> T:
        actions = tuple(self.actions)

        def preview(db: sqlite3.Connection) -> T:
            with _undone(db):
                for action in actions:
                    with suppress(BadRequest):  # as `tasks.end_report` does
                        action(db)
                return work(db)

        return await self._database.write(preview, durable=False)


@contextmanager
def _undone(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("SAVEPOINT preview")
    try:
        yield
    finally:
        if db.in_transaction:  # SQLite may have rolled back the whole transaction
            db.execute("ROLLBACK TO preview")
            db.execute("RELEASE preview")
