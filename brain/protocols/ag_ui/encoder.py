"""Encodes a turn as the events of an AG-UI run, or of several runs with approvals between them.

Calls of specialists are tool calls with results; calls of client tools have no results. A round of a strategy is a
step. The ID of a message is the ID of the native event that started it, so IDs are unique across all runs of a turn.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from brain.errors import BadRequest
from brain.events import (
    ApprovalRequired,
    Done,
    Error,
    Event,
    Notice,
    Rewind,
    Round,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    TaskChange,
    Thinking,
    Token,
    ToolCall,
    Usage,
)
from brain.protocols.ag_ui.request import RequestOptions
from brain.protocols.encoding import (
    HEARTBEAT,
    REWOUND,
    SSE_TYPE,
    citation_data,
    data_frame,
    encode,
    format_params,
    token_counts,
)
from brain.protocols.native import event_data

PROTOCOL_VERSION = "1.0"

_RESPONSE_SCHEMA = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}

_ID = b"\0"
_TEXT_CONTENT = b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":'
_TEXT_START = b'data: {"type":"TEXT_MESSAGE_START","messageId":\0,"role":"assistant"}\n\n'
_TEXT_END = b'data: {"type":"TEXT_MESSAGE_END","messageId":\0}\n\n'
_REASONING_CONTENT = b'data: {"type":"REASONING_MESSAGE_CONTENT","messageId":'
_REASONING_START = (
    b'data: {"type":"REASONING_START","messageId":\0}\n\n'
    b'data: {"type":"REASONING_MESSAGE_START","messageId":\0,"role":"reasoning"}\n\n'
)
_REASONING_END = (
    b'data: {"type":"REASONING_MESSAGE_END","messageId":\0}\n\ndata: {"type":"REASONING_END","messageId":\0}\n\n'
)


class Encoder:
    """Encodes the events of a run.

    Args:
        after: the number of the event after which the run starts.
        known_calls: the calls that the client has from an earlier run of the turn.

    Attributes:
        closed: whether the run has ended. A call that needs approval ends it, too.
    """

    content_type = SSE_TYPE
    headers: Sequence[tuple[bytes, bytes]] = ()
    heartbeat = HEARTBEAT

    def __init__(
        self,
        options: RequestOptions,
        turn_id: str,
        model: str,
        after: int = 0,
        known_calls: Collection[str] = frozenset(),
        round: Round | None = None,
    ) -> None:
        self._options = options
        self._turn_id = turn_id
        self._model = model
        self._after = self._number = after
        self._known_calls = set(known_calls)
        self._message_id = ""  # of the message to which the next call belongs
        self._content_head = b""  # of the open message, up to the text
        self._closing = b""  # the end of the open message
        self._first_round = round
        self._step = ""  # the open step
        self._approvals: dict[str, ApprovalRequired] = {}  # that are pending
        self._client_calls: list[str] = []
        self._usage: Usage | None = None
        self._is_started = False
        self.closed = False

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the frames of events that happened together. The run ends after them if an approval is pending."""
        start = b"" if self._is_started else self._start()
        frames = self._encode(events[0]) if len(events) == 1 else self._encode_all(events)
        return b"".join((start, frames, self._interrupt() if self._approvals else b""))

    def _encode_all(self, events: Sequence[Event]) -> bytes:
        return b"".join([self._encode(event) for event in events if not self.closed])

    def _start(self) -> bytes:
        self._is_started = True
        parent = self._options.parent_run_id
        about = {"turnId": self._turn_id, "conversationId": self._options.conversation_id, "model": self._model}
        start = _run_started(self._options, **({} if parent is None else {"parentRunId": parent}))
        step = b"" if self._first_round is None else self._start_step(self._first_round)
        return start + _custom("turn", about) + step

    def _encode(self, event: Event) -> bytes:
        self._number += 1
        if type(event) is Token and event.text and self._content_head.startswith(_TEXT_CONTENT):
            return b"%b%b}\n\n" % (self._content_head, encode(event.text))
        match event:
            case Token():
                return self._encode_text(event.text, _TEXT_CONTENT, _TEXT_START, _TEXT_END)
            case Thinking():
                return self._encode_text(event.text, _REASONING_CONTENT, _REASONING_START, _REASONING_END)
            case Round():
                return self._close_step() + self._start_step(event)
            case SpecialistStart():
                self._approvals.pop(event.call_id, None)
                return self._encode_call(self._client_id(event.call_id), event.name, event.params)
            case SpecialistProgress():
                value = {"toolCallId": self._client_id(event.call_id), "text": event.text}
                more = {} if event.fraction is None else {"fraction": event.fraction}
                return _custom("specialist_progress", {**value, **more})
            case SpecialistResult() | SpecialistError():
                self._approvals.pop(event.call_id, None)
                call = self._encode_call(self._client_id(event.call_id), event.name, event.params)
                return call + self._encode_result(event)
            case ApprovalRequired():
                self._approvals[event.call_id] = event
                return self._encode_call(self._client_id(event.call_id), event.name, event.params)
            case ToolCall():
                self._client_calls.append(event.call_id)
                return self._encode_call(event.call_id, event.name, event.params)
            case Rewind():
                return self._rewind(event)
            case Notice():
                return _custom("notice", {"code": event.code, "text": event.text})
            case TaskChange():
                return _custom("task", event_data(event))
            case Usage():
                self._usage = event
            case Done() | Error():
                return self._encode_end(event)
        return b""

    def _rewind(self, event: Rewind) -> bytes:
        """The text so far, in a run that begins with it.

        Only `MESSAGES_SNAPSHOT` takes events back. It has all messages of the thread, and the client's own messages are
        not part of a turn. So a run that already has events fails, and the client loads the thread.
        """
        if self._number == self._after + 1:
            return self._encode_text(event.text, _TEXT_CONTENT, _TEXT_START, _TEXT_END)
        self._approvals.clear()
        return self._encode_end(Error("shutdown", REWOUND, recoverable=True))

    def _encode_text(self, text: str, content: bytes, start: bytes, end: bytes) -> bytes:
        if not text:  # clients reject an empty delta
            return b""
        if self._content_head.startswith(content):
            return b"%b%b}\n\n" % (self._content_head, encode(text))
        closing, event_id = self._close_message(), self._event_id()
        self._message_id = event_id if content is _TEXT_CONTENT else ""  # no call belongs to reasoning
        message_id = encode(event_id)
        self._content_head = content + message_id + b',"delta":'
        self._closing = end.replace(_ID, message_id)
        return b"%b%b%b%b}\n\n" % (closing, start.replace(_ID, message_id), self._content_head, encode(text))

    def _close_message(self) -> bytes:
        closing, self._closing, self._content_head = self._closing, b"", b""
        return closing

    def _start_step(self, event: Round) -> bytes:
        self._step, self._message_id = f"Round {event.n} of {event.of}, {event.role}", ""
        return _frame("STEP_STARTED", stepName=self._step, metadata=event_data(event))

    def _close_step(self) -> bytes:
        """The end of the open message and the open step."""
        closing, step, self._step = self._close_message(), self._step, ""
        return closing + _frame("STEP_FINISHED", stepName=step) if step else closing

    def _encode_call(self, call_id: str, name: str, params: Mapping[str, Any] | None) -> bytes:
        """A call with its parameters, once. It belongs to the message before it, or starts one."""
        if call_id in self._known_calls:
            return b""
        self._known_calls.add(call_id)
        closing, self._message_id = self._close_message(), self._message_id or self._event_id()
        return b"".join(
            (
                closing,
                _frame("TOOL_CALL_START", toolCallId=call_id, toolCallName=name, parentMessageId=self._message_id),
                _frame("TOOL_CALL_ARGS", toolCallId=call_id, delta=encode(params or {}).decode()),
                _frame("TOOL_CALL_END", toolCallId=call_id),
            )
        )

    def _encode_result(self, event: SpecialistResult | SpecialistError) -> bytes:
        """The result of a call. A call after it does not belong to the same message."""
        if not self._closing:
            self._message_id = ""
        call_id = self._client_id(event.call_id)
        if isinstance(event, SpecialistResult):
            content, metadata = event.text, {"outcome": "ok", "ms": event.ms}
            if event.cached:
                metadata["cached"] = True
        else:
            content, metadata = f"{event.name} failed - {event.reason}", {"outcome": event.code, "ms": event.ms}
        ids = {"messageId": self._event_id(), "toolCallId": call_id}
        frames = _frame("TOOL_CALL_RESULT", **ids, content=content, role="tool", metadata=metadata)
        if isinstance(event, SpecialistResult) and event.citations:
            sources = [*map(citation_data, event.citations)]
            frames += _custom("sources", {"toolCallId": call_id, "sources": sources})
        return frames

    def _interrupt(self) -> bytes:
        """The end of a run whose turn waits: each call that needs approval is an interrupt.

        The ID of an interrupt contains the turn, the call, and the number of the last event.
        """
        self.closed = True
        interrupts = []
        for event in self._approvals.values():
            call_id = self._client_id(event.call_id)
            preview = "" if event.text is None else f"{event.text}\n\n"
            interrupts.append(
                {
                    "id": f"{call_id}.{self._number}",
                    "reason": "tool_call",
                    "message": f"{preview}Allow {event.name} with {format_params(event.params)}?",
                    "toolCallId": call_id,
                    "responseSchema": _RESPONSE_SCHEMA,
                    "expiresAt": event.expires_at.isoformat().replace("+00:00", "Z"),
                }
            )
        outcome = {"type": "interrupt", "interrupts": interrupts}
        return self._close_step() + _run_event("RUN_FINISHED", self._options, outcome=outcome)

    def _encode_end(self, event: Done | Error) -> bytes:
        self.closed = True
        closing, more = self._close_step(), self._usage_fields()
        if isinstance(event, Error):
            return closing + data_frame({**_run_error(event.message, event.code), **more})
        result = {
            "stopReason": event.stop_reason,
            "calls": event.calls,
            "passes": event.passes,
            "totalMs": event.total_ms,
        }
        outcome: dict[str, Any] = {"type": "cancelled" if event.stop_reason == "cancelled" else "success"}
        if self._client_calls and event.stop_reason != "cancelled":
            outcome["pendingToolCallIds"] = self._client_calls
        return closing + _run_event("RUN_FINISHED", self._options, result=result, outcome=outcome, **more)

    def _usage_fields(self) -> dict[str, Any]:
        usage = self._usage
        if usage is None:
            return {}
        counts = [{"model": name, **token_counts(one)} for name, one in (usage.models or {self._model: usage}).items()]
        return {"usage": counts, **({"metadata": {"usageEstimated": True}} if usage.estimated else {})}

    def _client_id(self, call_id: str) -> str:
        """The ID of a call for clients, which is unique in the conversation."""
        return f"{self._turn_id}.{call_id}"

    def _event_id(self) -> str:
        return f"{self._turn_id}.{self._number}"


def encode_rejection(error: BadRequest) -> tuple[int, dict[str, str]]:
    """Return status and body for a rejected request."""
    return error.status, _run_error(error.message, error.code)


def encode_failed_run(options: RequestOptions, error: BadRequest) -> bytes:
    """Return a run that fails at once. The protocol requires it for rejected answers to interrupts."""
    return _run_started(options) + data_frame(_run_error(error.message, error.code))


def _run_error(message: str, code: str) -> dict[str, str]:
    return {"type": "RUN_ERROR", "message": message, "code": code}


def _run_started(options: RequestOptions, **more: Any) -> bytes:
    return _run_event("RUN_STARTED", options, protocolVersion=PROTOCOL_VERSION, **more)


def _run_event(kind: str, options: RequestOptions, **more: Any) -> bytes:
    return _frame(kind, threadId=options.thread_id, runId=options.run_id, **more)


def _custom(name: str, value: Mapping[str, Any]) -> bytes:
    return _frame("CUSTOM", name=name, value=value)


def _frame(kind: str, **fields: Any) -> bytes:
    return data_frame({"type": kind, **fields})
