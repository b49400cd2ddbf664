"""Errors of model servers and of the connection to them, translated into `ModelError`s."""

import math
import os
import re
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any

import httpx

from brain.errors import ContentFiltered, ModelError, PrefillRefused, ToolsRefused
from brain.net.client import BodyStream
from brain.settings import redact_url

ERROR_BODY_BYTES = 4096
"""Bytes read of an error's body."""
_CONTEXT_WORDINGS = (
    r"context[ _](?:length|size|window|limit)",  # OpenAI, llama.cpp, SGLang, LM Studio, Ollama, Anthropic, MiniMax
    r"maximum (?:context|model length|prompt length)|exceeds? the (?:available )?context",  # vLLM, Mistral, xAI
    r"too many tokens|exceeds the maximum number of tokens",  # Cohere, Gemini
    r"(?:prompt|input|prompt tokens)(?: \(\d+ tokens\))? (?:is )?too long",  # Anthropic, Bedrock, vLLM, Baidu
    r"reduce the length of the (?:messages|prompt|input)",  # OpenAI, Groq, vLLM
    r"range of input length should be",  # DashScope
    r"`?inputs`? (?:tokens \+ `?max_new_tokens`? must be|must have less than)",  # TGI
    r"exceeds (?:the )?(?:maximum|max)(?: allowed)?(?: input)? length",  # SGLang, GLM, Volcengine, DeepInfra
    r"exceeded model token limit",  # Kimi
    r"token count of \d+ exceeds the limit|tokens in request more than max tokens allowed",  # GitHub
    r"input tokens? \d* ?cannot exceed|less than max_seq_len|exceed max message tokens",  # watsonx, SiliconFlow
    r"max input characters is|超长|超[过出]最大长度",  # Baidu, GLM
)
"""How servers report that a request is too long."""
_CONTEXT_ERROR = re.compile("|".join(_CONTEXT_WORDINGS), re.IGNORECASE)
_RATE_LIMIT = re.compile(r"rate.?limit|too many requests|throttl|per (?:minute|hour|day)\b|quota", re.IGNORECASE)
"""Servers also limit the tokens of a time."""
_FILTER = re.compile(
    r"content_?filter|content management policy|content_policy_violation|ResponsibleAIPolicyViolation"
    r"|data_?inspection_?failed|requires moderation",
    re.IGNORECASE,
)
"""How the filters of Azure, OpenAI, DashScope, OpenRouter and GLM report that they rejected something."""
_FAILURE_TEXT = re.compile(
    rb"\s*\{\s*\"(?:error|detail)|[^{]*(?:error|exception|fail|unavailable|overload|timed? ?out)", re.IGNORECASE
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
_SECONDS = re.compile(r"\d{1,5}(?:\.\d{1,9})?")
_MAX_SECONDS = 99_999
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
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"TLS certificate: {cause.verify_message}"
        if isinstance(cause, socket.gaierror):
            return "unknown host"
        if isinstance(cause, OSError) and cause.errno is not None:
            return os.strerror(cause.errno).lower()
        cause = cause.__cause__ or cause.__context__
    words = next((text for kind, text in timeouts.items() if isinstance(error, kind)), "")
    return words or str(error) or "the connection closed"


def is_broken_call(error: Any) -> bool:
    """Return whether a server reports, in the middle of an answer, that it cannot read the model's tool call."""
    return _BROKEN_CALL.search(str(error)[:2000]) is not None


def find_error(event: Mapping[str, Any]) -> Any:
    """Return the failure that an event without `error` reports, in the forms of all servers; None without one."""
    if event.get("object") == "error" or event.get("type") == "error":  # vLLM, SGLang; Anthropic
        return event
    if isinstance(status := event.get("base_resp"), dict) and status.get("status_code"):  # MiniMax
        return status
    if event.get("choices"):
        return None
    texts = [event.get("error_msg"), event.get("detail")]  # Baidu, FastAPI
    if event.get("code") not in (None, "", 0, "0", 200, "200"):  # gateways
        texts.append(event.get("message"))
    return event if any(text and isinstance(text, str) for text in texts) else None


def is_failure_text(data: bytes) -> bool:
    """Return whether a text in place of an event reports a failure, such as `Internal Server Error` or `{"error`."""
    return _FAILURE_TEXT.match(data[:2000]) is not None


def from_event(error: Any) -> ModelError:
    """Return the error for a failure that a server reports in the middle of an answer."""
    text = str(error)[:2000]
    if _is_too_long(text):
        return _too_long(text)
    if _FILTER.search(text):
        return ContentFiltered(text)
    return ModelError("model_failed", "The model failed in the middle of the answer.", text)


def from_status(status: int, text: str, retry_after: str = "") -> ModelError:
    """Return the error for an HTTP status other than 200, with its text and its `Retry-After`."""
    detail = f"HTTP {status}: {text}"
    if status in _CONTEXT_STATUS and _is_too_long(text):
        return _too_long(detail, status)
    if 400 <= status < 500 and _FILTER.search(text):
        return ContentFiltered(detail, status=status)
    message, recoverable = _BY_STATUS.get(status, (f"The model server answered with HTTP status {status}.", True))
    seconds = _read_retry_after(retry_after)
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
    if isinstance(error, ContentFiltered):
        return error
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


def _is_too_long(text: str) -> bool:
    return _CONTEXT_ERROR.search(text) is not None and _RATE_LIMIT.search(text) is None


def _read_retry_after(value: str) -> int | None:
    """Return the seconds of a `Retry-After` header (RFC 9110, 10.2.3: seconds or a date), at least 1."""
    try:
        if _SECONDS.fullmatch(value):
            seconds = float(value)
        else:
            time = parsedate_to_datetime(value)
            seconds = (time.replace(tzinfo=time.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return None
    return max(1, math.ceil(seconds)) if seconds <= _MAX_SECONDS else None


def _too_long(detail: str, status: int | None = None) -> ModelError:
    message = "The conversation is too long for the model. Start a new conversation or shorten the message."
    return ModelError("model_context", message, detail, status=status)
