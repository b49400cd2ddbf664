"""What the encoders of all protocols share: JSON, errors, and text for events that a protocol cannot express."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from brain.errors import BadRequest
from brain.events import (
    ApprovalRequired,
    Citation,
    Error,
    ErrorCode,
    Event,
    ModelUsage,
    Round,
    SpecialistError,
    SpecialistResult,
    Thinking,
)
from brain.settings import ShowResults
from brain.text import one_line, replace_surrogates

SSE_TYPE = b"text/event-stream; charset=utf-8"
HEARTBEAT = b": heartbeat\n\n"
"""A comment, which every client of server-sent events ignores."""

REWOUND = "This answer continues from an earlier point. Load the conversation again to see it."
"""For a client whose protocol cannot take back what it has received."""

_STATUS: Mapping[ErrorCode, int] = {
    "model_unreachable": 502,
    "model_failed": 502,
    "model_context": 400,
    "shutdown": 503,
    "internal": 500,
}
_encode_json = msgspec.json.Encoder().encode
_LINE_ENDS = {"\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029", "\x85".encode(): b"\\u0085"}
_BACKTICKS = re.compile("`+")
_TAG_OPENER = re.compile("<(?=[A-Za-z/!?])")
_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#!|~&]")


def encode(value: Any) -> bytes:
    """Encode JSON on one line. Surrogates, which UTF-8 cannot encode, become U+FFFD.

    The other characters at which some clients end a line (Python's `splitlines`, JavaScript before 2019) are escaped.
    """
    try:
        data = _encode_json(value)
    except UnicodeEncodeError:
        data = replace_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
    if data.isascii() or (
        type(value) is str and "\u2028" not in value and "\u2029" not in value and "\x85" not in value
    ):
        return data
    for end, escaped in _LINE_ENDS.items():
        data = data.replace(end, escaped)
    return data


def data_frame(value: Any) -> bytes:
    """Return a server-sent event without a name."""
    return b"data: %b\n\n" % encode(value)


def as_rejection(error: Error) -> BadRequest:
    """Return the error of a turn that failed before its first text. Its status is the model server's, if that has one.

    Other statuses of 500 and more are the model server's own problem, and not Brain's.
    """
    status = error.status or 0
    if not (400 <= status < 500 or status == 503):
        status = _STATUS[error.code]
    return BadRequest(error.message, code=error.code, status=status, retry_after=error.retry_after)


def citation_data(citation: Citation) -> dict[str, str]:
    """Return a citation as JSON values, without an unknown URL."""
    url = {} if citation.url is None else {"url": citation.url}
    return {"id": citation.id, "title": citation.title, **url}


def token_counts(usage: ModelUsage) -> dict[str, int]:
    """Return the counts of a usage by the names that the AI SDK and AG-UI use."""
    return {
        "inputTokens": usage.prompt_tokens,
        "outputTokens": usage.completion_tokens,
        "totalTokens": usage.prompt_tokens + usage.completion_tokens,
        **({} if usage.reused_tokens is None else {"cachedInputTokens": usage.reused_tokens}),
    }


@dataclass(frozen=True, slots=True)
class InlineText:
    """Returns the text for an event; empty for most events.

    Args:
        show: how results of specialists appear.
    """

    show: ShowResults
    turn_url: str
    has_keys: bool = False

    def __call__(self, event: Event) -> str:
        """Return the text, with a blank line before and after."""
        if isinstance(event, ApprovalRequired):
            return f"\n\n{self._approval(event)}\n\n"
        if self.show == "hidden" or not isinstance(event, SpecialistResult | SpecialistError):
            return ""
        return f"\n\n{_block(event) if self.show == 'block' else _details(event)}\n\n"

    def _approval(self, event: ApprovalRequired) -> str:
        """How to approve a call with curl, for clients without approvals."""
        key = "-H 'Authorization: Bearer YOUR_KEY' " if self.has_keys else ""
        command = (
            f"curl -X POST {self.turn_url}/approvals/{event.call_id} {key}"
            """-H 'Content-Type: application/json' -d '{"approve": true}'"""
        )
        preview = ""
        if event.text:
            preview = f"Preview of {event.name}: {_code_span(_hide_tags(' '.join(event.text.split())))}. "
        params = _code_span(_TAG_OPENER.sub(r"\\u003c", format_params(event.params)))  # "<" in JSON, but no tag
        return (
            f"{preview}The call of {event.name} with {params} needs your approval before "
            f"{event.expires_at:%H:%M:%S} UTC. To approve it: {_code_span(command)}; to decline it, send false."
        )


def _block(event: SpecialistResult | SpecialistError) -> str:
    """A block as in the transcript, but without the advice to the model, which events do not have."""
    if isinstance(event, SpecialistError):
        return f"[SPECIALIST_ERROR: {event.name} failed - {event.reason}]"
    return f"[SPECIALIST_RESULT: {event.name}]\n{event.text}\n[/SPECIALIST_RESULT]"


def _details(event: SpecialistResult | SpecialistError) -> str:
    """A `details` element. Its content cannot close it or become HTML."""
    summary, text = event.name, event.text if isinstance(event, SpecialistResult) else event.reason
    if isinstance(event, SpecialistError):
        summary = f"{event.name} failed"
    fence = "`" * max(3, _longest_backticks(text) + 1)
    content = f"{fence}text\n{_hide_tags(text)}\n{fence}"
    if isinstance(event, SpecialistResult) and event.citations:
        content += "\n\n" + "\n".join(map(_list_item, event.citations))
    return f"<details>\n<summary>{summary}</summary>\n\n{content}\n\n</details>"


def _list_item(citation: Citation) -> str:
    title = _MARKUP.sub(lambda match: f"&#{ord(match[0])};", one_line(citation.title))
    if citation.url is None or not citation.url.startswith(("http://", "https://")):
        return f"- {title}"
    return f"- [{title}]({quote(citation.url, safe=':/?#@!$&*+,;=%~')})"


def _code_span(text: str) -> str:
    ticks = "`" * (_longest_backticks(text) + 1)
    return f"{ticks} {text} {ticks}" if len(ticks) > 1 else f"`{text}`"


def _longest_backticks(text: str) -> int:
    return max(map(len, _BACKTICKS.findall(text)), default=0)


def _hide_tags(text: str) -> str:
    """Replace the opener of each tag by its full-width form, since some pages parse tags in code."""
    return _TAG_OPENER.sub("＜", text)


def describe_round(event: Round) -> str:
    """Return a round as one line: its number, its role and model, and its instruction or finding."""
    text = one_line(event.text or "")
    return f"Round {event.n} of {event.of}, {event.role} ({event.model}){text and f': {text}'}"


class ReasoningText:
    """Returns the text of an event for a field with the model's reasoning. A round has a paragraph of its own."""

    __slots__ = ("_is_in_paragraph",)

    def __init__(self) -> None:
        self._is_in_paragraph = False

    def __call__(self, event: Thinking | Round) -> str:
        """Return the text of the next event."""
        if isinstance(event, Thinking):
            self._is_in_paragraph = True
            return event.text
        separator = "\n\n" if self._is_in_paragraph else ""
        self._is_in_paragraph = False
        return f"{separator}{describe_round(event)}\n\n"


def format_params(params: Mapping[str, Any]) -> str:
    """Return the whole parameters of a call that needs approval as JSON, with invisible characters escaped."""
    text = encode(params).decode()
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one.isprintable() else f"\\u{{{ord(one):x}}}" for one in text)
