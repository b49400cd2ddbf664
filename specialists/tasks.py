"""`tasks` creates, lists and cancels background tasks of the user, and summarizes their results."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from msgspec import Meta

from brain import AssistContext, Context, Refused, Result, dates, specialist
from specialists._kit.examples import read_examples
from specialists._kit.requests import compile_requests
from specialists._kit.text import one_line

Operation = Literal["list", "create", "cancel", "summarize", "feedback"]
Schedule = Annotated[str, Meta(max_length=500)]
TaskId = Annotated[str, Meta(max_length=100)]
FIELDS: Mapping[str, tuple[str, ...]] = {
    "create": ("prompt", "title", "profile", "when", "every", "tell"),
    "list": (),
    "cancel": ("task_id",),
    "summarize": ("task_id", "summary"),
    "feedback": ("message",),
}
"""Parameters of the operations."""
REQUIRED: Mapping[str, tuple[str, ...]] = {**FIELDS, "create": ("prompt",)}
MAX_TASKS = 20
MAX_TEXT_SHOWN = 500
"""Maximum characters of a result, a summary or a reason in a list."""
_CANCELED = {
    "canceled": "Canceled the task {title}.",
    "not_found": "There is no task with the ID {id}.",
    "already_done": "The task {title} has already ended ({state}), so there is nothing to cancel.",
    "already_canceled": "The task {title} was already canceled.",
    "invalid": '"{id}" is not the ID of a task. List the tasks, and use an ID from the list.',
}


_CHANGES = compile_requests(
    "remind_(?:me|us)(?!_(?:which|what|who|where|when|how|of)) every each once_an? schedule create add cancel stop "
    "delete remove pause resume start run watch monitor notify_me alert_me let_me_know tell_me_(?:when|if|as_soon) "
    "from_now_on erinnere?_(?:mich|uns) jede[nrs]? täglich wöchentlich benachrichtige sage?_(?:mir_)?bescheid starte "
    "plane storniere? lösche beobachte überwache rappelle-(?:moi|nous) chaque tous_les toutes_les préviens-moi "
    "avertis-moi programme crée annule supprime surveille "
    "recuérda(?:me|nos) cada todos_los todas_las avísame programa crea cancela borra vigila",
    "erinnern planen anlegen löschen stornieren",
)
_BACKGROUND = re.compile(r"\bin the background\b|\bim hintergrund\b|\ben arrière-plan\b|\ben segundo plano\b", re.I)
_ASKS = re.compile(r"\W*(?:do|are|is|what|which|list|show|was|welche|zeig|quelles?|qué|cuáles|muestra)\b", re.I)
_READS_ONLY = (
    "With this model, Brain only lists your tasks. To add one, start the message with /task. Change others in the list "
    "of tasks."
)


def make_params(message: str, context: AssistContext) -> Mapping[str, str]:
    """Return the parameters of an assisted call.

    Raises:
        Refused: The message asks to create or change a task.
    """
    if _CHANGES.search(message) or (_BACKGROUND.search(message) and not _ASKS.match(message)):
        raise Refused(_READS_ONLY)
    return {"operation": "list"}


def is_read_only(params: Mapping[str, Any]) -> bool:
    """Whether a call changes no task. A summary or feedback is only text for the user or the operator."""
    return params.get("operation") in ("list", "summarize", "feedback")


def needs_approval(params: Mapping[str, Any]) -> bool:
    """Whether a call creates a schedule, even for one time."""
    return params.get("operation") == "create" and bool(params.get("when") or params.get("every"))


async def preview(params: Mapping[str, Any], *, context: Context) -> Result | None:
    """Return what a call would do, for the person who approves it.

    Raises:
        Refused: The request is invalid.
    """
    check_fields(params)
    view = context.tasks
    if view is None:
        return None
    match params["operation"]:
        case "create":
            when, every = params.get("when") or "", params.get("every") or ""
            title = one_line(params.get("title") or "", 100)
            named = re.fullmatch("in (.+)|(.+) from now", one_line(when, 100), re.IGNORECASE)
            delay = named if named and not every and dates.is_delay(when) else None
            schedule = view.describe_schedule(when, every, params.get("profile") or "standard")
            if delay:  # a person may approve it hours later
                schedule = f"once, {delay[1] or delay[2]} after you approve it"
            lines = [
                f'Create the task "{title}"' if title else "Create a task",
                f"Schedule: {schedule}",
                *(["Profile: expert"] if params.get("profile") == "expert" else []),
                *(["Results are not reported."] if params.get("tell") == "never" else []),
                f"Instruction: {' '.join(params['prompt'].split())}",
            ]
            return Result("\n".join(lines), data=view.parse_time(when) if when and not delay else None)
        case "cancel" | "summarize":
            task_id = params["task_id"].strip()
            titles = [f' "{one_line(task.title, 100)}"' for task in await view.list_tasks(200) if task.id == task_id]
            text = f"{params['operation'].capitalize()} the task {one_line(task_id, 100)}{''.join(titles)}"
            return Result(f"{text}: {params['summary']}" if params["operation"] == "summarize" else text)
        case "feedback":
            return Result(f"Report to the operator: {params['message']}")
    return None


@specialist(
    requires_user=True,
    approval=needs_approval,
    preview=preview,
    read_only=is_read_only,
    outside=False,  # except lists with results
    timeout=10,
    assist=make_params,
    tags=("tasks", "schedule", "reminder", "background"),
    examples=(
        (
            "every weekday at eight: my calendar",
            {
                "operation": "create",
                "title": "My calendar",
                "prompt": "What is on my calendar today?",
                "every": "every weekday at 8",
            },
        ),
        (
            "remind me tomorrow at 9 to call Ann",
            {
                "operation": "create",
                "title": "Call Ann",
                "prompt": "Remind the user to call Ann.",
                "when": "tomorrow at 9",
            },
        ),
        (
            "compare the attached papers in the background and tell me when you are done",
            {
                "operation": "create",
                "title": "Papers",
                "prompt": "Read the attached papers, and compare their results.",
            },
        ),
        ("which background tasks are running", {"operation": "list"}),
        ("list my tasks", {"operation": "list"}),
        ("show my scheduled tasks and reminders", {"operation": "list"}),
        *read_examples("tasks"),
    ),
)
async def tasks(
    operation: Operation,
    prompt: Annotated[
        Annotated[str, Meta(max_length=8000)] | None,
        Meta(description="complete instruction: a task cannot see this conversation"),
    ] = None,
    title: Annotated[str, Meta(max_length=100)] | None = None,
    profile: Annotated[Literal["standard", "expert"] | None, Meta(description="expert: difficult work")] = None,
    when: Annotated[Schedule | None, Meta(description="ISO 8601 or: tomorrow at 8")] = None,
    every: Annotated[Schedule | None, Meta(description="every weekday at 8, or an RRULE")] = None,
    tell: Annotated[Literal["always", "never"] | None, Meta(description="whether to report results")] = None,
    task_id: TaskId | None = None,
    summary: Annotated[str, Meta(max_length=2000)] | None = None,
    message: Annotated[Annotated[str, Meta(max_length=2000)] | None, Meta(description="for the operator")] = None,
    *,
    context: Context,
) -> Result:
    """Tasks run in the background, now, later or on a schedule, and report their results to the user."""
    params = {
        "operation": operation, "prompt": prompt, "title": title, "profile": profile, "when": when, "every": every,
        "tell": tell, "task_id": task_id, "summary": summary, "message": message,
    }  # fmt: skip
    check_fields(params)
    view = context.tasks
    if view is None:
        raise Refused("tasks are not available here", "do the work in this answer")
    task_id = (task_id or "").strip()
    match operation:
        case "create":
            key = json.dumps([context.key, params]) if context.key else ""  # a retry may make other calls
            approved = context.approved.data if context.approved else None
            when = approved.isoformat() if approved and when else when or ""
            task = await view.create(
                prompt or "", title or "", profile=profile or "standard", when=when, every=every or "",
                tell=tell or "always", key=key,
            )  # fmt: skip
            schedule = view.format_schedule(task) or "in the background"
            return Result(f"Created the task {_name(task)}. It runs {schedule}.", data=task, private=False)
        case "cancel":
            outcome, found = await view.cancel(task_id)
            name, state = ("", "") if found is None else (_name(found), found.state)
            text = _CANCELED[outcome].format(title=name, id=one_line(task_id, 100), state=state)
            return Result(text, private=found is not None and found.private_data)
        case "summarize":
            return Result(f"Saved the summary of the task {_name(await view.summarize(task_id, summary or ''))}.")
        case "feedback":
            await view.feedback(message or "")
            return Result("Reported to the operator.", private=False)
    return await _list_tasks(context)


def check_fields(params: Mapping[str, Any]) -> None:
    """Refuse parameters that do not belong to the operation, and missing ones."""
    operation = str(params["operation"])
    given = [name for name, value in params.items() if value and str(value).strip() and name != "operation"]
    allowed = ", ".join(FIELDS[operation]) or "no other parameters"
    if wrong := [name for name in given if name not in FIELDS[operation]]:
        raise Refused(f"{operation} does not take {', '.join(wrong)}", f"use {allowed}")
    if missing := [name for name in REQUIRED[operation] if name not in given]:
        raise Refused(f"{operation} needs {', '.join(missing)}", f"use {allowed}")


async def _list_tasks(context: Context) -> Result:
    view = context.tasks
    assert view is not None
    found = await view.list_tasks(MAX_TASKS + 1)
    if not found:
        return Result("There are no tasks.", private=False)
    zone = ZoneInfo(context.time_zone)
    lines = [f"Tasks, latest change first, times in {context.time_zone}:"]
    is_untrusted = False
    for task in found[:MAX_TASKS]:
        about: list[str] = [task.state]
        if task.approval is not None:
            about.append(f"waits until a person approves {task.approval.name}")
        if task.is_scheduled and not task.has_ended:
            about.append("paused" if task.paused else view.format_schedule(task))
        if task.state == "waiting" and task.next_run is not None and not task.paused:
            about.append(f"next {task.next_run.astimezone(zone):%Y-%m-%d %H:%M}")
        lines.append(f"- {_name(task)}: {', '.join(about)}")
        texts = {"summary": task.summary, "result": "" if task.summary else task.result, "reason": task.reason,
                 "now": task.activity if task.state == "running" else ""}  # fmt: skip
        for label, text in texts.items():
            if text:
                is_untrusted = True
                lines.append(f"  {label}: {one_line(text, MAX_TEXT_SHOWN)}")
    if len(found) > MAX_TASKS:
        lines.append(f"- There are more; the list has up to {MAX_TASKS}.")
    private = any(task.private_data for task in found[:MAX_TASKS])
    return Result("\n".join(lines), data=list(found[:MAX_TASKS]), outside=is_untrusted, private=private)


def _name(task: Any) -> str:
    return f'{task.id} "{one_line(task.title, 100)}"'
