"""Runs background tasks: claims those that are due, runs each as a turn without a reader, and stops canceled ones."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol
from zoneinfo import ZoneInfo

import msgspec

from brain.errors import BadRequest, OutcomeUnknown, RunsElsewhere, StoreError
from brain.events import Event, SpecialistProgress, SpecialistStart
from brain.messages import Attachment, Call, Exchange, History
from brain.runtime.persistence import ENDING_SECONDS
from brain.runtime.run import Run
from brain.runtime.stored_exchange import TaskEnd
from brain.runtime.task_reports import TaskReports
from brain.settings import Settings
from brain.store import tasks, turns
from brain.store.store import Store
from brain.store.tasks import DueTask, RunEnd
from brain.store.turns import ConversationBusy
from brain.store.tx import Tx
from brain.task import Task, TaskApproval, TaskState
from brain.tasks import Tasks, schedule
from brain.turn_request import TurnRequest

PER_USER = 2
"""Running tasks of one user."""
LOOK_SECONDS = 1.0
"""Longest time between two looks at the store and the clock, and pause after an error."""
CHECK_TIME = timedelta(hours=1)
"""Interval of the search for times that a wrong clock set. It also takes place when the clock is set back."""
BUSY_SECONDS = 30.0
"""How long a run waits for another turn in its conversation."""
RETRY_SECONDS = 1.0
"""Time between two tries to begin a run in a conversation with another turn."""
ACTIVITY_SECONDS = 1.0
"""Shortest time between two stored changes of what a task does."""
MAX_ACTIVITY = 200
"""Characters of an activity."""

log = logging.getLogger("brain")


class Begin(Protocol):
    """`Engine.begin`."""

    def __call__(
        self, request: TurnRequest, protocol: str, *, history: History | None, task_end: TaskEnd | None
    ) -> Awaitable[Run]: ...


OnTaskEnd = Callable[[Task, str, float], None]
"""Called at the end of a run with the task before it, the outcome, and the seconds."""


class TaskRunner:
    """Runs the tasks of a store in this process, and begins the reports on them.

    It looks at the store when a task changes here, when something is due, and once a second for changes by others.

    Args:
        is_closing: Whether the process is about to end, so that no task may begin.
        on_end: Called at the end of each run, even if the run continues later.
    """

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        settings: Settings,
        reports: TaskReports,
        begin: Begin,
        is_closing: Callable[[], bool],
        on_end: OnTaskEnd,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._settings = settings
        self._reports = reports
        self._begin = begin
        self._is_closing = is_closing
        self._on_end = on_end
        self._running: dict[str, asyncio.Task[None]] = {}
        self._runs: dict[str, Run] = {}
        self._own: dict[str, Task] = {}  # as they were at the last look
        self._has_news = asyncio.Event()
        self._newest = 0, 0
        self._has_unknown = False  # whether it may have claimed tasks without learning of it
        self._checked: datetime | None = None
        self._loop: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start to run tasks and to report their news, also those that are left from before."""
        self._unsubscribe = self._tasks.subscribe(self._has_news.set)
        self._store.database.on_change = self._has_news.set  # most changes are no tasks, and there are many subscribers
        self._loop = asyncio.create_task(self._look_forever(), name="tasks")

    async def close(self) -> None:
        """Claim no more tasks, and wait for the running ones, whose turns the engine has stopped."""
        self._unsubscribe()
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        await self._reports.close()
        for run in self._runs.values():
            run.stop("shutdown")
        if self._running:
            _, waiting = await asyncio.wait(self._running.values(), timeout=ENDING_SECONDS)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    # Claiming

    async def _look_forever(self) -> None:
        is_away = False
        while True:
            self._has_news.clear()
            try:
                await self._check_times()
                seconds = min(await self._look(), LOOK_SECONDS)
                is_away = False
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._has_news.wait()
            except StoreError as error:
                if not is_away:
                    log.warning("background tasks cannot be read: %s", error)
                is_away = True
                await asyncio.sleep(LOOK_SECONDS)
            except Exception:  # a bug with one task must not stop the others
                log.exception("background tasks could not be started")
                await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> float:
        """Do what one look at the store asks for. Return the seconds until the next one."""
        look = await self._store.read(tasks.look, self._settings.tasks_at_once, PER_USER)
        self._own = dict(look.own)
        if (newest := (look.last_packet, look.packets)) != self._newest:
            self._newest = newest
            self._notify()
        for task_id, run in self._runs.items():
            if task_id not in look.own:
                run.stop("cancelled")
        if self._has_unknown:
            for task_id in look.own.keys() - self._running.keys():
                self._begin_run(look.own[task_id])
            self._has_unknown = False
        if look.has_stale:
            await self._store.write_unsynced(tasks.recover)
            self._has_news.set()
        if look.due and not self._is_closing():
            await self._claim(look.due)
        seconds = self._reports.begin_due(look.unreported)
        return min(seconds, math.inf if look.seconds_until_due is None else look.seconds_until_due)

    async def _claim(self, due: Sequence[Task | None]) -> None:
        now = self._store.now()
        readable = [
            DueTask(task, schedule.next_run(task, now), self._tasks.limits(task.user))
            for task in due
            if task is not None
        ]
        try:
            claimed = await self._store.write(tasks.claim, readable, self._settings.tasks_at_once, PER_USER)
        except OutcomeUnknown:
            self._has_unknown = True
            raise
        for task in claimed:
            self._begin_run(task)
            self._own[task.id] = task
        self._notify()
        if len(claimed) < len(due) or len(due) == tasks.MAX_DUE:  # there may be more
            self._has_news.set()

    def _begin_run(self, task: Task) -> None:
        run = self._run(task, self._running.get(task.id))
        running = self._running[task.id] = asyncio.create_task(run, name=f"task {task.id}")
        running.add_done_callback(partial(self._forget, task.id))

    def _notify(self) -> None:
        """Tell the subscribers about a change for which this runner needs no look."""
        has_news = self._has_news.is_set()
        self._tasks.notify()
        if not has_news:
            self._has_news.clear()

    def _forget(self, task_id: str, ended: asyncio.Task[None]) -> None:
        if self._running.get(task_id) is ended:
            del self._running[task_id]
            self._runs.pop(task_id, None)
        self._tasks.notify()

    async def _check_times(self) -> None:
        """Correct tasks that wait for a later time than their schedule has, from time to time.

        Such times come from a wrong clock, or from other rules of a time zone.
        """
        now = self._store.now()
        if self._checked is not None and self._checked <= now < self._checked + CHECK_TIME:
            return
        waiting = await self._store.search(tasks.list_waiting)
        late = await asyncio.to_thread(schedule.find_late, waiting, now) if waiting else []
        if late:
            await self._store.write(tasks.correct_times, late)
            self._tasks.notify()
        self._checked = now

    # Running

    async def _run(self, task: Task, earlier: asyncio.Task[None] | None) -> None:
        """Run a task, after its earlier run in this process has ended."""
        if earlier is not None:
            await asyncio.wait({earlier})
        began = time.monotonic()
        outcome = "failed"

        def end(exchange: Exchange) -> RunEnd:
            nonlocal outcome
            found = self._end_of(task, exchange)
            outcome = found.outcome
            return found

        stored: Task | None = None
        try:
            run = await self._start_when_free(task, end)
            await run.wait_ended()
            stored = await self._store.read(tasks.find, task.user, task.id)
            if stored is not None and (stored.state, stored.turn_id) == ("running", run.id):
                stored = await self._fail(task, "the result could not be stored", may_retry=True)
        except BadRequest as error:
            stored = await self._fail(task, error.message)
        except StoreError as error:  # another process continues when this one has ended
            log.warning("task %s cannot be stored: %s", task.id, error)
            stored = task
        except Exception:
            log.exception("task %s failed", task.id)
            stored = await self._fail(task, "something went wrong on the server; its log has the details")
        if stored is None or stored.state == "canceled":
            outcome = "canceled"
        elif outcome == "failed" and stored.attempt > task.attempt:
            outcome = "pending"  # it begins again
        self._on_end(task, outcome, time.monotonic() - began)

    async def _fail(self, task: Task, reason: str, *, may_retry: bool = False) -> Task | None:
        """End a run without an answer, if this process still owns the task. Return the task as it then is."""
        failed = self._end(task, Exchange(""), "failed", reason, may_retry=may_retry)

        def fail(tx: Tx, task: Task) -> Task | None:
            tasks.end_run(tx, failed)
            return tasks.find(tx, task.user, task.id)

        try:
            return await self._store.write(fail, task)
        except StoreError:
            return task

    def _end_of(self, task: Task, exchange: Exchange) -> RunEnd:
        """Return how a run ended."""
        error = exchange.error
        if error is not None and error.code == "shutdown":
            return self._end(task, exchange, "pending")
        if error is not None:
            return self._end(task, exchange, "failed", error.message, may_retry=error.recoverable)
        if exchange.outcome == "suspended":
            call = next(part for part in exchange.parts if isinstance(part, Call) and not part.block)
            approval = TaskApproval(call.id, call.name, call.params or {}, call.preview or "")
            return self._end(task, exchange, "waiting")._replace(approval=approval)
        if exchange.outcome == "cancelled":  # a person stopped this run; a schedule continues
            return self._end(task, exchange, "canceled")
        if not exchange.answer.strip():
            reason = f"the run ended without an answer ({exchange.outcome})"
            return self._end(task, exchange, "failed", reason, may_retry=True)
        return self._end(task, exchange, "succeeded")

    def _end(
        self, task: Task, exchange: Exchange, outcome: TaskState, reason: str = "", *, may_retry: bool = False
    ) -> RunEnd:
        newest = self._own.get(task.id, task)
        newest = newest if newest.run == task.run else task  # its schedule may have changed during the run
        return RunEnd(newest, exchange, outcome, schedule.next_run(newest, self._store.now()), reason, may_retry)

    async def _start_when_free(self, task: Task, end: TaskEnd) -> Run:
        """Begin a run; wait for the end of a turn that runs in its conversation."""
        until = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return await self._start(task, end)
            except (ConversationBusy, RunsElsewhere):
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    async def _start(self, task: Task, end: TaskEnd) -> Run:
        """Begin the turn of a run, or continue it from its stored parts."""
        profile = self._settings.profile(task.profile)
        strategy = profile.strategy or self._settings.strategy
        limits = replace(self._settings.limits(strategy), turn_seconds=profile.seconds)
        if profile.calls is not None:
            limits = replace(limits, calls=profile.calls)
        stored, attachments = await self._store.read(_read_run, task)
        question = Exchange("", message=task.prompt, author="user" if task.is_from_user else "model")
        if stored is not None:
            question = msgspec.structs.replace(stored, outcome="", ended=None, error=None, usage=None)
        history = History(
            task.work_id,
            attachments=attachments,
            user=task.user,
            question=question,
            untrusted=task.untrusted or bool(task.result) or question.untrusted,
            private_data=task.private_data or question.private_data,
            private=task.private,
        )
        request = TurnRequest(
            message=task.prompt,
            user=task.user,
            limits=limits,
            syntax=self._settings.syntax,
            time_zone=task.time_zone,
            conversation_id=task.work_id,
            model=profile.model,
            now=datetime.now(ZoneInfo(task.time_zone)),
            replaces=None if stored is None else stored.question_id,
            asks_person=True,
            source="task",
            private=task.private,
            strategy=strategy,
            task=task,
        )
        run = self._runs[task.id] = await self._begin(request, "task", history=history, task_end=end)
        run.log.subscribe(_Activity(partial(self._store_activity, task, run)).take)
        try:
            await self._store_activity(task, run, task.activity)
        except BaseException:  # the task continues later
            run.stop("shutdown")
            raise
        finally:
            run.start()
        return run

    async def _store_activity(self, task: Task, run: Run, activity: str) -> None:
        """Store what a run does now, and stop it if this process no longer owns the task."""
        is_owned = await self._store.write_unsynced(tasks.set_turn, task, run.id, activity)
        if not is_owned:
            run.stop("cancelled")
        self._notify()


def _read_run(tx: Tx, task: Task) -> tuple[Exchange | None, Sequence[Attachment]]:
    """Return what the current run of a task has stored so far, and the files of its conversation."""
    return tasks.current_exchange(tx, task), turns.all_attachments(tx, task.user, task.conversation_id)


class _Activity:
    """Stores what a run does now, at most once in `ACTIVITY_SECONDS`."""

    def __init__(self, store: Callable[[str], Awaitable[None]]) -> None:
        self._store = store
        self._stored_at = 0.0
        self._writing: asyncio.Task[None] | None = None

    def take(self, events: Sequence[Event], frames: bytes) -> None:
        """Store the newest call or its progress."""
        text = ""
        for event in events:
            if isinstance(event, SpecialistStart):
                text = event.name
            elif isinstance(event, SpecialistProgress):
                text = event.text
        now = time.monotonic()
        is_writing = self._writing is not None and not self._writing.done()
        if text and not is_writing and now >= self._stored_at + ACTIVITY_SECONDS:
            self._stored_at = now
            self._writing = asyncio.create_task(self._write(text[:MAX_ACTIVITY]), name="task activity")

    async def _write(self, text: str) -> None:
        with suppress(StoreError):
            await self._store(text)
