"""Brain as the page's tests serve it: a model that says what a test lets it, and specialists for every kind of card."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from serving import Player, Server, brain_served

from brain import Citation, Context, Progress, Registry, Result, specialist
from brain.messages import Chunk, Finish, Message
from brain.turn_request import UNSAID, Sampling
from page.line import Line, line_to

HOSTILE = "<img src=x onerror=hacked=1><b>bold</b>"
"""What would be run, or at least be bold, where text is taken for HTML."""


class Conductor(Player):
    """A model that says what a test lets it, chunk by chunk; `ends` ends its pass, `fails` breaks it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str = "player") -> None:
        super().__init__(name=name)
        self._loop = loop
        self._chunks: asyncio.Queue[Chunk | Exception] = asyncio.Queue()

    def says(self, *chunks: Chunk | Exception) -> None:
        for chunk in chunks:
            self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)

    def ends(self) -> None:
        self.says(Finish("stop"))

    def fails(self) -> None:
        self.says(RuntimeError("the password is swordfish"))

    def says_slowly(self, text: str) -> None:
        """Character by character: each is told to the reader, if it is to be told, before the next is said."""
        for character in text:
            self.says(character)
            asyncio.run_coroutine_threadsafe(self._chunks.join(), self._loop).result(5)

    async def stream(
        self, messages: Sequence[Message], turn_pass: int = 0, sampling: Sampling = UNSAID
    ) -> AsyncGenerator[Chunk, None]:
        self.asked.append(list(messages))
        self.open.set()
        try:
            while True:
                chunk = await self._chunks.get()
                try:
                    if isinstance(chunk, Exception):
                        raise chunk
                    yield chunk
                    if isinstance(chunk, Finish):
                        return
                finally:
                    self._chunks.task_done()
        finally:
            self.closed.append(time.monotonic())

    def question(self, number: int = -1) -> str:
        """What the model was asked, by the newest message, behind the note of the time."""
        assert self.open.wait(5)
        return _behind_clock(self.asked[number][-1].content)

    def questions(self) -> list[str]:
        """All that the user said, in the newest request."""
        assert self.open.wait(5)
        return [_behind_clock(message.content) for message in self.asked[-1] if message.role == "user"]


def _behind_clock(content: str) -> str:
    clock, _, question = content.partition("\n\n")
    return question if clock.startswith("It is ") else content


@dataclass
class Stage:
    """Brain, its model, the line to it.

    Attributes:
        library: what the specialist `wiki` waits for, halfway.
        burnt: the titles that the specialist `burns` burnt.
    """

    brain: Server
    model: Conductor
    line: Line
    library: threading.Event = field(default_factory=threading.Event)
    burnt: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.line.url

    def forgets_turns(self) -> None:
        """The journals of all turns that are over are gone, as behind a restart, or for one who slept for long."""
        engine = self.brain.engine

        async def forget() -> None:
            for conversation in await engine.store.conversations("local"):
                engine.turns.forget(conversation.id, "local")

        self.brain.on_loop(forget())

    def let_go(self) -> None:
        """Lets all go on that waits for the test."""
        self.line.restore()
        self.library.set()
        self.model.ends()


def request(name: str, /, **params: object) -> str:
    """The marker by which a model asks for a specialist."""
    return f"SPECIALIST_REQUEST[{name}:{json.dumps(params, ensure_ascii=False)}]"


@contextmanager
def staged(**settings: object) -> Iterator[Stage]:
    """Brain, served with these settings."""
    registry = Registry()
    with brain_served(registry, STORE="memory:", **settings) as brain, line_to(brain.port) as line:
        stage = Stage(brain, Conductor(brain.loop), line)
        _fill(registry, stage)
        brain.play(stage.model)
        try:
            yield stage
        finally:
            stage.let_go()


def _fill(registry: Registry, stage: Stage) -> None:
    @specialist(examples=["where is Bern"], timeout=30, outside=False)
    def wiki(title: str) -> Iterator[Progress | Result]:
        """Looks a title up."""
        yield Progress("page 2 of 4", 0.5)
        stage.library.wait(20)
        text = "two  spaces\n  kept"
        yield Result(text, [Citation("1", "Bern", "https://example.org/bern"), Citation("2", "A book")])

    @specialist(approval="always")
    def burns(title: str, copies: int = 1) -> str:
        """Burns a book."""
        stage.burnt.append(title)
        return f"{title} is ashes."

    for one in (wiki, burns, clock, reader, breaks, hostile, turns, moon):
        registry.add(one)


@specialist
def clock() -> str:
    """Tells the time."""
    return "It is noon."


@specialist(activates_on=["text", "image", "pdf"])
def reader(*, context: Context) -> list[str]:
    """Reads files."""
    return [f"{a.id} {a.name} {a.type} {len(a.data)}" for a in context.attachments]


@specialist
def breaks() -> str:
    """Fails."""
    raise RuntimeError("the password is swordfish")


@specialist
def hostile(text: str = HOSTILE) -> Result:
    """Tells what would be run where it is taken for HTML."""
    links = ["javascript:hacked=1", "data:text/html,<script>hacked=1</script>", f"https://example.org/{HOSTILE}"]
    return Result(f"{HOSTILE}\n{text}", [Citation(str(n), HOSTILE, link) for n, link in enumerate(links, 1)])


@specialist
def turns() -> Result:
    """Names a source in letters that turn what stands behind them."""
    return Result("Read.", [Citation("1", "\u2067Sign in \u202eat", "https://moc.example.evil.example/login")])


@specialist(needs=lambda: "it needs a moon: buy one", examples=["how is the moon"])
def moon() -> str:
    """Looks at the moon."""
    return ""
