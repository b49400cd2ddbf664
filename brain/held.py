"""Rooms: a history that a client holds, as a conversation to go on from. Nothing in it is believed.

Its answers become what the model said, its calls of the client's own tools markers again, their results blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from brain import blocks, prompts
from brain.ask import Ask, Attachment
from brain.blocks import harmless
from brain.messages import Called, Exchange, Handed, Message, Part, Said, Spoken
from brain.tools import callable_name, named
from brain.turn import Conversation


@dataclass(slots=True)
class _Draft:
    """An exchange that is being put together."""

    before: tuple[Message, ...] = ()
    question: str = ""
    attachments: list[Attachment] = field(default_factory=list)
    behind: tuple[Message, ...] = ()
    parts: list[Part] = field(default_factory=list)

    def made(self) -> Exchange:
        return Exchange(harmless(self.question), self.parts, self.before, self.behind)


class Held:
    """Takes a history message by message.

    Args:
        ask: what is asked now.
        taken: the names of the specialists, which the client's tools cannot have.
    """

    def __init__(self, ask: Ask, taken: Sequence[str]) -> None:
        self._ask = ask
        self._taken = taken
        self._names = {tool.name: name for name, tool in named(ask.tools, taken).items()}
        self._system: list[str] = []
        self._drafts: list[_Draft] = []
        self._answered: dict[str, Called] = {}
        self._files = 0

    def conversation(self, spoken: Sequence[Spoken], conversation_id: str) -> tuple[Ask, Conversation]:
        """What is asked now, with its files, and all that was said before."""
        for message in spoken:
            self._take(message)
        newest = self._newest()
        earlier = [draft for draft in self._drafts if draft is not newest]
        files = tuple(file for draft in earlier for file in draft.attachments)
        system = "\n\n".join(filter(None, [self._ask.system, *self._system]))
        ask = replace(self._ask, message=newest.question, system=system, attachments=tuple(newest.attachments))
        exchanges = [draft.made() for draft in earlier]
        return ask, Conversation(conversation_id, exchanges, files, begun=newest.made())

    def _take(self, message: Spoken) -> None:
        if message.role == "system":
            self._take_system(message.text)
        elif message.role == "user":
            draft = self._drafts[-1] if self._drafts and self._is_blank(self._drafts[-1]) else self._next()
            draft.question = message.text
            draft.attachments += [self._numbered(file) for file in message.attachments]
        elif message.role == "assistant":
            self._take_answer(message)
        else:
            self._take_result(message)

    def _take_system(self, text: str) -> None:
        """Instructions stay where they stood; those at the very beginning join the others there."""
        said = Message("system", harmless(text))
        if not self._drafts:
            self._system.append(text)
        elif self._drafts[-1].parts:
            self._next().before = (said,)
        elif self._is_blank(self._drafts[-1]):
            self._drafts[-1].before += (said,)
        else:
            self._drafts[-1].behind += (said,)

    def _take_answer(self, message: Spoken) -> None:
        draft = self._drafts[-1] if self._drafts else self._next()
        number = len(draft.parts) - 10_000  # unlike any pass of a turn that goes on with it
        draft.attachments += [self._numbered(file) for file in message.attachments]
        if message.text:
            draft.parts.append(Said(harmless(message.text), number))
        for call in message.calls:
            self._answered[call.call_id] = self._called(call, prompts.NO_RESULT, number)
            draft.parts.append(self._answered[call.call_id])

    def _called(self, call: Handed, reason: str, number: int) -> Called:
        name = self._names.get(call.name) or callable_name(call.name, self._taken)
        marker = prompts.marker(name, call.params, self._ask.syntax[0])
        return Called(call.call_id, name, call.params, marker, "failed", blocks.error_block(name, reason), (), number)

    def _take_result(self, message: Spoken) -> None:
        """Puts a result where its call stands; one of no known call stands alone in a message of the user."""
        call = self._answered.pop(message.call_id, None)
        if call is None:
            self._next().question = message.text
            return
        block = blocks.result_block(call.name, blocks.result_text(message.text))
        answered = replace(call, outcome=None, block=block)
        for draft in self._drafts:
            draft.parts = [answered if part is call else part for part in draft.parts]

    def _newest(self) -> _Draft:
        """What is to be answered now: also when the last word was an answer, which is then to be gone on with."""
        if self._drafts:
            newest = self._drafts[-1]
            if not newest.parts or isinstance(newest.parts[-1], Called):
                return newest
        draft = self._next()
        draft.question = prompts.CONTINUE
        return draft

    def _next(self) -> _Draft:
        draft = _Draft()
        self._drafts.append(draft)
        return draft

    def _is_blank(self, draft: _Draft) -> bool:
        return not draft.question and not draft.parts

    def _numbered(self, file: Attachment) -> Attachment:
        self._files += 1
        return replace(file, id=self._files)
