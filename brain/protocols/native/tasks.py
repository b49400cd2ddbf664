"""Background tasks in Brain's own protocol: queries, bodies, tasks as JSON, and the channel as server-sent events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

import msgspec

from brain.errors import BadRequest
from brain.protocols.bodies import choose, decode, encode, invalid
from brain.protocols.native import queries
from brain.protocols.native.queries import ListQuery
from brain.protocols.turn_options import check_id, check_time_zone
from brain.task import NewTask, Packet, Task, TaskEdit, TaskState
from brain.validation import quote_value

_OPTIONAL_FIELDS = (
    "next_run", "every", "start", "paused", "parent", "turn_id", "activity", "approval", "result", "summary", "reason",
    "failures", "private",
)  # fmt: skip
"""Fields of a task that are left out if they are empty."""


class TaskBody(NewTask, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/tasks`."""

    dry_run: bool | None = None


@dataclass(frozen=True, slots=True)
class TasksQuery:
    """One page of the list of tasks; without `states`, tasks of all states."""

    page: ListQuery
    states: Sequence[TaskState]
    conversation_id: str | None


def parse_tasks_query(query: Mapping[str, str]) -> TasksQuery:
    """Parse the query of `GET /v1/tasks`."""
    page = queries.parse_query(query, "state", "conversation_id", "before", "limit")
    names = dict.fromkeys(query["state"].split(",")) if "state" in query else ()
    states = [choose(name, get_args(TaskState), "state") for name in names]
    return TasksQuery(page, states, check_id(query.get("conversation_id"), "conversation_id"))


def parse_new_task(data: bytes) -> TaskBody:
    """Parse the body of a request for a task."""
    body = decode(data, TaskBody)
    check_id(body.conversation_id, "conversation_id")
    if body.time_zone is not None:
        check_time_zone(body.time_zone, "time_zone")
    return body


def parse_task_edit(data: bytes) -> TaskEdit:
    """Parse the body of a change of a task."""
    body = decode(data, TaskEdit)
    if body == TaskEdit():
        raise BadRequest("Send at least one of `title`, `when`, `every`, `paused` and `tell`.", "title")
    for field in ("title", "when"):
        value: str | None = getattr(body, field)
        if value is not None and not value.strip():
            raise invalid(field, "is empty; leave it out to keep its value")
    return body


def parse_cursor(cursor: str, field: str) -> int:
    """Return the key of a packet, after which a client reads the channel."""
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 18):
        raise invalid(field, f"is {quote_value(cursor)}; use the `cursor` of GET /v1/tasks or the ID of an event")
    return int(cursor)


def task_data(task: Task, schedule: str = "") -> dict[str, Any]:
    """Return a task as JSON values, without fields that are empty.

    Args:
        schedule: the schedule in words.
    """
    data = {
        "id": task.id,
        "title": task.title,
        "prompt": task.prompt,
        "profile": task.profile,
        "state": task.state,
        "conversation_id": task.conversation_id,
        "work_id": task.work_id,
        "created": task.created,
        "changed": task.changed,
        "time_zone": task.time_zone,
        "run": task.run,
        "tell": task.tell,
        "depth": task.depth,
        **({"schedule": schedule} if schedule else {}),
        **{field: value for field in _OPTIONAL_FIELDS if (value := getattr(task, field))},
    }
    if task.approval is not None:
        data["approval"] = {
            "call_id": task.approval.call_id,
            "name": task.approval.name,
            "params": task.approval.params,
            "text": task.approval.text,
        }
    values: dict[str, Any] = msgspec.to_builtins(data)
    return values


def encode_tasks(tasks: Sequence[Mapping[str, Any]], limit: int, cursor: int) -> bytes:
    """Encode one page of the list of tasks.

    Args:
        tasks: one more than `limit` if there is a next page.
        cursor: key of the newest packet when the tasks were read.
    """
    shown = tasks[:limit]
    return encode({"tasks": shown, "next": shown[-1]["id"] if len(tasks) > limit else None, "cursor": cursor})


def encode_preview(schedule: str, times: Sequence[datetime]) -> bytes:
    """Encode a schedule in words, with its next times."""
    return encode({"schedule": schedule, "next": times})


def begin_channel(cursor: int) -> bytes:
    """Return the first frame of a channel, which has no event: a client that reconnects sends this cursor."""
    return b"retry: 2000\nid: %d\n\n" % cursor


def encode_packets(packets: Sequence[Packet]) -> bytes:
    """Return packets as events: `report` for the begin of a report, `task` for all others."""
    return b"".join(map(_encode_packet, packets))


def _encode_packet(packet: Packet) -> bytes:
    name = b"report" if packet.kind == "report" else b"task"
    return b"event: %b\ndata: %b\nid: %d\n\n" % (name, encode(packet_data(packet)), packet.key)


def packet_data(packet: Packet) -> dict[str, Any]:
    """Return the data of the event about a packet."""
    if packet.kind == "report":
        return {"conversation_id": packet.conversation_id, "turn_id": packet.turn_id}
    return {
        "task_id": packet.task_id,
        "title": packet.title,
        "state": packet.state,
        **({"text": packet.text} if packet.text else {}),
        "conversation_id": packet.conversation_id,
        **({"run": packet.run} if packet.run else {}),
        "kind": packet.kind,
    }
