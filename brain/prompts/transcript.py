"""The messages that a model reads: everything of a conversation up to the next pass.

The same parts give byte for byte the same messages in every later request, so that a server's prefix cache stays valid.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, groupby

import msgspec

from brain.events import Resume
from brain.markers.neutralize import neutralize, neutralize_control_tokens
from brain.markers.template_tokens import ALL_TOKENS, ControlTokens
from brain.messages import Call, Exchange, Message, Part, Steer
from brain.prompts import blocks, templates
from brain.text import utf8_size
from brain.turn_request import TurnRequest

MIN_FILE_BYTES = 256
"""Bytes of each text file that a model reads at least, however many there are."""


class Transcript:
    """What the model of one turn reads: the system message, earlier exchanges, and the exchange that is under way."""

    __slots__ = ("_earlier", "_exchange", "_is_whole", "_system")

    def __init__(self, system: str, earlier: Sequence[Exchange], exchange: Exchange) -> None:
        self._system = system
        self._earlier = earlier
        self._exchange = exchange
        self._is_whole = True

    def messages(self, resume: Resume) -> list[Message]:
        """Return the request for the next pass."""
        return messages(self._system, [*self._earlier, self._exchange], resume)

    def shorten(self) -> int:
        """Leave out the older half of the earlier exchanges, once. Return how many these are."""
        dropped = (len(self._earlier) + 1) // 2 if self._is_whole else 0
        self._earlier = self._earlier[dropped:]
        self._is_whole = False
        return dropped


def messages(system: str, exchanges: Sequence[Exchange], resume: Resume) -> list[Message]:
    """Return the request for the next pass.

    Roles alternate: some models' templates reject two user messages in a row, which an interrupted turn leaves.
    """
    front = [Message("system", system)] if system else []
    everything = chain(front, *(_exchange_messages(exchange, resume) for exchange in exchanges))
    return [
        Message(role, "\n\n".join(message.content for message in group))
        for role, group in groupby(everything, key=lambda message: message.role)
    ]


def _exchange_messages(exchange: Exchange, resume: Resume) -> list[Message]:
    """A message of the user during the answer cuts the answer in two."""
    question = [Message("user", exchange.question)] if exchange.question else []
    result = [*exchange.messages_before, *question, *exchange.messages_after]
    for is_steer, group in groupby(exchange.parts, key=lambda part: isinstance(part, Steer)):
        parts = list(group)
        if is_steer:
            result += [Message("user", _model_text(part)) for part in parts]
        elif resume == "prefill":
            content = answer_text(parts)
            result += [Message("assistant", content)] if content else []
        else:
            for text, results in _passes(parts):
                result += [Message("assistant", text)] if text else []
                result += [Message("user", f"{results}\n\n{templates.CONTINUE}")] if results else []
    return result


def answer_text(parts: Sequence[Part]) -> str:
    """Return an answer as one text: what the model wrote, with each pass's blocks after its markers."""
    return "".join(text + (f"\n\n{results}\n\n" if results else "") for text, results in _passes(parts))


def _passes(parts: Sequence[Part]) -> list[tuple[str, str]]:
    """For each pass: its text with markers, and its blocks with a blank line between them."""
    passes = []
    for _, group in groupby(parts, key=lambda part: part.turn_pass):
        pass_parts = list(group)
        text = "".join(map(_model_text, pass_parts))
        passes.append((text, "\n\n".join(part.block for part in pass_parts if isinstance(part, Call))))
    return passes


def _model_text(part: Part) -> str:
    return part.marker if isinstance(part, Call) else part.text


def neutralize_exchange(exchange: Exchange, tokens: ControlTokens) -> Exchange:
    """Return an earlier exchange for a model with these control tokens; another model may have written it.

    The model's own text stays, byte for byte.
    """

    def clean(text: str) -> str:
        return neutralize_control_tokens(text, tokens)

    def clean_part(part: Part) -> Part:
        if isinstance(part, Call):
            return msgspec.structs.replace(part, block=clean(part.block))
        return Steer(clean(part.text), part.turn_pass) if isinstance(part, Steer) else part

    return msgspec.structs.replace(
        exchange,
        question=clean(exchange.question),
        messages_before=tuple(replace(one, content=clean(one.content)) for one in exchange.messages_before),
        messages_after=tuple(replace(one, content=clean(one.content)) for one in exchange.messages_after),
        parts=[clean_part(part) for part in exchange.parts],
    )


def question_text(
    request: TurnRequest,
    max_file_bytes: int,
    result_blocks: Iterable[str] = (),
    recall_note: str = "",
    tokens: ControlTokens = ALL_TOKENS,
) -> str:
    """Return the newest message: clock, recalled facts, files, result blocks of automatic calls, and the user's words.

    Args:
        max_file_bytes: bytes of all text files together.
        tokens: the control tokens of the model.
    """
    parts = [] if request.now is None else [templates.clock_note(request.now, request.time_zone)]
    if request.source == "voice":
        parts.append(templates.VOICE_NOTE)
    parts.append(recall_note)
    if request.attachments:
        parts.append(templates.attachments_note(request.attachments))
    texts = [(attachment, text) for attachment in request.attachments if (text := attachment.text)]
    for n, (attachment, text) in enumerate(texts):
        share = max(MIN_FILE_BYTES, max_file_bytes // (len(texts) - n))
        text = blocks.result_text(text, share, tokens=tokens)
        max_file_bytes -= utf8_size(text)
        parts.append(templates.attachment_text(attachment, text))
    return "\n\n".join(filter(None, [*parts, *result_blocks, neutralize(request.message, tokens)]))
