"""The Vercel AI SDK's UI message stream. What happens in a turn, as the parts of one message.

For years its clients checked each frame strictly: a key too many, or a part that came with a later version, and the
stream is over. So the frames are those of version 5.0.0; newer ones go to those who say that they know them.
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
    Notice,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    Thinking,
    Token,
    TurnStart,
    Usage,
)
from brain.protocols.ai_sdk.schema import SdkVersion
from brain.protocols.bodies import encode
from brain.protocols.native import HEARTBEAT
from brain.text import replace_surrogates

CANCELLED = "The call was cancelled."

_OVER = b"data: [DONE]\n\n"
_START_STEP = b'data: {"type":"start-step"}\n\n'
_FINISH_STEP = b'data: {"type":"finish-step"}\n\n'
_ABORT = b'data: {"type":"abort"}\n\n'
_WAITS = b'data: {"type":"finish","finishReason":"tool-calls"}\n\n'
_FINISH_REASONS: Mapping[str, str] = {"length": "length", "deadline": "other"}


class Encoder:
    """Writes the events of one turn.

    A step of the message is what one pass said and called; it ends when its calls are answered and something else
    comes. Calls are shown as run by the provider, so that no client runs them, or sends their results. Those that wait
    for a person are not until they have an answer: clients before 6.0.264 would not send what the person says.

    Args:
        version: the client's.
        message_id: of the answer; None when it goes on with a message that the client has.
        waits: whether all of these calls wait for a person now. Then the stream ends, since clients bring approvals
            only in another request; one of version 5 has its approvals elsewhere, and reads on.

    Attributes:
        taken: how many events were written.
        closed: whether the stream is over.
    """

    content_type = b"text/event-stream; charset=utf-8"
    headers: Sequence[tuple[bytes, bytes]] = ((b"x-vercel-ai-ui-message-stream", b"v1"),)
    heartbeat = HEARTBEAT

    def __init__(
        self, version: SdkVersion, message_id: str | None, waits: Callable[[Collection[str]], bool] = lambda _: True
    ) -> None:
        self._version = version
        self._message_id = message_id
        self._waits = waits
        self._turn_id = ""
        self._first = b""  # goes before all that comes next
        self._kind = ""  # of the part that is open, "text" or "reasoning"
        self._number = 0
        self._delta = b""  # up to the text, of what is open
        self._in_step = False
        self._answered = False  # whether any call of the step was
        self._calls: dict[str, str] = {}  # of which the client knows, but no output: their ids there
        self._asked: dict[str, ApprovalRequired] = {}
        self._sources: set[str] = set()
        self.taken = 0
        self.closed = False

    def encode(self, events: Sequence[Event]) -> bytes:
        """What came together, up to the end of the stream."""
        frames, self._first = [self._first], b""
        for event in events:
            self.taken += 1
            frames.append(self._frames(event))
            if self.closed:
                break
        return b"".join(frames)

    def skip(self, events: Sequence[Event], decided: Collection[str]) -> None:
        """Takes what the client has read before it could bring these decisions. What comes next goes on behind it."""
        waits, self._waits = self._waits, set(decided).issubset
        self.encode(events)
        self._waits = waits
        self.closed = False
        self._first = _frame(type="start")

    def _frames(self, event: Event) -> bytes:
        if type(event) is Token:
            return self._said("text", event.text)
        match event:
            case Thinking():
                return self._said("reasoning", event.text)
            case SpecialistStart():
                return self._decided(event.call_id, approved=True) + self._called(event)
            case SpecialistProgress():
                return self._passing("progress", self._progress(event))
            case SpecialistResult():
                return self._result(event) + self._pause()
            case SpecialistError():
                return self._error(event) + self._pause()
            case ApprovalRequired():
                return self._ask(event) + self._pause()
            case TurnStart():
                return self._start(event)
            case Notice():
                return self._passing("notice", {"code": event.code, "text": event.text})
            case Usage():
                return _frame(type="message-metadata", messageMetadata={"usage": _usage(event)})
            case Error():
                return self._end() + _frame(type="error", errorText=event.message) + self._over()
            case Done():
                return self._end() + self._finish(event) + self._over()
        raise AssertionError("no client of this protocol brings tools")

    # Text, and the steps around it

    def _said(self, kind: str, text: str) -> bytes:
        opening = b"" if self._kind == kind else self._opened(kind)
        return b"%b%b%b}\n\n" % (opening, self._delta, encode(text))

    def _opened(self, kind: str) -> bytes:
        before = self._step()
        self._kind = kind
        self._number += 1
        self._delta = b'data: {"type":"%b-delta","id":"%d","delta":' % (kind.encode(), self._number)
        return before + _frame(type=f"{kind}-start", id=str(self._number))

    def _step(self) -> bytes:
        """What ends, and begins, before something that does not belong to what is open."""
        before = self._closed()
        if self._in_step and (self._calls or self._asked or not self._answered):
            return before
        before += self._end_step() + _START_STEP
        self._in_step = True
        return before

    def _closed(self) -> bytes:
        kind, self._kind = self._kind, ""
        return _frame(type=f"{kind}-end", id=str(self._number)) if kind else b""

    def _end_step(self) -> bytes:
        in_step, self._in_step, self._answered = self._in_step, False, False
        return _FINISH_STEP if in_step else b""

    # Calls, and what comes of them

    def _called(self, event: SpecialistStart | SpecialistResult | SpecialistError | ApprovalRequired) -> bytes:
        """A call with its parameters, unless the client has it already."""
        if event.call_id in self._calls:
            return b""
        step = self._step()
        call_id = self._calls[event.call_id] = self._id(event.call_id)
        run_here = {} if isinstance(event, ApprovalRequired) else {"providerExecuted": True}
        call = {"toolCallId": call_id, "toolName": event.name, **run_here, "dynamic": True}
        params = event.params or {}
        return b"".join(
            (
                step,
                _frame(type="tool-input-start", **call),
                _frame(type="tool-input-delta", toolCallId=call_id, inputTextDelta=encode(params).decode()),
                _frame(type="tool-input-available", **call, input=params),
            )
        )

    def _result(self, event: SpecialistResult) -> bytes:
        before = self._decided(event.call_id, approved=True) + self._called(event)
        output = self._output(event.call_id, "available", output=event.text)
        return b"".join((before, output, *(self._source(event.call_id, citation) for citation in event.citations)))

    def _error(self, event: SpecialistError) -> bytes:
        denied = event.call_id in self._asked and event.code == "declined" and self._version > 5
        before = self._decided(event.call_id, approved=False) + self._called(event)
        if not denied:
            return before + self._output(event.call_id, "error", errorText=event.reason)
        self._answered = True
        return before + _frame(type="tool-output-denied", toolCallId=self._calls.pop(event.call_id))

    def _output(self, call_id: str, how: str, **outcome: str) -> bytes:
        self._answered = True
        tool_call_id = self._calls.pop(call_id)
        return _frame(
            type=f"tool-output-{how}", toolCallId=tool_call_id, **outcome, providerExecuted=True, dynamic=True
        )

    def _source(self, call_id: str, citation: Citation) -> bytes:
        """Where a passage comes from, once; what is no address of the web is a document."""
        what = citation.url or citation.title
        if what in self._sources:
            return b""
        self._sources.add(what)
        source_id = f"{self._id(call_id)}.{citation.id}"
        if citation.url is not None and citation.url.startswith(("http://", "https://")):
            return _frame(type="source-url", sourceId=source_id, url=citation.url, title=citation.title)
        return _frame(type="source-document", sourceId=source_id, mediaType="text/plain", title=citation.title)

    def _progress(self, event: SpecialistProgress) -> Mapping[str, Any]:
        fraction = {} if event.fraction is None else {"fraction": event.fraction}
        return {"toolCallId": self._id(event.call_id), "text": event.text, **fraction}

    def _passing(self, name: str, data: Mapping[str, Any]) -> bytes:
        """What is told now, and does not stay in the message."""
        return _frame(type=f"data-{name}", data=data, transient=True)

    def _id(self, call_id: str) -> str:
        """A call's id for clients, to whom it must be the only one of this id in the whole chat."""
        return f"{self._turn_id}.{call_id}"

    # Calls that wait for a person

    def _ask(self, event: ApprovalRequired) -> bytes:
        before = self._step() if self._version == 5 else self._called(event)
        self._asked[event.call_id] = event
        if self._version == 5:
            return before + self._approval(event, "asked")
        call_id = self._id(event.call_id)
        if event.text is not None:
            before += _frame(type="data-preview", id=call_id, data={"toolCallId": call_id, "text": event.text})
        return before + _frame(type="tool-approval-request", approvalId=call_id, toolCallId=call_id)

    def _decided(self, call_id: str, *, approved: bool) -> bytes:
        """What became of the question, where there was one. Version 6 has no word for it."""
        event = self._asked.pop(call_id, None)
        if event is None or self._version == 6:
            return b""
        if self._version == 5:
            return self._approval(event, "approved" if approved else "declined")
        return _frame(type="tool-approval-response", approvalId=self._id(call_id), approved=approved)

    def _approval(self, event: ApprovalRequired, state: str) -> bytes:
        """The question as a part that stays and tells how it stands; it is answered at Brain's own address."""
        data = {
            "turnId": self._turn_id,
            "callId": event.call_id,
            "name": event.name,
            "params": event.params,
            "expiresAt": event.expires_at.isoformat(),
            "state": state,
            **({} if event.text is None else {"text": event.text}),
        }
        return _frame(type="data-approval", id=self._id(event.call_id), data=data)

    def _pause(self) -> bytes:
        """The end of the stream, when all that is open waits for a person."""
        if self._version == 5 or not self._asked or self._asked.keys() != self._calls.keys():
            return b""
        return self._end_step() + _WAITS + self._over() if self._waits(self._asked.keys()) else b""

    # The two ends

    def _start(self, event: TurnStart) -> bytes:
        self._turn_id = event.turn_id
        named = {} if self._message_id is None else {"messageId": self._message_id}
        metadata = {"turn_id": event.turn_id, "conversation_id": event.conversation_id}
        return _frame(type="start", **named, messageMetadata=metadata)

    def _end(self) -> bytes:
        """Closes what is open: a message that is over has no call without an output.

        Nor is its last step one of calls alone: clients take that for theirs to go on with, and would ask again.
        """
        text = self._closed()
        questions = [self._decided(call_id, approved=False) for call_id in [*self._asked]]
        calls = [self._output(call_id, "error", errorText=CANCELLED) for call_id in [*self._calls]]
        step = self._step() if self._answered else b""
        return b"".join((text, *questions, *calls, step, self._end_step()))

    def _finish(self, event: Done) -> bytes:
        if event.stop_reason == "cancelled":
            return _ABORT
        reason = _FINISH_REASONS.get(event.stop_reason, "stop")
        known = {} if self._version == 5 else {"finishReason": reason}  # 5.0.92 was the first to take it
        return _frame(type="finish", **known, messageMetadata={"stop_reason": event.stop_reason})

    def _over(self) -> bytes:
        self.closed = True
        return _OVER


def encode_rejection(error: BadRequest) -> tuple[int, bytes]:
    """Status and text of an answer to what is refused before the stream; clients show the text as it is."""
    return error.status, replace_surrogates(error.message).encode()


def _usage(event: Usage) -> Mapping[str, Any]:
    """In the SDK's own words."""
    reused = {} if event.reused_tokens is None else {"cachedInputTokens": event.reused_tokens}
    return {
        "inputTokens": event.prompt_tokens,
        "outputTokens": event.completion_tokens,
        "totalTokens": event.prompt_tokens + event.completion_tokens,
        **reused,
        "estimated": event.estimated,
    }


def _frame(**fields: Any) -> bytes:
    return b"data: %b\n\n" % encode(fields)
