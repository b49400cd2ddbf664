"""A model that plays a script."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from brain.errors import ModelError, SettingsError
from brain.events import Resume
from brain.messages import Chunk, Finish
from brain.models.model import Model, PassRequest

_ADVICE = "brain check --model builtin"


class ScriptedPass(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a script: the chunks of one pass, the delay before each, and an error at the end."""

    chunks: list[str] = []
    delay_ms: Annotated[float, msgspec.Meta(ge=0)] = 0
    error: str | None = None


class Script(Model):
    """A model that plays a script: one line per pass. Passes after the last line are empty."""

    is_language_model = False

    def __init__(self, name: str, passes: Sequence[ScriptedPass], resume: Resume = "prefill") -> None:
        super().__init__(name)
        self.resume = resume
        self._passes = passes

    async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        """Play the line of this pass; ignore the messages."""
        line = self._passes[request.turn_pass] if request.turn_pass < len(self._passes) else ScriptedPass()
        for chunk in line.chunks:
            await asyncio.sleep(line.delay_ms / 1000)
            yield chunk
        if line.error is not None:
            raise ModelError("model_failed", "The model failed in the middle of the answer.", line.error)
        yield Finish("stop")


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
