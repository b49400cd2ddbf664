"""Converts the history that a client sends into the history of a turn. All of it is untrusted.

Answers become the model's text, calls of client tools become markers, and their results become blocks.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from brain.markers.neutralize import neutralize
from brain.markers.template_tokens import ALL_TOKENS, ControlTokens
from brain.messages import Attachment, Call, Exchange, History, Marks, Message, Part, Text
from brain.prompts import blocks, templates
from brain.protocols.common import ClientMessage
from brain.turn_request import TurnRequest, callable_name, marker_syntaxes, name_tools

UNKNOWN = Marks(untrusted=True, private_data=True)
"""Marks of answers that nobody looked up."""
_UNKNOWN_TOOL = "tool"
"""Name for the block of a result whose call is not in the history."""
_FIRST_PASS = -1_000_000
"""Number of the first pass of a history. Turns use no negative numbers."""


@dataclass(slots=True, eq=False)
class _Draft:
    """An unfinished exchange."""

    before: list[Message] = field(default_factory=list)
    question: str = ""
    attachments: list[Attachment] = field(default_factory=list)
    after: list[Message] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    is_from_user: bool = True

    @property
    def is_blank(self) -> bool:
        return not self.question and not self.attachments and not self.parts

    @property
    def next_pass(self) -> int:
        return _FIRST_PASS + len(self.parts)


class ClientHistory:
    """Converts a history message by message.

    Args:
        request: The request without question and files, which `build` adds.
        private: Those of the specialists whose results contain private data. Those of client tools may.
    """

    def __init__(
        self,
        request: TurnRequest,
        specialists: Iterable[str],
        tokens: ControlTokens = ALL_TOKENS,
        private: Collection[str] = (),
    ) -> None:
        self._private = private
        self._tokens = tokens
        self._request = request
        self._specialists = frozenset(specialists)
        self._tool_names = {tool.name: name for name, tool in name_tools(request.tools, self._specialists).items()}
        self._system: list[str] = []
        self._drafts: list[_Draft] = []
        self._open_calls: dict[str, tuple[_Draft, int]] = {}  # calls without result, by ID: exchange and part
        self._file_count = 0

    def build(
        self, messages: Sequence[ClientMessage], conversation_id: str, answers: Marks = UNKNOWN
    ) -> tuple[TurnRequest, History]:
        """Return the request with the newest question and its files, and the earlier history."""
        for message in messages:
            match message.role:
                case "system":
                    self._add_instructions(message.text)
                case "user":
                    draft = self._drafts[-1] if self._drafts and self._drafts[-1].is_blank else self._start_exchange()
                    draft.question = message.text
                    draft.attachments += self._number_files(message)
                case "assistant":
                    self._add_answer(message)
                case "tool":
                    self._add_result(message)
        newest = self._newest_exchange()
        earlier = [draft for draft in self._drafts if draft is not newest]
        request = replace(
            self._request,
            message=newest.question,
            system="\n\n".join(filter(None, [self._request.system, *self._system])),
            attachments=tuple(newest.attachments),
        )
        parts = [part for draft in self._drafts for part in draft.parts]
        calls = [part for part in parts if isinstance(part, Call)]
        has_answers = any(isinstance(part, Text) for part in parts)
        history = History(
            conversation_id,
            [self._build_exchange(draft) for draft in earlier],
            tuple(file for draft in earlier for file in draft.attachments),
            question=self._build_exchange(newest),
            untrusted=bool(calls) or (has_answers and answers.untrusted),
            private_data=any(self._is_private(call.name) for call in calls) or (has_answers and answers.private_data),
        )
        return request, history

    def _is_private(self, name: str) -> bool:
        return name not in self._specialists or name in self._private

    def _build_exchange(self, draft: _Draft) -> Exchange:
        files = [templates.attachments_note(draft.attachments)] if draft.attachments else []
        question = "\n\n".join(filter(None, [*files, neutralize(draft.question, self._tokens)]))
        own_words = draft.question if draft.is_from_user else ""
        return Exchange(question, draft.parts, tuple(draft.before), tuple(draft.after), message=own_words)

    def _add_instructions(self, text: str) -> None:
        """Add instructions: to the system message at the start of the history, else in place."""
        message = Message("system", neutralize(text, self._tokens))
        if not self._drafts:
            self._system.append(text)
        elif self._drafts[-1].parts:
            self._start_exchange().before.append(message)
        elif self._drafts[-1].is_blank:
            self._drafts[-1].before.append(message)
        else:
            self._drafts[-1].after.append(message)

    def _add_answer(self, message: ClientMessage) -> None:
        draft = self._current_exchange()
        number = draft.next_pass
        draft.attachments += self._number_files(message)
        if message.text:
            follows_text = bool(draft.parts) and isinstance(draft.parts[-1], Text)
            text = ("\n\n" if follows_text else "") + neutralize(message.text, self._tokens)
            draft.parts.append(Text(text, number))
        for call in message.calls:
            self._open_calls[call.id] = draft, len(draft.parts)
            draft.parts.append(self._build_call(call, number))

    def _build_call(self, call: Call, number: int) -> Call:
        name = self._tool_names.get(call.name)
        if name is None:  # a specialist, or a tool that the client no longer offers
            name = call.name if call.name in self._specialists else callable_name(call.name)
        marker = templates.marker(name, call.params or {}, marker_syntaxes(self._request.syntax)[0])
        block = blocks.error_block(name, *templates.NO_RESULT)
        return msgspec.structs.replace(call, name=name, marker=marker, turn_pass=number, code="failed", block=block)

    def _add_result(self, message: ClientMessage) -> None:
        """Add a result to its call. The result of an unknown call becomes a separate part."""
        draft, n = self._open_calls.pop(message.call_id, (None, 0))
        if draft is None:
            draft = self._current_exchange()
            n = len(draft.parts)
            draft.parts.append(Call(_UNKNOWN_TOOL, id=message.call_id, by="client", turn_pass=draft.next_pass))
        call = draft.parts[n]
        assert isinstance(call, Call)
        block = blocks.result_block(call.name, blocks.result_text(message.text, tokens=self._tokens))
        draft.parts[n] = msgspec.structs.replace(call, code=None, block=block, untrusted=True)

    def _newest_exchange(self) -> _Draft:
        """Return the exchange to answer. If the history ends with an answer, the model continues it."""
        while self._drafts and self._drafts[-1].is_blank and not self._drafts[-1].before:
            self._drafts.pop()
        newest = self._current_exchange()
        if newest.parts and isinstance(newest.parts[-1], Text):
            newest = self._start_exchange()
        if newest.is_blank:
            newest.question, newest.is_from_user = templates.CONTINUE, False
        return newest

    def _current_exchange(self) -> _Draft:
        return self._drafts[-1] if self._drafts else self._start_exchange()

    def _start_exchange(self) -> _Draft:
        self._drafts.append(_Draft())
        return self._drafts[-1]

    def _number_files(self, message: ClientMessage) -> list[Attachment]:
        first = self._file_count + 1
        self._file_count += len(message.attachments)
        return [replace(file, id=n) for n, file in enumerate(message.attachments, first)]
