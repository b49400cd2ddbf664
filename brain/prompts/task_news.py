"""The note with results of background tasks, for the turn that tells them to the user."""

from collections.abc import Callable, Mapping, Sequence

from brain.markers.neutralize import neutralize
from brain.messages import TaskNews
from brain.prompts import blocks, templates
from brain.task import Packet, Task
from brain.text import BYTES_PER_TOKEN, utf8_size

MIN_RESULTS, MAX_RESULTS = 20, 100
"""Results per note. Each of the first ones has its share of the bytes; the others are added whole or not at all."""
MIN_TASKS, MAX_TASKS = 5, 20
"""The same for the list of tasks."""
MAX_BYTES = 20 * 1024
"""Size of the results, and of the list of tasks."""
CONTEXT_SHARE = 5
"""The results fill at most this fraction of the model's context, and so does the list of tasks."""
FIRST_LINE = 280
"""Characters of a result in the fixed text."""
PROMPT_LENGTH = 300
"""Characters of a prompt in the list of tasks."""


def write_news(
    packets: Sequence[Packet], tasks: Mapping[str, Task], context_tokens: int | None, *, is_report: bool
) -> TaskNews | None:
    """Return the note about the oldest packets; None if nothing of them is left to tell.

    Args:
        packets: The packets that nobody has reported, oldest first.
        is_report: Whether Brain starts the turn. Otherwise the user wrote a message.
    """
    wanted = [packet for packet in packets if _is_current(packet, tasks.get(packet.task_id))]
    if not wanted:
        return None
    limit = MAX_BYTES
    if context_tokens is not None:
        limit = min(MAX_BYTES, context_tokens * BYTES_PER_TOKEN // CONTEXT_SHARE)
    entries = [_entry(packet, tasks.get(packet.task_id)) for packet in wanted[:MAX_RESULTS]]
    results = select_entries(entries, MIN_RESULTS, MAX_RESULTS, limit)
    reported = wanted[: len(results)]
    listed = sorted(tasks.values(), key=lambda task: task.changed, reverse=True)
    lines = select_entries([_line(task) for task in listed], MIN_TASKS, MAX_TASKS, limit)
    texts = [
        templates.NEWS,
        blocks.result_block("tasks", "\n\n".join(results)),
        templates.NEWS_TASKS,
        blocks.result_block("tasks", "\n".join(lines)),
        templates.NEWS_REPORT if is_report else templates.NEWS_ANSWER,
    ]
    cursor = packets[-1].key if len(reported) == len(wanted) else reported[-1].key
    fixed = "\n".join(["Background tasks:", "", *map(_fixed_line, reported)])
    task_ids = tuple(dict.fromkeys(packet.task_id for packet in reported))
    private_data = any(task.private_data for task in tasks.values())
    return TaskNews("\n\n".join(texts), neutralize(fixed), cursor, task_ids, private_data)


def select_entries(texts: Sequence[str], least: int, most: int, max_bytes: int) -> list[str]:
    """Return the first texts, neutralized, within a number of bytes.

    The first `least` texts are cut, so that all of them fit. Later ones are added up to `most` as long as they fit
    whole.
    """
    texts = [neutralize(text) for text in texts[:most]]
    share = max_bytes // least
    reserved = [min(utf8_size(text), share) for text in texts[:least]]
    left = max_bytes
    selected: list[str] = []
    for n, text in enumerate(texts):
        room = left - sum(reserved[n + 1 :])
        if utf8_size(text) > room:
            if n >= least:
                break
            text = blocks.result_text(text, room)
        selected.append(text)
        left -= utf8_size(text)
    return selected


def _is_current(packet: Packet, task: Task | None) -> bool:
    """Whether a packet is still worth telling. An approval may have been decided meanwhile."""
    return packet.kind != "approval" or (task is not None and task.approval is not None)


_HEADS: Mapping[str, Callable[[str], str]] = {
    "result": lambda title: f"{title} succeeded",
    "failure": lambda title: f"{title} failed",
    "skipped": lambda title: f"{title} was skipped",
    "approval": lambda title: f"{title} waits for an approval of the user",
    "paused": lambda title: f"{title} is paused",
}


def _text(packet: Packet, task: Task | None) -> str:
    """Return the whole text of a packet, which is longer in the task as long as that has not run again."""
    is_newest = task is not None and packet.kind == "result" and task.run == packet.run and not task.reason
    return task.result or packet.text if task is not None and is_newest else packet.text


def _entry(packet: Packet, task: Task | None) -> str:
    head = _HEADS[packet.kind](f'Task {packet.task_id} "{packet.title}", run {packet.run},')
    return f"{head} ({packet.at:%Y-%m-%d %H:%M} UTC):\n{_text(packet, task)}"


def _line(task: Task) -> str:
    more = [f"next run {task.next_run:%Y-%m-%d %H:%M} UTC"] if task.next_run is not None else []
    more += [f"summary: {' '.join(task.summary.split())}"] if task.summary else []
    more += ["paused"] if task.paused else []
    prompt = " ".join(task.prompt.split())[:PROMPT_LENGTH]
    return f'{task.id} "{task.title}": {", ".join([task.state, *more])}; prompt: {prompt}'


def _fixed_line(packet: Packet) -> str:
    head = _HEADS[packet.kind](packet.title).replace("an approval of the user", "your approval")
    lines = packet.text.strip().splitlines()
    first = " ".join(lines[0].split())[:FIRST_LINE] if lines else ""
    return f"- {head}: {first}" if first else f"- {head}."
