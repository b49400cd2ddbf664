"""`brain tasks`: list, add, change and watch background tasks. They run while `brain serve` or `brain chat` runs."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from brain.cli.commands.input import check_conversation_id
from brain.cli.commands.store_access import open_existing_store
from brain.cli.process import DONE, FAILED, CommandError, UsageError, print_error, print_json
from brain.cli.terminal.messages import is_yes
from brain.errors import BadRequest
from brain.protocols.native import resources as protocol
from brain.settings import Settings
from brain.store import tasks as stored
from brain.store.store import Store
from brain.store.tasks import Duplicate
from brain.task import MAX_RESULT, NewTask, Packet, Task, TaskApproval, TaskEdit
from brain.tasks import Tasks, schedule
from brain.text import escape_invisible, first_words

Action = Callable[[argparse.Namespace, Tasks], Awaitable[int]]
"""An action. `arguments.confirm` takes a question, and the command that does not ask."""

PAGE = 200
SHOWN_ENDED = 20
"""Ended tasks in the list without `--all`."""
MIN_ID_LENGTH = len("task") + 4
"""Characters of a shown ID, or more if several tasks begin with them."""
MAX_LINE_LENGTH = 100
WATCH_SECONDS = 0.25
_LIST = "brain tasks list"
_RUNS = "It runs while brain serve or brain chat runs."


async def tasks(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run one action on the tasks of a user."""
    arguments.settings, arguments.confirm = settings, _confirm
    async with open_existing_store(settings, creates=arguments.action == "add") as store:
        arguments.store = store
        return await ACTIONS[arguments.action](arguments, Tasks(store, settings, lambda: datetime.now(UTC)))


async def show_all(arguments: argparse.Namespace, service: Tasks) -> int:
    """List tasks, newest first: all active ones, and the latest that ended."""
    found = await _read_all(service, arguments.user)
    if arguments.json:
        print_json({"tasks": [_data(task) for task in found]})
        return DONE
    ended = [task for task in found if task.has_ended]
    hidden = set() if arguments.all else {task.id for task in ended[SHOWN_ENDED:]}
    ids = _shorten_ids(found)
    for task in found:
        if task.id not in hidden:
            print(escape_invisible(f"{ids[task.id]:<{MIN_ID_LENGTH}} {_state(task):<10} {task.title}"))
            if detail := _detail(task, ids[task.id]):
                print(escape_invisible(f"{'':<{MIN_ID_LENGTH}} {'':<10} {detail}"))
    if hidden:
        print(f"{len(hidden):,} more have ended. List them with: brain tasks list --all")
    if not found:
        print(f"No tasks for user {arguments.user}.")
    return DONE


async def show(arguments: argparse.Namespace, service: Tasks) -> int:
    """Show everything about a task."""
    task = await _find(service, arguments)
    if arguments.json:
        print_json(_data(task))
        return DONE
    rows = [
        ("Title", task.title),
        ("ID", task.id),
        ("State", f"{_state(task)}, run {task.run}" if task.run else _state(task)),
        ("Now", task.activity),
        ("Schedule", schedule.describe(task, service.now())),
        ("Profile", task.profile),
        ("Created", _local_time(task.created)),
        ("Changed", _local_time(task.changed)),
        ("Reason", task.reason),
        ("Reports to", f"conversation {task.conversation_id}" if task.tell == "always" else "nobody (--tell never)"),
        ("Runs in", f"conversation {task.work_id}" if task.run else ""),
    ]
    for name, value in rows:
        if value:
            print(escape_invisible(f"{name + ':':<12} {value}"))
    for name, text in (("Prompt", task.prompt), ("Summary", task.summary), ("Result", task.result)):
        if text:
            print(f"\n{name}:")
            _print_lines(text)
    if len(task.result) == MAX_RESULT:
        print(f"… Read all of it with: brain chat --conversation {task.work_id}")
    if task.approval is not None:
        _print_approval(task.approval)
        print(f"Decide with: brain tasks approve {task.id}, or brain tasks decline {task.id}")
    return DONE


async def add(arguments: argparse.Namespace, service: Tasks) -> int:
    """Add a task; ask about its schedule unless `--yes` is given."""
    try:
        check_conversation_id(arguments.conversation_id)
        task = service.check(arguments.user, msgspec.convert(vars(arguments), NewTask))
    except BadRequest as error:
        name = f"--{error.field} " if error.field in ("title", "when", "every") else ""
        what = error.message.removeprefix(f"`{error.field}` ") if name else error.message
        raise CommandError(f"{name}{what}", "brain tasks add --help") from None
    if words := schedule.describe(task, service.now()):
        print(f"Schedule: {escape_invisible(words)}", file=sys.stderr)
        if not arguments.yes and not await arguments.confirm("Add this task?", "brain tasks add … --yes"):
            print("Nothing was added.", file=sys.stderr)
            return FAILED
    try:
        task = await service.create(task)
    except Duplicate as error:
        what = f"A task does the same: {error.task.title} ({_state(error.task)})"
        raise CommandError(what, f"brain tasks show {error.task.id}") from None
    return _report(arguments, task, f"Added {task.id} “{task.title}”. {_RUNS}")


async def cancel(arguments: argparse.Namespace, service: Tasks) -> int:
    """Cancel a task; a server that runs it stops it."""
    outcome, task = await service.write(stored.cancel, arguments.user, (await _find(service, arguments)).id)
    assert task is not None
    if arguments.json:
        print_json({"outcome": outcome, "task": _data(task)})
    elif outcome == "already_done":
        print_error(f"{task.title} has already ended ({task.state})", f"brain tasks show {task.id}")
    else:
        print(escape_invisible(f"{'Canceled' if outcome == 'canceled' else 'Already canceled'}: {task.title}"))
    return FAILED if outcome == "already_done" else DONE


async def pause(arguments: argparse.Namespace, service: Tasks) -> int:
    """Pause a schedule."""
    task = await _change(arguments, service, paused=True)
    return _report(arguments, task, f"Paused “{task.title}”. Resume it with: brain tasks resume {task.id}")


async def resume(arguments: argparse.Namespace, service: Tasks) -> int:
    """Resume a schedule."""
    task = await _change(arguments, service, paused=False)
    return _report(arguments, task, f"Resumed “{task.title}”: {schedule.describe(task, service.now())}")


async def run(arguments: argparse.Namespace, service: Tasks) -> int:
    """Run a task now: one that waits for its schedule, or one that has ended."""
    found = await _find(service, arguments)
    try:
        task = await service.run_now(arguments.user, found.id)
    except BadRequest as error:
        advice = "brain tasks add --help" if error.code == "gone" else f"brain tasks show {found.id}"
        raise CommandError(error.message.rstrip("."), advice) from None
    assert task is not None
    return _report(arguments, task, f"Ready to run “{task.title}”. {_RUNS}")


async def approve(arguments: argparse.Namespace, service: Tasks) -> int:
    """Show the call that a task waits for; approve it after a question."""
    task, approval = await _find_approval(arguments, service)
    without_terminal = f"brain tasks approve {task.id} --yes"
    if not arguments.yes and not await arguments.confirm(f"Approve {approval.name}?", without_terminal):
        print("Nothing was decided.", file=sys.stderr)
        return FAILED
    task = await service.write(stored.decide, arguments.user, task.id, approval.call_id, approve=True)
    return _report(arguments, task, f"Approved “{task.title}”. {_RUNS}")


async def decline(arguments: argparse.Namespace, service: Tasks) -> int:
    """Show the call that a task waits for, and decline it."""
    task, approval = await _find_approval(arguments, service)
    task = await service.write(stored.decide, arguments.user, task.id, approval.call_id, approve=False)
    return _report(arguments, task, f"Declined “{task.title}”. The task continues without the call.")


async def delete(arguments: argparse.Namespace, service: Tasks) -> int:
    """Delete tasks with their runs; those that run stop."""
    found = [await _find(service, arguments, typed) for typed in arguments.id]
    for task in found:
        await service.write(stored.remove, arguments.user, task.id)
        print(escape_invisible(f"Deleted: {task.title}"))
    return DONE


async def watch(arguments: argparse.Namespace, service: Tasks) -> int:
    """Print what happens to tasks, until Ctrl-C."""
    store: Store = arguments.store
    cursor, version = await service.store.read(stored.newest_packet, arguments.user), -1
    last: dict[str, tuple[object, str]] = {}
    if not arguments.json:
        print("Watching tasks. Press Ctrl-C to stop.", file=sys.stderr, flush=True)
    while True:
        newest = await store.database.data_version()  # SQLite does not announce writes of other processes
        if newest == version:
            await asyncio.sleep(WATCH_SECONDS)
            continue
        version = newest
        while packets := await service.store.read(stored.read_channel, arguments.user, cursor):
            cursor = packets[-1].key
            for packet in packets:
                shown = packet.state, packet.text
                if arguments.json or packet.kind == "report" or last.get(packet.task_id) != shown:
                    _print_packet(packet, as_json=arguments.json)
                last[packet.task_id] = shown


ACTIONS: Mapping[str, Action] = {
    "list": show_all,
    "show": show,
    "add": add,
    "cancel": cancel,
    "pause": pause,
    "resume": resume,
    "run": run,
    "approve": approve,
    "decline": decline,
    "delete": delete,
    "watch": watch,
}


def _print_packet(packet: Packet, *, as_json: bool) -> None:
    if as_json:
        print_json(protocol.packet_data(packet))
    elif packet.kind == "report":
        print(escape_invisible(f"{_clock(packet.at)} report in conversation {packet.conversation_id}"), flush=True)
    else:
        text = first_words(packet.text, MAX_LINE_LENGTH)
        line = f"{_clock(packet.at)} {packet.task_id[:MIN_ID_LENGTH]} {packet.state or '':<10} {packet.title}"
        print(escape_invisible(f"{line}: {text}" if text else line), flush=True)


# Finding tasks


async def _read_all(service: Tasks, user: str) -> list[Task]:
    found: list[Task] = []
    while page := await service.store.read(stored.list_tasks, user, before=found[-1].id if found else None, limit=PAGE):
        found += page
    return found


async def _find(service: Tasks, arguments: argparse.Namespace, typed: str | None = None) -> Task:
    """Return the only task whose ID begins as typed, with or without `task`."""
    given: str = arguments.id if typed is None else typed
    typed = given.lower().removeprefix("#").removeprefix("task")
    whole = await service.store.read(stored.find, arguments.user, f"task{typed}")
    if whole is not None:
        return whole
    found = [task for task in await _read_all(service, arguments.user) if task.id.startswith(f"task{typed}")]
    if not found or not typed:
        raise CommandError(f"No task '{given}'", _LIST)
    if len(found) > 1:
        raise CommandError(f"{len(found)} tasks begin with '{given}'", f"brain tasks show {found[0].id}")
    return found[0]


async def _find_approval(arguments: argparse.Namespace, service: Tasks) -> tuple[Task, TaskApproval]:
    task = await _find(service, arguments)
    if task.approval is None:
        raise CommandError(f"{task.title} waits for no approval", f"brain tasks show {task.id}")
    _print_approval(task.approval)
    return task, task.approval


async def _change(arguments: argparse.Namespace, service: Tasks, *, paused: bool) -> Task:
    found = await _find(service, arguments)
    if not found.is_scheduled:
        raise CommandError(f"{found.title} has no schedule", f"brain tasks cancel {found.id}")
    task = await service.change(arguments.user, found.id, TaskEdit(paused=paused))
    assert task is not None
    return task


async def _confirm(question: str, without_terminal: str) -> bool:
    """Ask a yes-or-no question."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Cannot ask for confirmation without a terminal", without_terminal)
    print(f"{escape_invisible(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return is_yes(sys.stdin.readline())


# Showing tasks


def _shorten_ids(tasks: Sequence[Task]) -> dict[str, str]:
    """Return the shortest beginning of each ID that no other has."""
    ids = sorted(task.id for task in tasks)
    short = {}
    for before, one, after in zip(["", *ids], ids, [*ids[1:], ""], strict=False):
        length = MIN_ID_LENGTH
        while length < len(one) and one[:length] in (before[:length], after[:length]):
            length += 1
        short[one] = one[:length]
    return short


def _state(task: Task) -> str:
    if task.approval is not None:
        return "approval"
    return "paused" if task.paused and not task.has_ended else task.state


def _detail(task: Task, short_id: str) -> str:
    """Return the second line about a task in the list."""
    if task.approval is not None:
        return f"wants to call {task.approval.name}. Decide with: brain tasks approve {short_id}"
    if task.state == "waiting" and task.is_scheduled:
        return f"{schedule.to_words(task)}{f'; {first_words(task.reason, MAX_LINE_LENGTH)}' if task.reason else ''}"
    if task.state == "succeeded":
        return first_words(task.summary or task.result, MAX_LINE_LENGTH)
    return first_words(task.activity or task.reason, MAX_LINE_LENGTH)


def _print_approval(approval: TaskApproval) -> None:
    print(f"\nThe task wants to call {escape_invisible(approval.name)}:")
    _print_lines(approval.text)
    for name, value in approval.params.items():
        shown = msgspec.json.encode(value).decode()
        print(f"  {escape_invisible(name)}: {escape_invisible(shown)}")


def _print_lines(text: str) -> None:
    for line in text.splitlines():
        print(f"  {escape_invisible(line)}")


def _report(arguments: argparse.Namespace, task: Task, text: str) -> int:
    """Print what was done to a task, or the task as JSON."""
    if arguments.json:
        print_json(_data(task))
    else:
        print(escape_invisible(text))
    return DONE


def _data(task: Task) -> dict[str, Any]:
    return protocol.task_data(task, schedule.to_words(task))


def _local_time(time: datetime) -> str:
    return f"{time.astimezone():%Y-%m-%d %H:%M}"


def _clock(time: datetime) -> str:
    return f"{time.astimezone():%H:%M:%S}"
