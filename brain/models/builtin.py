"""The demo model. It needs no server and is no language model; its answers are labelled.

It compares the message with the examples of specialists (SQLite FTS5, bm25), fills the parameters from the text, writes
calls like any model, and builds its answer from the result blocks.
"""

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import regex

from brain.assist.params import build_params, fill_params
from brain.errors import Refused
from brain.events import Resume
from brain.messages import CLOCK_NOTE, RECALL_NOTE, Attachment, Chunk, Finish, Message
from brain.models.circuit_breaker import CircuitBreaker
from brain.models.script import TextOnlyModel
from brain.plugins.context import AssistContext
from brain.plugins.specialist import Specialist
from brain.turn_request import DEFAULT_DECODING, DEFAULT_SAMPLING, Decoding, Sampling

TASK_DONE = "TASK_DONE"
"""The word with which a model that directs another one ends the work."""
VOTES = 3
MAX_WORDS = 40
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
_PASSAGE = re.compile(r"^\[\d+\] (?P<title>.+)\n\n(?P<text>(?s:.*?))(?=\n\n\[\d+\] |\Z)", re.MULTILINE)
_FILE = re.compile(r'(?<!\d)(\d{1,9}): "(?:[^"\\]|\\.)*"')
_LIMITS = re.compile(r"^- Use up to (?P<calls>\d+) calls per answer and (?P<each>\d+) per", re.MULTILINE)
_WORD = regex.compile(r"[\p{L}\p{N}]+")
_LINE = re.compile(r"[^\n]+\n*|\n+")
_ABOUT_ME = re.compile(r"\b(?:who|what|which|how)\b[^.?!]{0,20}\bare you\b|\bwhat can you do\b", re.IGNORECASE)
_POINTING_WORDS = frozenset(["this", "that", "it", "its", "these", "those", "there", "here", "attached"])
_LOOKING_WORDS = frozenset(["say", "says", "see", "show", "shows", "read"])
"""Messages about files have these and few other words."""
_COMMON_WORDS = _LOOKING_WORDS | frozenset(
    _WORD.findall(
        "a about all also am an and another any are as at be been but by can could did didn do does doesn don for from "
        "get give good had has have he hello help her hey hi him his how i if in into is isn it its just know let like "
        "ll make many me more most much my need new no not of on one or other our out own please re she should so some "
        "someone something such take tell than thank thanks that the their them then there these they thing this those "
        "to up use used using ve very want was wasn way we were what when where which who why will with won work would "
        "write you your"
    )
)


@dataclass(frozen=True, slots=True)
class _Block:
    """The result of a specialist, or why it failed."""

    name: str
    text: str
    failed: bool = False


@dataclass(slots=True)
class _Notes:
    """Brain's notes in a message (blocks, contents of attachments by ID, IDs of files), and the rest of it."""

    blocks: list[_Block] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    rest: str = ""


class Builtin(TextOnlyModel):
    """The demo model.

    Args:
        specialists: Specialists that it may call, if the system message of a request lists them.
        name: Name of the model.
    """

    is_demo = True

    def __init__(self, specialists: Sequence[Specialist[..., Any]], name: str = "builtin") -> None:
        self.name = name
        self.breaker = CircuitBreaker()
        self.resume: Resume = "prefill"
        self._specialists = {specialist.name: specialist for specialist in specialists}
        self._examples = sqlite3.connect(":memory:", check_same_thread=False)
        self._examples.execute(
            "CREATE VIRTUAL TABLE examples USING fts5(name UNINDEXED, text, tokenize = 'porter unicode61')"
        )
        rows = [(one.name, text) for one in specialists for text in (*one.examples, f"{one.name} {one.description}")]
        self._examples.executemany("INSERT INTO examples VALUES (?, ?)", rows)
        self._by_example = {_normalize(example): one.name for one in reversed(specialists) for example in one.examples}

    async def stream(
        self,
        messages: Sequence[Message],
        turn_pass: int = 0,
        sampling: Sampling = DEFAULT_SAMPLING,
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        may_call: bool = True,
        decoding: Decoding = DEFAULT_DECODING,
    ) -> AsyncGenerator[Chunk, None]:
        """Pick a specialist first; build an answer from the blocks later. Use the tags of the system message."""
        system = messages[0].content if messages[0].role == "system" else ""
        message_text = next(one.content for one in reversed(messages) if one.role == "user")
        newest = _newest_exchange(messages)
        has_answered = any(one.role == "assistant" for one in newest)
        if TASK_DONE in system and "<final_output>" not in system:  # it directs another model
            text = TASK_DONE if has_answered else "<instruction>Answer the user's message.</instruction>"
        elif turn_pass == 0 or not has_answered:
            earlier = [one.content for one in messages if one.role == "user"][:-1]
            previous = _parse_notes(earlier[-1]).rest.strip()[:MAX_QUESTION] if earlier else ""
            text = self._first_answer(_STRATEGY_NOTE.sub("", message_text), system, previous)
        else:
            blocks = [block for one in newest for block in _parse_notes(one.content).blocks]
            text = f"{_compose_answer(blocks)}\n\n{_SIGNATURE}"
        if "<final_output>" in system and text.endswith(_SIGNATURE):
            text = f"<final_output>{text}</final_output>"
        for line in _LINE.finditer(text):
            await asyncio.sleep(0)  # lets other tasks run during a long answer
            yield line[0]
        yield Finish("stop")

    async def aclose(self) -> None:
        """Close the index of examples."""
        self._examples.close()

    def _first_answer(self, message_text: str, system: str, previous: str) -> str:
        notes = _parse_notes(message_text)
        question = notes.rest.strip()[:MAX_QUESTION]
        files = [int(number) for number in notes.files if number not in notes.texts]
        listed = "\n" + system.partition("\nRules:")[0]
        allowed = [name for name in self._specialists if f"\n- {name}: " in listed or f"\n- {name}(" in listed]
        name = self._route(question, allowed, with_files=bool(files))
        if name is not None and name not in [block.name for block in notes.blocks if not block.failed]:
            attachments = [Attachment(number, "", "", b"") for number in files]
            context = AssistContext(_find_clock(message_text), "UTC", attachments, previous)
            return f"Checking {name}… " + "".join(self._build_calls(name, question, files, system, context))
        if notes.blocks:
            return f"{_compose_answer(notes.blocks)}\n\n{_SIGNATURE}"
        if notes.texts:
            return "Attached text:\n\n" + "\n\n".join(notes.texts.values()) + f"\n\n{_SIGNATURE}"
        if not allowed:
            return f"No specialist is available.\n\n{_SIGNATURE}"
        examples = [
            f'\n- {one}: "{self._specialists[one].examples[0]}"' for one in allowed if self._specialists[one].examples
        ]
        known = f"Try one of these:{''.join(examples)}" if examples else f"Available: {', '.join(allowed)}."
        return f"No specialist fits this message. {known}\n\n{_SIGNATURE}"

    def _route(self, question: str, allowed: Sequence[str], *, with_files: bool) -> str | None:
        """Return the specialist with the examples most similar to the rare words of the question.

        A question that repeats an example needs no rare words. A question about files may have few words, such as `What
        does it say?`, or only point at them: `What is this?`
        """
        if _ABOUT_ME.search(question):
            return None
        if (name := self._by_example.get(_normalize(question))) in allowed:
            return name
        words = [word.lower() for word in _WORD.findall(question)][:MAX_WORDS]
        common = _COMMON_WORDS - _LOOKING_WORDS if with_files else _COMMON_WORDS
        rare_words = [
            word
            for word in words
            if word not in common and not word.isdecimal() and not (len(word) == 1 and word.isascii())  # as of what's
        ]
        if rare_words or not with_files:
            return self._find_similar(rare_words, allowed)
        of_files = [name for name in allowed if self._takes_files(name)]
        return self._find_similar(words, of_files) if _POINTING_WORDS.intersection(words) else None

    def _find_similar(self, words: Sequence[str], allowed: Sequence[str]) -> str | None:
        if not words or not allowed:
            return None
        terms = [f'^ "{words[0]}"', *(f'"{word}"' for word in words)]  # questions that begin alike are alike
        rows = self._examples.execute(
            "SELECT name, -bm25(examples) FROM examples WHERE text MATCH ? AND name IN "
            f"({','.join('?' * len(allowed))}) ORDER BY bm25(examples) LIMIT ?",
            (" OR ".join(terms), *allowed, VOTES),
        )
        votes: dict[str, float] = {}
        for rank, (name, score) in enumerate(rows, 1):
            votes[name] = votes.get(name, 0.0) + score / rank
        return max(votes, key=lambda name: votes[name], default=None)

    def _takes_files(self, name: str) -> bool:
        return "image_id" in self._specialists[name].parameters.get("properties", {})

    def _build_calls(
        self, name: str, question: str, files: Sequence[int], system: str, context: AssistContext
    ) -> list[str]:
        """Return one call, or one for each of several files within the limits."""
        specialist = self._specialists[name]
        values = _make_params(specialist, question, context)
        caps = _LIMITS.search(system)
        several = len(files) > 1 and self._takes_files(name) and "image_id" not in values
        most = max(1, min(int(caps["calls"]), int(caps["each"]))) if caps else len(files)
        calls = [{**values, "image_id": number} for number in files[:most]] if several else [values]
        return [f"SPECIALIST_REQUEST[{name}:{json.dumps(call, ensure_ascii=False)}]" for call in calls]


def _make_params(specialist: Specialist[..., Any], question: str, context: AssistContext) -> dict[str, Any]:
    """Return the parameters that the question gives. A person approves calls that change something."""
    try:
        params = build_params(specialist, question, context)
    except Refused:
        params = None
    return params or fill_params(specialist, question, context) or {}


def _find_clock(message: str) -> datetime:
    """Return the local time in the note of a message, or else the time in UTC."""
    note = _CLOCK.search(message)
    found = _CLOCK_TIME.search(note[0]) if note else None
    try:
        return datetime.fromisoformat(found[0]) if found else datetime.now(UTC)
    except ValueError:
        return datetime.now(UTC)


def _normalize(question: str) -> str:
    """Return the words of a question in lower case, without punctuation."""
    return " ".join(word.lower() for word in _WORD.findall(question))


def _newest_exchange(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages from the newest question on, which has a note with the time."""
    starts = [n for n, one in enumerate(messages) if one.role == "user" and _CLOCK.search(one.content)]
    return messages[starts[-1] :] if starts else messages[-1:]


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
            notes.blocks.append(_Block(edge["name"], text))
        elif edge["id"]:
            notes.texts[edge["id"]] = text
        elif edge["failed"]:
            notes.blocks.append(_Block(edge["failed"], edge["reason"], failed=True))
        elif edge["files"]:
            notes.files += _FILE.findall(edge["files"])
        rest.append(before)
        rest_from = end.end()
    notes.rest = _TASK_NOTE.sub("", "".join([*rest, message[rest_from:]]))
    return notes


def _compose_answer(blocks: Sequence[_Block]) -> str:
    """Build an answer that quotes the blocks."""
    sentences = []
    for block in blocks:
        if block.failed:
            name = "A call" if block.name == "?" else block.name
            cause = block.text.partition("; ")[0]  # the rest is advice for the model
            sentences.append(f"{name} failed: {cause.rstrip('.')}.")
        else:
            sentences.append(f"From {block.name}:\n\n{_quote_passages(block.text.replace(_SIGNATURE, '').rstrip())}")
    return "\n\n".join(sentences) or "The specialists returned nothing."


def _quote_passages(text: str) -> str:
    """Return numbered passages as quotations under their titles; other text unchanged."""
    head, _, rest = text.partition("\n\n")
    if "\n" in head or not _PASSAGE.match(rest):
        return text
    passages = [
        f"**{passage['title']}**\n\n> " + "\n> ".join(passage["text"].splitlines()).replace("> \n", ">\n")
        for passage in _PASSAGE.finditer(rest)
    ]
    return "\n\n".join([head, *passages])
