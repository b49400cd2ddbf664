"""The messages of a request to the model: the whole conversation up to the next pass.

The same parts give the same bytes in every later request, so that the model server's prefix cache stays valid.
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
"""Bytes of each text file that the model always reads."""


class Transcript:
    """The text that the model of one turn reads: system message, earlier exchanges and the current exchange.

    Args:
        resume: How to ask for the next pass, whatever the model supports.
        continue_text: What follows the results of a pass of this exchange in a message.
    """

    __slots__ = ("_continue_text", "_earlier", "_exchange", "_is_whole", "_resume", "_system")

    def __init__(
        self,
        system: str,
        earlier: Sequence[Exchange],
        exchange: Exchange,
        *,
        resume: Resume | None = None,
        continue_text: str = templates.CONTINUE,
    ) -> None:
        self._resume = resume
        self._continue_text = continue_text
        self._system = system
        self._earlier = earlier
        self._exchange = exchange
        self._is_whole = True

    def messages(self, resume: Resume) -> list[Message]:
        """Return the request for the next pass."""
        resume = self._resume or resume
        result = messages(self._system, [*self._earlier, self._exchange], resume, self._continue_text)
        if resume == "message" and result[-1].role == "assistant":
            result.append(Message("user", templates.CONTINUE_TEXT))
        return result

    def shorten(self) -> int:
        """Leave out the older half of the earlier exchanges, once. Return their number."""
        dropped = (len(self._earlier) + 1) // 2 if self._is_whole else 0
        self._earlier = self._earlier[dropped:]
        self._is_whole = False
        return dropped


def messages(
    system: str, exchanges: Sequence[Exchange], resume: Resume, continue_text: str = templates.CONTINUE
) -> list[Message]:
    """Return the request for the next pass. `continue_text` follows the results in the newest exchange.

    Roles alternate: an interrupted turn leaves two user messages in a row, which some chat templates reject.
    """
    front = [Message("system", system)] if system else []
    earlier = (_exchange_messages(exchange, resume, templates.CONTINUE) for exchange in exchanges[:-1])
    newest = (_exchange_messages(exchange, resume, continue_text) for exchange in exchanges[-1:])
    everything = chain(front, *earlier, *newest)
    return [
        Message(role, "\n\n".join(message.content for message in group))
        for role, group in groupby(everything, key=lambda message: message.role)
    ]


def _exchange_messages(exchange: Exchange, resume: Resume, continue_text: str) -> list[Message]:
    """Return the messages of one exchange. A message that the user added splits the answer."""
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
            text = ""
            for pass_text, results in _passes(parts):
                text += pass_text
                if results:
                    result += [Message("assistant", text)] if text else []
                    result.append(Message("user", f"{results}\n\n{continue_text}".rstrip()))
                    text = ""
            result += [Message("assistant", text)] if text else []
    return result


def answer_text(parts: Sequence[Part]) -> str:
    """Return an answer as one text: the model's text, with the blocks of each pass after its markers."""
    return "".join(text + (f"\n\n{results}\n\n" if results else "") for text, results in _passes(parts))


def _passes(parts: Sequence[Part]) -> list[tuple[str, str]]:
    """Return each pass's text with markers, and its blocks separated by blank lines."""
    passes = []
    for _, group in groupby(parts, key=lambda part: part.turn_pass):
        pass_parts = list(group)
        text = "".join(map(_model_text, pass_parts))
        passes.append((text, "\n\n".join(part.block for part in pass_parts if isinstance(part, Call))))
    return passes


def _model_text(part: Part) -> str:
    return part.marker if isinstance(part, Call) else part.text


def neutralize_exchange(exchange: Exchange, tokens: ControlTokens) -> Exchange:
    """Neutralize an earlier exchange, which another model may have written, for a model with these control tokens.

    The model's own text stays unchanged.
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
    """Return the newest message: clock, recalled facts, files, result blocks of automatic calls, and the user's text.

    Args:
        max_file_bytes: Total size of all text files.
        tokens: Control tokens of the model.
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
