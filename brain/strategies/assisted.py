"""The strategy `mono` for models that do not ask: Brain calls the specialist that the message needs.

Then the model reads the result before the question. If it writes nothing of use, the result is the answer.
"""

import json
from collections.abc import Collection, Generator
from contextlib import suppress
from typing import Any

from brain.assist.answer import FoundText, compose_answer
from brain.assist.decision import Assistance
from brain.assist.grammar import call_grammar
from brain.assist.params import is_stated
from brain.assist.prose import STOPS, Prose
from brain.events import Limits, StopReason
from brain.markers.neutralize import neutralize
from brain.messages import Call, Steer
from brain.prompts import assisted, blocks
from brain.strategies.mono import Mono
from brain.turn.participant import Participant
from brain.turn.strategy import Answer, Passes, PassResult, Plan, RunCall, Step
from brain.turn.tag_filter import Output
from brain.turn.turn import Turn
from brain.turn_request import Decoding, marker_syntaxes

MAX_TOKENS = 512
"""Tokens of an answer without a result: some small models never end."""
MAX_RESULT_TOKENS = 160
"""Tokens about a result: two sentences, and room for a third."""
MAX_PARAMETER_TOKENS = 64
PARAMETER_SECONDS = 3.0
ENDED: Collection[StopReason] = ("complete", "length", "repetition")
"""How a model ends an answer by itself, or a small one when it does not."""
MAX_EARLIER = 4
"""Earlier exchanges that the model reads, unless there is a result."""
MAX_RESULT_BYTES = 2_000
"""Size of a result that is shown as the answer."""
NOTHING_CHANGED = "I changed nothing."

Calling = Generator[Step, PassResult, Call | None]


class Assisted:
    """Brain calls the specialist, if the message needs one. See `Strategy`."""

    max_rounds = 0

    def __init__(self, turn: Turn) -> None:
        assert turn.assistance is not None
        self._turn = turn
        self._assistance = find_possible(turn, turn.assistance)
        self._is_plain = turn.model.is_base
        self._has_begun = False
        self._call: Call | None = None
        self._parameters = _add_parameter_writer(turn, self._assistance)
        has_result = bool(self._assistance.name or turn.request.attachments)
        system = assisted.INSTRUCTION if has_result else turn.instructions
        self.writer = turn.add_participant(
            system=lambda context_tokens: "" if self._is_plain else system,
            history=assisted.shorten_history(turn.history, 0 if has_result else MAX_EARLIER, is_plain=self._is_plain),
        )
        self.participants = [one for one in (self.writer, self._parameters) if one is not None]

    def passes(self) -> Passes:
        """Call the specialist and ask once. Messages that the user adds later get plain answers."""
        found: list[FoundText] = []
        known = ""
        if not self._has_begun:
            self._has_begun = True
            if self._assistance.refusal:
                yield Answer(f"{NOTHING_CHANGED} {self._assistance.refusal}")  # not all protocols have notices
                return "complete"
            call = self._call = yield from make_call(self._turn, self._assistance, self._parameters or self.writer)
            if call is not None and call.code is not None:
                yield Answer(describe(call))
                return "complete"
            found = self._found_texts(call)
            known = self._set_question(found)
        stops = (*STOPS, *(assisted.PLAIN_STOPS if self._is_plain else ()))
        while True:
            prose = Prose(known, [text.text for text in found], stops)
            result = yield Plan(
                participant=self.writer,
                output=prose,
                max_tokens=MAX_RESULT_TOKENS if found else MAX_TOKENS,
                decoding=Decoding(is_plain=self._is_plain, stop=STOPS if self._is_plain else ()),
            )
            if not result.calls or result.was_last:  # it may ask although nobody told it how
                break
            found += [_read(one) for one in result.calls if one.code is None]
        if not prose.text.strip() and found and not result.is_interrupted:
            yield Answer(compose_answer(found))
        return "complete" if found and result.finish in ("length", "repetition") else result.finish

    def best_text(self) -> str:
        """Return the result, if the turn ended before the model wrote about it."""
        return "" if self._call is None else describe(self._call)

    @staticmethod
    def max_passes(limits: Limits) -> int:
        """One pass for the parameters, one for the answer, and those of calls that the model makes by itself."""
        return limits.calls + 3

    def _found_texts(self, call: Call | None) -> list[FoundText]:
        calls = [*self._turn.exchange.automatic_calls, *([call] if call is not None else [])]
        texts = [_read(one) for one in calls if one.code is None and one.block]
        files = [(one.name, text) for one in self._turn.request.attachments if (text := one.text)]
        return [*reversed(texts), *(FoundText(name, blocks.result_text(text)) for name, text in files)]

    def _set_question(self, found: list[FoundText]) -> str:
        """Set what the model reads. Return it without the results."""
        exchange, request = self.writer.exchange, self._turn.request
        information = assisted.information([text.text for text in found])
        notes = assisted.notes(request, self._turn.history.recalled, self._turn.template_tokens)
        message = neutralize(request.message, self._turn.template_tokens)
        exchange.question = assisted.question(message, information, notes, is_plain=self._is_plain)
        exchange.parts[:] = [part for part in exchange.parts if isinstance(part, Steer)]  # without the call
        return "\n".join((request.message, *notes))


class Examined(Mono):
    """The model is left to itself, to see whether it asks now. If not, Brain makes the call after its answer."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(turn)
        self._turn = turn
        readers = [one for one in turn.usable if one.read_only is True]
        self._decoding = Decoding(call_grammar=call_grammar(readers, marker_syntaxes(turn.request.syntax)[0]))

    def passes(self) -> Passes:
        """Ask as usual. Then call the specialist that the model did not call."""
        finish = yield from super().passes()
        if finish in ENDED and not any(isinstance(part, Call) for part in self._turn.exchange.parts):
            assert self._turn.assistance is not None
            call = yield from make_call(self._turn, find_possible(self._turn, self._turn.assistance), self.writer)
            if call is not None:
                yield Answer(f"\n\n{describe(call)}")
        return finish


def find_possible(turn: Turn, assistance: Assistance) -> Assistance:
    """Return the assistance, without a call that may not run: it would change something or need approval."""
    if assistance.params is None or turn.can_assist(assistance.name, assistance.params):
        return assistance
    return Assistance(is_assisted=assistance.is_assisted)


def make_call(turn: Turn, assistance: Assistance, writer: Participant) -> Calling:
    """Run the call that the message needs. Without parameters, the model writes them."""
    params = assistance.params
    if params is None and assistance.schema is not None:
        output = Output({}, {})
        writer.exchange.question = neutralize(turn.request.message, turn.template_tokens)
        yield Plan(
            participant=writer,
            output=output,
            offers=False,
            may_fail=True,
            format=assistance.schema,
            seconds=PARAMETER_SECONDS,
            max_tokens=MAX_PARAMETER_TOKENS,
            temperature=0.0,
        )
        params = _read_object(output.text(""))
        if params is not None and not is_stated(params, assistance.schema, turn.request.message):
            return None
    if params is None or not turn.can_assist(assistance.name, params):  # automatic calls may have read private data
        return None
    call = Call(assistance.name, params=dict(params), by="assist")
    yield RunCall(writer, call)
    return call


def describe(call: Call) -> str:
    """Return the result of a call as an answer."""
    return compose_answer([_read(call)])


def _read(call: Call) -> FoundText:
    failed = call.code is not None
    text = blocks.block_content(call.name, call.block, failed)
    return FoundText(call.name, text if failed else blocks.result_text(text, MAX_RESULT_BYTES), failed)


def _add_parameter_writer(turn: Turn, assistance: Assistance) -> Participant | None:
    """Return a participant that writes the parameters of the call, if no rule found them."""
    if assistance.params is not None or assistance.schema is None:
        return None
    text = assisted.parameter_instruction(assistance.name, assistance.schema)
    history = assisted.shorten_history(turn.history, 0, is_plain=False)
    return turn.add_participant(system=lambda context_tokens: text, history=history)


def _read_object(text: str) -> dict[str, Any] | None:
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        return value if isinstance(value, dict) else None
    return None
