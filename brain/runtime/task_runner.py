"""Runs background tasks: claims those that are due, runs each as a turn without a reader, and stops canceled ones."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol
from zoneinfo import ZoneInfo

import msgspec

from brain.errors import BadRequest, Interruption, StoreError
from brain.events import Event, SpecialistProgress, SpecialistStart
from brain.messages import Call, Exchange, History
from brain.runtime.persistence import ENDING_SECONDS, TaskEnd
from brain.runtime.run import Run
from brain.settings import Settings
from brain.store import tasks, turns
from brain.store.store import Store
from brain.store.tasks import RunEnd
from brain.store.turns import ConversationBusy
from brain.task import Task, TaskApproval
from brain.tasks import Tasks, schedule
from brain.turn_request import TurnRequest

PER_USER = 2
"""Running tasks of one user."""
WATCH_SECONDS = 0.05
"""Interval of the search for changes of other processes while tasks run here; else `IDLE_WATCH_SECONDS`."""
IDLE_WATCH_SECONDS = 0.25
RENEW_SECONDS = 2.0
"""Interval of renewing leases, and pause after an error."""
CHECK_TIME = timedelta(hours=1)
"""Interval of the search for times that a wrong clock set. It also takes place when the clock is set back."""
MAX_WAIT_SECONDS = 30.0
"""Longest time between two looks at the clock, which may be set while the runner waits."""
RETRY_SECONDS = 1.0
"""Time between two tries to begin a run whose conversation has a lease."""
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
    """Runs the tasks of a store in this process.

    Args:
        is_closing: Whether the process is about to end, so that no task may begin.
        on_end: Called at the end of each run, even if the run continues later.
    """

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        settings: Settings,
        begin: Begin,
        is_closing: Callable[[], bool],
        on_end: OnTaskEnd,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._settings = settings
        self._begin = begin
        self._is_closing = is_closing
        self._on_end = on_end
        self._running: dict[str, asyncio.Task[None]] = {}
        self._runs: dict[str, Run] = {}
        self._has_news = asyncio.Event()
        self._due_in: float | None = None
        self._last_packet = 0
        self._version = -1
        self._loops: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Start to run tasks."""
        self._unsubscribe = self._tasks.subscribe(self._has_news.set)
        self._last_packet = await self._store.read(tasks.last_packet)
        loops = self._look_forever(), self._renew_forever()
        self._loops = [asyncio.create_task(one, name="tasks") for one in loops]

    async def close(self) -> None:
        """Claim no more tasks, and wait for the running ones, whose turns the engine has stopped."""
        self._unsubscribe()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        for run in self._runs.values():
            run.stop("shutdown")
        if self._running:
            _, waiting = await asyncio.wait(self._running.values(), timeout=ENDING_SECONDS)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    # Claiming

    async def _look_forever(self) -> None:
        while True:
            self._has_news.clear()
            try:
                await self._look()
            except StoreError as error:
                log.warning("background tasks cannot be read: %s", error)
                await asyncio.sleep(RENEW_SECONDS)
            except Exception:  # a bug with one task must not stop the others
                log.exception("background tasks could not be started")
                await asyncio.sleep(RENEW_SECONDS)
            await self._wait_for_news()

    async def _wait_for_news(self) -> None:
        """Wait for a change by this process, a commit of another one, or the next due task."""
        until = time.monotonic() + (MAX_WAIT_SECONDS if self._due_in is None else min(MAX_WAIT_SECONDS, self._due_in))
        turn_log = self._store.turn_log
        while not self._has_news.is_set() and (left := until - time.monotonic()) > 0:
            interval = WATCH_SECONDS if self._running else IDLE_WATCH_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(left if turn_log is None else min(left, interval)):
                    await self._has_news.wait()
            if turn_log is not None and (version := turn_log.version()) != self._version:
                self._version = version
                return

    async def _look(self) -> None:
        """Tell subscribers about changes by other processes, stop canceled runs, and claim due tasks."""
        last = await self._store.read(tasks.last_packet)
        if last != self._last_packet:
            self._last_packet = last
            self._tasks.notify()
            self._has_news.clear()
        if self._running:
            own = await self._store.read(tasks.own)
            for task_id in self._running.keys() - own:
                if task_id in self._runs:
                    self._runs[task_id].stop("cancelled")
        if self._is_closing():
            return
        claimed: list[Task] = []
        self._due_in = await self._store.read(tasks.seconds_until_due)
        if self._due_in is not None and self._due_in <= 0:
            claimed = await self._store.write(
                tasks.claim, self._settings.tasks_at_once, PER_USER, self._tasks.limits, schedule.next_run
            )
            self._due_in = await self._store.read(tasks.seconds_until_due, later=True)
        for task in claimed:
            run = self._run(task, self._running.get(task.id))
            running = self._running[task.id] = asyncio.create_task(run, name=f"task {task.id}")
            running.add_done_callback(partial(self._forget, task.id))
        if claimed:
            self._tasks.notify()

    def _forget(self, task_id: str, ended: asyncio.Task[None]) -> None:
        if self._running.get(task_id) is ended:
            del self._running[task_id]
            self._runs.pop(task_id, None)
        self._tasks.notify()

    async def _renew_forever(self) -> None:
        checked: datetime | None = None
        while True:
            try:
                is_needed = await self._store.read(tasks.needs_renewal)
                if is_needed and await self._store.write_unsynced(tasks.renew, tuple(self._running)):
                    self._has_news.set()
                now = self._store.now()
                if checked is None or not checked <= now < checked + CHECK_TIME:  # or the clock was set back
                    if await self._store.search(tasks.find_late, schedule.next_run):
                        await self._store.write(tasks.correct_times, schedule.next_run)
                        self._has_news.set()
                    checked = now
            except StoreError as error:
                log.warning("the leases of background tasks cannot be renewed: %s", error)
            except Exception:  # a bug with one task must not stop the others
                log.exception("the times of background tasks could not be checked")
            await asyncio.sleep(RENEW_SECONDS)

    # Running

    async def _run(self, task: Task, earlier: asyncio.Task[None] | None) -> None:
        """Run a task, after its earlier run in this process has ended."""
        if earlier is not None:
            await asyncio.wait({earlier})
        began = time.monotonic()
        outcome = "failed"

        def end(exchange: Exchange) -> RunEnd:
            nonlocal outcome
            found = _end_of(task, exchange)
            outcome = found.outcome
            return found

        try:
            run = self._runs[task.id] = await self._start_when_free(task, end)
            self._has_news.set()  # the task may have been canceled in the meantime
            await run.wait_ended()
            stored = await self._store.read(tasks.find, task.user, task.id)
            if stored is not None and (stored.state, stored.turn_id) == ("running", run.id):
                await self._fail(task, "the result could not be stored", may_retry=True)
        except BadRequest as error:
            await self._fail(task, error.message)
        except StoreError as error:  # another process, or this one later, continues after the lease has expired
            log.warning("task %s cannot be stored: %s", task.id, error)
        except Exception:
            log.exception("task %s failed", task.id)
            await self._fail(task, "something went wrong on the server; its log has the details")
        with suppress(StoreError):
            stored = await self._store.read(tasks.find, task.user, task.id)
            if stored is None or stored.state == "canceled":
                outcome = "canceled"
            elif outcome == "failed" and stored.attempt > task.attempt:
                outcome = "pending"  # it begins again
        self._on_end(task, outcome, time.monotonic() - began)

    async def _fail(self, task: Task, reason: str, *, may_retry: bool = False) -> None:
        """End a run without an answer, if this process still owns the task."""
        failed = RunEnd(task, Exchange(""), "failed", schedule.next_run, reason, may_retry)
        with suppress(StoreError):
            await self._store.write(tasks.end_run, failed)

    async def _start_when_free(self, task: Task, end: TaskEnd) -> Run:
        """Begin a run; wait for the lease of a process that ended while it ran the task."""
        until = time.monotonic() + MAX_WAIT_SECONDS
        while True:
            try:
                return await self._start(task, end)
            except ConversationBusy:
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
        stored = await self._store.read(tasks.current_exchange, task)
        question = Exchange("", message=task.prompt, author="user" if task.is_from_user else "model")
        if stored is not None:
            question = msgspec.structs.replace(stored, outcome="", ended=None, error=None, usage=None)
        history = History(
            task.work_id,
            attachments=await self._store.read(turns.all_attachments, task.user, task.conversation_id),
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
        run = await self._begin(request, "task", history=history, task_end=end)
        run.log.subscribe(_Activity(self._store, task, run).take)
        reason: Interruption | None = "shutdown"  # if the store fails, the task continues later
        try:
            is_owned = await self._store.write_unsynced(tasks.set_turn, task.id, run.id, task.activity)
            reason = None if is_owned else "cancelled"
        finally:
            if reason is not None:
                run.stop(reason)
            run.start()
        return run


def _end_of(task: Task, exchange: Exchange) -> RunEnd:
    """Return how a run ended."""
    error = exchange.error
    if error is not None and error.code == "shutdown":
        return RunEnd(task, exchange, "pending", schedule.next_run)
    if error is not None:
        return RunEnd(task, exchange, "failed", schedule.next_run, error.message, error.recoverable)
    if exchange.outcome == "suspended":
        call = next(part for part in exchange.parts if isinstance(part, Call) and not part.block)
        approval = TaskApproval(call.id, call.name, call.params or {}, call.preview or "")
        return RunEnd(task, exchange, "waiting", schedule.next_run, approval=approval)
    if exchange.outcome == "cancelled":  # a person stopped this run; a schedule continues
        return RunEnd(task, exchange, "canceled", schedule.next_run)
    if not exchange.answer.strip():
        reason = f"the run ended without an answer ({exchange.outcome})"
        return RunEnd(task, exchange, "failed", schedule.next_run, reason, may_retry=True)
    return RunEnd(task, exchange, "succeeded", schedule.next_run)


class _Activity:
    """Stores what a run does now, at most once in `ACTIVITY_SECONDS`."""

    def __init__(self, store: Store, task: Task, run: Run) -> None:
        self._store = store
        self._task = task
        self._run = run
        self._stored_at = 0.0
        self._writing: asyncio.Task[None] | None = None

    def take(self, events: Sequence[Event], frames: bytes) -> None:
        """Note the newest call or its progress."""
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
            if not await self._store.write_unsynced(tasks.set_turn, self._task.id, self._run.id, text):
                self._run.stop("cancelled")
