"""Background tasks: what a person or a model asked for, when it runs, and how its newest run ended."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from brain.events import TaskChange
from brain.messages import Count, Marks, Time
from brain.text import first_words

TaskState = Literal["pending", "running", "waiting", "succeeded", "failed", "canceled"]
"""`waiting`: for an approval, for the next run of its schedule, or for a day with free runs."""
ProfileName = Literal["standard", "expert"]
Tell = Literal["always", "never"]
"""Whether the conversation of a task reports its results."""
CancelOutcome = Literal["canceled", "not_found", "already_done", "already_canceled", "invalid"]
PacketKind = Literal["state", "result", "failure", "skipped", "approval", "paused", "report"]
"""Why a packet was added to the channel: a change of state, something to report, or the begin of a report."""

ACTIVE: tuple[TaskState, ...] = ("pending", "running", "waiting")
ENDED: tuple[TaskState, ...] = ("succeeded", "failed", "canceled")
MAX_TITLE = 100
MAX_PROMPT = 8_000
MAX_SUMMARY = 2_000
MAX_RESULT = 65_536
"""Characters of a stored result. The conversation of the task has the whole answer."""
MAX_USER_TEXT = 16_000
"""Characters of the user's own words that a task keeps: those of the newest messages."""
MAX_DEPTH = 2
"""A task of a conversation may create tasks; those may not."""
MAX_FAILURES = 5
"""Failed runs in a row after which a schedule pauses."""


class TaskApproval(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of a task that waits for a person. `text` is its preview."""

    call_id: str
    name: str
    params: Mapping[str, Any]
    text: str = ""


class Task(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A background task.

    Attributes:
        conversation_id: The conversation that reports its results.
        work_id: The conversation in which it runs. No list shows it.
        next_run: When it runs next; None if it does not run by itself.
        every: Its recurrence as an RRULE without DTSTART; empty for a task that runs once.
        start: First time of the schedule, in `time_zone`.
        depth: 1 if a conversation created it, 2 if a task did.
        run: Number of its newest run; 0 before the first.
        attempt: Number of the attempt of this run, from 1.
        resumes: How often the run continued after its process ended.
        failures: Number of failed runs in a row.
        finished: ID of the message that its newest finished run answered.
        turn_id: The turn that runs it, or ran it last.
        activity: What the run does now, for people.
        result: Answer of its newest finished run, cut to `MAX_RESULT`.
        summary: Summary of the result by the model that read it.
        reason: Why the newest run failed or was skipped, or why the task is paused, for people.
        changed: When its state changed.
        untrusted: Whether its prompt may contain untrusted content. Its result always may.
        private_data: Whether its prompt or its result may contain private data.
        user_text: What the user wrote: the prompt, or the conversation in which a model wrote the prompt.
    """

    id: str
    user: str
    title: str
    prompt: str
    conversation_id: str
    work_id: str
    profile: ProfileName = "standard"
    state: TaskState = "pending"
    created: Time
    changed: Time
    time_zone: str
    next_run: Time | None = None
    every: str = ""
    start: Time | None = None
    paused: bool = False
    tell: Tell = "always"
    private: bool = False
    depth: Count = 1
    parent: str = ""
    run: Count = 0
    attempt: Count = 1
    resumes: Count = 0
    failures: Count = 0
    finished: str = ""
    turn_id: str = ""
    activity: str = ""
    approval: TaskApproval | None = None
    result: str = ""
    summary: str = ""
    reason: str = ""
    untrusted: bool = False
    private_data: bool = False
    user_text: str = ""

    @property
    def is_from_user(self) -> bool:
        """Whether the user wrote the prompt, word for word."""
        return self.user_text == self.prompt

    @property
    def is_scheduled(self) -> bool:
        """Whether it has a schedule: a time in the future or a recurrence."""
        return self.start is not None

    @property
    def has_ended(self) -> bool:
        """Whether it will not run again by itself."""
        return self.state in ENDED


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a person or a model asks for. None means the default.

    Attributes:
        title: The first words of the prompt by default.
        when: First time; see `schedule.parse_when`. At once by default, or at the first time of `every`.
        every: Recurrence; see `schedule.parse_every`.
        conversation_id: The conversation that reports the results; a new one by default.
        time_zone: That of the settings by default.
    """

    prompt: str | None = None
    title: str | None = None
    profile: ProfileName | None = None
    when: str | None = None
    every: str | None = None
    conversation_id: str | None = None
    tell: Tell | None = None
    time_zone: str | None = None
    private: bool | None = None


class TaskEdit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person changes about a task; None leaves a field unchanged.

    Attributes:
        when: The same as for `NewTask`.
        every: The same; empty for no recurrence.
        paused: False also starts the count of failures again.
    """

    title: str | None = None
    when: str | None = None
    every: str | None = None
    paused: bool | None = None
    tell: Tell | None = None


class Origin(NamedTuple):
    """Where a prompt that a model wrote comes from.

    Attributes:
        marks: Those of the model's context.
        user_text: What the user wrote in the conversation, cut to `MAX_USER_TEXT`.
    """

    marks: Marks
    user_text: str


class Packet(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of the channel. `key` grows with each packet of all users.

    Attributes:
        turn_id: The turn that reports, for the kind `report`.
    """

    key: Count
    at: Time
    kind: PacketKind
    user: str
    conversation_id: str
    task_id: str = ""
    title: str = ""
    state: TaskState | None = None
    run: Count = 0
    text: str = ""
    turn_id: str = ""


def make_title(prompt: str) -> str:
    """Return the first words of a prompt as one line."""
    return first_words(prompt, 60)


def task_change(task: Task) -> TaskChange:
    """Return the event about a task as it is now."""
    text = task.summary or task.result if task.state == "succeeded" else task.reason or task.activity
    return TaskChange(task.id, task.title, task.state, task.conversation_id, text[:2000] or None, task.run or None)
