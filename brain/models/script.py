"""What the models share that are no server's: they see nothing, and have neither vectors nor a known room."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

from brain.errors import ModelError, Refused, SettingsError
from brain.events import Resume
from brain.messages import Chunk, Finish, Message
from brain.turn_request import UNSAID, Sampling


class EmbeddingModel(Protocol):
    """What makes vectors."""

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str]) -> list[list[float]]: ...


class TextOnlyModel:
    """A model that takes text, and nothing else.

    Attributes:
        embedder: what embeddings are asked of, if anything.
    """

    embedder: EmbeddingModel | None = None
    context_tokens = None
    template = ""
    sees_images = False
    is_language_model = False
    """No language model is behind it, that could be asked to write something for Brain itself."""

    async def describe(self, image: bytes, question: str) -> str:
        """It sees nothing."""
        raise Refused("no model that sees images is connected")

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """It has no vectors of its own."""
        if self.embedder is None:
            raise Refused("no model with embeddings is connected")
        return await self.embedder.embed(texts)


class ScriptedPass(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a script: what one pass sends, how long it waits before each chunk, and how it fails, if it does."""

    chunks: list[str] = []
    delay_ms: Annotated[float, msgspec.Meta(ge=0)] = 0
    error: str | None = None


class Script(TextOnlyModel):
    """A script: one line a pass. Past the last line a pass is empty."""

    is_demo = False

    def __init__(self, name: str, passes: Sequence[ScriptedPass], resume: Resume = "prefill") -> None:
        self.name = name
        self.resume: Resume = resume
        self._passes = passes

    async def stream(
        self, messages: Sequence[Message], turn_pass: int = 0, sampling: Sampling = UNSAID
    ) -> AsyncGenerator[Chunk, None]:
        """Plays the line of this pass, whatever the messages say."""
        played = self._passes[turn_pass] if turn_pass < len(self._passes) else ScriptedPass()
        for chunk in played.chunks:
            await asyncio.sleep(played.delay_ms / 1000)
            yield chunk
        if played.error is not None:
            raise ModelError("model_failed", "The model failed in the middle of its answer.", played.error)
        yield Finish("stop")

    async def aclose(self) -> None:
        """Nothing is open."""


def read(path: Path) -> list[ScriptedPass]:
    """Reads a script: JSON Lines, each an array of chunks or `{"chunks": […], "delay_ms"?: n, "error"?: text}`.

    Raises:
        SettingsError: naming the file, and the line that is wrong.
    """
    try:
        text = path.expanduser().read_text("utf-8-sig")
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        problem = (
            "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
        )
        raise SettingsError(f"MODEL=script:{path}: the file cannot be read: {problem}.") from None
    # Not `splitlines`, which also cuts at characters that may stand in a JSON string.
    return [_pass(line, f"{path}, line {n}") for n, line in enumerate(text.split("\n"), 1) if line.strip()]


def _pass(line: str, place: str) -> ScriptedPass:
    try:
        found = msgspec.json.decode(line, type=list[str] | ScriptedPass)
    except msgspec.DecodeError as error:
        raise SettingsError(f"{place}: expected an array of texts, or an object with chunks: {error}.") from None
    return ScriptedPass(found) if isinstance(found, list) else found
