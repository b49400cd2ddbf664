"""A model that plays a script, and the base class of models without a server."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec

from brain.errors import ModelError, Refused, SettingsError
from brain.events import Resume
from brain.messages import Chunk, EmbeddingCheck, Finish, Message, Purpose
from brain.models.circuit_breaker import CircuitBreaker
from brain.settings.models import Prefixes
from brain.turn_request import DEFAULT_DECODING, DEFAULT_SAMPLING, Decoding, Sampling

_ADVICE = "brain check --model builtin"


class Embeddings(Protocol):
    """A model with checked embeddings."""

    @property
    def name(self) -> str: ...
    @property
    def is_local(self) -> bool: ...

    @property
    def prefixes(self) -> Prefixes: ...

    async def embed(self, texts: Sequence[str], purpose: Purpose | None = None) -> list[list[float]]: ...
    async def check_embeddings(self) -> EmbeddingCheck: ...


class TextOnlyModel:
    """A text-only model without a server.

    Attributes:
        embedder: Embedding model to use, if any.
        is_local: Whether it may read private conversations.
    """

    embedder: Embeddings | None = None
    is_local = True
    context_tokens = None
    template = ""
    sees_images = False
    accepts_tools = False
    is_base = False
    is_language_model = False
    """True if it can write summaries for Brain."""
    parameters: int | None = None

    @property
    def embeds_locally(self) -> bool:
        """Whether the embedding model, if any, may read private conversations."""
        return self.embedder is None or self.embedder.is_local

    async def describe(self, image: bytes, question: str) -> str:
        """Raise `Refused`: it has no image input."""
        raise Refused("no model with image input is connected")

    @property
    def prefixes(self) -> Prefixes:
        """What `embedder`, if any, expects before a text."""
        return Prefixes() if self.embedder is None else self.embedder.prefixes

    async def embed(self, texts: Sequence[str], purpose: Purpose | None = None) -> list[list[float]]:
        """Return the embeddings of `embedder`; raise `Refused` without one."""
        if self.embedder is None:
            raise Refused("no model with embeddings is connected")
        return await self.embedder.embed(texts, purpose)

    async def check_embeddings(self) -> EmbeddingCheck:
        """Return the check of `embedder`; raise `Refused` without one."""
        if self.embedder is None:
            raise Refused("no model with embeddings is connected")
        return await self.embedder.check_embeddings()


class ScriptedPass(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a script: the chunks of one pass, the delay before each, and an error at the end."""

    chunks: list[str] = []
    delay_ms: Annotated[float, msgspec.Meta(ge=0)] = 0
    error: str | None = None


class Script(TextOnlyModel):
    """A model that plays a script: one line per pass. Passes after the last line are empty."""

    is_demo = False

    def __init__(self, name: str, passes: Sequence[ScriptedPass], resume: Resume = "prefill") -> None:
        self.name = name
        self.breaker = CircuitBreaker()
        self.resume: Resume = resume
        self._passes = passes

    async def stream(
        self,
        messages: Sequence[Message],
        turn_pass: int = 0,
        sampling: Sampling = DEFAULT_SAMPLING,
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        tool_choice: str = "auto",
        decoding: Decoding = DEFAULT_DECODING,
    ) -> AsyncGenerator[Chunk, None]:
        """Play the line of this pass; ignore the messages."""
        line = self._passes[turn_pass] if turn_pass < len(self._passes) else ScriptedPass()
        for chunk in line.chunks:
            await asyncio.sleep(line.delay_ms / 1000)
            yield chunk
        if line.error is not None:
            raise ModelError("model_failed", "The model failed in the middle of the answer.", line.error)
        yield Finish("stop")

    async def aclose(self) -> None:
        """Do nothing."""


def read_script(path: Path) -> list[ScriptedPass]:
    """Read JSON Lines, each an array of chunks or `{"chunks": […], "delay_ms"?: n, "error"?: text}`.

    Raises:
        SettingsError: The file cannot be read, or a line is wrong.
    """
    try:
        text = path.expanduser().read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise SettingsError(f"The script {path} is not UTF-8.", _ADVICE) from None
    except (OSError, RuntimeError) as error:
        problem = getattr(error, "strerror", None) or "no such home directory"
        raise SettingsError(f"Cannot read the script {path}: {problem.lower()}.", _ADVICE) from None
    passes = []
    for number, line in enumerate(text.split("\n"), 1):  # `splitlines` also cuts at characters inside JSON strings
        if line.strip():
            try:
                decoded = msgspec.json.decode(line, type=list[str] | ScriptedPass)
            except msgspec.DecodeError:
                message = f"{path}, line {number}: expected a JSON array of texts, or an object with chunks."
                raise SettingsError(message, _ADVICE) from None
            passes.append(ScriptedPass(decoded) if isinstance(decoded, list) else decoded)
    return passes
