"""The messages of a request to the model: the whole conversation up to the next pass.

The same parts give the same bytes in every later request, so that the model server's prefix cache stays valid.

There are two forms of a request: calls are markers and blocks in the text, or tool calls of the server (`native`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, groupby
from typing import Any, NamedTuple

import msgspec

from brain.events import Resume
from brain.markers.neutralize import neutralize, neutralize_control_tokens, neutralize_json
from brain.markers.template_tokens import ALL_TOKENS, ControlTokens
from brain.messages import Call, CallMessage, CompletedCall, Exchange, Message, Part, Steer
from brain.prompts import blocks, templates
from brain.text import SPECIALIST_NAME, utf8_size
from brain.turn_request import TurnRequest

MIN_FILE_BYTES = 256
"""Bytes of each text file that the model always reads."""


class NativePrompt(NamedTuple):
    """The system message and the tools of requests with native calls. The tools have the form of the OpenAI API."""

    system: str
    tools: Sequence[Mapping[str, Any]]


class Transcript:
    """The text that the model of one turn reads: system message, earlier exchanges and the current exchange.

    Args:
        resume: How to ask for the next pass, whatever the model supports.
        continue_text: Text after the results of a pass of this exchange, in a message.
    """

    __slots__ = ("_continue_text", "_earlier", "_exchange", "_is_whole", "_native", "_resume", "_system")

    def __init__(
        self,
        system: str,
        earlier: Sequence[Exchange],
        exchange: Exchange,
        native: NativePrompt | None = None,
        *,
        resume: Resume | None = None,
        continue_text: str = templates.CONTINUE,
    ) -> None:
        self._resume = resume
        self._continue_text = continue_text
        self._system = system
        self._earlier = earlier
        self._exchange = exchange
        self._native = native
        self._is_whole = True

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """The tools for native calls; empty if the turn may not use them."""
        return () if self._native is None else self._native.tools

    def use_markers(self) -> None:
        """Use calls in the text from now on."""
        self._native = None

    def messages(self, resume: Resume, *, is_native: bool = False) -> list[Message]:
        """Return the request for the next pass."""
        system = self._native.system if is_native and self._native is not None else self._system
        resume, exchanges = self._resume or resume, [*self._earlier, self._exchange]
        result = messages(system, exchanges, resume, self._continue_text, is_native=is_native)
        if resume == "message" and result[-1].is_unfinished:
            result.append(Message("user", templates.CONTINUE_TEXT))
        return result

    def shorten(self) -> int:
        """Leave out the older half of the earlier exchanges, once. Return their number."""
        dropped = (len(self._earlier) + 1) // 2 if self._is_whole else 0
        self._earlier = self._earlier[dropped:]
        self._is_whole = False
        return dropped


def messages(
    system: str,
    exchanges: Sequence[Exchange],
    resume: Resume,
    continue_text: str = templates.CONTINUE,
    *,
    is_native: bool = False,
) -> list[Message]:
    """Return the request for the next pass. `continue_text` follows the results in the newest exchange.

    Roles alternate: an interrupted turn leaves two user messages in a row, which some chat templates reject.
    """
    front = [Message("system", system)] if system else []
    ids = map("call{:05}".format, count(1)) if is_native else None  # nine characters, as Mistral's servers require
    earlier = (_exchange_messages(exchange, resume, templates.CONTINUE, ids) for exchange in exchanges[:-1])
    newest = (_exchange_messages(exchange, resume, continue_text, ids) for exchange in exchanges[-1:])
    groups: list[list[Message]] = []
    for message in chain(front, *earlier, *newest):
        if groups and groups[-1][-1].role == message.role and not isinstance(groups[-1][-1], CallMessage):
            groups[-1].append(message)
        else:
            groups.append([message])
    return [
        group[0] if len(group) == 1 else replace(group[-1], content="\n\n".join(message.content for message in group))
        for group in groups
    ]


def _exchange_messages(
    exchange: Exchange, resume: Resume, continue_text: str, ids: Iterator[str] | None
) -> list[Message]:
    """Return the messages of one exchange. A message that the user added splits the answer.

    Args:
        ids: The next IDs of native calls. None for calls in the text.
    """
    question = [Message("user", exchange.question)] if exchange.question else []
    result = [*exchange.messages_before, *question, *exchange.messages_after]
    for is_steer, group in groupby(exchange.parts, key=lambda part: isinstance(part, Steer)):
        parts = list(group)
        if is_steer:
            result += [Message("user", _model_text(part)) for part in parts]
        elif ids is not None:
            result += _native_messages(parts, ids, continue_text)
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


def _native_messages(parts: Sequence[Part], ids: Iterator[str], continue_text: str) -> list[Message]:
    """Return an answer as messages with tool calls.

    An error without a readable name, such as a forged block, belongs to no tool call. It is a message of the user.
    After results, a model with tools continues by itself, unless a strategy has something to add.
    """
    result: list[Message] = []
    text = ""
    for _, group in groupby(parts, key=lambda part: part.turn_pass):
        pass_parts = list(group)
        text += "".join(part.text for part in pass_parts if not isinstance(part, Call))
        calls = [part for part in pass_parts if isinstance(part, Call)]
        completed = tuple(
            CompletedCall(next(ids), call.name, _arguments(call), _result(call)) for call in calls if _has_name(call)
        )
        if completed:
            result.append(CallMessage("assistant", text, calls=completed))
            text = ""
        nameless = [call.block for call in calls if not _has_name(call)]
        if nameless:
            result += [Message("assistant", text)] if text else []
            text = ""
        if nameless or (completed and continue_text != templates.CONTINUE):
            result += [Message("user", told)] if (told := "\n\n".join(filter(None, [*nameless, continue_text]))) else []
    return [*result, Message("assistant", text)] if text else result


def _has_name(call: Call) -> bool:
    return SPECIALIST_NAME.fullmatch(call.name) is not None


def _arguments(call: Call) -> str:
    return json.dumps(neutralize_json(call.params or {}), ensure_ascii=False)


def _result(call: Call) -> str:
    content = blocks.block_content(call.name, call.block, call.code is not None)
    return content if call.code is None else f"Error: {content}"


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
    notes: Iterable[str] = (),
    tokens: ControlTokens = ALL_TOKENS,
) -> str:
    """Return the newest message: clock, notes, files, context, blocks of automatic calls, and the user's text."""
    sections = [] if request.now is None else [templates.clock_note(request.now, request.time_zone)]
    if request.source == "voice":
        sections.append(templates.VOICE_NOTE)
    sections += notes
    if request.task is not None:
        sections.append(templates.task_note(request.task, tokens))
    if request.attachments:
        sections.append(templates.attachments_note(request.attachments))
    texts = [(attachment, text) for attachment in request.attachments if (text := attachment.text)]
    for n, (attachment, text) in enumerate(texts):
        share = max(MIN_FILE_BYTES, max_file_bytes // (len(texts) - n))
        text = blocks.result_text(text, share, tokens=tokens)
        max_file_bytes -= utf8_size(text)
        sections.append(templates.attachment_text(attachment, text))
    sections += (templates.context_text(name, text, tokens) for name, text in request.context)
    return "\n\n".join(filter(None, [*sections, *result_blocks, neutralize(request.message, tokens)]))
