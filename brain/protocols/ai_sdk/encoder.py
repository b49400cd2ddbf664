"""Encodes a turn as the parts of one message: the UI message stream of the Vercel AI SDK.

Its older clients end the stream at a frame with an unknown key or from a later version. So the frames are those of
version 5.0.0; newer frames go to clients that send their version.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from brain.errors import BadRequest
from brain.events import (
    ApprovalRequired,
    Citation,
    Done,
    Error,
    Event,
    ModelUsage,
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
    TurnStart,
    Usage,
)
from brain.protocols.ai_sdk.request import SdkVersion
from brain.protocols.encoding import HEARTBEAT, REWOUND, SSE_TYPE, data_frame, encode, token_counts
from brain.protocols.native import event_data
from brain.text import replace_surrogates

CANCELLED = "The call was cancelled."

_END = b"data: [DONE]\n\n"
_START_STEP = b'data: {"type":"start-step"}\n\n'
_FINISH_STEP = b'data: {"type":"finish-step"}\n\n'
_ABORT = b'data: {"type":"abort"}\n\n'
_FINISH_FOR_APPROVAL = b'data: {"type":"finish","finishReason":"tool-calls"}\n\n'
_FINISH_REASONS: Mapping[str, str] = {
    "length": "length",
    "deadline": "other",
    "content_filter": "content-filter",
}

CallEvent = SpecialistStart | SpecialistResult | SpecialistError | ApprovalRequired


class Encoder:
    """Encodes the events of one turn.

    A step of the message is the text and the calls of one pass. It ends when its calls have outputs and another frame
    follows. Calls are marked as executed by the provider, so clients neither execute them nor send their results. A
    call that waits for approval is not marked yet: clients before 6.0.264 would not send the decision.

    Args:
        message_id: the ID of the answer; None if it continues a message that the client has.
        all_pending: returns whether all of these calls wait for approval now. Then the stream ends, since clients send
            decisions only in a new request. Clients of version 5 use Brain's own route and read on.
        turn_id: for a stream that may begin with `Rewind`, like `conversation_id`; else they are in `TurnStart`.
    """

    content_type = SSE_TYPE
    headers: Sequence[tuple[bytes, bytes]] = ((b"x-vercel-ai-ui-message-stream", b"v1"),)
    heartbeat = HEARTBEAT

    def __init__(
        self,
        version: SdkVersion,
        message_id: str | None,
        all_pending: Callable[[Collection[str]], bool] = lambda _: True,
        *,
        turn_id: str = "",
        conversation_id: str = "",
    ) -> None:
        self._version = version
        self._message_id = message_id
        self._all_pending = all_pending
        self._turn_id = turn_id
        self._conversation_id = conversation_id
        self._prefix = b""  # of the next frames
        self._part_kind = ""  # of the open part: "text", "reasoning" or none
        self._part_number = 0
        self._delta_head = b""  # of the open part, up to the text
        self._in_step = False
        self._step_has_output = False
        self._calls: dict[str, str] = {}  # client's IDs of the calls that it knows without an output
        self._approvals: dict[str, ApprovalRequired] = {}  # that are pending
        self._sources: set[str] = set()
        self.event_count = 0
        self.closed = False

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the frames of events that happened together, up to the end of the stream."""
        frames, self._prefix = [self._prefix], b""
        for event in events:
            self.event_count += 1
            frames.append(self._encode(event))
            if self.closed:
                break
        return b"".join(frames)

    def skip(self, events: Sequence[Event], decided: Collection[str]) -> None:
        """Skip the events that the client received before it sent decisions on these calls."""
        all_pending, self._all_pending = self._all_pending, set(decided).issubset
        self.encode(events)
        self._all_pending = all_pending
        self.closed = False
        self._prefix = _frame(type="start")

    def _encode(self, event: Event) -> bytes:
        if type(event) is Token and self._part_kind == "text":
            return b"%b%b}\n\n" % (self._delta_head, encode(event.text))
        match event:
            case Token():
                return self._encode_text("text", event.text)
            case Thinking():
                return self._encode_text("reasoning", event.text)
            case Round():
                round_id = f"{self._turn_id}.{self.event_count}"
                return self._start_step() + _frame(type="data-round", id=round_id, data=event_data(event))
            case SpecialistStart():
                return self._resolve_approval(event.call_id, approved=True) + self._open_call(event)
            case SpecialistProgress():
                data = {"toolCallId": self._client_id(event.call_id), "text": event.text}
                return _transient("progress", data if event.fraction is None else {**data, "fraction": event.fraction})
            case SpecialistResult():
                frames = [self._resolve_approval(event.call_id, approved=True), self._open_call(event)]
                frames.append(self._close_call(event.call_id, "available", output=event.text))
                frames += [self._encode_source(event.call_id, citation) for citation in event.citations]
                return b"".join(frames) + self._pause()
            case SpecialistError():
                return self._encode_error(event) + self._pause()
            case ApprovalRequired():
                return self._encode_approval(event) + self._pause()
            case TurnStart():
                self._turn_id, self._conversation_id = event.turn_id, event.conversation_id
                return self._start()
            case Rewind():
                return self._rewind(event)
            case Notice():
                return _transient("notice", {"code": event.code, "text": event.text})
            case TaskChange():
                return _frame(type="data-task", id=event.task_id, data=event_data(event))
            case Usage():
                return _frame(type="message-metadata", messageMetadata={"usage": _usage(event)})
            case Error():
                self.closed = True
                return self._close_all() + _frame(type="error", errorText=event.message) + _END
            case Done():
                self.closed = True
                return self._close_all() + self._encode_finish(event) + _END
        raise AssertionError("clients of this protocol have no tools of their own")

    def _start(self) -> bytes:
        message_id = {} if self._message_id is None else {"messageId": self._message_id}
        metadata = {"turn_id": self._turn_id, "conversation_id": self._conversation_id}
        return _frame(type="start", **message_id, messageMetadata=metadata)

    def _rewind(self, event: Rewind) -> bytes:
        """The text so far. A client reconnects with an empty message, which this stream fills from its beginning.

        No frame takes a part back. So a stream that already has some ends in an error, and the client loads the chat.
        """
        if self.event_count > 1:
            self.closed = True
            return self._close_all() + _frame(type="error", errorText=REWOUND) + _END
        return self._start() + (self._encode_text("text", event.text) if event.text else b"")

    # Text, and the steps around it

    def _encode_text(self, kind: str, text: str) -> bytes:
        start = b""
        if self._part_kind != kind:
            start = self._start_step()
            self._part_kind = kind
            self._part_number += 1
            self._delta_head = b'data: {"type":"%b-delta","id":"%d","delta":' % (kind.encode(), self._part_number)
            start += _frame(type=f"{kind}-start", id=str(self._part_number))
        return b"%b%b%b}\n\n" % (start, self._delta_head, encode(text))

    def _start_step(self) -> bytes:
        """Close the open part, and start a step unless the open one has no output or lacks some."""
        closing = self._close_part()
        if self._in_step and (self._calls or self._approvals or not self._step_has_output):
            return closing
        closing += self._finish_step() + _START_STEP
        self._in_step = True
        return closing

    def _close_part(self) -> bytes:
        kind, self._part_kind = self._part_kind, ""
        return _frame(type=f"{kind}-end", id=str(self._part_number)) if kind else b""

    def _finish_step(self) -> bytes:
        in_step, self._in_step, self._step_has_output = self._in_step, False, False
        return _FINISH_STEP if in_step else b""

    # Calls

    def _open_call(self, event: CallEvent) -> bytes:
        """A call with its parameters, unless the client has it already."""
        if event.call_id in self._calls:
            return b""
        step = self._start_step()
        call_id = self._calls[event.call_id] = self._client_id(event.call_id)
        executed = {} if isinstance(event, ApprovalRequired) else {"providerExecuted": True}
        call = {"toolCallId": call_id, "toolName": event.name, **executed, "dynamic": True}
        params = event.params or {}
        return b"".join(
            (
                step,
                _frame(type="tool-input-start", **call),
                _frame(type="tool-input-delta", toolCallId=call_id, inputTextDelta=encode(params).decode()),
                _frame(type="tool-input-available", **call, input=params),
            )
        )

    def _encode_error(self, event: SpecialistError) -> bytes:
        is_denied = event.call_id in self._approvals and event.code == "declined" and self._version > 5
        opening = self._resolve_approval(event.call_id, approved=False) + self._open_call(event)
        if not is_denied:
            return opening + self._close_call(event.call_id, "error", errorText=event.reason)
        self._step_has_output = True
        return opening + _frame(type="tool-output-denied", toolCallId=self._calls.pop(event.call_id))

    def _close_call(self, call_id: str, outcome: str, **output: str) -> bytes:
        self._step_has_output = True
        client_id = self._calls.pop(call_id)
        return _frame(
            type=f"tool-output-{outcome}", toolCallId=client_id, **output, providerExecuted=True, dynamic=True
        )

    def _encode_source(self, call_id: str, citation: Citation) -> bytes:
        """A source, once. A source without a web URL is a document."""
        key = citation.url or citation.title
        if key in self._sources:
            return b""
        self._sources.add(key)
        source_id = f"{self._client_id(call_id)}.{citation.id}"
        if citation.url is not None and citation.url.startswith(("http://", "https://")):
            return _frame(type="source-url", sourceId=source_id, url=citation.url, title=citation.title)
        return _frame(type="source-document", sourceId=source_id, mediaType="text/plain", title=citation.title)

    def _client_id(self, call_id: str) -> str:
        """The ID of a call for clients, which is unique in the chat."""
        return f"{self._turn_id}.{call_id}"

    # Approvals

    def _encode_approval(self, event: ApprovalRequired) -> bytes:
        opening = self._start_step() if self._version == 5 else self._open_call(event)
        self._approvals[event.call_id] = event
        if self._version == 5:
            return opening + self._approval_part(event, "asked")
        call_id = self._client_id(event.call_id)
        if event.text is not None:
            opening += _frame(type="data-preview", id=call_id, data={"toolCallId": call_id, "text": event.text})
        return opening + _frame(type="tool-approval-request", approvalId=call_id, toolCallId=call_id)

    def _resolve_approval(self, call_id: str, *, approved: bool) -> bytes:
        """The decision on a pending call. Version 6 has no frame for it."""
        event = self._approvals.pop(call_id, None)
        if event is None or self._version == 6:
            return b""
        if self._version == 5:
            return self._approval_part(event, "approved" if approved else "declined")
        return _frame(type="tool-approval-response", approvalId=self._client_id(call_id), approved=approved)

    def _approval_part(self, event: ApprovalRequired, state: str) -> bytes:
        """A part that shows the state of a call and stays in the message; clients decide at Brain's own route."""
        data = {
            "turnId": self._turn_id,
            "callId": event.call_id,
            "name": event.name,
            "params": event.params,
            "expiresAt": event.expires_at.isoformat(),
            "state": state,
            **({} if event.text is None else {"text": event.text}),
        }
        return _frame(type="data-approval", id=self._client_id(event.call_id), data=data)

    def _pause(self) -> bytes:
        """The end of the stream, if all open calls wait for approval."""
        if self._version == 5 or not self._approvals or self._approvals.keys() != self._calls.keys():
            return b""
        if not self._all_pending(self._approvals.keys()):
            return b""
        self.closed = True
        return self._finish_step() + _FINISH_FOR_APPROVAL + _END

    # The end

    def _close_all(self) -> bytes:
        """Close all parts and calls: each call in a finished message has an output.

        The last step does not contain only calls, since clients would send a request to continue it.
        """
        frames = [self._close_part()]
        frames += [self._resolve_approval(call_id, approved=False) for call_id in [*self._approvals]]
        frames += [self._close_call(call_id, "error", errorText=CANCELLED) for call_id in [*self._calls]]
        frames.append(self._start_step() if self._step_has_output else b"")
        return b"".join([*frames, self._finish_step()])

    def _encode_finish(self, event: Done) -> bytes:
        if event.stop_reason == "cancelled":  # clients of 5.0 need it to store the last step
            return _frame(type="message-metadata", messageMetadata={"stop_reason": event.stop_reason}) + _ABORT
        reason = _FINISH_REASONS.get(event.stop_reason, "stop")
        finish_reason = {} if self._version == 5 else {"finishReason": reason}  # 5.0.92 was the first to accept it
        return _frame(type="finish", **finish_reason, messageMetadata={"stop_reason": event.stop_reason})


def encode_rejection(error: BadRequest) -> tuple[int, bytes]:
    """Return status and text for a rejected request; clients show the text."""
    return error.status, replace_surrogates(error.message).encode()


def _usage(usage: ModelUsage) -> Mapping[str, Any]:
    """The SDK's fields, and Brain's `estimated` and `models`."""
    models = usage.models if isinstance(usage, Usage) else None
    return {
        **token_counts(usage),
        "estimated": usage.estimated,
        **({} if models is None else {"models": {name: _usage(one) for name, one in models.items()}}),
    }


def _transient(name: str, data: Mapping[str, Any]) -> bytes:
    """A part that clients show once and do not store in the message."""
    return _frame(type=f"data-{name}", data=data, transient=True)


def _frame(**fields: Any) -> bytes:
    return data_frame(fields)
