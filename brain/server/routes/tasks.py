"""Routes for background tasks: list, add, change, cancel, run, approve and delete them, and stream what happens."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp

from brain.errors import BadRequest, StoreError
from brain.protocols import native
from brain.protocols.common import invalid
from brain.protocols.encoding import HEARTBEAT
from brain.protocols.native import queries
from brain.protocols.native import resources as protocol
from brain.protocols.native.queries import TasksQuery
from brain.server.event_stream import EventStreamResponse
from brain.server.rate_limits import RETRY_SOON, rate_limited
from brain.server.responses import NO_STORE_HEADERS, ApiResponse, error_body, no_content
from brain.server.routes.requests import Request, link, path_id, query_of, read_json, read_struct
from brain.server.routes.runs import READERS_LIMIT, not_found
from brain.server.routes.turns import LAST_EVENT_ID
from brain.server.state import ServerState
from brain.store import tasks
from brain.store.tx import Tx
from brain.task import Task
from brain.tasks import schedule
from brain.text import ID

log = logging.getLogger("brain")


async def list_tasks(request: Request) -> Response:
    """`GET /v1/tasks`: list tasks, newest first."""
    query = query_of(request, TasksQuery)

    def read(tx: Tx) -> tuple[Sequence[Task], int]:
        found = tasks.list_tasks(
            tx,
            request.username,
            query.states,
            before=query.before,
            limit=query.limit + 1,
            conversation_id=query.conversation_id,
        )
        return found, tasks.newest_packet(tx, request.username)

    found, cursor = await request.engine.store.read(read)
    return ApiResponse(protocol.list_data("tasks", [*map(_data, found)], query.limit, cursor=cursor))


async def add(request: Request) -> Response:
    """`POST /v1/tasks`: add a task, or return its next times with `dry_run`."""
    body = await read_json(request, queries.parse_new_task, queries.SMALL_BODY_BYTES)
    service = request.engine.tasks
    if body.dry_run:
        task = service.check(request.username, msgspec.structs.replace(body, prompt=body.prompt or "-"))
        times = []
        if task.start is not None:
            times = schedule.next_times(task.every, task.start, task.time_zone, datetime.now(UTC))
        return ApiResponse({"schedule": schedule.to_words(task), "next": times})
    task = await service.create(service.check(request.username, body))
    return ApiResponse(_data(task), 201, {"Location": link(request, f"/v1/tasks/{task.id}")})


async def show(request: Request) -> Response:
    """`GET /v1/tasks/{id}`: show it."""
    return _response(await request.engine.store.read(tasks.find, request.username, path_id(request, _not_found())))


async def change(request: Request) -> Response:
    """`PATCH /v1/tasks/{id}`: change the fields in the body."""
    task_id = path_id(request, _not_found())
    edit = await read_json(request, queries.parse_task_edit, queries.SMALL_BODY_BYTES)
    return _response(await request.engine.tasks.change(request.username, task_id, edit))


async def delete(request: Request) -> Response:
    """`DELETE /v1/tasks/{id}`: cancel and delete it."""
    if not await request.engine.delete_task(request.username, path_id(request, _not_found())):
        raise _not_found()
    return no_content()


async def cancel(request: Request) -> Response:
    """`POST /v1/tasks/{id}/cancel`: cancel it, and return one of five outcomes."""
    task_id: str = request.path_params["id"]
    if not ID.fullmatch(task_id):
        error = invalid("id", "is not the ID of a task; use one from GET /v1/tasks")
        return ApiResponse({"outcome": "invalid", **error_body(error)}, error.status)
    engine, user = request.engine, request.username
    if engine.runs.processes is not None:
        await engine.runs.processes.raise_if_task_elsewhere(user, task_id)
    outcome, task = await engine.tasks.write(tasks.cancel, user, task_id)
    if task is None:
        error = _not_found()
        return ApiResponse({"outcome": outcome, **error_body(error)}, error.status)
    return ApiResponse({"outcome": outcome, "task": _data(task)})


async def run(request: Request) -> Response:
    """`POST /v1/tasks/{id}/run`: run it at once."""
    return _response(await request.engine.tasks.run_now(request.username, path_id(request, _not_found())))


async def approve(request: Request) -> Response:
    """`POST /v1/tasks/{id}/approvals/{call_id}`: approve or decline a call."""
    task_id = path_id(request, _not_found())
    body = await read_struct(request, native.ApprovalBody)
    call_id: str = request.path_params["call_id"]
    decided = await request.engine.tasks.write(tasks.decide, request.username, task_id, call_id, body.approve)
    return _response(decided)


async def events(request: Request) -> ASGIApp:
    """`GET /v1/tasks/events`: packets after `Last-Event-ID` or `?after=`, or from now on."""
    state, user = request.server, request.username
    service = state.engine.tasks
    newest = await service.store.read(tasks.newest_packet, user)
    after = newest
    if header := request.headers.get(LAST_EVENT_ID):  # an `EventSource` repeats its first query when it reconnects
        after = min(newest, queries.parse_cursor(header, LAST_EVENT_ID))
    elif query := request.query_params.get("after"):
        after = min(newest, queries.parse_cursor(query, "after"))
    if request.method == "HEAD":
        return Response(media_type="text/event-stream", headers=NO_STORE_HEADERS)
    if state.task_readers[user] >= READERS_LIMIT:
        message = f"You have reached the limit of {READERS_LIMIT} connections to the events of tasks. Try again later."
        raise rate_limited(message, RETRY_SOON)
    heartbeat = state.engine.settings.heartbeat_seconds
    packets = _read_channel(state, user, after, heartbeat)
    return EventStreamResponse(packets, heartbeat=heartbeat, count_streams=state.telemetry.metrics.count_streams)


async def _read_channel(state: ServerState, user: str, after: int, heartbeat: float) -> AsyncGenerator[bytes, None]:
    """Yield the packets after a cursor as bytes, and a heartbeat after a silence.

    It reads the store after its cursor when something has changed, so nothing piles up for a slow client.
    """
    service, changed = state.engine.tasks, asyncio.Event()
    unsubscribe = service.subscribe(changed.set)
    state.task_readers[user] += 1
    try:
        yield protocol.encode_cursor(after)
        while not state.engine.is_closing:  # `Tasks.notify` wakes the stream then
            changed.clear()
            if packets := await service.store.read(tasks.read_channel, user, after):
                after = packets[-1].key
                yield protocol.encode_packets(packets)
                continue
            try:
                async with asyncio.timeout(heartbeat):
                    await changed.wait()
            except TimeoutError:
                yield HEARTBEAT
    except StoreError as error:
        log.warning("the stream of tasks ends: %s", error)
    finally:
        unsubscribe()
        state.task_readers[user] -= 1
        if not state.task_readers[user]:
            del state.task_readers[user]


def _not_found() -> BadRequest:
    return not_found("Task not found.")


def _response(task: Task | None) -> Response:
    if task is None:
        raise _not_found()
    return ApiResponse(_data(task))


def _data(task: Task) -> dict[str, Any]:
    return protocol.task_data(task, schedule.to_words(task))
