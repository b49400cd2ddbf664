"""A language model, as all of Brain sees it (`Model`), and one request to it (`PassRequest`)."""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from brain.errors import ModelError, Refused
from brain.events import Resume, Thinking
from brain.messages import Chunk, EmbeddingCheck, Message, Purpose
from brain.models.circuit_breaker import CircuitBreaker
from brain.models.relevance import PAIRS, grade
from brain.settings.models import ModelRow, Prefixes
from brain.settings.parsers import redact_url
from brain.turn_request import DEFAULT_DECODING, DEFAULT_SAMPLING, Decoding, Sampling

Take = Callable[[str | Thinking], bool]
"""Takes a text at once. Returns False if the text must come from the stream."""


@dataclass(frozen=True, slots=True)
class PassRequest:
    """One request to a model.

    Attributes:
        turn_pass: Number of earlier passes of the model in the turn.
        tools: Tools in the form of the OpenAI API, for a model that accepts them.
        tool_choice: `auto`, `none`, `required`, or the name of the tool that the model must call now.
        take: Gets texts that arrive while the caller waits for the stream, to save the wake-up of a task per token.
    """

    messages: Sequence[Message]
    turn_pass: int = 0
    sampling: Sampling = DEFAULT_SAMPLING
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str = "auto"
    decoding: Decoding = DEFAULT_DECODING
    take: Take | None = None


class Model(ABC):
    """A text-only model without a server, tools and embeddings; subclasses override what they can do.

    Args:
        name: The configured name, such as `ollama:llama3`.

    Attributes:
        is_demo: Whether this is the demo model.
        is_language_model: Whether a language model answers. The demo model and scripts only look like one.
        is_base: Whether it is a base model, which has no chat template.
        is_local: Whether it may read private conversations.
        accepts_tools: Whether requests may have tools. It may change when the server rejects them.
        resume: How the model resumes after a block. It may change when the server rejects a prefill.
        context_tokens: Size of the context window; None if unknown.
        parameters: Number of the model's parameters; None if unknown.
        template: Chat template with its first and last tokens, if the server reports it.
        embedder: Embedding model to use instead, if any.
        breaker: Keeps turns away from the model while it fails.
        fallbacks: The models that continue its answers when it fails.
        row: The settings that it was opened with.
        reason: Why Brain uses this model, and what its server is.
        problem: What was wrong with its server when it was opened, for the operator: a whole sentence.
        remedy: The command to type if the server has no model of this name.
        warning: That the server does not list this name, but may accept it.
    """

    is_demo = False
    is_language_model = True
    is_base = False
    is_local = True
    accepts_tools = False
    sees_images = False
    resume: Resume = "prefill"
    context_tokens: int | None = None
    parameters: int | None = None
    template = ""
    embedder: "Model | None" = None
    fallbacks: Sequence["Model"] = ()
    row: ModelRow | None = None
    reason = ""
    problem: str | None = None
    remedy = ""
    warning = ""

    def __init__(self, name: str) -> None:
        self.name = name
        self.breaker = CircuitBreaker()
        self._prefixes = Prefixes()
        self._check: EmbeddingCheck | None = None

    @abstractmethod
    def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        """Stream one pass. Closing the generator closes the connection to the server.

        Raises:
            ModelError: The model failed.
        """

    @cached_property
    def address(self) -> str:
        """The model and its server, however the settings name them; without secrets."""
        return self.name if self.row is None else f"{self.row.model} {redact_url(self.row.url or '')}"

    def with_fallbacks(self, *, private: bool) -> "list[Model]":
        """Return the model and its fallbacks; in a private conversation, only those that may read it."""
        return [self, *(model for model in self.fallbacks if model.is_local or not private)]

    async def find_problem(self) -> str | None:
        """Return what is wrong with the server, as a whole sentence; None if there is no problem."""
        return None

    async def list_names(self) -> list[str]:
        """Return the names of the server's models.

        Raises:
            ModelError: The server cannot list them.
        """
        return []

    async def describe(self, image: bytes, question: str) -> str:
        """Return the model's answer about an encoded image.

        Raises:
            Refused: The model has no image input.
        """
        raise Refused("no model with image input is connected")

    @property
    def embeds_locally(self) -> bool:
        """Whether the model that makes the embeddings may read private conversations."""
        return (self if self.embedder is None else self.embedder).is_local

    @property
    def prefixes(self) -> Prefixes:
        """What the model that makes the embeddings expects before a text."""
        return self._prefixes if self.embedder is None else self.embedder.prefixes

    async def embed(self, texts: Sequence[str], purpose: Purpose | None = None) -> list[list[float]]:
        """Return one embedding per text: finite numbers, and all of the same size.

        Args:
            purpose: Adds the prefix that the embedding model expects; None sends the texts as they are.

        Raises:
            Refused: There are no such embeddings.
        """
        if self.embedder is not None:
            return await self.embedder.embed(texts, purpose)
        prefix = "" if purpose is None else getattr(self.prefixes, purpose)
        try:
            vectors = await self._embed([prefix + text for text in texts])
        except ModelError as error:
            raise Refused("the model server returns no embeddings for this model") from error
        sizes = {len(vector) for vector in vectors}
        is_complete = len(vectors) == len(texts) and len(sizes) <= 1 and 0 not in sizes
        if not is_complete or not all(map(math.isfinite, chain.from_iterable(vectors))):
            raise Refused("the model server returns embeddings that cannot be used")
        return vectors

    async def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return what this model's server makes of the texts.

        Raises:
            ModelError: The server failed.
            Refused: There are no embeddings.
        """
        raise Refused("no model with embeddings is connected")

    async def check_embeddings(self) -> EmbeddingCheck:
        """Return the result of the embedding check, which runs once per process.

        Raises:
            Refused: There are no embeddings.
        """
        if self.embedder is not None:
            return await self.embedder.check_embeddings()
        if self._check is None:
            questions = await self.embed([question for question, _ in PAIRS], "query")
            answers = await self.embed([answer for _, answer in PAIRS], "passage")
            self._check = await asyncio.to_thread(grade, self.name, questions, answers, self.prefixes)
        return self._check

    async def aclose(self) -> None:  # noqa: B027 - a model without a server has no connections
        """Close the connections."""
