"""Wing: what the models share that are no server's: they see nothing, and have neither vectors nor a known room."""

from collections.abc import Sequence
from typing import Protocol

from brain.errors import Refused


class Embedder(Protocol):
    """What makes vectors."""

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str]) -> list[list[float]]: ...


class Blind:
    """A model that takes text, and nothing else.

    Attributes:
        embedder: what embeddings are asked of, if anything.
    """

    embedder: Embedder | None = None
    context_tokens = None
    template = ""
    sees_images = False
    writes = False
    """No language model is behind it, that could be asked to write something for Brain itself."""

    async def describe(self, image: bytes, question: str) -> str:
        """It sees nothing."""
        raise Refused("no model that sees images is connected")

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """It has no vectors of its own."""
        if self.embedder is None:
            raise Refused("no model with embeddings is connected")
        return await self.embedder.embed(texts)
