"""AG-UI. What happens in a turn, as the events of one run, or of several where a person has to agree between.

Specialists are tool calls that have their results; a client's own tools are calls without. The ids of messages are
those of the native events that opened them, so that no run of a turn takes an id of another.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from brain.errors import BadRequest
from brain.events import (
    ApprovalRequired,
    Citation,
    Done,
    Error,
    Event,
    Notice,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    Thinking,
    Token,
    ToolCall,
    Usage,
)
from brain.protocols.ag_ui.request import RequestOptions
from brain.protocols.bodies import encode
from brain.protocols.inline_results import format_params
from brain.protocols.native import HEARTBEAT

PROTOCOL_VERSION = "1.0"
ASKED_LENGTH = 500
"""Characters of the parameters that the question for an approval shows."""

_ANSWER_SCHEMA = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


class Encoder:
    """Writes the events of a run.

    Args:
        wanted: the request that the run answers.
        turn_id: the turn that it tells of, or goes on telling of.
        model: who answers.
        after: the event of the turn behind which the run begins.
        known: the calls of the turn that the client was told of before.

    Attributes:
        taken: how many events were written.
        closed: whether the run is over, be it that a person has to agree before the turn goes on.
    """

    content_type = b"text/event-stream; charset=utf-8"
    headers: Sequence[tuple[bytes, bytes]] = ()
    heartbeat = HEARTBEAT

    def __init__(
        self, wanted: RequestOptions, turn_id: str, model: str, after: int = 0, known: Collection[str] = frozenset()
    ) -> None:
        self._wanted = wanted
        self._turn_id = turn_id
        self._model = model
        self._number = after
        self._after = after
        self._known = set(known)
        self._message = ""  # to which a call belongs that comes next
        self._content = b""  # up to the text, of what is open
        self._close = b""  # what closes it
        self._asked: dict[str, ApprovalRequired] = {}
        self._handed: list[str] = []
        self._usage: Usage | None = None
        self._begun = False
        self.closed = False

    @property
    def taken(self) -> int:
        """How many events were written."""
        return self._number - self._after

    def encode(self, events: Sequence[Event]) -> bytes:
        """What came together as its frames; behind an approval that is waited for, the end of the run."""
        frames = self._frames(events[0]) if len(events) == 1 else b"".join(map(self._frames, events))
        if self._begun and not self._asked:
            return frames
        start, self._begun = b"" if self._begun else self._start(), True
        return start + frames + (self._interrupted() if self._asked else b"")

    def _frames(self, event: Event) -> bytes:
        self._number += 1
        if type(event) is Token:
            return self._text(event.text)
        match event:
            case Thinking():
                return self._thought(event.text)
            case SpecialistStart():
                self._asked.pop(event.call_id, None)
                return self._call(self._name(event.call_id), event.name, event.params)
            case SpecialistProgress():
                return self._progress(event)
            case SpecialistResult() | SpecialistError():
                self._asked.pop(event.call_id, None)
                called = self._call(self._name(event.call_id), event.name, event.params)
                return called + (self._returned(event) if isinstance(event, SpecialistResult) else self._failed(event))
            case ApprovalRequired():
                self._asked[event.call_id] = event
                return self._call(self._name(event.call_id), event.name, event.params)
            case ToolCall():
                self._handed.append(event.call_id)
                return self._call(event.call_id, event.name, event.params)
            case Notice():
                return _custom("notice", {"code": event.code, "text": event.text})
            case Usage():
                self._usage = event
            case Done() | Error():
                return self._end(event)
        return b""

    def _start(self) -> bytes:
        wanted = self._wanted
        parent = {} if wanted.parent_run_id is None else {"parentRunId": wanted.parent_run_id}
        about = {"turnId": self._turn_id, "conversationId": wanted.conversation_id, "model": self._model}
        return _run("RUN_STARTED", wanted, protocolVersion=PROTOCOL_VERSION, **parent) + _custom("turn", about)

    def _text(self, text: str) -> bytes:
        if self._content.startswith(_TEXT):
            return b"%b%b}\n\n" % (self._content, encode(text))
        return self._opened(_TEXT, _TEXT_START, _TEXT_END) + self._text(text) if text else b""

    def _thought(self, text: str) -> bytes:
        if self._content.startswith(_REASONING):
            return b"%b%b}\n\n" % (self._content, encode(text))
        return self._opened(_REASONING, _REASONING_START, _REASONING_END) + self._thought(text) if text else b""

    def _opened(self, content: bytes, start: bytes, end: bytes) -> bytes:
        """Closes what is open, and opens a message."""
        closed, self._message = self._closed(), self._own_id()
        message = encode(self._message)
        self._content = content + message + b',"delta":'
        self._close = end.replace(_ID, message)
        return closed + start.replace(_ID, message)

    def _closed(self) -> bytes:
        close, self._close, self._content = self._close, b"", b""
        return close

    def _call(self, call_id: str, name: str, params: Mapping[str, Any] | None) -> bytes:
        """A call with its parameters, once; it belongs to the message before it, or to one that it makes."""
        if call_id in self._known:
            return b""
        self._known.add(call_id)
        closed, self._message = self._closed(), self._message or self._own_id()
        return b"".join(
            (
                closed,
                _frame("TOOL_CALL_START", toolCallId=call_id, toolCallName=name, parentMessageId=self._message),
                _frame("TOOL_CALL_ARGS", toolCallId=call_id, delta=encode(params or {}).decode()),
                _frame("TOOL_CALL_END", toolCallId=call_id),
            )
        )

    def _progress(self, event: SpecialistProgress) -> bytes:
        fraction = {} if event.fraction is None else {"fraction": event.fraction}
        return _custom("specialist_progress", {"toolCallId": self._name(event.call_id), "text": event.text, **fraction})

    def _returned(self, event: SpecialistResult) -> bytes:
        about = {"outcome": "ok", "ms": event.ms, **({"cached": True} if event.cached else {})}
        result = self._result(event.call_id, event.text, about)
        return result + _sources(self._name(event.call_id), event.citations) if event.citations else result

    def _failed(self, event: SpecialistError) -> bytes:
        about = {"outcome": event.code, "ms": event.ms}
        return self._result(event.call_id, f"{event.name} failed - {event.reason}", about)

    def _result(self, call_id: str, content: str, about: Mapping[str, Any]) -> bytes:
        """What came of a call; one that comes next does not belong to the message of this one."""
        if not self._close:
            self._message = ""
        named = {"messageId": self._own_id(), "toolCallId": self._name(call_id)}
        return _frame("TOOL_CALL_RESULT", **named, content=content, role="tool", metadata=about)

    def _interrupted(self) -> bytes:
        """The end of a run whose turn waits: each call that a person has to agree to is an interrupt."""
        self.closed = True
        interrupts = [self._interrupt(event) for event in self._asked.values()]
        return self._closed() + _run(
            "RUN_FINISHED", self._wanted, outcome={"type": "interrupt", "interrupts": interrupts}
        )

    def _interrupt(self, event: ApprovalRequired) -> dict[str, Any]:
        """Its id tells with which call of which turn to go on, and behind which event."""
        call_id = self._name(event.call_id)
        shown, is_cut = format_params(event.params, ASKED_LENGTH)
        would = "" if event.text is None else f"{event.text}\n\n"
        whole = f" This is cut; the whole stands in the tool call, and at GET /v1/turns/{self._turn_id}."
        return {
            "id": f"{call_id}.{self._number}",
            "reason": "tool_call",
            "message": f"{would}May {event.name} be called with {shown}?{whole if is_cut else ''}",
            "toolCallId": call_id,
            "responseSchema": _ANSWER_SCHEMA,
            "expiresAt": event.expires_at.isoformat().replace("+00:00", "Z"),
        }

    def _end(self, event: Done | Error) -> bytes:
        self.closed = True
        counted = {} if self._usage is None else {"usage": [self._counted(self._usage)]}
        if self._usage is not None and self._usage.estimated:
            counted["metadata"] = {"usageEstimated": True}  # type: ignore[assignment]
        if isinstance(event, Error):
            return self._closed() + _data({**_run_error(event.message, event.code), **counted})
        result = {
            "stopReason": event.stop_reason,
            "calls": event.calls,
            "passes": event.passes,
            "totalMs": event.total_ms,
        }
        return self._closed() + _run(
            "RUN_FINISHED", self._wanted, result=result, outcome=self._outcome(event), **counted
        )

    def _outcome(self, event: Done) -> dict[str, Any]:
        if event.stop_reason == "cancelled":
            return {"type": "cancelled"}
        return {"type": "success", **({"pendingToolCallIds": self._handed} if self._handed else {})}

    def _counted(self, usage: Usage) -> dict[str, Any]:
        counted = {
            "model": self._model,
            "inputTokens": usage.prompt_tokens,
            "outputTokens": usage.completion_tokens,
            "totalTokens": usage.prompt_tokens + usage.completion_tokens,
        }
        return counted if usage.reused_tokens is None else {**counted, "cachedInputTokens": usage.reused_tokens}

    def _name(self, call_id: str) -> str:
        """A call's id, which is unique in its turn, as one that is unique in the conversation."""
        return f"{self._turn_id}.{call_id}"

    def _own_id(self) -> str:
        return f"{self._turn_id}.{self._number}"


_ID = b"\0"
_TEXT = b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":'
_TEXT_START = b'data: {"type":"TEXT_MESSAGE_START","messageId":\0,"role":"assistant"}\n\n'
_TEXT_END = b'data: {"type":"TEXT_MESSAGE_END","messageId":\0}\n\n'
_REASONING = b'data: {"type":"REASONING_MESSAGE_CONTENT","messageId":'
_REASONING_START = (
    b'data: {"type":"REASONING_START","messageId":\0}\n\n'
    b'data: {"type":"REASONING_MESSAGE_START","messageId":\0,"role":"reasoning"}\n\n'
)
_REASONING_END = (
    b'data: {"type":"REASONING_MESSAGE_END","messageId":\0}\n\ndata: {"type":"REASONING_END","messageId":\0}\n\n'
)


def encode_rejection(error: BadRequest) -> tuple[int, dict[str, str]]:
    """Status and body for a request that is refused."""
    return error.status, _run_error(error.message, error.code)


def encode_failed_run(wanted: RequestOptions, error: BadRequest) -> bytes:
    """A whole run that fails at once; so the protocol has it of answers to interrupts that cannot be taken."""
    return _run("RUN_STARTED", wanted, protocolVersion=PROTOCOL_VERSION) + _data(_run_error(error.message, error.code))


def _run_error(message: str, code: str) -> dict[str, str]:
    return {"type": "RUN_ERROR", "message": message, "code": code}


def _run(kind: str, wanted: RequestOptions, **more: Any) -> bytes:
    return _frame(kind, threadId=wanted.thread_id, runId=wanted.run_id, **more)


def _custom(name: str, value: Mapping[str, Any]) -> bytes:
    return _frame("CUSTOM", name=name, value=value)


def _sources(call_id: str, citations: Sequence[Citation]) -> bytes:
    sources = [{"id": one.id, "title": one.title, **({} if one.url is None else {"url": one.url})} for one in citations]
    return _custom("sources", {"toolCallId": call_id, "sources": sources})


def _frame(kind: str, **fields: Any) -> bytes:
    return _data({"type": kind, **fields})


def _data(event: Mapping[str, Any]) -> bytes:
    return b"data: %b\n\n" % encode(event)
