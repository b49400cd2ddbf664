"""A language model, as all of Brain sees it (`Model`), and one request to it (`PassRequest`)."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brain.errors import Refused
from brain.events import Resume
from brain.messages import Chunk, EmbeddingCheck, Message, Purpose
from brain.models.circuit_breaker import CircuitBreaker
from brain.settings.models import Prefixes
from brain.turn_request import DEFAULT_DECODING, DEFAULT_SAMPLING, Decoding, Sampling


@dataclass(frozen=True, slots=True)
class PassRequest:
    """One request to a model.

    Attributes:
        turn_pass: Number of earlier passes of the model in the turn.
        tools: Tools in the form of the OpenAI API, for a model that accepts them.
        tool_choice: `auto`, `none`, `required`, or the name of the tool that the model must call now.
    """

    messages: Sequence[Message]
    turn_pass: int = 0
    sampling: Sampling = DEFAULT_SAMPLING
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str = "auto"
    decoding: Decoding = DEFAULT_DECODING


class Model(ABC):
    """A text-only model without a server, tools and embeddings; subclasses override what they can do.

    Args:
        name: The configured name, such as `ollama:llama3`.

    Attributes:
        is_demo: Whether this is the demo model.
        is_language_model: Whether it can write summaries for Brain.
        is_base: Whether it is a base model, which has no chat template.
        is_local: Whether it may read private conversations.
        accepts_tools: Whether requests may have tools. It may change when the server rejects them.
        resume: How the model resumes after a block. It may change when the server rejects a prefill.
        context_tokens: Size of the context window; None if unknown.
        parameters: Number of the model's parameters; None if unknown.
        template: Chat template with its first and last tokens, if the server reports it.
        embedder: Embedding model to use instead, if any.
        breaker: Keeps turns away from the model while it fails.
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

    def __init__(self, name: str) -> None:
        self.name = name
        self.breaker = CircuitBreaker()

    @abstractmethod
    def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        """Stream one pass. Closing the generator closes the connection to the server.

        Raises:
            ModelError: The model failed.
        """

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
        return Prefixes() if self.embedder is None else self.embedder.prefixes

    async def embed(self, texts: Sequence[str], purpose: Purpose | None = None) -> list[list[float]]:
        """Return one embedding per text.

        Args:
            purpose: Adds the prefix that the embedding model expects; None sends the texts as they are.

        Raises:
            Refused: There are no embeddings.
        """
        if self.embedder is None:
            raise Refused("no model with embeddings is connected")
        return await self.embedder.embed(texts, purpose)

    async def check_embeddings(self) -> EmbeddingCheck:
        """Return the result of the embedding check, which runs once per process.

        Raises:
            Refused: There are no embeddings.
        """
        if self.embedder is None:
            raise Refused("no model with embeddings is connected")
        return await self.embedder.check_embeddings()

    async def aclose(self) -> None:  # noqa: B027 - a model without a server has no connections
        """Close the connections."""
