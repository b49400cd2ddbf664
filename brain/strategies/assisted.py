"""The strategy `mono` for models that call nothing by themselves: Brain calls the specialist that the message needs.

Then the model reads the result before the question. If it writes nothing of use, the result is the answer.
"""

from collections.abc import Collection, Generator, Sequence

from brain.assist.answer_filter import STOPS, AnswerFilter
from brain.assist.assistance import Assistance
from brain.assist.grammar import call_grammar
from brain.assist.params import is_stated
from brain.assist.result_answer import ResultText
from brain.events import Limits, StopReason
from brain.markers.neutralize import BLOCK_BYTES, neutralize
from brain.messages import Attachment, Call, Steer
from brain.prompts import assisted, blocks, templates
from brain.strategies.mono import Mono
from brain.strict_json import decode_object
from brain.turn.participant import Participant, PromptOptions
from brain.turn.strategy import Answer, Passes, PassResult, Plan, RunCall, Step
from brain.turn.tag_filter import Output
from brain.turn.turn import Turn
from brain.turn_request import DEFAULT_DECODING, Decoding, marker_syntaxes

MAX_TOKENS = 512
"""Tokens of an answer of a small model without a result: some never end."""
MAX_RESULT_TOKENS = 160
"""Tokens of a small model about a result: two sentences, and room for a third."""
MAX_PARAMETER_TOKENS = 64
PARAMETER_SECONDS = 3.0
ENDED: Collection[StopReason] = ("complete", "length", "repetition")
"""How a model ends an answer by itself, or a small one when it does not."""
MAX_EARLIER = 4
"""Earlier exchanges that a small model reads, unless there is a result."""
NOTHING_CHANGED = "I changed nothing."

Building = Generator[Step, PassResult, Call | None]


class Assisted:
    """Brain calls the specialist, if the message needs one. See `Strategy`."""

    max_rounds = 0

    def __init__(self, turn: Turn) -> None:
        assert turn.setup.assistance is not None
        self._turn = turn
        self._assistance = find_possible(turn, turn.setup.assistance)
        self._is_small = turn.setup.assistance.is_small
        self._is_plain = turn.setup.models[0].is_base
        self._has_begun = False
        self._call: Call | None = None
        self._parameters = _add_parameter_writer(turn, self._assistance)
        large = PromptOptions(offers=False)
        self.writer = self._add_small_writer() if self._is_small else turn.add_participant(options=large)
        self.participants = [one for one in (self.writer, self._parameters) if one is not None]

    def _add_small_writer(self) -> Participant:
        has_result = bool(self._assistance.name or self._turn.setup.request.attachments)
        system = assisted.INSTRUCTION if has_result else self._turn.instructions
        most = 0 if has_result else MAX_EARLIER
        options = PromptOptions(
            system=lambda context_tokens: "" if self._is_plain else system,
            history=assisted.shorten_history(self._turn.setup.history, most, is_plain=self._is_plain),
        )
        return self._turn.add_participant(options=options)

    def passes(self) -> Passes:
        """Call the specialist and ask once. Messages that the user adds later get plain answers."""
        found: list[ResultText] = []
        known = ""
        if not self._has_begun:
            self._has_begun = True
            if self._assistance.refusal:
                yield Answer(f"{NOTHING_CHANGED} {self._assistance.refusal}")  # not all protocols have notices
                return "complete"
            if self._assistance.question:
                yield Answer(self._assistance.question)
                return "complete"
            writer = self._parameters or self.writer
            self._call = yield from build_call(self._turn, self._assistance, writer)
            if self._call is not None:
                yield RunCall(writer, self._call)
                if self._call.code is not None and self._is_small:
                    yield Answer(describe(self._call))
                    return "complete"
            found = self._result_texts()
            if self._is_small and found and all(text.is_empty for text in found):  # it would make something up
                yield Answer(blocks.write_answer(found))
                return "complete"
            known = self._set_question(found)
        most = None if not self._is_small else MAX_RESULT_TOKENS if found else MAX_TOKENS
        stops = (*STOPS, *(assisted.PLAIN_STOPS if self._is_plain else ())) if self._is_small else ()
        decoding = Decoding(is_plain=True, stop=STOPS) if self._is_plain else DEFAULT_DECODING
        while True:
            output = AnswerFilter(known, [text.text for text in found], stops)
            result = yield Plan(participant=self.writer, output=output, max_tokens=most, decoding=decoding)
            if not result.calls or result.was_last:  # it may call although nobody told it how
                break
            found += [blocks.read_result(one) for one in result.calls if one.code is None]
        if not output.has_shown and found and not result.is_interrupted:
            yield Answer(blocks.write_answer(found))
        return "complete" if found and result.finish in ("length", "repetition") else result.finish

    def best_text(self, results: str = "") -> str:
        """Return the result, if the turn ended before the model wrote about it."""
        return results or ("" if self._call is None or not self._call.block else describe(self._call))

    @staticmethod
    def max_passes(limits: Limits) -> int:
        """One pass for the parameters, one for the answer, and those of calls that the model makes by itself."""
        return limits.calls + 3

    def _result_texts(self) -> list[ResultText]:
        """Return what the answer must be about: results, and the text files of the message."""
        calls = [*self._turn.state.exchange.automatic_calls, *([self._call] if self._call is not None else [])]
        texts = [blocks.read_result(one) for one in calls if one.code is None and one.block]
        return [*reversed(texts), *_read_files(self._turn.setup.request.attachments)]

    def _set_question(self, found: Sequence[ResultText]) -> str:
        """Set what the model reads. Return it without the results."""
        exchange, request, history = self.writer.exchange, self._turn.setup.request, self._turn.setup.history
        texts = [text.text for text in found]
        if not found and self._call is not None:  # it failed
            texts = [describe(self._call)]
        elif not found and self._is_small:  # others read the earlier messages with their files
            texts = [one.text for one in _read_files(history.attachments)]
        context = [templates.context_text(name, text, self._turn.setup.tokens) for name, text in request.context]
        texts += context
        information = assisted.information(texts, assisted.MAX_INFORMATION if self._is_small else BLOCK_BYTES)
        notes = assisted.notes(request, history.recalled, self._turn.setup.tokens)
        asked = self._assistance.message or request.message
        message = neutralize(asked, self._turn.setup.tokens)
        exchange.question = assisted.question(message, information, notes, is_plain=self._is_plain)
        exchange.parts[:] = [part for part in exchange.parts if isinstance(part, Steer)]  # without the call
        return "\n".join((asked, *notes, *context))


class Probe(Mono):
    """The model is left to itself, to see whether it calls. If not, Brain makes the call after its answer."""

    def __init__(self, turn: Turn) -> None:
        assert turn.setup.assistance is not None
        decoding = DEFAULT_DECODING
        if turn.setup.assistance.is_probe:  # nothing constrains a model that may well call by itself
            grammar = call_grammar(turn.setup.usable, marker_syntaxes(turn.setup.request.syntax)[0])
            decoding = Decoding(call_grammar=grammar, stop=STOPS if turn.setup.models[0].is_base else ())
        super().__init__(turn, decoding)
        self._turn = turn
        self._assistance = turn.setup.assistance

    def passes(self) -> Passes:
        """Ask as usual. Then call the specialist that the model did not call."""
        finish = yield from super().passes()
        if finish in ENDED and not any(isinstance(part, Call) for part in self._turn.state.exchange.parts):
            call = yield from build_call(self._turn, find_possible(self._turn, self._assistance), self.writer)
            if call is not None:
                yield RunCall(self.writer, call)
                separator = "\n\n" if self._turn.state.exchange.answer else ""
                yield Answer(f"{separator}{describe(call)}")
        return finish


def find_possible(turn: Turn, assistance: Assistance) -> Assistance:
    """Return the assistance, without a call that may not run: it would change something or need approval."""
    if assistance.params is None or turn.can_assist(assistance.name, assistance.params):
        return assistance
    return Assistance(is_assisted=assistance.is_assisted, is_small=assistance.is_small)


def build_call(turn: Turn, assistance: Assistance, writer: Participant) -> Building:
    """Return the call that the message needs. Without parameters, the model writes them."""
    params = assistance.params
    if params is None and assistance.schema is not None:
        output = Output({}, {})
        writer.exchange.question = neutralize(turn.setup.request.message, turn.setup.tokens)
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
        params, _ = decode_object(output.text(""))
        specialist = next((one for one in turn.setup.usable if one.name == assistance.name), None)
        if params is None or specialist is None or not is_stated(specialist, params, turn.setup.request.message):
            return None
    if params is None or not turn.can_assist(assistance.name, params):  # automatic calls may have read private data
        return None
    return Call(assistance.name, params=dict(params), by="assist")


def describe(call: Call) -> str:
    """Return the result of a call as an answer."""
    return blocks.write_answer([blocks.read_result(call)])


def _read_files(files: Sequence[Attachment]) -> list[ResultText]:
    return [ResultText(one.name, blocks.result_text(text)) for one in files if (text := one.text)]


def _add_parameter_writer(turn: Turn, assistance: Assistance) -> Participant | None:
    """Return a participant that writes the parameters of the call, if no rule found them."""
    if assistance.params is not None or assistance.schema is None:
        return None
    text = assisted.parameter_instruction(assistance.name, assistance.schema)
    history = assisted.shorten_history(turn.setup.history, 0, is_plain=False)
    return turn.add_participant(options=PromptOptions(system=lambda context_tokens: text, history=history))
