"""Wing: what the models share that are no server's: they see nothing, and have neither vectors nor a known room."""

from collections.abc import Sequence

from brain.errors import Refused


class Blind:
    """A model that takes text, and nothing else."""

    context_tokens = None
    sees_images = False
    writes = False
    """No language model is behind it, that could be asked to write something for Brain itself."""

    async def describe(self, image: bytes, question: str) -> str:
        """It sees nothing."""
        raise Refused("no model that sees images is connected")

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """It has no vectors."""
        raise Refused("no model with embeddings is connected")
