"""Background tasks of all users: created, listed, changed and canceled by people and models."""

from collections.abc import Callable, Sequence
from copy import copy
from datetime import datetime
from typing import Any

import msgspec

from brain.errors import BadRequest
from brain.messages import Marks
from brain.settings import Settings
from brain.store import tasks
from brain.store.store import DeferredStore, Store
from brain.store.tasks import DayLimits
from brain.store.tx import Tx
from brain.task import (
    MAX_PROMPT,
    MAX_SUMMARY,
    MAX_TITLE,
    CancelOutcome,
    NewTask,
    Origin,
    ProfileName,
    Task,
    Tell,
)
from brain.tasks import schedule

Unsubscribe = Callable[[], None]
NO_MARKS = Marks()


class Tasks:
    """The tasks of a store.

    Args:
        check_private: Raises `BadRequest` if the models of a profile cannot run a private task.

    Attributes:
        store: reads tasks and their channel. Changes go through the methods here, which tell the subscribers.
        now: returns the time with a time zone.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        now: Callable[[], datetime],
        check_private: Callable[[ProfileName], None] = lambda profile: None,
    ) -> None:
        self.store: Store | DeferredStore = store
        self._check_private = check_private
        self._settings = settings
        self.now = now
        self._listeners: dict[object, Callable[[], None]] = {}

    def subscribe(self, notify: Callable[[], None]) -> Unsubscribe:
        """Call `notify` after each change by this process, and after changes by others that it has noticed."""
        key = object()
        self._listeners[key] = notify
        return lambda: self._listeners.pop(key, None) and None

    def notify(self) -> None:
        """Tell the subscribers that something changed."""
        for listener in list(self._listeners.values()):
            listener()

    def defer(self) -> tuple["Tasks", Sequence[Callable[[Tx], object]]]:
        """Return tasks whose changes are only tried, and the list of these changes for `ReportEnd`."""
        assert isinstance(self.store, Store)
        deferred, store = copy(self), DeferredStore(self.store)
        deferred.store, deferred._listeners = store, {}
        return deferred, store.writes

    def limits(self, user: str) -> DayLimits:
        """Return the daily limits of a user."""
        rights = self._settings.rights(user)
        return DayLimits(rights.tasks_per_day, rights.task_tokens_per_day)

    def check(
        self,
        prompt: str,
        title: str = "",
        *,
        time_zone: str,
        conversation_id: str | None = None,
        profile: ProfileName = "standard",
        when: str = "",
        every: str = "",
        tell: Tell = "always",
        private: bool = False,
        depth: int = 1,
        parent: str = "",
        key: str = "",
        origin: Origin | None = None,
    ) -> NewTask:
        """Return a checked request for a task.

        Args:
            when: First time; see `schedule.parse_when`. Empty for at once, or for the first time of `every`.
            every: Recurrence; see `schedule.parse_every`.
            origin: Where the prompt comes from, if a model wrote it.

        Raises:
            BadRequest: A field is empty, too long, or not a time; or a private task has a remote model.
        """
        for field, value, limit in (("prompt", prompt, MAX_PROMPT), ("title", title, MAX_TITLE)):
            if len(value) > limit:
                message = f"`{field}` has {len(value):,} characters; the limit is {limit:,}."
                raise BadRequest(message, field, code="too_large", status=413)
        if not prompt.strip():
            raise BadRequest("`prompt` is empty; describe what the task does.", "prompt")
        if private:
            self._check_private(profile)
        now = self.now()
        start = next_run = None
        rule = ""
        if when:
            start = next_run = _parse(schedule.parse_when, "when", when, time_zone, now)
        if every:
            rule = _parse(schedule.parse_every, "every", every, time_zone, now)
            start = _find_start(rule, time_zone, now, start)
            times = schedule.next_times(rule, start, time_zone, now, 1)
            if not times:
                raise BadRequest("`every` has no time after `when`.", "every")
            next_run = times[0]
        return NewTask(
            prompt.strip(), title.strip(), conversation_id, time_zone, profile, rule, start, next_run, tell, private,
            depth, parent, key, origin,
        )  # fmt: skip

    async def create(self, user: str, new: NewTask) -> Task:
        """Add a task.

        Raises:
            BadRequest: `duplicate`, an active task is the same; `rate_limited`; or the conversation is private, and the
                profile has a remote model.
        """
        if new.conversation_id is not None and await self.store.read(tasks.is_private, user, new.conversation_id):
            self._check_private(new.profile)
        task = await self.store.write(tasks.create, user, new, self.limits(user))
        self.notify()
        return task

    async def change(
        self,
        user: str,
        task_id: str,
        *,
        title: str | None = None,
        summary: str | None = None,
        when: str | None = None,
        every: str | None = None,
        paused: bool | None = None,
        tell: Tell | None = None,
        marks: Marks = NO_MARKS,
    ) -> Task | None:
        """Change a task; None if it does not exist. None leaves a field as it is.

        Args:
            summary: What a model made of the result.
            marks: Those of the summary.
            paused: False also starts the count of failures again.

        Raises:
            Duplicate: Another active task is the same as the changed one.
            BadRequest: A field is too long or not a time, or the task has no schedule to pause.
        """
        for field, value, limit in (("title", title, MAX_TITLE), ("summary", summary, MAX_SUMMARY)):
            if value is not None and len(value) > limit:
                message = f"`{field}` has {len(value):,} characters; the limit is {limit:,}."
                raise BadRequest(message, field, code="too_large", status=413)
        now = self.now()

        def edit(task: Task) -> Task:
            changes: dict[str, Any] = {}
            if title is not None and title.strip():
                changes["title"] = " ".join(title.split())
            if summary is not None:
                changes |= {"summary": summary.strip(), "private_data": task.private_data or marks.private_data}
            if tell is not None:
                changes["tell"] = tell
            if when is not None or every is not None or paused is not None:
                if task.has_ended:
                    raise BadRequest("This task has ended, so it has no schedule to change.", code="gone", status=409)
                if not (task.is_scheduled or when or every):
                    raise BadRequest("This task has no schedule. Send `when` or `every` first.", "paused")
            first, rule = None, task.every if every is None else ""
            if when:
                first = _parse(schedule.parse_when, "when", when, task.time_zone, now)
            if every:
                rule = _parse(schedule.parse_every, "every", every, task.time_zone, now)
            if when or every is not None:
                start = first or task.start
                if rule:
                    start = _find_start(rule, task.time_zone, now, first)
                changes |= {"start": start, "every": rule}
            if paused is not None:
                changes |= {"paused": paused, "failures": 0 if not paused else task.failures}
                changes |= {"reason": "" if not paused else task.reason}
            changed = msgspec.structs.replace(task, **changes)
            is_new = changed.start != task.start or changed.every != task.every
            waits = task.state == "waiting" and task.approval is None
            if (is_new and task.state == "running") or (waits and (when or every is not None or paused is False)):
                next_run = schedule.next_run(changed, now)
                if waits and next_run is None:
                    raise BadRequest("The schedule has no time in the future.", "when")
                changed = msgspec.structs.replace(changed, next_run=next_run)
            return changed

        task = await self.store.write(tasks.change, user, task_id, edit)
        self.notify()
        return task

    async def run_now(self, user: str, task_id: str) -> Task | None:
        """Run a task at once: one that waits for its schedule, or again one that has ended.

        Raises:
            Duplicate: It has ended, and an active task is the same.
            BadRequest: `busy`, it runs; or it waits for an approval. `gone`, its schedule was canceled.
        """
        now = self.now()

        def edit(task: Task) -> Task:
            if task.state in ("pending", "running"):
                raise BadRequest("This task is running.", code="busy", status=409)
            if task.approval is not None:
                raise BadRequest("This task waits for an approval.", code="busy", status=409)
            if task.state == "canceled" and task.is_scheduled:
                message = "This task was canceled, and its schedule with it. Add it again as a new task."
                raise BadRequest(message, code="gone", status=409)
            return msgspec.structs.replace(task, state="pending", next_run=now)

        task = await self.store.write(tasks.change, user, task_id, edit)
        self.notify()
        return task

    async def cancel(self, user: str, task_id: str) -> tuple[CancelOutcome, Task | None]:
        """Cancel a task. Its model and its specialists stop within 100 ms, in whatever process it runs."""
        outcome = await self.store.write(tasks.cancel, user, task_id)
        self.notify()
        return outcome

    async def cancel_all(self, user: str, conversation_id: str) -> list[str]:
        """Cancel the active tasks of a conversation; return where its tasks ran, as `brain.store.tasks.cancel_all`."""
        work_ids = await self.store.write(tasks.cancel_all, user, conversation_id)
        self.notify()
        return work_ids

    async def delete(self, user: str, task_id: str) -> bool:
        """Cancel and delete a task with its conversation; return whether it existed."""
        await self.store.write(tasks.cancel, user, task_id)
        existed = await self.store.write(tasks.remove, user, task_id)
        self.notify()
        return existed

    async def decide(self, user: str, task_id: str, call_id: str, approve: bool) -> Task:
        """Approve or decline a call that a task waits for; see `brain.store.tasks.decide`."""
        task = await self.store.write(tasks.decide, user, task_id, call_id, approve)
        self.notify()
        return task


def _find_start(every: str, time_zone: str, now: datetime, when: datetime | None) -> datetime:
    try:
        return schedule.find_start(every, time_zone, now, when)
    except ValueError:
        raise BadRequest("`every` has no time after `when`.", "every") from None


def _parse(parse: Callable[[str, str, datetime], Any], field: str, text: str, time_zone: str, now: datetime) -> Any:
    try:
        return parse(text, time_zone, now)
    except ValueError as problem:
        raise BadRequest(f"`{field}` {problem}.", field) from None
