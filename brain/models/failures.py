"""Errors of model servers and of the connection to them, as `ModelError`s with sentences of our own."""

import re
from types import TracebackType
from typing import Any

import httpx

from brain.errors import ModelError, PrefillRefused
from brain.net.client import BodyStream

ERROR_BODY_BYTES = 4096
"""How much of an error's body is read."""
_CONTEXT_ERROR = re.compile(
    r"context[ _](?:length|size|window)|maximum (?:context|model length)|exceeds? the (?:available )?context"
    r"|too many tokens|exceeds the maximum number of tokens|prompt is too long|reduce the length of the messages",
    re.IGNORECASE,
)
_CONTEXT_STATUS = frozenset({400, 413, 422, 500})
_PREFILL_STATUS = frozenset({400, 422})
_SECONDS = re.compile(r"[1-9][0-9]{0,4}")
_BY_STATUS = {
    401: ("The model server refused Brain's key.", False),
    403: ("The model server refused Brain's key.", False),
    404: ("The model server does not have this model.", False),
    429: ("The model server takes no more requests at the moment.", True),
}
"""The message for a status, and whether a retry may help."""


class translate_errors:
    """Translates the HTTP client's errors inside a `with` block."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, httpx.ConnectError):
            raise ModelError("model_unreachable", "The model server cannot be reached.", repr(error)) from error
        if isinstance(error, httpx.TimeoutException):
            raise ModelError("model_unreachable", "The model server does not answer.", repr(error)) from error
        if isinstance(error, httpx.HTTPError):
            message = "The connection to the model server broke in the middle of its answer."
            raise ModelError("model_failed", message, repr(error)) from error


def unreadable(detail: str) -> ModelError:
    """The error for data that is not what the protocol says."""
    return ModelError("model_failed", "The model server sent something unreadable.", detail)


def from_event(error: Any) -> ModelError:
    """The error that a server reports in the middle of an answer."""
    text = str(error)[:2000]
    if _CONTEXT_ERROR.search(text):
        return _too_long(text)
    return ModelError("model_failed", "The model failed in the middle of its answer.", text)


def from_status(status: int, text: str, retry_after: str = "") -> ModelError:
    """The error for an HTTP status other than 200, the text that came with it, and its `Retry-After`."""
    detail = f"HTTP {status}: {text}"
    if status in _CONTEXT_STATUS and _CONTEXT_ERROR.search(text):
        return _too_long(detail, status)
    message, recoverable = _BY_STATUS.get(status, ("The model server could not answer.", True))
    if recoverable and _SECONDS.fullmatch(retry_after):
        message += f" It asks to wait {retry_after} s."
    return ModelError("model_failed", message, detail, recoverable=recoverable, status=status)


async def from_response(response: httpx.Response, body: BodyStream, *, is_resumed: bool) -> ModelError:
    """The error for a response other than 200; reads only the beginning of its body.

    Args:
        is_resumed: whether the request asked to continue a started answer.
    """
    status, text = response.status_code, b""
    async for data in body:
        text += data
        if len(text) >= ERROR_BODY_BYTES:
            break
    retry_after = response.headers.get("Retry-After", "")
    error = from_status(status, text[:ERROR_BODY_BYTES].decode(errors="replace"), retry_after)
    if is_resumed and status in _PREFILL_STATUS and error.code != "model_context":
        return PrefillRefused(error.args[0])
    return error


def no_stream(content_type: str) -> ModelError:
    """The error for a response that is no stream, such as a web page."""
    message = "The model server did not answer with a stream; check its URL in the settings."
    return ModelError("model_failed", message, f"Content-Type: {content_type[:200]}", recoverable=False)


def _too_long(detail: str, status: int | None = None) -> ModelError:
    message = "The conversation is too long for the model; begin a new one, or ask for less."
    return ModelError("model_context", message, detail, status=status)
