"""Brain for the tests of the page: a model that the test controls, and specialists for every kind of card."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from brain_servers import Server, brain_served
from limits import WAIT_SECONDS
from playwright.sync_api import Locator, expect
from turn_helpers import Player

from brain import Citation, Context, Progress, Registry, Result, specialist
from brain.messages import Chunk, Exchange, Finish
from brain.models.model import PassRequest
from brain.prompts.templates import clock_of
from page.chat import Chat
from page.network import Network

HOSTILE = "<img src=x onerror=hacked=1><b>bold</b>"
"""Text that runs, or is bold, if a page takes it for HTML."""


class ControlledModel(Player):
    """A model that writes the chunks that a test sends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str = "player") -> None:
        super().__init__(name=name)
        self._loop = loop
        self._chunks: asyncio.Queue[Chunk | Exception] = asyncio.Queue()

    def write(self, *chunks: Chunk | Exception) -> None:
        for chunk in chunks:
            self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)

    def end(self) -> None:
        """End its present or next pass."""
        self.write(Finish("stop"))

    def fail(self) -> None:
        self.write(RuntimeError("the password is swordfish"))

    def write_slowly(self, text: str) -> None:
        """Write each character after Brain has handled the previous one."""
        for character in text:
            self.write(character)
            asyncio.run_coroutine_threadsafe(self._chunks.join(), self._loop).result(WAIT_SECONDS)

    async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        self.requests.append(list(request.messages))
        self.begun.set()
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

    def questions(self) -> list[str]:
        """All messages of the user in the newest request, without the clock note."""
        assert self.begun.wait(WAIT_SECONDS)
        contents = [message.content for message in self.requests[-1] if message.role == "user"]
        return [text.partition("\n\n")[2] if clock_of(text) else text for text in contents]


@dataclass
class PageServer:
    """A server, its model, and the network to it.

    Attributes:
        wiki_release: the specialist `wiki` waits for it halfway.
        burned: titles of approved calls of `burns`.
    """

    brain: Server
    model: ControlledModel
    network: Network
    wiki_release: threading.Event = field(default_factory=threading.Event)
    burned: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.network.url

    @property
    def store(self) -> Any:
        return self.brain.engine.store

    def add(self, specialist: Any, *origin: str) -> None:
        """Add a specialist."""
        self.brain.engine.registry.add(specialist, *origin)

    def begin_elsewhere(self, question: Exchange) -> Any:
        """Start an exchange in the newest conversation, as another process does; return its record."""
        conversation = self.brain.on_loop(self.store.list_conversations("local"))[0]
        return self.brain.on_loop(self.store.write_question("local", conversation.id, question, ()))

    def wait_until_quiet(self) -> None:
        """Wait until all turns and requests have ended."""
        assert self.brain.left() == []

    def forget_turns(self) -> None:
        """Drop the event logs of ended turns, as a restart does."""
        engine = self.brain.engine

        async def forget() -> None:
            for conversation in await engine.store.list_conversations("local"):
                engine.runs.forget(conversation.id, "local")

        self.brain.on_loop(forget())

    def finish(self, chat: Chat, *chunks: Chunk) -> None:
        """Write the rest of an answer and wait until the page shows its end."""
        self.model.write(*chunks)
        self.model.end()
        chat.wait_until_idle()

    def answer(self, chat: Chat, question: str = "hello", *chunks: Chunk) -> Locator:
        """Send a message and complete its answer."""
        answer = chat.ask(question)
        self.finish(chat, *chunks)
        expect(chat.questions.last).to_contain_text(question.partition("\n")[0])
        return answer


def request(name: str, /, **params: object) -> str:
    """The marker with which a model calls a specialist."""
    return f"SPECIALIST_REQUEST[{name}:{json.dumps(params, ensure_ascii=False)}]"


@contextmanager
def serve_page(network: Network, **settings: object) -> Iterator[PageServer]:
    """Brain, served with these settings."""
    registry = Registry()
    with brain_served(registry, STORE="memory:", **settings) as brain:
        network.connect_to(brain.port)
        server = PageServer(brain, ControlledModel(brain.loop), network)
        _add_specialists(registry, server)
        brain.play(server.model)
        try:
            yield server
        finally:
            network.restore()
            server.wiki_release.set()
            server.model.end()


def _add_specialists(registry: Registry, server: PageServer) -> None:
    @specialist(examples=["where is Bern"], timeout=60, read_only=True, outside=False)
    def wiki(title: str) -> Iterator[Progress | Result]:
        """Looks a title up."""
        yield Progress("page 2 of 4", 0.5)
        server.wiki_release.wait(50)
        text = "two  spaces\n  kept"
        yield Result(text, [Citation("1", "Bern", "https://example.org/bern"), Citation("2", "A book")])

    @specialist(approval="always")
    def burns(title: str, copies: int = 1) -> str:
        """Burns a book."""
        server.burned.append(title)
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
    """Returns text that runs if a page takes it for HTML."""
    links = ["javascript:hacked=1", "data:text/html,<script>hacked=1</script>", f"https://example.org/{HOSTILE}"]
    return Result(f"{HOSTILE}\n{text}", [Citation(str(n), HOSTILE, link) for n, link in enumerate(links, 1)])


@specialist
def turns() -> Result:
    """Returns a source whose title reverses the letters after it."""
    return Result("Read.", [Citation("1", "\u2067Sign in \u202eat", "https://moc.example.evil.example/login")])


@specialist(needs=lambda: "it needs a moon: buy one", examples=["how is the moon"])
def moon() -> str:
    """Looks at the moon."""
    return ""
