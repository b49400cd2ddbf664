"""Background tasks of all users: created, listed, changed and canceled by people and models."""

import hashlib
import secrets
from collections.abc import Callable, Sequence
from copy import copy
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

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
    NewTask,
    Origin,
    ProfileName,
    Task,
    TaskEdit,
    make_title,
)
from brain.tasks import schedule

P = ParamSpec("P")
T = TypeVar("T")


class Tasks:
    """The tasks of a store.

    Args:
        check_private: Raises `BadRequest` if the models of a profile cannot run a private task.
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

    def subscribe(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify` after each change by this process, and after changes by others that it has noticed."""
        key = object()
        self._listeners[key] = notify
        return lambda: self._listeners.pop(key, None) and None

    def notify(self) -> None:
        """Tell the subscribers that something changed."""
        for listener in list(self._listeners.values()):
            listener()

    async def write(self, function: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that changes tasks, as `Store.write` does, and tell the subscribers."""
        result = await self.store.write(function, *args, **kwargs)
        self.notify()
        return result

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
        self, user: str, new: NewTask, *, parent: Task | None = None, key: str = "", origin: Origin | None = None
    ) -> Task:
        """Return the task of a request, for `create`.

        Args:
            parent: The task that creates it.
            key: The same for a repeated request, which then returns the same task.
            origin: Where the prompt comes from, if a model wrote it.

        Raises:
            BadRequest: A field is empty, too long, or not a time; or a private task has a remote model.
        """
        prompt, profile, zone = (new.prompt or "").strip(), new.profile or "standard", new.time_zone
        zone = zone or self._settings.time_zone
        _check_length("prompt", new.prompt, MAX_PROMPT)
        _check_length("title", new.title, MAX_TITLE)
        if not prompt:
            raise BadRequest("`prompt` is empty; describe what the task does.", "prompt")
        if new.private:
            self._check_private(profile)
        now = self.now()
        start = next_run = None
        rule = ""
        if new.when:
            start = next_run = _parse(schedule.parse_when, "when", new.when, zone, now)
        if new.every:
            rule = _parse(schedule.parse_every, "every", new.every, zone, now)
            start = _find_start(rule, zone, now, start)
            times = schedule.next_times(rule, start, zone, now, 1)
            if not times:
                raise BadRequest("`every` has no time after `when`.", "every")
            next_run = times[0]
        name = hashlib.sha256(key.encode()).hexdigest()[:16] if key else secrets.token_hex(8)
        marks = Marks() if origin is None else origin.marks
        return Task(
            id=f"task{name}",
            user=user,
            title=" ".join((new.title or "").split()) or make_title(prompt),
            prompt=prompt,
            conversation_id=new.conversation_id or f"conv{name}",
            work_id=f"work{name}",
            profile=profile,
            state="pending" if start is None else "waiting",
            created=now,
            changed=now,
            time_zone=zone,
            next_run=next_run or now,
            every=rule,
            start=start,
            tell=new.tell or "always",
            private=bool(new.private),
            depth=1 if parent is None else parent.depth + 1,
            parent="" if parent is None else parent.id,
            untrusted=marks.untrusted,
            private_data=marks.private_data,
            user_text=prompt if origin is None else origin.user_text,
        )

    async def create(self, task: Task) -> Task:
        """Add a task that `check` returned.

        Raises:
            BadRequest: `duplicate`, an active task is the same; `rate_limited`; or the conversation is private, and the
                profile has a remote model.
        """

        def create(tx: Tx, task: Task) -> Task:
            if tasks.is_private(tx, task.user, task.conversation_id):
                self._check_private(task.profile)
            return tasks.create(tx, task, self.limits(task.user))

        return await self.write(create, task)

    async def change(self, user: str, task_id: str, edit: TaskEdit) -> Task | None:
        """Change a task; None if it does not exist.

        Raises:
            Duplicate: Another active task is the same as the changed one.
            BadRequest: A field is too long or not a time, or the task has no schedule to pause.
        """
        _check_length("title", edit.title, MAX_TITLE)
        return await self.write(tasks.change, user, task_id, partial(_edit, edit, self.now()))

    async def summarize(self, user: str, task_id: str, summary: str, *, private_data: bool) -> Task | None:
        """Store what a model made of a result; None if the task does not exist."""
        _check_length("summary", summary, MAX_SUMMARY)

        def edit(task: Task) -> Task:
            return msgspec.structs.replace(
                task, summary=summary.strip(), private_data=task.private_data or private_data
            )

        return await self.write(tasks.change, user, task_id, edit)

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

        return await self.write(tasks.change, user, task_id, edit)


def _edit(edit: TaskEdit, now: datetime, task: Task) -> Task:
    """Return the changed task."""
    changes: dict[str, Any] = {}
    changes_schedule = bool(edit.when) or edit.every is not None
    if edit.title is not None and edit.title.strip():
        changes["title"] = " ".join(edit.title.split())
    if edit.tell is not None:
        changes["tell"] = edit.tell
    if edit.when is not None or edit.every is not None or edit.paused is not None:
        if task.has_ended:
            raise BadRequest("This task has ended, so it has no schedule to change.", code="gone", status=409)
        if not (task.is_scheduled or edit.when or edit.every):
            raise BadRequest("This task has no schedule. Send `when` or `every` first.", "paused")
    if changes_schedule:
        first = _parse(schedule.parse_when, "when", edit.when, task.time_zone, now) if edit.when else None
        rule = task.every
        if edit.every is not None:
            rule = _parse(schedule.parse_every, "every", edit.every, task.time_zone, now) if edit.every else ""
        start = _find_start(rule, task.time_zone, now, first) if rule else first or task.start
        changes |= {"start": start, "every": rule}
    if edit.paused is not None:
        changes |= {"paused": edit.paused, "failures": task.failures if edit.paused else 0}
        changes |= {"reason": task.reason if edit.paused else ""}
    changed = msgspec.structs.replace(task, **changes)
    waits = task.state == "waiting" and task.approval is None
    if (changes_schedule and task.state == "running") or (waits and (changes_schedule or edit.paused is False)):
        next_run = schedule.next_run(changed, now)
        if waits and next_run is None:
            raise BadRequest("The schedule has no time in the future.", "when")
        changed = msgspec.structs.replace(changed, next_run=next_run)
    return changed


def _check_length(field: str, value: str | None, limit: int) -> None:
    if value is not None and len(value) > limit:
        message = f"`{field}` has {len(value):,} characters; the limit is {limit:,}."
        raise BadRequest(message, field, code="too_large", status=413)


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
