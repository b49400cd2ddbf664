"""Errors of model servers and of the connection to them, translated into `ModelError`s."""

import os
import re
import socket
import ssl
from types import TracebackType
from typing import Any

import httpx

from brain.errors import ModelError, PrefillRefused, ToolsRefused
from brain.net.client import BodyStream
from brain.settings import redact_url

ERROR_BODY_BYTES = 4096
"""Bytes read of an error's body."""
_CONTEXT_ERROR = re.compile(
    r"context[ _](?:length|size|window)|maximum (?:context|model length)|exceeds? the (?:available )?context"
    r"|too many tokens|exceeds the maximum number of tokens|prompt is too long|reduce the length of the messages",
    re.IGNORECASE,
)
_CONTEXT_STATUS = frozenset({400, 413, 422, 500})
_BAD_REQUEST = frozenset({400, 422})
_TOOL_WORD = r"\b(?:tools?|tool[ _-]?(?:use|calls?|calling|choice)|function[ _-]call(?:s|ing))\b"
_NO_SUPPORT = r"(?:n[o']t support|unsupported|unknown|unrecogni[sz]ed|extra_forbidden|found that support)"
_TOOLS_ERROR = re.compile(
    rf"{_TOOL_WORD}[^.\n]{{0,40}}(?:not supported|unsupported|not enabled|requires? --)"
    rf"|{_NO_SUPPORT}[^.\n]{{0,60}}{_TOOL_WORD}",
    re.IGNORECASE,
)
"""How servers report that they support no tools."""
_TOOLS_STATUS = frozenset({400, 404, 422, 500, 501})
_BROKEN_CALL = re.compile(r"error parsing tool call|failed to parse (?:input|tool call)", re.IGNORECASE)
_SECONDS = re.compile(r"[1-9][0-9]{0,4}")
_BY_STATUS = {
    401: ("The model server rejected Brain's API key.", False),
    403: ("The model server rejected Brain's API key.", False),
    404: ("The model server does not have this model.", False),
    429: ("The model server is at its request limit.", True),
}
"""The message for a status, and whether a retry may help."""


UNREACHABLE, NO_ANSWER = "Cannot connect to the model server.", "The model server does not answer."


class translate_errors:
    """Translates the HTTP client's errors inside a `with` block.

    Args:
        url: URL of the server, for the log and for operators.
    """

    def __init__(self, url: str = "") -> None:
        self._url = url

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, httpx.ConnectError):
            raise ModelError("model_unreachable", UNREACHABLE, describe_failure(error, self._url)) from error
        if isinstance(error, httpx.TimeoutException):
            raise ModelError("model_unreachable", NO_ANSWER, describe_failure(error, self._url)) from error
        if isinstance(error, httpx.HTTPError):
            message = "The connection to the model server broke in the middle of the answer."
            raise ModelError("model_failed", message, describe_failure(error, self._url)) from error


def describe_failure(error: BaseException, url: str) -> str:
    """Return the URL and why the connection failed, for the log and for operators."""
    cause = _find_cause(error)
    return f"{redact_url(url)}: {cause}" if url else cause


def add_detail(message: str, detail: str) -> str:
    """Return a message with a detail in parentheses before its full stop."""
    return f"{message.removesuffix('.')} ({detail})."


def _find_cause(error: BaseException) -> str:
    timeouts = {httpx.ConnectTimeout: "connecting timed out", httpx.ReadTimeout: "the server sent nothing in time"}
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"TLS certificate: {cause.verify_message}"
        if isinstance(cause, socket.gaierror):
            return "unknown host"
        if isinstance(cause, OSError) and cause.errno is not None:
            return os.strerror(cause.errno).lower()
        cause = cause.__cause__ or cause.__context__
    words = next((text for kind, text in timeouts.items() if isinstance(error, kind)), "")
    return words or str(error) or "the connection closed"


def unreadable(detail: str) -> ModelError:
    """Return the error for data that breaks the protocol."""
    return ModelError("model_failed", "The model server sent data that Brain cannot read.", detail)


def is_broken_call(error: Any) -> bool:
    """Return whether a server reports, in the middle of an answer, that it cannot read the model's tool call."""
    return _BROKEN_CALL.search(str(error)[:2000]) is not None


def from_event(error: Any) -> ModelError:
    """Return the error for a failure that a server reports in the middle of an answer."""
    text = str(error)[:2000]
    if _CONTEXT_ERROR.search(text):
        return _too_long(text)
    return ModelError("model_failed", "The model failed in the middle of the answer.", text)


def from_status(status: int, text: str, retry_after: str = "") -> ModelError:
    """Return the error for an HTTP status other than 200, with its text and its `Retry-After`."""
    detail = f"HTTP {status}: {text}"
    if status in _CONTEXT_STATUS and _CONTEXT_ERROR.search(text):
        return _too_long(detail, status)
    message, recoverable = _BY_STATUS.get(status, (f"The model server answered with HTTP status {status}.", True))
    seconds = int(retry_after) if _SECONDS.fullmatch(retry_after) else None
    if recoverable and seconds is not None:
        message += f" Try again in {seconds} s."
    return ModelError("model_failed", message, detail, recoverable=recoverable, status=status, retry_after=seconds)


async def from_response(
    response: httpx.Response, body: BodyStream, *, is_resumed: bool, has_tools: bool = False
) -> ModelError:
    """Return the error for a response other than 200; read only the beginning of its body.

    Args:
        is_resumed: True if the request asked to continue a started answer.
        has_tools: True if the request had tools.
    """
    status, text = response.status_code, b""
    async for data in body:
        text += data
        if len(text) >= ERROR_BODY_BYTES:
            break
    retry_after = response.headers.get("Retry-After", "")
    error = from_status(status, text[:ERROR_BODY_BYTES].decode(errors="replace"), retry_after)
    if has_tools and status in _TOOLS_STATUS and _TOOLS_ERROR.search(error.detail):
        return ToolsRefused(error.args[0], is_general=True)
    if status in _BAD_REQUEST and error.code != "model_context":
        if is_resumed:
            return PrefillRefused(error.args[0])
        if has_tools:  # such as a schema that the server cannot read, or roles that its chat template rejects
            return ToolsRefused(error.args[0], is_general=False)
    return error


def no_stream(content_type: str) -> ModelError:
    """Return the error for a response that is not a stream, such as a web page."""
    message = "The model server did not answer with a stream. Check its URL in the settings."
    return ModelError("model_failed", message, f"Content-Type: {content_type[:200]}", recoverable=False)


def _too_long(detail: str, status: int | None = None) -> ModelError:
    message = "The conversation is too long for the model. Start a new conversation or shorten the message."
    return ModelError("model_context", message, detail, status=status)
