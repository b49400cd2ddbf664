"""Wing: what model servers answer when they do not answer, translated once for all of them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from brain.errors import ModelError

_CONTEXT = re.compile(
    r"context (?:length|size|window)|maximum context|exceeds? the (?:available )?context|too many tokens", re.IGNORECASE
)


@contextmanager
def failing() -> Iterator[None]:
    """Translates the HTTP client's errors."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise ModelError("model_unreachable", "The model server cannot be reached.", repr(error)) from error
    except httpx.HTTPError as error:
        message = "The connection to the model server broke in the middle of its answer."
        raise ModelError("model_failed", message, repr(error)) from error


def explained(status: int, text: str) -> ModelError:
    """The error for an HTTP status that is not 200, and the text that came with it."""
    detail = f"HTTP {status}: {text}"
    if _CONTEXT.search(text):
        message = "The conversation is too long for the model; begin a new one, or ask for less."
        return ModelError("model_context", message, detail)
    if status in (401, 403):
        return ModelError("model_failed", "The model server refused Brain's key.", detail)
    if status == 404:
        return ModelError("model_failed", "The model server does not have this model.", detail)
    if status == 429:
        return ModelError("model_failed", "The model server takes no more requests at the moment.", detail)
    return ModelError("model_failed", "The model server could not answer.", detail)
