"""What the models share that a server has: to ask what it is, to ask whether it answers, and one pass."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Self

from brain.errors import ModelError, PrefillRefused
from brain.events import Resume
from brain.messages import Chunk, Message
from brain.models.reply import Answer, Reply, answered, chunks
from brain.models.script import EmbeddingModel
from brain.net import client
from brain.settings import ModelRow
from brain.turn_request import UNSAID, Sampling

READY_SECONDS = 2.0
PROBE_SECONDS = 1.0
"""How long an answer to `find_problem` is kept, so that those who want to know cannot load the server."""


class Remote(ABC):
    """One model of one server.

    Args:
        name: as the server knows it.
        url: the server's base URL.
        key: for the Authorization header.
        resume: overrides what would be chosen for the server.
        sees: overrides what the server says of its taking images; None where it is to be believed.
        embeddings: the server's model that makes vectors, if it is another.
        context: overrides what the server says of its context, in tokens.
        called: what Brain calls it; its kind and name when left out.

    Attributes:
        template: what the server tells of the model's chat template, with the tokens that begin and end a text.
        warning: what the server's own words say against the model, if anything.
        embedder: what embeddings are asked of instead, if anything.
    """

    is_demo = False
    is_language_model = True
    context_tokens: int | None = None
    embedder: EmbeddingModel | None = None
    template = ""
    _kind: str
    _path: str
    _default_url: str
    _usual_resume: Resume

    def __init__(
        self,
        name: str,
        url: str | None = None,
        key: str | None = None,
        resume: Resume | None = None,
        sees: bool | None = None,
        embeddings: str | None = None,
        context: int | None = None,
        called: str | None = None,
    ) -> None:
        self.name = called or f"{self._kind}:{name}"
        self.resume: Resume = resume or self._usual_resume
        self.sees_images = bool(sees)
        self.warning: str | None = None
        self._model = name
        self._embeddings = embeddings or name
        self._wanted_resume = resume
        self._wanted_sees = sees
        self._wanted_context = context
        if context is not None:
            self.context_tokens = context
        self._missed = False
        self._url = (url or self._default_url).rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else None
        self._http = client.Client(self._url, self._headers)
        self._question = self._http.question(self._path)
        self._probing = asyncio.Lock()
        self._probed: tuple[float, str | None] | None = None

    @classmethod
    def of(cls, row: ModelRow) -> Self:
        """The model of a row that has its server and key."""
        return cls(
            row.model, row.url, row.key, row.resume, row.sees_images, row.embeddings, row.context, called=row.name
        )

    async def identify(self) -> str:
        """Asks the server what it and the model are, by free requests; a sentence for people.

        What was known before is kept until all of it is answered.

        Raises:
            ModelError: when it cannot be reached, does not let us in, or does not have the model.
        """
        try:
            said = await self._learn()
        except ModelError:
            self._missed = True
            raise
        self._missed = False
        if self._wanted_sees is not None:
            self.sees_images = self._wanted_sees
        return f"{said}; it sees images" if self.sees_images else said

    async def find_problem(self) -> str | None:
        """What is wrong with the server; None when it answers. It changes nothing for the passes that run meanwhile."""
        clock = asyncio.get_running_loop().time
        async with self._probing:
            if self._probed is None or clock() - self._probed[0] > PROBE_SECONDS:
                found = await self._find_problem()
                self._probed = clock(), found
            return self._probed[1]

    async def _find_problem(self) -> str | None:
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._probe()
        except ModelError as error:
            return error.message
        except TimeoutError:
            return "The model server does not answer."
        return None

    def stream(
        self, messages: Sequence[Message], turn_pass: int = 0, sampling: Sampling = UNSAID
    ) -> AsyncGenerator[Chunk, None]:
        """One pass over the server's chat API, as much as one read brings in one chunk."""
        return chunks(partial(self._answer, messages, sampling), self._reply())

    async def _answer(self, messages: Sequence[Message], sampling: Sampling) -> Answer:
        """The server's answer, from its first byte on."""
        if self._missed:  # it did not answer when it was asked what it is
            with suppress(ModelError):
                await self.identify()
        response = await self._http.ask(self._question, self._request(messages, sampling))
        try:
            return await answered(response, resumed=messages[-1].role == "assistant")
        except PrefillRefused:
            self.resume = self._wanted_resume = "message"
            raise

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text, of EMBEDDINGS, else of this model's server.

        Raises:
            Refused: when the server makes none.
        """
        return await (self._embed if self.embedder is None else self.embedder.embed)(texts)

    async def describe(self, image: bytes, question: str) -> str:
        """What the model sees in an encoded image."""
        async with aclosing(self.stream([Message("user", question, (image,))])) as found:
            return "".join([chunk async for chunk in found if isinstance(chunk, str)])

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    @abstractmethod
    async def _learn(self) -> str:
        """Asks first, then changes the attributes in one step."""

    @abstractmethod
    async def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text, of this server."""

    @abstractmethod
    async def _probe(self) -> None:
        """One free request that changes nothing."""

    @abstractmethod
    def _reply(self) -> Reply:
        """A reader for one answer."""

    @abstractmethod
    def _request(self, messages: Sequence[Message], sampling: Sampling) -> bytes:
        """The body that asks for one pass."""
