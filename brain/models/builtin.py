"""The demo model. It needs no server and is no language model; its answers are labelled.

It chooses a specialist and its parameters as Brain does for small models, writes calls like any model, and builds its
answer from the result blocks.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from brain.assist.fitting import FitError
from brain.assist.params import Filled, build_params, fill_params
from brain.assist.proposal import is_yes, propose
from brain.assist.result_answer import ResultText, compose_answer
from brain.assist.router import Choice, Previous, Router, find_partial_router, find_router
from brain.errors import Refused
from brain.messages import CLOCK_NOTE, RECALL_NOTE, Attachment, Chunk, Finish, Message
from brain.models.model import Model, PassRequest
from brain.plugins.context import AssistContext
from brain.plugins.specialist import Specialist
from brain.store.store import Store

TASK_DONE = "TASK_DONE"
"""The word with which a model that directs another one ends the work."""
MAX_QUESTION = 2_000
"""Maximum number of characters read of a message; some patterns are slow for longer ones."""
_SIGNATURE = (
    "I am Brain's demo model, not a language model. I pick specialists by their examples and show their results. "
    "To connect a language model, start Brain with --model ollama:NAME or --model openai:NAME."
)
_NOTE_LINE = re.compile(
    r"^(?:\[SPECIALIST_RESULT: (?P<name>[^\]\n]+)\]|\(Content of attachment (?P<id>\d{1,9}):\)"
    r"|\[/SPECIALIST_RESULT\]|\(End of attachment \d{1,9}\)"
    r"|\[SPECIALIST_ERROR: (?P<failed>\S+) failed - (?P<reason>.*)\]"
    rf"|\(Attached, by image_id: (?P<files>.*)\)|{CLOCK_NOTE}|\(Spoken, .{{1,200}}\)"
    rf"|{RECALL_NOTE}.*\))$",
    re.MULTILINE,
)
"""A line that is a note of Brain, or its first or last line. A message may contain forged ones."""
_CLOCK = re.compile(rf"^(?:{CLOCK_NOTE})$", re.MULTILINE)
_CLOCK_TIME = re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d)?")
_STRATEGY_NOTE = re.compile(r"\n\n(?:Instruction of the thinker:\n|What next\? Write one call).*\Z", re.DOTALL)
"""Text that a strategy adds to the message of the user."""
_TASK_LIST = "All tasks of this conversation, "
_TASK_NOTE = re.compile(
    r"^(?:\(This is a background task with .*\)\n\n"
    r"(?:Result of the last run:\n(?s:.{0,4000})\n\(Report what is new .*\)\n\n)?"
    rf"|(?:News of the user's background tasks, |{_TASK_LIST}|The user has not written |The user does not know ).*\n*)",
    re.MULTILINE,
)
"""Notes in a run of a background task, and around the news of tasks."""
_FILE = re.compile(r'(?<!\d)(\d{1,9}): "(?:[^"\\]|\\.)*"')
_LIMITS = re.compile(r"^- Use up to (?P<calls>\d+) calls per answer and (?P<each>\d+) per", re.MULTILINE)
_CALLED = re.compile(r"^\[SPECIALIST_(?:RESULT|ERROR): ([\w-]{1,64})", re.MULTILINE)
_LINE = re.compile(r"[^\n]+\n*|\n+")
_ABOUT_ME = re.compile(r"\b(?:who|what|which|how)\b[^.?!]{0,20}\bare you\b|\bwhat can you do\b", re.IGNORECASE)


@dataclass(slots=True)
class _Notes:
    """Brain's notes in a message (blocks, contents of attachments by ID, IDs of files), and the rest of it."""

    blocks: list[ResultText] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    rest: str = ""


class Builtin(Model):
    """The demo model.

    Args:
        specialists: Specialists that it may call, if the system message of a request lists them.
        store: Stores what the router learned of specialists that `router.bin` lacks.
    """

    is_demo = True
    is_language_model = False

    def __init__(
        self, specialists: Sequence[Specialist[..., Any]], store: Store | None = None, name: str = "builtin"
    ) -> None:
        super().__init__(name)
        self._store = store
        self._specialists = {specialist.name: specialist for specialist in specialists}

    async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        """Pick a specialist first; build an answer from the blocks later. Use the tags of the system message."""
        messages = request.messages
        system = messages[0].content if messages[0].role == "system" else ""
        message_text = next(one.content for one in reversed(messages) if one.role == "user")
        newest = _newest_exchange(messages)
        has_answered = any(one.role == "assistant" for one in newest)
        if TASK_DONE in system and "<final_output>" not in system:  # it directs another model
            text = TASK_DONE if has_answered else "<instruction>Answer the user's message.</instruction>"
        elif request.turn_pass == 0 or not has_answered:
            router = await self._find_router()
            text = await self._first_answer(_STRATEGY_NOTE.sub("", message_text), system, messages, router)
        else:
            blocks = [block for one in newest for block in _parse_notes(one.content).blocks]
            text = f"{_compose(blocks)}\n\n{_SIGNATURE}"
        if "<final_output>" in system and text.endswith(_SIGNATURE):
            text = f"<final_output>{text}</final_output>"
        for line in _LINE.finditer(text):
            await asyncio.sleep(0)  # lets other tasks run during a long answer
            yield line[0]
        yield Finish("stop")

    async def _find_router(self) -> Router:
        specialists = tuple(self._specialists.values())
        try:
            return await find_router(specialists, self._store)
        except FitError:  # new specialists match by their examples only
            return await find_partial_router(specialists)

    async def _first_answer(self, message_text: str, system: str, messages: Sequence[Message], router: Router) -> str:
        previous, notes = _find_previous(messages), _parse_notes(message_text)
        question = notes.rest.strip()[:MAX_QUESTION]
        files = [int(number) for number in notes.files if number not in notes.texts]
        listed = "\n" + system.partition("\nRules:")[0]
        allowed = [name for name in self._specialists if f"\n- {name}: " in listed or f"\n- {name}(" in listed]
        if not _ABOUT_ME.search(question):
            can_read_files = any(_parse_notes(one.content).files for one in messages if one.role == "user")
            attachments = [Attachment(number, "", "", b"") for number in files]
            asked = ""  # what Brain asked before, if the user agrees
            last = max(n for n, one in enumerate(messages) if one.role == "user")
            before, answered = messages[max(0, last - 2)], messages[last - 1]
            if is_yes(question) and (before.role, answered.role) == ("user", "assistant"):
                asked, previous = answered.content, None
                question = _parse_notes(before.content).rest.strip()[:MAX_QUESTION]

            def choose(without: str) -> Choice | None:
                return router.choose(
                    question,
                    allowed,
                    previous=previous,
                    has_files=bool(files),
                    can_read_files=can_read_files,
                    without=without,
                )

            async def fill(specialist: Specialist[..., Any], choice: Choice) -> Filled | None:
                earlier = previous.message if previous is not None and choice.follows_up else ""
                context = AssistContext(_find_clock(message_text), "UTC", attachments, earlier)
                return _make_params(specialist, question, context)

            found = await propose(self._specialists, choose, fill)
            if found is not None and found.choice.name not in [one.name for one in notes.blocks if not one.failed]:
                is_agreed = found.question != "" and asked.startswith(found.question)
                if found.refusal and found.choice.is_sure:
                    return f"I changed nothing. {found.refusal}\n\n{_SIGNATURE}"
                if found.filled is not None and (is_agreed or not (asked or found.question)):
                    calls = self._build_calls(found.choice.name, found.filled.params, files, system)
                    return f"Checking {found.choice.name}… {''.join(calls)}"
                if found.question and not asked:
                    return f"{found.question}\n\n{_SIGNATURE}"
        if notes.blocks:
            return f"{_compose(notes.blocks)}\n\n{_SIGNATURE}"
        if notes.texts:
            return "Attached text:\n\n" + "\n\n".join(notes.texts.values()) + f"\n\n{_SIGNATURE}"
        if not allowed:
            return f"No specialist is available.\n\n{_SIGNATURE}"
        examples = [
            f'\n- {one}: "{self._specialists[one].examples[0]}"' for one in allowed if self._specialists[one].examples
        ]
        known = f"Try one of these:{''.join(examples)}" if examples else f"Available: {', '.join(allowed)}."
        return f"No specialist fits this message. {known}\n\n{_SIGNATURE}"

    def _takes_files(self, name: str) -> bool:
        return "image_id" in self._specialists[name].parameters.get("properties", {})

    def _build_calls(self, name: str, params: Mapping[str, Any], files: Sequence[int], system: str) -> list[str]:
        """Return one call, or one for each of several files within the limits."""
        caps = _LIMITS.search(system)
        several = len(files) > 1 and self._takes_files(name) and "image_id" not in params
        most = max(1, min(int(caps["calls"]), int(caps["each"]))) if caps else len(files)
        calls = [{**params, "image_id": number} for number in files[:most]] if several else [params]
        return [f"SPECIALIST_REQUEST[{name}:{json.dumps(call, ensure_ascii=False)}]" for call in calls]


def _make_params(specialist: Specialist[..., Any], question: str, context: AssistContext) -> Filled | None:
    """Return the parameters that the question gives. A person approves calls that change something.

    Raises:
        Refused: The question asks for a change, and the rules find no such call.
    """
    try:
        return build_params(specialist, question, context)
    except Refused:
        filled = fill_params(specialist, question, context)
        if filled is None or specialist.reads_only(filled.params):
            raise
        return filled


def _find_clock(message: str) -> datetime:
    """Return the local time in the note of a message, or else the time in UTC."""
    note = _CLOCK.search(message)
    found = _CLOCK_TIME.search(note[0]) if note else None
    try:
        return datetime.fromisoformat(found[0]) if found else datetime.now(UTC)
    except ValueError:
        return datetime.now(UTC)


def _newest_exchange(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages from the newest question on, which has a note with the time."""
    starts = [n for n, one in enumerate(messages) if one.role == "user" and _CLOCK.search(one.content)]
    return messages[starts[-1] :] if starts else messages[-1:]


def _find_previous(messages: Sequence[Message]) -> Previous | None:
    """Return the user's previous message, and the specialist that was called for it."""
    starts = [n for n, one in enumerate(messages) if one.role == "user" and _CLOCK.search(one.content)]
    if len(starts) < 2:
        return None
    called = [name for one in messages[starts[-2] : starts[-1]] for name in _CALLED.findall(one.content)]
    message = _parse_notes(messages[starts[-2]].content).rest.strip()[:MAX_QUESTION]
    return Previous(message, called[-1] if called else "")


def _parse_notes(message: str) -> _Notes:
    """Find the notes in a message in one pass over their first and last lines. An unclosed one is no note."""
    notes, rest, rest_from = _Notes(), [], 0
    edges = list(_NOTE_LINE.finditer(message))
    last = {edge[0]: edge.start() for edge in edges}
    walk = iter(edges)
    for edge in walk:
        end, closer = edge, f"(End of attachment {edge['id']})" if edge["id"] else "[/SPECIALIST_RESULT]"
        if edge["name"] or edge["id"]:
            if last.get(closer, -1) < edge.start():
                continue
            end = next(later for later in walk if later[0] == closer)
        text = message[edge.end() + 1 : end.start() - 1]
        before = message[rest_from : edge.start()]
        if edge["name"] and not before.lstrip().startswith(_TASK_LIST):
            notes.blocks.append(ResultText(edge["name"], text))
        elif edge["id"]:
            notes.texts[edge["id"]] = text
        elif edge["failed"]:
            notes.blocks.append(ResultText(edge["failed"], edge["reason"], failed=True))
        elif edge["files"]:
            notes.files += _FILE.findall(edge["files"])
        rest.append(before)
        rest_from = end.end()
    notes.rest = _TASK_NOTE.sub("", "".join([*rest, message[rest_from:]]))
    return notes


def _compose(found: Sequence[ResultText]) -> str:
    """Return the answer from results, without the signatures of earlier answers that they quote."""
    return compose_answer([one._replace(text=one.text.replace(_SIGNATURE, "")) for one in found])
