"""A history that a client holds, as a conversation to go on from. Nothing in it is believed.

Its answers become what the model said, its calls of the client's own tools markers again, their results blocks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from brain.markers.neutralize import neutralize
from brain.markers.template_tokens import EVERY, ControlTokens
from brain.messages import Attachment, Call, ClientMessage, ClientToolCall, Exchange, History, Message, Part, Text
from brain.prompts import blocks, templates
from brain.prompts.client_tools import callable_name, name_tools
from brain.turn_request import TurnRequest

_RESULT_OF_NONE = "tool"
"""The name of what answered a call that the history no longer holds."""


@dataclass(slots=True, eq=False)
class _Draft:
    """An exchange that is being put together; `said` is false where its question is no word of the user's."""

    before: list[Message] = field(default_factory=list)
    question: str = ""
    attachments: list[Attachment] = field(default_factory=list)
    behind: list[Message] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    said: bool = True

    @property
    def blank(self) -> bool:
        return not self.question and not self.attachments and not self.parts

    def made(self, tokens: ControlTokens) -> Exchange:
        files = [templates.attachments_note(self.attachments)] if self.attachments else []
        question = "\n\n".join(filter(None, [*files, neutralize(self.question, tokens)]))
        said = self.question if self.said else ""
        return Exchange(question, self.parts, tuple(self.before), tuple(self.behind), said=said)

    def next_pass(self) -> int:
        """A number unlike any pass of a turn that goes on with it."""
        return len(self.parts) - 1_000_000


class ClientHistory:
    """Takes a history message by message.

    Args:
        ask: what is asked now.
        taken: the names of the specialists, which the client's tools cannot have.
        tokens: the control tokens that count for the model.
    """

    def __init__(self, ask: TurnRequest, taken: Iterable[str], tokens: ControlTokens = EVERY) -> None:
        self._tokens = tokens
        self._ask = ask
        self._taken = frozenset(taken)
        self._names = {tool.name: name for name, tool in name_tools(ask.tools, self._taken).items()}
        self._system: list[str] = []
        self._drafts: list[_Draft] = []
        self._open: dict[str, tuple[_Draft, int]] = {}  # where calls stand whose results are still to come
        self._files = 0

    def conversation(self, spoken: Sequence[ClientMessage], conversation_id: str) -> tuple[TurnRequest, History]:
        """What is asked now, with its files, and all that was said before."""
        for message in spoken:
            self._take(message)
        newest = self._newest()
        earlier = [draft for draft in self._drafts if draft is not newest]
        files = tuple(file for draft in earlier for file in draft.attachments)
        system = "\n\n".join(filter(None, [self._ask.system, *self._system]))
        ask = replace(self._ask, message=newest.question, system=system, attachments=tuple(newest.attachments))
        exchanges = [draft.made(self._tokens) for draft in earlier]
        answered = any(message.role in ("assistant", "tool") for message in spoken)  # and who knows from what
        return ask, History(conversation_id, exchanges, files, begun=newest.made(self._tokens), outside=answered)

    def _take(self, message: ClientMessage) -> None:
        if message.role == "system":
            self._take_system(message.text)
        elif message.role == "user":
            draft = self._drafts[-1] if self._drafts and self._drafts[-1].blank else self._next()
            draft.question = message.text
            draft.attachments += [self._numbered(file) for file in message.attachments]
        elif message.role == "assistant":
            self._take_answer(message)
        else:
            self._take_result(message)

    def _take_system(self, text: str) -> None:
        """Instructions stay where they stood; those at the very beginning join the others there."""
        said = Message("system", neutralize(text, self._tokens))
        if not self._drafts:
            self._system.append(text)
        elif self._drafts[-1].parts:
            self._next().before.append(said)
        elif self._drafts[-1].blank:
            self._drafts[-1].before.append(said)
        else:
            self._drafts[-1].behind.append(said)

    def _take_answer(self, message: ClientMessage) -> None:
        draft = self._drafts[-1] if self._drafts else self._next()
        number = draft.next_pass()
        draft.attachments += [self._numbered(file) for file in message.attachments]
        if message.text:
            follows = bool(draft.parts) and isinstance(draft.parts[-1], Text)
            draft.parts.append(Text(("\n\n" if follows else "") + neutralize(message.text, self._tokens), number))
        for call in message.calls:
            self._open[call.call_id] = draft, len(draft.parts)
            draft.parts.append(self._called(call, number))

    def _called(self, call: ClientToolCall, number: int) -> Call:
        known = call.name in self._taken  # a specialist's call that a client tells of
        name = self._names.get(call.name) or (call.name if known else callable_name(call.name))
        marker = templates.marker(name, call.params, self._ask.syntax[0])
        block = blocks.error_block(name, templates.NO_RESULT)
        return Call(
            name, marker, dict(call.params), id=call.call_id, by="client", turn_pass=number, code="failed", block=block
        )

    def _take_result(self, message: ClientMessage) -> None:
        """Puts a result where its call stands; one of no known call stands alone."""
        draft, place = self._open.pop(message.call_id, (None, 0))
        if draft is None:
            draft = self._drafts[-1] if self._drafts else self._next()
            place = len(draft.parts)
            draft.parts.append(Call(_RESULT_OF_NONE, id=message.call_id, by="client", turn_pass=draft.next_pass()))
        call = draft.parts[place]
        assert isinstance(call, Call)
        block = blocks.result_block(call.name, blocks.result_text(message.text, tokens=self._tokens))
        draft.parts[place] = msgspec.structs.replace(call, code=None, block=block, untrusted=True)

    def _newest(self) -> _Draft:
        """What is to be answered now: also when the last word was an answer, which is then to be gone on with."""
        while self._drafts and self._drafts[-1].blank and not self._drafts[-1].before:
            self._drafts.pop()
        newest = self._drafts[-1] if self._drafts else self._next()
        if newest.parts and isinstance(newest.parts[-1], Text):
            newest = self._next()
        if newest.blank:
            newest.question, newest.said = templates.CONTINUE, False
        return newest

    def _next(self) -> _Draft:
        draft = _Draft()
        self._drafts.append(draft)
        return draft

    def _numbered(self, file: Attachment) -> Attachment:
        self._files += 1
        return replace(file, id=self._files)
