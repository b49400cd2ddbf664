"""The background tasks of a user, as a specialist in one turn may use them."""

import logging
import re
from collections.abc import Callable, Sequence
from datetime import datetime

from brain.errors import BadRequest, Refused
from brain.messages import Marks
from brain.store import tasks
from brain.task import MAX_DEPTH, MAX_SUMMARY, CancelOutcome, NewTask, Origin, ProfileName, Task, Tell
from brain.tasks import Tasks, schedule
from brain.text import ID

log = logging.getLogger("brain")

NO_CONVERSATION = "the client keeps this conversation itself, so there is no place to report results"
USE_HEADER = "tell the user that tasks need the header X-Conversation-Id"


class UserTasks:
    """See `TaskView`.

    Args:
        conversation_id: The conversation that reports results; None if the client keeps it.

    Attributes:
        on_change: Called with each task that this turn adds or cancels.
        origin: Returns what the model has read, and what the user wrote.
    """

    def __init__(
        self,
        tasks: Tasks,
        user: str,
        conversation_id: str | None,
        time_zone: str,
        parent: Task | None = None,
        *,
        private: bool = False,
    ) -> None:
        self.on_change: Callable[[Task], None] = lambda task: None
        self.origin: Callable[[], Origin] = lambda: Origin(Marks(untrusted=True, private_data=True), "")
        self._tasks = tasks
        self._user = user
        self._conversation_id = conversation_id
        self._time_zone = time_zone
        self._parent = parent
        self._private = private

    async def create(
        self,
        prompt: str,
        title: str = "",
        *,
        profile: ProfileName = "standard",
        when: str = "",
        every: str = "",
        tell: Tell = "always",
        key: str = "",
    ) -> Task:
        if self._conversation_id is None:
            raise Refused(NO_CONVERSATION, USE_HEADER)
        if self._parent is not None and self._parent.depth >= MAX_DEPTH:
            raise Refused("a task that a task created cannot create tasks", "do the work in this task")
        new = NewTask(
            prompt=prompt, title=title, profile=profile, when=when, every=every, tell=tell, time_zone=self._time_zone,
            conversation_id=self._conversation_id, private=self._private,
        )  # fmt: skip
        try:
            task = self._tasks.check(self._user, new, parent=self._parent, key=key, origin=self.origin())
            task = await self._tasks.create(task)
        except BadRequest as error:
            raise _refuse(error) from None
        self.on_change(task)
        return task

    def describe_schedule(self, when: str, every: str, profile: ProfileName = "standard") -> str:
        return schedule.describe(self._check(when, every, profile), self._tasks.now()) or "at once"

    def format_schedule(self, task: Task) -> str:
        return schedule.to_words(task)

    def parse_time(self, when: str) -> datetime:
        start = self._check(when, "").start
        assert start is not None
        return start

    def _check(self, when: str, every: str, profile: ProfileName = "standard") -> Task:
        zone, private = self._time_zone, self._private
        new = NewTask(prompt="-", time_zone=zone, profile=profile, when=when, every=every, private=private)
        try:
            return self._tasks.check(self._user, new)
        except BadRequest as error:
            raise _refuse(error) from None

    async def list_tasks(self, most: int = 20) -> Sequence[Task]:
        found = [
            task
            for task in await self._tasks.store.read(tasks.list_tasks, self._user, limit=200)
            if self._can_read(task)
        ]
        return sorted(found, key=lambda task: task.changed, reverse=True)[:most]

    def _can_read(self, task: Task) -> bool:
        """Whether the model may read a task: it may be a remote one if the conversation is not private."""
        return self._private or not task.private

    async def cancel(self, task_id: str) -> tuple[CancelOutcome, Task | None]:
        if not re.fullmatch("task[0-9a-z]{1,60}", task_id):
            return "invalid", None
        existing = await self._tasks.store.read(tasks.find, self._user, task_id)
        if existing is not None and not self._can_read(existing):
            return "not_found", None
        outcome, task = await self._tasks.write(tasks.cancel, self._user, task_id)
        if outcome == "canceled" and task is not None:
            self.on_change(task)
        return outcome, task

    async def summarize(self, task_id: str, summary: str) -> Task:
        task = await self._tasks.store.read(tasks.find, self._user, task_id) if ID.fullmatch(task_id) else None
        if task is not None and self._can_read(task):
            private_data = self.origin().marks.private_data
            summary = summary[:MAX_SUMMARY]
            task = await self._tasks.summarize(self._user, task_id, summary, private_data=private_data)
        if task is None or not self._can_read(task):
            raise Refused(f"there is no task {task_id}", "use the id of a task from list")
        return task

    async def feedback(self, message: str) -> None:
        if self._private:
            raise Refused("this conversation is private, so nothing of it is written to the log", "continue without it")
        log.info("feedback of a model about tasks: %s", " ".join(message.split())[:MAX_SUMMARY])


def _refuse(error: BadRequest) -> Refused:
    return Refused(error.message.replace("`", "").rstrip("."), "correct the request, or tell the user")
