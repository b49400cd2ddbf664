"""Ground: how a client wants a model to write. The same words for all protocols; each model says them in its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Dialect = Literal["openai", "ollama"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a client asks of the model's writing; None leaves it to the model's server.

    Attributes:
        max_tokens: of the whole answer, over all passes.
        effort: whether and how hard to think first: False, True, or a level such as `low`.
        format: what the answer must be: `json`, or a JSON Schema. A model that must write JSON can write no marker, so
            nobody is offered to it.
        keep_alive: how long an Ollama server keeps the model loaded behind the answer.
        dialect: the protocol in which `more` is written; another kind of model is not told of it.
        more: further fields of the request, as they came; of an Ollama client's, further options.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    effort: bool | str | None = None
    format: Literal["json"] | Mapping[str, Any] | None = None
    keep_alive: str | float | None = None
    dialect: Dialect | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


UNSAID = Sampling()
