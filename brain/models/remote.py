"""The base class of models with a server: identification, health, streaming and embeddings."""

import asyncio
import re
from abc import abstractmethod
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing, suppress
from functools import partial

from brain.errors import ModelError, PrefillRefused, ToolsRefused
from brain.events import Resume
from brain.messages import Chunk, Message
from brain.models import failures
from brain.models.model import Model, PassRequest
from brain.models.reply import Answer, Reply, open_answer, stream_chunks
from brain.net import client
from brain.settings import ModelRow
from brain.settings.models import Prefixes

READY_SECONDS = 2.0
PROBE_SECONDS = 1.0
"""Time for which a result of `find_problem` is reused, to protect the server."""

_PREFIXES = (
    (re.compile(r"\be5-(?:small|base|large)(?!.*instruct)"), Prefixes("query: ", "passage: ", "query: ")),
    (
        re.compile(r"\bbge-(?:small|base|large)-en"),
        Prefixes("Represent this sentence for searching relevant passages: "),
    ),
    (re.compile(r"\bnomic-embed-text"), Prefixes("search_query: ", "search_document: ", "search_document: ")),
)
"""What the authors of a model tell to put before texts, by a pattern of its name."""


class Remote(Model):
    """One model of one server.

    Args:
        row: The model with its server and key, and values that override the server's.

    Attributes:
        offers: The names that the server accepts, if this one is not among them.
    """

    accepts_tools = True
    row: ModelRow
    offers: Sequence[str] = ()
    _path: str
    _default_resume: Resume

    def __init__(self, row: ModelRow) -> None:
        assert row.url is not None
        super().__init__(row.name)
        self.resume = row.resume or self._default_resume
        self.sees_images = bool(row.sees_images)
        self.is_local = row.is_local
        self.row = row
        self._fixed_resume = row.resume
        if row.context is not None:
            self.context_tokens = row.context
        self._model = row.model
        self._embedding_model = row.embeddings or row.model
        self._prefixes = row.embeddings_prefix or find_prefixes(self._embedding_model)
        self._has_failed = False  # the last time it was identified
        self._has_refused_tools = False
        self._url = row.url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {row.key}"} if row.key else None
        self._http = client.HTTPClient(self._url, self._headers)
        self._request = self._http.prepare_post(self._path)
        self._probing = asyncio.Lock()
        self._probed: tuple[float, str | None] | None = None

    async def identify(self) -> str:
        """Identify the server and the model with free requests; return a phrase for people.

        Attributes change only after all requests have succeeded.

        Raises:
            ModelError: The server is unreachable, rejects the key, or does not have the model.
        """
        try:
            description = await self._identify()
        except ModelError:
            self._has_failed = True
            raise
        self._has_failed = False
        self.accepts_tools = self.accepts_tools and not self._has_refused_tools
        if self.row.context is not None:
            self.context_tokens = self.row.context
        if self.row.sees_images is not None:
            self.sees_images = self.row.sees_images
        base = ", a base model without a chat template" if self.is_base else ""
        return f"{description}{base}{', image input' if self.sees_images else ''}"

    async def find_problem(self) -> str | None:
        now = asyncio.get_running_loop().time
        async with self._probing:
            if self._probed is None or now() - self._probed[0] > PROBE_SECONDS:
                problem = None
                try:
                    async with asyncio.timeout(READY_SECONDS):
                        await self._probe()
                except ModelError as error:
                    problem = error.message
                except TimeoutError:
                    problem = failures.NO_ANSWER
                self._probed = now(), problem
            return self._probed[1]

    def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        """Stream one pass; each read becomes one chunk."""
        offered = [tool["function"]["name"] for tool in request.tools]
        return stream_chunks(partial(self._ask, request), self._build_reply(offered), self._url, request.take)

    async def _ask(self, request: PassRequest) -> Answer:
        await self._identify_again()
        response = await self._http.send_prepared(self._request, self._build_body(request))
        is_resumed = request.messages[-1].is_unfinished
        try:
            return await open_answer(response, is_resumed=is_resumed, has_tools=bool(request.tools))
        except PrefillRefused:
            self.resume = self._fixed_resume = "message"
            raise
        except ToolsRefused as refusal:
            if refusal.is_general and request.tool_choice == "auto":  # otherwise it may reject only the choice
                self.accepts_tools, self._has_refused_tools = False, True
            raise

    async def _identify_again(self) -> None:
        """Identify the server if that failed the last time.

        Raises:
            ModelError: The model is not local any more, and the conversation may be private.
        """
        if self._has_failed:
            was_local = self.is_local
            with suppress(ModelError):
                await self.identify()
            if was_local and not self.is_local:
                message = "The model server passes this model on to another server. Send the message again."
                raise ModelError("model_failed", message)

    async def describe(self, image: bytes, question: str) -> str:
        async with aclosing(self.stream(PassRequest([Message("user", question, (image,))]))) as chunks:
            return "".join([chunk async for chunk in chunks if isinstance(chunk, str)])

    async def aclose(self) -> None:
        await self._http.aclose()

    @abstractmethod
    async def _identify(self) -> str:
        """Send the requests first, then change the attributes in one step."""

    @abstractmethod
    async def _probe(self) -> None:
        """Send one free request that changes nothing."""

    @abstractmethod
    def _build_reply(self, offered: Collection[str]) -> Reply:
        """Return the decoder of one answer to a request with these tools."""

    @abstractmethod
    def _build_body(self, request: PassRequest) -> bytes:
        """Encode the request for one pass."""


def find_prefixes(name: str) -> Prefixes:
    """Return the prefixes of an embedding model, by its name at the server."""
    return next((prefixes for pattern, prefixes in _PREFIXES if pattern.search(name.lower())), Prefixes())
