"""Wing: a stand-in that needs nothing. It is no language model, and says so.

It picks specialists by comparing the message with the questions they say they answer (SQLite FTS5, bm25), fills their
parameters from the text, speaks the same markers as any model, and words its answer from the blocks.
"""

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

import regex

from brain.errors import Refused
from brain.messages import Chunk, Finish, Message, Resume

VOTERS = 3
_SIGNATURE = (
    "I am Brain's built-in stand-in, not a language model: I only pick specialists and pass on what they find. "
    "Start Brain with --model ollama:NAME or --model openai:NAME to talk to a real one."
)
_BLOCK = re.compile(
    r"^\[SPECIALIST_RESULT: (?P<name>[^\]\n]+)\]\n(?P<text>.*?)\n\[/SPECIALIST_RESULT\]$"
    r"|^\[SPECIALIST_ERROR: (?P<failed>\S+) failed - (?P<reason>.*)\]$",
    re.MULTILINE | re.DOTALL,
)
_ATTACHED = re.compile(r"^\(Attached, by image_id: (?P<files>.*)\)$", re.MULTILINE)
_FILE = re.compile(r'(\d+): "(?:[^"\\]|\\.)*"')
_WORD = regex.compile(r"[\p{L}\p{N}]+")
_PIECE = re.compile(r"\s*\S+\s*")
_COMMON = frozenset(
    _WORD.findall(
        "a about all am an and any are as at be been but by can could did do does for from get give had has have he "
        "her him his how i if in into is it its know let like make me my no not of on one or our out please say see "
        "she should show so some such tell than that the their them then there these they this those to up use was "
        "we were what when where which who why will with would you your"
    )
)


class Known(Protocol):
    """What the stand-in must know of a specialist."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def examples(self) -> Sequence[str]: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...


class Builtin:
    """The stand-in.

    Args:
        specialists: whom it may pick; of these, only those that a request's system message tells of.
    """

    name = "builtin"
    stand_in = True
    context_tokens = None
    sees_images = False

    def __init__(self, specialists: Sequence[Known]) -> None:
        self.resume: Resume = "prefill"
        self._known = {specialist.name: specialist for specialist in specialists}
        self._examples = _index(specialists)

    async def stream(self, messages: Sequence[Message], turn_pass: int = 0) -> AsyncGenerator[Chunk, None]:
        """Routes in the first pass, words an answer when there are blocks."""
        system = messages[0].content if messages[0].role == "system" else ""
        question = next(message.content for message in reversed(messages) if message.role == "user")
        if turn_pass == 0:
            text = self._opening(question, system)
        else:
            text = f"{_worded(_BLOCK.finditer(messages[-1].content))}\n\n{_SIGNATURE}"
        for piece in _PIECE.findall(text):
            await asyncio.sleep(0)  # so that a long answer shares the loop
            yield piece
        yield Finish("stop")

    async def describe(self, image: bytes, question: str) -> str:
        """The stand-in sees nothing."""
        raise Refused("no model that sees images is connected")

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """The stand-in has no vectors."""
        raise Refused("no model with embeddings is connected")

    async def aclose(self) -> None:
        """Nothing is open but the index."""
        self._examples.close()

    def _opening(self, question: str, system: str) -> str:
        blocks = list(_BLOCK.finditer(question))
        files = [int(number) for note in _ATTACHED.findall(question) for number in _FILE.findall(note)[:10] if number]
        asked = _ATTACHED.sub("", _BLOCK.sub("", question)).strip()
        allowed = [name for name in self._known if f"- {name}: " in system]
        name = self._route(asked, allowed, with_files=bool(files))
        answered = [block["name"] for block in blocks if block["name"]]
        if name is not None and name not in answered:
            return f"I will ask {name}. " + "".join(self._markers(name, asked, files))
        if blocks:
            return f"{_worded(blocks)}\n\n{_SIGNATURE}"
        return f"I found no specialist for this. I can ask: {', '.join(allowed) or 'nobody'}.\n\n{_SIGNATURE}"

    def _route(self, asked: str, allowed: Sequence[str], *, with_files: bool) -> str | None:
        """The specialist whose examples are most like the question; without files, one content word must be shared."""
        words = [word.lower() for word in _WORD.findall(asked)][:40]
        if with_files:
            allowed = [name for name in allowed if "image_id" in self._known[name].parameters.get("properties", {})]
        elif not (words := [word for word in words if word not in _COMMON]):
            return None
        if not words or not allowed:
            return None
        rows = self._examples.execute(
            "SELECT name, -bm25(examples) FROM examples WHERE examples MATCH ? AND name IN "
            f"({','.join('?' * len(allowed))}) ORDER BY bm25(examples) LIMIT ?",
            (" OR ".join(f'"{word}"' for word in words), *allowed, VOTERS),
        )
        votes: dict[str, float] = {}
        for rank, (name, score) in enumerate(rows, 1):
            votes[name] = votes.get(name, 0.0) + score / rank
        return max(votes, key=lambda name: votes[name], default=None)

    def _markers(self, name: str, asked: str, files: Sequence[int]) -> list[str]:
        """One call, or one for each of several files."""
        parameters = self._known[name].parameters
        values = _filled(parameters, asked)
        several = len(files) > 1 and "image_id" in parameters.get("properties", {}) and "image_id" not in values
        calls = [{**values, "image_id": number} for number in files] if several else [values]
        return [f"SPECIALIST_REQUEST[{name}:{json.dumps(call, ensure_ascii=False)}]" for call in calls]


def _index(specialists: Sequence[Known]) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute("CREATE VIRTUAL TABLE examples USING fts5(name UNINDEXED, text, tokenize = 'porter unicode61')")
    rows = [(s.name, text) for s in specialists for text in (*s.examples, f"{s.name} {s.description}")]
    database.executemany("INSERT INTO examples VALUES (?, ?)", rows)
    return database


def _filled(parameters: Mapping[str, Any], asked: str) -> dict[str, Any]:
    """Values for a specialist's parameters, as far as the text has them."""
    required = parameters.get("required", ())
    values: dict[str, Any] = {}
    for name, schema in parameters.get("properties", {}).items():
        value = _value(name, schema, asked, required=name in required)
        if value is not None:
            values[name] = value
    return values


def _value(name: str, schema: Mapping[str, Any], asked: str, *, required: bool) -> Any:
    word = name.partition("_")[0]
    kinds = {option.get("type") for option in (schema, *schema.get("anyOf", ())) if isinstance(option, Mapping)}
    for choice in schema.get("enum", ()):
        if isinstance(choice, str) and re.search(rf"\b{re.escape(choice)}\b", asked, re.I):
            return choice
    if "boolean" in kinds:
        return True if re.search(rf"\b{re.escape(word)}", asked, re.I) else None
    if kinds & {"integer", "number"}:
        found = re.search(rf"\b{re.escape(word)}\s*#?(\d{{1,9}})", asked, re.I)
        found = found or (re.search(r"(-?\d{1,9}(?:\.\d+)?)", asked) if required else None)
        return (float(found[1]) if "number" in kinds else int(float(found[1]))) if found else None
    if "string" in kinds and required and "enum" not in schema:
        quoted = re.search(r"[\"“'‘]([^\"”'’]{2,200})[\"”'’]", asked)
        return quoted[1] if quoted else asked[:500]
    return None


def _worded(blocks: Any) -> str:
    """An answer from blocks: quoted, not understood."""
    sentences = []
    for block in blocks:
        if block["name"]:
            sentences.append(f"This is what {block['name']} found:\n\n{block['text']}")
        else:
            sentences.append(f"{block['failed']} could not help: {block['reason']}.")
    return "\n\n".join(sentences) or "The specialists found nothing."
